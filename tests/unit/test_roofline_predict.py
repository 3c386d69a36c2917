"""Predictions of a matrix: what is counted, what it costs, what is chosen and warned of."""

from __future__ import annotations

import json
import tracemalloc

import numpy as np
import pytest
from rich.text import Text
from scipy.sparse import csr_array

from spmv_fpga.boards import load_board
from spmv_fpga.errors import MatrixError, SpmvFpgaError
from spmv_fpga.formats import BlockedEll, SellCSigma, SlicedEll, format_stats, stats
from spmv_fpga.formats.partition import partition
from spmv_fpga.matrices import load_matrix, open_matrix
from spmv_fpga.report.roofline import prediction_tables
from spmv_fpga.roofline import choose, load_calibration, predict
from spmv_fpga.roofline.predict import LEAST_SAMPLING_ERROR, busy_power_w, fitting_units


def test_candidates_are_scalar_every_block_and_lanes():
    found = predict("gallery:poisson2d:n=30")
    kinds = [(c.workload.kernel, c.workload.parameter) for c in found.candidates]
    blocks = [("block", P) for P in (4, 8, 16, 32)]
    assert kinds == [("scalar", 16), *blocks, ("lanes", 8)]


def test_a_calibration_that_does_not_know_lanes_leaves_it_out():
    found = predict("gallery:poisson2d:n=30", calibration="paper")
    assert {c.workload.kernel for c in found.candidates} == {"scalar", "block"}


def test_counts_are_those_of_format_stats():
    A = load_matrix("gallery:powerlaw:n=700")
    expected = format_stats(A, blocks=(8, 32), slices=(4,), depths=(8, 16))
    found = predict(A, blocks=(8, 32), slices=(4,), depths=(8, 16)).candidates
    for candidate, counted in zip(found, expected, strict=True):
        work = candidate.workload
        assert (work.num_stored, work.bytes, work.matrix_bytes) == (
            counted.num_stored, counted.bytes, counted.matrix_bytes,
        )  # fmt: skip


def test_the_best_are_those_with_the_least_time_and_energy():
    found = predict("gallery:poisson2d:n=100")
    times = [c.time_s.value for c in found.candidates]
    energies = [c.energy_j.value for c in found.candidates]
    assert times[found.best_time] == min(times)
    assert energies[found.best_energy] == min(energies)


@pytest.mark.parametrize(("depth", "panel"), [(8, None), (16, 1024)])
@pytest.mark.parametrize("spec", ["gallery:powerlaw:n=3000", "gallery:elasticity3d:n=6"])
def test_words_of_lanes_are_those_of_the_stream(spec, depth, panel):
    A = load_matrix(spec)
    parameters = {"depth": depth} if panel is None else {"depth": depth, "panel": panel}
    (found,) = predict(A, blocks=(), slices=(), depths=(depth,), panel=panel).candidates
    made = SellCSigma.from_csr(A, **parameters)
    assert (found.workload.accesses, found.workload.bytes) == (made.num_words, made.bytes)


def test_the_share_of_a_unit_of_lanes_is_what_the_partition_gives_it():
    A = load_matrix("gallery:elasticity3d:n=12")
    (found,) = predict(A, blocks=(), slices=(), compute_units=4).candidates
    made = partition(A, SellCSigma, {"depth": 8}, compute_units=4)
    words = [part.fmt.num_words for part in made.parts]
    assert len(words) == 4
    # 4.2 % less: of so few chunks the last is wider than that of the whole matrix.
    assert found.workload.share(4).accesses == pytest.approx(np.mean(words), rel=0.05)


@pytest.mark.parametrize("spec", ["gallery:poisson3d:n=25", "gallery:elasticity3d:n=20"])
def test_the_share_of_a_unit_of_lanes_is_near_where_it_has_many_chunks(spec):
    A = load_matrix(spec)
    (found,) = predict(A, blocks=(), slices=(), compute_units=4).candidates
    made = partition(A, SellCSigma, {"depth": 8}, compute_units=4)
    mean = np.mean([part.fmt.num_words for part in made.parts])
    assert found.workload.share(4).accesses == pytest.approx(mean, rel=0.015)


def best(A, **sizes):
    found = predict(A, **sizes)
    return found.candidates[found.best_time].workload


def test_a_stencil_wants_small_tiles_and_a_dense_band_large_ones():
    assert best("gallery:poisson2d:n=200", depths=()).parameter == 4
    assert best("gallery:banded:n=9000,bandwidth=400").parameter == 16


def test_a_stencil_wants_the_kernel_without_tiles():
    assert choose("gallery:poisson2d:n=200").workload.kernel == "lanes"


def test_scattered_single_entries_want_a_kernel_without_tiles():
    rng = np.random.default_rng(1)
    rows = np.arange(100_000)
    A = csr_array((np.ones(100_000, np.float32), (rows, rng.permutation(100_000))))
    assert best(A, blocks=(16,), depths=()).kernel == "scalar"
    assert choose(A, block=16).workload.kernel != "block"


def test_a_given_block_leaves_no_other_to_choose():
    assert choose("gallery:banded:n=9000,bandwidth=400", block=8).workload.block == 8


def test_time_and_energy_may_choose_differently():
    # At 10.5 % Block is a little faster, and takes more power than that saves.
    A = load_matrix("twin:custom:n=5000,nnz=500000,density=10.5%")
    found = predict(A, blocks=(16,), depths=())
    assert found.candidates[found.best_time].workload.kernel == "block"
    assert found.candidates[found.best_energy].workload.kernel == "scalar"


def test_an_unknown_goal_is_refused():
    with pytest.raises(SpmvFpgaError, match="it must be 'time' or 'energy'"):
        choose("twin:ex9", goal="beauty")


def test_the_paper_calibration_knows_one_access_size_a_block():
    found = predict("twin:ex9", calibration="paper", blocks=(16,)).candidates
    assert [c.workload.access_bytes for c in found] == [4, 64]


def test_the_document_has_the_keys_that_programs_rely_on():
    document = predict("twin:ex9").to_json()
    text = json.dumps(document, allow_nan=False)
    assert json.loads(text) == document
    assert {"matrix", "candidates", "best_time", "best_energy", "warnings"} <= set(document)
    assert document["matrix"]["nnz"] == 51417
    for candidate in document["candidates"]:
        assert {
            "kernel", "block", "slice", "compute_units", "num_stored", "density", "cia",
            "access_bytes", "accesses", "matrix_bytes", "bytes", "bound", "time_s", "gflops",
            "power_w", "energy_j",
        } <= set(candidate)  # fmt: skip
        for key in ("time_s", "gflops", "power_w", "energy_j"):
            assert candidate[key]["origin"] == "modelled"
            assert candidate[key]["low"] <= candidate[key]["value"] <= candidate[key]["high"]


def test_an_empty_matrix_is_predicted_without_a_rate():
    document = predict(csr_array((5, 5), dtype=np.float32)).to_json()
    json.dumps(document, allow_nan=False)
    assert all(c["gflops"]["value"] is None for c in document["candidates"])


@pytest.mark.parametrize("shape", [(0, 0), (0, 7), (7, 0)])
def test_a_matrix_without_rows_or_columns_is_predicted(shape):
    assert len(predict(csr_array(shape, dtype=np.float32)).candidates) == 6


def test_a_matrix_too_wide_for_the_chip_is_warned_of():
    wide = csr_array((np.ones(1, np.float32), ([0], [300_000])), shape=(1, 400_000))
    found = predict(wide, blocks=(16,)).warnings
    assert any("cols is 400000; calibration u50 covers 1 to 262144" in w for w in found)


def test_a_matrix_too_large_for_a_bank_is_warned_of():
    # A tile of 32·32 takes 4 KiB: 65536 of them fill 256 MiB.
    diagonal = np.arange(0, 70_000 * 32, 32)
    A = csr_array(
        (np.ones(70_000, np.float32), (diagonal, diagonal)), shape=(70_000 * 32, 70_000 * 32)
    )
    found = predict(A, blocks=(32,), slices=(), depths=()).warnings
    assert any("a bank of board u50 has 256.0 MiB" in w for w in found)


def test_nothing_to_predict_is_refused():
    with pytest.raises(SpmvFpgaError, match="give a block, a slice or a depth"):
        predict("twin:ex9", blocks=(), slices=(), depths=())


def test_an_unknown_matrix_is_refused():
    with pytest.raises(MatrixError):
        predict("twin:nothing")


def test_a_given_clock_changes_what_the_clock_binds():
    slow, fast = (
        predict("twin:ex9", clock_hz=f, blocks=()).candidates[0].terms["slots"]
        for f in (100e6, 200e6)
    )
    assert slow == pytest.approx(2 * fast)


# Cost


def test_every_entry_is_looked_at_once_for_each_block(monkeypatch):
    looked_at = []
    count = stats.count_blocks

    def counting(csr, block):
        looked_at.append((block, csr.nnz))
        return count(csr, block)

    monkeypatch.setattr(stats, "count_blocks", counting)
    A = load_matrix("gallery:powerlaw:n=3000")
    predict(A)
    assert looked_at == [(P, A.nnz) for P in (4, 8, 16, 32)]


def peak_bytes(A, **sizes):
    predict(A, **sizes)
    tracemalloc.start()
    predict(A, **sizes)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_a_prediction_allocates_nothing_of_the_size_of_the_entries():
    A = load_matrix("gallery:banded:n=3000,bandwidth=200")
    assert peak_bytes(A, depths=()) < A.data.nbytes / 4


def test_lanes_are_counted_in_less_memory_than_their_values_take():
    A = load_matrix("gallery:banded:n=3000,bandwidth=200")
    assert peak_bytes(A, blocks=(), slices=()) < 0.6 * A.data.nbytes


def test_a_sample_looks_at_its_strips_only(monkeypatch):
    from spmv_fpga.roofline.predict import count_blocks

    looked_at = []

    def counting(csr, block):
        looked_at.append(csr.nnz)
        return count_blocks(csr, block)

    # The package's name `predict` is the function; its module is reached by this one.
    monkeypatch.setitem(predict.__globals__, "count_blocks", counting)
    A = load_matrix("gallery:banded:n=20000,bandwidth=50")
    found = predict(A, sample_rows=320)
    assert found.sampled_rows == 320
    assert sum(looked_at) < 4 * 0.02 * A.nnz


# Sampling


@pytest.mark.parametrize(
    "spec",
    [
        "gallery:powerlaw:n=20000",
        "gallery:poisson3d:n=25",
        "gallery:banded:n=20000,bandwidth=50",
        "twin:thread",
    ],
)
def test_a_sample_keeps_to_the_error_that_it_states(spec):
    matrix = open_matrix(spec)
    exact = [c.workload.num_stored for c in predict(matrix).candidates]
    kept = total = 0
    for seed in range(20):
        found = predict(matrix, sample_rows=1000, seed=seed)
        assert found.sampled_rows < 1100
        for candidate, true in zip(found.candidates[1:5], exact[1:5], strict=True):
            work = candidate.workload
            kept += abs(work.num_stored / true - 1) <= work.count_error
            total += 1
    assert total == 80
    assert kept >= 74  # 95 % of 80 is 76


def test_row_lengths_are_counted_exactly_also_in_a_sample():
    matrix = open_matrix("gallery:powerlaw:n=20000")
    whole, sampled = predict(matrix), predict(matrix, sample_rows=500)
    for kernel, i in (("scalar", 0), ("lanes", -1)):
        assert sampled.candidates[i].workload == whole.candidates[i].workload
        assert sampled.candidates[i].workload.kernel == kernel
        assert sampled.candidates[i].workload.count_error == 0


def test_a_sample_says_what_it_may_be_off_by():
    found = predict("gallery:powerlaw:n=20000", sample_rows=500)
    worst = max(c.workload.count_error for c in found.candidates)
    assert worst > LEAST_SAMPLING_ERROR
    assert f"within {100 * worst:.1f} % at 95 %" in found.warnings[0]
    assert found.to_json()["sampled_rows"] == found.sampled_rows


def test_a_sample_of_all_rows_is_no_sample():
    found = predict("twin:ex9", sample_rows=10_000)
    assert found.sampled_rows is None
    assert all(c.workload.count_error == 0 for c in found.candidates)


def test_the_same_seed_gives_the_same_sample():
    first, second = (
        predict("gallery:powerlaw:n=20000", sample_rows=500, seed=4).to_json() for _ in "ab"
    )
    assert first == second


@pytest.mark.parametrize("rows", [0, -5])
def test_a_sample_of_nothing_is_refused(rows):
    with pytest.raises(SpmvFpgaError, match="it must be 1 or more"):
        predict("twin:ex9", sample_rows=rows)


def test_a_calibration_may_be_given_as_a_file(tmp_path):
    load_calibration("u50").with_clock(123e6).save(tmp_path / "own.toml")
    found = predict("twin:ex9", calibration=tmp_path / "own.toml")
    assert found.calibration.rate("clock_hz").value == 123e6


# Several compute units


def units_of(found, indices):
    return [found.candidates[i].compute_units for i in indices]


def test_every_number_of_units_up_to_the_limit_is_predicted_for_every_kernel():
    found = predict("twin:ex9", blocks=(16,), compute_units="all", max_units=3)
    kinds = [(c.workload.kernel, c.compute_units) for c in found.candidates]
    assert kinds == [(kernel, n) for kernel in ("scalar", "block", "lanes") for n in (1, 2, 3)]


def test_several_numbers_of_units_are_predicted_in_order():
    found = predict("twin:ex9", blocks=(16,), slices=(), depths=(), compute_units=(4, 1, 4))
    assert [c.compute_units for c in found.candidates] == [1, 4]


def test_each_kernel_may_have_its_own_limit():
    def fits(kernel, parameters):
        return {("scalar", "slice", 16): 2, ("block", "block", 8): 3, ("lanes", "depth", 8): 1}[
            (kernel, *next(iter(parameters.items())))
        ]

    found = predict("twin:ex9", blocks=(8,), compute_units="all", max_units=fits)
    assert [c.max_units for c in found.choices] == [2, 3, 1]
    assert [c.compute_units for c in found.candidates] == [1, 2, 1, 2, 3, 1]


def test_the_best_of_each_kernel_has_the_least_of_those_that_fit():
    found = predict("twin:nd6k", compute_units="all")
    for choice in found.choices:
        own = [
            i
            for i, c in enumerate(found.candidates)
            if (c.workload.kernel, c.workload.parameter) == (choice.kernel, choice.parameter)
            and found.fits[i]
        ]
        times = {found.candidates[i].time_s.value for i in own}
        energies = {found.candidates[i].energy_j.value for i in own}
        assert found.candidates[choice.best_time].time_s.value == min(times)
        assert found.candidates[choice.best_energy].energy_j.value == min(energies)


def test_few_entries_want_fewer_units_for_energy_than_for_time():
    # The launch takes most of the time whatever the units, and each takes power.
    (choice,) = (
        found := predict("twin:ex9", blocks=(16,), slices=(), depths=(), compute_units="all")
    ).choices
    energy, time = units_of(found, (choice.best_energy, choice.best_time))
    assert energy < time


def test_more_units_than_fit_are_shown_and_not_chosen():
    found = predict(
        "twin:nd6k", blocks=(16,), slices=(), depths=(), compute_units=(2, 5), max_units=4
    )
    assert found.fits == (True, False)
    assert found.best_time == 0
    assert "block 16: 5 units or more are not chosen; 4 fit board u50." in found.warnings


def test_units_whose_busy_ports_take_more_than_the_cap_are_not_chosen():
    calibration = load_calibration("u50")
    found = predict("twin:nd6k", blocks=(16,), slices=(), compute_units=(1, 60), max_units=99)
    assert busy_power_w("block", 16, calibration, 60) > 75
    assert busy_power_w("lanes", 8, calibration, 60) > 75
    assert found.fits == (True, False, True, False)
    assert any("the cap of board u50 75 W" in w for w in found.warnings)


def test_the_most_units_are_the_most_that_fit_and_stay_below_the_cap():
    cool = load_board("u50")
    calibration = load_calibration("u50")
    found = predict("twin:ex9", blocks=(16,), compute_units="max", max_units=99).candidates
    for candidate in found[1:]:
        own = candidate.workload.kernel, candidate.workload.parameter
        most = candidate.compute_units
        assert fitting_units(*own, 99, calibration, cool)[-1] == most
        assert busy_power_w(*own, calibration, most) <= 75
        assert busy_power_w(*own, calibration, most + 1) > 75


@pytest.mark.parametrize(("asked", "message"), [("many", "'all' or 'max'"), ((), "empty")])
def test_numbers_of_units_that_are_none_are_refused(asked, message):
    with pytest.raises(SpmvFpgaError, match=message):
        predict("twin:ex9", compute_units=asked)


def test_units_without_rows_do_not_make_a_product_faster():
    A = load_matrix("gallery:banded:n=32,bandwidth=20")
    two, many = predict(A, blocks=(16,), slices=(), depths=(), compute_units=(2, 16)).candidates
    # Two block rows: more than two units have nothing to do.
    assert many.terms["x"] == two.terms["x"]
    assert many.workload.share(16) == two.workload.share(2)


def test_ts2383_is_modelled_at_less_than_0_6_ms_with_16_units():
    # 0.1 ms launch, 12 µs x, 457 µs for a sixteenth of 1,429,081 words at 195.3 M a second.
    (found,) = predict(
        "twin:TS2383", blocks=(16,), slices=(), depths=(), compute_units=16
    ).candidates
    assert found.time_s.value == pytest.approx(0.5704e-3, rel=1e-3)
    assert found.terms["channel"] == pytest.approx(0.4573e-3, rel=1e-3)
    assert found.terms["launch"] == 1e-4


# Panels of columns


@pytest.mark.parametrize(
    ("cls", "parameters", "spec"),
    [
        (SlicedEll, {"slice": 4}, "gallery:powerlaw:n=700"),
        (BlockedEll, {"block": 8}, "gallery:powerlaw:n=700"),
        (BlockedEll, {"block": 32}, "gallery:diagonal:n=500"),
    ],
)
def test_panels_store_what_the_partition_stores(cls, parameters, spec):
    A = load_matrix(spec)
    made = partition(A, cls, parameters, x_room=96)
    (size,) = parameters.values()
    sizes = {"blocks": (size,), "slices": ()} if cls is BlockedEll else {
        "blocks": (), "slices": (size,)}  # fmt: skip
    (found,) = predict(A, **sizes, depths=(), x_room=lambda _: 96).candidates
    work = found.workload
    assert work.launches == made.num_rounds
    assert work.num_stored == made.num_stored
    assert work.matrix_bytes == made.matrix_bytes
    # Descriptors of a panel begin in a word of their own.
    assert 0 <= made.bytes / 64 - work.accesses < work.launches


def test_each_panel_costs_a_launch_and_a_writing_of_y():
    A = load_matrix("gallery:banded:n=960,bandwidth=9")
    whole, cut = (
        predict(A, blocks=(16,), slices=(), depths=(), x_room=lambda _, r=room: r).candidates[0]
        for room in (960, 320)
    )
    assert cut.terms["launch"] == pytest.approx(3 * whole.terms["launch"])
    assert cut.terms["fill"] == pytest.approx(3 * whole.terms["fill"])
    assert cut.overlapped["y"] == pytest.approx(3 * whole.overlapped["y"])
    assert cut.terms["x"] == whole.terms["x"]


def test_x_that_is_too_long_for_many_units_goes_in_panels():
    A = csr_array((np.ones(1, np.float32), ([0], [99_999])), shape=(100, 100_000))
    found = predict(A, blocks=(16,), slices=(), compute_units=(1, 4)).candidates
    # Panels of lanes are within a launch.
    assert [c.workload.launches for c in found] == [1, 2, 1, 1]


def test_y_that_is_too_long_for_lanes_goes_in_rounds_of_rows():
    A = load_matrix("gallery:banded:n=70000,bandwidth=3")
    one, four = (
        predict(A, blocks=(), slices=(), compute_units=n).candidates[0] for n in (1, 4)
    )
    made = partition(A, SellCSigma, {"depth": 8}, y_room=32768)
    assert (one.workload.launches, four.workload.launches) == (made.num_rounds, 1) == (3, 1)
    assert one.workload.accesses == pytest.approx(made.bytes / 64, rel=0.02)
    assert one.terms["launch"] == pytest.approx(3 * four.terms["launch"])
    panels = sum(part.fmt.num_panels for part in made.parts)
    # Of a band, a round touches 2 or 3 of 5 panels, not all; each is taken for the largest.
    assert panels <= one.workload.num_panels <= panels + 2
    assert one.terms["panels"] == pytest.approx(one.workload.num_panels * 140 / 300e6)
    assert four.workload.num_panels == 2  # of each unit
    ratio = one.workload.num_panels / four.workload.num_panels
    assert one.terms["x"] == pytest.approx(ratio * four.terms["x"], rel=1e-3)
    assert one.terms["y"] == pytest.approx(2 * 70_000 / 16 / 300e6)


def test_parts_of_the_rows_are_said():
    found = predict("gallery:diagonal:n=40000", blocks=(), slices=(), compute_units=(1, 2))
    assert any("rows go in parts, each with a launch (2 parts where units are 1)" in w
               for w in found.warnings)  # fmt: skip


def test_lanes_with_more_rows_than_addresses_are_counted():
    A = load_matrix("gallery:diagonal:n=1100000")
    (found,) = predict(A, blocks=(), slices=()).candidates
    assert found.workload.launches == 36  # 30,720 rows at a time
    assert found.workload.nnz == 1_100_000
    # Two panels a round and more, each with a last chunk that is half empty.
    assert 1 < found.workload.num_stored / 1_100_000 < 1.02


def test_panels_are_said_with_what_they_leave_out():
    A = csr_array((np.ones(1, np.float32), ([0], [99_999])), shape=(100, 100_000))
    found = predict(A, blocks=(16,), slices=(), compute_units=4)
    assert any("each with a launch (2 panels where units are 4)" in w for w in found.warnings)


# What the table says


def shown(found) -> str:
    return "\n".join(str(part) for part in prediction_tables(found) if isinstance(part, Text))


def test_kernels_that_the_model_cannot_tell_from_the_best_are_named():
    found = predict("twin:TS2383")
    best = found.candidates[found.best_time].time_s
    block_8 = next(c for c in found.candidates if c.workload.block == 8)
    assert block_8.time_s.value <= best.high
    assert "Best for time is block, P 16; within the error of it: block, P 8." in shown(found)


def test_a_twin_says_which_of_its_tiles_are_those_of_the_original():
    warnings = predict("twin:ex9").warnings
    assert any("tiles of another size" in warning for warning in warnings)
    assert not any("tiles of another size" in w for w in predict("gallery:poisson2d").warnings)


def test_what_holds_for_several_kernels_is_warned_of_once():
    warnings = predict("twin:ex9", calibration="paper").warnings
    assert "block 4, block 8, block 32: calibration paper was fitted on 16 only." in warnings
