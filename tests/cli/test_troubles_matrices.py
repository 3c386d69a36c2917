"""Users' troubles with matrix files, conversion and verification: the right answers."""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from spmv_fpga import BlockedEll, SlicedEll, load_matrix, open_device, verify
from spmv_fpga.runtime import Card

HEAD = "%%MatrixMarket matrix coordinate real general\n"
KERNELS = ("scalar", "block")
DOCUMENT = ("run", "--mode", "reference", "--baseline", "none", "--json")

SYMMETRIC = (
    "%%MatrixMarket matrix coordinate real symmetric\n"
    "4 4 6\n1 1 4\n2 1 1\n2 2 5\n3 3 6\n4 1 -2\n4 4 7\n"
)
EMPTY_ROWS = HEAD + "64 8 6\n20 1 2\n20 8 1\n21 5 -3\n37 2 0.5\n37 3 0.5\n37 4 0.5\n"
EMPTY_ROWS_Y = [0.0] * 64
EMPTY_ROWS_Y[19], EMPTY_ROWS_Y[20], EMPTY_ROWS_Y[36] = 10.0, -15.0, 4.5
ONE_COLUMN_TOO_MANY_Y = [0.0] * 33
for _row, _value in ((1, 1.0), (16, 6.0), (17, 6.0), (32, -1.0), (33, 15.0)):
    ONE_COLUMN_TOO_MANY_Y[_row - 1] = _value

# Text, entries after expansion, y for x = 1, 2, 3, …
VALID: dict[str, tuple[str, int, list[float]]] = {
    "windows line ends, and none at the end": (
        HEAD.replace("\n", "\r\n") + "% written on Windows\r\n3 3 4\r\n1 1 2\r\n2 3 -1.5\r\n"
        "3 1 4\r\n3 3 0.25", 4, [2, -4.5, 4.75]),
    "symmetric, lower": (SYMMETRIC, 8, [-2, 11, 18, 26]),
    "symmetric, upper": (
        SYMMETRIC.replace("2 1 1", "1 2 1").replace("4 1 -2", "1 4 -2"), 8, [-2, 11, 18, 26]),
    "pattern symmetric": (
        "%%MatrixMarket matrix coordinate pattern symmetric\n4 4 4\n2 1\n3 3\n4 1\n4 2\n",
        7, [6, 5, 3, 3]),
    "no entries": (HEAD + "3 4 0\n", 0, [0, 0, 0]),
    "1 x 1": (HEAD + "1 1 1\n1 1 -3.5\n", 1, [-3.5]),
    "0 x 0": (HEAD + "0 0 0\n", 0, []),
    "empty rows": (EMPTY_ROWS, 6, EMPTY_ROWS_Y),
    "5 x 7": (
        HEAD + "5 7 6\n1 7 1\n2 1 2\n2 6 -1\n3 3 4\n5 2 1\n5 7 3\n", 6, [7, -4, 12, 0, 23]),
    "33 x 3": (
        HEAD + "33 3 5\n1 1 1\n16 3 2\n17 2 3\n32 1 -1\n33 3 5\n", 5, ONE_COLUMN_TOO_MANY_Y),
    "3 x 33": (HEAD + "3 33 4\n1 33 1\n2 16 2\n2 17 3\n3 32 -1\n", 4, [33, 83, -32]),
}  # fmt: skip

DENSE_ROW = (
    HEAD
    + "4096 4096 8191\n"
    + "".join(f"1 {j} 1\n" for j in range(1, 4097))
    + "".join(f"{i} {i} 1\n" for i in range(2, 4097))
)
DENSE_ROW_Y = [4096.0] + [1.0] * 4095

CANCEL = HEAD + "1 3 3\n1 1 1e8\n1 2 1\n1 3 -1e8\n"
LARGE = HEAD + "2 2 3\n1 1 123456789\n1 2 205432100\n2 2 3\n"
TINY = HEAD + "2 2 2\n1 1 1e-12\n2 2 1\n"

# Text, and what the refusal must name beside the file.
MALFORMED: dict[str, tuple[str, list[str]]] = {
    "index 0": (HEAD + "3 3 3\n0 0 1\n1 1 2\n2 2 3\n", ["line 3", "index 0"]),
    "index past the size": (HEAD + "3 3 3\n1 1 1\n4 2 2\n3 3 3\n", ["line 4", "index 4"]),
    "negative index": (HEAD + "3 3 3\n1 1 1\n-1 2 2\n3 3 3\n", ["line 4", "index -1"]),
    "cut file": (
        HEAD + "3 3 5\n1 1 1\n2 2 2\n3 3 3\n3 1", ["promises 5 entries and 3 came", "line 6"]),
    "too many entries": (
        HEAD + "3 3 2\n1 1 1\n2 2 2\n3 3 3\n3 1 4\n", ["promises 2 entries and 4 came"]),
    "complex": (
        "%%MatrixMarket matrix coordinate complex general\n2 2 2\n1 1 1 2\n2 2 3 0\n",
        ["complex values are not supported"]),
    "hermitian": (
        "%%MatrixMarket matrix coordinate complex hermitian\n2 2 2\n1 1 2 0\n2 1 1 -3\n",
        ["complex values are not supported"]),
}  # fmt: skip

VALID_ORACLES = (
    "mm_crlf_nonl", "mm_symmetric_diag", "mm_symmetric_upper", "mm_pattern_symmetric",
    "mm_zero_nnz", "mm_1x1", "mm_0x0", "cv_empty_rows", "cv_dense_row", "cv_rect_5x7",
    "cv_rect_33x3", "cv_rect_3x33",
)  # fmt: skip
MALFORMED_INPUTS = {
    "mb_index_zero": ["line 3", "index 0"],
    "mb_index_over": ["line 4", "index 4"],
    "mb_index_negative": ["line 4", "index -1"],
    "mb_truncated": ["5 entries and 3 came"],
    "mb_extra": ["2 entries and 4 came"],
    "mb_hermitian": ["complex values are not supported"],
    "mb_complex_general": ["complex values are not supported"],
}


def convert(kernel: str, A: Any, size: int) -> SlicedEll | BlockedEll:
    if kernel == "scalar":
        return SlicedEll.from_csr(A, slice_size=size)
    return BlockedEll.from_csr(A, block=size)


@pytest.fixture(scope="module")
def card_for() -> Iterator[Callable[[str, int], Card]]:
    """Open emulated cards, each once for all tests here: starting one takes longest."""
    with contextlib.ExitStack() as cards:

        @functools.cache
        def open_card(kernel: str, size: int) -> Card:
            card = open_device(mode="sw_emu", kernel=kernel, block=size, slice_size=size)
            return cards.enter_context(card)

        yield open_card


def multiply_on(card: Card, path: Any, size: int) -> list[float]:
    A = load_matrix(path)
    fmt = convert(str(card.xclbin.kernel_kind), A, size)
    y, _ = card.spmv(fmt, np.arange(1, A.shape[1] + 1, dtype=np.float32))
    return y.tolist()


# Unusual but valid files.


@pytest.mark.parametrize("case", VALID)
def test_an_unusual_file_gives_the_right_y(program, case):
    text, num_entries, y = VALID[case]
    matrix = program.write("matrix.mtx", text)
    for kernel in KERNELS:
        assert program.multiply(matrix, "--kernel", kernel) == y
    document = program.here(*DOCUMENT, "--matrix", matrix).document
    assert document["matrix"]["nnz"] == num_entries


@pytest.mark.parametrize("case", ["symmetric, lower", "no entries"])
def test_a_process_of_its_own_gives_the_same_y(program, case):
    text, _, y = VALID[case]
    assert program.multiply(program.write("matrix.mtx", text), in_process=False) == y


@pytest.mark.xrt
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", VALID)
def test_the_emulated_card_gives_the_same_y(program, card_for, case, kernel):
    text, _, y = VALID[case]
    path = program.cwd / program.write("matrix.mtx", text)
    assert multiply_on(card_for(kernel, 16), path, 16) == y


@pytest.mark.xrt
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("case", ["no entries", "1 x 1", "0 x 0"])
def test_the_smallest_matrices_run_in_mode_sw_emu(program, case, kernel):
    program.keep_builds()
    text, _, y = VALID[case]
    words = ("--mode", "sw_emu", "--kernel", kernel)
    assert program.multiply(program.write("matrix.mtx", text), *words) == y


def test_the_stored_triangle_can_be_asked_for(program):
    matrix = program.write("matrix.mtx", SYMMETRIC)
    assert program.multiply(matrix, "--symmetric", "stored") == [4, 11, 18, 26]
    words = ("--symmetric", "stored", "--matrix", matrix)
    assert program.here(*DOCUMENT, *words).document["matrix"]["nnz"] == 6


@pytest.mark.parametrize("case", ["no entries", "1 x 1", "0 x 0"])
def test_the_smallest_matrices_give_valid_json(program, case):
    matrix = program.write("matrix.mtx", VALID[case][0])
    for kernel in KERNELS:
        words = ("--kernel", kernel, "--matrix", matrix)
        assert program.here(*DOCUMENT, *words).document["verified"] is True
    assert program.here("convert", "--stats", "--json", "--matrix", matrix).document["formats"]


# Malformed files.


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_file_is_refused_clearly(program, case):
    text, names = MALFORMED[case]
    matrix = program.write("matrix.mtx", text)
    words = ("run", "--mode", "reference", "--x", "index", "--y-out", "y.npy", "--json")
    is_first_of_kind = case in ("index 0", "cut file", "complex")
    program.refuse(
        *words,
        "--matrix",
        matrix,
        names=["matrix.mtx", *names],
        in_process=not is_first_of_kind,
    )


# Conversion.


@pytest.mark.parametrize("size", ["4", "8", "16", "32"])
def test_empty_rows_and_slices_give_exact_zeros(program, size):
    matrix = program.write("matrix.mtx", EMPTY_ROWS)
    for option, kernel in (("--slice", "scalar"), ("--block", "block")):
        assert program.multiply(matrix, "--kernel", kernel, option, size) == EMPTY_ROWS_Y
    A = load_matrix(program.cwd / "matrix.mtx")
    for kernel in KERNELS:
        back = convert(kernel, A, int(size)).to_csr()
        assert (back != A).nnz == 0
        assert back.nnz == 6


@pytest.mark.xrt
@pytest.mark.parametrize("size", [4, 8, 32])
@pytest.mark.parametrize("kernel", KERNELS)
def test_empty_rows_are_zeros_on_the_emulated_card_at_every_size(
    program, card_for, kernel, size
):
    path = program.cwd / program.write("matrix.mtx", EMPTY_ROWS)
    assert multiply_on(card_for(kernel, size), path, size) == EMPTY_ROWS_Y


def test_a_dense_row_costs_few_slots(program):
    matrix = program.write("matrix.mtx", DENSE_ROW)
    document = program.here("convert", "--stats", "--json", "--matrix", matrix).document
    slots = {(f["kernel"], f["slice"] or f["block"]): f["num_stored"]
             for f in document["formats"]}  # fmt: skip
    assert slots == {
        ("scalar", 4): 20476, ("scalar", 8): 36856, ("scalar", 16): 69616,
        ("scalar", 32): 135136, ("block", 4): 32752, ("block", 8): 65472,
        ("block", 16): 130816, ("block", 32): 261120, ("lanes", None): 8192,
    }  # fmt: skip


def test_a_dense_row_is_multiplied_right(program):
    matrix = program.write("matrix.mtx", DENSE_ROW)
    for kernel in KERNELS:
        assert program.multiply(matrix, "--kernel", kernel, x="ones") == DENSE_ROW_Y


@pytest.mark.xrt
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_dense_row_is_multiplied_right_on_the_emulated_card(program, kernel):
    program.keep_builds()
    words = ("--mode", "sw_emu", "--kernel", kernel)
    matrix = program.write("matrix.mtx", DENSE_ROW)
    assert program.multiply(matrix, *words, x="ones") == DENSE_ROW_Y


@pytest.mark.parametrize("block", ["4", "16"])
@pytest.mark.parametrize("case", ["5 x 7", "33 x 3", "3 x 33"])
def test_sizes_need_not_be_multiples_of_the_block(program, case, block):
    text, _, y = VALID[case]
    matrix = program.write("matrix.mtx", text)
    assert program.multiply(matrix, "--kernel", "block", "--block", block) == y


@pytest.mark.xrt
@pytest.mark.parametrize("case", ["5 x 7", "33 x 3", "3 x 33"])
def test_sizes_need_not_be_multiples_of_the_block_on_the_emulated_card(program, card_for, case):
    text, _, y = VALID[case]
    path = program.cwd / program.write("matrix.mtx", text)
    assert multiply_on(card_for("block", 4), path, 4) == y


@pytest.mark.parametrize(("case", "length"), [("5 x 7", 5), ("33 x 3", 33), ("3 x 33", 3)])
def test_an_x_of_another_length_is_refused(program, case, length):
    np.save(program.cwd / "x.npy", np.ones(length, np.float32))
    words = ("run", "--mode", "reference", "--x", "x.npy", "--matrix")
    num_cols = int(case.rpartition(" ")[2])
    program.refuse(
        *words,
        program.write("matrix.mtx", VALID[case][0]),
        names=["x.npy", f"({length},)", f"{num_cols} columns"],
        in_process=True,
    )


# Verification.


@pytest.mark.parametrize(
    ("text", "y"), [(CANCEL, [0.0]), (LARGE, [328888896.0, 3.0])], ids=["cancel", "large"]
)
def test_honest_rounding_is_verified(program, text, y):
    matrix = program.write("matrix.mtx", text)
    for kernel in KERNELS:
        got = program.multiply(matrix, "--kernel", kernel, x="ones")
        assert got == pytest.approx(y, rel=1.2e-7, abs=143)


def test_a_tiny_value_is_kept(program):
    matrix = program.write("matrix.mtx", TINY)
    for kernel in KERNELS:
        assert program.multiply(matrix, "--kernel", kernel, x="ones") == pytest.approx(
            [1e-12, 1.0], rel=1e-6
        )


@pytest.mark.xrt
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("text", [CANCEL, LARGE, TINY], ids=["cancel", "large", "tiny"])
def test_rounding_on_the_emulated_card_is_verified(program, card_for, text, kernel):
    A = load_matrix(program.cwd / program.write("matrix.mtx", text))
    x = np.ones(A.shape[1], np.float32)
    y, _ = card_for(kernel, 16).spmv(convert(kernel, A, 16), x)
    assert verify(y, A, x) <= 1


# The same cases as they stand in the shared data folder.


def oracle_y(oracle: dict[str, Any]) -> list[float]:
    if "y" in oracle:
        return oracle["y"]
    y = [oracle.get("y_rest", 0.0)] * oracle["shape"][0]
    for row, value in oracle["y_nonzero"].items():
        y[int(row) - 1] = value
    return y


@pytest.mark.shared_data
@pytest.mark.parametrize("name", VALID_ORACLES)
def test_a_shared_case_gives_the_y_of_its_oracle(program, shared_data, name):
    oracle = json.loads((shared_data / "cases/oracle" / f"{name}.json").read_text())
    matrix = str(shared_data / "cases/inputs" / oracle["file"])
    x = "ones" if oracle.get("x") == "all ones" else "index"
    for kernel in KERNELS:
        assert program.multiply(matrix, "--kernel", kernel, x=x) == oracle_y(oracle)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", MALFORMED_INPUTS)
def test_a_malformed_shared_case_is_refused(program, shared_data, name):
    matrix = str(shared_data / "cases/inputs" / f"{name}.mtx")
    outcome = program.here("run", "--mode", "reference", "--json", "--matrix", matrix)
    assert (outcome.status, outcome.stdout) == (2, "")
    for text in (f"{name}.mtx", *MALFORMED_INPUTS[name]):
        assert text in outcome.stderr


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["vf_cancel", "vf_large", "vf_tiny"])
def test_a_shared_case_of_rounding_is_verified(program, shared_data, name):
    program.multiply(str(shared_data / "cases/inputs" / f"{name}.mtx"), x="ones")
