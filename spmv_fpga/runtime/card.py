"""A card as the rest of the program sees it: open it, multiply, close it.

The card itself is in a worker process of its own session, since XRT may end its whole
process group. When the worker or the emulated card dies, that becomes one `DeviceError`
that says why; when this process is interrupted, the worker and the card go too.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from ..boards import Board, load_board
from ..codegen import render_project
from ..errors import DeviceError
from ..formats.base import SparseFormat, padded_vector
from ..formats.partition import Part, Partition, packed
from ..kernels import load_kernel
from ..toolchain import emulation
from ..toolchain import xclbin as containers
from .channel import Channel, ChannelClosedError, SharedMemory
from .cycles import Cycles, cycles_of, timing_text, told_units
from .environment import (
    RunFolder,
    card_environment,
    emulation_environment,
    prepare_emulation,
)
from .fit import check_fit, check_mode, matrix_room

CardMode = Literal["sw_emu", "hw_emu", "hw"]

# An emulated kernel that never ends must become an error. Slots come at millions a second;
# this allows for a machine a hundred times slower.
_EMULATION_START_S = 60.0
_EMULATION_S_PER_SLOT = 5e-6
_LOG_TAIL_LINES = 8
# What XRT writes when the program that plays the card is gone; it then ends its own group.
_CARD_DIED = "Software emulation of compute unit(s) exited unexpectedly"
_CARD_FAILED = "the emulated card failed: {}"
# How long a worker may take to end by itself: in peace, and when something went wrong.
_ENDING_S, _HURRY_S = 2.0, 0.2


@dataclass(frozen=True)
class LaunchTimes:
    """When the launches of one call ran, and what moving the data took.

    Attributes
    ----------
    kernel_s : ndarray, shape (repeat,), float64
        Duration of each launch by the device's event times: from the start of the first
        unit to the end of the last one, rounds added up. In emulation this is the wall time
        of the emulation: never a time of the card.
    iterations : int
        Products in one launch.
    start_ns, end_ns : tuple of int
        Start of the first and end of the last unit of each launch, in the last round.
    unit_times_ns : ndarray, shape (2, repeat, units), int64
        Start and end of every unit's launch in the last round.
    to_card_s, to_host_s : float
        Migration of what was new on the card; fetching of y.
    cycles : Cycles or None
        What the emulated card counted in the last launch; None on other cards.
    """

    kernel_s: npt.NDArray[np.float64]
    iterations: int
    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]
    unit_times_ns: npt.NDArray[np.int64]
    to_card_s: float = 0.0
    to_host_s: float = 0.0
    cycles: Cycles | None = None

    def followed_by(self, later: LaunchTimes) -> LaunchTimes:
        """Return the times of two rounds of the same launches."""
        return replace(
            later,
            kernel_s=self.kernel_s + later.kernel_s,
            to_card_s=self.to_card_s + later.to_card_s,
            to_host_s=self.to_host_s + later.to_host_s,
            cycles=self.cycles.followed_by(later.cycles)
            if self.cycles and later.cycles
            else None,
        )


@dataclass(frozen=True, eq=False)
class _Product:
    """A matrix on the card, x and the y that its rounds add up to."""

    matrix: Partition
    x: npt.NDArray[np.float32]
    y: npt.NDArray[np.float32]

    @cached_property
    def rounds(self) -> list[list[Part]]:
        """Parts by round."""
        return self.matrix.rounds()

    def largest_ports(self, unit: int) -> dict[str, int]:
        """Return the bytes that each port of a unit needs in the round that needs most."""
        needs = [part.fmt.port_bytes() for part in self.matrix.parts if part.unit == unit]
        return {port: max(need[port] for need in needs) for port in needs[0]}


@dataclass(frozen=True, eq=False)
class Job:
    """What a kernel needs for a launch.

    Attributes
    ----------
    port_bytes : mapping of str to int
        Size of each port's buffer.
    contents : mapping of str to ndarray
        What the buffers of read ports hold.
    scalars : mapping of str to int
        All scalars but `iterations`.
    steps : int
        About how many slots or words the kernel works through; bounds its time in emulation.
    """

    port_bytes: Mapping[str, int]
    contents: Mapping[str, npt.NDArray[Any]]
    scalars: Mapping[str, int]
    steps: int


class Card:
    """A programmed card, real or emulated; made by `open_device`, a context manager.

    Attributes
    ----------
    xclbin : XclbinInfo
        What it is programmed with.
    mode : str
        `sw_emu`, `hw_emu` or `hw`.
    device : str
        Name that the runtime gives the card.
    compute_units : int
        Units that it is programmed with.
    clock_hz : float
        Kernel clock; the emulated card counts its cycles.
    """

    def __init__(
        self,
        xclbin: containers.XclbinInfo,
        mode: CardMode,
        *,
        board: Board,
        timeout_s: float | None,
        clock_hz: float | None = None,
    ) -> None:
        self.xclbin = xclbin
        self.mode = mode
        self.compute_units = max(1, xclbin.compute_units)
        self.device = ""
        self.driver = ""
        self.clock_hz = (
            clock_hz or xclbin.clock_hz or board.expected_clock_hz(self.compute_units)
        )
        self._board = board
        self._reports: dict[str, Any] = {}
        self._num_told = 0
        self._timeout_s = timeout_s
        self._kernel = load_kernel(str(xclbin.kernel_kind))
        self._jobs: dict[int, Job] = {}
        self._iterations = 1
        self._product: _Product | None = None
        self._resident: tuple[Partition, int] | None = None
        self._last_cut: tuple[SparseFormat, Partition] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._run: RunFolder | None = None

    def __enter__(self) -> Card:
        self._run = RunFolder()
        try:
            self._start(self._run)
        except BaseException:
            self._end(_HURRY_S)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end(_ENDING_S if kind is None else _HURRY_S)

    def spmv(
        self,
        fmt: SparseFormat | Partition,
        x: npt.ArrayLike,
        *,
        repeat: int = 1,
        iterations: int = 1,
    ) -> tuple[npt.NDArray[np.float32], LaunchTimes]:
        """Multiply on the card.

        Parameters
        ----------
        fmt : SparseFormat or Partition
            The matrix; a second call with the same object does not move it again, unless it
            takes several rounds. A format is cut for the units that the card has.
        x : array_like, shape (n,), float32
        repeat : int
            Launches.
        iterations : int
            Products in each launch.

        Returns
        -------
        y : ndarray, shape (m,), float32
        times : LaunchTimes

        Raises
        ------
        XclbinError
            If the data do not fit what the card is programmed with.
        DeviceError
            If the card fails.
        """
        to_card_s = self.place(fmt, x, iterations=iterations)
        launches = self.launch(repeat)
        y, to_host_s = self.fetch()
        return y, replace(
            launches,
            to_card_s=to_card_s + launches.to_card_s,
            to_host_s=to_host_s + launches.to_host_s,
        )

    def place(
        self, fmt: SparseFormat | Partition, x: npt.ArrayLike, *, iterations: int = 1
    ) -> float:
        """Bring a matrix and x to the card; returns the seconds of their migration.

        Parameters are those of `spmv`. A matrix that is there already is not moved again.
        Where a product takes several rounds, only the first is brought here.
        """
        if iterations < 1:
            raise DeviceError(f"iterations is {iterations}; it must be at least 1.")
        matrix = self._cut(fmt)
        vector = padded_vector(x, matrix.shape[1])[: matrix.shape[1]]
        if self._product is None or self._product.matrix is not matrix:
            self._check_fit(matrix)
            self._resident = None
        if self._iterations != iterations:
            self._resident = None
        y = np.zeros(matrix.shape[0], np.float32)
        self._product, self._iterations = _Product(matrix, vector, y), iterations
        return self._bring_round(0)

    def launch(self, repeat: int = 1) -> LaunchTimes:
        """Run what is on the card, `repeat` times in a row, round by round."""
        if repeat < 1:
            raise DeviceError(f"repeat is {repeat}; it must be at least 1.")
        if self._product is None:
            return self._launch_units([0], self._on_card(0).steps, repeat)
        product = self._product
        product.y[:] = 0
        total: LaunchTimes | None = None
        for number, parts in enumerate(product.rounds):
            is_there = self._resident == (product.matrix, number)
            to_card_s = 0.0 if is_there else self._bring_round(number)
            steps = max((part.fmt.num_stored + part.fmt.num_y for part in parts), default=0)
            times = self._launch_units([part.unit for part in parts], steps, repeat)
            to_host_s = self._fetch_round(number) if len(product.rounds) > 1 else 0.0
            times = replace(times, to_card_s=to_card_s, to_host_s=to_host_s)
            total = times if total is None else total.followed_by(times)
        assert total is not None
        return total

    def fetch(self) -> tuple[npt.NDArray[np.float32], float]:
        """Return y, shape (m,), of the last launch, and the seconds that fetching took."""
        if self._product is None:
            raise DeviceError("there is no matrix on the card; call place first.")
        if len(self._product.rounds) > 1:
            return self._product.y.copy(), 0.0
        self._product.y[:] = 0
        time_s = self._fetch_round(0)
        return self._product.y.copy(), time_s

    def place_job(self, job: Job, *, unit: int = 0, iterations: int = 1) -> float:
        """Make the buffers of a launch and bring their contents to the card.

        Parameters
        ----------
        job : Job
        unit : int
            Number of the compute unit, from 0.
        iterations : int
            Times that the kernel shall repeat it in each launch.

        Returns
        -------
        float
            Seconds of the migration.
        """
        if iterations < 1:
            raise DeviceError(f"iterations is {iterations}; it must be at least 1.")
        self._product = self._resident = None
        return self._place_job(job, unit, iterations)

    def fetch_port(
        self, name: str, dtype: npt.DTypeLike, *, unit: int = 0
    ) -> tuple[npt.NDArray[Any], float]:
        """Return the buffer of a port as an array, and the seconds that fetching took."""
        memory = SharedMemory(self._on_card(unit).port_bytes[name])
        number = self._port_numbers()[name]
        request = {"do": "read", "unit": unit, "number": number, "size": memory.num_bytes}
        try:
            answer = self._ask(request, [memory])
            return memory.view(dtype).copy(), float(answer["time_s"])
        finally:
            memory.close()

    def close(self) -> None:
        """End the worker and the emulated card, and remove what the run left behind."""
        self._end(_ENDING_S)

    def _end(self, patience_s: float) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None:
            _end_group(self._process, patience_s)
            self._process = None
        if self._run is not None:
            self._run.remove()
            self._run = None
        self._product = self._resident = self._last_cut = None
        self._jobs, self._reports, self._num_told = {}, {}, 0

    def _cut(self, fmt: SparseFormat | Partition) -> Partition:
        """Return a matrix in parts for the units of this card."""
        if isinstance(fmt, Partition):
            if fmt.compute_units > self.compute_units:
                raise DeviceError(
                    f"the matrix is cut for {fmt.compute_units} compute units, and "
                    f"{self.xclbin.path} has {self.compute_units}."
                )
            return fmt
        if self._last_cut is None or self._last_cut[0] is not fmt:
            vector_bytes = 4 * sum(fmt.shape)
            room = matrix_room(self.xclbin, self._kernel.function, vector_bytes)
            cut = Partition.of(fmt, self.compute_units, room, self.xclbin.y_room)
            self._last_cut = (fmt, cut)
        return self._last_cut[1]

    def _check_fit(self, matrix: Partition) -> None:
        for part in matrix.parts:
            unit = self._kernel.unit(part.unit + 1)
            check_fit(part.fmt, self.xclbin, mode=self.mode, emulation_mode="", unit=unit)

    def _bring_round(self, number: int) -> float:
        """Bring a round's parts and their share of x to the card, what is there excepted."""
        assert self._product is not None
        product, time_s = self._product, 0.0
        if self._resident != (product.matrix, number):
            try:
                time_s = self._place_round(number)
            except DeviceError as error:
                # XRT's emulation never joins freed memory: after smaller buffers a larger one
                # may find no room in an empty bank. A fresh card has it.
                if self.mode != "sw_emu" or "OUT_OF_RESOURCES" not in str(error):
                    raise
                self._restart()
                time_s = self._place_round(number)
            self._resident = (product.matrix, number)
        for part in product.rounds[number]:
            x = product.x[part.col_start : part.col_end]
            time_s += self._write(part.unit, {"x": x if len(x) else np.zeros(1, np.float32)})
        return time_s

    def _place_round(self, number: int) -> float:
        assert self._product is not None
        time_s = 0.0
        for part, buffers in packed(self._product.rounds[number]):
            fmt = part.fmt
            # As large in every round, so that each finds the room of the one before.
            sizes = self._product.largest_ports(part.unit)
            job = Job(sizes, buffers, fmt.scalars(), fmt.num_stored)
            time_s += self._place_job(job, part.unit, self._iterations)
        return time_s

    def _restart(self) -> None:
        """Take a fresh card in place of this one; what was on it is lost."""
        product, last_cut, iterations = self._product, self._last_cut, self._iterations
        self._end(_ENDING_S)
        self.__enter__()
        self._product, self._last_cut, self._iterations = product, last_cut, iterations

    def _fetch_round(self, number: int) -> float:
        """Add a round's results to y; returns the seconds that fetching took."""
        assert self._product is not None
        total_s = 0.0
        for part in self._product.rounds[number]:
            y, time_s = self.fetch_port("y", np.float32, unit=part.unit)
            rows = slice(part.row_start, part.row_end)
            with np.errstate(invalid="ignore", over="ignore"):
                self._product.y[rows] += y[: part.row_end - part.row_start]
            total_s += time_s
        return total_s

    def _place_job(self, job: Job, unit: int, iterations: int) -> float:
        values = {**job.scalars, "iterations": iterations}
        scalars = [values[scalar.name] for scalar in self._kernel.scalars]
        if (largest := max(scalars)) >> 32:
            raise DeviceError(
                f"the matrix needs a counter of {largest}, which has 32 bits; split the matrix."
            )
        sizes = [job.port_bytes[port.name] for port in self._kernel.ports]
        self._jobs.pop(unit, None)
        self._ask({"do": "place", "unit": unit, "sizes": sizes, "scalars": scalars})
        time_s = self._write(unit, job.contents)
        # The contents are on the card: they need not be kept here.
        self._jobs[unit] = replace(job, contents={})
        self._iterations = iterations
        return time_s

    def _launch_units(self, units: list[int], steps: int, repeat: int) -> LaunchTimes:
        """Launch units side by side."""
        times = np.zeros((2, repeat, len(units)), np.int64)
        if units:
            memory = SharedMemory(times.nbytes)
            # On the host's few cores, units take turns.
            limit_s = self._limit_s(steps * len(units) * self._iterations * repeat)
            try:
                request = {"do": "launch", "units": units, "repeat": repeat}
                self._ask(request, [memory], limit_s=limit_s)
                times[:] = memory.view(np.int64).reshape(times.shape)
            finally:
                memory.close()
        # No unit has rows where the matrix has none: such a launch takes no time.
        starts, ends = (
            (times[0].min(axis=1), times[1].max(axis=1))
            if units
            else np.zeros((2, repeat), int)
        )
        kernel_s = np.asarray((ends - starts) * 1e-9, np.float64)
        return LaunchTimes(
            kernel_s,
            self._iterations,
            tuple(starts.tolist()),
            tuple(ends.tolist()),
            times,
            cycles=self._cycles(units) if self.mode == "sw_emu" else None,
        )

    def _cycles(self, units: list[int]) -> Cycles | None:
        """Return what the emulated card counted in the launch that has just ended."""
        assert self._run is not None
        entries = self._run.report()
        told = told_units(entries[self._num_told :], self._reports)
        self._num_told = len(entries)
        self._reports |= told
        names = [self._kernel.unit(unit + 1) for unit in units]
        rate = self._board.value("channel_bytes_per_s")
        return cycles_of(names, told, self.clock_hz, rate, self._iterations)

    def _on_card(self, unit: int) -> Job:
        if unit not in self._jobs:
            raise DeviceError("there is no matrix on the card; call place first.")
        return self._jobs[unit]

    def _write(self, unit: int, contents: Mapping[str, npt.NDArray[Any]]) -> float:
        """Bring the contents of ports to the card; returns the seconds of the migration."""
        numbers = self._port_numbers()
        memory = []
        for content in contents.values():
            piece = SharedMemory(content.nbytes)
            piece.view(content.dtype)[:] = content.reshape(-1)
            memory.append(piece)
        request = {
            "do": "write",
            "unit": unit,
            "numbers": [numbers[name] for name in contents],
            "sizes": [piece.num_bytes for piece in memory],
        }
        try:
            return float(self._ask(request, memory)["time_s"])
        finally:
            for piece in memory:
                piece.close()

    def _port_numbers(self) -> dict[str, int]:
        return {port.name: number for number, port in enumerate(self._kernel.ports)}

    def _limit_s(self, slots: int) -> float | None:
        if self._timeout_s is not None or self.mode != "sw_emu":
            return self._timeout_s
        return _EMULATION_START_S + _EMULATION_S_PER_SLOT * slots

    def _start(self, run: RunFolder) -> None:
        parent, child = Channel.pair()
        self._channel = parent
        with (run.path / "worker.log").open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "spmv_fpga.runtime.worker",
                 str(child.fileno()), str(_pid_to_outlive())],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._environment(run), cwd=run.path,
                start_new_session=True, pass_fds=[child.fileno(), run.lock],
            )  # fmt: skip
        child.close()
        answer = self._ask(
            {
                "do": "open",
                "xclbin": str(Path(self.xclbin.path).absolute()),
                "kernel": self._kernel.function,
                "units": [self._kernel.unit(i + 1) for i in range(self.compute_units)],
                "device_prefix": self._device_prefix(),
            },
            limit_s=_EMULATION_START_S if self.mode == "sw_emu" else None,
        )
        self.device, self.driver = answer["device"], answer["driver"]

    def _device_prefix(self) -> str:
        # The name of a real card follows its shell, which may be newer than the xclbin's.
        if self.mode == "sw_emu":
            return self._board.emulated_platform
        return f"xilinx_{self._board.name}"

    def _environment(self, run: RunFolder) -> dict[str, str]:
        environment = dict(os.environ)
        # XRT must not see it on hardware, and each emulation sets its own.
        environment.pop("XCL_EMULATION_MODE", None)
        # The worker runs in a folder of its own: relative entries would lead elsewhere.
        inherited = filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))
        places = [
            *map(Path.absolute, map(Path, inherited)),
            Path(__file__).resolve().parents[2],
        ]
        environment["PYTHONPATH"] = os.pathsep.join(map(str, places))
        if self.mode == "sw_emu":
            files = prepare_emulation(platform=self._board.emulated_platform)
            timing = timing_text(self.xclbin, self._board, self.clock_hz)
            return environment | emulation_environment(files, run, timing)
        platform = self.xclbin.platform or self._board.platforms[0]
        emulated = run if self.mode == "hw_emu" else None
        return environment | card_environment(self.mode, emulated, platform=platform)

    def _ask(
        self,
        request: Mapping[str, Any],
        memory: Sequence[SharedMemory] = (),
        *,
        limit_s: float | None = None,
    ) -> dict[str, Any]:
        """Send a request and wait for its answer; any failure becomes a `DeviceError`."""
        if self._channel is None:
            raise DeviceError("the card is closed; open it with open_device.")
        try:
            self._channel.send(request, memory)
            answer, _ = self._channel.receive(limit_s)
        except ChannelClosedError:
            raise self._death() from None
        except TimeoutError:
            self._end(_HURRY_S)
            raise DeviceError(
                f"the kernel did not end within {limit_s:g} s and was stopped; it hangs, or "
                "timeout_s must be larger."
            ) from None
        if "error" in answer:
            failure = self._run.failure() if self._run else None  # XRT has but a number for it
            raise DeviceError(_CARD_FAILED.format(failure) if failure else answer["error"])
        return answer

    def _death(self) -> DeviceError:
        """Find out why the worker is gone; the emulated card's own report knows best."""
        if self._run is None or self._process is None:
            return DeviceError("the card is closed.")
        if failure := self._run.failure():
            return DeviceError(_CARD_FAILED.format(failure))
        lines: list[str] = []
        for log in (self._run.log_path, self._run.path / "worker.log"):
            with contextlib.suppress(OSError):
                lines += log.read_text(errors="replace").splitlines()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_ENDING_S)
        how = _how_it_ended(self._process.returncode)
        reason = f"the worker, which drives the card, {how}"
        if any(line.startswith(_CARD_DIED) for line in lines):
            reason = f"the emulated card died; XRT noticed, and the worker {how}"
        tail = "\n".join(lines[-_LOG_TAIL_LINES:])
        return DeviceError(f"{reason}; try again, --verbose shows XRT's log.", log=tail)


def open_device(
    *,
    mode: str = "auto",
    kernel: str = "block",
    block: int = 16,
    slice_size: int = 16,
    depth: int = 8,
    board: str = "u50",
    compute_units: int = 1,
    xclbin: str | Path | None = None,
    clock_hz: float | None = None,
    timeout_s: float | None = None,
) -> Card:
    """Open a card; to be used in a `with` statement.

    Parameters
    ----------
    mode : str
        `sw_emu`, `hw_emu`, `hw`, or `auto`: what the xclbin was built for, `sw_emu` where
        none is given.
    kernel : str
        `scalar`, `block` or `lanes`.
    block, slice_size, depth : int
        What the kernel is built for: P of block, L of scalar, accesses after which a row
        returns of lanes.
    board : str
        Name of a board file.
    compute_units : int
        Units of an xclbin that is built here.
    xclbin : str or Path, optional
        File to program the card with; for `sw_emu` it is built where none is given.
    clock_hz : float, optional
        Kernel clock of an xclbin built here, and of the emulated card's cycles.
    timeout_s : float, optional
        Longest time for the launches of one call. Without it emulation allows for many
        times of what it should take; hardware has no limit.

    Returns
    -------
    Card

    Raises
    ------
    XclbinError
        If the file cannot be read, or its target is another one.
    DeviceError
        If a card is asked for without an xclbin.
    """
    facts = load_board(board)
    if xclbin is None:
        if mode not in ("auto", "sw_emu"):
            raise DeviceError(f"mode {mode} needs an xclbin; build one with `make xclbin`.")
        chosen = {"block": block, "slice": slice_size, "depth": depth}
        own = {parameter.name for parameter in load_kernel(kernel).parameters}
        parameters = {name: value for name, value in chosen.items() if name in own}
        project = render_project(
            kernel, parameters, facts, compute_units=compute_units, clock_hz=clock_hz
        )
        xclbin, mode = emulation.build(project).path, "sw_emu"
    info = containers.read(xclbin)
    target = check_mode(info, mode, None)
    if info.kernel_kind is None:
        raise DeviceError(f"{xclbin} holds no kernel of this project.")
    # A real card runs at the clock that its xclbin was built for.
    emulated_clock_hz = clock_hz if target == "sw_emu" else None
    return Card(
        info, _card_mode(target), board=facts, timeout_s=timeout_s, clock_hz=emulated_clock_hz
    )


def _card_mode(target: str) -> CardMode:
    for mode in ("sw_emu", "hw_emu", "hw"):
        if mode == target:
            return mode
    raise DeviceError(f"target {target} cannot be run.")


def _how_it_ended(status: int | None) -> str:
    """Say how a process ended.

    >>> _how_it_ended(-9), _how_it_ended(3)
    ('was ended by SIGKILL', 'ended with status 3')
    """
    if status is None:
        return "does not answer"
    if status >= 0:
        return f"ended with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was ended by {name}"


def _pid_to_outlive() -> int:
    """Return the process whose death shall end the worker at once; 0 for none.

    Linux sends the signal when the *thread* that started the worker ends, so only the main
    thread may ask for it. A worker of another thread ends after its launch.
    """
    return os.getpid() if threading.current_thread() is threading.main_thread() else 0


def _end_group(process: subprocess.Popen[bytes], patience_s: float) -> None:
    """End a process with its whole session: let it finish, then ask, then insist."""
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(patience_s)
            break
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
