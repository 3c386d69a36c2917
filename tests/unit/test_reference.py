"""The judge: what is wrong by more than rounding fails, and honest rounding passes."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.sparse import coo_array, csr_array, diags_array, random_array

from spmv_fpga import reference as reference_module
from spmv_fpga.errors import FormatError, VerificationError
from spmv_fpga.matrices import load_matrix
from spmv_fpga.reference import ROUNDING_CONSTANT, compare, multiply, reference, verify

ULP = 2.0**-24


def dense(rows) -> csr_array:
    return csr_array(np.array(rows, np.float32))


def row(*values) -> csr_array:
    """One row with an entry in each column, zeros included."""
    n = len(values)
    return csr_array((np.array(values, np.float32), np.arange(n), np.array([0, n])), (1, n))


# Wrong and right


def test_one_wrong_row_in_a_hundred_fails():
    right = np.arange(1, 101, dtype=float)
    A = diags_array(right).tocsr()
    wrong = right.copy()
    wrong[49] = 100
    assert compare(right, A, np.ones(100)) == 0
    assert compare(wrong, A, np.ones(100)) > 1


def test_large_sums_may_differ_by_float32_rounding_and_no_more():
    A, x = dense([[123456789, 205432100], [0, 3]]), [1, 1]
    assert compare([328888896, 3], A, x) <= 1
    assert compare([328900000, 3], A, x) > 1


def test_cancellation_is_judged_by_the_size_of_the_terms():
    A, x = dense([[1e8, 1, -1e8]]), [1, 1, 1]
    assert compare([0], A, x) <= 1
    assert compare([1000], A, x) > 1


def test_a_tiny_value_may_not_be_lost_beside_a_large_one():
    assert compare([0, 1], dense([[1e-12, 0], [0, 1]]), [1, 1]) > 1


@pytest.mark.shared_data
def test_the_shared_vectors_are_judged_as_they_say(shared_data):
    cases = json.loads((shared_data / "cases/inputs/vf_vectors_tol.json").read_text())["cases"]
    assert len(cases) == 6
    for case in cases:
        if case["A"].startswith("inputs/"):
            A = load_matrix(shared_data / "cases" / case["A"])
        else:
            A = diags_array(np.array(case["ref"], np.float64)).tocsr()
        worst = compare(case["got"], A, np.ones(A.shape[1]))
        assert ("pass" if worst <= 1 else "fail") == case["must"], case["id"]


def test_the_bound_is_four_roundings_an_entry():
    A, x = dense([[1, 2, 4]]), [1, 1, 1]
    bound = 4 * 3 * ULP * 7 + 3 * 2.0**-126
    assert ROUNDING_CONSTANT == 4
    assert reference(A, x).bound.tolist() == [bound]
    assert compare([7 + bound], A, x) == 1
    assert compare([7 + 1.01 * bound], A, x) > 1
    assert compare([7 - bound / 2], A, x) == 0.5


def test_a_row_without_entries_must_be_exactly_zero():
    A = csr_array((2, 3), dtype=np.float32)
    assert compare([0.0, -0.0], A, [1, 2, 3]) == 0
    assert compare([0, 1e-45], A, [1, 2, 3]) == math.inf


def test_the_product_is_that_of_float64():
    A = csr_array(np.array([[1, 1e-9], [0, 3]]))
    assert multiply(A, [1, 1]).tolist() == [1.000000001, 3]


def test_no_rows_are_right():
    A = csr_array((0, 3), dtype=np.float32)
    assert compare([], A, [1, 2, 3]) == 0
    assert verify([], A, [1, 2, 3]) == 0


def test_honest_float32_sums_in_any_order_pass():
    rng = np.random.default_rng(20)
    worst = 0.0
    for _ in range(200):
        m, n = rng.integers(1, 60, 2)
        A = random_array((m, n), density=rng.uniform(0.01, 1), rng=rng, format="csr")
        A.data = (rng.standard_normal(A.nnz) * 10.0 ** rng.uniform(-8, 8, A.nnz)).astype("f4")
        x = rng.standard_normal(n).astype(np.float32)
        order = rng.permutation(n)
        terms = A.toarray().astype(np.float32)[:, order] * x[order]
        for y in (np.cumsum(terms, axis=1, dtype=np.float32)[:, -1], terms.sum(axis=1)):
            assert y.dtype == np.float32
            worst = max(worst, compare(y, A, x))
    assert 0 < worst <= 0.5  # a margin of two, as documented


def test_a_row_dropped_from_any_of_many_matrices_fails():
    rng = np.random.default_rng(21)
    for _ in range(50):
        n = int(rng.integers(1, 200))
        A = (random_array((n, n), density=0.2, rng=rng) + diags_array(np.ones(n))).tocsr()
        y = A @ np.ones(n)
        y[rng.integers(n)] = 0
        assert compare(y, A, np.ones(n)) > 1


# What does not belong


@pytest.mark.parametrize("y", [[], [1], [1, 1, 1], [[1, 1]], 1.0])
def test_a_y_of_another_length_is_infinitely_wrong(y):
    assert compare(y, dense(np.eye(2)), [1, 1]) == math.inf


@pytest.mark.parametrize("y", [["a", "b"], [1j, 1], [None, 1], [[1], [1, 2]]])
def test_a_y_that_is_no_real_vector_is_infinitely_wrong(y):
    assert compare(y, dense(np.eye(2)), [1, 1]) == math.inf


def test_an_x_of_another_length_is_infinitely_wrong_to_compare_and_refused_elsewhere():
    A = dense(np.eye(2))
    assert compare([1, 1], A, [1, 1, 1]) == math.inf
    for judge in (lambda: verify([1, 1], A, [1]), lambda: reference(A, [1])):
        with pytest.raises(FormatError, match=r"x has shape \(1,\); the matrix has 2 columns"):
            judge()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_or_infinity_where_none_belongs_is_infinitely_wrong(bad):
    assert compare([1, bad], dense(np.eye(2)), [1, 1]) == math.inf


def test_a_nan_that_belongs_is_right_and_a_number_in_its_place_is_not():
    A = row(1, math.nan)
    assert compare([math.nan], A, [1, 1]) == 0
    assert compare([1], A, [1, 1]) == math.inf
    assert compare([math.inf], A, [1, 1]) == math.inf


def test_zero_times_infinity_is_the_nan_that_belongs():
    assert compare([math.nan], row(0, 1), [math.inf, 1]) == 0
    assert compare([1], row(0, 1), [math.inf, 1]) == math.inf


def test_x_beside_the_entries_of_a_row_does_not_matter():
    assert compare([1, math.nan], dense([[1, 0], [0, 1]]), [1, math.nan]) == 0
    assert compare([math.nan] * 2, dense([[1, 0], [0, 1]]), [1, math.nan]) == math.inf


@pytest.mark.parametrize("sign", [1, -1])
def test_an_infinity_that_belongs_has_its_sign(sign):
    A = row(sign * math.inf, 1)
    assert compare([sign * math.inf], A, [1, 1]) == 0
    for wrong in (-sign * math.inf, math.nan, 1.0):
        assert compare([wrong], A, [1, 1]) == math.inf


def test_infinities_that_cancel_are_nan():
    assert compare([math.nan], row(math.inf, -math.inf), [1, 1]) == 0
    assert compare([math.inf], row(math.inf, -math.inf), [1, 1]) == math.inf


def test_a_sum_that_may_leave_float32_may_overflow():
    A, x = row(3e38, 3e38, -3e38), [1, 1, 1]
    expected = float(multiply(A, x)[0])
    for y in (math.inf, math.nan, expected):
        assert compare([y], A, x) == 0
    assert compare([0], A, x) > 1


def test_a_sum_inside_float32_may_not_overflow():
    assert compare([math.inf], row(1e38, 1e38), [1, 1]) == math.inf


def test_denormals_may_be_flushed_to_zero():
    smallest_normal = 2.0**-126
    A = dense([[2.0**-127, 0], [0, 1]])
    assert compare([0, 1], A, [1, 1]) <= 1
    assert compare([smallest_normal, 1], A, [1, 1]) <= 1
    assert compare([10 * smallest_normal, 1], A, [1, 1]) > 1


def test_a_flushed_entry_loses_as_much_as_x_makes_of_it():
    A = dense([[2.0**-127]])
    assert compare([0], A, [2.0**100]) <= 1
    assert compare([2.0**-20], A, [2.0**100]) > 1


# Verify


def test_verify_returns_the_worst_error_over_its_bound():
    A, x = dense([[1, 2, 4]]), [1, 1, 1]
    assert verify([7 + 6 * ULP], A, x) == compare([7 + 6 * ULP], A, x) > 0


def test_verify_names_the_first_wrong_row_and_its_numbers():
    A = diags_array(np.arange(1.0, 6)).tocsr()
    with pytest.raises(VerificationError) as caught:
        verify([1, 2, 7, 4, math.nan], A, np.ones(5))
    error = caught.value
    assert str(error).startswith("2 of 5 rows are wrong; the first is row 2: got 7, expected 3")
    assert (error.row, error.got, error.expected) == (2, 7, 3)
    assert error.bound == 4 * ULP * 3 + 2.0**-126


def test_verify_refuses_a_short_y():
    with pytest.raises(VerificationError, match=r"y has shape \(1,\); the product has \(2,\)"):
        verify([1], dense(np.eye(2)), [1, 1])


def test_verify_refuses_a_nan():
    with pytest.raises(VerificationError, match="1 of 2 rows are wrong; the first is row 1"):
        verify([1, math.nan], dense(np.eye(2)), [1, 1])


def test_verify_refuses_complex_numbers():
    with pytest.raises(FormatError, match="y has dtype complex128; it must hold real numbers"):
        verify([1, 1j], dense(np.eye(2)), [1, 1])


# Chunks


@pytest.mark.parametrize("chunk", [1, 2, 7, 50, 10_000])
def test_chunks_give_what_the_whole_gives(chunk, monkeypatch):
    rng = np.random.default_rng(22)
    lengths = rng.choice([0, 0, 1, 3, 20], size=60)
    rows = np.repeat(np.arange(60), lengths)
    cols = np.concatenate([rng.choice(30, size=k, replace=False) for k in lengths])
    A = coo_array((rng.standard_normal(len(rows)), (rows, cols)), shape=(60, 30)).tocsr()
    x = rng.standard_normal(30)
    whole = reference(A, x)
    np.testing.assert_allclose(whole.expected, A.toarray() @ x, rtol=1e-12, atol=1e-14)
    monkeypatch.setattr(reference_module, "_CHUNK_ENTRIES", chunk)
    chunked = reference(A, x)
    assert chunked.expected.tolist() == whole.expected.tolist()
    assert chunked.bound.tolist() == whole.bound.tolist()


def test_other_sparse_forms_and_whole_numbers_are_judged_too():
    A = coo_array(np.array([[1, 2], [0, 3]]))
    assert compare(np.array([5, 6]), A, np.array([1, 2])) == 0
