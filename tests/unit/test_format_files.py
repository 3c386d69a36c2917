"""A converted matrix in a file comes back as it was; a damaged one is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, save_npz

from spmv_fpga.errors import MatrixError
from spmv_fpga.formats import (
    BlockedEll,
    SellCSigma,
    SlicedEll,
    is_format_file,
    load_format,
    save_format,
)

A = csr_array(
    np.array([[1, 0, 0, 0, 2], [0] * 5, [0, 3, 0, 0, 0], [0] * 5, [0, 0, 0, 4, 5]], np.float32)
)
FORMATS = {
    "scalar": SlicedEll.from_csr(A, slice_size=4),
    "block": BlockedEll.from_csr(A, block=4),
    "lanes": SellCSigma.from_csr(A, panel=16),
}


@pytest.fixture(params=sorted(FORMATS))
def fmt(request):
    return FORMATS[request.param]


@pytest.fixture
def saved(fmt, tmp_path):
    save_format(tmp_path / "a.npz", fmt)
    return tmp_path / "a.npz"


def change(path, **arrays) -> None:
    """Write the file again with other arrays in it."""
    with np.load(path) as file:
        content = {name: file[name] for name in file.files}
    np.savez(path, **{**content, **arrays})


def refusal(path) -> str:
    with pytest.raises(MatrixError) as caught:
        load_format(path)
    assert caught.value.path == str(path)
    return str(caught.value)


def test_a_saved_format_comes_back_as_it_was(fmt, saved):
    back = load_format(saved)
    assert type(back) is type(fmt)
    assert (back.shape, back.nnz, back.parameters) == (fmt.shape, fmt.nnz, fmt.parameters)
    assert back.buffers()["matrix"].tolist() == fmt.buffers()["matrix"].tolist()
    assert back.to_csr().toarray().tolist() == A.toarray().tolist()


def test_what_comes_back_is_read_only(saved):
    with pytest.raises(ValueError, match="read-only"):
        load_format(saved).values[0] = 1


@pytest.mark.parametrize("make", [SlicedEll.from_csr, BlockedEll.from_csr, SellCSigma.from_csr])
@pytest.mark.parametrize("shape", [(0, 0), (0, 7), (7, 0), (7, 7)])
def test_a_matrix_without_entries_comes_back(make, shape, tmp_path):
    save_format(tmp_path / "a.npz", make(csr_array(shape, dtype=np.float32)))
    assert load_format(tmp_path / "a.npz").shape == shape


def test_the_file_has_exactly_the_name_given(fmt, tmp_path):
    save_format(tmp_path / "matrix.of.mine", fmt)
    assert [p.name for p in tmp_path.iterdir()] == ["matrix.of.mine"]


def test_an_older_file_of_that_name_is_replaced(fmt, tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("old")
    save_format(path, fmt)
    assert load_format(path).nnz == 5


def test_a_folder_that_is_not_there_is_refused_and_nothing_is_left(fmt, tmp_path):
    with pytest.raises(MatrixError, match=r"a\.npz: cannot be written: No such file"):
        save_format(tmp_path / "absent" / "a.npz", fmt)
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_the_place_of_the_folder_is_refused(fmt, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MatrixError, match="cannot be written: Not a directory"):
        save_format(tmp_path / "file" / "a.npz", fmt)


def test_a_write_that_fails_leaves_the_old_file(fmt, saved, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    before = saved.read_bytes()
    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(MatrixError, match="No space left on device"):
        save_format(saved, fmt)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["a.npz"]


def test_files_are_told_apart_by_their_content(saved, tmp_path):
    save_npz(tmp_path / "scipy.npz", A)
    (tmp_path / "text.npz").write_text("no archive")
    assert is_format_file(saved)
    assert not is_format_file(tmp_path / "scipy.npz")
    assert not is_format_file(tmp_path / "text.npz")
    assert not is_format_file(tmp_path / "absent.npz")


def test_another_programs_file_is_refused(tmp_path):
    np.save(tmp_path / "vector.npy", np.ones(3))
    assert "no file that `spmv-fpga convert` wrote" in refusal(tmp_path / "vector.npy")


def test_a_file_cut_short_is_refused(saved):
    saved.write_bytes(saved.read_bytes()[:-200])
    refusal(saved)


def test_a_changed_value_is_refused(saved):
    content = saved.read_bytes()
    three, seven = (np.float32(value).tobytes() for value in (3, 7))
    assert content.count(three) == 1
    saved.write_bytes(content.replace(three, seven))
    assert "Bad CRC-32" in refusal(saved)


def test_a_later_version_is_refused(saved):
    change(saved, version=np.array(2))
    assert "version 2, this program reads 1" in refusal(saved)


def test_an_unknown_kernel_is_refused(saved):
    change(saved, spmv_fpga_format=np.array("panes"))
    assert "kernel is panes" in refusal(saved)


@pytest.mark.parametrize(
    ("name", "wrong", "reason"),
    [
        ("shape", [5, 1], "columns"),
        ("shape", [5], "unpack"),
        ("nnz", 6, "entries"),
        ("parameters", [12], "contradict"),
        ("parameters", [], "index 0"),
        ("values", np.zeros(3), "values are float64"),
        ("values", np.ones(5, np.float32), "contradict"),
    ],
)
def test_sizes_that_contradict_each_other_are_refused(saved, name, wrong, reason):
    change(saved, **{name: np.array(wrong)})
    assert reason in refusal(saved)


@pytest.mark.parametrize(
    ("kernel", "name", "wrong"),
    [
        ("scalar", "shape", lambda _: np.array([50, 5])),
        ("block", "shape", lambda _: np.array([50, 5])),
        ("scalar", "col_indices", lambda cols: cols - 1),
        ("scalar", "col_indices", lambda cols: cols + 5),
        ("scalar", "col_indices", lambda cols: cols.astype(np.float64)),
        ("scalar", "slice_widths", lambda widths: np.array([4, -1])),
        ("block", "block_cols", lambda cols: cols - 1),
        ("block", "block_cols", lambda cols: cols + 1),
        ("block", "blocks_per_row", lambda counts: np.array([5, -1])),
        ("block", "blocks_per_row", lambda counts: counts[:1]),
        ("lanes", "col_indices", lambda cols: cols + np.uint16(5)),
        ("lanes", "col_indices", lambda cols: cols.astype(np.int32)),
        ("lanes", "chunk_widths", lambda widths: widths - widths),
        ("lanes", "chunks_per_panel", lambda chunks: chunks + 1),
        ("lanes", "piece_addresses", lambda addresses: addresses - np.uint16(1)),
        ("lanes", "piece_addresses", lambda addresses: addresses[:, :4]),
        ("lanes", "merged_rows", lambda rows: np.array([5])),
        ("lanes", "parameters", lambda _: np.array([8, 24])),
    ],
)
def test_indices_out_of_range_are_refused(tmp_path, kernel, name, wrong):
    path = tmp_path / "a.npz"
    save_format(path, FORMATS[kernel])
    change(path, **{name: wrong(getattr(FORMATS[kernel], name))})
    with pytest.raises(MatrixError, match="no readable converted matrix"):
        load_format(path)
