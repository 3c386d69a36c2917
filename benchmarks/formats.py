"""Bytes a non-zero of every format, for the matrices of a folder.

    python -m benchmarks.formats FOLDER --write

makes the table of `docs/formats.md` again. Nothing in it depends on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks.emulated import replace_part, table
from spmv_fpga.format_sizes import VARIANTS, FormatSizes, count_formats, mean_bytes
from spmv_fpga.sweep import matrix_files

DOCS = Path(__file__).resolve().parents[1] / "docs" / "formats.md"
MIN_ENTRIES = 90_001


def sizes_table(counted: Sequence[FormatSizes]) -> str:
    """Return bytes a non-zero of each matrix, and their geometric means."""
    rows = [
        (sizes.name, f"{sizes.nnz:,}", *(f"{value:.2f}" for value in sizes.bytes_per_entry))
        for sizes in counted
    ]
    means = ("geometric mean", "", *(f"{mean:.2f}" for mean in mean_bytes(counted)))
    return table(["matrix", "entries", *VARIANTS], [*rows, means])


def main() -> int:
    """Count and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="write the docs")
    arguments = parser.parse_args()
    found = count_formats(matrix_files([arguments.folder]), MIN_ENTRIES)
    content = sizes_table([sizes for sizes in found if sizes.stats])
    print(content)
    if arguments.write:
        text = replace_part(DOCS.read_text("utf-8"), "bytes", content)
        DOCS.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
