"""The published tables beside the model: which figures agree, and by how much.

The tables are those of Favaro et al., Micromachines 14(11):2030, 2023, or others in the
same columns. Every row is predicted twice: by the fit to all rows, and by a fit that never
saw the row. Nothing of the left-out row takes part, scale factors included; its order,
entries and density only enter its own prediction.

The shipped calibration `paper` is the fit to the shipped `paper.csv`, written by
``fit_paper(load_tables()).calibration.save("calibrations/paper.toml")``.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from ..boards import load_board
from ..errors import MatrixError, SpmvFpgaError
from ..figures import Figure
from ..files import require_file
from ..formats import count_blocks
from ..formats.base import density
from ..matrices import open_matrix
from ..matrices.collection import find_archive
from ..matrices.suite import SuiteEntry, find_in_suite
from ..matrices.twins import TwinFigures, make_twin
from ..units import percent
from .calibration import (
    Calibration,
    KernelCalibration,
    Parameter,
    Power,
    Term,
    load_calibration,
)
from .emulated import BOARD, Times, load_emulated, time_of
from .model import Prediction, predict_one, published_workload
from .regression import Fit, fit_with_errors, mean_absolute

TABLES = Path(__file__).resolve().parent / "paper.csv"
CITATION = "Favaro et al., Micromachines 14(11):2030, 2023"
DENSE = 0.10
"""Density from which the whole per cent that Table 1 prints is within 5 % of the truth."""
HALF_A_PERCENT = 0.005
"""What a printed density may be off by rounding."""

MIN_ROWS = 5
"""Matrices from which three parameters, their errors and left-out figures can be had."""

KERNELS = ("scalar", "block")
_TILE = 16
_COLUMNS = (
    "name", "suitesparse_group", "suitesparse_name", "n", "nnz", "block16_density_pct",
    "t_cpu_mkl_ms", "t_fpga_scalar_ms", "t_fpga_block16_ms", "e_cpu_mkl_mj",
    "e_fpga_scalar_mj", "e_fpga_block16_mj",
)  # fmt: skip
_SUFFIXES = (".mtx", ".mtx.gz", ".mtx.bz2", ".tar.gz", ".mat", ".npz")


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """A matrix as the tables have it, in SI units.

    Attributes
    ----------
    name, group, matrix : str
        Short name, and group and name in the SuiteSparse Matrix Collection.
    n, nnz : int
    density : float
        Of 16×16 tiles, as printed.
    cpu_time_s, cpu_energy_j : float
    time_s, energy_j : dict of str to float
        By kernel.
    """

    name: str
    group: str
    matrix: str
    n: int
    nnz: int
    density: float
    cpu_time_s: float
    cpu_energy_j: float
    time_s: Mapping[str, float]
    energy_j: Mapping[str, float]

    def winner(self, figures: Mapping[str, float]) -> str:
        """Return the kernel with the lower figure; Scalar where they are equal."""
        return "block" if figures["block"] < figures["scalar"] else "scalar"


def load_tables(path: str | os.PathLike[str] | None = None) -> tuple[PublishedRow, ...]:
    """Read published tables.

    Parameters
    ----------
    path : path, optional
        CSV with the columns of the shipped `paper.csv`; lines that begin with `#` are notes.

    Raises
    ------
    SpmvFpgaError
        If the file cannot be read, lacks a column, or a number is wrong; with the line.

    Examples
    --------
    >>> rows = load_tables()
    >>> len(rows), rows[-1].name, rows[-1].time_s["block"]
    (27, 'TS2383', 0.007253)
    """
    source = Path(TABLES if path is None else path)
    try:
        require_file(source)
        lines = source.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SpmvFpgaError(f"{source}: cannot be read: {reason}.") from None
    numbered = [(i, t) for i, t in enumerate(lines, 1) if t.strip() and not t.startswith("#")]
    records = csv.reader(text for _, text in numbered)
    header = next(records, [])
    missing = [column for column in _COLUMNS if column not in header]
    if missing:
        raise SpmvFpgaError(f"{source}: no column {', '.join(missing)}; add it.")
    rows = tuple(
        _published_row(dict(zip(header, record, strict=False)), f"{source}: line {line}")
        for (line, _), record in zip(numbered[1:], records, strict=True)
    )
    if not rows:
        raise SpmvFpgaError(f"{source}: no rows; add one a matrix.")
    names = [row.name for row in rows]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise SpmvFpgaError(f"{source}: {', '.join(twice)} stands there twice; keep one.")
    return rows


def _published_row(record: Mapping[str, str], where: str) -> PublishedRow:
    def number(column: str) -> float:
        text = record.get(column, "")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value > 0):
            raise SpmvFpgaError(f"{where}: {column} is {text!r}; it must be a number above 0.")
        return value

    def whole(column: str) -> int:
        value = number(column)
        if value != int(value):
            raise SpmvFpgaError(f"{where}: {column} is {value}; it must be a whole number.")
        return int(value)

    percent = number("block16_density_pct")
    if percent > 100:
        raise SpmvFpgaError(f"{where}: block16_density_pct is {percent:g}; 100 is the most.")
    return PublishedRow(
        name=record["name"],
        group=record["suitesparse_group"],
        matrix=record["suitesparse_name"],
        n=whole("n"),
        nnz=whole("nnz"),
        density=percent / 100,
        cpu_time_s=number("t_cpu_mkl_ms") / 1e3,
        cpu_energy_j=number("e_cpu_mkl_mj") / 1e3,
        time_s={
            "scalar": number("t_fpga_scalar_ms") / 1e3,
            "block": number("t_fpga_block16_ms") / 1e3,
        },
        energy_j={
            "scalar": number("e_fpga_scalar_mj") / 1e3,
            "block": number("e_fpga_block16_mj") / 1e3,
        },
    )


# The fit.


@dataclass(frozen=True, eq=False)
class PaperFit:
    """The calibration of the paper's kernels and what it misses.

    Attributes
    ----------
    calibration : Calibration
    time, power : dict of str to Fit
        By kernel, rows in the order of the tables.
    """

    calibration: Calibration
    time: Mapping[str, Fit]
    power: Mapping[str, Fit]


def fit_paper(rows: Sequence[PublishedRow], citation: str = CITATION) -> PaperFit:
    """Fit the paper's two kernels to its Table 2.

    Time is a constant, a cost per row and one per access, for Scalar per entry, because its
    slots are not published. Power is a constant for Scalar; that of Block rises with the
    rate of its bytes. Errors are relative, coefficients never negative (`regression`), and
    all rows take part.

    Parameters
    ----------
    rows : sequence of PublishedRow
    citation : str
        Goes into the parameters' sources.

    Examples
    --------
    >>> fit = fit_paper(load_tables())
    >>> round(fit.calibration.kernel("block").power.idle_w.value, 1)
    17.4
    """
    if len(rows) < MIN_ROWS:
        raise SpmvFpgaError(
            f"the tables have {len(rows)} matrices; a fit needs {MIN_ROWS} or more."
        )
    # The rates and the idle power are no part of the fit: they come from elsewhere.
    given = load_calibration("u50")
    counts = {kernel: _time_counts(kernel, rows) for kernel in KERNELS}
    times = {kernel: np.array([row.time_s[kernel] for row in rows]) for kernel in KERNELS}
    powers = {
        kernel: np.array([row.energy_j[kernel] / row.time_s[kernel] for row in rows])
        for kernel in KERNELS
    }
    time = {kernel: fit_with_errors(counts[kernel], times[kernel]) for kernel in KERNELS}
    rates = 4 * _TILE * counts["block"][:, 2] / times["block"]
    ones = np.ones((len(rows), 1))
    power = {
        "scalar": fit_with_errors(ones, powers["scalar"]),
        "block": fit_with_errors(np.column_stack((ones, rates)), powers["block"]),
    }
    idle = given.kernel("block").power.idle_w
    kernels = {
        kernel: _fitted_kernel(kernel, rows, time[kernel], power[kernel], idle, citation)
        for kernel in KERNELS
    }
    is_dense = np.array([row.density >= DENSE for row in rows])
    calibration = Calibration(
        name="paper",
        title=f"the kernels of {citation}, as its Table 2 shows them",
        rates={
            "clock_hz": _rounded_rate(given.rate("clock_hz"), "the paper prints no clock"),
            "channel_bytes_per_s": _rounded_rate(
                given.rate("channel_bytes_per_s"),
                "the paper prints no bandwidth, its largest matrices show 11.3 to 12.6 GB/s",
            ),
        },
        kernels=kernels,
        errors=_left_out_errors(time, power, is_dense),
    )
    return PaperFit(calibration, time, power)


def _time_counts(kernel: str, rows: Sequence[PublishedRow]) -> np.ndarray[Any, Any]:
    """Count launches, rows and accesses of every matrix, shape (m, 3)."""
    accesses = [
        float(row.nnz) if kernel == "scalar" else row.nnz / (_TILE * row.density)
        for row in rows
    ]
    return np.column_stack((np.ones(len(rows)), [float(row.n) for row in rows], accesses))


def _left_out_errors(
    time: Mapping[str, Fit], power: Mapping[str, Fit], is_dense: np.ndarray[Any, Any]
) -> dict[str, float]:
    errors = {
        f"{kernel}_time": _rounded(time[kernel].mean_left_out_error) for kernel in KERNELS
    }
    if is_dense.any():
        dense = time["block"].left_out_errors[is_dense]
        errors["block_time_dense"] = _rounded(mean_absolute(dense))
    for kernel in KERNELS:
        error = _rounded(power[kernel].mean_left_out_error)
        errors[f"{kernel}_energy_given_time"] = error
    return errors


def _fitted_kernel(
    kernel: str,
    rows: Sequence[PublishedRow],
    time: Fit,
    power: Fit,
    idle: Parameter,
    citation: str,
) -> KernelCalibration:
    is_block = kernel == "block"
    source = f"{citation}: robust fit to Table 2, {len(rows)} matrices"
    last = ("accesses", "beats") if is_block else ("entries", "nnz")
    names = (("launch", "launches"), ("rows", "rows"), last)
    constant = float(power.coefficients[0])
    low, high = power.bounds(0)
    slope = Parameter(0.0, 0.0, 0.0, f"{citation}: the power of Scalar is a constant")
    return KernelCalibration(
        access="values",
        lanes=None if is_block else 1,
        terms=tuple(
            Term(name, count, seconds=_fitted(time, k, source))
            for k, (name, count) in enumerate(names)
        ),
        power=Power(
            idle_w=idle,
            kernel_w=Parameter(
                _rounded(max(constant - idle.value, 0.0)),
                _rounded(max(low - idle.value, 0.0)),
                _rounded(max(high - idle.value, 0.0)),
                f"{source}, energy over time, less the idle power",
            ),
            w_per_byte_per_s=_fitted(power, 1, f"{source}, energy over time")
            if is_block
            else slope,
        ),
        time_scatter=_rounded(time.scatter),
        power_scatter=_rounded(power.scatter),
        blocks=(_TILE,) if is_block else (),
        covers=_covers(kernel, rows),
    )


def _covers(kernel: str, rows: Sequence[PublishedRow]) -> dict[str, tuple[float, float]]:
    def span(values: Sequence[float]) -> tuple[float, float]:
        return float(min(values)), float(max(values))

    covers = {"rows": span([row.n for row in rows]), "nnz": span([row.nnz for row in rows])}
    if kernel == "block":
        low, high = span([row.density for row in rows])
        covers["density"] = (
            _rounded(max(low - HALF_A_PERCENT, 0.0)),
            _rounded(min(high + HALF_A_PERCENT, 1.0)),
        )
    return covers


def _fitted(fit: Fit, k: int, source: str) -> Parameter:
    low, high = fit.bounds(k)
    return Parameter(
        _rounded(float(fit.coefficients[k])), _rounded(low), _rounded(high), source
    )


def _rounded_rate(rate: Parameter, note: str) -> Parameter:
    return Parameter(rate.value, rate.low, rate.high, f"{note}; taken: {rate.source}")


def _rounded(value: float) -> float:
    """Six digits: more would differ between machines and say nothing."""
    return float(f"{value:.6g}")


# Table 1.


@dataclass(frozen=True, kw_only=True)
class DensityRow:
    """A row of Table 1: what is printed, and what the matrix at hand shows.

    Attributes
    ----------
    row : PublishedRow
    n, nnz, blocks : int or None
        Counted; None where no matrix could be had.
    density : float or None
        nnz ÷ (256 · blocks), a fraction.
    source : str
        `real`, or `twin` for a synthetic matrix made from the printed figures.
    reason : str or None
        Why there is no density.
    """

    row: PublishedRow
    n: int | None
    nnz: int | None
    blocks: int | None
    density: float | None
    source: str
    reason: str | None = None


def table_1(
    rows: Sequence[PublishedRow], folder: str | os.PathLike[str] | None = None
) -> tuple[DensityRow, ...]:
    """Count the densities of Table 1, without any download.

    Parameters
    ----------
    rows : sequence of PublishedRow
    folder : path, optional
        Folder that is searched for the real matrices first, then the cache; a matrix that
        is in neither is replaced by its twin, and so marked.
    """
    return tuple(_density_row(row, None if folder is None else Path(folder)) for row in rows)


def _density_row(row: PublishedRow, folder: Path | None) -> DensityRow:
    try:
        csr, source = matrix_of(row, folder)
    except MatrixError as error:
        return DensityRow(
            row=row,
            n=None,
            nnz=None,
            blocks=None,
            density=None,
            source="real" if find_real(row, folder) else "twin",
            reason=str(error),
        )
    blocks = count_blocks(csr, _TILE)
    return DensityRow(
        row=row,
        n=int(csr.shape[0]),
        nnz=int(csr.nnz),
        blocks=blocks,
        density=density(int(csr.nnz), _TILE * _TILE * blocks),
        source=source,
    )


def matrix_of(row: PublishedRow, folder: Path | None = None) -> tuple[csr_array, str]:
    """Return a row's matrix, a triangle where the paper multiplied one: `real` or `twin`.

    Raises
    ------
    MatrixError
        If the file is damaged, or no twin has such figures.
    """
    path = find_real(row, folder)
    return (open_matrix(path, "stored").csr, "real") if path else (_twin(row), "twin")


def find_real(row: PublishedRow, folder: Path | None) -> Path | None:
    """Return the file of a row's real matrix, in a folder or the cache, or None."""
    if folder is not None:
        for place in (folder, folder / row.group):
            for suffix in _SUFFIXES:
                path = place / f"{row.matrix}{suffix}"
                if path.is_file():
                    return path
    return find_archive(f"{row.group}/{row.matrix}") if row.group else None


def _twin(row: PublishedRow) -> Any:
    entry = find_in_suite(f"{row.group}/{row.matrix}")
    if entry is not None and _is_as_published(row, entry):
        return open_matrix(f"twin:{entry.short}").csr
    is_triangle = entry is not None and entry.is_symmetric
    return make_twin(
        TwinFigures(
            f"twin of {row.name}", "published figures", row.n, row.nnz, row.density, is_triangle
        )
    )


def _is_as_published(row: PublishedRow, entry: SuiteEntry) -> bool:
    same_size = (row.n, row.nnz) == (entry.n, entry.nnz)
    return same_size and math.isclose(row.density, entry.density_percent / 100)


# Table 2.


@dataclass(frozen=True, kw_only=True)
class TimeRow:
    """A row of Table 2 for one kernel: published beside modelled.

    Attributes
    ----------
    row : PublishedRow
    kernel : str
    model : Prediction
        By the fit to all rows.
    time_left_out_s : Figure
        By a fit that never saw this row.
    energy_given_time_j : Figure
        Left-out power × the published time.
    time_rounding_s : (float, float)
        Modelled times at the ends of what the printed density may stand for.
    time_emulated_s : Figure
        This project's kernel on the emulated card, one unit, without starting it.
    emulated_source : str or None
        `real`, or `twin` for a synthetic matrix; None where there is no emulated time.
    """

    row: PublishedRow
    kernel: str
    model: Prediction
    time_left_out_s: Figure
    energy_given_time_j: Figure
    time_rounding_s: tuple[float, float]
    time_emulated_s: Figure
    emulated_source: str | None

    @property
    def time_published_s(self) -> float:
        """Seconds of Table 2."""
        return self.row.time_s[self.kernel]

    @property
    def energy_published_j(self) -> float:
        """Joules of Table 2."""
        return self.row.energy_j[self.kernel]

    @property
    def time_error(self) -> float:
        """Relative error of the left-out time."""
        return _value(self.time_left_out_s) / self.time_published_s - 1.0

    @property
    def emulated_error(self) -> float | None:
        """Relative distance of the emulated time from the published one."""
        value = self.time_emulated_s.value
        return None if value is None else value / self.time_published_s - 1.0

    @property
    def energy_error(self) -> float:
        """Relative error of the energy with the time given."""
        return _value(self.energy_given_time_j) / self.energy_published_j - 1.0

    @property
    def rounding_error(self) -> float:
        """Half the width of `time_rounding_s` over the modelled time."""
        low, high = self.time_rounding_s
        return (high - low) / 2 / _value(self.model.time_s)


def _value(figure: Figure) -> float:
    return math.nan if figure.value is None else figure.value


def table_2(
    rows: Sequence[PublishedRow], fit: PaperFit, emulated: Times | None = None
) -> tuple[TimeRow, ...]:
    """Hold Table 2 against the model, Scalar and Block of each matrix in turn."""
    times = load_emulated() if emulated is None else emulated
    return tuple(
        _time_row(i, row, kernel, fit, times)
        for i, row in enumerate(rows)
        for kernel in KERNELS
    )


def _time_row(i: int, row: PublishedRow, kernel: str, fit: PaperFit, times: Times) -> TimeRow:
    def model(density_16: float) -> Prediction:
        work = published_workload(kernel, row.n, row.nnz, density_16, fit.calibration)
        return predict_one(work, fit.calibration)

    densest = min(row.density + HALF_A_PERCENT, 1.0)
    sparsest = max(row.density - HALF_A_PERCENT, row.density / 2)
    left_out_power = float(fit.power[kernel].left_out[i])
    emulated_s = time_of(times, row.name, kernel, load_board(BOARD))
    is_known = emulated_s.value is not None
    return TimeRow(
        row=row,
        kernel=kernel,
        model=model(row.density),
        time_left_out_s=_modelled(float(fit.time[kernel].left_out[i])),
        energy_given_time_j=_modelled(left_out_power * row.time_s[kernel]),
        time_rounding_s=(_value(model(densest).time_s), _value(model(sparsest).time_s)),
        time_emulated_s=emulated_s,
        emulated_source=times[row.name, kernel].source if is_known else None,
    )


def _modelled(value: float) -> Figure:
    """Return a left-out figure; without bounds, which other rows' errors would give it."""
    return Figure(value=value, origin="modelled")


# The whole.


@dataclass(frozen=True, kw_only=True)
class PaperResult:
    """Both tables, the fit, and what they say.

    Attributes
    ----------
    rows : tuple of PublishedRow
    fit : PaperFit
    table1 : tuple of DensityRow
    table2 : tuple of TimeRow
    summary : dict
        Facts as data, and `sentences`.
    """

    rows: tuple[PublishedRow, ...]
    fit: PaperFit
    table1: tuple[DensityRow, ...]
    table2: tuple[TimeRow, ...]
    summary: dict[str, Any]

    @property
    def calibration(self) -> Calibration:
        """The calibration fitted to these rows."""
        return self.fit.calibration

    def to_json(self) -> dict[str, Any]:
        """Return the result of `spmv-fpga paper` as a JSON document."""
        return {
            "table1": [_density_document(row) for row in self.table1],
            "table2": [_time_document(row) for row in self.table2],
            "summary": self.summary,
        }


def reproduce(
    tables: str | os.PathLike[str] | None = None,
    *,
    matrices: str | os.PathLike[str] | None = None,
    with_densities: bool = True,
    emulated: Times | None = None,
) -> PaperResult:
    """Make Tables 1 and 2 with this project's figures beside the published ones.

    Parameters
    ----------
    tables : path, optional
        Other published figures in the same columns; they get a fit of their own.
    matrices : path, optional
        Folder with real matrices.
    with_densities : bool
        Whether to count Table 1, which makes or reads every matrix.
    emulated : mapping, optional
        Emulated times by name and kernel; those of the package where none are given.

    Examples
    --------
    >>> result = reproduce(with_densities=False)
    >>> result.summary["largest_speedup"]["name"]
    'TS2383'
    """
    rows = load_tables(tables)
    fit = fit_paper(rows, CITATION if tables is None else Path(tables).name)
    # Another table's names may be the paper's, and its matrices others.
    second = table_2(rows, fit, {} if emulated is None and tables is not None else emulated)
    return PaperResult(
        rows=rows,
        fit=fit,
        table1=table_1(rows, matrices) if with_densities else (),
        table2=second,
        summary=_summary(second, fit.calibration),
    )


def _density_document(row: DensityRow) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": row.row.name,
        "n": row.row.n,
        "nnz": row.row.nnz,
        "density_published": row.row.density,
        "density": row.density,
        "source": row.source,
        "n_counted": row.n,
        "nnz_counted": row.nnz,
        "blocks": row.blocks,
    }
    return document if row.reason is None else {**document, "reason": row.reason}


def _time_document(row: TimeRow) -> dict[str, Any]:
    def published(value: float) -> dict[str, Any]:
        return Figure(value=value, origin="published").to_json()

    low, high = row.time_rounding_s
    rounding = Figure(value=row.model.time_s.value, origin="modelled", low=low, high=high)
    return {
        "name": row.row.name,
        "kernel": row.kernel,
        "time_published_s": published(row.time_published_s),
        "time_emulated_s": row.time_emulated_s.to_json(),
        "emulated_source": row.emulated_source,
        "time_model_s": row.model.time_s.to_json(),
        "time_left_out_s": row.time_left_out_s.to_json(),
        "energy_published_j": published(row.energy_published_j),
        "energy_model_j": row.model.energy_j.to_json(),
        "energy_given_time_j": row.energy_given_time_j.to_json(),
        "time_within_rounding_s": rounding.to_json(),
        "time_error": row.time_error,
        "energy_error": row.energy_error,
        "rounding_error": row.rounding_error,
        "emulated_error": row.emulated_error,
        "bound": row.model.bound,
    }


# What the tables say.


@dataclass(frozen=True)
class _Pair:
    """Scalar and Block of one matrix, by figure: published and modelled."""

    row: PublishedRow
    scalar: TimeRow
    block: TimeRow

    def speedup(self, *, is_modelled: bool) -> float:
        if is_modelled:
            return _value(self.scalar.model.time_s) / _value(self.block.model.time_s)
        return self.scalar.time_published_s / self.block.time_published_s

    def energy_gain(self, *, is_modelled: bool) -> float:
        if is_modelled:
            return _value(self.scalar.model.energy_j) / _value(self.block.model.energy_j)
        return self.scalar.energy_published_j / self.block.energy_published_j

    def gain_over_cpu(self, *, is_modelled: bool) -> float:
        block = self.block
        energy = _value(block.model.energy_j) if is_modelled else block.energy_published_j
        return self.row.cpu_energy_j / energy


def _summary(table: Sequence[TimeRow], calibration: Calibration) -> dict[str, Any]:
    pairs = [_Pair(s.row, s, b) for s, b in zip(table[::2], table[1::2], strict=True)]
    facts: dict[str, Any] = {
        "num_matrices": len(pairs),
        "errors": dict(calibration.errors),
        "winner_time": _agreement(pairs, _Pair.speedup),
        "winner_energy": _agreement(pairs, _Pair.energy_gain),
        "block_gains_time": _both(pairs, lambda p, m: _Pair.speedup(p, is_modelled=m) > 1),
        "block_loses_energy": _both(
            pairs, lambda p, m: _Pair.energy_gain(p, is_modelled=m) < 1
        ),
        "beats_cpu_energy": _both(
            pairs, lambda p, m: _Pair.gain_over_cpu(p, is_modelled=m) > 1
        ),
    }
    fastest = max(pairs, key=lambda p: p.speedup(is_modelled=False))
    facts["largest_speedup"] = {
        "name": fastest.row.name,
        "published": fastest.speedup(is_modelled=False),
        "modelled": fastest.speedup(is_modelled=True),
    }
    facts["two_largest"] = [
        {
            "name": p.row.name,
            "cpu_energy_over_block_published": p.gain_over_cpu(is_modelled=False),
            "cpu_energy_over_block_modelled": p.gain_over_cpu(is_modelled=True),
        }
        for p in sorted(pairs, key=lambda p: p.row.nnz)[-2:]
    ]
    worst = max(pairs, key=lambda p: p.block.rounding_error)
    facts["largest_rounding_error"] = {
        "name": worst.row.name,
        "relative": worst.block.rounding_error,
    }
    facts["sentences"] = _sentences(facts)
    return facts


def _agreement(pairs: Sequence[_Pair], gain: Any) -> dict[str, Any]:
    apart = [
        p.row.name
        for p in pairs
        if (gain(p, is_modelled=True) > 1) != (gain(p, is_modelled=False) > 1)
    ]
    return {"agree": len(pairs) - len(apart), "of": len(pairs), "differ": apart}


def _both(pairs: Sequence[_Pair], holds: Any) -> dict[str, list[str]]:
    return {
        key: [p.row.name for p in pairs if holds(p, is_modelled)]
        for key, is_modelled in (("published", False), ("modelled", True))
    }


def _sentences(facts: Mapping[str, Any]) -> list[str]:
    count = facts["num_matrices"]
    gains, loses = facts["block_gains_time"], facts["block_loses_energy"]
    speedup, errors = facts["largest_speedup"], facts["errors"]
    time, energy = facts["winner_time"], facts["winner_energy"]
    rounding = facts["largest_rounding_error"]
    sentences = [
        f"Published: Block is faster than Scalar on {len(gains['published'])} of {count} "
        f"matrices; the model names the same kernel on {time['agree']} of {count}"
        f"{_except(time['differ'])}.",
        f"Published: Block takes more energy than Scalar on {_names(loses['published'])}; the "
        f"model names the same kernel on {energy['agree']} of {count}"
        f"{_except(energy['differ'])}.",
        f"The largest speed-up of Block over Scalar is {speedup['published']:.1f}×, on "
        f"{speedup['name']}; the model says {speedup['modelled']:.1f}×.",
        "On the largest matrices Block takes less energy than the CPU: "
        + ", ".join(
            f"{p['name']} {p['cpu_energy_over_block_published']:.1f}× (model "
            f"{p['cpu_energy_over_block_modelled']:.1f}×)"
            for p in facts["two_largest"]
        )
        + f"; it does so on {_names(facts['beats_cpu_energy']['published'])}, by the model on "
        f"{_names(facts['beats_cpu_energy']['modelled'])}.",
    ]
    dense = errors.get("block_time_dense", errors["block_time"])
    sentences.append(
        "Each row was predicted by a fit to the other rows. On average the time is missed by "
        f"{percent(dense)} (Block, density from {percent(DENSE, 0)}) and "
        f"{percent(errors['scalar_time'])} (Scalar); the energy, with the published time, by "
        f"{percent(errors['block_energy_given_time'])} and "
        f"{percent(errors['scalar_energy_given_time'])}."
    )
    sentences.append(
        "The density is printed in whole per cent; that alone leaves the modelled time of "
        f"Block open by up to ±{percent(rounding['relative'], 0)} ({rounding['name']})."
    )
    return sentences


def _names(names: Sequence[str]) -> str:
    if len(names) < 2:
        return names[0] if names else "none"
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _except(names: Sequence[str]) -> str:
    return f", not on {_names(names)}" if names else ""
