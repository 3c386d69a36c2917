"""What a format would store is counted without storing it, and is what it then stores."""

from __future__ import annotations

import tracemalloc
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array, csc_array, csr_array, eye_array

from spmv_fpga.errors import FormatError
from spmv_fpga.formats import DEPTHS, FORMATS, count_blocks, format_stats
from spmv_fpga.matrices import load_matrix


def random_matrix(seed: int, m: int, n: int, nnz: int) -> csr_array:
    rng = np.random.default_rng(seed)
    place = rng.choice(m * n, size=min(nnz, m * n), replace=False)
    return coo_array((np.ones(len(place), np.float32), np.divmod(place, n)), (m, n)).tocsr()


def assert_as_converted(A) -> None:
    for stats in format_stats(A, depths=DEPTHS):
        parameters = {"slice": stats.slice_size, "block": stats.block, "depth": stats.depth}
        fmt = FORMATS[stats.kernel].convert(A, parameters)
        assert (stats.nnz, stats.num_stored) == (fmt.nnz, fmt.num_stored)
        assert stats.blocks == getattr(fmt, "num_blocks", None)
        assert (stats.num_words, stats.bytes) == (fmt.num_words, fmt.bytes)
        assert (stats.matrix_bytes, stats.density) == (fmt.matrix_bytes, fmt.density)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(m=st.integers(1, 80), n=st.integers(1, 80), share=st.sampled_from([0, 0.01, 0.2, 1]),
       seed=st.integers(0, 2**32 - 1))  # fmt: skip
def test_the_counts_are_those_of_the_conversion(m, n, share, seed):
    assert_as_converted(random_matrix(seed, m, n, int(share * m * n)))


@pytest.mark.parametrize("shape", [(0, 0), (0, 9), (9, 0), (50, 50)])
def test_a_matrix_without_entries_stores_nothing(shape):
    A = csr_array(shape, dtype=np.float32)
    assert {(s.num_stored, s.padding, s.density) for s in format_stats(A)} == {(0, 0, 1.0)}
    assert_as_converted(A)


def test_sliced_comes_first_then_blocked_each_by_size():
    stats = format_stats(eye_array(8, format="csr"))
    assert [(s.kernel, s.slice_size, s.block) for s in stats] == [
        ("scalar", 4, None), ("scalar", 8, None), ("scalar", 16, None), ("scalar", 32, None),
        ("block", None, 4), ("block", None, 8), ("block", None, 16), ("block", None, 32),
    ]  # fmt: skip


def test_sorted_comes_last_and_only_where_it_is_asked_for():
    stats = format_stats(eye_array(8, format="csr"), blocks=[4], slices=[], depths=[16, 8])
    assert [(s.kernel, s.block, s.depth) for s in stats] == [
        ("block", 4, None), ("lanes", None, 16), ("lanes", None, 8)
    ]  # fmt: skip


def test_padding_is_slots_without_an_entry():
    sliced, blocked = format_stats(
        csr_array(np.array([[1, 1, 1], [1, 0, 0]])), blocks=[4], slices=[4]
    )
    assert (sliced.num_stored, sliced.padding) == (12, 8)
    assert (blocked.num_stored, blocked.padding) == (16, 12)


def test_columns_first_is_not_taken_for_rows_first():
    A = random_matrix(1, 40, 90, 100)
    assert format_stats(csc_array(A)) == format_stats(A)
    assert format_stats(A.tocoo()) == format_stats(A)


def test_duplicates_count_once():
    A = csr_array((np.ones(3, np.float32), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2))
    assert {s.nnz for s in format_stats(A)} == {2}


def test_a_size_that_no_kernel_has_is_refused():
    A = eye_array(3, format="csr")
    with pytest.raises(FormatError, match="block is 12; it must be 4, 8, 16 or 32"):
        format_stats(A, blocks=[12])
    with pytest.raises(FormatError, match="slice is 3; it must be 4, 8, 16 or 32"):
        format_stats(A, slices=[3])


def test_blocks_are_those_that_scipy_makes():
    A = random_matrix(2, 64, 96, 300)
    for block in (4, 8, 16, 32):
        assert count_blocks(A, block) == A.tobsr(blocksize=(block, block)).indices.size


def test_sizes_past_32_bits_are_exact_and_nothing_of_that_size_is_made():
    # One row with an entry in every 32nd of 2²⁷ columns: 2²² tiles of 4 KiB.
    cols = np.arange(0, 2**27, 32, dtype=np.int32)
    A = csr_array((np.ones(2**22, np.float32), cols, np.array([0, 2**22])), shape=(1, 2**27))
    tracemalloc.start()
    try:
        (blocked,) = format_stats(A, slices=[], blocks=[32])
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert blocked.blocks == 2**22
    assert blocked.num_stored == 2**32
    assert blocked.matrix_bytes == 2**34 + 2**24
    assert blocked.bytes == 2**34 + 2**18 * 64
    assert peak_bytes < 2**26


def test_stats_never_change():
    with pytest.raises(FrozenInstanceError):
        format_stats(eye_array(3, format="csr"))[0].nnz = 1


@pytest.mark.shared_data
def test_a_dense_row_over_a_diagonal_has_the_right_slots(shared_data):
    stats = format_stats(load_matrix(shared_data / "cases" / "inputs" / "cv_dense_row.mtx"))
    assert [s.num_stored for s in stats] == [
        20476, 36856, 69616, 135136, 32752, 65472, 130816, 261120
    ]  # fmt: skip
