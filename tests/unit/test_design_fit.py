"""What a design takes of a board, which limits it breaks, and how many units fit."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from click.testing import CliRunner

from spmv_fpga import design_fit
from spmv_fpga.boards import RESOURCES, Board, Figure, board_names, load_board
from spmv_fpga.codegen import render_project
from spmv_fpga.commands.fit import fit_command
from spmv_fpga.design_fit import (
    Cost,
    Memory,
    Stream,
    Structure,
    fit,
    max_units,
    structure_of,
)
from spmv_fpga.errors import BoardError, KernelSpecError
from spmv_fpga.kernels import Header, load_kernel, template_names
from spmv_fpga.resources import data_dir
from spmv_fpga.roofline.calibration import Calibration, Parameter, Power, load_calibration
from spmv_fpga.roofline.predict import busy_power_w, default_x_room

U50 = load_board("u50")
BLOCK = load_kernel("block")


def board_with(**values: float) -> Board:
    """The U50 with other figures."""
    own = {name: Figure(value, "made for a test") for name, value in values.items()}
    return replace(U50, figures={**U50.figures, **own})


def powered(idle_w: float, kernel_w: float) -> Calibration:
    """A calibration whose power is idle and a constant for each unit."""

    def exact(value: float) -> Parameter:
        return Parameter(value, value, value, "made for a test")

    known = load_calibration("u50")
    power = Power(exact(idle_w), exact(kernel_w), exact(0.0))
    kernels = {name: replace(kernel, power=power) for name, kernel in known.kernels.items()}
    return replace(known, kernels=kernels)


# What a unit is made of


@pytest.mark.parametrize(
    ("block", "adders", "accumulators"),
    [(4, 12 + 56, 8), (8, 14 + 4, 4), (16, 15, 2), (32, 15, 2)],
)  # fmt: skip
def test_block_has_16_multipliers_trees_and_two_reducers(block, adders, accumulators):
    made_of = structure_of("block", {"block": block, "x_room": 65536})
    assert made_of.multipliers == 16
    assert (made_of.adders, made_of.accumulators) == (adders, accumulators)


@pytest.mark.parametrize(("slice_size", "adders"), [(4, 2), (8, 0), (16, 0), (32, 0)])
def test_scalar_has_one_multiplier_and_two_accumulators(slice_size, adders):
    made_of = structure_of("scalar", {"slice": slice_size, "x_room": 65536})
    assert (made_of.multipliers, made_of.adders, made_of.accumulators) == (1, adders, 2)


@pytest.mark.parametrize("kernel", template_names())
def test_every_stream_and_process_of_a_kernels_header_is_counted(kernel):
    parameters = load_kernel(kernel).resolve({})
    made_of = structure_of(kernel, parameters)
    header = (data_dir("hls_templates") / kernel / f"{kernel}.hpp").read_text("utf-8")
    assert len(made_of.streams) == header.count("SPMV_STREAM")
    assert made_of.processes == header.count("SPMV_PROCESS")


def test_a_stream_has_the_bits_of_its_type_and_the_depth_of_its_constant():
    streams = {s.name: s for s in structure_of("bandwidth", {}).streams}
    assert streams["folded"] == Stream("folded", 512, 32, is_srl=True)
    for block, rows in ((4, 4), (8, 2), (16, 1)):
        made_of = structure_of("block", {"block": block, "x_room": 65536})
        bits = {stream.name: stream.bits for stream in made_of.streams}
        assert (bits["row_sums"], bits["even_sums"]) == (32 * rows, 32 * rows + 2)


@pytest.mark.parametrize(
    ("block", "depth"), [(4, 64), (8, 64), (16, 256), (32, 512)]
)  # fmt: skip
def test_values_wait_for_as_many_tiles_as_gather_x_has_in_flight(block, depth):
    made_of = structure_of("block", {"block": block, "x_room": 65536})
    depths = {stream.name: stream.depth for stream in made_of.streams}
    assert depths["values"] == depth
    assert depths["marks"] == depths["columns"] == 128


def test_processes_that_hold_a_word_are_told_from_the_others():
    assert structure_of("bandwidth", {}).word_processes == 3
    made_of = structure_of("block", {"block": 16, "x_room": 65536})
    assert (made_of.processes, made_of.word_processes) == (9, 6)


def test_a_stream_of_a_type_that_is_not_known_is_refused_by_name(monkeypatch):
    text = "SPMV_STREAM(Odd, oddities, 4);"
    monkeypatch.setattr(design_fit, "read_header", lambda kernel: Header.parse(text))
    with pytest.raises(KernelSpecError, match="stream oddities of kernel block is of type Odd"):
        structure_of("block", {"block": 16, "x_room": 65536})


def test_a_kernel_without_a_count_is_refused():
    with pytest.raises(KernelSpecError, match="nothing is known of what kernel odd takes"):
        structure_of("odd", {})


# What its parts take


def test_the_parts_of_a_unit_are_counted_times_their_cost():
    made_of = Structure(
        multipliers=16, adders=15, accumulators=2, processes=9, word_processes=6,
        streams=(Stream("words", 512, 64), Stream("marks", 2, 64)),
        memories=(Memory("x_copy", 512, 4096, kind="uram"),),
    )  # fmt: skip
    parts = design_fit._parts(BLOCK, made_of, U50)
    assert parts["arithmetic"] == Cost(
        dsp=16 * 3 + 15 * 2 + 2 * 2,
        lut=16 * 277 + 15 * 485 + 2 * 717,
        ff=16 * 370 + 15 * 407 + 2 * 751,
    )
    assert parts["processes"] == Cost(lut=9 * 240 + 6 * 512, ff=9 * 245 + 6 * 1024)
    assert parts["memories"] == Cost(uram=8)
    # 512 bits take 15 half blocks; 128 bits are shift registers of 32.
    assert parts["streams"] == Cost(bram=7.5, lut=2 * 30 + 2 * 2, ff=2 * 25 + 512)


def test_a_ports_fifos_hold_all_bursts_in_flight():
    structure = Structure(processes=0, word_processes=0, streams=())
    ports = design_fit._parts(BLOCK, structure, U50)["ports"]
    # One reads 1024 words of 512 bits; the other 256, and writes 256 of 576 bits.
    assert ports == Cost(lut=10000, ff=13000, bram=14.5 + 7.5 + 8)


def test_one_port_for_all_reads_and_writes():
    assert fit("block", {}, U50, 17).parts["ports"] == Cost(lut=5000, ff=6500, bram=14.5 + 8)


@pytest.mark.parametrize(
    ("bits", "depth", "blocks"),
    [(36, 512, 0.5), (37, 512, 1), (72, 513, 2), (8, 2048, 0.5), (2, 16385, 2)],
)  # fmt: skip
def test_a_fifo_takes_half_blocks_of_the_shape_that_is_deep_enough(bits, depth, blocks):
    assert design_fit._bram_blocks(bits, depth) == blocks


@pytest.mark.parametrize(
    ("stream", "bram"),
    [
        (Stream("small", 32, 32), 0),
        (Stream("large", 33, 32), 0.5),
        (Stream("shallow", 512, 2), 0),
        (Stream("asked for", 512, 32, is_srl=True), 0),
        (Stream("not asked for", 512, 32), 7.5),
    ],
)  # fmt: skip
def test_a_small_or_shallow_fifo_takes_no_ram_block(stream, bram):
    assert design_fit._stream_cost(stream).bram == bram


def test_every_cost_has_a_source():
    costs = design_fit.tomllib.loads(design_fit._COSTS.read_text("utf-8"))
    assert all(len(table["source"]) > 20 for table in costs.values())


@pytest.mark.parametrize(
    ("units", "room", "uram"), [(1, 262144, 32), (2, 262144, 32), (3, 65536, 8), (16, 65536, 8)]
)
def test_many_units_hold_less_of_x(units, room, uram):
    report = fit("block", {"block": 16}, U50, units)
    assert default_x_room(units) == report.parameters["x_room"] == room
    assert report.per_unit.uram == uram


@pytest.mark.parametrize("units", [1, 2, 3, 16])
def test_the_room_for_x_is_that_of_the_rendered_kernel(units):
    rendered = render_project("block", {}, U50, compute_units=units).parameters
    assert fit("block", {}, U50, units).parameters == rendered


def test_a_room_for_x_that_is_asked_for_is_kept():
    assert fit("block", {"x_room": 131072}, U50, 16).per_unit.uram == 16


# Kernel lanes


def lanes_with(**chosen: int) -> Structure:
    return structure_of("lanes", load_kernel("lanes").resolve(chosen))


def memory_of(structure: Structure, name: str) -> Memory:
    (found,) = (memory for memory in structure.memories if memory.name == name)
    return found


def test_lanes_has_16_products_16_sums_half_as_many_for_y_and_two_for_long_rows():
    made_of = lanes_with()
    assert (made_of.multipliers, made_of.adders, made_of.accumulators) == (16, 0, 0)
    assert made_of.lane_adders == 16 + 8 + 2
    assert made_of.word_choices == 2 + 1
    assert (made_of.processes, made_of.word_processes) == (3, 3)
    assert fit("lanes", {}, U50).per_unit.dsp == 16 * 3 + 26 * 2


def test_the_streams_of_lanes_have_the_bits_of_its_own_types():
    bits = {stream.name: stream.bits for stream in lanes_with().streams}
    assert (bits["panel_chunks"], bits["panel_sizes"], bits["words"]) == (32, 64, 512)


@pytest.mark.parametrize(
    ("panel", "words", "uram"), [(8192, 2048, 16), (16384, 4096, 16), (32768, 8192, 32)]
)
def test_a_panel_stands_in_eight_copies_of_two_banks(panel, words, uram):
    copies = memory_of(lanes_with(panel=panel), "x_copies")
    assert copies == Memory("x_copies", 64, words, banks=16, kind="uram")
    assert design_fit._memory_cost(copies) == Cost(uram=uram)


@pytest.mark.parametrize(
    ("y_room", "words", "bram"), [(8192, 1024, 8), (16384, 2048, 16), (32768, 4096, 32)]
)
def test_y_stands_in_a_bank_for_every_two_lanes(y_room, words, bram):
    banks = memory_of(lanes_with(y_room=y_room), "y_banks")
    assert banks == Memory("y_banks", 32, words, banks=8, kind="bram")
    assert design_fit._memory_cost(banks) == Cost(bram=bram)


@pytest.mark.parametrize("depth", [8, 16])
def test_partial_sums_stand_in_luts(depth):
    partials = memory_of(lanes_with(depth=depth), "partials")
    assert partials == Memory("partials", 32, depth, banks=16)
    # 32 bits are three groups of eight LUTs.
    assert design_fit._memory_cost(partials) == Cost(lut=16 * 3 * 8)


def test_an_array_that_no_pragma_places_is_counted_by_its_size():
    assert design_fit._memory_cost(memory_of(lanes_with(), "merged")) == Cost(bram=0.5)


def test_an_array_in_registers_is_no_memory():
    assert [m.name for m in structure_of("block", BLOCK.resolve({})).memories] == ["x_copy"]
    assert "terms" not in [memory.name for memory in lanes_with().memories]


def test_an_array_of_a_type_that_is_not_known_is_refused_by_name(monkeypatch):
    header = Header.parse("  odd_t oddities[4];\n")
    monkeypatch.setattr(design_fit, "read_header", lambda kernel: header)
    with pytest.raises(KernelSpecError, match="array oddities of kernel block is of type"):
        structure_of("block", {"block": 16, "x_room": 65536})


@pytest.mark.parametrize(
    ("units", "room"), [(1, 32768), (8, 32768), (9, 16384), (16, 16384), (28, 16384)]
)
def test_many_units_of_lanes_hold_less_of_y(units, room):
    assert fit("lanes", {}, U50, units).parameters["y_room"] == room
    rendered = render_project("lanes", {}, U50, compute_units=units).parameters
    assert rendered == fit("lanes", {}, U50, units).parameters


def test_a_room_for_y_that_is_asked_for_is_kept():
    assert fit("lanes", {"y_room": 65536}, U50, 16).parameters["y_room"] == 65536


def test_less_room_for_y_lets_more_units_of_lanes_fit():
    assert max_units("lanes", {"y_room": 32768}, U50) < max_units("lanes", {}, U50)


def test_where_a_calibration_lacks_the_kernel_the_power_is_not_checked():
    known = load_calibration("u50")
    without = {name: own for name, own in known.kernels.items() if name != "lanes"}
    report = fit("lanes", {}, U50, calibration=replace(known, kernels=without))
    assert report.power_w.value is None
    assert report.fits
    assert "calibration u50 has no power of kernel lanes" in report.warnings[0]


# A design against the limits


def test_a_share_counts_the_shell_and_all_units():
    report = fit("scalar", {}, U50, 4)
    for share in report.shares:
        assert share.shell == U50.value(f"{share.resource}_shell")
        assert share.total == share.shell + 4 * report.per_unit.of(share.resource)
        assert report.total.of(share.resource) == share.total


@pytest.mark.parametrize(
    ("resource", "name"),
    [("lut", "LUTs"), ("ff", "flip-flops"), ("bram", "block RAM"), ("uram", "UltraRAM"),
     ("dsp", "DSPs")],
)  # fmt: skip
def test_each_limit_is_held_and_named_with_its_numbers(resource, name):
    taken = fit("block", {}, U50).total.of(resource)
    limit = U50.value(f"{resource}_limit")
    assert fit("block", {}, board_with(**{f"{resource}_available": taken / limit + 1})).fits
    tight = fit("block", {}, board_with(**{f"{resource}_available": taken}))
    assert tight.reasons_to_refuse == (
        f"{name} {taken:.0f} of {taken:.0f} (100.0 %), and {100 * limit:.1f} % is the limit",
    )


def test_a_design_that_does_not_fit_is_refused_in_one_sentence_with_every_limit():
    board = board_with(uram_available=10, dsp_available=100)
    report = fit("block", {"block": 16}, board, 3, calibration=powered(10, 1))
    with pytest.raises(KernelSpecError) as caught:
        report.check()
    assert str(caught.value) == (
        "cu is 3: that many of kernel block do not fit board u50: UltraRAM 28 of 10 (280.0 %), "
        "and 75.0 % is the limit; DSPs 250 of 100 (250.0 %), and 75.0 % is the limit; take "
        "fewer units."
    )


def test_a_design_that_fits_passes():
    report = fit("block", {"block": 16}, U50)
    report.check()
    assert report.refusal is None


@pytest.mark.parametrize(
    ("units", "ports", "channels"), [(14, 28, 28), (15, 15, 15), (16, 16, 16), (17, 17, 17)]
)
def test_units_have_one_port_each_where_channels_for_two_are_too_few(units, ports, channels):
    report = fit("scalar", {}, U50, units)
    assert (report.ports, report.channels) == (ports, channels)


@pytest.mark.parametrize("units", [1, 5, 14, 15, 16, 17, 28])
def test_channels_are_those_of_the_rendered_connectivity(units):
    placed = render_project("scalar", {}, U50, compute_units=units).units
    report = fit("scalar", {}, U50, units)
    assert report.channels == len({b for unit in placed for b in unit.banks.values()})
    assert report.ports == sum(len(unit.banks) for unit in placed)


def test_more_units_than_channels_are_refused():
    reasons = fit("bandwidth", {}, load_board("u280"), 29).reasons_to_refuse
    assert reasons == ("29 channels, and 28 is the limit",)


def test_more_ports_than_the_board_has_are_refused():
    reasons = fit("bandwidth", {}, board_with(max_ports=3), 4).reasons_to_refuse
    assert reasons == ("4 memory ports, and 3 is the limit",)


@pytest.mark.parametrize(
    ("units", "clock_hz"), [(1, 300e6), (4, 300e6), (5, 225e6), (28, 225e6)]
)
def test_the_clock_is_the_lower_one_from_five_units_on(units, clock_hz):
    assert U50.expected_clock_hz(units) == clock_hz


def test_a_board_whose_clock_is_low_anyway_keeps_it():
    assert board_with(clock_hz=200e6).expected_clock_hz(16) == 200e6


def test_the_power_is_that_of_the_model_with_all_ports_busy():
    known = load_calibration("u50")
    report = fit("scalar", {"slice": 8}, U50, 3, calibration=known)
    assert report.power_w.value == busy_power_w("scalar", 8, known, 3)
    assert report.power_w.origin == "modelled"
    assert (report.power_cap_w.value, report.power_cap_w.origin) == (75.0, "published")


def test_a_design_above_the_cards_cap_is_refused():
    reasons = fit("scalar", {}, U50, calibration=powered(75.5, 0)).reasons_to_refuse
    assert reasons == ("modelled power 75.5 W, and 75 W is the card's cap",)
    assert fit("scalar", {}, U50, calibration=powered(75, 0)).fits


@pytest.mark.parametrize("name", ["u280", "u55c"])
def test_a_board_without_a_cap_warns_that_power_was_not_checked(name):
    report = fit("scalar", {}, load_board(name))
    assert report.fits
    assert report.power_cap_w.value is None
    assert f"the file of board {name} has no power_cap_w." in report.warnings[-1]


def test_a_resource_that_the_board_does_not_say_is_not_guessed():
    figures = {k: v for k, v in U50.figures.items() if k != "lut_shell"}
    with pytest.raises(BoardError, match="u50 does not say lut_shell"):
        fit("block", {}, replace(U50, figures=figures))


def test_less_than_one_unit_is_refused():
    with pytest.raises(KernelSpecError, match="cu is 0; it must be at least 1"):
        fit("block", {}, U50, 0)


# The largest that fits


@pytest.mark.parametrize("board", board_names())
@pytest.mark.parametrize(
    ("kernel", "parameters"),
    [("block", {"block": 4}), ("block", {"block": 16}), ("scalar", {}), ("bandwidth", {}),
     ("lanes", {"depth": 16})],
)  # fmt: skip
def test_the_most_units_fit_and_no_more_do(kernel, parameters, board):
    card = load_board(board)
    most = max_units(kernel, parameters, card)
    assert fit(kernel, parameters, card, most).fits
    assert not any(fit(kernel, parameters, card, n).fits for n in range(most + 1, 33))


def test_tiles_of_four_take_more_logic_so_fewer_units_fit():
    assert max_units("block", {"block": 4}, U50) < max_units("block", {"block": 16}, U50)


def test_a_channel_limit_bounds_the_units():
    assert max_units("scalar", {}, board_with(max_channels=3)) == 3


def test_where_not_one_unit_fits_the_limit_is_named():
    with pytest.raises(KernelSpecError, match=r"UltraRAM 36 of 20 .* take other parameters"):
        max_units("block", {}, board_with(uram_available=20))


# The command


def test_the_command_prints_the_verdict():
    done = CliRunner().invoke(fit_command, ["--kernel", "scalar"])
    assert done.exit_code == 0
    assert "the design fits" in done.output
    assert "block RAM" in done.output


def test_the_command_gives_json_with_the_most_units_that_fit():
    done = CliRunner().invoke(fit_command, ["--cu", "max", "--board", "u280", "--json"])
    document = json.loads(done.stdout)
    assert document["compute_units"] == document["max_units"] > 8
    assert document["fits"] is True
    assert [row["name"] for row in document["resources"]] == list(RESOURCES)
    assert document["power_cap_w"]["value"] is None


def test_the_command_says_what_does_not_fit_and_does_not_fail():
    done = CliRunner().invoke(fit_command, ["--kernel", "scalar", "--cu", "29"])
    assert done.exit_code == 0
    assert "29 channels, and 28 is the limit" in done.output


def test_a_count_of_units_that_is_neither_a_number_nor_max_is_refused():
    done = CliRunner().invoke(fit_command, ["--cu", "most"])
    assert done.exit_code == 2


def test_the_command_takes_the_parameters_of_lanes():
    words = ["--depth", "16", "--panel", "8192", "--y-room", "16384", "--cu", "4", "--json"]
    done = CliRunner().invoke(fit_command, ["--kernel", "lanes", *words])
    document = json.loads(done.stdout)
    assert [document[name] for name in ("depth", "panel", "y_room")] == [16, 8192, 16384]
    assert document["compute_units"] == 4
