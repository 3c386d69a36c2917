"""Matrices: names, files, the collection, the gallery, twins.

`load_matrix` gives a canonical float32 ``csr_array``, `open_matrix` the same with
its name, source and what was done about symmetry. Nothing here touches the disk or
the network before a matrix is asked for.
"""

from __future__ import annotations

from .collection import IndexRow, cached, fetch, search
from .download import Progress
from .gallery import GALLERY
from .loading import MatrixInfo, describe, load_matrix, open_matrix
from .model import Matrix, Symmetric
from .suite import SuiteEntry, list_suite

__all__ = [
    "GALLERY",
    "IndexRow",
    "Matrix",
    "MatrixInfo",
    "Progress",
    "SuiteEntry",
    "Symmetric",
    "cached",
    "describe",
    "fetch",
    "list_suite",
    "load_matrix",
    "open_matrix",
    "search",
]
