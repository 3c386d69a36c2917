"""The table of CPU baselines."""

from __future__ import annotations

from scipy.sparse import csr_array

from ..errors import FormatError, SpmvFpgaError, ToolError
from .base import Baseline
from .mkl import OneMkl
from .scipy import ScipyCsr

BASELINES = ("auto", "mkl", "scipy", "none")


def open_baseline(name: str, A: csr_array, *, threads: int | None = None) -> Baseline | None:
    """Choose a CPU library and give it a matrix.

    Parameters
    ----------
    name : str
        `mkl`, `scipy`, `none`, or `auto`: oneMKL where it is installed and takes the
        matrix, else SciPy, whose `facts` then say why.
    A : csr_array, shape (m, n), float32
    threads : int, optional
        By default the library's own choice; SciPy has one.

    Returns
    -------
    Baseline or None
        None for `none`.

    Raises
    ------
    SpmvFpgaError
        If the name is unknown, or the library asked for is not there or fails.

    Examples
    --------
    >>> import numpy as np
    >>> open_baseline("scipy", csr_array(np.eye(2, dtype=np.float32))).threads
    1
    """
    if name == "none":
        return None
    if name == "scipy":
        return ScipyCsr(A)
    if name == "mkl":
        return OneMkl(A, threads)
    if name == "auto":
        try:
            return OneMkl(A, threads)
        except (ToolError, FormatError) as error:
            return ScipyCsr(A, {"instead_of_mkl": str(error)})
    raise SpmvFpgaError(f"baseline is {name!r}; it must be one of {', '.join(BASELINES)}.")
