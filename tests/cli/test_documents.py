"""What the program writes for other programs: JSON, y, tables, and where each goes."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

HEAD = "%%MatrixMarket matrix coordinate real general\n"
NO_ENTRIES = HEAD + "3 4 0\n"
INDEX_OVER = HEAD + "3 3 3\n1 1 1\n4 2 2\n3 3 3\n"
POISSON = "gallery:poisson2d:n=8"
QUICK = ("run", "--mode", "reference", "--baseline", "none")
ORIGINS = {"measured", "emulated", "modelled", "published"}
FIGURE_KEYS = {"value", "origin", "low", "high", "n", "reason"}

RUN_KEYS: dict[str, set[str]] = {
    "matrix": {"name", "rows", "cols", "nnz", "symmetric", "source"},
    "kernel": {"name", "block", "slice", "compute_units", "num_stored", "density",
               "matrix_bytes", "bytes"},
    "fpga": {"time_s", "gflops", "power_w", "energy_j", "cycles"},
    "cpu": {"library", "threads", "time_s", "gflops", "power_w", "energy_j"},
    "model": {"time_s", "power_w", "energy_j"},
}  # fmt: skip


def is_figure_key(key: str) -> bool:
    return key.endswith(("_s", "_j", "_w")) or key in ("gflops", "cycles")


def check_figure(figure: Any) -> None:
    assert {"value", "origin"} <= set(figure) <= FIGURE_KEYS
    if figure["value"] is None:
        assert figure["origin"] is None
        assert figure["reason"]
    else:
        assert math.isfinite(figure["value"])
        assert figure["origin"] in ORIGINS
    if "low" in figure and "high" in figure and figure["value"] is not None:
        assert figure["low"] <= figure["value"] <= figure["high"]


def check_numbers(document: Any) -> None:
    """Keys of figures hold figures, and no other key does."""
    if isinstance(document, list):
        for item in document:
            check_numbers(item)
    elif isinstance(document, dict):
        for key, value in document.items():
            if is_figure_key(key):
                check_figure(value)
            else:
                assert not (isinstance(value, dict) and set(value) >= {"value", "origin"}), key
                check_numbers(value)


def check_run(document: dict[str, Any], mode: str) -> None:
    check_numbers(document)
    assert isinstance(document["spmv_fpga"], str)
    for key, keys in RUN_KEYS.items():
        assert keys <= set(document[key])
    assert document["mode"] == mode
    assert document["verified"] is True
    assert 0 <= document["worst_error_over_bound"] <= 1
    assert isinstance(document["provenance"], dict)
    assert isinstance(document["warnings"], list)


# The document of a run.


@pytest.mark.parametrize("kernel", ["scalar", "block"])
def test_the_document_of_a_reference_run_is_whole(program, kernel):
    words = ("run", "--mode", "reference", "--kernel", kernel, "--matrix", POISSON, "--json")
    document = program.here(*words).document
    check_run(document, "reference")
    assert document["matrix"] | {"is_twin": False} == {
        "name": "poisson2d:n=8", "rows": 64, "cols": 64, "nnz": 288,
        "symmetric": "expanded", "source": POISSON, "is_twin": False,
    }  # fmt: skip
    sizes = {"scalar": (None, 16), "block": (16, None)}[kernel]
    assert (document["kernel"]["block"], document["kernel"]["slice"]) == sizes
    assert document["kernel"]["compute_units"] == 1


def test_a_reference_run_has_no_time_of_a_card(program):
    document = program.here(
        "run", "--mode", "reference", "--matrix", POISSON, "--json"
    ).document
    assert document["fpga"]["time_s"]["value"] is None
    assert "reference" in document["fpga"]["time_s"]["reason"]
    assert document["cpu"]["time_s"]["origin"] == "measured"
    assert document["cpu"]["time_s"]["value"] > 0
    assert document["cpu"]["energy_j"]["value"] is None


@pytest.mark.xrt
def test_an_emulated_run_has_emulated_cycles_and_no_power_of_a_card(program):
    program.keep_builds()
    document = program.here("run", "--mode", "sw_emu", "--matrix", POISSON, "--json").document
    check_run(document, "sw_emu")
    fpga, emulation = document["fpga"], document["emulation"]
    for name in ("time_s", "gflops", "cycles"):
        assert fpga[name]["origin"] == "emulated"
    assert fpga["time_s"]["value"] == fpga["cycles"]["value"] / emulation["clock_hz"]
    for name in ("power_w", "energy_j"):
        assert fpga[name]["value"] is None
        assert "sw_emu" in fpga[name]["reason"]
    [[unit]] = emulation["rounds"]
    assert unit["total"] == fpga["cycles"]["value"]
    assert unit["processes"][0]["name"] == "read_inputs"
    assert emulation["hazards"] == 0
    assert {bank["bank"] for bank in emulation["banks"]} == {2, 3}
    assert document["provenance"]["device"] == "xilinx_u50_gen3x16_xdma_201920_3"


@pytest.mark.xrt
def test_the_clock_of_emulated_cycles_can_be_set(program):
    program.keep_builds()
    words = ("run", "--mode", "sw_emu", "--matrix", POISSON, "--baseline", "none", "--json")
    slow, fast = (program.here(*words, "--clock-hz", f).document for f in ("1e8", "3e8"))
    # A channel brings 64 bytes in less than a cycle of 100 MHz, and in 1.5 of 300 MHz.
    assert slow["emulation"]["clock_hz"] == slow["provenance"]["clock_hz"] == 1e8
    assert slow["fpga"]["cycles"]["value"] < fast["fpga"]["cycles"]["value"]
    assert slow["fpga"]["time_s"]["value"] > fast["fpga"]["time_s"]["value"]


@pytest.mark.xrt
def test_explain_says_in_one_screen_how_many_cycles_and_what_binds(program):
    program.keep_builds()
    words = ("run", "--mode", "sw_emu", "--matrix", "gallery:banded:n=20000,bandwidth=40")
    words += ("--kernel", "block", "--block", "8", "--baseline", "none")
    plain, explained = program.here(*words).stdout, program.here(*words, "--explain").stdout
    added = [line for line in explained.splitlines() if line not in plain.splitlines()]
    assert len(added) < 26
    assert max(map(len, added)) < 100
    added = "\n".join(added)
    assert "cycles a product at 300.0 MHz" in added
    assert "what binds: memory. read_inputs takes 9" in added
    for process in ("unpack", "gather_x", "multiply", "collect_block_rows", "write_y"):
        assert process in added
    assert "bank 2: matrix" in added
    assert "so depth did not matter here" in added


def test_explain_without_an_emulated_card_says_that_there_is_nothing(program):
    outcome = program.here(*QUICK, "--matrix", POISSON, "--explain")
    assert "cycles: none to explain; mode reference: NumPy made y, no card\n" in outcome.stdout


def test_without_a_baseline_the_cpu_has_no_figures(program):
    words = ("run", "--mode", "reference", "--baseline", "none", "--matrix", POISSON, "--json")
    document = program.here(*words).document
    check_run(document, "reference")
    assert document["cpu"]["library"] is None
    assert document["cpu"]["time_s"]["value"] is None


def test_a_matrix_without_entries_gives_valid_json(program):
    matrix = program.write("zero.mtx", NO_ENTRIES)
    outcome = program.run("run", "--mode", "reference", "--json", "--matrix", matrix)
    check_run(outcome.document, "reference")
    assert outcome.stderr == ""


def test_a_refusal_gives_no_half_document(program):
    matrix = program.write("over.mtx", INDEX_OVER)
    words = ("run", "--mode", "reference", "--json", "--matrix", matrix)
    program.refuse(*words, names=["over.mtx", "line 4"])


def test_progress_goes_to_stderr_alone(program):
    words = (*QUICK, "--matrix", POISSON, "--json", "--verbose")
    outcome = program.here(*words)
    assert outcome.document["verified"] is True
    assert "loading the matrix" in outcome.stderr


# Other documents.


def test_the_document_of_stats_counts_every_format(program):
    document = program.here("convert", "--matrix", POISSON, "--stats", "--json").document
    check_numbers(document)
    assert RUN_KEYS["matrix"] <= set(document["matrix"])
    keys = {
        "kernel",
        "block",
        "slice",
        "num_stored",
        "density",
        "matrix_bytes",
        "bytes",
        "blocks",
    }
    for counts in document["formats"]:
        assert keys <= set(counts)
        assert counts["density"] == pytest.approx(288 / counts["num_stored"])
        assert 4 * counts["num_stored"] < counts["matrix_bytes"] <= counts["bytes"]
    sizes = [(f["kernel"], f["slice"], f["block"]) for f in document["formats"]]
    assert sizes == [
        *(("scalar", size, None) for size in (4, 8, 16, 32)),
        *(("block", None, size) for size in (4, 8, 16, 32)),
        ("lanes", None, None),
    ]


@pytest.mark.compiler
def test_the_document_of_an_xclbin_built_here_is_whole(program):
    program.keep_builds()
    assert program.here("xclbin", "--kernel", "block", "--target", "sw_emu").status == 0
    (file,) = program.cwd.glob("build/sw_emu/*/block_p16_l16_cu1/block.xclbin")
    document = program.here("info", str(file), "--json").document
    check_numbers(document)
    assert document["file"] == str(file)
    assert document["target"] == "sw_emu"
    assert document["platform"] == "xilinx_u50_gen3x16_xdma_201920_3"
    assert (document["block"], document["slice"]) == (16, None)
    assert (document["compute_units"], document["clock_hz"]) == (1, 300e6)
    assert document["built_by"].startswith("spmv_fpga")
    (kernel,) = document["kernels"]
    assert kernel["name"] == "spmv_block"
    assert [a["name"] for a in kernel["arguments"]][:3] == ["matrix", "x", "y"]
    assert [unit["name"] for unit in kernel["instances"]] == ["spmv_block_1"]
    assert len(document["memories"]) == 32
    assert document["memories"][31] | {"kind": "", "used": 0} == {
        "tag": "HBM[31]", "base": 31 * 2**28, "bytes": 2**28, "kind": "", "used": 0,
    }  # fmt: skip


# Files.


def test_json_out_holds_the_same_document(program):
    words = (*QUICK, "--matrix", POISSON)
    outcome = program.here(*words, "--json", "--json-out", "result.json")
    assert json.loads((program.cwd / "result.json").read_text()) == outcome.document
    assert [path.name for path in program.cwd.iterdir()] == ["result.json"]


@pytest.mark.parametrize("option", ["--json-out", "--y-out"])
def test_an_output_in_a_folder_that_does_not_exist_is_refused_before_the_run(program, option):
    words = (*QUICK, "--matrix", POISSON, option, "nowhere/result")
    program.refuse(*words, names=[option, "nowhere"], in_process=True)


def test_an_output_that_is_a_folder_is_refused(program):
    words = (*QUICK, "--matrix", POISSON, "--y-out", ".")
    program.refuse(*words, names=["--y-out", "folder"], in_process=True)


def test_a_converted_matrix_gives_the_same_y(program):
    for kernel in ("scalar", "block"):
        file = f"{kernel}.npz"
        words = ("convert", "--matrix", POISSON, "--kernel", kernel, "-o", file)
        assert program.here(*words).status == 0
        assert program.multiply(file) == program.multiply(POISSON)


def test_a_conversion_that_cannot_be_saved_prints_no_stats(program):
    words = ("convert", "--matrix", POISSON, "--stats", "-o", "nowhere/matrix.npz")
    program.refuse(*words, names=["nowhere"], in_process=True)


def test_json_without_stats_is_refused(program):
    words = ("convert", "--matrix", POISSON, "--json", "-o", "matrix.npz")
    program.refuse(*words, names=["--stats"], in_process=True)


def test_convert_with_nothing_to_do_is_refused(program):
    program.refuse("convert", "--matrix", POISSON, names=["-o", "--stats"], in_process=True)


# x.


def test_x_may_come_from_a_file(program):
    np.save(program.cwd / "x.npy", np.arange(1, 65, dtype=np.float64))
    assert program.multiply(POISSON, x="x.npy") == program.multiply(POISSON, x="index")


def test_random_x_is_told_by_its_seed(program):
    default = program.multiply(POISSON, x="random")
    assert program.multiply(POISSON, x="random:1") == default
    assert program.multiply(POISSON, x="random:2") != default


@pytest.mark.parametrize(
    ("x", "name"),
    [("nonsense", "nonsense"), ("random:-1", "-1"), ("absent.npy", "absent.npy")],
)
def test_an_unknown_x_is_refused(program, x, name):
    words = (*QUICK, "--matrix", POISSON, "--x", x)
    program.refuse(*words, names=[name], in_process=True)


# The table.


def test_the_table_says_what_was_measured_and_what_was_not(program):
    outcome = program.here(
        "run", "--mode", "reference", "--matrix", POISSON, "--baseline", "scipy"
    )
    assert outcome.status == 0
    for text in ("poisson2d:n=8", "64 × 64", "288 entries", "y verified", "scipy", "measured",
                 "mode reference: NumPy made y, no card", "flop = 2 · 288"):  # fmt: skip
        assert text in outcome.stdout


def test_a_twin_is_always_called_a_twin(program):
    words = ("run", "--mode", "reference", "--matrix", "twin:ex9", "--baseline", "none")
    assert "twin" in program.here(*words).stdout.splitlines()[0]
    document = program.here(*words, "--json").document
    assert document["matrix"]["is_twin"] is True
    assert "twin" in document["matrix"]["name"]
    assert "twin" in document["matrix"]["source"]


def test_quiet_prints_nothing(program):
    outcome = program.here(*QUICK, "--matrix", POISSON, "--quiet")
    assert outcome == type(outcome)(0, "", "")


@pytest.mark.parametrize("way", ["--no-color", "NO_COLOR"])
def test_colours_can_be_switched_off(program, way):
    words = [*QUICK, "--matrix", POISSON]
    variables = {"FORCE_COLOR": "1"}
    assert "\x1b[32m" in program.here(*words, **variables).stdout
    if way == "NO_COLOR":
        variables["NO_COLOR"] = "1"
    else:
        words.append(way)
    assert "\x1b[32m" not in program.here(*words, **variables).stdout
