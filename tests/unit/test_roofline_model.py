"""The model's figures by hand: counts, roofs, zones, terms, intervals."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, eye_array

from spmv_fpga.errors import SpmvFpgaError
from spmv_fpga.formats import FORMATS, BlockedEll, format_stats
from spmv_fpga.matrices import load_matrix
from spmv_fpga.resources import data_dir
from spmv_fpga.roofline import energy_lines, load_calibration, predict_one, roofs
from spmv_fpga.roofline.model import (
    ADD_REUSE_CYCLES,
    Workload,
    published_workload,
    workload,
)

PAPER, OWN = load_calibration("paper"), load_calibration("u50")


def work(kernel: str, parameter: int, A: csr_array, calibration=OWN) -> Workload:
    sizes = {"blocks": [], "slices": []}
    sizes["blocks" if kernel == "block" else "slices"] = [parameter]
    (stats,) = format_stats(A, **sizes)
    return workload(stats, A.shape, calibration)


def dense(m: int, n: int) -> csr_array:
    return csr_array(np.ones((m, n), np.float32))


# Counts


@pytest.mark.parametrize(("kernel", "parameter"), [("scalar", 16), ("block", 4), ("block", 32)])
def test_accesses_of_this_projects_kernels_are_the_words_of_their_stream(kernel, parameter):
    A = load_matrix("gallery:powerlaw:n=500")
    key = "block" if kernel == "block" else "slice"
    fmt = FORMATS[kernel].convert(A, {key: parameter})
    counted = work(kernel, parameter, A)
    assert (counted.accesses, counted.access_bytes) == (fmt.num_words, 64)
    assert counted.bytes == fmt.buffers()["matrix"].nbytes == 64 * counted.accesses


@pytest.mark.parametrize(("block", "accesses"), [(4, 8 * 8 * 4), (16, 2 * 2 * 16), (32, 32)])
def test_accesses_of_the_papers_block_are_rows_of_its_tiles(block, accesses):
    counted = work("block", block, dense(32, 32), PAPER)
    assert (counted.accesses, counted.access_bytes) == (accesses, 4 * block)
    assert counted.cia == counted.theoretical_cia == 2 * block


def test_accesses_of_the_papers_scalar_are_its_slots():
    counted = work("scalar", 16, dense(32, 32), PAPER)
    assert (counted.accesses, counted.access_bytes, counted.cia) == (1024, 4, 2)


def test_cia_counts_useful_flop_only():
    # 32 entries in two tiles of 256 slots: 32 accesses of 16 values.
    counted = work("block", 16, eye_array(32, format="csr", dtype=np.float32), PAPER)
    assert (counted.cia, counted.theoretical_cia) == (2.0, 32.0)


def test_an_empty_matrix_has_no_intensity_and_still_a_launch():
    empty = csr_array((40, 40), dtype=np.float32)
    predicted = predict_one(work("block", 16, empty), OWN)
    assert predicted.cia == 0
    assert predicted.gflops.value is None
    assert predicted.time_s.value > 1e-4


def test_published_figures_give_the_blocks_of_the_printed_density():
    # 88603 / (256 · 0.24), of Table 1's nasa2910.
    assert published_workload("block", 2910, 88603, 0.24, PAPER).blocks == 1442


@pytest.mark.parametrize("density", [0.0, -0.1, 1.1])
def test_an_impossible_density_is_refused(density):
    with pytest.raises(SpmvFpgaError, match=r"it must be in \(0, 1\]"):
        published_workload("block", 100, 100, density, PAPER)


def test_units_share_the_rows_and_each_loads_all_of_x():
    whole = work("block", 16, dense(320, 64))
    part = whole.share(2)
    assert (part.accesses, part.rows, part.nnz) == (-(-whole.accesses // 2), 160, 10240)
    assert part.x_words == whole.x_words == 4


# Cycles of the reducers, counted by hand from common/reduce.hpp.


def test_the_reuse_distance_is_that_of_the_kernels():
    text = (Path(data_dir("hls_templates")) / "common" / "reduce.hpp").read_text("utf-8")
    assert f"kReuseDistance = {ADD_REUSE_CYCLES};" in text


@pytest.mark.parametrize(
    ("kernel", "parameter", "cycles"),
    [
        # 4 block rows of 4 tiles of 16 words: (256 words + 4 · 16 drained) / 2.
        ("block", 16, 160),
        # 8 block rows of 8 tiles of 4 words, 4 groups, a wait of 8: (256 + 8 · 12) / 2.
        ("block", 8, 176),
        # 16 block rows of 16 tiles of 1 word, 1 group, a wait of 8: (256 + 16 · 9) / 2.
        ("block", 4, 200),
        # 4 slices of 64 slot-columns of 16 rows: (4096 slots + 4 · 16) / 2.
        ("scalar", 16, 2080),
    ],
)
def test_reducers_cost_their_words_a_wait_and_the_drain(kernel, parameter, cycles):
    assert work(kernel, parameter, dense(64, 64)).reduce_cycles == cycles


def test_draining_short_strips_binds_at_one_group_a_cycle():
    # A row group leaves in each cycle, 16 of a block row: no shorter than the rows.
    assert work("block", 16, csr_array((1600, 16), dtype=np.float32)).reduce_cycles == 1600


# Roofs and zones


def test_roofs_of_the_papers_block_meet_at_the_ridge():
    # 16 lanes · 2 flop · 300 MHz; 12.5 GB/s over 64 bytes.
    found = roofs(PAPER, "block", 16)
    assert found.compute_gflops == pytest.approx(9.6)
    assert found.accesses_per_s == 195_312_500
    assert found.ridge_cia == pytest.approx(49.152)
    assert found.attainable_gflops(found.ridge_cia) == pytest.approx(9.6)
    assert found.attainable_gflops(22.72) == pytest.approx(4.4375)


def test_the_access_roof_does_not_rise_with_narrower_accesses():
    assert roofs(PAPER, "block", 8).accesses_per_s == roofs(PAPER, "block", 16).accesses_per_s
    assert roofs(PAPER, "block", 8).compute_gflops == pytest.approx(4.8)


def test_the_papers_scalar_is_bound_by_its_one_product_a_cycle():
    found = roofs(PAPER, "scalar", 16)
    assert found.attainable_gflops(2.0) == found.compute_gflops == pytest.approx(0.6)


def test_every_unit_brings_a_channel_and_its_lanes():
    one, four = roofs(OWN, "block", 16), roofs(OWN, "block", 16, compute_units=4)
    assert four.accesses_per_s == 4 * one.accesses_per_s
    assert four.compute_gflops == 4 * one.compute_gflops


def test_energy_improves_from_p2_over_p1_times_the_scalar_line_on():
    lines = energy_lines(PAPER)
    scalar, block = PAPER.kernel("scalar").power, PAPER.kernel("block").power
    p1 = scalar.idle_w.value + scalar.kernel_w.value
    p2 = block.idle_w.value + block.kernel_w.value + 12.5e9 * block.w_per_byte_per_s.value
    assert lines.scalar_gflops == pytest.approx(0.6)
    assert lines.equal_energy_gflops == pytest.approx(0.6 * p2 / p1)
    assert lines.min_cia_time == pytest.approx(0.6e9 / 195_312_500)
    assert lines.min_cia_energy == pytest.approx(0.6e9 * p2 / p1 / 195_312_500)
    assert lines.min_cia_time < lines.min_cia_energy


def test_the_papers_zones_part_its_own_matrices():
    # CIA at P = 16 is 32 times the density: chipC0 (1 %) is slower, TS2383 (71 %) gains both.
    lines = energy_lines(PAPER)
    assert lines.min_cia_time > 32 * 0.01
    assert lines.min_cia_energy < 32 * 0.71


# Predictions


@pytest.mark.parametrize("calibration", [PAPER, OWN], ids=["paper", "u50"])
@pytest.mark.parametrize(("kernel", "parameter"), [("scalar", 16), ("block", 16), ("block", 4)])
def test_terms_add_up_to_the_time_and_parts_to_the_energy(calibration, kernel, parameter):
    A = load_matrix("gallery:poisson2d:n=60")
    predicted = predict_one(work(kernel, parameter, A, calibration), calibration)
    assert math.fsum(predicted.terms.values()) == pytest.approx(predicted.time_s.value)
    assert math.fsum(predicted.energy_parts.values()) == pytest.approx(predicted.energy_j.value)
    assert predicted.energy_j.value == pytest.approx(
        predicted.time_s.value * predicted.power_w.value
    )
    assert predicted.terms[predicted.bound] == max(predicted.terms.values())
    for figure in (predicted.time_s, predicted.gflops, predicted.power_w, predicted.energy_j):
        assert figure.origin == "modelled"
        assert 0 < figure.low <= figure.value <= figure.high


def test_the_papers_time_is_its_three_terms():
    terms = {t.name: t.seconds.value for t in PAPER.kernel("block").terms}
    predicted = predict_one(published_workload("block", 9000, 1644345, 0.43, PAPER), PAPER)
    accesses = 16 * round(1644345 / (256 * 0.43))
    expected = terms["launch"] + 9000 * terms["rows"] + accesses * terms["accesses"]
    assert predicted.time_s.value == pytest.approx(expected)
    assert predicted.bound == "accesses"


def test_this_projects_block_streams_words_at_the_channels_rate():
    A = load_matrix("gallery:banded:n=4096,bandwidth=60")
    predicted = predict_one(work("block", 16, A), OWN)
    words = BlockedEll.from_csr(A, block=16).num_words
    assert predicted.terms["channel"] == pytest.approx(words * 64 / 12.5e9)
    assert predicted.terms["x"] == pytest.approx(256 * 64 / 12.5e9)
    assert set(predicted.terms) == {"launch", "x", "fill", "channel"}


def test_this_projects_scalar_takes_a_slot_a_cycle():
    A = load_matrix("gallery:banded:n=4096,bandwidth=60")
    counted = work("scalar", 16, A)
    assert predict_one(counted, OWN).terms["slots"] == pytest.approx(counted.num_stored / 300e6)


def test_short_block_rows_are_bound_by_the_reducers():
    # A tile a block row at P = 4: 1 word, 8 cycles of waiting, 1 group, in two reducers.
    A = eye_array(400_000, format="csr", dtype=np.float32)
    predicted = predict_one(work("block", 4, A), OWN)
    assert predicted.bound == "reduce"
    assert predicted.terms["reduce"] == pytest.approx(100_000 * 10 / 2 / 300e6)


def test_a_slow_clock_binds_where_the_channel_did():
    A = load_matrix("gallery:banded:n=4096,bandwidth=60")
    slow = OWN.with_clock(50e6)
    predicted = predict_one(work("block", 16, A), slow)
    assert predicted.bound == "unpack"
    assert predicted.terms["unpack"] == pytest.approx(
        predicted.workload.unpack_cycles / 50e6, rel=1e-3
    )


def test_four_units_quarter_the_stream_but_not_the_launch():
    A = load_matrix("gallery:banded:n=4096,bandwidth=60")
    one, four = (predict_one(work("block", 16, A), OWN, n) for n in (1, 4))
    assert four.terms["channel"] == pytest.approx(one.terms["channel"] / 4, rel=1e-3)
    assert four.terms["launch"] == one.terms["launch"]
    assert math.fsum(four.energy_parts.values()) == pytest.approx(four.energy_j.value)
    assert four.power_w.value > one.power_w.value + 3 * OWN.kernel("block").power.unit_w.value


def test_block_max_counts_the_padding():
    A = load_matrix("gallery:poisson2d:n=60")
    predicted = predict_one(work("block", 16, A), OWN)
    share = predicted.gflops.value / predicted.block_max_gflops
    assert share == pytest.approx(predicted.workload.density)


def test_wider_bounds_of_a_parameter_widen_the_interval_of_the_time():
    A = load_matrix("gallery:poisson2d:n=60")
    free, fixed = OWN, OWN.with_clock(300e6)
    wide, narrow = (predict_one(work("scalar", 16, A), c).time_s for c in (free, fixed))
    assert wide.value == narrow.value
    assert wide.high - wide.low > narrow.high - narrow.low


def test_counts_that_are_uncertain_widen_the_interval_of_the_time():
    A = load_matrix("gallery:banded:n=4096,bandwidth=60")
    (stats,) = format_stats(A, blocks=[16], slices=[])
    exact, sampled = (
        predict_one(workload(stats, A.shape, OWN, count_error=e), OWN).time_s for e in (0, 0.5)
    )
    assert sampled.value == exact.value
    assert sampled.high - sampled.value > 0.4 * stats.num_words * 64 / 12.5e9


def test_what_the_calibration_does_not_cover_is_warned_of():
    sparse = predict_one(published_workload("block", 5_000_000, 200_000, 0.001, PAPER), PAPER)
    assert len(sparse.warnings) == 2
    assert "rows is 5000000; calibration paper covers 2910 to 38120" in sparse.warnings[0]
    assert "density is 0.001; calibration paper covers 0.005 to 0.715" in sparse.warnings[1]
    inside = predict_one(published_workload("block", 9000, 1644345, 0.43, PAPER), PAPER)
    assert inside.warnings == ()


def test_a_block_that_the_paper_never_ran_is_warned_of():
    (warning,) = predict_one(work("block", 8, load_matrix("twin:ex9"), PAPER), PAPER).warnings
    assert warning == "block 8: calibration paper was fitted on 16 only."


@pytest.mark.parametrize("units", [0, -1])
def test_no_units_at_all_are_refused(units):
    with pytest.raises(SpmvFpgaError, match="it must be 1 or more"):
        predict_one(work("block", 16, dense(16, 16)), OWN, units)
