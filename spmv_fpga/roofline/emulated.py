"""Emulated times of the paper's matrices, counted once and kept in `emulated.csv`.

The emulation of all rows takes a minute or two, so its cycles are part of the package:
`python -m benchmarks.emulated --write` makes them again. Each row says of which sources it
was counted; where these have changed since, there is a reason instead of a time.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..boards import Board
from ..errors import SpmvFpgaError
from ..figures import Figure, unknown
from ..kernels import load_kernel
from ..resources import data_dir

TABLE = Path(__file__).with_name("emulated.csv")
BOARD = "u50"
PARAMETERS: Mapping[str, dict[str, int]] = {"scalar": {"slice": 16}, "block": {"block": 16}}
"""Of the kernels that the paper measured."""
_MOST_CYCLES = 1 << 48
_HEADER = ("name", "kernel", "source", "cycles", "clock_hz", "fingerprint")


@dataclass(frozen=True, kw_only=True)
class EmulatedTime:
    """What the emulated card counted for one matrix and kernel, with one unit.

    Attributes
    ----------
    name, kernel : str
    source : str
        `real`, or `twin` for a synthetic matrix made from the published figures.
    cycles : int
    clock_hz : float
    fingerprint : str
        Of the sources that the cycles follow from.
    """

    name: str
    kernel: str
    source: str
    cycles: int
    clock_hz: float
    fingerprint: str

    @property
    def time_s(self) -> Figure:
        """Seconds of a product, without starting the kernel."""
        return Figure(value=self.cycles / self.clock_hz, origin="emulated")


Times = Mapping[tuple[str, str], EmulatedTime]
"""By name and kernel."""


def fingerprint(kernel: str, board: Board) -> str:
    """Return a short hash of the kernel, its clock and the board that cycles follow from.

    >>> from spmv_fpga.boards import load_board
    >>> len(fingerprint("block", load_board("u50")))
    12
    """
    templates, host = data_dir("hls_templates"), data_dir("host")
    own = [
        path
        for name in load_kernel(kernel).sources
        for path in (templates / kernel / name, templates / "common" / name)
        if path.is_file()
    ]
    rendered = [
        templates / kernel / "kernel.toml",
        *sorted((templates / "common").glob("*.j2")),
    ]
    digest = hashlib.sha256(repr(sorted(PARAMETERS[kernel].items())).encode())
    for path in (*own, *rendered, *sorted((host / "hls").glob("*.h*"))):
        digest.update(path.read_bytes())
    rates = [board.value(name) for name in ("clock_hz", "channel_bytes_per_s", "burst_setup_s")]
    digest.update(repr((rates, sorted(board.axi.items()))).encode())
    return digest.hexdigest()[:12]


def load_emulated(path: Path = TABLE) -> dict[tuple[str, str], EmulatedTime]:
    """Read the kept times; a real matrix goes before its twin.

    Raises
    ------
    SpmvFpgaError
        If the file is damaged.
    """
    try:
        lines = [line for line in path.read_text("utf-8").splitlines() if line[:1] != "#"]
        rows = [_row(record) for record in csv.DictReader(lines)]
    except (OSError, KeyError, ValueError, TypeError, csv.Error) as error:
        raise SpmvFpgaError(
            f"{path}: {error}; make it again with `python -m benchmarks.emulated --write`."
        ) from None
    ordered = sorted(rows, key=lambda row: row.source != "twin")
    return {(row.name, row.kernel): row for row in ordered}


def _row(record: Mapping[str, str]) -> EmulatedTime:
    cycles, clock_hz = int(record["cycles"]), float(record["clock_hz"])
    if not (0 < cycles < _MOST_CYCLES and 1e6 <= clock_hz <= 1e9):
        raise ValueError(f"{cycles} cycles at {clock_hz} Hz are no time of a kernel")
    return EmulatedTime(
        name=record["name"],
        kernel=record["kernel"],
        source=record["source"],
        cycles=cycles,
        clock_hz=clock_hz,
        fingerprint=record["fingerprint"],
    )


def save_emulated(rows: Iterable[EmulatedTime], path: Path = TABLE) -> None:
    """Write the times."""
    lines = [
        "# Emulated with this project's kernels, one unit; made by benchmarks/emulated.py.",
        ",".join(_HEADER),
    ]
    lines += [
        f"{row.name},{row.kernel},{row.source},{row.cycles},{row.clock_hz:.0f},"
        f"{row.fingerprint}"
        for row in rows
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def time_of(times: Times, name: str, kernel: str, board: Board) -> Figure:
    """Return an emulated time, or why there is none."""
    found = times.get((name, kernel))
    if found is None:
        return unknown("not emulated; `spmv-fpga paper --emulate` does it")
    if found.fingerprint != fingerprint(kernel, board):
        return unknown(
            f"emulated with another version of kernel {kernel}; `spmv-fpga paper --emulate` "
            "does it again"
        )
    return found.time_s
