"""Robust regression: exact on exact data, deaf to outliers, honest about left-out rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from spmv_fpga.errors import SpmvFpgaError
from spmv_fpga.roofline.regression import fit_line, fit_with_errors, mean_absolute


def runs(seed: int = 3, m: int = 30):
    rng = np.random.default_rng(seed)
    counts = np.column_stack(
        (np.ones(m), 10 ** rng.uniform(3, 5, m), 10 ** rng.uniform(3, 7, m))
    )
    noise = 1 + 0.05 * rng.standard_normal(m)
    return counts, (counts @ [1e-4, 4e-9, 5e-9]) * noise


def test_exact_data_give_the_coefficients_back_and_no_errors():
    counts, _ = runs()
    fit = fit_with_errors(counts, counts @ [1e-4, 4e-9, 5e-9])
    assert fit.coefficients == pytest.approx([1e-4, 4e-9, 5e-9], rel=1e-6)
    assert fit.errors == pytest.approx([0, 0, 0], abs=1e-9)
    assert fit.mean_left_out_error < 1e-6


def test_a_cost_is_never_negative():
    # Falling with the count: plain least squares would give a negative slope.
    coefficients = fit_line([[1, 1], [1, 2], [1, 3]], [3.0, 2.0, 1.5])
    assert coefficients[1] == 0
    assert coefficients[0] > 0


def test_the_error_that_is_least_is_the_relative_one():
    # One constant for 1 and 10: Σ(c/t - 1)² is least at Σ1/t ÷ Σ1/t², not at the mean 5.5.
    assert fit_line([[1], [1]], [1.0, 10.0]) == pytest.approx([1.1 / 1.01])


def test_one_disturbed_run_does_not_bend_the_fit():
    counts, times = runs()
    clean = fit_line(counts, times)
    disturbed = times.copy()
    disturbed[:3] *= 4  # something else kept the host busy
    robust = fit_line(counts, disturbed)
    plain = nnls(counts / disturbed[:, None], np.ones(30))[0]
    moved = [np.abs(counts @ c / (counts @ clean) - 1).max() for c in (robust, plain)]
    assert moved[0] < 0.03
    assert moved[1] > 2 * moved[0]


def test_a_left_out_row_does_not_influence_its_own_prediction():
    counts, times = runs()
    before = fit_with_errors(counts, times).left_out[7]
    changed = times.copy()
    changed[7] *= 50
    assert fit_with_errors(counts, changed).left_out[7] == before


def test_a_left_out_prediction_scales_with_its_own_counts_only():
    counts, times = runs()
    before = fit_with_errors(counts, times).left_out[7]
    larger = counts.copy()
    larger[7] *= 1000  # as the largest of all it would set a shared scale
    assert fit_with_errors(larger, times).left_out[7] == pytest.approx(1000 * before)


def test_the_jackknife_error_is_that_of_a_mean():
    # A single constant near 1: its 95 % half width is 1.96 · sd / √n.
    values = np.array([0.99, 1.005, 1.01, 0.995, 0.985, 1.015, 1.008, 0.992])
    fit = fit_with_errors(np.ones((8, 1)), values)
    expected = 1.96 * values.std(ddof=1) / np.sqrt(8)
    assert fit.errors[0] == pytest.approx(expected, rel=0.1)


def test_the_interval_of_a_coefficient_never_goes_below_zero():
    counts, times = runs()
    low, high = fit_with_errors(counts, times).bounds(1)
    assert 0 <= low < high


@pytest.mark.parametrize(
    ("counts", "values", "message"),
    [
        ([[1, 2, 3], [1, 3, 4]], [1.0, 2.0], "2 results cannot determine 3 parameters"),
        ([[1], [1]], [1.0, 0.0], "not a positive finite number"),
        ([[1], [1]], [1.0, np.nan], "not a positive finite number"),
        ([[1], [1]], [1.0], r"they must be \(m, k\) and \(m,\)"),
    ],
)
def test_what_determines_no_fit_is_refused(counts, values, message):
    with pytest.raises(SpmvFpgaError, match=message):
        fit_line(counts, values)


def test_the_mean_absolute_error_ignores_signs():
    assert mean_absolute([0.1, -0.3, 0.2]) == pytest.approx(0.2)
