"""Synthetic twins: matrices with the published size, entries and tile density of another.

``twin:NAME`` stands for one of the suite's matrices, ``twin:custom:n=…,nnz=…,density=…``
for any published figures. A twin has

- n and nnz exactly, and a density of 16 x 16 aligned tiles within 0.1 of a per
  cent point;
- for a symmetric original the lower triangle only, which is what the paper
  multiplied; it is never expanded;
- rows that are nearly even: within each slice of 16 rows all are equally long
  (one slice may take a remainder), so that sliced ELL hardly pads;
- tiles at random columns of each block row, values in (−1, 1], none of them 0.

How: entries are dealt to slices, tiles to slices in proportion, and in a slice with
t tiles and w entries a row, row r takes the slots ``floor((k + phase_r) · 16 t / w)``
of its 16 t slots. With the 16 phases a sixteenth apart, the slice's entries are
evenly spaced over its tiles, so none of the tiles stays empty.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from ..errors import MatrixError
from .model import MAX_ENTRIES, Matrix, canonical, check_size
from .options import parse_options, whole_number
from .suite import SuiteEntry, find_in_suite, near_names

#: Changes when any twin changes, so that cached copies are made anew.
VERSION = 1
#: Edge of the tiles whose density is published.
TILE = 16

_SEED = 20231
_Ints = NDArray[np.int64]


@dataclass(frozen=True)
class TwinFigures:
    """Published figures that a twin must have.

    Parameters
    ----------
    name : str
        Name for display, such as ``"twin:TS2383"``.
    source : str
        Where the figures come from, in one line.
    n : int
        Order of the square matrix.
    nnz : int
        Entries.
    density : float
        nnz ÷ (256 · non-empty tiles), a fraction.
    is_triangle : bool
        Whether only the lower triangle is filled.
    seed : int
        Start of the random numbers.
    """

    name: str
    source: str
    n: int
    nnz: int
    density: float
    is_triangle: bool = False
    seed: int = 1

    @property
    def num_tiles(self) -> int:
        """Non-empty tiles that give the density."""
        return max(round(self.nnz / (TILE * TILE * self.density)), min(self.nnz, 1))


def twin_matrix(spec: str) -> Matrix:
    """Make the matrix that ``twin:…`` names.

    Raises
    ------
    MatrixError
        If the name is unknown, or no such matrix exists.

    Examples
    --------
    >>> twin_matrix("twin:custom:n=160,nnz=2048,density=50%").nnz
    2048
    """
    figures = parse_twin(spec)
    kind = "its lower triangle, never expanded" if figures.is_triangle else "the whole matrix"
    warning = f"{figures.name} is synthetic, made from published figures ({kind})."
    symmetric = "stored triangle" if figures.is_triangle else "general"
    csr = make_twin(figures)
    return Matrix(csr, figures.name, figures.source, symmetric, True, (warning,))


def parse_twin(spec: str) -> TwinFigures:
    """Return the figures behind ``twin:NAME`` or ``twin:custom:…``.

    ``density=…`` is a fraction, above 0 and at most 1, or per cent with a ``%``
    or above 1.

    >>> parse_twin("twin:TS2383").nnz
    16171169
    >>> parse_twin("twin:custom:n=64,nnz=512,density=50%").density
    0.5
    """
    _, name, text = [*spec.split(":", 2), ""][:3]
    if name == "custom":
        return _custom(text, spec)
    entry = find_in_suite(name)
    if entry is None:
        raise MatrixError(f"{name!r} has no published figures; {near_names(name)}", path=spec)
    if text:
        raise MatrixError("only twin:custom takes options.", path=spec)
    return suite_figures(entry)


def suite_figures(entry: SuiteEntry) -> TwinFigures:
    """Return what the twin of a matrix of the suite must have."""
    return TwinFigures(
        f"twin:{entry.short}",
        f"twin of {entry.full_name} (synthetic)",
        entry.n,
        entry.nnz,
        entry.density_percent / 100,
        entry.is_symmetric,
    )


def _custom(text: str, spec: str) -> TwinFigures:
    options = parse_options(text, ("n", "nnz", "density", "seed"), spec)
    missing = [key for key in ("n", "nnz", "density") if key not in options]
    if missing:
        raise MatrixError(f"{', '.join(missing)} missing; give n, nnz and density.", path=spec)
    return TwinFigures(
        spec,
        f"{spec} (synthetic)",
        whole_number("n", options["n"], spec, least=TILE),
        whole_number("nnz", options["nnz"], spec),
        _density(options["density"], spec),
        seed=whole_number("seed", options.get("seed", "1"), spec, least=0),
    )


def _density(text: str, spec: str) -> float:
    try:
        number = float(text.removesuffix("%"))
    except ValueError:
        number = np.nan
    # Above 1 it can only be what tables print, per cent; a smaller per cent needs its sign.
    is_percent = text.endswith("%") or number > 1
    density = number / 100 if is_percent else number
    if 0 < density <= 1:
        return density
    raise MatrixError(
        f"density is {text}; it must be a fraction above 0 and at most 1 (0.71), or per cent "
        "(71%, 71; 0.5% needs its sign).",
        path=spec,
    )


def make_twin(figures: TwinFigures) -> csr_array:
    """Make the matrix.

    Returns
    -------
    csr_array, shape (n, n), float32

    Raises
    ------
    MatrixError
        If no matrix of this construction has these figures.
    """
    check_size(figures.n, figures.n, figures.name)
    if figures.nnz > MAX_ENTRIES:
        raise MatrixError(
            f"nnz is {figures.nnz}; at most {MAX_ENTRIES} entries are made.", path=figures.name
        )
    rng = np.random.Generator(np.random.PCG64([_SEED, figures.seed, figures.n, figures.nnz]))
    slices, num_tiles = _deal(figures, rng)
    lengths = slices.row_lengths(figures.n)
    indptr = np.concatenate(([0], np.cumsum(lengths)))
    indices = np.empty(figures.nnz, np.int32)
    for number in np.flatnonzero(num_tiles).tolist():
        rows = slice(number * TILE, (number + 1) * TILE)
        begin, end = indptr[rows.start], indptr[min(rows.stop, figures.n)]
        tiles = _choose_tiles(slices, number, int(num_tiles[number]), rng)
        indices[begin:end] = _columns(number, tiles, lengths[rows], figures.is_triangle, rng)
    values = 1 - 2 * rng.random(figures.nnz, np.float32)
    values[values == 0] = 1
    return canonical(values, indices, indptr, (figures.n, figures.n))


@dataclass(frozen=True, eq=False)
class _Slices:
    """How many entries the rows of each slice hold.

    In a slice that holds `longer` > 0, so many rows have one entry more than
    `width`; in all others the rows are equally long. In a triangle, slice i sees
    i whole tiles and the diagonal tile, of which it uses the diagonal only.
    """

    num_rows: _Ints
    width: _Ints
    longer: _Ints
    num_whole_tiles: _Ints
    is_triangle: bool

    @property
    def longest(self) -> _Ints:
        return self.width + (self.longer > 0)

    @property
    def num_entries(self) -> _Ints:
        return self.num_rows * self.width + self.longer

    def row_lengths(self, n: int) -> _Ints:
        """Return the entries of each row, shape (n,)."""
        row_in_slice = np.arange(n) % TILE
        return np.repeat(self.width, self.num_rows) + (
            row_in_slice < np.repeat(self.longer, self.num_rows)
        )

    def num_covered(self, num_on_diagonal: int = 0) -> _Ints:
        """Return how many tiles the entries off the diagonal are sure to reach."""
        width = np.maximum(self.width - num_on_diagonal, 0)
        uneven = np.minimum(self.longest - num_on_diagonal, np.maximum(width, 1))
        return np.where(self.longer > 0, np.maximum(uneven, 0), self.num_rows * width)

    @property
    def least_tiles(self) -> _Ints:
        return -(-self.longest // TILE)

    @property
    def most_tiles(self) -> _Ints:
        most = np.minimum(self.num_whole_tiles, self.num_covered())
        return most + (self.num_entries > 0) * self._takes_diagonal(self.num_whole_tiles + 1)

    def _takes_diagonal(self, num_tiles: _Ints) -> NDArray[np.bool_]:
        """Say in which slices one of the tiles may be the diagonal one."""
        least = -(-(self.longest - 1) // TILE)
        others = num_tiles - 1
        fits = (least <= others) & (others <= self.num_covered(1))
        return fits & (self.longest > 0) & self.is_triangle

    def may_take_diagonal(self, number: int, num_tiles: int) -> bool:
        return bool(self._takes_diagonal(np.asarray(num_tiles))[number])


def _deal(figures: TwinFigures, rng: np.random.Generator) -> tuple[_Slices, _Ints]:
    """Deal entries and tiles to slices; coarser steps in width make denser tiles."""
    for step in (1, 2, 4, 8, 16):
        slices = _deal_entries(figures, step, rng)
        if slices is None:
            continue
        least, most = int(slices.least_tiles.sum()), int(slices.most_tiles.sum())
        num_tiles = min(max(figures.num_tiles, least), most)
        if abs(figures.nnz / (TILE * TILE * max(num_tiles, 1)) - figures.density) <= 0.001:
            return slices, _deal_tiles(slices, num_tiles, rng)
    raise MatrixError(
        f"no twin has n = {figures.n}, nnz = {figures.nnz} and a tile density of "
        f"{100 * figures.density:g} %; change one of them.",
        path=figures.name,
    )


def _deal_entries(figures: TwinFigures, step: int, rng: np.random.Generator) -> _Slices | None:
    """Fill slices to one level of row length, as far as each has room."""
    num_slices = -(-figures.n // TILE)
    num_rows = np.full(num_slices, TILE)
    num_rows[-1] = figures.n - TILE * (num_slices - 1)
    if figures.is_triangle:
        num_whole_tiles = np.arange(num_slices)
        room = TILE * num_whole_tiles + 1
    else:
        num_whole_tiles = np.full(num_slices, figures.n // TILE)
        room = TILE * num_whole_tiles
    if TILE - num_rows[-1] > 0.05 * figures.n:
        room[-1] = 0  # in a small matrix, padding the short last slice would show
    if num_rows @ room < figures.nnz:
        return None
    level = _level(num_rows, room, figures.nnz, step)
    width = np.minimum(level, room)
    rest = figures.nnz - int(num_rows @ width)
    # Slices in random order grow by a step until the rest is dealt; the last takes
    # what is left.
    order = rng.permutation(num_slices)
    growth = np.minimum(step, room - width)[order]
    before = np.cumsum(num_rows[order] * growth) - num_rows[order] * growth
    dealt = np.clip(rest - before, 0, num_rows[order] * growth)
    width[order] += dealt // num_rows[order]
    longer = np.zeros_like(width)
    longer[order] = dealt % num_rows[order]
    return _Slices(num_rows, width, longer, num_whole_tiles, figures.is_triangle)


def _level(num_rows: _Ints, room: _Ints, nnz: int, step: int) -> int:
    """Return the largest multiple of `step` to which all rows can be filled."""
    low, high = 0, int(room.max()) // step
    while low < high:
        middle = (low + high + 1) // 2
        if num_rows @ np.minimum(middle * step, room) <= nnz:
            low = middle
        else:
            high = middle - 1
    return low * step


def _deal_tiles(slices: _Slices, num_tiles: int, rng: np.random.Generator) -> _Ints:
    """Deal tiles in proportion to entries, within what each slice can hold."""
    least, most = slices.least_tiles, slices.most_tiles

    def dealt(tiles_per_entry: float) -> _Ints:
        return np.clip((slices.num_entries * tiles_per_entry).astype(np.int64), least, most)

    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if dealt(middle).sum() <= num_tiles else (low, middle)
    counts = dealt(low)
    while missing := num_tiles - int(counts.sum()):
        open_slices = np.flatnonzero(counts < most)
        counts[rng.permutation(open_slices)[:missing]] += 1
    return counts


def _choose_tiles(
    slices: _Slices, number: int, num_tiles: int, rng: np.random.Generator
) -> _Ints:
    """Return the block columns of a slice's tiles, ascending."""
    num_whole = int(slices.num_whole_tiles[number])
    must = num_tiles > num_whole or slices.longest[number] > TILE * num_whole
    may = must or slices.may_take_diagonal(number, num_tiles)
    has_diagonal = may and (must or rng.random() < num_tiles / (num_whole + 1))
    whole = rng.choice(num_whole, num_tiles - has_diagonal, replace=False, shuffle=False)
    whole.sort()
    return np.append(whole, number) if has_diagonal else whole


def _columns(
    number: int, tiles: _Ints, lengths: _Ints, is_triangle: bool, rng: np.random.Generator
) -> _Ints:
    """Return the columns of a slice's entries, row after row, ascending in each."""
    has_diagonal = is_triangle and tiles[-1] == number
    if has_diagonal:
        tiles = tiles[:-1]
        on_diagonal = (lengths > 0).astype(np.int64)
        lengths = lengths - on_diagonal
    num_rows = len(lengths)
    phases = (rng.permutation(num_rows) + rng.uniform(0.05, 0.95)) / num_rows
    ends = np.cumsum(lengths)
    position = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    spacing = TILE * len(tiles) / np.maximum(lengths, 1)
    slots = (position + np.repeat(phases, lengths)) * np.repeat(spacing, lengths)
    slots = slots.astype(np.int64)
    columns: _Ints = tiles[slots // TILE] * TILE + slots % TILE
    if has_diagonal:
        rows = np.flatnonzero(on_diagonal)
        columns = np.insert(columns, ends[rows], number * TILE + rows)
    return columns
