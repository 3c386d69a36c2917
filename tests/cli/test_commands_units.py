"""`--cu` and `fit` at the command line."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from spmv_fpga.boards import load_board
from spmv_fpga.cli import cli
from spmv_fpga.design_fit import max_units


def invoke(*arguments: str) -> object:
    return CliRunner().invoke(cli, arguments)


def test_max_renders_as_many_units_as_fit(tmp_path):
    done = invoke(
        "render", "--kernel", "block", "--block", "4", "--cu", "max", "-o", str(tmp_path)
    )
    assert done.exit_code == 0
    most = max_units("block", {"block": 4}, load_board("u50"))
    assert f"nk=spmv_block:{most}:" in (tmp_path / "link.cfg").read_text()


def test_a_build_for_the_card_of_what_does_not_fit_is_refused_before_vitis_is_sought(tmp_path):
    done = invoke(
        "xclbin",
        "--kernel",
        "block",
        "--block",
        "4",
        "--cu",
        "12",
        "--build-dir",
        str(tmp_path),
    )
    assert "that many of kernel block do not fit board u50: LUTs" in str(done.exception)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--cu", "0"), "0 is not in the range x>=1"),
        (("--cu", "most"), "'most' is not a valid integer range"),
    ],
)
def test_a_number_of_units_that_means_nothing_is_refused(arguments, message):
    done = invoke("run", "--matrix", "gallery:diagonal:n=8", *arguments)
    assert done.exit_code == 2
    assert message in done.output


def test_fit_is_a_command():
    done = invoke("fit", "--kernel", "scalar")
    assert done.exit_code == 0
    assert "the design fits" in done.output


def test_max_without_a_kernel_takes_the_fastest_of_all_with_its_own_number(tmp_path):
    out = tmp_path / "run.json"
    done = invoke(
        "run", "--matrix", "gallery:elasticity3d:n=10", "--cu", "max", "--mode", "reference",
        "--baseline", "none", "--json-out", str(out),
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    kernel = json.loads(out.read_text())["kernel"]
    parameters = {"block": kernel["block"]} if kernel["name"] == "block" else {}
    assert kernel["compute_units"] == max_units(kernel["name"], parameters, load_board("u50"))


@pytest.mark.xrt
def test_max_runs_on_the_emulated_card():
    done = invoke(
        "run", "--matrix", "gallery:poisson2d:n=40", "--kernel", "block", "--block", "4",
        "--cu", "max", "--mode", "sw_emu", "--baseline", "none",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "8 compute units" in done.output
    assert "y verified" in done.output


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("--kernel", "bandwidth"),
            "unknown: there is no model of the power of kernel bandwidth",
        ),
        (("--board", "u55c"), "unknown: there is no calibration of the power of board u55c"),
    ],
)
def test_a_power_that_is_not_known_is_no_modelled_figure(arguments, expected):
    done = invoke("fit", *arguments)
    assert done.exit_code == 0
    assert expected in done.output
    assert "modelled at full traffic" not in done.output
    assert "bandwidth," not in done.output
