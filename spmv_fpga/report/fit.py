"""What a design takes of a board, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from .. import units
from ..design_fit import RESOURCE_NAMES, Cost, FitReport
from ..figures import Figure
from ..toolchain.reports import BuildReports, Comparison
from .tables import facts_grid, plain_table


def fit_tables(report: FitReport, most: int | None) -> list[Table | Text]:
    """Return the estimate, its limits, and the verdict.

    Parameters
    ----------
    report : FitReport
    most : int or None
        Largest number of units that fits; None where not even one does.
    """
    return [
        _facts(report, most),
        Text(""),
        _resources(report),
        Text(""),
        _parts(report),
        Text(""),
        *_verdict(report),
    ]


def _facts(report: FitReport, most: int | None) -> Table:
    parameters = (f"{name} {value}" for name, value in report.parameters.items())
    board = report.board
    return facts_grid(
        {
            "kernel": ", ".join((report.kernel, *parameters)),
            "board": board.title,
            "compute units": f"{report.compute_units}; at most {most or 'none'} fit",
            "memory ports": f"{report.ports} of {board.value('max_ports'):.0f}",
            "channels": f"{report.channels} of {board.value('max_channels'):.0f}",
            "clock": f"{units.hertz(report.clock_hz)} expected",
            "power": _figure(report.power_w, "modelled at full traffic"),
            "power cap": _figure(report.power_cap_w),
        }
    )


def _figure(figure: Figure, how: str = "") -> str:
    if figure.value is None:
        return f"unknown: {figure.reason}"
    return f"{units.watts(figure.value)} {how}".rstrip()


def _resources(report: FitReport) -> Table:
    headings = ["resource", "a unit", "all units", "shell", "total", "there are", "share"]
    headings += ["limit", ""]
    rows = [
        [
            RESOURCE_NAMES[s.resource],
            *map(_amount, (s.per_unit, s.units, s.shell, s.total, s.available)),
            units.percent(s.share),
            units.percent(s.limit),
            "" if s.fits else "does not fit",
        ]
        for s in report.shares
    ]
    return plain_table(headings, rows)


def _parts(report: FitReport) -> Table:
    headings = ["of a unit", *RESOURCE_NAMES.values()]
    return plain_table(headings, [_part(name, cost) for name, cost in report.parts.items()])


def _part(name: str, cost: Cost) -> list[Any]:
    return [name, *(_amount(cost.of(resource)) for resource in RESOURCE_NAMES)]


def _amount(amount: float) -> int | float:
    return int(amount) if amount == int(amount) else round(amount, 1)


def _verdict(report: FitReport) -> list[Text]:
    notes = [Text(f"warning: {warning}", style="yellow") for warning in report.warnings]
    if report.refusal is None:
        return [Text("the design fits", style="green"), *notes]
    return [Text(report.refusal, style="bold red"), *notes]


def comparison_tables(rows: Sequence[Comparison], reports: BuildReports) -> list[Table | Text]:
    """Return the estimate beside what a build reports, and its timing."""
    headings = ["of the build", "estimate", "reported", "reported over estimate"]
    table = plain_table(headings, [_compared(row) for row in rows])
    files = ", ".join(path.name for path in reports.files)
    return [Text(""), table, *_timing(reports), Text(f"read: {files}", style="dim")]


def _compared(row: Comparison) -> list[Any]:
    ratio = None if row.ratio is None else f"{row.ratio:.2f}"
    if row.name == "clock_hz":
        return ["clock", units.hertz(row.estimate), units.hertz(row.reported), ratio]
    return [row.name, _amount(row.estimate), _amount(row.reported), ratio]


def _timing(reports: BuildReports) -> list[Text]:
    timing = reports.timing
    if timing is None:
        return []
    verdict = "is met" if timing.is_met else "is NOT met"
    return [
        Text(
            f"timing {verdict}: clock {timing.clock} asks for {units.hertz(timing.clock_hz)}, "
            f"its slowest path allows {units.hertz(timing.attainable_hz)}",
            style="green" if timing.is_met else "bold red",
        )
    ]
