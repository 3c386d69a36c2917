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


@pytest.mark.parametrize("name", board_names())
def test_every_figure_has_a_source(name):
    content = tomllib.loads((boards._FOLDER / f"{name}.toml").read_text("utf-8"))
    memory = {k: v for k, v in content["memory"].items() if k != "tag"}
    figures = {**memory, **content["figures"], **content["axi"]}
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


@pytest.mark.parametrize("name", ["u280", "", "../boards/u50", "u50.toml"])
def test_a_board_that_is_not_there_is_refused_with_those_there_are(name):
    with pytest.raises(BoardError, match="it must be u50"):
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
