"""The clock of the emulated card: how fast its memory is told to be, and what it counted.

The kernel's own processes run over streams that keep time (`host/hls/clock.hpp`). The card
passes the counts of each launch back; they depend on the kernel and its data alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

from ..boards import Board
from ..codegen import with_ports_for
from ..kernels import load_kernel
from ..toolchain.xclbin import XclbinInfo

FULL_SHARE = 0.75
"""A process, or a channel, binds if it is at work for so much of a launch; where none is,
filling and emptying of pipelines take the rest."""
_SAME_SHARE = 0.03


@dataclass(frozen=True)
class ProcessCycles:
    """A process of a unit, in cycles.

    Attributes
    ----------
    name : str
    active : int
        From its start to its last result.
    data, room : int
        Waiting for a token in an empty stream, and for a slot in a full one.
    memory : int
        Waiting for the memory channel.
    reuse : int
        What hazards would cost: accumulators that are read before the adder is done.
    refill : int
        While its pipeline runs empty, between loops and at the end.
    hazards : int
        How often.
    """

    name: str
    active: int
    data: int
    room: int
    memory: int
    reuse: int
    refill: int
    hazards: int

    @property
    def busy(self) -> int:
        """Cycles in which it does its work."""
        waits = self.data + self.room + self.memory + self.reuse + self.refill
        return self.active - waits

    @property
    def own(self) -> int:
        """Cycles in which no other process keeps it waiting."""
        return self.busy + self.memory + self.reuse


@dataclass(frozen=True)
class StreamCycles:
    """A stream between two processes.

    Attributes
    ----------
    name, writer, reader : str
    depth : int
    most : int
        Tokens at one time, at the most.
    tokens : int
    data, room : int
        Cycles in which its reader waited for a token, and its writer for a slot.
    """

    name: str
    writer: str
    reader: str
    depth: int
    most: int
    tokens: int
    data: int
    room: int


@dataclass(frozen=True)
class PortTraffic:
    """A memory argument of a unit.

    Attributes
    ----------
    name : str
    bank : int
    sharers : int
        Interfaces on that bank; each has its even share of the channel.
    bytes, accesses, bursts : int
    waited : int
        Cycles that its process waited for it.
    """

    name: str
    bank: int
    sharers: int
    bytes: int
    accesses: int
    bursts: int
    waited: int


@dataclass(frozen=True)
class UnitCycles:
    """A launch of one compute unit.

    Attributes
    ----------
    unit : str
    cycles : int
    processes : tuple of ProcessCycles
        In the order of the kernel's source.
    streams : tuple of StreamCycles
    ports : tuple of PortTraffic
    bytes_per_cycle : float
        What a memory bank gives.
    """

    unit: str
    cycles: int
    processes: tuple[ProcessCycles, ...]
    streams: tuple[StreamCycles, ...]
    ports: tuple[PortTraffic, ...]
    bytes_per_cycle: float

    @classmethod
    def of(cls, unit: str, report: dict[str, Any], bytes_per_cycle: float) -> UnitCycles:
        """Read what the emulated card reports of a launch."""
        return cls(
            unit,
            int(report["cycles"]),
            tuple(ProcessCycles(**p) for p in report["processes"]),
            tuple(StreamCycles(**s) for s in report["streams"]),
            tuple(PortTraffic(**p) for p in report["ports"]),
            bytes_per_cycle,
        )

    def share(self, cycles: int) -> float:
        """Return cycles as a share of the launch."""
        return cycles / self.cycles if self.cycles else 0.0

    @property
    def channel_use(self) -> float:
        """Share of its channel's bandwidth that the busiest memory argument took."""
        if not self.cycles:
            return 0.0
        rates = (port.bytes * port.sharers / self.bytes_per_cycle for port in self.ports)
        return max(rates, default=0.0) / self.cycles

    @property
    def binding(self) -> ProcessCycles | None:
        """The process that the others wait for; None where the launch is too short for one.

        It is the one that is kept waiting least; of several, the first that data pass.
        """
        longest = max((p.own for p in self.processes), default=0)
        slack = _SAME_SHARE * self.cycles
        first = next((p for p in self.processes if p.own >= longest - slack), None)
        if first is None or first.reuse > slack:
            return first
        is_full = max(self.share(first.busy), self.channel_use if first.memory else 0.0)
        return first if is_full >= FULL_SHARE else None

    @property
    def bound(self) -> str:
        """What binds: `memory`, `reuse`, `work`, or `latency` in a short launch."""
        process = self.binding
        if process is None:
            return "latency"
        if process.reuse > _SAME_SHARE * self.cycles:
            return "reuse"
        is_channel = process.memory > 0 and self.channel_use >= FULL_SHARE
        return "memory" if is_channel else "work"


@dataclass(frozen=True)
class Cycles:
    """What the emulated card counted in a launch of all units.

    Attributes
    ----------
    clock_hz : float
        Kernel clock that the counts are for.
    channel_bytes_per_s : float
        What a bank was told to give.
    iterations : int
        Products in the launch.
    rounds : tuple of tuple of UnitCycles
        Units that ran side by side, round by round.
    """

    clock_hz: float
    channel_bytes_per_s: float
    iterations: int
    rounds: tuple[tuple[UnitCycles, ...], ...]

    def followed_by(self, later: Cycles) -> Cycles:
        """Return the cycles of two rounds of one product."""
        return replace(self, rounds=self.rounds + later.rounds)

    @property
    def cycles(self) -> float:
        """Cycles of one product: each round takes as long as its slowest unit."""
        total = sum(max((u.cycles for u in units), default=0) for units in self.rounds)
        return total / self.iterations

    @property
    def time_s(self) -> float:
        """Seconds of one product; starting the kernel comes on top."""
        return self.cycles / self.clock_hz

    @property
    def units(self) -> list[UnitCycles]:
        """All launches of units."""
        return [unit for units in self.rounds for unit in units]

    @cached_property
    def slowest(self) -> UnitCycles | None:
        """The launch of a unit that took longest; None where no unit had work."""
        return max(self.units, key=lambda unit: unit.cycles, default=None)

    def slowest_of_rounds(self) -> list[UnitCycles]:
        """Return the unit that each round waits for; rounds follow one another."""
        return [max(units, key=lambda unit: unit.cycles) for units in self.rounds if units]

    @property
    def hazards(self) -> int:
        """Accumulators that were read too early, in all units."""
        return sum(p.hazards for unit in self.units for p in unit.processes)

    def banks(self) -> dict[int, tuple[int, int]]:
        """Return bytes and accesses of each memory bank."""
        traffic: dict[int, tuple[int, int]] = {}
        for port in (port for unit in self.units for port in unit.ports):
            known = traffic.get(port.bank, (0, 0))
            traffic[port.bank] = (known[0] + port.bytes, known[1] + port.accesses)
        return dict(sorted(traffic.items()))

    def to_json(self) -> dict[str, Any]:
        """Return all counts; plain numbers, in cycles of the launch."""
        return {
            "clock_hz": self.clock_hz,
            "channel_bytes_per_cycle": self.channel_bytes_per_s / self.clock_hz,
            "iterations": self.iterations,
            "bound": [unit.bound for unit in self.slowest_of_rounds()],
            "binding": [
                unit.binding.name if unit.binding else None for unit in self.slowest_of_rounds()
            ],
            "hazards": self.hazards,
            "banks": [
                {"bank": bank, "bytes": size, "accesses": accesses}
                for bank, (size, accesses) in self.banks().items()
            ],
            "rounds": [[_unit_json(unit) for unit in units] for units in self.rounds],
        }


def _unit_json(unit: UnitCycles) -> dict[str, Any]:
    """Return a unit; its total is called `total`, since `cycles` holds figures."""
    content = asdict(unit)
    content["total"] = content.pop("cycles")
    del content["bytes_per_cycle"]
    content["channel_use"] = unit.channel_use
    for process, entry in zip(unit.processes, content["processes"], strict=True):
        entry["busy"] = process.busy
    return content


def timing_text(xclbin: XclbinInfo, board: Board, clock_hz: float) -> str:
    """Return what the emulated card is told of its memory (`host/emulated_card/timing.hpp`).

    Parameters
    ----------
    xclbin : XclbinInfo
        Says which banks the arguments of each unit are connected to.
    board : Board
        Says how fast a bank is and what the memory ports are built for.
    clock_hz : float
        Kernel clock.

    Notes
    -----
    A bank that several interfaces share gives each the same part of its bandwidth, whether
    the others use theirs or not: who asks first must not decide.
    """
    units = [(kernel, unit) for kernel in xclbin.kernels for unit in kernel.instances]
    sharers: dict[str, set[tuple[str, str]]] = {}
    for kernel, unit in units:
        for argument in kernel.arguments:
            for tag in unit.memories.get(argument.name, ()):
                sharers.setdefault(tag, set()).add((unit.name, argument.port))
    spec = load_kernel(str(xclbin.kernel_kind))
    ports = {p.name: p for p in with_ports_for(spec, board, max(1, xclbin.compute_units)).ports}
    rate = board.value("channel_bytes_per_s") / clock_hz
    setup = board.value("burst_setup_s") * clock_hz
    lines = [
        f"memory {rate!r} {setup!r} {board.axi['latency']} {board.axi['max_burst_length']}"
    ]
    for kernel, unit in units:
        for argument in kernel.arguments:
            tags = unit.memories.get(argument.name, ())
            if not argument.is_memory or not tags or argument.name not in ports:
                continue
            port = ports[argument.name]
            outstanding = port.outstanding or board.axi[f"num_{port.direction}_outstanding"]
            lines.append(
                f"port {unit.name} {argument.name} {_bank_number(tags[0])} "
                f"{len(sharers[tags[0]])} {outstanding}"
            )
    return "\n".join(lines) + "\n"


def _bank_number(tag: str) -> int:
    """Return the number in a bank's tag.

    >>> _bank_number("HBM[12]")
    12
    """
    return int("".join(filter(str.isdigit, tag)) or 0)


def told_units(entries: Iterable[dict[str, Any]], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reports of the units that have told of a launch.

    Parameters
    ----------
    entries : iterable of dict
        What the emulated card wrote during the launch; a report of None is as before.
    known : mapping of str to Any
        Reports of earlier launches, by unit.
    """
    told: dict[str, Any] = {}
    for entry in entries:
        if "launch" not in entry:
            continue
        unit, report = str(entry["unit"]), entry.get("report")
        told[unit] = told.get(unit, known.get(unit)) if report is None else report
    return told


def cycles_of(
    units: Sequence[str],
    reports: Mapping[str, Any],
    clock_hz: float,
    channel_bytes_per_s: float,
    iterations: int,
) -> Cycles | None:
    """Return what units counted in their last launch.

    None where one has told nothing, or nothing that is understood: a kernel library that
    another toolchain made.
    """
    rate = channel_bytes_per_s / clock_hz
    try:
        launched = tuple(UnitCycles.of(unit, reports[unit], rate) for unit in units)
    except (KeyError, TypeError, ValueError):
        return None
    return Cycles(clock_hz, channel_bytes_per_s, iterations, (launched,))
