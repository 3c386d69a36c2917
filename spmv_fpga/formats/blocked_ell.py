"""Blocked ELL, the format of the kernel `block`.

Every aligned P×P tile that holds an entry is stored dense. A block row lists its tiles
and ends where it ends: no block row is padded to the widest.

References
----------
.. [1] F. Favaro et al., Micromachines 14(11):2030, 2023, section 3.1 and Figure 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_array, csr_array

from ..errors import FormatError
from .base import (
    PADDING_BITS,
    WORD_LANES,
    FloatArray,
    IntArray,
    StripFormat,
    WordArray,
    canonical_csr,
    count_entries,
    freeze,
    padded_vector,
    products,
    sums_by_group,
    words_for,
)
from .tiles import cut_tiles

BLOCK_SIZES = (4, 8, 16, 32)
LAST_IN_ROW = np.uint32(1 << 31)
"""Descriptor flag: the last tile of its block row."""
EMPTY_ROW = np.uint32(1 << 30)
"""Descriptor flag: a block row without tiles; no values follow for it."""
DESCRIPTORS_PER_WORD = WORD_LANES
_MAX_BLOCK_COLS = 1 << 30


class BlockedEll(StripFormat):
    """A matrix in Blocked ELL; made by `from_csr`.

    Attributes
    ----------
    values : ndarray, shape (num_blocks, P, P), float32
        Dense tiles, row by row; padding is -0.0.
    block_cols : ndarray, shape (num_blocks,), int32
        Block column of each tile; within a block row in the order in which the rows of the
        matrix first reach them.
    blocks_per_row : ndarray, shape (ceil(m / P),), int64
        Tiles of each block row.
    shape : tuple of int
    nnz : int
        True entries; explicit zeros are entries.
    block : int
        Edge of a tile, P.

    Examples
    --------
    >>> from scipy.sparse import eye_array
    >>> f = BlockedEll.from_csr(eye_array(32, dtype="float32").tocsr(), block=16)
    >>> f.density, f.num_blocks, f.num_stored
    (0.0625, 2, 512)
    """

    kernel: ClassVar[str] = "block"

    def __init__(
        self,
        *,
        values: FloatArray,
        block_cols: npt.NDArray[np.int32],
        blocks_per_row: npt.NDArray[np.int64],
        shape: tuple[int, int],
        nnz: int,
    ) -> None:
        freeze(values, block_cols, blocks_per_row)
        self.values = values
        self.block_cols = block_cols
        self.blocks_per_row = blocks_per_row
        self.shape = shape
        self.nnz = nnz
        self.block = int(values.shape[1])

    @classmethod
    def from_csr(cls, A: Any, *, block: int = 16) -> BlockedEll:
        """Cut a CSR matrix into dense aligned tiles.

        Parameters
        ----------
        A : csr_array, shape (m, n), float32
        block : int
            Edge P of a tile: 4, 8, 16 or 32.

        Returns
        -------
        BlockedEll

        Raises
        ------
        FormatError
            If `block` is another number, or a block column needs more than 30 bits.

        Notes
        -----
        Bytes: 4 P² + 4 for a tile; the stream adds what `bytes` counts.
        """
        check_block(block)
        csr = canonical_csr(A, "BlockedEll")
        m, n = csr.shape
        if -(-n // block) > _MAX_BLOCK_COLS:
            raise FormatError(f"{-(-n // block)} block columns; a descriptor has 30 bits.")
        values, block_cols, blocks_per_row = cut_tiles(csr, block)
        return cls(
            values=values,
            block_cols=block_cols,
            blocks_per_row=blocks_per_row,
            shape=(m, n),
            nnz=int(csr.indptr[-1]),
        )

    @classmethod
    def convert(cls, A: Any, parameters: Mapping[str, int]) -> BlockedEll:
        """Convert a CSR matrix; `parameters` is `{"block": block}`."""
        return cls.from_csr(A, block=parameters["block"])

    @property
    def parameters(self) -> dict[str, int]:
        """`{"block": block}`."""
        return {"block": self.block}

    @property
    def num_blocks(self) -> int:
        """Tiles stored."""
        return len(self.block_cols)

    @property
    def num_block_rows(self) -> int:
        """Block rows, ceil(m / P)."""
        return len(self.blocks_per_row)

    @property
    def num_stored(self) -> int:
        """Slots stored, P² a tile."""
        return self.num_blocks * self.block * self.block

    @property
    def num_descriptors(self) -> int:
        """One for a tile, one for an empty block row."""
        return self.num_blocks + int(np.count_nonzero(self.blocks_per_row == 0))

    @property
    def num_words(self) -> int:
        """Words of the stream: one of descriptors before the values of 16 descriptors."""
        return words_for(self.num_descriptors) + self.num_stored // WORD_LANES

    @property
    def num_y(self) -> int:
        """Rows of all block rows, the last one whole."""
        return self.num_block_rows * self.block

    @property
    def matrix_bytes(self) -> int:
        """4 P² for the values of a tile and 4 for its block column."""
        return 4 * self.num_stored + 4 * self.num_blocks

    def to_csr(self) -> csr_array:
        """Give the matrix back exactly, explicit zeros included."""
        tile, i, j = np.nonzero(self.values.view(np.uint32) != PADDING_BITS)
        block_row = np.repeat(np.arange(self.num_block_rows), self.blocks_per_row)
        rows = block_row[tile] * self.block + i
        cols = self.block_cols[tile].astype(np.int64) * self.block + j
        return coo_array((self.values[tile, i, j], (rows, cols)), shape=self.shape).tocsr()

    def spmv(self, x: npt.ArrayLike) -> FloatArray:
        """Multiply with NumPy alone.

        Parameters
        ----------
        x : array_like, shape (n,), float32

        Returns
        -------
        ndarray, shape (m,), float32
        """
        vector = padded_vector(x, self.shape[1])
        num_block_cols = -(-self.shape[1] // self.block)
        operand = np.zeros((num_block_cols, self.block), np.float32)
        operand.reshape(-1)[: self.shape[1]] = vector[: self.shape[1]]
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            row_sums = products(self.values, operand[self.block_cols, None, :]).sum(axis=2)
        return sums_by_group(row_sums, self.blocks_per_row).ravel()[: self.shape[0]]

    @property
    def strip_height(self) -> int:
        """A strip is a block row."""
        return self.block

    def strip_bytes(self) -> IntArray:
        """Return the bytes of every block row: tiles, and a descriptor at the least."""
        descriptors = np.maximum(self.blocks_per_row, 1)
        return 4 * (self.blocks_per_row * self.block**2 + descriptors)

    def take_strips(self, start: int, end: int) -> BlockedEll:
        """Return block rows `start` to `end` as a matrix of their rows."""
        first_tile = np.concatenate(([0], np.cumsum(self.blocks_per_row)))
        tiles = slice(int(first_tile[start]), int(first_tile[end]))
        rows = min(end * self.block, self.shape[0]) - start * self.block
        return BlockedEll(
            values=self.values[tiles],
            block_cols=self.block_cols[tiles],
            blocks_per_row=self.blocks_per_row[start:end],
            shape=(max(rows, 0), self.shape[1]),
            nnz=count_entries(self.values[tiles]),
        )

    def scalars(self) -> dict[str, int]:
        """Return the kernel's scalar arguments by name."""
        return {
            "num_words": self.num_words,
            "num_descriptors": self.num_descriptors,
            "num_tiles": self.num_blocks,
            "num_block_rows": self.num_block_rows,
            "num_x_words": words_for(self.shape[1]),
        }

    def _pack(self) -> WordArray:
        words_per_tile = self.block**2 // WORD_LANES
        descriptors, place = self._descriptors()
        num_groups = words_for(self.num_descriptors)
        words = np.empty((self.num_words, WORD_LANES), np.uint32)
        tile_start = place // DESCRIPTORS_PER_WORD + 1 + words_per_tile * np.arange(len(place))
        tiles = self._tile_words()
        if self.num_descriptors == self.num_blocks:  # no empty block row: groups are regular
            _copy_groups(words, tiles, words_per_tile)
        else:
            words[(tile_start[:, None] + np.arange(words_per_tile)).ravel()] = tiles
        tiles_before = np.searchsorted(place, np.arange(num_groups) * DESCRIPTORS_PER_WORD)
        words[np.arange(num_groups) + words_per_tile * tiles_before] = descriptors
        return words

    def _descriptors(self) -> tuple[WordArray, npt.NDArray[np.int64]]:
        """Return descriptor words, shape (groups, 16), and each tile's descriptor number."""
        counts = np.maximum(self.blocks_per_row, 1)
        ends = np.cumsum(counts)
        is_empty = self.blocks_per_row == 0
        flat = np.zeros(words_for(self.num_descriptors) * DESCRIPTORS_PER_WORD, np.uint32)
        is_tile = np.ones(self.num_descriptors, bool)
        is_tile[ends[is_empty] - 1] = False
        place = np.flatnonzero(is_tile)
        flat[place] = self.block_cols.view(np.uint32)
        flat[ends - 1] |= LAST_IN_ROW
        flat[ends[is_empty] - 1] |= EMPTY_ROW
        return flat.reshape(-1, DESCRIPTORS_PER_WORD), place

    def _tile_words(self) -> WordArray:
        """Return all tiles as words, in the order in which the kernel wants them.

        Up to P = 16 a tile lies row by row. At P = 32 the first halves of all rows come
        first, then the second halves: a row's accumulator then rests for 32 words.
        """
        tiles = self.values.view(np.uint32)
        if self.block > WORD_LANES:
            halves = tiles.reshape(-1, self.block, self.block // WORD_LANES, WORD_LANES)
            tiles = halves.swapaxes(1, 2)
        return tiles.reshape(-1, WORD_LANES)


def check_block(block: int) -> None:
    """Raise `FormatError` unless the tile's edge is one that the kernel can have."""
    if block not in BLOCK_SIZES:
        raise FormatError(f"block is {block}; it must be 4, 8, 16 or 32.")


def _copy_groups(words: WordArray, tiles: WordArray, words_per_tile: int) -> None:
    """Copy tiles behind their descriptor words, where every descriptor has a tile."""
    group = DESCRIPTORS_PER_WORD * words_per_tile
    num_whole = len(tiles) // group
    end = num_whole * (1 + group)
    whole = words[:end].reshape(num_whole, 1 + group, WORD_LANES)
    whole[:, 1:] = tiles[: num_whole * group].reshape(num_whole, group, WORD_LANES)
    if len(words) > end:
        words[end + 1 :] = tiles[num_whole * group :]
