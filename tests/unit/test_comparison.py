"""Comparison of two variants: right values, state changes, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power import Region, Trace, attribute
from spmv_fpga.power.comparison import RunFigures, compare, smallest_detectable
from spmv_fpga.stats import Interval

CARD = RunFigures(
    time_s=2.0,
    energy_j=40.0,
    outside_j=10.0,
    run_j=50.0,
    boundary="card",
    sensor="xrt",
    refresh_s=0.12,
)


def runs(n: int, **changes: object) -> list[RunFigures]:
    return [replace(CARD, **changes)] * n


def measured(times_s: np.ndarray, powers_w: np.ndarray) -> list[RunFigures]:
    return [
        replace(CARD, time_s=float(t), energy_j=float(t * p))
        for t, p in zip(times_s, powers_w, strict=True)
    ]


def two_dbscans() -> tuple[list[RunFigures], list[RunFigures]]:
    """64 runs of each variant; the first 16 of the second in another state."""
    rng = np.random.default_rng(31)
    plain = measured(rng.normal(2.69, 0.02, 64), rng.normal(288.0, 1.5, 64))
    times_s = np.concatenate((rng.uniform(3.4, 3.9, 16), rng.normal(2.17, 0.02, 48)))
    powers_w = np.concatenate((rng.normal(222.0, 2.0, 16), rng.normal(264.0, 1.5, 48)))
    return plain, measured(times_s, powers_w)


# Right values


def test_the_ratios_are_of_b_over_a():
    answer = compare(runs(6), runs(6, time_s=1.5, energy_j=20.0)).all_runs
    assert answer.time == Interval(0.75, 0.75, 0.75, 6)
    assert answer.energy == Interval(0.5, 0.5, 0.5, 6)
    assert answer.power.value == pytest.approx(2 / 3)


def test_each_variant_has_its_medians():
    a = [replace(CARD, time_s=t, energy_j=20 * t) for t in (1.0, 2.0, 3.0, 4.0, 9.0)]
    variant = compare(a, runs(5)).all_runs.a
    assert (variant.time_s.value, variant.time_s.n) == (3.0, 5)
    assert variant.energy_j.value == 60.0
    assert variant.power_w.value == 20.0
    assert variant.outside_share == 0.2


def test_the_sentence_says_what_time_would_have_said_and_what_energy_says():
    comparison = compare(runs(6), runs(6, time_s=1.5, energy_j=20.0), names=("scalar", "block"))
    assert comparison.sentences() == (
        "block against scalar: time would have said 25.0 % less (25.0 to 25.0 %), energy "
        "says 50.0 % less (50.0 to 50.0 %) (mean power: 33.3 % less (33.3 to 33.3 %)); "
        "medians of 6 and 6 runs.",
    )


def test_a_difference_within_the_noise_is_said_to_be_none():
    rng = np.random.default_rng(32)
    a = measured(rng.normal(2.0, 0.1, 12), np.full(12, 20.0))
    b = measured(rng.normal(2.0, 0.1, 12), np.full(12, 30.0))
    sentence = compare(a, b).all_runs.sentence()
    assert "time would have said no difference (one of " in sentence
    assert "energy says 48.4 % more (" in sentence


def test_the_smallest_detectable_difference_shrinks_with_the_number_of_runs():
    rng = np.random.default_rng(33)
    few, many = (
        compare(
            measured(rng.normal(2.0, 0.1, n), np.full(n, 20.0)),
            measured(rng.normal(2.0, 0.1, n), np.full(n, 20.0)),
        ).all_runs.time
        for n in (6, 64)
    )
    assert 0 < smallest_detectable(many) < smallest_detectable(few)


def test_without_an_interval_there_is_no_smallest_detectable_difference():
    assert smallest_detectable(Interval(0.8, None, None, 2)) is None


def test_pairs_take_a_shared_drift_out():
    drift = np.linspace(2.0, 3.0, 20)
    noise = np.random.default_rng(34).normal(0.0, 0.005, 20)
    a, b = measured(drift, np.full(20, 20.0)), measured(0.9 * drift + noise, np.full(20, 20.0))
    paired, unpaired = compare(a, b, paired=True).all_runs, compare(a, b).all_runs
    assert not unpaired.time.excludes(1.0)
    assert paired.time.excludes(1.0)


# Another state of the machine


def test_the_first_16_of_64_runs_in_another_state_are_found_and_both_answers_given():
    comparison = compare(*two_dbscans(), names=("fdbscan", "fdbscan-dense"))
    assert comparison.changes_a == ()
    assert comparison.changes_b == (16,)
    everything, steady = comparison.all_runs, comparison.steady_runs
    assert (everything.b.num_runs, everything.b.first_run) == (64, 0)
    assert (steady.b.num_runs, steady.b.first_run) == (48, 16)
    assert (steady.a.num_runs, steady.a.first_run) == (64, 0)
    assert steady.time.value == pytest.approx(2.17 / 2.69, abs=0.005)
    assert steady.energy.value == pytest.approx(2.17 * 264 / (2.69 * 288), abs=0.005)
    assert everything.time.value == pytest.approx(steady.time.value, abs=0.02)
    assert comparison.warnings == (
        "fdbscan-dense: the machine was in another state from run 17 of 64 on; the longest "
        "steady stretch is runs 17 to 64.",
    )


def test_a_change_of_power_alone_is_a_change_of_state():
    rng = np.random.default_rng(35)
    powers_w = np.concatenate((rng.normal(20.0, 0.1, 10), rng.normal(23.0, 0.1, 30)))
    changed = measured(np.full(40, 2.0), powers_w)
    assert compare(runs(8), changed).changes_b == (10,)


def test_steady_runs_need_no_second_answer():
    assert compare(runs(8), runs(8, time_s=1.0)).steady_runs is None


# Energy that is not known


def test_an_unresolved_region_has_no_energy_to_compare():
    comparison = compare(runs(6), runs(6, time_s=1.0, verdict="unresolved"))
    assert comparison.all_runs.time.value == 0.5
    assert comparison.all_runs.energy is None
    assert "in 6 of 12 runs" in comparison.no_energy
    assert "energy says unknown" in comparison.all_runs.sentence()
    energy = comparison.to_json()["a"]["energy_j"]
    assert (energy["value"], energy["reason"]) == (None, comparison.no_energy)


def test_a_run_without_energy_leaves_the_times():
    comparison = compare(runs(5), [*runs(4), replace(CARD, energy_j=None)])
    assert comparison.all_runs.energy is None
    assert comparison.no_energy == "the energy of 1 of 10 runs was not measured"


def test_a_bound_is_compared_with_a_warning():
    comparison = compare(runs(6), runs(6, verdict="bound only"))
    assert comparison.all_runs.energy.value == 1.0
    assert any("a bound only" in warning for warning in comparison.warnings)


def test_dynamic_energy_that_is_not_above_zero_has_no_ratio():
    comparison = compare(runs(6), runs(6, energy_j=-0.5))
    assert comparison.all_runs.energy is None
    assert any("not above 0 J" in warning for warning in comparison.warnings)


def test_an_unlike_refresh_is_told():
    comparison = compare(runs(6), runs(6, refresh_s=1.0))
    assert comparison.warnings == (
        "The sensor refreshed every 120.0 ms in some runs and every 1.000 s in others.",
    )


def test_fewer_than_five_runs_are_compared_without_an_interval():
    comparison = compare(runs(2), runs(6, time_s=1.0))
    assert comparison.all_runs.time == Interval(0.5, None, None, 2)
    assert comparison.warnings == ("a: 2 runs give no interval; five are the least.",)
    assert "time would have said 50.0 % less," in comparison.all_runs.sentence()


# Refusals


def test_unlike_boundaries_are_refused():
    with pytest.raises(SensorError, match="boundaries differ, card and package"):
        compare(runs(3), runs(3, boundary="package"))


def test_unlike_sensors_are_refused():
    with pytest.raises(SensorError, match="sensors differ, nvml and xrt"):
        compare(runs(3, sensor="nvml"), runs(3))


def test_a_run_that_names_no_boundary_is_unlike_one_that_does():
    with pytest.raises(SensorError, match="card and one that is not named"):
        compare(runs(3), runs(3, boundary=None))


def test_a_forced_comparison_of_unlike_runs_is_labelled():
    comparison = compare(runs(6), runs(6, boundary="package"), force=True)
    assert comparison.boundary is None
    assert comparison.sensor == "xrt"
    assert comparison.warnings == (
        "their boundaries differ, card and package: the comparison was forced.",
    )


def test_a_variant_without_runs_is_refused():
    with pytest.raises(SensorError, match="variant block has no runs"):
        compare(runs(3), [], names=("scalar", "block"))


def test_incomplete_pairs_are_refused():
    with pytest.raises(SensorError, match="3 and 4 runs"):
        compare(runs(3), runs(4), paired=True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"time_s": 0.0}, "must be above 0"),
        ({"time_s": float("nan")}, "must be above 0"),
        ({"energy_j": float("inf")}, "energy_j is inf"),
        ({"verdict": "fine"}, "'fine'"),
    ],
)
def test_figures_that_cannot_be_are_refused(changes, message):
    with pytest.raises(SensorError, match=message):
        replace(CARD, **changes)


# Documents


def document() -> dict[str, object]:
    """What is attributed to two regions at 20 W in 10 s."""
    facts = {"sensor": "xrt", "boundary": "card", "refresh_s": "0.01"}
    trace = Trace([0.0, 10.0], [20.0, 20.0], facts=facts)
    regions = [Region("spmv", 1.0, 4.0), Region("set-up", 5.0, 6.0)]
    return json.loads(json.dumps(attribute(trace, regions).to_json()))


def test_a_region_is_taken_out_of_an_integrated_trace():
    figures = RunFigures.from_document(document(), "spmv")
    assert (figures.time_s, figures.energy_j) == (3.0, 60.0)
    assert (figures.outside_j, figures.run_j, figures.outside_share) == (120.0, 200.0, 0.6)
    assert (figures.sensor, figures.boundary) == ("xrt", "card")


def test_a_document_that_names_no_sensor_is_taken():
    plain = {
        "run": {"time_s": 3.0, "energy_j": 60.0},
        "regions": [{"name": "spmv", "time_s": 2.0, "energy_j": None, "verdict": "unresolved"}],
        "outside": {"time_s": 1.0, "energy_j": 10.0},
    }
    figures = RunFigures.from_document(plain)
    assert (figures.time_s, figures.energy_j, figures.sensor) == (2.0, None, None)
    assert figures.verdict == "unresolved"


def test_the_region_must_be_named_where_there_are_several():
    with pytest.raises(SensorError, match=r"2 regions \(spmv, set-up\)"):
        RunFigures.from_document(document())


def test_a_region_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(SensorError, match="no region 'gemm'; it has spmv, set-up"):
        RunFigures.from_document(document(), "gemm")


@pytest.mark.parametrize("wrong", [{}, {"regions": 3}, {"regions": [{"name": "spmv"}]}])
def test_another_document_is_refused(wrong):
    with pytest.raises(SensorError, match="none of `energy integrate`"):
        RunFigures.from_document(wrong)


def figures_and_numbers(document, name=""):
    """Every value below a key with a unit."""
    for key, value in document.items():
        if key.endswith(("_s", "_j", "_w")):
            yield key, value
        elif isinstance(value, dict):
            yield from figures_and_numbers(value, key)


def test_the_json_document_is_valid_and_holds_figures_where_a_unit_is_named():
    written = compare(*two_dbscans()).to_json()
    read = json.loads(json.dumps(written, allow_nan=False))
    found = list(figures_and_numbers(read))
    assert {key for key, _ in found} == {"time_s", "energy_j", "power_w"}
    assert all(figure["origin"] == "measured" for _, figure in found)
    assert read["b"]["runs"] == 64
    assert read["steady"]["b"]["runs"] == 48
    assert read["state_changes"] == {"a": [], "b": [16]}
    assert read["time_ratio_low"] <= read["time_ratio"] <= read["time_ratio_high"]
    assert read["energy_smallest_detectable"] > 0


def test_a_single_run_is_said_to_have_no_interval_before_anything_else():
    one = RunFigures(
        time_s=2.0, energy_j=40.0, boundary="card", sensor="xrt", verdict="resolved"
    )
    first, *_ = compare([one], [one]).sentences()
    assert first == "One run has no interval (a, b): the difference may be chance."
