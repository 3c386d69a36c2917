"""Reads the reports that `v++` leaves behind a build, and holds the estimate against them.

Three layouts, all plain text: the table of resources for each kernel and unit that Vivado's
`report_accelerator_utilization` writes (`*kernel_util_routed.rpt`), its timing summary
(`*timing_summary*.rpt`, UG906), and the area that `v++` estimates after high-level
synthesis (`system_estimate*.xtxt`, UG1393, Area Information). A report that is not there is
left out; one that is there and has another layout is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from ..boards import RESOURCES
from ..design_fit import Cost, FitReport
from ..errors import ToolError, XclbinError
from . import xclbin

_Parsed = TypeVar("_Parsed")

_COLUMNS = {"LUT": "lut", "REG": "ff", "FF": "ff", "BRAM": "bram", "URAM": "uram", "DSP": "dsp"}
_CELL = re.compile(r"\s*([\d.]+)\s*(?:\[\s*<?\s*[\d.]+\s*%\s*\])?\s*$")
_NESTED = 2
"""Blanks before a name from which a row belongs to the one above it."""
_CLOCK_ROW = re.compile(r"\s*(\S+)\s+\{[^}]*\}\s+([\d.]+)\s+([\d.]+)\s*$")
_NS = 1e-9

# The latest stage of a build comes first.
_UTILISATION_FILES = (
    "*kernel_util_routed.rpt",
    "*kernel_util_placed.rpt",
    "*kernel_util_synthed.rpt",
)
_TIMING_FILES = (
    "*timing_summary*postroute*.rpt",
    "*timing_summary*routed*.rpt",
    "*route*timing_summary*.rpt",
    "*timing_summary*.rpt",
)
_ESTIMATE_FILES = ("system_estimate*.xtxt",)


@dataclass(frozen=True, kw_only=True)
class Utilisation:
    """What a design takes of the chip, as a build reports it.

    Attributes
    ----------
    shell : Cost or None
        The platform's own share; None where the report does not say.
    kernels : Cost
        All compute units.
    units : dict of str to Cost
        By the name of the compute unit.
    """

    shell: Cost | None
    kernels: Cost
    units: dict[str, Cost]

    @property
    def per_unit(self) -> Cost:
        """Mean of the compute units."""
        total = sum(self.units.values(), Cost())
        return total.times(1 / len(self.units))


@dataclass(frozen=True, kw_only=True)
class Timing:
    """What a timing summary says.

    Attributes
    ----------
    is_met : bool
        Whether no path of the design is too slow.
    worst_slack_s : float
        Of the whole design, in seconds; negative where a path is too slow.
    clock : str
        The clock with the most paths: the kernels'.
    clock_hz : float
        Its frequency.
    slack_s : float
        Its worst slack, in seconds.
    """

    is_met: bool
    worst_slack_s: float
    clock: str
    clock_hz: float
    slack_s: float

    @property
    def attainable_hz(self) -> float:
        """Frequency at which the slowest path of the kernels' clock has no slack left."""
        return 1 / (1 / self.clock_hz - self.slack_s)


@dataclass(frozen=True, kw_only=True)
class BuildReports:
    """What was found in a build's folder.

    Attributes
    ----------
    folder : Path
    files : tuple of Path
        The reports that were read.
    utilisation : Utilisation or None
    timing : Timing or None
    clock_hz : float or None
        Clock of the xclbin: the linker lowers it where timing needs that.
    """

    folder: Path
    files: tuple[Path, ...]
    utilisation: Utilisation | None
    timing: Timing | None
    clock_hz: float | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """An estimate beside what a build reports, in the same unit."""

    name: str
    estimate: float
    reported: float

    @property
    def ratio(self) -> float | None:
        """Reported over estimate; None where the estimate is 0."""
        return self.reported / self.estimate if self.estimate else None

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as a JSON object."""
        return {
            "name": self.name,
            "estimate": self.estimate,
            "reported": self.reported,
            "ratio": self.ratio,
        }


def read_reports(folder: str | Path) -> BuildReports:
    """Read the reports of a build.

    Parameters
    ----------
    folder : str or Path
        The folder of the build, or any above it that holds no other build.

    Raises
    ------
    ToolError
        If it is no folder, holds no report, or a report has another layout.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ToolError(f"{folder}: is no folder; name the folder of a finished v++ build.")
    routed = _newest(root, _UTILISATION_FILES)
    estimated = None if routed else _newest(root, _ESTIMATE_FILES)
    timing = _newest(root, _TIMING_FILES)
    files = tuple(path for path in (routed, estimated, timing) if path is not None)
    if not files:
        raise ToolError(
            f"{folder}: holds no report of v++ (such as kernel_util_routed.rpt); name the "
            "folder of a finished build."
        )
    used = None
    if routed:
        used = _parsed(routed, parse_utilisation)
    elif estimated:
        used = _parsed(estimated, parse_estimate)
    return BuildReports(
        folder=root,
        files=files,
        utilisation=used,
        timing=_parsed(timing, parse_timing) if timing else None,
        clock_hz=_xclbin_clock_hz(root),
    )


def compare(estimate: FitReport, reports: BuildReports) -> tuple[Comparison, ...]:
    """Hold an estimate against a build's reports.

    Parameters
    ----------
    estimate : FitReport
        Of the design that was built.
    reports : BuildReports

    Returns
    -------
    tuple of Comparison
        Resources of one unit and of the shell, and the clock in hertz; what the reports do
        not hold is left out.
    """
    rows: list[Comparison] = []
    used = reports.utilisation
    if used is not None:
        rows += _resources("of a unit", estimate.per_unit, used.per_unit)
        if used.shell is not None:
            shell = Cost(**{share.resource: share.shell for share in estimate.shares})
            rows += _resources("of the shell", shell, used.shell)
    clock_hz = reports.clock_hz
    if clock_hz is None and reports.timing is not None:
        clock_hz = reports.timing.clock_hz
    if clock_hz is not None:
        rows.append(Comparison(name="clock_hz", estimate=estimate.clock_hz, reported=clock_hz))
    return tuple(rows)


def _resources(of: str, estimate: Cost, reported: Cost) -> list[Comparison]:
    return [
        Comparison(name=f"{name} {of}", estimate=estimate.of(name), reported=reported.of(name))
        for name in RESOURCES
    ]


# Layouts.


def parse_utilisation(text: str) -> Utilisation:
    """Read the table of resources for each kernel and unit.

    Parameters
    ----------
    text : str
        Cells are `count [share%]`; units stand indented below their kernel. The columns
        are found by their headings.

    Raises
    ------
    ToolError
        If it is no such table.
    """
    headings: list[str] = []
    rows: list[tuple[str, int, Cost]] = []
    for line in text.splitlines():
        if not line.lstrip().startswith("|"):
            continue
        cells = line.strip().strip("|").split("|")
        if not headings:
            headings = [cell.strip() for cell in cells]
        elif len(cells) == len(headings):
            indent = len(cells[0]) - len(cells[0].lstrip())
            rows.append((cells[0].strip(), indent, _cost(headings[1:], cells[1:])))
    named = {name: cost for name, _, cost in rows}
    if "Used Resources" not in named:
        raise ToolError("there is no row `Used Resources`")
    below = [name for name, _, _ in rows].index("Used Resources") + 1
    units = {
        name: cost
        for name, indent, cost in rows[below:]
        if indent > _NESTED and name != "Unused Resources"
    }
    if not units:
        raise ToolError("there is no row of a compute unit")
    return Utilisation(
        shell=named.get("Platform"), kernels=named["Used Resources"], units=units
    )


def _cost(headings: Sequence[str], cells: Sequence[str]) -> Cost:
    amounts: dict[str, float] = {}
    for heading, cell in zip(headings, cells, strict=True):
        resource = _COLUMNS.get(heading)
        if resource is None:
            continue
        match = _CELL.match(cell)
        if match is None:
            raise ToolError(f"a cell of column {heading} is {cell.strip()!r}")
        amounts[resource] = float(match[1])
    return Cost(**amounts)


def parse_estimate(text: str) -> Utilisation:
    """Read the area that `v++` estimates after high-level synthesis.

    Parameters
    ----------
    text : str
        A table `Area Information` with a line for each compute unit; its RAM blocks have
        18 Kib.

    Raises
    ------
    ToolError
        If there is no such table.
    """
    units: dict[str, Cost] = {}
    headings: list[str] = []
    for line in text.partition("Area Information")[2].splitlines():
        words = line.split()
        if not headings:
            if line.startswith("Compute Unit"):
                headings = words[-5:]
        elif len(words) == len(headings) + 3 and all(_CELL.match(w) for w in words[3:]):
            cost = _cost(headings, words[3:])
            units[words[0]] = cost + Cost(bram=-cost.bram / 2)
        elif units:
            break
    if not units:
        raise ToolError("there is no table `Area Information`")
    return Utilisation(shell=None, kernels=sum(units.values(), Cost()), units=units)


def parse_timing(text: str) -> Timing:
    """Read a timing summary.

    Parameters
    ----------
    text : str
        Summary of the design, of the clocks, and of the paths within each clock; figures
        are in nanoseconds and megahertz.

    Raises
    ------
    ToolError
        If one of them is missing.
    """
    lines = text.splitlines()
    design = _rows_below(lines, lambda line: line.lstrip().startswith("WNS(ns)"))
    clocks = {
        match[1]: float(match[2]) * _NS
        for row in _rows_below(lines, lambda line: _is_heading(line, "Period(ns)"))
        if (match := _CLOCK_ROW.match(row))
    }
    paths = [
        (int(words[4]), words[0], float(words[1]) * _NS)
        for row in _rows_below(lines, lambda line: _is_heading(line, "WNS(ns)"))
        if len(words := row.split()) >= 5 and words[0] in clocks and words[4].isdigit()
    ]
    if not design or not paths:
        raise ToolError("there is no summary of the design, of its clocks or of their paths")
    _, clock, slack_s = max(paths)
    worst_slack_s = float(design[0].split()[0]) * _NS
    return Timing(
        is_met=worst_slack_s >= 0,
        worst_slack_s=worst_slack_s,
        clock=clock,
        clock_hz=1 / clocks[clock],
        slack_s=slack_s,
    )


def _is_heading(line: str, column: str) -> bool:
    return line.startswith("Clock") and column in line


def _rows_below(lines: Sequence[str], is_heading: Callable[[str], bool]) -> list[str]:
    """Return the rows of the first table with such a heading, its rule left out."""
    for number, line in enumerate(lines):
        if is_heading(line):
            rows = []
            for row in lines[number + 2 :]:
                if not row.strip():
                    break
                rows.append(row)
            return rows
    return []


# Files.


def _found(root: Path, patterns: Iterable[str]) -> list[Path]:
    """Return the files of the first pattern that there are any of."""
    for pattern in patterns:
        if found := [path for path in root.rglob(pattern) if path.is_file()]:
            return found
    return []


def _newest(root: Path, patterns: Iterable[str]) -> Path | None:
    found = _found(root, patterns)
    return max(found, key=lambda path: (path.stat().st_mtime_ns, str(path))) if found else None


def _parsed(path: Path, parse: Callable[[str], _Parsed]) -> _Parsed:
    try:
        return parse(path.read_text("utf-8", errors="replace"))
    except OSError as error:
        raise ToolError(f"{path}: cannot be read: {error.strerror or error}.") from None
    except (ToolError, ValueError) as error:
        raise ToolError(
            f"{path}: is no report as v++ writes it: {error}; let the build run to its end."
        ) from None


def _xclbin_clock_hz(root: Path) -> float | None:
    """Return the clock of the newest xclbin, where there is one that can be read."""
    path = _newest(root, ("*.xclbin",))
    if path is None:
        return None
    try:
        return xclbin.read(path).clock_hz
    except XclbinError:
        return None
