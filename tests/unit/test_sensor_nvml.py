"""NVML: what a GPU supports, what it says, and when it is silent."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power.nvml import NvmlSensor
from spmv_fpga.power.sensor import SensorUnavailableError
from tests.fakes.power.clock import FakeClock
from tests.fakes.power.nvml import FakeNvml

AVERAGE, INSTANT, ENERGY = 185, 186, 83


def make_gpu(**options: Any) -> tuple[FakeNvml, NvmlSensor]:
    clock = FakeClock()
    gpu = FakeNvml(clock, **options)
    return gpu, NvmlSensor(nvml=gpu, clock=clock)


def test_power_is_in_watts_and_energy_in_joules_since_the_opening() -> None:
    gpu, sensor = make_gpu()
    gpu.clock.advance(3.0)
    with sensor:
        gpu.clock.advance(2.0)
        reading = sensor.read()
    assert reading.power_w == pytest.approx(120.0)
    assert reading.energy_j == pytest.approx(240.0, abs=1e-3)


def test_the_instant_power_is_read_and_not_the_mean_of_a_second() -> None:
    gpu, sensor = make_gpu(power_w=lambda t: 500.0 if t >= 1002.0 else 120.0)
    with sensor:
        gpu.clock.now_s = 1002.25
        assert sensor.read().power_w == pytest.approx(500.0)
    facts = sensor.facts()
    assert facts["power_field"] == "instant"
    assert (facts["mean_instant_w"], facts["mean_average_w"]) == (500.0, 234.0)


@pytest.mark.parametrize(
    ("unsupported", "field"), [({INSTANT}, "average"), ({INSTANT, AVERAGE}, "usage")]
)
def test_older_gpus_give_what_they_have_and_say_so(unsupported: set[int], field: str) -> None:
    _, sensor = make_gpu(unsupported=frozenset(unsupported))
    with sensor:
        assert sensor.read().power_w == pytest.approx(120.0)
    assert sensor.facts()["power_field"] == field


def test_a_gpu_without_a_counter_gives_power_only() -> None:
    _, sensor = make_gpu(unsupported=frozenset({ENERGY}))
    with sensor:
        assert sensor.read().energy_j is None
    assert sensor.energy_step_j is None


def test_a_gpu_without_power_gives_energy_only() -> None:
    gpu, sensor = make_gpu(unsupported=frozenset({INSTANT, AVERAGE}), has_usage=False)
    with sensor:
        gpu.clock.advance(1.0)
        reading = sensor.read()
    assert (reading.power_w, reading.energy_j) == (None, pytest.approx(120.0, abs=1e-3))


def test_a_gpu_with_neither_is_refused_and_closed() -> None:
    gpu = FakeNvml(
        FakeClock(), unsupported=frozenset({INSTANT, AVERAGE, ENERGY}), has_usage=False
    )
    with pytest.raises(SensorUnavailableError, match="supports neither power nor energy"):
        NvmlSensor(nvml=gpu)
    assert gpu.num_open == 0


def test_a_field_that_turns_unsupported_is_never_read_as_zero() -> None:
    gpu, sensor = make_gpu()
    with sensor:
        gpu.unsupported.add(INSTANT)
        with pytest.raises(SensorError, match="the power of GPU 0 is gone"):
            sensor.read()
        gpu.unsupported = {ENERGY}
        with pytest.raises(SensorError, match="the counter of GPU 0 is gone"):
            sensor.read()
    assert sensor.facts()["rejected"] == 2


def test_zero_watts_are_no_measurement() -> None:
    gpu, sensor = make_gpu()
    with sensor:
        gpu.power_w = lambda _: 0.0
        with pytest.raises(SensorError, match="the power of GPU 0 reads 0 W"):
            sensor.read()


def test_a_counter_that_runs_backwards_is_rejected() -> None:
    gpu, sensor = make_gpu()
    with sensor:
        gpu._counted_j = 0.0
        with pytest.raises(SensorError, match="ran backwards"):
            sensor.read()


def test_a_lost_gpu_is_a_rejected_reading() -> None:
    gpu, sensor = make_gpu()
    with sensor:
        gpu.is_lost = True
        with pytest.raises(SensorError, match=r"GPU 0 does not answer \(GPU is lost\)"):
            sensor.read()
    assert sensor.facts()["rejected_no_answer"] == 1


def test_a_gpu_that_is_lost_from_the_start_is_refused_and_closed() -> None:
    gpu = FakeNvml(FakeClock())
    gpu.is_lost = True
    with pytest.raises(SensorUnavailableError, match="check it with `nvidia-smi`"):
        NvmlSensor(nvml=gpu)
    assert gpu.num_open == 0


def test_the_slow_first_query_is_made_at_the_opening() -> None:
    gpu, sensor = make_gpu()
    assert sensor.facts()["first_query_s"] == 0.052
    with sensor:
        before_s = gpu.clock.now_s
        sensor.read()
        assert gpu.clock.now_s == before_s


def test_a_dear_counter_is_read_once_per_refresh_and_stands_in_between() -> None:
    gpu = FakeNvml(FakeClock())
    gpu.counter_query_s = 0.0034
    sensor = NvmlSensor(nvml=gpu, clock=gpu.clock)
    with sensor:
        begin_s, before = gpu.clock.now_s, gpu.num_counter_queries
        energies_j = []
        for i in range(1, 101):
            gpu.clock.now_s = begin_s + i * 0.02
            energies_j.append(sensor.read().energy_j)
    assert gpu.num_counter_queries - before == 20
    assert energies_j[-1] == pytest.approx(240.0, abs=1e-3)
    assert len(set(energies_j)) == 21
    assert sensor.facts()["counter_interval_s"] == 0.1
    assert sensor.facts()["counter_query_s"] == 0.0034


def test_a_cheap_counter_is_read_every_time() -> None:
    gpu, sensor = make_gpu()
    with sensor:
        before = gpu.num_counter_queries
        for _ in range(10):
            sensor.read()
        assert gpu.num_counter_queries - before == 10
    assert sensor.facts()["counter_interval_s"] == 0.0


def test_the_library_is_closed_and_can_be_opened_again() -> None:
    gpu, sensor = make_gpu()
    for _ in range(2):
        with sensor:
            assert gpu.num_open == 1
            assert sensor.read().power_w == pytest.approx(120.0)
        assert gpu.num_open == 0


def test_a_machine_without_the_driver_is_refused() -> None:
    gpu = FakeNvml(FakeClock())
    gpu.has_driver = False
    with pytest.raises(SensorUnavailableError, match="install the NVIDIA driver"):
        NvmlSensor(nvml=gpu)


def test_a_gpu_number_that_is_not_there_is_refused_and_closed() -> None:
    gpu = FakeNvml(FakeClock())
    with pytest.raises(SensorUnavailableError, match=r"there is no GPU 3.*NVML counts 1"):
        NvmlSensor(nvml=gpu, index=3)
    assert gpu.num_open == 0


def test_a_missing_binding_is_told_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(SensorUnavailableError, match=r"-m pip install .*\[nvml\]'"):
        NvmlSensor()
