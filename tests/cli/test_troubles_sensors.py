"""Users' troubles with energy sensors: times are kept, and a joule is measured or null."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from spmv_fpga.power.rapl import energy_between

ONE = "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 -3.5\n"
REFERENCE = ("run", "--mode", "reference", "--x", "index", "--matrix", "one.mtx")
RANGE_UJ = 262143328850


def report(**electrical: str) -> str:
    """Return an answer of xbutil whose electrical report holds these texts."""
    rails = [{"id": "12v_pex", "voltage": {"volts": "12.213", "is_present": "true"}}]
    return json.dumps({"devices": [{"electrical": {**electrical, "power_rails": rails}}]})


GOOD = report(power_consumption_watts="17.423810")
ANSWERS = {
    "good": (GOOD, 17.42381, ""),
    "warning_first": (f"WARNING: card {{65:00}} is not ready\n{GOOD}", 17.42381, ""),
    "na": (report(power_consumption_watts="N/A"), None, '"N/A"'),
    "zero": (report(power_consumption_watts="0.000000"), None, "no sensor answered"),
    "missing": (report(), None, "lacks power_consumption_watts"),
    "empty": ("", None, "is empty"),
    "cut": (GOOD[:60], None, "is not whole JSON"),
}


@pytest.fixture
def one(program):
    """The program with the smallest of matrices."""
    program.write("one.mtx", ONE)
    return program


def times_are_kept(document) -> None:
    assert document["verified"] is True
    assert document["cpu"]["time_s"]["value"] > 0
    assert document["cpu"]["time_s"]["origin"] == "measured"
    assert document["fpga"]["time_s"]["value"] is None


# --- Counters that only root may read ---------------------------------------------------


def locked_zone(root: Path) -> tuple[Path, tuple[str, ...]]:
    """Make a RAPL zone that another user owns; return its counter, and how to be no root.

    Root reads every file, unless it gives up the capabilities that let it.
    """
    zone = root / "intel-rapl:0"
    zone.mkdir(parents=True, exist_ok=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
    counter = zone / "energy_uj"
    counter.write_text("123456789\n")
    if os.geteuid() != 0:
        counter.chmod(0o000)
        return counter, ()
    if not shutil.which("setpriv"):
        pytest.skip("setpriv is not installed, and root reads every file")
    plain = ("setpriv", "--bounding-set=-dac_override,-dac_read_search")
    os.chown(counter, 65534, 65534)
    counter.chmod(0o400)
    probe = subprocess.run([*plain, "cat", counter], capture_output=True, check=False)
    if probe.returncode == 0 or b"Permission denied" not in probe.stderr:
        pytest.skip("this root cannot give up the right to read every file")
    return counter, plain


def run_as(plain: tuple[str, ...], program, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the program as a user who may not read the counter."""
    variables = program.environment(SPMV_FPGA_POWERCAP=str(program.home / "powercap"))
    return subprocess.run(
        [*plain, sys.executable, "-m", "spmv_fpga", *REFERENCE, *words],
        cwd=program.cwd,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )


def test_sn01_a_counter_for_root_only_leaves_times_and_a_reason(one):
    counter, plain = locked_zone(one.home / "powercap")
    done = run_as(plain, one, "--power", "rapl", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    times_are_kept(document)
    for key in ("energy_j", "power_w"):
        figure = document["cpu"][key]
        assert figure["value"] is None
        assert figure["origin"] is None
        assert f"{counter} is readable by root only" in figure["reason"]
        assert f"sudo chmod a+r {counter}" in figure["reason"]


def test_sn01_required_energy_is_refused_before_the_run(one):
    counter, plain = locked_zone(one.home / "powercap")
    before = one.files()
    done = run_as(plain, one, "--power", "rapl", "--require-energy", "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("spmv-fpga: energy is required and cannot be measured")
    assert done.stderr.count("\n") == 1
    assert f"sudo chmod a+r {counter}" in done.stderr
    assert one.files() == before


# --- Counters that wrap -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("readings_uj", "energy_uj", "flags"),
    [
        ([262143000000, 1000000], 1328850, {"wrapped"}),
        ([262140000000, 262143328000, 5000000], 8328850, {"wrapped"}),
        ([5, 5, 5], 0, {"stuck"}),
        ([100, 200, 300], 200, set()),
    ],
)
def test_sn02_a_counter_that_starts_again_is_counted_on(readings_uj, energy_uj, flags):
    found_uj, found_flags = energy_between(readings_uj, RANGE_UJ)
    assert found_uj == pytest.approx(energy_uj, abs=1)
    assert found_flags == flags


@pytest.mark.shared_data
def test_sn02_the_sequences_of_the_shared_data_come_out(shared_data):
    case = json.loads((shared_data / "cases" / "inputs" / "sn_wrap.json").read_text())
    for sequence in case["sequences"]:
        energy_uj, flags = energy_between(sequence["readings_uj"], case["max_energy_range_uj"])
        assert energy_uj == pytest.approx(sequence["expected_uj"], abs=1)
        assert ("stuck" in flags) is ("must_be_flagged" in sequence)


# --- What xbutil answers ----------------------------------------------------------------


def judge_card_power(document, power_w: float | None, reason: str) -> None:
    times_are_kept(document)
    figure = document["fpga"]["power_w"]
    assert figure["value"] == power_w
    assert reason in figure.get("reason", "")
    assert bool(figure.get("reason")) is (power_w is None)
    assert figure["origin"] == (None if power_w is None else "measured")
    assert document["fpga"]["energy_j"]["value"] is None


@pytest.mark.parametrize("name", ANSWERS)
def test_sn05_power_is_what_xbutil_says_or_null_with_the_reason(one, stand_in, name):
    text, power_w, reason = ANSWERS[name]
    one.write("answer.txt", text)
    place = stand_in("xbutil", f"#!/bin/sh\ncat '{one.cwd}/answer.txt'>\"$7\"\n")
    outcome = one.here(
        *REFERENCE, "--power", "xrt", "--json", SPMV_FPGA_XBUTIL=f"{place}/xbutil"
    )
    assert (outcome.status, outcome.stderr) == (0, "")
    judge_card_power(outcome.document, power_w, reason)


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ANSWERS)
def test_sn05_each_answer_of_the_shared_data_gives_its_value(
    one, shared_data, monkeypatch, name
):
    cases = shared_data / "cases"
    wanted = json.loads((cases / "inputs" / "sn_xbutil.json").read_text())
    monkeypatch.setenv("FAKE_XBUTIL", name)
    outcome = one.here(
        *REFERENCE, "--power", "xrt", "--json",
        SPMV_FPGA_XBUTIL=str(cases / "fakes" / "xbutil" / "xbutil"),
    )  # fmt: skip
    assert (outcome.status, outcome.stderr) == (0, "")
    judge_card_power(outcome.document, wanted[f"{name}.json"], "")


def test_a_machine_without_card_and_xbutil_keeps_its_times(one, tmp_path):
    outcome = one.here(*REFERENCE, "--power", "xrt", "--json", PATH=str(tmp_path))
    assert outcome.status == 0
    judge_card_power(outcome.document, None, "has no Alveo card")


# --- What is asked for ------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["reference", "sw_emu", "hw"])
def test_a_power_source_that_does_not_exist_is_refused_before_any_work(one, mode):
    one.refuse(
        "run", "--mode", mode, "--matrix", "one.mtx", "--power", "garbage",
        names=["power is 'garbage'", "auto, none, xrt, rapl, nvml or replay:FILE"],
        in_process=True,
    )  # fmt: skip


def test_required_energy_is_refused_before_a_kernel_is_built(one):
    one.refuse(
        "run", "--mode", "sw_emu", "--matrix", "one.mtx", "--power", "none", "--require-energy",
        names=["energy is required and cannot be measured of the CPU"],
        in_process=True,
    )  # fmt: skip


def test_a_trace_that_is_missing_is_refused_by_its_name(one):
    words = (*REFERENCE, "--power", "replay:lost.csv", "--json")
    one.refuse(*words, names=["lost.csv", "No such file"], in_process=True)


def test_a_trace_of_a_card_says_nothing_of_the_cpu(one):
    one.write("card.csv", "# boundary: card\ntime_s,power_w\n1,17\n2,18\n")
    outcome = one.here(*REFERENCE, "--power", "replay:card.csv", "--json")
    assert outcome.status == 0
    energy = outcome.document["cpu"]["energy_j"]
    assert energy["value"] is None
    assert energy["reason"] == "the trace is of boundary card, which is not the CPU"


def test_a_replayed_trace_of_a_package_gives_the_energy_of_the_cpu(one):
    # Six values in 0.3 s: more than bounds need, and far from resolved on a busy machine too.
    lines = [f"{k / 20},60.0" for k in range(600)]
    head = "# sensor: rapl\n# boundary: package\n# refresh_s: 0.05\ntime_s,power_w\n"
    one.write("package.csv", head + "\n".join(lines) + "\n")
    outcome = one.here(
        *REFERENCE, "--power", "replay:package.csv", "--require-energy", "--json",
        "--warmup", "0", "--measure", "0.3",
    )  # fmt: skip
    cpu = outcome.document["cpu"]
    assert cpu["power_w"]["value"] == pytest.approx(60.0)
    assert cpu["boundary"] == "package"
    assert cpu["sensor"] == "replay"
    assert cpu["verdict"] == "bound only"


def test_no_power_means_no_energy_and_a_reason(one):
    document = one.here(*REFERENCE, "--power", "none", "--json").document
    assert document["cpu"]["energy_j"]["reason"] == "no power source was asked for"
