"""Read and write xclbin files, the containers that Xilinx's runtime loads.

`read` takes files made by Vitis as well as this project's own and ignores what it
does not know; `write` makes the ones for software emulation. Nothing is executed,
XML with a document type is refused, and only the sections that are looked at are
read, so a bitstream of any size costs nothing.

What the container cannot say (for which block a kernel was built, how many entries
of x fit on the chip) are the project's own `Facts`. They are JSON under the key
`spmv_fpga`, in section USER_METADATA of a file that `write` makes, or in a file
`NAME.xclbin.json` beside one that another tool made (v++ has no option that adds a
section). The embedded ones win.

The layout of the container is that of `xclbin.h`, which the development package of
XRT installs as `/usr/include/xrt/xclbin.h`. All numbers in it are little-endian.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import struct
import uuid as uuids
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import XclbinError
from ..files import require_file, write_whole

__all__ = [
    "Argument", "Facts", "Instance", "Kernel", "Memory", "Port", "Section", "XclbinInfo",
    "XclbinSpec", "hbm_banks", "lay_out_kernel", "read", "read_section", "to_json", "write",
    "write_facts_beside",
]  # fmt: skip

# ----------------------------------------------------------------------------------------
# What a container holds


class SectionKind(IntEnum):
    """Kinds of section that are read or written here, `enum axlf_section_kind`."""

    BITSTREAM = 0
    EMBEDDED_METADATA = 2
    MEM_TOPOLOGY = 6
    CONNECTIVITY = 7
    IP_LAYOUT = 8
    CLOCK_FREQ_TOPOLOGY = 11
    BUILD_METADATA = 14
    USER_METADATA = 16
    ASK_GROUP_TOPOLOGY = 26
    ASK_GROUP_CONNECTIVITY = 27


@dataclass(frozen=True)
class Section:
    """One entry of the section table: its kind, name, and place in the file in bytes."""

    kind: int
    name: str
    offset: int
    size: int


@dataclass(frozen=True)
class Memory:
    """A memory bank: its tag ("HBM[0]"), address, size in bytes, use and kind ("HBM")."""

    tag: str
    base: int
    bytes: int
    is_used: bool = True
    kind: str = "HBM"


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel.

    `kind` is "memory" for a pointer, "scalar" or "stream"; `size` and `offset` are the
    bytes that it takes in the register map and its place there; `memories` are the tags
    of all banks that it is connected to, over all instances of the kernel.
    """

    name: str
    index: int
    kind: str
    port: str
    size: int
    offset: int
    type: str
    memories: tuple[str, ...] = ()

    @property
    def is_memory(self) -> bool:
        """Whether the argument is a pointer into a memory bank."""
        return self.kind == "memory"


@dataclass(frozen=True)
class Port:
    """A hardware port of a kernel: "master" reads memory, "slave" holds the registers."""

    name: str
    mode: str
    data_width: int
    range: int
    base: int = 0


@dataclass(frozen=True)
class Instance:
    """A compute unit: its name, the address of its registers, and bank tags by argument."""

    name: str
    base: int | None
    memories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Kernel:
    """A kernel with its arguments in order of index, its compute units and its ports."""

    name: str
    arguments: tuple[Argument, ...]
    instances: tuple[Instance, ...]
    ports: tuple[Port, ...] = ()

    def argument(self, name: str) -> Argument | None:
        """Return the argument of that name, or None."""
        return next((a for a in self.arguments if a.name == name), None)

    def instance(self, name: str) -> Instance | None:
        """Return the compute unit of that name, or None."""
        return next((i for i in self.instances if i.name == name), None)


@dataclass(frozen=True)
class Facts:
    """What this project knows of an xclbin beyond its container; None is unknown.

    Parameters
    ----------
    kernel : str
        Kind of kernel, "block", "scalar" or "lanes".
    block, slice : int
        Edge P of a block, height L of a slice, as compiled in.
    x_room : int
        How many entries of x (4 bytes each) fit on the chip.
    format_version : int
        Version of the packed matrix stream.
    version : str
        Version of the project that rendered the kernel.
    source_hash : str
        Hash of the rendered sources.
    depth, panel : int
        Of kernel lanes: accesses after which a row returns, columns on the chip at a time.
    y_room : int
        How many entries of y fit on the chip, where it stays there.
    """

    kernel: str | None = None
    block: int | None = None
    slice: int | None = None
    x_room: int | None = None
    format_version: int | None = None
    version: str | None = None
    source_hash: str | None = None
    depth: int | None = None
    panel: int | None = None
    y_room: int | None = None

    @property
    def parameters(self) -> dict[str, int]:
        """What the data must have been converted with, by name; what is known of it."""
        known = {name: getattr(self, name) for name in ("block", "slice", "depth", "panel")}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True)
class XclbinInfo:
    """What an xclbin says about itself; None is unknown.

    `target` is "hw", "hw_emu" or "sw_emu"; `clock_hz` is the clock of the kernels (after
    linking on hardware: the one that was reached); `built_by` names tool and version.
    """

    path: str
    target: str | None
    platform: str | None
    uuid: str
    kernels: tuple[Kernel, ...]
    memories: tuple[Memory, ...]
    clock_hz: float | None
    built_by: str | None
    facts: Facts
    sections: tuple[Section, ...]

    @property
    def block(self) -> int | None:
        """Edge of a block that the kernel was built for."""
        return self.facts.block

    @property
    def slice_size(self) -> int | None:
        """Height of a slice that the kernel was built for."""
        return self.facts.slice

    @property
    def x_room(self) -> int | None:
        """Entries of x that fit on the chip."""
        return self.facts.x_room

    @property
    def y_room(self) -> int | None:
        """Entries of y that fit on the chip, where it stays there."""
        return self.facts.y_room

    @property
    def kernel_kind(self) -> str | None:
        """Kind of kernel, "block", "scalar" or "lanes"."""
        return self.facts.kernel

    @property
    def format_version(self) -> int | None:
        """Version of the packed matrix stream."""
        return self.facts.format_version

    @property
    def source_hash(self) -> str | None:
        """Hash of the rendered sources."""
        return self.facts.source_hash

    @property
    def compute_units(self) -> int:
        """Number of compute units, over all kernels."""
        return sum(len(kernel.instances) for kernel in self.kernels)

    def kernel(self, name: str) -> Kernel | None:
        """Return the kernel of that name, or None."""
        return next((k for k in self.kernels if k.name == name), None)

    def memory(self, tag: str) -> Memory | None:
        """Return the bank of that tag, or None."""
        return next((m for m in self.memories if m.tag == tag), None)

    def memories_of(self, instance: str, argument: str) -> tuple[Memory, ...]:
        """Return the banks that one argument of one compute unit is connected to.

        Parameters
        ----------
        instance : str
            Name of the compute unit, such as "spmv_block_1".
        argument : str
            Name of the argument.

        Returns
        -------
        tuple of Memory
            Empty where there is no such connection.
        """
        for kernel in self.kernels:
            unit = kernel.instance(instance)
            if unit is not None:
                tags = unit.memories.get(argument, ())
                return tuple(m for m in map(self.memory, tags) if m is not None)
        return ()


# ----------------------------------------------------------------------------------------
# The structs of xclbin.h. "x" is padding.

_MAGIC = b"xclbin2\0"
_HEADER_BYTES = 456
_UNSIGNED = -1
_HEADER = struct.Struct("<8s i 28s 256s Q  Q Q Q H B B H H 16s 64s 16s 16s I 4x")
_SECTION = struct.Struct("<I 16s 4x Q Q")
_COUNT_32 = struct.Struct("<i")
_COUNT_64 = struct.Struct("<i 4x")
_COUNT_16 = struct.Struct("<h")
_MEMORY = struct.Struct("<B B 6x Q Q 16s")
_CONNECTION = struct.Struct("<i i i")
_IP = struct.Struct("<I I Q 64s")
_CLOCK = struct.Struct("<H B 5x 128s")

_MODE_TARGETS = {
    0: "hw", 1: "hw", 2: "hw", 3: "hw", 4: "hw_emu", 5: "sw_emu", 6: "hw_emu",
}  # fmt: skip
_TARGET_MODES = {"hw": 1, "hw_emu": 4, "sw_emu": 5}
# The `target` of the XML's `core`. Vitis writes "hw" and "bitstream" loosely, so only
# the two that mean an emulation are held against the header.
_XML_TARGETS = {"csim": "sw_emu", "hw_em": "hw_emu", "hw_emu": "hw_emu"}
_TARGET_XML = {"hw": "bitstream", "hw_emu": "hw_em", "sw_emu": "csim"}

_MEMORY_KINDS = (
    "DDR3", "DDR4", "DRAM", "STREAM", "PREALLOCATED", "ARE", "HBM", "BRAM", "URAM",
    "STREAM_CONNECTION", "HOST", "PS_KERNEL",
)  # fmt: skip
_STREAM_KINDS = ("STREAM", "STREAM_CONNECTION")  # their size field is a route
_KIBIBYTE = 1024  # the unit of a bank's size
_IP_KERNEL = 1
_IP_CONTROL_CHAIN = 1 << 8
_CLOCK_DATA, _CLOCK_KERNEL = 1, 2

# `addressQualifier` of the XML: 1 global, 2 constant memory, 4 a stream, others values.
_ARGUMENT_KINDS = {1: "memory", 2: "memory", 4: "stream"}

_FACTS_KEY = "spmv_fpga"


def _text(raw: bytes) -> str:
    """Decode a fixed-width field that ends at its first NUL."""
    return raw.split(b"\0", 1)[0].decode("utf-8", errors="replace")


def _fixed(text: str, width: int, what: str) -> bytes:
    """Encode text into a field of that width, of which the last byte must stay NUL."""
    raw = text.encode()
    if len(raw) >= width:
        raise XclbinError(f"{what} {text!r} is longer than {width - 1} bytes; shorten it")
    return raw


# ----------------------------------------------------------------------------------------
# Writing


@dataclass(frozen=True)
class XclbinSpec:
    """All that `write` puts into an xclbin; the file is a pure function of it.

    Parameters
    ----------
    platform : str
        Name of the platform, such as "xilinx_u50_gen3x16_xdma_201920_3".
    target : str
        "hw", "hw_emu" or "sw_emu".
    kernels : tuple of Kernel
        See `lay_out_kernel`.
    memories : tuple of Memory
        See `hbm_banks`.
    clock_hz : float
        Clock of the kernels.
    library : bytes
        Section BITSTREAM: the shared library with the kernels, for software emulation.
    facts : Facts
        The project's own facts.
    built_by : tuple of str
        Name and version of the tool that builds it.
    """

    platform: str
    target: str
    kernels: tuple[Kernel, ...]
    memories: tuple[Memory, ...]
    clock_hz: float
    library: bytes = b""
    facts: Facts = Facts()
    built_by: tuple[str, str] = ("spmv_fpga", "")


def hbm_banks(count: int = 32, bank_bytes: int = 256 * 1024 * 1024) -> tuple[Memory, ...]:
    """Return the banks of a high-bandwidth memory, one after another from address 0.

    The defaults are those of the Alveo U50: 32 pseudo-channels of 256 MiB (AMD UG1393,
    "HBM Configuration and Use").

    >>> hbm_banks()[31].tag, hbm_banks()[31].base
    ('HBM[31]', 8321499136)
    """
    return tuple(
        Memory(tag=f"HBM[{i}]", base=i * bank_bytes, bytes=bank_bytes) for i in range(count)
    )


_CONTROL_PORT = "S_AXI_CONTROL"
_CONTROL_RANGE = 0x10000
# Where Vitis puts the registers of the first unit on this family of platforms.
_FIRST_UNIT_BASE = 0x800000
_FIRST_ARGUMENT_OFFSET = 0x10
# HLS keeps one reserved word behind each argument: 8 + 4 bytes, and 4 + 4 bytes.
_POINTER_BYTES, _SCALAR_BYTES, _RESERVED_BYTES = 8, 4, 4


def lay_out_kernel(
    name: str,
    memory_arguments: Mapping[str, str],
    scalars: Sequence[str],
    units: Mapping[str, Mapping[str, Sequence[str]]],
    *,
    data_width: int = 512,
    first_base: int = _FIRST_UNIT_BASE,
) -> Kernel:
    """Describe a kernel as Vitis lays it out: pointers first, then 32-bit scalars.

    Parameters
    ----------
    name : str
        Name of the C function.
    memory_arguments : mapping of str to str
        Memory port of each pointer argument, in the order of the arguments.
    scalars : sequence of str
        Names of the scalar arguments that follow, in order.
    units : mapping
        For each compute unit, for each pointer argument, the tags of its banks.
    data_width : int
        Width of the memory ports in bits.
    first_base : int
        Address of the first unit's registers; the others follow 64 KiB apart.

    Returns
    -------
    Kernel

    Examples
    --------
    >>> kernel = lay_out_kernel(
    ...     "copy", {"source": "M_AXI_A", "sink": "M_AXI_B"}, ["n"],
    ...     {"copy_1": {"source": ["HBM[0]"], "sink": ["HBM[1]"]}},
    ... )
    >>> [(a.name, hex(a.offset), a.memories) for a in kernel.arguments]
    [('source', '0x10', ('HBM[0]',)), ('sink', '0x1c', ('HBM[1]',)), ('n', '0x28', ())]
    """
    instances = tuple(
        Instance(unit, first_base + i * _CONTROL_RANGE, {a: tuple(t) for a, t in to.items()})
        for i, (unit, to) in enumerate(units.items())
    )
    arguments: list[Argument] = []
    offset = _FIRST_ARGUMENT_OFFSET
    for argument, port in memory_arguments.items():
        tags = _all_tags(instances, argument)
        arguments.append(
            Argument(
                argument, len(arguments), "memory", port, _POINTER_BYTES, offset, "void*", tags
            )
        )
        offset += _POINTER_BYTES + _RESERVED_BYTES
    for scalar in scalars:
        index = len(arguments)
        arguments.append(
            Argument(
                scalar, index, "scalar", _CONTROL_PORT, _SCALAR_BYTES, offset, "unsigned int"
            )
        )
        offset += _SCALAR_BYTES + _RESERVED_BYTES
    masters = dict.fromkeys(memory_arguments.values())
    ports = tuple(Port(port, "master", data_width, 2**64 - 1) for port in masters)
    control = Port(_CONTROL_PORT, "slave", 32, _CONTROL_RANGE)
    return Kernel(name, tuple(arguments), instances, (*ports, control))


def _all_tags(instances: Iterable[Instance], argument: str) -> tuple[str, ...]:
    """Return every bank that an argument reaches, each once, in order of appearance."""
    tags = (tag for unit in instances for tag in unit.memories.get(argument, ()))
    return tuple(dict.fromkeys(tags))


def write(path: str | Path, spec: XclbinSpec) -> None:
    """Write an xclbin, whole or not at all.

    The same `spec` always gives the same bytes: the time stamp is 0 and the uuid comes
    from a hash of the content.

    Parameters
    ----------
    path : str or Path
        File to write; one that is there is replaced.
    spec : XclbinSpec
        What it shall hold.

    Raises
    ------
    XclbinError
        If a name is too long for its field, a compute unit is connected to no bank or to
        one that does not exist, or the file cannot be written.
    """
    _write_atomically(Path(path), _pack(spec))


def write_facts_beside(path: str | Path, facts: Facts) -> Path:
    """Write the facts of an xclbin that another tool made into a file beside it.

    Parameters
    ----------
    path : str or Path
        The xclbin; it need not exist.
    facts : Facts
        What is known of it.

    Returns
    -------
    Path
        `NAME.xclbin.json`.
    """
    side_file = _side_file(Path(path))
    _write_atomically(side_file, _facts_json(facts))
    return side_file


def _side_file(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _write_atomically(path: Path, content: bytes) -> None:
    try:
        write_whole(path, content)
    except OSError as error:
        reason = f"cannot be written ({error.strerror}); choose a folder that can be written"
        raise XclbinError(reason, path=path) from error


def _pack(spec: XclbinSpec) -> bytes:
    _check_spec(spec)
    sections = _section_data(spec)
    digest = hashlib.sha256()
    for part in (spec.platform.encode(), spec.target.encode(), *sections.values()):
        digest.update(len(part).to_bytes(8, "little") + part)
    identity = digest.digest()

    offset = _align(_HEADER_BYTES + _SECTION.size * len(sections))
    table, body = b"", bytearray()
    for kind, data in sections.items():
        table += _SECTION.pack(kind, b"", offset + len(body), len(data))
        body += data + bytes(_align(len(data)) - len(data))
    header = _HEADER.pack(
        _MAGIC, _UNSIGNED, b"\xff" * 28, b"\xff" * 256, int.from_bytes(identity[:8], "little"),
        offset + len(body), 0, 0, 0, 2, 1, _TARGET_MODES[spec.target], 0, b"",
        _fixed(spec.platform, 64, "platform"), _uuid_of(identity).bytes, b"", len(sections),
    )  # fmt: skip
    start = header + table
    return start + bytes(offset - len(start)) + bytes(body)


def _align(size: int) -> int:
    """Round up to the 8 bytes at which sections start."""
    return -(-size // 8) * 8


def _uuid_of(digest: bytes) -> uuids.UUID:
    return uuids.UUID(bytes=digest[:16], version=5)


def _check_spec(spec: XclbinSpec) -> None:
    if spec.target not in _TARGET_MODES:
        raise XclbinError(f"target is {spec.target!r}; it must be hw, hw_emu or sw_emu")
    if not 0 < spec.clock_hz < 2**16 * 1e6:
        raise XclbinError(f"clock_hz is {spec.clock_hz:g}; it must lie between 0 and 65.5e9")
    for kernel in spec.kernels:
        pointers = [argument.name for argument in kernel.arguments if argument.is_memory]
        for unit in kernel.instances:
            for name in dict.fromkeys([*pointers, *unit.memories]):
                if name not in pointers:
                    raise XclbinError(
                        f"{unit.name} connects {name}, but the memory arguments of "
                        f"{kernel.name} are {', '.join(pointers)}"
                    )
                _check_connection(spec, unit, name)


def _check_connection(spec: XclbinSpec, unit: Instance, argument: str) -> None:
    wanted = unit.memories.get(argument, ())
    what = f"argument {argument} of {unit.name}"
    # XRT's emulation driver crashes at launch on an argument without a bank.
    if not wanted:
        raise XclbinError(f"{what} has no memory bank; connect it to one")
    # It knows no groups: a buffer of one lands in the bank at address 0, without a word.
    if len(wanted) > 1 and spec.target == "sw_emu":
        raise XclbinError(
            f"{what} is connected to {', '.join(wanted)}; software emulation takes one bank"
        )
    tags = {memory.tag for memory in spec.memories}
    for tag in wanted:
        if tag not in tags:
            raise XclbinError(
                f"{what} is connected to {tag}, which is no memory bank of this platform"
            )


def _section_data(spec: XclbinSpec) -> dict[SectionKind, bytes]:
    units = [(kernel, unit) for kernel in spec.kernels for unit in kernel.instances]
    index_of = {memory.tag: i for i, memory in enumerate(spec.memories)}
    links = [
        (argument.index, ip, tuple(index_of[tag] for tag in unit.memories[argument.name]))
        for ip, (kernel, unit) in enumerate(units)
        for argument in kernel.arguments
        if argument.is_memory
    ]
    grouped_memories, grouped_links = _group(spec.memories, links)
    return {
        SectionKind.BITSTREAM: spec.library,
        SectionKind.EMBEDDED_METADATA: _xml(spec),
        SectionKind.MEM_TOPOLOGY: _memory_table(spec.memories),
        SectionKind.CONNECTIVITY: _connection_table(
            [(a, ip, bank) for a, ip, banks in links for bank in banks]
        ),
        SectionKind.IP_LAYOUT: _ip_table(units),
        SectionKind.CLOCK_FREQ_TOPOLOGY: _clock_table(spec.clock_hz),
        SectionKind.BUILD_METADATA: _build_json(spec),
        SectionKind.USER_METADATA: _facts_json(spec.facts),
        SectionKind.ASK_GROUP_TOPOLOGY: _memory_table(grouped_memories),
        SectionKind.ASK_GROUP_CONNECTIVITY: _connection_table(grouped_links),
    }


_Link = tuple[int, int, tuple[int, ...]]


def _group(
    memories: Sequence[Memory], links: Sequence[_Link]
) -> tuple[list[Memory], list[tuple[int, int, int]]]:
    """Add one group of banks for each argument that is connected to several.

    In the grouped sections an argument is connected to exactly one entry.
    """
    grouped = list(memories)
    group_of: dict[tuple[int, ...], int] = {}
    connections = []
    for argument, ip, banks in links:
        if len(banks) == 1:
            connections.append((argument, ip, banks[0]))
            continue
        if banks not in group_of:
            members = [memories[bank] for bank in banks]
            group_of[banks] = len(grouped)
            total = sum(member.bytes for member in members)
            grouped.append(replace(members[0], tag=f"MBG[{len(group_of) - 1}]", bytes=total))
        connections.append((argument, ip, group_of[banks]))
    return grouped, connections


def _memory_table(memories: Sequence[Memory]) -> bytes:
    rows = (
        _MEMORY.pack(
            _MEMORY_KINDS.index(m.kind), m.is_used, m.bytes // _KIBIBYTE, m.base,
            _fixed(m.tag, 16, "memory tag"),
        )
        for m in memories
    )  # fmt: skip
    return _COUNT_64.pack(len(memories)) + b"".join(rows)


def _connection_table(connections: Sequence[tuple[int, int, int]]) -> bytes:
    rows = (_CONNECTION.pack(*connection) for connection in connections)
    return _COUNT_32.pack(len(connections)) + b"".join(rows)


def _ip_table(units: Sequence[tuple[Kernel, Instance]]) -> bytes:
    rows = (
        _IP.pack(
            _IP_KERNEL, _IP_CONTROL_CHAIN, unit.base or 0,
            _fixed(f"{kernel.name}:{unit.name}", 64, "compute unit"),
        )
        for kernel, unit in units
    )  # fmt: skip
    return _COUNT_64.pack(len(units)) + b"".join(rows)


def _clock_table(clock_hz: float) -> bytes:
    clocks = ((_CLOCK_DATA, b"DATA_CLK"), (_CLOCK_KERNEL, b"KERNEL_CLK"))
    rows = (_CLOCK.pack(round(clock_hz / 1e6), kind, name) for kind, name in clocks)
    return _COUNT_16.pack(len(clocks)) + b"".join(rows)


def _json_bytes(value: object) -> bytes:
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False).encode()


def _facts_json(facts: Facts) -> bytes:
    known = {key: value for key, value in asdict(facts).items() if value is not None}
    return _json_bytes({_FACTS_KEY: known})


def _build_json(spec: XclbinSpec) -> bytes:
    name, version = spec.built_by
    xclbin = {
        "generated_by": {"name": name, "version": version},
        "target": spec.target,
    }
    return _json_bytes({"build_metadata": {"dsa": {"name": spec.platform}, "xclbin": xclbin}})


def _xml(spec: XclbinSpec) -> bytes:
    project = ET.Element("project", name="spmv_fpga")
    platform = ET.SubElement(project, "platform", vendor="xilinx", name=spec.platform)
    device = ET.SubElement(platform, "device", name="fpga0")
    core = ET.SubElement(
        device, "core", name="OCL_REGION_0", target=_TARGET_XML[spec.target],
        type="clc_region", numComputeUnits=str(sum(len(k.instances) for k in spec.kernels)),
    )  # fmt: skip
    clocks = ET.SubElement(core, "kernelClocks")
    for port in ("DATA_CLK", "KERNEL_CLK"):
        ET.SubElement(clocks, "clock", port=port, frequency=f"{spec.clock_hz / 1e6:.9g}MHz")
    for kernel in spec.kernels:
        _add_kernel(core, kernel)
    ET.indent(project)
    document: bytes = ET.tostring(project, "utf-8", xml_declaration=True)
    return document


def _add_kernel(core: ET.Element, kernel: Kernel) -> None:
    element = ET.SubElement(
        core, "kernel", name=kernel.name, language="c", hwControlProtocol="ap_ctrl_chain",
        workGroupSize="1", interrupt="true",
    )  # fmt: skip
    for size in ("compileWorkGroupSize", "maxWorkGroupSize"):
        ET.SubElement(element, size, x="1", y="1", z="1")
    for port in kernel.ports:
        ET.SubElement(
            element, "port", name=port.name, mode=port.mode, range=hex(port.range),
            dataWidth=str(port.data_width), portType="addressable", base=hex(port.base),
        )  # fmt: skip
    for argument in kernel.arguments:
        size = hex(argument.size)
        ET.SubElement(
            element, "arg", name=argument.name, id=str(argument.index), port=argument.port,
            addressQualifier="1" if argument.is_memory else "0", size=size,
            offset=hex(argument.offset), hostOffset="0x0", hostSize=size, type=argument.type,
        )  # fmt: skip
    for unit in kernel.instances:
        instance = ET.SubElement(element, "instance", name=unit.name)
        ET.SubElement(
            instance, "addrRemap", base=hex(unit.base or 0), range=hex(_CONTROL_RANGE),
            port=_CONTROL_PORT,
        )  # fmt: skip


# ----------------------------------------------------------------------------------------
# Reading


def read(path: str | Path) -> XclbinInfo:
    """Read what an xclbin says about itself.

    Parameters
    ----------
    path : str or Path
        The file; `NAME.xclbin.json` beside it is used where its own facts are missing.

    Returns
    -------
    XclbinInfo

    Raises
    ------
    XclbinError
        If the file is missing, no xclbin, cut short, or contradicts itself.
    """
    try:
        require_file(path)
        path = Path(path)
        with path.open("rb") as file:
            return _Reader(file, path).info()
    except OSError as error:
        raise XclbinError(
            f"cannot be read ({error.strerror}); check its name", path=path
        ) from error


def read_section(path: str | Path, kind: int) -> bytes | None:
    """Return the first section of that kind as it stands in the file, or None.

    Raises
    ------
    XclbinError
        If the file is missing, no xclbin, or cut short.
    """
    try:
        require_file(path)
        path = Path(path)
        with path.open("rb") as file:
            return _Reader(file, path).data(kind)
    except OSError as error:
        raise XclbinError(
            f"cannot be read ({error.strerror}); check its name", path=path
        ) from error


class _Reader:
    """An open container: header and section table are checked when it is made."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self.file = file
        self.path = path
        self.file_bytes = os.fstat(file.fileno()).st_size
        header = file.read(_HEADER_BYTES)
        if header[: len(_MAGIC)] != _MAGIC:
            raise self.error("is no xclbin (it does not start with xclbin2); give one")
        if len(header) < _HEADER_BYTES:
            raise self.cut(f"the header takes {_HEADER_BYTES} bytes")
        (_, _, _, _, _, length, _, _, _, _, _, self.mode, _, _,
         platform, self.uuid, _, num_sections) = _HEADER.unpack(header)  # fmt: skip
        self.platform = _text(platform)
        if length > self.file_bytes:
            raise self.cut(f"its header promises {length} bytes")
        self.sections = tuple(self._sections(num_sections))

    def _sections(self, count: int) -> Iterator[Section]:
        size = count * _SECTION.size
        if _HEADER_BYTES + size > self.file_bytes:
            raise self.cut(f"its table of {count} sections takes {size} bytes")
        for kind, name, offset, bytes_ in _SECTION.iter_unpack(self.file.read(size)):
            if offset + bytes_ > self.file_bytes:
                raise self.cut(f"section {kind} ends at byte {offset + bytes_}")
            yield Section(kind, _text(name), offset, bytes_)

    def error(self, reason: str) -> XclbinError:
        return XclbinError(reason, path=self.path)

    def cut(self, promise: str) -> XclbinError:
        return self.error(
            f"is cut short: {promise}, but the file has {self.file_bytes}; "
            "build or copy it again"
        )

    def data(self, kind: int) -> bytes | None:
        for section in self.sections:
            if section.kind == kind:
                self.file.seek(section.offset)
                return self.file.read(section.size)
        return None

    def rows(self, kind: int, count: struct.Struct, row: struct.Struct) -> list[Any] | None:
        """Unpack a section that is a count and as many rows; None where it is missing."""
        data = self.data(kind)
        if data is None:
            return None
        stated = count.unpack_from(data)[0] if len(data) >= count.size else -1
        end = count.size + stated * row.size
        if stated < 0 or end > len(data):
            raise self.error(
                f"section {kind} has {len(data)} bytes, too few for its {stated} entries; "
                "build or copy the file again"
            )
        return list(row.iter_unpack(data[count.size : end]))

    # What the sections mean.

    def info(self) -> XclbinInfo:
        core = self.core()
        memories, connections = self.banks()
        build = self.build()
        return XclbinInfo(
            path=str(self.path),
            target=self.target(core),
            platform=self.platform or None,
            uuid=str(uuids.UUID(bytes=self.uuid)),
            kernels=tuple(self.kernels(core, memories, connections)),
            memories=tuple(memories),
            clock_hz=self.clock_hz(core),
            built_by=" ".join(build) or None,
            facts=self.facts(),
            sections=self.sections,
        )

    def core(self) -> ET.Element | None:
        """Return the XML element that holds the kernels."""
        data = self.data(SectionKind.EMBEDDED_METADATA)
        if data is None:
            return None
        try:
            text = data.rstrip(b"\0").decode("utf-8-sig")
            # Entities can only be declared in a document type, and no tool writes one.
            if "<!DOCTYPE" in text:
                raise self.error("has a document type in its XML, which is not safe to read")
            return ET.fromstring(text).find("platform/device/core")
        except (UnicodeDecodeError, ET.ParseError) as error:
            raise self.error(f"holds XML that cannot be read ({error})") from error

    def target(self, core: ET.Element | None) -> str | None:
        target = _MODE_TARGETS.get(self.mode)
        stated = _XML_TARGETS.get("" if core is None else core.get("target", ""))
        if stated is not None and stated != target:
            raise self.error(
                f"contradicts itself: built for {target} by its header (mode {self.mode}), "
                f"for {stated} by its XML; build it again"
            )
        return target

    def banks(self) -> tuple[list[Memory], list[tuple[int, int, int]]]:
        """Return the banks and (argument, unit, bank) connections that belong together."""
        pairs = (
            (SectionKind.MEM_TOPOLOGY, SectionKind.CONNECTIVITY),
            (SectionKind.ASK_GROUP_TOPOLOGY, SectionKind.ASK_GROUP_CONNECTIVITY),
        )
        present = {section.kind for section in self.sections}
        topology, connectivity = next((p for p in pairs if present.issuperset(p)), pairs[0])
        memories = [
            Memory(
                tag=_text(tag),
                base=base,
                bytes=0 if _memory_kind(kind) in _STREAM_KINDS else size * _KIBIBYTE,
                is_used=bool(used),
                kind=_memory_kind(kind),
            )
            for kind, used, size, base, tag in self.rows(topology, _COUNT_64, _MEMORY) or ()
        ]
        connections = self.rows(connectivity, _COUNT_32, _CONNECTION) or []
        for _, _, bank in connections:
            if not 0 <= bank < len(memories):
                raise self.error(
                    f"connects an argument to memory {bank}, but lists {len(memories)}; "
                    "build it again"
                )
        return memories, connections

    def kernels(
        self,
        core: ET.Element | None,
        memories: Sequence[Memory],
        connections: Sequence[tuple[int, int, int]],
    ) -> Iterator[Kernel]:
        bases: dict[str, int] = {}
        links: dict[str, dict[int, list[str]]] = {}
        units = self.rows(SectionKind.IP_LAYOUT, _COUNT_64, _IP) or ()
        for ip, (_, _, base, name) in enumerate(units):
            unit = _text(name)
            bases[unit] = base
            links[unit] = {}
            for argument, owner, bank in connections:
                if owner == ip:
                    links[unit].setdefault(argument, []).append(memories[bank].tag)
        for element in () if core is None else core.iter("kernel"):
            yield self.kernel(element, bases, links)

    def kernel(
        self,
        element: ET.Element,
        bases: Mapping[str, int],
        links: Mapping[str, Mapping[int, Sequence[str]]],
    ) -> Kernel:
        name = element.get("name", "")
        # Arguments without a number, such as a print buffer, are not the caller's.
        found = (self.argument(e) for e in element.findall("arg") if e.get("id"))
        arguments = sorted(found, key=lambda argument: argument.index)
        instances = []
        for unit in element.findall("instance"):
            unit_name = unit.get("name", "")
            label = f"{name}:{unit_name}"
            tags = links.get(label, {})
            memories = {a.name: tuple(tags[a.index]) for a in arguments if a.index in tags}
            remap = unit.find("addrRemap")
            base = None if remap is None else self.number(remap, "base")
            instances.append(Instance(unit_name, bases.get(label, base), memories))
        return Kernel(
            name=name,
            arguments=tuple(
                replace(a, memories=_all_tags(instances, a.name)) for a in arguments
            ),
            instances=tuple(instances),
            ports=tuple(self.port(e) for e in element.findall("port")),
        )

    def argument(self, element: ET.Element) -> Argument:
        return Argument(
            name=element.get("name", ""),
            index=self.number(element, "id"),
            kind=_ARGUMENT_KINDS.get(self.number(element, "addressQualifier"), "scalar"),
            port=element.get("port", ""),
            size=self.number(element, "size"),
            offset=self.number(element, "offset"),
            type=element.get("type", ""),
        )

    def port(self, element: ET.Element) -> Port:
        return Port(
            name=element.get("name", ""),
            mode=element.get("mode", ""),
            data_width=self.number(element, "dataWidth"),
            range=self.number(element, "range"),
            base=self.number(element, "base"),
        )

    def number(self, element: ET.Element, attribute: str) -> int:
        """Return an attribute that is decimal or hexadecimal; 0 where it is missing."""
        text = element.get(attribute) or "0"
        try:
            return int(text, 0)
        except ValueError as error:
            raise self.error(
                f"has {attribute}={text!r} in its XML where a number belongs; build it again"
            ) from error

    def clock_hz(self, core: ET.Element | None) -> float | None:
        """Return the frequency of the clock that drives the kernels, `ap_clk`.

        The clock section holds what linking reached, in whole MHz. The XML is finer, but
        on hardware keeps the frequency that was asked for; it counts where both agree.
        """
        clocks = self.rows(SectionKind.CLOCK_FREQ_TOPOLOGY, _COUNT_16, _CLOCK) or ()
        reached = next((mhz for mhz, kind, _ in clocks if kind == _CLOCK_DATA), None)
        stated = _xml_clock_mhz(core)
        if reached is None or (stated is not None and round(stated) == reached):
            return None if stated is None else stated * 1e6
        return float(reached * 1e6)

    def build(self) -> list[str]:
        """Return name and version of the tool that made the file, as far as it says so."""
        found: Any = self.json(SectionKind.BUILD_METADATA)
        for key in ("build_metadata", "xclbin", "generated_by"):
            found = found.get(key) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            return []
        return [str(found[key]) for key in ("name", "version") if found.get(key)]

    def json(self, kind: int) -> object:
        """Return the content of a JSON section, None where it is missing or no JSON.

        These sections are free text to the container, so other text is no error.
        """
        return _parsed(self.data(kind) or b"")

    def facts(self) -> Facts:
        embedded = _facts_in(self.json(SectionKind.USER_METADATA))
        if embedded is not None:
            return self.checked(embedded)
        try:
            beside = _side_file(self.path).read_bytes()
        except OSError:
            return Facts()
        return self.checked(_facts_in(_parsed(beside)) or {})

    def checked(self, raw: Mapping[str, Any]) -> Facts:
        """Keep the facts that are known here, and refuse one of the wrong type."""
        known = {f.name: raw[f.name] for f in fields(Facts) if raw.get(f.name) is not None}
        for name, value in known.items():
            wanted = str if name in ("kernel", "version", "source_hash") else int
            if type(value) is not wanted:
                raise self.error(f"says {name}={value!r}, which is no {wanted.__name__}")
        return Facts(**known)


def _memory_kind(number: int) -> str:
    return _MEMORY_KINDS[number] if number < len(_MEMORY_KINDS) else f"UNKNOWN_{number}"


def _xml_clock_mhz(core: ET.Element | None) -> float | None:
    for clock in () if core is None else core.iter("clock"):
        if clock.get("port") == "DATA_CLK":
            try:
                mhz = float(clock.get("frequency", "").removesuffix("MHz"))
            except ValueError:
                return None
            return mhz if math.isfinite(mhz) else None
    return None


def _parsed(data: bytes) -> object:
    try:
        return json.loads(data.rstrip(b"\0"))
    except (ValueError, RecursionError):
        return None


def _facts_in(document: object) -> Mapping[str, Any] | None:
    found = document.get(_FACTS_KEY) if isinstance(document, dict) else None
    return found if isinstance(found, dict) else None


def to_json(info: XclbinInfo) -> dict[str, Any]:
    """Return the document of `spmv-fpga info --json`; unknown values are None."""
    return {
        "file": info.path,
        "target": info.target,
        "platform": info.platform,
        "uuid": info.uuid,
        "kernels": [_kernel_json(kernel) for kernel in info.kernels],
        "memories": [
            {"tag": m.tag, "base": m.base, "bytes": m.bytes, "kind": m.kind, "used": m.is_used}
            for m in info.memories
        ],
        "clock_hz": info.clock_hz,
        "block": info.block,
        "slice": info.slice_size,
        "compute_units": info.compute_units,
        "built_by": info.built_by,
        "kernel": info.kernel_kind,
        "x_room": info.x_room,
        "depth": info.facts.depth,
        "panel": info.facts.panel,
        "y_room": info.y_room,
        "format_version": info.format_version,
        "spmv_fpga": info.facts.version,
        "source_hash": info.source_hash,
        "sections": [asdict(section) for section in info.sections],
    }


def _kernel_json(kernel: Kernel) -> dict[str, Any]:
    return {
        "name": kernel.name,
        "arguments": [{**asdict(a), "memories": list(a.memories)} for a in kernel.arguments],
        "instances": [
            {
                "name": unit.name,
                "base": unit.base,
                "memories": {name: list(tags) for name, tags in unit.memories.items()},
            }
            for unit in kernel.instances
        ],
    }
