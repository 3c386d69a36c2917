"""Measure what the sampler costs and how well it keeps its cadence.

    python -m benchmarks.sampler [SECONDS]

Three loads beside it: none, one that leaves Python (as a card's driver or a library does),
and one that holds the interpreter all the time, which a measured program should not do.
Each with the thread's usual scheduling, and as an ordinary thread. An ordinary one wakes up
late on a busy machine, whatever it does: the load average stands beside the figures.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spmv_fpga.power import Sampler
from spmv_fpga.power.sampler import hurry
from spmv_fpga.power.sensor import Reading

CADENCE_S = 0.020
COST_LIMIT, NEAR_LIMIT, NEAR_S = 0.01, 0.99, 0.002


@dataclass(frozen=True)
class Cadence:
    """How one sampling went.

    Attributes
    ----------
    cost : float
        CPU time of the process that the sampling added, as a part of one core.
    near : float
        Part of the intervals that are within 2 ms of the cadence.
    worst_s : float
        The interval that is furthest off, less the cadence.
    samples : int
    scheduling : str
        `real-time` or `normal`.
    """

    cost: float
    near: float
    worst_s: float
    samples: int
    scheduling: str


class FileSensor(nullcontext[None]):
    """A sensor that reads one small file, as those in sysfs do."""

    name, boundary, refresh_s = "file", "card", CADENCE_S
    power_step_w: float | None = None
    energy_step_j: float | None = None

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def read(self) -> Reading:
        """Read the file."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            return Reading(int(os.read(descriptor, 64)) / 1e6)
        finally:
            os.close(descriptor)

    def facts(self) -> dict[str, str | float | int]:
        """Say nothing more."""
        return {}


def idle(duration_s: float) -> None:
    """Do nothing."""
    time.sleep(duration_s)


def library(duration_s: float) -> None:
    """Compute in a library that gives the interpreter up."""
    values = np.random.default_rng(1).random(2_000_000)
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s:
        np.sort(values)


def interpreter(duration_s: float) -> None:
    """Compute in Python itself."""
    end_s = time.monotonic() + duration_s
    while time.monotonic() < end_s:
        sum(range(1000))


def stay() -> str:
    """Stay an ordinary thread."""
    return "normal"


def sample(
    load: Callable[[float], None], duration_s: float, hurry: Callable[[], str] = hurry
) -> Cadence:
    """Sample beside a load.

    The cost is measured beside `idle` alone, where nothing else uses the CPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "power"
        path.write_text("17382219\n")
        with Sampler(FileSensor(path), CADENCE_S, hurry=hurry) as sampler:
            before_s = time.process_time()
            load(duration_s)
            used_s = time.process_time() - before_s
    starts_s = np.array([s.before_s for s in sampler.samples[:-1]])  # the last is out of step
    off_s = np.diff(starts_s) - CADENCE_S
    return Cadence(
        used_s / duration_s,
        float(np.mean(np.abs(off_s) <= NEAR_S)),
        float(off_s[np.argmax(np.abs(off_s))]),
        len(starts_s),
        sampler.trace().facts["scheduling"],
    )


def report(duration_s: float, hurry: Callable[[], str]) -> bool:
    """Print the figures of one scheduling; say whether the promises are kept."""
    loads = (idle, library, interpreter)
    results = {load.__name__: sample(load, duration_s, hurry) for load in loads}
    beside_idle = results["idle"]
    print(
        f"{beside_idle.scheduling} scheduling, load average {os.getloadavg()[0]:.2f}: "
        f"{beside_idle.cost:.2%} of a core at {CADENCE_S * 1e3:g} ms (at most {COST_LIMIT:.0%})"
    )
    for name, result in results.items():
        print(
            f"  beside {name}: {result.near:.2%} of {result.samples} intervals within "
            f"{NEAR_S * 1e3:g} ms (at least {NEAR_LIMIT:.0%}), "
            f"worst {result.worst_s * 1e3:+.1f} ms"
        )
    near = min(results[name].near for name in ("idle", "library"))
    return beside_idle.cost <= COST_LIMIT and near >= NEAR_LIMIT


def main() -> int:
    """Print the figures; 1 if a promise is not kept with the usual scheduling."""
    duration_s = float(sys.argv[1]) if len(sys.argv) > 1 else 20.0
    is_kept = report(duration_s, hurry)
    report(duration_s, stay)
    return 0 if is_kept else 1


if __name__ == "__main__":
    sys.exit(main())
