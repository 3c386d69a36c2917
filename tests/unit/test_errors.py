"""Messages are one sentence that says where, what and which value."""

from __future__ import annotations

from pathlib import Path

import pytest

from spmv_fpga import errors


def test_a_matrix_error_names_its_file_and_line():
    error = errors.MatrixError("the row index is 0.", path=Path("a.mtx"), line=7)
    assert str(error) == "a.mtx: line 7: the row index is 0."
    assert (error.path, error.line, error.reason) == ("a.mtx", 7, "the row index is 0.")


def test_a_matrix_error_without_a_file_is_its_reason():
    error = errors.MatrixError("no such matrix.")
    assert (str(error), error.path, error.line) == ("no such matrix.", None, None)


def test_a_tool_error_ends_with_the_tools_last_lines():
    error = errors.ToolError("v++ failed.", command=["v++", "-l"], returncode=1, tail="a\nb")
    assert str(error) == "v++ failed.\na\nb"
    assert (error.command, error.returncode) == (("v++", "-l"), 1)
    assert str(errors.ToolError("v++ failed.")) == "v++ failed."


def test_a_missing_tool_comes_with_what_mends_it():
    error = errors.ToolNotFoundError("g++", "install it.")
    assert str(error) == "g++ is missing; install it."
    assert isinstance(error, errors.ToolError)


def test_an_xclbin_error_lists_every_reason():
    error = errors.XclbinError(["no kernel.", "a bank is full."], path="f.xclbin")
    assert str(error) == "f.xclbin: no kernel.; a bank is full."
    assert error.reasons == ("no kernel.", "a bank is full.")
    assert errors.XclbinError("one.").reasons == ("one.",)


def test_a_verification_error_has_its_row_and_numbers():
    error = errors.VerificationError("row 3.", row=3, got=1.0, expected=2.0, bound=0.5)
    assert (error.row, error.got, error.expected, error.bound) == (3, 1.0, 2.0, 0.5)


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("MatrixError", ValueError), ("FormatError", ValueError),
        ("KernelSpecError", ValueError), ("BoardError", ValueError),
        ("XclbinError", ValueError), ("ToolError", RuntimeError),
        ("ToolNotFoundError", RuntimeError), ("DeviceError", RuntimeError),
        ("SensorError", RuntimeError),
    ],
)  # fmt: skip
def test_an_error_is_also_the_builtin_that_fits(name, builtin):
    assert issubclass(getattr(errors, name), builtin)
