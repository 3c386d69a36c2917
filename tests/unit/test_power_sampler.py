"""The sampler's schedule on a clock that only moves when something takes time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power import sampler as sampler_module
from spmv_fpga.power.sampler import Sampler, hurry
from spmv_fpga.power.sensor import Reading


class Clock:
    """Time that passes by reading and by waiting; after some waits it stands still."""

    def __init__(self, num_waits: int) -> None:
        self.now_s = 100.0
        self._waits_left = num_waits
        self.has_ended = threading.Event()

    def __call__(self) -> float:
        return self.now_s

    def wait(self, stop: threading.Event, duration_s: float) -> None:
        if self._waits_left == 0:
            self.has_ended.set()
            stop.wait(10)
            return
        self._waits_left -= 1
        self.now_s += max(duration_s, 0.0)


class FakeSensor:
    """A sensor whose answers and whose slowness are given for each reading."""

    name, boundary, refresh_s = "fake", "card", 0.1
    power_step_w: float | None = 0.0153
    energy_step_j: float | None = None

    def __init__(
        self, clock: Clock, answer: Callable[[int], Reading], cost_s: Callable[[int], float]
    ) -> None:
        self._clock, self._answer, self._cost_s = clock, answer, cost_s
        self.num_reads = 0

    def __enter__(self) -> FakeSensor:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def read(self) -> Reading:
        number = self.num_reads
        self.num_reads += 1
        self._clock.now_s += self._cost_s(number)
        return self._answer(number)

    def facts(self) -> dict[str, str | float | int]:
        return {"node": "/made/up"}


def constant(_: int) -> Reading:
    return Reading(power_w=20.0)


@contextmanager
def sampled(
    num_waits: int,
    answer: Callable[[int], Reading] = constant,
    cost_s: Callable[[int], float] = lambda _: 0.001,
) -> Iterator[Sampler]:
    """Sample through so many waits, then stop."""
    clock = Clock(num_waits)
    sampler = Sampler(FakeSensor(clock, answer, cost_s), clock=clock, wait=clock.wait)
    with sampler:
        while not clock.has_ended.wait(0.01) and sampler.is_running:
            pass
    yield sampler


def starts_s(sampler: Sampler) -> list[float]:
    return [round(sample.before_s, 6) for sample in sampler.samples]


def test_readings_start_at_multiples_of_the_cadence() -> None:
    with sampled(100) as sampler:
        # The first reading is thrown away; the origin comes after its millisecond.
        expected = [round(100.001 + 0.020 * k, 6) for k in range(101)]
    assert starts_s(sampler)[:101] == expected


def test_a_last_reading_is_taken_after_the_stop() -> None:
    with sampled(10) as sampler:
        assert len(sampler.samples) == 12  # one at the origin, ten waits, the last one


def test_a_slow_first_reading_does_not_shift_the_schedule() -> None:
    with sampled(5, cost_s=lambda n: 0.052 if n == 0 else 0.001) as sampler:
        assert starts_s(sampler)[:3] == [100.052, 100.072, 100.092]
        assert sampler.num_skipped == 0


def test_deadlines_that_pass_during_a_slow_reading_are_left_out() -> None:
    with sampled(6, cost_s=lambda n: 0.050 if n == 3 else 0.001) as sampler:
        offsets = [round(s - 100.001, 6) for s in starts_s(sampler)[:6]]
    assert offsets == [0.0, 0.02, 0.04, 0.1, 0.12, 0.14]
    assert sampler.num_skipped == 2


def test_the_clock_is_read_on_both_sides_and_the_trace_takes_the_middle() -> None:
    with sampled(3, cost_s=lambda _: 0.004) as sampler:
        first = sampler.samples[0]
        assert first.after_s - first.before_s == pytest.approx(0.004)
        assert sampler.trace().time_s[0] == pytest.approx(first.before_s + 0.002)


def test_rejected_readings_are_counted_by_reason_and_left_out() -> None:
    def answer(number: int) -> Reading:
        if number % 3 == 2:
            raise SensorError("12 V is 0 V")
        return constant(number)

    with sampled(9, answer) as sampler:
        trace = sampler.trace()
    assert sampler.rejected == {"12 V is 0 V": 4}
    assert len(trace.time_s) == 7
    assert trace.facts["rejected_readings"] == "4"
    assert trace.facts["rejected_because"] == "12 V is 0 V (4 ×)"
    assert sampler.error is None


def test_a_sensor_that_fails_ends_the_sampling_and_the_error_is_kept() -> None:
    def answer(number: int) -> Reading:
        if number >= 5:
            raise OSError("the card fell off the bus")
        return constant(number)

    with sampled(100, answer) as sampler:
        assert not sampler.is_running
    assert isinstance(sampler.error, OSError)
    assert len(sampler.samples) == 4
    assert sampler.trace().facts["ended_early"] == "the card fell off the bus"


def test_a_sensor_that_only_rejects_is_given_up_after_half_a_minute() -> None:
    def answer(number: int) -> Reading:
        if number >= 5:
            raise SensorError("stale")
        return constant(number)

    with sampled(5000, answer) as sampler:
        pass
    assert str(sampler.error).startswith("fake gave no usable reading for 30 s: stale")
    assert sum(sampler.rejected.values()) == pytest.approx(1500, abs=3)


def test_a_mistake_in_a_sensors_code_is_not_hidden() -> None:
    def answer(number: int) -> Reading:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), sampled(3, answer):
        pass


def test_a_sensor_without_a_usable_reading_gives_no_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sampler_module, "_FIRST_SAMPLE_S", 0.01)

    def answer(number: int) -> Reading:
        raise SensorError("permission denied")

    with sampled(3, answer) as sampler, pytest.raises(SensorError) as caught:
        sampler.trace()
    assert "fake gave 0 usable reading(s): permission denied (6 ×)" in str(caught.value)


def test_the_trace_says_where_it_comes_from() -> None:
    with sampled(3) as sampler:
        facts = sampler.trace().facts
    assert facts["sensor"] == "fake"
    assert facts["boundary"] == "card"
    assert facts["refresh_s"] == "0.1"
    assert facts["power_step_w"] == "0.0153"
    assert "energy_step_j" not in facts
    assert facts["cadence_s"] == "0.02"
    assert facts["read_cost_s"] == "0.001"
    assert facts["node"] == "/made/up"


def test_fetch_times_and_counters_are_kept_with_gaps() -> None:
    def answer(number: int) -> Reading:
        return Reading(20.0, 99.0 if number != 2 else None, float(number))

    with sampled(3, answer) as sampler:
        trace = sampler.trace()
    assert trace.fetch_s is not None
    assert trace.energy_j is not None
    assert np.isnan(trace.fetch_s).tolist() == [False, True, False, False, False]
    assert trace.energy_j.tolist() == [1, 2, 3, 4, 5]


def test_power_of_a_sensor_that_only_counts_is_the_counters_slope() -> None:
    # 0.4 J each 20 ms are 20 W; the counter moves with every fifth reading only.
    with sampled(99, lambda n: Reading(None, None, 0.4 * 5 * (n // 5))) as sampler:
        trace = sampler.trace()
    assert trace.facts["power_from"] == "energy counter"
    assert trace.power_w[5:90] == pytest.approx(20.0, rel=1e-6)


def test_a_counter_that_never_moves_is_no_measurement_of_zero() -> None:
    with (
        sampled(3, lambda _: Reading(None, None, 7.0)) as sampler,
        pytest.raises(SensorError, match="energy counter never moved in"),
    ):
        sampler.trace()


def test_a_reading_without_power_and_energy_gives_no_trace() -> None:
    with sampled(3, lambda _: Reading(None)) as sampler, pytest.raises(SensorError) as caught:
        sampler.trace()
    assert "neither power nor energy" in str(caught.value)


@pytest.mark.parametrize("cadence_s", [0.0, -1.0, 1e-9, 1e300, float("nan"), float("inf")])
def test_a_cadence_that_is_no_time_is_refused(cadence_s: float) -> None:
    with pytest.raises(SensorError, match="cadence"):
        Sampler(FakeSensor(Clock(0), constant, lambda _: 0.0), cadence_s)


def test_the_samplers_thread_alone_asks_for_real_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int, int]] = []

    def note(pid: int, policy: int, param: os.sched_param) -> None:
        asked.append((threading.current_thread().name, pid, policy))

    monkeypatch.setattr(os, "sched_setscheduler", note)
    with sampled(3) as sampler:
        assert sampler.trace().facts["scheduling"] == "real-time"
    # 0 is the calling thread; what it starts is ordinary again.
    assert asked == [("power-sampler_0", 0, os.SCHED_RR | os.SCHED_RESET_ON_FORK)]


def test_without_the_right_to_real_time_the_scheduling_stays_normal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int, policy: int, param: os.sched_param) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert hurry() == "normal"
