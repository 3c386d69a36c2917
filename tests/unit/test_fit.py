"""Data, xclbin and environment are held against each other before a card is touched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from spmv_fpga.boards import load_board
from spmv_fpga.codegen import render_project
from spmv_fpga.errors import XclbinError
from spmv_fpga.runtime import fit
from spmv_fpga.toolchain import xclbin

BANK = 268435456
FACTS = xclbin.Facts(kernel="block", block=16, slice=16, x_room=1000)


@dataclass
class Data:
    """Stands in for a storage format: only what the checks look at."""

    kernel: str = "block"
    parameters: dict[str, int] = field(default_factory=lambda: {"block": 16})
    shape: tuple[int, int] = (1000, 1000)
    sizes: tuple[int, int, int] = (64, 64, 64)

    def port_bytes(self) -> dict[str, int]:
        return dict(zip(("matrix", "x", "y"), self.sizes, strict=True))

    def scalars(self) -> dict[str, int]:
        return {"num_words": 1, "num_rows": 1000}


def info(
    *,
    name: str = "spmv_block",
    pointers: tuple[str, ...] = ("matrix", "x", "y"),
    scalars: tuple[str, ...] = ("num_words", "num_rows", "iterations"),
    units: dict[str, dict[str, list[str]]] | None = None,
    target: str | None = "hw",
    facts: xclbin.Facts = FACTS,
) -> xclbin.XclbinInfo:
    if units is None:
        banks = [["HBM[0]"], ["HBM[1]"], ["HBM[1]"], ["HBM[3]"]]
        units = {f"{name}_1": dict(zip(pointers, banks, strict=False))}
    kernel = xclbin.lay_out_kernel(name, {p: f"M_{p}" for p in pointers}, scalars, units)
    return xclbin.XclbinInfo(
        path="given.xclbin",
        target=target,
        platform=None,
        uuid="",
        kernels=(kernel,),
        memories=xclbin.hbm_banks(),
        clock_hz=None,
        built_by=None,
        facts=facts,
        sections=(),
    )


def reasons(data: Data, given: xclbin.XclbinInfo, **options: str) -> list[str]:
    return fit.reasons_to_refuse(data, given, **options)  # type: ignore[arg-type]


def test_what_fits_is_accepted() -> None:
    assert fit.check_fit(Data(), info(), emulation_mode="") is None  # type: ignore[arg-type]


def test_a_missing_kernel_is_named_with_those_that_are_there() -> None:
    (reason,) = reasons(Data(), info(name="vadd", pointers=("a", "b")))
    assert "no kernel spmv_block; its kernels: vadd;" in reason


def test_a_file_without_kernels_says_none() -> None:
    (reason,) = reasons(Data(), replace(info(), kernels=()))
    assert "its kernels: none" in reason


def test_another_block_is_refused_with_both() -> None:
    (reason,) = reasons(Data(parameters={"block": 32}), info())
    assert reason.startswith("it was built for block 16, but the data have block 32;")


def test_another_slice_is_refused_with_both() -> None:
    data = Data(kernel="scalar", parameters={"slice": 8})
    (reason,) = reasons(data, info(name="spmv_scalar"))
    assert reason.startswith("it was built for slice 16, but the data have slice 8;")


def test_an_unknown_block_is_refused_with_the_file_that_would_say_it() -> None:
    (reason,) = reasons(Data(), info(facts=xclbin.Facts()))
    assert "does not say for which block" in reason
    assert "given.xclbin.json" in reason


def test_other_memory_arguments_are_refused() -> None:
    (reason,) = reasons(Data(), info(pointers=("matrix", "y", "x")))
    assert "memory arguments of spmv_block are matrix, y and x, not matrix, x and y" in reason


def test_a_missing_scalar_argument_is_named() -> None:
    (reason,) = reasons(Data(), info(scalars=("num_words",)))
    assert "spmv_block has no argument num_rows; its scalar arguments are num_words" in reason


def test_a_kernel_without_units_is_refused() -> None:
    assert reasons(Data(), info(units={})) == ["spmv_block has no compute unit; build it again"]


def test_an_unknown_unit_is_refused() -> None:
    (reason,) = reasons(Data(), info(), unit="spmv_block_2")
    assert "no compute unit spmv_block_2; it has spmv_block_1" in reason


def test_x_that_just_fits_on_the_chip_is_accepted() -> None:
    assert reasons(Data(shape=(1, 1000)), info()) == []


def test_x_beyond_the_chip_is_refused_with_the_numbers() -> None:
    (reason,) = reasons(Data(shape=(1, 1001)), info())
    assert "x has 1001 entries, but the kernel has on-chip room for 1000" in reason


def test_a_buffer_larger_than_its_bank_is_refused_with_bank_and_numbers() -> None:
    (reason,) = reasons(Data(sizes=(360345600, 64, 64)), info())
    assert "matrix needs 360345600 bytes, but memory bank HBM[0] has 268435456" in reason


def test_the_first_bank_keeps_four_pages_for_the_runtime() -> None:
    assert reasons(Data(sizes=(BANK - 16384, 64, 64)), info()) == []
    (reason,) = reasons(Data(sizes=(BANK - 12288, 64, 64)), info())
    assert "HBM[0] has 268435456, of which the runtime keeps 16384" in reason


def test_another_bank_can_be_filled_to_its_end() -> None:
    units = {"u_1": {"matrix": ["HBM[5]"], "x": ["HBM[1]"], "y": ["HBM[1]"]}}
    assert reasons(Data(sizes=(BANK, 64, 64)), info(units=units)) == []
    assert len(reasons(Data(sizes=(BANK + 64, 64, 64)), info(units=units))) == 1


def test_buffers_that_share_a_bank_count_together() -> None:
    (reason,) = reasons(Data(sizes=(64, BANK - 64, 128)), info())
    assert "x and y need 268435392 + 128 bytes, but memory bank HBM[1] has 268435456;" in reason


def test_buffers_take_whole_pages() -> None:
    assert reasons(Data(sizes=(64, BANK - 4096, 64)), info()) == []
    (reason,) = reasons(Data(sizes=(64, BANK - 8128, 4160)), info())
    assert "x and y need 268427328 + 4160 bytes (268439552 in whole pages), but" in reason


def test_a_range_of_banks_holds_their_sum() -> None:
    units = {"u_1": {"matrix": ["HBM[2]", "HBM[3]"], "x": ["HBM[3]"], "y": ["HBM[4]"]}}
    given = info(units=units)
    assert reasons(Data(sizes=(2 * BANK - 4096, 64, 64)), given) == []
    (reason,) = reasons(Data(sizes=(2 * BANK - 4096, 4160, 64)), given)
    assert reason.startswith("matrix and x need")
    assert "HBM[2] and HBM[3] has 536870912" in reason


def test_one_unit_can_be_judged_alone() -> None:
    units = {
        "u_1": {"matrix": ["HBM[1]"], "x": ["HBM[2]"], "y": ["HBM[2]"]},
        "u_2": {"matrix": ["HBM[3]"], "x": ["HBM[3]"], "y": ["HBM[3]"]},
    }
    data = Data(sizes=(BANK, 64, 64))
    assert reasons(data, info(units=units), unit="u_1") == []
    assert len(reasons(data, info(units=units))) == 1


def test_all_reasons_come_in_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XCL_EMULATION_MODE", "sw_emu")
    data = Data(parameters={"block": 4}, shape=(1, 2000), sizes=(BANK + 1, 64, 64))
    with pytest.raises(XclbinError, match=r"^given\.xclbin: ") as caught:
        fit.check_fit(data, info())  # type: ignore[arg-type]
    words = ("XCL_EMULATION_MODE is 'sw_emu'", "block 4", "2000 entries", "HBM[0]")
    assert len(caught.value.reasons) == 4
    for word, reason in zip(words, caught.value.reasons, strict=True):
        assert word in reason


@pytest.mark.parametrize("target", ["hw", "hw_emu", "sw_emu"])
@pytest.mark.parametrize("unset", [None, ""])
def test_without_the_variable_the_target_is_the_mode(target: str, unset: str | None) -> None:
    assert fit.check_mode(info(target=target), "auto", unset) == target
    assert fit.check_mode(info(target=target), target, unset) == target


@pytest.mark.parametrize("target", ["hw_emu", "sw_emu"])
def test_the_variable_may_name_the_target(target: str) -> None:
    assert fit.check_mode(info(target=target), "auto", target) == target


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("hw", "sw_emu"), ("hw", "hw_emu"), ("hw", "true"), ("hw", "hw"),
        ("sw_emu", "hw_emu"), ("sw_emu", "true"), ("hw_emu", "sw_emu"), ("hw_emu", "true"),
    ],
)  # fmt: skip
def test_a_variable_that_disagrees_is_refused_with_both(target: str, value: str) -> None:
    with pytest.raises(XclbinError) as caught:
        fit.check_mode(info(target=target), "auto", value)
    assert f"built for {target}, but XCL_EMULATION_MODE is '{value}'" in str(caught.value)
    assert "`unset XCL_EMULATION_MODE`" in str(caught.value)


def test_the_right_value_is_told_for_an_emulation_only() -> None:
    with pytest.raises(XclbinError, match="`export XCL_EMULATION_MODE=hw_emu`"):
        fit.check_mode(info(target="hw_emu"), "auto", "true")
    with pytest.raises(XclbinError, match=r"use `unset XCL_EMULATION_MODE`$"):
        fit.check_mode(info(target="hw"), "auto", "true")


def test_a_mode_other_than_the_target_is_refused() -> None:
    with pytest.raises(XclbinError, match="built for sw_emu, but --mode is hw;"):
        fit.check_mode(info(target="sw_emu"), "hw", None)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(XclbinError, match="does not say whether it was built for hw"):
        fit.check_mode(info(target=None), "auto", None)


@pytest.mark.shared_data
@pytest.mark.parametrize(("name", "bank"), [("hx_hw_u50", BANK), ("hx_small_banks", 65536)])
def test_sizes_are_told_even_for_a_foreign_kernel(
    shared_data: Path, name: str, bank: int
) -> None:
    given = xclbin.read(shared_data / "cases" / "inputs" / f"{name}.xclbin")
    # G2_circuit at block 32 has 87 975 blocks.
    missing, size = reasons(Data(sizes=(87975 * 32 * 32 * 4, 64, 64)), given)
    assert "its kernels: krnl_spmv" in missing
    assert f"vals needs 360345600 bytes, but memory bank HBM[0] has {bank}" in size


@pytest.mark.shared_data
def test_a_stream_that_fits_has_no_size_among_its_reasons(shared_data: Path) -> None:
    given = xclbin.read(shared_data / "cases" / "inputs" / "hx_hw_u50.xclbin")
    # hx_bank_256mb at block 16: 4160 blocks, with a descriptor word for every 16.
    sizes = (4160 * 1024 + 260 * 64, 266240, 266240)
    assert len(reasons(Data(sizes=sizes), given)) == 1


# Room for the matrix stream of a unit


def room(units: dict[str, dict[str, list[str]]], vector_bytes: int = 0) -> int | None:
    return fit.matrix_room(info(units=units), "spmv_block", vector_bytes)


def on(matrix: str | list[str], x: str, y: str | None = None) -> dict[str, list[str]]:
    """Return the connections of a unit."""
    banks = [matrix] if isinstance(matrix, str) else matrix
    return {"matrix": banks, "x": [x], "y": [y or x]}


def test_a_bank_that_the_matrix_has_alone_is_all_room() -> None:
    assert room({"u_1": on("HBM[2]", "HBM[3]")}, vector_bytes=1 << 30) == BANK


def test_several_banks_are_room_together() -> None:
    assert room({"u_1": on(["HBM[4]", "HBM[5]"], "HBM[3]")}) == 2 * BANK


def test_in_the_first_bank_the_runtime_keeps_four_pages_for_each_unit() -> None:
    units = {"u_1": on("HBM[0]", "HBM[1]"), "u_2": on("HBM[2]", "HBM[3]")}
    assert room(units) == BANK - 2 * 16384
    assert room({"u_1": on(["HBM[1]", "HBM[0]"], "HBM[3]")}) == 2 * BANK - 16384


@pytest.mark.parametrize(("x", "y"), [("HBM[5]", "HBM[5]"), ("HBM[5]", "HBM[6]"),
                                      ("HBM[6]", "HBM[5]")])  # fmt: skip
def test_vectors_in_the_bank_of_the_matrix_take_whole_pages_from_it(x: str, y: str) -> None:
    units = {"u_1": on("HBM[5]", x, y)}
    assert room(units, vector_bytes=8192) == BANK - 8192 - 2 * 4096
    assert room(units, vector_bytes=8193) == BANK - 12288 - 2 * 4096


def test_a_matrix_that_fills_its_room_passes_the_checks_with_its_vectors() -> None:
    units = {"spmv_block_1": on("HBM[5]", "HBM[5]")}
    x_bytes = y_bytes = 4160  # 1028 and 1025 elements in words of 64 bytes: two pages each
    stream = room(units, vector_bytes=4 * (1028 + 1025))
    assert stream is not None
    assert reasons(Data(sizes=(stream, x_bytes, y_bytes)), info(units=units)) == []


def test_the_unit_with_the_least_room_decides() -> None:
    units = {"u_1": on("HBM[2]", "HBM[3]"), "u_2": on("HBM[4]", "HBM[4]")}
    assert room(units, vector_bytes=4096) == BANK - 3 * 4096


def test_vectors_larger_than_the_bank_leave_no_room_and_no_less() -> None:
    assert room({"u_1": on("HBM[5]", "HBM[5]")}, vector_bytes=2 * BANK) == 0


def test_without_the_kernel_or_its_banks_the_room_is_unknown() -> None:
    assert fit.matrix_room(info(), "spmv_scalar", 0) is None
    assert room({}) is None
    assert room({"u_1": {"x": ["HBM[1]"], "y": ["HBM[1]"]}}) is None


@pytest.mark.parametrize(("number", "bank"), [(1, 2), (14, 2), (15, 1), (16, 1)])
def test_the_units_of_a_project_have_the_room_of_their_banks(number: int, bank: int) -> None:
    project = render_project("block", {}, load_board("u50"), compute_units=number)
    units = {
        unit.name: {p.name: [unit.banks[str(p.bundle)]] for p in project.kernel.ports}
        for unit in project.units
    }
    assert units["spmv_block_1"]["matrix"] == [f"HBM[{bank}]"]
    taken = 0 if number <= 14 else 4096 + 2 * 4096
    assert room(units, vector_bytes=4096) == BANK - taken
