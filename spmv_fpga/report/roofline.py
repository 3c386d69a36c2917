"""Predictions, calibrations and the paper's tables, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from .. import units
from ..bandwidth import BandwidthResult
from ..figures import Figure
from ..roofline.calibration import Calibration
from ..roofline.model import Prediction
from ..roofline.paper import DensityRow, PaperResult, TimeRow
from ..roofline.predict import PredictionSet
from .tables import facts_grid, plain_table


def prediction_tables(found: PredictionSet) -> list[Table | Text]:
    """Return the candidates with their modelled figures, the choice, and warnings."""
    matrix, csr = found.matrix, found.matrix.csr
    head = (
        f"{matrix.name}: {csr.shape[0]} × {csr.shape[1]}, {matrix.nnz} entries "
        f"({matrix.symmetric}); {matrix.source}"
    )
    headings = ["kernel", "tiles", "full", "CIA", "accesses", "stream", "time", "rate"]
    headings += ["power", "energy", "binds", "best for"]
    rows = [_candidate(found, i, candidate) for i, candidate in enumerate(found.candidates)]
    notes = [
        "",
        "All figures are modelled, ± their 95 % intervals: calibration "
        f"{found.calibration.name}, {found.calibration.title}.",
    ]
    if found.sampled_rows is not None:
        notes.append(f"Tiles were counted in {found.sampled_rows} rows only.")
    return [
        Text(head),
        Text(""),
        plain_table(headings, rows),
        *(Text(note, style="dim") for note in notes),
        *_warnings(found.warnings),
    ]


def _candidate(found: PredictionSet, i: int, candidate: Prediction) -> list[object]:
    work = candidate.workload
    parameter = f"P {work.block}" if work.kernel == "block" else f"L {work.slice_size}"
    wins = (("time", found.best_time), ("energy", found.best_energy))
    return [
        f"{work.kernel}, {parameter}",
        work.blocks,
        units.percent(work.density),
        round(candidate.cia, 2),
        candidate.accesses,
        units.bytes_text(work.bytes),
        _with_spread(candidate.time_s, units.seconds),
        units.gflops(candidate.gflops.value),
        units.watts(candidate.power_w.value),
        _with_spread(candidate.energy_j, units.joules),
        candidate.bound,
        ", ".join(name for name, index in wins if index == i),
    ]


def _with_spread(figure: Figure, text: object) -> str:
    shown = text(figure.value)  # type: ignore[operator]
    if figure.value is None or figure.low is None or figure.high is None or not figure.value:
        return str(shown)
    half_width = max(figure.high - figure.value, figure.value - figure.low)
    return f"{shown} ± {100 * half_width / figure.value:.0f} %"


def calibration_tables(calibration: Calibration) -> list[Table | Text]:
    """Return the parameters of a calibration with their bounds and sources."""
    rows = [
        [name, f"{rate.value:.4g}", f"{rate.low:.4g} … {rate.high:.4g}", rate.source]
        for name, rate in calibration.rates.items()
    ]
    for name, kernel in calibration.kernels.items():
        for term in kernel.terms:
            if (seconds := term.seconds) is not None:
                bounds = f"{seconds.low:.4g} … {seconds.high:.4g}"
                key = f"{name}: seconds of {term.name}, each of {term.count}"
                rows.append([key, f"{seconds.value:.4g}", bounds, seconds.source])
    errors = [
        Text(f"left-out error of {name}: {units.percent(error)}", style="dim")
        for name, error in calibration.errors.items()
    ]
    return [plain_table(["parameter", "value", "95 %", "source"], rows), *errors]


def paper_tables(result: PaperResult) -> list[Table | Text]:
    """Return Tables 1 and 2, published beside counted and modelled, and the findings."""
    return [
        Text("Table 1: density of 16 × 16 tiles", style="bold"),
        _densities(result.table1),
        Text("\nTable 2: published, modelled, and modelled by a fit without the row", "bold"),
        _times(result.table2),
        Text(""),
        *(Text(sentence) for sentence in result.summary["sentences"]),
    ]


def _densities(rows: Iterable[DensityRow]) -> Table:
    headings = ["matrix", "n", "nnz", "published", "counted", "from"]
    return plain_table(
        headings,
        [
            [
                row.row.name,
                row.row.n,
                row.row.nnz,
                f"{100 * row.row.density:.0f} %",
                units.percent(row.density) if row.density is not None else row.reason,
                row.source,
            ]
            for row in rows
        ],
    )


def _times(rows: Iterable[TimeRow]) -> Table:
    headings = ["matrix", "kernel", "t published", "t model", "t left out", "error"]
    headings += ["E published", "E given t", "error"]
    return plain_table(
        headings,
        [
            [
                row.row.name,
                row.kernel,
                units.seconds(row.time_published_s),
                units.seconds(row.model.time_s.value),
                units.seconds(row.time_left_out_s.value),
                f"{100 * row.time_error:+.1f} %",
                units.joules(row.energy_published_j),
                units.joules(row.energy_given_time_j.value),
                f"{100 * row.energy_error:+.1f} %",
            ]
            for row in rows
        ],
    )


def _warnings(warnings: Iterable[str]) -> list[Text]:
    return [Text(f"warning: {warning}", style="yellow") for warning in warnings]


def bandwidth_table(found: BandwidthResult) -> Table:
    """Return what a channel gave."""
    rate = found.bytes_per_s
    return facts_grid(
        {
            "ran on": f"{found.device} ({found.mode})",
            "read": f"{units.bytes_text(found.num_bytes)}; the checksum is right",
            "time": units.seconds(found.time_s.value),
            "bandwidth": units.si(rate.value, "B/s"),
            "origin": found.time_s.origin or found.time_s.reason,
        }
    )
