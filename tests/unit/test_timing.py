"""Launches in one window, on a clock that moves only while products are made."""

from __future__ import annotations

import numpy as np
import pytest

from spmv_fpga.timing import launch_for, measure_times


class Processor:
    """Makes products that take what `product_s(number)` says, and notes each call."""

    def __init__(self, product_s=lambda number: 0.25, overhead_s: float = 0.0) -> None:
        self.product_s, self.overhead_s = product_s, overhead_s
        self.now_s = 500.0
        self.calls: list[int] = []

    def clock(self) -> float:
        return self.now_s

    def products(self, repeat: int) -> np.ndarray:
        first = sum(self.calls)
        self.calls.append(repeat)
        times = np.array([self.product_s(first + i) for i in range(repeat)])
        self.now_s += self.overhead_s + times.sum()
        return times


def measured(processor: Processor, *, warmup_s: float = 0.0, measure_s: float = 0.0, **options):
    return measure_times(
        processor.products,
        warmup_s=warmup_s,
        measure_s=measure_s,
        clock=processor.clock,
        **options,
    )


def test_launches_are_made_in_batches_of_about_a_second() -> None:
    processor = Processor(lambda number: 0.125)
    times = launch_for(processor.products, 4.0, processor.clock)
    assert times.tolist() == [0.125] * 32
    assert max(processor.calls) == 8
    assert processor.now_s == 504.0


def test_no_time_at_all_still_makes_the_least_number_of_launches() -> None:
    processor = Processor()
    assert len(launch_for(processor.products, 0.0, processor.clock, 7)) == 7


def test_launches_that_take_no_time_on_the_clock_go_one_by_one() -> None:
    processor = Processor(lambda number: 0.0)
    assert launch_for(processor.products, 0.0, processor.clock, 3).tolist() == [0.0] * 3
    assert processor.calls == [1, 1, 1]


def test_a_number_of_launches_takes_the_place_of_a_duration() -> None:
    processor = Processor()
    timing = measured(processor, measure_s=100.0, repeat=5)
    assert timing.time_s.tolist() == [0.25] * 5
    assert processor.calls == [5]


def test_the_window_spans_the_measurement_and_not_the_warm_up() -> None:
    processor = Processor(overhead_s=0.5)
    timing = measured(processor, warmup_s=0.5, repeat=4)
    assert timing.warmup_s == 0.75
    assert (timing.start_s, timing.end_s) == (500.75, 502.25)
    assert timing.time_s.sum() == 1.0


def test_a_steady_warm_up_ends_early() -> None:
    processor = Processor(lambda number: 0.25 if number < 40 else 0.125)
    timing = measured(processor, warmup_s=120.0, measure_s=10.0)
    assert 30.0 <= timing.warmup_s < 60.0
    assert set(timing.time_s) == {0.125}
    assert timing.unsteady == ()


def test_a_change_within_the_measurement_is_told_with_its_size() -> None:
    processor = Processor(lambda number: 0.5 if number < 30 else 0.375)
    timing = measured(processor, repeat=60)
    [reason] = timing.unsteady
    assert reason.startswith("the time of a product changed by 25.0 % within the measurement")
    assert reason.endswith("take a longer one")


@pytest.mark.parametrize("repeat", [1, 6])
def test_few_launches_cannot_tell_whether_they_are_steady(repeat: int) -> None:
    processor = Processor(lambda number: 1.0 + number)
    assert measured(processor, repeat=repeat).unsteady == ()
