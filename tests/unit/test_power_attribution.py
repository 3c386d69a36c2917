"""Attribution: nothing twice, nothing lost, and what the sensor could not see said so."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spmv_fpga.power import Region, Trace, attribute

CONSTANT = Trace(np.arange(0.0, 101.0), np.full(101, 20.0))


def test_energy_accumulates_over_the_entries_of_a_name() -> None:
    result = attribute(CONSTANT, [Region("spmv", 10, 20), Region("spmv", 30, 45)])
    spmv = result["spmv"]
    assert (spmv.count, spmv.time_s, spmv.energy_j) == (2, 25.0, 500.0)
    assert (result.outside_s, result.outside_j) == (75.0, 1500.0)
    assert (result.time_s, result.energy_j) == (100.0, 2000.0)


def test_a_nested_region_is_in_the_inclusive_figure_and_not_in_the_exclusive_one() -> None:
    result = attribute(
        CONSTANT, [Region("solve", 0, 50), Region("spmv", 10, 20), Region("dot", 12, 14)]
    )
    assert result["solve"].energy_j == 1000.0
    assert result["solve"].exclusive_j == 800.0
    assert result["spmv"].energy_j == 200.0
    assert result["spmv"].exclusive_j == 160.0
    assert result.regions_j == 1000.0
    assert result.outside_j == 1000.0
    assert result.overlap_s == 0.0


def test_exclusive_figures_of_one_thread_add_up_to_the_union() -> None:
    regions = [Region("a", 0, 50), Region("b", 5, 30), Region("c", 6, 7), Region("b", 60, 70)]
    result = attribute(CONSTANT, regions)
    assert sum(r.exclusive_j or 0 for r in result.regions) == pytest.approx(result.regions_j)


def test_a_region_inside_one_of_its_own_name_is_counted_once() -> None:
    result = attribute(CONSTANT, [Region("f", 0, 50), Region("f", 10, 20)])
    assert result["f"].count == 2
    assert result["f"].energy_j == 1000.0
    assert result["f"].exclusive_j == 1000.0


def test_threads_that_overlap_share_energy_that_is_counted_once_in_the_union() -> None:
    regions = [Region("a", 0, 30, thread=0), Region("b", 20, 50, thread=1)]
    result = attribute(CONSTANT, regions)
    assert result["a"].energy_j == 600.0
    assert result["b"].energy_j == 600.0
    assert result.regions_j == 1000.0
    assert result.overlap_s == 10.0
    assert result.conservation_error == 0.0


def test_the_same_name_in_two_threads_is_one_span_of_time() -> None:
    regions = [Region("f", 0, 30, thread=0), Region("f", 0, 30, thread=1)]
    result = attribute(CONSTANT, regions)
    assert (result["f"].count, result["f"].time_s, result["f"].energy_j) == (2, 30.0, 600.0)
    assert result.overlap_s == 30.0


def test_without_regions_all_is_outside() -> None:
    result = attribute(CONSTANT, [])
    assert result.regions == ()
    assert result.outside_j == result.energy_j == 2000.0


def test_the_regions_of_a_rectangle_get_the_rectangle() -> None:
    time_s = [0, 10, 10, 30, 30, 40]
    trace = Trace(time_s, [17.4, 17.4, 20.5, 20.5, 17.4, 17.4])
    result = attribute(trace, [Region("spmv", 10, 30)])
    assert result["spmv"].energy_j == pytest.approx(410.0)
    assert result.outside_j == pytest.approx(348.0)


spans = st.lists(
    st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.floats(0, 1), st.integers(0, 2)),
    max_size=12,
)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(spans, st.integers(0, 2**32 - 1))
def test_regions_and_outside_are_the_run(
    drawn: list[tuple[str, float, float, int]], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    time_s = np.cumsum(rng.uniform(0.001, 0.05, 200))
    trace = Trace(time_s, rng.uniform(15, 500, 200))
    regions = [
        Region(name, *(trace.start_s + trace.duration_s * 0.999 * np.sort([a, b])), thread=t)
        for name, a, b, t in drawn
    ]
    result = attribute(trace, regions)
    assert abs(result.conservation_error) <= 1e-9
    assert result.regions_s + result.outside_s == pytest.approx(result.time_s, rel=1e-12)
    for region in result.regions:
        assert (region.exclusive_j or 0) <= (region.energy_j or 0) * (1 + 1e-12)
        assert region.time_s <= result.regions_s * (1 + 1e-12)


def test_a_conservation_error_is_not_zero_by_construction() -> None:
    result = attribute(CONSTANT, [Region("a", 0, 50)])
    wrong = type(result)(**{**result.__dict__, "outside_j": result.outside_j + 20.0})
    assert wrong.conservation_error == pytest.approx(0.01)


def test_an_entry_outside_the_trace_has_no_energy_and_a_reason() -> None:
    result = attribute(CONSTANT, [Region("spmv", 90, 110), Region("ok", 0, 10)])
    spmv = result["spmv"]
    assert spmv.energy_j is None
    assert spmv.reason == "1 of 1 entries reach outside the trace"
    assert result["ok"].energy_j == 200.0
    assert result.outside_j == 1600.0
    assert abs(result.conservation_error) <= 1e-12
    assert result.warnings == ("region 'spmv': 1 of 1 entries reach outside the trace",)
    figure = result.to_json()["regions"][1]["energy_j"]
    assert figure == {"value": None, "origin": None, "reason": spmv.reason}


def test_a_region_without_duration_has_no_energy() -> None:
    result = attribute(CONSTANT, [Region("spmv", 5, 5)])
    assert result["spmv"].energy_j is None
    assert result["spmv"].verdict == "unresolved"


def test_a_name_is_judged_by_its_median_entry() -> None:
    time_s = np.arange(0, 60, 0.02)
    trace = Trace(time_s, 20 + np.floor(time_s / 0.1 + 1e-9) % 7)
    pulses = [Region("pulse", t, t + 0.005) for t in np.arange(1.0, 50.0, 0.05)]
    result = attribute(trace, [*pulses, Region("long", 0, 59)])
    assert result["pulse"].verdict == "unresolved"
    assert result["pulse"].time_s == pytest.approx(0.005 * len(pulses))
    assert result["pulse"].energy_inner_j is None
    assert result["long"].verdict == "resolved"


def stepped(idle_before_w: float, idle_after_w: float) -> Trace:
    time_s = np.arange(0, 30, 0.02)
    number = np.floor(time_s / 0.1 + 1e-9)
    levels = [idle_before_w, 20.5, idle_after_w]
    power_w = np.select([time_s < 10, time_s < 20], levels[:2], levels[2]) + 0.01 * (number % 2)
    return Trace(time_s, power_w, facts={"sensor": "xrt", "boundary": "card"})


IDLES = [
    Region("idle before", 0, 9.9),
    Region("spmv", 10, 20),
    Region("idle after", 20.5, 29.9),
]


def test_dynamic_energy_is_what_exceeds_the_idle_phases() -> None:
    result = attribute(stepped(17.4, 17.6), IDLES)
    assert result.idle.before_w == pytest.approx(17.405, abs=1e-3)
    assert result.idle.after_w == pytest.approx(17.605, abs=1e-3)
    assert result.idle.drift_w == pytest.approx(0.2, abs=2e-3)
    dynamic = result["spmv"].dynamic
    assert dynamic is not None
    assert dynamic.energy_j == pytest.approx((20.5 - 17.5) * 10, abs=0.1)
    # Half of the drift over ten seconds.
    assert dynamic.edge_error_j >= 0.99


def test_without_an_idle_phase_there_is_no_dynamic_energy() -> None:
    result = attribute(stepped(17.4, 17.4), [Region("spmv", 10, 20)])
    assert result["spmv"].dynamic is None
    assert result.to_json()["regions"][0]["dynamic_j"] == {
        "value": None, "origin": None, "reason": "idle power was not measured"
    }  # fmt: skip
    assert result.idle.power_w is None


def test_the_document_has_the_fixed_keys_and_is_strict_json() -> None:
    document = attribute(stepped(17.4, 17.4), IDLES).to_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert document["run"]["time_s"] == {"value": pytest.approx(29.98), "origin": "measured"}
    spmv = document["regions"][1]
    assert (spmv["name"], spmv["count"], spmv["verdict"]) == ("spmv", 1, "resolved")
    assert spmv["samples"] == 501
    assert spmv["time_s"]["value"] == 10
    assert spmv["energy_j"]["value"] == pytest.approx(205.0, rel=0.01)
    assert spmv["energy_inner_j"]["value"] == pytest.approx(205.05, rel=1e-3)
    assert spmv["energy_j"]["low"] < spmv["energy_j"]["value"] < spmv["energy_j"]["high"]
    assert set(document["outside"]) == {"time_s", "energy_j"}
    assert abs(document["conservation_error"]) < 1e-12
    assert document["sensor"]["boundary"] == "card"


def test_an_unknown_name_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        attribute(CONSTANT, [])["spmv"]


def test_the_run_is_judged_as_a_region_is() -> None:
    times = np.arange(0, 20, 0.02)
    facts = {"sensor": "x", "boundary": "card", "refresh_s": "0.1"}
    trace = Trace(times, 20 + np.floor(times / 0.1) % 7, facts=facts)
    run = attribute(trace, []).to_json()["run"]
    assert (run["verdict"], run["samples"]) == ("resolved", 1000)
    assert 0 < run["energy_error_j"]["value"] < 0.02 * run["energy_j"]["value"]


def test_power_below_zero_is_told() -> None:
    result = attribute(Trace([0.0, 1.0, 2.0], [-5.0, -4.0, 20.0]), [])
    assert result.warnings == (
        "2 of 3 samples are below 0 W, the least is -5 W: the sensor or its offset is wrong, "
        "and so are these energies",
    )
    assert attribute(CONSTANT, []).warnings == ()


def test_a_counter_that_goes_back_is_told() -> None:
    trace = Trace([0.0, 1.0, 2.0], [5.0, 5.0, 5.0], energy_j=[0.0, 5.0, 1.0])
    [warning] = attribute(trace, []).warnings
    assert warning.startswith("the energy counter goes back")


def test_an_energy_of_next_to_nothing_gives_finite_figures() -> None:
    result = attribute(Trace([0.0, 1.0, 2.0], [5e-324, -1e12, 1e12]), [Region("a", 0, 1)])
    json.dumps(result.to_json(), allow_nan=False)


def test_each_error_in_the_document_says_whose_it_is() -> None:
    trace = Trace(np.arange(0.0, 101.0), 20.0 + np.arange(101) % 2)
    [region] = attribute(trace, [Region("spmv", 10, 90)]).to_json()["regions"]
    assert not any(key in region for key in ("error_j", "edge_error_j"))
    for estimate, error in (("best_j", "best_error_j"), ("energy_j", "energy_error_j")):
        figure = region[estimate]
        assert region[error]["value"] == pytest.approx(figure["high"] - figure["value"])


def test_a_gap_of_a_thousand_million_periods_takes_no_memory() -> None:
    times = np.concatenate((np.arange(100) * 1e-3, [1e9]))
    trace = Trace(times, np.full(101, 20.0))
    assert attribute(trace, []).energy_j == pytest.approx(2e10)
    assert attribute(trace, [Region("a", 0.01, 0.05)])["a"].energy_j == pytest.approx(0.8)


class CountedName(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    comparisons = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        CountedName.comparisons += 1
        return str.__eq__(self, other)


def test_names_are_told_apart_without_comparing_each_with_each() -> None:
    regions = [Region(CountedName(f"r{k % 200}"), k / 5, k / 5 + 0.1) for k in range(400)]
    result = attribute(CONSTANT, regions)
    assert [(r.name, r.count) for r in result.regions[:2]] == [("r0", 2), ("r1", 2)]
    assert len(result.regions) == 200
    assert CountedName.comparisons < 2000  # each with each: 80,000
