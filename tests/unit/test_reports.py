"""Reports of a Vitis build: their layouts, where they are found, and the comparison."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from spmv_fpga.boards import load_board
from spmv_fpga.cli import cli
from spmv_fpga.commands.fit import fit_command
from spmv_fpga.design_fit import Cost, fit
from spmv_fpga.errors import ToolError
from spmv_fpga.toolchain import builds
from spmv_fpga.toolchain.reports import (
    Utilisation,
    compare,
    parse_estimate,
    parse_timing,
    parse_utilisation,
    read_reports,
)

# Layouts as the tools write them, figures of the project's own.
UTILISATION = """\
1. System Utilization
---------------------

+--------------------+------------------+------------------+-------------------+-----------------+---------------+----------------+
| Name               | LUT              | LUTAsMem         | REG               | BRAM            | URAM          | DSP            |
+--------------------+------------------+------------------+-------------------+-----------------+---------------+----------------+
| Platform           | 110000 [ 12.63%] |  15000 [  3.73%] |  150000 [  8.60%] |  180 [ 13.39%]  |   4 [  0.63%] |    4 [  0.07%] |
| User Budget        | 760720 [100.00%] | 387720 [100.00%] | 1593360 [100.00%] | 1164 [100.00%]  | 636 [100.00%] | 5948 [100.00%] |
|    Used Resources  |  60000 [  7.89%] |   3000 [  0.77%] |   80000 [  5.02%] |  141 [ 12.11%]  |  16 [  2.52%] |  164 [  2.76%] |
|    Unused Resources| 700720 [ 92.11%] | 384720 [ 99.23%] | 1513360 [ 94.98%] | 1023 [ 87.89%]  | 620 [ 97.48%] | 5784 [ 97.24%] |
| spmv_block         |  60000 [  7.89%] |   3000 [  0.77%] |   80000 [  5.02%] |  141 [ 12.11%]  |  16 [  2.52%] |  164 [  2.76%] |
|    spmv_block_1    |  29000 [  3.81%] |   1500 [  0.39%] |   41000 [  2.57%] | 70.5 [  6.06%]  |   8 [  1.26%] |   82 [  1.38%] |
|    spmv_block_2    |  31000 [  4.08%] |   1500 [  0.39%] |   39000 [  2.45%] | 70.5 [  6.06%]  |   8 [  1.26%] |   82 [ <0.01%] |
+--------------------+------------------+------------------+-------------------+-----------------+---------------+----------------+
"""  # noqa: E501

ESTIMATE = """\
===============================================================================
Version:    v++ v2023.2

Area Information
Compute Unit  Kernel Name  Module Name  FF     LUT    DSP  BRAM  URAM
------------  -----------  -----------  -----  -----  ---  ----  ----
spmv_block_1  spmv_block   spmv_block   36000  28000  82   140   8
spmv_block_2  spmv_block   spmv_block   36000  28000  82   142   8
-------------------------------------------------------------------------------
"""

TIMING = """\
------------------------------------------------------------------------------
| Design Timing Summary
| ---------------------
------------------------------------------------------------------------------

    WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints      WHS(ns)
    -------      -------  ---------------------  -------------------      -------
     -0.250     -12.000                     96               700000        0.009


Timing constraints are not met.


------------------------------------------------------------------------------
| Clock Summary
| -------------
------------------------------------------------------------------------------

Clock                  Waveform(ns)         Period(ns)      Frequency(MHz)
-----                  ------------         ----------      --------------
shell_clk              {0.000 5.000}        10.000          100.000
  kernel_clk_00        {0.000 2.000}        4.000           250.000


------------------------------------------------------------------------------
| Intra Clock Table
| -----------------
------------------------------------------------------------------------------

Clock                  WNS(ns)      TNS(ns)  TNS Failing Endpoints  TNS Total Endpoints
-----                  -------      -------  ---------------------  -------------------
shell_clk                1.500        0.000                      0                20000
  kernel_clk_00         -0.250      -12.000                     96               600000

"""

MET = TIMING.replace("-0.250", " 0.100")


@pytest.fixture
def build(tmp_path) -> Path:
    """The folder of a build with routed reports, as `v++` lays them out."""
    reports = tmp_path / "vitis" / "link" / "reports" / "link" / "imp"
    reports.mkdir(parents=True)
    (reports / "impl_1_kernel_util_routed.rpt").write_text(UTILISATION)
    (reports / "impl_1_kernel_util_placed.rpt").write_text("not this one")
    (reports / "impl_1_hw_bb_locked_timing_summary_routed.rpt").write_text(MET)
    return tmp_path


# Layouts


def test_the_shell_the_kernels_and_each_unit_are_read():
    used = parse_utilisation(UTILISATION)
    assert used.shell == Cost(lut=110000, ff=150000, bram=180, uram=4, dsp=4)
    assert used.kernels == Cost(lut=60000, ff=80000, bram=141, uram=16, dsp=164)
    assert list(used.units) == ["spmv_block_1", "spmv_block_2"]
    assert used.units["spmv_block_2"] == Cost(lut=31000, ff=39000, bram=70.5, uram=8, dsp=82)


def test_a_unit_is_the_mean_of_all():
    assert parse_utilisation(UTILISATION).per_unit == Cost(
        lut=30000, ff=40000, bram=70.5, uram=8, dsp=82
    )


def test_columns_are_found_by_their_headings():
    text = "\n".join(
        "|".join([*line.split("|")[:2], *reversed(line.split("|")[2:-1]), ""])
        for line in UTILISATION.splitlines()
        if line.startswith("|")
    )
    assert parse_utilisation(text) == parse_utilisation(UTILISATION)


def test_half_a_ram_block_of_the_estimate_counts_half():
    used = parse_estimate(ESTIMATE)
    assert used.units["spmv_block_1"] == Cost(lut=28000, ff=36000, bram=70, uram=8, dsp=82)
    assert used.per_unit.bram == 70.5
    assert used.shell is None


@pytest.mark.parametrize("text", ["", "nothing", UTILISATION[: UTILISATION.index("| User")]])
def test_a_table_that_breaks_off_is_no_report(text):
    with pytest.raises(ToolError, match="no row `Used Resources`"):
        parse_utilisation(text)


def test_a_table_without_units_is_no_report():
    with pytest.raises(ToolError, match="no row of a compute unit"):
        parse_utilisation(UTILISATION[: UTILISATION.index("| spmv_block ")])


def test_a_cell_that_is_no_number_is_named():
    with pytest.raises(ToolError, match="column LUT is 'many'"):
        parse_utilisation(UTILISATION.replace("110000 [ 12.63%]", "many"))


def test_an_estimate_without_its_table_is_no_report():
    with pytest.raises(ToolError, match="Area Information"):
        parse_estimate(ESTIMATE.replace("Area Information", ""))


def test_the_clock_with_the_most_paths_is_the_kernels():
    timing = parse_timing(TIMING)
    assert timing.clock == "kernel_clk_00"
    assert timing.clock_hz == pytest.approx(250e6)
    assert timing.slack_s == pytest.approx(-0.25e-9)
    assert timing.worst_slack_s == pytest.approx(-0.25e-9)
    assert not timing.is_met


def test_slack_says_which_clock_the_slowest_path_allows():
    assert parse_timing(TIMING).attainable_hz == pytest.approx(1 / 4.25e-9)
    assert parse_timing(MET).attainable_hz == pytest.approx(1 / 3.9e-9)
    assert parse_timing(MET).is_met


@pytest.mark.parametrize("cut", ["| Design Timing", "| Clock Summary", "| Intra Clock"])
def test_a_timing_summary_that_breaks_off_is_no_report(cut):
    with pytest.raises(ToolError, match="no summary of the design"):
        parse_timing(TIMING[: TIMING.index(cut)])


# Files


def test_routed_reports_are_found_below_the_builds_folder(build):
    found = read_reports(build)
    assert [path.name for path in found.files] == [
        "impl_1_kernel_util_routed.rpt", "impl_1_hw_bb_locked_timing_summary_routed.rpt",
    ]  # fmt: skip
    assert found.utilisation == parse_utilisation(UTILISATION)
    assert found.timing == parse_timing(MET)
    assert found.clock_hz is None


def test_of_two_builds_reports_the_newest_counts(build):
    older = build / "impl_1_kernel_util_routed.rpt"
    older.write_text("| damaged |")
    os.utime(older, (1, 1))
    assert read_reports(build).utilisation == parse_utilisation(UTILISATION)


def test_before_a_design_is_placed_the_estimate_of_v_is_read(tmp_path):
    (tmp_path / "system_estimate_block.hw.u50.xtxt").write_text(ESTIMATE)
    assert read_reports(tmp_path).utilisation == parse_estimate(ESTIMATE)


def test_an_xclbin_that_cannot_be_read_leaves_the_clock_to_the_timing_summary(build):
    (build / "block.xclbin").write_bytes(b"none")
    report = fit("block", {"block": 16}, load_board("u50"), 2)
    clock = compare(report, read_reports(build))[-1]
    assert (clock.name, clock.estimate, clock.reported) == (
        "clock_hz",
        300e6,
        pytest.approx(250e6),
    )


def test_a_folder_without_reports_is_refused(tmp_path):
    with pytest.raises(ToolError, match=r"holds no report of v\+\+"):
        read_reports(tmp_path)


def test_a_file_instead_of_a_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="is no folder"):
        read_reports(tmp_path / "file")


def test_a_damaged_report_is_refused_by_its_name(build):
    path = next(build.rglob("*routed.rpt"))
    path.write_text("| Name | LUT |\n| Used Resources | x |\n")
    with pytest.raises(ToolError, match=rf"{path.name}: is no report as v\+\+ writes it"):
        read_reports(build)


# Comparison


def test_an_estimate_stands_beside_what_was_built(build):
    report = fit("block", {"block": 16}, load_board("u50"), 2)
    rows = {row.name: row for row in compare(report, read_reports(build))}
    assert len(rows) == 5 + 5 + 1
    assert rows["dsp of a unit"].ratio == 1.0
    assert rows["lut of a unit"].reported == 30000
    assert rows["lut of a unit"].ratio == 30000 / report.per_unit.lut
    assert rows["bram of the shell"].ratio == 180 / 179.5


def test_a_ratio_to_nothing_is_not_given(build):
    report = fit("bandwidth", {}, load_board("u280"))
    rows = {row.name: row for row in compare(report, read_reports(build))}
    assert rows["uram of the shell"].ratio is None


def test_without_a_row_of_the_shell_only_units_are_compared(tmp_path):
    (tmp_path / "system_estimate.xtxt").write_text(ESTIMATE)
    rows = compare(fit("block", {}, load_board("u50")), read_reports(tmp_path))
    assert len(rows) == 5


def test_the_command_shows_and_gives_the_comparison(build):
    arguments = ["--cu", "2", "--reports", str(build)]
    shown = CliRunner().invoke(fit_command, arguments).output
    assert "lut of a unit" in shown
    assert "timing is met" in shown
    document = json.loads(CliRunner().invoke(fit_command, [*arguments, "--json"]).stdout)
    assert document["comparison"][0]["reported"] == 30000


def test_utilisation_of_no_shell_is_kept_apart_from_a_shell_of_nothing():
    units = {"a": Cost(lut=1)}
    assert Utilisation(shell=None, kernels=Cost(lut=1), units=units).per_unit == Cost(lut=1)


def test_after_a_build_for_the_card_the_estimate_stands_beside_it(build, monkeypatch):
    path = build / "block.xclbin"
    path.touch()
    monkeypatch.setattr(
        builds, "build", lambda *_, **__: SimpleNamespace(path=path, was_built=True)
    )
    done = CliRunner().invoke(cli, ["xclbin", "--kernel", "block", "--cu", "2"])
    assert done.exit_code == 0
    assert "lut of a unit" in done.output
    assert "30,000" in done.output


def test_a_build_without_reports_is_still_a_build(tmp_path, monkeypatch):
    built = SimpleNamespace(path=tmp_path / "block.xclbin", was_built=True)
    monkeypatch.setattr(builds, "build", lambda *_, **__: built)
    done = CliRunner().invoke(cli, ["xclbin", "--kernel", "block"])
    assert done.exit_code == 0
    assert "note: the estimate is not compared" in done.output
