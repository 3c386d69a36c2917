"""What each kernel would take for a matrix, before anything is built.

All follows from what the formats would store: row lengths and tiles are counted in
O(nnz), nothing padded is made. Where even that is too much, tiles are counted in some of
the rows and the result says how far that may be off.

Several compute units share the rows. Where x is longer than its room on the chip, columns
go in panels, and each panel is a round of launches of its own. Kernel lanes takes its panels
within a launch, and goes in rounds of rows where y is longer than its room.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.stats import t as student_t

from ..boards import Board, load_board
from ..codegen import parameters_for
from ..errors import SpmvFpgaError
from ..formats import BLOCK_SIZES, FormatStats, count_blocks, format_stats
from ..formats.base import WORD_LANES, canonical_csr, words_for
from ..formats.blocked_ell import DESCRIPTORS_PER_WORD, check_block
from ..formats.sell_c_sigma import DEFAULT_PANEL, MAX_ROWS, SellCSigma
from ..formats.sliced_ell import slice_widths
from ..formats.stats import in_runs
from ..kernels import load_kernel
from ..matrices import Matrix, Symmetric, open_matrix
from ..matrices.reorder import reorder_matrix
from ..units import bytes_text, count, percent, ranges
from .calibration import Calibration, load_calibration
from .model import (
    Prediction,
    Workload,
    busy_lanes_power_w,
    energy_lines,
    predict_one,
    workload,
)

STRIP_ROWS = 32
"""Rows that are sampled together: whole block rows at every P."""
MIN_STRIPS = 10
"""Strips below which a spread is not worth stating."""
LEAST_SAMPLING_ERROR = 0.01
"""Relative; however alike the strips drawn are, a few of another kind may have been missed."""

_SEED = 1
_CONFIDENCE = 0.95
DEFAULT_BLOCKS = BLOCK_SIZES
DEFAULT_SLICES = (16,)
DEFAULT_DEPTHS = (8,)

ALL, MOST = "all", "max"
"""Every number of units up to the most that fit, and that most alone."""
DEFAULT_MAX_UNITS = 16
"""Units that are taken to fit where nobody says how many do: those with x in a bank of its
own or their matrix's."""

Units = int | str | Sequence[int]
"""Numbers of compute units: one, several, `ALL` or `MOST`."""
MaxUnits = int | Callable[[str, Mapping[str, int]], int]
"""Most units that fit: of all kernels, or of a kernel with its P, L or depth, as
``("block", {"block": 16})``."""


def default_x_room(compute_units: int) -> int:
    """Return the elements of x that each unit has room for on the chip.

    >>> default_x_room(1), default_x_room(16)
    (262144, 65536)
    """
    return _room("block", "x_room", compute_units)  # that of scalar too


def default_y_room(compute_units: int) -> int:
    """Return the elements of y that each unit of kernel lanes has room for on the chip.

    >>> default_y_room(1), default_y_room(16)
    (32768, 16384)
    """
    return _room("lanes", "y_room", compute_units)


def _room(kernel: str, name: str, compute_units: int) -> int:
    """Return what a kernel is rendered with for so many units."""
    spec = load_kernel(kernel)
    return spec.resolve(parameters_for(spec, compute_units))[name]


@dataclass(frozen=True, kw_only=True)
class PanelledWorkload(Workload):
    """The work of a matrix that goes in rounds of launches.

    Attributes
    ----------
    rounds : int
        Panels of columns; of kernel lanes parts of the rows. Each has its own launch, fills
        the pipeline and writes y, each part of the rows its own.
    strip_rows : int
        Rows that no two units share: P or L.
    x_loads : float
        How often a unit of kernel lanes loads x, in all rounds; it leaves panels out.
    """

    rounds: int = 1
    strip_rows: int = 1
    x_loads: float = 1.0

    @property
    def launches(self) -> int:
        """One a round."""
        return self.rounds

    @property
    def y_words(self) -> int:
        """Words of y that are written, in all rounds."""
        return super().y_words * (1 if self.kernel == "lanes" else self.rounds)

    @property
    def x_words(self) -> int:
        """Words of x that are loaded, in all rounds."""
        return round(self.x_loads * super().x_words)

    @property
    def fill_cycles(self) -> int:
        """Cycles until the pipeline is full, in all rounds."""
        return self.rounds * super().fill_cycles

    def _strips(self) -> tuple[int, int, int]:
        strips, words, groups = super()._strips()
        return self.rounds * strips, words, groups

    def share(self, compute_units: int) -> Workload:
        """Return one unit's part; where there are fewer strips than units, some are idle.

        >>> work = PanelledWorkload(
        ...     kernel="block", block=16, slice_size=None, rows=32, cols=32, nnz=512,
        ...     num_stored=512, blocks=2, num_empty=0, accesses=33, access_bytes=64,
        ...     matrix_bytes=2056, bytes=2112, strip_rows=16)
        >>> work.share(8).accesses
        17
        """
        return super().share(min(compute_units, max(-(-self.rows // self.strip_rows), 1)))


def in_rounds(
    work: Workload, rounds: int = 1, num_empty: int | None = None, x_loads: float = 1.0
) -> Workload:
    """Return a workload in rounds of launches.

    Parameters
    ----------
    work : Workload
    rounds : int
    num_empty : int, optional
        Block rows without tiles in all panels; as in `work` by default.
    x_loads : float
        How often kernel lanes loads x.
    """
    counts = {f.name: getattr(work, f.name) for f in fields(Workload)}
    if num_empty is not None:
        counts["num_empty"] = num_empty
    # Entries of kernel lanes are cut within rows too.
    strip_rows = 1 if work.kernel == "lanes" else work.parameter or 1
    return PanelledWorkload(**counts, rounds=rounds, strip_rows=strip_rows, x_loads=x_loads)


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The best numbers of units for a kernel with its parameter.

    Attributes
    ----------
    kernel : str
    parameter : int or None
        P, L or depth.
    max_units : int
        Most units that are taken to fit.
    best_time, best_energy : int
        Index of the candidate with the least time, the least energy.
    """

    kernel: str
    parameter: int | None
    max_units: int
    best_time: int
    best_energy: int


@dataclass(frozen=True, kw_only=True)
class PredictionSet:
    """Predictions for one matrix, and the choice.

    Attributes
    ----------
    matrix : Matrix
    calibration : Calibration
    candidates : tuple of Prediction
        Scalar first, then Block by P, lanes last; of each the fewest units first.
    best_time, best_energy : int
        Index of the candidate with the least time, the least energy, among those that fit.
    fits : tuple of bool
        Whether each candidate has no more units than fit, and stays below the power cap of
        the board while its ports are busy.
    choices : tuple of Choice
        Of each kernel with its parameter.
    sampled_rows : int or None
        Rows in which tiles were counted; None for all.
    reorder : str
        Order of rows and columns that the candidates are for.
    before : PredictionSet or None
        The same candidates in the matrix's own order, where `reorder` is another.
    warnings : tuple of str
        Sentences that a report must repeat.
    """

    matrix: Matrix
    calibration: Calibration
    candidates: tuple[Prediction, ...]
    best_time: int
    best_energy: int
    fits: tuple[bool, ...] = ()
    choices: tuple[Choice, ...] = ()
    sampled_rows: int | None = None
    reorder: str = "none"
    before: PredictionSet | None = None
    warnings: tuple[str, ...] = ()

    @property
    def better_order(self) -> str:
        """The order with the least time; `none` where there is no other, or none is better."""
        if self.before is None:
            return "none"
        return self.reorder if best_time_s(self) < best_time_s(self.before) else "none"

    def to_json(self) -> dict[str, Any]:
        """Return the result of `spmv-fpga predict` as a JSON document."""
        rows, cols = self.matrix.csr.shape
        return {
            "matrix": {
                "name": self.matrix.name,
                "rows": rows,
                "cols": cols,
                "nnz": self.matrix.nnz,
                "symmetric": self.matrix.symmetric,
                "source": self.matrix.source,
                "is_twin": self.matrix.is_twin,
            },
            "calibration": self.calibration.name,
            "candidates": [
                {**_candidate_document(c), **before, "fits": fits}
                for c, before, fits in zip(
                    self.candidates, self._densities_before(), self.fits, strict=True
                )
            ],
            "best_time": self.best_time,
            "best_energy": self.best_energy,
            "choices": [vars(choice) for choice in self.choices],
            "sampled_rows": self.sampled_rows,
            "reorder": self.reorder,
            **({"better_order": self.better_order} if self.before else {}),
            "warnings": list(self.warnings),
        }

    def _densities_before(self) -> list[dict[str, float]]:
        """Return what the document adds to each candidate of a reordered matrix."""
        if self.before is None:
            return [{}] * len(self.candidates)
        return [{"density_before": c.workload.density} for c in self.before.candidates]


def best_time_s(found: PredictionSet) -> float:
    """Return the least time; infinite where none is known.

    >>> best_time_s(predict("gallery:diagonal:n=32")) < 1
    True
    """
    time_s = found.candidates[found.best_time].time_s.value
    return math.inf if time_s is None else time_s


def predict(
    matrix: str | os.PathLike[str] | Matrix | csr_array,
    *,
    calibration: str | os.PathLike[str] | Calibration = "u50",
    board: str = "u50",
    blocks: Sequence[int] = DEFAULT_BLOCKS,
    slices: Sequence[int] = DEFAULT_SLICES,
    depths: Sequence[int] | None = None,
    panel: int | None = None,
    compute_units: Units = 1,
    max_units: MaxUnits = DEFAULT_MAX_UNITS,
    x_room: Callable[[int], int] = default_x_room,
    y_room: Callable[[int], int] = default_y_room,
    clock_hz: float | None = None,
    sample_rows: int | None = None,
    seed: int = _SEED,
    symmetric: Symmetric = "expand",
    reorder: str = "none",
) -> PredictionSet:
    """Predict time, power and energy of a product for every kernel.

    Parameters
    ----------
    matrix : str, path, Matrix or sparse array
        Anything that `open_matrix` knows, or a matrix that is loaded already.
    calibration : str, path or Calibration
        `u50` for this project's kernels, `paper` for those of the paper, or a file.
    board : str
    blocks, slices : sequence of int
        P and L that are asked for.
    depths : sequence of int, optional
        Depths of kernel lanes; 8 where none are given and the calibration knows the kernel.
    panel : int, optional
        Columns of its panels, where not the kernel's own.
    compute_units : int, sequence of int, "all" or "max"
        Numbers of units to predict for.
    max_units : int or callable
        Most units that fit; the best are chosen among no more.
    x_room, y_room : callable
        Elements of x, and of y of kernel lanes, on the chip, of a number of units.
    clock_hz : float, optional
        Another clock than the calibration's.
    sample_rows : int, optional
        Count tiles in about so many rows; all by default. Row lengths are always counted.
    seed : int
        Of the sample.
    symmetric : str
        As for `open_matrix`.
    reorder : {"none", "rcm"}
        Order of rows and columns, see `reorder_matrix`; with another than the matrix's own,
        `before` has the same predictions for that.

    Raises
    ------
    MatrixError, SpmvFpgaError
        If there is no such matrix or calibration, or it cannot be reordered.

    Examples
    --------
    >>> result = predict("twin:ex9")
    >>> best = result.candidates[result.best_time]
    >>> best.workload.kernel, best.time_s.origin
    ('lanes', 'modelled')
    """
    opened = _opened(matrix, symmetric)
    known = load_calibration(calibration, board)
    if clock_hz is not None:
        known = known.with_clock(clock_hz)
    if depths is None:
        depths = DEFAULT_DEPTHS if "lanes" in known.kernels else ()
    csr = reorder_matrix(_canonical(opened.csr), reorder).csr
    before = None
    if reorder != "none":
        before = predict(
            opened,
            calibration=known,
            board=board,
            blocks=blocks,
            slices=slices,
            depths=depths,
            panel=panel,
            compute_units=compute_units,
            max_units=max_units,
            x_room=x_room,
            y_room=y_room,
            sample_rows=sample_rows,
            seed=seed,
        )
    stats, errors, sampled = _counted(csr, blocks, slices, sample_rows, seed)
    stats += _lanes_stats(csr, depths, panel or DEFAULT_PANEL)
    errors += [0.0] * len(depths)
    if not stats:
        raise SpmvFpgaError("there is nothing to predict; give a block, a slice or a depth.")
    limits = [_limit(s.kernel, s.parameter, max_units) for s in stats]
    card = load_board(board)
    numbers = [_numbers(compute_units, s, max_units, known, card) for s in stats]
    panels = _Panels(csr, x_room, y_room)
    candidates, of_format = [], []
    for i, (s, error) in enumerate(zip(stats, errors, strict=True)):
        for number in numbers[i]:
            cut, rounds, num_empty = panels.cut(s, number)
            work = in_rounds(
                workload(cut, csr.shape, known, count_error=error),
                rounds,
                num_empty,
                panels.x_loads(cut),
            )
            candidates.append(predict_one(work, known, number))
            of_format.append(i)
    fits = tuple(
        c.compute_units <= limits[i] and not _is_over_cap(c, known, card)
        for c, i in zip(candidates, of_format, strict=True)
    )
    everyone = range(len(candidates))
    return PredictionSet(
        matrix=opened,
        calibration=known,
        candidates=tuple(candidates),
        best_time=_best(everyone, candidates, fits, "time_s"),
        best_energy=_best(everyone, candidates, fits, "energy_j"),
        fits=fits,
        choices=tuple(
            _choice([k for k in everyone if of_format[k] == i], candidates, fits, most)
            for i, most in enumerate(limits)
        ),
        sampled_rows=sampled,
        reorder=reorder,
        before=before,
        warnings=_warnings(opened, candidates, card, sampled)
        + _fit_warnings(candidates, [limits[i] for i in of_format], known, card),
    )


def choose(
    matrix: str | os.PathLike[str] | Matrix | csr_array,
    *,
    block: int | None = None,
    slice_size: int | None = None,
    compute_units: Units = 1,
    max_units: MaxUnits = DEFAULT_MAX_UNITS,
    board: str = "u50",
    calibration: str | os.PathLike[str] | Calibration = "u50",
    clock_hz: float | None = None,
    goal: str = "time",
) -> Prediction:
    """Choose kernel and parameter for a matrix, among those that are not given.

    Parameters
    ----------
    matrix
        As for `predict`.
    block, slice_size : int, optional
        Leave no other P, no other L to choose from.
    compute_units, max_units
        As for `predict`.
    goal : {"time", "energy"}

    Returns
    -------
    Prediction
        Its `workload` names kernel, block, slice and depth.

    Examples
    --------
    >>> choose("gallery:banded:n=900,bandwidth=400", block=8).workload.block
    8
    """
    if goal not in ("time", "energy"):
        raise SpmvFpgaError(f"goal is {goal!r}; it must be 'time' or 'energy'.")
    found = predict(
        matrix,
        calibration=calibration,
        board=board,
        blocks=DEFAULT_BLOCKS if block is None else (block,),
        slices=DEFAULT_SLICES if slice_size is None else (slice_size,),
        compute_units=compute_units,
        max_units=max_units,
        clock_hz=clock_hz,
    )
    return found.candidates[found.best_time if goal == "time" else found.best_energy]


def _opened(
    matrix: str | os.PathLike[str] | Matrix | csr_array, symmetric: Symmetric
) -> Matrix:
    if isinstance(matrix, Matrix):
        return matrix
    if isinstance(matrix, (str, os.PathLike)):
        return open_matrix(matrix, symmetric)
    return Matrix(_canonical(matrix), "matrix", "given in memory")


def _canonical(A: Any) -> csr_array:
    is_canonical = getattr(A, "format", None) == "csr" and A.has_canonical_format
    return A if is_canonical else canonical_csr(A, "predict")


# Numbers of units.


def fitting_units(
    kernel: str,
    parameter: int | None,
    max_units: MaxUnits,
    calibration: Calibration,
    board: Board,
) -> list[int]:
    """Return the numbers of units that fit a board and stay below its power cap.

    One unit is there always: a kernel that is too large alone is refused elsewhere.

    >>> card = load_board("u50")
    >>> fitting_units("block", 16, 3, load_calibration("u50"), card)
    [1, 2, 3]
    """
    most = max(_limit(kernel, parameter, max_units), 1)
    cap_w = power_cap_w(board)
    return [
        number
        for number in range(1, most + 1)
        if number == 1 or busy_power_w(kernel, parameter, calibration, number) <= cap_w
    ]


def units_to_draw(
    asked: Units,
    block: int,
    calibration: Calibration,
    board: Board,
    max_units: MaxUnits = DEFAULT_MAX_UNITS,
) -> tuple[int, ...]:
    """Return the numbers of units that a picture shows; of all, the powers of two.

    >>> known, card = load_calibration("u50"), load_board("u50")
    >>> units_to_draw("all", 16, known, card, max_units=7)
    (1, 2, 4, 7)
    """
    if asked == ALL:
        most = max(_limit("block", block, max_units), 1)
        return (*(2**k for k in range(most.bit_length()) if 2**k < most), most)
    if asked == MOST:
        return tuple(fitting_units("block", block, max_units, calibration, board)[-1:])
    return (asked,) if isinstance(asked, int) else tuple(int(n) for n in asked)


def _limit(kernel: str, parameter: int | None, max_units: MaxUnits) -> int:
    if not callable(max_units):
        return max_units
    name = {"block": "block", "lanes": "depth"}.get(kernel, "slice")
    return max_units(kernel, {name: parameter or WORD_LANES})


def _numbers(
    asked: Units,
    stats: FormatStats,
    max_units: MaxUnits,
    calibration: Calibration,
    board: Board,
) -> list[int]:
    kernel, parameter = stats.kernel, stats.parameter
    if asked == ALL:
        return list(range(1, max(_limit(kernel, parameter, max_units), 1) + 1))
    if asked == MOST:
        return fitting_units(kernel, parameter, max_units, calibration, board)[-1:]
    if isinstance(asked, str):
        raise SpmvFpgaError(
            f"compute_units is {asked!r}; it must be a number, several, '{ALL}' or '{MOST}'."
        )
    numbers = [asked] if isinstance(asked, int) else sorted(set(asked))
    if not numbers:
        raise SpmvFpgaError("compute_units is empty; give a number of units.")
    return numbers


def busy_power_w(
    kernel: str, parameter: int | None, calibration: Calibration, compute_units: int
) -> float:
    """Return the modelled power of a kernel whose ports are busy all the time, in watts.

    It is what a card must bear while the kernel runs; the power of a `Prediction` is lower,
    for it is the mean over a launch.

    >>> round(busy_power_w("block", 16, load_calibration("u50"), 1), 2)
    22.1
    """
    size = parameter or WORD_LANES
    if kernel == "lanes":
        return busy_lanes_power_w(calibration, size, compute_units)
    if kernel == "block":
        return energy_lines(calibration, block=size, compute_units=compute_units).block_power_w
    lines = energy_lines(calibration, slice_size=size, compute_units=compute_units)
    return lines.scalar_power_w


def power_cap_w(board: Board) -> float:
    """Return the watts that a board may take; infinite where its file does not say."""
    return board.value("power_cap_w") if "power_cap_w" in board.figures else math.inf


def _is_over_cap(candidate: Prediction, calibration: Calibration, board: Board) -> bool:
    work, number = candidate.workload, candidate.compute_units
    return busy_power_w(work.kernel, work.parameter, calibration, number) > power_cap_w(board)


def _best(
    among: Sequence[int], candidates: Sequence[Prediction], fits: Sequence[bool], name: str
) -> int:
    """Return the least by a figure, of those that fit if any does; the fewest units first."""
    able = [k for k in among if fits[k]] or list(among)

    def figure(k: int) -> float:
        value = getattr(candidates[k], name).value
        return math.inf if value is None else float(value)

    return min(able, key=figure)


def _choice(
    among: Sequence[int], candidates: Sequence[Prediction], fits: Sequence[bool], most: int
) -> Choice:
    work = candidates[among[0]].workload
    return Choice(
        kernel=work.kernel,
        parameter=work.parameter,
        max_units=most,
        best_time=_best(among, candidates, fits, "time_s"),
        best_energy=_best(among, candidates, fits, "energy_j"),
    )


def _fit_warnings(
    candidates: Sequence[Prediction],
    limits: Sequence[int],
    calibration: Calibration,
    board: Board,
) -> tuple[str, ...]:
    """Say of each kernel from how many units on it does not fit."""
    found: dict[str, str] = {}
    for c, most in zip(candidates, limits, strict=True):
        label = f"{c.workload.kernel} {c.workload.parameter}"
        if c.compute_units > most:
            reason = f"{most} fit board {board.name}"
        elif _is_over_cap(c, calibration, board):
            watts = busy_power_w(
                c.workload.kernel, c.workload.parameter, calibration, c.compute_units
            )
            reason = (
                f"the modelled power with busy ports is {watts:.0f} W, and the cap of board "
                f"{board.name} {power_cap_w(board):g} W"
            )
        else:
            continue
        found.setdefault(
            label, f"{label}: {c.compute_units} units or more are not chosen; {reason}."
        )
    return tuple(found.values())


# Rounds of launches.


class _Panels:
    """Cuts a matrix into panels of columns where x is longer than its room; lanes by rows."""

    def __init__(
        self, csr: csr_array, x_room: Callable[[int], int], y_room: Callable[[int], int]
    ) -> None:
        self.csr = csr
        self.x_room, self.y_room = x_room, y_room
        self._lengths: dict[int, list[npt.NDArray[np.int64]]] = {}
        self._touched: dict[tuple[int, int], list[int]] = {}

    def cut(
        self, stats: FormatStats, compute_units: int
    ) -> tuple[FormatStats, int, int | None]:
        """Return what all rounds store, their number, and their block rows without tiles."""
        if stats.kernel == "lanes":  # its panels are within a launch
            rows = compute_units * SellCSigma.max_rows(self.y_room(compute_units))
            rounds = max(-(-self.csr.shape[0] // rows), 1)
            return self._cut_rows(stats, compute_units, rounds), rounds, None
        room = self.x_room(compute_units)
        num_panels = max(-(-self.csr.shape[1] // room), 1)
        if num_panels == 1:
            return stats, 1, None
        if stats.kernel == "scalar":
            return self._cut_slices(stats, room), num_panels, None
        num_empty = self._num_empty(stats, room)
        descriptors = (stats.blocks or 0) + num_empty
        num_words = stats.num_stored // WORD_LANES + -(-descriptors // DESCRIPTORS_PER_WORD)
        return replace(stats, num_words=num_words), num_panels, num_empty

    def x_loads(self, cut: FormatStats) -> float:
        """Return how often a unit of kernel lanes loads x, in all rounds."""
        if not cut.panel:
            return 1.0
        return cut.num_panels / float(max(-(-self.csr.shape[1] // cut.panel), 1))

    def _cut_rows(self, stats: FormatStats, compute_units: int, rounds: int) -> FormatStats:
        """Units and rounds sort their entries for themselves; each passes the panels it has."""
        if compute_units * rounds == 1 or not stats.panel:
            return stats
        touched = self._touched_panels(compute_units * rounds, stats.panel)
        cut = in_runs(stats, sum(touched))
        return replace(cut, num_panels=rounds * max(touched))

    def _touched_panels(self, runs: int, panel: int) -> list[int]:
        """Return the panels with entries of every run, which has as many entries as another."""
        if (runs, panel) not in self._touched:
            ends = [self.csr.nnz * k // runs for k in range(runs + 1)]
            self._touched[runs, panel] = [
                int(np.count_nonzero(np.bincount(self.csr.indices[start:end] // panel)))
                for start, end in pairwise(ends)
            ]
        return self._touched[runs, panel]

    def _cut_slices(self, stats: FormatStats, room: int) -> FormatStats:
        """Each panel's slice is as wide as its longest row there."""
        height = stats.slice_size or WORD_LANES
        widths = [slice_widths(lengths, height) for lengths in self._row_lengths(room)]
        num_stored = height * sum(int(w.sum()) for w in widths)
        return replace(
            stats,
            num_stored=num_stored,
            num_words=sum(2 * words_for(height * int(np.maximum(w, 1).sum())) for w in widths),
            matrix_bytes=8 * num_stored,
        )

    def _num_empty(self, stats: FormatStats, room: int) -> int:
        """Tiles stay as they are; a panel's block row without any takes a descriptor."""
        starts = np.arange(0, self.csr.shape[0], stats.block or WORD_LANES)
        if not len(starts):
            return 0
        return sum(
            int(np.count_nonzero(np.add.reduceat(lengths, starts) == 0))
            for lengths in self._row_lengths(room)
        )

    def _row_lengths(self, room: int) -> list[npt.NDArray[np.int64]]:
        """Return the entries of every row in each panel; as many as panels, of shape (m,)."""
        if room not in self._lengths:
            m = self.csr.shape[0]
            rows = np.repeat(np.arange(m), np.diff(self.csr.indptr))
            panel = self.csr.indices // room
            self._lengths[room] = [
                np.bincount(rows[panel == k], minlength=m)
                for k in range(-(-self.csr.shape[1] // room))
            ]
        return self._lengths[room]


def _warnings(
    matrix: Matrix, candidates: Sequence[Prediction], board: Board, sampled: int | None
) -> tuple[str, ...]:
    found = list(matrix.warnings)
    if matrix.is_twin:
        found.append(
            "A twin follows its original in n, nnz and 16 × 16 tiles; tiles of another size, "
            "and how evenly its rows are filled, are the twin's own."
        )
    if sampled is not None:
        worst = max(c.workload.count_error for c in candidates)
        found.append(
            f"tiles were counted in {count(sampled)} of {count(matrix.csr.shape[0])} rows; "
            f"counts are within {percent(worst)} at 95 %."
        )
    large: dict[str, str] = {}
    panels: dict[int, list[int]] = {}
    parts: dict[int, list[int]] = {}
    for c in candidates:
        found += c.warnings
        label = f"{c.workload.kernel} {c.workload.parameter}"
        unit_bytes = c.workload.share(c.compute_units).bytes
        if unit_bytes > board.bank_bytes:
            large[label] = (
                f"{label}: the matrix takes {bytes_text(unit_bytes)} a unit with "
                f"{c.compute_units}; a bank of board {board.name} has "
                f"{bytes_text(board.bank_bytes)}."
            )
        if c.workload.launches > 1:
            cut = parts if c.workload.kernel == "lanes" else panels
            cut.setdefault(c.workload.launches, []).append(c.compute_units)
    if panels:
        how_many = "; ".join(
            f"{number} panels where units are {ranges(users)}"
            for number, users in panels.items()
        )
        found.append(
            f"x has {count(matrix.csr.shape[1])} elements, too many for the chip, so columns "
            f"go in panels, each with a launch ({how_many}); adding up y on the host is not in "
            "the time."
        )
    if parts:
        how_many = "; ".join(
            f"{number} parts where units are {ranges(users)}" for number, users in parts.items()
        )
        found.append(
            f"y has {count(matrix.csr.shape[0])} elements, too many for the chip in kernel "
            f"lanes, so rows go in parts, each with a launch ({how_many})."
        )
    labels = {f"{c.workload.kernel} {c.workload.parameter}" for c in candidates}
    return _grouped([*found, *large.values()], labels)


def _grouped(warnings: Sequence[str], labels: Collection[str]) -> tuple[str, ...]:
    """Say once what holds for several kernels.

    >>> _grouped(["a 4: too large.", "a 8: too large.", "odd."], {"a 4", "a 8"})
    ('a 4, a 8: too large.', 'odd.')
    """
    kernels: dict[str, list[str]] = {}
    for warning in dict.fromkeys(warnings):
        label, _, text = warning.partition(": ")
        if label in labels:
            kernels.setdefault(text, []).append(label)
        else:
            kernels.setdefault(warning, [])
    return tuple(
        f"{', '.join(names)}: {text}" if names else text for text, names in kernels.items()
    )


def _candidate_document(candidate: Prediction) -> dict[str, Any]:
    work = candidate.workload
    return {
        "kernel": work.kernel,
        "block": work.block,
        "slice": work.slice_size,
        "depth": work.depth,
        "compute_units": candidate.compute_units,
        "launches": work.launches,
        "num_stored": work.num_stored,
        "blocks": work.blocks,
        "density": work.density,
        "cia": candidate.cia,
        "theoretical_cia": candidate.theoretical_cia,
        "access_bytes": work.access_bytes,
        "accesses": work.accesses,
        "matrix_bytes": work.matrix_bytes,
        "bytes": work.bytes,
        "count_error": work.count_error,
        "bound": candidate.bound,
        "time_s": candidate.time_s.to_json(),
        "gflops": candidate.gflops.to_json(),
        "power_w": candidate.power_w.to_json(),
        "energy_j": candidate.energy_j.to_json(),
        "terms": {
            f"{name}_s": {"value": seconds, "origin": "modelled"}
            for name, seconds in candidate.terms.items()
        },
        "energy_parts": {
            f"{name}_j": {"value": joules, "origin": "modelled"}
            for name, joules in candidate.energy_parts.items()
        },
    }


# Counting, whole or sampled.


def _counted(
    csr: csr_array,
    blocks: Sequence[int],
    slices: Sequence[int],
    sample_rows: int | None,
    seed: int,
) -> tuple[tuple[FormatStats, ...], list[float], int | None]:
    """Return stats, the relative error of each one's counts, and the rows looked at."""
    num_strips = -(-csr.shape[0] // STRIP_ROWS)
    if sample_rows is not None and sample_rows < 1:
        raise SpmvFpgaError(f"sample_rows is {sample_rows}; it must be 1 or more.")
    wanted = num_strips
    if sample_rows is not None:
        wanted = max(MIN_STRIPS, -(-sample_rows // STRIP_ROWS))
    if wanted >= num_strips or not csr.nnz or not blocks:
        stats = format_stats(csr, blocks=blocks, slices=slices)
        return stats, [0.0] * len(stats), None
    exact = format_stats(csr, blocks=(), slices=slices)
    entries = _entries_per_strip(csr)
    drawn = _draw(entries, wanted, np.random.default_rng(seed))
    sampled = [_sampled(csr, P, entries, drawn) for P in blocks]
    errors = [0.0] * len(exact) + [error for _, error in sampled]
    num_rows = min(len(np.unique(drawn)) * STRIP_ROWS, csr.shape[0])
    return (*exact, *(s for s, _ in sampled)), errors, num_rows


def _lanes_stats(csr: csr_array, depths: Sequence[int], panel: int) -> tuple[FormatStats, ...]:
    """Count SELL-C-sigma, part by part where there are more rows than addresses."""
    m = csr.shape[0]
    parts = [csr]
    if depths and m > MAX_ROWS:
        parts = [_rows(csr, i, min(i + MAX_ROWS, m)) for i in range(0, m, MAX_ROWS)]
    counted = [
        format_stats(part, blocks=(), slices=(), depths=depths, panel=panel) for part in parts
    ]
    return tuple(map(_joined, zip(*counted, strict=True)))


def _joined(parts: Sequence[FormatStats]) -> FormatStats:
    """Return what parts of the rows store together."""
    widest = max(parts, key=lambda s: s.num_panels)
    return replace(
        widest,
        nnz=sum(s.nnz for s in parts),
        num_stored=sum(s.num_stored for s in parts),
        num_words=sum(s.num_words for s in parts),
        matrix_bytes=sum(s.matrix_bytes for s in parts),
        num_chunks=sum(s.num_chunks for s in parts),
    )


def _draw(
    entries: npt.NDArray[np.int64], num_draws: int, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draw strips in proportion to their entries, evenly over the matrix.

    Systematic sampling: every so many entries from a random start, and the strip that the
    entry is in. A strip with many entries may be drawn more than once.
    """
    step = int(entries.sum()) / num_draws
    targets = ((np.arange(num_draws) + rng.random()) * step).astype(np.int64)
    return np.searchsorted(np.cumsum(entries), targets, side="right").astype(np.int64)


def _sampled(
    csr: csr_array,
    block: int,
    entries: npt.NDArray[np.int64],
    drawn: npt.NDArray[np.int64],
) -> tuple[FormatStats, float]:
    """Estimate Blocked ELL's counts from the strips drawn.

    Where strips are drawn in proportion to their entries, the mean of tiles per entry
    estimates that of the matrix (W. G. Cochran, Sampling Techniques, chapter 9A). A tile
    per entry is the most, so no strip can be far off by itself.
    """
    check_block(block)
    strips, times = np.unique(drawn, return_counts=True)
    tiles = np.array([count_blocks(_strip(csr, int(s)), block) for s in strips], np.float64)
    per_entry = np.repeat(tiles / entries[strips], times)
    mean, k = float(per_entry.mean()), len(per_entry)
    reach = float(student_t.ppf(0.5 + _CONFIDENCE / 2, k - 1)) * float(
        per_entry.std(ddof=1) / math.sqrt(k)
    )
    nnz = int(csr.nnz)
    blocks = min(max(round(mean * nnz), -(-nnz // block**2)), nnz)
    return _blocked_stats(csr, block, blocks), max(reach / mean, LEAST_SAMPLING_ERROR)


def _entries_per_strip(csr: csr_array) -> npt.NDArray[np.int64]:
    m = csr.shape[0]
    starts = np.append(np.arange(0, m, STRIP_ROWS), m)
    return np.asarray(np.diff(csr.indptr[starts].astype(np.int64)))


def _strip(csr: csr_array, number: int) -> csr_array:
    """Return the rows of a strip."""
    first = number * STRIP_ROWS
    return _rows(csr, first, min(first + STRIP_ROWS, csr.shape[0]))


def _rows(csr: csr_array, first: int, last: int) -> csr_array:
    """Return rows of a matrix; their columns and values are views."""
    begin, end = int(csr.indptr[first]), int(csr.indptr[last])
    part = csr_array((last - first, csr.shape[1]), dtype=csr.dtype)
    part.indptr = csr.indptr[first : last + 1] - csr.indptr[first]
    part.indices = csr.indices[begin:end]
    part.data = csr.data[begin:end]
    return part


def _blocked_stats(csr: csr_array, block: int, blocks: int) -> FormatStats:
    m = csr.shape[0]
    starts = np.append(np.arange(0, m, block), m)
    num_empty = int(np.count_nonzero(np.diff(csr.indptr[starts]) == 0))
    num_stored = blocks * block**2
    return FormatStats(
        kernel="block",
        block=block,
        slice_size=None,
        nnz=int(csr.nnz),
        num_stored=num_stored,
        blocks=blocks,
        num_words=-(-(blocks + num_empty) // DESCRIPTORS_PER_WORD) + num_stored // WORD_LANES,
        matrix_bytes=4 * num_stored + 4 * blocks,
    )
