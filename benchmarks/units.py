"""Measure what several compute units cost on the host, and that the emulated card has 16.

    python -m benchmarks.units

The 16 units of the emulation share this machine's cores: what is measured is that they
work, and what they need, never how fast a card would be.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from spmv_fpga import load_matrix, open_device, verify
from spmv_fpga.formats import FORMATS
from spmv_fpga.formats.partition import packed, partition

MATRIX = "twin:TS2383"
UNITS = 16
PARAMETERS = {"block": {"block": 16}, "scalar": {"slice": 16}}
PAIRS = 9
CONVERSION_LIMIT, EXCESS_LIMIT = 1.3, 3.0
TIME_LIMIT_S, MEMORY_LIMIT_GIB = 25.0, 3.0
_READ_EVERY_S = 0.05
_RUN = "import sys; from benchmarks.units import multiply; multiply(sys.argv[1])"


def converted(A: csr_array, kernel: str, units: int) -> None:
    """Convert a matrix for some units and make the streams of all of them."""
    cut = partition(A, FORMATS[kernel], PARAMETERS[kernel], compute_units=units)
    for _ in packed(cut.parts):
        pass


def duration_s(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def conversion_ratio(A: csr_array, kernel: str) -> float:
    """Return the time of a conversion for 16 units over that for one; they take turns."""
    ratios = [
        duration_s(lambda: converted(A, kernel, UNITS))
        / duration_s(lambda: converted(A, kernel, 1))
        for _ in range(PAIRS + 1)
    ]
    return statistics.median(ratios[1:])


def imbalance(A: csr_array, kernel: str) -> float:
    """Return by how much the largest share of 16 exceeds the mean, as a part of the mean."""
    cut = partition(A, FORMATS[kernel], PARAMETERS[kernel], compute_units=UNITS)
    return cut.imbalance


def multiply(kernel: str) -> None:
    """Multiply with 16 units on the emulated card, from the matrix to the verified product.

    Raises
    ------
    SystemExit
        If never two units were at work at the same time.
    """
    A = load_matrix(MATRIX)
    x = np.random.default_rng(1).random(A.shape[1], np.float32)
    parameters = {"block": 16, "slice_size": 16}
    with open_device(mode="sw_emu", kernel=kernel, compute_units=UNITS, **parameters) as card:
        cut = partition(
            A,
            FORMATS[kernel],
            PARAMETERS[kernel],
            compute_units=card.compute_units,
            x_room=card.xclbin.x_room,
        )
        y, times = card.spmv(cut, x)
    verify(y, A, x)
    starts, ends = times.unit_times_ns[:, 0]
    at_once = max(int(((starts <= now) & (now < ends)).sum()) for now in starts)
    if len(starts) != UNITS or at_once < 2:
        raise SystemExit("the launches of the units do not overlap")


def run_of_16_units(kernel: str) -> tuple[float, float]:
    """Return the seconds of `multiply` as a process, and the GiB of all its processes."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", _RUN, kernel])
    peak = [0]
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(_READ_EVERY_S):
            peak[0] = max(peak[0], family_bytes(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    status = process.wait()
    time_s = time.perf_counter() - start
    is_over.set()
    watcher.join()
    if status:
        raise SystemExit(f"the run of {kernel} ended with status {status}")
    return time_s, peak[0] / 2**30


def family_bytes(ancestor: int) -> int:
    """Return the memory of a process and of all that come from it; what they share once.

    The proportional set size is used (proc_pid_smaps_rollup(5)): a shared page counts in
    parts in each process that has it.
    """
    parents = dict(map(_process_and_parent, Path("/proc").glob("[0-9]*")))
    family = {ancestor}
    while grown := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= grown
    return sum(map(_proportional_bytes, family))


def _process_and_parent(folder: Path) -> tuple[int, int]:
    """Return the numbers of a process and its parent, 0 where it has ended meanwhile."""
    try:
        stat = (folder / "stat").read_text()
    except OSError:
        return int(folder.name), 0
    return int(folder.name), int(stat.rpartition(") ")[2].split()[1])


def _proportional_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def figures() -> list[tuple[str, float, float, str]]:
    """Measure; return what was measured, the figure, its upper limit and the unit of both."""
    A = load_matrix(MATRIX)
    found = []
    for kernel in PARAMETERS:
        name = f"{kernel} with {UNITS} units"
        time_s, memory_gib = run_of_16_units(kernel)
        ratio, excess = conversion_ratio(A, kernel), imbalance(A, kernel)
        found += [
            (f"{name}: conversion ÷ that for one unit", ratio, CONVERSION_LIMIT, "×"),
            (f"{name}: largest share above the mean", 100 * excess, EXCESS_LIMIT, "%"),
            (f"{name} on the emulated card, verified", time_s, TIME_LIMIT_S, "s"),
            (f"{name}: all processes of that run", memory_gib, MEMORY_LIMIT_GIB, "GiB"),
        ]
    return found


def main() -> None:
    """Measure, print, and say by the exit status whether every limit is met."""
    found = figures()
    for what, value, limit, unit in found:
        print(f"{what}: {value:.3g} {unit}, at most {limit:g} {unit}")
    if not all(value <= limit for _, value, limit, _ in found):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
