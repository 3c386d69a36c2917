"""A thread that reads a sensor at a fixed cadence and keeps every raw sample."""

from __future__ import annotations

import math
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType

import numpy as np

from ..errors import SensorError
from .sensor import Reading, Sensor
from .trace import POWER_FROM_COUNTER, Samples, Trace

DEFAULT_CADENCE_S = 0.020
LEAST_CADENCE_S, MOST_CADENCE_S = 1e-4, 3600.0
"""Faster, the thread only keeps a core busy; slower shows nothing of a run."""
_GIVE_UP_S = 30.0
"""A sensor without one accepted reading for this long has failed."""
_FIRST_SAMPLE_S = 1.0
_MISSING = math.nan
_SHORT_S = 0.1


@dataclass(frozen=True, slots=True)
class Sample:
    """One accepted reading, with the clock on both sides of it."""

    before_s: float
    after_s: float
    reading: Reading


def rest(stop: threading.Event, duration_s: float) -> None:
    """Wait for a time, or until stopped.

    To sleep costs half of what to wait for an event does; over a short time the stop can be
    seen afterwards.
    """
    if duration_s > _SHORT_S:
        stop.wait(duration_s)
    elif duration_s > 0:
        time.sleep(duration_s)


def hurry() -> str:
    """Put the calling thread before all ordinary ones where the system permits it.

    A sampler computes for some tens of microseconds and sleeps; what a busy machine spoils is
    when it wakes up. Programs that a sensor starts are ordinary again.

    Returns
    -------
    str
        `real-time`, or `normal` where it takes a right that the user does not have (the
        superuser's, CAP_SYS_NICE, or a limit RLIMIT_RTPRIO above 0).
    """
    try:
        lowest = os.sched_param(os.sched_get_priority_min(os.SCHED_RR))
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, lowest)
    except (AttributeError, OSError):  # no Linux; not permitted
        return "normal"
    return "real-time"


class Sampler:
    """Reads an open sensor until it is stopped.

    Parameters
    ----------
    sensor : Sensor
        Already opened; the sampler neither opens nor closes it.
    cadence_s : float
        Seconds between the starts of readings.
    clock : callable, optional
        Returns monotonic seconds.
    wait : callable, optional
        Given the event that stops the sampler and seconds, waits for whichever comes first.
    hurry : callable, optional
        Called in the sampler's thread before all else; returns the name of its scheduling.

    Attributes
    ----------
    samples : list of Sample
        Accepted readings, raw.
    rejected : Counter
        Rejected readings by reason.
    error : Exception or None
        Why the sampler ended early.

    Raises
    ------
    SensorError
        If the cadence is not between 0.1 ms and an hour.

    Notes
    -----
    Deadlines are multiples of the cadence from one origin, so that work does not shift the
    rhythm and errors do not add up; a deadline that passed during a slow reading is left
    out, not made up for. A first reading, often slow (52 ms for NVML), is thrown away before
    the origin is set. When the sampler is stopped it takes one last reading, so that the
    trace reaches beyond the last region.

    A program that computes in Python itself holds the interpreter for 5 ms at a time
    (`sys.getswitchinterval`), which delays readings; they are stamped when they are taken.
    """

    def __init__(
        self,
        sensor: Sensor,
        cadence_s: float = DEFAULT_CADENCE_S,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[threading.Event, float], None] = rest,
        hurry: Callable[[], str] = hurry,
    ) -> None:
        if not LEAST_CADENCE_S <= cadence_s <= MOST_CADENCE_S:
            raise SensorError(
                f"the cadence is {cadence_s} s; it must be {LEAST_CADENCE_S:g} to "
                f"{MOST_CADENCE_S:g} s."
            )
        self._sensor = sensor
        self._cadence_s = cadence_s
        self._clock = clock
        self._stop = threading.Event()
        self._has_sample = threading.Event()
        self._wait = wait
        self._hurry, self._scheduling = hurry, "normal"
        self._executor: ThreadPoolExecutor | None = None
        self._future: Future[None] | None = None
        self.samples: list[Sample] = []
        self.rejected: Counter[str] = Counter()
        self.num_skipped = 0
        self.error: Exception | None = None

    def __enter__(self) -> Sampler:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="power-sampler")
        self._future = self._executor.submit(self._run)
        # Regions that begin now lie inside the trace. A sensor that rejects its first
        # readings is not waited for without end.
        self._has_sample.wait(_FIRST_SAMPLE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Take a last reading and end the thread; what it failed of is kept in `error`."""
        if self._executor is None or self._future is None:
            return
        self._stop.set()
        self._executor.shutdown(wait=True)
        self._executor = None
        failure = self._future.exception()
        if failure is None:
            return
        if not isinstance(failure, (SensorError, OSError)):
            raise failure  # a mistake in a sensor's code is not a sensor's failure
        self.error = failure

    @property
    def is_running(self) -> bool:
        """Whether readings are still being taken."""
        return self._future is not None and not self._future.done()

    def trace(self) -> Trace:
        """Return what was sampled so far, stamped in the middle of each reading.

        Raises
        ------
        SensorError
            If fewer than two readings were accepted; with the reason.
        """
        samples = list(self.samples)
        if len(samples) < 2:
            why = str(self.error) if self.error else self._reasons()
            raise SensorError(
                f"{self._sensor.name} gave {len(samples)} usable reading(s)"
                + (f": {why}" if why else "; record for longer.")
            )
        times = np.array([(s.before_s + s.after_s) / 2 for s in samples])
        readings = [s.reading for s in samples]
        fetch_s, energy_j, power_w = (
            _column([getattr(r, name) for r in readings])
            for name in ("fetch_s", "energy_j", "power_w")
        )
        facts = self._facts()
        if power_w is None or np.isnan(power_w).any():
            power_w = _power_of_counter(times, energy_j, self._sensor.name)
            facts |= POWER_FROM_COUNTER
        return Trace(times, power_w, fetch_s, energy_j, facts)

    def _run(self) -> None:
        try:
            self._scheduling = self._hurry()
            self._read(is_kept=False)
            self._sample()
        finally:
            self._has_sample.set()

    def _sample(self) -> None:
        # Between two readings the processor forgets this code: what runs here is paid for in
        # cache misses, so each step that is left out counts.
        clock, cadence_s = self._clock, self._cadence_s
        origin_s = last_accepted_s = clock()
        tick = 0
        while True:
            is_last = self._stop.is_set()
            is_accepted = self._read(is_kept=True)
            now_s = clock()
            if is_accepted:
                last_accepted_s = now_s
                if len(self.samples) == 1:
                    self._has_sample.set()
            elif now_s - last_accepted_s > _GIVE_UP_S:
                raise SensorError(
                    f"{self._sensor.name} gave no usable reading for {_GIVE_UP_S:g} s: "
                    f"{self._reasons()}"
                )
            if is_last:
                return
            passed = math.floor((now_s - origin_s) / cadence_s)
            self.num_skipped += max(passed - tick, 0)
            tick = max(tick, passed) + 1
            self._wait(self._stop, origin_s + tick * cadence_s - now_s)

    def _read(self, *, is_kept: bool) -> bool:
        before_s = self._clock()
        try:
            reading = self._sensor.read()
        except SensorError as error:
            self.rejected[str(error)] += 1
            return False
        if is_kept:
            self.samples.append(Sample(before_s, self._clock(), reading))
        return True

    def _reasons(self) -> str:
        return "; ".join(f"{reason} ({n} ×)" for reason, n in self.rejected.most_common(3))

    def _facts(self) -> dict[str, str]:
        """Return provenance: the sensor's facts and how the sampling went."""
        sensor = self._sensor
        facts = {"sensor": sensor.name, "boundary": sensor.boundary}
        facts |= {
            name: repr(value)
            for name in ("refresh_s", "power_step_w", "energy_step_j")
            if (value := getattr(sensor, name)) is not None
        }
        facts |= {key: str(value) for key, value in sensor.facts().items()}
        costs_s = [s.after_s - s.before_s for s in self.samples]
        facts |= {
            "cadence_s": repr(self._cadence_s),
            "scheduling": self._scheduling,
            "read_cost_s": f"{float(np.median(costs_s)):.3g}",
            "rejected_readings": str(sum(self.rejected.values())),
            "skipped_readings": str(self.num_skipped),
        }
        if self.rejected:
            facts["rejected_because"] = self._reasons()
        if self.error is not None:
            facts["ended_early"] = str(self.error)
        return facts


def _column(values: list[float | None]) -> Samples | None:
    """Return a column with NaN for what is missing, None where all of it is."""
    if all(value is None for value in values):
        return None
    return np.array([_MISSING if value is None else value for value in values], np.float64)


def _power_of_counter(times: Samples, energy_j: Samples | None, name: str) -> Samples:
    """Derive power from a counter: the slope of its curve about each sample.

    The curve is a line from update to update, so that a counter that was read several times
    between two updates does not look like power in bursts.
    """
    if energy_j is None or np.isnan(energy_j).any():
        raise SensorError(f"{name} gave neither power nor energy in every reading.")
    if not energy_j[-1] > energy_j[0]:
        raise SensorError(
            f"{name}'s energy counter never moved in {times[-1] - times[0]:.3g} s; 0 J is no "
            "measurement, so record for longer or use another sensor."
        )
    at = np.concatenate(([0], np.flatnonzero(np.diff(energy_j)) + 1, [len(times) - 1]))
    at = at[np.diff(at, append=len(times)) > 0]
    curve_j = np.interp(times, times[at], energy_j[at])
    # From neighbour to neighbour: then trapezoids add up to what the counter counted, however
    # unevenly it was read.
    number = np.arange(len(times))
    before, after = np.maximum(number - 1, 0), np.minimum(number + 1, len(times) - 1)
    slopes_w = (curve_j[after] - curve_j[before]) / (times[after] - times[before])
    return np.asarray(slopes_w, np.float64)
