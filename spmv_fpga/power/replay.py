"""A recorded trace as a sensor, so that a run can be repeated without its hardware.

The first sample is taken to be at the opening. Each recorded sample holds until the next;
after the last one readings are rejected, for nothing is known about later times.
"""

from __future__ import annotations

import math
import time
from pathlib import Path

import numpy as np

from .power_profile import is_power_profile, read_power_profile
from .sensor import Clock, Fact, Reading, SensorBase
from .trace import Samples, Trace, read_trace


class ReplaySensor(SensorBase):
    """The readings of a trace, at the pace at which they were recorded.

    Parameters
    ----------
    trace : Trace, str or Path
        A trace, its file, or a `power_profile` file of the Xilinx runtime.
    clock : callable
        Monotonic time in seconds.

    Raises
    ------
    SensorError
        If the file is no trace.

    Examples
    --------
    >>> now_s = 100.0
    >>> sensor = ReplaySensor(Trace([5.0, 6.0], [17.4, 20.5]), clock=lambda: now_s)
    >>> with sensor:
    ...     now_s = 100.9
    ...     before = sensor.read().power_w
    ...     now_s = 101.0
    ...     (before, sensor.read().power_w)
    (17.4, 20.5)
    """

    name = "replay"

    def __init__(self, trace: Trace | str | Path, *, clock: Clock = time.monotonic) -> None:
        super().__init__()
        self._file = "" if isinstance(trace, Trace) else str(trace)
        self._trace = trace if isinstance(trace, Trace) else load_trace(trace)
        self._clock = clock
        self.boundary = self._trace.boundary
        self.refresh_s = self._trace.refresh().period_s
        self.power_step_w = self._trace.fact("power_step_w")
        self.energy_step_j = self._trace.fact("energy_step_j")
        self._end_s = self._trace.end_s + self._trace.interval_s
        self._shift_s = clock() - self._trace.start_s

    def __enter__(self) -> ReplaySensor:
        self._shift_s = self._clock() - self._trace.start_s
        return self

    def read(self) -> Reading:
        """Return the sample that holds now.

        Raises
        ------
        SensorError
            If the trace has ended.
        """
        then_s = self._clock() - self._shift_s
        if then_s > self._end_s:
            raise self._rejection(
                "trace ended",
                f"the trace {self._file} ended after {self._trace.duration_s:.3f} s; replay a "
                "longer one.",
            )
        i = int(np.searchsorted(self._trace.time_s, then_s, side="right")) - 1
        return self._reading(max(i, 0))

    def _reading(self, i: int) -> Reading:
        fetch_s = _value(self._trace.fetch_s, i)
        energy_j = _value(self._trace.energy_j, i)
        start_j = _value(self._trace.energy_j, 0)
        return Reading(
            float(self._trace.power_w[i]),
            None if fetch_s is None else fetch_s + self._shift_s,
            None if energy_j is None or start_j is None else energy_j - start_j,
        )

    def _own_facts(self) -> dict[str, Fact]:
        recorded = self._trace.facts
        own = {"sensor", "boundary", "refresh_s", "power_step_w", "energy_step_j"}
        facts: dict[str, Fact] = {
            key: told
            for key, told in recorded.items()
            if key not in own and not key.startswith("rejected")
        }
        return {**facts, "replayed_file": self._file, "replayed_sensor": self._trace.sensor}


def load_trace(path: str | Path) -> Trace:
    """Read a trace, or a `power_profile` file of the Xilinx runtime.

    Raises
    ------
    SensorError
        If the file is neither.
    """
    return read_power_profile(Path(path)) if is_power_profile(Path(path)) else read_trace(path)


def _value(column: Samples | None, i: int) -> float | None:
    if column is None or not math.isfinite(column[i]):
        return None
    return float(column[i])
