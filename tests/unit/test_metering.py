"""Energy beside time: which sensor, what its figures say, and what a lost sensor leaves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from spmv_fpga import metering
from spmv_fpga.errors import SensorError
from spmv_fpga.metering import Metered, PowerWindow, Source, choose_source, resting_power
from spmv_fpga.power import Region, Trace, attribute
from spmv_fpga.power.sampler import Sample, Sampler
from spmv_fpga.power.sensor import Reading

PRODUCTS = 1000
START_S, END_S = 5.01, 15.01


class FakeSensor(nullcontext):
    """Gives the same reading always, or fails where it is told to."""

    name, boundary, power_step_w, energy_step_j = "fake", "card", None, None

    def __init__(self, refresh_s: float = 0.02, power_w: float | None = 20.0) -> None:
        super().__init__()
        self.refresh_s, self.power_w = refresh_s, power_w
        self.fails_to_open = self.fails_to_read = False

    def __enter__(self) -> FakeSensor:
        if self.fails_to_open:
            raise SensorError("the sensor is no longer readable.")
        return self

    def read(self) -> Reading:
        if self.fails_to_read:
            raise SensorError("the sensor fell silent.")
        return Reading(self.power_w, energy_j=None if self.power_w else 1.0)

    def facts(self) -> dict[str, str]:
        return {}


def write_trace(folder: Path, boundary: str) -> str:
    (folder / "trace.csv").write_text(f"# boundary: {boundary}\ntime_s,power_w\n1,17\n2,18\n")
    return f"replay:{folder / 'trace.csv'}"


def metered(
    start_s: float = START_S,
    end_s: float = END_S,
    *,
    has_idle: bool = True,
    late_s: float = 0.0,
) -> Metered:
    """A load of 25 W between 17 W before and 17.5 W after, renewed every 100 ms."""
    times = np.arange(0, 20.001, 0.02)
    powers = np.select([times < START_S + late_s, times < END_S + late_s], [17.0, 25.0], 17.5)
    facts = {"sensor": "fake", "boundary": "card", "refresh_s": "0.1", "power_step_w": "0.015"}
    regions = [Region("products", start_s, end_s)]
    if has_idle:
        regions += [Region("idle before", 0.0, START_S), Region("idle after", END_S, 20.0)]
    return Metered(PRODUCTS, attribute(Trace(times, powers, facts=facts), regions))


# --- Which sensor -----------------------------------------------------------------------


def test_a_trace_without_a_boundary_names_the_line_to_add(tmp_path) -> None:
    (tmp_path / "trace.csv").write_text("time_s,power_w\n1,17\n2,18\n")
    source = choose_source(f"replay:{tmp_path / 'trace.csv'}", "card")
    assert source.sensor is None
    assert "add the header line `# boundary: card`" in source.reason


@pytest.mark.parametrize(
    ("boundary", "processor", "fits"),
    [
        ("card", "card", True),
        ("card", "cpu", False),
        ("package", "cpu", True),
        ("package + DRAM", "cpu", True),
        ("package", "card", False),
        ("GPU", "card", False),
        ("GPU", "cpu", False),
    ],
)
def test_a_replayed_trace_serves_the_processor_that_it_is_of(
    tmp_path: Path, boundary: str, processor: metering.Processor, fits: bool
) -> None:
    source = choose_source(write_trace(tmp_path, boundary), processor)
    assert (source.sensor is not None) is fits
    assert fits or f"the trace is of boundary {boundary}" in source.reason


@pytest.mark.parametrize(
    ("power", "processor", "reason"),
    [
        ("rapl", "card", "power source rapl does not measure the card"),
        ("xrt", "cpu", "power source xrt does not measure the CPU"),
        ("nvml", "card", "power source nvml does not measure the card"),
        ("nvml", "cpu", "power source nvml does not measure the CPU"),
        ("none", "card", "no power source was asked for"),
    ],
)
def test_a_source_measures_its_own_processor_and_no_other(
    power: str, processor: metering.Processor, reason: str
) -> None:
    assert choose_source(power, processor) == Source(None, reason)


@pytest.mark.parametrize("power", ["auto", "rapl"])
def test_a_sensor_that_is_not_there_is_a_reason_and_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, power: str
) -> None:
    monkeypatch.setenv("SPMV_FPGA_POWERCAP", str(tmp_path))
    source = choose_source(power, "cpu")
    assert source.sensor is None
    assert source.reason.startswith(f"{tmp_path} has no RAPL zone of a CPU package")


@pytest.mark.parametrize("power", ["garbage", "", "RAPL", "replay"])
def test_a_name_that_is_no_source_is_refused(power: str) -> None:
    with pytest.raises(SensorError, match="it must be auto, none, xrt, rapl, nvml or replay"):
        choose_source(power, "cpu")


def test_a_file_that_is_no_trace_is_refused_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello\n")
    with pytest.raises(SensorError, match=r"notes\.txt: line 1: the header is 'hello'"):
        choose_source(f"replay:{tmp_path / 'notes.txt'}", "card")


# --- What the figures say ---------------------------------------------------------------


def test_energy_of_a_product_is_the_window_over_the_products() -> None:
    figures = metered().figures()
    assert figures["power_w"].value == pytest.approx(25.0, rel=1e-3)
    assert figures["energy_window_j"].value == pytest.approx(250.0, rel=1e-3)
    assert figures["energy_j"].value == pytest.approx(0.25, rel=1e-3)
    assert {f.origin for f in figures.values()} == {"measured"}


def test_a_sensor_that_shows_the_load_late_does_not_lower_its_energy() -> None:
    figures = metered(late_s=0.1).figures()  # the trapezoid alone would miss 0.8 J of 250 J
    assert figures["energy_j"].value == pytest.approx(0.25, rel=1e-6)


def test_a_resolved_energy_has_bounds_around_it_and_the_number_of_samples() -> None:
    energy = metered().figures()["energy_j"]
    assert energy.low is not None
    assert energy.high is not None
    assert energy.low < 0.25 < energy.high
    assert energy.n == 500
    assert (energy.high - energy.low) / 0.25 < 0.05


def test_dynamic_energy_leaves_idle_power_out_and_the_drift_is_shown() -> None:
    figures = metered().figures()
    assert figures["idle_w"].value == pytest.approx(17.25)
    assert figures["idle_drift_w"].value == pytest.approx(0.5)
    assert figures["energy_dynamic_j"].value == pytest.approx(0.0775, rel=1e-3)
    dynamic = figures["energy_dynamic_j"]
    assert dynamic.high is not None
    assert dynamic.high - 0.0775 >= 0.0025  # half of the drift, over 10 s, a product


def test_without_idle_phases_there_is_no_dynamic_energy() -> None:
    figures = metered(has_idle=False).figures()
    assert set(figures) == {"power_w", "energy_j", "energy_window_j"}


def test_a_window_of_a_few_refresh_periods_is_bound_only_and_keeps_its_bounds() -> None:
    short = metered(8.0, 9.0)
    assert short.facts()["verdict"] == "bound only"
    power = short.figures()["power_w"]
    assert power.low is not None
    assert power.high is not None
    assert power.low < 25.0 < power.high


def test_an_unresolved_window_has_no_energy_and_says_why() -> None:
    short = metered(8.0, 8.15)
    assert short.facts()["verdict"] == "unresolved"
    reason = "unresolved: a window of 0.15 s under a sensor with new values every 0.1 s"
    for figure in short.figures().values():
        assert figure.to_json() == {"value": None, "origin": None, "reason": reason}


def test_a_window_that_the_sensor_did_not_see_has_no_energy() -> None:
    late = metered(18.0, 30.0)
    assert late.figures()["energy_j"].reason == "1 of 1 entries reach outside the trace"


def test_an_energy_that_nothing_bounds_has_no_bounds() -> None:
    flat = Trace([0.0, 1.0, 2.0, 3.0], [20.0] * 4, facts={"refresh_s": "0.5"})
    unchanging = attribute(flat, [Region("products", 0.1, 2.1)])
    power = Metered(1, unchanging).figures()["power_w"]
    assert power.value == pytest.approx(20.0)
    assert (power.low, power.high) == (None, None)


def test_facts_say_which_sensor_and_whether_it_adds_up() -> None:
    facts = metered().facts()
    assert abs(facts.pop("conservation_error")) <= 1e-9
    assert facts == {
        "sensor": "fake",
        "boundary": "card",
        "verdict": "resolved",
        "samples": 500,
        "refresh_s": {"value": 0.1, "origin": "measured"},
    }


def test_without_a_meter_there_are_no_facts_and_a_reason() -> None:
    nothing = Metered(3, None, "there is no sensor")
    assert nothing.facts() == {}
    assert nothing.warnings == ()
    assert {f.reason for f in nothing.figures().values()} == {"there is no sensor"}


def test_a_counter_that_is_read_unevenly_gives_no_more_than_it_counted() -> None:
    rng = np.random.default_rng(3)
    reads_s = np.sort(rng.uniform(0.0, 10.0, 2000))  # two may be microseconds apart
    counted_j = 40.0 * np.floor(reads_s / 0.001) * 0.001
    sampler = Sampler(FakeSensor(power_w=None))
    sampler.samples += [
        Sample(at_s, at_s, Reading(None, energy_j=energy_j))
        for at_s, energy_j in zip(reads_s.tolist(), counted_j.tolist(), strict=True)
    ]
    result = attribute(sampler.trace(), [Region("products", 2.0, 8.0)])
    assert result.energy_j == pytest.approx(counted_j[-1] - counted_j[0], rel=1e-3)
    assert result["products"].energy_j == pytest.approx(240.0, rel=1e-2)
    assert Metered(1, result).figures()["power_w"].value == pytest.approx(40.0, rel=1e-2)


# --- The meter around a run -------------------------------------------------------------


@pytest.fixture
def no_settling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "_SETTLE_S", 0.0)
    monkeypatch.setattr(metering, "_MAX_IDLE_S", 0.0)


@pytest.mark.usefixtures("no_settling")
def test_a_sensor_that_cannot_be_opened_costs_the_energy_and_not_the_run() -> None:
    sensor = FakeSensor()
    sensor.fails_to_open = True
    power, has_run = PowerWindow(Source(sensor)), False
    with power.running(), power.window():
        has_run = True
    assert has_run
    assert power.result(1) == Metered(1, None, "the sensor is no longer readable.")


@pytest.mark.usefixtures("no_settling")
def test_a_sensor_that_never_answers_costs_the_energy_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("spmv_fpga.power.sampler._FIRST_SAMPLE_S", 0.0)
    sensor = FakeSensor()
    sensor.fails_to_read = True
    power = PowerWindow(Source(sensor))
    with power.running(), power.window():
        pass
    result = power.result(1)
    assert result.attribution is None
    assert "the sensor fell silent" in result.reason


@pytest.mark.parametrize(
    ("refresh_s", "idle_s"), [(0.001, 0.2), (0.12, 1.2), (1.0, 10.0), (5.0, 10.0)]
)
def test_idle_phases_hold_ten_new_readings_and_end_in_time(
    monkeypatch: pytest.MonkeyPatch, refresh_s: float, idle_s: float
) -> None:
    told: list[float] = []

    def meter(sensor: object, *, idle_s: float) -> nullcontext[None]:
        told.append(idle_s)
        return nullcontext()

    monkeypatch.setattr(metering, "Meter", meter)
    with PowerWindow(Source(FakeSensor(refresh_s))).running():
        pass
    assert told == pytest.approx([idle_s])


# --- A processor at rest ----------------------------------------------------------------


def figures_at_rest(*sensors: FakeSensor) -> Sequence[float | None]:
    return [resting_power(Source(sensor)).value for sensor in sensors]


def test_power_at_rest_is_one_reading() -> None:
    assert resting_power(Source(FakeSensor())).to_json() == {
        "value": 20.0, "origin": "measured", "n": 1
    }  # fmt: skip


def test_power_at_rest_is_unknown_where_the_sensor_fails_or_only_counts() -> None:
    silent, closed = FakeSensor(), FakeSensor()
    silent.fails_to_read = closed.fails_to_open = True
    assert figures_at_rest(silent, closed, FakeSensor(power_w=None)) == [None] * 3
    assert resting_power(Source(silent)).reason == "the sensor fell silent."
    assert resting_power(Source(None, "no card")).reason == "no card"
