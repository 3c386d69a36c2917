"""Board files: every figure has a source, and what a file does not say is not guessed."""

from __future__ import annotations

import sys

import pytest

from spmv_fpga import boards
from spmv_fpga.boards import board_names, load_board
from spmv_fpga.errors import BoardError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

U50 = (boards._FOLDER / "u50.toml").read_text("utf-8")


@pytest.fixture
def board_file(tmp_path, monkeypatch):
    """Write the file of a board `mine`, made from the U50's with one piece exchanged."""

    def write(old: str, new: str) -> None:
        assert old in U50
        (tmp_path / "mine.toml").write_text(U50.replace(old, new), "utf-8")

    monkeypatch.setattr(boards, "_FOLDER", tmp_path)
    load_board.cache_clear()
    yield write
    load_board.cache_clear()


def test_the_u50_has_32_banks_of_256_mib_and_the_right_platforms():
    board = load_board("u50")
    assert board.title == "AMD Alveo U50"
    assert (board.num_banks, board.bank_bytes) == (32, 268435456)
    assert board.platforms == (
        "xilinx_u50_gen3x16_xdma_5_202210_1",
        "xilinx_u50_gen3x16_xdma_201920_3",
    )
    assert board.emulated_platform in board.platforms
    assert board.slr == "SLR0"
    assert board.bank(31) == "HBM[31]"


def test_the_u50_has_the_clock_bandwidth_and_cap_of_the_design():
    board = load_board("u50")
    figures = ("clock_hz", "many_unit_clock_hz", "channel_bytes_per_s", "power_cap_w")
    assert [board.value(figure) for figure in figures] == [300e6, 225e6, 12.5e9, 75]
    assert board.value("max_channels") == 28


def test_there_are_the_u50_the_u55c_and_the_u280():
    assert board_names() == ("u280", "u50", "u55c")


@pytest.mark.parametrize(
    ("name", "available", "shell"),
    [
        ("u50", (870720, 1743360, 1344, 640, 5952), (112760, 142875, 179.5, 4, 4)),
        ("u280", (1303680, 2607360, 2016, 960, 9024), (107629, 136086, 195.5, 0, 4)),
        ("u55c", (1303680, 2607360, 2016, 960, 9024), (158156, 285428, 201, 0, 4)),
    ],
)
def test_a_board_has_these_resources_and_its_shell_takes_these(name, available, shell):
    board = load_board(name)
    assert tuple(board.value(f"{r}_available") for r in boards.RESOURCES) == available
    assert tuple(board.value(f"{r}_shell") for r in boards.RESOURCES) == shell


@pytest.mark.parametrize("name", board_names())
def test_designs_close_up_to_70_percent_of_logic_and_75_percent_of_the_rest(name):
    board = load_board(name)
    limits = [board.value(f"{resource}_limit") for resource in boards.RESOURCES]
    assert limits == [0.70, 0.70, 0.75, 0.75, 0.75]
    assert (board.value("max_ports"), board.value("max_channels")) == (32, 28)


def test_a_bank_of_the_u55c_is_twice_as_large_as_one_of_the_others():
    sizes = {name: load_board(name).bank_bytes for name in board_names()}
    assert sizes == {"u280": 256 << 20, "u50": 256 << 20, "u55c": 512 << 20}


@pytest.mark.parametrize("name", ["u280", "u55c"])
def test_a_power_cap_that_no_source_states_is_not_guessed(name):
    with pytest.raises(BoardError, match=f"{name} does not say power_cap_w"):
        load_board(name).value("power_cap_w")


@pytest.mark.parametrize("name", board_names())
def test_every_figure_has_a_source(name):
    content = tomllib.loads((boards._FOLDER / f"{name}.toml").read_text("utf-8"))
    memory = {k: v for k, v in content["memory"].items() if k != "tag"}
    figures = {**memory, **content["figures"], **content["resources"], **content["axi"]}
    assert len(figures) > 10
    for figure, entry in figures.items():
        assert set(entry) == {"value", "source"}, figure
        assert len(entry["source"]) > 5, figure


@pytest.mark.parametrize("name", board_names())
def test_every_board_loads_under_its_own_name(name):
    board = load_board(name)
    content = tomllib.loads((boards._FOLDER / f"{name}.toml").read_text("utf-8"))
    assert board.name == content["name"] == name
    assert board.value("clock_hz") > 0


@pytest.mark.parametrize("name", board_names())
def test_bursts_in_flight_fit_their_buffer_and_a_burst_is_at_most_4_kib(name):
    axi = load_board(name).axi
    assert axi["max_burst_length"] * 64 <= 4096
    assert axi["num_read_outstanding"] * axi["max_burst_length"] * 64 <= 64 * 1024


def test_a_figure_that_the_file_does_not_hold_is_refused():
    with pytest.raises(BoardError, match=r"u50 does not say num_dsp; add it, with its source"):
        load_board("u50").value("num_dsp")


@pytest.mark.parametrize("name", ["u250", "", "../boards/u50", "u50.toml"])
def test_a_board_that_is_not_there_is_refused_with_those_there_are(name):
    with pytest.raises(BoardError, match="it must be u280 or u50 or u55c"):
        load_board(name)


@pytest.mark.parametrize(
    "entry",
    ["75", "{ value = 75 }", '{ value = 75, source = "" }', '{ source = "UG1120" }',
     '{ value = 75, source = "UG1120", unit = "W" }'],
)  # fmt: skip
def test_a_figure_without_a_value_and_a_source_is_refused(board_file, entry):
    board_file(
        "max_channels = { value = 28, ", f"cap_w = {entry}\nmax_channels = {{ value = 28, "
    )
    with pytest.raises(BoardError, match=r"mine\.toml: cap_w must be \{ value"):
        load_board("mine")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('title = "AMD Alveo U50"', "", "'title'"),
        ("num_banks", "banks", "'num_banks'"),
        ("[axi]", "[axis]", "'axi'"),
        ("[figures]", "[figures", "Expected"),
    ],
)
def test_a_damaged_board_file_is_refused_by_name(board_file, old, new, reason):
    board_file(old, new)
    with pytest.raises(BoardError, match=r"mine\.toml: .*mend the board's file") as caught:
        load_board("mine")
    assert reason in str(caught.value)


def test_a_board_is_added_by_its_file_alone(board_file):
    board_file('tag = "HBM"', 'tag = "DDR"')
    assert board_names() == ("mine",)
    assert load_board("mine").bank(2) == "DDR[2]"
