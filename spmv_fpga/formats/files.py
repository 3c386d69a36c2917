"""A converted matrix in a file: `spmv-fpga convert -o FILE.npz` and its reading."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import MatrixError
from ..files import write_whole
from .base import PADDING_BITS, SparseFormat, words_for
from .blocked_ell import BLOCK_SIZES, BlockedEll
from .lane_layout import LANES, NO_ADDRESS
from .sell_c_sigma import DEPTHS, MAX_PANEL, SellCSigma
from .sliced_ell import SLICE_SIZES, SlicedEll

_VERSION = 1
_MARK = "spmv_fpga_format"


def save_format(path: str | Path, fmt: SparseFormat) -> None:
    """Write a converted matrix, whole or not at all.

    Parameters
    ----------
    path : str or Path
        File to write; it gets NumPy's `.npz` layout under exactly this name.
    fmt : SparseFormat
    """
    arrays = {k: v for k, v in vars(fmt).items() if isinstance(v, np.ndarray)}
    facts = {
        _MARK: np.array(fmt.kernel),
        "version": np.array(_VERSION),
        "shape": np.array(fmt.shape, np.int64),
        "nnz": np.array(fmt.nnz, np.int64),
        "parameters": np.array(list(fmt.parameters.values()), np.int64),
    }
    try:
        write_whole(path, lambda file: np.savez(file, allow_pickle=False, **facts, **arrays))
    except OSError as error:
        raise MatrixError(f"cannot be written: {error.strerror or error}.", path=path) from None


def is_format_file(path: str | Path) -> bool:
    """Say whether a file was written by `save_format`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{_MARK}.npy" in archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return False


def load_format(path: str | Path) -> SparseFormat:
    """Read what `save_format` wrote, with its sizes checked against each other.

    Raises
    ------
    MatrixError
        If the file is damaged, or its arrays do not make a matrix.
    """
    if not is_format_file(path):
        raise MatrixError("is no file that `spmv-fpga convert` wrote.", path=path)
    try:
        with np.load(path, allow_pickle=False) as file:
            content = {name: file[name] for name in file.files}
        return _from_content(content)
    except (OSError, LookupError, ValueError, zipfile.BadZipFile, zlib.error, EOFError) as e:
        raise MatrixError(
            f"is no readable converted matrix ({e}); convert it again.", path=path
        ) from None


def _from_content(content: dict[str, np.ndarray]) -> SparseFormat:
    kernel = str(content[_MARK])
    if int(content["version"]) != _VERSION:
        raise ValueError(f"version {content['version']}, this program reads {_VERSION}")
    m, n = (int(size) for size in content["shape"])
    nnz = int(content["nnz"])
    values = content["values"]
    if values.dtype != np.float32:
        raise ValueError(f"values are {values.dtype}")
    _require(np.count_nonzero(values.view(np.uint32) != PADDING_BITS) == nnz, "entries")
    if kernel not in _MAKERS:
        raise ValueError(f"kernel is {kernel}")
    return _MAKERS[kernel](content, (m, n), nnz)


def _sliced(content: dict[str, np.ndarray], shape: tuple[int, int], nnz: int) -> SlicedEll:
    m, n = shape
    slice_size = int(content["parameters"][0])
    values = content["values"]
    widths, cols = _indices(content, "slice_widths", "col_indices")
    _require(slice_size in SLICE_SIZES and len(widths) == -(-m // slice_size), "slices")
    _require(values.shape == cols.shape == (slice_size * widths.sum(),), "slots")
    _require(not len(cols) or (cols.min() >= 0 and cols.max() < n), "columns")
    return SlicedEll(
        values=values,
        col_indices=cols,
        slice_widths=widths,
        shape=shape,
        nnz=nnz,
        slice_size=slice_size,
    )


def _blocked(content: dict[str, np.ndarray], shape: tuple[int, int], nnz: int) -> BlockedEll:
    m, n = shape
    block = int(content["parameters"][0])
    values = content["values"]
    counts, cols = _indices(content, "blocks_per_row", "block_cols")
    _require(block in BLOCK_SIZES and len(counts) == -(-m // block), "block rows")
    _require(values.shape == (len(cols), block, block), "tiles")
    _require(len(cols) == counts.sum(), "tiles a block row")
    _require(not len(cols) or (cols.min() >= 0 and cols.max() * block < n), "columns")
    return BlockedEll(
        values=values, block_cols=cols, blocks_per_row=counts, shape=shape, nnz=nnz
    )


def _sorted(content: dict[str, np.ndarray], shape: tuple[int, int], nnz: int) -> SellCSigma:
    m, n = shape
    depth = int(content["parameters"][0])
    _require(depth in DEPTHS, "depths")
    panel = int(content["parameters"][1])
    _require(0 < panel <= MAX_PANEL and panel % LANES == 0, "panels")
    values = content["values"]
    widths, merged = _indices(content, "chunk_widths", "merged_rows")
    chunks, _ = _indices(content, "chunks_per_panel", "merged_rows")
    cols, addresses = content["col_indices"], content["piece_addresses"]
    if cols.dtype != np.uint16 or addresses.dtype != np.uint16:
        raise ValueError("its columns and addresses are no numbers of 16 bits")
    _require(len(chunks) == -(-n // panel) and chunks.sum() == len(widths), "chunks")
    _require(addresses.shape == (len(widths), depth, LANES), "pieces")
    _require(bool((widths > 0).all()), "widths")
    _require(values.shape == cols.shape == (depth * LANES * widths.sum(),), "slots")
    room = np.minimum(n - panel * np.arange(len(chunks)), panel)
    of_slot = np.repeat(np.repeat(room, chunks), depth * LANES * widths)
    _require(bool((cols < of_slot).all()), "columns")
    _require(not len(merged) or merged.max() < m, "long rows")
    last = words_for(m) + len(merged)
    _require(bool(((addresses < last) | (addresses == NO_ADDRESS)).all()), "addresses")
    return SellCSigma(
        values=values,
        col_indices=cols,
        chunk_widths=widths,
        chunks_per_panel=chunks,
        piece_addresses=addresses,
        merged_rows=merged,
        shape=shape,
        nnz=nnz,
        depth=depth,
        panel=panel,
    )


_MAKERS: dict[str, Callable[[dict[str, np.ndarray], tuple[int, int], int], SparseFormat]] = {
    "scalar": _sliced,
    "block": _blocked,
    "lanes": _sorted,
}


def _indices(
    content: dict[str, np.ndarray], counts: str, cols: str
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return two arrays of whole numbers, the counts not negative, as a format holds them."""
    for name in (counts, cols):
        if content[name].dtype.kind != "i" or content[name].ndim != 1:
            raise ValueError(f"{name} are no list of whole numbers")
    _require(not (content[counts] < 0).any(), counts.replace("_", " "))
    return content[counts].astype(np.int64), content[cols].astype(np.int32)


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(f"its {what} contradict each other")
