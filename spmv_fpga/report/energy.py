"""Energy of regions, and comparisons of it, as tables for a terminal."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from .. import units
from ..power import Attribution, RegionEnergy
from ..power.comparison import Comparison


def attribution_tables(attribution: Attribution) -> list[Table | Text]:
    """Return the energy of a run: its regions, what lies outside, idle power, notes."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("region", "verdict"):
        table.add_column(heading)
    for heading in (
        "entries",
        "time",
        "energy",
        "error",
        "inner mean × t",
        "dynamic",
        "samples",
    ):
        table.add_column(heading, justify="right")
    for region in attribution.regions:
        table.add_row(*map(Text, _region_cells(region)))  # a name may hold [brackets]
    table.add_row("outside", "", "", *_span(attribution.outside_s, attribution.outside_j))
    table.add_row("run", "", "", *_span(attribution.time_s, attribution.energy_j))
    return [table, *_notes(attribution)]


def _region_cells(region: RegionEnergy) -> list[str]:
    dynamic = None if region.dynamic is None else region.dynamic.energy_j
    # What the sensor could not resolve is no number to read off.
    is_known = region.verdict != "unresolved"
    energies = (region.energy_j, region.error_j, region.energy_inner_j, dynamic)
    return [
        region.name,
        region.verdict,
        str(region.count),
        units.seconds(region.time_s),
        *(units.joules(e if is_known else None) for e in energies),
        str(region.samples),
    ]


def _span(time_s: float, energy_j: float) -> tuple[str, str]:
    return units.seconds(time_s), units.joules(energy_j)


def _notes(attribution: Attribution) -> list[Text]:
    refresh = attribution.refresh
    lines = [
        "",
        f"sensor {attribution.sensor} ({attribution.boundary}): new values every "
        f"{units.seconds(refresh.period_s)} (from {refresh.how})",
        f"regions + outside - run: {attribution.conservation_error:.1e} of the run",
    ]
    idle = attribution.idle
    if idle.power_w is not None:
        drift = f", {units.watts(idle.drift_w)} more after" if idle.drift_w is not None else ""
        lines.append(f"idle {units.watts(idle.power_w)}{drift}")
    notes = [Text(line, style="dim") for line in lines]
    return notes + [Text(f"warning: {w}", style="yellow") for w in attribution.warnings]


def comparison_texts(comparison: Comparison) -> list[Text]:
    """Return what time would have said, what energy says, and what weakens both."""
    return [Text(sentence) for sentence in comparison.sentences()]
