"""What a memory channel gives: the kernel `bandwidth` on a card.

The access roof of the model is a measured bandwidth (Favaro et al. 2023, section 4.3). This
runs the kernel that measures it; its results calibrate the model as those of products do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import DeviceError, VerificationError
from .figures import Figure, median, unknown
from .formats.base import WORD_BYTES, WORD_LANES
from .runtime import Job, open_device
from .timing import measure_times
from .version import __version__

KERNEL = "bandwidth"
DEFAULT_BYTES = 64 << 20
_LAUNCH_BYTES = 1 << 31
"""Read in a launch on a card: about 0.2 s, so that the launch itself costs nothing."""


@dataclass(frozen=True, kw_only=True)
class BandwidthResult:
    """What a channel gave.

    Attributes
    ----------
    mode : str
    device : str
    num_bytes : int
        Size of the buffer.
    time_s : Figure
        Of one pass over the buffer.
    bytes_per_s : Figure
    clock_hz : float or None
    """

    mode: str
    device: str
    num_bytes: int
    time_s: Figure
    bytes_per_s: Figure
    clock_hz: float | None

    def to_json(self) -> dict[str, Any]:
        """Return a document that `spmv-fpga roofline calibrate` takes."""
        nothing = unknown("the kernel bandwidth multiplies nothing").to_json()
        return {
            "spmv_fpga": __version__,
            "matrix": {"name": "none", "rows": 0, "cols": 0, "nnz": 0},
            "kernel": {
                "name": KERNEL,
                "block": None,
                "slice": None,
                "compute_units": 1,
                "density": 1.0,
                "bytes": self.num_bytes,
            },
            "mode": self.mode,
            "verified": True,
            "fpga": {
                "time_s": self.time_s.to_json(),
                "gflops": nothing,
                "power_w": nothing,
                "energy_j": nothing,
            },
            "bytes_per_s": self.bytes_per_s.to_json(),
            "provenance": {"device": self.device, "clock_hz": self.clock_hz},
            "warnings": [],
        }


def measure_bandwidth(
    *,
    mode: str = "sw_emu",
    xclbin: str | None = None,
    board: str = "u50",
    num_bytes: int = DEFAULT_BYTES,
    warmup_s: float = 1.0,
    measure_s: float = 10.0,
) -> BandwidthResult:
    """Read a buffer again and again through one port, and verify its checksum.

    Parameters
    ----------
    mode : str
        `sw_emu`, whose time is the emulated card's, or `hw` and `hw_emu`.
    xclbin : str, optional
        Built with `spmv-fpga xclbin --kernel bandwidth`; `sw_emu` builds its own.
    board : str
    num_bytes : int
        Size of the buffer; whole words of 64 bytes.
    warmup_s, measure_s : float
        On a card.

    Raises
    ------
    DeviceError
        If the buffer has no whole words, or the card fails.
    VerificationError
        If the checksum is wrong.
    """
    if num_bytes < WORD_BYTES or num_bytes % WORD_BYTES:
        raise DeviceError(f"bytes is {num_bytes}; it must be a multiple of {WORD_BYTES}.")
    num_words = num_bytes // WORD_BYTES
    data = np.random.default_rng(1).integers(0, 1 << 32, (num_words, WORD_LANES), np.uint32)
    job = Job(
        {"data": num_bytes, "checksum": WORD_BYTES},
        {"data": data},
        {"num_words": num_words},
        num_words * WORD_LANES,
    )
    with open_device(mode=mode, kernel=KERNEL, xclbin=xclbin, board=board) as card:
        is_card = card.mode == "hw"
        passes = max(1, _LAUNCH_BYTES // num_bytes) if is_card else 1
        card.place_job(job, iterations=passes)
        if is_card:
            timing = measure_times(
                lambda launches: card.launch(launches).kernel_s / passes,
                warmup_s=warmup_s,
                measure_s=measure_s,
            )
            time_s = median(timing.time_s.tolist(), "measured")
        else:
            cycles = card.launch(1).cycles
            time_s = (
                Figure(value=cycles.time_s, origin="emulated")
                if cycles
                else unknown(f"not measured: {card.mode} is no card")
            )
        checksum, _ = card.fetch_port("checksum", np.uint32)
        found = BandwidthResult(
            mode=card.mode,
            device=card.device,
            num_bytes=num_bytes,
            time_s=time_s,
            bytes_per_s=time_s if time_s.value is None else time_s.inverse_of(num_bytes),
            clock_hz=card.clock_hz,
        )
    if not np.array_equal(checksum, np.bitwise_xor.reduce(data, axis=0)):
        raise VerificationError("the checksum of what the card read is wrong.")
    return found
