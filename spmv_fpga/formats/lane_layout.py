"""Where the entries of a matrix go in SELL-C-sigma, worked out before anything is stored.

A *segment* is what a row has in one column panel. A segment longer than a limit is cut into
*pieces*. A row belongs to one lane (`element_of`); within a lane the pieces of a panel stand
in a sequence, long ones first, and every `depth` of them, in all lanes, make a *chunk*. A
*long row* may use every lane: it has whole words of y of its own, behind the real ones, and
the kernel adds them to its row at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .base import WORD_BYTES, WORD_LANES, IntArray, words_for

LANES = WORD_LANES
NO_ADDRESS = 0xFFFF
"""Address of an empty piece."""
REUSE_DISTANCE = 8
"""Positions after which a lane may touch an element of y again (kReuseDistance)."""
MAX_LONG_ROWS = 128
MAX_MERGED = 128
"""Words of y that long rows take at the most, those left empty included (kMergeRoom)."""
MIN_LONG_ROW = 64
"""A shorter row is not worth the words of y and the cycle of a long one."""
SLOT_BYTES = 6
PIECE_BYTES = 2
_GAP = REUSE_DISTANCE - 1
_GOOD_ENOUGH = 1.01
_WORTH_LEVELLING = 0.01
_HOPELESS = 1.02
_MIN_LIMIT = 8
_CHUNK_ENTRIES = 1 << 18
_MAX_HISTOGRAM = 1 << 22
_TAIL_BITS = 11


@dataclass(frozen=True, eq=False)
class Pieces:
    """Runs of entries of one row in one panel; arrays of the same length.

    Attributes
    ----------
    start : ndarray of int64
        First entry, as a place in the CSR arrays.
    length : ndarray of int64
        Entries, at least 1.
    element : ndarray of int64
        Element of y on the chip, 16 times its address plus its lane.
    panel : ndarray of int64
    window : ndarray of int64
        Window of rows that are sorted together.
    """

    start: IntArray
    length: IntArray
    element: IntArray
    panel: IntArray
    window: IntArray

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, which: npt.NDArray[Any]) -> Pieces:
        return Pieces(*(array[which] for array in self._arrays()))

    def _arrays(self) -> tuple[IntArray, ...]:
        return self.start, self.length, self.element, self.panel, self.window

    @property
    def lane(self) -> IntArray:
        """Lane of each piece in each panel, numbered through all panels."""
        return self.panel * LANES + self.element % LANES

    def followed_by(self, *others: Pieces) -> Pieces:
        """Return these pieces and then the others."""
        everything = zip(*(p._arrays() for p in (self, *others)), strict=True)
        return Pieces(*map(np.concatenate, everything))


@dataclass(frozen=True, eq=False)
class Layout:
    """Every piece in its place.

    Attributes
    ----------
    depth : int
        Pieces that a chunk takes from each lane.
    starts, lengths : ndarray, shape (num_chunks, depth, 16), int64
        First entry and number of entries of each piece; an empty one has no entries.
    addresses : ndarray, shape (num_chunks, depth, 16), uint16
        Its address in its lane's y on the chip; `NO_ADDRESS` for an empty piece.
    widths : ndarray, shape (num_chunks,), int64
        Longest piece of each chunk.
    chunks_per_panel : ndarray, shape (num_panels,), int64
    merged_rows : ndarray, shape (num_merged,), int32
        Row that each word behind the real rows is added to; -1 for a word left empty.
    """

    depth: int
    starts: IntArray
    lengths: IntArray
    addresses: npt.NDArray[np.uint16]
    widths: IntArray
    chunks_per_panel: IntArray
    merged_rows: npt.NDArray[np.int32]

    @property
    def num_stored(self) -> int:
        """Slots, padding included."""
        return self.depth * LANES * int(self.widths.sum())

    @property
    def matrix_bytes(self) -> int:
        """Bytes of slots and of the pieces' addresses."""
        return SLOT_BYTES * self.num_stored + PIECE_BYTES * self.addresses.size

    @property
    def num_words(self) -> int:
        """Words of the stream."""
        return stream_words(self.chunks_per_panel, self.widths, self.merged_rows, self.depth)


def stream_words(
    chunks_per_panel: IntArray,
    widths: IntArray,
    merged_rows: npt.NDArray[np.int32],
    depth: int,
) -> int:
    """Return the words of a stream: headers, addresses, slots, and the rows of the merge.

    >>> stream_words(np.array([1]), np.array([1]), np.zeros(0, np.int32), 8)
    17
    """
    places = LANES * depth
    num_bytes = places * (SLOT_BYTES * int(widths.sum()) + PIECE_BYTES * len(widths))
    num_panels = int(np.count_nonzero(chunks_per_panel))
    return num_panels + num_bytes // WORD_BYTES + words_for(len(merged_rows))


def element_of(row: IntArray) -> IntArray:
    """Return the element of y on the chip that a row has.

    Word j of y stands at address j of all lanes, turned by j lanes, so that rows of the same
    kind, which often recur every second or every sixteenth row, do not meet in one lane.

    >>> element_of(np.array([0, 15, 16, 31, 32])).tolist()
    [0, 15, 17, 16, 34]
    """
    address = row // LANES
    return address * LANES + (row + address) % LANES


def row_of(element: IntArray) -> IntArray:
    """Return the row of an element of y on the chip; undoes `element_of`."""
    address = element // LANES
    return address * LANES + (element - address) % LANES


def lay_out(
    csr: csr_array, *, depth: int, panel: int, sigma: int | None, limit: int | None
) -> Layout:
    """Find the place of every entry.

    Parameters
    ----------
    csr : csr_array, shape (m, n)
        Canonical.
    depth : int
        Pieces that a chunk takes from each lane.
    panel : int
        Columns of a panel.
    sigma : int or None
        Rows that are sorted together; None for all.
    limit : int or None
        Entries of the longest piece; None for the limit that costs the fewest bytes.
    """
    num_panels = -(-csr.shape[1] // panel)
    segments = cut_segments(csr, panel, sigma)
    lengths = np.diff(csr.indptr).astype(np.int64)
    least = SLOT_BYTES * int(csr.nnz) + PIECE_BYTES * len(segments)
    best: tuple[int, int, Pieces, npt.NDArray[np.int32]] | None = None
    for shortest, most in _choices_of_long_rows(lengths, depth):
        long_rows = choose_long_rows(lengths, shortest, most)
        merged_rows = deal_words(lengths, long_rows)
        dealt = spread(segments, long_rows, merged_rows, len(lengths), num_panels)
        found, cost = best_limit(dealt, num_panels, depth)
        cost += WORD_BYTES * len(merged_rows)  # a cycle each, in which a word could come
        if best is None or cost < best[0]:
            best = cost, found, dealt, merged_rows
        if best[0] <= _GOOD_ENOUGH * least:
            break
    assert best is not None
    _, found, segments, merged_rows = best
    return _place(segments, limit or found, depth, num_panels, merged_rows)


# Segments


def cut_segments(csr: csr_array, panel: int, sigma: int | None) -> Pieces:
    """Cut the rows of a canonical matrix where a column panel ends.

    >>> A = csr_array([[1, 2, 0, 3], [0, 0, 0, 4]])
    >>> cut_segments(A, 2, None).length.tolist()
    [2, 1, 1]
    """
    starts = _segment_starts(csr, panel)
    row = np.searchsorted(csr.indptr, starts, side="right") - 1
    return Pieces(
        start=starts,
        length=np.diff(starts, append=csr.indptr[-1]).astype(np.int64, copy=False),
        element=element_of(row),
        panel=(csr.indices[starts] // panel).astype(np.int64, copy=False),
        window=np.zeros_like(row) if sigma is None else row // sigma,
    )


def _segment_starts(csr: csr_array, panel: int) -> IntArray:
    """Return the first entry of every segment, in order."""
    first: IntArray = csr.indptr[:-1][np.diff(csr.indptr) > 0].astype(np.int64)
    if csr.shape[1] <= panel:
        return first
    is_start = np.zeros(len(csr.indices), bool)
    for a in range(0, len(is_start), _CHUNK_ENTRIES):
        panels = csr.indices[max(a - 1, 0) : a + _CHUNK_ENTRIES] // panel
        is_start[max(a, 1) : a + _CHUNK_ENTRIES] = panels[1:] != panels[:-1]
    is_start[first] = True
    return np.flatnonzero(is_start)


# Long rows


def _choices_of_long_rows(lengths: IntArray, depth: int) -> list[tuple[int, int]]:
    """Return what to try, the usual first: the least length of long rows, and how many.

    Rows that would fill a place of a chunk alone are always long. Further ones level lanes
    that chance has not filled alike.
    """
    nnz = int(lengths.sum())
    choices = [(max(nnz // (LANES * depth), MIN_LONG_ROW), MAX_LONG_ROWS)]
    longest = choose_long_rows(lengths, LANES, MAX_LONG_ROWS)
    if lengths[longest].sum() > _WORTH_LEVELLING * nnz:
        choices += [(LANES, most) for most in (16, 48, 96, MAX_LONG_ROWS)]
    return choices


def choose_long_rows(lengths: IntArray, shortest: int, most: int) -> IntArray:
    """Return the rows with more entries than `shortest`, longest first.

    >>> choose_long_rows(np.array([9, 2, 30, 11]), 8, 2).tolist()
    [2, 3]
    """
    found = np.flatnonzero(lengths > shortest)
    if len(found) > most:  # a sort of all would take long
        least = np.partition(lengths[found], -most)[-most]
        found = found[lengths[found] >= least]
    return found[np.argsort(-lengths[found], kind="stable")][:most]


def deal_words(lengths: IntArray, long_rows: IntArray) -> npt.NDArray[np.int32]:
    """Deal words of y to long rows.

    An element of y may return after `REUSE_DISTANCE` positions, so a word can hold at most
    that share of the entries; half of it is dealt, so that other rows find places too.

    Returns
    -------
    ndarray, shape (num_merged,), int32
        Row of each word, -1 for one left empty so that words of a row are as far apart as
        elements of y must be.

    Examples
    --------
    >>> deal_words(np.array([3, 90, 9070, 100]), np.array([3, 1])).tolist()
    [3, 1]
    >>> deal_words(np.array([30, 200, 70, 700]), np.array([3]))[:10].tolist()
    [3, -1, -1, -1, -1, -1, -1, -1, 3, -1]
    """
    share = -(-2 * REUSE_DISTANCE * lengths[long_rows] // max(int(lengths.sum()), 1))
    share = np.minimum(share, REUSE_DISTANCE)
    rounds = Rounds.of(np.zeros(len(long_rows), np.int64), share, 1)
    merged = np.full(int(rounds.ends[0]), -1, np.int32)
    merged[rounds.position] = long_rows[rounds.item]
    return merged


def spread(
    segments: Pieces,
    long_rows: IntArray,
    merged_rows: npt.NDArray[np.int32],
    num_rows: int,
    num_panels: int,
) -> Pieces:
    """Deal the segments of long rows over all lanes, more to lanes with less to do."""
    if not len(long_rows):
        return segments
    is_long = np.zeros(words_for(num_rows) * LANES, bool)
    is_long[element_of(long_rows)] = True
    which = is_long[segments.element]
    short, long = segments[~which], segments[which]
    share = _shares(short, long, num_panels)
    word = np.flatnonzero(merged_rows >= 0)
    word = word[np.argsort(merged_rows[word], kind="stable")]
    rows, counts = np.unique(merged_rows[word], return_counts=True)
    number = np.searchsorted(rows, row_of(long.element))
    first_word = (np.cumsum(counts) - counts)[number]
    dealt = []
    for k in range(int(counts.max())):
        has = np.flatnonzero(counts[number] > k)
        piece, num_words = long[has], counts[number[has]]
        start, end = (piece.length * i // num_words for i in (k, k + 1))
        y_word = words_for(num_rows) + word[first_word[has] + k]
        dealt.append(_over_lanes(piece, start, end, share[piece.panel], y_word))
    everything = short.followed_by(*dealt)
    return everything[everything.length > 0]


def _over_lanes(
    pieces: Pieces,
    start: IntArray,
    end: IntArray,
    share: npt.NDArray[np.float64],
    y_word: IntArray,
) -> Pieces:
    """Cut from each piece the entries from `start` to `end` for the lanes of a word of y."""
    cuts = _cuts(start, end, share)
    element = LANES * y_word[:, None] + np.arange(LANES)

    def each(array: IntArray) -> IntArray:
        return np.repeat(array, LANES)

    return Pieces(
        start=(pieces.start[:, None] + cuts[:, :-1]).ravel(),
        length=np.diff(cuts, axis=1).ravel(),
        element=element.ravel(),
        panel=each(pieces.panel),
        window=each(pieces.window),
    )


def _shares(short: Pieces, long: Pieces, num_panels: int) -> npt.NDArray[np.float64]:
    """Return the share of each lane in the long rows of each panel: all shall end level."""
    load = np.bincount(short.lane, short.length, num_panels * LANES).reshape(-1, LANES)
    water = np.bincount(long.panel, long.length, num_panels)
    ordered = np.sort(load, axis=1)
    below = np.arange(1, LANES + 1)
    # The level if only the k lowest lanes get something; the lowest such level is right.
    level = ((np.cumsum(ordered, axis=1) + water[:, None]) / below).min(axis=1)
    given = np.maximum(level[:, None] - load, 0)
    total = given.sum(axis=1, keepdims=True)
    return np.where(total > 0, given / np.where(total > 0, total, 1), 1 / LANES)


def _cuts(start: IntArray, end: IntArray, share: npt.NDArray[np.float64]) -> IntArray:
    """Cut runs from `start` to `end` by shares; returns (runs, 17) bounds."""
    bounds = np.zeros((len(start), LANES + 1))
    np.cumsum(share, axis=1, out=bounds[:, 1:])
    bounds[:, -1] = 1
    inner = np.rint(np.minimum(bounds, 1) * (end - start)[:, None]).astype(np.int64)
    cuts: IntArray = start[:, None] + inner
    return cuts


# The limit


def best_limit(segments: Pieces, num_panels: int, depth: int) -> tuple[int, int]:
    """Return the length to cut pieces at that gives the fewest bytes, and the bytes.

    The sum of the chunks' widths is, over all w, the number of chunks with a piece of w
    entries or more; in a lane, cut at a limit T, these are the segments with at least w,
    w + T, w + 2 T, … entries. So folding the counts of segments gives all that is asked.
    """
    if not len(segments):
        return 1, 0
    costs: dict[int, int] = {}
    for largest in _chains(int(segments.length.max()), num_panels):
        tails = _tails(segments.length, segments.lane, num_panels * LANES, largest)
        for limit in _halvings(largest):
            costs[limit] = _cost(tails, limit, num_panels, depth)
            if costs[limit] > _HOPELESS * min(costs.values()):
                break  # shorter ones cost yet more
    best = min(costs, key=lambda limit: (costs[limit], -limit))
    return best, costs[best]


def _chains(longest: int, num_panels: int) -> list[int]:
    """Return the largest limit of each chain of halvings."""
    room = max(_MAX_HISTOGRAM // max(num_panels * LANES, 1), 64)
    top = 8
    while top < longest and 2 * top <= min(room, 1 << _TAIL_BITS):
        top *= 2
    chains = [top * share // 4 for share in (4, 5, 6, 7)] if top > 8 else [top]
    if top < longest <= min(room, 1 << _TAIL_BITS):
        chains.append(longest)
    return chains


def _halvings(largest: int) -> Iterator[int]:
    """Yield a limit and its halves, down to the least that is tried.

    >>> list(_halvings(24))
    [24, 12, 6]
    """
    yield largest
    while largest % 2 == 0 and largest > _MIN_LIMIT:
        largest //= 2
        yield largest


def _tails(length: IntArray, group: IntArray, num_groups: int, largest: int) -> IntArray:
    """Count, in every lane, pieces of at least w entries; shape (lanes, largest), w from 1."""
    full, rest = np.divmod(length, largest)
    counts = np.bincount(group * (largest + 1) + rest, minlength=num_groups * (largest + 1))
    counts = counts.reshape(num_groups, largest + 1)
    counts[:, largest] = np.bincount(group, full, num_groups)
    return np.cumsum(counts[:, :0:-1], axis=1)[:, ::-1]


def _cost(tails: IntArray, limit: int, num_panels: int, depth: int) -> int:
    """Return the bytes of slots and of piece addresses for a limit."""
    folded = tails.reshape(len(tails), -1, limit).sum(axis=1)
    # Rounds with fewer pieces than the reuse distance have holes.
    rounds = tails[:, limit - 1 :: limit]
    folded = np.maximum(folded, _with_holes(rounds)[:, None])
    chunks = -(-folded.reshape(num_panels, LANES, limit).max(axis=1) // depth)
    width = int(chunks.sum())
    return depth * LANES * (SLOT_BYTES * width + PIECE_BYTES * int(chunks[:, 0].sum()))


def _with_holes(rounds: IntArray) -> IntArray:
    """Return the positions that rounds of full pieces take in each lane."""
    taken = rounds.copy()
    is_followed = rounds[:, 1:] > 0
    taken[:, :-1][is_followed] = np.maximum(rounds[:, :-1][is_followed], REUSE_DISTANCE)
    result: IntArray = taken.sum(axis=1)
    return result


# Positions


@dataclass(frozen=True, eq=False)
class Rounds:
    """Items that recur, in rounds: no item returns within the reuse distance.

    Attributes
    ----------
    item : ndarray
        Item of each recurrence.
    number : ndarray
        Which of the item's recurrences it is, from 0.
    position : ndarray
        Its position within the group.
    ends : ndarray, shape (num_groups,)
        Position behind the last round of each group.
    hole : ndarray
        Positions left free, group by group, ascending.
    num_holes : ndarray, shape (num_groups,)
    """

    item: IntArray
    number: IntArray
    position: IntArray
    ends: IntArray
    hole: IntArray
    num_holes: IntArray

    @classmethod
    def of(cls, group: IntArray, count: IntArray, num_groups: int) -> Rounds:
        """Make rounds of items that are ordered by group, then by count, largest first.

        >>> rounds = Rounds.of(np.array([0, 0]), np.array([2, 1]), 1)
        >>> rounds.position.tolist(), rounds.ends.tolist(), rounds.hole.tolist()
        ([0, 8, 1], [9], [2, 3, 4, 5, 6, 7])
        """
        item, number = _expand(count)
        num_rounds = np.zeros(num_groups, np.int64)
        np.maximum.at(num_rounds, group, count)
        first_round = np.cumsum(num_rounds) - num_rounds
        rank = np.arange(len(group)) - np.searchsorted(group, group)
        round_of = first_round[group[item]] + number
        sizes = np.bincount(round_of, minlength=int(num_rounds.sum()))
        is_last = np.zeros(len(sizes), bool)
        is_last[(np.cumsum(num_rounds) - 1)[num_rounds > 0]] = True
        room = np.where(is_last, sizes, np.maximum(sizes, REUSE_DISTANCE))
        before = np.concatenate(([0], np.cumsum(room)))
        start = before[:-1] - np.repeat(before[first_round], num_rounds)
        free = room - sizes
        which, k = _expand(free)
        of_group = np.repeat(np.arange(num_groups), num_rounds)
        return cls(
            item=item,
            number=number,
            position=start[round_of] + rank[item],
            ends=before[first_round + num_rounds] - before[first_round],
            hole=start[which] + sizes[which] + k,
            num_holes=np.bincount(of_group, free, num_groups).astype(np.int64),
        )


def _expand(counts: IntArray) -> tuple[IntArray, IntArray]:
    """Return for each of `counts[i]` recurrences i and its number from 0.

    >>> [part.tolist() for part in _expand(np.array([2, 0, 1]))]
    [[0, 0, 2], [0, 1, 0]]
    """
    item = np.repeat(np.arange(len(counts)), counts)
    return item, np.arange(len(item)) - np.repeat(np.cumsum(counts) - counts, counts)


def _place(
    segments: Pieces,
    limit: int,
    depth: int,
    num_panels: int,
    merged_rows: npt.NDArray[np.int32],
) -> Layout:
    """Cut segments into pieces and give every piece its position."""
    num_windows = 1 + int(segments.window.max(initial=0))
    num_groups = num_panels * LANES * num_windows
    group = segments.lane * num_windows + segments.window
    order = _order(group, segments.length)
    segments, group = segments[order], group[order]
    pieces, group, position, ends = _sequence(segments, group, num_groups, limit)
    ends = ends.reshape(num_panels * LANES, num_windows)
    position = position + (np.cumsum(ends, axis=1) - ends).ravel()[group]
    lane_ends = ends.sum(axis=1).reshape(num_panels, LANES)
    chunks_per_panel = -(-lane_ends.max(axis=1, initial=0) // depth)
    first_chunk = np.cumsum(chunks_per_panel) - chunks_per_panel
    address, lane = np.divmod(pieces.element, LANES)
    place = (first_chunk[pieces.panel] * depth + position) * LANES + lane
    shape = (int(chunks_per_panel.sum()), depth, LANES)
    starts, lengths = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    addresses = np.full(shape, NO_ADDRESS, np.uint16)
    starts.reshape(-1)[place] = pieces.start
    lengths.reshape(-1)[place] = pieces.length
    addresses.reshape(-1)[place] = address
    return Layout(
        depth=depth,
        starts=starts,
        lengths=lengths,
        addresses=addresses,
        widths=lengths.max(axis=(1, 2), initial=0),
        chunks_per_panel=chunks_per_panel,
        merged_rows=merged_rows,
    )


def _order(group: IntArray, length: IntArray) -> IntArray:
    """Return the order by group, then by length, longest first."""
    # NumPy sorts 16-bit keys by their digits, several times as fast as longer ones.
    falling = (length.max(initial=0) - length).astype(np.uint16)
    if group.max(initial=0) < 1 << 16:
        return np.lexsort((falling, group.astype(np.uint16)))
    return np.lexsort((falling, group))


def _sequence(
    segments: Pieces, group: IntArray, num_groups: int, limit: int
) -> tuple[Pieces, IntArray, IntArray, IntArray]:
    """Cut segments, ordered by group and length, into pieces with positions.

    A lane begins with its full pieces, in rounds. Segments that are not cut fill the holes
    that rounds leave, and keep rests away from the full pieces of their rows; behind them
    stands what is left, longest first.

    Returns
    -------
    pieces : Pieces
    group, position : ndarray
        Of each piece.
    ends : ndarray, shape (num_groups,)
        Position behind the last piece of each group.
    """
    full, rest = np.divmod(segments.length, limit)
    cut = np.flatnonzero(full)
    rounds = Rounds.of(group[cut], full[cut], num_groups)
    item = cut[rounds.item]
    start = segments.start[item] + limit * rounds.number
    whole = replace(segments[item], start=start, length=np.full(len(item), limit))

    has_rest = np.flatnonzero(full * rest)
    ends_with = replace(
        segments[has_rest],
        start=(segments.start + limit * full)[has_rest],
        length=rest[has_rest],
    )
    gap = np.zeros(num_groups, np.int64)
    gap[group[has_rest]] = _GAP

    small = np.flatnonzero(full == 0)
    small_group = group[small]
    number = np.arange(len(small)) - np.searchsorted(small_group, small_group)
    position, is_tail = _fill_holes(rounds, small_group, number, gap)
    tail_group = np.concatenate((group[has_rest], small_group[is_tail]))
    tail_length = np.concatenate((rest[has_rest], segments.length[small[is_tail]]))
    order = _order(tail_group, tail_length)
    sorted_group = tail_group[order]
    tail = np.empty(len(order), np.int64)
    tail[order] = np.arange(len(order)) - np.searchsorted(sorted_group, sorted_group)
    tail += (rounds.ends + gap)[tail_group]
    position[is_tail] = tail[len(has_rest) :]

    pieces = whole.followed_by(ends_with, segments[small])
    groups = np.concatenate((group[item], group[has_rest], small_group))
    positions = np.concatenate((rounds.position, tail[: len(has_rest)], position))
    ends = np.zeros(num_groups, np.int64)
    np.maximum.at(ends, groups, positions + 1)
    return pieces, groups, positions, ends


def _fill_holes(
    rounds: Rounds, group: IntArray, number: IntArray, gap: IntArray
) -> tuple[IntArray, npt.NDArray[np.bool_]]:
    """Give the longest uncut segments of each group the holes and the gap behind the rounds.

    Returns
    -------
    position : ndarray
    is_tail : ndarray of bool
        Segments that stand behind the gap, among the rests: the caller places them. Where
        there is no gap, there are no rests.
    """
    position = (rounds.ends - rounds.num_holes)[group] + number
    first_hole = np.cumsum(rounds.num_holes) - rounds.num_holes
    in_hole = np.flatnonzero(number < rounds.num_holes[group])
    position[in_hole] = rounds.hole[first_hole[group[in_hole]] + number[in_hole]]
    is_tail = (gap[group] > 0) & (number >= (rounds.num_holes + gap)[group])
    return position, is_tail


def runs(widths: IntArray, chunks_per_panel: IntArray, most: int) -> Iterator[tuple[int, ...]]:
    """Yield panel, first and last chunk, and width of runs of chunks that are alike.

    >>> list(runs(np.array([3, 3, 1, 1]), np.array([3, 1]), 100))
    [(0, 0, 2, 3), (0, 2, 3, 1), (1, 3, 4, 1)]
    """
    panel = np.repeat(np.arange(len(chunks_per_panel)), chunks_per_panel)
    is_first = np.ones(len(widths), bool)
    is_first[1:] = (np.diff(widths) != 0) | (np.diff(panel) != 0)
    bounds = np.flatnonzero(is_first)
    for start, end in zip(bounds.tolist(), [*bounds[1:].tolist(), len(widths)], strict=False):
        width = int(widths[start])
        step = max(most // width, 1)
        for first in range(start, end, step):
            yield int(panel[start]), first, min(first + step, end), width
