"""Emulated cycles beside the published times and the model's.

    python -m benchmarks.emulated --write [--matrices DIR]

makes `spmv_fpga/roofline/emulated.csv` and the tables of `docs/emulation.md` again. Nothing
in them depends on the machine. With a folder of real matrices, those of the paper that it
holds are emulated beside their twins.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from spmv_fpga import load_matrix, open_device, verify
from spmv_fpga.boards import load_board
from spmv_fpga.emulate import emulate_rows
from spmv_fpga.formats import FORMATS, format_stats
from spmv_fpga.report.cycles import kernel_time_s
from spmv_fpga.roofline.calibration import load_calibration
from spmv_fpga.roofline.emulated import BOARD, EmulatedTime, save_emulated
from spmv_fpga.roofline.model import Prediction, predict_one, workload
from spmv_fpga.roofline.paper import PublishedRow, find_real, load_tables, matrix_of

DOCS = Path(__file__).resolve().parents[1] / "docs" / "emulation.md"
UNITS_MATRIX, UNITS = "twin:TS2383", (1, 2, 4, 8, 14, 16, 19)
CALIBRATION = "u50"


def model_of(csr: csr_array, kernel: str, compute_units: int = 1) -> Prediction:
    """Return what the model says of a matrix, at the board's clock and bandwidth."""
    calibration = load_calibration(CALIBRATION)
    stats = format_stats(csr, blocks=[16], slices=[16])
    [mine] = [s for s in stats if s.kernel == kernel]
    return predict_one(workload(mine, csr.shape, calibration), calibration, compute_units)


def launch_s() -> dict[str, float]:
    """Return what starting the paper's kernels costs, by the fit to its Table 2."""
    known = load_calibration("paper")
    return {
        kernel: sum(
            term.seconds.value
            for term in known.kernel(kernel).terms
            if term.name == "launch" and term.seconds is not None
        )
        for kernel in ("scalar", "block")
    }


def milli(seconds: float) -> str:
    """Return a time in milliseconds."""
    return f"{1e3 * seconds:.3f}" if seconds < 1e-2 else f"{1e3 * seconds:.2f}"


def percent(ratio: float) -> str:
    """Return how far a ratio is from 1."""
    return f"{100 * (ratio - 1):+.1f} %"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; all but the first columns stand right."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def paper_table(
    times: Iterable[EmulatedTime], rows: Sequence[PublishedRow], folder: Path | None
) -> str:
    """Return emulated times beside published and modelled ones."""
    by_name = {row.name: row for row in rows}
    starting = launch_s()
    lines = []
    for time in times:
        row = by_name[time.name]
        csr, _ = matrix_of(row, folder if time.source == "real" else None)
        model = model_of(csr, time.kernel)
        emulated_s, published_s = time.time_s.value or 0.0, row.time_s[time.kernel]
        lines.append(
            [
                f"{time.name}{', real' if time.source == 'real' else ''}",
                time.kernel,
                milli(published_s),
                milli(emulated_s),
                percent(emulated_s / published_s),
                percent((emulated_s + starting[time.kernel]) / published_s),
                milli(kernel_time_s(model) or 0.0),
                percent(emulated_s / (kernel_time_s(model) or 1.0)),
                longest_term(model),
            ]
        )
    header = ["matrix", "kernel", "published, ms", "emulated, ms", "over published"]
    header += ["with start", "modelled, ms", "over modelled", "longest term"]
    return table(header, lines)


def longest_term(model: Prediction) -> str:
    """Return what takes the most time in the kernel, by the model."""
    terms = {name: value for name, value in model.terms.items() if name != "launch"}
    return max(terms, key=lambda name: terms[name])


def units_table() -> str:
    """Return emulated time and bandwidth of several units."""
    csr = load_matrix(UNITS_MATRIX)
    x = np.random.default_rng(1).standard_normal(csr.shape[1]).astype(np.float32)
    lines = []
    for kernel in ("block", "scalar"):
        fmt = FORMATS[kernel].convert(
            csr, {"block": 16} if kernel == "block" else {"slice": 16}
        )
        for units in UNITS:
            with open_device(mode="sw_emu", kernel=kernel, compute_units=units) as card:
                y, times = card.spmv(fmt, x)
            verify(y, csr, x)
            cycles = times.cycles
            assert cycles is not None
            modelled_s = kernel_time_s(model_of(csr, kernel, units)) or 0.0
            matrix = [p.bytes for u in cycles.units for p in u.ports if p.name == "matrix"]
            lines.append(
                [
                    kernel,
                    str(units),
                    f"{cycles.clock_hz / 1e6:.0f}",
                    f"{round(cycles.cycles):,}",
                    milli(cycles.time_s),
                    percent(cycles.time_s / modelled_s),
                    f"{sum(matrix) / units / cycles.time_s / 1e9:.2f}",
                    f"{2 * csr.nnz / cycles.time_s / 1e9:.1f}",
                ]
            )
    header = ["kernel", "units", "MHz", "cycles", "emulated, ms", "over modelled"]
    return table([*header, "GB/s a channel", "GFLOP/s"], lines)


def replace_part(text: str, name: str, content: str) -> str:
    """Return a text with what stands between two marks replaced."""
    begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
    if begin not in text or end not in text:
        raise SystemExit(f"the page has no part {name}")
    return text.partition(begin)[0] + begin + content + "\n" + end + text.partition(end)[2]


def main() -> int:
    """Emulate and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the table and the docs")
    parser.add_argument("--matrices", type=Path, help="folder with real matrices")
    arguments = parser.parse_args()
    rows = load_tables()
    times = []
    for time in emulate_rows(rows):
        print(time, file=sys.stderr)
        times.append(time)
    real = [row for row in rows if find_real(row, arguments.matrices)]
    real_times = [t for t in emulate_rows(real, arguments.matrices) if t.source == "real"]
    parts = {
        "paper": paper_table(times, rows, None),
        "real": paper_table(real_times, rows, arguments.matrices),
        "units": units_table(),
    }
    for name, content in parts.items():
        print(f"{name}, {load_board(BOARD).title}\n\n{content}\n")
    if arguments.write:
        save_emulated([*times, *real_times])
        text = DOCS.read_text("utf-8")
        for name, content in parts.items():
            if name != "real" or real_times:
                text = replace_part(text, name, content)
        DOCS.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
