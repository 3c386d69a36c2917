"""One protocol for every processor: warm up until steady, then measure in one window.

A processor is a function that makes some products back to back and returns the seconds of
each. The window of the times is the window of the power: `start_s` and `end_s` are on the
clock of the power samples, and nothing but products happens between them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from . import units
from .stats import changepoints, steady_from

Float64Array = npt.NDArray[np.float64]
Clock = Callable[[], float]
Products = Callable[[int], Float64Array]
"""Makes that many launches back to back; returns the seconds of a product in each."""

MIN_LAUNCHES = 7
_BATCH_S = 1.0
_NUM_WINDOWS = 48
_FIRST_TEST, _TEST_EVERY = 12, 6
_TOLERANCE = 0.02
"""Changes of level below this are real in a long series, and too small to matter."""


@dataclass(frozen=True, eq=False)
class Timing:
    """Times of products, all from one window.

    Attributes
    ----------
    time_s : ndarray, shape (n,), float64
        Seconds of a product, one value a launch.
    start_s, end_s : float
        The window, on the monotonic clock.
    warmup_s : float
        Seconds of launches before it.
    unsteady : tuple of str
        Reasons to distrust the times, one sentence each.
    """

    time_s: Float64Array
    start_s: float
    end_s: float
    warmup_s: float
    unsteady: tuple[str, ...] = ()


def measure_times(
    products: Products,
    *,
    warmup_s: float,
    measure_s: float,
    repeat: int | None = None,
    window: AbstractContextManager[object] | None = None,
    clock: Clock = time.monotonic,
) -> Timing:
    """Launch until the times are steady, then for as long, or as often, as asked for.

    Parameters
    ----------
    products : callable
        See `Products`.
    warmup_s : float
        Longest warm-up; it ends sooner once a test for changes of level finds none in at
        least the last half of it, and not before a quarter of it.
    measure_s : float
        Duration of the measurement; at least seven launches are made.
    repeat : int, optional
        Launches, in place of a duration.
    window : context manager, optional
        Entered for the measurement alone, such as a region of a power meter.
    clock : callable
        Monotonic, in seconds.

    Returns
    -------
    Timing
        Also where the times are not steady: `unsteady` then says why.
    """
    begin_s = clock()
    is_steady = _warm_up(products, warmup_s, clock)
    warm_s = clock()
    with window or nullcontext():
        start_s = clock()
        if repeat is None:
            time_s = launch_for(products, measure_s, clock, MIN_LAUNCHES)
        else:
            time_s = products(repeat)
        end_s = clock()
    unsteady = _changes(time_s, is_steady) if len(time_s) >= MIN_LAUNCHES else ()
    return Timing(time_s, start_s, end_s, warm_s - begin_s, unsteady)


def launch_for(
    products: Products, duration_s: float, clock: Clock, min_launches: int = 1
) -> Float64Array:
    """Launch back to back until the time is over, in batches of about a second."""
    batches: list[Float64Array] = []
    num_launches, repeat = 0, 1
    now_s = clock()
    end_s = now_s + duration_s
    while now_s < end_s or num_launches < min_launches:
        batches.append(products(repeat))
        num_launches += repeat
        before_s, now_s = now_s, clock()
        launch_s = (now_s - before_s) / repeat
        left_s = min(_BATCH_S, end_s - now_s)
        repeat = max(1, int(left_s / launch_s)) if launch_s > 0 and left_s > 0 else 1
    return np.concatenate(batches)


def _warm_up(products: Products, warmup_s: float, clock: Clock) -> bool:
    """Launch until the times are steady; say whether they became so in time."""
    levels: list[float] = []
    end_s = clock() + warmup_s
    while clock() < end_s:
        levels.append(float(np.median(launch_for(products, warmup_s / _NUM_WINDOWS, clock))))
        late_enough = len(levels) >= _FIRST_TEST and len(levels) % _TEST_EVERY == 0
        if late_enough and steady_from(levels, tolerance=_TOLERANCE) is not None:
            return True
    return False


def _changes(time_s: Float64Array, was_steady: bool) -> tuple[str, ...]:
    """Say by how much the time of a product changed within the measurement, if it did."""
    pieces = np.array_split(time_s, min(len(time_s), _NUM_WINDOWS))
    levels = [float(np.median(piece)) for piece in pieces]
    if steady_from(levels, tolerance=_TOLERANCE) == 0:
        return ()
    edges = (0, *changepoints(levels), len(levels))
    states = [float(np.median(levels[start:end])) for start, end in pairwise(edges)]
    change = units.percent(1 - min(states) / max(states))
    hint = "" if was_steady else "; it was not steady after the warm-up: take a longer one"
    return (f"the time of a product changed by {change} within the measurement{hint}",)
