"""The process that loads XRT, started by `spmv_fpga.runtime.card` in a session of its own.

It answers one request at a time. Whatever the runtime prints goes to the run's log; the
channel to the parent is a descriptor of its own.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

from ..errors import DeviceError
from .channel import Channel, ChannelClosedError, SharedMemory

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
_MAX_ERROR_CHARS = 4000  # a build log of the runtime may be long


class Worker:
    """Serves a card to the parent process."""

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.unit: Any = None
        self.memory: dict[int, SharedMemory] = {}

    def serve(self) -> None:
        """Answer requests until the parent closes the channel."""
        while True:
            try:
                request, descriptors = self.channel.receive()
            except ChannelClosedError:
                return
            try:
                answer = getattr(self, f"do_{request.pop('do')}")(descriptors, **request)
            except DeviceError as error:
                answer = {"error": str(error)[:_MAX_ERROR_CHARS]}
            except Exception as error:  # noqa: BLE001 - it is told to the parent
                traceback.print_exc()
                answer = {"error": f"{type(error).__name__}: {error}"[:_MAX_ERROR_CHARS]}
            try:
                self.channel.send(answer)
            except ChannelClosedError:
                return

    def do_open(
        self, _: list[int], xclbin: str, kernel: str, unit: str, device_prefix: str
    ) -> dict[str, Any]:
        """Load OpenCL and program the card."""
        try:
            from .device import OpenClUnit
        except ImportError as error:
            raise DeviceError(
                f"pyopencl cannot be imported ({error}); run `pip install pyopencl`."
            ) from error

        self.unit = OpenClUnit(Path(xclbin), kernel, unit, device_prefix)
        device = self.unit.device
        return {"device": device.name, "driver": device.driver_version}

    def do_place(self, _: list[int], sizes: list[int], scalars: list[int]) -> dict[str, Any]:
        """Make buffers and set arguments."""
        self.unit.place(sizes, scalars)
        return {}

    def do_write(
        self, descriptors: list[int], numbers: list[int], sizes: list[int]
    ) -> dict[str, Any]:
        """Bring shared memory to the card."""
        memory = [SharedMemory(s, d) for s, d in zip(sizes, descriptors, strict=True)]
        contents = {n: m.view("uint8") for n, m in zip(numbers, memory, strict=True)}
        time_s = self.unit.write(contents)
        for piece in memory:
            piece.close()
        return {"time_s": time_s}

    def do_launch(self, descriptors: list[int], repeat: int) -> dict[str, Any]:
        """Launch the unit; the event times go into shared memory."""
        times = self.unit.launch(repeat)
        memory = SharedMemory(2 * repeat * 8, descriptors[0])
        memory.view("int64")[:] = (*times.start_ns, *times.end_ns)
        memory.close()
        return {}

    def do_read(self, descriptors: list[int], number: int, size: int) -> dict[str, Any]:
        """Fetch a buffer into shared memory."""
        memory = SharedMemory(size, descriptors[0])
        time_s = self.unit.read(number, memory.view("uint8"))
        memory.close()
        return {"time_s": time_s}


def main() -> None:
    """Serve on the descriptor that the first argument names."""
    # A killed parent must not leave a worker, and so no emulated card either.
    if parent := int(sys.argv[2]):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    Worker(Channel.from_descriptor(int(sys.argv[1]))).serve()


if __name__ == "__main__":
    main()
