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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from ..errors import DeviceError

PLATFORM_NAME = "Xilinx"
_LAUNCHES_IN_FLIGHT = 2


class OpenClCard:
    """A programmed card with some of its compute units.

    Parameters
    ----------
    xclbin : Path
        File to program the card with.
    kernel : str
        Name of the kernel.
    units : sequence of str
        Names of its compute units that will be used.
    device_prefix : str
        How the device's name must begin.
    """

    def __init__(
        self, xclbin: Path, kernel: str, units: Sequence[str], device_prefix: str
    ) -> None:
        self.device = find_device(device_prefix)
        properties = cl.command_queue_properties
        options: int = properties.PROFILING_ENABLE
        # In order, units would wait for each other; out of order, launches of one unit that are
        # in flight would count each other's time.
        if len(units) > 1:
            options |= properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
        try:
            self.context = cl.Context([self.device])
            self.queue = cl.CommandQueue(self.context, properties=options)  # type: ignore[arg-type]
            program = cl.Program(self.context, [self.device], [xclbin.read_bytes()]).build()
            self._make_kernel = [
                partial(cl.Kernel, program, f"{kernel}:{{{unit}}}") for unit in units
            ]
            self.kernels = [make() for make in self._make_kernel]
        except cl.Error as error:
            raise DeviceError(
                f"{xclbin}: {', '.join(units)} cannot be had from {self.device.name} "
                f"({error}); "
                "was the file built for this platform?"
            ) from None
        self.buffers: list[list[cl.Buffer]] = [[] for _ in units]

    def place(self, unit: int, sizes: Sequence[int], scalars: Sequence[int]) -> None:
        """Make the buffers of a unit's pointer arguments and set every argument.

        Parameters
        ----------
        unit : int
            Number of the unit, from 0.
        sizes : sequence of int
            Bytes of each pointer argument, in order.
        scalars : sequence of int
            Unsigned 32-bit arguments behind them.
        """
        # A kernel object, and a queue that was not waited for, keep hold of buffers.
        self.queue.finish()
        self.kernels[unit] = self._make_kernel[unit]()
        for buffer in self.buffers[unit]:
            buffer.release()
        flags = cl.mem_flags.READ_WRITE
        self.buffers[unit] = [cl.Buffer(self.context, flags, size) for size in sizes]
        values = (np.uint32(value) for value in scalars)
        self.kernels[unit].set_args(*self.buffers[unit], *values)

    def write(self, unit: int, contents: Mapping[int, npt.NDArray[Any]]) -> float:
        """Bring contents to the card; returns the seconds of the migration alone.

        Parameters
        ----------
        unit : int
        contents : mapping of int to ndarray
            For the number of an argument, what its buffer shall hold.
        """
        buffers = self.buffers[unit]
        for number, content in contents.items():
            cl.enqueue_copy(self.queue, buffers[number], content, is_blocking=True)
        self.queue.finish()
        start = time.perf_counter()
        moved = [buffers[number] for number in contents]
        cl.enqueue_migrate_mem_objects(self.queue, moved).wait()
        return time.perf_counter() - start

    def launch(self, units: Sequence[int], repeat: int) -> npt.NDArray[np.int64]:
        """Launch units side by side, several times, and wait.

        Returns
        -------
        ndarray, shape (2, repeat, len(units)), int64
            Start and end of each launch in nanoseconds of the device's clock.

        Notes
        -----
        Two launches of a lone unit are in flight at a time, so that the card never waits for
        the host; of several units one each, so that the time of a product has a beginning and
        an end. No event is kept for longer: it holds a command buffer in the card's memory,
        and with hundreds of them the emulation of XRT 2.13 sometimes loses a launch.
        """
        times = np.zeros((2, repeat, len(units)), np.int64)
        in_flight: deque[tuple[int, list[cl.Event]]] = deque()
        num_in_flight = _LAUNCHES_IN_FLIGHT if len(units) == 1 else 1

        def finish_oldest() -> None:
            number, events = in_flight.popleft()
            for place, event in enumerate(events):
                event.wait()
                times[:, number, place] = event.profile.start, event.profile.end

        for number in range(repeat):
            if len(in_flight) == num_in_flight:
                finish_oldest()
            in_flight.append((number, [self._start(unit) for unit in units]))
        while in_flight:
            finish_oldest()
        return times

    def _start(self, unit: int) -> cl.Event:
        return cl.enqueue_nd_range_kernel(self.queue, self.kernels[unit], (1,), (1,))

    def read(self, unit: int, number: int, into: npt.NDArray[Any]) -> float:
        """Fetch a buffer; returns the seconds."""
        start = time.perf_counter()
        cl.enqueue_copy(self.queue, into, self.buffers[unit][number], is_blocking=True)
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
