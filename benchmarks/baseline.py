"""Measure what the project's way to oneMKL costs over the same calls made bare.

    python -m benchmarks.baseline

Both multiply the same matrix in the same process with the same threads. They take turns in
short rounds, so that a machine whose speed drifts does not decide. Where the system places
the pages of a matrix changes its time by several per cent, so both are set up anew several
times, each of the two first in half of them; the ratio is the median over all pairs.
"""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from spmv_fpga import load_matrix, verify
from spmv_fpga.baselines import Baseline, time_baseline
from spmv_fpga.baselines.base import aligned_zeros
from spmv_fpga.baselines.mkl import OneMkl, find_library

MATRIX = "twin:TS2383"
SETUPS = 16
PAIRS = 9
ROUND = 7
LIMIT = 1.02

_GENERAL, _NON_TRANSPOSE = 20, 10


class _Description(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("mode", ctypes.c_int), ("diag", ctypes.c_int))


def bare_product(
    A: csr_array, x: np.ndarray, y: np.ndarray
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return calls that multiply by oneMKL without the project's code, and that free it."""
    mkl = ctypes.CDLL(str(find_library()))
    handle, description = ctypes.c_void_p(), _Description(_GENERAL, 0, 0)

    def at(array: np.ndarray, skipped: int = 0) -> ctypes.c_void_p:
        return ctypes.c_void_p(array.ctypes.data + skipped)

    status = mkl.mkl_sparse_s_create_csr(
        ctypes.byref(handle), 0, *A.shape, at(A.indptr), at(A.indptr, 4), at(A.indices),
        at(A.data),
    )  # fmt: skip
    status |= mkl.mkl_sparse_set_mv_hint(handle, _NON_TRANSPOSE, description, 1_000_000)
    status |= mkl.mkl_sparse_optimize(handle)
    if status:
        raise SystemExit("the bare calls failed")
    one, zero, at_x, at_y = ctypes.c_float(1), ctypes.c_float(0), at(x), at(y)
    multiply = mkl.mkl_sparse_s_mv

    def product() -> object:
        return multiply(_NON_TRANSPOSE, one, handle, description, at_x, zero, at_y)

    return product, lambda: mkl.mkl_sparse_destroy(handle)


def bare_median_s(product: Callable[[], object]) -> float:
    """Return the median time of the products of one round, after one that is not timed."""
    product()
    times = []
    for _ in range(ROUND):
        start = time.monotonic()
        product()
        times.append(time.monotonic() - start)
    return statistics.median(times)


def median_through_project_s(baseline: Baseline, x: np.ndarray) -> float:
    """Return the same through the project: without a time to fill, it makes seven products."""
    result = time_baseline(baseline, x, warmup_s=0.0, measure_s=0.0)
    if len(result.time_s) != ROUND:
        raise SystemExit(f"a round has {len(result.time_s)} products, not {ROUND}")
    return float(np.median(result.time_s))


def ratios_of_setup(A: csr_array, x: np.ndarray, is_bare_first: bool) -> list[float]:
    """Set both up, and return the ratio of each pair of rounds."""
    at_x, y = aligned_zeros(A.shape[1]), aligned_zeros(A.shape[0])
    at_x[:] = x
    if is_bare_first:
        product, free = bare_product(A, at_x, y)
    with OneMkl(A) as baseline:
        if not is_bare_first:
            product, free = bare_product(A, at_x, y)
        ratios = [
            median_through_project_s(baseline, x) / bare_median_s(product) for _ in range(PAIRS)
        ]
        verify(baseline.fetch(), A, x)
    verify(y, A, x)
    free()
    return ratios


def mkl_ratio() -> float:
    """Return the time of a product through `time_baseline` over that of the bare call."""
    A = load_matrix(MATRIX)
    x = np.random.default_rng(1).random(A.shape[1], np.float32)
    OneMkl(A).close()  # chooses layers and threads for both
    setups = [ratios_of_setup(A, x, bool(setup % 2)) for setup in range(SETUPS)]
    return statistics.median(ratio for ratios in setups for ratio in ratios)


def main() -> None:
    """Measure, print, and say by the exit status whether the limit is met."""
    if find_library() is None:
        raise SystemExit('oneMKL is missing; run `pip install "spmv_fpga[mkl]"`.')
    ratio = mkl_ratio()
    print(f"oneMKL through the project ÷ bare on {MATRIX}: {ratio:.4f}, at most {LIMIT}")
    if not ratio <= LIMIT:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
