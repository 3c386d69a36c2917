"""CPU baselines: the products are right, the choice is told, the times have one window."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from spmv_fpga import reference
from spmv_fpga.baselines import BASELINES, Baseline, mkl, open_baseline, time_baseline
from spmv_fpga.baselines.base import aligned_zeros
from spmv_fpga.errors import FormatError, SpmvFpgaError, ToolError, ToolNotFoundError


def matrix(m: int, n: int, density: float = 0.1, seed: int = 1) -> csr_array:
    rng = np.random.default_rng(seed)
    return csr_array(random_array((m, n), density=density, rng=rng, dtype=np.float32))


def vector(n: int, seed: int = 2) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 1, n).astype(np.float32)


EYE = csr_array(np.eye(3, dtype=np.float32))


# Products, by every library


@pytest.fixture(params=["scipy", "mkl"])
def open_library(request: pytest.FixtureRequest) -> Callable[..., Baseline]:
    if request.param == "mkl" and mkl.find_library() is None:
        pytest.skip("oneMKL is not installed (extra mkl)")
    return lambda A: open_baseline(request.param, A)


@pytest.mark.parametrize(
    "A",
    [
        matrix(200, 200),
        matrix(37, 101),
        matrix(101, 37),
        matrix(1, 50),
        matrix(50, 1),
        matrix(64, 64, density=0.005),
        csr_array((5, 5), dtype=np.float32),
        csr_array((0, 4), dtype=np.float32),
        csr_array((4, 0), dtype=np.float32),
    ],
    ids=lambda A: f"{A.shape[0]}x{A.shape[1]}:{A.nnz}",
)
def test_the_product_is_within_its_bound(open_library, A):
    x = vector(A.shape[1])
    with open_library(A) as baseline:
        y = baseline.multiply(x)
    assert y.dtype == np.float32
    assert reference.verify(y, A, x) <= 1.0


def test_the_product_does_not_depend_on_the_y_before(open_library):
    A = csr_array(np.array([[1, 0], [0, 2]], np.float32))
    with open_library(A) as baseline:
        first = baseline.multiply(np.array([np.nan, 1], np.float32))
        second = baseline.multiply(np.array([3, 4], np.float32))
    assert np.isnan(first[0])
    assert second.tolist() == [3.0, 8.0]


def test_indices_of_64_bits_are_taken(open_library):
    A = matrix(40, 30)
    wide = csr_array((A.data, A.indices.astype(np.int64), A.indptr.astype(np.int64)), A.shape)
    x = vector(30)
    with open_library(wide) as baseline:
        reference.verify(baseline.multiply(x), A, x)


def test_x_is_copied_when_it_is_placed(open_library):
    x = np.ones(3, np.float32)
    with open_library(EYE) as baseline:
        baseline.place(x)
        x[:] = 9
        baseline.launch()
        assert baseline.fetch().tolist() == [1.0, 1.0, 1.0]


def test_the_y_that_is_fetched_is_not_overwritten_by_the_next_launch(open_library):
    with open_library(EYE) as baseline:
        y = baseline.multiply(np.ones(3, np.float32))
        baseline.multiply(np.zeros(3, np.float32))
    assert y.tolist() == [1.0, 1.0, 1.0]


# oneMKL


@pytest.fixture
def mkl_here() -> None:
    if mkl.find_library() is None:
        pytest.skip("oneMKL is not installed (extra mkl)")


@pytest.fixture
def no_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mkl, "find_library", lambda: None)


@pytest.mark.usefixtures("mkl_here")
def test_onemkl_names_its_version_threads_and_threading():
    baseline = open_baseline("mkl", EYE, threads=1)
    assert baseline.library.startswith("oneMKL 20")
    assert baseline.threads == 1
    assert "Math Kernel Library" in baseline.facts["version"]
    assert baseline.facts["threading"] in {"intel", "gnu", "sequential"}


@pytest.mark.usefixtures("mkl_here")
def test_auto_takes_onemkl_where_it_is_installed():
    assert isinstance(open_baseline("auto", EYE), mkl.OneMkl)


@pytest.mark.usefixtures("mkl_here")
def test_a_launch_after_the_end_is_refused():
    baseline = open_baseline("mkl", EYE)
    baseline.close()
    baseline.close()
    with pytest.raises(ToolError, match=r"mkl_sparse_s_mv failed with status 1 "):
        baseline.launch()


@pytest.mark.usefixtures("mkl_here")
def test_what_onemkl_holds_is_freed_with_the_baseline():
    baseline = open_baseline("mkl", EYE)
    freed = baseline._destroy
    gone = weakref.ref(baseline)
    del baseline
    gc.collect()
    assert gone() is None
    assert not freed.alive


@pytest.mark.usefixtures("mkl_here")
def test_an_x_of_another_length_is_refused():
    with pytest.raises(FormatError, match="3 columns"):
        open_baseline("mkl", EYE).place(np.ones(1, np.float32))


@pytest.mark.usefixtures("mkl_here")
def test_no_threads_are_refused():
    with pytest.raises(SpmvFpgaError, match="threads is 0"):
        open_baseline("mkl", EYE, threads=0)


@pytest.mark.usefixtures("no_mkl")
def test_onemkl_that_is_not_installed_is_refused_with_the_line_that_installs_it():
    with pytest.raises(ToolNotFoundError, match=r"-m pip install .*\[mkl\]'"):
        open_baseline("mkl", EYE)


@pytest.mark.usefixtures("no_mkl")
def test_auto_takes_scipy_where_onemkl_is_not_installed_and_says_so():
    baseline = open_baseline("auto", EYE)
    assert baseline.library.startswith("scipy ")
    assert "oneMKL" in baseline.facts["instead_of_mkl"]


class HugeMatrix:
    """The size of a matrix that no test can hold."""

    shape = (1000, 1000)
    nnz = 2**31


def test_a_matrix_beyond_32_bits_is_refused_before_anything_is_loaded():
    with pytest.raises(FormatError, match="2147483648 entries"):
        open_baseline("mkl", HugeMatrix())


def test_a_folder_without_threading_layers_is_refused(tmp_path):
    library = tmp_path / "libmkl_rt.so.3"
    library.write_bytes(b"")
    with pytest.raises(ToolError, match="none of oneMKL's threading layers"):
        mkl._load(library)


def test_a_file_that_is_no_library_is_refused(tmp_path):
    library = tmp_path / "libmkl_rt.so.3"
    library.write_bytes(b"no library")
    (tmp_path / "libmkl_sequential.so.3").write_bytes(b"")
    with pytest.raises(ToolError, match=r"libmkl_rt.so.3 cannot be used"):
        mkl._load(library)


def test_a_threading_layer_whose_run_time_is_missing_is_passed_over(tmp_path):
    (tmp_path / "libmkl_intel_thread.so.3").write_bytes(b"")
    (tmp_path / "libmkl_sequential.so.3").write_bytes(b"")
    (tmp_path / "libiomp5.so").write_bytes(b"no library")
    assert mkl._choose_threading(tmp_path).name == "sequential"


def test_the_newest_library_of_the_environment_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(mkl, "_distribution_files", lambda name: [])
    monkeypatch.setattr(mkl.sys, "prefix", str(tmp_path))
    assert mkl.find_library() is None
    (tmp_path / "lib").mkdir()
    for name in ("libmkl_rt.so.2", "libmkl_rt.so.10", "libmkl_core.so.11"):
        (tmp_path / "lib" / name).write_bytes(b"")
    assert mkl.find_library() == (tmp_path / "lib" / "libmkl_rt.so.10").resolve()


def test_files_that_the_distribution_lists_but_lost_are_not_found(tmp_path, monkeypatch):
    monkeypatch.setattr(mkl, "_distribution_files", lambda name: [tmp_path / "libmkl_rt.so.3"])
    monkeypatch.setattr(mkl.sys, "prefix", str(tmp_path))
    assert mkl.find_library() is None


def test_a_status_is_told_in_words():
    with pytest.raises(ToolError, match=r"mkl_sparse_optimize failed with status 2 \(out of"):
        mkl._check("mkl_sparse_optimize", 2)


# The choice


def test_none_is_no_baseline():
    assert open_baseline("none", EYE) is None


def test_an_unknown_name_is_refused_with_those_that_are_known():
    with pytest.raises(SpmvFpgaError, match="'blas'; it must be one of auto, mkl, scipy, none"):
        open_baseline("blas", EYE)


@pytest.mark.usefixtures("no_mkl")
@pytest.mark.parametrize("name", [name for name in BASELINES if name not in {"mkl", "none"}])
def test_every_other_name_opens_without_onemkl(name):
    assert open_baseline(name, EYE) is not None


def test_scipy_says_that_it_has_one_thread():
    baseline = open_baseline("scipy", EYE)
    assert baseline.threads == 1
    assert baseline.facts == {}


@pytest.mark.parametrize("num_values", [1, 16, 1000])
def test_vectors_begin_at_a_cache_line(num_values):
    values = aligned_zeros(num_values)
    assert values.shape == (num_values,)
    assert values.ctypes.data % 64 == 0


# Times, on a clock that only products move


class Clocked(Baseline):
    """A library whose products take the times that they are given."""

    library, threads, facts = "fake 1.0", 3, {"build": "none"}

    def __init__(self, *durations_s: Iterator[float]) -> None:
        self.now_s = 1000.0
        self._durations_s = chain(*durations_s)

    def clock(self) -> float:
        return self.now_s

    def place(self, x: np.ndarray) -> None:
        self._x = x

    def launch(self) -> None:
        self.now_s += next(self._durations_s)

    def fetch(self) -> np.ndarray:
        return 2 * self._x


def timed(*durations_s: Iterator[float], warmup_s=100.0, measure_s=10.0, **options):
    baseline = Clocked(*durations_s)
    x = np.ones(2, np.float32)
    return time_baseline(
        baseline, x, warmup_s=warmup_s, measure_s=measure_s, clock=baseline.clock, **options
    )


def test_the_result_names_the_library_and_holds_y():
    result = timed(repeat(1.0))
    assert (result.library, result.threads, result.facts) == ("fake 1.0", 3, {"build": "none"})
    assert result.y.tolist() == [2.0, 2.0]


def test_products_fill_the_measurement_back_to_back():
    result = timed(repeat(0.25), measure_s=10.0)
    assert result.time_s.tolist() == [0.25] * 40
    assert result.end_s - result.start_s == result.time_s.sum() == 10.0


def test_at_least_seven_products_are_measured():
    result = timed(repeat(30.0), warmup_s=0.0, measure_s=1.0)
    assert len(result.time_s) == 7


def test_a_steady_warm_up_ends_after_a_quarter_of_its_time():
    result = timed(repeat(0.25))
    assert 25.0 <= result.warmup_s <= 30.0
    assert result.unsteady == ()


def test_slow_products_at_first_are_warmed_up_away():
    result = timed(repeat(0.5, 50), repeat(0.25))
    assert set(result.time_s) == {0.25}
    assert 50.0 <= result.warmup_s <= 75.0
    assert result.unsteady == ()


def test_the_warm_up_ends_in_time_though_nothing_is_steady():
    result = timed((1.0 + 0.01 * k for k in range(10**6)), measure_s=200.0)
    assert 100.0 <= result.warmup_s <= 105.0


def test_a_warm_up_that_was_too_short_is_told_where_the_measurement_shows_it():
    result = timed(repeat(0.5, 40), repeat(0.25), warmup_s=10.0, measure_s=20.0)
    assert result.unsteady == (
        "CPU: the time of a product changed by 50.0 % within the measurement.",
    )


def test_a_drift_through_warm_up_and_measurement_asks_for_a_longer_warm_up():
    result = timed((1.0 + 0.02 * k for k in range(10**6)), measure_s=200.0)
    assert "take a longer one" in result.unsteady[0]


def test_a_change_too_small_to_matter_is_not_told():
    result = timed(repeat(1.0, 60), repeat(1.01), warmup_s=40.0, measure_s=60.0)
    assert result.unsteady == ()


def test_one_slow_product_does_not_make_a_measurement_unsteady():
    result = timed(repeat(0.25, 120), repeat(5.0, 1), repeat(0.25), measure_s=20.0)
    assert max(result.time_s) == 5.0
    assert result.unsteady == ()


def test_the_window_is_entered_for_the_measurement_alone():
    baseline = Clocked(repeat(0.25))
    seen: list[float] = []

    @contextmanager
    def window() -> Iterator[None]:
        seen.append(baseline.now_s)
        yield
        seen.append(baseline.now_s)

    result = time_baseline(
        baseline, np.ones(2, np.float32), warmup_s=8.0, measure_s=4.0,
        window=window(), clock=baseline.clock,
    )  # fmt: skip
    assert seen == [result.start_s, result.end_s]


def test_a_real_library_is_timed_on_the_monotonic_clock():
    A, x = matrix(50, 50), vector(50)
    result = time_baseline(open_baseline("scipy", A), x, warmup_s=0.0, measure_s=0.001)
    assert len(result.time_s) >= 7
    assert result.end_s - result.start_s >= 0.001
    reference.verify(result.y, A, x)
