"""A card through OpenCL; the only module that imports pyopencl.

The same code drives the emulated card, hardware emulation and a real card. It runs in a
worker process: XRT reads its environment once, when it is loaded, and may end its whole
process group.

Buffers are made without content and without host pointers, then set as arguments, then
written and migrated: only so does XRT place each in the bank that the xclbin connects its
argument to.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from ..errors import DeviceError

PLATFORM_NAME = "Xilinx"
_LAUNCHES_IN_FLIGHT = 2


@dataclass(frozen=True)
class LaunchTimes:
    """Event times of launches, in nanoseconds of the device's clock.

    Attributes
    ----------
    start_ns, end_ns : tuple of int
        One of each for a launch.
    """

    start_ns: tuple[int, ...]
    end_ns: tuple[int, ...]


class OpenClUnit:
    """One compute unit of a programmed card.

    Parameters
    ----------
    xclbin : Path
        File to program the card with.
    kernel, unit : str
        Names of the kernel and of its compute unit.
    device_prefix : str
        How the device's name must begin.
    """

    def __init__(self, xclbin: Path, kernel: str, unit: str, device_prefix: str) -> None:
        self.device = find_device(device_prefix)
        try:
            self.context = cl.Context([self.device])
            self.queue = cl.CommandQueue(
                self.context, properties=cl.command_queue_properties.PROFILING_ENABLE
            )
            program = cl.Program(self.context, [self.device], [xclbin.read_bytes()]).build()
            self.kernel = cl.Kernel(program, f"{kernel}:{{{unit}}}")
        except cl.Error as error:
            raise DeviceError(
                f"{xclbin}: unit {unit} cannot be had from {self.device.name} ({error}); check "
                "that the file was built for this platform."
            ) from None
        self.buffers: list[cl.Buffer] = []

    def place(self, sizes: Sequence[int], scalars: Sequence[int]) -> None:
        """Make the buffers of all pointer arguments and set every argument.

        Parameters
        ----------
        sizes : sequence of int
            Bytes of each pointer argument, in order.
        scalars : sequence of int
            Unsigned 32-bit arguments behind them.
        """
        for buffer in self.buffers:
            buffer.release()
        flags = cl.mem_flags.READ_WRITE
        self.buffers = [cl.Buffer(self.context, flags, size) for size in sizes]
        self.kernel.set_args(*self.buffers, *(np.uint32(value) for value in scalars))

    def write(self, contents: Mapping[int, npt.NDArray[Any]]) -> float:
        """Bring contents to the card; returns the seconds of the migration alone.

        Parameters
        ----------
        contents : mapping of int to ndarray
            For the number of an argument, what its buffer shall hold.
        """
        for number, content in contents.items():
            cl.enqueue_copy(self.queue, self.buffers[number], content, is_blocking=True)
        self.queue.finish()
        start = time.perf_counter()
        moved = [self.buffers[number] for number in contents]
        cl.enqueue_migrate_mem_objects(self.queue, moved).wait()
        return time.perf_counter() - start

    def launch(self, repeat: int) -> LaunchTimes:
        """Launch the unit several times, one after the other, and wait.

        Two launches are in flight at a time, so that the card never waits for the host. No
        event is kept for longer: it holds a command buffer in the card's memory, and with
        hundreds of them the emulation of XRT 2.13 sometimes loses a launch.
        """
        times: list[tuple[int, int]] = []
        in_flight: deque[cl.Event] = deque()

        def finish_oldest() -> None:
            event = in_flight.popleft()
            event.wait()
            times.append((int(event.profile.start), int(event.profile.end)))

        for _ in range(repeat):
            if len(in_flight) == _LAUNCHES_IN_FLIGHT:
                finish_oldest()
            in_flight.append(cl.enqueue_nd_range_kernel(self.queue, self.kernel, (1,), (1,)))
        while in_flight:
            finish_oldest()
        starts, ends = zip(*times, strict=True)
        return LaunchTimes(starts, ends)

    def read(self, number: int, into: npt.NDArray[Any]) -> float:
        """Fetch a buffer; returns the seconds."""
        start = time.perf_counter()
        cl.enqueue_copy(self.queue, into, self.buffers[number], is_blocking=True)
        return time.perf_counter() - start


def find_device(prefix: str) -> cl.Device:
    """Find a card by its platform's and its own name; nothing is ever asked or guessed.

    Raises
    ------
    DeviceError
        If XRT's OpenCL platform is missing, or it shows no such card.
    """
    try:
        platforms = cl.get_platforms()
    except cl.Error:
        platforms = []
    names = [platform.name for platform in platforms]
    if PLATFORM_NAME not in names:
        raise DeviceError(
            f"OpenCL shows {', '.join(names) or 'no platform'}, not XRT's; source XRT's "
            "setup.sh, and check its ICD file with `spmv-fpga doctor`."
        )
    platform = platforms[names.index(PLATFORM_NAME)]
    try:
        devices = platform.get_devices()
    except cl.Error:
        devices = []
    for device in devices:
        if device.name.startswith(prefix):
            return device
    found = ", ".join(device.name for device in devices) or "no card"
    raise DeviceError(f"XRT shows {found}; a card named {prefix}… is needed.")
