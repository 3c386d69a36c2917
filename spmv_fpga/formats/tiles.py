"""Dense tiles of a CSR matrix, counted and filled by SciPy's compiled code.

SciPy's `tobsr` starts every tile from +0.0; here tiles start as padding, so the two
functions below it are called directly. They have no public name; tests hold both against
the public conversion.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.sparse._sparsetools import csr_count_blocks, csr_tobsr

from .base import PADDING_BITS, FloatArray


def count_blocks(csr: csr_array, block: int) -> int:
    """Return how many aligned P×P tiles hold an entry.

    >>> from scipy.sparse import eye_array
    >>> count_blocks(eye_array(33, format="csr"), 16)
    3
    """
    m, n = csr.shape
    if not csr.nnz:
        return 0
    return int(csr_count_blocks(m, n, block, block, csr.indptr, csr.indices))


def cut_tiles(
    csr: csr_array, block: int
) -> tuple[FloatArray, npt.NDArray[np.int32], npt.NDArray[np.int64]]:
    """Cut a canonical matrix without -0.0 into dense tiles.

    Returns
    -------
    values : ndarray, shape (num_blocks, P, P), float32
        Slots without an entry hold padding: an entry is added to it, and -0.0 + v is v,
        also for v = +0.0, so explicit zeros are told from padding for free.
    block_cols : ndarray, shape (num_blocks,), int32
    blocks_per_row : ndarray, shape (ceil(m / P),), int64
    """
    m, n = csr.shape
    num_block_rows, num_block_cols = -(-m // block), -(-n // block)
    num_blocks = count_blocks(csr, block)
    values = np.full((num_blocks, block, block), PADDING_BITS, np.uint32).view(np.float32)
    index = csr.indices.dtype
    block_cols = np.empty(num_blocks, index)
    ends = np.zeros(num_block_rows + 1, index)
    if num_blocks:
        # The last block row is made whole with empty rows.
        indptr = np.pad(csr.indptr, (0, num_block_rows * block - m), mode="edge")
        csr_tobsr(
            num_block_rows * block,
            num_block_cols * block,
            block,
            block,
            indptr,
            csr.indices,
            csr.data,
            ends,
            block_cols,
            values.reshape(-1),
        )
    return values, block_cols.astype(np.int32, copy=False), np.diff(ends).astype(np.int64)
