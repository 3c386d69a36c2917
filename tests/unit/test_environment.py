"""The environment of a run: what is found, made once, named and removed again."""

from __future__ import annotations

import importlib.util
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spmv_fpga import build_cache
from spmv_fpga.errors import DeviceError, ToolError, ToolNotFoundError
from spmv_fpga.runtime import environment
from spmv_fpga.runtime.environment import (
    EmulationFiles,
    RunFolder,
    XrtInstall,
    card_environment,
    check_installation,
    emulation_config,
    emulation_environment,
    find_xrt,
    has_card,
    prepare_emulation,
)
from spmv_fpga.toolchain.compiler import find_compiler, run_tool

LONGEST_SOCKET_NAME = "device99_1_4194304"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No runtime, ICD or card of the machine that runs the tests is seen."""
    for name in ("XILINX_XRT", "OCL_ICD_VENDORS", "LD_LIBRARY_PATH", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(environment, "AMD_ROOT", tmp_path / "opt")
    monkeypatch.setattr(environment, "_SYSTEM_ICDS", tmp_path / "vendors")
    monkeypatch.setattr(environment, "_library_folders", lambda: iter((tmp_path / "usr_lib",)))


def touch(*files: Path) -> None:
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def install_amd(root: Path) -> Path:
    names = ("libxrt_swemu.so.2", "libxilinxopencl.so.2", "libxrt_core.so.2")
    touch(*(root / "lib" / name for name in names))
    return root


def install_debian(tmp_path: Path) -> Path:
    lib = tmp_path / "usr_lib"
    touch(*(lib / n for n in ("libxrt_swemu.so.2", "libxilinxopencl.so.2", "libxrt_swemu.a")))
    return lib


def emulation_files(tmp_path: Path) -> EmulationFiles:
    xrt = XrtInstall("debian", tmp_path, tmp_path / "lib")
    return EmulationFiles(xrt, Path("/o v"), Path("/v"), Path("/i"), 2, "a_platform")


# --- What is installed ------------------------------------------------------------------


def test_the_runtime_that_the_user_names_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_debian(tmp_path)
    root = install_amd(tmp_path / "mine")
    monkeypatch.setenv("XILINX_XRT", str(root))

    assert find_xrt() == XrtInstall("amd", root, root / "lib")


def test_the_distribution_has_the_runtime_where_amd_has_none(tmp_path: Path) -> None:
    lib = install_debian(tmp_path)

    assert find_xrt() == XrtInstall("debian", tmp_path, lib)


def test_a_missing_runtime_is_refused_with_the_line_that_installs_it() -> None:
    with pytest.raises(ToolNotFoundError) as refusal:
        find_xrt()

    assert str(refusal.value) == (
        "the Xilinx Runtime (XRT) is missing; "
        "run `apt-get install -y libxrt1 libxrt-dev g++` as root."
    )


def test_a_missing_compiler_is_refused_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ToolNotFoundError, match=r"^the C\+\+ compiler g\+\+ is missing; run"):
        find_compiler()


def test_a_runtime_without_its_development_files_is_refused(tmp_path: Path) -> None:
    (install_debian(tmp_path) / "libxrt_swemu.a").unlink()

    with pytest.raises(ToolNotFoundError, match=r"^libxrt_swemu\.a \(package libxrt-dev\)"):
        prepare_emulation()


# --- What is built, once ----------------------------------------------------------------


@pytest.fixture
def makings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Record what would be built, and build next to nothing."""
    install_debian(tmp_path)
    touch(tmp_path / "bin" / "g++")
    (tmp_path / "bin" / "g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    made: list[Path] = []

    def make(folder: Path, xrt: XrtInstall, compiler: Path) -> None:
        made.append(folder)

    monkeypatch.setattr(environment, "_make", make)
    return made


def test_the_same_is_made_only_once(makings: list[Path]) -> None:
    first, second = prepare_emulation(), prepare_emulation(num_cards=2)

    assert len(makings) == 1
    assert first.card == second.card
    assert (first.num_cards, second.num_cards) == (1, 2)


def test_another_version_of_the_runtime_is_not_mixed_with_the_old(
    makings: list[Path], tmp_path: Path
) -> None:
    first = prepare_emulation()
    (tmp_path / "usr_lib" / "libxrt_swemu.so.2").write_text("newer")

    assert prepare_emulation().card != first.card
    assert len(makings) == 2


def test_two_that_need_the_same_at_once_make_it_once(makings: list[Path]) -> None:
    threads = [threading.Thread(target=prepare_emulation) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(makings) == 1


def test_a_failed_build_leaves_nothing_that_looks_built(
    makings: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(folder: Path, xrt: XrtInstall, compiler: Path) -> None:
        raise ToolError("the emulated card does not compile")

    monkeypatch.setattr(environment, "_make", fail)

    with pytest.raises(ToolError):
        prepare_emulation()

    assert [p for p in (tmp_path / "cache" / "emulation").iterdir() if p.is_dir()] == []


def test_where_the_cache_cannot_be_written_a_private_folder_serves(
    makings: list[Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    touch(tmp_path / "a_file")
    private = tmp_path / "private"
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "a_file" / "cache"))
    monkeypatch.setattr(build_cache, "private_folder", lambda: private)

    assert prepare_emulation().card.is_relative_to(private)


def test_a_compiler_that_fails_is_told_with_its_last_lines() -> None:
    with pytest.raises(ToolError) as failure:
        run_tool(["sh", "-c", "echo no such header >&2; exit 3"], "it does not compile")

    assert str(failure.value) == (
        "it does not compile (sh ended with status 3):\nno such header"
    )
    assert failure.value.returncode == 3


# --- One run ----------------------------------------------------------------------------


def test_a_run_folder_is_private_and_goes_after_an_error_too() -> None:
    run = RunFolder()
    mode = stat.S_IMODE(run.path.stat().st_mode)
    touch(run.path / ".run" / "1" / "dltmp")

    with pytest.raises(KeyError), run:
        raise KeyError

    assert mode == 0o700
    assert not run.path.exists()


@pytest.fixture
def run_parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the test's own in which run folders stand."""
    with RunFolder() as outer:
        parent = outer.path / "r"  # short: a socket's path has 107 characters
        parent.mkdir()
        monkeypatch.setenv("TMPDIR", str(parent))
        yield parent


HOLDER = """
import sys
from spmv_fpga.runtime.environment import RunFolder
run = RunFolder()
print(run.path, flush=True)
sys.stdin.read()
"""


def start_holder(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    """Start a process with a run's folder below a parent; return both."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "TMPDIR": str(parent),
             "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert holder.stdout is not None
    return holder, Path(holder.stdout.readline().strip())


def test_the_folder_of_a_killed_run_goes_at_the_next_start(
    run_parent: Path,
) -> None:
    holder, folder = start_holder(run_parent)
    with holder:
        with RunFolder():
            assert folder.is_dir()  # its process lives
        holder.kill()
        holder.wait()
        assert folder.is_dir()
        with RunFolder() as run:
            assert list(run_parent.iterdir()) == [run.path]


def test_a_folder_stays_while_a_child_has_its_lock(
    run_parent: Path,
) -> None:
    run = RunFolder()
    child = subprocess.Popen(["sleep", "600"], pass_fds=[run.lock])
    try:
        os.close(run.lock)
        run._lock = None  # as if this process had been killed
        run._temporary._finalizer.detach()
        with RunFolder():
            assert run.path.is_dir()
    finally:
        child.kill()
        child.wait()
    with RunFolder():
        assert not run.path.exists()


def test_folders_that_no_run_has_locked_are_left_alone(
    run_parent: Path,
) -> None:
    foreign = [run_parent / name for name in ("spmv_fpga_12345678", "spmv_fpga_cache_12345678")]
    for folder in foreign:
        folder.mkdir()
    touch(foreign[1] / "lock")
    with RunFolder():
        assert all(folder.is_dir() for folder in foreign)


@pytest.mark.parametrize("name", ["a blank", "a;b", "$(touch x)", "ü", "x" * 100])
def test_a_temporary_folder_that_the_runtime_would_not_stand_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    unfit = tmp_path / name
    unfit.mkdir()
    monkeypatch.setenv("TMPDIR", str(unfit))

    with RunFolder() as run:
        assert not run.path.is_relative_to(unfit)
        socket_path = f"/tmp/{run.user}/{LONGEST_SOCKET_NAME}"
        assert Path(socket_path).parent.resolve() == run.path.resolve()
        assert len(socket_path) < 108


def test_a_fit_temporary_folder_of_the_user_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with RunFolder() as outer:
        monkeypatch.setenv("TMPDIR", str(outer.path))
        with RunFolder() as inner:
            assert inner.path.parent == outer.path


def test_the_cards_report_is_read_line_by_line() -> None:
    with RunFolder() as run:
        assert (run.report(), run.failure()) == ([], None)
        run.report_path.write_text(
            '{"unit": "spmv_block_2", "launch": 1, "report": {"words": 7}}\n'
            '{"unit": "spmv_block_1", "error": "stream products is full"}\n'
            '{"unit": "spmv'
        )
        assert run.report()[0]["report"] == {"words": 7}
        assert run.failure() == "spmv_block_1: stream products is full"


def test_the_variables_of_an_emulated_run_point_into_its_folder(tmp_path: Path) -> None:
    with RunFolder() as run:
        variables = emulation_environment(emulation_files(tmp_path), run)
        config = json.loads((run.path / "emconfig.json").read_text())
        ini = (run.path / "xrt.ini").read_text()

    assert variables == {
        "XCL_EMULATION_MODE": "sw_emu",
        "XILINX_XRT": "/o v",
        "XILINX_VITIS": "/v",
        "OCL_ICD_VENDORS": "/i",
        "EMCONFIG_PATH": str(run.path),
        "SDACCEL_EM_RUN_DIR": str(run.path),
        "XRT_INI_PATH": str(run.path / "xrt.ini"),
        "USER": run.user,
        "SW_EMU_PACKET_SIZE": "524288",
        "SPMV_FPGA_EMULATION_REPORT": str(run.report_path),
        "PYOPENCL_NO_CACHE": "1",
    }
    assert config == json.loads(emulation_config(2, "a_platform"))
    assert ini == f"[Runtime]\nruntime_log={run.log_path}\n"


def test_an_emulated_card_has_the_32_banks_and_the_name_of_its_platform() -> None:
    config = json.loads(emulation_config())

    [board] = config["Platform"]["Boards"]
    [device] = board["Devices"]
    assert config["Version"]["FileVersion"] == "2.0"
    assert device["Name"] == "xilinx_u50_gen3x16_xdma_201920_3"
    assert [bank["Size"] for bank in device["DdrBanks"]] == ["256MB"] * 32


# --- A real card ------------------------------------------------------------------------


@pytest.fixture
def without_pyopencl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


@pytest.fixture
def with_pyopencl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("without_pyopencl")
def test_a_card_is_refused_with_all_that_is_missing_and_the_file_to_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nonexistent")

    with pytest.raises(DeviceError) as refusal:
        card_environment()

    message = str(refusal.value)
    assert "pyopencl is missing" in message
    assert "ICD of XRT is missing (no xilinx.icd in OCL_ICD_VENDORS=/nonexistent)" in message
    assert "XRT is missing (XILINX_XRT is not set" in message
    assert "`source /opt/xilinx/xrt/setup.sh`" in message


@pytest.mark.usefixtures("with_pyopencl")
def test_a_folder_without_the_runtime_in_xilinx_xrt_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XILINX_XRT", "/nowhere")

    with pytest.raises(DeviceError, match="XILINX_XRT=/nowhere holds no lib/libxrt_core"):
        card_environment()


@pytest.mark.usefixtures("with_pyopencl")
def test_a_runtime_without_an_icd_file_gets_one_in_the_cache(tmp_path: Path) -> None:
    root = install_amd(tmp_path / "opt")

    variables = card_environment()

    [icd] = Path(variables["OCL_ICD_VENDORS"]).iterdir()
    assert icd.read_text() == f"{root}/lib/libxilinxopencl.so.2\n"
    assert icd.is_relative_to(tmp_path / "cache")
    assert variables["XILINX_XRT"] == str(root)
    assert variables["LD_LIBRARY_PATH"] == f"{root}/lib"
    assert "XCL_EMULATION_MODE" not in variables


@pytest.mark.usefixtures("with_pyopencl")
def test_the_systems_icd_file_is_left_to_the_loader(tmp_path: Path) -> None:
    install_amd(tmp_path / "opt")
    touch(tmp_path / "vendors" / "xilinx.icd")
    (tmp_path / "vendors" / "xilinx.icd").write_text("libxilinxopencl.so\n")

    assert "OCL_ICD_VENDORS" not in card_environment()


@pytest.mark.usefixtures("with_pyopencl")
def test_hardware_emulation_gets_a_run_folder_and_its_mode(tmp_path: Path) -> None:
    install_amd(tmp_path / "opt")

    with RunFolder() as run:
        variables = card_environment("hw_emu", run)
        assert (run.path / "emconfig.json").exists()

    assert variables["XCL_EMULATION_MODE"] == "hw_emu"
    assert variables["EMCONFIG_PATH"] == str(run.path)


@pytest.mark.parametrize(("vendor", "found"), [("0x10ee\n", True), ("0x8086\n", False)])
def test_a_card_is_told_by_its_vendor_on_the_pci_bus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vendor: str, found: bool
) -> None:
    device = tmp_path / "pci" / "0000:3b:00.1"
    device.mkdir(parents=True)
    (device / "vendor").write_text(vendor)
    monkeypatch.setenv("SPMV_FPGA_SYSFS_PCI", str(tmp_path / "pci"))

    assert has_card() is found


# --- The doctor -------------------------------------------------------------------------


def test_every_finding_that_is_not_right_names_its_remedy(tmp_path: Path) -> None:
    findings = {finding.name: finding for finding in check_installation()}

    assert not findings["Xilinx Runtime (XRT)"].ok
    assert "apt-get install" in findings["Xilinx Runtime (XRT)"].remedy
    assert not findings["Alveo card"].is_needed
    assert all(finding.remedy for finding in findings.values() if not finding.ok)


def test_a_pyopencl_that_does_not_import_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touch(tmp_path / "fake" / "pyopencl" / "__init__.py")
    (tmp_path / "fake" / "pyopencl" / "__init__.py").write_text("raise ImportError('broken')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "fake"))

    [finding] = [f for f in check_installation() if f.name == "pyopencl"]

    assert (finding.ok, finding.remedy) == (False, "run `pip install pyopencl`.")
    assert finding.detail == "pyopencl (ImportError: broken) is missing"


def test_importing_the_module_loads_no_opencl_and_writes_nothing(tmp_path: Path) -> None:
    code = "import sys, spmv_fpga.runtime.environment; print('pyopencl' in sys.modules)"
    paths: list[Any] = [Path(environment.__file__).parents[2], *sys.path]
    home = tmp_path / "home"
    home.mkdir()
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "HOME": str(home),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True
    )

    assert done.stdout == "False\n"
    assert list(home.iterdir()) == []
