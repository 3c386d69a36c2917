"""What a CPU baseline offers, and SciPy's CSR product as the first one."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy
from scipy.sparse import csr_array

from ..errors import SpmvFpgaError

BASELINES = ("auto", "mkl", "scipy", "none")
_MIN_PRODUCTS = 7
_MIN_TOTAL_S = 0.2
_MAX_PRODUCTS = 1000


class Baseline(Protocol):
    """A CPU library that has been given a matrix."""

    library: str
    threads: int

    def multiply(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return A·x."""


@dataclass(frozen=True, eq=False)
class BaselineResult:
    """Times of a CPU library.

    Attributes
    ----------
    library : str
        Name and version.
    threads : int
    time_s : ndarray, shape (n,), float64
        Duration of each product.
    y : ndarray, shape (m,), float32
    """

    library: str
    threads: int
    time_s: npt.NDArray[np.float64]
    y: npt.NDArray[np.float32]


class ScipyCsr:
    """SciPy's own CSR product: one thread, compiled."""

    def __init__(self, A: csr_array) -> None:
        self.library = f"scipy {scipy.__version__}"
        self.threads = 1
        self._A = A

    def multiply(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return A·x."""
        return np.asarray(self._A @ x)


def open_baseline(name: str, A: csr_array) -> Baseline | None:
    """Choose a CPU library and give it a matrix.

    Parameters
    ----------
    name : str
        `auto`, `mkl`, `scipy` or `none`.
    A : csr_array, shape (m, n), float32

    Raises
    ------
    SpmvFpgaError
        If the library is not there.
    """
    if name == "none":
        return None
    if name == "mkl":
        raise SpmvFpgaError("baseline mkl is not part of this version; take --baseline scipy.")
    return ScipyCsr(A)


def time_baseline(baseline: Baseline, x: npt.NDArray[np.float32]) -> BaselineResult:
    """Multiply until there are enough products to judge, at least seven and 0.2 s."""
    with np.errstate(invalid="ignore", over="ignore"):
        y = baseline.multiply(x)  # the first one warms caches up
        times: list[float] = []
        while len(times) < _MIN_PRODUCTS or (
            sum(times) < _MIN_TOTAL_S and len(times) < _MAX_PRODUCTS
        ):
            start = time.perf_counter()
            baseline.multiply(x)
            times.append(time.perf_counter() - start)
    return BaselineResult(baseline.library, baseline.threads, np.asarray(times), y)
