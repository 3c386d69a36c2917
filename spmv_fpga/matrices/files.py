"""Matrices in files: which reader a file needs, and what binary files hold."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import loadmat, whosmat
from scipy.io.matlab import MatReadError
from scipy.sparse import coo_array, csr_array, issparse, load_npz

from ..errors import MatrixError
from ..files import require_file
from .archives import ArchiveSource, matrix_name
from .market import MarketSource, read_market
from .model import Matrix, Symmetric, as_float32, check_size

#: Suffixes that make a name a path, whether the file exists or not.
SUFFIXES = (".mtx", ".mtx.gz", ".mtx.bz2", ".tar.gz", ".tgz", ".mat", ".npz")

_CONVERTED_KEY = "spmv_fpga_format"


def looks_like_path(name: str) -> bool:
    """Say whether a name can only be a path.

    >>> looks_like_path("a.mtx"), looks_like_path("HB/ash85"), looks_like_path("./x")
    (True, False, True)
    """
    return name.lower().endswith(SUFFIXES) or name.startswith((".", "/", "~"))


def market_source(path: Path) -> MarketSource | None:
    """Return the Matrix Market text in a file, or None for a binary one."""
    name = path.name.lower()
    if name.endswith((".tar.gz", ".tgz")):
        return ArchiveSource(path)
    return None if name.endswith((".mat", ".npz")) else MarketSource(path)


def read_file(path: Path, symmetric: Symmetric) -> Matrix:
    """Read any file that `SUFFIXES` lists.

    Raises
    ------
    MatrixError
        If there is no such file, or it holds no usable real matrix.
    """
    check_file(path)
    source = market_source(path)
    if source is not None:
        csr, done = read_market(source, symmetric)
        return Matrix(csr, matrix_name(path), f"file {path}", done)
    csr = _read_mat(path) if path.suffix.lower() == ".mat" else _read_npz(path)
    warnings: tuple[str, ...] = ()
    if symmetric == "stored":
        warnings = (f"{path.name} stores the whole matrix; 'stored' changes nothing.",)
    return Matrix(csr, matrix_name(path), f"file {path}", warnings=warnings)


def check_file(path: Path) -> None:
    """Refuse a path without a file, and a file of a kind that is not known."""
    try:
        if path.is_dir():
            raise MatrixError("this is a folder; give a matrix file.", path=path)
        require_file(path)
        with path.open("rb") as file:
            start = file.read(14)
    except OSError as error:
        reason = f"the file cannot be opened ({error.strerror}); check the path."
        raise MatrixError(reason, path=path) from error
    is_market = start.lower() == b"%%matrixmarket"
    if not path.name.lower().endswith(SUFFIXES) and not is_market:
        raise MatrixError(f"unknown kind of file; known are {', '.join(SUFFIXES)}.", path=path)


def _read_mat(path: Path) -> csr_array:
    """Read ``Problem.A`` of the collection, with ``Problem.Zeros``, or the only sparse one."""
    try:
        kinds = {name: kind for name, _, kind in whosmat(path)}
        sparse = [name for name, kind in kinds.items() if kind == "sparse"]
        found = loadmat(path, variable_names=["Problem", *(sparse if len(sparse) == 1 else ())])
    except NotImplementedError as error:
        reason = "MATLAB 7.3 files are not supported; save it with -v7 or take the .mtx."
        raise MatrixError(reason, path=path) from error
    # A file of another kind gives what its first bytes happen to mean.
    except (MatReadError, ValueError, TypeError, LookupError, AttributeError, OverflowError,
            MemoryError, OSError, EOFError, zlib.error) as error:  # fmt: skip
        raise MatrixError(f"the MATLAB file cannot be read ({error}).", path=path) from error
    if len(sparse) == 1 and "Problem" not in found:
        return _checked(coo_array(found[sparse[0]]), path)
    problem = found.get("Problem")
    fields = (problem.dtype.names or ()) if problem is not None and problem.size else ()
    problem = problem.flat[0] if fields else {}
    if "A" not in fields or not issparse(problem["A"]):
        reason = (
            f"the file holds {', '.join(kinds) or 'nothing'}; it must hold one sparse matrix, "
            "or Problem.A as the collection has it: save the one to use alone."
        )
        raise MatrixError(reason, path=path)
    matrix = coo_array(problem["A"])
    if "Zeros" in fields and issparse(problem["Zeros"]):
        zeros = coo_array(problem["Zeros"])
        matrix = coo_array(
            (
                np.concatenate((matrix.data, np.zeros(zeros.nnz, matrix.dtype))),
                (
                    np.concatenate((matrix.row, zeros.row)),
                    np.concatenate((matrix.col, zeros.col)),
                ),
            ),
            shape=matrix.shape,
        )
    return _checked(matrix, path)


def _read_npz(path: Path) -> csr_array:
    """Read SciPy's `save_npz`, or the file that `spmv-fpga convert` writes."""
    try:
        with path.open("rb") as file:
            with np.load(file, allow_pickle=False) as arrays:
                is_converted = _CONVERTED_KEY in arrays.files
            file.seek(0)
            matrix = None if is_converted else load_npz(file)
    except (zipfile.BadZipFile, zlib.error, ValueError, TypeError, LookupError, AttributeError,
            OverflowError, MemoryError, OSError, EOFError) as error:  # fmt: skip
        reason = f"the file is no whole file of scipy.sparse.save_npz ({error})."
        raise MatrixError(reason, path=path) from error
    if matrix is not None:
        return _checked(matrix, path)
    from ..formats import load_format

    converted = load_format(path)
    check_size(*converted.shape, path)
    return converted.to_csr()


def _checked(matrix: Any, path: Path) -> csr_array:
    """Return the canonical float32 form of a sparse matrix that a binary file held."""
    if not np.issubdtype(matrix.dtype, np.number) and matrix.dtype != np.bool_:
        raise MatrixError(f"values are {matrix.dtype}; they must be numbers.", path=path)
    if np.issubdtype(matrix.dtype, np.complexfloating):
        reason = "complex values are not supported; give a real matrix."
        raise MatrixError(reason, path=path)
    rows, cols = matrix.shape
    check_size(rows, cols, path)
    csr = csr_array(matrix)
    try:
        csr.check_format(full_check=True)
    except ValueError as error:
        raise MatrixError(f"the file's indices are wrong ({error}).", path=path) from error
    exact = csr.astype(np.float64)
    result = as_float32(exact)
    if np.any(np.isinf(result.data) & np.isfinite(exact.data)):
        raise MatrixError("values are beyond float32 (3.4e38); scale the matrix.", path=path)
    return result
