"""Time and energy of products, from the same window of the same run.

`choose_source` finds the sensor of a processor, or says why there is none, before anything
runs. `Metered` holds what was measured: the times, and the energy of the window with its
error and the verdict on whether the sensor could resolve it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from .errors import SensorError
from .figures import Figure, unknown
from .power import Attribution, Meter, RegionEnergy
from .power.sampler import DEFAULT_CADENCE_S
from .power.sensor import Sensor
from .power.sources import open_sensor

POWER_CHOICES = "auto, none, xrt, rapl, nvml or replay:FILE"
REGION = "products"
Processor = Literal["card", "cpu"]

_SOURCE_OF: dict[Processor, str] = {"card": "xrt", "cpu": "rapl"}
_BOUNDARIES: dict[Processor, tuple[str, ...]] = {
    "card": ("card",),
    "cpu": ("package", "package + DRAM"),
}
_NAMES: dict[Processor, str] = {"card": "the card", "cpu": "the CPU"}
_IDLE_REFRESHES = 10
"""Idle power needs as many new values, or readings where they come more slowly."""
_MAX_IDLE_S = 10.0
_SETTLE_S = 0.3
"""OpenMP threads spin for up to 0.2 s after the last product (KMP_BLOCKTIME of Intel's)."""


@dataclass(frozen=True)
class Source:
    """The sensor of a processor, or why there is none.

    Attributes
    ----------
    sensor : Sensor or None
        Made, not yet opened.
    reason : str
        Why there is no energy; empty where there is a sensor.
    """

    sensor: Sensor | None
    reason: str = ""


def choose_source(power: str, processor: Processor) -> Source:
    """Find the sensor that measures a processor.

    Parameters
    ----------
    power : str
        `auto`, `none`, `xrt`, `rapl`, `nvml` or `replay:FILE`. A named source serves the
        processor that it measures, and no other.
    processor : str
        `card` or `cpu`.

    Raises
    ------
    SensorError
        If there is no source of that name, or the file to replay is no trace.

    Examples
    --------
    >>> choose_source("none", "cpu").reason
    'no power source was asked for'
    """
    own = _SOURCE_OF[processor]
    if power == "none":
        return Source(None, "no power source was asked for")
    if power.startswith("replay:"):
        return _fitting(open_sensor(power), processor)
    if power not in ("auto", "xrt", "rapl", "nvml"):
        raise SensorError(f"power is {power!r}; it must be {POWER_CHOICES}.")
    if power not in ("auto", own):
        return Source(None, f"power source {power} does not measure {_NAMES[processor]}")
    try:
        return Source(open_sensor(own))
    except SensorError as error:
        return Source(None, str(error))


def _fitting(sensor: Sensor, processor: Processor) -> Source:
    if sensor.boundary in _BOUNDARIES[processor]:
        return Source(sensor)
    if sensor.boundary == "unknown":
        return Source(
            None,
            "the trace does not say what its power flows into; add the header line "
            "`# boundary: card` to it, or `# boundary: package` for a CPU",
        )
    return Source(
        None, f"the trace is of boundary {sensor.boundary}, which is not {_NAMES[processor]}"
    )


@dataclass(frozen=True)
class Metered:
    """What a meter saw of a window of products.

    Attributes
    ----------
    products : int
        Products in the window.
    attribution : Attribution or None
    reason : str
        Why there is no energy.
    """

    products: int
    attribution: Attribution | None
    reason: str = ""

    @property
    def region(self) -> RegionEnergy | None:
        """Energy of the window."""
        return None if self.attribution is None else self.attribution[REGION]

    def figures(self) -> dict[str, Figure]:
        """Return power and energy per product, with the parts of the energy.

        An energy that the sensor could not resolve is unknown, and says so.
        """
        region, attribution = self.region, self.attribution
        if region is None or attribution is None or region.energy is None:
            nothing = unknown(self.reason or (region.reason if region else "") or "no reading")
            return {"power_w": nothing, "energy_j": nothing}
        if region.verdict == "unresolved":
            refresh_s = attribution.refresh.period_s
            nothing = unknown(
                f"unresolved: a window of {region.time_s:.3g} s under a sensor with new values "
                f"every {refresh_s:.3g} s"
            )
            return {"power_w": nothing, "energy_j": nothing}
        best = region.energy.best
        window = _figure(best.energy_j, best.error_j, region.samples)
        idle_w = attribution.idle.power_w
        figures = {
            "power_w": window.scaled(1 / region.time_s),
            "energy_j": window.scaled(1 / self.products),
            "energy_window_j": window,
        }
        if region.dynamic is not None and idle_w is not None:
            dynamic = _figure(region.dynamic.energy_j, region.dynamic.error_j, region.samples)
            figures["energy_dynamic_j"] = dynamic.scaled(1 / self.products)
            figures["idle_w"] = Figure(value=idle_w, origin="measured")
        if attribution.idle.drift_w is not None:
            figures["idle_drift_w"] = Figure(value=attribution.idle.drift_w, origin="measured")
        return figures

    def facts(self) -> dict[str, Any]:
        """Return what a reader needs to judge the energy; empty where there is none."""
        if self.region is None or self.attribution is None:
            return {}
        return {
            "sensor": self.attribution.sensor,
            "boundary": self.attribution.boundary,
            "verdict": self.region.verdict,
            "samples": self.region.samples,
            "refresh_s": Figure(
                value=self.attribution.refresh.period_s, origin="measured"
            ).to_json(),
            "conservation_error": self.attribution.conservation_error,
        }

    @property
    def warnings(self) -> tuple[str, ...]:
        """What weakens the energy, one sentence each."""
        return () if self.attribution is None else self.attribution.warnings


class PowerWindow:
    """A meter around a measurement; without a sensor it does nothing.

    Parameters
    ----------
    source : Source

    Examples
    --------
    >>> power = PowerWindow(Source(None, "no sensor"))
    >>> with power.running():
    ...     with power.window():
    ...         pass
    >>> power.result(products=3).reason
    'no sensor'
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._meter: Meter | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Sample from here on, with an idle phase before and after."""
        sensor = self._source.sensor
        if sensor is None:
            yield
            return
        idle_s = _IDLE_REFRESHES * max(sensor.refresh_s, DEFAULT_CADENCE_S)
        with ExitStack() as stack:
            try:
                self._meter = stack.enter_context(
                    Meter(sensor, idle_s=min(idle_s, _MAX_IDLE_S))
                )
            except SensorError as error:  # times are worth having without energy
                self._source = Source(None, str(error))
            yield
            if self._meter is not None:
                time.sleep(_SETTLE_S)

    @contextmanager
    def window(self) -> Iterator[None]:
        """Mark the window of the measurement."""
        if self._meter is None:
            yield
            return
        with self._meter.region(REGION):
            yield

    def result(self, products: int) -> Metered:
        """Return what was measured; to be called after `running`."""
        if self._meter is None:
            return Metered(products, None, self._source.reason)
        try:
            return Metered(products, self._meter.attribution())
        except SensorError as error:
            return Metered(products, None, str(error))


def resting_power(source: Source) -> Figure:
    """Return the power of a processor that does nothing for this program, read once."""
    if source.sensor is None:
        return unknown(source.reason)
    try:
        with source.sensor as sensor:
            reading = sensor.read()
    except SensorError as error:
        return unknown(str(error))
    if reading.power_w is None:
        return unknown("the sensor counts energy and shows no power")
    return Figure(value=reading.power_w, origin="measured", n=1)


def _figure(energy_j: float, error_j: float, samples: int) -> Figure:
    """Return an energy with its bounds; none where nothing in the run bounds it."""
    is_bounded = math.isfinite(error_j)
    return Figure(
        value=energy_j,
        origin="measured",
        low=energy_j - error_j if is_bounded else None,
        high=energy_j + error_j if is_bounded else None,
        n=samples,
    )
