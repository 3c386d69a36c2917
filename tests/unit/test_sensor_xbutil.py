"""Answers of xbutil, good and bad, and the program that gives them."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spmv_fpga.errors import SensorError, ToolError, ToolNotFoundError
from spmv_fpga.power.sensor import SensorUnavailableError
from spmv_fpga.power.xbutil import XbutilSensor, find_command, query, read_power
from tests.fakes.power.clock import FakeClock


def answer(**electrical: Any) -> str:
    device = {"device_id": "0000:65:00.1", "electrical": electrical}
    return json.dumps({"schema_version": {"schema": "JSON"}, "devices": [device]}, indent=4)


GOOD = answer(power_consumption_max_watts="75", power_consumption_watts="17.423810")
WARNING = "WARNING: Unexpected xocl version (2.16.0) was found. Expected 2.17.0.\n\n"


def program(folder: Path, script: str) -> list[str]:
    path = folder / "xbutil"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return [str(path)]


# --- Answers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [GOOD, WARNING + GOOD, "note {braces}\n" + GOOD, GOOD + "\nDone.\n"],
    ids=["good", "warning first", "brace in a warning", "text behind"],
)
def test_the_power_is_found_in_the_report(text: str) -> None:
    assert read_power(text) == (17.42381, None)


def test_a_number_is_as_good_as_a_text() -> None:
    assert read_power(answer(power_consumption_watts=17.5)) == (17.5, None)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the answer of xbutil is empty"),
        (" \n", "the answer of xbutil is empty"),
        (GOOD[:200], "the answer of xbutil is not whole JSON"),
        ("no devices found", "the answer of xbutil is not whole JSON"),
        ('{"devices": []}', "the answer of xbutil has no electrical report"),
        ('{"devices": "none"}', "the answer of xbutil has no electrical report"),
        (answer(power_rails=[]), "the answer of xbutil lacks power_consumption_watts"),
        (answer(power_consumption_watts="N/A"), 'xbutil reports the power as "N/A"'),
        (answer(power_consumption_watts=None), "xbutil reports the power as null"),
        (answer(power_consumption_watts=True), "xbutil reports the power as true"),
        (answer(power_consumption_watts="nan"), 'xbutil reports the power as "nan"'),
        (
            answer(power_consumption_watts="0.000000"),
            "xbutil reports 0 W, which means that no sensor answered",
        ),
    ],
)
def test_an_answer_without_power_has_a_reason(text: str, reason: str) -> None:
    assert read_power(text) == (None, reason)


def test_the_reason_holds_what_the_driver_said() -> None:
    rail = {"id": "12v_pex", "voltage": {"error_msg": "failed to open sysfs"}}
    text = answer(power_rails=[rail], power_consumption_watts="N/A")
    assert read_power(text)[1] == 'xbutil reports the power as "N/A" (failed to open sysfs)'


def test_the_card_is_told_by_its_place() -> None:
    devices = [
        {"device_id": "0000:17:00.1", "electrical": {"power_consumption_watts": "15.0"}},
        {"device_id": "0000:65:00.1", "electrical": {"power_consumption_watts": "25.0"}},
    ]
    text = json.dumps({"devices": devices})
    assert read_power(text) == (15.0, None)
    assert read_power(text, bdf="65:00.1") == (25.0, None)
    assert "at 0000:99:00.1" in str(read_power(text, bdf="0000:99:00.1")[1])


@pytest.mark.shared_data
def test_the_collected_answers_come_out_right(shared_data: Path) -> None:
    wanted = json.loads((shared_data / "cases/inputs/sn_xbutil.json").read_text())
    del wanted["note"]
    for name, power_w in wanted.items():
        found_w, reason = read_power((shared_data / "cases/fakes/xbutil" / name).read_text())
        assert found_w == power_w, name
        assert (reason is None) == (power_w is not None), name


# --- The program ------------------------------------------------------------------------


def test_the_program_is_asked_as_its_manual_says(tmp_path: Path) -> None:
    command = program(tmp_path, f'echo "$*" > {tmp_path}/asked; echo "{{}}" > "$9"')
    assert query(command, bdf="0000:65:00.1") == "{}\n"
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("examine -d 0000:65:00.1 -r electrical -f JSON -o ")
    assert asked.endswith(" --force\n")


def test_a_report_counts_even_where_the_program_ends_with_an_error(tmp_path: Path) -> None:
    command = program(tmp_path, 'echo "{}" > "$7"; exit 1')
    assert query(command) == "{}\n"


def test_a_program_that_fails_is_told_with_its_last_words(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="ended with status 3 and gave no report:\nno device"):
        query(program(tmp_path, "echo no device >&2; exit 3"))


def test_a_program_that_hangs_is_ended_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, real_wait = tmp_path / "child", subprocess.Popen.wait

    def run_out_of_time(process: Any, timeout: float | None = None) -> int:
        if timeout is None:
            return real_wait(process)
        _until(lambda: told.is_file() and told.read_text().endswith("\n"))
        raise subprocess.TimeoutExpired(process.args, timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", run_out_of_time)
    command = program(tmp_path, f"sleep 600 & echo $! > {told}; wait")
    with pytest.raises(ToolError, match="gave no answer within 15 s"):
        query(command)
    _until(lambda: not _is_running(int(told.read_text())))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(is_so: Callable[[], bool]) -> None:
    give_up_s = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < give_up_s
        time.sleep(0.002)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(ToolNotFoundError, match="/nowhere/xbutil is missing; name a working"):
        query(["/nowhere/xbutil"])


def test_the_users_own_command_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (blanks := tmp_path / "with blanks").mkdir()
    (told,) = program(blanks, "true")
    program(tmp_path, "true")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_command({"SPMV_FPGA_XBUTIL": told}) == [told]
    assert find_command({"SPMV_FPGA_XBUTIL": "sudo xbutil"}) == ["sudo", "xbutil"]
    assert find_command({}) == [str(tmp_path / "xbutil")]


def test_without_a_command_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("SPMV_FPGA_XBUTIL", raising=False)
    assert find_command() is None
    with pytest.raises(ToolNotFoundError, match="xbutil is missing; run `source"):
        query()


# --- The sensor -------------------------------------------------------------------------


class Teller:
    """Gives answers in turn, and takes half a second for each."""

    def __init__(self, clock: FakeClock, *powers: str) -> None:
        self.clock, self.powers = clock, list(powers)

    def __call__(self) -> str:
        self.clock.advance(0.5)
        return answer(power_consumption_watts=self.powers.pop(0))


def test_the_program_is_asked_at_most_once_a_second() -> None:
    clock = FakeClock()
    teller = Teller(clock, "17.4", "20.5")
    sensor = XbutilSensor(ask=teller, clock=clock)
    first = sensor.read()
    assert (first.power_w, first.fetch_s) == (17.4, 1000.5)
    clock.advance(0.4)
    assert sensor.read() is first
    clock.advance(0.2)
    assert sensor.read().power_w == 20.5
    assert not teller.powers


def test_an_answer_without_power_is_a_rejected_reading() -> None:
    clock = FakeClock()
    sensor = XbutilSensor(ask=Teller(clock, "17.4", "N/A", "18.0"), clock=clock)
    clock.advance(2)
    with pytest.raises(SensorError, match='reports the power as "N/A"'):
        sensor.read()
    clock.advance(2)
    assert sensor.read().power_w == 18.0
    assert sensor.facts()["rejected_no_power"] == 1


def test_a_card_without_power_is_refused_at_once() -> None:
    clock = FakeClock()
    with pytest.raises(SensorUnavailableError, match='the power as "N/A"; check the card'):
        XbutilSensor(ask=Teller(clock, "N/A"), clock=clock)
