"""What the emulated card's clock saw, in words and bars."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rich.table import Table
from rich.text import Text

from .. import units
from ..figures import Figure
from ..measure import RunResult
from ..roofline.model import Prediction
from ..runtime.cycles import Cycles, ProcessCycles, StreamCycles, UnitCycles

_BAR_CELLS = 32
_PARTS: tuple[tuple[str, str, Callable[[ProcessCycles], int]], ...] = (
    ("works", "█", lambda p: p.busy),
    ("memory", "m", lambda p: p.memory),
    ("adder", "a", lambda p: p.reuse),
    ("refill", "~", lambda p: p.refill),
    ("data", "<", lambda p: p.data),
    ("room", ">", lambda p: p.room),
)
_BLOCKING_SHARE = 0.5
_LEAST_DEPTH = 2
"""Two tokens pass one a cycle: what a FIFO without a pragma has."""


def explanation(result: RunResult) -> list[Table | Text]:
    """Say how many cycles a product takes, what binds and why, process by process."""
    cycles = result.cycles
    if cycles is None or cycles.slowest is None:
        why = result.fpga["cycles"].reason or "no unit has work"
        return [Text(""), Text(f"cycles: none to explain; {why}")]
    unit = cycles.slowest
    return [
        Text(""),
        Text(_total(cycles, result), style="bold"),
        *map(Text, _units_line(cycles, unit)),
        Text(_binding(cycles, unit), style="yellow"),
        Text(""),
        _processes(unit),
        Text(
            "█ works   m waits for memory   a for the adder   ~ pipeline runs empty   "
            "< waits for data in an empty stream   > for room in a full one",
            style="dim",
        ),
        Text(""),
        *map(Text, _traffic(cycles, unit)),
        *map(Text, _stream_lines(unit)),
    ]


def emulated_over_model(time_s: Figure, model: Prediction) -> float | None:
    """Return the emulated time over the modelled one, both without starting the kernel."""
    kernel_s = kernel_time_s(model)
    if time_s.value is None or time_s.origin != "emulated" or not kernel_s:
        return None
    return time_s.value / kernel_s


def kernel_time_s(model: Prediction) -> float | None:
    """Return the modelled time without the constant that a launch costs."""
    if model.time_s.value is None:
        return None
    return model.time_s.value - model.terms.get("launch", 0.0)


def _total(cycles: Cycles, result: RunResult) -> str:
    text = (
        f"{round(cycles.cycles):,} cycles a product at {units.hertz(cycles.clock_hz)}: "
        f"{units.seconds(cycles.time_s)} emulated"
    )
    ratio = emulated_over_model(result.fpga["time_s"], result.model)
    if ratio is None:
        return text
    modelled = units.seconds(kernel_time_s(result.model))
    return f"{text}, {ratio:.3f} of the model's {modelled}; starting the kernel is in neither"


def _units_line(cycles: Cycles, slowest: UnitCycles) -> list[str]:
    launches = cycles.units
    if len(launches) == 1:
        return []
    counts = [unit.cycles for unit in launches]
    rounds = f" in {len(cycles.rounds)} rounds" if len(cycles.rounds) > 1 else ""
    return [
        f"{len(launches)} launches of units{rounds}: {min(counts):,} to {max(counts):,} "
        f"cycles; what follows is the slowest, {slowest.unit}"
    ]


def _binding(cycles: Cycles, unit: UnitCycles) -> str:
    process = unit.binding
    if process is None:
        return (
            "what binds: latency. No process works for half of the time: the launch is over "
            "before the pipelines are worth filling. A larger matrix, or more products a "
            "launch, would make more of it."
        )
    share = units.percent(unit.share(process.busy), 0)
    if unit.bound == "memory":
        waits = units.percent(unit.share(process.memory), 0)
        sharers = max((p.sharers for p in unit.ports if p.waited), default=1)
        rate = cycles.channel_bytes_per_s / sharers
        shared = f", of which {sharers} interfaces have a part each" if sharers > 1 else ""
        return (
            f"what binds: memory. {process.name} waits for its channel in {waits} of the "
            f"cycles: a word of 64 bytes comes every {64 * cycles.clock_hz / rate:.2f} cycles "
            f"({rate / 1e9:.3g} GB/s{shared}). Fewer bytes a non-zero, or more units with "
            "channels of their own, would help; a faster clock would not."
        )
    if unit.bound == "reuse":
        return (
            f"what binds: the adder. {process.name} reads an accumulator too early "
            f"{process.hazards:,} times; hardware would need a longer interval. Touch other "
            "accumulators in between."
        )
    return (
        f"what binds: work. {process.name} works in {share} of the cycles and the others wait "
        "for it. More lanes, more units or a faster clock would help; a faster memory would "
        "not."
    )


def _processes(unit: UnitCycles) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("process")
    shown = [part for part in _PARTS if part[0] != "adder" or any(map(part[2], unit.processes))]
    for name, *_ in shown:
        table.add_column(name, justify="right")
    table.add_column("")
    for process in unit.processes:
        shares = [units.percent(unit.share(count(process)), 0) for _, _, count in shown]
        table.add_row(process.name, *shares, _bar(unit, process))
    return table


def _bar(unit: UnitCycles, process: ProcessCycles) -> str:
    """Return the shares of a process's cycles as cells; what is left, it was not running.

    Rounded so that the cells of all parts together are as many as their sum.
    """
    bar, total = "", 0.0
    for _, cell, count in _PARTS:
        total += unit.share(count(process)) * _BAR_CELLS
        bar += cell * (round(total) - len(bar))
    return bar


def _traffic(cycles: Cycles, unit: UnitCycles) -> list[str]:
    time_s = unit.cycles / cycles.clock_hz
    return [
        f"bank {port.bank}: {port.name}, {units.bytes_text(port.bytes)} in {port.accesses:,} "
        f"accesses and {port.bursts:,} bursts, {port.bytes / time_s / 1e9:.3g} GB/s on average"
        for port in unit.ports
        if time_s
    ]


def _stream_lines(unit: UnitCycles) -> list[str]:
    idle = [s for s in unit.streams if s.most <= _LEAST_DEPTH < s.depth]
    full = [s for s in unit.streams if unit.share(s.room) >= _BLOCKING_SHARE]
    lines = []
    if full:
        lines.append(
            "full most of the time, what reads them is too slow: "
            + _list(full, lambda s: f"{units.percent(unit.share(s.room), 0)}")
        )
    if idle:
        lines.append(
            "depth that never mattered here (it may guard against a deadlock): "
            + _list(idle, lambda s: f"{s.most} of {s.depth}")
        )
    return lines


def _list(streams: Iterable[StreamCycles], fact: Callable[[StreamCycles], str]) -> str:
    return ", ".join(f"{s.name} ({fact(s)})" for s in streams)
