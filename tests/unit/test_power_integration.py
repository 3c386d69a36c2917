"""Integrals with analytic answers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmv_fpga.errors import SensorError
from spmv_fpga.power import Estimate, Trace, inner_mean, integrate, verdict, window_energy


def test_constant_power_gives_power_times_time() -> None:
    assert integrate([0, 1, 5], [20, 20, 20], 0.25, 4.25) == 80.0


def test_a_ramp_is_integrated_exactly_with_both_edges_between_samples() -> None:
    time_s = np.linspace(0, 10, 11)
    # The integral of 3 t from 1.3 to 7.7 is 1.5 (7.7² - 1.3²) = 86.4.
    assert integrate(time_s, 3 * time_s, 1.3, 7.7) == pytest.approx(86.4, rel=1e-12)


def test_a_window_within_one_interval_is_interpolated() -> None:
    # Power 12.5 … 17.5 W over half a second.
    assert integrate([0, 1], [10, 20], 0.25, 0.75) == 7.5


def test_a_rectangle_keeps_its_jumps() -> None:
    time_s, power_w = [0, 2, 2, 5, 5, 8], [10, 10, 40, 40, 10, 10]
    assert integrate(time_s, power_w, 0, 8) == 20 + 120 + 30
    assert integrate(time_s, power_w, 2, 5) == 120
    assert integrate(time_s, power_w, 0, 2) == 20
    assert integrate(time_s, power_w, 5, 8) == 30


def test_a_step_between_samples_is_a_ramp() -> None:
    # From 1 to 2 s the power rises from 10 to 30 W: 10 + 20 + 30 J.
    assert integrate([0, 1, 2, 3], [10, 10, 30, 30], 0, 3) == 60


def test_a_window_without_length_holds_no_energy() -> None:
    assert integrate([0, 1], [10, 10], 0.5, 0.5) == 0.0


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.lists(st.floats(0, 500), min_size=3, max_size=30),
    st.lists(st.floats(0, 1), min_size=2, max_size=8),
)
def test_windows_that_touch_add_up(power_w: list[float], cuts: list[float]) -> None:
    time_s = np.cumsum(np.full(len(power_w), 0.37))
    edges = time_s[0] + (time_s[-1] - time_s[0]) * np.array([0.0, *sorted(cuts), 1.0])
    edges[-1] = time_s[-1]
    parts = [integrate(time_s, power_w, a, b) for a, b in itertools.pairwise(edges)]
    whole = integrate(time_s, power_w, time_s[0], time_s[-1])
    assert math.fsum(parts) == pytest.approx(whole, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize(
    ("start_s", "end_s", "message"),
    [
        (-1.0, 1.0, "no samples from -1.0 to 0.0 s;"),
        (1.0, 3.0, "no samples from 2.0 to 3.0 s;"),
        (-1.0, 3.0, "no samples from -1.0 to 0.0 s and 2.0 to 3.0 s;"),
        (5.0, 6.0, "no samples from 5.0 to 6.0 s;"),
        (5.0, 5.0, "no samples from 5.0 to 5.0 s;"),
        (1.5, 1.0, "ends at 1.0 s, before its start 1.5 s"),
        (math.nan, 1.0, "before its start nan"),
    ],
)
def test_a_window_outside_the_samples_is_refused(
    start_s: float, end_s: float, message: str
) -> None:
    with pytest.raises(SensorError) as caught:
        integrate([0.0, 2.0], [1.0, 1.0], start_s, end_s)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("time_s", "power_w", "message"),
    [
        ([], [], "there are no samples"),
        ([0, 1], [1], "equally long"),
        ([0, 2, 1], [1, 1, 1], "goes back at sample 2"),
        ([0, 1], [1, math.nan], "NaN or infinity"),
        ([0, math.inf], [1, 1], "NaN or infinity"),
    ],
)
def test_unusable_samples_are_refused(
    time_s: list[float], power_w: list[float], message: str
) -> None:
    with pytest.raises(SensorError, match=message):
        integrate(time_s, power_w, 0, 1)


def test_the_inner_mean_leaves_out_values_older_than_the_window() -> None:
    # Held values: what is read at 1.0 s may be from before 0.9 s.
    time_s, power_w = [0.0, 0.5, 1.0, 1.5, 2.0], [5, 5, 5, 9, 9]
    mean_w, num = inner_mean(time_s, power_w, 0.9, 2.0, refresh_s=0.5)
    assert (mean_w, num) == (9.0, 2)


def test_a_value_fetched_once_counts_once() -> None:
    mean_w, num = inner_mean(
        [0.0, 0.1, 0.2, 0.3], [1, 10, 10, 40], 0.0, 1.0, fetch_s=[-1, 0.1, 0.1, 0.3]
    )
    assert (mean_w, num) == (25.0, 2)


def test_the_inner_mean_of_nothing_is_not_a_number() -> None:
    mean_w, num = inner_mean([0.0, 1.0], [5, 5], 0.2, 0.4)
    assert math.isnan(mean_w)
    assert num == 0


@pytest.mark.parametrize(
    ("duration_s", "word"),
    [
        (5.0, "resolved"),
        (50 * 0.1, "resolved"),
        (4.99, "bound only"),
        (0.2, "bound only"),
        (0.199, "unresolved"),
        (0.005, "unresolved"),
        (0.0, "unresolved"),
    ],
)
def test_the_verdict_counts_refresh_periods(duration_s: float, word: str) -> None:
    assert verdict(duration_s, 0.1) == word


def test_a_short_window_is_unresolved_and_is_never_zero_joules() -> None:
    time_s = np.arange(0, 20, 0.02)
    number = np.floor(time_s / 0.1 + 1e-9).astype(int)
    power_w = np.where((number >= 50) & (number < 150), 500.0, 120.0) + number % 7
    energy = window_energy(Trace(time_s, power_w), 5.031, 5.036)
    assert energy.verdict == "unresolved"
    assert energy.energy_j > 0
    assert energy.best.energy_j > 0
    assert energy.error_j >= 0.9 * (500 - 120) / 2 * 0.005


def test_a_long_window_of_steady_power_is_right_by_all_estimates() -> None:
    time_s = np.arange(0, 40, 0.02)
    power_w = 100 + np.floor(time_s / 0.1 + 1e-9) % 2
    trace = Trace(time_s, power_w, energy_j=100.5 * time_s)
    energy = window_energy(trace, 10.0, 30.0)
    assert energy.verdict == "resolved"
    assert energy.samples == 1001
    for estimate in (energy.trapezoid, energy.inner, energy.counter):
        assert estimate is not None
        assert estimate.energy_j == pytest.approx(2010, rel=1e-3)


def test_the_least_error_is_preferred() -> None:
    time_s = np.arange(0, 40, 0.02)
    number = np.floor(time_s / 0.1 + 1e-9)
    power_w = np.where((time_s >= 10) & (time_s < 30), 300.0, 100.0) + number % 3
    energy = window_energy(Trace(time_s, power_w), 10.0, 30.0)
    assert energy.preferred == "inner"
    assert energy.edge_error_j == 0.0
    # The held value may lag by a period and a sample: 0.12 s of 200 W.
    assert energy.trapezoid.edge_error_j >= 24.0


def test_errors_of_many_windows_add_up_by_their_kind() -> None:
    total = Estimate.total([Estimate(1.0, 0.5, 0.3, 0.25), Estimate(2.0, 0.5, 0.4, 0.25)])
    assert total == Estimate(3.0, 1.0, 0.5, 0.5)
    assert total.error_j == pytest.approx(1.0 + math.hypot(0.5, 0.5))
