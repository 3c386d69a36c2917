"""The driver of v++: command lines for every version, and builds with a stand-in program."""

from __future__ import annotations

import os
import shlex
import time
from pathlib import Path

import pytest

from spmv_fpga.errors import KernelSpecError, ToolError, ToolNotFoundError
from spmv_fpga.toolchain import vitis
from spmv_fpga.toolchain.vitis import Design, Vitis

TESTS = Path(__file__).resolve().parent.parent
VERSIONS = ["2020.2", "2022.2", "2023.2", "2024.2", "2025.2"]


def make_design(version: str | None = None, **changes) -> Design:
    facts = {
        "kernel": "spmv_block",
        "source": Path("src/block.cpp"),
        "link_cfg": Path("src/link.cfg"),
        "platform": vitis.default_platform(version),
        "clock_hz": 300e6,
        "include_dirs": [Path("src"), Path("include")],
        "compute_units": ["spmv_block_1", "spmv_block_2"],
    }
    return Design(**facts | changes)


def link(version: str | None, design: Design) -> tuple[str, ...]:
    return vitis.link_command(
        Vitis("v++", version), design, objects=[Path("b.xo")], output=Path("b.xclbin"),
        work=Path("work"),
    )  # fmt: skip


# --- command lines -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_command_lines_of_each_version_are_those_of_the_golden_file(version):
    design, tool, work = make_design(version), Vitis("v++", version), Path("work")
    xo = work / "spmv_block.xo"
    lines = [
        vitis.compile_command(tool, design, output=xo, work=work),
        vitis.link_command(
            tool, design, objects=[xo], output=work / "block.xclbin", work=work, jobs=8
        ),
    ]
    golden = (TESTS / "golden" / "vitis" / f"{version}.txt").read_text(encoding="utf-8")
    assert "".join(shlex.join(line) + "\n" for line in lines) == golden


@pytest.mark.parametrize("version", ["2021.1", "2023.1"])
def test_versions_before_2023_2_get_the_old_clock_option(version):
    assert "--kernel_frequency" in link(version, make_design(version))


@pytest.mark.parametrize("version", [None, "2026.1"])
def test_unknown_and_future_versions_get_the_newest_form(version):
    assert "--freqhz=300000000:spmv_block_1,spmv_block_2" in link(version, make_design())


def test_a_design_without_named_units_has_one_unit():
    assert make_design(compute_units=()).compute_units == ("spmv_block_1",)


@pytest.mark.parametrize(
    ("version", "platform"),
    [
        ("2020.2", "xilinx_u50_gen3x16_xdma_201920_3"),
        ("2021.2", "xilinx_u50_gen3x16_xdma_201920_3"),
        ("2022.1", "xilinx_u50_gen3x16_xdma_5_202210_1"),
        (None, "xilinx_u50_gen3x16_xdma_5_202210_1"),
    ],
)
def test_the_platform_follows_the_version(version, platform):
    assert vitis.default_platform(version) == platform


def test_software_emulation_is_never_asked_of_vpp():
    with pytest.raises(KernelSpecError, match="target is sw_emu"):
        make_design(target="sw_emu")


@pytest.mark.parametrize("clock_hz", [0, -3e8, 300e6 + 0.5, float("nan"), float("inf")])
def test_a_clock_that_is_no_whole_number_of_hertz_is_refused(clock_hz):
    with pytest.raises(KernelSpecError, match="clock_hz is"):
        make_design(clock_hz=clock_hz)


def test_an_old_version_refuses_a_clock_between_two_megahertz():
    with pytest.raises(KernelSpecError, match=r"clock_hz is 222222222; Vitis 2022\.2 takes"):
        link("2022.2", make_design(clock_hz=222_222_222))


# --- progress ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "phase"),
    [
        ("INFO: [v++ 60-1443] [19:29:25] Run run_link: Step vpl: Started", "run_link: vpl"),
        ("[13:06:51] Run vpl: Step create_project: Started", "vpl: create_project"),
        ("INFO: [v++ 60-242] Creating kernel: 'k'", "high-level synthesis of k"),
        ("[13:09:54] Block-level synthesis in progress, 3 of 30 jobs complete, 1 job running.",
         "synthesis, 3 of 30 blocks"),
        ("[14:34:18] Top-level synthesis in progress.", "top-level synthesis"),
        ("[14:36:12] Finished 4th of 6 tasks (FPGA logic placement). Elapsed time: 00h 07m 02s",
         "4 of 6 tasks: FPGA logic placement"),
        ("[10:15:40] Starting logic optimization..", "logic optimization"),
        ("INFO: [v++ 60-791] Total elapsed time: 2h 3m 4s", "done in 2h 3m 4s"),
        ("[14:34:47] Run vpl: Step synth: Completed", None),
        ("", None),
    ],
)  # fmt: skip
def test_a_line_of_output_tells_the_phase(line, phase):
    assert vitis.phase_of(line) == phase


# --- detection ---------------------------------------------------------------------------


@pytest.fixture
def tool(monkeypatch) -> Vitis:
    for name in ("FAKE_VITIS", "FAKE_VITIS_VERSION", "FAKE_VITIS_LOG"):
        monkeypatch.delenv(name, raising=False)
    return Vitis(str(TESTS / "fakes" / "vitis" / "v++"), None)


@pytest.mark.parametrize("version", [*VERSIONS, None])
def test_the_version_is_what_the_program_reports(tool, monkeypatch, version):
    monkeypatch.setenv("FAKE_VITIS_VERSION", version or "")
    assert vitis.detect(str(TESTS / "fakes" / "vitis")) == Vitis(tool.command, version)


def test_a_missing_vpp_is_refused_with_the_line_that_mends_it(tmp_path):
    with pytest.raises(ToolNotFoundError, match=r"v\+\+ is missing; source the settings64.sh"):
        vitis.detect(str(tmp_path))


def test_a_version_before_2020_2_is_refused(tool, monkeypatch):
    monkeypatch.setenv("FAKE_VITIS_VERSION", "2019.2")
    with pytest.raises(ToolError, match=r"is version 2019\.2, which is too old"):
        vitis.detect(str(TESTS / "fakes" / "vitis"))


def test_a_vpp_that_is_no_program_is_refused(tmp_path):
    (tmp_path / "v++").write_bytes(b"\x00")
    (tmp_path / "v++").chmod(0o755)
    with pytest.raises(ToolError, match="cannot be started"):
        vitis.detect(str(tmp_path))


# --- builds ------------------------------------------------------------------------------


class Workshop:
    """A small rendered project, and a stand-in v++ that notes its calls."""

    def __init__(self, folder: Path, tool: Vitis, monkeypatch) -> None:
        self.tool, self.monkeypatch = tool, monkeypatch
        self.out_path = folder / "build one" / "block.xclbin"
        self.template = folder / "templates" / "top.cpp.j2"
        self.vpp_log = folder / "vpp.log"
        self.design = make_design(
            source=folder / "src" / "block.cpp",
            link_cfg=folder / "src" / "link.cfg",
            include_dirs=[folder / "include"],
        )
        for path in (
            self.design.source,
            self.design.link_cfg,
            folder / "include" / "constants.hpp",
            self.template,
        ):
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"// {path.name}\n")
        monkeypatch.setenv("FAKE_VITIS_LOG", str(self.vpp_log))

    def build(self, behaviour: str = "good", **options) -> vitis.BuildReport:
        self.monkeypatch.setenv("FAKE_VITIS", behaviour)
        options = {"vitis": self.tool, "template_files": [self.template]} | options
        return vitis.build(options.pop("design", self.design), self.out_path, **options)

    def num_links(self) -> int:
        return self.vpp_log.read_text().count("--link") if self.vpp_log.exists() else 0

    def xclbins(self) -> list[Path]:
        return sorted(self.out_path.parent.rglob("*.xclbin"))


@pytest.fixture
def shop(tmp_path, tool, monkeypatch) -> Workshop:
    return Workshop(tmp_path, tool, monkeypatch)


def test_a_build_gives_the_output_its_final_name(shop):
    report = shop.build()
    assert report.was_built
    assert report.path == shop.out_path
    assert report.clock_requested_hz == 300_000_000
    assert shop.xclbins() == [shop.out_path]
    assert "made by: --link" in shop.out_path.read_text()


def test_every_line_of_output_is_passed_on_and_logged(shop):
    lines = []
    report = shop.build(on_line=lines.append)
    assert lines[0] == "INFO: [v++ 60-585] compile for hardware target"
    assert lines[-1] == "INFO: [v++ 60-791] Total elapsed time: 0h 0m 1s"
    assert report.log_path.read_text().splitlines() == lines


def test_the_same_input_builds_once(shop):
    shop.build()
    assert not shop.build().was_built
    assert shop.num_links() == 1


def test_the_number_of_jobs_is_no_reason_to_build_again(shop):
    shop.build()
    assert not shop.build(jobs=4).was_built


def test_a_changed_source_builds_again(shop):
    shop.build()
    shop.design.source.write_text("// another block size\n")
    assert shop.build().was_built


def test_a_changed_header_builds_again(shop):
    shop.build()
    (shop.design.include_dirs[0] / "constants.hpp").write_text("// P = 32\n")
    assert shop.build().was_built


def test_another_clock_builds_again(shop):
    shop.build()
    assert shop.build(design=make_design(**vars(shop.design) | {"clock_hz": 225e6})).was_built


def test_another_version_builds_again(shop):
    shop.build(vitis=Vitis(shop.tool.command, "2024.2"))
    assert shop.build(vitis=Vitis(shop.tool.command, "2025.2")).was_built


def test_a_template_that_was_only_touched_builds_again(shop):
    shop.build()
    os.utime(shop.template, ns=(1, shop.template.stat().st_mtime_ns + 1))
    assert shop.build().was_built


def test_an_output_that_was_changed_by_hand_is_built_again(shop):
    shop.build()
    shop.out_path.write_text("cut")
    assert shop.build().was_built
    assert "made by" in shop.out_path.read_text()


def test_a_project_beside_the_output_does_not_count_the_output_as_input(shop):
    folder = shop.out_path.parent
    folder.mkdir()
    source = folder / "block.cpp"
    source.write_text("// block\n")
    design = make_design(**vars(shop.design) | {"source": source})
    shop.build(design=design)
    assert not shop.build(design=design).was_built


@pytest.mark.parametrize(
    ("behaviour", "reason", "returncode"),
    [
        ("fails", "exit status 3", 3),
        ("error_status_0", "it reported an error, although its exit status is 0", 0),
        ("empty", "its output is empty", 0),
        ("no_output", "it wrote no output", 0),
        ("timing", r"timing was not met at 300\.0 MHz", 1),
    ],
)
def test_a_failed_link_is_an_error_and_leaves_no_xclbin(shop, behaviour, reason, returncode):
    with pytest.raises(ToolError, match=reason) as caught:
        shop.build(behaviour)
    assert caught.value.returncode == returncode
    assert caught.value.command[1] == "--link"
    assert caught.value.log_path.is_file()
    assert shop.xclbins() == []


@pytest.mark.parametrize("behaviour", ["timing", "fails", "no_output"])
def test_a_failed_rebuild_does_not_leave_the_old_xclbin(shop, behaviour):
    shop.build()
    shop.design.source.write_text("// changed\n")
    with pytest.raises(ToolError):
        shop.build(behaviour)
    assert shop.xclbins() == []


def test_after_a_failed_build_the_next_one_builds(shop):
    with pytest.raises(ToolError):
        shop.build("fails")
    assert shop.build().was_built


@pytest.mark.parametrize("behaviour", ["timing", "timing_early"])
def test_the_timing_line_is_among_the_last_lines_of_the_message(shop, behaviour):
    with pytest.raises(ToolError) as caught:
        shop.build(behaviour)
    lines = str(caught.value).splitlines()
    assert "ERROR: [VPL 101-2] design did not meet timing, slack -0.024 ns" in lines[-18:]
    assert lines[-1] == "ERROR: [v++ 60-661] v++ link run 'run_link' failed"


def test_a_failure_shows_the_last_lines_of_the_output(shop):
    with pytest.raises(ToolError) as caught:
        shop.build("fails")
    assert caught.value.tail.splitlines() == [f"line {i}" for i in range(25, 41)]


def test_an_interrupted_build_ends_all_processes_and_leaves_no_output(shop):
    processes = []

    def interrupt(line: str) -> None:
        if line.startswith("processes"):
            processes.extend(int(word) for word in line.split()[1:])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        shop.build("hangs", on_line=interrupt)
    assert len(processes) == 2
    # A process that was killed may take a moment to end.
    deadline_s = time.monotonic() + 10
    while any(is_running(pid) for pid in processes):
        assert time.monotonic() < deadline_s
    assert shop.xclbins() == []


def is_running(pid: int) -> bool:
    """Say whether a process lives; one that ended but was not waited for does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_a_build_folder_that_cannot_be_made_is_refused(shop):
    shop.out_path.parent.write_text("a file where the folder should be")
    with pytest.raises(ToolError, match=r"build one.*choose files that can be read"):
        shop.build()


def test_a_platform_file_that_does_not_exist_is_refused(shop):
    design = make_design(**vars(shop.design) | {"platform": "nowhere/u50.xpfm"})
    with pytest.raises(ToolError, match=r"platform file nowhere/u50\.xpfm does not exist"):
        shop.build(design=design)
    assert shop.num_links() == 0


def test_the_output_of_another_design_is_not_touched(shop, tmp_path):
    shop.build()
    other = tmp_path / "other" / "block.xclbin"
    vitis.build(shop.design, other, vitis=shop.tool)
    assert str(other.parent) in other.read_text()
    assert str(other.parent) not in shop.out_path.read_text()
