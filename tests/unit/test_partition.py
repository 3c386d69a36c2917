"""A matrix in parts: for several units, in column panels, and in rounds."""

from __future__ import annotations

import os
from itertools import combinations_with_replacement, pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csr_array, eye_array, random_array, vstack

from spmv_fpga.errors import FormatError
from spmv_fpga.formats import BLOCK_SIZES, FORMATS, SLICE_SIZES, SellCSigma, SlicedEll
from spmv_fpga.formats.base import STREAM_STEP_BYTES, SparseFormat
from spmv_fpga.formats.partition import Partition, balanced_bounds, packed, partition
from spmv_fpga.reference import compare

UNITS = (1, 2, 3, 7, 16)
CASES = [("scalar", {"slice": L}) for L in SLICE_SIZES]
CASES += [("block", {"block": P}) for P in BLOCK_SIZES]
TWO_CASES = [("scalar", {"slice": 16}), ("block", {"block": 16})]
case_name = lambda case: f"{case[0]}{next(iter(case[1].values()))}"  # noqa: E731
each_case = pytest.mark.parametrize("case", CASES, ids=case_name)
each_kernel = pytest.mark.parametrize("case", TWO_CASES, ids=case_name)


def sparse(m: int, n: int, density: float = 0.1) -> csr_array:
    rng = np.random.default_rng(m + n)
    return csr_array(random_array((m, n), density=density, rng=rng, dtype=np.float32))


def dense_row(m: int, n: int, row: int) -> csr_array:
    cols = np.arange(n)
    return csr_array((np.float32(cols + 1), (np.full(n, row), cols)), shape=(m, n))


def stacked(*matrices: csr_array) -> csr_array:
    return csr_array(vstack(matrices, format="csr"))


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(n).astype(np.float32)


def convert(A: csr_array, case: tuple[str, dict[str, int]]) -> SparseFormat:
    kernel, parameters = case
    return FORMATS[kernel].convert(A, parameters)


def cut(A: csr_array, case: tuple[str, dict[str, int]], **how: int | None) -> Partition:
    kernel, parameters = case
    return partition(A, FORMATS[kernel], parameters, **how)


def whole(cut: Partition) -> csr_array:
    """Put the parts together again."""
    rows, cols, values = [np.zeros(0, int)], [np.zeros(0, int)], [np.zeros(0, np.float32)]
    for part in cut.parts:
        piece = part.fmt.to_csr().tocoo()
        rows.append(piece.coords[0] + part.row_start)
        cols.append(piece.coords[1] + part.col_start)
        values.append(piece.data)
    places = (np.concatenate(rows), np.concatenate(cols))
    return coo_array((np.concatenate(values), places), shape=cut.shape).tocsr()


@st.composite
def matrices(draw: st.DrawFn) -> csr_array:
    """Random entries in any shape, perhaps with a dense row, or with empty rows below."""
    m, n = draw(st.integers(0, 130)), draw(st.integers(0, 130))
    A = sparse(m, n, draw(st.sampled_from([0.0, 0.01, 0.2])))
    if m and n and draw(st.booleans()):
        A = csr_array(A + dense_row(m, n, draw(st.integers(0, m - 1))))
    return stacked(A, csr_array((draw(st.sampled_from([0, 0, 40])), n), dtype=np.float32))


# Products of the parts


@settings(derandomize=True, deadline=None, max_examples=150, database=None)
@given(
    A=matrices(),
    case=st.sampled_from(CASES),
    units=st.sampled_from(UNITS),
    panels=st.integers(1, 5),
    strips_in_bank=st.sampled_from([None, 1, 2]),
)
@example(csr_array((0, 9), dtype=np.float32), CASES[0], 3, 2, None)
@example(csr_array((9, 0), dtype=np.float32), CASES[4], 2, 1, None)
@example(sparse(100, 1, 0.5), CASES[2], 7, 1, 1)
@example(dense_row(100, 120, 50), CASES[6], 16, 5, None)
@example(csr_array((64, 64), dtype=np.float32), CASES[5], 3, 3, 1)
@example(eye_array(32, dtype=np.float32, format="csr"), CASES[7], 16, 2, 1)
def test_the_parts_are_the_matrix_and_their_products_are_its_product(
    A: csr_array,
    case: tuple[str, dict[str, int]],
    units: int,
    panels: int,
    strips_in_bank: int | None,
) -> None:
    m, n = A.shape
    x_room = max(1, -(-n // panels))
    largest = int(convert(A, case).strip_bytes().max(initial=0)) + STREAM_STEP_BYTES
    bank_bytes = None if strips_in_bank is None else strips_in_bank * largest

    found = cut(A, case, compute_units=units, x_room=x_room, bank_bytes=bank_bytes)

    assert compare(found.spmv(vector(n)), A, vector(n)) <= 1
    B = whole(found)
    assert (A.indptr.tolist(), A.indices.tolist()) == (B.indptr.tolist(), B.indices.tolist())
    assert A.data.tolist() == B.data.tolist()
    assert (found.nnz, found.shape, found.compute_units) == (A.nnz, (m, n), units)
    places = [(part.round, part.unit) for part in found.parts]
    assert places == sorted(set(places))
    for part in found.parts:
        assert part.unit < units
        assert part.col_end - part.col_start == part.fmt.shape[1] <= x_room
        assert part.row_end - part.row_start == part.fmt.shape[0] > 0
        assert part.row_start % part.fmt.strip_height == 0
        if bank_bytes is not None:
            assert part.fmt.port_bytes()["matrix"] <= bank_bytes


@each_kernel
@pytest.mark.parametrize("panels", [1, 2, 3, 4, 5])
def test_x_beyond_its_room_gives_as_many_panels_as_it_takes(case, panels) -> None:
    A = sparse(40, 160)

    found = cut(A, case, compute_units=2, x_room=-(-160 // panels))

    assert sorted({part.col_start for part in found.parts}) == [
        number * -(-160 // panels) for number in range(panels)
    ]
    assert found.num_rounds == panels
    assert compare(found.spmv(vector(160)), A, vector(160)) <= 1


def test_a_matrix_without_rows_has_no_part_and_one_round() -> None:
    found = cut(csr_array((0, 5), dtype=np.float32), CASES[0], compute_units=3)

    assert (found.parts, found.num_rounds, found.rounds()) == ((), 1, [[]])
    assert (found.nnz, found.bytes, found.imbalance, found.density) == (0, 0, 0.0, 1.0)
    assert found.spmv(vector(5)).shape == (0,)


@each_kernel
def test_units_beyond_the_strips_have_no_part(case) -> None:
    A = sparse(40, 50)  # three strips of 16

    found = cut(A, case, compute_units=16)

    assert len(found.parts) == 3
    assert [(p.row_start, p.row_end) for p in found.parts] == [(0, 16), (16, 32), (32, 40)]
    assert compare(found.spmv(vector(50)), A, vector(50)) <= 1


@each_kernel
def test_a_nan_in_x_reaches_only_the_rows_with_an_entry_in_its_column(case) -> None:
    A = sparse(50, 96, 0.3)
    x = vector(96)
    x[70] = np.nan

    y = cut(A, case, compute_units=3, x_room=32).spmv(x)

    assert np.isnan(y).tolist() == (A[:, [70]].toarray()[:, 0] != 0).tolist()
    assert 0 < np.isnan(y).sum() < 50
    assert compare(y, A, x) <= 1


@each_kernel
def test_infinities_of_two_panels_cancel_to_nan_without_a_warning(case) -> None:
    A = csr_array(np.array([[1, 0, 1]], np.float32))

    y = cut(A, case, x_room=1).spmv([np.inf, 0, -np.inf])

    assert np.isnan(y).tolist() == [True]


# Strips


@each_case
def test_strips_are_the_conversion_of_their_rows_and_share_its_memory(case) -> None:
    A = stacked(sparse(70, 90), csr_array((70, 90), dtype=np.float32), sparse(51, 90))
    fmt = convert(A, case)
    height, strips = fmt.strip_height, len(fmt.strip_bytes())
    assert strips == -(-191 // height)

    for start, end in pairwise([0, 1, strips // 2, strips - 1, strips]):
        taken = fmt.take_strips(start, end)
        alone = convert(A[start * height : end * height], case)
        assert (taken.shape, taken.nnz, taken.parameters) == (
            alone.shape,
            alone.nnz,
            alone.parameters,
        )
        assert taken.buffers()["matrix"].tobytes() == alone.buffers()["matrix"].tobytes()
        assert taken.scalars() == alone.scalars()
        assert taken.num_stored == 0 or np.shares_memory(taken.values, fmt.values)


@each_case
def test_bytes_of_strips_add_up_to_the_stream(case) -> None:
    for A in (sparse(200, 90), sparse(200, 90, 0.002), csr_array((200, 9), dtype=np.float32)):
        fmt = convert(A, case)
        assert 0 <= fmt.bytes - int(fmt.strip_bytes().sum()) < STREAM_STEP_BYTES


# Balance


def best_limit(costs: list[int], num_shares: int) -> int:
    """Try every way to cut."""
    total = np.concatenate(([0], np.cumsum(costs)))
    ways = combinations_with_replacement(range(len(costs) + 1), num_shares - 1)
    return min(
        max(int(total[b] - total[a]) for a, b in pairwise((0, *cuts, len(costs))))
        for cuts in ways
    )


@settings(derandomize=True, deadline=None, max_examples=200, database=None)
@given(costs=st.lists(st.integers(0, 9), max_size=8), num_shares=st.integers(1, 5))
def test_no_way_to_cut_has_a_smaller_largest_share(costs, num_shares) -> None:
    bounds = balanced_bounds(np.array(costs, np.int64), num_shares)

    assert len(bounds) == num_shares
    assert (bounds[0][0], bounds[-1][1]) == (0, len(costs))
    assert all(a <= b for a, b in bounds)
    assert all(end == start for (_, end), (start, _) in pairwise(bounds))
    assert max(sum(costs[a:b]) for a, b in bounds) == best_limit(costs, num_shares)


def test_shares_are_even_where_the_largest_allows_it() -> None:
    # The largest share has 2: eight full shares would do, and leave eight units idle.
    bounds = balanced_bounds(np.ones(17, np.int64), 16)

    assert sorted(b - a for a, b in bounds) == [1] * 15 + [2]


def diagonals(num_rows: int, num_diagonals: int) -> csr_array:
    rows = np.repeat(np.arange(num_rows), num_diagonals)
    cols = (rows + np.tile(97 * np.arange(num_diagonals), num_rows)) % 4096
    return csr_array((np.ones(len(rows), np.float32), (rows, cols)), shape=(num_rows, 4096))


def unbalanced_below(num_rows: int) -> csr_array:
    """Return narrow rows above rows of four times their width."""
    return stacked(diagonals(num_rows, 1), diagonals(num_rows, 4))


def powerlaw(num_rows: int) -> csr_array:
    rng = np.random.default_rng(3)
    counts = np.minimum((rng.pareto(1.2, num_rows) + 1).astype(int), 60)
    rows = np.repeat(np.arange(num_rows), counts)
    cols = rng.integers(0, 4096, counts.sum())
    A = csr_array((np.ones(len(rows), np.float32), (rows, cols)), shape=(num_rows, 4096))
    A.sum_duplicates()
    return A


EVEN = {
    "even": lambda: sparse(8192, 300, 0.02),
    "narrow above wide": lambda: unbalanced_below(20_000),
    "powerlaw": lambda: powerlaw(30_000),
    "mostly empty": lambda: stacked(
        csr_array((800_000, 4096), dtype=np.float32), unbalanced_below(20_000)
    ),
}


@each_case
@pytest.mark.parametrize("name", EVEN)
def test_the_largest_share_is_at_most_3_per_cent_above_the_mean(name, case) -> None:
    A = EVEN[name]()

    for units in UNITS:
        found = cut(A, case, compute_units=units)
        words = np.array([part.fmt.num_words for part in found.parts])
        assert len(words) == units
        assert words.max() <= 1.03 * words.mean()
        assert found.imbalance == pytest.approx(words.max() / words.mean() - 1)


def test_the_imbalance_counts_units_without_rows() -> None:
    assert cut(sparse(16, 16), CASES[6], compute_units=4).imbalance == pytest.approx(3.0)


# Entries: a format that sorts its rows is cut before it is converted


def sorted_cut(A: csr_array, **how: int | None) -> Partition:
    return partition(A, SellCSigma, {"depth": 8, "panel": 64}, **how)


@settings(derandomize=True, deadline=None, max_examples=40, database=None)
@given(
    A=matrices(),
    units=st.sampled_from((1, 2, 9, 18)),
    bank_bytes=st.sampled_from([None, 40_000]),
)
@example(csr_array((0, 9), dtype=np.float32), 3, None)
@example(csr_array((9, 0), dtype=np.float32), 2, None)
@example(dense_row(100, 120, 50), 18, None)
@example(csr_array((64, 64), dtype=np.float32), 3, 15_000)
def test_runs_of_entries_are_the_matrix_and_their_products_are_its_product(
    A: csr_array, units: int, bank_bytes: int | None
) -> None:
    found = sorted_cut(A, compute_units=units, bank_bytes=bank_bytes)

    x = vector(A.shape[1])
    assert compare(found.spmv(x), A, x) <= 1
    B = whole(found)
    assert (A.indptr.tolist(), A.indices.tolist()) == (B.indptr.tolist(), B.indices.tolist())
    assert A.data.tolist() == B.data.tolist()
    assert (found.nnz, found.shape, found.compute_units) == (A.nnz, A.shape, units)
    places = [(part.round, part.unit) for part in found.parts]
    assert places == sorted(set(places))
    for part in found.parts:
        assert part.unit < units
        assert part.fmt.nnz > 0
        assert (part.col_start, part.col_end) == (0, A.shape[1])
        assert part.row_end - part.row_start == part.fmt.shape[0]
        if bank_bytes is not None:
            assert part.fmt.port_bytes()["matrix"] <= bank_bytes


def test_a_row_may_end_in_the_next_unit() -> None:
    found = sorted_cut(dense_row(1, 1000, 0), compute_units=4)

    assert [(part.row_start, part.row_end) for part in found.parts] == [(0, 1)] * 4
    assert [part.fmt.nnz for part in found.parts] == [250] * 4
    assert found.spmv(np.ones(1000)).tolist() == [500500]


@pytest.mark.parametrize("units", [1, 2, 9, 18])
def test_slots_and_words_of_units_differ_by_at_most_1_per_cent(units) -> None:
    A = diagonals(60_000, 30)

    found = sorted_cut(A, compute_units=units)

    for count in ("num_stored", "num_words"):
        sizes = np.array([getattr(part.fmt, count) for part in found.parts])
        of_unit = np.zeros(units, np.int64)
        np.add.at(of_unit, [part.unit for part in found.parts], sizes)
        assert of_unit.max() <= 1.01 * of_unit.mean()


@pytest.mark.parametrize("units", [2, 9, 18])
def test_units_take_the_same_words_where_rows_above_are_narrower(units) -> None:
    found = partition(
        unbalanced_below(60_000), SellCSigma, {}, compute_units=units, y_room=1 << 19
    )

    words = np.array([part.fmt.num_words for part in found.parts if part.round == 0])
    assert words.max() <= 1.01 * words.mean()


def test_more_rows_than_y_has_room_for_make_rounds() -> None:
    A = diagonals(40_000, 2)

    found = sorted_cut(A, compute_units=2, y_room=8192)

    assert found.num_rounds == 4  # 6,144 rows beside the words for long rows
    assert max(part.fmt.shape[0] for part in found.parts) <= 6144
    assert max(part.fmt.y_on_chip for part in found.parts) <= 8192
    assert compare(found.spmv(vector(4096)), A, vector(4096)) <= 1


def test_rows_without_entries_need_no_room() -> None:
    A = stacked(csr_array((800_000, 40), dtype=np.float32), sparse(500, 40))

    found = sorted_cut(A)

    assert [(part.row_start, part.row_end) for part in found.parts] == [(800_000, 800_500)]


def test_a_converted_matrix_is_cut_too() -> None:
    A = sparse(500, 300)
    fmt = SellCSigma.from_csr(A, panel=64)

    (part,) = Partition.of(fmt).parts
    assert part.fmt is fmt
    cut_again = Partition.of(fmt, 4)
    assert len(cut_again.parts) == 4
    assert cut_again.parameters == fmt.parameters
    assert compare(cut_again.spmv(vector(300)), A, vector(300)) <= 1


@pytest.mark.parametrize("bank_bytes", [128, 0, -4096])
def test_a_bank_too_small_for_an_entry_is_refused_with_the_numbers(bank_bytes) -> None:
    with pytest.raises(FormatError, match=rf"has room for {max(0, bank_bytes)}; take another"):
        sorted_cut(sparse(20, 20, 0.02), compute_units=2, bank_bytes=bank_bytes)


# Rounds


@each_case
def test_a_run_larger_than_a_bank_is_cut_into_rounds(case) -> None:
    A = sparse(640, 300)
    bank_bytes = 2 * int(convert(A, case).strip_bytes().max()) // 128 * 128

    found = cut(A, case, compute_units=3, bank_bytes=bank_bytes)

    assert found.num_rounds > 1
    assert found.num_rounds <= 2 * -(-found.bytes // (3 * bank_bytes))
    assert max(part.fmt.bytes for part in found.parts) <= bank_bytes
    assert compare(found.spmv(vector(300)), A, vector(300)) <= 1


def test_large_strips_beside_small_ones_fit_a_bank_that_holds_one_of_each() -> None:
    # Shares at equal distances would have put the first two strips together.
    A = csr_array((12, 800), dtype=np.float32) + dense_row(12, 800, 4) + dense_row(12, 800, 8)
    case = ("scalar", {"slice": 4})
    bank_bytes = int(convert(csr_array(A), case).strip_bytes().max())

    found = cut(csr_array(A), case, bank_bytes=bank_bytes)

    assert [(part.row_start, part.row_end) for part in found.parts] == [(0, 4), (4, 8), (8, 12)]


@each_case
@pytest.mark.parametrize("bank_bytes", [128, 0, -4096])
def test_a_strip_larger_than_a_bank_is_refused_with_the_numbers(case, bank_bytes) -> None:
    A = sparse(10_000, 300, 0.02)
    fmt = convert(A, case)
    height, largest = fmt.strip_height, fmt.strip_bytes().max()

    with pytest.raises(FormatError) as refusal:
        cut(A, case, compute_units=2, bank_bytes=bank_bytes)

    assert str(refusal.value) == (
        f"{height} rows of the matrix need {largest} bytes, and a memory bank has room for "
        f"{max(0, bank_bytes)}; take another kernel or a smaller block."
    )


def test_a_matrix_without_rows_needs_no_room() -> None:
    empty = csr_array((0, 5), dtype=np.float32)

    assert cut(empty, CASES[0], compute_units=2, bank_bytes=-1).num_rounds == 1


@pytest.mark.parametrize("cores", [1, 2, 64])
def test_parts_are_packed_in_order_whatever_the_number_of_cores(monkeypatch, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    A = csr_array(np.arange(1, 4097, dtype=np.float32).reshape(64, 64))
    cut = partition(A, SlicedEll, {"slice": 4}, compute_units=7)
    found = list(packed(cut.parts))
    assert [part for part, _ in found] == list(cut.parts)
    for part, buffers in found:
        expected = part.fmt.buffers()
        assert buffers.keys() == expected.keys()
        assert all((buffers[name] == expected[name]).all() for name in expected)
