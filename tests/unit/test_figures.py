"""Figures say where they come from, and are always valid JSON."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import binom

from spmv_fpga.figures import Figure, median, unknown


def test_a_measured_figure_has_its_bounds_and_its_n():
    figure = Figure(value=2.0, origin="measured", low=1.0, high=3.0, n=9)
    assert figure.to_json() == {
        "value": 2.0, "origin": "measured", "low": 1.0, "high": 3.0, "n": 9
    }  # fmt: skip


def test_what_is_not_known_is_left_out():
    assert Figure(value=0.0, origin="modelled").to_json() == {
        "value": 0.0,
        "origin": "modelled",
    }


def test_an_unknown_figure_says_why():
    assert unknown("no sensor").to_json() == {
        "value": None, "origin": None, "reason": "no sensor"
    }  # fmt: skip


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_null_with_a_reason(bad):
    assert Figure(value=bad, origin="measured").to_json() == {
        "value": None, "origin": None, "reason": "not a finite number"
    }  # fmt: skip


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_bounds_that_are_not_finite_are_left_out(bad):
    document = Figure(value=1.0, origin="measured", low=bad, high=bad).to_json()
    assert json.dumps(document, allow_nan=False) == '{"value": 1.0, "origin": "measured"}'


def test_a_scaled_figure_scales_its_bounds_and_keeps_its_origin():
    scaled = Figure(value=2.0, origin="emulated", low=1.0, high=3.0, n=7).scaled(10)
    assert scaled == Figure(value=20.0, origin="emulated", low=10.0, high=30.0, n=7)


def test_a_rate_from_a_time_has_its_bounds_exchanged():
    rate = Figure(value=2.0, origin="measured", low=1.0, high=4.0, n=7).inverse_of(8)
    assert rate == Figure(value=4.0, origin="measured", low=2.0, high=8.0, n=7)


def test_a_rate_from_a_time_without_bounds_has_none():
    rate = Figure(value=2.0, origin="measured", n=1).inverse_of(8)
    assert rate == Figure(value=4.0, origin="measured", n=1)


def test_a_rate_whose_shortest_time_is_zero_has_no_upper_bound():
    rate = Figure(value=2.0, origin="measured", low=0.0, high=4.0, n=7).inverse_of(8)
    assert rate.to_json() == {"value": 4.0, "origin": "measured", "low": 2.0, "n": 7}


def test_a_rate_from_no_time_at_all_is_unknown():
    rate = Figure(value=0.0, origin="measured", n=7).inverse_of(8)
    assert (rate.value, rate.reason) == (None, "the time is too short for the clock")


def test_a_rate_from_an_unknown_time_keeps_the_reason():
    assert unknown("no events").inverse_of(8) == unknown("no events")
    assert unknown("no events").scaled(8) == unknown("no events")


def test_no_samples_have_no_median():
    assert median([], "measured") == unknown("there are no samples")


def test_the_median_of_few_samples_has_no_interval():
    figure = median([5.0, 1.0, 3.0, 2.0, 4.0], "measured")
    assert figure == Figure(value=3.0, origin="measured", n=5)


@pytest.mark.parametrize(
    ("n", "low", "high"),
    # Tables of order statistics for the median at 95 %: ranks of the interval, from 1.
    [(6, 1, 6), (8, 1, 8), (9, 2, 8), (10, 2, 9), (20, 6, 15), (25, 8, 18), (100, 40, 61)],
)
def test_the_interval_has_the_ranks_of_the_tables(n, low, high):
    samples = np.random.default_rng(1).permutation(np.arange(1.0, n + 1))
    figure = median(samples, "measured")
    assert (figure.value, figure.n) == ((n + 1) / 2, n)
    assert (figure.low, figure.high) == (low, high)


@pytest.mark.parametrize("n", range(6, 60))
def test_the_interval_is_the_narrowest_of_at_least_95_percent(n):
    rank = int(median(list(range(1, n + 1)), "measured").low)
    assert 1 - 2 * binom.cdf(rank - 1, n, 0.5) >= 0.95
    assert 1 - 2 * binom.cdf(rank, n, 0.5) < 0.95


def test_samples_with_a_nan_are_no_figure():
    document = median([1.0, math.nan] * 5, "measured").to_json()
    assert document["value"] is None
    assert json.dumps(document, allow_nan=False)
