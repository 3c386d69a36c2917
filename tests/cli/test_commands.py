"""Every command: help, exit status, refusals, and how it lives with its surroundings."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from spmv_fpga.toolchain import emulation, xclbin

COMMANDS = (
    "", "run", "convert", "render", "xclbin", "info", "matrices", "matrices list",
    "matrices fetch", "matrices info", "doctor", "formats", "predict", "verify",
)  # fmt: skip
POISSON = "gallery:poisson2d:n=8"
REFERENCE = ("run", "--mode", "reference", "--baseline", "none", "--matrix", POISSON)
NOTHING_BUT_CLICK = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numpy", "scipy", "pyopencl", "ssgetpy", "requests"):
            raise ImportError(f"{name} is not needed for help")
sys.meta_path.insert(0, Refuse())
"""


# Help.


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(program, command):
    outcome = program.here(*command.split(), "--help")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert outcome.stdout.startswith(f"Usage: spmv-fpga {command}".strip())


def test_help_needs_neither_numpy_nor_home(program, stand_in):
    path = stand_in("sitecustomize.py", NOTHING_BUT_CLICK)
    for words in ((), ("run",), ("matrices", "fetch")):
        outcome = program.run(*words, "--help", PYTHONPATH=path, HOME=None)
        assert (outcome.status, outcome.stderr) == (0, "")


def test_the_version_is_printed(program):
    assert program.here("--version").stdout.startswith("spmv-fpga, version ")


# Bad usage.

BAD_USAGE = [
    (("nonsense",), ["nonsense"]),
    ((*REFERENCE, "--nonsense"), ["--nonsense"]),
    (("run",), ["--matrix"]),
    ((*REFERENCE, "--mode", "fast"), ["--mode", "fast"]),
    ((*REFERENCE, "--kernel", "fast"), ["kernel", "fast", "block", "scalar"]),
    ((*REFERENCE, "--board", "u9"), ["board", "u9", "u50"]),
    ((*REFERENCE, "--block", "12"), ["12", "4, 8, 16 or 32"]),
    ((*REFERENCE, "--block", "0"), ["0", "4, 8, 16 or 32"]),
    ((*REFERENCE, "--block", "many"), ["--block", "many"]),
    ((*REFERENCE, "--slice", "5"), ["5", "4, 8, 16 or 32"]),
    ((*REFERENCE, "--kernel", "scalar", "--slice", "0"), ["0", "4, 8, 16 or 32"]),
    ((*REFERENCE, "--kernel", "scalar", "--block", "12"), ["12", "4, 8, 16 or 32"]),
    ((*REFERENCE, "--cu", "0"), ["cu", "0"]),
    ((*REFERENCE, "--repeat", "0"), ["--repeat", "0"]),
    ((*REFERENCE, "--repeat", "-3"), ["--repeat", "-3"]),
    ((*REFERENCE, "--warmup", "-1"), ["--warmup", "-1"]),
    ((*REFERENCE, "--measure", "nan"), ["--measure", "nan"]),
    ((*REFERENCE, "--measure", "inf"), ["--measure", "inf"]),
    ((*REFERENCE, "--clock-hz", "nan"), ["--clock-hz", "nan"]),
    ((*REFERENCE, "--clock-hz", "0"), ["--clock-hz", "0"]),
    ((*REFERENCE, "--xclbin", "absent.xclbin"), ["absent.xclbin"]),
    ((*REFERENCE, "--mode", "hw"), ["hw", "xclbin"]),
    ((*REFERENCE, "--mode", "hw_emu"), ["hw_emu", "xclbin"]),
    (("run", "--matrix", "absent.mtx"), ["absent.mtx"]),
    (("run", "--matrix", "."), [".", "folder"]),
    (("run", "--matrix", ""), ["empty"]),
    (("run", "--matrix", "no_such_matrix"), ["no_such_matrix"]),
    (("run", "--matrix", "No/such_matrix"), ["No/such_matrix", "SPMV_FPGA_OFFLINE"]),
    (("run", "--matrix", "gallery:nonsense"), ["nonsense", "poisson2d"]),
    (("run", "--matrix", "gallery:poisson2d:n=-1"), ["n", "-1"]),
    (("run", "--matrix", "twin:nonsense"), ["twin:nonsense"]),
    (("info", "absent.xclbin"), ["absent.xclbin"]),
    (("info", "text.txt"), ["text.txt", "no xclbin"]),
    (("render",), ["--kernel"]),
    (("render", "--kernel", "fast"), ["fast"]),
    (("render", "--kernel", "block", "--block", "12"), ["12"]),
    (("render", "--kernel", "lanes", "--depth", "12"), ["depth", "12", "8 or 16"]),
    (("render", "--kernel", "block", "--panel", "40000"), ["panel", "40000", "32768"]),
    (("render", "--kernel", "block", "-o", "text.txt/project"), ["text.txt/project"]),
    (("xclbin", "--kernel", "block", "--block", "5"), ["5"]),
    (("convert", "--matrix", POISSON, "--stats", "--block", "12"), ["12"]),
    (("convert", "--matrix", POISSON, "-o", "a.npz", "--kernel", "fast"), ["fast"]),
    (("roofline", "--matrix", "twin:ex9", "-o", "a.gif"), ["a.gif", ".svg, .png, .pdf"]),
    (("matrices", "fetch"), ["NAME"]),
    (("matrices", "fetch", "No/such_matrix"), ["No/such_matrix"]),
    (("matrices", "list", "anything"), ["ssstats.csv"]),
    (("matrices", "info", "no_such_matrix"), ["no_such_matrix"]),
]  # fmt: skip


@pytest.mark.parametrize(("words", "names"), BAD_USAGE, ids=lambda value: " ".join(value[:6]))
def test_bad_usage_is_refused_clearly(program, words, names):
    program.write("text.txt", "this is text\n")
    program.refuse(*words, names=names, in_process=True)


def test_a_process_of_its_own_refuses_the_same(program):
    program.refuse(*REFERENCE, "--block", "12", names=["12", "4, 8, 16 or 32"])


def test_no_command_is_refused_with_the_list_of_commands(program):
    program.refuse(names=["Usage:", "convert", "doctor"], in_process=True)


# Notes.


@pytest.mark.parametrize(
    ("words", "note"),
    [
        (("--kernel", "scalar", "--block", "8"), "note: kernel scalar has no block; --block 8"),
        (("--kernel", "block", "--slice", "8"), "note: kernel block has no slice; --slice 8"),
    ],
)
def test_a_parameter_of_the_other_kernel_is_noted_and_not_refused(program, words, note):
    outcome = program.here(*REFERENCE, *words)
    assert outcome.status == 0
    assert outcome.stderr == f"{note} is not used.\n"


def test_a_parameter_that_the_kernel_has_needs_no_note(program):
    assert program.here(*REFERENCE, "--kernel", "scalar", "--slice", "8").stderr == ""


def test_a_file_with_another_ending_is_said_to_be_an_npz(program):
    outcome = program.here("convert", "--matrix", POISSON, "-o", "c.bin")
    assert outcome.status == 0
    assert "note: it is a NumPy .npz file" in outcome.stderr


def test_what_is_counted_is_headed_by_the_matrix(program):
    outcome = program.here("convert", "--matrix", POISSON, "--stats")
    assert outcome.stdout.startswith("poisson2d:n=8: 64 × 64, 288 entries (expanded);")


def test_no_line_ends_in_a_blank(program):
    lines = program.here(*REFERENCE).stdout.splitlines()
    assert len(lines) > 8
    assert [line for line in lines if line != line.rstrip()] == []


def test_no_path_of_the_doctor_is_cut(program):
    program.keep_builds()
    assert "…" not in program.here("doctor").stdout


def test_the_doctor_says_whether_onemkl_is_there(program):
    program.keep_builds()
    (line,) = (x for x in program.here("doctor").stdout.splitlines() if "oneMKL " in x)
    assert line.startswith("ok") or "[mkl]'" in line


# Exit status.


def break_products(monkeypatch) -> None:
    from spmv_fpga.formats import BlockedEll

    right = BlockedEll.spmv

    def wrong(self, x):
        y = right(self, x).copy()
        y[7] += 1
        return y

    monkeypatch.setattr(BlockedEll, "spmv", wrong)


def test_a_wrong_row_ends_with_status_1(program, monkeypatch):
    break_products(monkeypatch)
    outcome = program.here(*REFERENCE, "--x", "ones")
    assert outcome.status == 1
    assert outcome.stderr.startswith("spmv-fpga: wrong result: ")
    assert "row 7" in outcome.stderr or "row 8" in outcome.stderr
    assert "y is WRONG" in outcome.stdout


def test_a_wrong_row_is_not_verified_in_json(program, monkeypatch):
    break_products(monkeypatch)
    outcome = program.here(*REFERENCE, "--x", "ones", "--json", "--y-out", "y.npy")
    assert outcome.status == 1
    assert outcome.document["verified"] is False
    assert outcome.document["worst_error_over_bound"] > 1
    assert len(np.load(program.cwd / "y.npy")) == 64


def test_a_nan_where_none_belongs_is_null_in_json(program, monkeypatch):
    from spmv_fpga.formats import BlockedEll

    nans = np.full(64, np.nan, np.float32)
    monkeypatch.setattr(BlockedEll, "spmv", lambda self, x: nans)
    outcome = program.here(*REFERENCE, "--json")
    assert (outcome.status, outcome.document["verified"]) == (1, False)
    assert outcome.document["worst_error_over_bound"] is None


@pytest.mark.xrt
def test_a_kernel_that_gives_a_wrong_y_ends_with_status_1(program, monkeypatch):
    program.keep_builds()
    compiled = emulation._compile

    def compile_wrong(project, folder, compiler, flags):
        library = compiled(project, folder, compiler, flags)
        source = folder / "wrong.cpp"
        function = f"__stub____xlnx_cl_{project.kernel.function}"
        source.write_text(f'extern "C" void {function}(char **) {{}}\n')
        words = [str(compiler), "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(words, check=True)
        return library

    # The cache of all tests must not keep this one.
    monkeypatch.setattr(emulation, "_compile", compile_wrong)
    monkeypatch.setattr(emulation, "_FLAGS", (*emulation._FLAGS, "-DWRONG"))
    outcome = program.here(
        "run", "--matrix", POISSON, "--mode", "sw_emu", "--x", "ones", "--baseline", "none"
    )
    assert outcome.status == 1
    assert "wrong result" in outcome.stderr


# Files and surroundings.


def test_render_writes_a_project_and_writes_it_the_same_again(program):
    words = ("render", "--kernel", "block", "--block", "8", "-o", "project")
    outcome = program.here(*words)
    assert (outcome.status, outcome.stdout) == (0, "")

    def content() -> dict[str, bytes]:
        files = (path for path in (program.cwd / "project").rglob("*") if path.is_file())
        return {path.name: path.read_bytes() for path in files}

    first = content()
    assert {"link.cfg", "Makefile", "constants.hpp", "block.hpp"} <= set(first)
    assert program.here(*words).status == 0
    assert content() == first


def test_render_has_a_place_of_its_own_for_every_parameter(program):
    for block in ("8", "32"):
        assert program.here("render", "--kernel", "block", "--block", block).status == 0
    folders = sorted(path.name for path in (program.cwd / "build" / "render").iterdir())
    assert folders == ["block_p32_l16_cu1", "block_p8_l16_cu1"]


def test_render_takes_the_parameters_of_lanes(program):
    words = ("--depth", "16", "--panel", "8192", "--y-room", "16384", "--cu", "2")
    assert program.here("render", "--kernel", "lanes", *words).stderr == (
        f"wrote 9 files to {Path('build/render/lanes_d16_x8192_y16384_cu2')}\n"
    )
    folder = program.cwd / "build" / "render" / "lanes_d16_x8192_y16384_cu2"
    text = (folder / "constants.hpp").read_text("utf-8")
    constants = dict(re.findall(r"constexpr unsigned (k\w+) = (\d+);", text))
    assert constants == {"kDepth": "16", "kPanel": "8192", "kYRoom": "16384"}


@pytest.mark.parametrize("command", ["render", "fit"])
def test_parameters_of_lanes_are_noted_where_another_kernel_runs(program, command):
    outcome = program.here(command, "--kernel", "block", "--depth", "8", "--y-room", "8192")
    assert outcome.status == 0
    assert outcome.stderr.startswith(
        "note: kernel block has no depth; --depth 8 is not used.\n"
        "note: kernel block has no y_room; --y-room 8192 is not used.\n"
    )


@pytest.mark.compiler
def test_an_xclbin_for_emulation_is_built_once(program):
    program.keep_builds()
    words = ("xclbin", "--kernel", "scalar", "--target", "sw_emu")
    first, second = program.here(*words), program.here(*words)
    assert (first.status, second.status) == (0, 0)
    assert first.stderr.endswith("built\n")
    assert second.stderr.endswith("up to date\n")
    (file,) = program.cwd.glob("build/sw_emu/*/scalar_p16_l16_cu1/scalar.xclbin")
    assert xclbin.read(file).slice_size == 16


@pytest.mark.xrt
@pytest.mark.parametrize("kernel", ["scalar", "block"])
def test_an_xclbin_decides_mode_kernel_and_size(program, kernel):
    program.keep_builds()
    option = {"scalar": "--slice", "block": "--block"}[kernel]
    words = ("xclbin", "--kernel", kernel, option, "8", "--target", "sw_emu", "--quiet")
    assert program.here(*words).status == 0
    (file,) = program.cwd.glob("build/sw_emu/*/*/*.xclbin")
    words = ("run", "--matrix", POISSON, "--xclbin", str(file), "--json")
    document = program.here(*words).document
    assert (document["mode"], document["verified"]) == ("sw_emu", True)
    assert document["kernel"]["name"] == kernel
    assert document["kernel"][option.removeprefix("--")] == 8


def test_the_names_of_the_paper_are_listed(program):
    outcome = program.here("matrices", "list")
    assert outcome.status == 0
    assert "TS2383" in outcome.stdout
    assert "TSOPF/TSOPF_RS_b2383" in outcome.stdout
    assert len(outcome.stdout.splitlines()) == 30


def test_what_is_known_of_a_matrix_is_told_without_downloading_it(program):
    outcome = program.here("matrices", "info", "TS2383")
    assert outcome.status == 0
    assert "16,171,169" in outcome.stdout
    assert "TSOPF_RS_b2383.tar.gz" in outcome.stdout


@pytest.mark.xrt
def test_the_doctor_finds_what_the_main_job_needs(program):
    program.keep_builds()
    outcome = program.run("doctor")
    assert (outcome.status, outcome.stderr) == (0, "")
    assert "missing" not in outcome.stdout


def test_the_doctor_names_a_missing_compiler(program, tmp_path):
    program.keep_builds()
    (tmp_path / "empty").mkdir()
    outcome = program.run("doctor", PATH=str(tmp_path / "empty"), CXX=None)
    assert outcome.status == 2
    assert outcome.stderr.count("spmv-fpga: ") == 1
    assert "C++ compiler" in outcome.stderr
    assert "apt-get install" in outcome.stdout


# stdin, stdout and signals.


def shell(program, command: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell, in which `$RUN` is the program with a small matrix."""
    run = f"{sys.executable} -m spmv_fpga {' '.join(REFERENCE)}"
    return subprocess.run(
        ["sh", "-c", command.replace("$RUN", run)],
        cwd=program.cwd,
        env=program.environment(),
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("option", ["", "--json"])
def test_a_reader_who_leaves_early_is_no_error(program, option):
    done = shell(program, f"( $RUN {option}; echo status $? >&2 ) | true")
    assert done.stderr == "status 0\n"


@pytest.mark.parametrize("option", ["", "--json"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_behind_stdout_is_refused(program, option):
    done = shell(program, f"$RUN {option} >/dev/full")
    assert done.returncode == 2
    assert done.stderr == (
        "spmv-fpga: stdout cannot be written: No space left on device; send it elsewhere.\n"
    )


def test_a_closed_stdout_is_no_error(program):
    done = shell(program, "$RUN --y-out y.npy >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert np.load(program.cwd / "y.npy").shape == (64,)


def test_a_signal_that_is_ignored_stays_ignored(program):
    code = (
        "import os, signal; from spmv_fpga.cli import status_of; "
        "signal.signal(signal.SIGHUP, signal.SIG_IGN); status_of(['--version']); "
        "os.kill(os.getpid(), signal.SIGHUP)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=program.environment(), check=False,
                          capture_output=True, text=True)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(
    os.geteuid() == 0 and not shutil.which("setpriv"), reason="root needs setpriv for this"
)
def test_a_working_folder_that_cannot_be_written_is_no_hindrance(program):
    program.cwd.chmod(0o555)
    without_root = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]
    done = subprocess.run(
        [*(without_root if os.geteuid() == 0 else []), sys.executable, "-m", "spmv_fpga",
         *REFERENCE, "--quiet"],
        cwd=program.cwd, env=program.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
