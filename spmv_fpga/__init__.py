"""Sparse matrix-vector products on an AMD Alveo U50: verified, timed, testable without it.

Examples
--------
>>> from spmv_fpga import BlockedEll, load_matrix, verify
>>> import numpy as np
>>> A = load_matrix("gallery:poisson2d:n=16")
>>> x = np.ones(A.shape[1], np.float32)
>>> f = BlockedEll.from_csr(A, block=16)
>>> verify(f.spmv(x), A, x) <= 1
True
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .formats import BlockedEll, SellCSigma, SlicedEll, format_stats
    from .matrices import load_matrix
    from .reference import verify
    from .roofline import predict
    from .runtime import open_device

__all__ = [
    "BlockedEll",
    "SellCSigma",
    "SlicedEll",
    "__version__",
    "format_stats",
    "load_matrix",
    "open_device",
    "predict",
    "verify",
]

# Loaded when first used: `spmv-fpga --help` needs neither SciPy nor anything of the card.
_HOMES = {
    "BlockedEll": "formats",
    "SellCSigma": "formats",
    "SlicedEll": "formats",
    "format_stats": "formats",
    "load_matrix": "matrices",
    "open_device": "runtime",
    "predict": "roofline",
    "verify": "reference",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOMES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
