"""An Alveo card's sensors as a state machine that a sensor reads like files.

Below are registers that a controller renews every 120 ms, in steps of 1.25 mV and 1.25 mA.
The management function reads them. The user function shows a cache: only reads of voltages,
currents and temperatures refresh it once it has expired, a failed fetch fills it with
zeros and stamps it all the same, and the stamp is its expiry in ms on CLOCK_BOOTTIME.
Reading a node takes a little time, so that a refresh can fall between two reads.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Callable
from pathlib import Path, PurePath

from .clock import FakeClock

ROOT = Path("/fake/pci")
TICK_S = 0.120
QUANTUM = 1.25
READ_S = 20e-6
SLOT = "0000:65:00"

RAILS = (
    "xmc_12v_pex_vol", "xmc_12v_pex_curr", "xmc_12v_aux_vol", "xmc_12v_aux_curr",
    "xmc_3v3_pex_vol", "xmc_3v3_pex_curr",
)  # fmt: skip


class FakeCard:
    """One card; `power_w(time_s)` is what it draws on the monotonic clock.

    Parameters
    ----------
    clock : FakeClock
    power_w : callable
    functions : str
        Which functions are visible: "mu", "m" or "u".
    phase_s : float
        When, within a tick, the controller renews its registers.
    xrt : tuple of int
        Version of the driver: from 2.15 on `xmc_power` refreshes nothing.
    missing : set of str
        Nodes that this driver lacks.
    slot : str
    """

    def __init__(
        self,
        clock: FakeClock,
        power_w: Callable[[float], float] = lambda _: 17.4,
        *,
        functions: str = "mu",
        phase_s: float = 0.0,
        xrt: tuple[int, int] = (2, 13),
        missing: frozenset[str] = frozenset(),
        slot: str = SLOT,
    ) -> None:
        self.clock, self.power_w, self.phase_s = clock, power_w, phase_s
        self.functions, self.xrt, self.missing, self.slot = functions, xrt, missing, slot
        self.instance = 19922944
        self.is_controller_on = True
        self.is_mailbox_up = True
        self.has_aux = False
        self.volts_mv = 12213.0
        self.expire_s = 1
        self.num_reads = 0
        self._cache = dict.fromkeys(RAILS, 0)
        self._expiry_ms = 0

    # --- What the outside does ----------------------------------------------------------

    def reset(self) -> None:
        """Remove the sensors and bring them back under another number."""
        self.instance += 65536
        self._expiry_ms = 0

    def folder(self, function: str) -> Path:
        pf = {"m": 0, "u": 1}[function]
        return ROOT / f"{self.slot}.{pf}" / f"xmc.{function}.{self.instance}"

    # --- What the driver does -----------------------------------------------------------

    def registers(self) -> dict[str, int]:
        """What the controller measured at its last tick."""
        if not self.is_controller_on:
            return dict.fromkeys(RAILS, 0)
        ticks = math.floor((self.clock.now_s - self.phase_s) / TICK_S)
        power_mw = self.power_w(ticks * TICK_S + self.phase_s) * 1e3
        v12, v33, a33 = _quantum(self.volts_mv), 3300, _quantum(223)
        a12 = _quantum((power_mw - v33 * a33 * 1e-3) / v12 * 1e3)
        return {
            "xmc_12v_pex_vol": v12, "xmc_12v_pex_curr": a12,
            "xmc_12v_aux_vol": 12100 if self.has_aux else 0,
            "xmc_12v_aux_curr": 1000 if self.has_aux else 0,
            "xmc_3v3_pex_vol": v33, "xmc_3v3_pex_curr": a33,
        }  # fmt: skip

    def read(self, function: str, node: str) -> str:
        self.clock.advance(READ_S)
        self.num_reads += 1
        if node in self.missing:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", node)
        value = self._user(node) if function == "u" else self._management(node)
        return f"{value}\n"

    def _management(self, node: str) -> int:
        if node in RAILS:
            return self.registers()[node]
        if node in ("sensor_update_timestamp", "cache_expire_secs"):
            return 0
        if node == "xmc_power":
            return 0 if self.xrt >= (2, 15) else _power_uw(self.registers())
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", node)

    def _user(self, node: str) -> int:
        if node == "sensor_update_timestamp":
            return self._expiry_ms
        if node == "cache_expire_secs":
            return self.expire_s
        if node in RAILS:
            self._refresh()
            return self._cache[node]
        if node == "xmc_power":
            if self.xrt < (2, 15):
                self._refresh()
            return _power_uw(self._cache)
        if node == "xmc_power_ins" and self.xrt >= (2, 15):
            self._refresh()
            return _power_uw(self._cache)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory", node)

    def _refresh(self) -> None:
        now_ms = int(self.clock.boottime() * 1e3)
        if now_ms >= self._expiry_ms:
            zeros = dict.fromkeys(RAILS, 0)
            self._cache = self.registers() if self.is_mailbox_up else zeros
            self._expiry_ms = now_ms + self.expire_s * 1000


class FakePci:
    """The device tree with any number of cards, as `Files`."""

    def __init__(self, *cards: FakeCard) -> None:
        self.cards = cards
        self.asked: list[str] = []

    def _folders(self) -> dict[Path, tuple[FakeCard, str]]:
        return {card.folder(f): (card, f) for card in self.cards for f in card.functions}

    def glob(self, root: Path, pattern: str) -> list[Path]:
        paths = sorted(self._folders())
        return [p for p in paths if PurePath(p.relative_to(root)).match(pattern)]

    def read(self, path: Path) -> str:
        self.asked.append(path.name)
        folders = self._folders()
        if path.parent not in folders:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        card, function = folders[path.parent]
        return card.read(function, path.name)


def _quantum(value: float) -> int:
    """Round to the converter's step; the driver shows whole mV and mA."""
    return int(round(value / QUANTUM) * QUANTUM)


def _power_uw(rails: dict[str, int]) -> int:
    return sum(rails[v] * rails[a] for v, a in zip(RAILS[::2], RAILS[1::2], strict=True))
