"""CPU energy from RAPL counters, as Linux shows them in its powercap tree.

Zones are told by their names, never by their numbers. The packages (or their dies) are
added up, each once, and the DRAM of all packages where it is there: memory is a child zone
in the tree, yet its energy is not part of the package's. `psys` contains the packages,
`core` and `uncore` are parts of them, and an `mmio` zone is a package seen through another
door, so none of these is added.

Sources: Linux, power/powercap/powercap.rst (files and units) and
drivers/powercap/intel_rapl_common.c (names; `energy_uj` readable by root only since 5.10,
because of CVE-2020-8694).
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import SensorError
from .sensor import (
    SYSTEM_FILES,
    Clock,
    Fact,
    Files,
    Reading,
    SensorBase,
    SensorUnavailableError,
)

FLAGS = frozenset({"wrapped", "stuck", "ambiguous", "missing"})
DEFAULT_ROOT = "/sys/class/powercap"

_REFRESH_S = 0.001  # Intel SDM volume 3, "RAPL Interfaces": counters move about every 1 ms
_COUNTER_STEPS = 2**32  # the range is that of a 32-bit register, in the counter's own unit
_MAX_POWER_W = 1000.0  # more than any package or its memory draws: bounds a gap's energy
_READ_SLACK_S = 1.0  # a busy machine may read the counter this long after the clock
_ALIVE_WAITS, _ALIVE_WAIT_S = 20, 0.005
_NO_REMEDY = "measure without this sensor (`--power none`)"
_PACKAGE = re.compile(r"(package-\d+)(-die-\d+)?")


# --- Counters ---------------------------------------------------------------------------


def energy_between(
    readings_uj: Sequence[float | None], max_range_uj: float
) -> tuple[float, frozenset[str]]:
    """Return the energy that a wrapping counter counted from its first to its last reading.

    Parameters
    ----------
    readings_uj : sequence of int, float or None
        Readings of `energy_uj` in time order; None where a reading failed.
    max_range_uj : int or float
        `max_energy_range_uj`: where the counter starts again at 0.

    Returns
    -------
    energy_uj : int or float
        The least energy that these readings allow.
    flags : frozenset of str
        - `wrapped`: the counter started again at least once; the energy allows for it.
        - `stuck`: it was never seen to move. The 0 is then no measurement.
        - `ambiguous`: some step is larger than half the range. Readings follow one another
          too closely for that, so it may be a reset, a bad reading, or a gap that hides
          further wraps. The energy is then not to be trusted.
        - `missing`: readings failed, or lay outside the counter's range, or there are fewer
          than two. A failed reading is not a wrap: the step goes over it.

    Raises
    ------
    SensorError
        If the range is not positive: without it no wrap can be told.

    Examples
    --------
    >>> energy, flags = energy_between([262143000000, 1000000], 262143328850)
    >>> energy, sorted(flags)
    (1328850, ['wrapped'])
    >>> energy, flags = energy_between([100, None, 300], 262143328850)
    >>> energy, sorted(flags)
    (200, ['missing'])
    """
    if not max_range_uj > 0:
        raise SensorError(
            f"max_range_uj is {max_range_uj}; it must be the positive value of "
            "max_energy_range_uj."
        )
    known = [r for r in readings_uj if r is not None and 0 <= r <= max_range_uj]
    flags = {"missing"} if len(known) < max(len(readings_uj), 2) else set()
    energy_uj: float = 0
    for before, after in itertools.pairwise(known):
        step = _step(before, after, max_range_uj)
        energy_uj += step
        flags |= {"wrapped"} if after < before else set()
        flags |= {"ambiguous"} if _is_ambiguous(step, max_range_uj) else set()
    if len(set(known)) < 2:
        flags.add("stuck")
    return energy_uj, frozenset(flags)


def _step(before: float, after: float, max_range_uj: float) -> float:
    return after - before if after >= before else after - before + max_range_uj


def _is_ambiguous(step_uj: float, max_range_uj: float) -> bool:
    return 2 * step_uj > max_range_uj


# --- Zones ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Zone:
    """A folder of the powercap tree with a counter.

    Parameters
    ----------
    name : str
        As the kernel calls it: `package-0`, `package-0-die-1`, `dram`, …
    path : Path
        Its folder.
    """

    name: str
    path: Path

    @property
    def parent(self) -> str:
        """Name of the folder that it belongs to: `intel-rapl:0` for `intel-rapl:0:1`."""
        return self.path.name.rpartition(":")[0]

    @property
    def energy_file(self) -> Path:
        """Its counter, in µJ."""
        return self.path / "energy_uj"

    @property
    def range_file(self) -> Path:
        """Where its counter starts again, in µJ."""
        return self.path / "max_energy_range_uj"


def powercap_root() -> Path:
    """Return the root of the powercap tree (`SPMV_FPGA_POWERCAP`)."""
    return Path(os.environ.get("SPMV_FPGA_POWERCAP") or DEFAULT_ROOT)


def find_zones(root: Path, files: Files = SYSTEM_FILES) -> list[Zone]:
    """Return all RAPL zones below a root, each once.

    The kernel shows a child zone beside its parent and inside it.
    """
    zones: dict[str, Zone] = {}
    for pattern in ("intel-rapl*:*", "intel-rapl*:*/intel-rapl*:*"):
        for path in files.glob(root, pattern):
            try:
                zone = Zone(files.read(path / "name").strip(), path)
            except OSError:
                continue
            zones.setdefault(path.name, zone)
    return list(zones.values())


def choose_zones(zones: Iterable[Zone]) -> tuple[list[Zone], list[Zone]]:
    """Choose the zones that make up all packages and, apart, the memory of them all.

    Returns
    -------
    packages, dram : list of Zone
        No energy is in two of them. `dram` is empty unless every socket has its own.
    """
    cpu_zones = [z for z in zones if not z.path.name.startswith("intel-rapl-mmio")]
    named: dict[str, Zone] = {}
    for zone in cpu_zones:
        if _PACKAGE.fullmatch(zone.name):
            named.setdefault(zone.name, zone)
    # A package beside its own dies would count them twice.
    packages = [z for z in named.values() if _socket(z) == z.name or _socket(z) not in named]
    sockets = {z.path.name: _socket(z) for z in packages}
    dram: dict[str, Zone] = {}
    for zone in cpu_zones:
        if zone.name == "dram" and zone.parent in sockets:
            dram.setdefault(zone.parent, zone)
    is_complete = {sockets[parent] for parent in dram} == set(sockets.values())
    return packages, list(dram.values()) if is_complete else []


def _socket(zone: Zone) -> str:
    found = _PACKAGE.fullmatch(zone.name)
    return found[1] if found else ""


# --- The sensor -------------------------------------------------------------------------


class _Counter:
    """One zone's counter, unwrapped."""

    def __init__(self, zone: Zone, files: Files) -> None:
        self.zone, self._files = zone, files
        self.range_uj = self._readable(zone.range_file)
        if self.range_uj <= 0:
            raise SensorUnavailableError(
                f"{zone.range_file} is {self.range_uj}, so wraps of the counter cannot be told",
                _NO_REMEDY,
            )
        self.last_uj = self._readable(zone.energy_file)
        self.energy_uj = 0
        self.num_wraps = 0

    def _readable(self, path: Path) -> int:
        try:
            return self._number(path)
        except PermissionError:
            raise SensorUnavailableError(
                f"{path} is readable by root only", f"run `sudo chmod a+r {path}`"
            ) from None
        except (OSError, ValueError) as error:
            raise SensorUnavailableError(
                f"{path} cannot be read ({error})", _NO_REMEDY
            ) from None

    def _number(self, path: Path) -> int:
        return int(self._files.read(path))

    def now_uj(self) -> int:
        """Read the counter; raises OSError or ValueError."""
        return self._number(self.zone.energy_file)

    def start(self, now_uj: int) -> None:
        """Count from here on."""
        self.last_uj, self.energy_uj, self.num_wraps = now_uj, 0, 0

    def step_uj(self, now_uj: int) -> float:
        """Return what was counted since the last accepted reading."""
        return _step(self.last_uj, now_uj, self.range_uj)

    def accept(self, now_uj: int) -> None:
        """Add a reading."""
        self.num_wraps += now_uj < self.last_uj
        self.energy_uj += int(self.step_uj(now_uj))
        self.last_uj = now_uj


class RaplSensor(SensorBase):
    """The energy of all CPU packages, with their memory where it has a counter.

    Parameters
    ----------
    root : Path, optional
        Root of the powercap tree; default `SPMV_FPGA_POWERCAP`.
    files : Files
        Where the tree is read from.
    clock : callable
        Monotonic time in seconds; tells gaps that could hide a wrap.
    wait : callable
        Sleeps; used at the opening only, to see whether the counters move.

    Raises
    ------
    SensorUnavailableError
        If there is no counter, it is not readable, its range is unknown or it stands still.
    """

    name = "rapl"
    refresh_s = _REFRESH_S

    def __init__(
        self,
        *,
        root: Path | None = None,
        files: Files = SYSTEM_FILES,
        clock: Clock = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        super().__init__()
        self._root, self._files, self._clock = root or powercap_root(), files, clock
        self._zones = find_zones(self._root, files)
        packages, dram = choose_zones(self._zones)
        if not packages:
            raise SensorUnavailableError(
                f"{self._root} has no RAPL zone of a CPU package",
                "load the kernel module intel_rapl_msr, or measure on the machine itself "
                "(virtual machines and containers often hide RAPL)",
            )
        self._counters = self._open_counters(packages + dram)
        self._leave_out_dead_counters(wait)
        has_dram = any(c.zone.name == "dram" for c in self._counters)
        self.boundary = "package + DRAM" if has_dram else "package"
        self.energy_step_j = sum(c.range_uj / _COUNTER_STEPS for c in self._counters) * 1e-6
        self._lost = ""
        self._last_s = clock()

    def _open_counters(self, zones: list[Zone]) -> list[_Counter]:
        denied = [z.energy_file for z in zones if self._is_denied(z.energy_file)]
        if denied:
            paths = " ".join(map(str, denied))
            raise SensorUnavailableError(
                f"{denied[0]} is readable by root only", f"run `sudo chmod a+r {paths}`"
            )
        return [_Counter(zone, self._files) for zone in zones]

    def _is_denied(self, path: Path) -> bool:
        try:
            self._files.read(path)
        except PermissionError:
            return True
        except OSError:  # told, with its reason, when the counter is opened
            return False
        return False

    def _leave_out_dead_counters(self, wait: Callable[[float], None]) -> None:
        """Refuse packages that stand still (as in virtual machines), leave such memory out."""
        still = list(self._counters)
        for _ in range(_ALIVE_WAITS):
            wait(_ALIVE_WAIT_S)
            still = [c for c in still if self._now(c) == c.last_uj]
            if not still:
                return
        stuck = [c.zone for c in still if c.zone.name != "dram"]
        if stuck:
            raise SensorUnavailableError(
                f"{stuck[0].energy_file} stands still, so nothing can be measured with it",
                "measure on a machine whose RAPL counters move (virtual machines often show "
                "dead ones)",
            )
        self._counters = [c for c in self._counters if c.zone.name != "dram"]

    def __enter__(self) -> RaplSensor:
        for counter in self._counters:
            counter.start(self._now(counter))
        self._lost, self._last_s = "", self._clock()
        return self

    def _now(self, counter: _Counter) -> int:
        path = counter.zone.energy_file
        try:
            return counter.now_uj()
        except PermissionError:
            raise self._rejection(
                "not readable", f"{path} is no longer readable; run `sudo chmod a+r {path}`."
            ) from None
        except (OSError, ValueError) as error:
            raise self._rejection("failed read", f"{path} cannot be read ({error}).") from None

    def read(self) -> Reading:
        """Read all counters; a reading that fails changes nothing and is no wrap.

        Raises
        ------
        SensorError
            If a counter cannot be read. Also, from then on until the sensor is opened anew,
            if one moved by more than half its range or than a package can draw, or was not
            read for so long that it may have wrapped: the count is then not known.
        """
        if self._lost:
            raise self._rejection("lost count", self._lost)
        now_s = self._clock()
        now_uj = [self._now(counter) for counter in self._counters]
        for counter, value in zip(self._counters, now_uj, strict=True):
            self._check_step(counter, value, now_s - self._last_s)
        for counter, value in zip(self._counters, now_uj, strict=True):
            counter.accept(value)
        self._last_s = now_s
        return Reading(None, energy_j=sum(c.energy_uj for c in self._counters) * 1e-6)

    def _check_step(self, counter: _Counter, value: int, gap_s: float) -> None:
        path = counter.zone.energy_file
        if not 0 <= value <= counter.range_uj:
            raise self._rejection(
                "outside range", f"{path} is {value}, outside its range {counter.range_uj}."
            )
        limit_uj = self._largest_step_uj(counter, gap_s)
        if counter.step_uj(value) > limit_uj:
            # A single bad reading is told from a lost count by reading again.
            if counter.step_uj(self._now(counter)) <= limit_uj:
                raise self._rejection("jump", f"{path} was {value} for one reading only.")
            raise self._loss(
                f"{path} jumped from {counter.last_uj} to {value} in {gap_s:.3g} s, so the "
                "energy since is not known; start the recording again."
            )
        if gap_s * _MAX_POWER_W * 1e6 > counter.range_uj:
            raise self._loss(
                f"{path} was not read for {gap_s:.0f} s and may have wrapped unseen; start "
                "the recording again."
            )

    def _loss(self, message: str) -> SensorError:
        """Give up: no later reading can tell what was counted meanwhile."""
        self._lost = message
        return self._rejection("lost count", message)

    @staticmethod
    def _largest_step_uj(counter: _Counter, gap_s: float) -> float:
        """Return what a counter can have counted; more is a reset, not a wrap."""
        return min(counter.range_uj / 2, _MAX_POWER_W * (gap_s + _READ_SLACK_S) * 1e6)

    def _own_facts(self) -> dict[str, Fact]:
        used = [counter.zone for counter in self._counters]
        left_out = [zone for zone in self._zones if zone not in used]
        facts: dict[str, Fact] = {
            "root": str(self._root),
            "zones": _listed(used),
            "ranges_uj": ", ".join(str(counter.range_uj) for counter in self._counters),
            "wraps": sum(counter.num_wraps for counter in self._counters),
        }
        return {**facts, "zones_left_out": _listed(left_out)} if left_out else facts


def _listed(zones: Iterable[Zone]) -> str:
    return ", ".join(f"{zone.path.name} ({zone.name})" for zone in zones)
