"""Statistics of repeated measurements: intervals of medians, changes of state.

A value is one run's, or one short window's; runs are taken in the order in which they were
made. Medians, because durations and energies have a heavy upper tail; percentile intervals,
because BCa intervals are not defined on values that a sensor's steps make equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import stats

from .errors import SpmvFpgaError

MIN_RUNS = 5
"""Below five values even the range from least to largest encloses the median in less than
93 % of cases (1 - 2·2⁻ⁿ), so there is no interval."""
MIN_STATE = 3
"""Values that a state must hold; fewer in a row are outliers."""

_CONFIDENCE = 0.95
_NUM_RESAMPLES = 9999
_BATCH_VALUES = 1 << 20
_SEED = 1
_MAD_TO_SD = 1.4826
"""Standard deviation over median absolute deviation, of a normal distribution."""
_OUTLIER_SD = 3.0

Float64Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval.

    Attributes
    ----------
    value : float
    low, high : float or None
        None where there are too few values for an interval.
    n : int
        Values behind it; the smaller number where there are two samples.
    """

    value: float
    low: float | None
    high: float | None
    n: int

    def excludes(self, value: float) -> bool:
        """Return whether a value lies outside the interval; False where there is none.

        >>> Interval(0.8, 0.7, 0.9, n=9).excludes(1.0)
        True
        """
        if self.low is None or self.high is None:
            return False
        return not self.low <= value <= self.high


def median_interval(values: Sequence[float] | Float64Array) -> Interval:
    """Return the median with its percentile bootstrap interval.

    Parameters
    ----------
    values : array_like, shape (n,)
        One value a run.

    Returns
    -------
    Interval
        Without bounds below five values. The same values give the same bounds: the
        resampling is seeded.

    Raises
    ------
    SpmvFpgaError
        If there are no values, or one is not finite.

    Notes
    -----
    Percentile method [1]_ with 9999 resamples; the bounds are medians of resampled values,
    so with few runs they are nearly the least and the largest: n belongs beside them. For
    many thousands of values take `figures.median`, which needs no resampling.

    References
    ----------
    .. [1] B. Efron and R. Tibshirani, An Introduction to the Bootstrap, 1993, chapter 13.

    Examples
    --------
    >>> median_interval([2.0, 2.0, 2.0, 2.0, 2.0])
    Interval(value=2.0, low=2.0, high=2.0, n=5)
    >>> median_interval([1.0, 3.0])
    Interval(value=2.0, low=None, high=None, n=2)
    """
    sample = _checked(values)
    middle = float(np.median(sample))
    n = len(sample)
    if n < MIN_RUNS:
        return Interval(middle, None, None, n)
    if np.ptp(sample) == 0.0:
        return Interval(middle, middle, middle, n)
    low, high = _bootstrap((sample,), _median, paired=False)
    return Interval(middle, low, high, n)


def ratio_interval(
    numerator: Sequence[float] | Float64Array,
    denominator: Sequence[float] | Float64Array,
    *,
    paired: bool = False,
) -> Interval:
    """Return the ratio of two medians with its percentile bootstrap interval.

    Parameters
    ----------
    numerator, denominator : array_like, shapes (n,) and (m,)
        One positive value a run.
    paired : bool
        Whether the runs of the two took turns, so that values of the same index are drawn
        together; then n must equal m.

    Returns
    -------
    Interval
        Without bounds if one of the two has fewer than five values.

    Raises
    ------
    SpmvFpgaError
        If a value is not positive and finite, or `paired` is asked for unlike lengths.

    Notes
    -----
    A ratio of medians, not the mean of ratios, which a few short runs would decide.

    Examples
    --------
    >>> ratio_interval([2.0] * 6, [4.0] * 5)
    Interval(value=0.5, low=0.5, high=0.5, n=5)
    """
    above, below = _checked(numerator), _checked(denominator)
    if not (above.min() > 0 and below.min() > 0):
        raise SpmvFpgaError("a ratio of medians needs positive values, and one is not.")
    if paired and len(above) != len(below):
        raise SpmvFpgaError(
            f"there are {len(above)} and {len(below)} runs; pairs need as many of the one "
            "as of the other."
        )
    ratio = float(np.median(above) / np.median(below))
    n = min(len(above), len(below))
    if n < MIN_RUNS:
        return Interval(ratio, None, None, n)
    if np.ptp(above) == 0.0 and np.ptp(below) == 0.0:
        return Interval(ratio, ratio, ratio, n)
    low, high = _bootstrap((above, below), _ratio_of_medians, paired=paired)
    return Interval(ratio, low, high, n)


def changepoints(values: Sequence[float] | Float64Array) -> tuple[int, ...]:
    """Find where a series changes to another level.

    Parameters
    ----------
    values : array_like, shape (n,)
        In the order in which they were measured.

    Returns
    -------
    tuple of int
        First index of each new state, ascending; empty for a steady series.

    Raises
    ------
    SpmvFpgaError
        If a value is not finite.

    Notes
    -----
    Least squares about a constant level in each state, at least three values a state, a
    penalty of 3 ln n variances for each change, minimised exactly by PELT [1]_. The noise
    is that between neighbours, so that a change of level does not count as noise: median
    absolute deviation of the first differences × 1.4826 / √2. One or two stray values in a
    row are no state: what lies farther than 3 σ from the median of the five values around
    it is replaced by that. A state may be noisier than the others, as a disturbed machine
    is: a change must also pay its penalty in the noise of the two states beside it.

    References
    ----------
    .. [1] R. Killick, P. Fearnhead and I. A. Eckley, Optimal detection of changepoints with
       a linear computational cost, J. Am. Stat. Assoc. 107, 2012.

    Examples
    --------
    >>> changepoints([3.6, 3.5, 3.6, 3.5, 2.2, 2.1, 2.2, 2.1, 2.2])
    (4,)
    >>> changepoints([3.6, 3.5, 3.6, 9.9, 3.6, 3.5, 3.6])
    ()
    """
    sample = _checked(values) if len(values) else np.zeros(0)
    if len(sample) < 2 * MIN_STATE:
        return ()
    noise = _noise(sample)
    if noise == 0.0:
        return ()
    scaled = (sample - np.median(sample)) / noise
    penalty = 3.0 * math.log(len(sample))
    return _beyond_local_noise(_pelt(_without_outliers(scaled), penalty), scaled, penalty)


def steady_from(
    values: Sequence[float] | Float64Array, *, tolerance: float = 0.0, share: float = 0.5
) -> int | None:
    """Return the index from which a series has been steady to its end.

    Parameters
    ----------
    values : array_like, shape (n,)
        Positive, in the order in which they were measured.
    tolerance : float
        Relative difference of levels that is none: a long series shows changes that are
        real but too small to matter.
    share : float
        Part of the series that the steady state must hold.

    Returns
    -------
    int or None
        None if the last state is shorter than that share of the series, or the series has
        fewer than six values, which tell nothing.

    Examples
    --------
    >>> steady_from([3.6, 3.5, 3.6, 2.2, 2.1, 2.2, 2.1, 2.2])
    3
    >>> steady_from([3.6, 3.5, 3.6, 3.5, 3.6, 2.2, 2.1, 2.2]) is None
    True
    """
    n = len(values)
    if n < 2 * MIN_STATE:
        return None
    start, end, level = n, n, float("nan")
    for change in reversed((0, *changepoints(values))):
        state = float(np.median(values[change:end]))
        if end == n:
            level = state
        elif not abs(state - level) <= tolerance * abs(level):
            break
        start = end = change
    return start if n - start >= share * n else None


def _checked(values: Sequence[float] | Float64Array) -> Float64Array:
    sample = np.asarray(values, np.float64)
    if sample.ndim != 1 or not len(sample):
        raise SpmvFpgaError(f"the values have shape {sample.shape}; they must be a list.")
    if not np.isfinite(sample).all():
        wrong = int(np.flatnonzero(~np.isfinite(sample))[0])
        raise SpmvFpgaError(f"value {wrong} is {sample[wrong]}; it must be a finite number.")
    return sample


def _median(sample: Float64Array, axis: int) -> Float64Array:
    return np.asarray(np.median(sample, axis=axis))


def _ratio_of_medians(above: Float64Array, below: Float64Array, axis: int) -> Float64Array:
    return np.asarray(np.median(above, axis=axis) / np.median(below, axis=axis))


def _bootstrap(
    samples: tuple[Float64Array, ...], statistic: object, *, paired: bool
) -> tuple[float, float]:
    longest = max(len(sample) for sample in samples)
    interval = stats.bootstrap(
        samples,
        statistic,
        paired=paired,
        n_resamples=_NUM_RESAMPLES,
        batch=max(1, _BATCH_VALUES // longest),
        vectorized=True,
        confidence_level=_CONFIDENCE,
        method="percentile",
        random_state=np.random.default_rng(_SEED),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def _noise(sample: Float64Array) -> float:
    """Return the standard deviation of the noise between neighbours."""
    steps = np.diff(sample)
    spread = _MAD_TO_SD * float(np.median(np.abs(steps - np.median(steps))))
    if spread == 0.0:  # a coarse sensor repeats its values
        spread = math.sqrt(float(np.mean(steps**2)))
    return spread / math.sqrt(2.0)


def _without_outliers(scaled: Float64Array) -> Float64Array:
    """Replace stray values; a state of three values or more keeps its median of five."""
    around = np.lib.stride_tricks.sliding_window_view(np.pad(scaled, 2, mode="reflect"), 5)
    middle = np.median(around, axis=1)
    return np.where(np.abs(scaled - middle) > _OUTLIER_SD, middle, scaled)


def _pelt(scaled: Float64Array, penalty: float) -> tuple[int, ...]:
    """Cut a series of unit variance into states at the least cost."""
    n = len(scaled)
    sums = np.concatenate(([0.0], np.cumsum(scaled)))
    squares = np.concatenate(([0.0], np.cumsum(scaled**2)))
    least = np.full(n + 1, np.inf)
    least[0] = -penalty
    previous = np.zeros(n + 1, np.intp)
    useless_from = np.full(n + 1, n + 1)
    starts = np.zeros(1, np.intp)
    for end in range(MIN_STATE, n + 1):
        residual = squares[end] - squares[starts]
        residual -= (sums[end] - sums[starts]) ** 2 / (end - starts)
        costs = least[starts] + residual
        best = int(np.argmin(costs))
        least[end], previous[end] = costs[best] + penalty, starts[best]
        # A start that is worse than a new state here stays worse, once that state is long
        # enough to exist.
        worse = starts[costs > least[end]]
        useless_from[worse] = np.minimum(useless_from[worse], end + MIN_STATE)
        starts = np.append(starts, end + 1 - MIN_STATE)
        starts = starts[useless_from[starts] > end + 1]
    changes = []
    end = int(previous[n])
    while end > 0:
        changes.append(end)
        end = int(previous[end])
    return tuple(reversed(changes))


def _beyond_local_noise(
    changes: tuple[int, ...], scaled: Float64Array, penalty: float
) -> tuple[int, ...]:
    """Take back changes, the weakest first, that are small beside the noise around them."""
    kept = list(changes)
    while kept:
        edges = [0, *kept, len(scaled)]
        gains = [
            _gain(scaled[start:change], scaled[change:end])
            / max(1.0, _noise(scaled[start:end]) ** 2)
            for start, change, end in zip(edges, kept, edges[2:], strict=False)
        ]
        weakest = int(np.argmin(gains))
        if gains[weakest] > penalty:
            break
        del kept[weakest]
    return tuple(kept)


def _gain(left: Float64Array, right: Float64Array) -> float:
    """Return by how much two levels reduce the squares that one level leaves."""
    weight = len(left) * len(right) / (len(left) + len(right))
    return float(weight * (left.mean() - right.mean()) ** 2)
