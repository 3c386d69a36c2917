"""Every matrix of some folders through every kernel, each product verified."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from . import reference
from .errors import FormatError, MatrixError, VerificationError, XclbinError
from .formats import FORMATS
from .kernels import kernel_names, load_kernel, load_product_kernel
from .matrices import open_matrix
from .runtime import Card, open_device
from .vectors import DEFAULT_X, make_x

MATRIX_ENDINGS = (".mtx", ".mtx.gz", ".mtx.bz2", ".tar.gz", ".mat", ".npz")

Outcome = Literal["verified", "wrong", "refused"]


@dataclass(frozen=True)
class SweepLine:
    """What became of one matrix with one kernel.

    Attributes
    ----------
    matrix : Path
    kernel : str
    parameters : dict
        Its block, slice or depth.
    outcome : str
        `verified`, `wrong`, or `refused`: the matrix cannot be used, or does not fit.
    detail : str
        The worst error over its bound, or the reason.
    worst : float or None
        The worst error over its bound; None where it is not finite, or nothing was multiplied.
    is_unusable : bool
        Whether the matrix itself is refused, whatever the kernel.
    """

    matrix: Path
    kernel: str
    parameters: dict[str, int]
    outcome: Outcome
    detail: str
    worst: float | None = None
    is_unusable: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the line as `spmv-fpga verify --json` has it."""
        return {
            "matrix": str(self.matrix),
            "kernel": None if self.is_unusable else self.kernel,
            "block": None if self.is_unusable else self.parameters.get("block"),
            "slice": None if self.is_unusable else self.parameters.get("slice"),
            "depth": None if self.is_unusable else self.parameters.get("depth"),
            "outcome": self.outcome,
            "worst_error_over_bound": self.worst,
            "reason": None if self.outcome == "verified" else self.detail,
        }


def matrix_files(places: Iterable[str | Path]) -> list[Path]:
    """Return all matrix files in folders, and files as they are named.

    Raises
    ------
    MatrixError
        If a place does not exist, or there is no matrix in any.
    """
    files: list[Path] = []
    for place in map(_place, places):
        if place.is_dir():
            found = (path for path in place.iterdir() if path.name.endswith(MATRIX_ENDINGS))
            files += sorted(found)
        else:
            files.append(place)
    if not files:
        raise MatrixError(
            f"there is no matrix ({', '.join(MATRIX_ENDINGS)}) in the folders named."
        )
    return files


def _place(name: str | Path) -> Path:
    """Return a folder or a file; an empty name would mean the current folder."""
    if not str(name):
        raise MatrixError("the folder's name is empty; name a folder or a file.")
    try:
        Path(name).stat()
    except OSError as error:
        raise MatrixError(
            f"is neither a folder nor a file ({error.strerror}).", path=name
        ) from None
    return Path(name)


def kernel_variants(kernel: str = "all") -> list[tuple[str, dict[str, int]]]:
    """Return every kernel, or one, with each block or slice that it can have.

    >>> kernel_variants("block")[0]
    ('block', {'block': 4})
    """
    names = kernel_names() if kernel == "all" else (load_product_kernel(kernel).name,)
    return [
        (name, {parameter.name: value})
        for name in names
        for parameter in load_kernel(name).parameters
        for value in parameter.values
    ]


def sweep(
    files: Iterable[Path],
    variants: Iterable[tuple[str, dict[str, int]]],
    *,
    mode: str = "sw_emu",
    x: str = DEFAULT_X,
) -> Iterator[SweepLine]:
    """Multiply every matrix with every kernel and verify each product.

    Parameters
    ----------
    files : iterable of Path
    variants : iterable of (str, dict)
        Kernel and its block, slice or depth. One card is opened for each, and serves all files.
    mode : str
        `sw_emu`, or `reference` for NumPy alone.
    x : str
        Words for x, see `make_x`.

    Yields
    ------
    SweepLine
        One for each product; a file that is refused itself has one line in all.

    Raises
    ------
    DeviceError
        If the card itself fails.
    """
    matrices = list(files)
    unusable: set[Path] = set()
    for kernel, parameters in variants:
        with contextlib.ExitStack() as stack:
            card = None
            if mode != "reference":
                words: dict[str, Any] = {
                    _KEYWORDS.get(name, name): value for name, value in parameters.items()
                }
                card = stack.enter_context(open_device(mode=mode, kernel=kernel, **words))
            for file in matrices:
                if file in unusable:
                    continue
                line = _line(file, kernel, parameters, card, x)
                if line.is_unusable:
                    unusable.add(file)
                yield line


_KEYWORDS = {"slice": "slice_size"}
"""Parameters that `open_device` has under another name."""


def _check_columns(cols: int, card: Card) -> None:
    """Refuse a matrix that is too wide before it is converted."""
    room = card.xclbin.x_room
    if room is not None and cols > room:
        raise FormatError(
            f"x has {cols} entries, but the kernel has on-chip room for {room}; use "
            "`spmv-fpga run`, which cuts the columns."
        )


def _line(
    file: Path, kernel: str, parameters: dict[str, int], card: Card | None, x_spec: str
) -> SweepLine:
    outcome: Outcome
    worst, is_unusable = None, False
    try:
        csr = open_matrix(file).csr
        if card is not None:
            _check_columns(csr.shape[1], card)
        x = make_x(x_spec, csr.shape[1])
        fmt = FORMATS[load_kernel(kernel).format].convert(csr, parameters)
        y = fmt.spmv(x) if card is None else card.spmv(fmt, x)[0]
        worst = reference.compare(y, csr, x)
        if not worst <= 1:
            reference.verify(y, csr, x)  # raises, and says which row
        outcome, detail = "verified", f"{worst:.3g}"
        if not np.isfinite(y).all() and (rows := reference.count_overflows(y, csr, x)):
            detail += f"; {reference.overflow_note(rows).rstrip('.')}"
    except VerificationError as error:
        outcome, detail = "wrong", str(error)
    except (MatrixError, FormatError, XclbinError) as error:
        outcome, detail = "refused", str(error)
        is_unusable = isinstance(error, MatrixError)
    worst = worst if worst is not None and math.isfinite(worst) else None
    return SweepLine(file, kernel, parameters, outcome, detail, worst, is_unusable)
