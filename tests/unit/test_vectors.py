"""The vector x from the command line's words, and y into a file."""

from __future__ import annotations

import io

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from spmv_fpga.errors import MatrixError
from spmv_fpga.vectors import DEFAULT_X, make_x, save_y


def test_index_counts_from_one():
    x = make_x("index", 4)
    assert (x.dtype, x.tolist()) == (np.float32, [1, 2, 3, 4])


def test_ones_are_ones():
    x = make_x("ones", 3)
    assert (x.dtype, x.tolist()) == (np.float32, [1, 1, 1])


@pytest.mark.parametrize("spec", ["index", "ones", "random"])
def test_a_matrix_without_columns_has_an_empty_x(spec):
    assert make_x(spec, 0).shape == (0,)


def test_random_is_between_minus_one_and_one_and_the_same_every_time():
    x = make_x("random:7", 1000)
    assert x.dtype == np.float32
    assert -1 <= x.min() < -0.9
    assert 0.9 < x.max() < 1
    assert x.tolist() == make_x("random:7", 1000).tolist()
    assert x.tolist() != make_x("random:8", 1000).tolist()


def test_random_alone_has_the_seed_of_the_default():
    assert DEFAULT_X == "random:1"
    assert make_x("random", 5).tolist() == make_x("random:1", 5).tolist()


@pytest.mark.parametrize("seed", ["-1", "x", "1.5", "²"])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(MatrixError, match="it must be a whole number"):
        make_x(f"random:{seed}", 3)


@pytest.mark.parametrize("spec", ["", "two", "index:1", "ones:3", "x.txt", "Random"])
def test_other_words_are_refused_with_those_there_are(spec):
    with pytest.raises(MatrixError, match="it must be index, ones, random"):
        make_x(spec, 3)


def x_file(tmp_path, content) -> str:
    path = tmp_path / "x.npy"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        np.save(path, content)
    return str(path)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, np.bool_])
def test_a_file_of_real_numbers_becomes_float32(tmp_path, dtype):
    x = make_x(x_file(tmp_path, np.array([1, 0, 1], dtype)), 3)
    assert (x.dtype, x.tolist()) == (np.float32, [1, 0, 1])


def test_a_value_past_float32_is_infinite(tmp_path):
    assert make_x(x_file(tmp_path, np.array([1e300, np.nan])), 2)[0] == np.inf


@pytest.mark.parametrize("shape", [(4,), (2,), (0,), (3, 1), ()])
def test_a_file_of_another_shape_is_refused(tmp_path, shape):
    with pytest.raises(MatrixError, match=r"3 columns, so it must be \(3,\)"):
        make_x(x_file(tmp_path, np.zeros(shape)), 3)


@pytest.mark.parametrize("x", [np.ones(3, complex), np.array(["a", "b", "c"])])
def test_a_file_of_other_things_is_refused(tmp_path, x):
    with pytest.raises(MatrixError, match="it must hold real numbers"):
        make_x(x_file(tmp_path, x), 3)


def truncated() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(100))
    return file.getvalue()[:200]


def archive() -> bytes:
    file = io.BytesIO()
    save_npz(file, csr_array(np.eye(2)))
    return file.getvalue()


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([{}, {}, {}]), allow_pickle=True)
    return file.getvalue()


@pytest.mark.parametrize("content", [b"", b"text", truncated(), archive(), pickled()])
def test_a_file_that_is_no_array_is_refused_by_its_name(tmp_path, content):
    path = x_file(tmp_path, content)
    with pytest.raises(MatrixError, match=r"is no \.npy file of numbers") as caught:
        make_x(path, 3)
    assert caught.value.path == path


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MatrixError, match=r"absent\.npy: x cannot be read: No such file"):
        make_x(str(tmp_path / "absent.npy"), 3)


def test_y_is_written_under_exactly_its_name(tmp_path):
    save_y(tmp_path / "y.out", np.array([1, 2], np.float32))
    assert [path.name for path in tmp_path.iterdir()] == ["y.out"]
    assert np.load(tmp_path / "y.out").tolist() == [1, 2]


def test_a_y_that_cannot_be_written_leaves_nothing(tmp_path):
    y = np.ones(2, np.float32)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    for path in ("folder", "absent/y.npy", "file/y.npy"):
        with pytest.raises(MatrixError, match=f"{path}: y cannot be written"):
            save_y(tmp_path / path, y)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]
