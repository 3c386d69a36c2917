"""A powercap tree whose counters count, wrap and turn unreadable, as `Files`."""

from __future__ import annotations

import errno
from fnmatch import fnmatchcase
from pathlib import Path

from .clock import FakeClock

ROOT = Path("/fake/powercap")
RANGE_UJ = 262_143_328_850


class FakeZone:
    """A zone that counts `power_w` since the clock's start; None stands for "unreadable"."""

    def __init__(
        self,
        name: str,
        power_w: float = 0.0,
        *,
        start_uj: int = 0,
        range_uj: int | None = RANGE_UJ,
    ) -> None:
        self.name, self.power_w = name, power_w
        self.start_uj, self.range_uj = start_uj, range_uj
        self.error: OSError | None = None
        self.shown: str | None = None

    def fail(self, number: int) -> None:
        """Let reads of the counter fail from now on."""
        self.error = OSError(number, errno.errorcode[number])


class FakePowercap:
    """Zones by the names of their folders: `intel-rapl:0`, `intel-rapl:0:1`, …

    Children stand beside their parents and inside them, as in the kernel's tree.
    """

    def __init__(self, clock: FakeClock, zones: dict[str, FakeZone]) -> None:
        self.clock, self.zones = clock, zones
        self._begin_s = clock.now_s

    def glob(self, root: Path, pattern: str) -> list[Path]:
        places = [Path(folder) for folder in self.zones]
        places += [Path(f.rpartition(":")[0]) / f for f in self.zones if f.count(":") > 1]
        depth = pattern.count("/")
        return sorted(
            root / p
            for p in places
            if str(p).count("/") == depth and fnmatchcase(str(p), pattern)
        )

    def read(self, path: Path) -> str:
        zone = self.zones.get(path.parent.name)
        if zone is None:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        if path.name == "name":
            return f"{zone.name}\n"
        if path.name == "max_energy_range_uj":
            if zone.range_uj is None:
                raise OSError(errno.ENODATA, "No data available", str(path))
            return f"{zone.range_uj}\n"
        if zone.error is not None:
            raise zone.error
        return f"{self._count(zone)}\n" if zone.shown is None else zone.shown

    def _count(self, zone: FakeZone) -> int:
        counted_uj = round(zone.power_w * (self.clock.now_s - self._begin_s) * 1e6)
        range_uj = zone.range_uj or RANGE_UJ
        return (zone.start_uj + counted_uj) % range_uj
