"""What the emulated card's clock saw, in words and bars."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from .. import units
from ..figures import Figure
from ..measure import RunResult
from ..roofline.model import Prediction
from ..runtime.cycles import Cycles, ProcessCycles, UnitCycles

_BAR_CELLS = 20
_LINE_WIDTH = 90
_PARTS: tuple[tuple[str, str, Callable[[ProcessCycles], int]], ...] = (
    ("works", "█", lambda p: p.busy),
    ("memory", "m", lambda p: p.memory),
    ("adder", "a", lambda p: p.reuse),
    ("refill", "~", lambda p: p.refill),
    ("data", "<", lambda p: p.data),
    ("room", ">", lambda p: p.room),
)
_LEGEND = (
    "█ works, m waits for memory, a for the adder, ~ its pipeline refills, < waits for data,",
    "> for room; blank: it has ended.",
)
_BLOCKING_SHARE = 0.5
_LEAST_DEPTH = 2
"""Two tokens pass one a cycle: what a FIFO without a pragma has."""


def explanation(result: RunResult) -> list[Table | Text]:
    """Say how many cycles a product takes, what binds and why, process by process."""
    cycles = result.cycles
    if cycles is None or cycles.slowest is None:
        why = result.fpga["cycles"].reason or "no unit has work"
        return [Text(f"cycles: none to explain; {why}"), Text("")]
    unit = cycles.slowest
    return [
        *(Text(line, style="bold") for line in _total(cycles, result)),
        *map(Text, _units_line(cycles, unit)),
        *(Text(line, style="yellow") for line in _binding(cycles, unit)),
        Text(""),
        _processes(unit),
        *(Text(line, style="dim") for line in _LEGEND),
        Text(""),
        *map(Text, _traffic(cycles, unit)),
        *map(Text, _stream_lines(unit)),
        Text(""),
    ]


def emulated_over_model(time_s: Figure, model: Prediction) -> float | None:
    """Return the emulated time over the modelled one, both without starting the kernel."""
    kernel_s = kernel_time_s(model)
    if not time_s.value or time_s.origin != "emulated" or not kernel_s:
        return None
    return time_s.value / kernel_s


def kernel_time_s(model: Prediction) -> float | None:
    """Return the modelled time without the constant that a launch costs."""
    if model.time_s.value is None:
        return None
    return model.time_s.value - model.terms.get("launch", 0.0)


def _total(cycles: Cycles, result: RunResult) -> list[str]:
    lines = [
        f"{round(cycles.cycles):,} cycles a product at {units.hertz(cycles.clock_hz)}: "
        f"{units.seconds(cycles.time_s)} emulated"
    ]
    ratio = emulated_over_model(result.fpga["time_s"], result.model)
    if ratio is not None:
        modelled = units.seconds(kernel_time_s(result.model))
        lines.append(
            f"{ratio:.3f} of the model's {modelled}; starting the kernel is in neither"
        )
    return lines


def _units_line(cycles: Cycles, slowest: UnitCycles) -> list[str]:
    lines = []
    if len(cycles.rounds) > 1:
        verdicts = [f"{u.cycles:,} ({u.bound})" for u in cycles.slowest_of_rounds()]
        lines.append(
            f"{len(verdicts)} rounds follow one another, in cycles and what binds: "
            + ", ".join(verdicts)
        )
    together = next(units for units in cycles.rounds if slowest in units)
    counts = [unit.cycles for unit in together]
    if len(counts) > 1:
        lines.append(
            f"{len(counts)} units side by side: {min(counts):,} to {max(counts):,} cycles"
        )
    if len(cycles.units) > 1:
        lines.append(f"what follows is the slowest, {slowest.unit}")
    return lines


def _binding(cycles: Cycles, unit: UnitCycles) -> list[str]:
    process = unit.binding
    use = units.percent(unit.channel_use, 0)
    if process is None:
        return [
            f"what binds: latency. No process and no channel ({use}) is at work for three "
            "quarters of the",
            "time: the launch is over before pipelines are worth filling.",
        ]
    if unit.bound == "memory":
        sharers = max(unit.ports, key=lambda port: port.waited).sharers
        rate = cycles.channel_bytes_per_s / sharers
        shared = f", shared by {sharers} interfaces" if sharers > 1 else ""
        return [
            f"what binds: memory. {process.name} takes {use} of what its channel gives: a word "
            "of 64 bytes",
            f"every {64 * cycles.clock_hz / rate:.2f} cycles ({rate / 1e9:.3g} GB/s{shared}). "
            "Fewer bytes a non-zero or more units would help.",
        ]
    if unit.bound == "reuse":
        return [
            f"what binds: the adder. {process.name} reads an accumulator too early "
            f"{process.hazards:,} times;",
            "hardware would need a longer interval. Touch other accumulators in between.",
        ]
    share = units.percent(unit.share(process.busy), 0)
    return [
        f"what binds: work. {process.name} works in {share} of the cycles, and the others wait "
        "for it.",
        "A faster clock or more units would help; a faster memory would not.",
    ]


def _processes(unit: UnitCycles) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("process", no_wrap=True)
    shown = [part for part in _PARTS if any(_cells(unit, part[2](p)) for p in unit.processes)]
    for name, *_ in shown:
        table.add_column(name, justify="right")
    table.add_column("", no_wrap=True)
    for process in unit.processes:
        shares = [units.percent(unit.share(count(process)), 0) for _, _, count in shown]
        table.add_row(process.name, *shares, _bar(unit, process))
    return table


def _cells(unit: UnitCycles, cycles: int) -> int:
    return round(unit.share(cycles) * _BAR_CELLS)


def _bar(unit: UnitCycles, process: ProcessCycles) -> str:
    """Return the shares of a process's cycles as cells; what is left, it was not running.

    Rounded so that the cells of all parts together are as many as their sum.
    """
    bar, total = "", 0
    for _, cell, count in _PARTS:
        total += count(process)
        bar += cell * (_cells(unit, total) - len(bar))
    return bar


def _traffic(cycles: Cycles, unit: UnitCycles) -> list[str]:
    time_s = unit.cycles / cycles.clock_hz
    return [
        f"bank {port.bank}: {port.name}, {units.bytes_text(port.bytes)} in {port.accesses:,} "
        f"accesses and {port.bursts:,} burst{'s' * (port.bursts != 1)}, "
        f"{port.bytes / time_s / 1e9:.3g} GB/s"
        for port in unit.ports
        if time_s
    ]


def _stream_lines(unit: UnitCycles) -> list[str]:
    held = {p.name for p in unit.processes if unit.share(p.room) >= _BLOCKING_SHARE}
    full = [s for s in unit.streams if unit.share(s.room) >= _BLOCKING_SHARE]
    ends = [f"{s.name} (read by {s.reader})" for s in full if s.reader not in held]
    lines = []
    if ends:
        lines.append(f"full most of the time, its reader is too slow: {', '.join(ends)}")
    idle = [s for s in unit.streams if s.most <= _LEAST_DEPTH < s.depth]
    if idle:
        lines += [
            f"never more than {_LEAST_DEPTH} tokens, so depth did not matter here (it may "
            "guard against a deadlock):",
            *textwrap.wrap(
                ", ".join(f"{s.name} ({s.depth})" for s in idle),
                _LINE_WIDTH,
                initial_indent="  ",
                subsequent_indent="  ",
            ),
        ]
    return lines
