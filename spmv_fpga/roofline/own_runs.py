"""A calibration from a user's own runs, by robust regression.

A run is the JSON document of `spmv-fpga run`. Only figures measured on a card count. Each
kernel with its P or L is fitted by itself: a constant per launch, a cost per row and one
per 64-byte access; the power by a constant and a slope over bytes a second where it was
measured. Runs of the bandwidth kernel, which only reads, give the channel's bandwidth, as in
section 4.3 of Favaro et al. 2023. What no run determines stays as the base calibration has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import SpmvFpgaError
from ..formats.base import WORD_BYTES
from .calibration import (
    LARGEST,
    Calibration,
    KernelCalibration,
    Parameter,
    Power,
    Term,
    load_calibration,
)
from .regression import Fit, fit_with_errors

BANDWIDTH = "bandwidth"
"""Name of the kernel that only reads."""
MIN_RUNS = 5
"""Runs of a kernel from which three parameters and their errors can be had."""


@dataclass(frozen=True, kw_only=True)
class _Run:
    """What a fit needs of a run."""

    kernel: str
    parameter: int | None
    compute_units: int
    rows: int
    cols: int
    nnz: int
    density: float
    bytes: int
    time_s: float
    power_w: float | None

    def __post_init__(self) -> None:
        for name, figure in vars(self).items():
            least = 0 if name in ("rows", "cols", "nnz", "density") else 1 / LARGEST
            if isinstance(figure, int | float) and not least <= figure <= LARGEST:
                raise ValueError(f"{name} is {figure}; it must be above 0, at most {LARGEST:g}")

    @property
    def key(self) -> str:
        if self.parameter is None:
            return self.kernel
        return f"{self.kernel}_{'p' if self.kernel == 'block' else 'l'}{self.parameter}"

    @property
    def accesses(self) -> float:
        """Of one unit."""
        return self.bytes / WORD_BYTES / self.compute_units


def calibrate(
    results: Sequence[Mapping[str, Any]],
    *,
    base: str | Calibration = "u50",
    name: str = "own",
) -> Calibration:
    """Fit a calibration to measured runs.

    Parameters
    ----------
    results : sequence of mapping
        Documents of `spmv-fpga run --json`.
    base : str or Calibration
        Gives the rates, the idle power and the kernels that no run is of.
    name : str

    Returns
    -------
    Calibration
        Its `errors` are the mean absolute relative errors of left-out runs, by kernel; each
        parameter's interval is that of the jackknife.

    Raises
    ------
    SpmvFpgaError
        If a document is no run, has no measured time, or a kernel has too few runs.
    """
    runs = [_run(document, i) for i, document in enumerate(results, 1)]
    if not runs:
        raise SpmvFpgaError("there are no results; give the JSON of runs on a card.")
    known = load_calibration(base)
    kernels, rates, errors = dict(known.kernels), dict(known.rates), {}
    for key in sorted({run.key for run in runs}):
        own = [run for run in runs if run.key == key]
        if key == BANDWIDTH:
            rates["channel_bytes_per_s"], time = _fitted_bandwidth(own)
            errors[f"{key}_time"] = _rounded(time.mean_left_out_error)
            continue
        kernels[key], time, power = _fitted(key, own, known)
        errors[f"{key}_time"] = _rounded(time.mean_left_out_error)
        if power is not None:
            errors[f"{key}_energy_given_time"] = _rounded(power.mean_left_out_error)
    title = f"fitted to {len(runs)} runs on a card, the rest as in calibration {known.name}"
    return replace(known, name=name, title=title, rates=rates, kernels=kernels, errors=errors)


def _run(document: Mapping[str, Any], number: int) -> _Run:
    try:
        kernel, matrix, fpga = document["kernel"], document["matrix"], document["fpga"]
        name = str(kernel["name"])
        parameter = None
        if name != BANDWIDTH:
            parameter = int(kernel["block"] if name == "block" else kernel["slice"])
        time, power = fpga["time_s"], fpga["power_w"]
        if time["value"] is None or time["origin"] != "measured":
            raise SpmvFpgaError(
                f"result {number} has no time measured on a card (mode "
                f"{document.get('mode')}); leave it out."
            )
        is_measured = power["value"] is not None and power["origin"] == "measured"
        return _Run(
            kernel=name,
            parameter=parameter,
            compute_units=int(kernel["compute_units"]),
            rows=int(matrix["rows"]),
            cols=int(matrix["cols"]),
            nnz=int(matrix["nnz"]),
            density=float(kernel["density"]),
            bytes=int(kernel["bytes"]),
            time_s=float(time["value"]),
            power_w=float(power["value"]) if is_measured else None,
        )
    except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise SpmvFpgaError(
            f"result {number} is no document of a run ({type(error).__name__}: {error}); give "
            "what `spmv-fpga run --json-out` wrote."
        ) from None


def _fitted_bandwidth(runs: Sequence[_Run]) -> tuple[Parameter, Fit]:
    """Fit a constant and the bytes of one channel: the slope's inverse is the bandwidth."""
    if len(runs) < MIN_RUNS or len({run.bytes for run in runs}) < 2:
        raise SpmvFpgaError(
            f"the bandwidth kernel has {len(runs)} results; {MIN_RUNS} of unlike sizes are the "
            "least."
        )
    counts = [[1.0, run.bytes / run.compute_units] for run in runs]
    fit = fit_with_errors(counts, [run.time_s for run in runs])
    slope, (low, high) = float(fit.coefficients[1]), fit.bounds(1)
    if low <= 0:
        raise SpmvFpgaError(
            "the bandwidth kernel's times do not rise with its bytes; run it on more of them."
        )
    source = f"bandwidth kernel, fit to {len(runs)} measured runs"
    return Parameter(_rounded(1 / slope), _rounded(1 / high), _rounded(1 / low), source), fit


def _fitted(
    key: str, runs: Sequence[_Run], base: Calibration
) -> tuple[KernelCalibration, Fit, Fit | None]:
    if len(runs) < MIN_RUNS:
        raise SpmvFpgaError(
            f"kernel {key} has {len(runs)} results; {MIN_RUNS} matrices are the least."
        )
    before = base.kernel(runs[0].kernel)
    source = f"fit to {len(runs)} measured runs"
    counts = [[1.0, run.rows / run.compute_units, run.accesses] for run in runs]
    time = fit_with_errors(counts, [run.time_s for run in runs])
    names = (("launch", "launches"), ("rows", "rows"), ("accesses", "accesses"))
    power, power_fit = _fitted_power(runs, before.power, source)
    is_block = runs[0].kernel == "block"
    sizes = tuple(sorted({run.parameter for run in runs if run.parameter is not None}))
    fitted = KernelCalibration(
        access="words",
        lanes=before.lanes,
        terms=tuple(
            Term(term, count, seconds=_parameter(time, k, source))
            for k, (term, count) in enumerate(names)
        ),
        power=power,
        time_scatter=_rounded(time.scatter),
        power_scatter=None if power_fit is None else _rounded(power_fit.scatter),
        blocks=sizes if is_block else (),
        slices=() if is_block else sizes,
        covers={
            quantity: _span([float(getattr(run, quantity)) for run in runs])
            for quantity in ("rows", "cols", "nnz", "density")
        },
    )
    return fitted, time, power_fit


def _fitted_power(runs: Sequence[_Run], before: Power, source: str) -> tuple[Power, Fit | None]:
    """Fit what units and bytes add to the idle power, where the runs say so."""
    sensed = [run for run in runs if run.power_w is not None]
    if len(sensed) < MIN_RUNS or len({run.compute_units for run in sensed}) > 1:
        return before, None
    units = sensed[0].compute_units
    counts = np.array([[1.0, run.bytes / run.time_s] for run in sensed])
    fit = fit_with_errors(counts, [run.power_w or 0.0 for run in sensed])
    low, high = fit.bounds(0)
    idle = before.idle_w.value

    def above_idle(power_w: float) -> float:
        return _rounded(max(power_w - idle, 0.0) / units)

    value = above_idle(float(fit.coefficients[0]))
    kernel = Parameter(value, above_idle(low), above_idle(high), f"{source}, less idle power")
    slope = _parameter(fit, 1, source)
    idle_w = before.idle_w
    if fit.coefficients[0] < idle:
        # The card idles lower than the base says: a kernel adds nothing that can be told.
        constant = _parameter(fit, 0, source)
        return Power(constant, Parameter(0.0, 0.0, 0.0, source), slope), fit
    return Power(idle_w, kernel, slope), fit


def _parameter(fit: Fit, k: int, source: str) -> Parameter:
    low, high = fit.bounds(k)
    return Parameter(
        _rounded(float(fit.coefficients[k])), _rounded(low), _rounded(high), source
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")
