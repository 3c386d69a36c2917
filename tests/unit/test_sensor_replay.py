"""Recorded traces as sensors, and profiles of the Xilinx runtime as traces."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power.power_profile import read_power_profile
from spmv_fpga.power.replay import ReplaySensor
from spmv_fpga.power.trace import Trace, write_trace
from tests.fakes.power.clock import FakeClock

RAILS = "12v_aux_curr,12v_aux_vol,12v_pex_curr,12v_pex_vol,vccint_curr,vccint_vol"
HEADER = (
    "Target device: xilinx_u50_gen3x16_xdma_base_5-0\n"
    f"timestamp,{RAILS},3v3_pex_curr,3v3_pex_vol,cage_temp0,fan_rpm\n"
)


def row(stamp: str, pex_curr: int = 1363, pex_vol: int = 12213) -> str:
    return f"{stamp},0,0,{pex_curr},{pex_vol},4100,849,223,3300,45,0,\n"


def profile(folder: Path, *rows: str, header: str = HEADER) -> Path:
    path = folder / "power_profile_xilinx_u50-0.csv"
    path.write_text(header + "".join(rows))
    return path


# --- Replay -----------------------------------------------------------------------------


def recorded() -> Trace:
    return Trace(
        np.array([5.0, 5.1, 5.2, 5.3]),
        np.array([17.4, 17.4, 20.5, 20.5]),
        fetch_s=np.array([4.9, 4.9, 5.15, 5.15]),
        energy_j=np.array([100.0, 101.5, 103.5, 105.5]),
        facts={"sensor": "xrt", "boundary": "card", "refresh_s": "0.25", "node": "/sys/x"},
    )


def test_the_first_sample_is_at_the_opening_and_each_holds_until_the_next() -> None:
    clock = FakeClock()
    sensor = ReplaySensor(recorded(), clock=clock)
    clock.advance(7.0)
    powers = []
    with sensor:
        for _ in range(6):
            powers.append(sensor.read().power_w)
            clock.advance(0.051)
    assert powers == [17.4, 17.4, 17.4, 17.4, 20.5, 20.5]


def test_times_of_fetching_are_moved_to_the_clock_of_the_replay() -> None:
    clock = FakeClock(1000.0)
    with ReplaySensor(recorded(), clock=clock) as sensor:
        clock.now_s = 1000.25
        reading = sensor.read()
    assert reading.fetch_s == pytest.approx(1000.15)


def test_energy_counts_from_the_opening() -> None:
    clock = FakeClock()
    with ReplaySensor(recorded(), clock=clock) as sensor:
        first = sensor.read().energy_j
        clock.advance(0.31)
        assert (first, sensor.read().energy_j) == (0.0, 5.5)


def test_after_its_end_a_trace_gives_no_readings() -> None:
    clock = FakeClock()
    with ReplaySensor(recorded(), clock=clock) as sensor:
        clock.advance(0.35)  # the last sample stands for one interval more
        assert sensor.read().power_w == 20.5
        clock.advance(0.1)
        with pytest.raises(SensorError, match=r"ended after 0\.300 s; replay a longer one"):
            sensor.read()
    assert sensor.facts()["rejected_trace_ended"] == 1


def test_a_replay_is_called_one_and_keeps_the_record_of_its_trace(tmp_path: Path) -> None:
    write_trace(tmp_path / "trace.csv", recorded())
    sensor = ReplaySensor(tmp_path / "trace.csv")
    facts = sensor.facts()
    assert (facts["sensor"], facts["replayed_sensor"]) == ("replay", "xrt")
    assert (sensor.boundary, facts["node"]) == ("card", "/sys/x")
    assert facts["replayed_file"] == str(tmp_path / "trace.csv")


def test_a_file_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing\n")
    with pytest.raises(SensorError, match=r"notes\.txt"):
        ReplaySensor(tmp_path / "notes.txt")


def test_a_profile_of_the_runtime_can_be_replayed(tmp_path: Path) -> None:
    path = profile(tmp_path, row("21.0345"), row("41.1"))
    sensor = ReplaySensor(path)
    assert sensor.read().power_w == pytest.approx(17.382219)
    assert sensor.boundary == "card"


# --- power_profile ----------------------------------------------------------------------


def test_a_profile_becomes_the_power_of_the_board(tmp_path: Path) -> None:
    trace = read_power_profile(profile(tmp_path, row("21.0345"), row("41.1", pex_curr=1400)))
    # 12.213 V x 1.363 A + 3.3 V x 0.223 A; the comma at the end of a row shifts nothing.
    assert trace.power_w == pytest.approx([17.382219, 17.8341])
    assert trace.time_s == pytest.approx([0.0210345, 0.0411])
    assert trace.facts["target_device"] == "xilinx_u50_gen3x16_xdma_base_5-0"
    assert float(trace.facts["refresh_s"]) == 1.0


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    header = "Target device: u50\n3v3_pex_vol,12v_pex_vol,timestamp,12v_pex_curr,3v3_pex_curr\n"
    rows = ("3300,12213,21,1363,223,\n", "3300,12213,41,1363,223,\n")
    trace = read_power_profile(profile(tmp_path, *rows, header=header))
    assert trace.power_w == pytest.approx([17.382219, 17.382219])


def test_times_that_were_rounded_together_are_spread(tmp_path: Path) -> None:
    stamps = ("1.00001e+06", "1.00001e+06", "1.00002e+06", "1.00002e+06")
    trace = read_power_profile(profile(tmp_path, *map(row, stamps)))
    assert trace.time_s == pytest.approx([1000.01, 1000.015, 1000.02, 1000.025])
    assert trace.facts["time_step_s"] == "0.01"


def test_rows_of_zeros_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = (row("21"), row("41", 0, 0), row("61", 1363, 0), row("81"))
    trace = read_power_profile(profile(tmp_path, *rows))
    assert trace.time_s == pytest.approx([0.021, 0.081])
    assert trace.facts["rejected"] == "2"


def test_short_rows_are_used_where_they_hold_the_rails(tmp_path: Path) -> None:
    short, cut = "41,0,0,1363,12213,4100,849,223,3300\n", "61,0,0,1363,12"
    trace = read_power_profile(profile(tmp_path, row("21"), short, cut))
    assert trace.time_s == pytest.approx([0.021, 0.041])
    assert trace.facts["rejected"] == "1"


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((row("21"), row("spam")), "line 4: could not convert"),
        ((row("21"), row("nan")), "line 4: not a finite number"),
        ((row("41"), row("21")), "line 4: time runs backwards"),
        ((row("21"),), r"1 usable row\(s\) of 1"),
        ((), r"0 usable row\(s\) of 0"),
    ],
)
def test_a_damaged_profile_is_refused(
    tmp_path: Path, rows: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SensorError, match=message):
        read_power_profile(profile(tmp_path, *rows))


def test_a_profile_without_the_12_volt_rail_is_refused(tmp_path: Path) -> None:
    header = "Target device: versal\ntimestamp,vccint_vol,vccint_curr\n"
    with pytest.raises(SensorError, match="line 2: there is no column 12v_pex_vol"):
        read_power_profile(profile(tmp_path, "1,2,3,\n", header=header))


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SensorError, match="line 1 must name a target device"):
        read_power_profile(profile(tmp_path, header="a,b\n1,2\n"))


def test_a_missing_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SensorError, match="cannot be read"):
        read_power_profile(tmp_path / "nothing.csv")
