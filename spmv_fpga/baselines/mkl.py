"""Intel's oneMKL, from the package `mkl`, through its C interface.

The matrix is given to `mkl_sparse_s_create_csr`, inspected once by `mkl_sparse_optimize`
with the hint that many products follow, and multiplied by `mkl_sparse_s_mv`. Nothing is
linked or imported: the library `libmkl_rt` is looked for where pip puts it, in the
environment's `lib` folder, which no dynamic loader searches by itself.

Function names, constants and statuses are those of Intel, Developer Reference for oneAPI
Math Kernel Library for C, "Inspector-Executor Sparse BLAS Routines" and "Support
Functions"; the values of the constants stand in its headers `mkl_spblas.h` and
`mkl_service.h`.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import re
import sys
import weakref
from ctypes import POINTER, c_char_p, c_float, c_int, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from ..errors import FormatError, SpmvFpgaError, ToolError, ToolNotFoundError
from ..resources import install_command
from .base import Baseline, aligned_zeros

_LIBRARY = "libmkl_rt.so*"
_LARGEST_INT32 = 2**31 - 1
_EXPECTED_PRODUCTS = 1_000_000

_INTERFACE_LP64 = 0
_INDEX_BASE_ZERO = 0
_NON_TRANSPOSE = 10
_STATUSES = (
    "success", "not initialised", "out of memory", "invalid value", "execution failed",
    "internal error", "not supported",
)  # fmt: skip


class _Description(ctypes.Structure):
    """`struct matrix_descr`; mode and diagonal do not matter for a general matrix."""

    _fields_ = (("type", c_int), ("mode", c_int), ("diag", c_int))


_GENERAL = _Description(type=20, mode=0, diag=0)


@dataclass(frozen=True)
class _Threading:
    """A threading layer of libmkl_rt: its number, its library and what that needs."""

    name: str
    value: int
    library: str
    runtime: str | None


_THREADINGS = (
    _Threading("intel", 0, "libmkl_intel_thread.so*", "libiomp5.so"),
    _Threading("gnu", 3, "libmkl_gnu_thread.so*", "libgomp.so.1"),
    _Threading("sequential", 1, "libmkl_sequential.so*", None),
)


class OneMkl(Baseline):
    """oneMKL's product of a CSR matrix, inspected once.

    Parameters
    ----------
    A : csr_array, shape (m, n), float32
    threads : int, optional
        By default as many as oneMKL would take (the physical cores, or `MKL_NUM_THREADS`),
        but no more than the processors that this process may run on. The number holds for
        the whole process.

    Raises
    ------
    ToolNotFoundError
        If oneMKL is not installed.
    ToolError
        If it cannot be loaded, or one of its calls fails.
    FormatError
        If the matrix needs indices of 64 bits.

    Notes
    -----
    Threads of Intel's OpenMP spin for up to 0.2 s after the last product (`KMP_BLOCKTIME`);
    an idle power measured directly afterwards holds that.
    """

    def __init__(self, A: csr_array, threads: int | None = None) -> None:
        _check_size(A)
        loaded = _load(_required_library())
        self._mkl = loaded.mkl
        self.library = loaded.name
        self.threads = _set_threads(loaded.mkl, threads)
        self.facts = {
            "version": loaded.version,
            "threading": loaded.threading,
            "file": loaded.path,
        }
        self._x, self._y = aligned_zeros(A.shape[1]), aligned_zeros(A.shape[0])
        # oneMKL keeps pointers to these; they must live as long as the handle.
        self._arrays = (
            np.ascontiguousarray(A.indptr, np.int32),
            np.ascontiguousarray(A.indices, np.int32),
            np.ascontiguousarray(A.data, np.float32),
        )
        self._handle = c_void_p()
        self._is_empty = 0 in A.shape  # refused by oneMKL; the product is known
        if not self._is_empty:
            self._create(A.shape)
        self._arguments = (
            _NON_TRANSPOSE, c_float(1.0), self._handle, _GENERAL, _address(self._x),
            c_float(0.0), _address(self._y),
        )  # fmt: skip

    def _create(self, shape: tuple[int, int]) -> None:
        mkl, (indptr, indices, values) = self._mkl, self._arrays
        row_ends = c_void_p(indptr.ctypes.data + indptr.itemsize)
        _check(
            "mkl_sparse_s_create_csr",
            mkl.mkl_sparse_s_create_csr(
                ctypes.byref(self._handle), _INDEX_BASE_ZERO, *shape, _address(indptr),
                row_ends, _address(indices), _address(values),
            ),
        )  # fmt: skip
        self._destroy = weakref.finalize(
            self, mkl.mkl_sparse_destroy, c_void_p(self._handle.value)
        )
        _check(
            "mkl_sparse_set_mv_hint",
            mkl.mkl_sparse_set_mv_hint(
                self._handle, _NON_TRANSPOSE, _GENERAL, _EXPECTED_PRODUCTS
            ),
        )
        _check("mkl_sparse_optimize", mkl.mkl_sparse_optimize(self._handle))

    def place(self, x: npt.NDArray[np.float32]) -> None:
        """Take x, shape (n,), float32."""
        if np.shape(x) != self._x.shape:
            raise FormatError(
                f"x has shape {np.shape(x)}; the matrix has {len(self._x)} columns."
            )
        self._x[:] = x

    def launch(self) -> None:
        """Multiply once, y := A·x in place."""
        if self._is_empty:
            return
        status = self._mkl.mkl_sparse_s_mv(*self._arguments)
        if status:
            _check("mkl_sparse_s_mv", status)

    def fetch(self) -> npt.NDArray[np.float32]:
        """Return the y of the last launch, shape (m,), a copy."""
        return self._y.copy()

    def close(self) -> None:
        """Free what oneMKL made of the matrix; a launch afterwards is refused by oneMKL."""
        if not self._is_empty:
            self._destroy()
            self._handle.value = None


def find_library() -> Path | None:
    """Return the file of oneMKL's `libmkl_rt` in this environment, the newest of several.

    Returns
    -------
    Path or None
        From the files of the distribution `mkl`, else in `lib` below the environment.
    """
    found = [path for path in _distribution_files("mkl") if path.match(_LIBRARY)]
    found += (Path(sys.prefix) / "lib").glob(_LIBRARY)
    present = {path.resolve() for path in found if path.exists()}
    return max(present, key=_soname_version, default=None)


def _distribution_files(name: str) -> list[Path]:
    try:
        files = importlib.metadata.distribution(name).files or ()
    except importlib.metadata.PackageNotFoundError:
        return []
    return [Path(str(file.locate())) for file in files]


def _soname_version(path: Path) -> tuple[int, ...]:
    """Return the numbers of `libmkl_rt.so.3`; none sorts first."""
    return tuple(int(number) for number in re.findall(r"\d+", path.name))


def _required_library() -> Path:
    path = find_library()
    if path is None:
        raise ToolNotFoundError(
            "baseline mkl (oneMKL)",
            f"run `{install_command('mkl')}`, or take --baseline scipy.",
        )
    return path


@dataclass(frozen=True)
class _Loaded:
    """libmkl_rt in this process."""

    mkl: Any
    path: str
    name: str
    version: str
    threading: str


@cache
def _load(path: Path) -> _Loaded:
    """Load oneMKL with 32-bit indices and the first threading layer whose parts are there."""
    threading = _choose_threading(path.parent)
    try:
        mkl = ctypes.CDLL(str(path))
        _declare(mkl)
    except (OSError, AttributeError) as error:
        raise ToolError(
            f"{path} cannot be used ({error}); reinstall the package mkl, or take "
            "--baseline scipy."
        ) from None
    if mkl.MKL_Set_Interface_Layer(_INTERFACE_LP64) != _INTERFACE_LP64:
        raise ToolError(
            "oneMKL is in use in this process with 64-bit indices; run the baseline in a "
            "process of its own."
        )
    used = mkl.MKL_Set_Threading_Layer(threading.value)
    names = {layer.value: layer.name for layer in _THREADINGS}
    buffer = ctypes.create_string_buffer(256)
    mkl.MKL_Get_Version_String(buffer, len(buffer))
    version = buffer.value.decode("ascii", "replace").strip()
    return _Loaded(mkl, str(path), _short_name(version), version, names.get(used, str(used)))


def _choose_threading(folder: Path) -> _Threading:
    """Return a layer that loads; oneMKL ends the process where its own choice does not."""
    for threading in _THREADINGS:
        if any(folder.glob(threading.library)) and _loads(folder, threading.runtime):
            return threading
    raise ToolError(
        f"{folder} holds none of oneMKL's threading layers; reinstall the package mkl, or "
        "take --baseline scipy."
    )


def _loads(folder: Path, runtime: str | None) -> bool:
    """Load a run time, from the folder or from where the loader finds it; it stays loaded."""
    if runtime is None:
        return True
    beside = folder / runtime
    try:
        ctypes.CDLL(str(beside) if beside.exists() else runtime)
    except OSError:
        return False
    return True


def _declare(mkl: Any) -> None:
    """Give every function its C prototype, with 32-bit MKL_INT."""
    prototypes: dict[str, tuple[Any, ...]] = {
        "mkl_sparse_s_create_csr": (
            POINTER(c_void_p), c_int, c_int, c_int, c_void_p, c_void_p, c_void_p, c_void_p,
        ),
        "mkl_sparse_set_mv_hint": (c_void_p, c_int, _Description, c_int),
        "mkl_sparse_optimize": (c_void_p,),
        "mkl_sparse_s_mv": (
            c_int, c_float, c_void_p, _Description, c_void_p, c_float, c_void_p,
        ),
        "mkl_sparse_destroy": (c_void_p,),
        "MKL_Set_Interface_Layer": (c_int,),
        "MKL_Set_Threading_Layer": (c_int,),
        "MKL_Get_Max_Threads": (),
        "MKL_Set_Num_Threads": (c_int,),
        "MKL_Set_Dynamic": (c_int,),
        "MKL_Get_Version_String": (c_char_p, c_int),
    }  # fmt: skip
    for name, argtypes in prototypes.items():
        function = getattr(mkl, name)
        function.argtypes, function.restype = argtypes, c_int
    for name in ("MKL_Set_Num_Threads", "MKL_Set_Dynamic", "MKL_Get_Version_String"):
        getattr(mkl, name).restype = None


def _short_name(version: str) -> str:
    """Return name and version out of oneMKL's own sentence.

    >>> _short_name("Intel(R) oneAPI Math Kernel Library Version 2026.2-Product Build 2026")
    'oneMKL 2026.2'
    """
    found = re.search(r"Version\s+(\d[\d.]*)", version)
    return f"oneMKL {found.group(1).rstrip('.')}" if found else "oneMKL"


def _set_threads(mkl: Any, threads: int | None) -> int:
    """Set the number of threads and return what oneMKL took."""
    if threads is None:
        threads = min(mkl.MKL_Get_Max_Threads(), len(os.sched_getaffinity(0)))
    if threads < 1:
        raise SpmvFpgaError(f"threads is {threads}; it must be 1 or more.")
    mkl.MKL_Set_Dynamic(0)  # else it may take fewer than it is told, and say nothing
    mkl.MKL_Set_Num_Threads(threads)
    return int(mkl.MKL_Get_Max_Threads())


def _check_size(A: csr_array) -> None:
    largest = max(*A.shape, A.nnz)
    if largest > _LARGEST_INT32:
        raise FormatError(
            f"the matrix has {A.shape[0]} rows, {A.shape[1]} columns and {A.nnz} entries; "
            f"oneMKL's 32-bit interface takes {_LARGEST_INT32} of each; take --baseline scipy."
        )


def _address(array: npt.NDArray[Any]) -> c_void_p:
    return c_void_p(array.ctypes.data)


def _check(function: str, status: int) -> None:
    if status:
        meaning = _STATUSES[status] if status < len(_STATUSES) else "unknown"
        raise ToolError(
            f"{function} failed with status {status} ({meaning}); take --baseline scipy."
        )
