"""Users' troubles with files: pipes, links, empty names, and errors that nobody foresaw."""

from __future__ import annotations

import io
import json
import os
import stat
import threading

import numpy as np
import pytest

from spmv_fpga import cli, measure

ONE = "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 -3.5\n"
HEAD = "%%MatrixMarket matrix coordinate real general\n"
REFERENCE = ("run", "--mode", "reference", "--baseline", "none", "--matrix")


def read_fifo(path, into):
    """Start a reader, without which nobody can open the pipe."""
    reader = threading.Thread(target=lambda: into.append(path.read_bytes()), daemon=True)
    reader.start()
    return reader


# Output.

OUTPUTS = {
    "y": (*REFERENCE, "one.mtx", "--x", "ones", "--y-out"),
    "json": (*REFERENCE, "one.mtx", "--json-out"),
    "npz": ("convert", "--matrix", "one.mtx", "-o"),
    "stats": ("convert", "--stats", "--matrix", "one.mtx", "--json-out"),
    "svg": ("roofline", "--matrix", "one.mtx", "-o"),
}


def is_whole(name, content):
    """Say whether content is what an output of that kind must be."""
    if name == "y":
        return np.load(io.BytesIO(content)).tolist() == [-3.5]
    if name == "npz":
        return str(np.load(io.BytesIO(content))["spmv_fpga_format"]) == "block"
    if name == "svg":
        return content.rstrip().endswith(b"</svg>")
    return json.loads(content)["matrix"]["nnz"] == 1


@pytest.mark.parametrize("name", OUTPUTS)
def test_an_output_into_a_pipe_is_written_to_it(program, name):
    if name == "svg":
        pytest.importorskip("matplotlib")
    program.write("one.mtx", ONE)
    fifo, heard = program.cwd / ("fifo.svg" if name == "svg" else "fifo"), []
    os.mkfifo(fifo)
    reader = read_fifo(fifo, heard)

    outcome = program.here(*OUTPUTS[name], fifo.name)

    assert outcome.status == 0, outcome
    reader.join(5)
    assert is_whole(name, heard[0])
    assert stat.S_ISFIFO(fifo.stat().st_mode)


@pytest.mark.parametrize("name", ["json", "npz"])
def test_an_output_through_a_link_keeps_the_link(program, name):
    program.write("one.mtx", ONE)
    (program.cwd / "there").mkdir()
    link = program.cwd / "link"
    link.symlink_to("there/file")

    outcome = program.here(*OUTPUTS[name], "link")

    assert outcome.status == 0, outcome
    assert link.is_symlink()
    assert is_whole(name, (program.cwd / "there" / "file").read_bytes())


def test_an_output_with_no_name_or_too_long_a_name_is_refused(program):
    program.write("one.mtx", ONE)
    for name, reason in (("", "empty"), ("n" * 5000, "too long")):
        program.refuse(
            *REFERENCE, "one.mtx", "--json-out", name, names=[reason], in_process=True
        )
    program.refuse("render", "--kernel", "block", "-o", "", names=["empty"], in_process=True)


# Input.

FROM_PIPE = [
    (*REFERENCE, "pipe.mtx"),
    ("matrices", "info", "pipe.mtx"),
    (*REFERENCE, "one.mtx", "--power", "replay:pipe.mtx"),
    (*REFERENCE, "one.mtx", "--calibration", "pipe.mtx"),
    (*REFERENCE, "one.mtx", "--xclbin", "pipe.mtx"),
    (*REFERENCE, "one.mtx", "--x", "pipe.npy"),
    ("info", "pipe.mtx"),
    ("energy", "integrate", "pipe.mtx"),
]


@pytest.mark.parametrize("words", FROM_PIPE, ids=" ".join)
def test_a_pipe_that_nobody_writes_to_is_refused_as_input(program, words):
    program.write("one.mtx", ONE)
    for name in ("pipe.mtx", "pipe.npy"):
        os.mkfifo(program.cwd / name)
    program.refuse(*words, names=["pipe.", "it is a pipe, not a file"], in_process=True)


def test_a_pipe_among_matrices_is_one_that_is_refused(program):
    os.mkfifo(program.cwd / "pipe.mtx")
    outcome = program.here("verify", "pipe.mtx", "--mode", "reference", "--kernel", "scalar")
    assert outcome.status == 2
    assert "it is a pipe, not a file" in outcome.stdout


@pytest.mark.parametrize(
    "words",
    [("info", ""), ("verify", ""), (*REFERENCE, "one.mtx", "--xclbin", ""), (*REFERENCE, "")],
)
def test_an_empty_name_is_not_the_current_folder(program, words):
    program.write("one.mtx", ONE)
    program.refuse(*words, names=["empty"], in_process=True)


def test_a_name_that_no_file_can_have_is_refused(program):
    message = program.refuse(*REFERENCE, "n" * 5000, names=["too long"], in_process=True)
    assert len(message) < 300


def test_text_that_calls_itself_a_matlab_file_is_refused(program):
    program.write("fake.mat", HEAD + "1 4 4\n1 1 3e38\n1 2 3e38\n1 3 -3e38\n1 4 -3e38\n")
    program.refuse(*REFERENCE, "fake.mat", names=["fake.mat", "MATLAB"], in_process=True)


@pytest.mark.parametrize("line", ["{} 1 1", "1 {} 1", "1 1 {}", "1 1 x{}"])
def test_a_number_of_megabytes_is_not_repeated_whole(program, line):
    program.write("long.mtx", HEAD + "1 1 1\n" + line.format("9" * 2_000_000) + "\n")
    message = program.refuse(*REFERENCE, "long.mtx", names=["line 3"], in_process=True)
    assert len(message) < 300


def test_a_size_of_megabytes_is_refused(program):
    program.write("long.mtx", HEAD + "9" * 1_000_000 + " 1 1\n1 1 1\n")
    program.refuse(*REFERENCE, "long.mtx", names=["beyond 62 bits"], in_process=True)


def test_a_trace_with_a_long_token_is_refused_in_one_short_line(program):
    program.write("one.mtx", ONE)
    program.write("t.csv", "time_s,power_w\n0," + "x" * 2_000_000 + "\n")
    words = (*REFERENCE, "one.mtx", "--power", "replay:t.csv")
    assert len(program.refuse(*words, names=["t.csv", "line 2"], in_process=True)) < 300


# Sizes.


@pytest.mark.parametrize(
    "size", ["99999999999 99999999999", "4294967297 4294967297", "1 2000000000", "300000000 1"]
)
def test_a_matrix_that_is_too_large_to_hold_is_refused(program, size):
    program.write("large.mtx", f"{HEAD}{size} 1\n1 1 1\n")
    program.refuse(*REFERENCE, "large.mtx", names=["at most 268435456 rows"], in_process=True)


def test_a_twin_that_is_too_large_to_hold_is_refused(program):
    spec = "twin:custom:n=1000000000000,nnz=10,density=10%"
    program.refuse(*REFERENCE, spec, names=["at most 268435456 rows"], in_process=True)


def test_more_columns_than_panels_is_refused_before_any_work(program, monkeypatch):
    monkeypatch.setattr(measure, "make_x", None)
    program.write("wide.mtx", f"{HEAD}1 67108865 1\n1 1 1\n")
    words = ("run", "--mode", "sw_emu", "--matrix", "wide.mtx")
    program.refuse(*words, names=["67108865 columns", "262144"], in_process=True)


def test_more_rows_than_a_bank_holds_of_y_is_refused_before_any_work(program, monkeypatch):
    monkeypatch.setattr(measure, "make_x", None)
    program.write("tall.mtx", f"{HEAD}67108865 1 1\n1 1 1\n")
    words = ("run", "--mode", "sw_emu", "--matrix", "tall.mtx")
    program.refuse(*words, names=["67108865 rows", "67108864 elements of y"], in_process=True)


def test_a_clock_beyond_any_card_is_refused(program):
    program.write("one.mtx", ONE)
    words = (*REFERENCE, "one.mtx", "--clock-hz", "1e23")
    program.refuse(*words, names=["--clock-hz", "1000000000"], in_process=True)


# Rows that were not compared.

OVERFLOWING = HEAD + "2 4 5\n1 1 3e38\n1 2 3e38\n1 3 -3e38\n1 4 -3e38\n2 1 1\n"


def test_a_row_that_may_overflow_is_counted_and_warned_about(program):
    program.write("over.mtx", OVERFLOWING)
    words = (*REFERENCE, "over.mtx", "--x", "ones")
    warning = "1 row may overflow fp32; it was not compared."

    document = program.here(*words, "--json").document
    assert document["verified"] is True
    assert document["rows_not_compared"] == 1
    assert warning in document["warnings"]
    assert f"warning: {warning}" in program.here(*words).stdout


def test_a_plain_product_has_no_row_that_was_not_compared(program):
    program.write("one.mtx", ONE)
    document = program.here(*REFERENCE, "one.mtx", "--json").document
    assert document["rows_not_compared"] == 0


# The last resort.


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError("7 PiB"), ["memory", "7 PiB"]),
        (OSError(28, "No space left on device", "/full"), ["/full: No space left", "OSError"]),
        (RecursionError("too deep"), ["RecursionError", "too deep", "report"]),
        (KeyError("lost"), ["KeyError", "'lost'", "report"]),
    ],
)
def test_an_error_that_nobody_foresaw_is_one_message_and_status_2(
    program, monkeypatch, error, words
):
    def fail(*_args, **_keywords):
        raise error

    program.write("one.mtx", ONE)
    monkeypatch.setattr(measure, "open_matrix", fail)
    program.refuse(*REFERENCE, "one.mtx", names=words, in_process=True)
    outcome = program.here(*REFERENCE, "one.mtx", "--verbose")
    assert outcome.status == 2
    assert "Traceback" in outcome.stderr


def test_the_exit_statuses_are_in_the_help(program):
    text = program.here("--help").stdout
    assert all(f"{status} " in text for status in (0, 1, 2, cli.EXIT_INTERRUPTED, 143))
