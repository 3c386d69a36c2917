"""Matrices that the project makes itself: ``gallery:NAME:key=value,…``.

All are deterministic: the same name gives the same bits.

=============  ==================================================================
name           matrix, and its options with defaults
=============  ==================================================================
poisson2d      5-point Laplacian on an n x n grid (n=128)
poisson3d      7-point Laplacian on an n x n x n grid (n=24)
elasticity3d   trilinear hexahedra, n x n x n nodes with three unknowns each (n=12)
powerlaw       graph of n nodes with Zipf-like degrees, about 8 a row (n=4096, seed=1)
banded         full band of `bandwidth` diagonals each side (n=4096, bandwidth=8, seed=1)
diagonal       n diagonal entries (n=4096)
=============  ==================================================================
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import bsr_array, coo_array, csr_array, tril

from ..errors import MatrixError
from .model import MAX_ENTRIES, Matrix, Symmetric, as_float32, canonical
from .options import parse_options, whole_number

#: Changes when any gallery matrix changes, so that cached copies are made anew.
VERSION = 1

_POWERLAW_DEGREE = 8


@dataclass(frozen=True)
class GalleryEntry:
    """One name of the gallery.

    Parameters
    ----------
    make : callable
        Takes the options as keyword arguments, returns the matrix.
    defaults : mapping of str to int
        Options and what they are when not given.
    num_entries : callable
        Takes the same options, returns how many entries to expect.
    is_symmetric : bool
        Whether the matrix is symmetric, so that it has a triangle to store.
    """

    make: Callable[..., csr_array]
    defaults: Mapping[str, int]
    num_entries: Callable[..., int]
    is_symmetric: bool


def poisson(shape: tuple[int, ...]) -> csr_array:
    """Return the negative Laplacian of a grid, zero on its border: 2·d and −1.

    >>> poisson((3,)).toarray()
    array([[ 2., -1.,  0.],
           [-1.,  2., -1.],
           [ 0., -1.,  2.]], dtype=float32)
    """
    steps = np.eye(len(shape), dtype=int)
    offsets = [*(-steps), 0 * steps[0], *steps[::-1]]
    indptr, indices, is_inside = _stencil(shape, offsets)
    weights = np.full(len(offsets), -1, np.float32)
    weights[len(shape)] = 2 * len(shape)
    values = np.broadcast_to(weights, is_inside.shape)[is_inside]
    return canonical(values, indices, indptr, (len(indptr) - 1,) * 2)


def _stencil(
    shape: tuple[int, ...], offsets: list[NDArray[np.int64]]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Return row pointers and columns of a stencil, and which neighbours exist.

    `offsets` must ascend in the grid's row-major order. The last array has one
    row a node and one column an offset.
    """
    num_nodes = int(np.prod(shape))
    is_inside = np.ones((*shape, len(offsets)), bool)
    for number, offset in enumerate(offsets):
        for axis, step in enumerate(offset):
            along = np.moveaxis(is_inside[..., number], axis, 0)
            if step < 0:
                along[:-step] = False
            elif step > 0:
                along[max(shape[axis] - step, 0) :] = False
    is_inside = is_inside.reshape(num_nodes, len(offsets))
    strides = np.array([int(np.prod(shape[axis + 1 :])) for axis in range(len(shape))])
    neighbours = np.arange(num_nodes)[:, None] + np.array(
        [offset @ strides for offset in offsets]
    )
    indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(is_inside, axis=1))))
    return indptr, neighbours[is_inside], is_inside


def elasticity3d(n: int) -> csr_array:
    """Return the stiffness of an elastic cube of trilinear hexahedra on springs.

    Young's modulus 1, Poisson's ratio 0.3, edge 1 an element; a spring of 0.01 at
    each unknown makes it positive definite. Unknowns are interleaved, three a
    node, and each pair of neighbours holds a whole 3 x 3 block.
    """
    grid = (n, n, n)
    offsets = [np.array(step) for step in itertools.product((-1, 0, 1), repeat=3)]
    blocks = np.zeros((*grid, 27, 3, 3), np.float32)
    corners = [np.array(corner) for corner in itertools.product((0, 1), repeat=3)]
    element = hexahedron_stiffness().reshape(8, 3, 8, 3).transpose(0, 2, 1, 3)
    for (a, from_node), (b, to_node) in itertools.product(enumerate(corners), repeat=2):
        i, j, k = (slice(start, n - 1 + start) for start in from_node.tolist())
        offset = int((to_node - from_node + 1) @ (9, 3, 1))
        blocks[i, j, k, offset] += element[a, b].astype(np.float32)
    blocks[..., 13, :, :] += 0.01 * np.eye(3, dtype=np.float32)
    indptr, indices, is_inside = _stencil(grid, offsets)
    chosen = blocks.reshape(-1, 27, 3, 3)[is_inside]
    return as_float32(bsr_array((chosen, indices, indptr), shape=(3 * n**3,) * 2).tocsr())


def hexahedron_stiffness() -> NDArray[np.float64]:
    """Return the stiffness of a unit cube, trilinear, 2 x 2 x 2 Gauss points.

    Returns
    -------
    ndarray, shape (24, 24), float64
        Corners in row-major order, three unknowns each; Young's modulus 1,
        Poisson's ratio 0.3.

    Examples
    --------
    A rigid motion meets no force:

    >>> bool(np.abs(hexahedron_stiffness() @ np.tile([1.0, 0, 0], 8)).max() < 1e-14)
    True
    """
    ratio = 0.3
    lame, shear = ratio / ((1 + ratio) * (1 - 2 * ratio)), 1 / (2 * (1 + ratio))
    elasticity = np.diag([2 * shear] * 3 + [shear] * 3)
    elasticity[:3, :3] += lame
    corners = np.array(list(itertools.product((0, 1), repeat=3)))
    points = 0.5 + np.array(list(itertools.product((-1, 1), repeat=3))) / (2 * np.sqrt(3))
    stiffness = np.zeros((24, 24))
    for point in points:
        factors = np.where(corners == 1, point, 1 - point)
        slopes = 2.0 * corners - 1
        dx, dy, dz = (
            slopes[:, axis] * np.delete(factors, axis, axis=1).prod(axis=1) for axis in range(3)
        )
        none = np.zeros(8)
        strain = np.array(
            [[dx, none, none], [none, dy, none], [none, none, dz],
             [dy, dx, none], [none, dz, dy], [dz, none, dx]]
        )  # fmt: skip
        strain = strain.transpose(0, 2, 1).reshape(6, 24)
        stiffness += strain.T @ elasticity @ strain / len(points)
    return stiffness


def powerlaw(n: int, seed: int) -> csr_array:
    """Return a directed graph whose degrees fall as 1 / rank, in and out.

    Values lie in [0.5, 1.5). Edges that are drawn twice count once.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    weights = 1.0 / np.arange(1, n + 1)
    degrees = _POWERLAW_DEGREE * n * weights / weights.sum()
    degrees = np.clip(degrees.round().astype(np.int64), 1, n)
    rows = rng.permutation(n)[np.repeat(np.arange(n), degrees)]
    # The inverse of a cumulated 1 / rank is an exponential.
    ranks = np.minimum((float(n) ** rng.random(len(rows))).astype(np.int64), n) - 1
    cols = rng.permutation(n)[ranks]
    csr = coo_array((np.ones(len(rows), np.float32), (rows, cols)), shape=(n, n)).tocsr()
    csr.data = rng.random(csr.nnz, np.float32) + np.float32(0.5)
    return csr


def banded(n: int, bandwidth: int, seed: int) -> csr_array:
    """Return a full band, |i − j| ≤ bandwidth, with values in [0.5, 1.5).

    >>> banded(5, 1, 1).nnz
    13
    """
    bandwidth = min(bandwidth, n - 1)
    rng = np.random.Generator(np.random.PCG64(seed))
    cols = np.arange(n)[:, None] + np.arange(-bandwidth, bandwidth + 1)
    is_inside = (cols >= 0) & (cols < n)
    indptr = np.concatenate(([0], np.cumsum(np.count_nonzero(is_inside, axis=1))))
    values = rng.random(int(indptr[-1]), np.float32) + np.float32(0.5)
    return canonical(values, cols[is_inside], indptr, (n, n))


def diagonal(n: int) -> csr_array:
    """Return a diagonal with values 1, 1.125, … 1.875, over and over.

    >>> diagonal(3).diagonal()
    array([1.   , 1.125, 1.25 ], dtype=float32)
    """
    index = np.arange(n + 1)
    values = (1 + (index[:n] % 8) / 8).astype(np.float32)
    return canonical(values, index[:n], index, (n, n))


#: Every name of the gallery.
GALLERY: Mapping[str, GalleryEntry] = {
    "poisson2d": GalleryEntry(
        lambda n: poisson((n, n)), {"n": 128}, lambda n: 5 * n**2, is_symmetric=True
    ),
    "poisson3d": GalleryEntry(
        lambda n: poisson((n, n, n)), {"n": 24}, lambda n: 7 * n**3, is_symmetric=True
    ),
    "elasticity3d": GalleryEntry(
        elasticity3d, {"n": 12}, lambda n: 243 * n**3, is_symmetric=True
    ),
    "powerlaw": GalleryEntry(
        powerlaw,
        {"n": 4096, "seed": 1},
        lambda n, **_: _POWERLAW_DEGREE * n,
        is_symmetric=False,
    ),
    "banded": GalleryEntry(
        banded,
        {"n": 4096, "bandwidth": 8, "seed": 1},
        lambda n, bandwidth, **_: n * min(n, 2 * bandwidth + 1),
        is_symmetric=False,
    ),
    "diagonal": GalleryEntry(diagonal, {"n": 4096}, lambda n: n, is_symmetric=True),
}


def parse_gallery(spec: str) -> tuple[str, dict[str, int]]:
    """Return the name and all options of ``gallery:NAME:key=value,…``.

    Raises
    ------
    MatrixError
        If the name or an option is unknown, or the matrix would be too large.

    Examples
    --------
    >>> parse_gallery("gallery:banded:n=9")
    ('banded', {'n': 9, 'bandwidth': 8, 'seed': 1})
    """
    _, name, text = [*spec.split(":", 2), ""][:3]
    if name not in GALLERY:
        raise MatrixError(
            f"{name!r} is not in the gallery; it has {', '.join(GALLERY)}.", path=spec
        )
    entry = GALLERY[name]
    given = parse_options(text, entry.defaults.keys(), spec)
    options = dict(entry.defaults)
    for key, value in given.items():
        options[key] = whole_number(key, value, spec, least=1 if key == "n" else 0)
    num_entries = entry.num_entries(**options)
    if num_entries > MAX_ENTRIES:
        raise MatrixError(
            f"the matrix would hold about {num_entries:.3g} entries; "
            f"at most {MAX_ENTRIES:.3g} are made, so make n smaller.",
            path=spec,
        )
    return name, options


def gallery_matrix(spec: str, symmetric: Symmetric = "expand") -> Matrix:
    """Make the matrix that ``gallery:NAME:key=value,…`` names.

    With ``symmetric="stored"`` a symmetric one keeps its lower triangle only.

    >>> gallery_matrix("gallery:poisson2d:n=3").nnz
    33
    >>> gallery_matrix("gallery:poisson2d:n=3", "stored").nnz
    21
    """
    name, options = parse_gallery(spec)
    entry = GALLERY[name]
    csr = as_float32(entry.make(**options))
    done = "general"
    if entry.is_symmetric:
        done = "expanded" if symmetric == "expand" else "stored triangle"
        csr = csr if symmetric == "expand" else as_float32(csr_array(tril(csr, format="csr")))
    full = f"{name}:{','.join(f'{key}={value}' for key, value in options.items())}"
    return Matrix(csr, full, f"gallery:{full}", done)
