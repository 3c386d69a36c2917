"""SELL-C-sigma with sixteen lanes, the format of the kernel `lanes`.

Rows are cut where a column panel ends, and sorted by length before they are put together in
chunks, so that a chunk, which is as wide as its longest piece, has little padding. A slot
has 6 bytes: a value, and a column index within its panel.

References
----------
.. [1] M. Kreutzer, G. Hager, G. Wellein, H. Fehske, A. R. Bishop, "A unified sparse matrix
   data format for efficient general sparse matrix-vector multiplication on modern
   processors with wide SIMD units", SIAM J. Sci. Comput. 36(5), 2014, doi:10.1137/130930352.
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
    EntryFormat,
    FloatArray,
    IntArray,
    WordArray,
    canonical_csr,
    freeze,
    padded_vector,
    products,
    sums_by_group,
    words_for,
)
from .lane_layout import (
    LANES,
    MAX_MERGED,
    NO_ADDRESS,
    PIECE_BYTES,
    SLOT_BYTES,
    Layout,
    element_of,
    lay_out,
    row_of,
    runs,
    stream_words,
)

DEPTHS = (8, 16)
DEFAULT_DEPTH = 8
DEFAULT_PANEL = 16384
DEFAULT_Y_ROOM = 32768
"""Elements of y that the kernel has room for, where nobody says another number."""
MAX_PANEL = 1 << 15
"""A column index has 15 bits; bit 15 is a flag."""
LAST_IN_CHUNK = np.uint16(1 << 15)
"""Flag in the column index of lane 0 in the accesses of a chunk's last slot-column."""
MAX_ROWS = LANES * (NO_ADDRESS - MAX_MERGED)
_ADDRESSES_PER_WORD = 2 * LANES
_WORDS_PER_PAIR = 3
"""A word of column indices and two words of their values."""
_RUN_SLOTS = 1 << 18
_PADDING = PADDING_BITS.view(np.float32)


class SellCSigma(EntryFormat):
    """A matrix in SELL-C-sigma; made by `from_csr`.

    Attributes
    ----------
    values : ndarray, shape (num_stored,), float32
        Slots, chunk by chunk; within a chunk slot-column by slot-column, each of `depth`
        times 16 slots. Padding is -0.0.
    col_indices : ndarray, shape (num_stored,), uint16
        Column of each slot within its panel; padding names column 0.
    chunk_widths : ndarray, shape (num_chunks,), int64
        Slot-columns of each chunk: entries of its longest piece.
    chunks_per_panel : ndarray, shape (ceil(n / panel),), int64
    piece_addresses : ndarray, shape (num_chunks, depth, 16), uint16
        Where each piece adds to its lane's y on the chip; 0xFFFF for an empty piece.
    merged_rows : ndarray, shape (num_merged,), int32
        Row that each word of y behind the real ones is added to at the end; -1 for none.
    shape : tuple of int
    nnz : int
        True entries; explicit zeros are entries.
    depth : int
        Accesses after which a row returns.
    panel : int
        Columns of a panel.

    Examples
    --------
    >>> A = csr_array([[1, 0, 2], [0, 3, 0]], dtype="float32")
    >>> f = SellCSigma.from_csr(A)
    >>> f.nnz, f.num_stored, f.chunk_widths.tolist()
    (3, 256, [2])
    >>> f.spmv([1, 1, 1]).tolist()
    [3.0, 3.0]
    """

    kernel: ClassVar[str] = "lanes"

    def __init__(
        self,
        *,
        values: FloatArray,
        col_indices: npt.NDArray[np.uint16],
        chunk_widths: IntArray,
        chunks_per_panel: IntArray,
        piece_addresses: npt.NDArray[np.uint16],
        merged_rows: npt.NDArray[np.int32],
        shape: tuple[int, int],
        nnz: int,
        depth: int,
        panel: int,
    ) -> None:
        freeze(
            values, col_indices, chunk_widths, chunks_per_panel, piece_addresses, merged_rows
        )
        self.values = values
        self.col_indices = col_indices
        self.chunk_widths = chunk_widths
        self.chunks_per_panel = chunks_per_panel
        self.piece_addresses = piece_addresses
        self.merged_rows = merged_rows
        self.shape = shape
        self.nnz = nnz
        self.depth = depth
        self.panel = panel

    @classmethod
    def from_csr(
        cls,
        A: Any,
        *,
        depth: int = DEFAULT_DEPTH,
        panel: int = DEFAULT_PANEL,
        sigma: int | None = None,
        limit: int | None = None,
    ) -> SellCSigma:
        """Convert a CSR matrix.

        Parameters
        ----------
        A : csr_array, shape (m, n), float32
        depth : int
            Accesses after which a row returns: 8 or 16.
        panel : int
            Columns of a panel: a multiple of 16, at most 32,768.
        sigma : int, optional
            Rows that are sorted together; all where none is given.
        limit : int, optional
            Entries of the longest piece; where none is given, the limit that is expected to
            cost the fewest bytes.

        Returns
        -------
        SellCSigma

        Raises
        ------
        FormatError
            If a parameter is wrong, or an address of y needs more than 16 bits.
        """
        check_lanes(depth, panel, sigma, limit)
        csr = canonical_csr(A, "SellCSigma")
        check_rows(csr.shape[0])
        layout = lay_out(csr, depth=depth, panel=panel, sigma=sigma, limit=limit)
        values, cols = _fill(csr, layout, panel)
        return cls(
            values=values,
            col_indices=cols,
            chunk_widths=layout.widths,
            chunks_per_panel=layout.chunks_per_panel,
            piece_addresses=layout.addresses,
            merged_rows=layout.merged_rows,
            shape=csr.shape,
            nnz=int(csr.indptr[-1]),
            depth=depth,
            panel=panel,
        )

    @classmethod
    def convert(cls, A: Any, parameters: Mapping[str, int]) -> SellCSigma:
        """Convert a CSR matrix; `parameters` may have `depth` and `panel`."""
        return cls.from_csr(
            A,
            depth=parameters.get("depth", DEFAULT_DEPTH),
            panel=parameters.get("panel", DEFAULT_PANEL),
        )

    @property
    def parameters(self) -> dict[str, int]:
        """`{"depth": depth, "panel": panel}`."""
        return {"depth": self.depth, "panel": self.panel}

    @property
    def num_chunks(self) -> int:
        """Chunks of all panels."""
        return len(self.chunk_widths)

    @property
    def num_panels(self) -> int:
        """Panels with entries; the stream has no others."""
        return int(np.count_nonzero(self.chunks_per_panel))

    @property
    def num_stored(self) -> int:
        """Slots stored: 16 times `depth` times the sum of the chunks' widths."""
        return LANES * self.depth * int(self.chunk_widths.sum())

    @property
    def num_words(self) -> int:
        """Words of the stream: headers, addresses, slots, and the rows of the merge."""
        return stream_words(
            self.chunks_per_panel, self.chunk_widths, self.merged_rows, self.depth
        )

    @property
    def num_y(self) -> int:
        """Rows, to whole words."""
        return LANES * words_for(self.shape[0])

    @property
    def y_on_chip(self) -> int:
        """Elements of y that the kernel must have room for, those of long rows included."""
        return self.num_y + LANES * len(self.merged_rows)

    @property
    def matrix_bytes(self) -> int:
        """6 bytes a slot, a value and a column index, and 2 a piece, its address."""
        return SLOT_BYTES * self.num_stored + PIECE_BYTES * self.piece_addresses.size

    def to_csr(self) -> csr_array:
        """Give the matrix back exactly, explicit zeros included; -0.0 is +0.0 there too."""
        slot = np.flatnonzero(self.values.view(np.uint32) != PADDING_BITS)
        slot_column, place = np.divmod(slot, self.depth * LANES)
        chunk = np.repeat(np.arange(self.num_chunks), self.chunk_widths)[slot_column]
        panel = np.repeat(np.arange(len(self.chunks_per_panel)), self.chunks_per_panel)
        cols = panel[chunk] * self.panel + self.col_indices[slot]
        rows = self._piece_rows()[chunk, place]
        return coo_array((self.values[slot], (rows, cols)), shape=self.shape).tocsr()

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
        places = self.depth * LANES
        # The last element stands for the address of empty pieces.
        y = np.zeros((words_for(self.shape[0]) + len(self.merged_rows) + 1, LANES), np.float32)
        addresses = self.piece_addresses.reshape(-1, LANES).astype(np.int64)
        addresses[addresses == NO_ADDRESS] = len(y) - 1
        with np.errstate(invalid="ignore", over="ignore", under="ignore"):
            for first_col, chunks, slots in self._panels():
                operand = vector[first_col : first_col + self.panel]
                terms = products(self.values[slots], operand[self.col_indices[slots]])
                sums = sums_by_group(terms.reshape(-1, places), self.chunk_widths[chunks])
                which = slice(chunks.start * self.depth, chunks.stop * self.depth)
                np.add.at(y, (addresses[which], np.arange(LANES)), sums.reshape(-1, LANES))
            self._merge(y)
        elements = y.reshape(-1)
        return elements[_element_of_rows(self.shape[0])]

    @classmethod
    def max_rows(cls, y_room: int | None) -> int:
        """Return the rows for which y has room on the chip, beside words for long rows."""
        return LANES * max((y_room or DEFAULT_Y_ROOM) // LANES - MAX_MERGED, 1)

    @classmethod
    def row_bytes(cls, csr: csr_array, parameters: Mapping[str, int]) -> IntArray:
        """Estimate 6 bytes for every entry and 2 for every panel that a row may touch."""
        num_panels = -(-csr.shape[1] // parameters.get("panel", DEFAULT_PANEL))
        entries = np.diff(csr.indptr).astype(np.int64)
        cost: IntArray = SLOT_BYTES * entries + PIECE_BYTES * np.minimum(entries, num_panels)
        return cost

    def scalars(self) -> dict[str, int]:
        """Return the kernel's scalar arguments by name."""
        return {
            "num_words": self.num_words,
            "num_panels": self.num_panels,
            "num_merged": len(self.merged_rows),
            "num_y_words": words_for(self.shape[0]),
        }

    def _panels(self) -> list[tuple[int, slice, slice]]:
        """Return the first column, the chunks and the slots of each panel with entries."""
        chunk_ends = np.cumsum(self.chunks_per_panel)
        slot_ends = np.concatenate(([0], np.cumsum(self.chunk_widths)))
        slot_ends *= self.depth * LANES
        found = []
        for panel in np.flatnonzero(self.chunks_per_panel).tolist():
            end = int(chunk_ends[panel])
            start = end - int(self.chunks_per_panel[panel])
            slots = slice(int(slot_ends[start]), int(slot_ends[end]))
            found.append((panel * self.panel, slice(start, end), slots))
        return found

    def _merge(self, y: FloatArray) -> None:
        """Add the words of long rows, shape (addresses, 16), to their rows."""
        words = np.flatnonzero(self.merged_rows >= 0)
        element = _element_of_rows(self.shape[0])[self.merged_rows[words]]
        sums = y[words_for(self.shape[0]) + words].sum(axis=1)
        np.add.at(y.reshape(-1), element, sums)

    def _piece_rows(self) -> IntArray:
        """Return the row of every piece, shape (num_chunks, depth * 16); -1 for none."""
        address = self.piece_addresses.astype(np.int64)
        row = row_of(address * LANES + np.arange(LANES))
        if len(self.merged_rows):
            behind = address - words_for(self.shape[0])
            inside = np.clip(behind, 0, len(self.merged_rows) - 1)
            row = np.where(behind >= 0, self.merged_rows[inside], row)
        row[address == NO_ADDRESS] = -1
        return row.reshape(self.num_chunks, self.depth * LANES)

    def _pack(self) -> WordArray:
        words = np.empty((self.num_words, LANES), np.uint32)
        address_words = self.depth * LANES // _ADDRESSES_PER_WORD
        pair_words = self.depth // 2 * _WORDS_PER_PAIR
        place, last_panel, slot = 0, -1, 0
        for panel, start, end, width in runs(
            self.chunk_widths, self.chunks_per_panel, _RUN_SLOTS
        ):
            if panel != last_panel:
                words[place] = self._header(panel)
                place, last_panel = place + 1, panel
            chunk_words = address_words + width * pair_words
            target = words[place : place + (end - start) * chunk_words]
            slots = slice(slot, slot + (end - start) * width * self.depth * LANES)
            self._pack_run(target.reshape(end - start, chunk_words, LANES), start, end, slots)
            place, slot = place + len(target), slots.stop
        merged = words[place:].reshape(-1)
        merged[:] = 0xFFFFFFFF
        merged[: len(self.merged_rows)] = self.merged_rows.view(np.uint32)
        return words

    def _header(self, panel: int) -> WordArray:
        """Return the word before a panel."""
        chunks = int(self.chunks_per_panel[panel])
        first = int(self.chunks_per_panel[:panel].sum())
        accesses = self.depth * int(self.chunk_widths[first : first + chunks].sum())
        first_col = panel * self.panel
        header = np.zeros(LANES, np.uint32)
        header[:5] = (
            chunks * (self.depth * LANES // _ADDRESSES_PER_WORD)
            + accesses // 2 * _WORDS_PER_PAIR,
            first_col // LANES,
            words_for(min(self.panel, self.shape[1] - first_col)),
            chunks,
            accesses // 2 * _WORDS_PER_PAIR,
        )
        return header

    def _pack_run(self, target: WordArray, start: int, end: int, slots: slice) -> None:
        """Fill the words of chunks of the same width, shape (chunks, words, 16)."""
        num_chunks = end - start
        address_words = self.depth * LANES // _ADDRESSES_PER_WORD
        addresses = self.piece_addresses[start:end].reshape(num_chunks, -1)
        target[:, :address_words] = addresses.view(np.uint32).reshape(
            num_chunks, address_words, LANES
        )
        pairs = target[:, address_words:].reshape(num_chunks, -1, _WORDS_PER_PAIR, LANES)
        values = self.values[slots].view(np.uint32)
        pairs[:, :, 1:] = values.reshape(num_chunks, -1, 2, LANES)
        cols = self.col_indices[slots].view(np.uint32)
        pairs[:, :, 0] = cols.reshape(num_chunks, -1, LANES)
        # Lane 0 of the first and of the second access of a pair.
        last = pairs[:, -(self.depth // 2) :, 0]
        last[:, :, :: LANES // 2] |= np.uint32(LAST_IN_CHUNK)


def check_lanes(
    depth: int, panel: int, sigma: int | None = None, limit: int | None = None
) -> None:
    """Raise `FormatError` unless the parameters are such that the kernel can have."""
    if depth not in DEPTHS:
        raise FormatError(f"depth is {depth}; it must be 8 or 16.")
    if not LANES <= panel <= MAX_PANEL or panel % LANES:
        raise FormatError(
            f"panel is {panel}; it must be {LANES} to {MAX_PANEL}, a multiple of {LANES}."
        )
    for name, value in (("sigma", sigma), ("limit", limit)):
        if value is not None and value < 1:
            raise FormatError(f"{name} is {value}; it must be at least 1.")


def check_rows(num_rows: int) -> None:
    """Raise `FormatError` where addresses of y need more than 16 bits."""
    if num_rows > MAX_ROWS:
        raise FormatError(
            f"the matrix has {num_rows} rows; {MAX_ROWS} of them have addresses of 16 bits in "
            "the y of a compute unit. Cut the rows (`partition` does)."
        )


def lay_out_for(csr: csr_array, parameters: Mapping[str, int]) -> Layout:
    """Find the place of every entry of a canonical matrix, for a kernel's parameters.

    Raises
    ------
    FormatError
        If a parameter is wrong, or an address of y needs more than 16 bits.
    """
    depth = parameters.get("depth", DEFAULT_DEPTH)
    panel = parameters.get("panel", DEFAULT_PANEL)
    check_lanes(depth, panel)
    check_rows(csr.shape[0])
    return lay_out(csr, depth=depth, panel=panel, sigma=None, limit=None)


def _element_of_rows(num_rows: int) -> IntArray:
    return element_of(np.arange(num_rows))


def _fill(
    csr: csr_array, layout: Layout, panel: int
) -> tuple[FloatArray, npt.NDArray[np.uint16]]:
    """Copy every entry to its slot, one run of chunks of the same width after the other."""
    values = np.empty(layout.num_stored, np.float32)
    cols = np.empty(layout.num_stored, np.uint16)
    slot = 0
    for number, start, end, width in runs(layout.widths, layout.chunks_per_panel, _RUN_SLOTS):
        shape = (end - start, width, layout.depth, LANES)
        slots = slice(slot, slot + (end - start) * width * layout.depth * LANES)
        slot = slots.stop
        column = np.arange(width)[:, None, None]
        entry = layout.starts[start:end, None] + column
        lengths = layout.lengths[start:end]
        # Behind the end of a piece there is padding, whatever stands there in the matrix.
        np.take(csr.data, entry, mode="clip", out=values[slots].reshape(shape))
        found = np.take(csr.indices, entry, mode="clip")
        np.subtract(found, number * panel, out=cols[slots].reshape(shape), casting="unsafe")
        least = int(lengths.min())
        is_padding = lengths[:, None] <= column[least:]
        values[slots].reshape(shape)[:, least:][is_padding] = _PADDING
        cols[slots].reshape(shape)[:, least:][is_padding] = 0
    return values, cols
