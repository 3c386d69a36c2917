"""Sliced ELL, the format of the kernel `scalar`.

Rows stand in slices of L; a slice is as wide as its longest row. Slots are stored
slot-column by slot-column, so that L neighbours in memory belong to L different rows and
an accumulator is touched only every L slots: this hides the latency of the floating adder.

References
----------
.. [1] A. Monakov, A. Lokhmotov, A. Avetisyan, "Automatically tuning sparse matrix-vector
   multiplication for GPU architectures", HiPEAC 2010, doi:10.1007/978-3-642-11515-8_10.
.. [2] F. Favaro et al., Micromachines 14(11):2030, 2023, section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from ..errors import FormatError
from .base import (
    PADDING_BITS,
    WORD_LANES,
    FloatArray,
    IntArray,
    StripFormat,
    WordArray,
    canonical_csr,
    count_entries,
    freeze,
    padded_vector,
    products,
    sums_by_group,
    words_for,
)

SLICE_SIZES = (4, 8, 16, 32)
LAST_IN_SLICE = np.uint32(1 << 31)
"""Flag in the column index of the slots of a slice's last slot-column."""
_MAX_COLS = 1 << 31
_CHUNK_ENTRIES = 1 << 20


class SlicedEll(StripFormat):
    """A matrix in sliced ELL; made by `from_csr`.

    Attributes
    ----------
    values : ndarray, shape (num_stored,), float32
        Slots, slot-column by slot-column; padding is -0.0.
    col_indices : ndarray, shape (num_stored,), int32
        Column of each slot; padding names column 0.
    slice_widths : ndarray, shape (ceil(m / slice_size),), int64
        Entries of the longest row of each slice.
    shape : tuple of int
    nnz : int
        True entries; explicit zeros are entries.
    slice_size : int
        Rows of a slice, L.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> f = SlicedEll.from_csr(csr_array([[1, 0, 2], [0, 3, 0]], dtype="float32"), slice_size=4)
    >>> f.nnz, f.num_stored, f.slice_widths.tolist()
    (3, 8, [2])
    >>> f.spmv([1, 1, 1]).tolist()
    [3.0, 3.0]
    """

    kernel: ClassVar[str] = "scalar"

    def __init__(
        self,
        *,
        values: FloatArray,
        col_indices: npt.NDArray[np.int32],
        slice_widths: npt.NDArray[np.int64],
        shape: tuple[int, int],
        nnz: int,
        slice_size: int,
    ) -> None:
        freeze(values, col_indices, slice_widths)
        self.values = values
        self.col_indices = col_indices
        self.slice_widths = slice_widths
        self.shape = shape
        self.nnz = nnz
        self.slice_size = slice_size

    @classmethod
    def from_csr(cls, A: Any, *, slice_size: int = 16) -> SlicedEll:
        """Convert a CSR matrix.

        Parameters
        ----------
        A : csr_array, shape (m, n), float32
        slice_size : int
            Rows of a slice: 4, 8, 16 or 32.

        Returns
        -------
        SlicedEll

        Raises
        ------
        FormatError
            If `slice_size` is another number, or a column index needs more than 31 bits.
        """
        check_slice_size(slice_size)
        csr = canonical_csr(A, "SlicedEll")
        m, n = csr.shape
        if n > _MAX_COLS:
            raise FormatError(f"the matrix has {n} columns; a column index has 31 bits.")
        counts = np.diff(csr.indptr).astype(np.int64)
        widths = slice_widths(counts, slice_size)
        values, cols = _scatter(csr, counts, widths, slice_size)
        return cls(
            values=values,
            col_indices=cols,
            slice_widths=widths,
            shape=(m, n),
            nnz=int(csr.indptr[-1]),
            slice_size=slice_size,
        )

    @classmethod
    def convert(cls, A: Any, parameters: Mapping[str, int]) -> SlicedEll:
        """Convert a CSR matrix; `parameters` is `{"slice": slice_size}`."""
        return cls.from_csr(A, slice_size=parameters["slice"])

    @property
    def parameters(self) -> dict[str, int]:
        """`{"slice": slice_size}`."""
        return {"slice": self.slice_size}

    @property
    def num_slices(self) -> int:
        """Slices, ceil(m / slice_size)."""
        return len(self.slice_widths)

    @property
    def num_stored(self) -> int:
        """Slots stored: L times the sum of the slices' widths."""
        return self.slice_size * int(self.slice_widths.sum())

    @property
    def num_slots(self) -> int:
        """Slots in the stream, where an empty slice has one slot-column of padding."""
        return self.slice_size * int(np.maximum(self.slice_widths, 1).sum())

    @property
    def num_words(self) -> int:
        """Words of the stream: 16 values and their 16 column indices take turns."""
        return 2 * words_for(self.num_slots)

    @property
    def num_y(self) -> int:
        """Rows of all slices, the last one whole."""
        return self.num_slices * self.slice_size

    @property
    def matrix_bytes(self) -> int:
        """8 bytes a slot: a value and its column."""
        return 8 * self.num_stored

    def to_csr(self) -> csr_array:
        """Give the matrix back exactly, explicit zeros included."""
        slot = np.flatnonzero(self.values.view(np.uint32) != PADDING_BITS)
        slot_column, lane = np.divmod(slot, self.slice_size)
        slice_of = np.repeat(np.arange(self.num_slices), self.slice_widths)
        rows = slice_of[slot_column] * self.slice_size + lane
        cols = self.col_indices[slot]
        return coo_array((self.values[slot], (rows, cols)), shape=self.shape).tocsr()

    def spmv(self, x: npt.ArrayLike) -> FloatArray:
        """Multiply with NumPy alone.

        Parameters
        ----------
        x : array_like, shape (n,), float32

        Returns
        -------
        ndarray, shape (m,), float32
        """
        operand = padded_vector(x, self.shape[1])
        if not self.num_stored:
            return np.zeros(self.shape[0], np.float32)
        terms = products(self.values, operand[self.col_indices]).reshape(-1, self.slice_size)
        return sums_by_group(terms, self.slice_widths).ravel()[: self.shape[0]]

    @property
    def strip_height(self) -> int:
        """A strip is a slice."""
        return self.slice_size

    def strip_bytes(self) -> IntArray:
        """Return the bytes of every slice, 8 a slot; an empty one has a slot-column."""
        return 8 * self.slice_size * np.maximum(self.slice_widths, 1)

    def take_strips(self, start: int, end: int) -> SlicedEll:
        """Return slices `start` to `end` as a matrix of their rows."""
        first_slot = self.slice_size * np.concatenate(([0], np.cumsum(self.slice_widths)))
        slots = slice(int(first_slot[start]), int(first_slot[end]))
        rows = min(end * self.slice_size, self.shape[0]) - start * self.slice_size
        return SlicedEll(
            values=self.values[slots],
            col_indices=self.col_indices[slots],
            slice_widths=self.slice_widths[start:end],
            shape=(max(rows, 0), self.shape[1]),
            nnz=count_entries(self.values[slots]),
            slice_size=self.slice_size,
        )

    def scalars(self) -> dict[str, int]:
        """Return the kernel's scalar arguments by name."""
        return {
            "num_words": self.num_words,
            "num_slots": self.num_slots,
            "num_slices": self.num_slices,
            "num_x_words": words_for(self.shape[1]),
        }

    def _pack(self) -> WordArray:
        values, cols = self._stream_slots()
        words = np.empty((self.num_words // 2, 2, WORD_LANES), np.uint32)
        whole = len(values) // WORD_LANES
        words[:whole, 0] = values[: whole * WORD_LANES].reshape(-1, WORD_LANES)
        words[:whole, 1] = cols[: whole * WORD_LANES].reshape(-1, WORD_LANES)
        rest = len(values) - whole * WORD_LANES
        if rest:
            words[whole, 0, :rest] = values[-rest:]
            words[whole, 1, :rest] = cols[-rest:]
            words[whole, :, rest:] = ((PADDING_BITS,), (0,))
        last = self._last_slots()
        words[last // WORD_LANES, 1, last % WORD_LANES] |= LAST_IN_SLICE
        return words.reshape(-1, WORD_LANES)

    def _stream_slots(self) -> tuple[WordArray, WordArray]:
        """Return values and columns as bits, empty slices given one slot-column."""
        values, cols = self.values.view(np.uint32), self.col_indices.view(np.uint32)
        if self.slice_widths.all():
            return values, cols
        L = self.slice_size
        first_column = np.cumsum(np.maximum(self.slice_widths, 1)) - np.maximum(
            self.slice_widths, 1
        )
        shift = first_column - (np.cumsum(self.slice_widths) - self.slice_widths)
        column = np.arange(len(values) // L) + np.repeat(shift, self.slice_widths)
        wide_values = np.full((self.num_slots // L, L), PADDING_BITS, np.uint32)
        wide_cols = np.zeros_like(wide_values)
        wide_values[column] = values.reshape(-1, L)
        wide_cols[column] = cols.reshape(-1, L)
        return wide_values.ravel(), wide_cols.ravel()

    def _last_slots(self) -> npt.NDArray[np.int64]:
        """Return the place of every slot of a last slot-column in the stream."""
        ends = np.cumsum(np.maximum(self.slice_widths, 1)) * self.slice_size
        return (ends[:, None] - self.slice_size + np.arange(self.slice_size)).ravel()


def check_slice_size(slice_size: int) -> None:
    """Raise `FormatError` unless the slice height is one that the kernel can have."""
    if slice_size not in SLICE_SIZES:
        raise FormatError(f"slice is {slice_size}; it must be 4, 8, 16 or 32.")


def slice_widths(row_counts: npt.NDArray[np.int64], slice_size: int) -> npt.NDArray[np.int64]:
    """Return the longest row of every slice.

    >>> slice_widths(np.array([1, 3, 2, 0, 7]), 4).tolist()
    [3, 7]
    """
    if not len(row_counts):
        return np.zeros(0, np.int64)
    return np.maximum.reduceat(row_counts, np.arange(0, len(row_counts), slice_size))


def _scatter(
    csr: csr_array,
    counts: npt.NDArray[np.int64],
    widths: npt.NDArray[np.int64],
    L: int,
) -> tuple[FloatArray, npt.NDArray[np.int32]]:
    """Place every entry in its slot; chunks of rows keep the temporary arrays small."""
    m = csr.shape[0]
    num_stored = L * int(widths.sum())
    values = np.full(num_stored, PADDING_BITS, np.uint32).view(np.float32)
    cols = np.zeros(num_stored, np.int32)
    first_slot = L * (np.cumsum(widths) - widths)
    row = np.arange(m)
    # Entry p of the matrix, in row r, goes to slot first_slot + lane + L * (p - indptr[r]).
    base = first_slot[row // L] + row % L - L * csr.indptr[:-1].astype(np.int64)
    chunk_ends = np.searchsorted(csr.indptr, np.arange(_CHUNK_ENTRIES, csr.nnz, _CHUNK_ENTRIES))
    bounds = np.unique(np.concatenate(([0], chunk_ends, [m])))
    for start, end in pairwise(bounds):
        a, b = int(csr.indptr[start]), int(csr.indptr[end])
        slot = np.repeat(base[start:end], counts[start:end])
        slot += np.arange(L * a, L * b, L)
        values[slot] = csr.data[a:b]
        cols[slot] = csr.indices[a:b]
    return values, cols
