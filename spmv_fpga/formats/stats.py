"""What every format would store of a matrix, counted without storing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from .base import WORD_BYTES, WORD_LANES, canonical_csr, density, words_for
from .blocked_ell import BLOCK_SIZES, DESCRIPTORS_PER_WORD, check_block
from .lane_layout import PIECE_BYTES, SLOT_BYTES, Layout
from .sell_c_sigma import DEFAULT_PANEL, lay_out_for
from .sliced_ell import SLICE_SIZES, check_slice_size, slice_widths
from .tiles import count_blocks


@dataclass(frozen=True, kw_only=True)
class FormatStats:
    """Counts of one format with one parameter.

    Attributes
    ----------
    kernel : str
        Kernel that reads the format: `scalar`, `block` or `lanes`.
    block, slice_size, depth : int or None
        Edge of a tile, height of a slice, or accesses after which a row returns.
    nnz : int
        True entries.
    num_stored : int
        Slots, padding included.
    blocks : int or None
        Tiles.
    num_words : int
        Words of 64 bytes in the matrix stream.
    matrix_bytes : int
        Bytes of values, indices and what else says where a value belongs.
    panel : int or None
        Columns of a panel, of SELL-C-sigma.
    num_chunks, num_panels : int
        Chunks, and panels with entries, of SELL-C-sigma.
    last_slots : int
        Slots of the last chunks of its panels, where the shortest pieces are.
    """

    kernel: str
    block: int | None
    slice_size: int | None
    nnz: int
    num_stored: int
    blocks: int | None
    num_words: int
    matrix_bytes: int
    depth: int | None = None
    panel: int | None = None
    num_chunks: int = 0
    num_panels: int = 0
    last_slots: int = 0

    @property
    def parameter(self) -> int | None:
        """P, L or depth, whichever the format has."""
        return self.block or self.slice_size or self.depth

    @property
    def density(self) -> float:
        """`nnz / num_stored`; 1 where nothing is stored."""
        return density(self.nnz, self.num_stored)

    @property
    def padding(self) -> int:
        """Slots that hold no entry."""
        return self.num_stored - self.nnz

    @property
    def bytes(self) -> int:
        """All that the card reads of the matrix."""
        return self.num_words * WORD_BYTES


def format_stats(
    A: Any,
    *,
    blocks: Sequence[int] = BLOCK_SIZES,
    slices: Sequence[int] = SLICE_SIZES,
    depths: Sequence[int] = (),
    panel: int = DEFAULT_PANEL,
) -> tuple[FormatStats, ...]:
    """Count what each format would store.

    Parameters
    ----------
    A : csr_array, shape (m, n)
    blocks : sequence of int
        Edges P for Blocked ELL.
    slices : sequence of int
        Heights L for sliced ELL.
    depths : sequence of int
        Depths for SELL-C-sigma, whose count takes longer than the others'.
    panel : int
        Columns of its panels.

    Returns
    -------
    tuple of FormatStats
        Sliced ELL first, SELL-C-sigma last. Sizes are exact integers of any length; nothing
        padded is made.

    Examples
    --------
    >>> from scipy.sparse import eye_array
    >>> for s in format_stats(eye_array(32, dtype="float32").tocsr(), blocks=[16], slices=[4]):
    ...     print(s.kernel, s.num_stored, s.density, s.bytes)
    scalar 32 1.0 256
    block 512 0.0625 2112
    """
    is_canonical = getattr(A, "format", None) == "csr" and A.has_canonical_format
    csr = A if is_canonical else canonical_csr(A, "format_stats")
    return (
        *(_sliced(csr, L) for L in slices),
        *(_blocked(csr, P) for P in blocks),
        *(_sorted(csr, depth, panel) for depth in depths),
    )


def _sliced(csr: csr_array, slice_size: int) -> FormatStats:
    check_slice_size(slice_size)
    widths = slice_widths(np.diff(csr.indptr).astype(np.int64), slice_size)
    num_stored = slice_size * int(widths.sum())
    return FormatStats(
        kernel="scalar",
        block=None,
        slice_size=slice_size,
        nnz=int(csr.nnz),
        num_stored=num_stored,
        blocks=None,
        num_words=2 * words_for(slice_size * int(np.maximum(widths, 1).sum())),
        matrix_bytes=8 * num_stored,
    )


def _blocked(csr: csr_array, block: int) -> FormatStats:
    check_block(block)
    num_blocks = count_blocks(csr, block)
    num_stored = num_blocks * block**2
    entries_per_block_row = np.diff(csr.indptr[_block_row_starts(csr.shape[0], block)])
    num_descriptors = num_blocks + int(np.count_nonzero(entries_per_block_row == 0))
    return FormatStats(
        kernel="block",
        block=block,
        slice_size=None,
        nnz=int(csr.nnz),
        num_stored=num_stored,
        blocks=num_blocks,
        num_words=-(-num_descriptors // DESCRIPTORS_PER_WORD) + num_stored // WORD_LANES,
        matrix_bytes=4 * num_stored + 4 * num_blocks,
    )


def _sorted(csr: csr_array, depth: int, panel: int) -> FormatStats:
    layout = lay_out_for(csr, {"depth": depth, "panel": panel})
    return FormatStats(
        kernel="lanes",
        block=None,
        slice_size=None,
        nnz=int(csr.nnz),
        num_stored=layout.num_stored,
        blocks=None,
        num_words=layout.num_words,
        matrix_bytes=layout.matrix_bytes,
        depth=depth,
        panel=panel,
        num_chunks=len(layout.widths),
        num_panels=int(np.count_nonzero(layout.chunks_per_panel)),
        last_slots=depth * WORD_LANES * _last_widths(layout),
    )


def _last_widths(layout: Layout) -> int:
    """Return the sum of the widths of the last chunks of all panels."""
    ends = np.cumsum(layout.chunks_per_panel)[layout.chunks_per_panel > 0]
    return int(layout.widths[ends - 1].sum())


def in_runs(stats: FormatStats, all_panels: int) -> FormatStats:
    """Return what SELL-C-sigma stores where entries are cut into runs, each sorted by itself.

    Parameters
    ----------
    stats : FormatStats
        Of the whole matrix.
    all_panels : int
        Panels with entries of all runs together. The last chunk of each is half empty on
        average, and as wide as that of the whole matrix.
    """
    if not stats.num_panels or all_panels <= stats.num_panels:
        return stats
    more = (all_panels - stats.num_panels) / 2
    chunk_slots = WORD_LANES * (stats.depth or 1)
    slots = round(more * stats.last_slots / stats.num_panels)
    num_bytes = SLOT_BYTES * slots + PIECE_BYTES * round(more) * chunk_slots
    return replace(
        stats,
        num_stored=stats.num_stored + slots,
        num_words=stats.num_words + -(-num_bytes // WORD_BYTES) + all_panels - stats.num_panels,
        matrix_bytes=stats.matrix_bytes + num_bytes,
        num_chunks=stats.num_chunks + round(more),
        num_panels=all_panels,
    )


def _block_row_starts(num_rows: int, block: int) -> npt.NDArray[np.int64]:
    return np.append(np.arange(0, num_rows, block), num_rows)
