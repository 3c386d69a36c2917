"""What a loaded matrix is, and how entries become one.

A matrix of this package is a canonical float32 ``csr_array``: columns sorted
within each row, no coordinate twice, explicit zeros kept, int32 indices where
they fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array

from ..errors import MatrixError

Symmetric = Literal["expand", "stored"]

#: Rows or columns that are refused: more than any matrix of the SuiteSparse collection has,
#: and a vector of so many takes 1 GB.
MAX_SIZE = 1 << 28
#: Entries that a matrix may have that is made here, not read: with 8 bytes each and as much
#: again to work with, 4 GB.
MAX_ENTRIES = 1 << 28


class Entries(NamedTuple):
    """Stored entries in any order, duplicates allowed.

    Attributes
    ----------
    rows, cols : ndarray, shape (k,), int32 or int64
        Indices from 0.
    values : ndarray, shape (k,), float64
    """

    rows: NDArray[Any]
    cols: NDArray[Any]
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix with the facts that a report must state beside it.

    Parameters
    ----------
    csr : csr_array, shape (m, n), float32
        The entries, canonical.
    name : str
        Short name for display.
    source : str
        Where it came from, in one line.
    symmetric : str
        What was done: "general" (as stored), "expanded" (both triangles) or
        "stored triangle" (one triangle only).
    is_twin : bool
        True for a synthetic stand-in of a published matrix.
    warnings : tuple of str
        Sentences that a report must repeat.
    """

    csr: csr_array
    name: str
    source: str
    symmetric: str = "general"
    is_twin: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def nnz(self) -> int:
        """Entries, explicit zeros included."""
        return int(self.csr.nnz)


def check_symmetric(symmetric: str) -> None:
    """Refuse anything but the two choices of `Symmetric`.

    >>> check_symmetric("stored")
    """
    if symmetric not in get_args(Symmetric):
        raise MatrixError(f"symmetric is {symmetric!r}; it must be 'expand' or 'stored'.")


def check_size(rows: int, cols: int, path: str | Path) -> None:
    """Refuse a matrix whose row pointers or vectors alone would fill the memory.

    >>> check_size(5, 7, "a.mtx")
    """
    if max(rows, cols) > MAX_SIZE:
        raise MatrixError(
            f"the matrix is {rows} x {cols}; it may have at most {MAX_SIZE} rows and columns.",
            path=path,
        )


def csr_from_entries(entries: Entries, shape: tuple[int, int]) -> csr_array:
    """Sum duplicates in float64 and round once to float32.

    >>> e = Entries(np.array([0, 0]), np.array([1, 1]), np.array([1.0, 2.5]))
    >>> csr_from_entries(e, (1, 2)).toarray()
    array([[0. , 3.5]], dtype=float32)
    """
    coo = coo_array((entries.values, (entries.rows, entries.cols)), shape=shape)
    return as_float32(coo.tocsr())


def as_float32(csr: csr_array) -> csr_array:
    """Return the canonical float32 form; a value beyond float32 becomes infinite."""
    csr.sum_duplicates()
    with np.errstate(over="ignore"):
        values = csr.data.astype(np.float32)
    return canonical(values, csr.indices, csr.indptr, csr.shape)


def canonical(
    values: NDArray[np.float32],
    indices: NDArray[Any],
    indptr: NDArray[Any],
    shape: tuple[int, int],
) -> csr_array:
    """Wrap arrays that are canonical already, so that SciPy never checks them again.

    Indices become int32 where the sizes fit.
    """
    fits = max(*shape, len(values)) <= np.iinfo(np.int32).max
    index = np.int32 if fits else np.int64
    csr = csr_array(
        (values, indices.astype(index, copy=False), indptr.astype(index, copy=False)),
        shape=shape,
    )
    csr.has_sorted_indices = True
    csr.has_canonical_format = True
    return csr
