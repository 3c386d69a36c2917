"""Bytes a non-zero of every format, for all matrices of some folders."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import FormatError, MatrixError
from .formats import BLOCK_SIZES, DEPTHS, FormatStats, format_stats
from .matrices import open_matrix

SLICES = (16,)
VARIANTS = (
    *(f"scalar {size}" for size in SLICES),
    *(f"block {size}" for size in BLOCK_SIZES),
    *(f"lanes {depth}" for depth in DEPTHS),
)
"""Headings: a format's kernel with its slice, block or depth, in the order of the counts."""


@dataclass(frozen=True)
class FormatSizes:
    """What every format takes of one matrix.

    Attributes
    ----------
    file : Path
    name : str
    rows, cols, nnz : int
        Of the whole matrix; a symmetric one has both triangles.
    stats : tuple of FormatStats
        Empty where the matrix cannot be used.
    reason : str or None
        Why it cannot be used.
    """

    file: Path
    name: str
    rows: int = 0
    cols: int = 0
    nnz: int = 0
    stats: tuple[FormatStats, ...] = ()
    reason: str | None = None

    @property
    def bytes_per_entry(self) -> tuple[float, ...]:
        """Bytes that the card reads of the matrix for each of its entries."""
        return tuple(s.bytes / s.nnz for s in self.stats)

    def to_json(self) -> dict[str, Any]:
        """Return the matrix as `spmv-fpga formats --json` has it."""
        if self.reason is not None:
            return {"matrix": str(self.file), "reason": self.reason}
        return {
            "matrix": str(self.file),
            "name": self.name,
            "rows": self.rows,
            "cols": self.cols,
            "nnz": self.nnz,
            "formats": [
                {**_variant(s), "bytes": s.bytes, "bytes_per_entry": each}
                for s, each in zip(self.stats, self.bytes_per_entry, strict=True)
            ],
        }


def count_formats(files: Iterable[Path], min_entries: int = 1) -> Iterator[FormatSizes]:
    """Count what every format stores of each matrix; nothing padded is made.

    Parameters
    ----------
    files : iterable of Path
    min_entries : int
        Matrices with fewer are left out.

    Yields
    ------
    FormatSizes
        A file that is no usable matrix has a reason in place of counts.
    """
    for file in files:
        try:
            matrix = open_matrix(file)
            if not matrix.nnz:
                raise MatrixError("the matrix has no entries.", path=file)
            if matrix.nnz < min_entries:
                continue
            stats = format_stats(matrix.csr, slices=SLICES, blocks=BLOCK_SIZES, depths=DEPTHS)
        except (MatrixError, FormatError) as error:
            yield FormatSizes(file, file.name, reason=str(error))
        else:
            rows, cols = matrix.csr.shape
            yield FormatSizes(file, matrix.name, rows, cols, matrix.nnz, stats)


def mean_bytes(counted: Sequence[FormatSizes]) -> tuple[float, ...]:
    """Return the geometric mean of the bytes a non-zero, of each format.

    Parameters
    ----------
    counted : sequence of FormatSizes
        Matrices that can be used, at least one.

    Examples
    --------
    >>> from spmv_fpga.resources import data_dir
    >>> counted = list(count_formats([data_dir("matrices") / "tiny" / "symmetric4.mtx"]))
    >>> [round(mean, 1) for mean in mean_bytes(counted)][:2]
    [38.4, 12.8]
    """
    columns = zip(*(sizes.bytes_per_entry for sizes in counted), strict=True)
    return tuple(
        math.exp(math.fsum(map(math.log, column)) / len(counted)) for column in columns
    )


def sizes_document(
    counted: Sequence[FormatSizes], skipped: Sequence[FormatSizes]
) -> dict[str, Any]:
    """Return the result of `spmv-fpga formats`."""
    return {
        "matrices": [sizes.to_json() for sizes in counted],
        "skipped": [sizes.to_json() for sizes in skipped],
        "geometric_mean": [
            {**_variant(s), "bytes_per_entry": mean}
            for s, mean in zip(counted[0].stats, mean_bytes(counted), strict=True)
        ],
    }


def _variant(stats: FormatStats) -> dict[str, Any]:
    return {
        "kernel": stats.kernel,
        "block": stats.block,
        "slice": stats.slice_size,
        "depth": stats.depth,
    }
