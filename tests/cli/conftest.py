"""The command line as a user starts it, in folders of the test's own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spmv_fpga
from spmv_fpga import cli

PACKAGE_PARENT = Path(spmv_fpga.__file__).resolve().parents[1]
REFUSAL_LIMIT_S, ATTEMPTS = 5.0, 3
PATIENCE_S = 60.0
# What would change the program's way, or let a real card answer.
FOREIGN = (
    "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "XCL_EMULATION_MODE", "XILINX_XRT", "XILINX_VITIS",
    "OCL_ICD_VENDORS", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "PLATFORM", "PYTHONPATH",
)  # fmt: skip


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


@dataclass(frozen=True)
class Outcome:
    """What a run of the program left to see."""

    status: int
    stdout: str
    stderr: str
    time_s: float = 0.0

    @property
    def document(self) -> Any:
        """All of stdout as one JSON document, by a strict parser."""
        return json.loads(self.stdout, parse_constant=_no_constant)


class Program:
    """`python -m spmv_fpga` with a working folder, a cache, a HOME and a TMPDIR of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cwd, self.cache = folder / "work", folder / "cache"
        self.home, self.temporary = folder / "home", folder / "tmp"
        for each in (self.cwd, self.home, self.temporary):
            each.mkdir()

    def write(self, name: str, content: str | bytes) -> str:
        """Write an input file into the working folder."""
        data = content.encode() if isinstance(content, str) else content
        (self.cwd / name).write_bytes(data)
        return name

    def keep_builds(self) -> None:
        """Use the cache of all tests, so that a kernel is compiled once."""
        self.cache = Path(os.environ["SPMV_FPGA_CACHE"]).absolute()

    def environment(self, **changes: str | None) -> dict[str, str]:
        """Return the environment of a run; None takes a variable away."""
        own: dict[str, str | None] = {
            **{name: value for name, value in os.environ.items() if name not in FOREIGN},
            "SPMV_FPGA_CACHE": str(self.cache),
            "SPMV_FPGA_OFFLINE": "1",
            "SPMV_FPGA_SYSFS_PCI": str(self.home),
            "HOME": str(self.home),
            "TMPDIR": str(self.temporary),
            "PYTHONDONTWRITEBYTECODE": "1",
            "no_proxy": "127.0.0.1",
        }
        before = changes.pop("PYTHONPATH", None)
        own |= changes
        own["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(PACKAGE_PARENT))))
        return {name: value for name, value in own.items() if value is not None}

    def start(self, *words: str, **changes: str | None) -> subprocess.Popen[str]:
        """Start the program in a session of its own."""
        return subprocess.Popen(
            [sys.executable, "-m", "spmv_fpga", *words],
            cwd=self.cwd,
            env=self.environment(**changes),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *words: str, **changes: str | None) -> Outcome:
        """Run the program in a process of its own."""
        start_s = time.monotonic()
        process = self.start(*words, **changes)
        try:
            stdout, stderr = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        return Outcome(process.returncode, stdout, stderr, time.monotonic() - start_s)

    def here(self, *words: str, **changes: str) -> Outcome:
        """Run the program inside this process: the same, and quicker."""
        stdout, stderr = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.cwd)
            for name in FOREIGN:
                patch.delenv(name, raising=False)
            variables = {"SPMV_FPGA_CACHE": str(self.cache), "SPMV_FPGA_OFFLINE": "1",
                         "SPMV_FPGA_SYSFS_PCI": str(self.home), **changes}  # fmt: skip
            for name, value in variables.items():
                patch.setenv(name, value)
            with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
                status = cli.status_of(words)
        return Outcome(status, stdout.getvalue(), stderr.getvalue())

    def multiply(
        self, matrix: str, *words: str, x: str = "index", in_process: bool = True
    ) -> list[float]:
        """Run the main job, which must end well, and return y."""
        y_path = self.cwd / "y.npy"
        y_path.unlink(missing_ok=True)
        mode = () if "--mode" in words else ("--mode", "reference")
        baseline = ("--baseline", "none") if in_process else ()  # timing it takes longest
        command = ("run", *mode, *baseline, "--x", x, "--y-out", "y.npy", "--matrix", matrix)
        outcome = (self.here if in_process else self.run)(*command, *words)
        assert (outcome.status, outcome.stderr) == (0, "")
        y = np.load(y_path)
        assert y.dtype == np.float32
        return [float(value) for value in y]

    def files(self) -> list[str]:
        """List all that there is on disk in the program's folders."""
        folders = (self.folder, self.cache)
        return sorted(str(path) for folder in folders for path in folder.rglob("*"))

    def refuse(
        self, *words: str, names: Sequence[str], in_process: bool = False, **changes: str
    ) -> str:
        """Run the program, which must refuse clearly, and return its message."""
        before = self.files()
        run = self.here if in_process else self.run
        outcome = run(*words, **changes)
        for _ in range(ATTEMPTS - 1):  # a busy machine is slow, but not each time
            if outcome.time_s < REFUSAL_LIMIT_S:
                break
            outcome = run(*words, **changes)
        assert outcome.status == 2, outcome
        assert outcome.stdout == ""
        assert outcome.stderr.startswith("spmv-fpga: ")
        assert outcome.stderr.count("spmv-fpga: ") == 1
        assert "Traceback" not in outcome.stderr
        for name in names:
            assert name in outcome.stderr
        assert self.files() == before
        assert outcome.time_s < REFUSAL_LIMIT_S
        return outcome.stderr


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in fresh folders, off line."""
    return Program(tmp_path)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let processes that are started here hear Ctrl-C, also where the tests do not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    """Give back the handlers that the program sets when it runs in this process."""
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def stand_in(tmp_path: Path) -> Any:
    """Make a folder with a program or a Python package that stands in for a real one."""

    def make(path: str, content: str) -> str:
        file = tmp_path / "stand_ins" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
        file.chmod(0o755)
        return str(tmp_path / "stand_ins")

    return make


@pytest.fixture(scope="session")
def copied_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what `make` and the package need, to run them in."""
    if not (PACKAGE_PARENT / "Makefile").is_file():
        pytest.skip("needs a checkout with its Makefile")
    tree = tmp_path_factory.mktemp("tree")
    without_caches = shutil.ignore_patterns("__pycache__", "*.tar.gz")
    for name in ("spmv_fpga", "hls_templates", "host", "matrices"):
        shutil.copytree(PACKAGE_PARENT / name, tree / name, ignore=without_caches)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(PACKAGE_PARENT / name, tree)
    return tree
