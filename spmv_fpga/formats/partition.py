"""A matrix cut for several compute units, and for a card that it does not fit at once.

Rows are cut into runs with nearly the same number of memory accesses, one for each unit.
Where x is longer than its room on the chip, columns are cut into panels; where a run is
larger than a memory bank, rows are cut further. What no unit can take at the same time
makes further *rounds*, which follow one another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..errors import FormatError
from .base import WORD_BYTES, WORD_LANES, FloatArray, IntArray, SparseFormat, density


@dataclass(frozen=True, eq=False)
class Part:
    """Rows and columns of a matrix for one unit in one round.

    Attributes
    ----------
    fmt : SparseFormat
        The part as the kernel reads it.
    row_start, row_end : int
        Its rows in the whole matrix.
    col_start, col_end : int
        Its columns.
    unit : int
        Compute unit, counted from 0.
    round : int
    """

    fmt: SparseFormat
    row_start: int
    row_end: int
    col_start: int
    col_end: int
    unit: int
    round: int


class Partition:
    """A matrix in parts; made by `partition` or `Partition.of`.

    Attributes
    ----------
    kernel : str
    parameters : dict
    shape : tuple of int
    nnz : int
    compute_units : int
    parts : tuple of Part
        Round by round, unit by unit; a unit without rows has no part.
    """

    def __init__(
        self,
        parts: tuple[Part, ...],
        *,
        kernel: str,
        parameters: dict[str, int],
        shape: tuple[int, int],
        compute_units: int,
    ) -> None:
        self.parts = parts
        self.kernel = kernel
        self.parameters = parameters
        self.shape = shape
        self.nnz = sum(part.fmt.nnz for part in parts)
        self.compute_units = compute_units

    @classmethod
    def of(
        cls, fmt: SparseFormat, compute_units: int = 1, bank_bytes: int | None = None
    ) -> Partition:
        """Cut the rows of a format; its arrays are shared.

        Parameters
        ----------
        fmt : SparseFormat
        compute_units : int
        bank_bytes : int, optional
            Room for a part's stream; rows are cut further where one needs more.

        Raises
        ------
        FormatError
            If one strip alone is larger than a bank.
        """
        parts = _cut_rows(fmt, compute_units, bank_bytes, (0, fmt.shape[1]), 0)
        return cls(
            tuple(parts),
            kernel=fmt.kernel,
            parameters=fmt.parameters,
            shape=fmt.shape,
            compute_units=compute_units,
        )

    @property
    def num_rounds(self) -> int:
        """Rounds of launches for a product; at least 1."""
        return 1 + max((part.round for part in self.parts), default=0)

    def rounds(self) -> list[list[Part]]:
        """Return the parts of each round."""
        rounds: list[list[Part]] = [[] for _ in range(self.num_rounds)]
        for part in self.parts:
            rounds[part.round].append(part)
        return rounds

    @property
    def num_stored(self) -> int:
        """Slots stored, padding included."""
        return sum(part.fmt.num_stored for part in self.parts)

    @property
    def density(self) -> float:
        """`nnz / num_stored`; 1 where nothing is stored."""
        return density(self.nnz, self.num_stored)

    @property
    def matrix_bytes(self) -> int:
        """Bytes of values and indices."""
        return sum(part.fmt.matrix_bytes for part in self.parts)

    @property
    def bytes(self) -> int:
        """Bytes of all streams."""
        return sum(part.fmt.bytes for part in self.parts)

    @property
    def imbalance(self) -> float:
        """Largest share of words in the first round over the mean share, less 1."""
        words = [part.fmt.num_words for part in self.rounds()[0]]
        mean = sum(words) / self.compute_units
        return max(words, default=0) / mean - 1 if mean else 0.0

    def spmv(self, x: npt.ArrayLike) -> FloatArray:
        """Multiply with NumPy alone, part by part, as the card does.

        Parameters
        ----------
        x : array_like, shape (n,), float32

        Returns
        -------
        ndarray, shape (m,), float32
        """
        vector = np.asarray(x)
        y = np.zeros(self.shape[0], np.float32)
        for part in self.parts:
            y[part.row_start : part.row_end] += part.fmt.spmv(
                vector[part.col_start : part.col_end]
            )
        return y


def partition(
    A: Any,
    cls: type[SparseFormat],
    parameters: Mapping[str, int],
    *,
    compute_units: int = 1,
    x_room: int | None = None,
    bank_bytes: int | None = None,
) -> Partition:
    """Convert a matrix and cut it for a card.

    Parameters
    ----------
    A : csr_array, shape (m, n), float32
    cls : type
        Format to convert to.
    parameters : mapping of str to int
        The format's parameters, as `SparseFormat.convert` takes them.
    compute_units : int
    x_room : int, optional
        Elements of x that fit on the chip; columns are cut into panels of so many.
    bank_bytes : int, optional
        Room for a part's stream.

    Returns
    -------
    Partition

    Raises
    ------
    FormatError
        If the matrix cannot be converted, or one strip alone is larger than a bank.

    Examples
    --------
    >>> from scipy.sparse import eye_array
    >>> from spmv_fpga.formats import SlicedEll
    >>> A = eye_array(64, dtype="float32").tocsr()
    >>> p = partition(A, SlicedEll, {"slice": 16}, compute_units=3, x_room=48)
    >>> [(part.round, part.unit, part.row_start, part.col_start) for part in p.parts]
    [(0, 0, 0, 0), (0, 1, 16, 0), (0, 2, 48, 0), (1, 0, 0, 48), (1, 1, 16, 48), (1, 2, 48, 48)]
    """
    m, n = A.shape
    if x_room is None or n <= x_room:
        return Partition.of(cls.convert(A, parameters), compute_units, bank_bytes)
    csr = csr_array(A)
    parts: list[Part] = []
    for start in range(0, n, x_room):
        end = min(start + x_room, n)
        fmt = cls.convert(csr[:, start:end], parameters)
        first_round = 1 + parts[-1].round if parts else 0
        parts += _cut_rows(fmt, compute_units, bank_bytes, (start, end), first_round)
    return Partition(
        tuple(parts),
        kernel=cls.kernel,
        parameters=dict(parameters),
        shape=(m, n),
        compute_units=compute_units,
    )


def _cut_rows(
    fmt: SparseFormat,
    compute_units: int,
    bank_bytes: int | None,
    columns: tuple[int, int],
    first_round: int,
) -> list[Part]:
    """Cut strips into runs for the units, and into more rounds where a run is too large."""
    words = fmt.strip_words()
    num_rounds = 1
    while True:
        bounds = balanced_bounds(words, compute_units * num_rounds)
        largest = max((_stream_bytes(words[a:b]) for a, b in bounds), default=0)
        if bank_bytes is None or largest <= bank_bytes:
            break
        if compute_units * num_rounds >= len(words):
            raise FormatError(
                f"{fmt.strip_height} rows of the matrix need {largest} bytes, and a memory "
                f"bank has {bank_bytes}; take another kernel or a smaller block."
            )
        num_rounds = max(num_rounds + 1, -(-num_rounds * largest // bank_bytes))
    return [
        Part(
            fmt if b - a == len(words) else fmt.take_strips(a, b),
            a * fmt.strip_height,
            min(b * fmt.strip_height, fmt.shape[0]),
            *columns,
            unit=number % compute_units,
            round=first_round + number // compute_units,
        )
        for number, (a, b) in enumerate(bounds)
        if b > a
    ]


def _stream_bytes(words: IntArray) -> int:
    """Return no less than the bytes of a stream: descriptors add 1 word to 16 tiles at most."""
    num_words = int(words.sum())
    return WORD_BYTES * (num_words + -(-(num_words + len(words)) // WORD_LANES))


def balanced_bounds(costs: IntArray, num_shares: int) -> list[tuple[int, int]]:
    """Cut a sequence into contiguous runs of nearly equal cost.

    Parameters
    ----------
    costs : ndarray, shape (k,), int
    num_shares : int

    Returns
    -------
    list of (int, int)
        Start and end of each run; runs may be empty.

    Examples
    --------
    >>> balanced_bounds(np.array([1, 1, 1, 1, 4, 1]), 3)
    [(0, 3), (3, 5), (5, 6)]
    """
    total = np.concatenate(([0], np.cumsum(costs, dtype=np.int64)))
    targets = total[-1] * np.arange(1, num_shares) / num_shares
    after = np.searchsorted(total, targets)
    before = np.maximum(after - 1, 0)
    nearest = np.where(targets - total[before] < total[after] - targets, before, after)
    cuts = np.concatenate(([0], np.maximum.accumulate(nearest), [len(costs)])).tolist()
    return list(pairwise(cuts))
