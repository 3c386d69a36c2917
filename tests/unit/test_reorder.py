"""Another order of rows and columns: a permutation, the same y, and denser tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import block_diag, coo_array, csr_array

from spmv_fpga.errors import MatrixError
from spmv_fpga.formats import format_stats
from spmv_fpga.formats.base import canonical_csr
from spmv_fpga.matrices import load_matrix
from spmv_fpga.matrices.reorder import reorder_matrix
from spmv_fpga.measure import RunOptions, run
from spmv_fpga.reference import verify
from spmv_fpga.roofline.predict import predict


def random_matrix(seed: int, n: int, nnz: int) -> csr_array:
    rng = np.random.default_rng(seed)
    place = rng.choice(n * n, size=min(nnz, n * n), replace=False)
    values = rng.standard_normal(len(place)).astype(np.float32)
    return canonical_csr(coo_array((values, np.divmod(place, n)), (n, n)), "test")


def shuffled(A: csr_array, seed: int = 1) -> csr_array:
    order = np.random.default_rng(seed).permutation(A.shape[0])
    return canonical_csr(A[order][:, order], "test")


def assert_same_product(A: csr_array) -> None:
    moved = reorder_matrix(A, "rcm")
    assert sorted(moved.permutation) == list(range(A.shape[0]))
    assert moved.csr.nnz == A.nnz
    assert moved.csr.dtype == np.float32
    assert (moved.csr != A[moved.permutation][:, moved.permutation]).nnz == 0
    x = np.random.default_rng(2).standard_normal(A.shape[1]).astype(np.float32)
    verify(moved.restore(moved.csr @ moved.move(x)), A, x)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(n=st.integers(1, 70), share=st.sampled_from([0, 0.01, 0.1, 1]),
       seed=st.integers(0, 2**32 - 1))  # fmt: skip
def test_the_product_stays_the_same(n, share, seed):
    assert_same_product(random_matrix(seed, n, int(share * n * n)))


@pytest.mark.parametrize(
    "A",
    [
        csr_array((0, 0), dtype=np.float32),
        csr_array((5, 5), dtype=np.float32),
        csr_array(np.array([[0, 0, 1], [0, 0, 0], [0, 2, 0]], np.float32)),
        canonical_csr(block_diag([random_matrix(k, 5, 9) for k in range(4)]), "test"),
        csr_array(np.tri(9, dtype=np.float32)),
    ],
    ids=["0 x 0", "no entries", "empty row", "apart", "triangle"],
)
def test_odd_matrices_keep_their_product(A):
    assert_same_product(A)


def test_explicit_zeros_stay():
    A = csr_array((np.float32([0, 1, 2]), np.array([2, 0, 1]), np.arange(4)), shape=(3, 3))
    assert reorder_matrix(A).csr.nnz == 3


def test_a_shuffled_band_gets_its_density_back():
    band = load_matrix("gallery:banded:n=2000,bandwidth=20")

    def density(A: csr_array) -> float:
        return format_stats(A, blocks=[16], slices=[])[0].density

    mixed = shuffled(band)
    assert density(mixed) < 0.1 * density(band)
    assert density(reorder_matrix(mixed).csr) > 0.9 * density(band)


def test_entries_that_cancel_in_the_sum_with_the_transpose_belong_to_the_pattern():
    upper = np.diag(np.ones(199), 1)
    skew = shuffled(canonical_csr(csr_array(upper - upper.T), "test"))
    coo = reorder_matrix(skew).csr.tocoo()
    assert abs(coo.row - coo.col).max() == 1


def test_the_triangle_of_a_symmetric_matrix_goes_by_the_whole_pattern():
    whole = shuffled(load_matrix("gallery:poisson2d:n=9"))
    triangle = canonical_csr(csr_array(np.tril(whole.toarray())), "test")
    order = reorder_matrix(triangle).permutation
    np.testing.assert_array_equal(order, reorder_matrix(whole).permutation)


def test_nothing_moves_where_no_order_is_asked_for():
    A = csr_array(np.ones((2, 3), np.float32))
    same, x = reorder_matrix(A, "none"), np.arange(3)
    assert same.csr is A
    assert same.move(x) is x
    assert same.restore(x) is x


def test_a_matrix_that_is_not_square_is_refused():
    with pytest.raises(MatrixError, match="the matrix is 2 x 3; reordering"):
        reorder_matrix(csr_array((2, 3), dtype=np.float32))


def test_an_order_that_does_not_exist_is_refused():
    with pytest.raises(MatrixError, match="reorder is 'amd'; it must be 'none' or 'rcm'"):
        reorder_matrix(csr_array((2, 2), dtype=np.float32), "amd")


# In a run and in a prediction.

OPTIONS = RunOptions(
    matrix="gallery:powerlaw:n=300", kernel="block", mode="reference", baseline="none"
)


def test_a_run_gives_y_in_the_callers_order():
    plain = run(OPTIONS)
    moved = run(RunOptions(**{**vars(OPTIONS), "reorder": "rcm"}))
    assert (plain.reorder, moved.reorder) == ("none", "rcm")
    assert moved.verified
    np.testing.assert_allclose(moved.y, plain.y, rtol=1e-4, atol=1e-5)
    assert moved.format.num_stored == moved.model.workload.num_stored
    assert moved.format.num_stored != plain.format.num_stored


def test_a_wrong_way_back_is_found(monkeypatch):
    monkeypatch.setattr("spmv_fpga.matrices.reorder.Reordered.restore", lambda self, y: y)
    assert not run(RunOptions(**{**vars(OPTIONS), "reorder": "rcm"})).verified


def test_a_prediction_has_the_densities_of_both_orders_and_the_better_one(tmp_path):
    mixed = shuffled(load_matrix("gallery:banded:n=2000,bandwidth=20"))
    before, found = predict(mixed), predict(mixed, reorder="rcm")
    document = found.to_json()
    assert (document["reorder"], document["better_order"]) == ("rcm", "rcm")
    for candidate, then in zip(document["candidates"], before.candidates, strict=True):
        assert candidate["density_before"] == then.workload.density
        assert candidate["kernel"] != "block" or (
            candidate["density"] > 2 * candidate["density_before"]
        )


def test_a_matrix_that_is_in_order_is_better_as_it_stands():
    found = predict("gallery:diagonal:n=640", reorder="rcm")
    assert found.better_order == "none"
    assert "density_before" not in predict("gallery:diagonal:n=640").to_json()["candidates"][0]
