"""Every matrix of some folders through every kernel, each product verified."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

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
        Its block or slice.
    outcome : str
        `verified`, `wrong`, or `refused`: the matrix cannot be used, or does not fit.
    detail : str
        The worst error over its bound, or the reason.
    """

    matrix: Path
    kernel: str
    parameters: dict[str, int]
    outcome: Outcome
    detail: str


def matrix_files(places: Iterable[str | Path]) -> list[Path]:
    """Return all matrix files in folders, and files as they are named.

    Raises
    ------
    MatrixError
        If a place does not exist, or there is no matrix in any.
    """
    files: list[Path] = []
    for place in map(Path, places):
        if place.is_dir():
            found = (path for path in place.iterdir() if path.name.endswith(MATRIX_ENDINGS))
            files += sorted(found)
        elif place.exists():
            files.append(place)
        else:
            raise MatrixError("is neither a folder nor a file.", path=place)
    if not files:
        raise MatrixError(
            f"there is no matrix ({', '.join(MATRIX_ENDINGS)}) in the folders named."
        )
    return files


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
        Kernel and its block or slice. One card is opened for each, and serves all files.
    mode : str
        `sw_emu`, or `reference` for NumPy alone.
    x : str
        Words for x, see `make_x`.

    Yields
    ------
    SweepLine

    Raises
    ------
    DeviceError
        If the card itself fails.
    """
    matrices = list(files)
    for kernel, parameters in variants:
        with contextlib.ExitStack() as stack:
            card = None
            if mode != "reference":
                chosen = {"block": 16, "slice": 16, **parameters}
                opened = open_device(
                    mode=mode, kernel=kernel, block=chosen["block"], slice_size=chosen["slice"]
                )
                card = stack.enter_context(opened)
            for file in matrices:
                yield _line(file, kernel, parameters, card, x)


def _line(
    file: Path, kernel: str, parameters: dict[str, int], card: Card | None, x_spec: str
) -> SweepLine:
    outcome: Outcome
    try:
        csr = open_matrix(file).csr
        x = make_x(x_spec, csr.shape[1])
        fmt = FORMATS[load_kernel(kernel).format].convert(csr, parameters)
        y = fmt.spmv(x) if card is None else card.spmv(fmt, x)[0]
        outcome, detail = "verified", f"{reference.verify(y, csr, x):.3g}"
    except VerificationError as error:
        outcome, detail = "wrong", str(error)
    except (MatrixError, FormatError, XclbinError) as error:
        outcome, detail = "refused", str(error)
    return SweepLine(file, kernel, parameters, outcome, detail)
