"""Processes as fibers: what a mistake in a data-flow region becomes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.compiler

# The program runs one of its cases as a launch and prints the launch's error text.
PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include "spmv_emulation.hpp"

typedef hls::stream<int> ints;

int ahead = 0, most_ahead = 0;
bool has_cleaned_up = false;

void produce(ints& out, int count) {
  for (int i = 0; i < count; ++i) {
    out.write(i);
    most_ahead = ++ahead > most_ahead ? ahead : most_ahead;
  }
}

void consume(ints& in, int count) {
  for (int i = 0; i < count; ++i) {
    if (in.read() != i) throw std::runtime_error("out of order");
    --ahead;
  }
}

void relay(ints& in, ints& out) { for (;;) out.write(in.read()); }

void two_at_once(ints& one, ints& other, int count) {
  for (int i = 0; i < count; ++i) one.write(i);
  for (int i = 0; i < count; ++i) other.write(i);
}

void in_turn(ints& one, ints& other, int count) {
  for (int i = 0; i < count; ++i) one.read(), other.read();
}

struct CleansUp {
  ~CleansUp() { has_cleaned_up = true; }
};

void throw_after(ints& in, int count) {
  const CleansUp cleans_up;
  consume(in, count);
  throw std::out_of_range("row 7 is no row");
}

void peek(ints& in) {
  if (in.empty() || !in.full()) throw std::runtime_error("two tokens of two");
  in.read();
  if (in.empty() || in.full()) throw std::runtime_error("one token of two");
  int token = 0;
  in.read(token);
  if (!in.empty() || in.full() || token != 1) throw std::runtime_error("no token");
}

// 16 MiB on a fiber's stack, touched from end to end.
void use_memory_on_chip(ints& out) {
  volatile char memory[16 << 20];
  for (unsigned i = 0; i < sizeof memory; i += 4096) memory[i] = 1;
  out.write(memory[0] - 1);
}

void run_of(int count, int depth) {
  SPMV_DATAFLOW(region)
  SPMV_STREAM(int, tokens, depth);
  SPMV_PROCESS(produce, tokens, count);
  SPMV_PROCESS(consume, tokens, count);
  SPMV_JOIN();
}

void call_inner(ints& in) {
  run_of(100, 3);
  consume(in, 5);
}

const std::map<std::string, void (*)()> cases = {
    {"flow", [] { run_of(1000, 5); }},
    {"depth of one", [] { run_of(1000, 1); }},
    {"no depth", [] { run_of(1000, 0); }},
    {"no process", [] { SPMV_DATAFLOW(region) SPMV_STREAM(int, tokens, 2); SPMV_JOIN(); }},
    {"twice", [] { run_of(10, 2); run_of(10, 2); }},
    {"empty at the end", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(produce, tokens, 9);
      SPMV_PROCESS(consume, tokens, 10);
      SPMV_JOIN();
    }},
    {"full at the end", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(produce, tokens, 20);
      SPMV_PROCESS(consume, tokens, 10);
      SPMV_JOIN();
    }},
    {"leftover", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_STREAM(int, others, 4);
      SPMV_PROCESS(produce, tokens, 13);
      SPMV_PROCESS(consume, tokens, 10);
      SPMV_JOIN();
    }},
    {"too shallow", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, one, 8);
      SPMV_STREAM(int, other, 8);
      SPMV_PROCESS(two_at_once, one, other, 10);
      SPMV_PROCESS(in_turn, one, other, 10);
      SPMV_JOIN();
    }},
    {"deep enough", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, one, 9);
      SPMV_STREAM(int, other, 1);
      SPMV_PROCESS(two_at_once, one, other, 10);
      SPMV_PROCESS(in_turn, one, other, 10);
      SPMV_JOIN();
    }},
    {"circle", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, there, 2);
      SPMV_STREAM(int, back, 2);
      SPMV_PROCESS(relay, there, back);
      SPMV_PROCESS(relay, back, there);
      SPMV_JOIN();
    }},
    {"two readers", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(consume, tokens, 5);
      SPMV_PROCESS(consume, tokens, 5);
      SPMV_PROCESS(produce, tokens, 10);
      SPMV_JOIN();
    }},
    {"two writers", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(produce, tokens, 5);
      SPMV_PROCESS(produce, tokens, 5);
      SPMV_PROCESS(consume, tokens, 10);
      SPMV_JOIN();
    }},
    {"exception", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(produce, tokens, 10);
      SPMV_PROCESS(throw_after, tokens, 7);
      SPMV_JOIN();
    }},
    {"after an exception", [] {
      try { cases.at("exception")(); } catch (const std::out_of_range&) { run_of(1000, 5); }
    }},
    {"no region", [] { hls::stream<int> tokens("tokens"); }},
    {"outside a process", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      tokens.read();
    }},
    {"empty and full", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 2);
      SPMV_PROCESS(produce, tokens, 2);
      SPMV_PROCESS(peek, tokens);
      SPMV_JOIN();
    }},
    {"default depth", [] {
      SPMV_DATAFLOW(region)
      ints tokens("tokens");
      SPMV_PROCESS(produce, tokens, 3);
      SPMV_JOIN();
    }},
    {"large memory", [] {
      SPMV_DATAFLOW(region)
      SPMV_STREAM(int, tokens, 4);
      SPMV_PROCESS(use_memory_on_chip, tokens);
      SPMV_PROCESS(consume, tokens, 1);
      SPMV_JOIN();
    }},
    {"inner region", [] {
      SPMV_DATAFLOW(outer)
      SPMV_STREAM(int, outer_tokens, 2);
      SPMV_PROCESS(produce, outer_tokens, 5);
      SPMV_PROCESS(call_inner, outer_tokens);
      SPMV_JOIN();
    }},
    {"foreign pointer", [] { int word = 0; spmv::load(&word, 0); }},
};

int main(int, char** argv) {
  char error[1000] = "";
  spmv_fpga_launch launch = {
      SPMV_FPGA_LAUNCH_VERSION, "unit", 0, nullptr, nullptr, error, sizeof error, nullptr, 0};
  spmv::emulation::run_launch(launch, cases.at(argv[1]));
  std::printf("%s\nmost ahead %d\n%s", error, most_ahead, has_cleaned_up ? "cleaned up\n" : "");
}
"""


@pytest.fixture(scope="module")
def program(compile_program: Callable[[str], Path]) -> Path:
    return compile_program(PROGRAM)


def run(program: Path, case: str) -> list[str]:
    """Return the lines that a case prints, the error text first."""
    done = subprocess.run([program, case], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    "case",
    [
        "flow", "depth of one", "no process", "twice", "deep enough", "large memory",
        "after an exception",
    ],
)  # fmt: skip
def test_a_sound_region_ends_without_an_error(program: Path, case: str) -> None:
    assert run(program, case)[0] == ""


def test_a_region_may_run_within_a_process_of_another(program: Path) -> None:
    assert run(program, "inner region")[0] == ""


@pytest.mark.parametrize(("case", "depth"), [("flow", 5), ("depth of one", 1)])
def test_a_writer_runs_as_far_ahead_as_the_stream_is_deep(
    program: Path, case: str, depth: int
) -> None:
    assert run(program, case)[1] == f"most ahead {depth}"


@pytest.mark.parametrize(
    ("case", "error"),
    [
        (
            "empty at the end",
            "deadlock in region region: consume waits for data in the empty stream tokens "
            "(depth 4)",
        ),
        (
            "full at the end",
            "deadlock in region region: produce waits for room in the full stream tokens "
            "(depth 4)",
        ),
        (
            "too shallow",
            "deadlock in region region: two_at_once waits for room in the full stream one "
            "(depth 8), in_turn waits for data in the empty stream other (depth 8)",
        ),
        (
            "circle",
            "deadlock in region region: relay waits for data in the empty stream there "
            "(depth 2), relay waits for data in the empty stream back (depth 2)",
        ),
        (
            "default depth",
            "deadlock in region region: produce waits for room in the full stream tokens "
            "(depth 2)",
        ),
    ],
)
def test_a_deadlock_names_every_process_its_stream_and_the_depth(
    program: Path, case: str, error: str
) -> None:
    assert run(program, case)[0] == error


@pytest.mark.parametrize(
    ("case", "error"),
    [
        (
            "leftover",
            "stream tokens of region region still holds 3 tokens that nobody reads",
        ),
        ("two readers", "stream tokens has two processes at one end"),
        ("two writers", "stream tokens has two processes at one end"),
        ("exception", "row 7 is no row"),
        ("no depth", "stream tokens has no depth"),
        ("no region", "stream tokens stands outside a data-flow region"),
        ("outside a process", "stream tokens is used outside a process"),
        ("foreign pointer", "read through a pointer that is no argument of the kernel"),
    ],
)
def test_a_mistake_is_told_in_one_sentence(program: Path, case: str, error: str) -> None:
    assert run(program, case)[0] == error


def test_a_process_that_throws_cleans_up_behind_itself(program: Path) -> None:
    assert run(program, "exception")[2] == "cleaned up"


def test_a_stream_knows_when_it_is_empty_and_when_full(program: Path) -> None:
    assert run(program, "empty and full")[0] == ""
