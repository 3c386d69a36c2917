"""The clock of an emulated kernel: cycles that can be told by hand, and planted faults."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from spmv_fpga.runtime.cycles import UnitCycles

pytestmark = pytest.mark.compiler

# The program runs one of its cases as a launch and prints error text and report.
PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include "spmv_emulation.hpp"

typedef hls::stream<int> ints;
typedef hls::vector<unsigned, 16> word_t;

alignas(64) word_t in[4096], out[4096];

void produce(ints& to, int count) {
  for (int i = 0; i < count; ++i) to.write(i);
}

void produce_late(ints& to, int count, unsigned latency) {
  spmv::result_latency(latency);
  produce(to, count);
}

void consume(ints& from, int count) {
  for (int i = 0; i < count; ++i) from.read();
}

void consume_slowly(ints& from, int count) {
  for (int i = 0; i < count; ++i) {
    spmv::tick(3);
    from.read();
  }
}

void consume_twice_a_turn(ints& from, int count) {
  for (int i = 0; i < count; i += 2) {
    spmv::tick();
    from.read();
    from.read();
  }
}

void tick_alone(int count) {
  for (int i = 0; i < count; ++i) spmv::tick();
}

void two_loops(ints& to, int count) {
  spmv::result_latency(10);
  produce(to, count);
  spmv::drain();
  produce(to, count);
}

void accumulate(int count, unsigned accumulators) {
  SPMV_ACCUMULATOR(sums, accumulators, 8);
  for (int i = 0; i < count; ++i) {
    spmv::tick();
    SPMV_READS(sums, i % accumulators);
    SPMV_WRITES(sums, i % accumulators);
  }
}

void read_in_order(int count) {
  for (int i = 0; i < count; ++i) spmv::load(in, i);
}

void read_every_other(int count) {
  for (int i = 0; i < count; ++i) spmv::load(in, 2 * i);
}

void write_in_order(int count) {
  for (int i = 0; i < count; ++i) spmv::store(out, i, in[0]);
}

// Data in bursts of 16, room for them, and a reader that needs the first of a second stream.
void fork(ints& one, ints& other, int count) {
  for (int i = 0; i < count; ++i) {
    one.write(i);
    other.write(i);
  }
}

void delay(ints& from, ints& to, int count) {
  spmv::result_latency(40);
  for (int i = 0; i < count; ++i) to.write(from.read());
}

void join(ints& one, ints& other, int count) {
  for (int i = 0; i < count; ++i) {
    other.read();
    one.read();
  }
}

void latency_of_one_loop() {
  for (int i = 0; i < 4; ++i) spmv::load(in, i);
  spmv::drain();
  for (int round = 0; round < 9; ++round) {
    tick_alone(5);
    spmv::drain();
  }
  tick_alone(5);
}

void writes_before_reads() {
  for (int i = 0; i < 10; ++i) spmv::store(out, i, in[0]);
  spmv::drain();
  for (int i = 0; i < 10; ++i) spmv::load(in, i);
}

void say(const char*) {}

// Reads, and now and then writes into a full stream: the iterations behind stand still too.
void write_every_eighth(ints& from, ints& to, int count) {
  SPMV_ACCUMULATOR(sums, 8, 8);
  for (int i = 0; i < count; ++i) {
    const int token = from.read();
    SPMV_READS(sums, i % 8);
    SPMV_WRITES(sums, i % 8);
    if (i % 8 == 7) to.write(token);
  }
}

void consume_very_slowly(ints& from, int count) {
  for (int i = 0; i < count; ++i) {
    spmv::tick(20);
    from.read();
  }
}

template <typename Consumer>
void pair(int depth, int count, Consumer consumer) {
  SPMV_DATAFLOW(region)
  SPMV_STREAM(int, tokens, depth);
  SPMV_PROCESS(produce, tokens, count);
  SPMV_PROCESS(consumer, tokens, count);
  SPMV_JOIN();
}

void pair_in_reverse(int depth, int count) {
  SPMV_DATAFLOW(region)
  SPMV_STREAM(int, tokens, depth);
  SPMV_PROCESS(consume_slowly, tokens, count);
  SPMV_PROCESS(produce, tokens, count);
  SPMV_JOIN();
}

void diamond(int depth) {
  SPMV_DATAFLOW(region)
  SPMV_STREAM(int, one, depth);
  SPMV_STREAM(int, other, 2);
  SPMV_STREAM(int, delayed, 2);
  SPMV_PROCESS(fork, one, other, 1000);
  SPMV_PROCESS(delay, other, delayed, 1000);
  SPMV_PROCESS(join, one, delayed, 1000);
  SPMV_JOIN();
}

#define ALONE(call) [] { \
  SPMV_DATAFLOW(region) \
  spmv_region.spawn("alone", "", [] { call; }); \
  SPMV_JOIN(); \
}

const std::map<std::string, void (*)()> cases = {
    {"one a cycle", [] { pair(2, 100, consume); }},
    {"one place", [] { pair(1, 100, consume); }},
    {"slow reader", [] { pair(8, 100, consume_slowly); }},
    {"slow reader, declared first", [] { pair_in_reverse(8, 100); }},
    {"two reads an iteration", [] { pair(8, 100, consume_twice_a_turn); }},
    {"late results", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(produce_late, tokens, 100, 30);
      SPMV_PROCESS(consume, tokens, 100);
      SPMV_JOIN();
    }},
    {"two loops", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(two_loops, tokens, 100);
      SPMV_PROCESS(consume, tokens, 200);
      SPMV_JOIN();
    }},
    {"no stream", ALONE(tick_alone(123))},
    {"twice the region", [] { for (int i = 0; i < 2; ++i) pair(2, 100, consume); }},
    {"region in a process", ALONE(tick_alone(50); pair(2, 100, consume); tick_alone(50))},
    {"accumulators far apart", ALONE(accumulate(100, 8))},
    {"accumulators too near", ALONE(accumulate(100, 4))},
    {"diamond, deep", [] { diamond(64); }},
    {"diamond, shallow", [] { diamond(10); }},
    {"deadlock", [] { diamond(0 + 1); }},
    {"latency of one loop", ALONE(latency_of_one_loop())},
    {"writes before reads", ALONE(writes_before_reads())},
    {"two processes at a port", [] {
      SPMV_DATAFLOW(region)
      spmv_region.spawn("one", "", [] { read_in_order(9); });
      spmv_region.spawn("other", "", [] { read_in_order(9); });
      SPMV_JOIN();
    }},
    {"inner region at an outer stream", [] {
      SPMV_DATAFLOW(outer)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(produce, tokens, 9);
      spmv_region.spawn("caller", "", [&] {
        SPMV_DATAFLOW(inner)
        SPMV_PROCESS(consume, tokens, 9);
        SPMV_JOIN();
      });
      SPMV_JOIN();
    }},
    {"element that is not there", ALONE(SPMV_ACCUMULATOR(sums, 4, 8); SPMV_WRITES(sums, 4))},
    {"text for an argument", [] {
      SPMV_DATAFLOW(region)
      SPMV_PROCESS(say, "a \\ \"b\"");
      SPMV_PROCESS(say, "c");
      SPMV_JOIN();
    }},
    {"stopped by a full stream", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 2);
      SPMV_STREAM(int, eighths, 2);
      SPMV_PROCESS(produce, tokens, 800);
      SPMV_PROCESS(write_every_eighth, tokens, eighths, 800);
      SPMV_PROCESS(consume_very_slowly, eighths, 100);
      SPMV_JOIN();
    }},
    {"reads in order", ALONE(read_in_order(1000))},
    {"reads out of order", ALONE(read_every_other(1000))},
    {"writes", ALONE(write_in_order(1000))},
};

int main(int, char** argv) {
  static char error[1000] = "", report[64 << 10] = "";
  const spmv_fpga_buffer buffers[] = {
      {"in", in, sizeof in, 1, static_cast<unsigned>(std::atoi(argv[2])), 16},
      {"out", out, sizeof out, 1, static_cast<unsigned>(std::atoi(argv[2])), 4}};
  const spmv_fpga_memory memory = {32.0, 4.0, 64, 64};
  spmv_fpga_launch launch = {
      SPMV_FPGA_LAUNCH_VERSION, "unit", 2, buffers, &memory,
      error, sizeof error, report, sizeof report};
  spmv::emulation::run_launch(launch, cases.at(argv[1]));
  std::printf("%s\n%s\n", error, report);
}
"""

LATENCY = 64
BYTES_PER_CYCLE = 32.0


@pytest.fixture(scope="module")
def time(compile_program: Callable[[str], Path]) -> Callable[..., UnitCycles]:
    """Run a case, whose memory gives half a word a cycle to each of its sharers."""
    path = compile_program(PROGRAM)

    def run(case: str, sharers: int = 1) -> UnitCycles:
        done = subprocess.run(
            [path, case, str(sharers)], capture_output=True, text=True, check=True
        )
        error, report = done.stdout.splitlines()
        if error:
            raise AssertionError(error)
        return UnitCycles.of("unit", json.loads(report), BYTES_PER_CYCLE)

    return run


@pytest.mark.parametrize(
    ("case", "cycles"),
    [
        ("one a cycle", 100 + 1),  # a token is taken the cycle after its writing
        ("one place", 2 * 100),  # a slot is free the cycle after its token was taken
        ("slow reader", 3 * 100 + 1),
        ("two reads an iteration", 100 + 1),  # one port: its second read is a cycle later
        ("late results", 30 + 100 + 1),
        ("two loops", 2 * 100 + 2 * 10 + 1),
        ("no stream", 123),
        ("twice the region", 2 * (100 + 1)),
        ("region in a process", 50 + 100 + 1 + 50),
        ("latency of one loop", 3 * 2 + 1 + 64 + 10 * 5),
        ("writes before reads", 2 * (9 * 2 + 1 + 64) + 64),
    ],
)
def test_cycles_are_those_that_can_be_counted_by_hand(
    time: Callable[..., UnitCycles], case: str, cycles: int
) -> None:
    assert time(case).cycles == cycles


def test_who_waits_and_for_what_is_told(time: Callable[..., UnitCycles]) -> None:
    found = time("slow reader")

    producer, consumer = found.processes
    [stream] = found.streams
    assert (producer.name, consumer.name) == ("produce", "consumer")
    assert (stream.writer, stream.reader, stream.depth) == ("produce", "consumer", 8)
    assert (stream.tokens, stream.most) == (100, 8)
    assert stream.room == producer.room == pytest.approx(2 * 100 - 3 * 8, abs=3)
    assert producer.busy == pytest.approx(100, abs=1)
    assert stream.data == consumer.data == 1  # the first token
    assert found.bound == "work"
    assert found.binding == consumer


def test_the_order_of_the_processes_does_not_matter(time: Callable[..., UnitCycles]) -> None:
    one, other = time("slow reader"), time("slow reader, declared first")

    assert one.cycles == other.cycles
    assert one.streams[0].room == other.streams[0].room
    assert sorted(p.room for p in one.processes) == sorted(p.room for p in other.processes)


@pytest.mark.parametrize(("case", "most"), [("one a cycle", 2), ("one place", 1)])
def test_the_most_that_a_stream_held(
    time: Callable[..., UnitCycles], case: str, most: int
) -> None:
    assert time(case).streams[0].most == most


def test_a_stream_that_is_too_shallow_costs_cycles_and_is_found(
    time: Callable[..., UnitCycles],
) -> None:
    deep, shallow = time("diamond, deep"), time("diamond, shallow")

    # The other path takes 43 cycles; ten tokens in 43 cycles is all that ten places allow.
    assert deep.cycles == pytest.approx(1000 + 43, abs=3)
    assert shallow.cycles == pytest.approx(1000 * 43 / 10, rel=0.05)
    assert deep.streams[0].most == pytest.approx(43, abs=2)
    assert shallow.streams[0].most == 10
    assert shallow.streams[0].room > 0.7 * shallow.cycles
    assert deep.streams[0].room == 0


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("two processes at a port", "argument in is used by two processes"),
        (
            "inner region at an outer stream",
            "stream tokens is used in a region within its own",
        ),
        (
            "element that is not there",
            "accumulator sums has 4 elements, and element 4 is used",
        ),
    ],
)
def test_what_would_have_no_time_of_its_own_is_refused(
    time: Callable[..., UnitCycles], case: str, error: str
) -> None:
    with pytest.raises(AssertionError, match=error):
        time(case)


def test_names_of_processes_may_hold_quotes(time: Callable[..., UnitCycles]) -> None:
    assert [process.name for process in time("text for an argument").processes] == [
        'say("a \\\\ \\"b\\"")',
        'say("c")',
    ]


def test_accumulators_that_are_far_enough_apart_are_no_hazard(
    time: Callable[..., UnitCycles],
) -> None:
    found = time("accumulators far apart")
    assert (found.cycles, found.processes[0].hazards) == (100, 0)


def test_an_accumulator_touched_too_early_is_a_hazard(time: Callable[..., UnitCycles]) -> None:
    found = time("accumulators too near")

    # 4 accumulators return after 4 iterations; 8 are needed, so each round of 4 takes 4 more.
    [process] = found.processes
    assert process.hazards == 24
    assert process.reuse == 24 * 4
    assert found.cycles == 100 + 24 * 4
    assert found.bound == "reuse"


def test_iterations_behind_one_that_waits_keep_their_distance(
    time: Callable[..., UnitCycles],
) -> None:
    found = time("stopped by a full stream")
    _, middle, last = found.processes
    assert found.cycles == 8 + 1 + 20 * 100  # the eighth token is there in cycle 9
    # The last three words find room at once.
    assert middle.room == pytest.approx(12 * (100 - 3), abs=20)
    assert (middle.hazards, last.data) == (0, 9)
    assert middle.busy == pytest.approx(800, abs=8)


def test_words_come_at_the_rate_of_the_channel(time: Callable[..., UnitCycles]) -> None:
    found = time("reads in order")

    [port, unused] = found.ports
    assert found.cycles == pytest.approx(LATENCY + 2 * 1000, abs=LATENCY + 3)
    assert (port.accesses, port.bytes, port.bursts) == (1000, 64_000, 16)
    assert (unused.accesses, unused.bytes) == (0, 0)
    assert found.bound == "memory"
    assert found.processes[0].memory == port.waited == pytest.approx(1000, abs=3)


# A write is over when the memory has answered it.
@pytest.mark.parametrize(
    ("case", "latency"), [("reads in order", LATENCY), ("writes", 2 * LATENCY)]
)
def test_a_bank_that_two_share_gives_each_half(
    time: Callable[..., UnitCycles], case: str, latency: int
) -> None:
    alone, shared = time(case), time(case, sharers=2)
    assert (shared.cycles - latency) / (alone.cycles - latency) == pytest.approx(2, rel=0.01)


def test_words_out_of_order_are_bursts_of_one(time: Callable[..., UnitCycles]) -> None:
    found = time("reads out of order")

    # 16 are in flight at a time, and each takes the latency.
    assert found.ports[0].bursts == 1000
    assert found.cycles == pytest.approx(max(1000 * LATENCY / 16, 1000 * (2 + 4)), rel=0.03)


# --- Kernels -----------------------------------------------------------------------------


def matrix(n: int = 300, density: float = 0.2) -> csr_array:
    rng = np.random.default_rng(1)
    return csr_array(random_array((n, n), density=density, rng=rng, dtype=np.float32))


CASES = [("block", "block", 4), ("block", "block", 8), ("block", "block", 16),
         ("block", "block", 32), ("scalar", "slice", 4), ("scalar", "slice", 16),
         ("scalar", "slice", 32)]  # fmt: skip
all_kernels = pytest.mark.parametrize(("kernel", "parameter", "value"), CASES)


@all_kernels
def test_no_kernel_touches_an_accumulator_too_early(
    compiled: Callable[..., Any], convert: Callable[..., Any], kernel: str, parameter: str,
    value: int,
) -> None:  # fmt: skip
    fmt = convert(kernel, matrix(), **{parameter: value})
    found = compiled(kernel, **{parameter: value}).time(fmt, np.ones(300))
    assert sum(process.hazards for process in found.processes) == 0


@all_kernels
def test_a_kernel_takes_as_many_cycles_as_it_has_words_or_slots(
    compiled: Callable[..., Any], convert: Callable[..., Any], kernel: str, parameter: str,
    value: int,
) -> None:  # fmt: skip
    """Beside a memory as fast as the port: block takes a word a cycle, scalar a slot."""
    fmt = convert(kernel, matrix(2000, 0.05), **{parameter: value})
    found = compiled(kernel, **{parameter: value}).time(fmt, np.ones(2000))
    steps = fmt.num_words if kernel == "block" else fmt.num_stored
    assert found.cycles == pytest.approx(steps, rel=0.01)
    assert found.cycles >= steps


@all_kernels
def test_the_same_launch_takes_the_same_cycles_and_twice_takes_twice(
    compiled: Callable[..., Any], convert: Callable[..., Any], kernel: str, parameter: str,
    value: int,
) -> None:  # fmt: skip
    fmt, library = (
        convert(kernel, matrix(), **{parameter: value}),
        compiled(kernel, **{parameter: value}),
    )
    slow = {"bytes_per_cycle": 41.7, "latency_cycles": 64, "setup_cycles": 0.3}
    once, again = (library.time(fmt, np.ones(300), **slow) for _ in range(2))
    twice = library.time(fmt, np.ones(300), iterations=2, **slow)
    assert once == again
    assert twice.cycles == pytest.approx(2 * once.cycles, rel=0.02)


def test_a_channel_of_half_the_words_takes_twice_the_cycles(
    compiled: Callable[..., Any], convert: Callable[..., Any]
) -> None:
    fmt = convert("block", matrix(2000, 0.05), block=16)
    kernel = compiled("block", block=16)
    whole = kernel.time(fmt, np.ones(2000))
    assert kernel.time(fmt, np.ones(2000), sharers=2).cycles == pytest.approx(
        2 * whole.cycles, rel=0.02
    )
    half = kernel.time(fmt, np.ones(2000), bytes_per_cycle=32.0)
    assert half.cycles == pytest.approx(2 * whole.cycles, rel=0.02)
    assert half.bound == "memory"


def test_bytes_and_accesses_are_those_of_the_format(
    compiled: Callable[..., Any], convert: Callable[..., Any]
) -> None:
    fmt = convert("scalar", matrix(), slice=16)
    found = compiled("scalar", slice=16).time(fmt, np.ones(300))
    traffic = {port.name: (port.bytes, port.accesses) for port in found.ports}
    assert traffic == {
        "matrix": (fmt.bytes, fmt.num_words),
        "x": (19 * 64, 19),
        "y": (fmt.num_y * 4, fmt.num_y // 16),
    }


def test_a_launch_without_a_memory_is_not_timed(
    compiled: Callable[..., Any], convert: Callable[..., Any]
) -> None:
    kernel = compiled("block", block=16)
    kernel.launch(convert("block", matrix(), block=16), np.ones(300))
    assert kernel.reports[-1] == ""
