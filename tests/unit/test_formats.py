"""Storage formats: one suite over all of them, then what is particular to each."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import mmread
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix, eye_array

from spmv_fpga.errors import FormatError
from spmv_fpga.formats import (
    BLOCK_SIZES,
    DEPTHS,
    FORMATS,
    SLICE_SIZES,
    BlockedEll,
    SellCSigma,
    SlicedEll,
    lane_layout,
)
from spmv_fpga.formats import sliced_ell as sliced_ell_module
from spmv_fpga.matrices import load_matrix
from spmv_fpga.reference import compare
from spmv_fpga.resources import data_dir

PADDING = 0x80000000
CASES = [("scalar", {"slice": L}) for L in SLICE_SIZES]
CASES += [("block", {"block": P}) for P in BLOCK_SIZES]
CASES += [("lanes", {"depth": depth}) for depth in DEPTHS] + [("lanes", {"panel": 32})]


@pytest.fixture(params=CASES, ids=lambda case: f"{case[0]}{next(iter(case[1].values()))}")
def convert(request):
    """Every format with every parameter that it can have."""
    kernel, parameters = request.param
    return lambda A: FORMATS[kernel].convert(A, parameters)


def matrix(rows, cols, values, shape, dtype=np.float32) -> csr_array:
    return coo_array((np.array(values, dtype), (rows, cols)), shape=shape).tocsr()


def random_matrix(seed: int, m: int, n: int, nnz: int) -> csr_array:
    rng = np.random.default_rng(seed)
    place = rng.choice(m * n, size=min(nnz, m * n), replace=False)
    values = rng.standard_normal(len(place)).astype(np.float32)
    return coo_array((values, np.divmod(place, n)), shape=(m, n)).tocsr()


def index_x(n: int) -> np.ndarray:
    return np.arange(1, n + 1, dtype=np.float32)


def arrays(fmt) -> dict[str, np.ndarray]:
    return {k: v for k, v in vars(fmt).items() if isinstance(v, np.ndarray)}


def assert_same(A: csr_array, B: csr_array) -> None:
    """Compare shape, places and the very bits of the values."""
    assert A.shape == B.shape
    assert A.indptr.tolist() == B.indptr.tolist()
    assert A.indices.tolist() == B.indices.tolist()
    assert A.data.astype(np.float32).tobytes() == B.data.tobytes()


# Round trips


def test_to_csr_gives_the_matrix_back_exactly(convert):
    A = random_matrix(1, 67, 71, 900)
    assert_same(A, convert(A).to_csr())


def test_explicit_zeros_are_entries(convert):
    A = matrix([0, 0, 1, 40, 40], [0, 1, 3, 2, 40], [0, 5, 0, 0, 7], (41, 41))
    fmt = convert(A)
    assert fmt.nnz == 5
    assert_same(A, fmt.to_csr())


def test_a_tile_or_slice_of_explicit_zeros_alone_is_stored(convert):
    A = matrix([50], [3], [0], (60, 60))
    fmt = convert(A)
    assert fmt.num_stored > 0
    assert_same(A, fmt.to_csr())


def test_negative_zero_becomes_positive_zero(convert):
    back = convert(matrix([0, 1], [0, 1], [-0.0, 2], (2, 2))).to_csr()
    assert back.nnz == 2
    assert back.data.view(np.uint32).tolist() == [0, 0x40000000]


def test_nan_and_infinite_values_come_back(convert):
    A = matrix([0, 0, 5, 9], [1, 2, 3, 4], [np.nan, np.inf, -np.inf, 1e-45], (10, 10))
    assert_same(A, convert(A).to_csr())


@pytest.mark.parametrize("shape", [(0, 0), (0, 5), (5, 0), (3, 3), (100, 1), (1, 100)])
def test_a_matrix_without_entries_gives_zeros_of_length_m(convert, shape):
    fmt = convert(csr_array(shape, dtype=np.float32))
    assert (fmt.nnz, fmt.num_stored, fmt.density, fmt.matrix_bytes) == (0, 0, 1.0, 0)
    assert fmt.spmv(np.full(shape[1], np.nan)).tolist() == [0.0] * shape[0]
    assert_same(csr_array(shape, dtype=np.float32), fmt.to_csr())


def test_one_row_is_a_dot_product(convert):
    A = csr_array(np.ones((1, 100), np.float32))
    fmt = convert(A)
    assert fmt.spmv(index_x(100)).tolist() == [5050]
    assert_same(A, fmt.to_csr())


def test_one_column_is_scaled(convert):
    A = csr_array(index_x(100)[:, None])
    fmt = convert(A)
    assert fmt.spmv([3]).tolist() == [3 * i for i in range(1, 101)]
    assert_same(A, fmt.to_csr())


def test_empty_rows_at_the_start_in_the_middle_and_at_the_end_give_exact_zeros(convert):
    rows, cols = [19, 19, 20, 36, 36, 36], [0, 7, 4, 1, 2, 3]
    fmt = convert(matrix(rows, cols, [2, 1, -3, 0.5, 0.5, 0.5], (64, 8)))
    y = fmt.spmv(index_x(8))
    right = np.zeros(64)
    right[[19, 20, 36]] = 10, -15, 4.5
    assert y.tolist() == right.tolist()
    assert fmt.to_csr().nnz == 6


@pytest.mark.parametrize(
    ("rows", "cols", "values", "shape", "right"),
    [
        ([0, 1, 1, 2, 4, 4], [6, 0, 5, 2, 1, 6], [1, 2, -1, 4, 1, 3], (5, 7),
         {0: 7, 1: -4, 2: 12, 4: 23}),
        ([0, 15, 16, 31, 32], [0, 1, 1, 0, 2], [1, 3, 3, -1, 5], (33, 3),
         {0: 1, 15: 6, 16: 6, 31: -1, 32: 15}),
        ([0, 1, 1, 2], [32, 15, 16, 31], [1, 2, 3, -1], (3, 33), {0: 33, 1: 83, 2: -32}),
    ],
    ids=["5x7", "33x3", "3x33"],
)  # fmt: skip
def test_rectangles_of_odd_sizes_are_right(convert, rows, cols, values, shape, right):
    A = matrix(rows, cols, values, shape)
    fmt = convert(A)
    assert fmt.spmv(index_x(shape[1])).tolist() == [right.get(i, 0) for i in range(shape[0])]
    assert_same(A, fmt.to_csr())


# What may be given


def test_duplicates_are_summed(convert):
    A = csr_array(
        (np.array([1, 2, 4], np.float32), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2)
    )
    fmt = convert(A)
    assert fmt.nnz == 2
    assert fmt.to_csr().toarray().tolist() == [[4, 3]]


def test_duplicates_of_small_integers_do_not_wrap_round(convert):
    A = csr_array(
        (np.array([100, 100], np.int8), np.array([0, 0]), np.array([0, 2])), shape=(1, 1)
    )
    assert convert(A).to_csr().toarray().tolist() == [[200]]


def test_the_callers_matrix_is_left_as_it_is(convert):
    data, indices = np.array([1, 2, -0.0], np.float32), np.array([1, 1, 0])
    A = csr_array((data.copy(), indices.copy(), np.array([0, 3])), shape=(1, 2))
    convert(A)
    assert A.data.tobytes() == data.tobytes()
    assert A.indices.tolist() == indices.tolist()


def test_a_change_of_the_callers_matrix_changes_nothing(convert):
    A = random_matrix(2, 40, 40, 200)
    right = A.copy()
    fmt = convert(A)
    A.data[:] = 9
    A.indices[:] = 0
    A.indptr[:] = 0
    assert_same(right, fmt.to_csr())


def test_unsorted_columns_are_sorted(convert):
    A = csr_array((index_x(3), np.array([20, 0, 9]), np.array([0, 3])), shape=(1, 21))
    assert_same(A.sorted_indices(), convert(A).to_csr())


def test_64_bit_indices_are_accepted(convert):
    A = random_matrix(3, 50, 40, 300)
    wide = A.copy()
    wide.indices, wide.indptr = A.indices.astype(np.int64), A.indptr.astype(np.int64)
    assert_same(A, convert(wide).to_csr())


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, np.bool_])
def test_real_dtypes_become_float32(convert, dtype):
    A = matrix([0, 1], [1, 0], [1, 3], (2, 2), dtype)
    back = convert(A).to_csr()
    assert back.dtype == np.float32
    assert back.toarray().tolist() == A.toarray().astype(float).tolist()


@pytest.mark.parametrize("form", [coo_array, csc_array, csr_matrix])
def test_other_sparse_forms_are_accepted(convert, form):
    A = random_matrix(4, 33, 18, 90)
    assert_same(A, convert(form(A)).to_csr())


def test_complex_values_are_refused(convert):
    with pytest.raises(FormatError, match="complex ones are not supported"):
        convert(csr_array(np.eye(2, dtype=np.complex64)))


def test_a_dense_array_is_refused(convert):
    with pytest.raises(FormatError, match="not from ndarray"):
        convert(np.eye(3))


@pytest.mark.parametrize("size", [0, 1, 2, 5, 12, 64, -16])
def test_other_block_and_slice_sizes_are_refused_with_those_allowed(size):
    A = eye_array(3, format="csr")
    with pytest.raises(FormatError, match=f"^block is {size}; it must be 4, 8, 16 or 32.$"):
        BlockedEll.from_csr(A, block=size)
    with pytest.raises(FormatError, match=f"^slice is {size}; it must be 4, 8, 16 or 32.$"):
        SlicedEll.from_csr(A, slice_size=size)


def test_columns_past_31_bits_are_refused():
    A = csr_array((1, 2**31 + 1), dtype=np.float32)
    with pytest.raises(FormatError, match="2147483649 columns; a column index has 31 bits"):
        SlicedEll.from_csr(A)


def test_block_columns_past_30_bits_are_refused():
    A = csr_array((1, 4 * 2**30 + 1), dtype=np.float32)
    with pytest.raises(FormatError, match="1073741825 block columns; a descriptor has 30 bits"):
        BlockedEll.from_csr(A, block=4)


# The product


@pytest.mark.parametrize("length", [0, 39, 41, 48])
def test_x_of_another_length_is_refused(convert, length):
    fmt = convert(random_matrix(5, 10, 40, 30))
    with pytest.raises(FormatError, match=r"x has shape \(\d+,\); the matrix has 40 columns"):
        fmt.spmv(np.ones(length))


@pytest.mark.parametrize("x", [np.ones((2, 1)), np.ones(2, complex), np.array(["a", "b"])])
def test_an_x_that_is_no_real_vector_is_refused(convert, x):
    with pytest.raises(FormatError, match=r"^x has (shape|dtype)"):
        convert(eye_array(2, format="csr")).spmv(x)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_x_under_padding_contributes_nothing(convert, bad):
    A = matrix([0, 0, 2, 3], [0, 1, 0, 1], [2, 3, 4, 5], (4, 40))
    x = np.full(40, bad, np.float32)
    x[:2] = 1, 10
    assert convert(A).spmv(x).tolist() == [32, 0, 4, 50]


def test_an_explicit_zero_keeps_what_ieee_says(convert):
    A = matrix([0, 1], [0, 1], [0, 1], (2, 2))
    y = convert(A).spmv([np.inf, 2])
    assert np.isnan(y[0])
    assert y[1] == 2


def test_an_overflow_is_infinite_and_no_warning(convert):
    A = matrix([0, 0], [0, 1], [3e38, 3e38], (1, 2))
    assert convert(A).spmv([1, 1]).tolist() == [np.inf]


@st.composite
def sparse_matrices(draw):
    m, n = draw(st.integers(0, 70)), draw(st.integers(0, 70))
    seed = draw(st.integers(0, 2**32 - 1))
    share = draw(st.sampled_from([0.0, 0.01, 0.1, 0.6, 1.0]))
    A = random_matrix(seed, m, n, int(share * m * n)) if m * n else csr_array((m, n))
    return A.astype(np.float32)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(A=sparse_matrices(), case=st.sampled_from(CASES), seed=st.integers(0, 2**32 - 1))
def test_any_matrix_comes_back_and_multiplies_right(A, case, seed):
    kernel, parameters = case
    x = np.random.default_rng(seed).standard_normal(A.shape[1]).astype(np.float32)
    fmt = FORMATS[kernel].convert(A, parameters)
    assert_same(A, fmt.to_csr())
    y = fmt.spmv(x)
    assert (y.dtype, y.shape) == (np.float32, (A.shape[0],))
    assert compare(y, A, x) <= 1


# Immutable


def test_arrays_and_buffers_are_read_only(convert):
    fmt = convert(random_matrix(6, 20, 20, 50))
    everything = [*arrays(fmt).values(), *fmt.buffers().values()]
    assert len(everything) == (7 if fmt.kernel == "lanes" else 4)
    for array in everything:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_buffers_may_be_asked_for_again(convert):
    fmt = convert(random_matrix(7, 40, 40, 300))
    before = {name: array.tobytes() for name, array in arrays(fmt).items()}
    assert fmt.buffers()["matrix"].tobytes() == fmt.buffers()["matrix"].tobytes()
    assert {name: array.tobytes() for name, array in arrays(fmt).items()} == before


def test_formats_compare_by_identity_and_can_be_keys(convert):
    A = eye_array(4, format="csr", dtype=np.float32)
    fmt = convert(A)
    assert fmt == fmt
    assert fmt != convert(A)
    assert len({fmt, convert(A)}) == 2


# Sizes


def test_bytes_are_those_of_the_buffers(convert):
    fmt = convert(random_matrix(8, 90, 50, 700))
    words = fmt.buffers()["matrix"]
    assert (words.dtype, words.shape) == (np.uint32, (fmt.num_words, 16))
    assert fmt.bytes == words.nbytes == fmt.port_bytes()["matrix"] == 64 * fmt.num_words
    assert fmt.scalars()["num_words"] == fmt.num_words


def test_no_buffer_on_the_card_is_empty(convert):
    fmt = convert(csr_array((0, 0), dtype=np.float32))
    assert fmt.port_bytes() == {"matrix": 64, "x": 64, "y": 64}
    assert fmt.buffers()["matrix"].shape == (1, 16)
    assert set(fmt.scalars().values()) == {0}


def test_x_and_y_are_whole_words_and_y_whole_strips():
    A = csr_array((37, 17), dtype=np.float32)
    # 17 columns are 2 words; 37 rows are 3 strips of 16 (3 words) or 2 of 32 (4 words).
    for fmt in (SlicedEll.from_csr(A, slice_size=16), BlockedEll.from_csr(A, block=16)):
        assert fmt.port_bytes() == {"matrix": fmt.bytes, "x": 128, "y": 192}
    for fmt in (SlicedEll.from_csr(A, slice_size=32), BlockedEll.from_csr(A, block=32)):
        assert fmt.port_bytes() == {"matrix": fmt.bytes, "x": 128, "y": 256}


def dense_row_over_a_diagonal(n: int = 4096) -> csr_array:
    rows = np.concatenate((np.zeros(n, int), np.arange(1, n)))
    cols = np.concatenate((np.arange(n), np.arange(1, n)))
    return matrix(rows, cols, np.ones(2 * n - 1), (n, n))


def test_a_dense_row_widens_only_its_own_strip():
    A = dense_row_over_a_diagonal()
    sliced = [SlicedEll.from_csr(A, slice_size=L) for L in (4, 8, 16, 32)]
    blocked = [BlockedEll.from_csr(A, block=P) for P in (4, 8, 16, 32)]
    assert [f.num_stored for f in sliced] == [20476, 36856, 69616, 135136]
    assert [f.num_stored for f in blocked] == [32752, 65472, 130816, 261120]
    for fmt in sliced + blocked:
        assert fmt.nnz == 8191
        assert fmt.spmv(np.ones(4096)).tolist() == [4096] + [1] * 4095


def test_density_is_entries_over_slots():
    A = eye_array(32, format="csr", dtype=np.float32)
    assert BlockedEll.from_csr(A, block=16).density == 32 / 512
    assert BlockedEll.from_csr(A, block=4).density == 0.25
    assert SlicedEll.from_csr(A, slice_size=16).density == 1


def test_matrix_bytes_are_values_and_indices():
    A = eye_array(32, format="csr", dtype=np.float32)
    assert BlockedEll.from_csr(A, block=16).matrix_bytes == 2 * (16 * 16 * 4 + 4)
    assert SlicedEll.from_csr(A, slice_size=16).matrix_bytes == 32 * (4 + 4)


def test_a_format_shows_its_shape_parameters_and_sizes():
    A = eye_array(32, format="csr", dtype=np.float32)
    assert (
        repr(BlockedEll.from_csr(A)) == "BlockedEll(32 x 32, block=16, nnz=32, num_stored=512)"
    )
    assert repr(SlicedEll.from_csr(A)) == "SlicedEll(32 x 32, slice=16, nnz=32, num_stored=32)"


# Sliced ELL


def test_cusparses_published_example_has_twelve_slots_in_its_order(monkeypatch):
    monkeypatch.setattr(sliced_ell_module, "SLICE_SIZES", (2,))
    A = csr_array(mmread(data_dir("matrices") / "tiny" / "oracle4.mtx"))
    fmt = SlicedEll.from_csr(A, slice_size=2)
    assert fmt.num_stored == 12
    assert fmt.slice_widths.tolist() == [3, 3]
    slots = [
        None if bits == PADDING else value
        for bits, value in zip(fmt.values.view(np.uint32), fmt.values.tolist(), strict=True)
    ]
    assert slots == [1, 4, 2, None, 3, None, 5, 8, 6, 9, 7, None]
    assert fmt.col_indices.tolist() == [0, 1, 2, 0, 3, 0, 0, 1, 2, 3, 3, 0]
    assert fmt.spmv([1, 2, 3, 4]).tolist() == [19, 8, 51, 52]


def test_slices_are_as_wide_as_their_longest_row():
    lengths = [1, 0, 3, 2, 0, 0, 0, 0, 5]
    rows = np.repeat(np.arange(9), lengths)
    cols = np.concatenate([np.arange(length) for length in lengths])
    fmt = SlicedEll.from_csr(matrix(rows, cols, np.ones(11), (9, 5)), slice_size=4)
    assert fmt.slice_widths.tolist() == [3, 0, 5]
    assert fmt.num_stored == 4 * 8
    assert fmt.num_slots == 4 * 9  # the empty slice has a slot-column in the stream
    assert fmt.num_words == 2 * 3  # 36 slots are 3 words of values and 3 of columns


def test_many_entries_are_placed_in_chunks_as_at_once(monkeypatch):
    A = random_matrix(9, 61, 47, 800)
    at_once = SlicedEll.from_csr(A, slice_size=8)
    monkeypatch.setattr(sliced_ell_module, "_CHUNK_ENTRIES", 7)
    chunked = SlicedEll.from_csr(A, slice_size=8)
    assert chunked.values.tobytes() == at_once.values.tobytes()
    assert chunked.col_indices.tolist() == at_once.col_indices.tolist()


# Blocked ELL


def test_tiles_are_aligned_and_dense():
    A = matrix([0, 3, 3, 9], [0, 5, 7, 11], [1, 2, 3, 4], (10, 12))
    fmt = BlockedEll.from_csr(A, block=4)
    assert fmt.values.shape == (3, 4, 4)
    assert fmt.block_cols.tolist() == [0, 1, 2]
    assert fmt.blocks_per_row.tolist() == [2, 0, 1]
    assert fmt.values[0].tolist() == [[1, 0, 0, 0], [0] * 4, [0] * 4, [0] * 4]
    assert fmt.values[1, 3].tolist() == [0, 2, 0, 3]
    assert fmt.values[2, 1].tolist() == [0, 0, 0, 4]
    assert np.count_nonzero(fmt.values.view(np.uint32) == PADDING) == 3 * 16 - 4


@pytest.mark.parametrize("block", BLOCK_SIZES)
def test_tiles_are_those_of_scipys_public_conversion(block):
    A = random_matrix(15, 3 * 32, 4 * 32, 500)
    fmt, bsr = BlockedEll.from_csr(A, block=block), A.tobsr(blocksize=(block, block))
    assert fmt.values.tolist() == bsr.data.tolist()  # padding is -0.0, which equals 0
    assert fmt.block_cols.tolist() == bsr.indices.tolist()
    assert fmt.blocks_per_row.tolist() == np.diff(bsr.indptr).tolist()


# SELL-C-sigma

LIMITS = (None, 1, 3, 10**6)


def lanes_of(fmt: SellCSigma) -> list[np.ndarray]:
    """The addresses that each lane adds to in each panel, one after the other."""
    ends = np.cumsum(fmt.chunks_per_panel)
    panels = [
        fmt.piece_addresses[end - count : end].reshape(-1, 16)
        for end, count in zip(ends, fmt.chunks_per_panel, strict=True)
    ]
    return [panel[:, lane] for panel in panels for lane in range(16)]


def assert_apart(addresses: np.ndarray) -> None:
    """Check that no element of y returns within 8 positions."""
    for distance in range(1, 8):
        later, earlier = addresses[distance:], addresses[:-distance]
        assert not ((later == earlier) & (later != 0xFFFF)).any()


def rows_of_lengths(lengths, n: int) -> csr_array:
    rng = np.random.default_rng(len(lengths))
    rows = np.repeat(np.arange(len(lengths)), lengths)
    cols = np.concatenate([rng.choice(n, k, replace=False) for k in lengths])
    return matrix(rows, cols, rng.standard_normal(len(rows)), (len(lengths), n))


UNEVEN = {
    "one dense row": lambda: csr_array(np.ones((1, 3000), np.float32)),
    "two dense rows": lambda: csr_array(np.ones((2, 999), np.float32)),
    "a dense row over a diagonal": lambda: dense_row_over_a_diagonal(700),
    "a power law": lambda: rows_of_lengths(
        np.minimum(600, 600 // np.arange(1, 301) + 1).astype(int), 600
    ),
    "one row in each lane": lambda: random_matrix(20, 16, 900, 7000),
    "one lane alone": lambda: rows_of_lengths(([200] + [0] * 16) * 12, 300),
}


@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("depth", DEPTHS)
def test_pieces_of_an_element_of_y_are_eight_positions_apart(name, limit, depth):
    A = UNEVEN[name]()
    fmt = SellCSigma.from_csr(A, depth=depth, panel=256, limit=limit)
    for addresses in lanes_of(fmt):
        assert_apart(addresses)
    assert_apart(np.where(fmt.merged_rows < 0, 0xFFFF, fmt.merged_rows))
    assert len(fmt.merged_rows) <= lane_layout.MAX_MERGED
    assert_same(A, fmt.to_csr())
    assert compare(fmt.spmv(index_x(A.shape[1])), A, index_x(A.shape[1])) <= 1


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    A=sparse_matrices(),
    depth=st.sampled_from(DEPTHS),
    panel=st.sampled_from([16, 48, 16384]),
    sigma=st.sampled_from([None, 1, 16, 40]),
    limit=st.sampled_from(LIMITS),
)
def test_any_matrix_comes_back_however_it_is_sorted_and_cut(A, depth, panel, sigma, limit):
    fmt = SellCSigma.from_csr(A, depth=depth, panel=panel, sigma=sigma, limit=limit)
    for addresses in lanes_of(fmt):
        assert_apart(addresses)
    assert_same(A, fmt.to_csr())
    assert compare(fmt.spmv(index_x(A.shape[1])), A, index_x(A.shape[1])) <= 1


def test_chunks_are_as_wide_as_their_longest_piece_and_longest_first():
    A = rows_of_lengths(np.random.default_rng(1).integers(1, 40, 2000), 200)
    fmt = SellCSigma.from_csr(A, limit=100)
    assert fmt.chunk_widths[0] == 39
    assert (np.diff(fmt.chunk_widths) <= 0).all()
    assert fmt.num_stored == 128 * fmt.chunk_widths.sum()
    assert fmt.density > 0.8


def test_sorting_in_windows_stores_more_than_sorting_all():
    A = rows_of_lengths(np.random.default_rng(1).integers(1, 40, 2000), 200)
    stored = [SellCSigma.from_csr(A, sigma=s, limit=100).num_stored for s in (1, 256, None)]
    assert stored[0] > stored[1] > stored[2]


def test_a_dense_row_is_spread_over_all_lanes():
    A = dense_row_over_a_diagonal()
    fmt = SellCSigma.from_csr(A)
    assert set(fmt.merged_rows.tolist()) == {0, -1}
    assert fmt.density > 0.99
    assert fmt.spmv(np.ones(4096)).tolist() == [4096] + [1] * 4095


@pytest.mark.parametrize("period", [2, 3, 4, 8, 16, 17])
def test_rows_of_a_kind_that_recur_are_no_burden_for_one_lane(period):
    lengths = np.where(np.arange(8192) % period == 0, 40, 4)
    fmt = SellCSigma.from_csr(rows_of_lengths(lengths, 400))
    assert fmt.matrix_bytes < 6.7 * fmt.nnz


def test_a_sorted_stream_word_for_word():
    # Row 17 is word 1, lane 1, turned by one lane: lane 2, address 1. Panels of 16 columns.
    A = matrix([0, 0, 17, 17], [1, 3, 2, 40], [1, 2, 3, 4], (18, 41))
    fmt = SellCSigma.from_csr(A, panel=16)
    words = fmt.buffers()["matrix"]
    pad, none, last = PADDING, 0xFFFFFFFF, 1 << 15
    one, two, three, four = np.float32([1, 2, 3, 4]).view(np.uint32).tolist()
    # A chunk of two slot-columns: 4 words of addresses and 2 × 12 of slots; x from word 0 on.
    assert words[0].tolist() == [28, 0, 1, 1, 24] + [0] * 11
    assert words[1].tolist() == [0xFFFF0000, 0xFFFF0001] + [none] * 14
    assert words[2:5].tolist() == [[none] * 16] * 3
    assert words[5].tolist() == [1, 2] + [0] * 14
    assert words[6].tolist() == [one, pad, three] + [pad] * 13
    assert words[7].tolist() == [pad] * 16
    assert words[17].tolist() == [3 + last] + [0] * 7 + [last] + [0] * 7
    assert words[18].tolist() == [two] + [pad] * 15
    assert words[26].tolist() == [last] + [0] * 7 + [last] + [0] * 7
    # The panel of columns 16 to 31 is empty; x of the third starts at word 2.
    assert words[29].tolist() == [16, 2, 1, 1, 12] + [0] * 11
    assert words[30].tolist() == [none, 0xFFFF0001] + [none] * 14
    assert words[34].tolist() == [last, 8] + [0] * 6 + [last] + [0] * 7
    assert words[35].tolist() == [pad, pad, four] + [pad] * 13
    assert len(words) == 46
    assert fmt.scalars() == {
        "num_words": 46, "num_panels": 2, "num_merged": 0, "num_y_words": 2
    }  # fmt: skip


def decode_lanes(fmt: SellCSigma) -> dict[tuple[int, int], float]:
    """Read the stream as `lanes.hpp` describes it."""
    words, n, depth = fmt.buffers()["matrix"], fmt.scalars(), fmt.depth
    halves = lambda a: a.reshape(-1).view(np.uint16).astype(int)  # noqa: E731
    merged = words[len(words) - -(-n["num_merged"] // 16) :].reshape(-1).view(np.int32)
    entries: dict[tuple[int, int], float] = {}
    at = 0
    for _ in range(n["num_panels"]):
        num_words, first_x, _, num_chunks, num_slot_words = words[at, :5].tolist()
        end = at + 1 + num_words
        at += 1
        assert num_words == num_chunks * depth // 2 + num_slot_words
        for _ in range(num_chunks):
            address = halves(words[at : at + depth // 2]).reshape(depth, 16)
            at += depth // 2
            is_last = False
            while not is_last:
                for pair in range(depth // 2):
                    cols = halves(words[at]).reshape(2, 16)
                    values = words[at + 1 : at + 3]
                    is_last = bool(cols[0, 0] >> 15)
                    for a, lane in zip(*np.nonzero(values != PADDING), strict=True):
                        word = address[2 * pair + a, lane]
                        row = 16 * word + (lane - word) % 16
                        if word >= n["num_y_words"]:
                            row = merged[word - n["num_y_words"]]
                        place = int(row), 16 * first_x + int(cols[a, lane] & 0x7FFF)
                        assert place not in entries
                        entries[place] = float(values.view(np.float32)[a, lane])
                    at += 3
        assert at == end
    return entries


@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize("depth", DEPTHS)
def test_the_sorted_stream_holds_the_matrix(name, depth):
    A = UNEVEN[name]()
    fmt = SellCSigma.from_csr(A, depth=depth, panel=256)
    assert decode_lanes(fmt) == entries_of(A)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"depth": 4}, "^depth is 4; it must be 8 or 16.$"),
        ({"panel": 24}, "^panel is 24; it must be 16 to 32768, a multiple of 16.$"),
        ({"panel": 65536}, "^panel is 65536; it must be 16 to 32768"),
        ({"sigma": 0}, "^sigma is 0; it must be at least 1.$"),
        ({"limit": 0}, "^limit is 0; it must be at least 1.$"),
    ],
)
def test_wrong_parameters_of_a_sort_are_refused(parameters, message):
    with pytest.raises(FormatError, match=message):
        SellCSigma.from_csr(eye_array(3, format="csr"), **parameters)


def test_rows_whose_addresses_have_more_than_16_bits_are_refused():
    A = csr_array((16 * 65536, 1), dtype=np.float32)
    with pytest.raises(FormatError, match=r"1048576 rows; .* addresses of 16 bits"):
        SellCSigma.from_csr(A)


def test_a_matrix_of_many_panels_without_entries_costs_nothing():
    A = matrix([0, 1], [0, 2**31 - 1], [1, 2], (2, 2**31 - 1 + 1))
    fmt = SellCSigma.from_csr(A)
    assert fmt.num_panels == 2
    assert_same(A, fmt.to_csr())


# The packed stream, read by decoders of its description


def decode_scalar(words: np.ndarray, L: int, shape) -> dict[tuple[int, int], float]:
    """Words of 16 values and of their 16 columns take turns; bit 31 ends a slice."""
    values, cols = words[0::2].reshape(-1), words[1::2].reshape(-1)
    numbers = values.view(np.float32).tolist()
    entries, first_row = {}, 0
    num_slices = -(-shape[0] // L)
    slot = 0
    while first_row < num_slices * L:
        flags = {int(c) >> 31 for c in cols[slot : slot + L]}
        assert len(flags) == 1  # the slots of a slot-column agree
        for lane in range(L):
            if values[slot + lane] != PADDING:
                place = first_row + lane, int(cols[slot + lane]) & 0x7FFFFFFF
                assert place not in entries
                entries[place] = numbers[slot + lane]
        slot += L
        first_row += L * flags.pop()
    rest = values[slot:], cols[slot:]
    assert len(rest[0]) < 16  # no more than the rest of a word
    assert set(rest[0].tolist()) <= {PADDING}
    assert set(rest[1].tolist()) <= {0}
    return entries


def decode_block(words: np.ndarray, P: int, num_descriptors: int):
    """Sixteen descriptors, then their tiles; bit 31 ends a block row, bit 30: it is empty."""
    entries, block_row, at = {}, 0, 0
    for number in range(num_descriptors):
        if number % 16 == 0:
            descriptors, at = words[at], at + 1
        descriptor = int(descriptors[number % 16])
        if not descriptor >> 30 & 1:
            tile_words = words[at : at + P * P // 16]
            at += P * P // 16
            if P == 32:  # first halves of all rows, then second halves
                tile = np.hstack((tile_words[:32], tile_words[32:]))
            else:
                tile = tile_words.reshape(P, P)
            for i, j in zip(*np.nonzero(tile != PADDING), strict=True):
                place = P * block_row + int(i), P * (descriptor & 0x3FFFFFFF) + int(j)
                assert place not in entries
                entries[place] = float(tile.view(np.float32)[i, j])
        else:
            assert descriptor == 0xC0000000
        block_row += descriptor >> 31
    assert at == len(words)
    assert not descriptors[(num_descriptors - 1) % 16 + 1 :].any()
    return entries, block_row


def entries_of(A: csr_array) -> dict[tuple[int, int], float]:
    coo = A.tocoo()
    places = zip(coo.row.tolist(), coo.col.tolist(), strict=True)
    return dict(zip(places, coo.data.tolist(), strict=True))


def stream_matrices() -> dict[str, csr_array]:
    holes = random_matrix(10, 150, 90, 400).tolil()
    for start, end in ((0, 37), (64, 100), (130, 150)):
        holes[start:end] = 0
    holes = holes.tocsr()
    zeros = holes.copy()
    zeros.data[::3] = 0
    return {
        "dense": random_matrix(11, 35, 37, 35 * 37),
        "sparse": random_matrix(12, 130, 140, 300),
        "empty strips": holes,
        "explicit zeros": zeros,
        "many tiles": random_matrix(13, 20, 700, 2000),
        "many strips": random_matrix(14, 700, 20, 60),
        "no entries": csr_array((70, 70), dtype=np.float32),
    }


@pytest.mark.parametrize("name", stream_matrices())
@pytest.mark.parametrize("slice_size", SLICE_SIZES)
def test_the_scalar_stream_holds_the_matrix(name, slice_size):
    A = stream_matrices()[name]
    fmt = SlicedEll.from_csr(A, slice_size=slice_size)
    assert decode_scalar(fmt.buffers()["matrix"], slice_size, A.shape) == entries_of(A)


@pytest.mark.parametrize("name", stream_matrices())
@pytest.mark.parametrize("block", BLOCK_SIZES)
def test_the_block_stream_holds_the_matrix(name, block):
    A = stream_matrices()[name]
    fmt = BlockedEll.from_csr(A, block=block)
    numbers = fmt.scalars()
    entries, num_block_rows = decode_block(
        fmt.buffers()["matrix"], block, numbers["num_descriptors"]
    )
    assert entries == entries_of(A)
    assert num_block_rows == numbers["num_block_rows"] == -(-A.shape[0] // block)
    num_tiles = len({(i // block, j // block) for i, j in entries})
    assert numbers["num_tiles"] == num_tiles
    num_empty = num_block_rows - len({i // block for i, _ in entries})
    assert numbers["num_descriptors"] == num_tiles + num_empty


def test_a_scalar_stream_word_for_word():
    # Slices of 4: rows 0 to 3 with one and two entries, rows 4 to 7 empty, row 8.
    A = matrix([0, 0, 2, 8], [1, 3, 0, 2], [1, 2, 3, 4], (9, 4))
    values, cols = SlicedEll.from_csr(A, slice_size=4).buffers()["matrix"]
    one, two, three, four = np.float32([1, 2, 3, 4]).view(np.uint32).tolist()
    pad, last = PADDING, 1 << 31
    assert values.tolist() == [
        one, pad, three, pad, two, pad, pad, pad, pad, pad, pad, pad, four, pad, pad, pad
    ]  # fmt: skip
    assert cols.tolist() == [
        1, 0, 0, 0, last + 3, last, last, last, last, last, last, last,
        last + 2, last, last, last,
    ]  # fmt: skip


def test_a_block_stream_word_for_word():
    # Tiles of 4: block row 0 has tiles 1 and 0, block row 1 none, block row 2 tile 1.
    A = matrix([0, 1, 8], [5, 2, 4], [1, 2, 3], (9, 8))
    words = BlockedEll.from_csr(A, block=4).buffers()["matrix"]
    pad, last, empty = PADDING, 1 << 31, 1 << 30
    assert words[0].tolist() == [1, last, last + empty, last + 1] + [0] * 12
    one, two, three = np.float32([1, 2, 3]).view(np.uint32).tolist()
    assert words[1].tolist() == [pad, one] + [pad] * 14
    assert words[2].tolist() == [pad] * 6 + [two] + [pad] * 9
    assert words[3].tolist() == [three] + [pad] * 15
    assert len(words) == 4


@pytest.mark.parametrize(
    ("block", "num_words"),
    # 40 tiles have 3 words of descriptors; a tile has P²/16 words of values.
    [(4, 3 + 40), (8, 3 + 160), (16, 3 + 640), (32, 3 + 2560)],
)
def test_sixteen_descriptors_share_a_word(block, num_words):
    A = eye_array(40 * block, format="csr", dtype=np.float32)
    assert BlockedEll.from_csr(A, block=block).num_words == num_words


def test_a_tile_of_16_costs_a_descriptor_word_in_257():
    A = eye_array(16 * 160, format="csr", dtype=np.float32)
    fmt = BlockedEll.from_csr(A, block=16)
    assert fmt.bytes == 160 * 1024 + 10 * 64


@pytest.mark.shared_data
@pytest.mark.parametrize(
    ("name", "blocks_16", "blocks_8", "slots"),
    [
        ("ex9", 950, 2454, [71076, 89328, 93504, 96992]),
        ("s3rmt3m3", 1534, 3553, [118656, 124536, 131456, 144064]),
        ("s2rmq4m1", 1668, 4385, [156032, 159088, 160432, 161568]),
    ],
)
def test_the_papers_stored_triangles_have_the_published_counts(
    shared_data, name, blocks_16, blocks_8, slots
):
    A = load_matrix(shared_data / "matrices" / f"{name}.mtx.gz", "stored")
    assert BlockedEll.from_csr(A, block=16).num_blocks == blocks_16
    assert BlockedEll.from_csr(A, block=8).num_blocks == blocks_8
    assert [SlicedEll.from_csr(A, slice_size=L).num_stored for L in SLICE_SIZES] == slots
