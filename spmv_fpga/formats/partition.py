"""A matrix cut for several compute units, and for a card that it does not fit at once.

Rows are cut into runs with nearly the same number of memory accesses, one for each unit.
Where x is longer than its room on the chip, columns are cut into panels; where a run is
larger than a memory bank, rows are cut further. What no unit can take at the same time
makes further *rounds*, which follow one another.

A format that sorts its rows (`EntryFormat`) is cut before it is converted, at entries: a row
may then end in the next unit, and y is the sum of what both have of it.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..errors import FormatError
from .base import (
    STREAM_STEP_BYTES,
    EntryFormat,
    FloatArray,
    IntArray,
    SparseFormat,
    StripFormat,
    WordArray,
    canonical_csr,
    density,
)

_TRIES = 3
_EVEN_ENOUGH = 1.01
_COST_STEPS = 16


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
        cls,
        fmt: SparseFormat,
        compute_units: int = 1,
        bank_bytes: int | None = None,
        y_room: int | None = None,
    ) -> Partition:
        """Cut a format; the arrays of a `StripFormat` are shared.

        Parameters
        ----------
        fmt : SparseFormat
        compute_units : int
        bank_bytes : int, optional
            Room for a part's stream; rows are cut further where one needs more.
        y_room : int, optional
            Elements of y that fit on the chip, for a kernel that keeps y there.

        Raises
        ------
        FormatError
            If one strip alone is larger than a bank.
        """
        if isinstance(fmt, StripFormat):
            parts = _cut_rows(fmt, compute_units, bank_bytes, (0, fmt.shape[1]), 0)
        elif compute_units == 1 and _fits(fmt, bank_bytes, y_room):
            m, n = fmt.shape
            parts = [Part(fmt, 0, m, 0, n, unit=0, round=0)] if m else []
        else:
            return partition(
                fmt.to_csr(),
                type(fmt),
                fmt.parameters,
                compute_units=compute_units,
                bank_bytes=bank_bytes,
                y_room=y_room,
            )
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
            product = part.fmt.spmv(vector[part.col_start : part.col_end])
            with np.errstate(invalid="ignore", over="ignore"):
                y[part.row_start : part.row_end] += product
        return y


def _fits(fmt: SparseFormat, bank_bytes: int | None, y_room: int | None) -> bool:
    return (bank_bytes is None or fmt.bytes <= bank_bytes) and (
        y_room is None or fmt.y_on_chip <= y_room
    )


def partition(
    A: Any,
    cls: type[SparseFormat],
    parameters: Mapping[str, int],
    *,
    compute_units: int = 1,
    x_room: int | None = None,
    y_room: int | None = None,
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
    y_room : int, optional
        Elements of y that fit on the chip, for a kernel that keeps y there.
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
    if issubclass(cls, EntryFormat):
        csr = canonical_csr(A, cls.__name__)
        parts = _cut_entries(csr, cls, parameters, compute_units, y_room, bank_bytes)
    elif x_room is None or n <= x_room:
        return Partition.of(cls.convert(A, parameters), compute_units, bank_bytes)
    else:
        parts = _cut_panels(csr_array(A), cls, parameters, compute_units, x_room, bank_bytes)
    return Partition(
        tuple(parts),
        kernel=cls.kernel,
        parameters=dict(parameters),
        shape=(m, n),
        compute_units=compute_units,
    )


def packed(parts: Sequence[Part]) -> Iterator[tuple[Part, dict[str, WordArray]]]:
    """Make the buffers of parts on all cores, a few parts ahead of who takes them.

    Parameters
    ----------
    parts : sequence of Part

    Yields
    ------
    Part
    dict of str to ndarray
        Its ``fmt.buffers()``. No more parts than cores are held besides.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from spmv_fpga import SlicedEll
    >>> A = csr_array(np.eye(64, dtype=np.float32))
    >>> cut = partition(A, SlicedEll, {"slice": 16}, compute_units=4)
    >>> [part.unit for part, buffers in packed(cut.parts)]
    [0, 1, 2, 3]
    """
    cores = len(os.sched_getaffinity(0))
    waiting: deque[tuple[Part, Future[dict[str, WordArray]]]] = deque()
    with ThreadPoolExecutor(cores) as pool:
        for part in parts:
            waiting.append((part, pool.submit(part.fmt.buffers)))
            if len(waiting) > cores:
                oldest, buffers = waiting.popleft()
                yield oldest, buffers.result()
        while waiting:
            oldest, buffers = waiting.popleft()
            yield oldest, buffers.result()


def _cut_panels(
    csr: csr_array,
    cls: type[SparseFormat],
    parameters: Mapping[str, int],
    compute_units: int,
    x_room: int,
    bank_bytes: int | None,
) -> list[Part]:
    """Cut columns into panels, whose rounds follow one another."""
    parts: list[Part] = []
    n = csr.shape[1]
    for start in range(0, n, x_room):
        end = min(start + x_room, n)
        fmt = cls.convert(csr[:, start:end], parameters)
        assert isinstance(fmt, StripFormat)
        first_round = 1 + parts[-1].round if parts else 0
        parts += _cut_rows(fmt, compute_units, bank_bytes, (start, end), first_round)
    return parts


def _cut_entries(
    csr: csr_array,
    cls: type[EntryFormat],
    parameters: Mapping[str, int],
    compute_units: int,
    y_room: int | None,
    bank_bytes: int | None,
) -> list[Part]:
    """Cut entries into runs for the units, and into more rounds where a run is too large."""
    max_rows = cls.max_rows(y_room)
    num_rounds = 1
    while True:
        num_rounds, bounds, formats = _even_runs(
            csr, cls, parameters, compute_units, num_rounds, max_rows
        )
        largest = max((fmt.bytes for fmt in formats), default=0)
        if bank_bytes is None or largest <= bank_bytes:
            break
        if num_rounds * compute_units >= csr.nnz:
            raise FormatError(
                f"an entry of the matrix needs {largest} bytes, and a memory bank has room for "
                f"{max(0, bank_bytes)}; take another kernel."
            )
        num_rounds = min(
            max(num_rounds + 1, num_rounds * largest // max(bank_bytes, 1)),
            -(-csr.nnz // compute_units),
        )
    parts = []
    for number, (fmt, (start, end)) in enumerate(zip(formats, bounds, strict=True)):
        first, last = _rows_of(csr, start, end)
        round_number, unit = divmod(number, compute_units)
        parts.append(Part(fmt, first, last, 0, csr.shape[1], unit=unit, round=round_number))
    return parts


def _even_runs(
    csr: csr_array,
    cls: type[EntryFormat],
    parameters: Mapping[str, int],
    compute_units: int,
    num_rounds: int,
    max_rows: int,
) -> tuple[int, list[tuple[int, int]], list[SparseFormat]]:
    """Cut entries into runs with streams of the same size; the first cut shows what rows cost.

    Returns
    -------
    int
        Rounds, more than asked for where rows need them.
    list of (int, int)
        First and last entry of each run.
    list of SparseFormat
    """

    def converted(run: tuple[int, int]) -> SparseFormat:
        return cls.convert(_entries(csr, *run), parameters)

    costs = cls.row_bytes(csr, parameters)
    num_rounds, bounds = _entry_bounds(csr, costs, compute_units, num_rounds, max_rows)
    best: tuple[int, list[tuple[int, int]], list[SparseFormat]] = 0, [], []
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for _ in range(_TRIES if bounds else 0):
            formats = list(pool.map(converted, bounds))
            sizes = np.array([fmt.bytes for fmt in formats], np.int64)
            if not best[0] or sizes.max() < best[0]:
                best = int(sizes.max()), bounds, formats
            if best[0] <= _EVEN_ENOUGH * sizes.mean():
                break
            costs = _corrected(csr, costs, bounds, sizes)
            rounds, bounds = _entry_bounds(csr, costs, compute_units, num_rounds, max_rows)
            if rounds > num_rounds:
                break
    return num_rounds, best[1], best[2]


def _corrected(
    csr: csr_array, costs: IntArray, bounds: list[tuple[int, int]], sizes: IntArray
) -> IntArray:
    """Scale the costs of rows by what the runs that they are in really took."""
    factor = np.ones(len(costs))
    for (start, end), size in zip(bounds, sizes, strict=True):
        first, last = _rows_of(csr, start, end)
        factor[first:last] = size / max(int(costs[first:last].sum()), 1)
    # Fine steps: the costs are whole numbers.
    scaled: IntArray = np.rint(costs * factor * _COST_STEPS).astype(np.int64)
    return scaled


def _row_of(csr: csr_array, entry: int) -> int:
    # With a number of another type NumPy would copy all of indptr.
    number = csr.indptr.dtype.type(entry)
    return int(np.searchsorted(csr.indptr, number, side="right")) - 1


def _rows_of(csr: csr_array, start: int, end: int) -> tuple[int, int]:
    """Return the rows, first and behind the last, that have the entries from start to end."""
    return _row_of(csr, start), _row_of(csr, end - 1) + 1


def _entries(csr: csr_array, start: int, end: int) -> csr_array:
    """Return a run of entries as a matrix of the rows that have them; data are shared."""
    first, last = _rows_of(csr, start, end)
    indptr = np.clip(csr.indptr[first : last + 1], start, end) - start
    part = csr_array(
        (csr.data[start:end], csr.indices[start:end], indptr),
        shape=(last - first, csr.shape[1]),
    )
    part.has_sorted_indices = part.has_canonical_format = True
    return part


def _entry_bounds(
    csr: csr_array, costs: IntArray, compute_units: int, num_rounds: int, max_rows: int
) -> tuple[int, list[tuple[int, int]]]:
    """Cut entries into runs of the same cost, none with more rows than there is room for.

    Returns
    -------
    int
        Rounds, more than asked for where rows need them.
    list of (int, int)
        First and last entry of each run.
    """
    total = np.concatenate(([0], np.cumsum(costs)))
    mean = int(total[-1])
    least = len(_walk(csr, total, mean, max_rows))
    num_rounds = max(num_rounds, -(-least // compute_units))
    low, high = mean // max(num_rounds * compute_units, 1), mean
    step = max(high // max(int(csr.nnz), 1), 1)  # an entry: what a cut may be off
    while low < high:
        runs = _walk(csr, total, min(low + step, high), max_rows)
        if len(runs) <= num_rounds * compute_units:
            return num_rounds, runs
        low, step = low + step, 2 * step
    return num_rounds, _walk(csr, total, high, max_rows)


def _walk(csr: csr_array, total: IntArray, limit: int, max_rows: int) -> list[tuple[int, int]]:
    """Take runs one after the other, each as long as a limit of cost and of rows allows."""
    found = []
    start, spent = 0, 0.0
    nnz = int(csr.indptr[-1])
    while start < nnz:
        first = _row_of(csr, start)
        end = int(csr.indptr[min(first + max_rows, csr.shape[0])])
        if total[-1] - spent > limit:
            end = min(end, _entry_at(csr, total, spent + limit))
        end = max(end, start + 1)
        found.append((start, end))
        start, spent = end, _cost_before(csr, total, end)
    return found


def _entry_at(csr: csr_array, total: IntArray, cost: float) -> int:
    """Return the entry before which that much is spent, the entries of a row alike."""
    row = int(np.searchsorted(total, cost, side="right")) - 1
    share = (cost - total[row]) / (total[row + 1] - total[row])
    return int(csr.indptr[row] + share * (csr.indptr[row + 1] - csr.indptr[row]))


def _cost_before(csr: csr_array, total: IntArray, entry: int) -> float:
    """Return what is spent before an entry; undoes `_entry_at`."""
    if entry >= csr.indptr[-1]:
        return float(total[-1])
    row = _row_of(csr, entry)
    first, last = int(csr.indptr[row]), int(csr.indptr[row + 1])
    return float(total[row] + (entry - first) / (last - first) * (total[row + 1] - total[row]))


def _cut_rows(
    fmt: StripFormat,
    compute_units: int,
    bank_bytes: int | None,
    columns: tuple[int, int],
    first_round: int,
) -> list[Part]:
    """Cut strips into runs for the units, and into more rounds where a run is too large."""
    sizes = fmt.strip_bytes()
    room = int(sizes.sum())
    if bank_bytes is not None:
        room = max(0, bank_bytes // STREAM_STEP_BYTES * STREAM_STEP_BYTES)
    if (largest := int(sizes.max(initial=0))) > room:
        raise FormatError(
            f"{fmt.strip_height} rows of the matrix need {largest} bytes, and a memory bank "
            f"has room for {room}; take another kernel or a smaller block."
        )
    num_rounds = 1
    while True:
        bounds = balanced_bounds(sizes, compute_units * num_rounds)
        largest = max(int(sizes[a:b].sum()) for a, b in bounds)
        if largest <= room:
            break
        num_rounds = max(num_rounds + 1, -(-num_rounds * largest // room))
    return [
        Part(
            fmt if b - a == len(sizes) else fmt.take_strips(a, b),
            a * fmt.strip_height,
            min(b * fmt.strip_height, fmt.shape[0]),
            *columns,
            unit=number % compute_units,
            round=first_round + number // compute_units,
        )
        for number, (a, b) in enumerate(bounds)
        if b > a
    ]


def balanced_bounds(costs: IntArray, num_shares: int) -> list[tuple[int, int]]:
    """Cut a sequence into contiguous runs, the largest of which costs as little as can be.

    Parameters
    ----------
    costs : ndarray, shape (k,), int
        None below 0.
    num_shares : int

    Returns
    -------
    list of (int, int)
        Start and end of each run; runs may be empty. Each cut is as near to even shares as
        the largest share allows.

    Examples
    --------
    >>> balanced_bounds(np.array([1, 1, 1, 1, 4, 1]), 3)
    [(0, 4), (4, 5), (5, 6)]
    """
    total = np.concatenate(([0], np.cumsum(costs, dtype=np.int64)))
    limit = _smallest_limit(total, num_shares)
    # Where each run must end at the earliest, so that those behind it can take the rest.
    earliest = [len(costs)]
    for _ in range(num_shares - 1):
        earliest.append(int(np.searchsorted(total, total[earliest[-1]] - limit)))
    cuts = [0]
    for number, least in enumerate(reversed(earliest), 1):
        wanted = _nearest(total, total[-1] * number / num_shares)
        cuts.append(min(max(wanted, least), _reach(total, cuts[-1], limit)))
    return list(pairwise(cuts))


def _smallest_limit(total: IntArray, num_shares: int) -> int:
    """Return the smallest cost that suffices for the largest run, by bisection."""
    largest = int(np.diff(total).max(initial=0))
    mean = -(-int(total[-1]) // num_shares)
    low, high = max(largest, mean), mean + largest
    while low < high:
        middle = (low + high) // 2
        end = 0
        for _ in range(num_shares):
            end = _reach(total, end, middle)
        low, high = (low, middle) if end == len(total) - 1 else (middle + 1, high)
    return low


def _reach(total: IntArray, start: int, limit: int) -> int:
    """Return the farthest end of a run that costs no more than the limit."""
    return int(np.searchsorted(total, total[start] + limit, side="right")) - 1


def _nearest(total: IntArray, target: float) -> int:
    """Return the cut whose running total is nearest to the target."""
    after = int(np.searchsorted(total, target))
    before = max(after - 1, 0)
    return before if target - total[before] < total[after] - target else after
