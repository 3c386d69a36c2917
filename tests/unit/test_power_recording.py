"""A recording of a GPU, and a made-up one like it, against the hardware's counter.

The sensor shows power every 100 ms, the last 25 ms of them; the counter is exact. Power
wanders while the load runs, which is 20 s of products, then pulses of 5 ms.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from spmv_fpga.power import Region, Trace, attribute


def recorded(folder: Path, column: str = "power_instant_mw") -> tuple[Trace, list[Region]]:
    with gzip.open(folder / "h200_power.csv.gz", "rt") as file:
        names = file.readline().strip().split(",")
        table = np.loadtxt(file, delimiter=",")
    columns = {name: table[:, k] for k, name in enumerate(names)}
    trace = Trace(
        (columns["t_before_ns"] + columns["t_after_ns"]) / 2e9,
        columns[column] / 1e3,
        energy_j=columns["total_energy_mj"] / 1e3,
        facts={"sensor": "nvml", "boundary": "GPU", "energy_step_j": "0.001"},
    )
    document = json.loads((folder / "h200_regions.json").read_text())
    return trace, [
        Region(r["name"], r["t0_ns"] / 1e9, r["t1_ns"] / 1e9) for r in document["regions"]
    ]


@pytest.mark.shared_data
def test_long_regions_of_the_recording_agree_with_the_hardware_counter(
    shared_data: Path,
) -> None:
    trace, regions = recorded(shared_data / "traces")
    result = attribute(trace, regions)
    assert result.refresh.how == "counter"
    assert result.refresh.period_s == pytest.approx(0.1, rel=1e-3)
    for name, instant_j, counter_j in (("spmv", 10542.6, 10606.7), ("gemm", 9502.9, 9546.5)):
        region = result[name]
        assert region.energy_j == pytest.approx(instant_j, abs=0.05)
        assert region.energy_counter_j == pytest.approx(counter_j, abs=0.05)
        assert region.energy_j == pytest.approx(region.energy_counter_j, rel=0.01)
        assert region.energy_inner_j == pytest.approx(region.energy_counter_j, rel=0.01)
        assert region.verdict == "resolved"
    assert abs(result.conservation_error) <= 1e-9
    assert result.outside_j / result.energy_j == pytest.approx(0.02, abs=0.01)


@pytest.mark.shared_data
def test_pulses_of_the_recording_are_judged_by_their_length(shared_data: Path) -> None:
    result = attribute(*recorded(shared_data / "traces"))
    assert result["spmv_pulse_5ms"].verdict == "unresolved"
    assert result["spmv_pulse_5ms"].count == 100
    assert result["spmv_pulse_40ms"].verdict == "unresolved"
    assert result["spmv_pulse_200ms"].verdict == "bound only"
    # References: 122.9 W of idle and 24.8 mJ for each launch; 3.35 J and 95.3 J a pulse.
    for name, true_j in (("spmv_pulse_5ms", 335.0), ("spmv_pulse_200ms", 1906.0)):
        energy = result[name].energy
        assert energy is not None
        assert energy.energy_j > 0
        assert abs(energy.best.energy_j - true_j) <= energy.error_j


@pytest.mark.shared_data
def test_power_alone_tells_nearly_the_same_refresh(shared_data: Path) -> None:
    trace, _ = recorded(shared_data / "traces")
    refresh = Trace(trace.time_s, trace.power_w).refresh()
    assert refresh.how == "value"
    assert refresh.period_s == pytest.approx(0.1, rel=0.02)


IDLE_W, LOAD_W = 122.0, 530.0
PULSES_S = 32.0 + 0.052 * np.arange(100)


def true_power_w(times: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    is_on = (times >= 6) & (times < 26)
    for start_s in PULSES_S:
        is_on |= (times >= start_s) & (times < start_s + 0.005)
    wander_w = np.interp(times, np.arange(0, 42, 2), rng.uniform(-60, 60, 21))
    return np.where(is_on, LOAD_W + wander_w, IDLE_W)


def synthetic() -> tuple[Trace, float]:
    """Make the trace and say what the long region truly drew."""
    rng = np.random.default_rng(20)
    step_s = 0.001
    fine_s = np.arange(0, 40, step_s)
    fine_w = true_power_w(fine_s, rng)
    total_j = np.concatenate(([0.0], np.cumsum(fine_w) * step_s))
    polls_s = np.arange(0.2, 39.9, 0.005) + rng.uniform(0, 0.001, 7940)
    update = np.floor(polls_s / 0.1).astype(int) * 100
    window_w = (total_j[update] - total_j[update - 25]) / (25 * step_s)
    trace = Trace(
        polls_s,
        np.round(window_w, 3),
        energy_j=np.floor(total_j[update] * 1e3) / 1e3,
        facts={"sensor": "nvml", "boundary": "GPU", "energy_step_j": "0.001"},
    )
    return trace, float(total_j[26_000] - total_j[6_000])


def test_a_long_region_of_the_made_up_trace_comes_back_within_a_per_cent() -> None:
    trace, true_j = synthetic()
    pulses = [Region("pulse", t, t + 0.005) for t in PULSES_S]
    result = attribute(trace, [Region("spmv", 6.0, 26.0), *pulses])
    spmv = result["spmv"]
    assert spmv.verdict == "resolved"
    for energy_j in (spmv.energy_j, spmv.energy_inner_j, spmv.energy_counter_j):
        assert energy_j == pytest.approx(true_j, rel=0.01)
    assert spmv.energy is not None
    assert abs(spmv.energy.best.energy_j - true_j) <= spmv.energy.error_j
    assert result["pulse"].verdict == "unresolved"
    assert (result["pulse"].energy_j or 0) > 0
    assert abs(result.conservation_error) <= 1e-9
