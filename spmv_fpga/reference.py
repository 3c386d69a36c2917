"""The judge of every product: a float64 reference and a bound for every row.

A row i with n_i entries passes if ::

    |y_i - y64_i| <= c · n_i · 2⁻²⁴ · Σ_j |a_ij x_j|  +  n_i · 2⁻¹²⁶ · max(1, max_j |x_j|)

The first term is the worst case of float32 rounding: n_i products and n_i - 1 additions,
each with a relative error of at most 2⁻²⁴, in any order [1]_. The second allows for
operators that flush denormal numbers to zero, as AMD's floating-point operators do [2]_:
each of the n_i operations loses at most the smallest normal number, and an entry that is
itself flushed loses that times |x_j|.

The constant c is 4: it covers the second-order terms, a running sum beside a tree, and
the rounding of x and A to float32, with a margin of two.

References
----------
.. [1] N. J. Higham, Accuracy and Stability of Numerical Algorithms, SIAM 2002, section 3.1.
.. [2] AMD, Floating-Point Operator LogiCORE IP Product Guide (PG060), "Denormalized Numbers".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .errors import FormatError, VerificationError

ROUNDING_CONSTANT = 4.0
_UNIT_ROUNDOFF = 2.0**-24
_SMALLEST_NORMAL = 2.0**-126
_LARGEST_FLOAT32 = float(np.finfo(np.float32).max)

_CHUNK_ENTRIES = 1 << 20

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Reference:
    """What a product must be, row by row.

    Attributes
    ----------
    expected : ndarray, shape (m,), float64
        The product.
    bound : ndarray, shape (m,), float64
        Largest error allowed.
    may_overflow : ndarray, shape (m,), bool
        Rows whose finite products may leave the range of float32 on the way to their sum.
    """

    expected: Float64Array
    bound: Float64Array
    may_overflow: npt.NDArray[np.bool_]


def reference(A: Any, x: npt.ArrayLike) -> Reference:
    """Compute the float64 product and the bound of every row.

    Parameters
    ----------
    A : sparse array, shape (m, n)
    x : array_like, shape (n,)

    Returns
    -------
    Reference

    Raises
    ------
    FormatError
        If x has another length, or holds no real numbers.
    """
    csr = csr_array(A)
    m, n = csr.shape
    vector = _real_vector(x, "x")
    if vector.shape != (n,):
        raise FormatError(f"x has shape {vector.shape}; the matrix has {n} columns.")
    expected, magnitude, largest_x = np.zeros(m), np.zeros(m), np.zeros(m)
    for start, end in _row_chunks(csr):
        full = start + np.flatnonzero(np.diff(csr.indptr[start : end + 1]))
        if not len(full):
            continue
        entries = slice(int(csr.indptr[start]), int(csr.indptr[end]))
        starts = csr.indptr[full] - csr.indptr[start]
        operand = vector[csr.indices[entries]]
        with np.errstate(invalid="ignore", over="ignore"):
            terms = csr.data[entries] * operand
            expected[full] = np.add.reduceat(terms, starts)
            magnitude[full] = np.add.reduceat(_finite_size(terms), starts)
        largest_x[full] = np.maximum.reduceat(_finite_size(operand), starts)
    counts = np.diff(csr.indptr)
    with np.errstate(over="ignore"):
        bound = ROUNDING_CONSTANT * counts * _UNIT_ROUNDOFF * magnitude
        bound += counts * _SMALLEST_NORMAL * np.maximum(1.0, largest_x)
        may_overflow = magnitude + bound > _LARGEST_FLOAT32
    return Reference(expected, bound, may_overflow)


def multiply(A: Any, x: npt.ArrayLike) -> Float64Array:
    """Return A·x in float64, shape (m,)."""
    return reference(A, x).expected


def compare(y: npt.ArrayLike, A: Any, x: npt.ArrayLike) -> float:
    """Return the worst error of a product over its bound; at most 1 is right.

    Parameters
    ----------
    y : array_like, shape (m,)
        The product to judge.
    A : sparse array, shape (m, n)
    x : array_like, shape (n,)

    Returns
    -------
    float
        Infinite for a wrong length, for what is no real number, and for a NaN or an
        infinity where none belongs.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> A = csr_array([[1.0, 2.0], [0.0, 3.0]])
    >>> compare([3.0, 3.0], A, [1.0, 1.0])
    0.0
    >>> compare([3.0, float("nan")], A, [1.0, 1.0])
    inf
    """
    try:
        got, wanted = _real_vector(y, "y"), reference(A, x)
    except FormatError:
        return float("inf")
    if got.shape != (A.shape[0],):
        return float("inf")
    return float(_ratios(got, wanted).max(initial=0.0))


def verify(y: npt.ArrayLike, A: Any, x: npt.ArrayLike) -> float:
    """Judge a product.

    Parameters
    ----------
    y : array_like, shape (m,)
    A : sparse array, shape (m, n)
    x : array_like, shape (n,)

    Returns
    -------
    float
        The worst error over its bound.

    Raises
    ------
    VerificationError
        If a row is wrong, holds a NaN that does not belong there, or y has another length.
    FormatError
        If x has another length, or x or y holds no real numbers.
    """
    got = _real_vector(y, "y")
    if got.shape != (A.shape[0],):
        raise VerificationError(f"y has shape {got.shape}; the product has ({A.shape[0]},).")
    wanted = reference(A, x)
    ratios = _ratios(got, wanted)
    worst = float(ratios.max(initial=0.0))
    if worst <= 1.0:
        return worst
    wrong = np.flatnonzero(~(ratios <= 1.0))
    row = int(wrong[0])
    expected, bound = float(wanted.expected[row]), float(wanted.bound[row])
    raise VerificationError(
        f"{len(wrong)} of {len(got)} rows are wrong; the first is row {row}: "
        f"got {got[row]:.9g}, expected {expected:.9g} within {bound:.3g}.",
        row=row,
        got=float(got[row]),
        expected=expected,
        bound=bound,
    )


def count_overflows(y: npt.ArrayLike, A: Any, x: npt.ArrayLike) -> int:
    """Return how many rows were not compared, since their sum may leave float32.

    These rows hold an infinity or NaN where the exact product is finite: in another order of
    additions, or with more bits, it would be right.

    Parameters
    ----------
    y, A, x
        As for `verify`.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> A = csr_array([[3e38, 3e38, -3e38, -3e38], [1.0, 0.0, 0.0, 0.0]])
    >>> count_overflows([float("nan"), 1.0], A, [1.0, 1.0, 1.0, 1.0])
    1
    """
    got, wanted = _real_vector(y, "y"), reference(A, x)
    if got.shape != wanted.expected.shape:
        return 0
    return int(np.count_nonzero(_is_overflow(got, wanted) & ~_is_same(got, wanted)))


def overflow_note(rows: int) -> str:
    """Say that rows were not compared.

    >>> overflow_note(1)
    '1 row may overflow fp32; it was not compared.'
    """
    words = (
        "row may overflow fp32; it was" if rows == 1 else "rows may overflow fp32; they were"
    )
    return f"{rows} {words} not compared."


def _is_same(got: Float64Array, wanted: Reference) -> npt.NDArray[np.bool_]:
    expected = wanted.expected
    is_same: npt.NDArray[np.bool_] = (got == expected) | (np.isnan(got) & np.isnan(expected))
    return is_same


def _is_overflow(got: Float64Array, wanted: Reference) -> npt.NDArray[np.bool_]:
    is_overflow: npt.NDArray[np.bool_] = wanted.may_overflow & ~np.isfinite(got)
    return is_overflow


def _real_vector(values: npt.ArrayLike, name: str) -> Float64Array:
    """Return values as float64; complex numbers would lose their imaginary part."""
    try:
        vector = np.asarray(values)
    except ValueError as error:  # lists of unlike lengths
        raise FormatError(f"{name} is no array ({error}).") from None
    if not np.can_cast(vector.dtype, np.float64, "same_kind"):
        raise FormatError(f"{name} has dtype {vector.dtype}; it must hold real numbers.")
    return vector.astype(np.float64, copy=False)


def _ratios(got: Float64Array, wanted: Reference) -> Float64Array:
    """Return error over bound for every row; never NaN."""
    expected = wanted.expected
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        ratios = np.abs(got - expected) / wanted.bound
    ratios[np.isnan(ratios)] = np.inf
    ratios[_is_same(got, wanted) | _is_overflow(got, wanted)] = 0.0
    return ratios


def _finite_size(values: Float64Array) -> Float64Array:
    """Return absolute values, 0 for NaN and infinities: those are judged by themselves."""
    return np.where(np.isfinite(values), np.abs(values), 0.0)


def _row_chunks(csr: csr_array) -> Iterator[tuple[int, int]]:
    """Cut the rows into runs of about a million entries, so that temporaries stay small."""
    cuts = np.searchsorted(csr.indptr, np.arange(_CHUNK_ENTRIES, csr.nnz, _CHUNK_ENTRIES))
    bounds = np.unique(np.concatenate(([0], cuts, [csr.shape[0]])))
    return zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
