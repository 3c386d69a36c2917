"""Matrix Market files: what is valid is right, what is not is named with its line."""

from __future__ import annotations

import bz2
import csv
import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.io import mmread
from scipy.sparse import csr_array

from spmv_fpga.errors import MatrixError
from spmv_fpga.matrices import load_matrix, open_matrix
from spmv_fpga.resources import data_dir

GENERAL = "%%MatrixMarket matrix coordinate real general\n"
SYMMETRIC = "%%MatrixMarket matrix coordinate real symmetric\n"


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPMV_FPGA_OFFLINE", "1")


@pytest.fixture
def write(tmp_path):
    def write(text: str | bytes, name: str = "a.mtx") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def product(path, symmetric="expand"):
    A = load_matrix(path, symmetric)
    return (A @ np.arange(1, A.shape[1] + 1, dtype=np.float64)).tolist()


def refusal(path) -> MatrixError:
    with pytest.raises(MatrixError) as caught:
        load_matrix(path)
    assert caught.value.path == str(path)
    return caught.value


def test_a_general_file_gives_sorted_float32_with_int32_indices():
    A = load_matrix(data_dir("matrices") / "tiny" / "oracle4.mtx")
    assert (A.dtype, A.indices.dtype, A.indptr.dtype) == (np.float32, np.int32, np.int32)
    assert A.indices.tolist() == [0, 2, 3, 1, 0, 2, 3, 1, 3]
    assert (A @ np.array([1, 2, 3, 4])).tolist() == [19, 8, 51, 52]


def test_carriage_returns_and_a_missing_last_newline_lose_nothing(write):
    text = GENERAL + "% note\n3 3 4\n1 1 2\n2 3 -1.5\n3 1 4\n3 3 0.25"
    path = write(text.replace("\n", "\r\n"))
    assert product(path) == [2, -4.5, 4.75]
    assert load_matrix(path).nnz == 4


def test_a_symmetric_file_is_mirrored_once_and_its_diagonal_is_not_doubled(write):
    path = write(SYMMETRIC + "4 4 6\n1 1 4\n2 1 1\n2 2 5\n3 3 6\n4 1 -2\n4 4 7\n")
    assert product(path) == [-2, 11, 18, 26]
    matrix = open_matrix(path)
    assert (matrix.nnz, matrix.symmetric) == (8, "expanded")


def test_an_upper_triangle_is_mirrored_just_as_well(write):
    path = write(SYMMETRIC + "4 4 6\n1 1 4\n1 2 1\n2 2 5\n3 3 6\n1 4 -2\n4 4 7\n")
    assert product(path) == [-2, 11, 18, 26]


def test_stored_keeps_only_the_triangle_in_the_file(write):
    path = write(SYMMETRIC + "4 4 6\n1 1 4\n2 1 1\n2 2 5\n3 3 6\n4 1 -2\n4 4 7\n")
    assert product(path, "stored") == [4, 11, 18, 26]
    matrix = open_matrix(path, "stored")
    assert (matrix.nnz, matrix.symmetric) == (6, "stored triangle")


def test_a_pair_that_stands_in_both_triangles_is_refused(write):
    error = refusal(write(SYMMETRIC + "3 3 3\n2 1 5\n3 3 1\n1 2 5\n"))
    assert "(2, 1)" in error.reason
    assert "(1, 2)" in error.reason


def test_entries_of_both_triangles_that_are_no_pair_are_mirrored(write):
    path = write(SYMMETRIC + "3 3 2\n2 1 5\n2 3 7\n")
    assert load_matrix(path).toarray().tolist() == [[0, 5, 0], [5, 0, 7], [0, 7, 0]]


def test_a_symmetric_file_that_is_not_square_is_refused(write):
    error = refusal(write(SYMMETRIC + "3 4 1\n1 1 1\n"))
    assert error.line == 2
    assert "3 x 4" in error.reason


def test_a_skew_symmetric_file_changes_signs_in_the_mirror():
    path = data_dir("matrices") / "tiny" / "skew3.mtx"
    assert load_matrix(path).toarray().tolist() == [[0, -2, 0.5], [2, 0, -4], [-0.5, 4, 0]]
    assert product(path, "stored") == [0, 2, 7.5]


def test_a_skew_symmetric_file_with_a_diagonal_is_refused(write):
    header = "%%MatrixMarket matrix coordinate real skew-symmetric\n"
    assert "diagonal" in refusal(write(header + "2 2 1\n1 1 3\n")).reason


def test_pattern_entries_are_one(write):
    header = "%%MatrixMarket matrix coordinate pattern symmetric\n"
    path = write(header + "4 4 4\n2 1\n3 3\n4 1\n4 2\n")
    assert product(path) == [6, 5, 3, 3]
    assert load_matrix(path).nnz == 7


def test_a_pattern_entry_with_a_value_is_refused(write):
    header = "%%MatrixMarket matrix coordinate pattern general\n"
    assert refusal(write(header + "4 4 1\n2 1 7\n")).line == 3


def test_integer_values_and_explicit_zeros_are_kept():
    A = load_matrix(data_dir("matrices") / "tiny" / "symmetric4.mtx")
    assert A.nnz == 10
    assert np.count_nonzero(A.data == 0) == 2
    assert A.toarray()[3].tolist() == [0, 0, -1, 4]


def test_duplicates_are_summed_and_count_once(write):
    A = load_matrix(write(GENERAL + "2 2 3\n1 1 1\n2 2 5\n1 1 2.5\n"))
    assert A.nnz == 2
    assert A.toarray().tolist() == [[3.5, 0], [0, 5]]


def test_negative_zero_keeps_its_sign(write):
    assert np.signbit(load_matrix(write(GENERAL + "1 1 1\n1 1 -0.0\n")).data[0])


@pytest.mark.parametrize(
    ("size", "shape"), [("3 4 0", (3, 4)), ("0 0 0", (0, 0)), ("0 5 0", (0, 5))]
)
def test_a_file_without_entries_gives_an_empty_matrix(write, size, shape):
    A = load_matrix(write(f"{GENERAL}{size}\n"))
    assert (A.shape, A.nnz) == (shape, 0)


def test_one_entry_is_enough(write):
    assert product(write(GENERAL + "1 1 1\n1 1 -3.5\n")) == [-3.5]


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("3 3 3\n0 0 1\n1 1 2\n2 2 3\n", 3, ("0",)),
        ("3 3 3\n1 1 1\n4 2 2\n3 3 3\n", 4, ("4", "3")),
        ("3 3 3\n1 1 1\n1 4 2\n3 3 3\n", 4, ("column", "4")),
        ("3 3 3\n1 1 1\n-1 2 2\n3 3 3\n", 4, ("-1",)),
        ("3 3 1\n99999999999999999999 1 1\n", 3, ("99999999999999999999",)),
        ("3 3 5\n1 1 1\n2 2 2\n3 3 3\n3 1", 6, ("promises 5", "3 came", "cut")),
        ("3 3 5\n1 1 1\n2 2 2\n3 3 3\n", 2, ("promises 5", "3 came")),
        ("3 3 2\n1 1 1\n2 2 2\n3 3 3\n3 1 4\n", 2, ("promises 2", "4 came")),
        ("3 3 0\n1 1 1\n", 2, ("promises 0", "1 came")),
        ("3 3 99999999999999\n1 1 1\n", 2, ("promises 99999999999999", "1 came")),
        ("3 3 2\n1 1 1 foo\n2 2 2\n", 3, ("4 fields",)),
        ("3 3 2\n1 1 1foo\n2 2 2\n", 3, ("1foo",)),
        ("3 3 2\n1 1\n2 2 2 2\n", 3, ("2 fields",)),
        ("3 3 2\n1 1.5 1\n2 2 2\n", 3, ("1.5",)),
        ("3 3 2\n1  1.5 1 \n2 2 2\n", 3, ("1.5",)),
        ("3 3 1\n1 1 0x10\n", 3, ("0x10",)),
        ("3 3 1\n1 1 1.5e\n", 3, ("1.5e",)),
        ("3 3 2\n1 1 1.5-300\n2 2 2\n", 3, ("1.5-300",)),
        ("3 3 2\n1 1 1\x00\n2 2 2\n", 3, ("finite",)),
        ("3 3 2\n1 1 nan\n2 2 2\n", 3, ("nan", "finite")),
        ("3 3 2\n1 1 1\n2 2 -Inf\n", 4, ("-Inf", "finite")),
        ("3 3 2\n1 1 1\n2 2 1e300\n", 4, ("1e300", "float32")),
        ("3 3 1\n1 1 1e400\n", 3, ("1e400", "float32")),
        ("3 3\n1 1 1\n", 2, ("3 3",)),
        ("3 3 1 1\n1 1 1\n", 2, ("3 3 1 1",)),
        ("3 -3 1\n1 1 1\n", 2, ("3 -3 1",)),
        ("% only a comment\n", 3, ("size line",)),
    ],
)
def test_a_wrong_line_is_refused_with_its_number(write, text, line, words):
    error = refusal(write(GENERAL + text))
    assert error.line == line
    for word in words:
        assert word in error.reason


@pytest.mark.parametrize(
    ("banner", "word"),
    [
        ("%%MatrixMarket matrix coordinate complex general", "complex"),
        ("%%MatrixMarket matrix coordinate complex hermitian", "complex"),
        ("%%MatrixMarket matrix coordinate integer hermitian", "hermitian"),
        ("%%MatrixMarket matrix array real general", "array"),
        ("%%MatrixMarket matrix coordinate quaternion general", "quaternion"),
        ("%%MatrixMarket matrix coordinate real circulant", "circulant"),
        ("%%MatrixMarket vector coordinate real general", "first line"),
        ("1 2 3", "first line"),
        ("", "first line"),
    ],
)
def test_a_kind_of_file_that_is_not_supported_is_refused_at_line_1(write, banner, word):
    error = refusal(write(f"{banner}\n2 2 1\n1 1 1 2\n"))
    assert error.line == 1
    assert word in error.reason


@pytest.mark.parametrize(
    ("entry", "value"),
    [
        ("1 2 +1.5", 1.5),
        ("1 2 1.5D+01", 15.0),
        ("1 2 2.5d0", 2.5),
        ("  1\t2\t .5  ", 0.5),
        ("1 2 5.", 5.0),
        ("1 2 1e-60", 0.0),
        ("% in between\n1 2 3", 3.0),
        ("\n\n1 2 3\n\n", 3.0),
        ("1 2 3.4028235e38", 3.4028234663852886e38),
    ],
)
def test_unusual_numbers_and_lines_are_read_right(write, entry, value):
    A = load_matrix(write(f"{GENERAL}2 2 2\n{entry}\n2 2 1\n"))
    assert A.toarray().tolist() == [[0, value], [0, 1]]


def test_entries_that_add_up_beyond_float32_are_refused(write):
    error = refusal(write(GENERAL + "1 1 2\n1 1 3e38\n1 1 3e38\n"))
    assert "float32" in error.reason


def test_text_that_crosses_pieces_of_the_reader_is_read_whole(write, monkeypatch):
    monkeypatch.setattr("spmv_fpga.matrices.market._CHUNK_BYTES", 64)
    lines = [f"{i} {i % 7 + 1} {i}.25\n" for i in range(1, 200_001)]
    A = load_matrix(write(GENERAL + "200000 7 200000\n" + "".join(lines)))
    assert A.nnz == 200_000
    assert A.data[[0, 123_456, -1]].tolist() == [1.25, 123_457.25, 200_000.25]


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)]
)
def test_compressed_files_give_the_same_matrix(write, suffix, compress):
    path = write(compress((GENERAL + "2 2 1\n2 1 4\n").encode()), f"a.mtx{suffix}")
    assert load_matrix(path).toarray().tolist() == [[0, 0], [4, 0]]
    assert open_matrix(path).name == "a"


@pytest.mark.parametrize(
    ("suffix", "compress"), [(".gz", gzip.compress), (".bz2", bz2.compress)]
)
@pytest.mark.parametrize("kept", [0.0, 0.5, 0.99])
def test_a_compressed_file_that_is_cut_short_is_refused(write, suffix, compress, kept):
    lines = "".join(f"{i} {i} {i}.5\n" for i in range(1, 1001))
    whole = compress((GENERAL + "1000 1000 1000\n" + lines).encode())
    refusal(write(whole[: int(len(whole) * kept)], f"a.mtx{suffix}"))


def test_a_file_with_a_wrong_checksum_is_refused(write):
    whole = bytearray(gzip.compress((GENERAL + "2 2 1\n2 1 4\n").encode()))
    whole[-6] ^= 1
    assert "damaged" in refusal(write(bytes(whole), "a.mtx.gz")).reason


def test_a_matrix_with_empty_rows_everywhere_keeps_its_length(write):
    path = write(GENERAL + "64 8 3\n20 1 10\n21 1 -15\n37 1 4.5\n")
    y = product(path)
    assert len(y) == 64
    assert {i + 1: v for i, v in enumerate(y) if v} == {20: 10, 21: -15, 37: 4.5}


@pytest.mark.shared_data
def test_every_shared_matrix_agrees_with_the_index(shared_data):
    with (shared_data / "matrices" / "index.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        path = shared_data / "matrices" / f"{row['name']}.mtx.gz"
        if row["field"] == "complex":
            assert "complex" in refusal(path).reason
            continue
        A = load_matrix(path)
        assert A.shape == (int(row["rows"]), int(row["cols"])), row
        assert A.nnz == int(row["full_nnz"]), row
        assert load_matrix(path, "stored").nnz == int(row["stored"]), row
        B = csr_array(mmread(path))  # an independent expansion, in float64
        B.sum_duplicates()
        assert np.count_nonzero(B.data == 0) == int(row["explicit_zeros"]), row
        assert np.array_equal(A.indices, B.indices), row
        assert np.array_equal(A.data, B.data.astype(np.float32)), row
        lengths = np.diff(A.indptr)
        assert lengths.max() == int(row["longest_row"]), row
        assert np.count_nonzero(lengths == 0) == int(row["empty_rows"]), row


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "num_tiles", "printed_percent"),
    [("ex9", 950, 21), ("s3rmt3m3", 1534, 27), ("s2rmq4m1", 1668, 34)],
)
def test_tiles_of_the_stored_triangle_have_the_published_density(
    shared_data, name, num_tiles, printed_percent
):
    A = load_matrix(shared_data / "matrices" / f"{name}.mtx.gz", "stored").tocoo()
    tiles = set(zip((A.row // 16).tolist(), (A.col // 16).tolist(), strict=True))
    assert len(tiles) == num_tiles
    assert round(100 * A.nnz / (256 * len(tiles))) == printed_percent
