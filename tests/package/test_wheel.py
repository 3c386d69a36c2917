"""A wheel built from the checkout, installed elsewhere, runs the main job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
LEAST_SETUPTOOLS = 77  # as pyproject.toml has it
NEEDED = (
    "spmv_fpga/py.typed",
    "spmv_fpga/boards/u50.toml",
    "spmv_fpga/hls_templates/common/top.cpp.j2",
    "spmv_fpga/hls_templates/block/kernel.toml",
    "spmv_fpga/hls_templates/scalar/scalar.hpp",
    "spmv_fpga/host/hls/hls_stream.h",
    "spmv_fpga/host/emulated_card/emulated_card.cpp",
    "spmv_fpga/host/driver/growing_buffer.c",
    "spmv_fpga/matrices/data/suite.toml",
)


def can_build_without_isolation() -> bool:
    try:
        return int(version("setuptools").partition(".")[0]) >= LEAST_SETUPTOOLS
    except PackageNotFoundError:
        return False


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a wheel from a copy, so that the checkout stays as it is."""
    if not (CHECKOUT / "pyproject.toml").is_file():
        pytest.skip("needs a checkout")
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    left_out = shutil.ignore_patterns(".*", "build", "__pycache__", "*.egg-info", "*.tar.gz")
    shutil.copytree(CHECKOUT, source, ignore=left_out, dirs_exist_ok=True)
    (source / "build").mkdir()
    (source / "build" / "old.xclbin").write_text("built before")
    isolation = ["--no-build-isolation"] if can_build_without_isolation() else []
    words = ["wheel", "--no-deps", "--quiet", *isolation, "--wheel-dir", str(out), str(source)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode and not isolation:
        pytest.skip("building needs a newer setuptools, which cannot be had here")
    assert done.returncode == 0, done.stderr
    (made,) = out.glob("*.whl")
    return made


def test_the_wheel_holds_what_the_main_job_needs(wheel):
    with zipfile.ZipFile(wheel) as archive:
        assert set(NEEDED) <= set(archive.namelist())


def test_every_template_and_host_file_is_in_the_wheel(wheel):
    with zipfile.ZipFile(wheel) as archive:
        packed = set(archive.namelist())
    for folder in ("hls_templates", "host"):
        for path in (CHECKOUT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert f"spmv_fpga/{path.relative_to(CHECKOUT)}" in packed


def test_the_wheel_holds_neither_tests_nor_builds(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"spmv_fpga"}
    assert not [name for name in names if "/tests/" in name or name.endswith(".xclbin")]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel alone: what it depends on comes from this environment."""
    target = tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet",
         "--no-deps", "--no-index", "--target", str(target), str(wheel)],
        check=True, capture_output=True,
    )  # fmt: skip
    return target


def run_installed(
    installed: Path, folder: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    # Only the installed copy and this environment's packages: no checkout.
    path = os.pathsep.join((str(installed), sysconfig.get_path("purelib")))
    foreign = ("XCL_EMULATION_MODE", "XILINX_XRT", "OCL_ICD_VENDORS")
    environment = {k: v for k, v in os.environ.items() if k not in foreign}
    environment |= {"PYTHONPATH": path, "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "spmv_fpga", *words],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
        start_new_session=True,
    )  # fmt: skip


@pytest.mark.xrt
def test_an_installed_wheel_runs_the_main_job(installed, tmp_path):
    words = ("run", "--matrix", "gallery:poisson2d:n=8", "--mode", "sw_emu")
    done = run_installed(installed, tmp_path, *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert "y verified" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_installed_wheel_renders_and_knows_the_suite(installed, tmp_path):
    words = ("render", "--kernel", "scalar", "-o", "project")
    assert run_installed(installed, tmp_path, *words).returncode == 0
    assert (tmp_path / "project" / "scalar.hpp").is_file()
    assert "TS2383" in run_installed(installed, tmp_path, "matrices", "list").stdout


def test_the_installed_copy_is_the_one_that_runs(installed, tmp_path):
    path = os.pathsep.join((str(installed), sysconfig.get_path("purelib")))
    done = subprocess.run(
        [sys.executable, "-c", "import spmv_fpga; print(spmv_fpga.__file__)"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.startswith(str(installed))
