"""The main job: from a matrix to a verified product with its time, beside the CPU's.

`run` only orders the steps; each is a module of its own. Wall time of an emulated run is
never a time of the card.
"""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from . import reference
from .baselines import BaselineResult, open_baseline, time_baseline
from .boards import Board, load_board
from .codegen import render_project
from .errors import DeviceError, KernelSpecError, VerificationError, XclbinError
from .figures import Figure, median, unknown
from .formats import FORMATS, SparseFormat
from .kernels import load_kernel
from .matrices import Matrix, Progress, open_matrix
from .runtime import Card, LaunchTimes, check_fit, open_device
from .runtime.environment import has_card
from .toolchain import emulation
from .toolchain import xclbin as containers
from .toolchain.paths import find_xclbin
from .vectors import DEFAULT_X, make_x
from .version import __version__

MODES = ("auto", "hw", "hw_emu", "sw_emu", "reference")
_EMULATION_VARIABLE = "XCL_EMULATION_MODE"
_CARD_WARMUP_S, _CARD_MEASURE_S = 120.0, 180.0
"""Favaro et al. 2023, section 4.1: 2 minutes of warm-up, 3 minutes of measurement."""

Step = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What to run; None where the program chooses.

    Attributes
    ----------
    matrix : str
        Any name or path that `open_matrix` knows.
    symmetric : str
        `expand` or `stored`.
    kernel : str
        `auto`, `scalar` or `block`.
    block, slice_size : int or None
        Parameters of the kernel.
    compute_units : int
    board : str
    mode : str
        One of `MODES`.
    xclbin : str or None
        File to program the card with.
    x : str
        Words for x, see `make_x`.
    repeat : int or None
        Launches; by default one in emulation, as many as fit `measure_s` on a card.
    warmup_s, measure_s : float or None
        Seconds of launches before and during the measurement.
    baseline : str
    clock_hz : float or None
    """

    matrix: str
    symmetric: str = "expand"
    kernel: str = "auto"
    block: int | None = None
    slice_size: int | None = None
    compute_units: int = 1
    board: str = "u50"
    mode: str = "auto"
    xclbin: str | None = None
    x: str = DEFAULT_X
    repeat: int | None = None
    warmup_s: float | None = None
    measure_s: float | None = None
    baseline: str = "auto"
    clock_hz: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RunResult:
    """What a run gave.

    Attributes
    ----------
    matrix : Matrix
    format : SparseFormat
    mode : str
        How y came about: `hw`, `hw_emu`, `sw_emu` or `reference`.
    y : ndarray, shape (m,), float32
    worst_error_over_bound : float
        At most 1 where y is right.
    error : VerificationError or None
        Why y is wrong.
    fpga, cpu : dict of str to Figure
    cpu_library, cpu_threads
        None where there is no baseline.
    host : dict of str to Figure
        Seconds of the steps on this machine.
    compute_units : int
    provenance : dict
    warnings : tuple of str
    """

    matrix: Matrix
    format: SparseFormat
    mode: str
    y: npt.NDArray[np.float32]
    worst_error_over_bound: float
    error: VerificationError | None
    fpga: dict[str, Figure]
    cpu: dict[str, Figure]
    cpu_library: str | None
    cpu_threads: int | None
    host: dict[str, Figure]
    compute_units: int
    provenance: dict[str, Any]
    warnings: tuple[str, ...]

    @property
    def verified(self) -> bool:
        """Whether every row of y is within its bound."""
        return self.error is None


@dataclass
class _Clock:
    """Wall time of the steps of a run."""

    figures: dict[str, Figure] = field(default_factory=dict)

    def time(self, name: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = call()
        self.note(name, time.perf_counter() - start)
        return result

    def note(self, name: str, elapsed_s: float) -> None:
        self.figures[name] = Figure(value=elapsed_s, origin="measured", n=1)


@dataclass(frozen=True)
class _Product:
    """y and how it was made."""

    y: npt.NDArray[np.float32]
    fpga: dict[str, Figure]
    provenance: dict[str, Any]


def run(
    options: RunOptions, *, progress: Progress | None = None, step: Step = lambda _: None
) -> RunResult:
    """Run the main job.

    Parameters
    ----------
    options : RunOptions
    progress : callable, optional
        Hears of a download's bytes.
    step : callable, optional
        Hears what is being done, in a few words.

    Returns
    -------
    RunResult
        Also where y is wrong: `error` then says why.

    Raises
    ------
    SpmvFpgaError
        If something is missing, or does not fit.
    """
    board = load_board(options.board)
    if options.compute_units != 1:
        raise KernelSpecError(
            f"cu is {options.compute_units}; this version runs one compute unit; take --cu 1."
        )
    given = containers.read(options.xclbin) if options.xclbin else None
    clock = _Clock()
    step("loading the matrix")
    matrix = clock.time(
        "load_s",
        lambda: open_matrix(options.matrix, options.symmetric, progress),  # type: ignore[arg-type]
    )
    x = make_x(options.x, matrix.csr.shape[1])
    kernel = _choose_kernel(options, given)
    parameter = _choose_parameter(kernel, options, given)
    load_kernel(kernel).resolve(parameter)
    step(f"converting for kernel {kernel}")
    fmt = clock.time("convert_s", lambda: _convert(kernel, matrix, parameter))
    mode, info = _choose_mode(options, given, fmt, board, step)
    if mode == "reference" or info is None:
        product = _reference_product(fmt, x, clock, step)
    else:
        check_fit(fmt, info, mode=mode, emulation_mode=os.environ.get(_EMULATION_VARIABLE, ""))
        product = _card_product(options, fmt, x, info, mode, board, clock, step)
    step("verifying")
    worst, error = clock.time("verify_s", lambda: _judge(product.y, matrix, x))
    step("multiplying on the CPU")
    baseline = open_baseline(options.baseline, matrix.csr)
    cpu = time_baseline(baseline, x) if baseline else None
    return RunResult(
        matrix=matrix,
        format=fmt,
        mode=mode,
        y=product.y,
        worst_error_over_bound=worst,
        error=error,
        fpga=_with_rates(product.fpga, matrix.nnz),
        cpu=_cpu_figures(cpu, matrix.nnz),
        cpu_library=cpu.library if cpu else None,
        cpu_threads=cpu.threads if cpu else None,
        host=clock.figures,
        compute_units=options.compute_units,
        provenance={**_machine(), **product.provenance},
        warnings=matrix.warnings,
    )


def _choose_kernel(options: RunOptions, given: containers.XclbinInfo | None) -> str:
    if options.kernel != "auto":
        return load_kernel(options.kernel).name
    return (given.kernel_kind if given else None) or "block"


def _choose_parameter(
    kernel: str, options: RunOptions, given: containers.XclbinInfo | None
) -> dict[str, int]:
    """Return the kernel's block or slice: as asked for, else as the xclbin has it, else 16."""
    if kernel == "block":
        return {"block": options.block or (given.block if given else None) or 16}
    return {"slice": options.slice_size or (given.slice_size if given else None) or 16}


def _convert(kernel: str, matrix: Matrix, parameter: dict[str, int]) -> SparseFormat:
    return FORMATS[load_kernel(kernel).format].convert(matrix.csr, parameter)


def _choose_mode(
    options: RunOptions,
    given: containers.XclbinInfo | None,
    fmt: SparseFormat,
    board: Board,
    step: Step,
) -> tuple[str, containers.XclbinInfo | None]:
    """Return the mode to run in, and the xclbin to program the card with."""
    if options.mode == "reference":
        return "reference", None
    if given:
        requested = options.mode if options.mode != "auto" else (given.target or "auto")
        return requested, given
    wanted = os.environ.get(_EMULATION_VARIABLE) or None
    mode = options.mode
    if mode == "auto":
        mode = wanted or ("hw" if has_card() and _find(options, fmt, board, "hw") else "sw_emu")
        if mode not in MODES[1:4]:
            raise XclbinError(
                f"XCL_EMULATION_MODE is {mode!r}; it must be sw_emu or hw_emu, or not set."
            )
    if mode != "sw_emu":
        return mode, _required_xclbin(options, fmt, board, mode)
    step(f"building kernel {fmt.kernel} for emulation")
    project = render_project(
        fmt.kernel,
        fmt.parameters,
        board,
        compute_units=options.compute_units,
        clock_hz=options.clock_hz,
    )
    return mode, containers.read(emulation.build(project).path)


def _find(options: RunOptions, fmt: SparseFormat, board: Board, target: str) -> Path | None:
    return find_xclbin(
        target,
        board.platforms,
        fmt.kernel,
        block=fmt.parameters.get("block"),
        slice_size=fmt.parameters.get("slice"),
        compute_units=options.compute_units,
    )


def _required_xclbin(
    options: RunOptions, fmt: SparseFormat, board: Board, target: str
) -> containers.XclbinInfo:
    path = _find(options, fmt, board, target)
    if path is None:
        parameters = " ".join(f"{k.upper()}={v}" for k, v in fmt.parameters.items())
        raise DeviceError(
            f"mode {target} needs an xclbin, and there is none for this kernel below build/; "
            f"run `make xclbin KERNEL={fmt.kernel} {parameters} TARGET={target}`, or name one "
            "with --xclbin."
        )
    return containers.read(path)


def _reference_product(
    fmt: SparseFormat, x: npt.NDArray[np.float32], clock: _Clock, step: Step
) -> _Product:
    step("multiplying with NumPy")
    y = clock.time("product_s", lambda: fmt.spmv(x))
    why = "mode reference: NumPy made y, no card"
    return _Product(y, {name: unknown(why) for name in _FPGA_FIGURES}, {})


_FPGA_FIGURES = ("time_s", "power_w", "energy_j", "cycles")


def _card_product(
    options: RunOptions,
    fmt: SparseFormat,
    x: npt.NDArray[np.float32],
    info: containers.XclbinInfo,
    mode: str,
    board: Board,
    clock: _Clock,
    step: Step,
) -> _Product:
    step(f"starting the card ({mode})")
    start_s = time.perf_counter()
    with open_device(mode=mode, xclbin=info.path, board=board.name) as card:
        clock.note("open_s", time.perf_counter() - start_s)
        step(f"multiplying on the card ({mode})")
        to_card_s = card.place(fmt, x)
        launches = clock.time("launches_s", lambda: _launch(card, options))
        y, to_host_s = card.fetch()
        provenance = {
            "device": card.device,
            "driver": card.driver,
            "platform": info.platform,
            "xclbin": info.path,
            "xclbin_uuid": info.uuid,
            "clock_hz": info.clock_hz,
            "launches": len(launches.start_ns),
            "iterations": launches.iterations,
        }
    if mode == "hw":
        clock.note("to_card_s", to_card_s)
        clock.note("to_host_s", to_host_s)
    return _Product(y, _fpga_figures(mode, launches), provenance)


def _launch(card: Card, options: RunOptions) -> LaunchTimes:
    """Warm up, then launch for as long, or as often, as asked for."""
    is_card = card.mode == "hw"
    warmup_s, measure_s = options.warmup_s, options.measure_s
    _launch_for(card, _CARD_WARMUP_S * is_card if warmup_s is None else warmup_s)
    if options.repeat is not None:
        return card.launch(options.repeat)
    duration_s = _CARD_MEASURE_S * is_card if measure_s is None else measure_s
    return _launch_for(card, duration_s) or card.launch(1)


def _launch_for(card: Card, duration_s: float) -> LaunchTimes | None:
    """Launch back to back until the time is over; the launches of a batch take about 1 s."""
    batches: list[LaunchTimes] = []
    end_s = time.monotonic() + duration_s
    repeat = 1
    while time.monotonic() < end_s:
        batches.append(card.launch(repeat))
        mean_s = float(batches[-1].kernel_s.mean())
        left_s = min(1.0, end_s - time.monotonic())
        repeat = max(1, math.floor(left_s / mean_s)) if mean_s > 0 else 1
    if not batches:
        return None
    return LaunchTimes(
        np.concatenate([batch.kernel_s for batch in batches]),
        batches[0].iterations,
        tuple(t for batch in batches for t in batch.start_ns),
        tuple(t for batch in batches for t in batch.end_ns),
    )


def _fpga_figures(mode: str, launches: LaunchTimes) -> dict[str, Figure]:
    if mode == "hw":
        times = (launches.kernel_s / launches.iterations).tolist()
        time_s = median(times, "measured")
        no_power = unknown("this version reads no power sensor")
    else:
        time_s = unknown(f"not measured: {mode} is no card, and its wall time is not a card's")
        no_power = unknown(f"not measured: {mode} draws no power of a card")
    return {
        "time_s": time_s,
        "power_w": no_power,
        "energy_j": no_power,
        "cycles": unknown("this version counts no cycles"),
    }


def _judge(
    y: npt.NDArray[np.float32], matrix: Matrix, x: npt.NDArray[np.float32]
) -> tuple[float, VerificationError | None]:
    try:
        return reference.verify(y, matrix.csr, x), None
    except VerificationError as error:
        return reference.compare(y, matrix.csr, x), error


def _with_rates(figures: dict[str, Figure], nnz: int) -> dict[str, Figure]:
    return {**figures, "gflops": _gflops(figures["time_s"], nnz)}


def _gflops(time_s: Figure, nnz: int) -> Figure:
    """Return 2·nnz flop over the time, in 1e9 flop per second."""
    return time_s if time_s.value is None else time_s.inverse_of(2e-9 * nnz)


def _cpu_figures(cpu: BaselineResult | None, nnz: int) -> dict[str, Figure]:
    if cpu is None:
        nothing = unknown("no baseline was asked for")
        return dict.fromkeys(("time_s", "power_w", "energy_j", "gflops"), nothing)
    no_power = unknown("this version reads no power sensor")
    time_s = median(cpu.time_s.tolist(), "measured")
    return _with_rates({"time_s": time_s, "power_w": no_power, "energy_j": no_power}, nnz)


def _machine() -> dict[str, Any]:
    return {
        "spmv_fpga": __version__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": _cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
    }


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")
