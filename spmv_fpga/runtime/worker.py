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
        self.card: Any = None

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
        self, _: list[int], xclbin: str, kernel: str, units: list[str], device_prefix: str
    ) -> dict[str, Any]:
        """Load OpenCL and program the card."""
        try:
            from .device import OpenClCard
        # A package that is there but broken may raise anything.
        except Exception as error:
            remedy = "run `pip install pyopencl`, and see `spmv-fpga doctor`"
            raise DeviceError(
                f"pyopencl cannot be imported ({type(error).__name__}: {error}); {remedy}."
            ) from error

        self.card = OpenClCard(Path(xclbin), kernel, units, device_prefix)
        device = self.card.device
        return {"device": device.name, "driver": device.driver_version}

    def do_place(
        self, _: list[int], unit: int, sizes: list[int], scalars: list[int]
    ) -> dict[str, Any]:
        """Make a unit's buffers and set its arguments."""
        self.card.place(unit, sizes, scalars)
        return {}

    def do_write(
        self, descriptors: list[int], unit: int, numbers: list[int], sizes: list[int]
    ) -> dict[str, Any]:
        """Bring shared memory to a unit's buffers."""
        memory = [SharedMemory(s, d) for s, d in zip(sizes, descriptors, strict=True)]
        contents = {n: m.view("uint8") for n, m in zip(numbers, memory, strict=True)}
        time_s = self.card.write(unit, contents)
        for piece in memory:
            piece.close()
        return {"time_s": time_s}

    def do_launch(
        self, descriptors: list[int], units: list[int], repeat: int
    ) -> dict[str, Any]:
        """Launch units side by side; the event times go into shared memory."""
        times = self.card.launch(units, repeat)
        memory = SharedMemory(times.nbytes, descriptors[0])
        memory.view("int64")[:] = times.reshape(-1)
        memory.close()
        return {}

    def do_read(
        self, descriptors: list[int], unit: int, number: int, size: int
    ) -> dict[str, Any]:
        """Fetch a unit's buffer into shared memory."""
        memory = SharedMemory(size, descriptors[0])
        time_s = self.card.read(unit, number, memory.view("uint8"))
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
