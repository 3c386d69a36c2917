"""Times of a CPU baseline, by the protocol that a card is measured by."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ..timing import Clock, Float64Array, measure_times
from .base import Baseline

WARMUP_S = 0.2
MEASURE_S = 0.2


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Times of a CPU library.

    Attributes
    ----------
    library : str
        Name and version.
    threads : int
    time_s : ndarray, shape (n,), float64
        Duration of each product, from the end of the one before.
    y : ndarray, shape (m,), float32
    start_s, end_s : float
        The window of the measurement, on the monotonic clock.
    warmup_s : float
        Seconds of products before it.
    unsteady : tuple of str
        Reasons to distrust the times, one sentence each.
    facts : mapping of str to str
        The library's own provenance.
    """

    library: str
    threads: int
    time_s: Float64Array
    y: npt.NDArray[np.float32]
    start_s: float = 0.0
    end_s: float = 0.0
    warmup_s: float = 0.0
    unsteady: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


def baseline_times(
    baseline: Baseline, num_launches: int, clock: Clock = time.monotonic
) -> Float64Array:
    """Launch back to back; return the seconds of each, from the end of the one before."""
    times = np.empty(num_launches)
    now_s = clock()
    with np.errstate(invalid="ignore", over="ignore"):
        for i in range(num_launches):
            baseline.launch()
            after_s = clock()
            times[i] = after_s - now_s
            now_s = after_s
    return times


def time_baseline(
    baseline: Baseline,
    x: npt.NDArray[np.float32],
    *,
    warmup_s: float = WARMUP_S,
    measure_s: float = MEASURE_S,
    window: AbstractContextManager[object] | None = None,
    clock: Clock = time.monotonic,
) -> BaselineResult:
    """Multiply until the times are steady, then for as long as asked for.

    Parameters
    ----------
    baseline : Baseline
    x : ndarray, shape (n,), float32
    warmup_s, measure_s, window, clock
        See `spmv_fpga.timing.measure_times`.

    Returns
    -------
    BaselineResult
        Also where the times are not steady: `unsteady` then says why.
    """
    baseline.place(x)
    with np.errstate(invalid="ignore", over="ignore"):
        baseline.launch()  # the first one touches memory that no cache holds
        y = baseline.fetch()
        timing = measure_times(
            lambda launches: baseline_times(baseline, launches, clock),
            warmup_s=warmup_s,
            measure_s=measure_s,
            window=window,
            clock=clock,
        )
    return BaselineResult(
        library=baseline.library,
        threads=baseline.threads,
        time_s=timing.time_s,
        y=y,
        start_s=timing.start_s,
        end_s=timing.end_s,
        warmup_s=timing.warmup_s,
        unsteady=tuple(f"CPU: {reason}." for reason in timing.unsteady),
        facts=dict(baseline.facts),
    )
