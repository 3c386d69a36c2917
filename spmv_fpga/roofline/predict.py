"""What each kernel would take for a matrix, before anything is built.

All follows from what the formats would store: row lengths and tiles are counted in
O(nnz), nothing padded is made. Where even that is too much, tiles are counted in some of
the rows and the result says how far that may be off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.stats import t as student_t

from ..boards import Board, load_board
from ..errors import SpmvFpgaError
from ..formats import BLOCK_SIZES, FormatStats, count_blocks, format_stats
from ..formats.base import WORD_LANES, canonical_csr
from ..formats.blocked_ell import DESCRIPTORS_PER_WORD, check_block
from ..matrices import Matrix, Symmetric, open_matrix
from .calibration import Calibration, load_calibration
from .model import Prediction, predict_one, workload

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


@dataclass(frozen=True, kw_only=True)
class PredictionSet:
    """Predictions for one matrix, and the choice.

    Attributes
    ----------
    matrix : Matrix
    calibration : Calibration
    candidates : tuple of Prediction
        Scalar first, then Block by P.
    best_time, best_energy : int
        Index of the candidate with the least time, the least energy.
    sampled_rows : int or None
        Rows in which tiles were counted; None for all.
    warnings : tuple of str
        Sentences that a report must repeat.
    """

    matrix: Matrix
    calibration: Calibration
    candidates: tuple[Prediction, ...]
    best_time: int
    best_energy: int
    sampled_rows: int | None = None
    warnings: tuple[str, ...] = ()

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
            "candidates": [_candidate_document(c) for c in self.candidates],
            "best_time": self.best_time,
            "best_energy": self.best_energy,
            "sampled_rows": self.sampled_rows,
            "warnings": list(self.warnings),
        }


def predict(
    matrix: str | os.PathLike[str] | Matrix | csr_array,
    *,
    calibration: str | os.PathLike[str] | Calibration = "u50",
    board: str = "u50",
    blocks: Sequence[int] = DEFAULT_BLOCKS,
    slices: Sequence[int] = DEFAULT_SLICES,
    compute_units: int = 1,
    clock_hz: float | None = None,
    sample_rows: int | None = None,
    seed: int = _SEED,
    symmetric: Symmetric = "expand",
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
    compute_units : int
    clock_hz : float, optional
        Another clock than the calibration's.
    sample_rows : int, optional
        Count tiles in about so many rows; all by default. Row lengths are always counted.
    seed : int
        Of the sample.
    symmetric : str
        As for `open_matrix`.

    Raises
    ------
    MatrixError, SpmvFpgaError
        If there is no such matrix or calibration.

    Examples
    --------
    >>> result = predict("twin:ex9")
    >>> best = result.candidates[result.best_time]
    >>> best.workload.kernel, best.time_s.origin
    ('block', 'modelled')
    """
    opened = _opened(matrix, symmetric)
    known = load_calibration(calibration, board)
    if clock_hz is not None:
        known = known.with_clock(clock_hz)
    csr = _canonical(opened.csr)
    stats, errors, sampled = _counted(csr, blocks, slices, sample_rows, seed)
    if not stats:
        raise SpmvFpgaError("there is nothing to predict; give a block or a slice.")
    candidates = tuple(
        predict_one(workload(s, csr.shape, known, count_error=error), known, compute_units)
        for s, error in zip(stats, errors, strict=True)
    )
    return PredictionSet(
        matrix=opened,
        calibration=known,
        candidates=candidates,
        best_time=_least([c.time_s.value for c in candidates]),
        best_energy=_least([c.energy_j.value for c in candidates]),
        sampled_rows=sampled,
        warnings=_warnings(opened, candidates, load_board(board), sampled),
    )


def choose(
    matrix: str | os.PathLike[str] | Matrix | csr_array,
    *,
    block: int | None = None,
    slice_size: int | None = None,
    compute_units: int = 1,
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
    goal : {"time", "energy"}

    Returns
    -------
    Prediction
        Its `workload` names kernel, block and slice.

    Examples
    --------
    >>> choose("twin:ex9", block=8).workload.block
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


def _least(values: Sequence[float | None]) -> int:
    known = [math.inf if value is None else value for value in values]
    return known.index(min(known))


def _warnings(
    matrix: Matrix, candidates: Sequence[Prediction], board: Board, sampled: int | None
) -> tuple[str, ...]:
    found = list(matrix.warnings)
    if sampled is not None:
        worst = max(c.workload.count_error for c in candidates)
        found.append(
            f"tiles were counted in {sampled} of {matrix.csr.shape[0]} rows; counts are within "
            f"{worst:.1%} at 95 %."
        )
    for c in candidates:
        found += c.warnings
        unit_bytes = c.workload.share(c.compute_units).bytes
        if unit_bytes > board.bank_bytes:
            found.append(
                f"{c.workload.kernel} {c.workload.parameter}: the matrix takes {unit_bytes} "
                f"bytes a unit; a bank of board {board.name} has {board.bank_bytes}."
            )
    return tuple(dict.fromkeys(found))


def _candidate_document(candidate: Prediction) -> dict[str, Any]:
    work = candidate.workload
    return {
        "kernel": work.kernel,
        "block": work.block,
        "slice": work.slice_size,
        "compute_units": candidate.compute_units,
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
    """Return the rows of a strip; its arrays are views."""
    first = number * STRIP_ROWS
    last = min(first + STRIP_ROWS, csr.shape[0])
    begin, end = int(csr.indptr[first]), int(csr.indptr[last])
    strip = csr_array((last - first, csr.shape[1]), dtype=csr.dtype)
    strip.indptr = csr.indptr[first : last + 1] - csr.indptr[first]
    strip.indices = csr.indices[begin:end]
    strip.data = csr.data[begin:end]
    return strip


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
