"""A stand-in for the module `pynvml`: one GPU whose values move every 100 ms.

The instant power is what the GPU draws at the moment of an update, the average the mean of
the last second, the counter what was drawn up to the last update.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace

from .clock import FakeClock

REFRESH_S = 0.100
FIRST_QUERY_S = 0.052
NOT_SUPPORTED, GPU_IS_LOST, INVALID_ARGUMENT = 3, 15, 2
UINT, ULONGLONG = 1, 3


class FakeNvml:
    """The functions of `pynvml` that a sensor calls."""

    class NVMLError(Exception):
        def __init__(self, value: int) -> None:
            super().__init__({3: "Not Supported", 15: "GPU is lost"}.get(value, "Error"))
            self.value = value

    def __init__(
        self,
        clock: FakeClock,
        power_w: Callable[[float], float] = lambda _: 120.0,
        *,
        unsupported: frozenset[int] = frozenset(),
        has_usage: bool = True,
    ) -> None:
        self.clock, self.power_w = clock, power_w
        self.unsupported, self.has_usage = set(unsupported), has_usage
        self.num_open = 0
        self.is_lost = False
        self.counter_query_s = 0.0
        self.num_counter_queries = 0
        self.has_driver = True
        self._begin_s, self._is_warm = clock.now_s, False
        self._counted_j, self._counted_until_s = 3454.463, clock.now_s

    def nvmlInit(self) -> None:
        if not self.has_driver:
            raise self.NVMLError(9)
        self.num_open += 1

    def nvmlShutdown(self) -> None:
        self.num_open -= 1

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        if index != 0:
            raise self.NVMLError(INVALID_ARGUMENT)
        return index

    def nvmlDeviceGetName(self, _: int) -> str:
        return "NVIDIA Fake"

    def nvmlDeviceGetUUID(self, _: int) -> bytes:
        return b"GPU-1"

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.0"

    def nvmlDeviceGetPowerUsage(self, _: int) -> int:
        self._check()
        if not self.has_usage:
            raise self.NVMLError(NOT_SUPPORTED)
        return self._average_mw()

    def nvmlDeviceGetFieldValues(
        self, _: int, fields: Sequence[int | tuple[int, int]]
    ) -> list[SimpleNamespace]:
        self._check()
        if not self._is_warm:
            self.clock.advance(FIRST_QUERY_S)
            self._is_warm = True
        if 83 in fields:
            self.clock.advance(self.counter_query_s)
            self.num_counter_queries += 1
        return [self._field(f if isinstance(f, int) else f[0]) for f in fields]

    def _field(self, number: int) -> SimpleNamespace:
        is_known = number not in self.unsupported
        value = SimpleNamespace(uiVal=0, ullVal=0)
        if is_known and number == 83:
            value.ullVal = round(self._counter_j() * 1e3)
        elif is_known:
            instant_mw = round(self.power_w(self._update_s()) * 1e3)
            value.uiVal = instant_mw if number == 186 else self._average_mw()
        return SimpleNamespace(
            fieldId=number,
            scopeId=0,
            valueType=ULONGLONG if number == 83 else UINT,
            nvmlReturn=0 if is_known else NOT_SUPPORTED,
            value=value,
        )

    def _check(self) -> None:
        if self.is_lost:
            raise self.NVMLError(GPU_IS_LOST)

    def _update_s(self) -> float:
        num_updates = math.floor((self.clock.now_s - self._begin_s) / REFRESH_S + 1e-9)
        return self._begin_s + num_updates * REFRESH_S

    def _average_mw(self) -> int:
        times_s = [self._update_s() - i * REFRESH_S for i in range(10)]
        return round(sum(map(self.power_w, times_s)) / len(times_s) * 1e3)

    def _counter_j(self) -> float:
        while self._counted_until_s < self._update_s() - 1e-9:
            self._counted_j += self.power_w(self._counted_until_s) * REFRESH_S
            self._counted_until_s += REFRESH_S
        return self._counted_j
