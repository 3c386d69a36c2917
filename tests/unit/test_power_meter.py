"""The meter: sampler, regions and idle phases on one made-up clock."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power import Meter, attribute, read_trace, write_trace
from spmv_fpga.power.sensor import Reading


class Card:
    """A card with its sensor and its clock.

    Time only passes in `sleep`, and only while the sampler rests, so that each reading falls
    on its deadline exactly.
    """

    name, boundary, refresh_s = "fake", "card", 0.02
    power_step_w: float | None = None
    energy_step_j: float | None = None

    def __init__(self, fails_from_s: float = float("inf")) -> None:
        self.now_s, self.power_w = 0.0, 17.4
        self.num_open = 0
        self._fails_from_s = fails_from_s
        self._changed = threading.Condition()
        self._deadline_s: float | None = None  # what the sampler rests until
        self._has_failed = False

    def __enter__(self) -> Card:
        self.num_open += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.num_open -= 1

    def read(self) -> Reading:
        if self.now_s >= self._fails_from_s:
            with self._changed:
                self._has_failed = True
                self._changed.notify_all()
            raise OSError("the card fell off the bus")
        return Reading(self.power_w)

    def facts(self) -> dict[str, str | float | int]:
        return {}

    def clock(self) -> float:
        return self.now_s

    def wait(self, stop: threading.Event, duration_s: float) -> None:
        with self._changed:
            self._deadline_s = self.now_s + duration_s
            self._changed.notify_all()
            while self._deadline_s is not None and not stop.is_set():
                self._changed.wait(0.002)

    def sleep(self, duration_s: float) -> None:
        end_s = self.now_s + duration_s
        with self._changed:
            self._wait_for_rest()
            while self.now_s < end_s:
                if self._deadline_s is None or self._deadline_s > end_s:
                    self.now_s = end_s
                else:
                    self.now_s, self._deadline_s = self._deadline_s, None
                self._changed.notify_all()
                self._wait_for_rest()

    def _wait_for_rest(self) -> None:
        is_resting = self._changed.wait_for(
            lambda: self._deadline_s is not None or self._has_failed, timeout=10
        )
        assert is_resting, "the sampler hangs"


def meter_of(card: Card, idle_s: float = 1.0) -> Meter:
    return Meter(
        card, idle_s=idle_s, clock=card.clock, sleep=card.sleep, sampler_wait=card.wait
    )


def run_load(card: Card, meter: Meter, duration_s: float = 2.0) -> None:
    card.power_w = 20.5
    with meter.region("spmv"):
        card.sleep(duration_s)
    card.power_w = 17.4


def test_a_run_has_its_load_between_two_idle_phases() -> None:
    card = Card()
    with meter_of(card) as meter:
        run_load(card, meter)
    result = meter.attribution()
    assert [(r.name, round(r.time_s, 6)) for r in result.regions] == [
        ("idle before", 1.0), ("spmv", 2.0), ("idle after", 1.0)
    ]  # fmt: skip
    assert result.time_s == pytest.approx(4.0)
    assert result["spmv"].energy_j == pytest.approx(41.0, rel=0.01)
    assert result["spmv"].energy_inner_j == pytest.approx(41.0, rel=1e-9)
    assert result.idle.power_w == pytest.approx(17.4, rel=1e-9)
    assert result.idle.drift_w == pytest.approx(0.0, abs=1e-9)
    dynamic = result["spmv"].dynamic
    assert dynamic is not None
    assert dynamic.energy_j == pytest.approx(6.2, abs=0.05)
    assert abs(result.conservation_error) <= 1e-9
    assert result.warnings == ()


def test_the_sensor_is_open_only_while_the_meter_is() -> None:
    card = Card()
    with meter_of(card, idle_s=0.0) as meter:
        assert card.num_open == 1
        card.sleep(0.1)
    assert card.num_open == 0
    assert not meter.sampler.is_running


def test_an_exception_leaves_the_meter_closed_and_the_trace_readable() -> None:
    card = Card()
    with pytest.raises(ZeroDivisionError), meter_of(card) as meter:  # noqa: PT012
        run_load(card, meter)
        raise ZeroDivisionError
    assert card.num_open == 0
    assert [r.name for r in meter.regions()] == ["idle before", "spmv"]
    assert meter.trace().duration_s == pytest.approx(3.0)


def test_a_region_that_is_open_at_the_end_ends_with_the_run_and_is_told() -> None:
    card = Card()
    with meter_of(card) as meter:
        open_region = meter.region("forgotten")
        open_region.__enter__()
        card.sleep(1.0)
    result = meter.attribution()
    assert result["forgotten"].time_s == pytest.approx(1.0)
    assert result.warnings == ("region 'forgotten' was still open at the end",)
    assert abs(result.conservation_error) <= 1e-9


def test_a_sensor_that_dies_loses_what_it_did_not_see_and_nothing_else() -> None:
    card = Card(fails_from_s=2.5)
    with meter_of(card) as meter:
        with meter.region("early"):
            card.sleep(0.5)
        with meter.region("late"):
            card.sleep(2.0)
    result = meter.attribution()
    assert result["early"].energy_j == pytest.approx(8.7, rel=1e-6)
    assert result["late"].energy_j is None
    assert result["late"].reason == "1 of 1 entries reach outside the trace"
    assert result.warnings[0] == "the sensor failed during the run: the card fell off the bus"
    assert isinstance(meter.sampler.error, OSError)


def test_a_region_from_a_device_event_is_attributed_too() -> None:
    card = Card()
    with meter_of(card) as meter:
        start_s = card.now_s
        card.sleep(1.0)
        meter.add_region("launch", start_s, start_s + 0.5)
    assert meter.attribution()["launch"].energy_j == pytest.approx(8.7, rel=1e-6)


def test_the_written_trace_gives_the_same_energies(tmp_path: Path) -> None:
    card = Card()
    with meter_of(card) as meter:
        run_load(card, meter)
    write_trace(tmp_path / "trace.csv", meter.trace())
    again = attribute(read_trace(tmp_path / "trace.csv"), meter.regions())
    assert again.to_json() == meter.attribution().to_json()


def test_a_negative_idle_time_is_refused() -> None:
    with pytest.raises(SensorError, match="idle_s is -1"):
        Meter(Card(), idle_s=-1.0)
