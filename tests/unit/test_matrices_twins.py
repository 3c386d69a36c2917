"""Twins: the published figures, for every matrix of the suite."""

from __future__ import annotations

import numpy as np
import pytest

from spmv_fpga.errors import MatrixError
from spmv_fpga.matrices import list_suite, open_matrix
from spmv_fpga.matrices.twins import TwinFigures, make_twin, parse_twin


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "cache"))


def count_tiles(A) -> int:
    """Count non-empty 16 x 16 aligned tiles without the code under test."""
    num_cols = -(-A.shape[1] // 16)
    is_there = np.zeros((-(-A.shape[0] // 16), num_cols), bool)
    for number in range(len(is_there)):
        cols = A.indices[A.indptr[16 * number] : A.indptr[min(16 * number + 16, A.shape[0])]]
        is_there[number, cols // 16] = True
    return int(np.count_nonzero(is_there))


def sliced_ell_slots(A) -> int:
    lengths = np.zeros(-(-A.shape[0] // 16) * 16, int)
    lengths[: A.shape[0]] = np.diff(A.indptr)
    return int(16 * lengths.reshape(-1, 16).max(axis=1).sum())


def check(A, n, nnz, density_percent):
    assert A.shape == (n, n)
    assert A.nnz == nnz
    assert A.dtype == np.float32
    assert A.indices.dtype == np.int32
    assert np.count_nonzero(A.data) == nnz
    assert abs(100 * nnz / (256 * count_tiles(A)) - density_percent) <= 0.1
    assert sliced_ell_slots(A) <= 1.06 * nnz
    starts = np.zeros(nnz, bool)
    starts[A.indptr[:-1][np.diff(A.indptr) > 0]] = True
    assert np.all((np.diff(A.indices) > 0) | starts[1:])
    assert (A.indices.min(), A.indices.max() < n) >= (0, True)


@pytest.mark.parametrize("entry", list_suite(), ids=lambda entry: entry.short)
def test_a_twin_has_the_published_figures(entry):
    matrix = open_matrix(f"twin:{entry.short}")
    A = matrix.csr
    check(A, entry.n, entry.nnz, entry.density_percent)
    if entry.is_symmetric:
        rows = np.repeat(np.arange(entry.n), np.diff(A.indptr))
        assert np.all(A.indices <= rows)
    assert matrix.symmetric == ("stored triangle" if entry.is_symmetric else "general")


def test_a_twin_is_labelled_wherever_a_report_looks():
    matrix = open_matrix("twin:TS162")
    assert matrix.is_twin
    assert matrix.name == "twin:TS162"
    assert matrix.source == "twin of TSOPF/TSOPF_RS_b162_c4 (synthetic)"
    assert "synthetic" in matrix.warnings[0]


def test_a_large_twin_comes_back_from_the_cache_with_its_label(monkeypatch):
    first = open_matrix("twin:nd3k")
    monkeypatch.setattr("spmv_fpga.matrices.twins.make_twin", None)
    second = open_matrix("twin:nd3k")
    assert second.is_twin
    assert second.warnings == first.warnings
    assert np.array_equal(second.csr.data, first.csr.data)


def test_a_twin_of_a_symmetric_matrix_is_never_expanded():
    expanded, stored = (open_matrix("twin:ex9", s) for s in ("expand", "stored"))
    assert expanded.nnz == stored.nnz == 51417


def test_a_twin_is_the_same_every_time():
    A, B = (make_twin(parse_twin("twin:ex9")) for _ in range(2))
    assert np.array_equal(A.indices, B.indices)
    assert np.array_equal(A.data, B.data)


def test_tiles_lie_all_over_each_block_row():
    A = open_matrix("twin:TS162").csr
    tile_cols = np.unique(A.indices // 16)
    assert len(tile_cols) > 0.99 * (20374 // 16)
    first = {int(A.indices[A.indptr[16 * i]]) // 16 for i in range(1273)}
    assert len(first) > 200


def test_names_of_the_collection_have_twins_too():
    assert parse_twin("twin:TSOPF/TSOPF_RS_b2383") == parse_twin("twin:TS2383")


@pytest.mark.parametrize("density", ["51%", "51.0%", "0.51", "51"])
def test_a_custom_density_is_a_fraction_or_per_cent(density):
    assert parse_twin(f"twin:custom:n=320,nnz=9000,density={density}").density == 0.51


def test_a_custom_density_of_1_is_the_whole():
    assert parse_twin("twin:custom:n=320,nnz=9000,density=1").density == 1


@pytest.mark.parametrize(
    ("n", "nnz", "density_percent"),
    [
        (28338, 2943887, 51),
        (16, 256, 100),
        (16000, 16000, 50),
        (4096, 100000, 100),
        (5000, 3000, 2),
        (1000, 40000, 33.3),
        (999, 400000, 99),
        (100000, 250000, 1),
    ],
)
def test_a_custom_twin_has_its_figures(n, nnz, density_percent):
    matrix = open_matrix(f"twin:custom:n={n},nnz={nnz},density={density_percent}%")
    check(matrix.csr, n, nnz, density_percent)


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("twin:TS2384", "TS2383"),
        ("twin:custom:n=100", "nnz, density"),
        ("twin:custom:n=100,nnz=50,density=120", "120"),
        ("twin:custom:n=100,nnz=50,density=nan", "nan"),
        ("twin:custom:n=100,nnz=50,density=x", "x"),
        ("twin:custom:n=8,nnz=50,density=50%", "16"),
        ("twin:custom:n=64,nnz=5000,density=50%", "5000"),
        ("twin:custom:n=64,nnz=640,density=1%", "640"),
        ("twin:custom:n=64,nnz=640,dense=1", "dense"),
        ("twin:TS2383:n=3", "options"),
        ("twin:custom:n=100000,nnz=999999999,density=50%", "999999999"),
    ],
)
def test_a_twin_that_cannot_be_is_refused(spec, word):
    with pytest.raises(MatrixError, match=word):
        open_matrix(spec)


@pytest.mark.parametrize(
    ("n", "nnz", "num_tiles", "is_triangle"),
    [
        (16, 100, 1, False),
        (33, 256, 3, False),
        (100, 1001, 20, False),
        (241, 5003, 60, False),
        (31, 40, 2, True),
        (33, 100, 3, True),
        (100, 777, 12, True),
        (241, 5003, 60, True),
    ],
)
def test_small_orders_have_exactly_the_tiles_asked_for(n, nnz, num_tiles, is_triangle):
    A = make_twin(TwinFigures("t", "t", n, nnz, nnz / (256 * num_tiles), is_triangle))
    assert (A.nnz, count_tiles(A)) == (nnz, num_tiles)
    rows = np.repeat(np.arange(n), np.diff(A.indptr))
    assert np.all(A.indices <= (rows if is_triangle else n - 1))
