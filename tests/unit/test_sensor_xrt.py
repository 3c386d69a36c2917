"""The card's sensors: a card that behaves as its driver does, and the readings of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power.sensor import Reading, SensorUnavailableError
from spmv_fpga.power.xrt import XrtSensor, find_cards
from tests.fakes.power.clock import FakeClock
from tests.fakes.power.xmc import ROOT, FakeCard, FakePci

LOW_W, HIGH_W = 17.4, 20.5
STEP_S = 1003.217
QUANTUM_W = 0.0153


def step(time_s: float) -> float:
    return HIGH_W if time_s >= STEP_S else LOW_W


def make_sensor(*cards: FakeCard, **options: Any) -> XrtSensor:
    clock = cards[0].clock
    return XrtSensor(
        root=ROOT, files=FakePci(*cards), clock=clock, boottime=clock.boottime, **options
    )


def poll(
    sensor: XrtSensor, clock: FakeClock, duration_s: float, every_s: float = 0.02
) -> list[tuple[float, Reading]]:
    start_s, samples = clock.now_s, []
    for i in range(round(duration_s / every_s)):
        clock.now_s = start_s + i * every_s
        samples.append((clock.now_s, sensor.read()))
    return samples


def why(sensor: XrtSensor) -> str:
    with pytest.raises(SensorError) as caught:
        sensor.read()
    return str(caught.value)


# --- Values and times -------------------------------------------------------------------


def test_the_power_is_the_sum_of_volts_times_amperes_of_the_rails(tmp_path: Path) -> None:
    nodes = {
        "xmc_12v_pex_vol": 12213, "xmc_12v_pex_curr": 1363, "xmc_12v_aux_vol": 0,
        "xmc_12v_aux_curr": 0, "xmc_3v3_pex_vol": 3300, "xmc_3v3_pex_curr": 223,
        "xmc_power": 99999999, "cache_expire_secs": 1, "sensor_update_timestamp": 86401234,
    }  # fmt: skip
    folder = tmp_path / "0000:65:00.1" / "xmc.u.19922944"
    folder.mkdir(parents=True)
    for node, value in nodes.items():
        (folder / node).write_text(f"{value}\n")
    sensor = XrtSensor(root=tmp_path, clock=lambda: 300.0, boottime=lambda: 86400.5)
    # 12213 mV x 1363 mA + 3300 mV x 223 mA; the fetch was at 86401.234 - 1 s of boot time.
    assert sensor.read().power_w == pytest.approx(17.382219, abs=1e-12)
    assert sensor.read().fetch_s == pytest.approx(300.0 - (86400.5 - 86400.234), abs=1e-9)


def test_an_auxiliary_rail_counts_where_the_card_has_one() -> None:
    card = FakeCard(FakeClock())
    card.has_aux = True
    sensor = make_sensor(card)
    assert sensor.facts()["rails"] == "12V_PEX + 12V_AUX + 3V3_PEX"
    assert sensor.read().power_w == pytest.approx(17.4 + 12.1, abs=QUANTUM_W)


@pytest.mark.parametrize("phase_s", [0.0, 0.017, 0.051, 0.113])
def test_the_management_function_follows_a_step_within_one_tick(phase_s: float) -> None:
    clock = FakeClock()
    sensor = make_sensor(FakeCard(clock, step, phase_s=phase_s))
    for time_s, reading in poll(sensor, clock, 6.0):
        assert reading.power_w is not None
        assert reading.fetch_s is None
        if not 0 <= time_s - STEP_S < 0.121:
            assert reading.power_w == pytest.approx(step(time_s), abs=QUANTUM_W)


@pytest.mark.parametrize("phase_s", [0.0, 0.017, 0.051, 0.113])
def test_the_user_function_says_when_its_cache_was_filled(phase_s: float) -> None:
    clock = FakeClock()
    sensor = make_sensor(FakeCard(clock, step, functions="u", phase_s=phase_s))
    samples = poll(sensor, clock, 6.0)
    fetches = sorted({reading.fetch_s for _, reading in samples if reading.fetch_s})
    assert len(fetches) == 6
    for time_s, reading in samples:
        assert reading.power_w is not None
        assert reading.fetch_s is not None
        assert -0.001 <= time_s - reading.fetch_s <= 1.021
        # The register beneath is up to one tick older than the fetch.
        if not 0 <= reading.fetch_s - STEP_S < 0.122:
            assert reading.power_w == pytest.approx(step(reading.fetch_s), abs=QUANTUM_W)


def test_polling_faster_brings_no_more_samples_from_the_user_function() -> None:
    clock = FakeClock()
    sensor = make_sensor(FakeCard(clock, functions="u"))
    samples = poll(sensor, clock, 4.0, every_s=0.005)
    assert len(samples) == 800
    assert len({reading.fetch_s for _, reading in samples}) == 4


@pytest.mark.parametrize("xrt", [(2, 13), (2, 14), (2, 15), (2, 17)])
def test_the_driver_version_makes_no_difference(xrt: tuple[int, int]) -> None:
    clock = FakeClock()
    card = FakeCard(clock, step, functions="u", xrt=xrt)
    sensor = make_sensor(card)
    poll(sensor, clock, 5.0)
    assert poll(sensor, clock, 1.0)[-1][1].power_w == pytest.approx(HIGH_W, abs=QUANTUM_W)


def test_the_drivers_own_products_are_never_read() -> None:
    clock = FakeClock()
    pci = FakePci(FakeCard(clock))
    for function in ("management", "user"):
        sensor = XrtSensor(
            root=ROOT, files=pci, clock=clock, boottime=clock.boottime, function=function
        )
        sensor.read()
    assert not {name for name in pci.asked if "power" in name}


def test_a_snapshot_never_mixes_two_fetches() -> None:
    clock = FakeClock()
    card = FakeCard(clock, lambda t: 17.4 + 2.0 * (int(t * 8) % 3), functions="u")
    sensor = make_sensor(card)
    by_fetch: dict[float | None, set[float | None]] = {}
    # Steps of 9.99 ms drift through the cache's second, so that it expires within reads.
    for _, reading in poll(sensor, clock, 60.0, every_s=0.00999):
        by_fetch.setdefault(reading.fetch_s, set()).add(reading.power_w)
    assert len(by_fetch) > 50
    assert all(len(powers) == 1 for powers in by_fetch.values())


def test_an_expired_cache_is_refreshed_before_the_snapshot() -> None:
    clock = FakeClock()
    card = FakeCard(clock, functions="u")
    sensor = make_sensor(card)
    clock.advance(1.1)
    before = card.num_reads
    sensor.read()
    assert card.num_reads - before == 7  # one to refresh, two stamps, V and I of two rails


def test_equal_stamps_give_the_same_time_to_the_last_bit() -> None:
    clock = FakeClock(1000.123456789)
    sensor = make_sensor(FakeCard(clock, functions="u"))
    assert len({r.fetch_s for _, r in poll(sensor, clock, 0.9)}) == 1


def test_a_cache_that_expires_at_once_is_read_until_two_sets_agree() -> None:
    clock = FakeClock()
    card = FakeCard(clock, step, functions="u")
    card.expire_s = 0
    sensor = make_sensor(card)
    samples = poll(sensor, clock, 6.0)
    assert samples[-1][1].power_w == pytest.approx(HIGH_W, abs=QUANTUM_W)
    assert samples[0][1].fetch_s is None
    assert sensor.refresh_s == 0.120


# --- What is rejected -------------------------------------------------------------------


def test_zeros_of_a_failed_fetch_are_rejected_for_their_second() -> None:
    clock = FakeClock()
    card = FakeCard(clock, functions="u")
    sensor = make_sensor(card)
    assert sensor.read().power_w == pytest.approx(17.4, abs=QUANTUM_W)
    clock.advance(1.1)
    card.is_mailbox_up = False
    assert "12V_PEX reads 0 mV and 0 mA, which is a failed reading" in why(sensor)
    card.is_mailbox_up = True
    clock.advance(0.5)
    assert "failed reading" in why(sensor)
    clock.advance(0.6)
    assert sensor.read().power_w == pytest.approx(17.4, abs=QUANTUM_W)
    assert sensor.facts()["rejected_zero"] == 2
    assert sensor.facts()["rejected"] == 2


@pytest.mark.parametrize("functions", ["m", "u"])
def test_a_controller_that_is_off_gives_no_readings(functions: str) -> None:
    clock = FakeClock()
    card = FakeCard(clock, functions=functions)
    card.is_controller_on = False  # as while an xclbin is loaded
    sensor = make_sensor(card)
    assert "failed reading" in why(sensor)
    card.is_controller_on = True
    clock.advance(1.1)
    assert sensor.read().power_w == pytest.approx(17.4, abs=QUANTUM_W)


def test_a_12_volt_rail_under_10_volts_is_rejected() -> None:
    clock = FakeClock()
    card = FakeCard(clock)
    sensor = make_sensor(card)
    card.volts_mv = 9990.0
    assert "12V_PEX reads 9990 mV; it can only be 10000 to 15000 mV" in why(sensor)
    assert sensor.facts()["rejected_implausible_voltage"] == 1


def test_values_that_move_all_the_time_are_rejected() -> None:
    clock = FakeClock()
    card = FakeCard(clock, functions="m")
    sensor = make_sensor(card)
    card.registers = lambda: dict.fromkeys(  # type: ignore[method-assign]
        ("xmc_12v_pex_vol", "xmc_12v_pex_curr", "xmc_3v3_pex_vol", "xmc_3v3_pex_curr"),
        12000 + card.num_reads % 100,
    )
    assert "changed during each of 5 snapshots" in why(sensor)


# --- Nodes and cards --------------------------------------------------------------------


def test_nodes_that_an_older_driver_lacks_are_done_without() -> None:
    clock = FakeClock()
    lacking = {"xmc_12v_aux_vol", "xmc_12v_aux_curr", "sensor_update_timestamp"}
    card = FakeCard(clock, functions="u", missing=frozenset(lacking | {"cache_expire_secs"}))
    sensor = make_sensor(card)
    reading = sensor.read()
    assert reading.power_w == pytest.approx(17.4, abs=QUANTUM_W)
    assert reading.fetch_s is None
    assert sensor.refresh_s == 1.0


def test_a_card_without_the_12_volt_nodes_is_refused() -> None:
    card = FakeCard(FakeClock(), missing=frozenset({"xmc_12v_pex_vol"}))
    with pytest.raises(SensorUnavailableError, match="does not give the card's 12 V rail"):
        make_sensor(card)


def test_sensors_that_a_reset_moved_are_found_again() -> None:
    clock = FakeClock()
    card = FakeCard(clock, functions="u")
    sensor = make_sensor(card)
    sensor.read()
    card.reset()
    assert sensor.read().power_w == pytest.approx(17.4, abs=QUANTUM_W)
    assert sensor.facts()["node"] == str(card.folder("u"))
    assert sensor.facts()["resets"] == 1


def test_a_card_that_is_gone_is_a_rejected_reading() -> None:
    card = FakeCard(FakeClock())
    sensor = make_sensor(card)
    card.functions = ""
    assert "No such file or directory" in why(sensor)
    assert sensor.facts()["rejected_failed_read"] == 1


def test_the_management_function_is_preferred() -> None:
    card = FakeCard(FakeClock())
    sensor = make_sensor(card)
    assert (sensor.facts()["function"], sensor.refresh_s) == ("management", 0.120)
    assert sensor.facts()["node"] == str(card.folder("m"))


def test_the_user_function_is_taken_where_it_is_the_only_one() -> None:
    sensor = make_sensor(FakeCard(FakeClock(), functions="u"))
    assert (sensor.facts()["function"], sensor.refresh_s) == ("user", 1.0)


def test_a_function_that_is_not_visible_is_refused() -> None:
    card = FakeCard(FakeClock(), functions="u")
    with pytest.raises(SensorUnavailableError, match="management function of the card at"):
        make_sensor(card, function="management")


def test_one_of_several_cards_is_chosen_by_its_place() -> None:
    clock = FakeClock()
    first = FakeCard(clock, lambda _: 15.0, slot="0000:17:00")
    second = FakeCard(clock, lambda _: 25.0)
    assert make_sensor(second, first).read().power_w == pytest.approx(15.0, abs=QUANTUM_W)
    for bdf in ("0000:65:00.0", "0000:65:00.1", "65:00.1"):
        sensor = make_sensor(second, first, bdf=bdf)
        assert sensor.read().power_w == pytest.approx(25.0, abs=QUANTUM_W)
    with pytest.raises(SensorUnavailableError, match="0000:17:00, 0000:65:00"):
        make_sensor(second, first, bdf="0000:99:00.1")


def test_functions_of_one_card_are_one_card() -> None:
    card = FakeCard(FakeClock())
    (found,) = find_cards(ROOT, FakePci(card))
    assert (found.management, found.user) == (card.folder("m"), card.folder("u"))


def test_a_machine_without_a_card_says_so(tmp_path: Path) -> None:
    with pytest.raises(SensorUnavailableError, match="has no Alveo card"):
        XrtSensor(root=tmp_path)


def test_a_card_without_its_driver_is_told_from_no_card(tmp_path: Path) -> None:
    device = tmp_path / "0000:65:00.1"
    device.mkdir()
    (device / "vendor").write_text("0x10ee\n")
    with pytest.raises(SensorUnavailableError, match="device without sensors; load the dri"):
        XrtSensor(root=tmp_path)
