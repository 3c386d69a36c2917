"""Results as JSON documents; the keys are those that other programs rely on.

Keys that end in `_s`, `_j` or `_w`, and `gflops` and `cycles`, hold figures with their
origin. All other numbers are plain. No document holds NaN or Infinity.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..errors import SpmvFpgaError
from ..figures import Figure, unknown
from ..files import write_whole
from ..formats import FormatStats
from ..matrices import Matrix
from ..measure import RunResult
from ..sweep import SweepLine
from ..version import __version__


def to_text(document: dict[str, Any]) -> str:
    """Return a document as JSON text with a closing newline."""
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all."""
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise SpmvFpgaError(f"{path}: cannot be written: {error.strerror or error}.") from None


def matrix_document(matrix: Matrix) -> dict[str, Any]:
    """Return what a result says of its matrix."""
    rows, cols = matrix.csr.shape
    return {
        "name": matrix.name,
        "rows": rows,
        "cols": cols,
        "nnz": matrix.nnz,
        "symmetric": matrix.symmetric,
        "source": matrix.source,
        "is_twin": matrix.is_twin,
    }


def run_document(result: RunResult) -> dict[str, Any]:
    """Return the result of `spmv-fpga run`."""
    fmt, worst = result.format, result.worst_error_over_bound
    return {
        "spmv_fpga": __version__,
        "matrix": matrix_document(result.matrix),
        "kernel": {
            "name": fmt.kernel,
            "chosen_by": result.chosen_by,
            "block": fmt.parameters.get("block"),
            "slice": fmt.parameters.get("slice"),
            "depth": fmt.parameters.get("depth"),
            "panel": fmt.parameters.get("panel"),
            "reorder": result.reorder,
            "compute_units": result.compute_units,
            "rounds": fmt.num_rounds,
            "num_stored": fmt.num_stored,
            "density": fmt.density,
            "matrix_bytes": fmt.matrix_bytes,
            "bytes": fmt.bytes,
        },
        "mode": result.mode,
        "verified": result.verified,
        "worst_error_over_bound": worst if math.isfinite(worst) else None,
        "rows_not_compared": result.rows_not_compared,
        "fpga": {
            "is_steady": result.fpga_steady,
            **result.fpga_power,
            **_figures(result.fpga),
        },
        "cpu": {
            "library": result.cpu_library,
            "threads": result.cpu_threads,
            "is_steady": result.cpu_steady,
            **result.cpu_power,
            **_figures(result.cpu),
        },
        "model": {
            "time_s": result.model.time_s.to_json(),
            "launch_s": _launch(result).to_json(),
            "gflops": result.model.gflops.to_json(),
            "power_w": result.model.power_w.to_json(),
            "energy_j": result.model.energy_j.to_json(),
            "bound": result.model.bound,
            "calibration": result.calibration,
        },
        "emulation": result.cycles.to_json() if result.cycles else None,
        "host": _figures(result.host),
        "provenance": result.provenance,
        "warnings": list(result.warnings),
    }


def _launch(result: RunResult) -> Figure:
    """Return what starting the kernel takes of the modelled time; emulated times have none."""
    launch_s = result.model.terms.get("launch")
    if launch_s is None:
        return unknown("the calibration has no such term")
    return Figure(value=launch_s, origin="modelled")


def sweep_document(lines: Iterable[SweepLine], counts: dict[str, int]) -> dict[str, Any]:
    """Return the result of `spmv-fpga verify`."""
    return {"products": [line.to_json() for line in lines], "counts": counts}


def stats_document(matrix: Matrix, stats: Iterable[FormatStats]) -> dict[str, Any]:
    """Return the result of `spmv-fpga convert --stats`."""
    return {
        "matrix": matrix_document(matrix),
        "formats": [
            {
                "kernel": s.kernel,
                "block": s.block,
                "slice": s.slice_size,
                "depth": s.depth,
                "num_stored": s.num_stored,
                "density": s.density,
                "matrix_bytes": s.matrix_bytes,
                "bytes": s.bytes,
                "blocks": s.blocks,
                "padding": s.padding,
            }
            for s in stats
        ],
    }


def _figures(figures: dict[str, Figure]) -> dict[str, Any]:
    return {name: figure.to_json() for name, figure in figures.items()}
