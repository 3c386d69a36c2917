"""Rows and columns in another order, for kernels that like entries close together.

A matrix is moved as P A Pᵀ: rows and columns alike, so that x and y move in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from ..errors import MatrixError
from .model import canonical

Reorder = Literal["none", "rcm"]


@dataclass(frozen=True, eq=False)
class Reordered:
    """A matrix in an order of rows and columns, and the way there and back.

    Attributes
    ----------
    csr : csr_array, shape (m, n), float32
        P A Pᵀ, canonical.
    permutation : ndarray, shape (n,), int64, or None
        Row i of `csr` is row `permutation[i]` of A; None where nothing was moved.
    """

    csr: csr_array
    permutation: NDArray[np.int64] | None = None

    def move(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return P x, for a product with `csr`."""
        return x if self.permutation is None else x[self.permutation]

    def restore(self, y: NDArray[Any]) -> NDArray[Any]:
        """Return Pᵀ y: the product in the order of A.

        >>> from scipy.sparse import csr_array
        >>> moved = reorder_matrix(csr_array(np.eye(3, dtype=np.float32)), "rcm")
        >>> moved.restore(moved.move(np.array([5, 6, 7]))).tolist()
        [5, 6, 7]
        """
        if self.permutation is None:
            return y
        restored = np.empty_like(y)
        restored[self.permutation] = y
        return restored


def reorder_matrix(A: csr_array, method: str = "rcm") -> Reordered:
    """Put rows and columns of a matrix into another order.

    Parameters
    ----------
    A : csr_array, shape (n, n), float32
        Canonical. Of any shape where nothing is moved.
    method : {"none", "rcm"}
        `rcm` is the reverse Cuthill-McKee order of the pattern of A + Aᵀ, which brings
        entries close to the diagonal [1]_.

    Raises
    ------
    MatrixError
        If A is not square, or there is no such method.

    References
    ----------
    .. [1] E. Cuthill and J. McKee, "Reducing the bandwidth of sparse symmetric matrices",
       Proceedings of the 24th National Conference, ACM 1969.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> A = csr_array(np.array([[1, 0, 2], [0, 3, 0], [2, 0, 4]], np.float32))
    >>> reorder_matrix(A).csr.toarray().tolist()
    [[4.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 3.0]]
    """
    check_reorder(method)
    if method == "none":
        return Reordered(A)
    rows, cols = A.shape
    if rows != cols:
        raise MatrixError(
            f"the matrix is {rows} x {cols}; reordering ({method}) moves rows and columns "
            "alike and needs a square one; take reorder none."
        )
    permutation = _reverse_cuthill_mckee(A)
    return Reordered(_permuted(A, permutation), permutation)


def check_reorder(method: str) -> None:
    """Refuse anything but the choices of `Reorder`.

    >>> check_reorder("rcm")
    """
    if method not in get_args(Reorder):
        raise MatrixError(f"reorder is {method!r}; it must be 'none' or 'rcm'.")


def _reverse_cuthill_mckee(A: csr_array) -> NDArray[np.int64]:
    if not A.shape[0]:  # SciPy refuses it
        return np.zeros(0, np.int64)
    # Ones in place of values: entries of A + A^T that cancel belong to the pattern.
    pattern = csr_array((np.ones(A.nnz, np.int8), A.indices, A.indptr), shape=A.shape)
    both = csr_array(pattern + pattern.T)
    order: NDArray[np.int64] = reverse_cuthill_mckee(both, symmetric_mode=True).astype(np.int64)
    return order


def _permuted(A: csr_array, permutation: NDArray[np.int64]) -> csr_array:
    """Return P A Pᵀ, explicit zeros included."""
    place = np.empty_like(permutation)
    place[permutation] = np.arange(len(permutation))
    rows = A[permutation]
    moved = csr_array((rows.data, place[rows.indices], rows.indptr), shape=A.shape)
    moved.sort_indices()
    return canonical(moved.data, moved.indices, moved.indptr, A.shape)
