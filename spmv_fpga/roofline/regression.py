"""Robust regression of relative errors with coefficients that are never negative.

Times are sums of costs, a cost is never negative, and a matrix of 0.2 ms matters as much
as one of 50 ms: so the *relative* error is fitted, with non-negative least squares. A value
farther off than 2.5 robust standard deviations of the plain fit loses weight as in Huber's
estimator, so that a disturbed run, which is too slow, does not bend a calibration; without
such values the result is that of plain least squares. Nothing is drawn at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls

from ..errors import SpmvFpgaError

Float64Array = npt.NDArray[np.float64]

HUBER_THRESHOLD = 2.5
"""Robust standard deviations within which a value has full weight: the usual mark of an
outlier, fixed beforehand and not chosen by what it does to any table."""
NORMAL_95 = 1.96
"""Half width of a 95 % interval in standard deviations of a normal distribution."""

_MAD_TO_SD = 1.4826
_MAX_ROUNDS = 50


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted line with what it misses.

    Attributes
    ----------
    coefficients : ndarray, shape (k,)
    errors : ndarray, shape (k,)
        Half widths of 95 % intervals, by the jackknife; NaN where the left-out fits are
        not determined.
    left_out : ndarray, shape (m,)
        What each row is predicted to be by a fit that never saw it; NaN where the other
        rows do not determine one.
    values : ndarray, shape (m,)
        What was fitted.
    """

    coefficients: Float64Array
    errors: Float64Array
    left_out: Float64Array
    values: Float64Array

    @property
    def left_out_errors(self) -> Float64Array:
        """Relative errors of the left-out predictions, shape (m,)."""
        return self.left_out / self.values - 1.0

    @property
    def mean_left_out_error(self) -> float:
        """Mean absolute relative error of the left-out predictions."""
        return float(np.mean(np.abs(self.left_out_errors)))

    @property
    def scatter(self) -> float:
        """Half width of a prediction's relative 95 % interval, from the left-out errors."""
        return float(NORMAL_95 * np.sqrt(np.mean(self.left_out_errors**2)))

    def bounds(self, k: int) -> tuple[float, float]:
        """Return the 95 % interval of a coefficient; 0 is the least."""
        value, error = float(self.coefficients[k]), float(self.errors[k])
        return max(value - error, 0.0), value + error


def fit_line(counts: npt.ArrayLike, values: npt.ArrayLike) -> Float64Array:
    """Fit `values = counts @ coefficients`, relative errors, coefficients ≥ 0.

    Parameters
    ----------
    counts : array_like, shape (m, k)
        What is counted, non-negative: a column of ones gives a constant.
    values : array_like, shape (m,)
        Positive.

    Returns
    -------
    ndarray, shape (k,)

    Raises
    ------
    SpmvFpgaError
        If there are fewer rows than columns, or a value is not positive and finite.

    Examples
    --------
    >>> fit_line([[1, 10], [1, 20], [1, 40]], [1.2, 1.4, 1.8]).round(9).tolist()
    [1.0, 0.02]
    """
    design, target = _checked(counts, values)
    # Each column scaled to at most 1, by the rows of this fit only.
    scale = np.maximum(design.max(axis=0), np.finfo(np.float64).tiny)
    relative = design / target[:, np.newaxis] / scale
    weights = np.ones(len(target))
    coefficients = _weighted(relative, weights)
    limit = HUBER_THRESHOLD * _robust_sd(relative @ coefficients - 1.0)
    for _ in range(_MAX_ROUNDS):
        before = weights
        weights = _huber_weights(relative @ coefficients - 1.0, limit)
        if np.allclose(weights, before, rtol=1e-9, atol=0):
            break
        coefficients = _weighted(relative, weights)
    return np.asarray(coefficients / scale, np.float64)


def fit_with_errors(counts: npt.ArrayLike, values: npt.ArrayLike) -> Fit:
    """Fit, and refit once without each row.

    The refits give two things: what each row is predicted to be by the others alone, and
    the errors of the coefficients (jackknife).

    Parameters
    ----------
    counts, values
        As for `fit_line`.

    Examples
    --------
    >>> fit = fit_with_errors([[1], [1], [1]], [2.0, 2.0, 2.0])
    >>> fit.left_out.round(9).tolist(), fit.errors.round(9).tolist()
    ([2.0, 2.0, 2.0], [0.0])
    """
    design, target = _checked(counts, values)
    coefficients = fit_line(design, target)
    m, k = design.shape
    refits = np.full((m, k), np.nan)
    if m > k:
        for row in range(m):
            refits[row] = fit_line(np.delete(design, row, 0), np.delete(target, row))
    spread = np.sqrt((m - 1) / m * np.sum((refits - refits.mean(axis=0)) ** 2, axis=0))
    left_out = np.sum(refits * design, axis=1)
    return Fit(coefficients, NORMAL_95 * spread, left_out, target)


def mean_absolute(errors: Sequence[float] | Float64Array) -> float:
    """Return the mean absolute value, the error that tables of predictions report.

    >>> mean_absolute([0.1, -0.3])
    0.2
    """
    return float(np.mean(np.abs(np.asarray(errors, np.float64))))


def _weighted(relative: Float64Array, weights: Float64Array) -> Float64Array:
    root = np.sqrt(weights)
    return np.asarray(nnls(relative * root[:, np.newaxis], root)[0], np.float64)


def _robust_sd(residuals: Float64Array) -> float:
    return _MAD_TO_SD * float(np.median(np.abs(residuals)))


def _huber_weights(residuals: Float64Array, limit: float) -> Float64Array:
    size = np.abs(residuals)
    if limit <= 0.0:
        return np.ones_like(size)
    return np.minimum(1.0, limit / np.maximum(size, np.finfo(np.float64).tiny))


def _checked(counts: npt.ArrayLike, values: npt.ArrayLike) -> tuple[Float64Array, Float64Array]:
    design, target = np.asarray(counts, np.float64), np.asarray(values, np.float64)
    if design.ndim != 2 or target.shape != design.shape[:1]:
        raise SpmvFpgaError(
            f"counts have shape {design.shape} and values {target.shape}; they must be "
            "(m, k) and (m,)."
        )
    if len(target) < design.shape[1]:
        raise SpmvFpgaError(
            f"{len(target)} results cannot determine {design.shape[1]} parameters; give more "
            "results."
        )
    if not (np.isfinite(target).all() and (target > 0).all() and np.isfinite(design).all()):
        raise SpmvFpgaError("a result is not a positive finite number; leave it out.")
    return design, target
