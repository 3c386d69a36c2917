"""Calibrations: every number has its interval and its source, files say what is wrong."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from spmv_fpga.boards import load_board
from spmv_fpga.errors import SpmvFpgaError
from spmv_fpga.roofline import Calibration, Parameter, calibrate, load_calibration
from spmv_fpga.roofline.calibration import COUNTS, SHIPPED
from spmv_fpga.roofline.model import Workload
from spmv_fpga.roofline.paper import fit_paper, load_tables


def parameters(calibration: Calibration) -> list[Parameter]:
    found = list(calibration.rates.values())
    for kernel in calibration.kernels.values():
        found += [kernel.power.idle_w, kernel.power.kernel_w, kernel.power.w_per_byte_per_s]
        found += [term.seconds for term in kernel.terms if term.seconds is not None]
    return found


@pytest.mark.parametrize("name", SHIPPED)
def test_every_parameter_has_a_source_and_lies_in_its_interval(name):
    found = parameters(load_calibration(name))
    assert len(found) > 8
    for parameter in found:
        assert len(parameter.source) > 10
        assert 0 <= parameter.low <= parameter.value <= parameter.high


def test_the_shipped_paper_calibration_is_the_fit_to_the_shipped_tables():
    folder = resources.files("spmv_fpga.roofline") / "calibrations"
    assert (folder / "paper.toml").read_text("utf-8") == fit_paper(
        load_tables()
    ).calibration.to_toml()


def test_the_board_file_gives_clock_and_bandwidth_of_this_projects_kernels():
    board, own = load_board("u50"), load_calibration("u50")
    assert own.rate("clock_hz").value == board.value("clock_hz") == 300e6
    assert own.rate("channel_bytes_per_s").value == board.value("channel_bytes_per_s")
    assert str(board.figures["clock_hz"].source) in own.rate("clock_hz").source


def test_many_units_close_at_a_lower_clock():
    own = load_calibration("u50")
    assert [own.rate("clock_hz", n).value for n in (1, 4, 5, 8)] == [300e6, 300e6, 225e6, 225e6]


def test_a_given_clock_holds_for_any_number_of_units():
    own = load_calibration("u50").with_clock(250e6)
    assert [own.rate("clock_hz", n).value for n in (1, 16)] == [250e6, 250e6]


def test_words_come_at_the_lower_of_clock_and_channel():
    own = load_calibration("u50")
    assert own.rate("words_per_s").value == 12.5e9 / 64
    assert own.with_clock(100e6).rate("words_per_s").value == 100e6


@pytest.mark.parametrize("clock_hz", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_clock_is_refused(clock_hz):
    with pytest.raises(SpmvFpgaError, match="it must be more than 0"):
        load_calibration("u50").with_clock(clock_hz)


def test_every_count_of_a_term_is_one_of_the_workload():
    assert all(hasattr(Workload, count) or count in vars(Workload)["__dataclass_fields__"]
               for count in COUNTS)  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_a_saved_calibration_is_read_back_the_same(name, tmp_path):
    calibration = load_calibration(name)
    path = tmp_path / "own.toml"
    calibration.save(path)
    assert load_calibration(path) == calibration
    assert [p.name for p in tmp_path.iterdir()] == ["own.toml"]


GOOD = """
name = "own"
title = "own"
[rates]
clock_hz = { value = 3e8, low = 3e8, high = 3e8, source = "known" }
[kernels.block]
access = "words"
lanes = 16
[kernels.block.power]
idle_w = { value = 17.0, low = 17.0, high = 17.0, source = "known" }
kernel_w = { value = 3.0, low = 3.0, high = 3.0, source = "known" }
w_per_byte_per_s = { value = 0.0, low = 0.0, high = 0.0, source = "known" }
[[kernels.block.terms]]
name = "launch"
count = "launches"
seconds = { value = 1e-4, low = 1e-4, high = 1e-4, source = "known" }
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "own"', "", "'title' is missing; add it"),
        ('count = "launches"', 'count = "wishes"', "counts 'wishes'; it must be one of"),
        ("value = 1e-4, low = 1e-4", "value = 1e-4, low = 2e-4", "within its interval"),
        ("value = 17.0, low", "value = -17.0, low", "not negative"),
        (
            'high = 1e-4, source = "known"',
            'high = 1e-4, source = ""',
            r"seconds\.source is ''; it must be a text",
        ),
        ('access = "words"', 'access = "bits"', "it must be words or values"),
        ("seconds = {", "rate = 'clock_hz'\nseconds = {", "either seconds or a rate"),
        ('name = "own"', "name = ", "not a calibration"),
        ('name = "own"', "name = nan", "name is nan; it must be a text"),
        ("low = 3e8", "low = 0", r"rates\.clock_hz\.low is 0\.0; a rate is above 0"),
        ("low = 3e8", "low = 4e8", r"rates\.clock_hz: .* within its interval"),
        ("high = 3e8", "high = true", r"rates\.clock_hz\.high is True; it must be a finite"),
        ("high = 3e8", "high = inf", r"rates\.clock_hz\.high is inf; it must be a finite"),
        ("high = 3e8", "high = 1e308", r"rates\.clock_hz\.high is 1e\+308; it must be"),
        ("value = 3e8", "value = '3e8'", r"rates\.clock_hz\.value is '3e8'; it must be"),
        ("value = 3e8, ", "", r"rates\.clock_hz: 'value' is missing; add it"),
        ("value = 3e8", "worth = 3e8", r"rates\.clock_hz\.worth is not known"),
        ("lanes = 16", "lanes = inf", r"kernels\.block\.lanes is inf; it must be a whole"),
        ("lanes = 16", "lanes = 1e308", r"kernels\.block\.lanes is 1e\+308; it must be"),
        ("lanes = 16", "lanes = true", r"kernels\.block\.lanes is True; it must be"),
        ("lanes = 16", "lanes = 0", r"kernels\.block\.lanes is 0; it must be"),
        ("lanes = 16", "lanes = 16\nblocks = 16", r"kernels\.block\.blocks is 16; .* a list"),
        ("lanes = 16", "lanes = 16\nblocks = [0.5]", r"blocks is \[0\.5\]; .* whole numbers"),
        ("lanes = 16", "lanes = 16\ncovers = []", r"block\.covers is \[\]; .* table"),
        ("lanes = 16", "lanes = 16\ncovers.cols = []", r"cols is \[\]; .* two numbers"),
        ("lanes = 16", "lanes = 16\ncovers.cols = [2, 1]", r"cols is \[2, 1\]; .* ascend"),
        ("lanes = 16", "lanes = 16\ncovers.k = [1, 2]", r"covers\.k is not known"),
        ("lanes = 16", "lanes = 16\ntime_scatter = -1", r"time_scatter is -1; it must"),
        ('name = "launch"', "name = []", r"block\.terms\[0\]\.name is \[\]; .* a text"),
        ('name = "launch"', 'name = "a"\noverlaps = {}', r"overlaps is \{\}; .* true or"),
        ('name = "launch"', 'name = "a"\nrate = 3', r"terms\[0\]\.rate is 3; .* a text"),
        ("[rates]", "[errors]\nblock_time = nan\n[rates]", r"errors\.block_time is nan"),
        ("[rates]\n", "[unused]\n", "unused is not known"),
        ('title = "own"', 'title = "own"\nx = ' + "[" * 20_000, "nested too deep"),
    ],
)
def test_a_wrong_file_is_refused_with_its_name_and_the_reason(tmp_path, old, new, message):
    path = tmp_path / "own.toml"
    path.write_text(GOOD)
    assert load_calibration(path).kernel("block").lanes == 16
    path.write_text(GOOD.replace(old, new, 1))
    with pytest.raises(SpmvFpgaError, match=message) as refused:
        load_calibration(path)
    assert str(path) in str(refused.value)


def test_a_missing_file_is_refused_with_what_there_is():
    with pytest.raises(SpmvFpgaError, match="must be paper, u50 or a file"):
        load_calibration("u51")


def test_an_unknown_kernel_is_refused_with_those_that_are_known(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(GOOD)
    with pytest.raises(SpmvFpgaError, match="does not know kernel scalar; it knows block"):
        load_calibration(path).kernel("scalar")


# A calibration from one's own runs.

LAUNCH_S, ROW_S, ACCESS_S = 6e-5, 1e-9, 5.1e-9


def run_document(rows: int, words: int, *, kernel: str = "block", noise: float = 1.0) -> dict:
    """What `spmv-fpga run` writes of a run on a card that behaves as the constants say."""
    time_s = (LAUNCH_S + ROW_S * rows + ACCESS_S * words) * noise
    power_w = 17.4 + 2.5 + 1e-10 * 64 * words / time_s
    return {
        "matrix": {"name": "m", "rows": rows, "cols": rows, "nnz": 4 * words},
        "kernel": {
            "name": kernel, "block": 16, "slice": 16, "compute_units": 1,
            "num_stored": 16 * words, "density": 0.25, "matrix_bytes": 64 * words,
            "bytes": 64 * words,
        },
        "mode": "hw",
        "fpga": {
            "time_s": {"value": time_s, "origin": "measured"},
            "power_w": {"value": power_w, "origin": "measured"},
        },
    }  # fmt: skip


def run_documents(noise: float = 0.0, count: int = 12) -> list[dict]:
    rng = np.random.default_rng(5)
    return [
        run_document(
            int(rng.integers(1_000, 100_000)), int(10 ** rng.uniform(3, 6)),
            noise=1 + noise * rng.standard_normal(),
        )
        for _ in range(count)
    ]  # fmt: skip


def test_runs_of_a_known_card_give_its_parameters():
    fitted = calibrate(run_documents()).kernel("block", 16)
    found = {term.name: term.seconds.value for term in fitted.terms}
    assert found == pytest.approx(
        {"launch": LAUNCH_S, "rows": ROW_S, "accesses": ACCESS_S}, rel=1e-4
    )
    assert fitted.power.kernel_w.value == pytest.approx(2.5, rel=1e-3)
    assert fitted.power.w_per_byte_per_s.value == pytest.approx(1e-10, rel=1e-3)


def test_the_true_parameters_lie_in_the_intervals_of_noisy_runs():
    calibration = calibrate(run_documents(noise=0.03, count=40))
    for term, true in zip(
        calibration.kernel("block", 16).terms, (LAUNCH_S, ROW_S, ACCESS_S), strict=True
    ):
        assert term.seconds.low <= true <= term.seconds.high
        assert term.seconds.low < term.seconds.high


def test_the_error_of_the_whole_is_that_of_left_out_runs():
    assert 0.01 < calibrate(run_documents(noise=0.03, count=40)).errors["block_p16_time"] < 0.05


def test_what_no_run_is_of_stays_as_it_was():
    calibration, base = calibrate(run_documents()), load_calibration("u50")
    assert calibration.kernel("block", 8) == base.kernel("block", 8)
    assert calibration.kernel("scalar", 16) == base.kernel("scalar", 16)


def test_a_calibration_of_ones_own_is_saved_and_read_back(tmp_path):
    calibration = calibrate(run_documents(noise=0.03))
    calibration.save(tmp_path / "mine.toml")
    assert load_calibration(tmp_path / "mine.toml") == calibration


def test_power_stays_as_it_was_where_no_run_measured_it():
    documents = run_documents()
    for document in documents:
        document["fpga"]["power_w"] = {"value": None, "origin": None, "reason": "no sensor"}
    fitted = calibrate(documents)
    assert fitted.kernel("block", 16).power == load_calibration("u50").kernel("block").power
    assert set(fitted.errors) == {"block_p16_time"}


def bandwidth_documents(sizes: tuple[int, ...]) -> list[dict]:
    documents = []
    for size in sizes:
        document = run_document(1, size // 64)
        document["kernel"] |= {"name": "bandwidth", "block": None, "slice": None}
        document["fpga"]["time_s"]["value"] = 5e-5 + size / 13.1e9
        documents.append(document)
    return documents


def test_runs_of_the_bandwidth_kernel_give_the_channel():
    calibration = calibrate(bandwidth_documents((1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 27)))
    assert calibration.rate("channel_bytes_per_s").value == pytest.approx(13.1e9, rel=1e-4)
    assert calibration.kernels == load_calibration("u50").kernels


def test_one_size_gives_no_bandwidth():
    with pytest.raises(SpmvFpgaError, match="5 of unlike sizes are the least"):
        calibrate(bandwidth_documents((1 << 20,) * 6))


def test_an_emulated_run_calibrates_nothing():
    documents = run_documents()
    documents[2]["fpga"]["time_s"] = {"value": None, "origin": None, "reason": "emulated"}
    with pytest.raises(SpmvFpgaError, match="result 3 has no time measured on a card"):
        calibrate(documents)


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ([], "there are no results"),
        ([{"candidates": []}], "result 1 is no document of a run"),
        (["text"], "result 1 is no document of a run"),
        (
            [run_document(5, 5) | {"matrix": dict.fromkeys(("rows", "cols", "nnz"), 10**400)}],
            "result 1 is no document of a run",
        ),
        (bandwidth_documents((0,) * 5), "bytes is 0; it must be above 0"),
        (run_documents(count=4), "kernel block_p16 has 4 results; 5 matrices are the least"),
    ],
)
def test_too_little_to_calibrate_with_is_refused(documents, message):
    with pytest.raises(SpmvFpgaError, match=message):
        calibrate(documents)


def test_a_calibration_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(SpmvFpgaError, match="cannot be written"):
        load_calibration("u50").save(Path(tmp_path) / "no" / "such" / "folder.toml")
