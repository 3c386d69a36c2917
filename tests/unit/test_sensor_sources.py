"""The table of sources: what can be used on a machine, and why not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power.replay import ReplaySensor
from spmv_fpga.power.sensor import SensorUnavailableError
from spmv_fpga.power.sources import SOURCES, find_sensors, open_sensor
from spmv_fpga.power.xbutil import XbutilSensor
from spmv_fpga.power.xrt import XrtSensor

NODES = {"xmc_12v_pex_vol": 12213, "xmc_12v_pex_curr": 1363}


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No sensor of the machine that runs the tests is seen."""
    monkeypatch.setenv("SPMV_FPGA_SYSFS_PCI", str(tmp_path / "pci"))
    monkeypatch.setenv("SPMV_FPGA_POWERCAP", str(tmp_path / "powercap"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("SPMV_FPGA_XBUTIL", raising=False)
    monkeypatch.setitem(sys.modules, "pynvml", None)


def add_card(tmp_path: Path) -> Path:
    folder = tmp_path / "pci" / "0000:65:00.0" / "xmc.m.7"
    folder.mkdir(parents=True)
    for node, value in NODES.items():
        (folder / node).write_text(f"{value}\n")
    return folder


def add_xbutil(tmp_path: Path, power: str) -> None:
    report = {"devices": [{"electrical": {"power_consumption_watts": power}}]}
    program = tmp_path / "bin" / "xbutil"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{json.dumps(report)}' > \"$7\"\n")
    program.chmod(0o755)


def test_a_bare_machine_has_a_reason_and_a_remedy_for_each_source() -> None:
    findings = find_sensors()
    assert [finding.name for finding in findings] == list(SOURCES)
    for finding in findings:
        assert not finding.ok
        assert finding.detail
        assert finding.remedy


def test_a_card_in_sysfs_is_found(tmp_path: Path) -> None:
    folder = add_card(tmp_path)
    finding = find_sensors()[0]
    assert (finding.name, finding.ok, finding.boundary) == ("xrt", True, "card")
    assert finding.detail == f"{folder}: card, new values every 0.12 s"
    assert isinstance(open_sensor("xrt"), XrtSensor)


def test_a_card_that_reads_zero_is_found_but_not_usable(tmp_path: Path) -> None:
    folder = add_card(tmp_path)
    (folder / "xmc_12v_pex_curr").write_text("0\n")
    finding = find_sensors()[0]
    assert not finding.ok
    assert "failed reading" in finding.detail


def test_xbutil_is_the_last_resort_for_a_card(tmp_path: Path) -> None:
    add_xbutil(tmp_path, "17.423810")
    sensor = open_sensor("xrt")
    assert isinstance(sensor, XbutilSensor)
    assert sensor.read().power_w == 17.42381
    add_card(tmp_path)
    assert isinstance(open_sensor("xrt"), XrtSensor)


def test_where_both_ways_fail_both_reasons_are_told(tmp_path: Path) -> None:
    add_xbutil(tmp_path, "N/A")
    with pytest.raises(SensorUnavailableError, match=r'has no Alveo card, and .*"N/A"'):
        open_sensor("xrt")


def test_a_trace_is_opened_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "trace.csv").write_text("# boundary: card\ntime_s,power_w\n1,17\n2,18\n")
    sensor = open_sensor(f"replay:{tmp_path / 'trace.csv'}")
    assert isinstance(sensor, ReplaySensor)


@pytest.mark.parametrize("name", ["", "battery", "replay", "replay:"])
def test_an_unknown_source_is_refused(name: str) -> None:
    with pytest.raises(SensorError, match="it must be xrt, rapl, nvml or replay:FILE"):
        open_sensor(name)


def test_the_table_needs_neither_opencl_nor_a_gpu_to_be_imported() -> None:
    code = (
        "import sys, spmv_fpga.power.sources\n"
        "raise SystemExit(bool({'pyopencl', 'pynvml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
