"""What every storage format offers, and the padding that all formats share.

A format turns a matrix into arrays that never change (`values` and its indices) and
makes from them, in `buffers`, exactly the words that a kernel's memory port reads.

Padding is the bit pattern of -0.0. No entry has it, because a stored -0.0 becomes +0.0;
so a kernel can tell padding from an explicit zero and give +0 for it, whatever x holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, issparse

from ..errors import FormatError

WORD_LANES = 16
"""32-bit lanes of a memory word: a port is 512 bits wide."""
WORD_BYTES = 4 * WORD_LANES
STREAM_STEP_BYTES = 2 * WORD_BYTES
"""A stream is rounded up to this at the most: values and indices may each fill a word."""
PADDING_BITS = np.uint32(0x8000_0000)

FloatArray = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint32]


class SparseFormat(ABC):
    """A sparse matrix as a kernel reads it; immutable, compared by identity."""

    kernel: ClassVar[str]
    shape: tuple[int, int]
    nnz: int

    @classmethod
    @abstractmethod
    def convert(cls, A: Any, parameters: Mapping[str, int]) -> SparseFormat:
        """Convert a CSR matrix, with parameters as `parameters` names them."""

    @property
    @abstractmethod
    def parameters(self) -> dict[str, int]:
        """What a kernel must have been built with to read this object."""

    @property
    @abstractmethod
    def num_stored(self) -> int:
        """Slots stored, padding included."""

    @property
    @abstractmethod
    def matrix_bytes(self) -> int:
        """Bytes of values and their indices."""

    @property
    @abstractmethod
    def num_words(self) -> int:
        """Words of 64 bytes in the matrix stream."""

    @property
    @abstractmethod
    def num_y(self) -> int:
        """Elements of y that the kernel writes; the first `shape[0]` are the product."""

    @property
    def y_on_chip(self) -> int:
        """Elements of y that the kernel must have room for on the chip; 0 for none."""
        return 0

    @abstractmethod
    def to_csr(self) -> csr_array:
        """Give the matrix back exactly, explicit zeros included."""

    @abstractmethod
    def spmv(self, x: npt.ArrayLike) -> FloatArray:
        """Multiply with NumPy alone: what the kernel must compute."""

    @abstractmethod
    def scalars(self) -> dict[str, int]:
        """Return the kernel's 32-bit arguments, all but `iterations`, by name."""

    @abstractmethod
    def _pack(self) -> WordArray:
        """Make the matrix stream, shape (num_words, 16)."""

    @property
    def density(self) -> float:
        """`nnz / num_stored`; 1 where nothing is stored."""
        return density(self.nnz, self.num_stored)

    @property
    def bytes(self) -> int:
        """Bytes of the whole matrix stream, descriptors and flags included."""
        return self.num_words * WORD_BYTES

    def buffers(self) -> dict[str, WordArray]:
        """Return the content of the kernel's matrix port.

        Returns
        -------
        dict
            `matrix`: (max(num_words, 1), 16) uint32, read-only.
        """
        words = self._pack() if self.num_words else np.zeros((1, WORD_LANES), np.uint32)
        words.flags.writeable = False
        return {"matrix": words}

    def port_bytes(self) -> dict[str, int]:
        """Return the size of each buffer on the card, in bytes; none is empty."""
        return {
            "matrix": max(self.bytes, WORD_BYTES),
            "x": max(words_for(self.shape[1]), 1) * WORD_BYTES,
            "y": max(words_for(self.num_y), 1) * WORD_BYTES,
        }

    def __repr__(self) -> str:
        m, n = self.shape
        parameters = ", ".join(f"{k}={v}" for k, v in self.parameters.items())
        return (
            f"{type(self).__name__}({m} x {n}, {parameters}, nnz={self.nnz}, "
            f"num_stored={self.num_stored})"
        )


class StripFormat(SparseFormat):
    """A format that is cut after the conversion, between strips of rows."""

    @property
    @abstractmethod
    def strip_height(self) -> int:
        """Rows of a strip: what the stream cannot be cut within."""

    @abstractmethod
    def strip_bytes(self) -> IntArray:
        """Return the bytes of every strip in the stream, shape (strips,), int64.

        A stream of several strips has their sum, rounded up as `STREAM_STEP_BYTES` says.
        """

    @abstractmethod
    def take_strips(self, start: int, end: int) -> StripFormat:
        """Return the rows of strips `start` to `end` as a format; its arrays are views."""


class EntryFormat(SparseFormat):
    """A format that sorts rows: the entries are cut first, and each run of them converted."""

    @classmethod
    @abstractmethod
    def max_rows(cls, y_room: int | None) -> int:
        """Return how many rows a part may have, where y has so much room on the chip."""

    @classmethod
    @abstractmethod
    def row_bytes(cls, csr: csr_array, parameters: Mapping[str, int]) -> IntArray:
        """Estimate the bytes of every row in the stream, shape (m,), int64."""


def density(nnz: int, num_stored: int) -> float:
    """Return nnz over slots; 1 where nothing is stored."""
    return nnz / num_stored if num_stored else 1.0


def count_entries(values: FloatArray) -> int:
    """Return how many slots hold an entry.

    >>> count_entries(np.array([1.0, -0.0, 0.0], np.float32))
    2
    """
    return int(np.count_nonzero(values.view(np.uint32) != PADDING_BITS))


def words_for(num_elements: int) -> int:
    """Return how many 64-byte words hold that many 32-bit elements."""
    return -(-num_elements // WORD_LANES)


def canonical_csr(A: Any, what: str) -> csr_array:
    """Return A as a float32 CSR array, sorted, duplicates summed, without -0.0.

    Raises
    ------
    FormatError
        If A is no two-dimensional sparse matrix of real numbers.
    """
    if not issparse(A) or A.ndim != 2:
        raise FormatError(
            f"{what} is made from a two-dimensional SciPy sparse array, not from "
            f"{type(A).__name__}."
        )
    if np.iscomplexobj(A):
        raise FormatError(f"{what} holds real float32 values; complex ones are not supported.")
    if A.dtype not in (np.float32, np.float64):
        A = A.astype(np.float64)  # a sum of duplicates could leave the range of a small type
    csr = csr_array(A) if A.format != "csr" else A
    if not csr.has_canonical_format:
        csr = csr.copy()
        csr.sum_duplicates()
    data = csr.data.astype(np.float32, copy=False)
    if (data.view(np.uint32) == PADDING_BITS).any():
        data = data + np.float32(0)  # -0.0 + 0.0 is +0.0: the padding's pattern is free then
    out = csr_array((data, csr.indices, csr.indptr), shape=csr.shape)
    out.has_sorted_indices = out.has_canonical_format = True
    return out


def padded_vector(x: npt.ArrayLike, num_cols: int) -> FloatArray:
    """Return x as float32, padded with zeros to whole words.

    Raises
    ------
    FormatError
        If x is not a real vector of `num_cols` elements.
    """
    vector = np.asarray(x)
    if vector.ndim != 1 or vector.shape[0] != num_cols:
        raise FormatError(
            f"x has shape {vector.shape}; the matrix has {num_cols} columns, so x must have "
            f"shape ({num_cols},)."
        )
    if not np.can_cast(vector.dtype, np.float64, "same_kind"):
        raise FormatError(f"x has dtype {vector.dtype}; it must hold real numbers.")
    padded = np.zeros(words_for(num_cols) * WORD_LANES, np.float32)
    with np.errstate(over="ignore"):
        padded[:num_cols] = vector
    return padded


def products(values: FloatArray, x: FloatArray) -> FloatArray:
    """Multiply as the kernels do: padding gives +0, whatever x holds."""
    with np.errstate(invalid="ignore", over="ignore", under="ignore"):
        return np.where(values.view(np.uint32) == PADDING_BITS, np.float32(0), values * x)


def sums_by_group(terms: FloatArray, counts: npt.NDArray[np.integer[Any]]) -> FloatArray:
    """Sum consecutive runs of `terms` along axis 0; a run of length 0 gives zeros.

    Parameters
    ----------
    terms : ndarray, shape (sum(counts), k), float32
    counts : ndarray, shape (groups,), int

    Returns
    -------
    ndarray, shape (groups, k), float32
    """
    sums = np.zeros((len(counts), terms.shape[1]), np.float32)
    full = np.flatnonzero(counts)
    if len(full):
        starts = (np.cumsum(counts) - counts)[full]
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            sums[full] = np.add.reduceat(terms, starts, axis=0)
    return sums


def freeze(*arrays: npt.NDArray[Any]) -> None:
    """Mark arrays read-only."""
    for array in arrays:
        array.flags.writeable = False
