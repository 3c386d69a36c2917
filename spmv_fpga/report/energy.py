"""Energy of regions, and comparisons of it, as tables for a terminal."""

from __future__ import annotations

import math

from rich.table import Table
from rich.text import Text

from .. import units
from ..power import Attribution, RegionEnergy
from ..power.comparison import Comparison

_ESTIMATES = {"inner": "inner mean × t", "range": "range of the run"}
_ESTIMATES |= {name: name for name in ("counter", "trapezoid")}


def attribution_tables(attribution: Attribution) -> list[Table | Text]:
    """Return the energy of a run: its regions, what lies outside, idle power, notes."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("region", "verdict"):
        table.add_column(heading)
    for heading in ("entries", "time", "energy", "error"):
        table.add_column(heading, justify="right")
    table.add_column("from")
    for heading in ("trapezoid", "dynamic", "samples"):
        table.add_column(heading, justify="right")
    for region in attribution.regions:
        table.add_row(*map(Text, _region_cells(region)))  # a name may hold [brackets]
    # Only trapezoids add up, so these two have no other figure.
    outside_j = units.joules(attribution.outside_j)
    outside_s = units.seconds(attribution.outside_s)
    table.add_row("outside", "", "", outside_s, "", "", "", outside_j)
    table.add_row(*_run_cells(attribution))
    return [table, *_notes(attribution)]


def _run_cells(attribution: Attribution) -> list[str]:
    run, time_s = attribution.run, units.seconds(attribution.time_s)
    energy_j = units.joules(attribution.energy_j)
    if run is None or run.verdict == "unresolved":
        verdict = "" if run is None else run.verdict
        return ["run", verdict, "", time_s, "", "", "", energy_j]
    error_j = _error(run.trapezoid.error_j)
    samples = units.count(run.samples)
    return [
        "run",
        run.verdict,
        "",
        time_s,
        energy_j,
        error_j,
        "trapezoid",
        energy_j,
        "",
        samples,
    ]


def _error(error_j: float) -> str:
    return units.joules(error_j) if math.isfinite(error_j) else "no bound"


def _region_cells(region: RegionEnergy) -> list[str]:
    head = [region.name, region.verdict, str(region.count), units.seconds(region.time_s)]
    # What the sensor could not resolve is no number to read off.
    energy = None if region.verdict == "unresolved" else region.energy
    if energy is None:
        return [*head, *[units.NOTHING] * 5, str(region.samples)]
    dynamic = None if region.dynamic is None else region.dynamic.energy_j
    return [
        *head,
        units.joules(energy.best.energy_j),
        _error(energy.best.error_j),
        _ESTIMATES[energy.preferred],
        units.joules(energy.trapezoid.energy_j),
        units.joules(dynamic),
        str(region.samples),
    ]


def _notes(attribution: Attribution) -> list[Text]:
    refresh = attribution.refresh
    lines = [
        "",
        f"sensor: {attribution.sensor}; boundary: {attribution.boundary}; new values every "
        f"{units.seconds(refresh.period_s)} (from {refresh.how})",
        "energy: the estimate with the least error, which stands beside it",
        "trapezoid: the integral over all samples; regions and outside add up to the run, here "
        f"to {attribution.conservation_error:.1e} of it",
        *_inner_note(attribution),
    ]
    idle = attribution.idle
    if idle.power_w is not None:
        drift = f", {units.watts(idle.drift_w)} more after" if idle.drift_w is not None else ""
        lines.append(f"idle {units.watts(idle.power_w)}{drift}")
    notes = [Text(line, style="dim") for line in lines]
    return notes + [Text(f"warning: {w}", style="yellow") for w in attribution.warnings]


def _inner_note(attribution: Attribution) -> list[str]:
    """Explain the inner mean, where an energy is one."""
    if all(r.energy is None or r.energy.preferred != "inner" for r in attribution.regions):
        return []
    return [
        f"{_ESTIMATES['inner']}: mean power of the readings that lie wholly inside the region, "
        "times its duration"
    ]


def comparison_texts(comparison: Comparison) -> list[Text]:
    """Return what time would have said, what energy says, and what weakens both."""
    return [Text(sentence) for sentence in comparison.sentences()]
