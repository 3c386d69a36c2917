"""Points of the roofline: what a product reaches, and where the figure comes from."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import MatrixError, SpmvFpgaError
from ..figures import Origin
from ..formats import format_stats
from ..formats.base import WORD_BYTES
from ..matrices import open_matrix
from .calibration import Calibration
from .model import Prediction, Workload, predict_one, workload
from .paper import HALF_A_PERCENT, PaperResult, PublishedRow, find_real

SERIES = ("scalar", "block", "block_max", "lanes")
ORIGINS: tuple[Origin, ...] = ("measured", "published", "emulated", "modelled")
_PARAMETERS = {"scalar": "slice", "block": "block", "lanes": "depth"}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A product in the picture.

    Attributes
    ----------
    name : str
        The matrix.
    series : str
        `scalar`, `block`, `lanes`, or `block_max`: Block with its padding counted as useful.
    parameter : int or None
        P, L or depth.
    cia : float
        Useful flop per access; for `block_max` flop per access.
    gflops : float
        Of the flop that `cia` counts.
    origin : str
    cia_bounds : (float, float), optional
        What the CIA may be, where it rests on a rounded figure.
    is_least : bool
        Whether it bounds the product from below; drawn small and without a name.
    is_labelled : bool
        Whether the name is written beside it.
    compute_units : int
    """

    name: str
    series: str
    parameter: int | None
    cia: float
    gflops: float
    origin: Origin
    cia_bounds: tuple[float, float] | None = None
    is_least: bool = False
    is_labelled: bool = True
    compute_units: int = 1

    def __post_init__(self) -> None:
        if self.series not in SERIES:
            raise SpmvFpgaError(
                f"series is {self.series!r}; it must be {', '.join(SERIES[:-1])} or "
                f"{SERIES[-1]}."
            )
        for name in ("cia", "gflops"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise SpmvFpgaError(
                    f"{self.name}: {name} is {value}; a point on logarithmic axes needs more "
                    "than 0."
                )

    @property
    def key(self) -> tuple[str, str, int | None, int]:
        """What two views of one product have in common."""
        return self.name, self.series, self.parameter, self.compute_units

    @property
    def label(self) -> str:
        """What is written beside the point: the matrix, and the units where they are many."""
        return self.name if self.compute_units == 1 else f"{self.name} ×{self.compute_units}"


def timed_points(
    name: str,
    work: Workload,
    time_s: float,
    origin: Origin,
    *,
    block_max: bool = False,
    density_error: float = 0.0,
) -> list[Point]:
    """Return the points of a product that took `time_s`.

    Parameters
    ----------
    name : str
    work : Workload
    time_s : float
        Seconds of one product.
    origin : str
    block_max : bool
        Whether kernel block gets a second point that counts its padding as useful.
    density_error : float
        What the density, and with it the CIA of kernel block, may be off by: 0.005 where it
        was printed in whole per cent.

    Examples
    --------
    >>> from spmv_fpga.roofline.calibration import load_calibration
    >>> from spmv_fpga.roofline.model import published_workload
    >>> work = published_workload("block", 38120, 16171169, 0.71, load_calibration("paper"))
    >>> point, most = timed_points("TS2383", work, 7.253e-3, "published", block_max=True)
    >>> round(point.gflops, 2), most.cia, round(most.gflops, 2)
    (4.46, 32.0, 6.28)
    """
    if not work.nnz:
        return []
    if not time_s > 0:
        raise SpmvFpgaError(f"{name}: the time is {time_s} s; it must be more than 0.")
    point = Point(
        name=name,
        series=work.kernel,
        parameter=work.parameter,
        cia=work.cia,
        gflops=work.flop / time_s / 1e9,
        origin=origin,
        cia_bounds=_cia_bounds(work, density_error),
    )
    if work.kernel != "block" or not block_max:
        return [point]
    most = replace(
        point,
        series="block_max",
        cia=work.theoretical_cia,
        gflops=2 * work.num_stored / time_s / 1e9,
        cia_bounds=None,
    )
    return [point, most]


def _cia_bounds(work: Workload, density_error: float) -> tuple[float, float] | None:
    if work.kernel != "block" or not 0 < density_error < work.density:
        return None
    part = density_error / work.density
    return work.cia * (1 - part), work.cia * (1 + part)


def model_points(name: str, prediction: Prediction, *, block_max: bool = False) -> list[Point]:
    """Return the points of a prediction."""
    if prediction.time_s.value is None:
        return []
    points = timed_points(
        name, prediction.workload, prediction.time_s.value, "modelled", block_max=block_max
    )
    return [replace(p, compute_units=prediction.compute_units) for p in points]


def block_points(
    name: str, A: Any, calibration: Calibration, blocks: Iterable[int] = (8, 16)
) -> list[Point]:
    """Return what kernel block is predicted to do with a matrix, for each edge P.

    Parameters
    ----------
    name : str
    A : csr_array, shape (m, n)
    calibration : Calibration
    blocks : iterable of int
    """
    points: list[Point] = []
    for stats in format_stats(A, blocks=tuple(blocks), slices=()):
        work = workload(stats, A.shape, calibration)
        points += model_points(name, predict_one(work, calibration))
    return points


def least_points_8(name: str, work: Workload, calibration: Calibration) -> list[Point]:
    """Return what kernel block does at least with P = 8 if only 16×16 tiles are known.

    A 16×16 tile holds at most four tiles of 8×8, so CIA and stored values of 8×8 tiles are
    at least half and at most as many as those of `work`.

    Examples
    --------
    >>> from spmv_fpga.roofline.calibration import load_calibration
    >>> from spmv_fpga.roofline.model import published_workload
    >>> paper = load_calibration("paper")
    >>> work = published_workload("block", 38120, 16171169, 0.71, paper)
    >>> point, = least_points_8("TS2383", work, paper)
    >>> round(work.cia / point.cia, 6), point.is_least
    (2.0, True)
    """
    if work.block != 16 or work.blocks is None:
        return []
    narrower = replace(
        work,
        block=8,
        blocks=4 * work.blocks,
        accesses=2 * work.accesses,
        access_bytes=work.access_bytes // 2,
    )
    points = model_points(name, predict_one(narrower, calibration))
    return [replace(p, is_least=True, is_labelled=False) for p in points]


def run_point(document: Mapping[str, Any], calibration: Calibration) -> Point | None:
    """Return the point of a run's JSON document, None where it has no time of the card.

    Parameters
    ----------
    document : mapping
        What `spmv-fpga run --json` prints.
    calibration : Calibration
        Says what an access is.

    Raises
    ------
    SpmvFpgaError
        If a key is missing.
    """
    try:
        kernel, gflops = document["kernel"], document["fpga"]["gflops"]
        parameter = kernel[_PARAMETERS[kernel["name"]]]
        compute_units = kernel.get("compute_units", 1)
        access = calibration.kernel(kernel["name"], parameter).access
        accesses = (
            kernel["bytes"] / WORD_BYTES
            if access == "words"
            else kernel["num_stored"] / (kernel["block"] or 1)
        )
        matrix = document["matrix"]
        value, origin, name, nnz = (
            gflops["value"],
            gflops["origin"],
            str(matrix["name"]),
            matrix["nnz"],
        )
        if value is None or origin not in ORIGINS or not nnz or not accesses:
            return None
        cia, value, compute_units = 2 * nnz / accesses, float(value), int(compute_units)
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise SpmvFpgaError(
            f"the result is no run of this program: {error} is wrong."
        ) from None
    return Point(
        name=name,
        series=kernel["name"],
        parameter=parameter,
        cia=cia,
        gflops=value,
        origin=origin,
        compute_units=compute_units,
    )


def paper_points(
    result: PaperResult, matrices: str | os.PathLike[str] | None = None
) -> list[Point]:
    """Return the points of the paper's matrices, published and modelled.

    Parameters
    ----------
    result : PaperResult
    matrices : path, optional
        Folder with real matrices. Where one is at hand, its 8×8 tiles are counted; of the
        others only the least that they give is known.

    Returns
    -------
    list of Point
        Scalar, Block with P = 16 and BlockMax, then Block with P = 8.
    """
    points: list[Point] = []
    for row in result.table2:
        name, work = row.row.name, row.model.workload
        points += timed_points(
            name,
            work,
            row.time_published_s,
            "published",
            block_max=True,
            density_error=HALF_A_PERCENT,
        )
        points += model_points(name, row.model, block_max=True)
    for row in result.table2:
        if row.kernel == "block":
            A = _real_matrix(row.row, matrices)
            points += (
                least_points_8(row.row.name, row.model.workload, result.calibration)
                if A is None
                else block_points(row.row.name, A, result.calibration, (8,))
            )
    return points


def _real_matrix(row: PublishedRow, matrices: str | os.PathLike[str] | None) -> Any:
    """Return the matrix as the paper multiplied it, or None where it is not at hand."""
    path = find_real(row, None if matrices is None else Path(matrices))
    if path is None:
        return None
    try:
        return open_matrix(path, "stored").csr
    except MatrixError:
        return None  # Table 1 says what is wrong with it
