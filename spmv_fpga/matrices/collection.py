"""The SuiteSparse Matrix Collection: names, index, archives on disk, download.

Archives are looked for in ``matrices/`` of a checkout, then in the cache folder
under ``matrices/Group/Name.tar.gz``; files put there by hand work as well. Only
then, and unless ``SPMV_FPGA_OFFLINE`` is set, they come from ``SPMV_FPGA_MIRROR``.

Reference: T. A. Davis and Y. Hu, "The University of Florida Sparse Matrix
Collection", ACM Transactions on Mathematical Software 38 (2011), article 1.
"""

from __future__ import annotations

import fnmatch
import importlib
import importlib.util
import os
import re
import sys
import time
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from ..errors import MatrixError, ToolNotFoundError
from ..resources import cache_dir, data_dir, is_checkout
from .archives import ArchiveError, check_archive
from .download import Progress, download, is_offline
from .suite import find_in_suite, near_names

#: The collection's own site.
DEFAULT_MIRROR = "https://sparse.tamu.edu"

_INDEX_AGE_S = 90 * 24 * 3600.0
_WORD = r"[A-Za-z0-9_][A-Za-z0-9_.+\-]*"
_FULL_NAME = re.compile(f"({_WORD})/({_WORD})")


@dataclass(frozen=True)
class IndexRow:
    """One line of the collection's index.

    Parameters
    ----------
    group, name : str
        Name in the collection.
    rows, cols, nnz : int
        Size, and entries of the whole matrix.
    dtype : str
        "real", "complex" or "binary".
    kind : str
        The problem that it comes from.
    """

    group: str
    name: str
    rows: int
    cols: int
    nnz: int
    dtype: str
    kind: str

    @property
    def full_name(self) -> str:
        """``Group/Name``."""
        return f"{self.group}/{self.name}"


def mirror() -> str:
    """Return the base address, without a slash at its end."""
    return (os.environ.get("SPMV_FPGA_MIRROR") or DEFAULT_MIRROR).rstrip("/")


def archive_url(full_name: str) -> str:
    """Return where an archive comes from.

    >>> archive_url("HB/ash85").endswith("/MM/HB/ash85.tar.gz")
    True
    """
    return f"{mirror()}/MM/{full_name}.tar.gz"


def archive_target(full_name: str) -> Path:
    """Return where an archive is kept, and where it can be put by hand."""
    return cache_dir() / "matrices" / f"{full_name}.tar.gz"


def _folders() -> list[Path]:
    checkout = [data_dir("matrices")] if is_checkout() else []
    return [*checkout, cache_dir() / "matrices"]


def cached() -> list[Path]:
    """Return the archives on this machine, in the order in which they are looked for."""
    return [path for folder in _folders() for path in sorted(folder.glob("*/*.tar.gz"))]


def find_archive(full_name: str) -> Path | None:
    """Return the archive on this machine, which may be damaged, or None."""
    for folder in _folders():
        path = folder / f"{full_name}.tar.gz"
        if path.is_file():
            return path
    return None


def resolve(name: str) -> str:
    """Return ``Group/Name`` for a short name of the paper, ``Name`` or ``Group/Name``.

    Raises
    ------
    MatrixError
        If nothing has this name; the message offers near ones.

    Examples
    --------
    >>> resolve("TS2383")
    'TSOPF/TSOPF_RS_b2383'
    """
    entry = find_in_suite(name)
    if entry is not None:
        return entry.full_name
    if _FULL_NAME.fullmatch(name):
        return name
    if not re.fullmatch(_WORD, name):
        raise MatrixError(f"no file and no matrix has this name; {near_names(name)}", path=name)
    on_disk = {f"{p.parent.name}/{p.name.removesuffix('.tar.gz')}" for p in cached()}
    matches = sorted(full for full in on_disk if full.partition("/")[2] == name)
    if not matches:
        rows = _index_for(name)
        matches = [row.full_name for row in rows if row.name == name]
        if not matches:
            near = near_names(name, (key for row in rows for key in (row.name, row.full_name)))
            raise MatrixError(f"no file and no matrix has this name; {near}", path=name)
    if len(matches) > 1:
        reason = f"several matrices have this name; write one of {', '.join(matches)}."
        raise MatrixError(reason, path=name)
    return matches[0]


def _index_for(name: str) -> list[IndexRow]:
    try:
        return read_index()
    except MatrixError as error:
        reason = (
            f"there is no such file, and no matrix of the paper or of the cache has this name; "
            f"{near_names(name)} The collection's index is not at hand: {error.reason} With "
            "Group/Name it is not needed."
        )
        raise MatrixError(reason, path=name) from error


def fetch(name: str, progress: Progress | None = None) -> Path:
    """Return a whole archive of the collection, downloaded if need be.

    Parameters
    ----------
    name : str
        Short name of the paper, ``Name`` or ``Group/Name``.
    progress : callable, optional
        Called with the bytes done and the bytes in all, or None.

    Raises
    ------
    MatrixError
        If the matrix is unknown or cannot be had; the message says where to put
        the archive by hand.
    """
    full_name = resolve(name)
    found = find_archive(full_name)
    if found is not None:
        try:
            check_archive(found)
        except ArchiveError as error:
            return replace_broken(full_name, error, progress)
        return found
    return _download_archive(full_name, progress)


def replace_broken(
    full_name: str, error: ArchiveError, progress: Progress | None = None
) -> Path:
    """Fetch an archive again that turned out broken, or raise `error` off line."""
    if is_offline() or error.path != str(archive_target(full_name)):
        raise error
    return _download_archive(full_name, progress)


def _download_archive(full_name: str, progress: Progress | None) -> Path:
    url, target = archive_url(full_name), archive_target(full_name)
    if is_offline():
        twin = f", or {hint}" if (hint := _twin_hint(full_name)) else ""
        raise MatrixError(
            f"there is neither a file of this name nor the matrix on this machine, and "
            f"SPMV_FPGA_OFFLINE is set; put {url} at {target} by hand{twin}.",
            path=full_name,
        )
    try:
        return download(url, target, check_archive, progress)
    except MatrixError as error:
        near = (
            f" If the name is wrong: {near_names(full_name)}" if "404" in error.reason else ""
        )
        twin = f" Or {hint}." if (hint := _twin_hint(full_name)) else ""
        raise MatrixError(f"{error}{near}{twin}", path=full_name) from error


def _twin_hint(full_name: str) -> str:
    entry = find_in_suite(full_name)
    return f"take its synthetic twin, twin:{entry.short}" if entry else ""


def search(pattern: str) -> list[IndexRow]:
    """Return the lines of the index whose name holds or matches a pattern.

    Parameters
    ----------
    pattern : str
        Part of ``Group/Name``, or a pattern with ``*`` and ``?`` for all of it;
        case does not matter.

    Raises
    ------
    MatrixError
        If the index is neither in the cache nor to be had.
    """
    wanted = pattern.lower()
    if not any(mark in wanted for mark in "*?["):
        wanted = f"*{wanted}*"
    rows = read_index()
    return [row for row in rows if fnmatch.fnmatchcase(row.full_name.lower(), wanted)]


def read_index() -> list[IndexRow]:
    """Return the collection's index, downloaded if it is missing or 90 days old.

    Raises
    ------
    MatrixError
        If the index is neither in the cache nor to be had, or is not one.
    """
    path = cache_dir() / "matrices" / "ssstats.csv"
    is_there = path.is_file()
    is_fresh = is_there and time.time() - path.stat().st_mtime < _INDEX_AGE_S
    if not is_fresh and not (is_there and is_offline()):
        _refresh_index(path, is_there)
    return _parse_index(path)


def _refresh_index(path: Path, is_there: bool) -> None:
    url = f"{mirror()}/files/ssstats.csv"
    if is_offline():
        reason = f"SPMV_FPGA_OFFLINE is set; put {url} at {path} by hand."
        raise MatrixError(reason, path=path)
    try:
        download(url, path, _parse_index, keep_whole=False)
    except MatrixError:
        if not is_there:
            raise


def _parse_index(path: Path) -> list[IndexRow]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
        # Two lines come first: how many matrices there are, and a date.
        rows = list(_gen_rows()(lines[2:]))
        return [
            IndexRow(group, name, num_rows, num_cols, nnz, dtype, kind)
            for _, group, name, num_rows, num_cols, nnz, dtype, *_, kind in rows
        ]
    except (ValueError, IndexError, OSError) as error:
        reason = f"this is not the collection's index ({error}); remove the file."
        raise MatrixError(reason, path=path) from error


def _gen_rows() -> Callable[[Iterable[str]], Iterator[tuple[Any, ...]]]:
    """Return ssgetpy's index parser without importing ssgetpy.

    That import makes a folder in HOME, opens a database and downloads the index. The
    parser needs none of it, so its file is loaded alone, under names of our own.
    """
    package = "_spmv_fpga_ssgetpy"
    module = sys.modules.get(f"{package}.csvindex")
    if module is None:
        spec = importlib.util.find_spec("ssgetpy")
        if spec is None or not spec.submodule_search_locations:
            raise ToolNotFoundError("ssgetpy", "install it with: pip install ssgetpy")
        parent = types.ModuleType(package)
        parent.__path__ = list(spec.submodule_search_locations)
        config = types.ModuleType(f"{package}.config")
        config.SS_INDEX_URL = ""  # type: ignore[attr-defined]
        sys.modules.update({package: parent, f"{package}.config": config})
        module = importlib.import_module(f"{package}.csvindex")
    return cast(Callable[[Iterable[str]], Iterator[tuple[Any, ...]]], module.gen_rows)
