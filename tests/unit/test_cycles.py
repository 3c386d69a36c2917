"""What the emulated card is told of its memory, and what its counts mean."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from spmv_fpga.boards import load_board
from spmv_fpga.codegen import render_project
from spmv_fpga.errors import SpmvFpgaError
from spmv_fpga.roofline.emulated import (
    EmulatedTime,
    fingerprint,
    load_emulated,
    save_emulated,
    time_of,
)
from spmv_fpga.roofline.paper import load_tables, reproduce
from spmv_fpga.runtime.cycles import (
    Cycles,
    PortTraffic,
    ProcessCycles,
    UnitCycles,
    cycles_of,
    timing_text,
    told_units,
)
from spmv_fpga.toolchain import emulation, xclbin

U50 = load_board("u50")


def process(name: str, **counts: int) -> ProcessCycles:
    fields = dict.fromkeys(
        ("active", "data", "room", "memory", "reuse", "refill", "hazards"), 0
    )
    return ProcessCycles(name, **{**fields, **counts})


def unit(
    cycles: int, *processes: ProcessCycles, name: str = "unit_1", num_bytes: int = 0
) -> UnitCycles:
    traffic = PortTraffic("matrix", 2, 1, num_bytes, num_bytes // 64, 1, 0)
    return UnitCycles(name, cycles, processes, (), (traffic,), 40.0)


def cycles(*rounds: tuple[UnitCycles, ...], iterations: int = 1) -> Cycles:
    return Cycles(200e6, 12.5e9, iterations, rounds)


@pytest.mark.compiler
@pytest.mark.parametrize(("units", "sharers"), [(1, 1), (14, 1), (16, 1), (17, 1)])
def test_the_card_is_told_bandwidth_latency_and_who_shares_a_bank(units, sharers):
    built = emulation.build(render_project("block", {}, U50, compute_units=units))
    info = xclbin.read(built.path)
    memory, *ports = timing_text(info, U50, 250e6).splitlines()

    word, rate, setup, latency, burst = memory.split()
    assert (word, latency, burst) == ("memory", "64", "64")
    assert float(rate) == 50.0  # 12.5 GB/s at 250 MHz
    assert float(setup) == pytest.approx(0.2225)
    assert len(ports) == 3 * units
    assert {int(line.split()[4]) for line in ports} == {sharers}
    banks = {tuple(line.split()[1:4]) for line in ports}
    assert ("spmv_block_1", "matrix", "2" if units <= 14 else "1") in banks


@pytest.mark.compiler
def test_bursts_in_flight_are_those_that_the_ports_are_built_for():
    info = xclbin.read(emulation.build(render_project("block", {}, U50)).path)
    outstanding = {
        line.split()[2]: int(line.split()[5])
        for line in timing_text(info, U50, 300e6).splitlines()[1:]
    }
    assert outstanding == {"matrix": 16, "x": 4, "y": 4}


def test_two_interfaces_on_one_bank_have_half_of_it_each():
    project = render_project("block", {}, U50)
    shared = [replace(u, banks=dict.fromkeys(u.banks, "HBM[5]")) for u in project.units]
    config = project.files["link.cfg"].replace("HBM[2]", "HBM[5]").replace("HBM[3]", "HBM[5]")
    files = {**project.files, "link.cfg": config}
    built = emulation.build(replace(project, units=tuple(shared), files=files))
    lines = timing_text(xclbin.read(built.path), U50, 300e6).splitlines()[1:]
    assert [line.split()[3:5] for line in lines] == [["5", "2"]] * 3


def test_rounds_add_up_and_the_slowest_unit_of_each_counts():
    found = cycles((unit(100), unit(300)), (unit(50),), iterations=2)
    assert found.cycles == 175
    assert found.time_s == 175 / 200e6
    assert found.slowest.cycles == 300
    more = found.followed_by(cycles((unit(1000),)))
    assert more.cycles == (300 + 50 + 1000) / 2


def test_without_work_there_are_no_cycles():
    assert (cycles(()).cycles, cycles(()).slowest) == (0, None)
    assert cycles(()).to_json()["bound"] == []


@pytest.mark.parametrize(
    ("processes", "bound", "name"),
    [
        ([process("a", active=1000, memory=400), process("b", active=990, data=500)],
         "memory", "a"),
        ([process("a", active=1000, memory=100), process("b", active=990, data=500)],
         "memory", "a"),
        ([process("a", active=1000, room=400), process("b", active=1000, data=2)], "work", "b"),
        ([process("a", active=1000), process("b", active=1000)], "work", "a"),
        ([process("a", active=1000, data=90), process("b", active=1000, reuse=300)],
         "reuse", "b"),
        ([process("a", active=900, data=500), process("b", active=900, refill=600)],
         "latency", None),
    ],
)  # fmt: skip
def test_what_keeps_the_others_waiting_binds(processes, bound, name):
    found = unit(1000, *processes, num_bytes=39_000)
    assert found.bound == bound
    assert (found.binding.name if found.binding else None) == name


def test_a_process_that_waits_for_a_channel_that_is_not_full_is_bound_by_latency():
    found = unit(1000, process("a", active=900, memory=300, refill=100), num_bytes=20_000)
    assert (found.channel_use, found.bound, found.binding) == (0.5, "latency", None)


def test_a_report_of_none_is_as_before_and_no_report_is_none():
    first = {"unit": "u", "launch": 1, "report": {"cycles": 1}}
    again = {"unit": "u", "launch": 2, "report": None}
    other = {"unit": "u", "launch": 3, "report": {"cycles": 2}}
    known = told_units([first], {})
    assert known == {"u": {"cycles": 1}}
    assert told_units([again], known) == known
    assert told_units([other, again], known) == {"u": {"cycles": 2}}
    assert told_units([{"unit": None, "error": "x"}], known) == {}


@pytest.mark.parametrize(
    "reports",
    [{}, {"u": {"a": 1}}, {"u": [1, 2]}, {"u": None}, {"u": {"cycles": float("nan")}}],
)
def test_a_library_of_another_toolchain_tells_no_cycles(reports):
    assert cycles_of(["u"], reports, 3e8, 12.5e9, 1) is None


# --- Kept times --------------------------------------------------------------------------


def test_every_row_of_the_paper_has_an_emulated_time_of_the_present_kernels():
    """A kernel that changed: run `python -m benchmarks.emulated --write`."""
    times = load_emulated()
    for row in load_tables():
        for kernel in ("scalar", "block"):
            figure = time_of(times, row.name, kernel, U50)
            assert figure.origin == "emulated", figure.reason
            assert 1e-5 < figure.value < 0.1


def test_the_largest_matrix_comes_within_three_per_cent_of_the_paper():
    table = {(r.row.name, r.kernel): r for r in reproduce(with_densities=False).table2}
    for kernel in ("scalar", "block"):
        row = table["TS2383", kernel]
        assert abs(row.emulated_error) < 0.03
        assert row.emulated_source == "twin"
    assert table["ex9", "block"].emulated_source == "real"


def test_times_of_another_version_are_not_shown(tmp_path: Path):
    row = EmulatedTime(
        name="a", kernel="block", source="twin", cycles=300, clock_hz=3e8, fingerprint="old"
    )
    save_emulated([row], tmp_path / "times.csv")
    times = load_emulated(tmp_path / "times.csv")
    assert times == {("a", "block"): row}
    stale = time_of(times, "a", "block", U50)
    assert stale.value is None
    assert "another version of kernel block" in stale.reason
    assert "not emulated" in time_of(times, "b", "block", U50).reason
    new = {("a", "block"): replace(row, fingerprint=fingerprint("block", U50))}
    assert math.isclose(time_of(new, "a", "block", U50).value, 1e-6)


@pytest.mark.parametrize(
    "line",
    ["a,block,twin,300,nan,x", "a,block,twin,300,0,x", "a,block,twin,-3,3e8,x",
     "a,block,twin,300,inf,x", "a,block,twin,many,3e8,x", "a,block", "a" * 200_000],
)  # fmt: skip
def test_a_damaged_table_is_refused_in_one_sentence(tmp_path: Path, line: str):
    path = tmp_path / "times.csv"
    path.write_text(f"name,kernel,source,cycles,clock_hz,fingerprint\n{line}\n")
    with pytest.raises(SpmvFpgaError, match=r"times\.csv: .*; make it again with"):
        load_emulated(path)


def test_other_tables_show_no_times_of_the_papers_matrices(tmp_path: Path):
    from spmv_fpga.roofline.paper import TABLES

    other = tmp_path / "other.csv"
    other.write_text(TABLES.read_text())
    found = reproduce(other, with_densities=False).table2
    assert all(row.time_emulated_s.value is None for row in found)
