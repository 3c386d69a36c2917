"""Load a GPU in two regions and in many short ones, and read its energy counter beside them.

    spmv-fpga energy record --power nvml -- python -m benchmarks.gpu_load SECONDS FILE.json

`spmv` multiplies a random sparse matrix (memory-bound), `gemm` a dense one (compute-bound),
each for SECONDS; `short` is entered fifty times for one batch of `gemm`, less than the GPU's
sensor can resolve. FILE.json gets, for each of the two, what the counter itself counted from
begin to end: an account that shares neither the sampler nor the integration with the
recording.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml
import torch

REST_S, BATCH_S = 3.0, 0.05
NUM_SHORT = 50


@contextmanager
def region(name: str) -> Iterator[None]:
    """Mark a region for the recorder."""
    marks = Path(os.environ["SPMV_FPGA_REGIONS"])

    def mark(verb: str) -> None:
        with marks.open("a") as file:
            file.write(f"{verb} {name} {time.monotonic()!r}\n")

    mark("begin")
    yield
    mark("end")


def work(multiply: Callable[[], object], duration_s: float) -> int:
    """Multiply for a time, and wait until the GPU is done; return how often."""
    start_s = time.monotonic()
    multiply()
    torch.cuda.synchronize()
    batch = max(1, int(BATCH_S / (time.monotonic() - start_s)))
    count = 1
    while time.monotonic() - start_s < duration_s:
        for _ in range(batch):
            multiply()
        torch.cuda.synchronize()
        count += batch
    return count


def sparse_product(num_rows: int = 2_000_000, per_row: int = 32) -> Callable[[], object]:
    """Return y = A·x in float32; 64 million entries do not fit a cache."""
    row_ptr = torch.arange(0, num_rows * per_row + 1, per_row, device="cuda")
    cols = torch.randint(num_rows, (num_rows, per_row), device="cuda").sort(1).values.ravel()
    values = torch.rand(num_rows * per_row, device="cuda")
    A = torch.sparse_csr_tensor(
        row_ptr.int(), cols.int(), values, (num_rows, num_rows), check_invariants=False
    )
    x = torch.rand(num_rows, device="cuda")
    return lambda: A @ x


def dense_product(size: int = 8192) -> Callable[[], object]:
    """Return C = A·B in bfloat16."""
    A, B = (torch.randn(size, size, device="cuda").bfloat16() for _ in range(2))
    return lambda: A @ B


def main(duration_s: float, path: Path) -> None:
    """Run the regions, with pauses between them."""
    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    products = {"spmv": sparse_product(), "gemm": dense_product()}
    for multiply in products.values():  # the libraries load their kernels now
        work(multiply, 0.0)
    counted = {}
    for name, multiply in products.items():
        time.sleep(REST_S)
        with region(name):
            before_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
            count = work(multiply, duration_s)
            after_mj = pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
        counted[name] = {"products": count, "counter_j": (after_mj - before_mj) / 1e3}
    time.sleep(REST_S)
    for _ in range(NUM_SHORT):
        with region("short"):
            work(products["gemm"], BATCH_S / 2)
        time.sleep(BATCH_S)
    path.write_text(json.dumps(counted))


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
