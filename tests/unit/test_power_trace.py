"""Trace files and the measured refresh."""

from __future__ import annotations

import gzip
import math
import re
from pathlib import Path

import numpy as np
import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power import Trace, read_trace, write_trace

POLL_S = 0.02


def held(period_s: float, end_s: float = 30.0, *, levels: int = 1000, seed: int = 1) -> Trace:
    """Make a trace of a sensor that holds each of its values for a period."""
    rng = np.random.default_rng(seed)
    times = np.arange(0, end_s, POLL_S)
    number = np.floor(times / period_s + 1e-9).astype(int)
    return Trace(times, 20.0 + rng.integers(0, levels, number.max() + 1)[number] / 100)


def test_a_written_trace_reads_back_equal(tmp_path: Path) -> None:
    facts = {"sensor": "xrt", "boundary": "card", "refresh_s": "1.0"}
    trace = Trace([0.1, 0.2, 1 / 3], [17.4, 20.5, 20.5], [0.0, np.nan, 0.3], [0, 2, 4], facts)
    write_trace(tmp_path / "trace.csv", trace)
    again = read_trace(tmp_path / "trace.csv")
    for name in ("time_s", "power_w", "fetch_s", "energy_j"):
        np.testing.assert_array_equal(getattr(again, name), getattr(trace, name))
    assert again.facts == facts


def test_the_file_is_facts_then_a_header_then_samples(tmp_path: Path) -> None:
    trace = Trace([1.0, 2.5], [10.0, 20.0], facts={"sensor": "nvml", "note": "two\nlines"})
    write_trace(tmp_path / "trace.csv", trace)
    assert (tmp_path / "trace.csv").read_text() == (
        "# sensor: nvml\n# note: two lines\ntime_s,power_w\n1.0,10.0\n2.5,20.0\n"
    )
    assert [p.name for p in tmp_path.iterdir()] == ["trace.csv"]


def test_a_compressed_trace_is_read_with_columns_in_any_order(tmp_path: Path) -> None:
    text = "# a: b: c\npower_w,other,time_s\n1,9,0\n\n3,9,1\n"
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(text.encode()))
    trace = read_trace(tmp_path / "t.csv.gz")
    assert trace.power_w.tolist() == [1.0, 3.0]
    assert trace.facts == {"a": "b: c"}
    assert trace.fetch_s is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no header"),
        ("# only: facts\n", "no header"),
        ("0.0,1.0\n", "line 1: the header is '0.0,1.0'"),
        ("time_s,watts\n", "must name power_w once"),
        ("time_s,power_w\n0,1\n1\n", "line 3: 1 fields; the header names 2"),
        ("time_s,power_w\n0,1\n1,N/A\n", "line 3: power_w is 'N/A'"),
        ("time_s,power_w\n0,1\n1,nan\n", "line 3: power_w is 'nan'"),
        ("# x: y\ntime_s,power_w\n5,1\n4,1\n", "line 4: time_s goes back to 4.0"),
        ("time_s,power_w\n0,1\n", "holds 1 sample"),
        ("time_s,power_w\n1,1\n1,1\n", "all samples have the same time"),
    ],
)
def test_a_malformed_trace_is_refused_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(SensorError, match=r"bad\.csv") as caught:
        read_trace(path)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(b"time_s,power_w\n0,1\n1,1\n", mtime=0)[:-9], "damaged or cut short"),
        (b"\xff\xfe\x00", "no text in UTF-8"),
        (None, "No such file"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "bad.csv").write_bytes(content)
    with pytest.raises(SensorError, match=message):
        read_trace(tmp_path / "bad.csv")


def test_a_trace_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    with pytest.raises(SensorError, match="absent"):
        write_trace(tmp_path / "absent" / "t.csv", Trace([0, 1], [1, 1]))


def test_the_arrays_are_copies_and_read_only() -> None:
    power_w = np.array([1.0, 2.0])
    trace = Trace([0, 1], power_w)
    power_w[0] = 9.0
    assert trace.power_w[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        trace.power_w[0] = 9.0


def test_columns_of_unlike_length_are_refused() -> None:
    with pytest.raises(SensorError, match="energy_j holds 1 values for 2 samples"):
        Trace([0, 1], [1, 1], energy_j=[0])


def test_a_fact_that_is_no_number_is_refused() -> None:
    with pytest.raises(SensorError, match="refresh_s is 'soon'"):
        Trace([0, 1], [1, 1], facts={"refresh_s": "soon"}).refresh()


@pytest.mark.parametrize("period_s", [0.04, 0.1, 0.12, 1.0])
def test_the_period_is_measured_from_changes_of_value(period_s: float) -> None:
    refresh = held(period_s).refresh()
    assert refresh.how == "value"
    assert refresh.period_s == pytest.approx(period_s, rel=0.02)


def test_values_that_repeat_do_not_stretch_the_period() -> None:
    refresh = held(0.1, levels=2).refresh()  # every other update repeats the value
    assert refresh.num_updates < 200
    assert refresh.period_s == pytest.approx(0.1, rel=0.05)


def test_time_stamps_tell_updates_of_equal_value() -> None:
    times = np.arange(0, 10, POLL_S)
    trace = Trace(times, np.full(len(times), 17.4), fetch_s=np.floor(times + 1e-9))
    assert trace.refresh().how == "fetch"
    assert trace.refresh().period_s == pytest.approx(1.0)


def test_stamps_of_the_readers_own_clock_tell_nothing() -> None:
    slow = held(0.12)
    trace = Trace(slow.time_s, slow.power_w, fetch_s=slow.time_s - 0.001)
    assert trace.refresh().how == "value"
    assert trace.refresh().period_s == pytest.approx(0.12, rel=0.02)


def test_a_counter_tells_before_the_power_does() -> None:
    times = np.arange(0, 10, POLL_S)
    trace = Trace(times, np.full(len(times), 5.0), energy_j=np.floor(times / 0.1 + 1e-9))
    assert trace.refresh().how == "counter"
    assert trace.refresh().period_s == pytest.approx(0.1, rel=0.02)


def test_a_sensor_faster_than_the_polling_is_as_fast_as_the_polling() -> None:
    refresh = held(0.001).refresh()
    assert refresh.period_s == pytest.approx(POLL_S, rel=0.01)


def test_a_power_that_hardly_changes_leaves_the_declared_period() -> None:
    times = np.arange(0, 10, POLL_S)
    power_w = np.where(times < 5, 17.4, 20.5)
    assert Trace(times, power_w, facts={"refresh_s": "1"}).refresh().how == "declared"
    assert Trace(times, power_w, facts={"refresh_s": "1"}).refresh().period_s == 1.0
    assert Trace(times, power_w).refresh().how == "sampling"


def test_a_fact_that_is_no_utf_8_does_not_lose_the_trace(tmp_path: Path) -> None:
    trace = Trace([0.0, 1.0], [1.0, 2.0], facts={"replayed_file": "\udcff.csv"})
    write_trace(tmp_path / "t.csv", trace)
    assert read_trace(tmp_path / "t.csv").facts["replayed_file"] == r"\udcff.csv"


def test_a_fact_that_must_be_a_number_is_checked_when_the_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("# power_step_w: -1\ntime_s,power_w\n0,1\n1,1\n")
    with pytest.raises(SensorError, match=r"t\.csv: the fact power_step_w is '-1'"):
        read_trace(tmp_path / "t.csv")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"time_s": [0, 1e13], "power_w": [1, 1]}, "time_s is 1e"),
        ({"time_s": [0, 1], "power_w": [-1e13, 1]}, "power_w is -1e"),
        ({"time_s": [0, 1], "power_w": [1, 1], "energy_j": [0, math.inf]}, "energy_j is inf"),
        ({"time_s": [0, 1], "power_w": [1, 1], "fetch_s": [math.nan, 2e12]}, "fetch_s is 2e"),
    ],
)
def test_figures_whose_sums_would_overflow_are_refused(columns: dict, message: str) -> None:
    with pytest.raises(SensorError, match=re.escape(message)):
        Trace(**columns)
