"""A converted matrix in a file: `spmv-fpga convert -o FILE.npz` and its reading."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ..errors import MatrixError
from ..files import write_whole
from .base import PADDING_BITS, SparseFormat
from .blocked_ell import BLOCK_SIZES, BlockedEll
from .sliced_ell import SLICE_SIZES, SlicedEll

_VERSION = 1
_MARK = "spmv_fpga_format"


def save_format(path: str | Path, fmt: SparseFormat) -> None:
    """Write a converted matrix, whole or not at all.

    Parameters
    ----------
    path : str or Path
        File to write; it gets NumPy's `.npz` layout under exactly this name.
    fmt : SlicedEll or BlockedEll
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
    nnz, parameter = int(content["nnz"]), int(content["parameters"][0])
    values = content["values"]
    if values.dtype != np.float32:
        raise ValueError(f"values are {values.dtype}")
    _require(np.count_nonzero(values.view(np.uint32) != PADDING_BITS) == nnz, "entries")
    if kernel == "scalar":
        widths, cols = _indices(content, "slice_widths", "col_indices")
        _require(parameter in SLICE_SIZES and len(widths) == -(-m // parameter), "slices")
        _require(values.shape == cols.shape == (parameter * widths.sum(),), "slots")
        _require(not len(cols) or (cols.min() >= 0 and cols.max() < n), "columns")
        return SlicedEll(
            values=values,
            col_indices=cols,
            slice_widths=widths,
            shape=(m, n),
            nnz=nnz,
            slice_size=parameter,
        )
    if kernel != "block":
        raise ValueError(f"kernel is {kernel}")
    counts, cols = _indices(content, "blocks_per_row", "block_cols")
    _require(parameter in BLOCK_SIZES and len(counts) == -(-m // parameter), "block rows")
    _require(values.shape == (len(cols), parameter, parameter), "tiles")
    _require(len(cols) == counts.sum(), "tiles a block row")
    _require(not len(cols) or (cols.min() >= 0 and cols.max() * parameter < n), "columns")
    return BlockedEll(
        values=values, block_cols=cols, blocks_per_row=counts, shape=(m, n), nnz=nnz
    )


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
