"""The paper's matrices through the emulated card, for the times beside its Table 2."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from . import reference
from .boards import load_board
from .formats import FORMATS
from .kernels import load_kernel
from .roofline.emulated import BOARD, PARAMETERS, EmulatedTime, fingerprint
from .roofline.paper import PublishedRow, matrix_of
from .runtime import Card, open_device


def emulate_rows(
    rows: Sequence[PublishedRow], folder: str | Path | None = None
) -> Iterator[EmulatedTime]:
    """Multiply each matrix with both kernels on one unit; verify, and count the cycles.

    Parameters
    ----------
    rows : sequence of PublishedRow
    folder : path, optional
        Folder with real matrices, which go before the cache's and before twins.

    Yields
    ------
    EmulatedTime

    Raises
    ------
    DeviceError
        If the emulated card cannot run here.
    VerificationError
        If a product is wrong.
    """
    board = load_board(BOARD)
    prints = {kernel: fingerprint(kernel, board) for kernel in PARAMETERS}
    with ExitStack() as stack:
        cards = {
            kernel: stack.enter_context(open_device(mode="sw_emu", kernel=kernel, board=BOARD))
            for kernel in PARAMETERS
        }
        for row in rows:
            csr, source = matrix_of(row, None if folder is None else Path(folder))
            for kernel, card in cards.items():
                yield EmulatedTime(
                    name=row.name,
                    kernel=kernel,
                    source=source,
                    cycles=_cycles(card, csr, kernel, PARAMETERS[kernel]),
                    clock_hz=card.clock_hz,
                    fingerprint=prints[kernel],
                )


def _cycles(card: Card, csr: Any, kernel: str, parameters: dict[str, int]) -> int:
    fmt = FORMATS[load_kernel(kernel).format].convert(csr, parameters)
    x = np.ones(csr.shape[1], np.float32)
    y, times = card.spmv(fmt, x)
    reference.verify(y, csr, x)
    assert times.cycles is not None
    return round(times.cycles.cycles)
