"""Builds a rendered kernel with the `v++` of Vitis 2020.2 and later, for `hw` and `hw_emu`.

Contract: an output has its final name only when it is complete; a failed or interrupted
build leaves none, not even an older one; nothing is built twice from the same input. The
command lines depend on the version that `v++ --version` reports; a version that it does not
report is taken for the newest one known. `sw_emu` is never asked of `v++`, which lost it in
2025.1 (UG1702): the package has a toolchain of its own for that target.

A build keeps all that it writes beside the xclbin in one folder, `vitis/`: the log, the
reports, the object file and the stamp that says what the xclbin was made from.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TextIO

from filelock import FileLock, Timeout

from spmv_fpga import units
from spmv_fpga.errors import KernelSpecError, ToolError, ToolNotFoundError

TARGETS = ("hw", "hw_emu")

# UG1120: the U50's platforms; the second came with Vitis 2022.1.
PLATFORM_UNTIL_2021 = "xilinx_u50_gen3x16_xdma_201920_3"
PLATFORM_SINCE_2022 = "xilinx_u50_gen3x16_xdma_5_202210_1"

_OLDEST = (2020, 2)
_FREQHZ_SINCE = (2023, 2)  # UG1393 2023.2: one clock option for compiling and linking
_NEW_PLATFORM_SINCE = (2022, 1)
_NEWEST = (9999, 0)

_VERSION = re.compile(r"\bv(20\d\d\.\d+)\b")
_ERROR = re.compile(r"\s*ERROR:")
_TIMING = re.compile(
    r"(not|failed to) meet (the )?timing|timing constraints are not met", re.IGNORECASE
)

# With the sentence before them and the line that make adds, these fit into 20 lines.
_TAIL_LINES = 16
_VERSION_TIMEOUT_S = 60.0
_TERMINATE_TIMEOUT_S = 5.0

_VITIS_HINT = (
    "source the settings64.sh of Vitis (2020.2 or later), "
    "or build with TARGET=sw_emu, which needs no Vitis"
)

OnLine = Callable[[str], object]


@dataclass(frozen=True)
class Vitis:
    """The compiler that was found.

    Parameters
    ----------
    command : str
        Absolute path of `v++`.
    version : str or None
        Such as "2023.2"; None where the program does not say.
    """

    command: str
    version: str | None


@dataclass(frozen=True)
class Design:
    """What one xclbin is built from.

    Parameters
    ----------
    kernel : str
        Name of the C function, such as "spmv_block".
    source : Path
        C++ file that holds it.
    link_cfg : Path
        Configuration file for linking: compute units and their memory banks.
    platform : str
        Name of a platform, or the path of an .xpfm file.
    clock_hz : float
        Kernel clock to ask for, in whole hertz (whole megahertz before Vitis 2023.2).
    target : str
        "hw" or "hw_emu".
    include_dirs : sequence of Path
        Folders with headers.
    compute_units : sequence of str
        Names of the units in `link_cfg`; by default the one unit "<kernel>_1".

    Raises
    ------
    KernelSpecError
        If the target is not one of `TARGETS` or the clock is no positive whole number.

    Examples
    --------
    >>> design = Design("spmv_block", Path("src/block.cpp"), Path("src/link.cfg"),
    ...                 PLATFORM_SINCE_2022, clock_hz=300e6)
    >>> design.clock_hz, design.compute_units
    (300000000, ('spmv_block_1',))
    """

    kernel: str
    source: Path
    link_cfg: Path
    platform: str
    clock_hz: float
    target: str = "hw"
    include_dirs: Sequence[Path] = ()
    compute_units: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.target not in TARGETS:
            raise KernelSpecError(
                f"target is {self.target}; v++ is asked for hw or hw_emu only."
            )
        # Written so that NaN and infinity are refused too.
        if not (0 < self.clock_hz < 1e12 and self.clock_hz == int(self.clock_hz)):
            raise KernelSpecError(
                f"clock_hz is {self.clock_hz}; it must be a positive whole number of hertz."
            )
        object.__setattr__(self, "clock_hz", int(self.clock_hz))
        object.__setattr__(self, "include_dirs", tuple(self.include_dirs))
        named_units = tuple(self.compute_units) or (f"{self.kernel}_1",)
        object.__setattr__(self, "compute_units", named_units)


@dataclass(frozen=True)
class BuildReport:
    """What a build did.

    Parameters
    ----------
    path : Path
        The xclbin.
    was_built : bool
        False where the file that was there is up to date.
    clock_requested_hz : int
        Clock that was asked for. The linker lowers it where timing needs that: the
        achieved clock is in the xclbin.
    version : str or None
        Version of Vitis.
    log_path : Path
        Whole output of `v++`.
    time_s : float
        Duration of this call.
    """

    path: Path
    was_built: bool
    clock_requested_hz: int
    version: str | None
    log_path: Path
    time_s: float


# --- what is installed -------------------------------------------------------------------


def detect(path_env: str | None = None) -> Vitis:
    """Find `v++` and its version.

    Parameters
    ----------
    path_env : str, optional
        Folders to search, in the form of `PATH`, which is the default.

    Raises
    ------
    ToolNotFoundError
        If there is no `v++`.
    ToolError
        If it is older than 2020.2 or cannot be started.
    """
    found = shutil.which("v++", path=path_env)
    if found is None:
        raise ToolNotFoundError("v++", _VITIS_HINT)
    command = str(Path(found).absolute())
    version = _reported_version(command)
    if _order(version) < _OLDEST:
        raise ToolError(f"{command} is version {version}, which is too old; {_VITIS_HINT}")
    return Vitis(command, version)


def _reported_version(command: str) -> str | None:
    process = _start((command, "--version"), cwd=None)
    try:
        text, _ = process.communicate(timeout=_VERSION_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        _end(process)
    match = _VERSION.search(text)
    return match[1] if match else None


def _order(version: str | None) -> tuple[int, int]:
    """Return a version as numbers that can be compared; an unknown one is the newest."""
    if version is None:
        return _NEWEST
    year, release = version.split(".")[:2]
    return int(year), int(release)


def default_platform(version: str | None) -> str:
    """Return the U50 platform that goes with a version of Vitis (UG1120).

    >>> default_platform("2020.2"), default_platform("2022.1")
    ('xilinx_u50_gen3x16_xdma_201920_3', 'xilinx_u50_gen3x16_xdma_5_202210_1')
    """
    return (
        PLATFORM_SINCE_2022 if _order(version) >= _NEW_PLATFORM_SINCE else PLATFORM_UNTIL_2021
    )


def platform_name(platform: str) -> str:
    """Return the name of a platform that is given by name or by file.

    >>> platform_name("/opt/xilinx/platforms/my_u50/my_u50.xpfm")
    'my_u50'
    """
    return Path(platform).stem if _is_file_name(platform) else platform


def _is_file_name(platform: str) -> bool:
    return "/" in platform or platform.endswith(".xpfm")


# --- command lines -----------------------------------------------------------------------


def compile_command(
    vitis: Vitis, design: Design, *, output: Path, work: Path
) -> tuple[str, ...]:
    """Return the command that turns the C++ source into an object file.

    Parameters
    ----------
    vitis : Vitis
        Decides the form of the clock option.
    design : Design
        What to compile.
    output : Path
        The .xo file.
    work : Path
        Folder for what `v++` writes beside it.

    Examples
    --------
    >>> design = Design("spmv_block", Path("block.cpp"), Path("link.cfg"), "u50", 300e6)
    >>> command = compile_command(Vitis("v++", "2022.2"), design, output=Path("b.xo"),
    ...                           work=Path("work"))
    >>> command[command.index("--hls.clock") + 1]
    '300000000:spmv_block'
    """
    target = f"{design.clock_hz}:{design.kernel}"
    clock = (f"--freqhz={target}",) if _has_freqhz(vitis) else ("--hls.clock", target)
    includes = (word for folder in design.include_dirs for word in ("-I", str(folder)))
    return (
        *(vitis.command, "--compile", *_common(design, work / "compile")),
        *("--kernel", design.kernel, *clock, *includes),
        *("-o", str(output), str(design.source)),
    )


def link_command(
    vitis: Vitis, design: Design, *, objects: Sequence[Path], output: Path, work: Path,
    jobs: int | None = None,
) -> tuple[str, ...]:  # fmt: skip
    """Return the command that links object files to an xclbin.

    Parameters
    ----------
    vitis, design, work
        As for `compile_command`.
    objects : sequence of Path
        The .xo files.
    output : Path
        The .xclbin file.
    jobs : int, optional
        Processes that `v++` may run at once; its own choice by default.

    Raises
    ------
    KernelSpecError
        If the clock is not in whole megahertz and Vitis is older than 2023.2.
    """
    return (
        *(vitis.command, "--link", *_common(design, work / "link")),
        *("--config", str(design.link_cfg), *_link_clock(vitis, design)),
        *(() if jobs is None else ("--jobs", str(jobs))),
        *("-o", str(output), *map(str, objects)),
    )


def _common(design: Design, work: Path) -> tuple[str, ...]:
    # Folders of its own for every build, so that two builds never share state.
    return (
        *("--target", design.target, "--platform", design.platform),
        *("--temp_dir", str(work / "temp"), "--log_dir", str(work / "logs")),
        *("--report_dir", str(work / "reports")),
    )


def _has_freqhz(vitis: Vitis) -> bool:
    return _order(vitis.version) >= _FREQHZ_SINCE


def _link_clock(vitis: Vitis, design: Design) -> tuple[str, ...]:
    if _has_freqhz(vitis):
        return (f"--freqhz={design.clock_hz}:{','.join(design.compute_units)}",)
    clock_mhz, rest_hz = divmod(int(design.clock_hz), 1_000_000)
    if rest_hz:
        raise KernelSpecError(
            f"clock_hz is {design.clock_hz}; Vitis {vitis.version} takes whole megahertz only."
        )
    return ("--kernel_frequency", str(clock_mhz))


# --- progress ----------------------------------------------------------------------------

_PHASES = (
    (re.compile(r"Run (\w+): Step (\S+): Started"), r"\1: \2"),
    (re.compile(r"Creating kernel: '(\w+)'"), r"high-level synthesis of \1"),
    (
        re.compile(r"Block-level synthesis in progress, (\d+ of \d+)"),
        r"synthesis, \1 blocks",
    ),
    (re.compile(r"Top-level synthesis in progress"), "top-level synthesis"),
    (re.compile(r"Finished (\d+)\w\w of (\d+) tasks \(([^)]*)\)"), r"\1 of \2 tasks: \3"),
    (re.compile(r"^\[[\d:]+\] Starting (.+?)\.\."), r"\1"),
    (re.compile(r"\[v\+\+ 60-791\] Total elapsed time: (.+)"), r"done in \1"),
)


def phase_of(line: str) -> str | None:
    """Say in a few words what `v++` begins with this line of its output, or None.

    >>> phase_of("[14:31:02] Run vpl: Step synth: Started")
    'vpl: synth'
    >>> phase_of("[14:33:40] Block-level synthesis in progress, 3 of 30 jobs complete")
    'synthesis, 3 of 30 blocks'
    >>> phase_of("INFO: [v++ 60-895]   Target platform: u50")
    """
    for pattern, phase in _PHASES:
        match = pattern.search(line)
        if match:
            return match.expand(phase).strip()
    return None


# --- building ----------------------------------------------------------------------------


def build(
    design: Design,
    out_path: Path,
    *,
    vitis: Vitis,
    template_files: Sequence[Path] = (),
    jobs: int | None = None,
    on_line: OnLine | None = None,
) -> BuildReport:
    """Compile and link a design, unless its xclbin is up to date.

    Parameters
    ----------
    design : Design
        What to build. The folder of its source and its include folders are the input:
        any change in them makes it build again.
    out_path : Path
        The xclbin. The folder `vitis` beside it belongs to the build.
    vitis : Vitis
        From `detect`.
    template_files : sequence of Path
        Templates that the source was rendered from: one that was touched makes it build
        again, even if its content is the same.
    jobs : int, optional
        Processes that `v++` may run at once.
    on_line : callable, optional
        Gets each line of output when it comes. What it raises ends the build.

    Returns
    -------
    BuildReport

    Raises
    ------
    ToolError
        If `v++` fails, reports an error, or writes no output, or a folder cannot be written.
        No xclbin is left then.
    """
    began_s = time.monotonic()
    try:
        job = _Job.plan(design, out_path, vitis, template_files, jobs)
        with _alone(job.work, on_line):
            was_built = not job.is_up_to_date()
            if was_built:
                job.run(on_line)
    except OSError as error:
        where = error.filename or out_path.parent
        raise ToolError(
            f"{where}: {error.strerror or error}; choose files that can be read, "
            "and a build folder that can be written."
        ) from error
    return BuildReport(
        path=job.out_path,
        was_built=was_built,
        clock_requested_hz=int(job.design.clock_hz),
        version=vitis.version,
        log_path=job.log_path,
        time_s=time.monotonic() - began_s,
    )


@contextlib.contextmanager
def _alone(work: Path, on_line: OnLine | None) -> Iterator[None]:
    """Wait until no other process builds the same xclbin."""
    work.mkdir(parents=True, exist_ok=True)
    lock = FileLock(work / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if on_line:
            on_line("Another process builds the same xclbin; waiting for it.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class _Job:
    """One xclbin with its paths, all of them absolute, and the key of its input."""

    design: Design
    vitis: Vitis
    out_path: Path
    key: str
    jobs: int | None

    @classmethod
    def plan(
        cls, design: Design, out_path: Path, vitis: Vitis, templates: Sequence[Path],
        jobs: int | None,
    ) -> _Job:  # fmt: skip
        job = cls(_absolute(design), vitis, out_path.absolute(), "", jobs)
        return replace(job, key=job._key_of(templates))

    @property
    def work(self) -> Path:
        return self.out_path.parent / "vitis"

    @property
    def log_path(self) -> Path:
        return self.work / "build.log"

    @property
    def stamp_path(self) -> Path:
        return self.work / "stamp.json"

    @property
    def object_path(self) -> Path:
        return self.work / f"{self.design.kernel}.xo"

    @property
    def unfinished_path(self) -> Path:
        # v++ wants the ending .xclbin.
        return self.work / f"{self.out_path.stem}.unfinished.xclbin"

    def commands(self, jobs: int | None = None) -> dict[str, tuple[str, ...]]:
        xo = self.object_path
        return {
            "compile": compile_command(self.vitis, self.design, output=xo, work=self.work),
            "link": link_command(
                self.vitis, self.design, objects=(xo,), output=self.unfinished_path,
                work=self.work, jobs=jobs,
            ),
        }  # fmt: skip

    def is_up_to_date(self) -> bool:
        if not (self.out_path.is_file() and self.stamp_path.is_file()):
            return False
        return self.stamp_path.read_bytes() == self._stamp()

    def run(self, on_line: OnLine | None) -> None:
        self._clear()
        commands = self.commands(self.jobs)
        finished = False
        try:
            with self.log_path.open("w", encoding="utf-8") as log:
                self._step("compile", commands["compile"], self.object_path, log, on_line)
                self._step("link", commands["link"], self.unfinished_path, log, on_line)
            self.unfinished_path.replace(self.out_path)
            self.stamp_path.write_bytes(self._stamp())
            finished = True
        finally:
            if not finished:
                for path in (self.unfinished_path, self.object_path, self.out_path):
                    path.unlink(missing_ok=True)

    def _clear(self) -> None:
        """Remove the output first, so that a failed build never leaves an old one."""
        self.out_path.unlink(missing_ok=True)
        for path in self.work.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            elif path.name != "lock":
                path.unlink()

    def _step(
        self, step: str, command: Sequence[str], product: Path, log: TextIO,
        on_line: OnLine | None,
    ) -> None:  # fmt: skip
        output = _run(command, self.work, log, on_line)
        problem = output.problem(product)
        if problem is None:
            return
        advice = "see the log"
        if output.missed_timing:
            problem = f"timing was not met at {units.hertz(self.design.clock_hz)}"
            advice = "ask for a lower clock or fewer compute units; see the log"
        raise ToolError(
            f"v++ {step} of {self.design.kernel} failed: {problem}; {advice} {self.log_path}",
            command=command,
            returncode=output.returncode,
            log_path=self.log_path,
            tail=output.tail_text(),
        )

    def _key_of(self, templates: Sequence[Path]) -> str:
        content = {
            "commands": self.commands(),
            "version": self.vitis.version,
            "files": {str(path): _sha256(path) for path in self._input_files()},
            "templates": {str(p.absolute()): p.stat().st_mtime_ns for p in templates},
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    def _input_files(self) -> set[Path]:
        folders = {self.design.source.parent, *self.design.include_dirs}
        found = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
        own = {path for path in found if path == self.out_path or self.work in path.parents}
        return (found - own) | {self.design.source, self.design.link_cfg}

    def _stamp(self) -> bytes:
        """Return what the stamp of the output that is there must say."""
        stamp: dict[str, Any] = {
            "key": self.key,
            "xclbin_sha256": _sha256(self.out_path),
            "vitis": self.vitis.version,
            "clock_requested_hz": self.design.clock_hz,
            "commands": self.commands(),
        }
        return (json.dumps(stamp, indent=1) + "\n").encode()


def _absolute(design: Design) -> Design:
    """Make paths absolute: `v++` runs in a folder of its own, where it leaves files."""
    platform = design.platform
    if _is_file_name(platform):
        if not Path(platform).is_file():
            raise ToolError(
                f"platform file {platform} does not exist; give the path of an .xpfm file "
                "or the name of an installed platform."
            )
        platform = str(Path(platform).absolute())
    return replace(
        design,
        platform=platform,
        source=design.source.absolute(),
        link_cfg=design.link_cfg.absolute(),
        include_dirs=tuple(folder.absolute() for folder in design.include_dirs),
    )


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


# --- running -----------------------------------------------------------------------------


@dataclass
class _Output:
    """What is kept of a tool's output: the last lines, and those that give the cause."""

    returncode: int = 0
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=_TAIL_LINES))
    timing: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        self.tail.append(line)
        if _TIMING.search(line):
            self.timing.append(line)
        if _ERROR.match(line):
            self.errors.append(line)

    @property
    def missed_timing(self) -> bool:
        """Say whether timing is the cause of a failure; the linker survives most misses."""
        return bool(self.timing) and (
            not self.errors or any(line in self.timing for line in self.errors)
        )

    def problem(self, product: Path) -> str | None:
        """Say why the step failed; None if it did not."""
        if self.returncode:
            return f"exit status {self.returncode}"
        if self.errors:
            return "it reported an error, although its exit status is 0"
        if not product.is_file():
            return "it wrote no output, although its exit status is 0"
        if product.stat().st_size == 0:
            return "its output is empty, although its exit status is 0"
        return None

    def tail_text(self) -> str:
        """Return the last lines, with the cause first where it stands further up."""
        causes = self.timing if self.missed_timing else self.errors
        first = [line for line in causes[:2] if line not in self.tail]
        last = list(self.tail)[-(_TAIL_LINES - len(first)) :]
        return "\n".join([*first, *last])


def _run(command: Sequence[str], cwd: Path, log: TextIO, on_line: OnLine | None) -> _Output:
    """Run a tool to its end; its process group ends with this function in any case."""
    output = _Output()
    process = _start(command, cwd)
    try:
        for line in process.stdout or ():
            log.write(line)
            log.flush()
            output.add(line.rstrip())
            if on_line:
                on_line(line.rstrip())
        output.returncode = process.wait()
    finally:
        _end(process)
    return output


def _start(command: Sequence[str], cwd: Path | None) -> subprocess.Popen[str]:
    try:
        # A session of its own: v++ starts many processes, which must be ended together.
        return subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise ToolError(
            f"{command[0]} cannot be started ({error.strerror}); {_VITIS_HINT}", command=command
        ) from error


def _end(process: subprocess.Popen[str]) -> None:
    """End what is left of a process group and close its pipe."""
    if process.poll() is None:
        _signal_group(process, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERMINATE_TIMEOUT_S)
        _signal_group(process, signal.SIGKILL)
        process.wait()
    if process.stdout:
        process.stdout.close()


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
