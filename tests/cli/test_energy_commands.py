"""`energy record`, `integrate` and `compare`, and the power sources that `doctor` lists."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from spmv_fpga import units
from spmv_fpga.power import read_regions, read_trace
from spmv_fpga.runtime import environment

HEAD = "# sensor: xrt\n# boundary: card\n# refresh_s: 0.01\ntime_s,power_w\n"
ESTIMATES = ("energy_j", "energy_inner_j", "energy_counter_j", "exclusive_j", "best_j")
PATIENCE_S = 20.0


def trace_text(power_w: float = 20.0, duration_s: float = 10.0, head: str = HEAD) -> str:
    return head + "".join(f"{k / 100},{power_w}\n" for k in range(round(duration_s * 100) + 1))


def regions_text(*regions: tuple[str, float, float]) -> str:
    entries = [{"name": name, "start_s": start, "end_s": end} for name, start, end in regions]
    return json.dumps({"regions": entries})


@pytest.fixture
def recorder(program):
    """The program with a minute of a card's power to replay."""
    program.write("card.csv", trace_text(duration_s=60.0))
    return program


RECORD = ("energy", "record", "--power", "replay:card.csv")
# Marks "solve" around two entries of "spmv", as a program in any language would.
MARKING = """
import os, time
def mark(verb, name):
    with open(os.environ["SPMV_FPGA_REGIONS"], "a") as file:
        file.write(f"{verb} {name} {time.monotonic()!r}\\n")
mark("begin", "solve")
for _ in range(2):
    mark("begin", "spmv")
    time.sleep(0.05)
    mark("end", "spmv")
mark("end", "solve")
print("done")
"""


def by_name(document) -> dict:
    return {region["name"]: region for region in document["regions"]}


# --- Record -----------------------------------------------------------------------------


def test_a_command_marks_nested_and_repeated_regions(recorder):
    recorder.write("marking.py", MARKING)
    outcome = recorder.run(*RECORD, "--json", "--", sys.executable, "marking.py")
    assert (outcome.status, outcome.stderr) == (0, "done\n")
    document = outcome.document
    regions = by_name(document)
    assert (regions["solve"]["count"], regions["spmv"]["count"]) == (1, 2)
    spmv_s, solve_s = (regions[n]["time_s"]["value"] for n in ("spmv", "solve"))
    assert 0.1 <= spmv_s < solve_s < document["run"]["time_s"]["value"]
    assert regions["spmv"]["energy_j"]["value"] == pytest.approx(20.0 * spmv_s)
    assert regions["solve"]["exclusive_s"]["value"] == pytest.approx(solve_s - spmv_s)
    assert abs(document["conservation_error"]) <= 1e-9
    assert document["sensor"]["boundary"] == "card"


def test_a_recording_is_written_and_gives_the_same_energies_again(recorder):
    recorder.write("marking.py", MARKING)
    recorded = recorder.run(
        *RECORD, "-o", "out.csv", "--regions-out", "out.json", "--idle", "0.1", "--json",
        "--", sys.executable, "marking.py",
    ).document  # fmt: skip
    trace = read_trace(recorder.cwd / "out.csv")
    assert trace.facts["replayed_sensor"] == "xrt"
    names = [region.name for region in read_regions(recorder.cwd / "out.json")]
    assert names == ["idle before", "solve", "spmv", "spmv", "idle after"]
    again = recorder.here("energy", "integrate", "out.csv", "--regions", "out.json", "--json")
    assert again.document["regions"] == recorded["regions"]
    assert again.document["run"] == recorded["run"]
    assert again.document["idle"]["power_w"]["value"] == pytest.approx(20.0)


def test_a_command_without_marks_is_all_outside(recorder):
    outcome = recorder.here(*RECORD, "--json", "--", "true")
    document = outcome.document
    assert outcome.status == 0
    assert document["regions"] == []
    run = document["run"]
    assert document["outside"] == {key: run[key] for key in ("time_s", "energy_j")}


def test_the_table_shows_the_regions(recorder):
    recorder.write("marking.py", MARKING)
    outcome = recorder.run(*RECORD, "--", sys.executable, "marking.py")
    assert outcome.status == 0
    assert outcome.stdout.startswith("done\n")
    for word in ("solve", "spmv", "outside", "run", "sensor: replay; boundary: card"):
        assert word in outcome.stdout


def test_the_status_of_a_command_that_fails_is_passed_on_with_its_energy(recorder):
    outcome = recorder.here(*RECORD, "-o", "out.csv", "--json", "--", "sh", "-c", "exit 3")
    assert outcome.status == 3
    assert outcome.stderr == "sh ended with status 3\n"
    assert outcome.document["run"]["energy_j"]["value"] > 0
    assert (recorder.cwd / "out.csv").is_file()


def test_a_command_that_a_signal_ends_has_the_status_of_a_shell(recorder):
    outcome = recorder.here(*RECORD, "--json", "--", "sh", "-c", "kill -TERM $$")
    assert outcome.status == 128 + signal.SIGTERM


def test_a_command_that_does_not_exist_is_refused_without_waiting(recorder):
    recorder.refuse(
        *RECORD, "--idle", "60", "-o", "out.csv", "--", "no-such-program",
        names=["the program no-such-program is missing", "check its name"], in_process=True,
    )  # fmt: skip


def test_a_file_that_is_no_program_is_refused(recorder):
    recorder.refuse(
        *RECORD, "--", "./card.csv", names=["./card.csv cannot be run"], in_process=True
    )


@pytest.mark.parametrize("script", ['echo garbage >> "$SPMV_FPGA_REGIONS"',
                                    'mkdir "$SPMV_FPGA_REGIONS"'])  # fmt: skip
def test_marks_that_cannot_be_read_lose_no_recording(recorder, script):
    outcome = recorder.here(*RECORD, "-o", "out.csv", "--json", "--", "sh", "-c", script)
    assert (outcome.status, outcome.stderr) == (0, "")
    assert read_trace(recorder.cwd / "out.csv").duration_s > 0
    [warning] = outcome.document["warnings"]
    assert "line 1 of the marks was left out: 'garbage'" in warning or "folder" in warning


@pytest.mark.parametrize("seconds", ["1e300", "3601", "1e-9", "0", "nan"])
def test_a_cadence_out_of_reason_is_refused_before_the_run(recorder, seconds):
    recorder.refuse(
        *RECORD, "--cadence", seconds, "--", "touch", "ran", names=["--cadence"],
        in_process=True,
    )  # fmt: skip


def test_an_idle_phase_without_end_is_refused(recorder):
    recorder.refuse(
        *RECORD, "--idle", "1e300", "--", "touch", "ran", names=["--idle"], in_process=True
    )


def test_a_place_that_cannot_be_written_is_refused_before_the_run(recorder):
    for option in ("-o", "--regions-out", "--json-out"):
        recorder.refuse(
            *RECORD, option, "lost/out", "--", "touch", "ran",
            names=["the folder of 'lost/out' does not exist"], in_process=True,
        )  # fmt: skip
    assert not (recorder.cwd / "ran").exists()


@pytest.mark.parametrize(
    ("power", "name"),
    [
        ("none", "it must be xrt, rapl, nvml or replay:FILE"),
        ("garbage", "power is garbage"),
        ("replay:lost.csv", "lost.csv: cannot be read"),
    ],
)
def test_a_source_that_cannot_be_had_is_refused_before_the_run(program, power, name):
    words = ("energy", "record", "--power", power, "--", "touch", "ran")
    program.refuse(*words, names=[name], in_process=True)


def test_a_machine_without_sensors_says_what_each_lacks(program, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    nowhere = str(program.home)
    monkeypatch.setenv("PATH", nowhere)
    monkeypatch.setenv("SPMV_FPGA_POWERCAP", nowhere)
    monkeypatch.delenv("SPMV_FPGA_XBUTIL", raising=False)
    message = program.refuse(
        "energy", "record", "--", "true", names=["no power sensor"], in_process=True
    )
    for reason in ("xrt: ", "has no RAPL zone", "nvml: "):
        assert reason in message


def test_a_command_is_needed(program):
    program.refuse("energy", "record", names=["COMMAND"], in_process=True)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition) -> bool:
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        if condition():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
def test_ctrl_c_ends_the_command_with_its_children_and_leaves_nothing(recorder, interruptible):
    script = "sleep 60 & echo $! >> pids; echo $$ >> pids; wait"
    process = recorder.start(*RECORD, "-o", "out.csv", "--", "sh", "-c", script)
    pids = recorder.cwd / "pids"
    try:
        assert wait_for(lambda: pids.exists() and pids.read_text().count("\n") == 2)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    children = [int(pid) for pid in pids.read_text().split()]
    try:
        assert (process.returncode, stdout) == (130, "")
        assert stderr == "spmv-fpga: interrupted\n"
        assert wait_for(lambda: not any(map(is_alive, children)))
    finally:
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert sorted(path.name for path in recorder.cwd.iterdir()) == ["card.csv", "pids"]
    assert list(recorder.temporary.iterdir()) == []


# --- Integrate --------------------------------------------------------------------------


@pytest.fixture
def recording(program):
    """Ten seconds of 20 W from a sensor of 50 ms, with regions short and long, and nested."""
    program.write("trace.csv", trace_text(head=HEAD.replace("0.01", "0.05")))
    pulses = [("pulse", 6.0 + k, 6.005 + k) for k in range(3)]
    text = regions_text(("solve", 0.5, 5.0), ("spmv", 1.0, 4.0), ("copy", 4.2, 4.7), *pulses)
    program.write("regions.json", text)
    return program


INTEGRATE = ("energy", "integrate", "trace.csv", "--regions", "regions.json")


def test_the_energies_of_a_trace_are_right(recording):
    document = recording.here(*INTEGRATE, "--json").document
    assert document["run"]["time_s"]["value"] == pytest.approx(10.0)
    assert document["run"]["energy_j"]["value"] == pytest.approx(200.0)
    found = {
        name: (r["count"], r["time_s"]["value"], r["energy_j"]["value"], r["verdict"])
        for name, r in by_name(document).items()
    }
    assert found == {
        "solve": (1, pytest.approx(4.5), pytest.approx(90.0), "resolved"),
        "spmv": (1, pytest.approx(3.0), pytest.approx(60.0), "resolved"),
        "copy": (1, pytest.approx(0.5), pytest.approx(10.0), "bound only"),
        "pulse": (3, pytest.approx(0.015), pytest.approx(0.3), "unresolved"),
    }
    assert document["outside"]["time_s"]["value"] == pytest.approx(10 - 4.515)
    assert document["outside"]["energy_j"]["value"] == pytest.approx(200 - 90.3)
    assert abs(document["conservation_error"]) <= 1e-9


def test_the_document_has_the_keys_that_others_rely_on(recording):
    document = recording.here(*INTEGRATE, "--json").document
    assert {"run", "regions", "outside", "conservation_error"} <= set(document)
    assert isinstance(document["conservation_error"], float)
    spans = [document["run"], document["outside"], *document["regions"]]
    for figure in [span[key] for span in spans for key in ("time_s", "energy_j")]:
        assert figure["origin"] == "measured"
        assert isinstance(figure["value"], float)
    for region in document["regions"]:
        assert isinstance(region["name"], str)
        assert isinstance(region["count"], int)
        assert isinstance(region["samples"], int)
        for key in ESTIMATES:
            assert ("reason" in region[key]) is (region[key]["value"] is None)
    spmv = by_name(document)["spmv"]
    assert spmv["samples"] == 301
    assert spmv["energy_inner_j"]["value"] == pytest.approx(60.0)


def test_a_trace_without_regions_is_all_outside(recording):
    document = recording.here("energy", "integrate", "trace.csv", "--json").document
    assert document["regions"] == []
    assert document["outside"]["energy_j"]["value"] == pytest.approx(200.0)


def test_an_unresolved_energy_is_no_number_in_the_table(recording):
    outcome = recording.here(*INTEGRATE)
    [line] = [line for line in outcome.stdout.splitlines() if line.startswith("pulse")]
    assert line.split() == ["pulse", "unresolved", "3", "15.00", "ms", *"-----", "3"]


@pytest.mark.parametrize("name", ["[spmv]", "[/b]x", "[red]loop[i]", "\\[b]"])
def test_a_name_with_brackets_is_printed_as_it_stands(recording, name):
    recording.write("regions.json", regions_text((name, 1.0, 4.0)))
    lines = recording.here(*INTEGRATE).stdout.splitlines()
    assert [name, "resolved", "1"] in [line.split()[:3] for line in lines]


COUNTED = "time_s,power_w,energy_j\n" + "".join(
    f"{k / 100},{20 + 5 * (k % 10 == 0)},{21.0 * (k // 10) / 10}\n" for k in range(2001)
)


def test_the_table_shows_the_best_estimate_with_its_own_error(recording):
    recording.write("trace.csv", COUNTED)
    recording.write("regions.json", regions_text(("spmv", 1.0, 19.0)))
    [spmv] = recording.here(*INTEGRATE, "--json").document["regions"]
    assert spmv["preferred"] == "counter"
    best, trapezoid = spmv["best_j"], spmv["energy_j"]
    assert best["value"] == pytest.approx(378.0)
    assert trapezoid["value"] == pytest.approx(369.0, abs=0.1)
    for figure, error in ((best, "best_error_j"), (trapezoid, "energy_error_j")):
        assert spmv[error]["value"] == pytest.approx(figure["high"] - figure["value"])
    lines = recording.here(*INTEGRATE).stdout.splitlines()
    [line] = [line for line in lines if line.startswith("spmv")]
    assert line.split()[5:12] == [
        "378.0", "J", *units.joules(spmv["best_error_j"]["value"]).split(), "counter",
        *units.joules(trapezoid["value"]).split(),
    ]  # fmt: skip


def test_power_below_zero_is_told(recording):
    recording.write("trace.csv", HEAD + "0,-5\n1,-5\n2,20\n")
    outcome = recording.here("energy", "integrate", "trace.csv")
    assert outcome.status == 0
    assert "warning: 2 of 3 samples are below 0 W, the least is -5 W" in outcome.stdout
    document = recording.here("energy", "integrate", "trace.csv", "--json").document
    assert "the sensor or its offset is wrong" in document["warnings"][0]


def test_a_region_that_leaves_the_trace_has_no_energy_and_says_why(recording):
    recording.write("regions.json", regions_text(("late", 9.0, 12.0)))
    document = recording.here(*INTEGRATE, "--json").document
    [late] = document["regions"]
    assert late["energy_j"]["value"] is None
    assert late["energy_j"]["reason"] == "1 of 1 entries reach outside the trace"
    assert len(document["warnings"]) == 1


def test_a_compressed_trace_is_read_as_well(recording):
    recording.write("trace.csv", gzip.compress(trace_text().encode()))
    document = recording.here(*INTEGRATE, "--json").document
    assert document["run"]["energy_j"]["value"] == pytest.approx(200.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no header"),
        ("hello,world\n", "line 1"),
        (HEAD + "0,20\n1,N/A\n", "line 6"),
        (HEAD + "0,20\n1\n", "line 6"),
        (HEAD + "1,20\n0.5,20\n", "line 6"),
        (HEAD + "0,20\n", "1 sample"),
        (HEAD + "0,1e308\n1e308,1e308\n", "time_s is 1e+308 at sample 1; at most 1e+12"),
        (HEAD + "0,1e308\n1,1e308\n", "power_w is 1e+308 at sample 0; at most 1e+12"),
        (HEAD.replace("0.01", "1e300") + "0,20\n1,20\n", "the fact refresh_s is '1e300'"),
    ],
)
def test_a_malformed_trace_is_refused_with_its_line(recording, text, reason):
    recording.write("trace.csv", text)
    recording.refuse(*INTEGRATE, "--json", names=["trace.csv", reason], in_process=True)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"regions": [\n{"name": "spmv",}]}', "line 2"),
        ("[]", 'no list "regions"'),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"regions": [{"name": "a", "start_s": 1' + "0" * 400 + "}]}", "401 digits"),
        ('{"regions": [{"name": "\\ud800", "start_s": 0, "end_s": 1}]}', "half a character"),
        (regions_text(("spmv", 3.0, 2.0)), "region 0 ('spmv'): end_s is 2.0"),
        ('{"regions": [{"start_s": 1, "end_s": 2}]}', "region 0: no name"),
        ('{"regions": [{"name": "spmv", "start_s": "soon", "end_s": 2}]}', "start_s is 'soon'"),
    ],
)
def test_malformed_regions_are_refused_with_their_place(recording, text, reason):
    recording.write("regions.json", text)
    recording.refuse(*INTEGRATE, "--json", names=["regions.json", reason], in_process=True)


# --- Compare ----------------------------------------------------------------------------


def write_runs(program, name: str, times_s, power_w: float, boundary: str = "card"):
    """Write a document of `energy integrate` for each run; return the names of the files."""
    files = []
    for number, time_s in enumerate(times_s):
        energy_j = time_s * power_w
        document = {
            "run": {"time_s": {"value": time_s + 1}, "energy_j": {"value": energy_j + 17}},
            "regions": [
                {
                    "name": "spmv",
                    "count": 1,
                    "time_s": {"value": time_s},
                    "energy_j": {"value": energy_j},
                    "verdict": "resolved",
                    "samples": 100,
                }
            ],
            "outside": {"time_s": {"value": 1.0}, "energy_j": {"value": 17.0}},
            "sensor": {"name": "xrt", "boundary": boundary, "refresh_s": {"value": 0.01}},
        }
        files.append(program.write(f"{name}{number:02}.json", json.dumps(document)))
    return files


def steady(time_s: float, count: int) -> list[float]:
    return [time_s * (1 + 0.002 * (k % 5 - 2)) for k in range(count)]


def compare(program, a, b, *words: str):
    return program.here("energy", "compare", "--a", *a, "--b", *b, *words)


@pytest.mark.parametrize(
    ("part", "key", "wrong"),
    [
        ("sensor", "name", ["xrt"]),
        ("sensor", "boundary", 5),
        ("sensor", "refresh_s", {"value": "soon"}),
        ("run", "energy_j", {"value": True}),
        ("outside", "energy_j", {"value": [1]}),
    ],
)
def test_a_run_with_a_key_of_another_kind_is_refused(program, part, key, wrong):
    files = write_runs(program, "a", [2.0, 2.1], 20.0)
    document = json.loads((program.cwd / files[1]).read_text())
    document[part][key] = wrong
    program.write(files[1], json.dumps(document))
    program.refuse(
        "energy", "compare", "--a", files[0], "--b", files[1], "--json",
        names=[files[1], "is none of `energy integrate`"], in_process=True,
    )  # fmt: skip


def test_the_first_16_of_64_runs_are_found_to_be_slower_and_both_answers_stand(program):
    a = write_runs(program, "a", steady(2.4, 16) + steady(2.0, 48), power_w=20.0)
    b = write_runs(program, "b", steady(1.0, 64), power_w=25.0)
    document = compare(program, a, b, "--json").document
    assert document["state_changes"] == {"a": [16], "b": []}
    assert (document["a"]["runs"], document["steady"]["a"]["runs"]) == (64, 48)
    assert document["steady"]["a"]["first_run"] == 16
    assert document["time_ratio"] == pytest.approx(0.5, abs=0.01)
    assert document["steady"]["time_ratio"] == pytest.approx(0.5, abs=0.001)
    assert document["steady"]["energy_ratio"] == pytest.approx(0.625, abs=0.001)
    assert document["steady"]["energy_ratio_low"] <= 0.625 <= document["energy_ratio_high"]


def test_what_time_would_have_said_stands_beside_what_energy_says(program):
    a = write_runs(program, "a", steady(2.0, 8), 20.0)
    b = write_runs(program, "b", steady(1.0, 8), 25.0)
    outcome = compare(program, a, b)
    assert outcome.status == 0
    assert "b against a: time would have said 50.0 % less" in outcome.stdout
    assert "energy says 37.5 % less" in outcome.stdout
    assert "medians of 8 and 8 runs" in outcome.stdout


def test_what_integrate_writes_can_be_compared(recording):
    for number in range(5):
        name = f"run{number}.json"
        recording.here(*INTEGRATE, "--json-out", name)
    runs = [f"run{number}.json" for number in range(5)]
    document = compare(recording, runs, runs, "--region", "spmv", "--json").document
    assert document["energy_ratio"] == pytest.approx(1.0)
    assert document["boundary"] == "card"
    assert document["sensor"] == "xrt"


def test_options_may_stand_anywhere_between_the_files(program):
    a, b = write_runs(program, "a", [2.0], 20.0), write_runs(program, "b", [1.0, 1.1], 20.0)
    words = ("--a", *a, "--json", "--b", b[0], "--region", "spmv", "--b", b[1])
    document = program.here("energy", "compare", *words).document
    assert (document["a"]["runs"], document["b"]["runs"]) == (1, 2)


def test_unlike_boundaries_are_refused(program):
    a = write_runs(program, "a", [2.0], 20.0)
    b = write_runs(program, "b", [2.0], 90.0, boundary="package")
    program.refuse(
        "energy", "compare", "--a", *a, "--b", *b, "--json",
        names=["their boundaries differ, card and package"], in_process=True,
    )  # fmt: skip


def test_unlike_boundaries_can_be_forced_with_a_warning(program):
    a = write_runs(program, "a", [2.0], 20.0)
    b = write_runs(program, "b", [2.0], 90.0, boundary="package")
    outcome = compare(program, a, b, "--force", "--json")
    assert outcome.status == 0
    assert (
        "their boundaries differ, card and package: the comparison was forced."
        in (outcome.document["warnings"])
    )
    assert outcome.document["boundary"] is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "is no JSON document"),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"run": 1' + "0" * 400 + "}", "401 digits"),
        ("{}", "is none of `energy integrate`"),
        (
            '{"regions": [], "run": {}, "outside": {}}',
            "the run has 0 regions (none); name the one to compare",
        ),
    ],
)
def test_a_run_that_cannot_be_read_is_refused_by_its_file(program, text, reason):
    a = write_runs(program, "a", [2.0], 20.0)
    program.write("wrong.json", text)
    program.refuse(
        "energy", "compare", "--a", *a, "--b", "wrong.json",
        names=["wrong.json", reason], in_process=True,
    )  # fmt: skip


def test_both_variants_are_needed(program):
    a = write_runs(program, "a", [2.0], 20.0)
    program.refuse("energy", "compare", "--a", *a, names=["--b"], in_process=True)


# --- The doctor -------------------------------------------------------------------------


def test_the_doctor_lists_power_sources_and_what_mends_them(program, stand_in, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    report = '{"devices": [{"electrical": {"power_consumption_watts": "17.4"}}]}'
    place = stand_in("xbutil", f"#!/bin/sh\necho '{report}' > \"$7\"\n")
    monkeypatch.setattr(environment, "check_installation", list)
    outcome = program.here(
        "doctor", SPMV_FPGA_XBUTIL=f"{place}/xbutil", SPMV_FPGA_POWERCAP=str(program.home)
    )
    assert (outcome.status, outcome.stderr) == (0, "")  # the main job can do without
    lines = [line.split() for line in outcome.stdout.splitlines()]
    marks = {line[3]: line[0] for line in lines if line[1:3] == ["power", "source"]}
    assert marks == {"xrt": "ok", "rapl": "-", "nvml": "-"}
    text = " ".join(word for line in lines for word in line)
    for found in ("card, new values every 1 s", "has no RAPL zone", "[nvml]'`"):
        assert found in text
