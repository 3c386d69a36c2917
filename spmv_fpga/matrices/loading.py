"""From any name or path to a matrix."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from scipy.sparse import csr_array

from ..errors import MatrixError, shortened
from . import gallery, parsed_cache, twins
from .archives import ArchiveError, ArchiveSource
from .collection import archive_url, fetch, find_archive, replace_broken, resolve
from .download import Progress
from .files import check_file, looks_like_path, market_source, read_file
from .market import peek_header
from .model import Matrix, Symmetric, check_symmetric
from .suite import SuiteEntry, find_in_suite

#: Entries from which a matrix that is made, not read, is worth keeping on disk.
_MADE_MIN_ENTRIES = 1_000_000


def load_matrix(spec: str | os.PathLike[str], symmetric: Symmetric = "expand") -> csr_array:
    """Load a matrix by path or name.

    Parameters
    ----------
    spec : str or path
        A path (``.mtx``, ``.mtx.gz``, ``.mtx.bz2``, ``.tar.gz``, ``.mat``, ``.npz``),
        a short name of the paper (``TS2383``), a SuiteSparse ``Name`` or
        ``Group/Name``, ``gallery:NAME:key=value,…`` or ``twin:NAME``.
    symmetric : {"expand", "stored"}
        Whether a symmetric file gives the whole matrix or the stored triangle.

    Returns
    -------
    csr_array, shape (m, n), float32
        Sorted, duplicates summed, explicit zeros kept; int32 indices where they fit.

    Raises
    ------
    MatrixError
        If the name is unknown or the file holds no usable real matrix.

    Examples
    --------
    >>> load_matrix("gallery:diagonal:n=3").shape
    (3, 3)
    """
    return open_matrix(spec, symmetric).csr


def open_matrix(
    spec: str | os.PathLike[str],
    symmetric: Symmetric = "expand",
    progress: Progress | None = None,
) -> Matrix:
    """Load a matrix with its name, its source and what was done to it.

    Parameters
    ----------
    spec, symmetric
        As for `load_matrix`.
    progress : callable, optional
        Called during a download with the bytes done and the bytes in all, or None.

    Examples
    --------
    >>> open_matrix("gallery:poisson2d:n=4", symmetric="stored").symmetric
    'stored triangle'
    """
    check_symmetric(symmetric)
    path = _as_path(spec)
    if path is not None:
        return _open_file(path, symmetric)
    name = str(spec)
    if name.startswith("gallery:"):
        return _open_gallery(name, symmetric)
    if name.startswith("twin:"):
        return _open_twin(name)
    return _open_named(name, symmetric, progress)


def _as_path(spec: str | os.PathLike[str]) -> Path | None:
    if not isinstance(spec, str):
        return Path(spec)
    if not spec:
        raise MatrixError("the matrix's name is empty; give a path or a name.")
    if spec.startswith(("gallery:", "twin:")):
        return None
    path = Path(spec).expanduser() if spec.startswith("~/") else Path(spec)
    try:
        return path if looks_like_path(spec) or path.is_file() else None
    except OSError as error:  # longer than a name can be
        reason = f"no file can have this name ({error.strerror}); check it."
        raise MatrixError(reason, path=shortened(spec)) from error


def _open_file(path: Path, symmetric: Symmetric) -> Matrix:
    check_file(path)
    key = parsed_cache.file_key(path, symmetric)
    return parsed_cache.remember(key, lambda: read_file(path, symmetric))


def _open_gallery(spec: str, symmetric: Symmetric) -> Matrix:
    name, options = gallery.parse_gallery(spec)
    if gallery.GALLERY[name].num_entries(**options) < _MADE_MIN_ENTRIES:
        return gallery.gallery_matrix(spec, symmetric)
    key = f"gallery {gallery.VERSION} {name} {options} {symmetric}"
    return parsed_cache.remember(key, lambda: gallery.gallery_matrix(spec, symmetric))


def _open_twin(spec: str) -> Matrix:
    figures = twins.parse_twin(spec)
    if figures.nnz < _MADE_MIN_ENTRIES:
        return twins.twin_matrix(spec)
    key = f"twin {twins.VERSION} {figures}"
    return parsed_cache.remember(key, lambda: twins.twin_matrix(spec))


def _open_named(name: str, symmetric: Symmetric, progress: Progress | None) -> Matrix:
    full_name = resolve(name)
    archive = find_archive(full_name) or fetch(full_name, progress)
    try:
        matrix = _open_file(archive, symmetric)
    except ArchiveError as error:
        archive = replace_broken(full_name, error, progress)
        matrix = _open_file(archive, symmetric)
    entry = find_in_suite(full_name)
    source = f"SuiteSparse {full_name} (cached archive {archive})"
    return replace(matrix, name=entry.short if entry else matrix.name, source=source)


@dataclass(frozen=True)
class MatrixInfo:
    """What is known of a matrix without loading it.

    Parameters
    ----------
    name : str
        Name for display.
    rows, cols, stored : int or None
        Size and entries as the file or the published figures say; None where unknown.
    symmetry : str or None
        As in the file's first line.
    path : Path or None
        File on this machine.
    url : str or None
        Where the collection has it.
    suite : SuiteEntry or None
        The paper's figures.
    """

    name: str
    rows: int | None = None
    cols: int | None = None
    stored: int | None = None
    symmetry: str | None = None
    path: Path | None = None
    url: str | None = None
    suite: SuiteEntry | None = None


def describe(spec: str | os.PathLike[str]) -> MatrixInfo:
    """Tell what is known of a matrix without downloading it.

    >>> describe("TS2383").stored
    16171169
    """
    path = _as_path(spec)
    if path is None and not str(spec).startswith(("gallery:", "twin:")):
        return _describe_named(str(spec))
    source = None if path is None else market_source(path)
    if path is None or source is None:
        matrix = open_matrix(spec)
        rows, cols = matrix.csr.shape
        return MatrixInfo(matrix.name, rows, cols, matrix.nnz, matrix.symmetric, path)
    check_file(path)
    header = peek_header(source)
    return MatrixInfo(path.name, header.rows, header.cols, header.stored, header.symmetry, path)


def _describe_named(name: str) -> MatrixInfo:
    full_name = resolve(name)
    path, url, entry = find_archive(full_name), archive_url(full_name), find_in_suite(full_name)
    if path is not None:
        header = peek_header(ArchiveSource(path))
        return MatrixInfo(
            full_name,
            header.rows,
            header.cols,
            header.stored,
            header.symmetry,
            path,
            url,
            entry,
        )
    if entry is not None:
        return MatrixInfo(full_name, entry.n, entry.n, entry.nnz, None, None, url, entry)
    return MatrixInfo(full_name, url=url)
