"""A meter: sampler, regions and idle phases around a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType

from ..errors import SensorError
from .attribution import IDLE_AFTER, IDLE_BEFORE, Attribution, attribute
from .regions import Region, Regions
from .sampler import DEFAULT_CADENCE_S, Sampler, rest
from .sensor import Sensor
from .trace import Trace

MOST_IDLE_S = 86400.0
"""A day; the system cannot sleep for times without end."""


class Meter:
    """Records a sensor from entry to exit, with an idle phase on either side.

    Parameters
    ----------
    sensor : Sensor
        Not yet opened.
    cadence_s : float
        Seconds between readings.
    idle_s : float
        Length of each idle phase; 0 for none. Several refresh periods are needed to see
        anything (a U50's cache lasts 1 s). Whatever the load needs (an xclbin on the card)
        must be in place before the meter is entered: idle power depends on it.
    clock, sleep : callable, optional
    sampler_wait : callable, optional
        As `wait` of `Sampler`.

    Examples
    --------
    A made-up sensor, and idle phases that do not wait:

    >>> from types import SimpleNamespace
    >>> from spmv_fpga.power.sensor import Reading
    >>> from contextlib import nullcontext
    >>> class Constant(nullcontext):
    ...     name, boundary, refresh_s = "constant", "card", 0.02
    ...     power_step_w = energy_step_j = None
    ...     def read(self): return Reading(power_w=20.0)
    ...     def facts(self): return {}
    >>> with Meter(Constant(), sleep=lambda idle_s: None) as meter:
    ...     with meter.region("spmv"):
    ...         pass
    >>> result = meter.attribution()
    >>> [region.name for region in result.regions], round(result.energy_j / result.time_s)
    (['idle before', 'spmv', 'idle after'], 20)
    """

    def __init__(
        self,
        sensor: Sensor,
        *,
        cadence_s: float = DEFAULT_CADENCE_S,
        idle_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        sampler_wait: Callable[[threading.Event, float], None] = rest,
    ) -> None:
        if not 0 <= idle_s <= MOST_IDLE_S:
            raise SensorError(f"idle_s is {idle_s}; it must be 0 to {MOST_IDLE_S:g} s.")
        self._sensor = sensor
        self._idle_s = idle_s
        self._clock, self._sleep = clock, sleep
        self._sampler = Sampler(sensor, cadence_s, clock=clock, wait=sampler_wait)
        self._regions = Regions(clock)
        self._resources = ExitStack()
        self._end_s: float | None = None
        self.warnings: list[str] = []

    def __enter__(self) -> Meter:
        with ExitStack() as resources:  # a failure on the way in closes what is open
            resources.enter_context(self._sensor)
            resources.enter_context(self._sampler)
            self._idle(IDLE_BEFORE)
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._resources:
            names = self._regions.open_names()
            self._end_s = self._clock()
            self.warnings += [f"region {name!r} was still open at the end" for name in names]
            if error is None:
                self._idle(IDLE_AFTER)
        if self._sampler.error is not None:
            self.warnings.append(f"the sensor failed during the run: {self._sampler.error}")
        if self._sampler.rejected:
            total = sum(self._sampler.rejected.values())
            self.warnings.append(f"{total} readings were rejected")

    def region(self, name: str) -> AbstractContextManager[None]:
        """Mark the statements of a `with` block; any thread may, and may nest them."""
        return self._regions.region(name)

    def add_region(self, name: str, start_s: float, end_s: float) -> None:
        """Note a region whose times are known, on the meter's clock."""
        self._regions.add(name, start_s, end_s)

    @property
    def sampler(self) -> Sampler:
        """The sampler, for its raw samples and what it rejected."""
        return self._sampler

    def regions(self) -> tuple[Region, ...]:
        """Return the regions so far; one that is still open ends with the run, or now."""
        end_s = self._clock() if self._end_s is None else self._end_s
        return self._regions.snapshot(end_s)

    def trace(self) -> Trace:
        """Return the trace; raises `SensorError` where the sensor gave nothing usable."""
        return self._sampler.trace()

    def attribution(self) -> Attribution:
        """Attribute the trace's energy to the regions; to be called after the run.

        Raises
        ------
        SensorError
            If the sensor gave nothing usable.
        """
        return attribute(self.trace(), self.regions(), self.warnings)

    def _idle(self, name: str) -> None:
        if self._idle_s:
            with self.region(name):
                self._sleep(self._idle_s)
