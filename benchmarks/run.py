"""Measure what the project promises of its speed, each against its limit.

    python -m benchmarks.run [--write]

A ratio compares two calls that take turns in this run, so that a machine whose speed drifts
does not decide; it is the median over the pairs. `--write` puts the table into
`benchmarks/README.md`, with the machine named.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from rich.console import Console
from rich.table import Table
from scipy.sparse import csr_array

from benchmarks import baseline, sampler, units
from spmv_fpga import BlockedEll, SellCSigma, SlicedEll, load_matrix, open_device, verify
from spmv_fpga.baselines.mkl import find_library
from spmv_fpga.boards import load_board
from spmv_fpga.codegen import render_project
from spmv_fpga.formats import SparseFormat
from spmv_fpga.measure import cpu_model
from spmv_fpga.toolchain import emulation
from spmv_fpga.version import __version__

MATRIX = "twin:TS2383"
PAIRS = 9
README = Path(__file__).with_name("README.md")
BEGIN, END = "<!-- table begins -->", "<!-- table ends -->"


@dataclass(frozen=True)
class Line:
    """One promise: what was measured, against which limit."""

    what: str
    value: float
    limit: float
    unit: str = "×"
    is_upper: bool = True

    @property
    def is_met(self) -> bool:
        """Whether the limit holds; NaN does not."""
        return self.value <= self.limit if self.is_upper else self.value >= self.limit

    def cells(self) -> tuple[str, str, str, str]:
        """Return the line as text."""
        sign = "≤" if self.is_upper else "≥"
        return (
            self.what,
            f"{self.value:.4g} {self.unit}",
            f"{sign} {self.limit:g} {self.unit}",
            "met" if self.is_met else "MISSED",
        )


@dataclass(frozen=True)
class Skipped:
    """A promise that cannot be measured here."""

    what: str
    why: str
    is_met: bool = True

    def cells(self) -> tuple[str, str, str, str]:
        """Return the note as a line of the table."""
        return (self.what, "-", "-", f"skipped: {self.why}")


def duration_s(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def ratio(call: Callable[[], object], rival: Callable[[], object]) -> float:
    """Return the median ratio of two calls that take turns, after one round of warm-up."""
    ratios = [duration_s(call) / duration_s(rival) for _ in range(PAIRS + 1)]
    return statistics.median(ratios[1:])


def memory_ratio(A: csr_array, convert: Callable[[], SparseFormat]) -> float:
    """Return a conversion's peak memory over the bytes of its input and output together."""
    input_bytes = A.data.nbytes + A.indices.nbytes + A.indptr.nbytes
    tracemalloc.start()
    fmt = convert()
    words = fmt.buffers()["matrix"]
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return (input_bytes + peak_bytes) / (input_bytes + words.nbytes)


def short_rows(num_rows: int = 2_000_000, per_row: int = 5) -> csr_array:
    """Return a matrix of many short rows at random columns."""
    rng = np.random.default_rng(1)
    cols = np.sort(rng.integers(0, num_rows, (num_rows, per_row), np.int32), axis=1).ravel()
    indptr = np.arange(0, num_rows * per_row + 1, per_row, dtype=np.int32)
    A = csr_array((rng.random(cols.size, np.float32), cols, indptr), shape=(num_rows, num_rows))
    A.sum_duplicates()
    return A


def conversions() -> list[Line]:
    """Measure conversions against SciPy's own."""
    A, B = load_matrix(MATRIX), short_rows()
    # SciPy takes only whole tiles: the same entries, the shape rounded up.
    size = -(-A.shape[0] // 16) * 16
    indptr = np.pad(A.indptr, (0, size - A.shape[0]), mode="edge")
    whole = csr_array((A.data, A.indices, indptr), shape=(size, size))

    def blocked() -> SparseFormat:
        return BlockedEll.from_csr(A, block=16)

    def sliced() -> SparseFormat:
        return SlicedEll.from_csr(A, slice_size=16)

    def bsr() -> object:
        return whole.tobsr((16, 16))

    return [
        Line(
            "BlockedEll P = 16 and its buffer ÷ SciPy tobsr",
            ratio(lambda: blocked().buffers(), bsr),
            1.6,
        ),
        Line(
            "SlicedEll L = 16 and its buffer ÷ SciPy tobsr",
            ratio(lambda: sliced().buffers(), bsr),
            2.0,
        ),
        Line(
            "SlicedEll of 2 million rows of 5 and its buffer ÷ SciPy tocsc",
            ratio(lambda: SlicedEll.from_csr(B).buffers(), B.tocsc),
            3.0,
        ),
        Line("SellCSigma ÷ SciPy tobsr", ratio(lambda: SellCSigma.from_csr(A), bsr), 2.0),
        Line("peak memory of BlockedEll ÷ input and output", memory_ratio(A, blocked), 2.5),
        Line("peak memory of SlicedEll ÷ input and output", memory_ratio(A, sliced), 2.5),
    ]


def emulated_kernels() -> list[Line]:
    """Measure how fast the kernels' own code runs on the emulated card."""
    A = load_matrix(MATRIX)
    x = np.ones(A.shape[1], np.float32)
    lines = []
    for fmt, limit_s in ((BlockedEll.from_csr(A), 0.4), (SlicedEll.from_csr(A), 3.0)):
        timed_s, untimed_s = with_and_without_clock(fmt, A, x)
        rate = fmt.num_stored / statistics.median(timed_s) / 1e6
        lines += [
            Line(
                f"emulated kernel {fmt.kernel} with its clock ({rate:.0f} M slots/s)",
                statistics.median(timed_s),
                limit_s,
                "s",
            ),
            Line(
                f"emulated kernel {fmt.kernel} ÷ the same without its clock",
                statistics.median(a / b for a, b in zip(timed_s, untimed_s, strict=True)),
                1.5,
            ),
        ]
    return lines


def with_and_without_clock(
    fmt: SparseFormat, A: csr_array, x: np.ndarray
) -> tuple[list[float], list[float]]:
    """Return the seconds of launches that take turns, with and without cycles counted."""
    project = render_project(fmt.kernel, {}, load_board("u50"))
    seconds: tuple[list[float], list[float]] = ([], [])
    with ExitStack() as stack:
        cards = [
            stack.enter_context(open_device(xclbin=emulation.build(project, is_timed=t).path))
            for t in (True, False)
        ]
        for card in cards:
            y, _ = card.spmv(fmt, x)
            verify(y, A, x)
        for _ in range(PAIRS):
            for card, times in zip(cards, seconds, strict=True):
                times.append(float(card.launch().kernel_s[0]))
    return seconds


def whole_run() -> list[Line]:
    """Measure the main job as a user starts it, with warm caches."""
    command = [sys.executable, "-m", "spmv_fpga", "run", "--matrix", MATRIX]
    command += ["--mode", "sw_emu", "--json"]
    times = []
    for _ in range(4):
        start = time.perf_counter()
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        times.append(time.perf_counter() - start)
        if not json.loads(done.stdout)["verified"]:
            raise SystemExit("the run is wrong")
    peak_bytes = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return [
        Line("spmv-fpga run, warm caches", statistics.median(times[1:]), 8.0, "s"),
        Line("largest process of that run", peak_bytes / 2**30, 1.5, "GiB"),
    ]


def sampling() -> list[Line]:
    """Measure what the power sampler costs and how well it keeps its cadence."""
    results = [sampler.sample(load, 20.0) for load in (sampler.idle, sampler.library)]
    near = min(result.near for result in results)
    how = f"power sampler at 20 ms ({results[0].scheduling} scheduling)"
    return [
        Line(f"{how}, part of a core", 100 * results[0].cost, 1.0, "%"),
        Line(f"{how}, intervals within 2 ms", 100 * near, 99.0, "%", False),
    ]


def baselines() -> list[Line | Skipped]:
    """Measure what the way to oneMKL costs."""
    what = "oneMKL through the project ÷ the same calls made bare"
    if find_library() is None:
        return [Skipped(what, "oneMKL is not installed")]
    return [Line(what, baseline.mkl_ratio(), baseline.LIMIT)]


def many_units() -> list[Line]:
    """Measure what several compute units cost on the host."""
    return [Line(what, *rest) for what, *rest in units.figures()]


def machine() -> str:
    """Name the machine and the rivals' versions."""
    cpus = len(os.sched_getaffinity(0))
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{cpu_model()}, {cpus} cores, {memory_gib:.0f} GiB, {platform.system()} "
        f"{platform.release()}; Python {platform.python_version()}, NumPy {np.__version__}, "
        f"SciPy {scipy.__version__}; spmv_fpga {__version__}, "
        f"{datetime.date.today().isoformat()}"
    )


def show(lines: list[Line | Skipped], headings: tuple[str, ...]) -> None:
    """Print the table."""
    table = Table(*headings)
    for line in lines:
        table.add_row(*line.cells())
    console = Console()
    console.print(table)
    console.print(machine())


def write(lines: list[Line | Skipped], headings: tuple[str, ...]) -> None:
    """Put the table into the README beside this file."""
    rows: list[Any] = [headings, ["---"] * len(headings), *(line.cells() for line in lines)]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = README.read_text("utf-8")
    head, tail = text[: text.index(BEGIN)], text[text.index(END) :]
    README.write_text(f"{head}{BEGIN}\n{table}\n\n{machine()}\n{tail}", "utf-8")


def main() -> None:
    """Measure, print, and say by the exit status whether every limit is met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write benchmarks/README.md")
    options = parser.parse_args()
    lines: list[Line | Skipped] = [*sampling(), *baselines()]
    lines += [*conversions(), *emulated_kernels(), *whole_run(), *many_units()]
    headings = (f"on {MATRIX}", "measured", "limit", "")
    show(lines, headings)
    if options.write:
        write(lines, headings)
    sys.exit(0 if all(line.is_met for line in lines) else 1)


if __name__ == "__main__":
    main()
