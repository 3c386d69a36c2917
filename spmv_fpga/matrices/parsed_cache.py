"""Parsed matrices in binary, so that a large one is parsed or made only once.

One file per matrix holds a JSON header line and the three CSR arrays as NumPy
writes them. A file that is cut short, foreign or of another version counts as
absent; a cache that cannot be written is left alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..resources import cache_dir
from .model import Matrix, canonical

#: Smallest matrix worth a file, in entries.
MIN_ENTRIES = 100_000
#: The oldest files go when all together are larger than this.
MAX_BYTES = 4 << 30

_VERSION = "spmv_fpga parsed matrix 1"


def file_key(path: Path, *facts: object) -> str:
    """Return a key that changes whenever the file at `path` may have changed."""
    stat = path.stat()
    return _key(path.absolute(), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, *facts)


def _key(*facts: object) -> str:
    return hashlib.sha256("\0".join(map(str, (_VERSION, *facts))).encode()).hexdigest()[:32]


def remember(key_or_fact: str, make: Callable[[], Matrix]) -> Matrix:
    """Return the matrix stored under a key, or make it and store it.

    Parameters
    ----------
    key_or_fact : str
        What the matrix depends on: a `file_key`, or a name with its version.
    make : callable
        Makes the matrix where the cache has none.
    """
    key = _key(key_or_fact)
    path = cache_dir() / "parsed" / f"{key}.bin"
    matrix = _load(path, key)
    if matrix is None:
        matrix = make()
        if matrix.nnz >= MIN_ENTRIES:
            _store(path, key, matrix)
    return matrix


def _load(path: Path, key: str) -> Matrix | None:
    try:
        with path.open("rb") as file:
            header: dict[str, Any] = json.loads(file.readline())
            if header["key"] != key:
                return None
            indptr, indices, values = (np.load(file, allow_pickle=False) for _ in range(3))
            m, _ = header["shape"]
            if (len(indptr), int(indptr[-1]), len(indices)) != (
                m + 1,
                len(values),
                len(values),
            ):
                return None
            csr = canonical(values, indices, indptr, tuple(header["shape"]))
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError):
        return None
    facts = {name: header[name] for name in ("name", "source", "symmetric", "is_twin")}
    return Matrix(csr, warnings=tuple(header["warnings"]), **facts)


def _store(path: Path, key: str, matrix: Matrix) -> None:
    arrays = [
        np.ascontiguousarray(a)
        for a in (matrix.csr.indptr, matrix.csr.indices, matrix.csr.data)
    ]
    header = {
        "key": key,
        "shape": list(matrix.csr.shape),
        "name": matrix.name,
        "source": matrix.source,
        "symmetric": matrix.symmetric,
        "is_twin": matrix.is_twin,
        "warnings": matrix.warnings,
    }
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(json.dumps(header).encode() + b"\n")
                for array in arrays:
                    np.save(file, array, allow_pickle=False)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(path)
        finally:
            Path(temporary).unlink(missing_ok=True)
        _evict(path)


def _evict(newest: Path) -> None:
    """Remove the oldest files until the rest fit, never the one just written."""
    files = [(f.stat(), f) for f in newest.parent.glob("*.bin") if f != newest]
    total = newest.stat().st_size + sum(stat.st_size for stat, _ in files)
    for stat, file in sorted(files, key=lambda pair: pair[0].st_mtime_ns):
        if total <= MAX_BYTES:
            return
        file.unlink(missing_ok=True)
        total -= stat.st_size
