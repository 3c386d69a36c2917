"""What a design takes of a board, and how many compute units fit, before anything is built.

Streams and processes of one unit are read from the kernel's header, its operators, memories
and ports follow from its parameters, and each is multiplied with its cost in
`design_costs.toml`. The board's file says what there is, what the shell takes, and up to
which share of it designs close. A build takes hours, this takes milliseconds and is an
estimate: `toolchain.reports` sets it beside what a build reports.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from . import units
from .boards import RESOURCES, Board
from .codegen import parameters_for, with_ports_for
from .errors import KernelSpecError
from .figures import Figure, unknown
from .formats.base import WORD_BYTES, WORD_LANES
from .kernels import Argument, Kernel, load_kernel, read_header
from .resources import data_dir
from .roofline.calibration import SHIPPED, Calibration, load_calibration
from .roofline.model import ADD_REUSE_CYCLES
from .roofline.predict import busy_power_w

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_COSTS = Path(__file__).resolve().parent / "design_costs.toml"

RESOURCE_NAMES = {
    "lut": "LUTs",
    "ff": "flip-flops",
    "bram": "block RAM",
    "uram": "UltraRAM",
    "dsp": "DSPs",
}

_WORD_BITS = 8 * WORD_BYTES
_SRL_BITS = 1024
"""Size of a FIFO, or memory, up to which HLS takes LUTs (UG1399, config_storage)."""
_SRL_DEPTH = 2
"""Depth up to which it does whatever the width."""
_SRL_WORDS = 32
"""Bits that a LUT holds as a shift register (UG574)."""
_BRAM18_SHAPES = ((512, 36), (1024, 18), (2048, 9), (4096, 4), (8192, 2), (16384, 1))
"""Words and bits of half a RAM block with one port to read and one to write (UG573)."""
_URAM_WORDS, _URAM_BITS = 4096, 72
"""Shape of an UltraRAM block (UG573)."""
_LUTRAM_WORDS, _LUTRAM_BITS, _LUTRAM_LUTS = 32, 14, 8
"""Words and bits of eight LUTs as a memory with a port to read and one to write (UG574)."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """An amount of each of the chip's resources; RAM in blocks of 36 and of 288 Kib."""

    lut: float = 0
    ff: float = 0
    bram: float = 0
    uram: float = 0
    dsp: float = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(**{name: self.of(name) + other.of(name) for name in RESOURCES})

    def times(self, count: float) -> Cost:
        """Return so many of it.

        >>> Cost(lut=2, dsp=1).times(3)
        Cost(lut=6, ff=0, bram=0, uram=0, dsp=3)
        """
        return Cost(**{name: count * self.of(name) for name in RESOURCES})

    def of(self, resource: str) -> float:
        """Return the amount of one of `RESOURCES`."""
        amount: float = getattr(self, resource)
        return amount

    def to_json(self) -> dict[str, float]:
        """Return the amounts by name."""
        return {name: self.of(name) for name in RESOURCES}


@dataclass(frozen=True)
class Stream:
    """A stream of a kernel: a FIFO of so many words of so many bits."""

    name: str
    bits: int
    depth: int
    is_srl: bool = False  # the header asks for shift registers


@dataclass(frozen=True)
class Memory:
    """A memory on chip: banks of so many words of so many bits."""

    name: str
    bits: int
    words: int
    banks: int = 1
    kind: str = ""  # uram or bram where the header asks for it


@dataclass(frozen=True, kw_only=True)
class Operators:
    """What a unit computes with, beside its streams and memories.

    Attributes
    ----------
    multipliers, adders, accumulators, lane_adders : int
        Floating-point operators. An accumulator has an adder, a memory and streams of its
        own; a lane adder is one of many in the same loop, with nothing of its own.
    word_choices : int
        Two-way choices of a whole word, beside the one of each process that holds a word.
    """

    multipliers: int = 0
    adders: int = 0
    accumulators: int = 0
    lane_adders: int = 0
    word_choices: int = 0


@dataclass(frozen=True, kw_only=True)
class Structure(Operators):
    """What one compute unit is made of.

    Attributes
    ----------
    processes, word_processes : int
        All processes, and those that hold a 512-bit word.
    streams : tuple of Stream
    memories : tuple of Memory
    """

    processes: int
    word_processes: int
    streams: tuple[Stream, ...]
    memories: tuple[Memory, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Share:
    """One resource of a design against its limit.

    Attributes
    ----------
    resource : str
        One of `RESOURCES`.
    per_unit, units, shell : float
        What one unit, all units and the shell take.
    available : float
    limit : float
        Share of `available` up to which designs close.
    """

    resource: str
    per_unit: float
    units: float
    shell: float
    available: float
    limit: float

    @property
    def total(self) -> float:
        """Amount that the design takes, shell included."""
        return self.units + self.shell

    @property
    def share(self) -> float:
        """Part of what there is."""
        return self.total / self.available

    @property
    def fits(self) -> bool:
        """Whether the design stays within the limit."""
        return self.share <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Return the share as a JSON object."""
        return {
            "name": self.resource,
            "per_unit": self.per_unit,
            "units": self.units,
            "shell": self.shell,
            "total": self.total,
            "available": self.available,
            "share": self.share,
            "limit": self.limit,
            "fits": self.fits,
        }


@dataclass(frozen=True, kw_only=True)
class FitReport:
    """What a design takes of a board.

    Attributes
    ----------
    kernel : str
    parameters : dict of str to int
        Every parameter with its value.
    board : Board
    compute_units : int
    parts : dict of str to Cost
        Of one unit: `ports`, `arithmetic`, `processes`, `streams`, `memories`.
    shares : tuple of Share
        In the order of `RESOURCES`.
    ports, channels : int
        Memory ports, and memory channels that they use.
    clock_hz : float
        Clock that a design of so many units closes at.
    power_w, power_cap_w : Figure
        Modelled power with every port busy all the time, and what the card may take.
    reasons_to_refuse : tuple of str
        Every limit that the design breaks, with the numbers.
    warnings : tuple of str
        What could not be checked.
    """

    kernel: str
    parameters: dict[str, int]
    board: Board
    compute_units: int
    parts: dict[str, Cost]
    shares: tuple[Share, ...]
    ports: int
    channels: int
    clock_hz: float
    power_w: Figure
    power_cap_w: Figure
    reasons_to_refuse: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def per_unit(self) -> Cost:
        """What one unit takes."""
        return _sum(self.parts.values())

    @property
    def total(self) -> Cost:
        """What the design takes, shell included."""
        return Cost(**{share.resource: share.total for share in self.shares})

    @property
    def fits(self) -> bool:
        """Whether no limit is broken."""
        return not self.reasons_to_refuse

    @property
    def refusal(self) -> str | None:
        """One sentence with every limit that is broken, or None."""
        if self.fits:
            return None
        is_one = self.compute_units == 1
        advice = "take other parameters or another board" if is_one else "take fewer units"
        return (
            f"cu is {self.compute_units}: that many of kernel {self.kernel} do not fit board "
            f"{self.board.name}: {'; '.join(self.reasons_to_refuse)}; {advice}."
        )

    def check(self) -> None:
        """Raise `KernelSpecError` with every limit that is broken."""
        if self.refusal is not None:
            raise KernelSpecError(self.refusal)

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return {
            "kernel": self.kernel,
            "block": self.parameters.get("block"),
            "slice": self.parameters.get("slice"),
            "x_room": self.parameters.get("x_room"),
            "depth": self.parameters.get("depth"),
            "panel": self.parameters.get("panel"),
            "y_room": self.parameters.get("y_room"),
            "compute_units": self.compute_units,
            "board": self.board.name,
            "per_unit": self.per_unit.to_json(),
            "parts": {name: cost.to_json() for name, cost in self.parts.items()},
            "resources": [share.to_json() for share in self.shares],
            "ports": self.ports,
            "channels": self.channels,
            "clock_hz": self.clock_hz,
            "power_w": self.power_w.to_json(),
            "power_cap_w": self.power_cap_w.to_json(),
            "fits": self.fits,
            "reasons_to_refuse": list(self.reasons_to_refuse),
            "warnings": list(self.warnings),
        }


def fit(
    kernel: str,
    parameters: Mapping[str, int],
    board: Board,
    compute_units: int = 1,
    *,
    calibration: Calibration | None = None,
) -> FitReport:
    """Estimate what a design takes of a board.

    Parameters
    ----------
    kernel : str
    parameters : mapping of str to int
        Those that differ from their defaults; others may depend on the number of units
        (`codegen.parameters_for`).
    board : Board
    compute_units : int
    calibration : Calibration, optional
        Gives the power; the one that is shipped for the board by default.

    Returns
    -------
    FitReport

    Raises
    ------
    KernelSpecError
        If the kernel or a parameter is wrong, or there is no count of the kernel.
    BoardError
        If the board's file lacks a resource.

    Examples
    --------
    >>> from spmv_fpga.boards import load_board
    >>> report = fit("block", {"block": 16}, load_board("u50"))
    >>> report.fits, report.ports, report.per_unit.dsp, report.per_unit.uram
    (True, 2, 82, 32)
    """
    if compute_units < 1:
        raise KernelSpecError(f"cu is {compute_units}; it must be at least 1.")
    spec = with_ports_for(load_kernel(kernel), board, compute_units)
    values = _resolve(spec, parameters, compute_units)
    parts = _parts(spec, structure_of(kernel, values), board)
    shares = _shares(_sum(parts.values()), board, compute_units)
    ports = compute_units * len(spec.bundles)
    channels = _channels(ports, compute_units, board)
    power_w = _power_w(spec, values, board, compute_units, calibration)
    cap_w = _cap_w(board)
    return FitReport(
        kernel=kernel,
        parameters=values,
        board=board,
        compute_units=compute_units,
        parts=parts,
        shares=shares,
        ports=ports,
        channels=channels,
        clock_hz=board.expected_clock_hz(compute_units),
        power_w=power_w,
        power_cap_w=cap_w,
        reasons_to_refuse=(
            *_reasons_of_memory(ports, channels, board),
            *_reasons_of_resources(shares),
            *_reasons_of_power(power_w, cap_w),
        ),
        warnings=_warnings(power_w, cap_w),
    )


def max_units(
    kernel: str,
    parameters: Mapping[str, int],
    board: Board,
    *,
    calibration: Calibration | None = None,
) -> int:
    """Return the largest number of compute units that fit a board.

    Parameters
    ----------
    kernel, parameters, board, calibration
        As for `fit`; what is not given is that of each number of units.

    Raises
    ------
    KernelSpecError
        If not even one unit fits; as `fit` otherwise.

    Examples
    --------
    >>> from spmv_fpga.boards import load_board
    >>> max_units("block", {"block": 16}, load_board("u50")) > 8
    True
    """
    for count in range(int(board.value("max_ports")), 1, -1):
        if fit(kernel, parameters, board, count, calibration=calibration).fits:
            return count
    fit(kernel, parameters, board, 1, calibration=calibration).check()
    return 1


# What a kernel is made of: streams, processes and memories as its header in hls_templates/
# declares them, operators from the constants that the header derives from the parameters.


def structure_of(kernel: str, parameters: Mapping[str, int]) -> Structure:
    """Count what one unit of a kernel is made of.

    Parameters
    ----------
    kernel : str
    parameters : mapping of str to int
        Every parameter with its value.

    Raises
    ------
    KernelSpecError
        If nothing is known of the kernel's operators, or of the type of a stream or memory.

    Examples
    --------
    >>> made_of = structure_of("block", {"block": 16, "x_room": 65536})
    >>> made_of.multipliers, made_of.adders, made_of.processes
    (16, 15, 9)
    >>> structure_of("lanes", {"depth": 8, "panel": 8192, "y_room": 16384}).memories[0]
    Memory(name='x_copies', bits=64, words=2048, banks=16, kind='uram')
    """
    if kernel not in _OPERATORS:
        raise KernelSpecError(
            f"nothing is known of what kernel {kernel} takes of a board; known are "
            f"{', '.join(sorted(_OPERATORS))}."
        )
    constants = _constants(kernel, parameters)
    bits = _bits(_rows_of_a_word(parameters))
    streams = _streams(kernel, constants, bits)
    processes = read_header(kernel).processes
    wide = {stream.name for stream in streams if stream.bits == _WORD_BITS}
    wide |= {port.name for port in load_kernel(kernel).ports}
    return Structure(
        **vars(_OPERATORS[kernel](parameters)),
        processes=len(processes),
        word_processes=sum(not wide.isdisjoint(words) for words in processes),
        streams=streams,
        memories=_memories(kernel, constants, bits),
    )


def _block(parameters: Mapping[str, int]) -> Operators:
    rows = _rows_of_a_word(parameters)
    accumulators, drains = _reducers(rows, parameters["block"] // rows)
    return Operators(
        multipliers=WORD_LANES,
        adders=WORD_LANES - rows + drains,  # a tree for each row, and the drains
        accumulators=accumulators,
    )


def _scalar(parameters: Mapping[str, int]) -> Operators:
    accumulators, drains = _reducers(1, parameters["slice"])
    return Operators(multipliers=1, adders=drains, accumulators=accumulators)


def _lanes(_: Mapping[str, int]) -> Operators:
    turns = (WORD_LANES.bit_length() - 1) // 2  # four-way steps that turn a word of y
    return Operators(
        multipliers=WORD_LANES,
        # Sums of pieces, half as many for y, and one each to sum long rows and to add them.
        lane_adders=WORD_LANES + WORD_LANES // 2 + 2,
        word_choices=turns + 1,  # and the loops that take turns at the banks of y
    )


def _bandwidth(_: Mapping[str, int]) -> Operators:
    return Operators()


_OPERATORS: dict[str, Callable[[Mapping[str, int]], Operators]] = {
    "block": _block,
    "scalar": _scalar,
    "lanes": _lanes,
    "bandwidth": _bandwidth,
}


def _rows_of_a_word(parameters: Mapping[str, int]) -> int:
    """Return the rows of a word of sums (kRowsPerWord)."""
    return max(WORD_LANES // parameters.get("block", WORD_LANES), 1)


def _reducers(rows: int, groups: int) -> tuple[int, int]:
    """Return the accumulators of both reducers, and the adders that drain partial sums."""
    partials = max(ADD_REUSE_CYCLES // groups, 1)
    return 2 * rows, 2 * rows * (partials - 1)


_CONSTANT = re.compile(r"^constexpr unsigned (k\w+) = ([^;]+);", re.MULTILINE)
_CHOICE = re.compile(r"(.+) \? (.+) : (.+)")
_FLAG_BITS = 1
_STRUCT = re.compile(r"^struct \w+ \{.*?^\};", re.MULTILINE | re.DOTALL)
_ARRAY = re.compile(r"^ +([\w:]+) (\w+)((?:\[\w+\])+);\n((?:#pragma HLS .*\n)*)", re.MULTILINE)
_SIZE = re.compile(r"\w+")
_APART = re.compile(r"array_partition variable = \w+ (?:dim = (\d) )?complete")
_KIND = re.compile(r"bind_storage .* impl = (\w+)")


def _constants(kernel: str, parameters: Mapping[str, int]) -> dict[str, int]:
    """Evaluate the constants of a kernel's header, which follow from its parameters."""
    spec = load_kernel(kernel)
    values = {p.constant: parameters[p.name] for p in spec.parameters if p.name in parameters}
    names: dict[str, Any] = {"__builtins__": {}, "at_least": max, **values}
    common = (data_dir("hls_templates") / "common" / "words.hpp").read_text("utf-8")
    for name, expression in _CONSTANT.findall(common + read_header(kernel).text):
        python = _CHOICE.sub(r"\2 if \1 else \3", expression).replace("/", "//")
        names[name] = values[name] = eval(python, names)  # our own header, integers only
    return values


def _bits(rows: int) -> dict[str, int]:
    """Return the bits of each type that a header has streams or memories of."""
    return {
        "word_t": _WORD_BITS,
        "floats_t": _WORD_BITS,
        "pair_t": 2 * 32,
        "float": 32,
        "unsigned": 32,
        "std::uint32_t": 32,
        "Mark": 2 * _FLAG_BITS,
        "Operand": 32 + _FLAG_BITS,
        "Product": 32 + _FLAG_BITS,
        "PanelSize": 2 * 32,
        "sums_t": 32 * rows + 2 * _FLAG_BITS,
        "rows_t": 32 * rows,
    }


def _bits_of(c_type: str, bits: Mapping[str, int], what: str) -> int:
    if c_type not in bits:
        raise KernelSpecError(
            f"{what} is of type {c_type}; say how many bits that has in design_fit.py."
        )
    return bits[c_type]


def _streams(
    kernel: str, constants: Mapping[str, int], bits: Mapping[str, int]
) -> tuple[Stream, ...]:
    return tuple(
        Stream(
            stream.name,
            _bits_of(stream.c_type, bits, f"stream {stream.name} of kernel {kernel}"),
            _number(stream.depth, constants),
            is_srl=stream.is_srl,
        )
        for stream in read_header(kernel).streams
    )


def _memories(
    kernel: str, constants: Mapping[str, int], bits: Mapping[str, int]
) -> tuple[Memory, ...]:
    """Return the arrays of a header; those that are taken apart altogether are registers."""
    found = []
    text = _STRUCT.sub("", read_header(kernel).text)
    for c_type, name, brackets, pragmas in _ARRAY.findall(text):
        sizes = [_number(size, constants) for size in _SIZE.findall(brackets)]
        apart = {int(dim or 1) for dim in _APART.findall(pragmas)}
        if len(apart) == len(sizes):
            continue
        places = [(size, dim in apart) for dim, size in enumerate(sizes, 1)]
        kind = _KIND.search(pragmas)
        found.append(
            Memory(
                name,
                _bits_of(c_type, bits, f"array {name} of kernel {kernel}"),
                math.prod(size for size, is_apart in places if not is_apart),
                math.prod(size for size, is_apart in places if is_apart),
                kind[1] if kind else "",
            )
        )
    return tuple(found)


def _number(text: str, constants: Mapping[str, int]) -> int:
    return constants[text] if text in constants else int(text)


# What the parts take.


@cache
def _costs() -> dict[str, Cost]:
    tables = tomllib.loads(_COSTS.read_text("utf-8"))
    return {
        name: Cost(**{key: value for key, value in table.items() if key != "source"})
        for name, table in tables.items()
    }


def _parts(spec: Kernel, structure: Structure, board: Board) -> dict[str, Cost]:
    costs = _costs()
    adapters = [[p for p in spec.ports if p.bundle == bundle] for bundle in spec.bundles]
    return {
        "ports": _sum(_port_cost(ports, board) for ports in adapters),
        "arithmetic": costs["multiply"].times(structure.multipliers)
        + costs["add"].times(structure.adders)
        + costs["accumulate"].times(structure.accumulators)
        + costs["lane_add"].times(structure.lane_adders),
        "processes": costs["process"].times(structure.processes)
        + costs["word_stage"].times(structure.word_processes + structure.word_choices),
        "streams": _sum(_stream_cost(stream) for stream in structure.streams),
        "memories": _sum(_memory_cost(memory) for memory in structure.memories),
    }


def _port_cost(ports: Sequence[Argument], board: Board) -> Cost:
    """Return an m_axi adapter and its FIFOs, which hold every burst in flight."""
    bram = 0.0
    for direction, bits in (
        ("read", _WORD_BITS),
        ("write", _WORD_BITS + WORD_BYTES),
    ):  # strobes
        of_board = board.axi[f"num_{direction}_outstanding"]
        bursts = [port.outstanding or of_board for port in ports if port.direction == direction]
        if bursts:
            bram += _bram_blocks(bits, board.axi["max_burst_length"] * max(bursts))
    return _costs()["port"] + Cost(bram=bram)


def _stream_cost(stream: Stream) -> Cost:
    control = _costs()["stream"]
    is_short = stream.bits * stream.depth <= _SRL_BITS or stream.depth <= _SRL_DEPTH
    if stream.is_srl or is_short:
        return control + Cost(lut=stream.bits * -(-stream.depth // _SRL_WORDS))
    bram = _bram_blocks(stream.bits, stream.depth)
    return control + Cost(bram=bram, ff=stream.bits)  # the word at the FIFO's output


def _memory_cost(memory: Memory) -> Cost:
    """Return what all banks take: the memory that is asked for, or what suits their size."""
    if memory.kind == "uram":
        blocks = -(-memory.bits // _URAM_BITS) * -(-memory.words // _URAM_WORDS)
        return Cost(uram=memory.banks * blocks)
    if memory.kind == "bram" or memory.bits * memory.words > _SRL_BITS:
        return Cost(bram=memory.banks * _bram_blocks(memory.bits, memory.words))
    groups = -(-memory.bits // _LUTRAM_BITS) * -(-memory.words // _LUTRAM_WORDS)
    return Cost(lut=memory.banks * groups * _LUTRAM_LUTS)


def _bram_blocks(bits: int, depth: int) -> float:
    """Return the RAM blocks of 36 Kib of a FIFO or memory, in steps of half a block.

    >>> _bram_blocks(512, 64), _bram_blocks(512, 1024), _bram_blocks(34, 32)
    (7.5, 14.5, 0.5)
    """
    for words, width in _BRAM18_SHAPES:
        if depth <= words:
            return -(-bits // width) / 2
    words = _BRAM18_SHAPES[-1][0]
    return -(-depth // words) * bits / 2


def _sum(costs: Iterable[Cost]) -> Cost:
    return sum(costs, Cost())


# A design against the limits of a board.


def _resolve(spec: Kernel, chosen: Mapping[str, int], compute_units: int) -> dict[str, int]:
    return spec.resolve({**parameters_for(spec, compute_units), **chosen})


def _shares(unit: Cost, board: Board, compute_units: int) -> tuple[Share, ...]:
    return tuple(
        Share(
            resource=name,
            per_unit=unit.of(name),
            units=compute_units * unit.of(name),
            shell=board.value(f"{name}_shell"),
            available=board.value(f"{name}_available"),
            limit=board.value(f"{name}_limit"),
        )
        for name in RESOURCES
    )


def _channels(ports: int, compute_units: int, board: Board) -> int:
    """Return the channels in use: one a port; where they are too few, one a unit."""
    return ports if ports <= board.value("max_channels") else compute_units


def _reasons_of_memory(ports: int, channels: int, board: Board) -> list[str]:
    limits = (("memory ports", ports, "max_ports"), ("channels", channels, "max_channels"))
    return [
        f"{count} {name}, and {board.value(figure):.0f} is the limit"
        for name, count, figure in limits
        if count > board.value(figure)
    ]


def _reasons_of_resources(shares: tuple[Share, ...]) -> list[str]:
    return [
        f"{RESOURCE_NAMES[s.resource]} {s.total:.0f} of {s.available:.0f} "
        f"({units.percent(s.share)}), and {units.percent(s.limit)} is the limit"
        for s in shares
        if not s.fits
    ]


def _reasons_of_power(power_w: Figure, cap_w: Figure) -> list[str]:
    if power_w.value is None or cap_w.value is None or power_w.value <= cap_w.value:
        return []
    return [f"modelled power {power_w.value:.1f} W, and {cap_w.value:g} W is the card's cap"]


def _warnings(power_w: Figure, cap_w: Figure) -> tuple[str, ...]:
    return tuple(
        f"the power was not held against a cap: {figure.reason}."
        for figure in (power_w, cap_w)
        if figure.value is None
    )


def _cap_w(board: Board) -> Figure:
    if "power_cap_w" not in board.figures:
        return unknown(f"the file of board {board.name} has no power_cap_w")
    return Figure(value=board.value("power_cap_w"), origin="published")


def _power_w(
    spec: Kernel,
    parameters: Mapping[str, int],
    board: Board,
    compute_units: int,
    calibration: Calibration | None,
) -> Figure:
    """Return the power of the model with every port busy all the time."""
    if not spec.format:
        return unknown(f"there is no model of the power of kernel {spec.name}")
    if calibration is None:
        if board.name not in SHIPPED:
            return unknown(f"there is no calibration of the power of board {board.name}")
        calibration = load_calibration(board.name, board.name)
    if spec.name not in calibration.kernels:
        return unknown(f"calibration {calibration.name} has no power of kernel {spec.name}")
    size = parameters[spec.parameters[0].name]  # that of its format: block, slice or depth
    value = busy_power_w(spec.name, size, calibration, compute_units)
    return Figure(value=value, origin="modelled")
