"""RAPL: counters that wrap, zones that overlap, files that cannot be read."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power.rapl import RaplSensor, choose_zones, energy_between, find_zones
from spmv_fpga.power.sensor import SensorUnavailableError
from tests.fakes.power.clock import FakeClock
from tests.fakes.power.powercap import RANGE_UJ, ROOT, FakePowercap, FakeZone

AMD_RANGE_UJ = 65_532_610_987


def make_sensor(zones: dict[str, FakeZone], clock: FakeClock | None = None) -> RaplSensor:
    clock = clock or FakeClock()
    tree = FakePowercap(clock, zones)
    return RaplSensor(root=ROOT, files=tree, clock=clock, wait=clock.advance)


def energy_after(
    zones: dict[str, FakeZone], duration_s: float, every_s: float = 0.02
) -> tuple[float, RaplSensor]:
    """Read at a fixed pace and return the energy, in joules, of the last reading."""
    clock = FakeClock()
    sensor = make_sensor(zones, clock)
    with sensor:
        start_s = clock.now_s
        for i in range(1, round(duration_s / every_s) + 1):
            clock.now_s = start_s + i * every_s
            energy_j = sensor.read().energy_j
    assert energy_j is not None
    return energy_j, sensor


def chosen(*folders_and_names: tuple[str, str]) -> tuple[list[str], list[str]]:
    zones = {folder: FakeZone(name) for folder, name in folders_and_names}
    packages, dram = choose_zones(find_zones(ROOT, FakePowercap(FakeClock(), zones)))
    return [z.path.name for z in packages], [z.path.name for z in dram]


# --- Energy between readings ------------------------------------------------------------


@pytest.mark.parametrize(
    ("readings_uj", "energy_uj", "flags"),
    [
        ([262143000000, 1000000], 1_328_850, {"wrapped"}),
        ([262140000000, 262143328000, 5000000], 8_328_850, {"wrapped"}),
        ([5, 5, 5], 0, {"stuck"}),
        ([100, 200, 300], 200, set()),
    ],
)
def test_wraps_and_dead_counters_are_told(
    readings_uj: list[int], energy_uj: int, flags: set[str]
) -> None:
    assert energy_between(readings_uj, RANGE_UJ) == (energy_uj, flags)


@pytest.mark.shared_data
def test_the_collected_sequences_come_out_right(shared_data: Path) -> None:
    case = json.loads((shared_data / "cases/inputs/sn_wrap.json").read_text())
    for sequence in case["sequences"]:
        energy_uj, flags = energy_between(sequence["readings_uj"], case["max_energy_range_uj"])
        assert abs(energy_uj - sequence["expected_uj"]) <= case["tolerance_uj"]
        assert ("stuck" in flags) == ("must_be_flagged" in sequence)


def test_two_wraps_between_three_readings_both_count() -> None:
    assert energy_between([900, 400, 100], 1000)[1] == {"wrapped", "ambiguous"}
    assert energy_between([900, 200, 600, 50], 1000) == (300 + 400 + 450, {"wrapped"})


def test_a_missing_reading_is_no_wrap() -> None:
    assert energy_between([100, None, 300], RANGE_UJ) == (200, {"missing"})
    assert energy_between([None, 100, 300, None], RANGE_UJ) == (200, {"missing"})


def test_a_reading_outside_the_range_is_missing() -> None:
    readings_uj = [100, -1, RANGE_UJ + 1, float("nan"), 300]
    assert energy_between(readings_uj, RANGE_UJ) == (200, {"missing"})


def test_a_counter_that_falls_back_is_ambiguous() -> None:
    energy_uj, flags = energy_between([5_000_000, 4_000_000], RANGE_UJ)
    assert flags == {"wrapped", "ambiguous"}
    assert energy_uj == RANGE_UJ - 1_000_000


def test_a_jump_by_more_than_half_the_range_is_ambiguous() -> None:
    assert energy_between([0, 501], 1000) == (501, {"ambiguous"})
    assert energy_between([0, 500], 1000) == (500, set())


@pytest.mark.parametrize("readings_uj", [[], [5], [None, None], [5, None]])
def test_fewer_than_two_readings_are_no_measurement(readings_uj: list[int | None]) -> None:
    assert energy_between(readings_uj, RANGE_UJ) == (0, {"missing", "stuck"})


@pytest.mark.parametrize("range_uj", [0, -1, float("nan")])
def test_without_a_range_nothing_is_computed(range_uj: float) -> None:
    with pytest.raises(SensorError, match="max_range_uj is"):
        energy_between([1, 2], range_uj)


# --- Zones ------------------------------------------------------------------------------


def test_memory_is_added_to_its_package() -> None:
    energy_j, sensor = energy_after(
        {"intel-rapl:0": FakeZone("package-0", 100), "intel-rapl:0:0": FakeZone("dram", 20)}, 10
    )
    assert energy_j == pytest.approx(1200.0, abs=1e-3)
    assert sensor.boundary == "package + DRAM"


def test_parts_and_wholes_of_packages_are_not_added() -> None:
    energy_j, sensor = energy_after(
        {
            "intel-rapl:0": FakeZone("package-0", 50),
            "intel-rapl:0:0": FakeZone("core", 30),
            "intel-rapl:0:1": FakeZone("uncore", 5),
            "intel-rapl:1": FakeZone("psys", 80),
            "intel-rapl-mmio:0": FakeZone("package-0", 50),
        },
        10,
    )
    assert energy_j == pytest.approx(500.0, abs=1e-3)
    assert sensor.boundary == "package"
    assert "intel-rapl:1 (psys)" in str(sensor.facts()["zones_left_out"])


def test_zones_are_told_by_name_and_not_by_number() -> None:
    assert chosen(
        ("intel-rapl:0", "psys"),
        ("intel-rapl:1", "package-1"),
        ("intel-rapl:1:0", "dram"),
        ("intel-rapl:2", "package-0"),
        ("intel-rapl:2:0", "core"),
        ("intel-rapl:2:1", "dram"),
    ) == (["intel-rapl:1", "intel-rapl:2"], ["intel-rapl:1:0", "intel-rapl:2:1"])


def test_each_die_counts_once() -> None:
    assert chosen(
        ("intel-rapl:0", "package-0-die-0"),
        ("intel-rapl:1", "package-0-die-1"),
        ("intel-rapl:2", "package-0-die-1"),
    ) == (["intel-rapl:0", "intel-rapl:1"], [])


def test_a_package_is_not_added_to_its_own_dies() -> None:
    assert chosen(
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:1", "package-0-die-0"),
        ("intel-rapl:2", "package-1-die-0"),
    ) == (["intel-rapl:0", "intel-rapl:2"], [])


def test_memory_of_only_some_sockets_is_left_out() -> None:
    assert chosen(
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0:0", "dram"),
        ("intel-rapl:1", "package-1"),
    ) == (["intel-rapl:0", "intel-rapl:1"], [])


def test_memory_behind_the_second_door_is_left_out() -> None:
    assert chosen(
        ("intel-rapl:0", "package-0"),
        ("intel-rapl-mmio:0", "package-0"),
        ("intel-rapl-mmio:0:0", "dram"),
    ) == (["intel-rapl:0"], [])


def test_a_tree_on_disk_is_read(tmp_path: Path) -> None:
    for folder, name in (
        ("intel-rapl:0", "package-0"),
        ("intel-rapl:0/intel-rapl:0:0", "dram"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "name").write_text(f"{name}\n")
    (tmp_path / "intel-rapl").mkdir()
    assert [zone.name for zone in find_zones(tmp_path)] == ["package-0", "dram"]


# --- The sensor -------------------------------------------------------------------------


def test_energy_starts_at_zero_when_the_sensor_is_opened() -> None:
    clock = FakeClock()
    sensor = make_sensor({"intel-rapl:0": FakeZone("package-0", 100, start_uj=7)}, clock)
    clock.advance(5)
    with sensor:
        clock.advance(0.5)
        reading = sensor.read()
    assert reading.energy_j == pytest.approx(50.0, abs=1e-5)
    assert reading.power_w is None


def test_several_packages_wrap_each_at_its_own_time() -> None:
    zones = {
        "intel-rapl:0": FakeZone("package-0", 165, start_uj=RANGE_UJ - 100_000_000),
        "intel-rapl:1": FakeZone("package-1", 130, start_uj=RANGE_UJ - 900_000_000),
    }
    energy_j, sensor = energy_after(zones, 10)
    assert energy_j == pytest.approx(2950.0, abs=1e-3)
    assert sensor.facts()["wraps"] == 2


def test_many_wraps_of_a_short_range_are_all_counted() -> None:
    zone = FakeZone("package-0", 280, range_uj=AMD_RANGE_UJ)
    energy_j, sensor = energy_after({"intel-rapl:0": zone}, 2000, every_s=1.0)
    assert energy_j == pytest.approx(560_000.0, abs=1e-2)
    assert sensor.facts()["wraps"] == 8


def test_the_facts_name_the_zones_and_their_ranges() -> None:
    facts = make_sensor(
        {"intel-rapl:0": FakeZone("package-0", 50), "intel-rapl:0:1": FakeZone("dram", 5)}
    ).facts()
    assert facts["zones"] == "intel-rapl:0 (package-0), intel-rapl:0:1 (dram)"
    assert facts["ranges_uj"] == "262143328850, 262143328850"
    assert not [key for key in facts if ":" in key]  # a trace file could not hold it


def test_the_resolution_is_that_of_a_32_bit_register() -> None:
    sensor = make_sensor({"intel-rapl:0": FakeZone("package-0", 50)})
    assert sensor.energy_step_j == pytest.approx(61.035e-6, rel=1e-4)
    assert sensor.power_step_w is None


def test_a_file_that_cannot_be_read_for_a_while_costs_no_energy() -> None:
    clock = FakeClock()
    memory = FakeZone("dram", 20, start_uj=RANGE_UJ - 1_000_000)
    zones = {"intel-rapl:0": FakeZone("package-0", 100), "intel-rapl:0:0": memory}
    sensor = make_sensor(zones, clock)
    with sensor:
        clock.advance(1)
        sensor.read()
        memory.fail(errno.EIO)
        clock.advance(1)
        with pytest.raises(SensorError, match="intel-rapl:0:0/energy_uj cannot be read"):
            sensor.read()
        memory.error = None
        clock.advance(1)
        assert sensor.read().energy_j == pytest.approx(360.0, abs=1e-3)
    assert sensor.facts()["rejected_failed_read"] == 1


def test_a_file_that_turns_unreadable_is_told_with_its_remedy() -> None:
    zone = FakeZone("package-0", 100)
    sensor = make_sensor({"intel-rapl:0": zone})
    zone.fail(errno.EACCES)
    with pytest.raises(SensorError, match="no longer readable; run `sudo chmod a\\+r /fake/"):
        sensor.read()


@pytest.mark.parametrize("shown", ["", "garbage\n"])
def test_a_file_without_a_number_is_a_failed_reading(shown: str) -> None:
    zone = FakeZone("package-0", 100)
    sensor = make_sensor({"intel-rapl:0": zone})
    zone.shown = shown
    with pytest.raises(SensorError, match="cannot be read"):
        sensor.read()


def test_a_zero_for_one_reading_is_no_wrap() -> None:
    clock = FakeClock()
    zone = FakeZone("package-0", 100, start_uj=200_000_000_000)
    tree = FakePowercap(clock, {"intel-rapl:0": zone})
    sensor = RaplSensor(root=ROOT, files=tree, clock=clock, wait=clock.advance)
    plain_read = tree.read

    def read_zero_once(path: Path) -> str:
        tree.read = plain_read  # type: ignore[method-assign]
        return "0\n"

    with sensor:
        clock.advance(1)
        tree.read = read_zero_once  # type: ignore[method-assign]
        with pytest.raises(SensorError, match="was 0 for one reading only"):
            sensor.read()
        assert sensor.read().energy_j == pytest.approx(100.0, abs=1e-3)


def test_a_counter_that_was_reset_gives_no_more_energy() -> None:
    clock = FakeClock()
    zone = FakeZone("package-0", 100, start_uj=200_000_000_000)
    sensor = make_sensor({"intel-rapl:0": zone}, clock)
    with sensor:
        clock.advance(1)
        sensor.read()
        zone.start_uj = -200_000_000
        for _ in range(3):
            clock.advance(1)
            with pytest.raises(SensorError, match=r"jumped from \d+ to \d+ in 1 s"):
                sensor.read()
    assert sensor.facts()["rejected_lost_count"] == 3
    with sensor:
        clock.advance(1)
        assert sensor.read().energy_j == pytest.approx(100.0, abs=1e-3)


def test_a_gap_that_may_hide_a_wrap_gives_no_energy() -> None:
    clock = FakeClock()
    zone = FakeZone("package-0", 100, range_uj=AMD_RANGE_UJ)
    sensor = make_sensor({"intel-rapl:0": zone}, clock)
    with sensor:
        clock.advance(70)
        with pytest.raises(SensorError, match="not read for 70 s and may have wrapped unseen"):
            sensor.read()


# --- What is refused before a run -------------------------------------------------------


def refused(zones: dict[str, FakeZone]) -> str:
    with pytest.raises(SensorUnavailableError) as caught:
        make_sensor(zones)
    return str(caught.value)


def test_files_for_root_only_are_refused_with_all_their_paths() -> None:
    zones = {
        "intel-rapl:0": FakeZone("package-0", 50),
        "intel-rapl:0:0": FakeZone("dram", 5),
    }
    for zone in zones.values():
        zone.fail(errno.EACCES)
    files = ("/fake/powercap/intel-rapl:0/energy_uj", "/fake/powercap/intel-rapl:0:0/energy_uj")
    assert refused(zones) == (
        f"{files[0]} is readable by root only; run `sudo chmod a+r {files[0]} {files[1]}`."
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_on_disk_for_its_owner_only_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "intel-rapl:0"
    folder.mkdir()
    for name, text in (("name", "package-0"), ("max_energy_range_uj", str(RANGE_UJ))):
        (folder / name).write_text(text)
    (folder / "energy_uj").write_text("1000000")
    (folder / "energy_uj").chmod(0)
    with pytest.raises(SensorUnavailableError, match="is readable by root only"):
        RaplSensor(root=tmp_path)


@pytest.mark.parametrize("range_uj", [None, 0])
def test_a_counter_without_a_range_is_refused(range_uj: int | None) -> None:
    message = refused({"intel-rapl:0": FakeZone("package-0", 50, range_uj=range_uj)})
    assert "intel-rapl:0/max_energy_range_uj" in message


def test_a_counter_that_stands_still_is_refused() -> None:
    assert "energy_uj stands still" in refused({"intel-rapl:0": FakeZone("package-0", 0)})


def test_memory_that_stands_still_is_left_out() -> None:
    sensor = make_sensor(
        {"intel-rapl:0": FakeZone("package-0", 50), "intel-rapl:0:0": FakeZone("dram", 0)}
    )
    assert sensor.boundary == "package"
    assert sensor.facts()["zones_left_out"] == "intel-rapl:0:0 (dram)"


@pytest.mark.parametrize("zones", [{}, {"intel-rapl:0": FakeZone("psys", 50)}])
def test_a_machine_without_package_counters_says_so(zones: dict[str, Any]) -> None:
    assert "/fake/powercap has no RAPL zone of a CPU package" in refused(zones)


@pytest.mark.shared_data
def test_the_collected_tree_is_refused_for_its_dead_counter(shared_data: Path) -> None:
    root = shared_data / "cases/fakes/rapl_plain"
    with pytest.raises(SensorUnavailableError, match="stands still"):
        RaplSensor(root=root, wait=lambda _: None)
