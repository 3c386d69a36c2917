"""Intervals of medians and changes of state, against simulations with known answers.

The seeds are fixed: the shares are those of these series, not of a new draw.
"""

from __future__ import annotations

import numpy as np
import pytest

from spmv_fpga import stats
from spmv_fpga.errors import SpmvFpgaError
from spmv_fpga.stats import (
    Interval,
    changepoints,
    median_interval,
    ratio_interval,
    steady_from,
)


def least_cost_states(values: np.ndarray, penalty: float) -> tuple[int, ...]:
    """The definition: every cut into states of three or more is tried."""
    n = len(values)
    least = [-penalty] + [np.inf] * n
    previous = [0] * (n + 1)
    for end in range(1, n + 1):
        for start in range(end - 2):
            state = values[start:end]
            cost = least[start] + ((state - state.mean()) ** 2).sum() + penalty
            if cost < least[end]:
                least[end], previous[end] = cost, start
    changes = []
    end = previous[n]
    while end:
        changes.append(end)
        end = previous[end]
    return tuple(reversed(changes))


# Intervals


def test_the_interval_encloses_the_true_median_in_about_95_of_100_cases(
    monkeypatch,
):
    monkeypatch.setattr(stats, "_NUM_RESAMPLES", 999)
    rng = np.random.default_rng(11)
    intervals = [median_interval(rng.lognormal(0.0, 0.1, 10)) for _ in range(400)]
    hits = sum(not interval.excludes(1.0) for interval in intervals)
    assert 0.91 <= hits / 400 <= 0.98


def test_the_interval_encloses_the_true_ratio_in_about_95_of_100_cases(monkeypatch):
    monkeypatch.setattr(stats, "_NUM_RESAMPLES", 999)
    rng = np.random.default_rng(12)
    hits = 0
    for _ in range(300):
        slow, fast = rng.lognormal(0.0, 0.1, 12), 0.8 * rng.lognormal(0.0, 0.1, 12)
        hits += not ratio_interval(fast, slow).excludes(0.8)
    assert 0.92 <= hits / 300 <= 0.99


def test_values_that_a_coarse_sensor_makes_equal_still_give_an_interval():
    rng = np.random.default_rng(13)
    for _ in range(50):
        interval = median_interval(np.round(rng.lognormal(0.0, 0.1, 10), 1))
        assert interval.low is not None
        assert interval.high is not None
        assert interval.low <= interval.value <= interval.high


def test_equal_values_give_an_interval_of_no_width():
    assert median_interval([3.5] * 6) == Interval(3.5, 3.5, 3.5, 6)
    assert ratio_interval([3.0] * 6, [4.0] * 7) == Interval(0.75, 0.75, 0.75, 6)


def test_fewer_than_five_values_give_no_interval():
    assert median_interval([1.0, 2.0, 3.0, 4.0]) == Interval(2.5, None, None, 4)
    assert ratio_interval([1.0] * 9, [2.0] * 4) == Interval(0.5, None, None, 4)
    assert median_interval([1.0, 2.0, 3.0, 4.0, 5.0]).low is not None


def test_the_same_values_give_the_same_interval():
    values = np.random.default_rng(14).lognormal(0.0, 0.2, 16)
    assert median_interval(values) == median_interval(values)


def test_pairs_take_a_drift_that_both_share_out_of_the_ratio():
    drift = np.linspace(1.0, 2.0, 20)
    noise = np.random.default_rng(15).normal(0.0, 0.002, 20)
    a, b = drift, 0.9 * drift + noise
    paired, unpaired = ratio_interval(b, a, paired=True), ratio_interval(b, a)
    assert paired.high - paired.low < 0.1 * (unpaired.high - unpaired.low)
    assert paired.excludes(0.92)
    assert not paired.excludes(0.9)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "must be a list"),
        ([[1.0]], "must be a list"),
        ([1.0, float("nan")], "value 1 is nan"),
        ([float("inf")], "value 0 is inf"),
    ],
)
def test_values_without_a_median_are_refused(values, message):
    with pytest.raises(SpmvFpgaError, match=message):
        median_interval(values)


def test_a_ratio_of_values_that_are_not_positive_is_refused():
    with pytest.raises(SpmvFpgaError, match="positive"):
        ratio_interval([1.0, 0.0], [1.0, 1.0])


def test_incomplete_pairs_are_refused():
    with pytest.raises(SpmvFpgaError, match="5 and 6 runs"):
        ratio_interval([1.0] * 5, [1.0] * 6, paired=True)


# Changes of state


@pytest.mark.parametrize(("num_values", "penalty"), [(11, 0.3), (16, 1.0), (36, 3.0)])
def test_the_states_are_those_of_least_cost(num_values, penalty):
    rng = np.random.default_rng(16)
    for _ in range(40):
        values = rng.normal(0.0, 2.0, num_values)
        assert stats._pelt(values, penalty) == least_cost_states(values, penalty)


def test_a_shift_of_five_sigma_is_found_within_one_value():
    rng = np.random.default_rng(17)
    found = 0
    for _ in range(200):
        values = rng.normal(1.0, 0.02, 64)
        values[20:] *= 1.1
        found += any(abs(change - 20) <= 1 for change in changepoints(values))
    assert found / 200 >= 0.97


def test_a_shift_of_two_sigma_is_nearly_always_found_and_one_of_one_sigma_often():
    rng = np.random.default_rng(18)
    step = np.arange(64) >= 20
    found = {
        sigma: sum(bool(changepoints(rng.normal(size=64) + sigma * step)) for _ in range(150))
        for sigma in (1, 2)
    }
    assert 0.45 <= found[1] / 150 <= 0.75
    assert found[2] / 150 >= 0.98


def test_a_steady_series_seldom_raises_a_false_alarm():
    rng = np.random.default_rng(19)
    alarms = sum(bool(changepoints(rng.normal(5.0, 0.1, 64))) for _ in range(300))
    assert alarms / 300 <= 0.05


def test_the_first_16_of_64_runs_in_another_state_are_found():
    rng = np.random.default_rng(20)
    runs = np.concatenate((rng.uniform(3.4, 3.9, 16), rng.normal(2.17, 0.03, 48)))
    assert changepoints(runs) == (16,)


def test_a_state_in_the_middle_has_a_beginning_and_an_end():
    noise = np.random.default_rng(21).normal(0.0, 0.01, 60)
    assert changepoints(np.repeat([1.0, 1.3, 1.0], [30, 10, 20]) + noise) == (30, 40)


def share_with_a_state(num_slow: int) -> float:
    """Share of 100 series in which some state is found, a few slow values in the middle."""
    rng = np.random.default_rng(22)
    found = 0
    for _ in range(100):
        values = rng.normal(1.0, 0.01, 64)
        values[30 : 30 + num_slow] = 5.0
        found += bool(changepoints(values))
    return found / 100


def test_one_or_two_stray_values_are_no_state():
    assert share_with_a_state(1) <= 0.05
    assert share_with_a_state(2) <= 0.07


def test_three_slow_values_in_a_row_are_a_state():
    assert share_with_a_state(3) == 1.0


def test_a_noisy_state_is_one_state():
    rng = np.random.default_rng(25)
    found = 0
    for _ in range(100):
        noisy, quiet = rng.uniform(3.4, 3.9, 16), rng.normal(2.0, 0.02, 48)
        found += changepoints(np.concatenate((noisy, quiet))) == (16,)
    assert found / 100 >= 0.9


def test_a_change_is_found_where_most_values_are_equal():
    assert changepoints([2.0] * 16 + [2.5] * 48) == (16,)


def test_equal_values_and_short_series_hold_no_change():
    assert changepoints([7.0] * 50) == ()
    assert changepoints([1.0, 9.0, 1.0, 9.0, 1.0]) == ()
    assert changepoints([]) == ()


def test_the_unit_and_the_level_do_not_matter():
    values = np.random.default_rng(23).normal(1.0, 0.02, 64)
    values[40:] += 0.2
    assert changepoints(values) == changepoints(1e6 + 1e-3 * values) == (40,)


# Steadiness


def test_a_series_is_steady_from_its_last_change_on():
    values = np.random.default_rng(24).normal(1.0, 0.01, 40)
    values[:12] += 0.5
    assert steady_from(values) == 12


def test_a_series_that_changed_late_is_not_yet_steady():
    values = np.random.default_rng(24).normal(1.0, 0.01, 40)
    values[:25] += 0.5
    assert steady_from(values) is None
    assert steady_from(values, share=0.3) == 25


def test_a_change_below_the_tolerance_does_not_end_steadiness():
    values = np.random.default_rng(24).normal(1.0, 0.001, 40)
    values[:20] += 0.01
    assert steady_from(values) == 20
    assert steady_from(values, tolerance=0.02) == 0


def test_too_few_values_tell_nothing_of_steadiness():
    assert steady_from([1.0] * 5) is None
    assert steady_from([1.0] * 6) == 0
