"""Power of an Alveo card, from the sensors that its driver shows in sysfs.

A card has two functions on the PCI bus. The management function reads the card's own
registers, which change every 120 ms; the user function, the only one in a virtual machine,
shows a cache that lives for one second and that only some reads refresh. Power is computed
here as V x I of the rails that feed the board, from one snapshot. The driver's own products
are never read: its `xmc_power` stands still or reads 0 on newer drivers, and what it calls
an average is a maximum.

Sources: Xilinx/XRT, xmc.c of 2022.1 (202210.2.13.466): lines 536-585 (cache, its expiry
stamp on CLOCK_BOOTTIME, zeros where a fetch fails), 1281-1302 (rails of the board's power),
1703-1716 (`sensor_update_timestamp`). AMD PG348: the 120 ms period of the card management
controller. AMD Alveo out-of-band telemetry: steps of 1.25 mV and 1.25 mA.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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

Function = Literal["management", "user"]
Snapshot = tuple[int, ...]

DEFAULT_ROOT = "/sys/bus/pci/devices"
MANAGEMENT_REFRESH_S = 0.120
USER_REFRESH_S = 1.0
SAMPLE_AGE_S = 0.120
"""Age that a register can have when it is read: one period of the card's controller."""
POWER_STEP_W = 0.0153
"""1.25 mA on the 12 V rail."""

_FOLDERS: dict[Function, str] = {"management": "xmc.m.*", "user": "xmc.u.*"}
_XILINX_VENDOR = 0x10EE  # PCI SIG's number
_ATTEMPTS = 5


@dataclass(frozen=True)
class _Rail:
    """A supply of the board, and the range that its voltage can be in, in mV."""

    name: str
    voltage: str
    current: str
    low_mv: int
    high_mv: int


_MAIN_RAIL = _Rail("12V_PEX", "xmc_12v_pex_vol", "xmc_12v_pex_curr", 10_000, 15_000)
_OTHER_RAILS = (
    _Rail("12V_AUX", "xmc_12v_aux_vol", "xmc_12v_aux_curr", 10_000, 15_000),
    _Rail("3V3_PEX", "xmc_3v3_pex_vol", "xmc_3v3_pex_curr", 2_700, 4_000),
)


# --- Cards ------------------------------------------------------------------------------


@dataclass(frozen=True)
class CardSensors:
    """A card's sensor folders; None where a function is not visible.

    Parameters
    ----------
    slot : str
        Its place on the PCI bus without the function: `0000:65:00`.
    management, user : Path or None
    """

    slot: str
    management: Path | None
    user: Path | None

    def folder(self, function: Function) -> Path | None:
        """Return the folder of a function."""
        return self.management if function == "management" else self.user


def sysfs_root() -> Path:
    """Return the root of the PCI device tree (`SPMV_FPGA_SYSFS_PCI`)."""
    return Path(os.environ.get("SPMV_FPGA_SYSFS_PCI") or DEFAULT_ROOT)


def find_cards(root: Path, files: Files = SYSTEM_FILES) -> list[CardSensors]:
    """Return the cards with sensors, in the order of their places on the bus."""
    found: dict[str, dict[Function, Path]] = {}
    for function, pattern in _FOLDERS.items():
        for folder in files.glob(root, f"*/{pattern}"):
            slot = card_slot(folder.parent.name)
            found.setdefault(slot, {}).setdefault(function, folder)
    return [
        CardSensors(slot, folders.get("management"), folders.get("user"))
        for slot, folders in sorted(found.items())
    ]


def card_slot(bdf: str) -> str:
    """Return a card's place on the bus, which its functions share.

    >>> card_slot("0000:65:00.1"), card_slot("65:00.0")
    ('0000:65:00', '0000:65:00')
    """
    slot = bdf.lower().partition(".")[0]
    return slot if slot.count(":") > 1 else f"0000:{slot}"


def _choose_card(root: Path, bdf: str | None, files: Files) -> CardSensors:
    cards = find_cards(root, files)
    if not cards:
        raise SensorUnavailableError(*_why_no_card(root, files))
    if bdf is None:
        return cards[0]
    for card in cards:
        if card.slot == card_slot(bdf):
            return card
    known = ", ".join(card.slot for card in cards)
    raise SensorUnavailableError(
        f"{root} has no card sensors at {bdf}", f"give one of these places: {known}"
    )


def _why_no_card(root: Path, files: Files) -> tuple[str, str]:
    for vendor in files.glob(root, "*/vendor"):
        try:
            is_xilinx = int(files.read(vendor), 16) == _XILINX_VENDOR
        except (OSError, ValueError):
            continue
        if is_xilinx:
            return (
                f"{vendor.parent} is an AMD/Xilinx device without sensors",
                "load the driver (`sudo modprobe xocl`) and flash the card's shell",
            )
    return f"{root} has no Alveo card", "measure on a machine with a card"


# --- The sensor -------------------------------------------------------------------------


class XrtSensor(SensorBase):
    """The power of a whole Alveo card.

    Parameters
    ----------
    bdf : str, optional
        Place of the card on the PCI bus, any function of it; default the first card.
    function : str
        `management`, `user`, or `auto`: the management function where it is visible.
    root : Path, optional
        Root of the PCI device tree; default `SPMV_FPGA_SYSFS_PCI`.
    files : Files
        Where the tree is read from.
    clock, boottime : callable
        Monotonic time, and the driver's clock (CLOCK_BOOTTIME), in seconds.

    Raises
    ------
    SensorUnavailableError
        If there is no such card, or its sensors cannot be read.

    Notes
    -----
    The 12V_AUX and 3V3_PEX rails are left out where the node is missing or shows no
    voltage at the opening (a U50 has no auxiliary connector); `facts` names those that are
    in.
    """

    name = "xrt"
    boundary = "card"
    power_step_w: float | None = POWER_STEP_W

    def __init__(
        self,
        *,
        bdf: str | None = None,
        function: Literal["auto", "management", "user"] = "auto",
        root: Path | None = None,
        files: Files = SYSTEM_FILES,
        clock: Clock = time.monotonic,
        boottime: Clock = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        super().__init__()
        self._root, self._files = root or sysfs_root(), files
        self._clock, self._boottime = clock, boottime
        card = _choose_card(self._root, bdf, files)
        self._slot, self._function = card.slot, _choose_function(card, function)
        self._num_moves = 0
        self._use_folder(_folder_of(card, self._function))
        self._rails: tuple[_Rail, ...] = (_MAIN_RAIL, *_OTHER_RAILS)
        self._open_rails()
        self._stamp_ms, self._fetch_s = 0, 0.0
        cache_s = self._expire_s if self._function == "user" else 0.0
        self.refresh_s = max(cache_s, MANAGEMENT_REFRESH_S)

    def _use_folder(self, folder: Path) -> None:
        self._folder = folder
        expire_s = self._optional("cache_expire_secs")
        self._expire_s = USER_REFRESH_S if expire_s is None else float(expire_s)

    def _open_rails(self) -> None:
        """Keep the rails that this card has; the main one must be readable."""
        try:
            self._number(_MAIN_RAIL.current)
            # While the card's controller is stopped every rail reads 0: all are kept then.
            self._knows_rails = self._number(_MAIN_RAIL.voltage) >= _MAIN_RAIL.low_mv
        except (OSError, ValueError) as error:
            raise SensorUnavailableError(
                f"{self._folder} does not give the card's 12 V rail ({error})",
                "check the driver with `xbutil examine -r electrical`",
            ) from None
        self._rails = (
            _MAIN_RAIL,
            *(rail for rail in _OTHER_RAILS if self._has_rail(rail)),
        )

    def _has_rail(self, rail: _Rail) -> bool:
        voltage, current = self._optional(rail.voltage), self._optional(rail.current)
        if voltage is None or current is None:
            return False
        return voltage >= rail.low_mv or not self._knows_rails

    def _number(self, node: str) -> int:
        return int(self._files.read(self._folder / node))

    def _optional(self, node: str) -> int | None:
        """Read a node that older drivers lack."""
        try:
            return self._number(node)
        except (OSError, ValueError):
            return None

    def read(self) -> Reading:
        """Take one snapshot of voltages and currents.

        Raises
        ------
        SensorError
            If the snapshot is no measurement: zeros (a failed fetch, a stopped controller),
            a voltage out of range, values that move all the time, or no nodes at all.
        """
        try:
            snapshot, stamp_ms = self._snapshot_of_present_card()
        except ValueError as error:
            raise self._rejection("not a number", f"{self._folder}: {error}.") from None
        return Reading(self._power_w(snapshot), self._fetch_time_s(stamp_ms))

    def _snapshot_of_present_card(self) -> tuple[Snapshot, int]:
        try:
            return self._snapshot()
        except OSError as error:
            self._find_again(error)
        try:
            return self._snapshot()
        except OSError as error:
            raise self._rejection("failed read", f"{self._folder}: {error}.") from None

    def _find_again(self, error: OSError) -> None:
        """Follow the sensors to their new folder: a reset gives them another number."""
        for card in find_cards(self._root, self._files):
            folder = card.folder(self._function)
            if card.slot == self._slot and folder is not None and folder != self._folder:
                self._num_moves += 1
                self._use_folder(folder)
                return
        raise self._rejection("failed read", f"{self._folder}: {error}.")

    def _snapshot(self) -> tuple[Snapshot, int]:
        """Return mV and mA of each rail from one fetch, and the fetch's stamp in ms, or 0.

        Where there is no usable stamp (the management function, or a cache that expires at
        once), two sets that agree are one fetch.
        """
        is_stamped = self._function == "user" and self._expire_s > 0
        if is_stamped:
            self._number(_MAIN_RAIL.voltage)  # refreshes an expired cache
        earlier: Snapshot | None = None
        for _ in range(_ATTEMPTS):
            stamp = (self._optional("sensor_update_timestamp") or 0) if is_stamped else 0
            values = self._values()
            if stamp and stamp == self._optional("sensor_update_timestamp"):
                return values, stamp
            if not stamp and values == earlier:
                return values, 0
            earlier = values
        raise self._rejection(
            "moving values", f"{self._folder} changed during each of {_ATTEMPTS} snapshots."
        )

    def _values(self) -> Snapshot:
        nodes = (node for rail in self._rails for node in (rail.voltage, rail.current))
        return tuple(self._number(node) for node in nodes)

    def _power_w(self, snapshot: Snapshot) -> float:
        pairs = list(zip(snapshot[::2], snapshot[1::2], strict=True))
        self._check_main_rail(*pairs[0])
        for rail, (voltage, _) in zip(self._rails[1:], pairs[1:], strict=True):
            is_absent = voltage == 0 and not self._knows_rails
            if not (is_absent or rail.low_mv <= voltage <= rail.high_mv):
                raise self._implausible(rail, voltage)
        return sum(voltage * current for voltage, current in pairs) * 1e-6

    def _check_main_rail(self, voltage: int, current: int) -> None:
        if voltage == 0 or current == 0:
            raise self._rejection(
                "zero",
                f"{self._folder}: {_MAIN_RAIL.name} reads {voltage} mV and {current} mA, which "
                "is a failed reading.",
            )
        if not _MAIN_RAIL.low_mv <= voltage <= _MAIN_RAIL.high_mv:
            raise self._implausible(_MAIN_RAIL, voltage)

    def _implausible(self, rail: _Rail, voltage: int) -> SensorError:
        return self._rejection(
            "implausible voltage",
            f"{self._folder}: {rail.name} reads {voltage} mV; it can only be "
            f"{rail.low_mv} to {rail.high_mv} mV.",
        )

    def _fetch_time_s(self, stamp_ms: int) -> float | None:
        """Turn the cache's expiry into the time of its fetch, on the monotonic clock.

        Equal stamps give equal times, to the last bit.
        """
        if not stamp_ms:
            return None
        if stamp_ms != self._stamp_ms:
            age_s = self._boottime() - (stamp_ms / 1000 - self._expire_s)
            self._stamp_ms, self._fetch_s = stamp_ms, self._clock() - age_s
        return self._fetch_s

    def _own_facts(self) -> dict[str, Fact]:
        facts: dict[str, Fact] = {
            "node": str(self._folder),
            "function": self._function,
            "sample_age_s": SAMPLE_AGE_S,
            "rails": " + ".join(rail.name for rail in self._rails),
        }
        if self._function == "user":
            facts["cache_expire_s"] = self._expire_s
        if self._num_moves:
            facts["resets"] = self._num_moves
        return facts


def _choose_function(card: CardSensors, wanted: str) -> Function:
    if wanted not in ("auto", "management", "user"):
        raise SensorError(f"function is {wanted!r}; it must be auto, management or user.")
    if wanted == "management" or (wanted == "auto" and card.management is not None):
        return "management"
    return "user"


def _folder_of(card: CardSensors, function: Function) -> Path:
    folder = card.folder(function)
    if folder is None:
        raise SensorUnavailableError(
            f"the {function} function of the card at {card.slot} shows no sensors",
            "let the function be auto, or load its driver",
        )
    return folder
