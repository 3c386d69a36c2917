"""The main job: from a matrix to a verified product with its time, beside the CPU's.

`run` only orders the steps; each is a module of its own. Wall time of an emulated run is
never a time of the card.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from . import reference
from .baselines import MEASURE_S, WARMUP_S, Baseline, baseline_times, open_baseline
from .boards import Board, load_board
from .codegen import render_project
from .design_fit import max_units
from .errors import (
    DeviceError,
    FormatError,
    SensorError,
    VerificationError,
    XclbinError,
)
from .figures import Figure, median, unknown
from .formats import BLOCK_SIZES, FORMATS
from .formats.blocked_ell import check_block
from .formats.partition import Part, Partition, partition
from .formats.sell_c_sigma import DEFAULT_DEPTH, DEFAULT_PANEL, check_lanes
from .formats.sliced_ell import check_slice_size
from .kernels import load_kernel, load_product_kernel
from .matrices import Matrix, Progress, open_matrix
from .matrices.reorder import Reordered, reorder_matrix
from .metering import Metered, PowerWindow, Source, choose_source, resting_power
from .roofline.model import Prediction
from .roofline.predict import default_x_room, default_y_room, predict
from .runtime import Card, check_fit, open_device
from .runtime.cycles import Cycles
from .runtime.environment import card_environment, has_card
from .runtime.fit import matrix_room
from .timing import Products, Timing, launch_for, measure_times
from .toolchain import emulation
from .toolchain import xclbin as containers
from .toolchain.paths import find_xclbin
from .vectors import DEFAULT_X, make_x
from .version import __version__

_MAX_ENTRIES = (8 << 30) // 4
"""Values alone fill the memory of the card then."""
_MAX_PANELS = 256
"""Columns wider than so many times the room for x are refused: each panel is a round."""
_DEFAULT_BLOCK, _DEFAULT_SLICE = 16, 16
MODES = ("auto", "hw", "hw_emu", "sw_emu", "reference")
_GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
_EMULATION_VARIABLE = "XCL_EMULATION_MODE"
_CARD_WARMUP_S, _CARD_MEASURE_S = 120.0, 180.0
"""Favaro et al. 2023, section 4.1: 2 minutes of warm-up, 3 minutes of measurement."""
_LAUNCH_S = 0.25
"""Length of a launch on a card: iterations in the kernel hide what a launch costs."""

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
    reorder : str
        Order of rows and columns on the card, `none` or `rcm`; x and y keep theirs.
    kernel : str
        `auto`, `scalar`, `block` or `lanes`.
    block, slice_size, depth : int or None
        Parameters of the kernel.
    panel, y_room : int or None
        Columns of x, and elements of y, that kernel lanes has room for on the chip.
    compute_units : int or str
        `max` takes as many as fit the board, of each kernel.
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
        `auto`, `mkl`, `scipy` or `none`.
    power : str
        `auto`, `none`, `xrt`, `rapl`, `nvml` or `replay:FILE`.
    require_energy : bool
        Refuse to run where energy cannot be measured.
    calibration : str
        Calibration of the model: `u50`, `paper` or a file.
    clock_hz : float or None
    """

    matrix: str
    symmetric: str = "expand"
    reorder: str = "none"
    kernel: str = "auto"
    block: int | None = None
    slice_size: int | None = None
    depth: int | None = None
    panel: int | None = None
    y_room: int | None = None
    compute_units: int | str = 1
    board: str = "u50"
    mode: str = "auto"
    xclbin: str | None = None
    x: str = DEFAULT_X
    repeat: int | None = None
    warmup_s: float | None = None
    measure_s: float | None = None
    baseline: str = "auto"
    power: str = "auto"
    require_energy: bool = False
    calibration: str = "u50"
    clock_hz: float | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class RunResult:
    """What a run gave.

    Attributes
    ----------
    matrix : Matrix
        As it was loaded; y was verified against it.
    format : Partition
        What was multiplied, in the order of `reorder`.
    reorder : str
    mode : str
        How y came about: `hw`, `hw_emu`, `sw_emu` or `reference`.
    y : ndarray, shape (m,), float32
    worst_error_over_bound : float
        At most 1 where y is right.
    error : VerificationError or None
        Why y is wrong.
    rows_not_compared : int
        Rows of y that hold infinity or NaN where a sum may overflow float32.
    fpga, cpu : dict of str to Figure
    model : Prediction
        What the model says of the same product.
    calibration : str
        Calibration of the model.
    cycles : Cycles or None
        What the emulated card counted; None in other modes.
    fpga_power, cpu_power : dict
        Sensor, boundary, verdict and samples of the energies; empty where there are none.
    cpu_library, cpu_threads
        None where there is no baseline.
    host : dict of str to Figure
        Seconds of the steps on this machine.
    compute_units : int
    chosen_by : str
        Who chose kernel and parameter: `user`, `xclbin` or `model`.
    fpga_steady, cpu_steady : bool or None
        Whether the times kept one level; None where nothing was timed.
    provenance : dict
    warnings : tuple of str
    """

    matrix: Matrix
    format: Partition
    reorder: str
    mode: str
    y: npt.NDArray[np.float32]
    worst_error_over_bound: float
    error: VerificationError | None
    rows_not_compared: int
    fpga: dict[str, Figure]
    cpu: dict[str, Figure]
    model: Prediction
    calibration: str
    cycles: Cycles | None
    fpga_power: dict[str, Any]
    cpu_power: dict[str, Any]
    cpu_library: str | None
    cpu_threads: int | None
    host: dict[str, Figure]
    compute_units: int
    chosen_by: str
    fpga_steady: bool | None
    cpu_steady: bool | None
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


@dataclass(frozen=True, eq=False)
class _Product:
    """y and how it was made."""

    y: npt.NDArray[np.float32]
    figures: dict[str, Figure]
    cycles: Cycles | None = None
    provenance: dict[str, Any] = field(default_factory=dict)
    power: dict[str, Any] = field(default_factory=dict)
    is_steady: bool | None = None
    warnings: tuple[str, ...] = ()


_NO_Y = np.zeros(0, np.float32)


@dataclass(frozen=True)
class _Sources:
    """Power sources of the processors, found before anything runs."""

    card: Source
    cpu: Source
    is_card_named: bool


def _choose_sources(options: RunOptions, mode: str, cpu: Source) -> _Sources:
    """Find the sensors; refuse where energy is required and cannot be had."""
    is_named = options.power == "xrt"
    if mode == "hw" or is_named or options.power.startswith("replay:"):
        card = choose_source(options.power, "card")
    else:
        card = Source(None, f"mode {mode} draws no power of a card")
    if options.baseline == "none":
        cpu = Source(None, "no baseline was asked for")
    if options.require_energy:
        _require_energy(options, mode, card, cpu)
    return _Sources(
        card if mode == "hw" or is_named else Source(None, card.reason), cpu, is_named
    )


def _require_energy(options: RunOptions, mode: str, card: Source, cpu: Source) -> None:
    """Raise where one of the processors that run has no sensor."""
    missing = []
    if mode == "hw" and card.sensor is None:
        missing.append(f"of the card: {card.reason}")
    if options.baseline != "none" and cpu.sensor is None:
        missing.append(f"of the CPU: {cpu.reason}")
    if mode != "hw" and options.baseline == "none":
        missing.append(f"of anything: mode {mode} has no card, and there is no baseline")
    if missing:
        raise SensorError(f"energy is required and cannot be measured {'; '.join(missing)}")


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
    cpu_source = choose_source(options.power, "cpu")  # first: it may be no source at all
    given = None if options.xclbin is None else containers.read(options.xclbin)
    _check_parameters(options, given)
    clock = _Clock()
    step("loading the matrix")
    matrix = clock.time(
        "load_s",
        lambda: open_matrix(options.matrix, options.symmetric, progress),  # type: ignore[arg-type]
    )
    _check_shape(options, given, matrix, board)
    x = make_x(options.x, matrix.csr.shape[1])
    order = _reorder(options, matrix, clock, step)
    ordered = replace(matrix, csr=order.csr)
    model = clock.time("predict_s", lambda: _predict(options, given, ordered, board))
    options = replace(options, compute_units=model.compute_units)
    kernel = model.workload.kernel
    parameter = {**_parameter_of(model), **_rooms_of(options, kernel)}
    load_kernel(kernel).resolve(parameter)
    mode = _choose_mode(options, given, kernel, parameter, board)
    sources = _choose_sources(options, mode, cpu_source)
    info = _choose_xclbin(options, given, kernel, parameter, board, mode, step)
    step(f"converting for kernel {kernel}")
    fmt = clock.time("convert_s", lambda: _convert(kernel, ordered, parameter, mode, info))
    with contextlib.ExitStack() as stack:
        baseline = open_baseline(options.baseline, matrix.csr)
        if baseline is not None:
            stack.enter_context(baseline)
        if info is None:
            product = _reference_product(fmt, order.move(x), sources, clock, step)
        else:
            product = _card_product(
                options, fmt, order.move(x), info, mode, sources, clock, step
            )
        y = order.restore(product.y)
        step("verifying")
        worst, error = clock.time("verify_s", lambda: _judge(y, matrix, x))
        overflows = _count_overflows(y, matrix, x)
        step("multiplying on the CPU")
        cpu = _measure_cpu(baseline, x, options, sources, mode)
    return RunResult(
        matrix=matrix,
        format=fmt,
        reorder=options.reorder,
        mode=mode,
        y=y,
        worst_error_over_bound=worst,
        error=error,
        rows_not_compared=overflows,
        fpga=_with_rates(product.figures, matrix.nnz),
        cpu=_with_rates(cpu.figures, matrix.nnz),
        model=model,
        calibration=options.calibration,
        cycles=product.cycles,
        fpga_power=product.power,
        cpu_power=cpu.power,
        cpu_library=baseline.library if baseline else None,
        cpu_threads=baseline.threads if baseline else None,
        host=clock.figures,
        compute_units=fmt.compute_units if info else int(options.compute_units),
        chosen_by=_chooser(options, given),
        fpga_steady=product.is_steady,
        cpu_steady=cpu.is_steady,
        provenance={**_machine(), **product.provenance, **cpu.provenance},
        warnings=(
            *matrix.warnings,
            *_overflow_warnings(overflows),
            *product.warnings,
            *cpu.warnings,
            *_baseline_warnings(baseline),
        ),
    )


def _reorder(options: RunOptions, matrix: Matrix, clock: _Clock, step: Step) -> Reordered:
    """Put the matrix into the order that is asked for."""
    if options.reorder == "none":
        return Reordered(matrix.csr)
    step(f"reordering ({options.reorder})")
    order: Reordered = clock.time(
        "reorder_s", lambda: reorder_matrix(matrix.csr, options.reorder)
    )
    return order


def _chooser(options: RunOptions, given: containers.XclbinInfo | None) -> str:
    """Say who chose the kernel."""
    if options.kernel != "auto":
        return "user"
    return "xclbin" if given else "model"


def _baseline_warnings(baseline: Baseline | None) -> tuple[str, ...]:
    """Say so where another library than the best one made the CPU's product."""
    reason = baseline.facts.get("instead_of_mkl") if baseline else None
    return (
        (f"CPU: {baseline.library} in place of oneMKL: {reason}",)
        if baseline and reason
        else ()
    )


def _check_parameters(options: RunOptions, given: containers.XclbinInfo | None) -> None:
    """Refuse a parameter that no kernel has, whichever kernel runs."""
    if options.block is not None:
        check_block(options.block)
    if options.slice_size is not None:
        check_slice_size(options.slice_size)
    check_lanes(
        DEFAULT_DEPTH if options.depth is None else options.depth,
        DEFAULT_PANEL if options.panel is None else options.panel,
    )
    if options.y_room is not None:
        load_kernel("lanes").resolve({"y_room": options.y_room})
        if given and given.y_room not in (None, options.y_room):
            raise XclbinError(
                [
                    f"it was built for y_room {given.y_room}, and --y-room is "
                    f"{options.y_room}; leave the option out, or build another"
                ],
                path=given.path,
            )


def _check_shape(
    options: RunOptions, given: containers.XclbinInfo | None, matrix: Matrix, board: Board
) -> None:
    """Refuse what no format makes fit, before it is looked at for long."""
    if options.mode == "reference":
        return
    rows, cols = matrix.csr.shape
    units = _units_of(options, given)
    if isinstance(units, str):  # not known before the model has chosen
        units = board.num_banks
    room = (given and given.x_room) or default_x_room(units)
    if cols > _MAX_PANELS * room:
        raise FormatError(
            f"the matrix has {cols} columns, and the kernel has on-chip room for {room} "
            f"elements of x; at most {_MAX_PANELS} times as many fit; split the matrix."
        )
    most = units * board.bank_bytes // np.dtype(np.float32).itemsize
    if rows > most:
        raise FormatError(
            f"the matrix has {rows} rows, and the memory banks of {units} compute unit"
            f"{'s' * (units > 1)} hold {most} elements of y; take more units, or split the "
            "matrix."
        )


def _units_of(options: RunOptions, given: containers.XclbinInfo | None) -> int | str:
    """Return the number of units: an xclbin has those that it was built with."""
    return max(1, given.compute_units) if given else options.compute_units


def _predict(
    options: RunOptions, given: containers.XclbinInfo | None, matrix: Matrix, board: Board
) -> Prediction:
    """Choose kernel and parameter, and predict what they will take.

    What is asked for holds, then what the xclbin was built for; the rest is chosen by the
    model, for time, among what fits a memory bank.
    """
    kernel, block, slice_size = options.kernel, options.block, options.slice_size
    depth = options.depth
    if kernel != "auto":
        kernel = load_product_kernel(kernel).name
    elif given:
        kernel = given.kernel_kind or "block"
    if given:
        block, slice_size = block or given.block, slice_size or given.slice_size
        depth = depth or given.facts.depth
    is_free = kernel == "auto"
    found = predict(
        matrix,
        calibration=options.calibration,
        board=board.name,
        compute_units=_units_of(options, given),
        max_units=lambda kernel, parameters: max_units(kernel, parameters, board),
        blocks=((block,) if block else _blocks_for(is_free))
        if kernel in ("block", "auto")
        else (),
        slices=(slice_size or _DEFAULT_SLICE,) if kernel in ("scalar", "auto") else (),
        depths=(depth or DEFAULT_DEPTH,) if kernel in ("lanes", "auto") else (),
        panel=given.facts.panel if given and given.facts.panel else options.panel,
        y_room=_rooms_for_y(options, given),
        clock_hz=options.clock_hz or (given.clock_hz if given else None),
    )
    bank = board.bank_bytes
    fitting = [c for c in found.candidates if c.workload.bytes <= bank * c.compute_units]
    return min(fitting or found.candidates, key=lambda c: c.time_s.value or math.inf)


def _rooms_for_y(
    options: RunOptions, given: containers.XclbinInfo | None
) -> Callable[[int], int]:
    """Return the elements of y that kernel lanes has room for, of a number of units."""
    room = (given.y_room if given else None) or options.y_room
    return default_y_room if room is None else lambda _: room


def _blocks_for(is_free: bool) -> tuple[int, ...]:
    return BLOCK_SIZES if is_free else (_DEFAULT_BLOCK,)


def _parameter_of(model: Prediction) -> dict[str, int]:
    """Return the kernel's own parameter, by the name that its description has."""
    work = model.workload
    if work.kernel == "block":
        return {"block": work.block or _DEFAULT_BLOCK}
    if work.kernel == "lanes":
        return {"depth": work.depth or DEFAULT_DEPTH}
    return {"slice": work.slice_size or _DEFAULT_SLICE}


def _rooms_of(options: RunOptions, kernel: str) -> dict[str, int]:
    """Return the rooms that the user asks for, of those that the kernel has."""
    own = {parameter.name for parameter in load_kernel(kernel).parameters}
    asked = {"panel": options.panel, "y_room": options.y_room}
    return {name: value for name, value in asked.items() if value and name in own}


def _convert(
    kernel: str,
    matrix: Matrix,
    parameter: dict[str, int],
    mode: str,
    info: containers.XclbinInfo | None,
) -> Partition:
    """Convert a matrix and cut it for the units and banks of an xclbin; refuse what misfits."""
    spec = load_kernel(kernel)
    cls = FORMATS[spec.format]
    if info is None:
        return partition(matrix.csr, cls, parameter)
    # A panel that nobody asked for is the kernel's own.
    parameter = {
        name: value
        for name, value in {**info.facts.parameters, **parameter}.items()
        if name != "y_room"
    }
    emulation_mode = os.environ.get(_EMULATION_VARIABLE, "")
    columns = min(matrix.csr.shape[1], info.x_room or matrix.csr.shape[1])
    room = matrix_room(info, spec.function, 4 * (columns + matrix.csr.shape[0]))
    if room is None:  # no kernel of this project: all that does not fit is told at once
        fmt = cls.convert(matrix.csr, parameter)
        check_fit(fmt, info, mode=mode, emulation_mode=emulation_mode)
    if matrix.nnz > _MAX_ENTRIES:
        raise FormatError(
            f"the matrix has {matrix.nnz} entries; a card of 8 GiB holds {_MAX_ENTRIES}."
        )
    cut = partition(
        matrix.csr,
        cls,
        parameter,
        compute_units=info.compute_units,
        x_room=info.x_room,
        y_room=info.y_room,
        bank_bytes=room,
    )
    parts = cut.parts or (
        Part(cls.convert(matrix.csr[:0], parameter), 0, 0, 0, 0, unit=0, round=0),
    )
    for part in parts:
        unit = spec.unit(part.unit + 1)
        check_fit(part.fmt, info, mode=mode, emulation_mode=emulation_mode, unit=unit)
    return cut


def _choose_mode(
    options: RunOptions,
    given: containers.XclbinInfo | None,
    kernel: str,
    parameter: dict[str, int],
    board: Board,
) -> str:
    """Return the mode to run in."""
    if options.mode != "auto":
        return options.mode
    if given:
        return given.target or "auto"
    wanted = os.environ.get(_EMULATION_VARIABLE) or None
    mode = wanted or (
        "hw" if has_card() and _find(options, kernel, parameter, board, "hw") else "sw_emu"
    )
    if mode not in MODES[1:4]:
        raise XclbinError(
            f"XCL_EMULATION_MODE is {mode!r}; it must be sw_emu or hw_emu, or not set."
        )
    return mode


def _choose_xclbin(
    options: RunOptions,
    given: containers.XclbinInfo | None,
    kernel: str,
    parameter: dict[str, int],
    board: Board,
    mode: str,
    step: Step,
) -> containers.XclbinInfo | None:
    """Return the xclbin to program the card with; it is built for sw_emu."""
    if mode == "reference":
        return None
    if given:
        return given
    if mode != "sw_emu":
        return _required_xclbin(options, kernel, parameter, board, mode)
    step(f"building kernel {kernel} for emulation")
    project = render_project(
        kernel,
        parameter,
        board,
        compute_units=int(options.compute_units),
        clock_hz=options.clock_hz,
    )
    return containers.read(emulation.build(project).path)


def _find(
    options: RunOptions, kernel: str, parameter: dict[str, int], board: Board, target: str
) -> Path | None:
    return find_xclbin(
        target,
        board.platforms,
        kernel,
        block=parameter.get("block"),
        slice_size=parameter.get("slice"),
        depth=parameter.get("depth"),
        rooms={name: parameter[name] for name in ("panel", "y_room") if name in parameter},
        compute_units=int(options.compute_units),
    )


def _required_xclbin(
    options: RunOptions, kernel: str, parameter: dict[str, int], board: Board, target: str
) -> containers.XclbinInfo:
    path = _find(options, kernel, parameter, board, target)
    if path is None:
        parameters = " ".join(f"{k.upper()}={v}" for k, v in parameter.items())
        raise DeviceError(
            f"mode {target} needs an xclbin, and there is none for this kernel below build/; "
            f"run `make xclbin KERNEL={kernel} {parameters} TARGET={target}`, or name one "
            f"with --xclbin.{_why_no_card(target)}"
        )
    return containers.read(path)


def _why_no_card(mode: str) -> str:
    """Say what else is missing, so that it is not learnt one piece at a time."""
    if mode != "hw":
        return ""
    try:
        card_environment()
    except DeviceError as error:
        return f" Besides, {error}"
    return ""


def _reference_product(
    fmt: Partition, x: npt.NDArray[np.float32], sources: _Sources, clock: _Clock, step: Step
) -> _Product:
    step("multiplying with NumPy")
    y = clock.time("product_s", lambda: fmt.spmv(x))
    no_card = unknown("mode reference: NumPy made y, no card")
    power = {"power_w": _card_power(sources, no_card), "energy_j": no_card}
    return _Product(y, {"time_s": no_card, **power, "cycles": no_card})


def _card_power(sources: _Sources, otherwise: Figure) -> Figure:
    """Return the power of a card at rest, where its sensor was asked for by name."""
    return resting_power(sources.card) if sources.is_card_named else otherwise


def _card_product(
    options: RunOptions,
    fmt: Partition,
    x: npt.NDArray[np.float32],
    info: containers.XclbinInfo,
    mode: str,
    sources: _Sources,
    clock: _Clock,
    step: Step,
) -> _Product:
    step(f"starting the card ({mode})")
    start_s = time.perf_counter()
    with open_device(
        mode=mode, xclbin=info.path, board=options.board, clock_hz=options.clock_hz
    ) as card:
        clock.note("open_s", time.perf_counter() - start_s)
        step(f"multiplying on the card ({mode})")
        to_card_s = card.place(fmt, x)
        if mode == "hw":
            product = _measured_product(card, fmt, x, options, sources)
        else:
            cycles = clock.time("launches_s", lambda: _emulate(card, options))
            product = _emulated_figures(mode, cycles, sources)
        y, to_host_s = card.fetch()
        provenance = {
            "device": card.device,
            "driver": card.driver,
            "platform": info.platform,
            "xclbin": info.path,
            "xclbin_uuid": info.uuid,
            "clock_hz": card.clock_hz,
            **product.provenance,
        }
    if mode == "hw":
        clock.note("to_card_s", to_card_s)
        clock.note("to_host_s", to_host_s)
    return replace(product, y=y, provenance=provenance)


def _measured_product(
    card: Card,
    fmt: Partition,
    x: npt.NDArray[np.float32],
    options: RunOptions,
    sources: _Sources,
) -> _Product:
    """Measure time and power of products on a card, in one window."""
    first_s = float(card.launch(1).kernel_s[0])
    iterations = max(1, round(_LAUNCH_S / first_s)) if first_s > 0 else 1
    card.place(fmt, x, iterations=iterations)

    def products(num_launches: int) -> npt.NDArray[np.float64]:
        return card.launch(num_launches).kernel_s / iterations

    timing, metered = _measure(
        products, options, sources.card, _CARD_WARMUP_S, _CARD_MEASURE_S, iterations
    )
    wall_s = (timing.end_s - timing.start_s) / metered.products
    figures = {
        "time_s": median(timing.time_s.tolist(), "measured"),
        "wall_time_s": Figure(value=wall_s, origin="measured", n=metered.products),
        **metered.figures(),
        "cycles": unknown("a card counts no cycles"),
    }
    return _Product(
        _NO_Y,
        figures,
        provenance={"launches": len(timing.time_s), "iterations": iterations},
        power=metered.facts(),
        is_steady=not timing.unsteady,
        warnings=_warnings("FPGA", timing, metered),
    )


def _measure(
    products: Products,
    options: RunOptions,
    source: Source,
    warmup_s: float,
    measure_s: float,
    iterations: int = 1,
) -> tuple[Timing, Metered]:
    """Measure a processor by the one protocol; times and power from the same window."""
    power = PowerWindow(source)
    with power.running():
        timing = measure_times(
            products,
            warmup_s=warmup_s if options.warmup_s is None else options.warmup_s,
            measure_s=measure_s if options.measure_s is None else options.measure_s,
            repeat=options.repeat,
            window=power.window(),
        )
    return timing, power.result(len(timing.time_s) * iterations)


def _warnings(name: str, timing: Timing, metered: Metered) -> tuple[str, ...]:
    reasons = (*timing.unsteady, *metered.warnings)
    return tuple(f"{name}: {reason.rstrip('.')}." for reason in reasons)


def _emulate(card: Card, options: RunOptions) -> Cycles | None:
    """Launch as often, or for as long, as asked for; once where nothing is.

    Every launch takes the same cycles: those of the last one are returned.
    """
    duration_s = (options.warmup_s or 0.0) + (options.measure_s or 0.0)
    if options.repeat is None and duration_s:
        launch_for(lambda repeat: card.launch(repeat).kernel_s, duration_s, time.monotonic)
        return card.launch(1).cycles
    return card.launch(options.repeat or 1).cycles


def _emulated_figures(mode: str, cycles: Cycles | None, sources: _Sources) -> _Product:
    no_power = unknown(f"not measured: {mode} draws no power of a card")
    if cycles is None:
        time_s = unknown(f"not measured: {mode} is no card, and its wall time is not a card's")
        counted = unknown(f"{mode} does not tell its cycles")
    else:
        time_s = Figure(value=cycles.time_s, origin="emulated")
        counted = Figure(value=cycles.cycles, origin="emulated")
    return _Product(
        _NO_Y,
        {
            "time_s": time_s,
            "power_w": _card_power(sources, no_power),
            "energy_j": no_power,
            "cycles": counted,
        },
        cycles,
        warnings=_hazard_warnings(cycles),
    )


def _hazard_warnings(cycles: Cycles | None) -> tuple[str, ...]:
    """Say so where hardware could not keep the pace that the kernel's source asks for."""
    if not cycles or not cycles.hazards:
        return ()
    return (
        f"FPGA: {cycles.hazards} times an accumulator was read before its adder was done; on a "
        "card the loop would need a longer interval, or y would be wrong.",
    )


def _judge(
    y: npt.NDArray[np.float32], matrix: Matrix, x: npt.NDArray[np.float32]
) -> tuple[float, VerificationError | None]:
    try:
        return reference.verify(y, matrix.csr, x), None
    except VerificationError as error:
        return reference.compare(y, matrix.csr, x), error


def _count_overflows(
    y: npt.NDArray[np.float32], matrix: Matrix, x: npt.NDArray[np.float32]
) -> int:
    """Return how many rows were not compared; only a y that is not finite needs a look."""
    return 0 if np.isfinite(y).all() else reference.count_overflows(y, matrix.csr, x)


def _overflow_warnings(rows: int) -> tuple[str, ...]:
    return (reference.overflow_note(rows),) if rows else ()


def _with_rates(figures: dict[str, Figure], nnz: int) -> dict[str, Figure]:
    return {**figures, "gflops": _gflops(figures["time_s"], nnz)}


def _gflops(time_s: Figure, nnz: int) -> Figure:
    """Return 2·nnz flop over the time, in 1e9 flop per second."""
    return time_s if time_s.value is None else time_s.inverse_of(2e-9 * nnz)


def _measure_cpu(
    baseline: Baseline | None,
    x: npt.NDArray[np.float32],
    options: RunOptions,
    sources: _Sources,
    mode: str,
) -> _Product:
    """Measure the CPU's product; never while an emulation runs."""
    if baseline is None:
        nothing = unknown("no baseline was asked for")
        return _Product(_NO_Y, dict.fromkeys(("time_s", "power_w", "energy_j"), nothing))
    baseline.place(x)
    baseline.launch()  # the first one touches memory that no cache holds
    y = baseline.fetch()
    is_card = mode == "hw"
    timing, metered = _measure(
        lambda launches: baseline_times(baseline, launches),
        replace(options, repeat=None),
        sources.cpu,
        _CARD_WARMUP_S if is_card else WARMUP_S,
        _CARD_MEASURE_S if is_card else MEASURE_S,
    )
    return _Product(
        y,
        {"time_s": median(timing.time_s.tolist(), "measured"), **metered.figures()},
        provenance={
            f"cpu_{key}": value
            for key, value in baseline.facts.items()
            if key != "instead_of_mkl"  # a warning says so
        },
        power=metered.facts(),
        is_steady=not timing.unsteady,
        warnings=_warnings("CPU", timing, metered),
    )


def _machine() -> dict[str, Any]:
    return {
        "spmv_fpga": __version__,
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "machine": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cpu": cpu_model(),
        "cpu_governor": _governor(),
        "cpus": len(os.sched_getaffinity(0)),
    }


def _governor() -> str | None:
    """Return what sets the clock of the processor; None where the system does not tell."""
    try:
        return Path(_GOVERNOR).read_text(errors="replace").strip()
    except OSError:
        return None


def cpu_model() -> str:
    """Return the name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")
