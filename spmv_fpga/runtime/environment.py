"""Everything around the emulated card, and what a real one needs to be found.

Debian's Xilinx Runtime (XRT) has the sw_emu driver but not the program that plays the
card, no ICD file, its libraries in another folder than XRT expects, and a memory bug in
the driver. `prepare_emulation` makes what is missing, once, in the project's own cache;
`RunFolder` holds what one run leaves behind, and removes it; `emulation_environment`
names both to a child process. Nothing is written to the user's own folders, and nothing
here loads OpenCL: XRT reads its environment once, when it is loaded.

A run must be a child process of its own session. When the emulated card dies, XRT ends
every process of its group.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import platform as host_platform
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from ..build_cache import content_key, made_once, private_folder, stamp
from ..errors import DeviceError, SpmvFpgaError, ToolNotFoundError
from ..resources import cache_dir, data_dir
from ..toolchain.compiler import INSTALL_HINT, find_compiler, run_tool

PLATFORM = "xilinx_u50_gen3x16_xdma_201920_3"
AMD_ROOT = Path("/opt/xilinx/xrt")
SETUP_COMMAND = "source /opt/xilinx/xrt/setup.sh"

_DRIVER = "libxrt_swemu.so.2"
_OPENCL = "libxilinxopencl.so.2"
# Where XRT looks for the program that plays the card, below XILINX_VITIS.
_CARD = Path("data/emulation/unified/cpu_em/generic_pcie/model/genericpciemodel")
# Alveo U50: 8 GiB of HBM2 in 32 pseudo-channels (AMD DS965, "Memory").
_NUM_BANKS, _BANK_SIZE = 32, "256MB"
# A megabyte a message reads back fastest; the corrected driver has room for 64 MiB.
_PACKET_BYTES = 1 << 19
# XRT gives the run folder to a shell without quotes.
_SHELL_SAFE = re.compile(r"/[A-Za-z0-9_./+-]*")
# sockaddr_un holds 108 bytes with the closing zero (Linux, unix(7)).
_SOCKET_PATH_LIMIT = 107
_SOCKET_NAME = "device99_1_4194304"  # the longest: pid_max is 2^22
_PATIENCE_S = 2.0
# A run's folder, and the file in it whose lock says that it is in use.
_RUN_PREFIX, _RUN_LOCK = "spmv_fpga_", "lock"
_XILINX_VENDOR = 0x10EE  # PCI SIG's number
_LINKER_OWN = ("libstdc++.so", "libm.so", "libgcc_s.so", "libc.so", "ld-linux", "linux-vdso")


@dataclass(frozen=True)
class XrtInstall:
    """An installed Xilinx Runtime.

    Parameters
    ----------
    kind : str
        "debian" (the distribution's libxrt1) or "amd" (AMD's own package).
    root : Path
        What XILINX_XRT names, for AMD's package; else the parent of the library folder.
    lib : Path
        Folder of its libraries.
    """

    kind: Literal["debian", "amd"]
    root: Path
    lib: Path

    @property
    def opencl(self) -> Path:
        """Its OpenCL library, which an ICD file names."""
        return self.lib / _OPENCL

    @property
    def driver(self) -> Path:
        """Its driver for software emulation."""
        return self.lib / _DRIVER

    @property
    def driver_archive(self) -> Path:
        """The same driver as a static archive (Debian's libxrt-dev)."""
        return self.lib / "libxrt_swemu.a"


@dataclass(frozen=True)
class EmulationFiles:
    """What `prepare_emulation` has made; none of it changes during a run.

    Parameters
    ----------
    xrt : XrtInstall
        The runtime that drives the card.
    xilinx_xrt, xilinx_vitis, icd_dir : Path
        Folders for XILINX_XRT, XILINX_VITIS and OCL_ICD_VENDORS.
    num_cards : int
        Emulated cards that a run sees.
    platform : str
        Their platform's name.
    """

    xrt: XrtInstall
    xilinx_xrt: Path
    xilinx_vitis: Path
    icd_dir: Path
    num_cards: int
    platform: str

    @property
    def card(self) -> Path:
        """The program that plays the card."""
        return self.xilinx_vitis / _CARD


@dataclass(frozen=True)
class Finding:
    """One line of `spmv-fpga doctor`.

    Parameters
    ----------
    name : str
        What was looked for.
    ok : bool
        It is there and works.
    detail : str
        What was found, or what is wrong.
    remedy : str
        The one line that mends it; "" where nothing is wrong.
    is_needed : bool
        The main job (on the emulated card) needs it.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    is_needed: bool = True


# --- What is installed ------------------------------------------------------------------


def find_xrt() -> XrtInstall:
    """Find a Xilinx Runtime that can emulate: AMD's own package first, then Debian's.

    Raises
    ------
    ToolNotFoundError
        If there is none with a driver for software emulation.
    """
    for root in _amd_roots():
        if (root / "lib" / _DRIVER).exists():
            return XrtInstall("amd", root, root / "lib")
    for lib in _library_folders():
        if (lib / _DRIVER).exists() and (lib / _OPENCL).exists():
            return XrtInstall("debian", lib.parent, lib)
    raise ToolNotFoundError("the Xilinx Runtime (XRT)", f"{INSTALL_HINT}.")


def _amd_roots() -> Iterator[Path]:
    """Yield the folders in which AMD's package may stand, the user's choice first."""
    chosen = os.environ.get("XILINX_XRT")
    if chosen:
        yield Path(chosen).absolute()
    yield AMD_ROOT


def _library_folders() -> Iterator[Path]:
    """Yield the folders of system libraries; the loader's own table comes last."""
    yield Path(f"/usr/lib/{host_platform.machine()}-linux-gnu")
    yield from (Path("/usr/lib64"), Path("/usr/lib"))
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    if Path(ldconfig).exists():
        table = run_tool([ldconfig, "-p"], "the table of system libraries cannot be read")
        yield from (
            Path(line.rpartition(" => ")[2]).parent
            for line in table.splitlines()
            if line.strip().startswith(_DRIVER)
        )


# --- What is built, once ----------------------------------------------------------------


def prepare_emulation(num_cards: int = 1, platform: str = PLATFORM) -> EmulationFiles:
    """Make what XRT needs to emulate cards, unless the cache holds it already.

    Parameters
    ----------
    num_cards : int
        Emulated cards that a run sees.
    platform : str
        Name of their platform.

    Returns
    -------
    EmulationFiles
        In `cache_dir()`/emulation; in a private temporary folder, which goes when this
        process ends, where the cache cannot be written.

    Raises
    ------
    ToolNotFoundError
        If the runtime, its development files or the compiler is missing.
    ToolError
        If the compiler fails.
    """
    xrt, compiler = find_xrt(), find_compiler()
    if xrt.kind == "debian" and not xrt.driver_archive.exists():
        raise ToolNotFoundError(
            f"{xrt.driver_archive.name} (package libxrt-dev)", f"{INSTALL_HINT}."
        )
    folder = _made_once(xrt, compiler)
    return EmulationFiles(
        xrt=xrt,
        xilinx_xrt=folder / "xrt" if xrt.kind == "debian" else xrt.root,
        xilinx_vitis=folder / "vitis",
        icd_dir=folder / "icd",
        num_cards=num_cards,
        platform=platform,
    )


def _made_once(xrt: XrtInstall, compiler: Path) -> Path:
    sources = (*_card_sources(), _launch_header(), _driver_source(), Path(__file__))
    tools = (xrt.driver, xrt.opencl, xrt.driver_archive, compiler)
    key = content_key(sources, map(stamp, tools))
    return made_once("emulation", key, lambda folder: _make(folder, xrt, compiler))


def _card_sources() -> list[Path]:
    return sorted((data_dir("host") / "emulated_card").glob("*.[ch]pp"))


def _launch_header() -> Path:
    return data_dir("host") / "common" / "launch.h"


def _driver_source() -> Path:
    return data_dir("host") / "driver" / "growing_buffer.c"


def _make(folder: Path, xrt: XrtInstall, compiler: Path) -> None:
    icd = folder / "icd"
    icd.mkdir(parents=True)
    (icd / "xilinx.icd").write_text(f"{xrt.opencl}\n")
    _compile_card(folder / "vitis" / _CARD, compiler)
    if xrt.kind == "debian":
        _make_overlay(folder / "xrt" / "lib", xrt, compiler)


def _compile_card(card: Path, compiler: Path) -> None:
    card.parent.mkdir(parents=True)
    sources = [str(source) for source in _card_sources() if source.suffix == ".cpp"]
    run_tool(
        [str(compiler), "-O2", "-std=c++17", "-pthread", "-o", str(card), *sources, "-ldl"],
        "the emulated card does not compile",
    )


def _make_overlay(lib: Path, xrt: XrtInstall, compiler: Path) -> None:
    """Give XRT the folder that it expects, with the corrected driver in it.

    The driver's calls of realloc are inside the library, where preloading cannot reach
    them; so it is linked anew from the package's own static archive.
    """
    lib.mkdir(parents=True)
    for pattern in ("libxrt*.so*", "libxilinxopencl.so*", "xrt"):
        for library in xrt.lib.glob(pattern):
            if not library.name.startswith("libxrt_swemu."):
                (lib / library.name).symlink_to(library)
    run_tool(
        [
            str(compiler), "-shared", "-O2", "-fPIC", "-o", str(lib / _DRIVER),
            "-x", "c", str(_driver_source()), "-x", "none",
            "-Wl,--whole-archive", str(xrt.driver_archive), "-Wl,--no-whole-archive",
            "-Wl,--wrap=malloc", "-Wl,--wrap=realloc", f"-Wl,-soname,{_DRIVER}",
            "-Wl,--as-needed", *_libraries_of(xrt.driver),
        ],
        "the corrected driver of the emulated card does not link",
    )  # fmt: skip
    (lib / "libxrt_swemu.so").symlink_to(_DRIVER)


def _libraries_of(library: Path) -> list[str]:
    """List what a library is linked with, by full path: the versions are the package's."""
    lines = run_tool(["ldd", str(library)], f"the libraries of {library} cannot be listed")
    pairs = [line.split(" => ") for line in lines.splitlines() if " => " in line]
    return [
        path.rpartition(" (")[0].strip()
        for name, path in pairs
        if not name.strip().startswith(_LINKER_OWN)
    ]


# --- One run ----------------------------------------------------------------------------


class RunFolder:
    """A fresh private folder for one run; it goes, with all that is in it, at the end.

    XRT's run directory, the card's socket, the runtime's log and the card's own report
    stand in it. Only this user can enter it.

    Examples
    --------
    >>> with RunFolder() as run:
    ...     inside = run.path.is_dir()
    >>> inside, run.path.exists()
    (True, False)
    """

    def __init__(self) -> None:
        parent = _run_parent()
        _sweep_runs(parent)
        self._lock: int | None = None
        while self._lock is None:
            self._temporary = tempfile.TemporaryDirectory(
                prefix=_RUN_PREFIX, dir=parent, ignore_cleanup_errors=True
            )
            self.path = Path(self._temporary.name)
            self._lock = _lock_run(self.path)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.remove()

    @property
    def lock(self) -> int:
        """Descriptor that marks the folder as in use for as long as a process has it open."""
        if self._lock is None:
            raise DeviceError("the run's folder is gone; make another.")
        return self._lock

    @property
    def report_path(self) -> Path:
        """Where the emulated card writes errors and counters, one JSON object a line."""
        return self.path / "report.jsonl"

    @property
    def timing_path(self) -> Path:
        """Where the emulated card is told how fast its memory is."""
        return self.path / "timing.txt"

    @property
    def log_path(self) -> Path:
        """Where XRT writes its log."""
        return self.path / "xrt.log"

    @property
    def user(self) -> str:
        """The value of USER that makes XRT put its socket here: it opens /tmp/$USER/…."""
        return os.path.relpath(self.path.resolve(), Path("/tmp").resolve())

    def report(self) -> list[dict[str, Any]]:
        """Return what the card has written so far.

        A failure is `{"unit": …, "error": …}`; the unit is None where no kernel is to
        blame. A launch with counters is `{"unit": …, "launch": k, "report": …}`, k from 1.
        """
        try:
            lines = self.report_path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return []
        entries = []
        for line in lines:
            with contextlib.suppress(json.JSONDecodeError):
                entries.append(json.loads(line))
        return entries

    def failure(self) -> str | None:
        """Return the first failure that the card reports, as one sentence."""
        for entry in self.report():
            if "error" in entry:
                unit = entry["unit"]
                return entry["error"] if unit is None else f"{unit}: {entry['error']}"
        return None

    def remove(self) -> None:
        """Remove the folder; a card that is just dying may still be writing into it."""
        deadline = time.monotonic() + _PATIENCE_S
        self._temporary.cleanup()
        while self.path.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
            shutil.rmtree(self.path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock_run(folder: Path) -> int | None:
    """Return a descriptor that holds the folder's lock; None if it was swept meanwhile."""
    try:
        descriptor = os.open(folder / _RUN_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (folder / _RUN_LOCK).stat()
    except (BlockingIOError, FileNotFoundError):
        os.close(descriptor)
        return None
    except OSError:  # a file system without locks: nobody can sweep the folder there either
        pass
    return descriptor


def _sweep_runs(parent: Path) -> None:
    """Remove the folders of this user's runs whose processes are all gone,."""
    for folder in parent.glob(f"{_RUN_PREFIX}????????"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid():
                _sweep_run(folder)


def _sweep_run(folder: Path) -> None:
    descriptor = os.open(folder / _RUN_LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(descriptor)


def _run_parent() -> Path:
    """Choose a folder whose path the runtime's unquoted shell command stands."""
    candidates = [os.environ.get("TMPDIR", ""), "/tmp", "/var/tmp", "/dev/shm"]
    for candidate in candidates:
        if _is_fit_for_runs(candidate):
            return Path(candidate)
    raise DeviceError(
        "no temporary folder is fit for an emulated run "
        f"({', '.join(filter(None, candidates))}); set TMPDIR to a short path of letters, "
        "digits and slashes in which files can be written and executed."
    )


def _is_fit_for_runs(folder: str) -> bool:
    if not _SHELL_SAFE.fullmatch(folder) or not os.access(folder, os.W_OK | os.X_OK):
        return False
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:  # kernels are loaded from there
        return False
    inside = Path(folder) / "spmv_fpga_12345678"
    socket_dir = Path("/tmp") / os.path.relpath(inside.resolve(), Path("/tmp").resolve())
    return len(os.fsencode(socket_dir / _SOCKET_NAME)) <= _SOCKET_PATH_LIMIT


def emulation_environment(
    files: EmulationFiles, run: RunFolder, timing: str | None = None
) -> dict[str, str]:
    """Write a run's settings into its folder and name them for a child process.

    Parameters
    ----------
    files : EmulationFiles
        From `prepare_emulation`.
    run : RunFolder
        Folder of this run, entered.
    timing : str, optional
        How fast the card's memory is; without it launches are not timed.

    Returns
    -------
    dict of str
        Variables to set on top of `os.environ`, before the child loads OpenCL.
    """
    (run.path / "emconfig.json").write_text(emulation_config(files.num_cards, files.platform))
    return {
        **_run_settings(run),
        **_library_path(files.xrt),
        "XCL_EMULATION_MODE": "sw_emu",
        "XILINX_XRT": str(files.xilinx_xrt),
        "XILINX_VITIS": str(files.xilinx_vitis),
        "OCL_ICD_VENDORS": str(files.icd_dir),
        "USER": run.user,
        "SW_EMU_PACKET_SIZE": str(_PACKET_BYTES),
        "SPMV_FPGA_EMULATION_REPORT": str(run.report_path),
        **_timing(run, timing),
    }


def _timing(run: RunFolder, text: str | None) -> dict[str, str]:
    if text is None:
        return {}
    run.timing_path.write_text(text)
    return {"SPMV_FPGA_EMULATION_TIMING": str(run.timing_path)}


def _run_settings(run: RunFolder) -> dict[str, str]:
    (run.path / "xrt.ini").write_text(f"[Runtime]\nruntime_log={run.log_path}\n")
    return {
        "EMCONFIG_PATH": str(run.path),
        "SDACCEL_EM_RUN_DIR": str(run.path),
        "XRT_INI_PATH": str(run.path / "xrt.ini"),
        "PYOPENCL_NO_CACHE": "1",  # else it keeps a folder in the user's home
    }


def _library_path(xrt: XrtInstall) -> dict[str, str]:
    if xrt.kind == "debian":
        return {}
    inherited = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": f"{xrt.lib}:{inherited}" if inherited else str(xrt.lib)}


def emulation_config(num_cards: int = 1, platform: str = PLATFORM) -> str:
    """Return the emconfig.json of emulated cards.

    >>> json.loads(emulation_config(2))["Platform"]["Boards"][0]["NumBoards"]
    '2'
    """
    device = {
        "Name": platform,
        "DdrBanks": [{"Size": _BANK_SIZE}] * _NUM_BANKS,
        "FeatureRom": {"Vbnv_Name": platform},
    }
    config = {
        "Version": {"FileVersion": "2.0", "ToolVersion": "2022.1"},
        "Platform": {
            "Boards": [{"Devices": [device], "NumBoards": str(num_cards)}],
            "UnifiedPlatform": "true",
            "ExpandedPR": "false",
        },
    }
    return json.dumps(config, indent=2) + "\n"


# --- A real card ------------------------------------------------------------------------


def card_environment(
    mode: Literal["hw", "hw_emu"] = "hw",
    run: RunFolder | None = None,
    *,
    num_cards: int = 1,
    platform: str = PLATFORM,
) -> dict[str, str]:
    """Name the variables that a run on a real card, or in hardware emulation, needs.

    Parameters
    ----------
    mode : str
        "hw" or "hw_emu".
    run : RunFolder, optional
        Folder of the run; required for "hw_emu", which leaves files behind.
    num_cards, platform : int, str
        Emulated cards and their platform ("hw_emu" only).

    Returns
    -------
    dict of str
        Variables to set on top of `os.environ`, before the child loads OpenCL.

    Raises
    ------
    DeviceError
        If pyopencl, an OpenCL ICD of XRT, or XRT itself is missing; it names each.
    ValueError
        If hardware emulation is given no run folder.
    """
    xrt = _card_xrt()
    icd_dir = _card_icd_dir(xrt)
    has_pyopencl = _has_pyopencl()
    if xrt is None or icd_dir is None or not has_pyopencl:
        states = _card_states(has_pyopencl, icd_dir is not None, xrt is not None)
        raise DeviceError(
            f"no card can be opened: {states}; install XRT, run `{SETUP_COMMAND}` and try "
            "again, or use --mode sw_emu."
        )
    variables = {"XILINX_XRT": str(xrt.root), **_library_path(xrt)}
    if icd_dir != Path():
        variables["OCL_ICD_VENDORS"] = str(icd_dir)
    if mode == "hw_emu":
        if run is None:
            raise ValueError("hardware emulation leaves files behind; give it a RunFolder.")
        (run.path / "emconfig.json").write_text(emulation_config(num_cards, platform))
        variables |= _run_settings(run)
        variables |= {"XCL_EMULATION_MODE": "hw_emu", "USER": run.user}
    return variables


def _has_pyopencl() -> bool:
    """Say whether it can be imported; one that is there may still be broken."""
    if importlib.util.find_spec("pyopencl") is None:
        return False
    try:
        _pyopencl_version()
    except ToolNotFoundError:
        return False
    return True


def _card_xrt() -> XrtInstall | None:
    for root in _amd_roots():
        if (root / "lib" / "libxrt_core.so.2").exists():
            return XrtInstall("amd", root, root / "lib")
    return None


_SYSTEM_ICDS = Path("/etc/OpenCL/vendors")


def _card_icd_dir(xrt: XrtInstall | None) -> Path | None:
    """Return a folder for OCL_ICD_VENDORS, Path() if it is right as it is, else None."""
    chosen = os.environ.get("OCL_ICD_VENDORS")
    if chosen or _names_xrt(_SYSTEM_ICDS):
        return Path() if _names_xrt(Path(chosen) if chosen else _SYSTEM_ICDS) else None
    if xrt is None or not xrt.opencl.exists():
        return None
    parent = _icd_parent()
    key = hashlib.sha256(os.fsencode(xrt.opencl)).hexdigest()[:16]
    folder = parent / f"icd_{key}"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = folder / f".xilinx.icd.{os.getpid()}"
    temporary.write_text(f"{xrt.opencl}\n")
    temporary.replace(folder / "xilinx.icd")
    return folder


def _icd_parent() -> Path:
    parent = cache_dir() / "emulation"
    try:
        parent.mkdir(parents=True, exist_ok=True)
    except OSError:
        return private_folder()
    return parent if os.access(parent, os.W_OK | os.X_OK) else private_folder()


def _names_xrt(icds: Path) -> bool:
    """Say whether an ICD file, or one in a folder of them, names XRT's OpenCL."""
    files = sorted(icds.glob("*.icd")) if icds.is_dir() else [icds]
    for file in files:
        with contextlib.suppress(OSError):
            if "xilinxopencl" in file.read_text(errors="replace"):
                return True
    return False


def _card_states(has_pyopencl: bool, has_icd: bool, has_xrt: bool) -> str:
    chosen = os.environ.get("OCL_ICD_VENDORS")
    where_icds = f"OCL_ICD_VENDORS={chosen}" if chosen else str(_SYSTEM_ICDS)
    set_to = os.environ.get("XILINX_XRT")
    where_xrt = (
        f"XILINX_XRT={set_to} holds no lib/libxrt_core.so.2"
        if set_to
        else f"XILINX_XRT is not set and {AMD_ROOT} is not there"
    )
    no_pyopencl = "pyopencl is missing (pip install pyopencl)"
    no_icd = f"the OpenCL ICD of XRT is missing (no xilinx.icd in {where_icds})"
    return "; ".join(
        (
            "pyopencl is installed" if has_pyopencl else no_pyopencl,
            "the OpenCL ICD of XRT is there" if has_icd else no_icd,
            "XRT is there" if has_xrt else f"XRT is missing ({where_xrt})",
        )
    )


def has_card() -> bool:
    """Say whether a device of AMD/Xilinx is on the PCI bus (`SPMV_FPGA_SYSFS_PCI`)."""
    root = Path(os.environ.get("SPMV_FPGA_SYSFS_PCI") or "/sys/bus/pci/devices")
    for vendor in root.glob("*/vendor"):
        with contextlib.suppress(OSError, ValueError):
            if int(vendor.read_text(), 16) == _XILINX_VENDOR:
                return True
    return False


# --- The doctor -------------------------------------------------------------------------


def check_installation() -> list[Finding]:
    """Look for all that the main job needs, and for what a real card needs on top.

    Builds the emulated card if the cache does not hold it, so that a finding is a fact.

    Returns
    -------
    list of Finding
        The main job can run where every finding with `is_needed` is `ok`.
    """
    return [
        _find("C++ compiler", lambda: str(find_compiler())),
        _find("Xilinx Runtime (XRT)", lambda: _describe(find_xrt())),
        _find("pyopencl", _pyopencl_version),
        _find("emulated card", lambda: str(prepare_emulation().card)),
        _find("temporary folder", lambda: str(_run_parent())),
        _cache_finding(),
        _card_finding(),
        _vitis_finding(),
    ]


def _find(name: str, look: Callable[[], str]) -> Finding:
    try:
        return Finding(name, True, look())
    except ToolNotFoundError as problem:
        return Finding(name, False, f"{problem.tool} is missing", problem.hint)
    except SpmvFpgaError as problem:
        reason, _, remedy = str(problem).rpartition("; ")
        return Finding(name, False, reason or str(problem), remedy)


def _describe(xrt: XrtInstall) -> str:
    origin = "the distribution's" if xrt.kind == "debian" else "AMD's"
    return f"{origin}, {xrt.lib}"


def _pyopencl_version() -> str:
    """Import it in another process: here it would load OpenCL too early."""
    code = "import pyopencl; print(pyopencl.VERSION_TEXT)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYOPENCL_NO_CACHE": "1"},
    )
    if done.returncode != 0:
        reason = (done.stderr.strip() or "no output").splitlines()[-1]
        raise ToolNotFoundError(f"pyopencl ({reason})", "run `pip install pyopencl`.")
    return done.stdout.strip()


def _cache_finding() -> Finding:
    folder = cache_dir()
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if os.access(existing, os.W_OK | os.X_OK) and existing.is_dir():
        return Finding("cache folder", True, str(folder), is_needed=False)
    detail = f"{folder} cannot be written; every run compiles again"
    return Finding("cache folder", False, detail, "set SPMV_FPGA_CACHE.", is_needed=False)


def _card_finding() -> Finding:
    name = "Alveo card"
    remedy = f"install the card and AMD's XRT, and run `{SETUP_COMMAND}`."
    if not has_card():
        return Finding(name, False, "no AMD/Xilinx device on the PCI bus", remedy, False)
    try:
        xilinx_xrt = card_environment()["XILINX_XRT"]
    except DeviceError as problem:
        return Finding(name, False, str(problem), remedy, False)
    return Finding(name, True, f"XRT in {xilinx_xrt}", is_needed=False)


def _vitis_finding() -> Finding:
    compiler = shutil.which("v++")
    if compiler is not None:
        return Finding("Vitis", True, compiler, is_needed=False)
    remedy = "source Vitis's settings64.sh; only `make xclbin` for a card needs it."
    return Finding("Vitis", False, "v++ is not on PATH", remedy, is_needed=False)
