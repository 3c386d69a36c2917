"""The xclbin container: what is written is read back, and files of other tools are read."""

from __future__ import annotations

import json
import struct
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from spmv_fpga.errors import XclbinError
from spmv_fpga.toolchain import xclbin

HEADER_BYTES = 456  # up to and including the number of sections and its padding
LENGTH_AT, MODE_AT, COUNT_AT = 304, 332, 448
FACTS = xclbin.Facts("block", 16, 16, 65536, 1, "0.1.0", "ab12")


def block_kernel(units: int = 2) -> xclbin.Kernel:
    return xclbin.lay_out_kernel(
        "spmv_block",
        {"matrix": "M_AXI_MATRIX", "x": "M_AXI_XY", "y": "M_AXI_XY"},
        ["num_words", "iterations"],
        {
            f"spmv_block_{i + 1}": {
                "matrix": [f"HBM[{2 * i}]"],
                "x": [f"HBM[{2 * i + 1}]"],
                "y": [f"HBM[{2 * i + 1}]"],
            }
            for i in range(units)
        },
    )


def emulation_spec(**changes: object) -> xclbin.XclbinSpec:
    spec = xclbin.XclbinSpec(
        platform="xilinx_u50_gen3x16_xdma_201920_3",
        target="sw_emu",
        kernels=(block_kernel(),),
        memories=xclbin.hbm_banks(),
        clock_hz=300e6,
        library=b"\x7fELF library",
        facts=FACTS,
        built_by=("spmv_fpga", "0.1.0"),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "block.xclbin"
    xclbin.write(path, emulation_spec())
    return path


def container(
    sections: dict[int, bytes], *, mode: int = 1, platform: bytes = b"xilinx_u50"
) -> bytes:
    """Pack a container by hand, as another tool would, with sections back to back."""
    offset = HEADER_BYTES + 40 * len(sections)
    table, body = b"", b""
    for kind, data in sections.items():
        table += struct.pack("<I16s4xQQ", kind, b"name", offset + len(body), len(data))
        body += data
    head = b"xclbin2\0" + struct.pack("<i", -1) + b"\xff" * 284 + bytes(8)
    head += struct.pack("<QQQHBBHH", offset + len(body), 1, 2, 3, 2, 9, mode, 0)
    head += struct.pack("<16s64s16s16sI4x", b"", platform, b"\x01" * 16, b"", len(sections))
    return head + table + body


def read_bytes(tmp_path: Path, content: bytes) -> xclbin.XclbinInfo:
    path = tmp_path / "given.xclbin"
    path.write_bytes(content)
    return xclbin.read(path)


# As Vitis writes it: elements and attributes that mean nothing here, empty numbers of
# stream ports, an argument without a number, several clocks.
VITIS_XML = b"""<?xml version="1.0" encoding="UTF-8"?>
<project name="block"><platform vendor="xilinx" boardid="u50" name="gen3x16_xdma">
<version major="2022" minor="1"/><board name="u50"><memories/></board>
<device name="fpga0" addrWidth="0">
<core name="OCL_REGION_0" target="bitstream" type="clc_region" numComputeUnits="1">
<kernelClocks>
<clock port="KERNEL_CLK" frequency="500.000000MHz"/>
<clock port="DATA_CLK" frequency="300.000000MHz"/>
</kernelClocks>
<kernel name="spmv_block" language="c" vlnv="x:y:z:1.0" hwControlProtocol="ap_ctrl_chain">
<string_table/>
<port name="M_AXI_GMEM" mode="master" range="0xFFFFFFFF" dataWidth="512" base="0x0"/>
<port name="S" mode="read_only" range="" dataWidth="32" portType="stream" base=""/>
<arg name="y" addressQualifier="1" id="1" port="M_AXI_GMEM" size="0x8" offset="0x1C"
 type="float*"/>
<arg name="matrix" addressQualifier="1" id="0" port="M_AXI_GMEM" size="0x8" offset="0x10"
 type="int*"/>
<arg name="link" addressQualifier="4" id="2" port="S" size="0x4" offset="0" type="stream"/>
<arg name="printf_buffer" addressQualifier="1" id="" port="" size="0x8" offset="" type=""/>
<instance name="b0"><addrRemap base="0x1800000" range="0x10000" port="S_AXI_CONTROL"/>
</instance></kernel></core></device></platform></project>"""


def vitis_sections() -> dict[int, bytes]:
    banks = [(6, 1, 262144, 0, b"HBM[0]"), (1, 0, 128, 2**33, b"PLRAM[0]"), (3, 1, 7, 9, b"s0")]
    topology = struct.pack("<i4x", len(banks)) + b"".join(
        struct.pack("<BB6xQQ16s", *bank) for bank in banks
    )
    links = struct.pack("<i", 2) + struct.pack("<6i", 0, 1, 0, 1, 1, 0)
    ips = [(4, 0, 0, b"ddr_controller"), (1, 256, 0x1800000, b"spmv_block:b0")]
    layout = struct.pack("<i4x", 2) + b"".join(struct.pack("<IIQ64s", *ip) for ip in ips)
    clocks = [(500, 2, b"KERNEL_CLK"), (287, 1, b"DATA_CLK"), (450, 3, b"hbm_aclk")]
    frequencies = struct.pack("<h", 3) + b"".join(
        struct.pack("<HB5x128s", *clock) for clock in clocks
    )
    build = {
        "build_metadata": {"xclbin": {"generated_by": {"name": "v++", "version": "2022.2"}}}
    }
    return {
        0: b"bitstream", 2: VITIS_XML, 6: topology, 7: links, 8: layout, 9: b"debug",
        11: frequencies, 14: json.dumps(build).encode(), 20: b"tree", 99: b"of the future",
    }  # fmt: skip


def test_a_round_trip_gives_everything_back(tmp_path: Path) -> None:
    spec = emulation_spec(clock_hz=312.5e6)
    xclbin.write(tmp_path / "a.xclbin", spec)
    info = xclbin.read(tmp_path / "a.xclbin")
    assert info.kernels == spec.kernels
    assert info.memories == spec.memories
    assert (info.target, info.platform) == ("sw_emu", "xilinx_u50_gen3x16_xdma_201920_3")
    assert info.clock_hz == 312.5e6
    assert info.facts == FACTS
    assert info.built_by == "spmv_fpga 0.1.0"
    assert info.compute_units == 2
    assert xclbin.read_section(tmp_path / "a.xclbin", 0) == b"\x7fELF library"


def test_facts_are_attributes(written: Path) -> None:
    info = xclbin.read(written)
    assert (info.block, info.slice_size, info.x_room) == (16, 16, 65536)
    assert (info.kernel_kind, info.format_version, info.source_hash) == ("block", 1, "ab12")


@pytest.mark.parametrize("target", ["hw", "hw_emu", "sw_emu"])
def test_each_target_is_told_by_the_header(tmp_path: Path, target: str) -> None:
    xclbin.write(tmp_path / "a.xclbin", emulation_spec(target=target))
    assert xclbin.read(tmp_path / "a.xclbin").target == target


def test_sections_are_those_that_the_runtime_needs_and_aligned(written: Path) -> None:
    sections = xclbin.read(written).sections
    assert [s.kind for s in sections] == [0, 2, 6, 7, 8, 11, 14, 16, 26, 27]
    assert all(s.offset % 8 == 0 for s in sections)


def test_arguments_stand_where_vitis_puts_them() -> None:
    offsets = {a.name: a.offset for a in block_kernel().arguments}
    assert offsets == {
        "matrix": 0x10,
        "x": 0x1C,
        "y": 0x28,
        "num_words": 0x34,
        "iterations": 0x3C,
    }
    assert [a.size for a in block_kernel().arguments] == [8, 8, 8, 4, 4]


def test_units_have_registers_and_banks_of_their_own(written: Path) -> None:
    info = xclbin.read(written)
    first, second = info.kernels[0].instances
    assert second.base == 0x10000 + first.base
    assert [m.tag for m in info.memories_of("spmv_block_2", "matrix")] == ["HBM[2]"]
    assert info.memories_of("spmv_block_3", "matrix") == ()
    assert info.kernels[0].arguments[0].memories == ("HBM[0]", "HBM[2]")


def test_an_argument_on_several_banks_becomes_one_group_for_the_runtime(tmp_path: Path) -> None:
    units = {"k_1": {"a": ["HBM[0]", "HBM[1]"], "b": ["HBM[2]"]}}
    kernel = xclbin.lay_out_kernel("k", {"a": "M_A", "b": "M_B"}, [], units)
    path = tmp_path / "a.xclbin"
    xclbin.write(path, emulation_spec(kernels=(kernel,), target="hw_emu"))
    assert [m.tag for m in xclbin.read(path).memories_of("k_1", "a")] == ["HBM[0]", "HBM[1]"]
    topology, links = xclbin.read_section(path, 26), xclbin.read_section(path, 27)
    assert topology is not None
    group = struct.unpack_from("<BB6xQQ16s", topology, 8 + 32 * 40)
    assert group == (6, 1, 2 * 262144, 0, b"MBG[0]".ljust(16, b"\0"))
    assert links == struct.pack("<7i", 2, 0, 0, 32, 1, 0, 2)


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        xclbin.write(tmp_path / name, emulation_spec())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_another_library_gives_another_uuid(tmp_path: Path) -> None:
    for name in ("a", "b"):
        xclbin.write(tmp_path / name, emulation_spec(library=name.encode()))
    assert xclbin.read(tmp_path / "a").uuid != xclbin.read(tmp_path / "b").uuid


def test_only_the_finished_file_is_left(written: Path) -> None:
    xclbin.write(written, emulation_spec())
    assert [p.name for p in written.parent.iterdir()] == ["block.xclbin"]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(XclbinError, match=r"nowhere/a\.xclbin: cannot be written"):
        xclbin.write(tmp_path / "nowhere" / "a.xclbin", emulation_spec())


def test_a_unit_without_a_bank_is_refused(tmp_path: Path) -> None:
    kernel = xclbin.lay_out_kernel("k", {"a": "M_A"}, [], {"k_1": {}})
    with pytest.raises(XclbinError, match="argument a of k_1 has no memory bank"):
        xclbin.write(tmp_path / "a.xclbin", emulation_spec(kernels=(kernel,)))
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("units", "reason"),
    [
        ({"k_1": {"a": ["HBM[40]"]}}, r"connected to HBM\[40\]"),
        ({"k_1": {"a": ["HBM[0]", "HBM[1]"]}}, "software emulation takes one bank"),
        ({"k_1": {"a": ["HBM[0]"], "z": ["HBM[0]"]}}, "k_1 connects z"),
        ({"k" * 64: {"a": ["HBM[0]"]}}, "longer than 63 bytes"),
    ],
)
def test_units_that_cannot_be_connected_are_refused(
    tmp_path: Path, units: dict[str, dict[str, list[str]]], reason: str
) -> None:
    kernel = xclbin.lay_out_kernel("k", {"a": "M_A"}, [], units)
    with pytest.raises(XclbinError, match=reason):
        xclbin.write(tmp_path / "a.xclbin", emulation_spec(kernels=(kernel,)))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"target": "csim"}, "target is 'csim'"),
        ({"clock_hz": 0.0}, "clock_hz is 0"),
        ({"clock_hz": float("nan")}, "clock_hz is nan"),
        ({"platform": "u" * 64}, "platform 'u+' is longer than 63 bytes"),
    ],
)
def test_values_that_do_not_fit_the_container_are_refused(
    tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    with pytest.raises(XclbinError, match=reason):
        xclbin.write(tmp_path / "a.xclbin", emulation_spec(**changes))


def test_a_file_of_vitis_is_read(tmp_path: Path) -> None:
    info = read_bytes(tmp_path, container(vitis_sections()))
    assert (info.target, info.platform, info.built_by) == ("hw", "xilinx_u50", "v++ 2022.2")
    (kernel,) = info.kernels
    assert [(a.name, a.index, a.kind) for a in kernel.arguments] == [
        ("matrix", 0, "memory"),
        ("y", 1, "memory"),
        ("link", 2, "stream"),
    ]
    memories = {"matrix": ("HBM[0]",), "y": ("HBM[0]",)}
    assert kernel.instances == (xclbin.Instance("b0", 0x1800000, memories),)
    assert info.facts == xclbin.Facts()


def test_the_clock_is_the_one_that_linking_reached(tmp_path: Path) -> None:
    sections = vitis_sections()
    assert read_bytes(tmp_path, container(sections)).clock_hz == 287e6
    del sections[11]
    assert read_bytes(tmp_path, container(sections)).clock_hz == 300e6


def test_banks_of_every_kind_are_listed_and_streams_have_no_size(tmp_path: Path) -> None:
    memories = read_bytes(tmp_path, container(vitis_sections())).memories
    assert [(m.tag, m.kind, m.bytes, m.is_used) for m in memories] == [
        ("HBM[0]", "HBM", 268435456, True),
        ("PLRAM[0]", "DDR4", 131072, False),
        ("s0", "STREAM", 0, True),
    ]


def test_the_grouped_sections_serve_where_the_plain_ones_are_missing(tmp_path: Path) -> None:
    sections = vitis_sections()
    sections[26], sections[27] = sections.pop(6), sections.pop(7)
    info = read_bytes(tmp_path, container(sections))
    assert [m.tag for m in info.memories_of("b0", "y")] == ["HBM[0]"]


def test_what_is_not_there_is_unknown(tmp_path: Path) -> None:
    info = read_bytes(tmp_path, container({}, mode=7, platform=b""))
    assert (info.target, info.platform, info.clock_hz, info.built_by) == (None,) * 4
    assert (info.kernels, info.memories, info.compute_units) == ((), (), 0)


def test_facts_beside_the_file_are_used(tmp_path: Path) -> None:
    path = tmp_path / "given.xclbin"
    assert xclbin.write_facts_beside(path, FACTS) == tmp_path / "given.xclbin.json"
    assert read_bytes(tmp_path, container(vitis_sections())).facts == FACTS


def test_facts_inside_the_file_win(written: Path) -> None:
    xclbin.write_facts_beside(written, replace(FACTS, block=32))
    assert xclbin.read(written).block == 16


def test_facts_of_a_later_version_are_ignored(tmp_path: Path) -> None:
    facts = json.dumps({"spmv_fpga": {"block": 8, "lanes": 4}}).encode()
    assert read_bytes(tmp_path, container({16: facts})).facts == xclbin.Facts(block=8)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"[1]", b"[" * 100_000, b'{"other": {}}'])
def test_other_text_in_the_user_section_is_no_error(tmp_path: Path, content: bytes) -> None:
    assert read_bytes(tmp_path, container({16: content})).facts == xclbin.Facts()


def test_a_fact_of_the_wrong_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(XclbinError, match="block='16', which is no int"):
        read_bytes(tmp_path, container({16: b'{"spmv_fpga": {"block": "16"}}'}))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(XclbinError, match=r"no\.xclbin: cannot be read \(No such file"):
        xclbin.read(tmp_path / "no.xclbin")


@pytest.mark.parametrize("content", [b"", b"xclbin", b"fake output of: -o block.xclbin"])
def test_a_file_that_is_no_xclbin_is_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(XclbinError, match="is no xclbin"):
        read_bytes(tmp_path, content)


def test_every_cut_is_noticed(tmp_path: Path, written: Path) -> None:
    whole = written.read_bytes()
    for length in [
        8,
        100,
        HEADER_BYTES - 1,
        HEADER_BYTES,
        600,
        len(whole) // 2,
        len(whole) - 1,
    ]:
        with pytest.raises(XclbinError, match="is cut short"):
            read_bytes(tmp_path, whole[:length])


def test_a_section_beyond_the_end_is_refused(tmp_path: Path) -> None:
    content = bytearray(container({16: b"12345678"}))
    struct.pack_into("<Q", content, HEADER_BYTES + 32, 2**63)
    with pytest.raises(XclbinError, match="section 16 ends at byte"):
        read_bytes(tmp_path, bytes(content))


def test_a_table_of_sections_beyond_the_end_is_refused(tmp_path: Path) -> None:
    content = bytearray(container({}))
    struct.pack_into("<I", content, COUNT_AT, 2**32 - 1)
    with pytest.raises(XclbinError, match="table of 4294967295 sections"):
        read_bytes(tmp_path, bytes(content))


@pytest.mark.parametrize("kind", [6, 7, 8, 11])
@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff\xff" + bytes(40), b"\x01\x01" + bytes(9)])
def test_a_count_that_its_section_cannot_hold_is_refused(
    tmp_path: Path, kind: int, data: bytes
) -> None:
    with pytest.raises(XclbinError, match=f"section {kind} has .* bytes, too few"):
        read_bytes(tmp_path, container({**vitis_sections(), kind: data}))


def test_a_connection_to_no_memory_is_refused(tmp_path: Path) -> None:
    links = struct.pack("<4i", 1, 0, 1, 3)
    with pytest.raises(XclbinError, match="to memory 3, but lists 3"):
        read_bytes(tmp_path, container({**vitis_sections(), 7: links}))


def test_entities_in_the_xml_are_refused(tmp_path: Path) -> None:
    xml = b'<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><project>&b;</project>'
    with pytest.raises(XclbinError, match="document type"):
        read_bytes(tmp_path, container({2: xml}))


@pytest.mark.parametrize(
    ("xml", "reason"),
    [
        (b"<project>", "XML that cannot be read"),
        ("<project/>".encode("utf-16"), "XML that cannot be read"),
        (VITIS_XML.replace(b'"0x10"', b'"sixteen"'), "offset='sixteen'"),
    ],
)
def test_bad_xml_is_refused(tmp_path: Path, xml: bytes, reason: str) -> None:
    with pytest.raises(XclbinError, match=reason):
        read_bytes(tmp_path, container({2: xml}))


@pytest.mark.parametrize("frequency", [b"", b"fast", b"nanMHz", b"1e999MHz"])
def test_a_clock_without_a_number_is_unknown(tmp_path: Path, frequency: bytes) -> None:
    xml = VITIS_XML.replace(b'"300.000000MHz"', b'"' + frequency + b'"')
    assert read_bytes(tmp_path, container({2: xml})).clock_hz is None


def test_header_and_xml_that_name_different_emulations_are_refused(written: Path) -> None:
    content = bytearray(written.read_bytes())
    struct.pack_into("<H", content, MODE_AT, 4)
    written.write_bytes(bytes(content))
    with pytest.raises(
        XclbinError, match=r"hw_emu by its header \(mode 4\), for sw_emu by its XML"
    ):
        xclbin.read(written)


def test_the_document_of_info_has_the_keys_of_the_interface(written: Path) -> None:
    document = xclbin.to_json(xclbin.read(written))
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert list(document)[:11] == [
        "file", "target", "platform", "uuid", "kernels", "memories", "clock_hz", "block",
        "slice", "compute_units", "built_by",
    ]  # fmt: skip
    assert document["memories"][1] == {
        "tag": "HBM[1]", "base": 268435456, "bytes": 268435456, "kind": "HBM", "used": True,
    }  # fmt: skip
    (kernel,) = document["kernels"]
    assert kernel["arguments"][0] == {
        "name": "matrix", "index": 0, "kind": "memory", "port": "M_AXI_MATRIX", "size": 8,
        "offset": 16, "type": "void*", "memories": ["HBM[0]", "HBM[2]"],
    }  # fmt: skip
    assert kernel["instances"][1]["memories"]["x"] == ["HBM[3]"]


def test_reading_does_not_load_the_bitstream(tmp_path: Path) -> None:
    path = tmp_path / "large.xclbin"
    path.write_bytes(container({16: b'{"spmv_fpga": {"block": 4}}', 0: b"b"}))
    size = 1 << 36  # a file with a hole: 64 GiB, nothing on disk
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + 40 + 32)
        file.write(struct.pack("<Q", size))
        file.truncate(size + 4096)
    assert xclbin.read(path).block == 4


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("hx_hw_u50", "hw"),
        ("hx_hwemu_u50", "hw_emu"),
        ("hx_swemu_u50", "sw_emu"),
        ("hx_kernel_other", "hw"),
        ("hx_small_banks", "hw"),
    ],
)
def test_the_collected_cases_are_read(shared_data: Path, name: str, target: str) -> None:
    info = xclbin.read(shared_data / "cases" / "inputs" / f"{name}.xclbin")
    assert (info.target, info.platform) == (target, "xilinx_u50_gen3x16_xdma_5_202210_1")
    (kernel,) = info.kernels
    assert kernel.name == ("vadd" if name == "hx_kernel_other" else "krnl_spmv")
    assert [(a.name, a.memories) for a in kernel.arguments] == [
        ("vals", ("HBM[0]",)),
        ("cols", ("HBM[1]",)),
        ("x", ("HBM[2]",)),
        ("y", ("HBM[3]",)),
        ("rows", ()),
    ]
    bank_bytes = 65536 if name == "hx_small_banks" else 268435456
    assert {m.bytes for m in info.memories} == {bank_bytes}
    assert info.facts == xclbin.Facts()
    assert asdict(info.sections[0])["kind"] == 2
