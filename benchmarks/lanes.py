"""Kernel lanes on twins of four matrices, beside what is published of another accelerator.

    python -m benchmarks.lanes --write

multiplies a twin of each on the emulated card, with as many units as fit a U50, and puts the
table into `docs/emulation.md`. Nothing in it depends on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.emulated import DOCS, milli, replace_part, table
from spmv_fpga.boards import load_board
from spmv_fpga.design_fit import max_units
from spmv_fpga.measure import RunOptions, RunResult, run
from spmv_fpga.report.cycles import kernel_time_s
from spmv_fpga.roofline.peers import Peer, known_density, load_peers

BOARD = "u50"
NAMES = ("TSOPF_RS_b2383", "nd6k", "crankseg_2", "thread")
ASSUMED_DENSITY = 0.2
"""Of 16×16 tiles, where none is published; it says where entries are, not how many."""
RIVAL_BYTES = 8.27
"""A non-zero, of the format to compare with: 8 bytes of value and index, and 3 % of padding."""


@dataclass(frozen=True)
class Comparison:
    """A product of kernel lanes, and what is published of the same matrix."""

    peer: Peer
    density: str
    result: RunResult

    @property
    def time_s(self) -> float:
        """Emulated seconds, without starting the kernel."""
        return self.result.fpga["time_s"].value or 0.0

    @property
    def rival_s(self) -> float:
        """Seconds that the rival's bytes take of the same channels, x and y as here."""
        model, board = self.result.model, load_board(BOARD)
        rate = board.value("channel_bytes_per_s") * self.result.compute_units
        others = sum(model.terms[name] for name in ("x", "fill", "panels", "y"))
        return RIVAL_BYTES * self.peer.nnz / rate + others

    def cells(self) -> list[str]:
        """Return the line of the table."""
        model = self.result.model
        launch_s = model.terms["launch"]
        return [
            self.peer.name,
            f"{self.peer.nnz:,}",
            self.density,
            f"{self.result.format.bytes / self.peer.nnz:.2f}",
            milli(self.time_s),
            milli(kernel_time_s(model) or 0.0),
            milli(self.peer.time_s),
            f"{self.peer.time_s / self.time_s:.2f}",
            f"{self.peer.time_s / (self.time_s + launch_s):.2f}",
            f"{self.rival_s / self.time_s:.2f}",
        ]


def compare(peer: Peer, compute_units: int) -> Comparison:
    """Multiply the twin of a published matrix."""
    known = known_density(peer.name, peer.n, peer.nnz)
    density = known.value if known else ASSUMED_DENSITY
    said = f"{100 * density:.1f} %" if known else f"{100 * density:.0f} %, assumed"
    matrix = f"twin:custom:n={peer.n},nnz={peer.nnz},density={density:.4f}"
    options = RunOptions(
        matrix=matrix, kernel="lanes", compute_units=compute_units, mode="sw_emu",
        baseline="none",
    )  # fmt: skip
    result = run(options)
    if result.error:
        raise result.error
    return Comparison(peer, said, result)


def main(names: Sequence[str] = NAMES) -> int:
    """Emulate and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the table into the docs")
    arguments = parser.parse_args()
    units = max_units("lanes", {}, load_board(BOARD))
    peers = {peer.name: peer for peer in load_peers([BOARD])}
    header = ["matrix", "entries", "16×16 tiles full", "B a non-zero", "emulated, ms"]
    header += ["modelled, ms", "published, ms", "faster", "with a start", "than 8.27 B"]
    content = f"{units} units.\n\n" + table(
        header, [compare(peers[name], units).cells() for name in names]
    )
    print(content)
    if arguments.write:
        DOCS.write_text(replace_part(DOCS.read_text("utf-8"), "lanes", content), "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
