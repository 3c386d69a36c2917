"""The table of power sources: what `--power` names, and what each needs on this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import SensorError
from .nvml import NvmlSensor
from .rapl import RaplSensor
from .replay import ReplaySensor
from .sensor import Sensor, SensorUnavailableError
from .xbutil import XbutilSensor, find_command
from .xrt import XrtSensor

REPLAY = "replay:"


def open_xrt(*, bdf: str | None = None, **options: Any) -> XrtSensor | XbutilSensor:
    """Make the card's sensor: from sysfs, or by way of `xbutil` where there is no sysfs.

    Parameters
    ----------
    bdf : str, optional
        The card's place on the PCI bus; default the first card.
    **options
        For `XrtSensor`.

    Raises
    ------
    SensorUnavailableError
        If neither gives power; the reason names both.
    """
    try:
        return XrtSensor(bdf=bdf, **options)
    except SensorUnavailableError as error:
        if find_command() is None:
            raise
        no_sysfs = error
    try:
        return XbutilSensor(bdf=bdf)
    except SensorUnavailableError as error:
        raise SensorUnavailableError(
            f"{no_sysfs.reason}, and {error.reason}", error.remedy
        ) from None


SOURCES: Mapping[str, Callable[..., Sensor]] = {
    "xrt": open_xrt,
    "rapl": RaplSensor,
    "nvml": NvmlSensor,
}
"""Each source on hardware, by its name; `replay:FILE` stands beside them."""


def open_sensor(name: str, **options: Any) -> Sensor:
    """Make a sensor by its name; whether it can be used is known when this returns.

    Parameters
    ----------
    name : str
        `xrt`, `rapl`, `nvml` or `replay:FILE`.
    **options
        For the source: `bdf` (xrt), `index` (nvml), …

    Raises
    ------
    SensorError
        If there is no such source, or it cannot be read here; says what to do.

    Examples
    --------
    >>> open_sensor("dowsing")
    Traceback (most recent call last):
    ...
    spmv_fpga.errors.SensorError: power is dowsing; it must be xrt, rapl, nvml or replay:FILE.
    """
    if name.startswith(REPLAY) and name != REPLAY:
        return ReplaySensor(name.removeprefix(REPLAY), **options)
    if name not in SOURCES:
        known = ", ".join(SOURCES)
        raise SensorError(f"power is {name}; it must be {known} or {REPLAY}FILE.")
    return SOURCES[name](**options)


def choose_sensor(name: str) -> Sensor:
    """Make a sensor by its name, or the first that works here.

    Parameters
    ----------
    name : str
        `auto`, or a name that `open_sensor` knows.

    Raises
    ------
    SensorError
        If there is none; says why for each.
    """
    if name != "auto":
        return open_sensor(name)
    findings = find_sensors()
    for finding in findings:
        if finding.ok:
            return open_sensor(finding.name)
    reasons = "; ".join(f"{f.name}: {f.detail} ({f.remedy})" for f in findings)
    raise SensorError(f"no power sensor can be read here; {reasons}.")


@dataclass(frozen=True)
class SourceFinding:
    """Whether a source can be used here.

    Parameters
    ----------
    name : str
    ok : bool
    boundary : str
        What its figures include; "" where it cannot be used.
    detail : str
        Where the readings come from, or why there are none.
    remedy : str
        The one line that mends it; "" where nothing is wrong.
    """

    name: str
    ok: bool
    boundary: str
    detail: str
    remedy: str = ""


def find_sensors() -> list[SourceFinding]:
    """Try every source on hardware, in the order of the table.

    Returns
    -------
    list of SourceFinding
        One for each; those that are `ok` gave a first reading.
    """
    return [_try_source(name) for name in SOURCES]


def _try_source(name: str) -> SourceFinding:
    try:
        with open_sensor(name) as sensor:
            sensor.read()
            return SourceFinding(name, True, sensor.boundary, _describe(sensor))
    except SensorUnavailableError as error:
        return SourceFinding(name, False, "", error.reason, error.remedy)
    except SensorError as error:
        return SourceFinding(name, False, "", str(error), "try again in a second")


_PLACES = ("node", "command", "root", "gpu")


def _describe(sensor: Sensor) -> str:
    facts = sensor.facts()
    place = next((f"{facts[key]}" for key in _PLACES if facts.get(key)), sensor.name)
    return f"{place}: {sensor.boundary}, new values every {sensor.refresh_s:g} s"
