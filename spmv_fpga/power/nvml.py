"""Power and energy of an NVIDIA GPU, through NVML.

Three quantities, all new every 100 ms: the instant power (field 186: a short window of
each period, 25 ms on A100 and H100), the average power (field 185: the mean of the last
second) and an energy counter. The power read is the instant one where the GPU has it; the
facts say which it was, since its meaning depends on architecture and driver.

A query for the counter can keep a core busy for milliseconds (3.4 ms on an H200 with driver
580, where one for power takes 0.09 ms). Where it is that dear it is read once per refresh,
and its last value stands in between.

Sources: NVIDIA, NVML API Reference, "Field Value Enums" and `nvmlDeviceGetPowerUsage`;
Yang, Adamek, Armour, "Part-time Power Measurements", SC24 (arXiv 2312.02741).
"""

from __future__ import annotations

import importlib
import time
from typing import Any

from ..errors import SensorError
from ..resources import install_command
from .sensor import Clock, Fact, Reading, SensorBase, SensorUnavailableError

REFRESH_S = 0.100
POWER_AVERAGE, POWER_INSTANT, TOTAL_ENERGY = 185, 186, 83
"""Field numbers of nvml.h: mW, mW, mJ since the driver was loaded."""

_GPU_SCOPE = 0
_SUCCESS = 0
_LOST_AFTER = 15  # NVML_ERROR_GPU_IS_LOST
# nvmlValueType_t to the member of the union that holds the value.
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}
_POWER_FIELDS = ((POWER_INSTANT, _GPU_SCOPE), (POWER_AVERAGE, _GPU_SCOPE))
_CHEAP_QUERY_S = 0.0002  # 1 % of a core at a cadence of 20 ms
_ROUNDING = 0.9  # a reading that comes a little early still is the one that is due
_POWER_NAMES = {POWER_INSTANT: "instant", POWER_AVERAGE: "average"}


class NvmlSensor(SensorBase):
    """The power and the energy counter of one GPU.

    Parameters
    ----------
    index : int
        The GPU's number, as `nvidia-smi` counts.
    nvml : module, optional
        Stands in for `pynvml` (the distribution `nvidia-ml-py`).
    clock : callable
        Monotonic time in seconds; tells how long queries take.

    Raises
    ------
    SensorUnavailableError
        If the binding, the driver or the GPU is missing, or it has neither power nor energy.
    """

    name = "nvml"
    boundary = "GPU"
    refresh_s = REFRESH_S

    def __init__(
        self, *, index: int = 0, nvml: Any = None, clock: Clock = time.monotonic
    ) -> None:
        super().__init__()
        self._nvml = _import_nvml() if nvml is None else nvml
        self._index, self._clock = index, clock
        self._sums_w, self._num_pairs = (0.0, 0.0), 0
        self._is_open = False
        self._device = self._open()
        try:
            self._choose_fields()
            self._identity = self._describe()
        except self._nvml.NVMLError as error:
            self._close()
            raise SensorUnavailableError(
                f"GPU {index} does not answer ({error})", "check it with `nvidia-smi`"
            ) from None
        except SensorError:
            self._close()
            raise

    def _open(self) -> Any:
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise SensorUnavailableError(
                f"NVIDIA's management library cannot be used ({error})",
                "install the NVIDIA driver, and check it with `nvidia-smi`",
            ) from None
        self._is_open = True
        try:
            return self._nvml.nvmlDeviceGetHandleByIndex(self._index)
        except self._nvml.NVMLError as error:
            count = self._nvml.nvmlDeviceGetCount()
            self._close()
            raise SensorUnavailableError(
                f"there is no GPU {self._index} ({error}); NVML counts {count}",
                "give the number of one that `nvidia-smi -L` lists",
            ) from None

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._nvml.nvmlShutdown()

    def _choose_fields(self) -> None:
        """Ask once, which is slow (52 ms on an H200), and keep what the GPU supports."""
        values, self._first_query_s = self._timed_values(TOTAL_ENERGY)
        self._power = next((f for f in _POWER_NAMES if values.get(f)), None)
        self._has_usage = self._power is None and self._usage_mw() is not None
        self._has_energy = TOTAL_ENERGY in values
        if self._power is None and not self._has_usage and not self._has_energy:
            raise SensorUnavailableError(
                f"GPU {self._index} supports neither power nor energy",
                "measure another GPU (`nvidia-smi -q -d POWER` tells)",
            )
        self._start_counter(values)
        _, self._counter_query_s = self._timed_values(TOTAL_ENERGY)
        is_cheap = self._counter_query_s <= _CHEAP_QUERY_S
        self._counter_interval_s = 0.0 if is_cheap else REFRESH_S * _ROUNDING
        has_power = self._power is not None or self._has_usage
        self.power_step_w = 1e-3 if has_power else None
        self.energy_step_j = 1e-3 if self._has_energy else None

    def _start_counter(self, values: dict[int, int]) -> None:
        self._start_mj = self._last_mj = values.get(TOTAL_ENERGY, 0)
        self._counted_s = self._clock()

    def _timed_values(self, *more: int) -> tuple[dict[int, int], float]:
        start_s = self._clock()
        return self._values(*more), self._clock() - start_s

    def _values(self, *more: int) -> dict[int, int]:
        """Return what the GPU answers of the power fields and more, in mW and mJ."""
        fields = [*_POWER_FIELDS, *more]
        answers = self._nvml.nvmlDeviceGetFieldValues(self._device, fields)
        return {
            answer.fieldId: int(getattr(answer.value, _MEMBERS[answer.valueType]))
            for answer in answers
            if answer.nvmlReturn == _SUCCESS and answer.valueType in _MEMBERS
        }

    def _usage_mw(self) -> int | None:
        """Ask older GPUs, which have no power fields."""
        try:
            return int(self._nvml.nvmlDeviceGetPowerUsage(self._device))
        except self._nvml.NVMLError as error:
            if getattr(error, "value", None) == _LOST_AFTER:
                raise
            return None

    def _describe(self) -> dict[str, Fact]:
        return {
            "gpu": _text(self._nvml.nvmlDeviceGetName(self._device)),
            "gpu_uuid": _text(self._nvml.nvmlDeviceGetUUID(self._device)),
            "driver": _text(self._nvml.nvmlSystemGetDriverVersion()),
        }

    def __enter__(self) -> NvmlSensor:
        if not self._is_open:
            self._device = self._open()
        self._sums_w, self._num_pairs = (0.0, 0.0), 0
        try:
            self._start_counter(self._values(TOTAL_ENERGY))
        except self._nvml.NVMLError as error:
            self._close()
            raise SensorError(f"GPU {self._index} does not answer ({error}).") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def read(self) -> Reading:
        """Read power, and the energy counter where it is due.

        Raises
        ------
        SensorError
            If the GPU does not answer, a quantity that it had is gone, reads 0 or runs
            backwards.
        """
        now_s = self._clock()
        is_due = self._has_energy and now_s - self._counted_s >= self._counter_interval_s
        try:
            values = self._values(TOTAL_ENERGY) if is_due else self._values()
            power_mw = self._power_mw(values)
        except self._nvml.NVMLError as error:
            raise self._rejection(
                "no answer", f"GPU {self._index} does not answer ({error})."
            ) from None
        if is_due:
            self._count(values, now_s)
        power_w = None if power_mw is None else power_mw * 1e-3
        if self._power == POWER_INSTANT and power_w and values.get(POWER_AVERAGE):
            instant_w, average_w = self._sums_w
            self._sums_w = instant_w + power_w, average_w + values[POWER_AVERAGE] * 1e-3
            self._num_pairs += 1
        energy_j = (self._last_mj - self._start_mj) * 1e-3
        return Reading(power_w, energy_j=energy_j if self._has_energy else None)

    def _power_mw(self, values: dict[int, int]) -> int | None:
        if self._power is None and not self._has_usage:
            return None
        power_mw = self._usage_mw() if self._power is None else values.get(self._power)
        if not power_mw:
            told = "is gone" if power_mw is None else "reads 0 W"
            raise self._rejection("no power", f"the power of GPU {self._index} {told}.")
        return power_mw

    def _count(self, values: dict[int, int], now_s: float) -> None:
        now_mj = values.get(TOTAL_ENERGY)
        if now_mj is None or now_mj < self._last_mj:
            told = "is gone" if now_mj is None else "ran backwards (was the driver reloaded?)"
            raise self._rejection("energy", f"the counter of GPU {self._index} {told}.")
        self._last_mj, self._counted_s = now_mj, now_s

    def _own_facts(self) -> dict[str, Fact]:
        power = "usage" if self._has_usage else _POWER_NAMES.get(self._power or 0, "none")
        facts: dict[str, Fact] = {
            **self._identity,
            "gpu_index": self._index,
            "power_field": power,
            "energy_counter": "yes" if self._has_energy else "no",
            "first_query_s": round(self._first_query_s, 6),
            "counter_query_s": round(self._counter_query_s, 6),
            "counter_interval_s": self._counter_interval_s and REFRESH_S,
        }
        if self._num_pairs:
            instant_w, average_w = (total / self._num_pairs for total in self._sums_w)
            facts["mean_instant_w"] = round(instant_w, 3)
            facts["mean_average_w"] = round(average_w, 3)
        return facts


def _import_nvml() -> Any:
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        nvml = None
    if not hasattr(nvml, "nvmlDeviceGetFieldValues"):
        raise SensorUnavailableError(
            "the package nvidia-ml-py is not installed",
            f"run `{install_command('nvml')}`",
        )
    return nvml


def _text(told: str | bytes) -> str:
    return told.decode(errors="replace") if isinstance(told, bytes) else told
