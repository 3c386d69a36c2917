"""The Makefile, run by GNU make on a copy whose Python only notes how it was called."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
MAKE = shutil.which("make")
MAKEFILE = TESTS.parent / "Makefile"

pytestmark = [
    pytest.mark.skipif(MAKE is None, reason="needs GNU make"),
    pytest.mark.skipif(not MAKEFILE.is_file(), reason="needs a checkout with its Makefile"),
]

# Notes its arguments; makes a virtual environment whose Python is a copy of itself.
PYTHON = """#!/bin/sh
printf '%s\\n' "$*" >>"$CALLS"
case "$*" in
"-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
"-m spmv_fpga "*) exit "${STATUS:-0}" ;;
esac
"""
NOTE_CALL = '#!/bin/sh\nprintf "%s\\n" "${0##*/} $*" >>"$CALLS"\n'
NO_PACKAGE = "#!/bin/sh\nexit 1\n"
SETUP = [
    "-c import ensurepip, venv",
    "-m venv .venv",
    "-m pip install --quiet --disable-pip-version-check --editable .[test]",
]
RUN = (
    "-m spmv_fpga run --matrix gallery:elasticity3d --kernel block --block 16 --slice 16 "
    "--mode sw_emu"
)


class Checkout:
    """A copy of the Makefile in a folder with a blank, and the programs that it may find."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.calls_path = folder / "a checkout", folder / "calls"
        self.bin = folder / "bin"
        self.folder.mkdir()
        self.bin.mkdir()
        shutil.copy(MAKEFILE, self.folder)
        (self.folder / "pyproject.toml").write_text("")
        for tool in ("cp", "echo", "grep", "mkdir", "sed", "sh", "touch"):
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.program("python3", PYTHON)

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def make(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        self.calls_path.write_text("")
        return subprocess.run(
            [MAKE, f"XRT={self.folder}/none", *words],
            cwd=self.folder,
            env={"PATH": str(self.bin), "CALLS": str(self.calls_path), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[str]:
        return self.calls_path.read_text().splitlines()

    def set_up(self) -> None:
        assert self.make("venv").returncode == 0


@pytest.fixture
def checkout(tmp_path) -> Checkout:
    return Checkout(tmp_path)


def without_packages(checkout: Checkout, user_id: int) -> None:
    checkout.program("apt-get", NOTE_CALL)
    checkout.program("dpkg-query", NO_PACKAGE)
    checkout.program("id", f"#!/bin/sh\necho {user_id}\n")


def test_make_alone_prints_its_targets(checkout):
    result = checkout.make()
    assert result.returncode == 0
    printed = [line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")]
    assert {"run", "test", "xclbin", "render", "lint", "bench", "venv", "clean"} <= set(printed)
    assert checkout.calls() == []


def test_make_xclbin_calls_the_command_of_the_golden_file(checkout):
    checkout.set_up()
    golden = (TESTS / "golden" / "vitis" / "make_xclbin.txt").read_text(encoding="utf-8")
    assert checkout.make("-n", "xclbin", "BLOCK=16").stdout == golden


def test_variables_work_the_same_from_the_environment(checkout):
    checkout.set_up()
    values = {"KERNEL": "scalar", "BLOCK": "32", "SLICE": "8", "CU": "2", "TARGET": "hw_emu",
              "PLATFORM": "my platform.xpfm"}  # fmt: skip
    checkout.make("xclbin", *(f"{name}={value}" for name, value in values.items()))
    from_command_line = checkout.calls()
    checkout.make("xclbin", **values)
    assert checkout.calls() == from_command_line
    assert from_command_line == [
        "-m spmv_fpga xclbin --kernel scalar --block 32 --slice 8 --cu 2 --target hw_emu "
        "--platform my platform.xpfm --build-dir build"
    ]


def test_parameters_of_lanes_are_passed_on_where_they_are_given(checkout):
    checkout.set_up()
    checkout.make("render", "KERNEL=lanes", "DEPTH=16", "YROOM=8192", "CU=18")
    assert checkout.calls() == [
        "-m spmv_fpga render --kernel lanes --block 16 --slice 16 --cu 18 --depth 16 "
        "--y-room 8192"
    ]
    checkout.make("xclbin", PANEL="8192")
    assert checkout.calls() == [
        "-m spmv_fpga xclbin --kernel block --block 16 --slice 16 --cu 1 --panel 8192 "
        "--target hw --build-dir build"
    ]


def test_make_xclbin_sets_up_only_the_virtual_environment(checkout):
    without_packages(checkout, user_id=1000)
    assert checkout.make("xclbin").returncode == 0
    assert checkout.calls()[:3] == SETUP
    assert checkout.calls()[3].startswith("-m spmv_fpga xclbin ")


def test_make_xclbin_leaves_it_to_the_command_what_is_up_to_date(checkout):
    checkout.set_up()
    (checkout.folder / "xclbin").write_text("a file of the target's name")
    for _ in range(2):
        checkout.make("xclbin")
        assert len(checkout.calls()) == 1


@pytest.mark.parametrize("status", ["1", "2"])
def test_a_command_that_fails_makes_make_fail_with_2(checkout, status):
    checkout.set_up()
    assert checkout.make("xclbin", STATUS=status).returncode == 2


def test_a_refused_xclbin_leaves_stdout_empty(checkout):
    assert checkout.make("xclbin", STATUS="2").stdout == ""


def test_the_second_set_up_does_nothing(checkout):
    checkout.set_up()
    assert checkout.calls() == SETUP
    checkout.set_up()
    assert checkout.calls() == []


def test_a_changed_pyproject_installs_again_into_the_same_environment(checkout):
    checkout.set_up()
    stamp = checkout.folder / ".venv" / ".installed"
    os.utime(stamp, ns=(0, 0))
    checkout.set_up()
    assert checkout.calls() == ["-m pip --version", "-m pip --version", SETUP[-1]]


def test_a_failed_installation_is_tried_again(checkout):
    checkout.program("python3", PYTHON + 'case "$*" in *editable*) exit 1 ;; esac\n')
    assert checkout.make("venv").returncode == 2
    assert checkout.make("venv").returncode == 2
    assert checkout.calls()[-1] == SETUP[-1]


def test_missing_packages_are_named_to_an_ordinary_user(checkout):
    without_packages(checkout, user_id=1000)
    result = checkout.make("run")
    assert result.returncode == 2
    assert (
        "run: sudo apt-get install --no-install-recommends g++ libxrt1 libxrt-dev\n"
        in result.stderr
    )
    assert result.stdout == ""
    assert checkout.calls() == []


def test_root_gets_the_missing_packages_installed(checkout):
    without_packages(checkout, user_id=0)
    checkout.program("g++", NOTE_CALL)
    assert checkout.make("run").returncode == 0
    assert checkout.calls() == [
        "apt-get update --quiet=2",
        "apt-get install --yes --quiet=2 --no-install-recommends libxrt1 libxrt-dev",
        *SETUP,
        RUN,
    ]


def test_a_failed_installation_of_packages_stops_the_set_up(checkout):
    without_packages(checkout, user_id=0)
    checkout.program("apt-get", NO_PACKAGE)
    assert checkout.make("run").returncode == 2
    assert checkout.calls() == []


def test_installed_packages_are_not_installed_again(checkout):
    without_packages(checkout, user_id=0)
    checkout.program("g++", NOTE_CALL)
    checkout.program("dpkg-query", "#!/bin/sh\nprintf installed\n")
    checkout.make("run")
    assert checkout.calls() == [*SETUP, RUN]


def test_without_apt_the_needed_packages_are_named_and_the_job_runs(checkout):
    result = checkout.make("run")
    assert result.returncode == 0
    assert "This may need g++ libxrt1 libxrt-dev" in result.stderr
    assert checkout.calls()[-1] == RUN


def test_a_python_that_cannot_make_environments_needs_a_package(checkout):
    without_packages(checkout, user_id=1000)
    checkout.program("python3", "#!/bin/sh\nexit 1\n")
    result = checkout.make("xclbin")
    assert result.returncode == 2
    assert "sudo apt-get install --no-install-recommends python3-venv\n" in result.stderr


def test_make_test_passes_words_on_to_pytest(checkout):
    checkout.make("test", "PYTEST_ARGS=-x tests/unit")
    assert checkout.calls()[-1] == "-m pytest -x tests/unit"


def test_a_virtual_environment_with_a_blank_in_its_name_is_refused(checkout):
    result = checkout.make("venv", "VENV=my venv")
    assert result.returncode == 2
    assert "VENV is 'my venv'; it must be one path without blanks" in result.stderr
