"""Energy of regions: what each drew, what none of them drew, and whether it adds up.

Nothing is counted twice. A name's energy is that of the time in which at least one region of
that name was open; a region that is entered again inside itself counts once. *Exclusive*
energy is that of the time in which no other region was open inside it, on its own thread.
Where regions of two threads overlap, one sensor cannot tell which of them drew what: both
names hold the energy of the overlap, and `overlap_s` says how long it was. Energies of names
add up to the run only without nesting and overlap; the sum that is always checked is that
of the union of all regions and what lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from ..figures import Figure, unknown
from .integration import Estimate, Estimator, Verdict, WindowEnergy, verdict
from .regions import Region, nest
from .trace import Refresh, Trace

Windows = list[tuple[float, float]]

_LEAST_J = 1e-12
"""Less is 0: to divide by it may overflow."""

IDLE_BEFORE, IDLE_AFTER = "idle before", "idle after"


@dataclass(frozen=True, slots=True)
class IdlePower:
    """Power of the idle phases before and after the load.

    Attributes
    ----------
    before_w, after_w : float or None
        None where the phase was not recorded or not seen by the sensor.
    """

    before_w: float | None
    after_w: float | None

    @property
    def power_w(self) -> float | None:
        """Mean of the phases that are known."""
        known = [p for p in (self.before_w, self.after_w) if p is not None]
        return math.fsum(known) / len(known) if known else None

    @property
    def drift_w(self) -> float | None:
        """How much higher the second phase was."""
        if self.before_w is None or self.after_w is None:
            return None
        return self.after_w - self.before_w


@dataclass(frozen=True, slots=True)
class RegionEnergy:
    """What is known of all entries of one name.

    Attributes
    ----------
    name : str
    count : int
        Entries, those inside an entry of the same name included.
    time_s : float
        Time in which at least one entry was open.
    median_s : float
        Duration of the median entry, by which the verdict is given.
    energy : WindowEnergy or None
        None where the trace does not cover the entries; `reason` says so.
    exclusive_s, exclusive_j : float, float or None
        Without the regions inside.
    dynamic : Estimate or None
        The best estimate less idle power; its edge error holds half of the idle drift.
    verdict : str
        Of the median single entry: repeating a short region does not resolve it.
    reason : str or None
    """

    name: str
    count: int
    time_s: float
    median_s: float
    energy: WindowEnergy | None
    exclusive_s: float
    exclusive_j: float | None
    dynamic: Estimate | None
    verdict: Verdict
    reason: str | None = None

    @property
    def best(self) -> Estimate | None:
        """The estimate to trust, whose error is `error_j`."""
        return None if self.energy is None else self.energy.best

    @property
    def energy_j(self) -> float | None:
        """The trapezoid's energy, inclusive; `error_j` is not its error but that of `best`."""
        return None if self.energy is None else self.energy.energy_j

    @property
    def energy_inner_j(self) -> float | None:
        """The inner mean × duration, None where an entry holds no reading of its own."""
        return None if self.energy is None else self.energy.energy_inner_j

    @property
    def energy_counter_j(self) -> float | None:
        """The hardware counter's energy."""
        return None if self.energy is None else self.energy.energy_counter_j

    @property
    def samples(self) -> int:
        """Samples of the trace inside the entries."""
        return 0 if self.energy is None else self.energy.samples

    @property
    def error_j(self) -> float | None:
        """Error of the estimate to trust."""
        return None if self.energy is None else self.energy.error_j

    def to_json(self) -> dict[str, Any]:
        """Return the figures of this name."""
        reason = self.reason or ""
        document = {
            "name": self.name,
            "count": self.count,
            "time_s": _measured(self.time_s),
            "median_s": _measured(self.median_s),
            "verdict": self.verdict,
            "samples": self.samples,
            "exclusive_s": _measured(self.exclusive_s),
        }
        if self.energy is None:
            keys = ("energy_j", "energy_inner_j", "exclusive_j")
            return document | {key: unknown(reason).to_json() for key in keys}
        energy, best = self.energy, self.energy.best
        not_bounded = "nothing in the run bounds it"
        nothing_inside = "no reading of the sensor lies wholly inside an entry"
        document |= {
            "energy_j": _estimated(energy.trapezoid),
            "energy_inner_j": _estimated(energy.inner, nothing_inside),
            "energy_counter_j": _estimated(energy.counter, "the trace holds no counter"),
            "exclusive_j": _measured(self.exclusive_j),
            "preferred": energy.preferred,
            "best_j": _estimated(best),
            # Errors of `best_j`; each estimate carries its own as `low` and `high`.
            "best_error_j": _measured(best.error_j, not_bounded),
            "best_edge_error_j": _measured(best.edge_error_j, not_bounded),
            "best_refresh_error_j": _measured(best.refresh_error_j),
            "best_quantum_error_j": _measured(best.quantum_error_j),
            "energy_error_j": _measured(energy.trapezoid.error_j, not_bounded),
            "dynamic_j": _estimated(self.dynamic, "idle power was not measured"),
        }
        return document


@dataclass(frozen=True)
class Attribution:
    """Energy of a run and of its regions.

    Attributes
    ----------
    time_s, energy_j : float
        Of the whole run, which is the trace from its first sample to its last.
    regions : tuple of RegionEnergy
        One for each name, in the order of first entries.
    regions_s, regions_j : float
        Of the union of all regions.
    outside_s, outside_j : float
        Of the rest, integrated by itself.
    overlap_s : float
        Time in which regions of more than one thread were open.
    idle : IdlePower
    refresh : Refresh
        Measured refresh of the sensor.
    sensor, boundary : str
    warnings : tuple of str
    run : WindowEnergy or None
        The whole run, judged as a region is.
    """

    time_s: float
    energy_j: float
    regions: tuple[RegionEnergy, ...]
    regions_s: float
    regions_j: float
    outside_s: float
    outside_j: float
    overlap_s: float
    idle: IdlePower
    refresh: Refresh
    sensor: str
    boundary: str
    warnings: tuple[str, ...] = ()
    run: WindowEnergy | None = None

    @property
    def conservation_error(self) -> float:
        """(regions + outside - run) ÷ run, from three integrals of their own."""
        missing_j = self.regions_j + self.outside_j - self.energy_j
        return missing_j / self.energy_j if abs(self.energy_j) > _LEAST_J else missing_j

    def _run_document(self) -> dict[str, Any]:
        if self.run is None:
            return {}
        return {
            "verdict": self.run.verdict,
            "samples": self.run.samples,
            "energy_error_j": _measured(
                self.run.trapezoid.error_j, "nothing in the run bounds it"
            ),
        }

    def __getitem__(self, name: str) -> RegionEnergy:
        """Return the region of this name."""
        for region in self.regions:
            if region.name == name:
                return region
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `spmv-fpga energy integrate`."""
        idle = self.idle
        not_idle = "no idle phase was measured"
        return {
            "run": _span(self.time_s, self.energy_j) | self._run_document(),
            "regions": [region.to_json() for region in self.regions],
            "union": _span(self.regions_s, self.regions_j),
            "outside": _span(self.outside_s, self.outside_j),
            "overlap_s": _measured(self.overlap_s),
            "conservation_error": self.conservation_error,
            "idle": {
                "before_w": _measured(idle.before_w, not_idle),
                "after_w": _measured(idle.after_w, not_idle),
                "power_w": _measured(idle.power_w, not_idle),
                "drift_w": _measured(idle.drift_w, not_idle),
            },
            "sensor": {
                "name": self.sensor,
                "boundary": self.boundary,
                "refresh_s": _measured(self.refresh.period_s),
                "refresh_from": self.refresh.how,
                "updates": self.refresh.num_updates,
            },
            "warnings": list(self.warnings),
        }


def attribute(
    trace: Trace, regions: Iterable[Region], warnings: Sequence[str] = ()
) -> Attribution:
    """Attribute the energy of a trace to regions.

    Parameters
    ----------
    trace : Trace
    regions : iterable of Region
        On the trace's clock. Nesting is found from times and threads.
    warnings : sequence of str, optional
        What the result shall also tell.

    Returns
    -------
    Attribution
        A name with an entry that reaches outside the trace has no energy and says why; the
        part that the trace covers still is not "outside".

    Examples
    --------
    >>> trace = Trace([0.0, 10.0], [20.0, 20.0])
    >>> result = attribute(trace, [Region("spmv", 1.0, 4.0), Region("spmv", 5.0, 6.0)])
    >>> result["spmv"].energy_j, result.outside_j, result.conservation_error
    (80.0, 120.0, 0.0)
    """
    nested = nest(regions)
    estimator = Estimator(trace)
    own = _exclusive_windows(nested)
    union = _clipped(_merged((r.start_s, r.end_s) for r in nested), trace)
    rest = _complement(union, trace.start_s, trace.end_s)
    by_name: dict[str, list[int]] = {}
    for k, region in enumerate(nested):
        by_name.setdefault(region.name, []).append(k)
    idle = IdlePower(*(_idle_w(estimator, nested, name) for name in (IDLE_BEFORE, IDLE_AFTER)))
    energies = tuple(
        _region_energy(estimator, nested, own, entries, idle) for entries in by_name.values()
    )
    lost = [f"region {e.name!r}: {e.reason}" for e in energies if e.reason]
    return Attribution(
        time_s=trace.duration_s,
        energy_j=estimator.energy_j(trace.start_s, trace.end_s),
        regions=energies,
        regions_s=_length_s(union),
        regions_j=_energy_j(estimator, union),
        outside_s=_length_s(rest),
        outside_j=_energy_j(estimator, rest),
        overlap_s=_overlap_s(nested),
        idle=idle,
        refresh=estimator.refresh,
        sensor=trace.sensor,
        boundary=trace.boundary,
        run=estimator.window(trace.start_s, trace.end_s),
        warnings=(*warnings, *_impossible(trace), *lost),
    )


def _impossible(trace: Trace) -> list[str]:
    """Say what no power sensor can read: less than nothing."""
    warnings = []
    below = int((trace.power_w < 0).sum())
    if below:
        warnings.append(
            f"{below} of {len(trace.power_w)} samples are below 0 W, the least is "
            f"{trace.power_w.min():.4g} W: the sensor or its offset is wrong, and so are these "
            "energies"
        )
    if trace.energy_j is not None and (np.diff(trace.energy_j) < 0).any():
        warnings.append(
            "the energy counter goes back: it was reset or is wrong, and so are its energies"
        )
    return warnings


def _region_energy(
    estimator: Estimator,
    nested: Sequence[Region],
    own: Sequence[Windows],
    entries: Sequence[int],
    idle: IdlePower,
) -> RegionEnergy:
    """Return the energy of a name, given the indices of its entries."""
    windows = _merged((nested[k].start_s, nested[k].end_s) for k in entries)
    own_windows = _merged(window for k in entries for window in own[k])
    median_s = median(nested[k].duration_s for k in entries)
    reason = _uncovered(estimator.trace, [nested[k] for k in entries])
    energy = None if reason else _total(estimator, windows)
    exclusive_j = None if energy is None else energy.energy_j
    if energy is not None and own_windows != windows:
        exclusive_j = _energy_j(estimator, own_windows)
    return RegionEnergy(
        name=nested[entries[0]].name,
        count=len(entries),
        time_s=_length_s(windows),
        median_s=median_s,
        energy=energy,
        exclusive_s=_length_s(own_windows),
        exclusive_j=exclusive_j,
        dynamic=None if energy is None else _dynamic(energy.best, _length_s(windows), idle),
        verdict=verdict(median_s, estimator.period_s),
        reason=reason,
    )


def _uncovered(trace: Trace, entries: Sequence[Region]) -> str | None:
    """Say why entries have no energy, or None."""
    lost = sum(r.start_s < trace.start_s or r.end_s > trace.end_s for r in entries)
    if lost:
        return f"{lost} of {len(entries)} entries reach outside the trace"
    if all(r.duration_s == 0 for r in entries):
        return "its entries last no time on this clock"
    return None


def _total(estimator: Estimator, windows: Windows) -> WindowEnergy:
    """Add up the energies of windows that do not overlap."""
    parts = [estimator.window(*window) for window in windows]
    inner = [part.inner for part in parts if part.inner is not None]
    counter = [part.counter for part in parts if part.counter is not None]
    return WindowEnergy(
        trapezoid=Estimate.total(part.trapezoid for part in parts),
        inner=Estimate.total(inner) if len(inner) == len(parts) else None,
        counter=Estimate.total(counter) if len(counter) == len(parts) else None,
        range=Estimate.total(part.range for part in parts),
        samples=sum(part.samples for part in parts),
        verdict=verdict(median(end - start for start, end in windows), estimator.period_s),
    )


def _dynamic(best: Estimate, duration_s: float, idle: IdlePower) -> Estimate | None:
    if idle.power_w is None:
        return None
    return Estimate(
        best.energy_j - idle.power_w * duration_s,
        best.edge_error_j + abs(idle.drift_w or 0.0) / 2 * duration_s,
        best.refresh_error_j,
        best.quantum_error_j,
    )


def _idle_w(estimator: Estimator, nested: Sequence[Region], name: str) -> float | None:
    """Return the mean power of an idle phase, from readings wholly inside."""
    phases = [r for r in nested if r.name == name]
    if not phases or _uncovered(estimator.trace, phases):
        return None
    windows = _merged((r.start_s, r.end_s) for r in phases)
    total = _total(estimator, windows)
    seen = total.counter or total.inner
    return None if seen is None else seen.energy_j / _length_s(windows)


def _exclusive_windows(nested: Sequence[Region]) -> list[Windows]:
    """Return what is left of each region without its children."""
    children: list[Windows] = [[] for _ in nested]
    for region in nested:
        if region.parent is not None:
            children[region.parent].append((region.start_s, region.end_s))
    return [
        _complement(_merged(inside), region.start_s, region.end_s)
        for region, inside in zip(nested, children, strict=True)
    ]


def _overlap_s(nested: Sequence[Region]) -> float:
    of_threads: dict[int, Windows] = {}
    for r in nested:
        of_threads.setdefault(r.thread, []).append((r.start_s, r.end_s))
    # Each thread's windows begin (+1) and end (-1); two or more open at once are an overlap.
    edges = sorted(
        (at_s, step)
        for windows in of_threads.values()
        for start_s, end_s in _merged(windows)
        for at_s, step in ((start_s, 1), (end_s, -1))
    )
    if not edges:
        return 0.0
    times = np.array([at_s for at_s, _ in edges])
    num_open = np.cumsum([step for _, step in edges])
    return float(np.diff(times)[num_open[:-1] >= 2].sum())


def _merged(windows: Iterable[tuple[float, float]]) -> Windows:
    """Return the union of windows, those without duration left out.

    >>> _merged([(3, 4), (0, 2), (1, 3), (5, 5)])
    [(0, 4)]
    """
    merged: Windows = []
    for start_s, end_s in sorted(window for window in windows if window[0] < window[1]):
        if merged and start_s <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end_s))
        else:
            merged.append((start_s, end_s))
    return merged


def _complement(windows: Windows, start_s: float, end_s: float) -> Windows:
    """Return what a span holds beside merged windows.

    >>> _complement([(1, 2), (5, 7)], 0, 6)
    [(0, 1), (2, 5)]
    """
    starts = [start_s, *(end for _, end in windows)]
    ends = [*(start for start, _ in windows), end_s]
    spans = ((max(a, start_s), min(b, end_s)) for a, b in zip(starts, ends, strict=True))
    return [(a, b) for a, b in spans if a < b]


def _clipped(windows: Windows, trace: Trace) -> Windows:
    spans = ((max(a, trace.start_s), min(b, trace.end_s)) for a, b in windows)
    return [(a, b) for a, b in spans if a < b]


def _length_s(windows: Windows) -> float:
    return math.fsum(end - start for start, end in windows)


def _energy_j(estimator: Estimator, windows: Windows) -> float:
    return math.fsum(estimator.energy_j(*window) for window in windows)


def _span(time_s: float, energy_j: float) -> dict[str, Any]:
    return {"time_s": _measured(time_s), "energy_j": _measured(energy_j)}


def _measured(value: float | None, reason: str = "not known") -> dict[str, Any]:
    if value is None or not math.isfinite(value):
        return unknown(reason).to_json()
    return Figure(value=value, origin="measured").to_json()


def _estimated(estimate: Estimate | None, reason: str = "") -> dict[str, Any]:
    if estimate is None:
        return unknown(reason).to_json()
    low_j = estimate.energy_j - estimate.error_j
    high_j = estimate.energy_j + estimate.error_j
    figure = Figure(value=estimate.energy_j, origin="measured", low=low_j, high=high_j)
    return figure.to_json()
