"""Energy of a window of time: three estimates, each with what it may be wrong by.

The *trapezoid* over all samples, edges interpolated, adds up: regions and what lies outside
of them give the run. But a sensor shows a change late, so a region's first moments are
charged to what came before it. The *inner* mean takes only readings that lie wholly inside
and so has no such bias, if the power is steady within the window. A hardware *counter* is
interpolated between its updates. Where no reading lies inside, nothing was measured: the
window drew something between the least and the most that the run ever showed, and the middle
of that *range* stands for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import stats

from ..errors import SensorError
from .trace import POWER_FROM_COUNTER, Refresh, Samples, Trace, changed, check_samples

Verdict = Literal["resolved", "bound only", "unresolved"]
Preferred = Literal["trapezoid", "inner", "counter", "range"]

RESOLVED_PERIODS, BOUND_PERIODS = 50, 2
"""Refresh periods from which on a window is resolved, and from which on it is bounded."""
_ROUNDING = 1e-9
_CONFIDENCE = 0.99
_STEP_FACTOR = 8
"""A difference this many times the usual one is a step of the load, not noise."""


def verdict(duration_s: float, refresh_s: float) -> Verdict:
    """Say whether a sensor with this refresh period can resolve a window.

    >>> verdict(5.0, 0.1), verdict(0.2, 0.1), verdict(0.005, 0.1)
    ('resolved', 'bound only', 'unresolved')
    """
    num_periods = duration_s * (1 + _ROUNDING)
    if num_periods >= RESOLVED_PERIODS * refresh_s and duration_s > 0:
        return "resolved"
    if num_periods >= BOUND_PERIODS * refresh_s and duration_s > 0:
        return "bound only"
    return "unresolved"


def integrate(
    time_s: npt.ArrayLike, power_w: npt.ArrayLike, start_s: float, end_s: float
) -> float:
    """Integrate sampled power over a window by the trapezoid rule.

    Parameters
    ----------
    time_s : array_like, shape (n,), float64
        Times of the samples in seconds, ascending. Equal times are a jump.
    power_w : array_like, shape (n,), float64
    start_s, end_s : float
        The window; power at its edges is interpolated.

    Returns
    -------
    float
        Energy in joules.

    Raises
    ------
    SensorError
        If the samples are unusable, the window ends before it starts, or it reaches outside
        the samples: what nobody measured is never made up.

    Examples
    --------
    >>> integrate([0.0, 1.0, 2.0], [10.0, 10.0, 30.0], 0.5, 1.5)
    12.5
    """
    times, powers = np.asarray(time_s, np.float64), np.asarray(power_w, np.float64)
    check_samples(times, powers)
    _check_window(times, start_s, end_s)
    return _integrate(times, powers, start_s, end_s)


def inner_mean(
    time_s: npt.ArrayLike,
    power_w: npt.ArrayLike,
    start_s: float,
    end_s: float,
    *,
    fetch_s: npt.ArrayLike | None = None,
    refresh_s: float = 0.0,
) -> tuple[float, int]:
    """Average the readings that lie wholly inside a window.

    Parameters
    ----------
    time_s, power_w : array_like, shape (n,), float64
        Samples.
    start_s, end_s : float
        The window.
    fetch_s : array_like, shape (n,), float64, optional
        When the sensor took each sample. A value that was fetched once counts once, however
        often it was read.
    refresh_s : float
        How far a sample reaches back: from `fetch_s` where given, else from `time_s`, where
        a sensor holds its value for a refresh period.

    Returns
    -------
    power_w : float
        NaN where no reading lies inside.
    num_readings : int

    Examples
    --------
    >>> inner_mean([0.0, 1.0, 2.0, 3.0], [5.0, 5.0, 9.0, 7.0], 0.9, 3.0, refresh_s=1.0)
    (8.0, 2)
    """
    times, powers = np.asarray(time_s, np.float64), np.asarray(power_w, np.float64)
    check_samples(times, powers)
    if fetch_s is not None:
        times, powers = _fetched(np.asarray(fetch_s, np.float64), powers)
    inside = powers[(times - refresh_s >= start_s) & (times <= end_s)]
    return (float(inside.mean()) if len(inside) else math.nan, len(inside))


@dataclass(frozen=True, slots=True)
class Estimate:
    """An energy and how far it may be off.

    Attributes
    ----------
    energy_j : float
    edge_error_j : float
        For the moments at the window's edges in which the sensor still showed what was
        before; all in one direction, so those of many windows add up. Infinite where
        nothing bounds it.
    refresh_error_j : float
        For power that varied between the readings (at 99 %); random, so those of
        many windows add up as squares.
    quantum_error_j : float
        For the sensor's resolution.
    """

    energy_j: float
    edge_error_j: float
    refresh_error_j: float
    quantum_error_j: float

    @property
    def error_j(self) -> float:
        """All terms together; gain and offset of the sensor are not in it."""
        return self.edge_error_j + math.hypot(self.refresh_error_j, self.quantum_error_j)

    @staticmethod
    def total(estimates: Iterable[Estimate]) -> Estimate:
        """Add the estimates of separate windows.

        >>> Estimate.total([Estimate(1.0, 0.1, 0.3, 0.0), Estimate(2.0, 0.1, 0.4, 0.0)])
        Estimate(energy_j=3.0, edge_error_j=0.2, refresh_error_j=0.5, quantum_error_j=0.0)
        """
        parts = list(estimates)
        return Estimate(
            math.fsum(e.energy_j for e in parts),
            math.fsum(e.edge_error_j for e in parts),
            math.sqrt(math.fsum(e.refresh_error_j**2 for e in parts)),
            math.fsum(e.quantum_error_j for e in parts),
        )


@dataclass(frozen=True, slots=True)
class WindowEnergy:
    """Energy of one window, or of several together.

    Attributes
    ----------
    trapezoid : Estimate
        The figure that adds up.
    inner : Estimate or None
        Mean of the readings wholly inside × duration; None where there is none.
    counter : Estimate or None
        Difference of the hardware counter; None where there is none.
    range : Estimate
        The middle of what the run ever showed × duration.
    samples : int
        Samples of the trace inside the window.
    verdict : str
        Whether the sensor resolves a window of this length.
    """

    trapezoid: Estimate
    inner: Estimate | None
    counter: Estimate | None
    range: Estimate
    samples: int
    verdict: Verdict

    @property
    def preferred(self) -> Preferred:
        """Name of the estimate with the least error; the trapezoid where nothing bounds any."""
        named = self._named()
        return min(named, key=lambda name: named[name].error_j)

    @property
    def best(self) -> Estimate:
        """The estimate to trust."""
        return self._named()[self.preferred]

    @property
    def energy_j(self) -> float:
        """The trapezoid's energy."""
        return self.trapezoid.energy_j

    @property
    def energy_inner_j(self) -> float | None:
        """The inner mean × duration."""
        return None if self.inner is None else self.inner.energy_j

    @property
    def energy_counter_j(self) -> float | None:
        """The counter's energy."""
        return None if self.counter is None else self.counter.energy_j

    @property
    def edge_error_j(self) -> float:
        """Edge term of the estimate to trust."""
        return self.best.edge_error_j

    @property
    def refresh_error_j(self) -> float:
        """Refresh term of the estimate to trust."""
        return self.best.refresh_error_j

    @property
    def quantum_error_j(self) -> float:
        """Quantum term of the estimate to trust."""
        return self.best.quantum_error_j

    @property
    def error_j(self) -> float:
        """Error of the estimate to trust."""
        return self.best.error_j

    def _named(self) -> dict[Preferred, Estimate]:
        named: dict[Preferred, Estimate | None] = {
            "trapezoid": self.trapezoid,
            "inner": self.inner,
            "counter": self.counter,
            "range": self.range,
        }
        return {name: e for name, e in named.items() if e is not None}


def window_energy(
    trace: Trace, start_s: float, end_s: float, refresh: Refresh | None = None
) -> WindowEnergy:
    """Estimate the energy of one window; see `Estimator` for many of the same trace."""
    return Estimator(trace, refresh).window(start_s, end_s)


class Estimator:
    """What is known of a trace's sensor, and from it the energy of any window.

    Parameters
    ----------
    trace : Trace
    refresh : Refresh, optional
        Measured from the trace by default.

    Attributes
    ----------
    age_s : float
        How far a reading reaches back from its time stamp.
    lag_s : float
        How late a change of power shows in the trace at most.
    noise_w : float
        Standard deviation of a reading while the power is steady.
    low_w, high_w : float
        The least and the most power of the run.

    Notes
    -----
    With T the refresh period, L the window's length, n the readings inside, σ their noise,
    q the sensor's step and ΔP the change of power about an edge:

    - trapezoid: edge ΔP · (T + age) at the start, because a held value lags by up to that;
      half a sampling interval of ΔP at the end. A burst between idle phases loses T/2 · ΔP
      on average where held values are polled, T/3 · ΔP where samples carry their own time.
    - inner: no edge term; it takes the power to be steady, so the scatter of the readings
      inside, drift included, counts as their noise. Only where the sensor gives power: one
      that was derived from a counter reaches to either side.
    - counter: an interval of length T between two updates is shared out evenly, which is off
      by u (1 - u) T ΔP ≤ T/4 · ΔP where the edge cuts it at u (T/3 · ΔP for a burst on
      average); an update is seen up to one poll late, and how that scatters shifts the
      edges by so much of the highest power nearby.
    - refresh: t σ/√n · L with Student's t for 99 %. quantum: q/2 · L, or a counter's step.
    - range: half of the highest less the lowest power · L, which holds if the window did
      nothing that the run shows nowhere. A run that shows no change at all bounds nothing.

    The step of 1.25 mA at 12 V is 15 mW on a U50, its registers tick each 120 ms, its cache
    lasts 1 s (XRT 2.13, xmc.c; Alveo-Cards documentation, out-of-band telemetry).
    """

    def __init__(self, trace: Trace, refresh: Refresh | None = None) -> None:
        self.trace = trace
        self.refresh = trace.refresh() if refresh is None else refresh
        self.period_s = self.refresh.period_s
        self._times, self._powers = trace.time_s, trace.power_w
        self._interval_s = trace.interval_s
        self._gap_s = float(np.quantile(np.diff(trace.time_s), 0.95))
        self._step_w = trace.fact("power_step_w") or 0.0
        self.low_w, self.high_w = float(self._powers.min()), float(self._powers.max())
        self._has_stamps = self.refresh.how == "fetch"
        self._has_readings = not POWER_FROM_COUNTER.items() <= trace.facts.items()
        declared_s = trace.fact("sample_age_s")
        if self._has_stamps:
            self.age_s = self.period_s if declared_s is None else declared_s
            self.lag_s = self.period_s + self.age_s
        else:
            # A change is seen up to one sample after it happened.
            self.age_s = max(self.period_s + self._interval_s, declared_s or 0.0)
            self.lag_s = self.age_s

    @cached_property
    def _readings(self) -> tuple[Samples, Samples]:
        """Times and powers of readings that are new, one for each refresh period."""
        if self._has_stamps and self.trace.fetch_s is not None:
            return _fetched(self.trace.fetch_s, self._powers)
        # Not by a list of all periods: a trace with a gap may span very many.
        period = np.floor((self._times - self.trace.start_s) / self.period_s)
        at = np.flatnonzero(np.diff(period, prepend=-1))
        return self._times[at], self._powers[at]

    @cached_property
    def noise_w(self) -> float:
        """Standard deviation of a reading, from first differences without the steps."""
        steps_w = np.abs(np.diff(self._readings[1]))
        if not len(steps_w):
            return 0.0
        usual_w = max(float(np.median(steps_w)), self._step_w)
        usual = steps_w[steps_w <= _STEP_FACTOR * usual_w]
        return math.sqrt(float(np.mean(usual**2)) / 2)

    @cached_property
    def _standard_errors(self) -> float:
        """Standard errors to either side of a mean: more where few readings tell the noise."""
        freedom = max(len(self._readings[1]) - 1, 1)
        return float(stats.t.ppf((1 + _CONFIDENCE) / 2, freedom))

    @cached_property
    def _counter(self) -> tuple[Samples, Samples] | None:
        """Times and joules of the counter's updates."""
        counter_j = self.trace.energy_j
        if counter_j is None or np.isnan(counter_j).any():
            return None
        at = changed(counter_j)
        if len(at) > 0.9 * len(counter_j):  # each sample is an update, the first one too
            at = np.concatenate(([0], at))
        at = at[np.diff(self._times[at], append=math.inf) > 0]
        return (self._times[at], counter_j[at]) if len(at) >= 2 else None

    @cached_property
    def _counter_period_s(self) -> float:
        """Time between updates of the counter."""
        return (
            math.nan if self._counter is None else float(np.median(np.diff(self._counter[0])))
        )

    @cached_property
    def _counter_late_s(self) -> float:
        """How differently late two updates may be seen."""
        if self._counter is None:
            return 0.0
        times, _ = self._counter
        intervals_s, period_s = np.diff(times), self._counter_period_s
        longest_s = min(self.trace.fact("refresh_s") or period_s, self._gap_s)
        if period_s < 2 * self._interval_s:
            # Each sample is an update of unknown age. Two ages, each anything up to the
            # longest, differ by less than 0.9 of it in 99 % of cases.
            return 0.9 * longest_s
        # Updates are regular; what their times scatter about a grid is the polling's part.
        number = np.concatenate(([0.0], np.cumsum(np.round(intervals_s / period_s))))
        slope, offset = np.polyfit(number, times, 1)
        scatter_s = float((times - slope * number - offset).std())
        return min(longest_s, self._standard_errors * math.sqrt(2) * scatter_s)

    def window(self, start_s: float, end_s: float) -> WindowEnergy:
        """Estimate the energy from `start_s` to `end_s`.

        Raises
        ------
        SensorError
            If the window reaches outside the trace.
        """
        _check_window(self._times, start_s, end_s)
        inner = self._inner(start_s, end_s) if self._has_readings else None
        is_long = end_s - start_s >= BOUND_PERIODS * self.period_s
        is_seen = inner is not None or (is_long and not self._has_readings)
        first, after = np.searchsorted(self._times, (start_s, end_s), "left")
        return WindowEnergy(
            self._trapezoid(start_s, end_s, is_seen=is_seen),
            inner,
            self._counted(start_s, end_s),
            self._ranged(end_s - start_s),
            int(after - first) + int(after < len(self._times) and self._times[after] == end_s),
            verdict(end_s - start_s, self.period_s),
        )

    def energy_j(self, start_s: float, end_s: float) -> float:
        """Return the trapezoid's energy alone."""
        _check_window(self._times, start_s, end_s)
        return _integrate(self._times, self._powers, start_s, end_s)

    def _trapezoid(self, start_s: float, end_s: float, *, is_seen: bool) -> Estimate:
        duration_s = end_s - start_s
        gap_s = self._gap_s
        if is_seen:
            rise_w = self._swing_w(start_s - gap_s, start_s + self.lag_s + gap_s)
            fall_w = self._swing_w(end_s - gap_s, end_s + gap_s)
            edge_j = rise_w * min(self.lag_s, duration_s) + fall_w * min(gap_s, duration_s) / 2
        else:
            edge_j = 2 * self._unseen_j(duration_s)
        num_readings = max(duration_s / self.period_s, 1.0)
        return Estimate(
            _integrate(self._times, self._powers, start_s, end_s),
            edge_j,
            self._standard_errors * self.noise_w / math.sqrt(num_readings) * duration_s,
            self._step_w / 2 * duration_s,
        )

    def _inner(self, start_s: float, end_s: float) -> Estimate | None:
        times, powers = self._readings if self._has_stamps else (self._times, self._powers)
        first = np.searchsorted(times, start_s + self.age_s, "left")
        inside = powers[first : np.searchsorted(times, end_s, "right")]
        if not len(inside):
            return None
        duration_s = end_s - start_s
        num_readings = float(len(inside))
        if not self._has_stamps:  # a held value was read several times
            span_s = end_s - self.age_s - start_s + self._interval_s
            num_readings = min(max(span_s / self.period_s, 1.0), num_readings)
        scatter_w = max(float(inside.std()), self.noise_w)
        return Estimate(
            float(inside.mean()) * duration_s,
            0.0,
            self._standard_errors * scatter_w / math.sqrt(num_readings) * duration_s,
            self._step_w / 2 * duration_s,
        )

    def _counted(self, start_s: float, end_s: float) -> Estimate | None:
        if self._counter is None:
            return None
        duration_s = end_s - start_s
        times, joules = self._counter
        interval_s, late_s = self._counter_period_s, self._counter_late_s
        if duration_s >= BOUND_PERIODS * interval_s:
            margin_s = interval_s + late_s
            swings_w = [self._swing_w(t - margin_s, t + margin_s) for t in (start_s, end_s)]
            edge_j = sum(swings_w) * interval_s / 4
        else:
            edge_j = 2 * self._unseen_j(duration_s)
        low_j, high_j = (_extended(t, times, joules) for t in (start_s, end_s))
        nearby = self._between(start_s - interval_s, end_s + interval_s)
        return Estimate(
            high_j - low_j,
            edge_j,
            late_s * float(nearby.max()),
            self.trace.fact("energy_step_j") or 0.0,
        )

    def _ranged(self, duration_s: float) -> Estimate:
        return Estimate(
            (self.low_w + self.high_w) / 2 * duration_s,
            self._unseen_j(duration_s),
            0.0,
            self._step_w / 2 * duration_s,
        )

    def _unseen_j(self, duration_s: float) -> float:
        """Return half of what a window may differ by that the sensor did not see."""
        swing_w = self.high_w - self.low_w
        is_flat = swing_w <= max(8 * self.noise_w, 2 * self._step_w)
        return math.inf if is_flat else swing_w / 2 * duration_s

    def _between(self, start_s: float, end_s: float) -> Samples:
        """Return the powers from one time to another, the nearest where there are none."""
        first, after = np.searchsorted(self._times, (start_s, end_s))
        first = min(first, len(self._times) - 1)
        return self._powers[first : max(after, first + 1)]

    def _swing_w(self, start_s: float, end_s: float) -> float:
        return float(np.ptp(self._between(start_s, end_s)))


def _integrate(times: Samples, powers: Samples, start_s: float, end_s: float) -> float:
    if start_s == end_s:
        return 0.0
    # At a jump the window's first moment is after it and its last one before it.
    first = int(np.searchsorted(times, start_s, "right"))
    after = int(np.searchsorted(times, end_s, "left"))
    inner_times, inner_powers = times[first:after], powers[first:after]
    edges_w = [_at(times, powers, t, k) for t, k in ((start_s, first), (end_s, after))]
    window_s = np.concatenate(([start_s], inner_times, [end_s]))
    window_w = np.concatenate(([edges_w[0]], inner_powers, [edges_w[1]]))
    return float(np.dot(window_s[1:] - window_s[:-1], window_w[1:] + window_w[:-1])) / 2


def _at(times: Samples, powers: Samples, at_s: float, after: int) -> float:
    """Interpolate between the samples `after - 1` and `after`."""
    if after == len(times) or after == 0:  # exactly the last or the first sample
        return float(powers[min(after, len(times) - 1)])
    left_s, right_s = times[after - 1], times[after]
    share = (at_s - left_s) / (right_s - left_s)
    return float(powers[after - 1] * (1 - share) + powers[after] * share)


def _extended(at_s: float, times: Samples, joules: Samples) -> float:
    """Interpolate a counter; beyond its updates it goes on as between the nearest two."""
    after = int(np.clip(np.searchsorted(times, at_s), 1, len(times) - 1))
    slope_w = (joules[after] - joules[after - 1]) / (times[after] - times[after - 1])
    return float(joules[after - 1] + slope_w * (at_s - times[after - 1]))


def _fetched(fetch_s: Samples, powers: Samples) -> tuple[Samples, Samples]:
    """Keep one sample of each fetch."""
    is_new = np.concatenate(([True], np.diff(fetch_s) != 0)) & ~np.isnan(fetch_s)
    return fetch_s[is_new], powers[is_new]


def _check_window(times: Samples, start_s: float, end_s: float) -> None:
    if not start_s <= end_s:
        raise SensorError(f"the window ends at {end_s} s, before its start {start_s} s.")
    if not len(times):
        raise SensorError("there are no samples to integrate.")
    if start_s < times[0] or end_s > times[-1]:
        missing = [
            f"{low} to {high} s"
            for low, high in (
                (start_s, min(end_s, float(times[0]))),
                (max(start_s, float(times[-1])), end_s),
            )
            if low < high or (low == high == start_s == end_s)
        ]
        raise SensorError(
            f"no samples from {' and '.join(missing)}; the trace covers {times[0]} to "
            f"{times[-1]} s, so record for longer."
        )
