"""Figures: numbers that say where they come from.

Every figure that the product reports is *measured* on hardware, *emulated* (counted while
the kernel's own code ran), *modelled* or *published*; one that is not known is null and
says why.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Origin = Literal["measured", "emulated", "modelled", "published"]


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A value with its origin, in SI units.

    Attributes
    ----------
    value : float or None
    origin : str or None
        None where the value is None.
    low, high : float, optional
        Bounds of a 95 % interval.
    n : int, optional
        Samples behind the value.
    reason : str, optional
        Why there is no value.
    """

    value: float | None
    origin: Origin | None
    low: float | None = None
    high: float | None = None
    n: int | None = None
    reason: str | None = None

    def scaled(self, factor: float) -> Figure:
        """Return the figure times a positive factor, bounds included.

        >>> Figure(value=2.0, origin="measured", low=1.0, high=3.0).scaled(0.5).high
        1.5
        """
        return self._mapped(lambda v: v * factor)

    def inverse_of(self, numerator: float) -> Figure:
        """Return `numerator / value`: a rate from a time, bounds exchanged."""
        if self.value is not None and not self.value > 0:
            return unknown("the time is too short for the clock")
        inverse = self._mapped(lambda v: numerator / v if v else math.inf)
        if inverse.low is not None and inverse.high is not None:
            return Figure(
                value=inverse.value,
                origin=inverse.origin,
                low=inverse.high,
                high=inverse.low,
                n=inverse.n,
            )
        return inverse

    def _mapped(self, change: Any) -> Figure:
        values = [None if v is None else change(v) for v in (self.value, self.low, self.high)]
        return Figure(
            value=values[0],
            origin=self.origin,
            low=values[1],
            high=values[2],
            n=self.n,
            reason=self.reason,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figure as JSON has it: no NaN, no Infinity, only what is known."""
        facts = {"low": self.low, "high": self.high, "n": self.n, "reason": self.reason}
        known = {k: v for k, v in facts.items() if v is not None and _is_valid_json(v)}
        if self.value is None or not math.isfinite(self.value):
            known.setdefault("reason", "not a finite number")
            return {"value": None, "origin": None, **known}
        return {"value": self.value, "origin": self.origin, **known}


def _is_valid_json(fact: float | str) -> bool:
    return isinstance(fact, str) or math.isfinite(fact)


def unknown(reason: str) -> Figure:
    """Return a figure without a value.

    >>> unknown("no sensor").to_json()
    {'value': None, 'origin': None, 'reason': 'no sensor'}
    """
    return Figure(value=None, origin=None, reason=reason)


def median(samples: Sequence[float], origin: Origin) -> Figure:
    """Return the median of samples with its 95 % interval by order statistics.

    Parameters
    ----------
    samples : sequence of float
    origin : str

    Notes
    -----
    The interval needs no assumption about the distribution: the k-th smallest and largest
    of n samples enclose the median with the probability that a fair coin, thrown n times,
    shows between k and n - k heads (W. J. Conover, Practical Nonparametric Statistics,
    section 3.2). Below six samples there is none at 95 %.

    Examples
    --------
    >>> median([3.0, 1.0, 2.0], "measured")
    Figure(value=2.0, origin='measured', low=None, high=None, n=3, reason=None)
    """
    from scipy import stats  # slow to import, and not every command needs it

    ordered = np.sort(np.asarray(samples, np.float64))
    n = len(ordered)
    if not n:
        return unknown("there are no samples")
    k = int(stats.binom.ppf(0.025, n, 0.5))
    has_interval = k > 0
    return Figure(
        value=float(np.median(ordered)),
        origin=origin,
        low=float(ordered[k - 1]) if has_interval else None,
        high=float(ordered[n - k]) if has_interval else None,
        n=n,
    )
