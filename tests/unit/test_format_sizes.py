"""Bytes a non-zero: the counts, their mean, and what lanes promises of real matrices."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import save_npz

from spmv_fpga.format_sizes import VARIANTS, count_formats, mean_bytes
from spmv_fpga.formats import DEPTHS, format_stats
from spmv_fpga.matrices import load_matrix
from spmv_fpga.sweep import matrix_files

MANY_ENTRIES = 90_001


def test_the_counts_are_those_of_format_stats(tmp_path):
    A = load_matrix("gallery:powerlaw:n=500")
    save_npz(tmp_path / "a.npz", A)
    (sizes,) = count_formats(matrix_files([tmp_path]))
    stats = format_stats(A, slices=[16], depths=DEPTHS)
    assert sizes.stats == stats
    names = [f"{s.kernel} {s.block or s.slice_size or s.depth}" for s in stats]
    assert tuple(names) == VARIANTS
    assert sizes.bytes_per_entry == tuple(s.bytes / A.nnz for s in stats)


def test_the_mean_is_geometric(tmp_path):
    for n in (64, 6400):
        save_npz(tmp_path / f"{n}.npz", load_matrix(f"gallery:diagonal:n={n}"))
    counted = list(count_formats(matrix_files([tmp_path])))
    each = np.array([sizes.bytes_per_entry for sizes in counted])
    np.testing.assert_allclose(mean_bytes(counted), np.sqrt(each.prod(axis=0)))


@pytest.mark.shared_data
def test_lanes_takes_few_bytes_a_non_zero_of_real_matrices(shared_data):
    found = count_formats(matrix_files([shared_data / "matrices"]), MANY_ENTRIES)
    counted = [sizes for sizes in found if sizes.stats]
    assert len(counted) > 10
    lanes = [k for k, name in enumerate(VARIANTS) if name.startswith("lanes")]
    for k in lanes:
        assert mean_bytes(counted)[k] <= 6.8
        assert max(sizes.bytes_per_entry[k] for sizes in counted) <= 9
