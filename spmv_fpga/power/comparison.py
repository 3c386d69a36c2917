"""Two variants held against each other, over many runs of each.

What time alone would have said stands beside what energy says: the two agree only where
both variants draw the same power. Medians over runs with percentile bootstrap intervals,
and every answer twice where some runs were made in another state of the machine: with all
runs, and with the longest steady stretch alone. No run is left out in silence, and none is
chosen for its value: the best of many runs is a figure of the sensor's luck.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from .. import units
from ..errors import SensorError
from ..figures import Figure, unknown
from ..stats import Interval, changepoints, median_interval, ratio_interval
from .trace import LARGEST

VERDICTS = ("resolved", "bound only", "unresolved")
_UNLIKE_REFRESH = 1.5
_LEAST_J = 1e-12
"""Less is 0: to divide by it may overflow."""

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RunFigures:
    """What one run of a variant spent in the region that is compared.

    Attributes
    ----------
    time_s : float
        Duration of the region, over all entries.
    energy_j : float or None
        Its energy by the trapezoid, the estimate that adds up with `outside_j`; None where
        it was not measured.
    outside_j : float or None
        Energy of the run outside every region.
    run_j : float or None
        Energy of the whole run.
    boundary : str or None
        What the sensor measures: `card`, `package`, `package + DRAM`, `GPU`.
    sensor : str or None
    refresh_s : float or None
        Refresh period of the sensor.
    verdict : str
        `resolved`, `bound only` or `unresolved`.

    Raises
    ------
    SensorError
        If the time is not positive, the verdict is none of the three, or a figure is not
        finite.
    """

    time_s: float
    energy_j: float | None = None
    outside_j: float | None = None
    run_j: float | None = None
    boundary: str | None = None
    sensor: str | None = None
    refresh_s: float | None = None
    verdict: str = "resolved"

    def __post_init__(self) -> None:
        if not 1 / LARGEST <= self.time_s <= LARGEST:
            raise SensorError(
                f"the region took {self.time_s} s; it must be above 0 and at most {LARGEST:g}."
            )
        if self.verdict not in VERDICTS:
            raise SensorError(
                f"the verdict is {self.verdict!r}; it must be one of {', '.join(VERDICTS)}."
            )
        for name in ("energy_j", "outside_j", "run_j", "refresh_s"):
            number = getattr(self, name)
            if number is not None and not abs(number) <= LARGEST:
                raise SensorError(
                    f"{name} is {number}; it must be null or a number, at most {LARGEST:g}."
                )

    @property
    def outside_share(self) -> float | None:
        """Part of the run's energy that no region spent."""
        if self.outside_j is None or self.run_j is None or abs(self.run_j) < _LEAST_J:
            return None
        return self.outside_j / self.run_j

    @classmethod
    def from_document(
        cls, document: Mapping[str, Any], region: str | None = None
    ) -> RunFigures:
        """Take a region out of the document that `energy integrate` writes.

        Parameters
        ----------
        document : mapping
            Parsed JSON.
        region : str, optional
            Name of the region; may be left out where the run has one only.

        Raises
        ------
        SensorError
            If there is no such region, or the document is another one.

        Examples
        --------
        >>> document = {
        ...     "run": {"time_s": {"value": 3.0}, "energy_j": {"value": 60.0}},
        ...     "regions": [{"name": "spmv", "count": 1, "time_s": {"value": 2.0},
        ...                  "energy_j": {"value": 50.0}, "verdict": "resolved"}],
        ...     "outside": {"time_s": {"value": 1.0}, "energy_j": {"value": 10.0}},
        ... }
        >>> RunFigures.from_document(document).energy_j
        50.0
        """
        try:
            found = _region(document["regions"], region)
            time_s = _number(found["time_s"])
            energy_j = _number(found["energy_j"])
            verdict = str(found["verdict"])
            outside_j = _number(document["outside"]["energy_j"])
            run_j = _number(document["run"]["energy_j"])
            sensor = document.get("sensor", {})
            refresh_s = _number(sensor.get("refresh_s"))
            boundary, name = (_text(sensor.get(key)) for key in ("boundary", "name"))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise SensorError(
                f"the document is none of `energy integrate` ({type(error).__name__}: {error})."
            ) from None
        if time_s is None:
            raise SensorError(f"the time of region {found['name']!r} is null.")
        return cls(
            time_s=time_s,
            energy_j=energy_j,
            outside_j=outside_j,
            run_j=run_j,
            boundary=_known(boundary),
            sensor=_known(name),
            refresh_s=refresh_s,
            verdict=verdict,
        )


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Medians over the runs of one variant.

    Attributes
    ----------
    name : str
    num_runs : int
    first_run : int
        Index of the first of these runs among all runs of the variant.
    time_s : Interval
    energy_j, power_w : Interval or None
        None where the energy is not known; power is energy over time, run by run.
    outside_share : float or None
        Median part of the run's energy outside every region.
    """

    name: str
    num_runs: int
    first_run: int
    time_s: Interval
    energy_j: Interval | None
    power_w: Interval | None
    outside_share: float | None

    def to_json(self, no_energy: str | None) -> dict[str, Any]:
        """Return the variant as JSON has it."""
        return {
            "name": self.name,
            "runs": self.num_runs,
            "first_run": self.first_run,
            "time_s": _figure(self.time_s, no_energy).to_json(),
            "energy_j": _figure(self.energy_j, no_energy).to_json(),
            "power_w": _figure(self.power_w, no_energy).to_json(),
            "outside_share": self.outside_share,
        }


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a set of runs says of variant b against variant a.

    Attributes
    ----------
    a, b : Variant
    time, energy, power : Interval or None
        Median of b over median of a; None where the energy is not known.
    """

    a: Variant
    b: Variant
    time: Interval
    energy: Interval | None
    power: Interval | None

    def sentence(self) -> str:
        """Say in one sentence what time and what energy say."""
        energy = "unknown" if self.energy is None else _words(self.energy)
        power = "" if self.power is None else f" (mean power: {_words(self.power)})"
        return (
            f"{self.b.name} against {self.a.name}: time would have said {_words(self.time)}, "
            f"energy says {energy}{power}; medians of {self.b.num_runs} and "
            f"{self.a.num_runs} runs."
        )

    def to_json(self, no_energy: str | None) -> dict[str, Any]:
        """Return the answer as JSON has it."""
        return {
            "a": self.a.to_json(no_energy),
            "b": self.b.to_json(no_energy),
            **_ratio_json("time", self.time),
            **_ratio_json("energy", self.energy),
            **_ratio_json("power", self.power),
            "sentence": self.sentence(),
        }


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Two variants, with all that weakens the answer.

    Attributes
    ----------
    all_runs : Answer
    steady_runs : Answer or None
        The same for each variant's longest stretch without a change of state; None where
        no change was found.
    changes_a, changes_b : tuple of int
        First run, counted from 0, of each further state of the machine.
    no_energy : str or None
        Why there is no energy.
    boundary, sensor : str or None
        None where the runs name none, or not all the same.
    warnings : tuple of str
        One sentence each.
    """

    all_runs: Answer
    steady_runs: Answer | None
    changes_a: tuple[int, ...]
    changes_b: tuple[int, ...]
    no_energy: str | None
    boundary: str | None
    sensor: str | None
    warnings: tuple[str, ...]

    def sentences(self) -> tuple[str, ...]:
        """Return that a run stands alone, both answers, then what weakens them."""
        answers = [self.all_runs.sentence()]
        if self.steady_runs is not None:
            answers.append(f"Steady runs only: {self.steady_runs.sentence()}")
        return (*self._too_few(), *answers, *self.warnings)

    def _too_few(self) -> list[str]:
        """Say first where no spread is known: what follows may be chance."""
        single = [v.name for v in (self.all_runs.a, self.all_runs.b) if v.num_runs == 1]
        if not single:
            return []
        return [f"One run has no interval ({', '.join(single)}): the difference may be chance."]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON has it."""
        steady = self.steady_runs
        return {
            **self.all_runs.to_json(self.no_energy),
            "steady": None if steady is None else steady.to_json(self.no_energy),
            "state_changes": {"a": list(self.changes_a), "b": list(self.changes_b)},
            "boundary": self.boundary,
            "sensor": self.sensor,
            "warnings": list(self.warnings),
        }


def compare(
    runs_a: Sequence[RunFigures],
    runs_b: Sequence[RunFigures],
    *,
    names: tuple[str, str] = ("a", "b"),
    paired: bool = False,
    force: bool = False,
) -> Comparison:
    """Compare two variants.

    Parameters
    ----------
    runs_a, runs_b : sequence of RunFigures
        In the order in which they were run.
    names : tuple of str
    paired : bool
        Whether runs of a and b took turns; slow drifts of the machine then cancel.
    force : bool
        Compare also what different sensors, or different boundaries, measured; a warning
        says so.

    Returns
    -------
    Comparison
        Ratios are b over a.

    Raises
    ------
    SensorError
        If there are no runs, pairs are incomplete, or the runs are unlike and `force` is
        not set.

    Notes
    -----
    A change of state is one of `stats.changepoints` in the runs' times or energies.

    Examples
    --------
    >>> slow = [RunFigures(time_s=2.0 + i / 100, energy_j=40.0) for i in range(8)]
    >>> fast = [RunFigures(time_s=1.0 + i / 200, energy_j=30.0) for i in range(8)]
    >>> compare(slow, fast, names=("scalar", "block")).all_runs.energy.value
    0.75
    """
    for name, runs in zip(names, (runs_a, runs_b), strict=True):
        if not runs:
            raise SensorError(f"variant {name} has no runs; give at least one.")
    if paired and len(runs_a) != len(runs_b):
        raise SensorError(
            f"there are {len(runs_a)} and {len(runs_b)} runs; pairs need as many of the one "
            "as of the other."
        )
    unlike = _unlike([*runs_a, *runs_b])
    if unlike and not force:
        raise SensorError(f"the runs cannot be compared: {'; '.join(unlike)}.")
    no_energy = _why_no_energy([*runs_a, *runs_b])
    changes_a, changes_b = _changes(runs_a, no_energy), _changes(runs_b, no_energy)
    everything = slice(0, len(runs_a)), slice(0, len(runs_b))
    all_runs = _answer((runs_a, runs_b), everything, names, no_energy, paired)
    steady_runs = None
    if changes_a or changes_b:
        stretches = (
            _longest_state(len(runs_a), changes_a),
            _longest_state(len(runs_b), changes_b),
        )
        stays_paired = paired and stretches[0] == stretches[1]
        steady_runs = _answer((runs_a, runs_b), stretches, names, no_energy, stays_paired)
    return Comparison(
        all_runs=all_runs,
        steady_runs=steady_runs,
        changes_a=changes_a,
        changes_b=changes_b,
        no_energy=no_energy,
        boundary=_common([run.boundary for run in (*runs_a, *runs_b)]),
        sensor=_common([run.sensor for run in (*runs_a, *runs_b)]),
        warnings=(
            *(f"{reason}: the comparison was forced." for reason in unlike),
            *_state_warnings(names[0], len(runs_a), changes_a),
            *_state_warnings(names[1], len(runs_b), changes_b),
            *_energy_warnings([*runs_a, *runs_b], no_energy),
            *_few_runs_warnings(names, (runs_a, runs_b)),
        ),
    )


def smallest_detectable(ratio: Interval) -> float | None:
    """Return the relative difference that this many runs would show four times out of five.

    Parameters
    ----------
    ratio : Interval
        Ratio of two medians.

    Returns
    -------
    float or None
        None where there is no interval.

    Notes
    -----
    (z₀.₉₇₅ + z₀.₈) · s with the standard error s taken from the interval's width,
    2 · z₀.₉₇₅ · s: the difference that a two-sided test at 5 % finds with a power of 80 %.

    Examples
    --------
    >>> round(smallest_detectable(Interval(1.0, 0.99, 1.01, n=20)), 4)
    0.0143
    """
    if ratio.low is None or ratio.high is None:
        return None
    z_level, z_power = float(ndtri(0.975)), float(ndtri(0.8))
    standard_error = (ratio.high - ratio.low) / (2 * z_level)
    return (z_level + z_power) * standard_error / ratio.value


def _region(regions: Sequence[Mapping[str, Any]], name: str | None) -> Mapping[str, Any]:
    names = [str(region["name"]) for region in regions]
    if name is None:
        if len(names) == 1:
            return regions[0]
        raise SensorError(
            f"the run has {len(names)} regions ({', '.join(names) or 'none'}); name the one "
            "to compare."
        )
    if name not in names:
        raise SensorError(
            f"the run has no region {name!r}; it has {', '.join(names) or 'none'}."
        )
    return regions[names.index(name)]


def _number(fact: Any) -> float | None:
    """Return a figure's value, or a plain number."""
    value = fact["value"] if isinstance(fact, Mapping) else fact
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise TypeError(f"{value!r:.80} is no number")
    return None if value is None else float(value)


def _text(fact: Any) -> str | None:
    if fact is not None and not isinstance(fact, str):
        raise TypeError(f"{fact!r:.80} is no text")
    return fact


def _known(name: str | None) -> str | None:
    return None if name in ("", "unknown") else name


def _unlike(runs: Sequence[RunFigures]) -> list[str]:
    """Say in which ways runs were not measured alike."""
    reasons = []
    for what, found in (
        ("boundaries", {run.boundary for run in runs}),
        ("sensors", {run.sensor for run in runs}),
    ):
        if len(found) > 1:
            listed = " and ".join(sorted(name or "one that is not named" for name in found))
            reasons.append(f"their {what} differ, {listed}")
    return reasons


def _why_no_energy(runs: Sequence[RunFigures]) -> str | None:
    missing = sum(run.energy_j is None for run in runs)
    if missing:
        return f"the energy of {missing} of {len(runs)} runs was not measured"
    unresolved = sum(run.verdict == "unresolved" for run in runs)
    if unresolved:
        return (
            f"the sensor does not resolve the region in {unresolved} of {len(runs)} runs; "
            "repeat the work inside the region"
        )
    return None


def _changes(runs: Sequence[RunFigures], no_energy: str | None) -> tuple[int, ...]:
    """Return the first runs of new states, by time or by energy."""
    found = set(changepoints([run.time_s for run in runs]))
    if no_energy is None:
        found.update(changepoints(_energies(runs)))
    return tuple(sorted(found))


def _longest_state(num_runs: int, changes: tuple[int, ...]) -> slice:
    """Return the longest stretch between changes; the later one of equals."""
    edges = (0, *changes, num_runs)
    stretches = list(pairwise(edges))
    start, end = max(reversed(stretches), key=lambda stretch: stretch[1] - stretch[0])
    return slice(start, end)


def _answer(
    runs: tuple[Sequence[RunFigures], Sequence[RunFigures]],
    stretches: tuple[slice, slice],
    names: tuple[str, str],
    no_energy: str | None,
    paired: bool,
) -> Answer:
    a, b = (side[stretch] for side, stretch in zip(runs, stretches, strict=True))
    has_energy = no_energy is None
    return Answer(
        a=_variant(names[0], a, stretches[0].start, has_energy),
        b=_variant(names[1], b, stretches[1].start, has_energy),
        time=ratio_interval(_times(b), _times(a), paired=paired),
        energy=_energy_ratio(_energies(b), _energies(a), paired) if has_energy else None,
        power=_energy_ratio(_powers(b), _powers(a), paired) if has_energy else None,
    )


def _energy_ratio(b: Float64Array, a: Float64Array, paired: bool) -> Interval | None:
    """Return the ratio; none where an energy is 0 or below, as idle subtracted may give."""
    if not (a.min() >= _LEAST_J and b.min() >= _LEAST_J):
        return None
    return ratio_interval(b, a, paired=paired)


def _variant(name: str, runs: Sequence[RunFigures], first: int, has_energy: bool) -> Variant:
    shares = [run.outside_share for run in runs if run.outside_share is not None]
    return Variant(
        name=name,
        num_runs=len(runs),
        first_run=first,
        time_s=median_interval(_times(runs)),
        energy_j=median_interval(_energies(runs)) if has_energy else None,
        power_w=median_interval(_powers(runs)) if has_energy else None,
        outside_share=float(np.median(shares)) if shares else None,
    )


def _times(runs: Sequence[RunFigures]) -> Float64Array:
    return np.array([run.time_s for run in runs])


def _energies(runs: Sequence[RunFigures]) -> Float64Array:
    return np.array([run.energy_j for run in runs], np.float64)


def _powers(runs: Sequence[RunFigures]) -> Float64Array:
    return _energies(runs) / _times(runs)


def _common(names: Sequence[str | None]) -> str | None:
    return names[0] if len(set(names)) == 1 else None


def _state_warnings(name: str, num_runs: int, changes: tuple[int, ...]) -> list[str]:
    if not changes:
        return []
    where = ", ".join(str(change + 1) for change in changes)
    kept = _longest_state(num_runs, changes)
    return [
        f"{name}: the machine was in another state from run {where} of {num_runs} on; "
        f"the longest steady stretch is runs {kept.start + 1} to {kept.stop}."
    ]


def _energy_warnings(runs: Sequence[RunFigures], no_energy: str | None) -> list[str]:
    if no_energy is not None:
        return [f"There is no energy to compare: {no_energy}."]
    warnings = []
    bounded = sum(run.verdict == "bound only" for run in runs)
    if bounded:
        warnings.append(
            f"In {bounded} of {len(runs)} runs the region spans fewer than 50 refresh periods "
            "of the sensor: its energy is a bound only."
        )
    if any(run.energy_j is not None and run.energy_j < _LEAST_J for run in runs):
        warnings.append("An energy is not above 0 J: there is no ratio of energies.")
    refreshes = [run.refresh_s for run in runs if run.refresh_s]
    if refreshes and max(refreshes) > _UNLIKE_REFRESH * min(refreshes):
        warnings.append(
            f"The sensor refreshed every {units.seconds(min(refreshes))} in some runs and "
            f"every {units.seconds(max(refreshes))} in others."
        )
    return warnings


def _few_runs_warnings(
    names: tuple[str, str], sides: tuple[Sequence[RunFigures], Sequence[RunFigures]]
) -> list[str]:
    return [
        f"{name}: {len(runs)} {'run gives' if len(runs) == 1 else 'runs give'} no interval; "
        "five are the least."
        for name, runs in zip(names, sides, strict=True)
        if len(runs) < 5
    ]


def _words(ratio: Interval) -> str:
    """Say a ratio as a change: `18.6 % less (17.6 to 19.3 %)`."""
    change = ratio.value - 1.0
    if ratio.low is None or ratio.high is None:
        return _change_text(change)
    if not ratio.excludes(1.0):
        least = smallest_detectable(ratio)
        return f"no difference (one of {units.percent(least)} would show)"
    bounds = sorted((abs(ratio.low - 1.0), abs(ratio.high - 1.0)))
    return f"{_change_text(change)} ({100 * bounds[0]:.1f} to {units.percent(bounds[1])})"


def _change_text(change: float) -> str:
    return f"{units.percent(abs(change))} {'less' if change < 0 else 'more'}"


def _figure(interval: Interval | None, reason: str | None) -> Figure:
    if interval is None:
        return unknown(reason or "not measured")
    return Figure(
        value=interval.value,
        origin="measured",
        low=interval.low,
        high=interval.high,
        n=interval.n,
    )


def _ratio_json(name: str, ratio: Interval | None) -> dict[str, float | None]:
    keys = (f"{name}_ratio", f"{name}_ratio_low", f"{name}_ratio_high")
    detectable = f"{name}_smallest_detectable"
    if ratio is None:
        return dict.fromkeys((*keys, detectable))
    values = (ratio.value, ratio.low, ratio.high)
    return {**dict(zip(keys, values, strict=True)), detectable: smallest_detectable(ratio)}
