"""Archives and binary files, the gallery, the parsed cache, and what a name means."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat
from scipy.sparse import coo_array, csc_array, csr_array, save_npz

from spmv_fpga.errors import MatrixError
from spmv_fpga.formats import BlockedEll, save_format
from spmv_fpga.matrices import describe, load_matrix, open_matrix, parsed_cache
from spmv_fpga.matrices.gallery import gallery_matrix
from spmv_fpga.resources import cache_dir

TINY4 = b"""%%MatrixMarket matrix coordinate real general
4 4 5
1 1 1
2 2 2
3 3 3
4 1 -1
4 4 4
"""
DENSE = b"%%MatrixMarket matrix array real general\n4 1\n" + b"1.0\n" * 4


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SPMV_FPGA_OFFLINE", "1")


def archive(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


TINY4_MEMBERS = {
    "tiny4/tiny4_b.mtx": DENSE,
    "tiny4/tiny4_coord.mtx": DENSE + b"% larger than the matrix\n" * 20,
    "tiny4/tiny4_nodename.txt": b"a\nb\nc\nd\n",
    "tiny4/tiny4.mtx": TINY4,
}


def times_index(A):
    return (A @ np.arange(1, A.shape[1] + 1)).tolist()


def test_the_matrix_in_an_archive_is_told_from_its_companions(tmp_path):
    path = archive(tmp_path / "download.tar.gz", TINY4_MEMBERS)
    matrix = open_matrix(path)
    assert times_index(matrix.csr) == [1, 4, 9, 15]
    assert matrix.nnz == 5
    assert sorted(p.name for p in tmp_path.iterdir()) == ["download.tar.gz"]


def test_an_archive_without_its_matrix_is_refused_with_what_it_holds(tmp_path):
    path = archive(tmp_path / "a.tar.gz", {"a/a_b.mtx": DENSE})
    with pytest.raises(MatrixError, match=r"a/a_b\.mtx"):
        load_matrix(path)


@pytest.mark.parametrize("kept", [0, 100, -1, -5])
def test_a_broken_archive_is_refused_with_its_path(tmp_path, kept):
    path = archive(tmp_path / "tiny4.tar.gz", TINY4_MEMBERS)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(MatrixError, match=r"damaged") as caught:
        load_matrix(path)
    assert caught.value.path == str(path)


def test_an_archive_with_a_wrong_checksum_is_refused(tmp_path):
    path = archive(tmp_path / "tiny4.tar.gz", TINY4_MEMBERS)
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(MatrixError, match="damaged"):
        load_matrix(path)


def test_damage_far_behind_the_matrix_is_found(tmp_path):
    noise = np.random.default_rng(5).bytes(3 << 20)
    path = archive(tmp_path / "t.tar.gz", {"t/t.mtx": TINY4, "t/t_x.txt": noise})
    data = bytearray(path.read_bytes())
    data[-8] ^= 1
    path.write_bytes(data)
    with pytest.raises(MatrixError, match="damaged"):
        load_matrix(path)


def test_a_bad_line_in_an_archive_is_named(tmp_path):
    path = archive(tmp_path / "t.tar.gz", {"t/t.mtx": TINY4.replace(b"3 3 3", b"3 9 3")})
    with pytest.raises(MatrixError, match="column index 9") as caught:
        load_matrix(path)
    assert caught.value.line == 5


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr"])
@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.bool_])
def test_a_file_of_save_npz_gives_its_matrix(tmp_path, kind, dtype):
    dense = np.array([[1, 0, 1, 0], [0, 0, 0, 1]], dtype)
    save_npz(tmp_path / "m.npz", coo_array(dense).asformat(kind))
    A = load_matrix(tmp_path / "m.npz")
    assert A.dtype == np.float32
    assert A.toarray().tolist() == dense.astype(float).tolist()


def test_a_converted_file_gives_the_matrix_back(tmp_path):
    A = load_matrix("gallery:powerlaw:n=50")
    save_format(tmp_path / "m.npz", BlockedEll.from_csr(A, block=8))
    B = load_matrix(tmp_path / "m.npz")
    assert np.array_equal(A.toarray(), B.toarray())
    assert (B.nnz, B.dtype) == (A.nnz, np.float32)


def test_complex_values_in_a_npz_are_refused(tmp_path):
    save_npz(tmp_path / "m.npz", csr_array(np.array([[1 + 2j]])))
    with pytest.raises(MatrixError, match="complex"):
        load_matrix(tmp_path / "m.npz")


def test_values_beyond_float32_in_a_npz_are_refused(tmp_path):
    save_npz(tmp_path / "m.npz", csr_array(np.array([[1e300]])))
    with pytest.raises(MatrixError, match="float32"):
        load_matrix(tmp_path / "m.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"text"])
def test_a_npz_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "m.npz").write_bytes(content)
    with pytest.raises(MatrixError, match=r"save_npz"):
        load_matrix(tmp_path / "m.npz")


def test_indices_of_a_npz_outside_the_matrix_are_refused(tmp_path):
    A = csr_array(np.eye(3))
    A.indices[1] = 7
    save_npz(tmp_path / "m.npz", A)
    with pytest.raises(MatrixError, match="indices"):
        load_matrix(tmp_path / "m.npz")


def test_a_mat_file_of_the_collection_keeps_its_explicit_zeros(tmp_path):
    A = csc_array(np.array([[1.0, 0], [0, 2]]))
    zeros = csc_array(np.array([[0.0, 1], [0, 0]]))
    savemat(tmp_path / "m.mat", {"Problem": {"name": "T/m", "A": A, "Zeros": zeros}})
    B = load_matrix(tmp_path / "m.mat")
    assert B.nnz == 3
    assert B.toarray().tolist() == [[1, 0], [0, 2]]


def test_a_mat_file_without_a_problem_is_refused_with_what_it_holds(tmp_path):
    savemat(tmp_path / "m.mat", {"other": np.eye(2)})
    with pytest.raises(MatrixError, match="other"):
        load_matrix(tmp_path / "m.mat")


def test_the_only_sparse_variable_of_a_mat_file_is_the_matrix(tmp_path):
    A = csc_array(np.array([[1.0, 0], [0, 2]]))
    savemat(tmp_path / "m.mat", {"stiffness": A, "load": np.ones((2, 1))})
    assert load_matrix(tmp_path / "m.mat").toarray().tolist() == [[1, 0], [0, 2]]


def test_of_two_sparse_variables_the_user_must_save_one_alone(tmp_path):
    A = csc_array(np.eye(2))
    savemat(tmp_path / "m.mat", {"stiffness": A, "mass": A})
    with pytest.raises(MatrixError, match=r"stiffness, mass; .* save the one to use alone"):
        load_matrix(tmp_path / "m.mat")


def test_a_mat_file_that_is_cut_short_is_refused(tmp_path):
    path = tmp_path / "m.mat"
    savemat(path, {"Problem": {"A": csc_array(np.eye(50))}}, do_compression=True)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(MatrixError, match="MATLAB"):
        load_matrix(path)


def test_stored_on_a_file_that_stores_all_is_said_to_change_nothing(tmp_path):
    save_npz(tmp_path / "m.npz", csr_array(np.eye(3)))
    (warning,) = open_matrix(tmp_path / "m.npz", "stored").warnings
    assert "whole matrix" in warning


@pytest.mark.parametrize("name", ["no/such.mtx", "such.tar.gz", "./such"])
def test_a_missing_file_is_refused_with_its_path(name):
    with pytest.raises(MatrixError, match="No such file") as caught:
        load_matrix(name)
    assert caught.value.path == str(Path(name))


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(MatrixError, match="folder"):
        load_matrix(tmp_path)


def test_a_file_of_unknown_kind_is_refused(tmp_path):
    (tmp_path / "m.xlsx").write_bytes(b"1,2,3")
    with pytest.raises(MatrixError, match="unknown kind"):
        load_matrix(tmp_path / "m.xlsx")


def test_an_unknown_way_to_treat_symmetry_is_refused():
    with pytest.raises(MatrixError, match="'expand' or 'stored'"):
        load_matrix("gallery:diagonal", "both")


# The gallery.


def test_poisson2d_is_the_five_point_stencil():
    expected = [[4, -1, -1, 0], [-1, 4, 0, -1], [-1, 0, 4, -1], [0, -1, -1, 4]]
    assert load_matrix("gallery:poisson2d:n=2").toarray().tolist() == expected


def test_poisson3d_rows_add_up_to_the_missing_neighbours():
    A = load_matrix("gallery:poisson3d:n=3")
    assert A.shape == (27, 27)
    sums = A.sum(axis=1).reshape(3, 3, 3)
    assert (sums[1, 1, 1], sums[0, 1, 1], sums[0, 0, 1], sums[0, 0, 0]) == (0, 1, 2, 3)


def test_elasticity3d_has_whole_nodal_blocks_and_is_positive_definite():
    A = load_matrix("gallery:elasticity3d:n=3")
    assert A.shape == (81, 81)
    assert np.diff(A.indptr).reshape(27, 3)[13].tolist() == [81, 81, 81]
    assert A.nnz == 9 * 7**3
    dense = A.toarray().astype(np.float64)
    assert np.array_equal(dense, dense.T)
    assert np.linalg.eigvalsh(dense)[0] > 0.009


def test_elasticity3d_gives_a_rigid_motion_the_force_of_its_springs_only():
    A = load_matrix("gallery:elasticity3d:n=4")
    force = A @ np.tile([0.0, 1.0, 0.0], 64)
    assert np.allclose(force.reshape(64, 3), [0, 0.01, 0], atol=1e-6)


def test_powerlaw_degrees_are_far_from_even():
    A = load_matrix("gallery:powerlaw")
    lengths = np.diff(A.indptr)
    assert A.shape == (4096, 4096)
    assert lengths.max() > 100 * np.median(lengths)


def test_banded_fills_its_band_and_nothing_else():
    A = load_matrix("gallery:banded:n=20,bandwidth=2").tocoo()
    assert A.nnz == 20 * 5 - 2 * (2 + 1)
    assert np.abs(A.row - A.col).max() == 2


def test_diagonal_has_one_entry_a_row():
    A = load_matrix("gallery:diagonal:n=9")
    assert A.indices.tolist() == list(range(9))
    assert A.data.tolist() == [1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875, 1]


@pytest.mark.parametrize("name", ["powerlaw", "banded:n=99", "elasticity3d:n=4"])
def test_a_gallery_matrix_is_the_same_every_time_and_canonical(name):
    A, B = (gallery_matrix(f"gallery:{name}").csr for _ in range(2))
    assert np.array_equal(A.data, B.data)
    assert np.array_equal(A.indices, B.indices)
    assert csr_array((A.data, A.indices, A.indptr), shape=A.shape).has_canonical_format
    assert (A.dtype, A.indices.dtype) == (np.float32, np.int32)


def test_another_seed_gives_another_matrix():
    A, B = (load_matrix(f"gallery:banded:n=9,seed={seed}") for seed in (1, 2))
    assert not np.array_equal(A.data, B.data)


def test_a_symmetric_gallery_matrix_has_a_triangle_to_store():
    matrix = open_matrix("gallery:poisson2d:n=3", "stored")
    assert matrix.symmetric == "stored triangle"
    assert matrix.nnz == (33 + 9) // 2


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("gallery:possion2d", ("possion2d", "poisson2d")),
        ("gallery:poisson2d:m=3", ("'m'", "n")),
        ("gallery:poisson2d:n=0", ("n is 0", "1")),
        ("gallery:poisson2d:n=2.5", ("n is 2.5", "whole")),
        ("gallery:poisson2d:n", ("n=VALUE",)),
        ("gallery:poisson2d:n=3,n=4", ("twice",)),
        ("gallery:poisson2d:n=100000", ("entries", "smaller")),
        ("gallery:elasticity3d:n=1000", ("entries", "smaller")),
    ],
)
def test_a_wrong_gallery_name_is_refused_with_what_is_allowed(spec, words):
    with pytest.raises(MatrixError) as caught:
        load_matrix(spec)
    for word in words:
        assert word in str(caught.value)


# The parsed cache.


@pytest.fixture
def _keep_all(monkeypatch):
    monkeypatch.setattr(parsed_cache, "MIN_ENTRIES", 1)


def parsed_files() -> list[Path]:
    return sorted((cache_dir() / "parsed").glob("*"))


@pytest.fixture
def market_file(tmp_path):
    path = tmp_path / "a.mtx"
    path.write_bytes(TINY4)
    return path


@pytest.mark.usefixtures("_keep_all")
def test_a_second_load_comes_from_the_cache_and_is_the_same(market_file, monkeypatch):
    first = open_matrix(market_file)
    assert len(parsed_files()) == 1
    monkeypatch.setattr("spmv_fpga.matrices.loading.read_file", None)
    second = open_matrix(market_file)
    assert second.csr.toarray().tolist() == first.csr.toarray().tolist()
    assert (second.name, second.source, second.symmetric) == ("a", first.source, "general")
    assert second.csr.has_canonical_format


@pytest.mark.usefixtures("_keep_all")
def test_a_file_that_changed_is_parsed_again(market_file):
    load_matrix(market_file)
    market_file.write_bytes(TINY4.replace(b"1 1 1", b"1 1 9"))
    assert load_matrix(market_file)[0, 0] == 9


@pytest.mark.usefixtures("_keep_all")
def test_the_choice_of_triangle_has_its_own_copy(tmp_path):
    path = tmp_path / "s.mtx"
    path.write_bytes(TINY4.replace(b"general", b"symmetric"))
    assert [load_matrix(path, s).nnz for s in ("expand", "stored", "expand")] == [6, 5, 6]


@pytest.mark.usefixtures("_keep_all")
@pytest.mark.parametrize("damage", [b"", b"foreign\n", b"{}\n", None])
def test_a_damaged_copy_is_made_anew(market_file, damage):
    load_matrix(market_file)
    (copy,) = parsed_files()
    whole = copy.read_bytes()
    copy.write_bytes(whole[:-3] if damage is None else damage)
    assert load_matrix(market_file).nnz == 5
    assert copy.read_bytes() == whole


@pytest.mark.usefixtures("_keep_all")
def test_a_cache_that_cannot_be_written_is_left_alone(market_file, tmp_path, monkeypatch):
    (tmp_path / "plain").write_text("a file, so no folder can be made below")
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "plain" / "cache"))
    assert load_matrix(market_file).nnz == 5


@pytest.mark.usefixtures("_keep_all")
def test_the_oldest_copies_go_when_the_cache_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(parsed_cache, "MAX_BYTES", 1500)
    for number in range(4):
        path = tmp_path / f"{number}.mtx"
        path.write_bytes(TINY4)
        load_matrix(path)
        os.utime(parsed_files()[0], ns=(number, number))
    assert 1 <= len(parsed_files()) < 4


def test_a_small_matrix_is_never_kept(market_file):
    load_matrix(market_file)
    assert not cache_dir().exists()


def test_importing_writes_nothing_and_loads_no_network_library(tmp_path):
    code = (
        "import sys, spmv_fpga.matrices\n"
        "late = ('requests', 'ssgetpy', 'pyopencl', 'filelock')\n"
        "print([name for name in late if name in sys.modules])"
    )
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "SPMV_FPGA_CACHE")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=environment
        | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
    assert list(tmp_path.iterdir()) == []


def test_describe_reads_no_more_than_the_header(tmp_path):
    path = tmp_path / "a.mtx.gz"
    path.write_bytes(gzip.compress(TINY4[:60]))
    info = describe(path)
    assert (info.rows, info.cols, info.stored, info.symmetry) == (4, 4, 5, "general")


@pytest.mark.parametrize(
    "name", ["a.mtx.gz", "a.mtx.bz2", "a.tar.gz", "a.mat", "a.npz", "a.mtx"]
)
def test_describe_refuses_a_file_of_nothing_useful(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x1f\x8b nothing")
    with pytest.raises(MatrixError) as caught:
        describe(tmp_path / name)
    assert caught.value.path == str(tmp_path / name)
