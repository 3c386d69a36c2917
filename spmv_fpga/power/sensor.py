"""What a power sensor is: a context manager that gives readings and knows where they come from.

A sensor never guesses. `read` gives what the hardware said, or raises `SensorError` and
counts the rejection; a reading of 0 is never passed on as a measurement. Whether a sensor
can be used is found out when it is made, before anything is measured.

Clocks and files come in as arguments, so that every sensor runs on a made-up machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, TypeVar

from ..errors import SensorError

Clock = Callable[[], float]
Fact = str | float | int
_AnySensor = TypeVar("_AnySensor", bound="SensorBase")


class SensorUnavailableError(SensorError):
    """A power sensor that this machine, or this user, cannot read.

    Parameters
    ----------
    reason : str
        What is missing, with its path.
    remedy : str
        The one line that mends it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy = reason, remedy
        super().__init__(f"{reason}; {remedy}.")


@dataclass(frozen=True, slots=True)
class Reading:
    """One answer of a sensor.

    Attributes
    ----------
    power_w : float or None
        None where the sensor only counts energy.
    fetch_s : float or None
        When the sensor took it, on the sampler's monotonic clock; None where unknown. Two
        readings with the same time are one sample.
    energy_j : float or None
        Counted since the sensor was opened, without wraps; None where there is no counter.
    """

    power_w: float | None
    fetch_s: float | None = None
    energy_j: float | None = None


class Sensor(Protocol):
    """A source of readings; a context manager, opened once per recording.

    Attributes
    ----------
    name : str
        `xrt`, `rapl`, `nvml` or `replay`.
    boundary : str
        What the figure includes: `card`, `package`, `package + DRAM`, `GPU`.
    refresh_s : float
        Nominal time between new values; the measured one comes from a trace.
    power_step_w, energy_step_j : float or None
        Resolution; None where the sensor has no such quantity, or does not tell.
    """

    name: str
    boundary: str
    refresh_s: float
    power_step_w: float | None
    energy_step_j: float | None

    def __enter__(self) -> Sensor:
        """Open the sensor; its energy counts from here on."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the sensor."""
        ...

    def read(self) -> Reading:
        """Take a reading; raises `SensorError` where it is rejected."""
        ...

    def facts(self) -> dict[str, Fact]:
        """Say where the readings come from, and how many were rejected for what."""
        ...


class SensorBase:
    """What all sensors here share: rejections that are counted, and facts."""

    name: str
    boundary: str
    refresh_s: float
    power_step_w: float | None = None
    energy_step_j: float | None = None

    def __init__(self) -> None:
        self._rejected: Counter[str] = Counter()

    def __enter__(self: _AnySensor) -> _AnySensor:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def facts(self) -> dict[str, Fact]:
        """Return name, boundary, refresh, resolution, rejections and the sensor's own facts."""
        steps = {"power_step_w": self.power_step_w, "energy_step_j": self.energy_step_j}
        return {
            "sensor": self.name,
            "boundary": self.boundary,
            "refresh_s": self.refresh_s,
            **{key: step for key, step in steps.items() if step is not None},
            **self._own_facts(),
            "rejected": self._rejected.total(),
            **{
                f"rejected_{why.replace(' ', '_')}": n
                for why, n in sorted(self._rejected.items())
            },
        }

    def _own_facts(self) -> dict[str, Fact]:
        return {}

    def _rejection(self, why: str, message: str) -> SensorError:
        """Count a rejected reading under a short name, and make the error that tells of it."""
        self._rejected[why] += 1
        return SensorError(message)


class Files(Protocol):
    """The part of a file system that sensors need."""

    def read(self, path: Path) -> str:
        """Return the text of a small file; raises `OSError`."""
        ...

    def glob(self, root: Path, pattern: str) -> list[Path]:
        """Return what matches below a folder, in order; [] where there is no such folder."""
        ...


class SystemFiles:
    """The machine's own files."""

    _LONGEST_BYTES = 4096  # sysfs gives at most one page (Linux, filesystems/sysfs.rst)

    def read(self, path: Path) -> str:
        """Return the text of a file of at most one page.

        A sampler calls this many times a second, hence without a file object.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, self._LONGEST_BYTES).decode("utf-8", "replace")
        finally:
            os.close(descriptor)

    def glob(self, root: Path, pattern: str) -> list[Path]:
        """Return what matches below a folder, in order."""
        return sorted(root.glob(pattern))


SYSTEM_FILES = SystemFiles()
