"""What the kernels compute, run natively."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, diags_array, random_array

from spmv_fpga.formats import SellCSigma
from spmv_fpga.reference import compare

pytestmark = pytest.mark.compiler

KERNELS = [
    (kernel, parameter, value)
    for kernel, parameter in (("block", "block"), ("scalar", "slice"))
    for value in (4, 8, 16, 32)
]
KERNELS += [("lanes", "depth", 8), ("lanes", "depth", 16), ("lanes", "panel", 16)]
all_kernels = pytest.mark.parametrize(
    ("kernel", "parameter", "value"), KERNELS, ids=[f"{k}-{p}{v}" for k, p, v in KERNELS]
)
SMALL_X_ROOM = 64


def sparse(m: int, n: int, density: float, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    if m * n == 0:
        return csr_array((m, n), dtype=np.float32)
    return csr_array(random_array((m, n), density=density, rng=rng, dtype=np.float32))


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(n).astype(np.float32)


def long_and_short_rows() -> csr_array:
    """Rows of 0, 1, 2, … and 300 entries, so that strips of all lengths follow each other."""
    lengths = [0, 1, 300, 2, 0, 0, 17, 33, 1] * 12
    rows = np.repeat(np.arange(len(lengths)), lengths)
    cols = np.concatenate([np.arange(k) for k in lengths])
    values = np.cos(np.arange(len(rows))).astype(np.float32)
    return csr_array((values, (rows, cols)), shape=(len(lengths), 301))


def with_empty_strips() -> csr_array:
    """Entries in rows 200 and 511 of 700 alone."""
    return csr_array(([1.5, -2.0], ([200, 511], [0, 89])), shape=(700, 90), dtype=np.float32)


def with_a_dense_row() -> csr_array:
    dense = sparse(70, 500, 0.01).toarray()
    dense[33] = np.linspace(-1, 1, 500)
    return csr_array(dense)


MATRICES: dict[str, Callable[[], csr_array]] = {
    "0x0": lambda: sparse(0, 0, 0),
    "0x5": lambda: sparse(0, 5, 0),
    "5x0": lambda: sparse(5, 0, 0),
    "1x1": lambda: csr_array(np.float32([[-3]])),
    "1x1 without entries": lambda: csr_array((1, 1), dtype=np.float32),
    "tall": lambda: sparse(333, 7, 0.3),
    "wide": lambda: sparse(7, 333, 0.3),
    "odd": lambda: sparse(257, 129, 0.05),
    "one more than whole tiles": lambda: sparse(65, 65, 0.2),
    "dense": lambda: csr_array(np.arange(1, 64 * 64 + 1, dtype=np.float32).reshape(64, 64)),
    "diagonal": lambda: csr_array(diags_array(np.float32(np.arange(1, 100)))),
    "no entries": lambda: csr_array((130, 130), dtype=np.float32),
    "empty strips": with_empty_strips,
    "a dense row": with_a_dense_row,
    "long and short rows": long_and_short_rows,
}


@pytest.mark.parametrize("name", MATRICES)
@all_kernels
def test_a_product_is_right(
    compiled: Any, convert: Any, kernel: str, parameter: str, value: int, name: str
) -> None:
    A = MATRICES[name]()
    x = vector(A.shape[1])

    y = compiled(kernel, **{parameter: value}).multiply(
        convert(kernel, A, **{parameter: value}), x
    )

    assert compare(y, A, x) <= 1


@all_kernels
def test_a_product_in_small_numbers_is_exact(
    compiled: Any, convert: Any, kernel: str, parameter: str, value: int
) -> None:
    A = csr_array(np.float32([[1, 0, 2, 0], [0, 0, 0, 0], [-3, 4, 0, 5]]))

    y = compiled(kernel, **{parameter: value}).multiply(
        convert(kernel, A, **{parameter: value}), [1, 10, 100, 1000]
    )

    assert y.tolist() == [201, 0, 5037]


@all_kernels
def test_a_launch_of_three_products_gives_the_bits_of_a_launch_of_one(
    compiled: Any, convert: Any, kernel: str, parameter: str, value: int
) -> None:
    A = long_and_short_rows()
    library, fmt = (
        compiled(kernel, **{parameter: value}),
        convert(kernel, A, **{parameter: value}),
    )
    x = vector(A.shape[1])

    once, thrice = (library.multiply(fmt, x, iterations=k) for k in (1, 3))

    assert once.tobytes() == thrice.tobytes()


@all_kernels
def test_a_launch_of_no_products_writes_nothing(
    compiled: Any, convert: Any, kernel: str, parameter: str, value: int
) -> None:
    fmt = convert(kernel, sparse(40, 40, 0.1), **{parameter: value})

    y, error = compiled(kernel, **{parameter: value}).launch(fmt, vector(40), iterations=0)

    assert error == ""
    assert np.isnan(y).all()


@all_kernels
def test_every_element_behind_the_last_row_is_written_as_zero(
    compiled: Any, convert: Any, kernel: str, parameter: str, value: int
) -> None:
    fmt = convert(kernel, sparse(5, 40, 0.3), **{parameter: value})

    y, _ = compiled(kernel, **{parameter: value}).launch(fmt, vector(40))

    assert len(y) == -(-max(value, 5) // 16) * 16
    assert y[5:].tolist() == [0] * (len(y) - 5)


@all_kernels
def test_padding_beside_nan_and_infinity_in_x_contributes_nothing(
    compiled: Any, convert: Any, kernel: str, parameter: str, value: int
) -> None:
    dense = np.zeros((40, 40), np.float32)
    dense[:, 1] = 2  # every tile and slice of these columns is stored, mostly as padding
    dense[7, 3], dense[9, 5] = 1, -1
    x = np.ones(40, np.float32)
    x[[0, 3, 5, 33]] = np.nan, np.nan, np.inf, -np.inf

    y = compiled(kernel, **{parameter: value}).multiply(
        convert(kernel, csr_array(dense), **{parameter: value}), x
    )

    assert np.flatnonzero(np.isnan(y)).tolist() == [7]
    assert y[9] == -np.inf
    assert np.delete(y, [7, 9]).tolist() == [2] * 38


@all_kernels
def test_an_explicit_zero_times_infinity_is_nan(
    compiled: Any, convert: Any, kernel: str, parameter: str, value: int
) -> None:
    A = csr_array(([0.0, -0.0, 1.0], ([0, 1, 2], [0, 0, 0])), shape=(4, 4), dtype=np.float32)

    y = compiled(kernel, **{parameter: value}).multiply(
        convert(kernel, A, **{parameter: value}), [np.inf, 0, 0, 0]
    )

    assert np.isnan(y).tolist() == [True, True, False, False]
    assert y[2:].tolist() == [np.inf, 0]


@pytest.mark.parametrize("n", [SMALL_X_ROOM - 1, SMALL_X_ROOM])
@pytest.mark.parametrize("kernel", ["block", "scalar"])
def test_x_may_fill_its_room_on_the_chip(
    compiled: Any, convert: Any, kernel: str, n: int
) -> None:
    A = sparse(100, n, 0.2)
    x = vector(n)

    y = compiled(kernel, x_room=SMALL_X_ROOM).multiply(convert(kernel, A), x)

    assert compare(y, A, x) <= 1


def entries(size: int) -> st.SearchStrategy[Any]:
    values = st.floats(-8, 8, width=32) | st.just(-0.0)
    index = st.integers(0, size - 1)
    return st.dictionaries(st.tuples(index, index), values, max_size=60)


@pytest.mark.parametrize(("kernel", "parameter"), [("block", "block"), ("scalar", "slice")])
@settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(cells=entries(70), value=st.sampled_from([4, 8, 16, 32]))
def test_any_matrix_is_multiplied_rightly(
    compiled: Any,
    convert: Any,
    kernel: str,
    parameter: str,
    cells: dict[tuple[int, int], float],
    value: int,
) -> None:
    rows, cols = np.array(list(cells), int).reshape(-1, 2).T
    A = csr_array((np.float32(list(cells.values())), (rows, cols)), shape=(71, 70))
    x = vector(70)
    fmt = convert(kernel, A, **{parameter: value})

    y = compiled(kernel, **{parameter: value}).multiply(fmt, x)

    assert compare(y, A, x) <= 1
    assert (y[np.diff(A.indptr) == 0] == 0).all()


# --- Kernel `lanes`: long rows, panels, spacing -------------------------------------------


LANES_PANEL = 48


def arrow(n: int) -> csr_array:
    """A dense first row, a dense last column and a diagonal."""
    A = diags_array(np.ones(n, np.float32)).tolil()
    A[0] = np.linspace(-1, 1, n, dtype=np.float32)
    A[:, n - 1] = 2
    return csr_array(A, dtype=np.float32)


def powerlaw(m: int, n: int) -> csr_array:
    lengths = np.minimum(n, (n / np.arange(1, m + 1)).astype(int) + 1)
    rng = np.random.default_rng(m)
    rows = np.repeat(np.arange(m), lengths)
    cols = np.concatenate([rng.choice(n, k, replace=False) for k in lengths])
    values = rng.standard_normal(len(rows)).astype(np.float32)
    return csr_array((values, (rows, cols)), shape=(m, n))


LANES_MATRICES: dict[str, Callable[[], csr_array]] = {
    **MATRICES,
    "arrow": lambda: arrow(700),
    "power law": lambda: powerlaw(300, 600),
    "one dense row": lambda: csr_array(np.linspace(-1, 1, 3000, dtype=np.float32)[None]),
    "two dense rows": lambda: csr_array(np.ones((2, 999), np.float32)),
    "a row in each lane": lambda: sparse(16, 900, 0.5),
    "entries in the last panel alone": lambda: csr_array(
        ([1.5], ([3], [999])), shape=(20, 1000), dtype=np.float32
    ),
}


@pytest.mark.parametrize("name", LANES_MATRICES)
@pytest.mark.parametrize("limit", [None, 1, 3, 1000])
@pytest.mark.parametrize("depth", [8, 16])
def test_rows_cut_at_any_length_add_up_over_panels(
    compiled: Any, depth: int, limit: int | None, name: str
) -> None:
    A = LANES_MATRICES[name]()
    x = vector(A.shape[1])
    fmt = SellCSigma.from_csr(A, depth=depth, panel=LANES_PANEL, limit=limit)

    y = compiled("lanes", depth=depth, panel=LANES_PANEL).multiply(fmt, x, iterations=2)

    assert compare(y, A, x) <= 1


def test_long_rows_are_merged_in_the_kernel(compiled: Any) -> None:
    A = arrow(700)
    fmt = SellCSigma.from_csr(A)
    assert len(fmt.merged_rows) > 0
    x = np.ones(700, np.float32)

    y = compiled("lanes").multiply(fmt, x)

    assert y[1:-1].tolist() == [3] * 698
    assert compare(y, A, x) <= 1


def test_a_nan_in_one_panel_reaches_no_row_of_another(compiled: Any) -> None:
    A = arrow(700)
    A.data[:] = 1
    x = np.ones(700, np.float32)
    x[[5, 600]] = np.nan, np.inf
    fmt = SellCSigma.from_csr(A, panel=LANES_PANEL)

    y = compiled("lanes", depth=8, panel=LANES_PANEL).multiply(fmt, x)

    assert np.flatnonzero(np.isnan(y)).tolist() == [0, 5]
    assert np.flatnonzero(np.isinf(y)).tolist() == [600]


def test_y_larger_than_its_room_is_refused(compiled: Any) -> None:
    fmt = SellCSigma.from_csr(csr_array((8193, 3), dtype=np.float32))

    _, error = compiled("lanes", y_room=8192).launch(fmt, vector(3))

    assert error == "y is longer than its room on chip"


@settings(
    derandomize=True,
    max_examples=60,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    cells=entries(70),
    panel=st.sampled_from([16, LANES_PANEL, 16384]),
    limit=st.sampled_from([None, 1, 2, 5]),
    sigma=st.sampled_from([None, 1, 24]),
)
def test_any_matrix_is_multiplied_rightly_by_lanes(
    compiled: Any,
    cells: dict[tuple[int, int], float],
    panel: int,
    limit: int | None,
    sigma: int | None,
) -> None:
    rows, cols = np.array(list(cells), int).reshape(-1, 2).T
    A = csr_array((np.float32(list(cells.values())), (rows, cols)), shape=(71, 70))
    x = vector(70)
    fmt = SellCSigma.from_csr(A, panel=panel, limit=limit, sigma=sigma)

    y = compiled("lanes", panel=panel).multiply(fmt, x)

    assert compare(y, A, x) <= 1
    assert (y[np.diff(A.indptr) == 0] == 0).all()


# --- What a wrong argument or buffer becomes --------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "scalar", "change", "failure"),
    [
        ("block", "num_words", +5, "argument matrix: read at offset"),
        ("block", "num_words", -1, "waits for data in the empty stream"),
        ("block", "num_tiles", -1, "deadlock in region block"),
        ("block", "num_block_rows", +1, "in the empty stream"),
        ("block", "num_block_rows", -1, "waits for room in the full stream even_sums"),
        ("block", "num_x_words", +100, "argument x: read at offset"),
        ("scalar", "num_words", +5, "argument matrix: read at offset"),
        ("scalar", "num_words", -2, "waits for data in the empty stream"),
        ("scalar", "num_slots", -1, "waits for data in the empty stream"),
        ("scalar", "num_slices", +1, "in the empty stream"),
        ("scalar", "num_slices", -1, "waits for room in the full stream even_sums"),
        ("scalar", "num_x_words", +100, "argument x: read at offset"),
        ("lanes", "num_words", +5, "argument matrix: read at offset"),
        ("lanes", "num_panels", +1, "argument matrix: read at offset"),
        ("lanes", "num_panels", -1, "waits for room in the full stream address_words"),
        ("lanes", "num_merged", +1, "waits for data in the empty stream address_words"),
        ("lanes", "num_y_words", -1, "a piece lies beyond the end of y"),
        ("lanes", "num_y_words", +4, "argument y: write at offset"),
    ],
)
def test_a_wrong_count_is_an_error_and_no_hang(
    compiled: Any, convert: Any, kernel: str, scalar: str, change: int, failure: str
) -> None:
    fmt = convert(kernel, sparse(100, 100, 0.1))
    wrong = {scalar: fmt.scalars()[scalar] + change}

    _, error = compiled(kernel).launch(fmt, vector(100), **wrong)

    assert failure in error


@pytest.mark.parametrize("kernel", ["block", "scalar", "lanes"])
@pytest.mark.parametrize(
    ("argument", "verb"), [("matrix", "read"), ("x", "read"), ("y", "write")]
)
def test_an_access_behind_a_buffer_names_argument_offset_and_size(
    compiled: Any, convert: Any, kernel: str, argument: str, verb: str
) -> None:
    fmt = convert(kernel, sparse(100, 100, 0.1))

    _, error = compiled(kernel).launch(fmt, vector(100), sizes={argument: 100})

    assert error == (
        f"argument {argument}: {verb} at offset 64, outside its buffer of 100 bytes"
    )


def test_a_kernel_works_again_after_an_error(compiled: Any, convert: Any) -> None:
    A = sparse(100, 100, 0.1)
    library, fmt = compiled("block"), convert("block", A)
    _, error = library.launch(fmt, vector(100), num_words=fmt.num_words - 1)

    y = library.multiply(fmt, vector(100))

    assert error != ""
    assert compare(y, A, vector(100)) <= 1


@pytest.mark.parametrize("capacity", [1, 20])
def test_an_error_text_longer_than_its_room_is_cut(
    compiled: Any, convert: Any, capacity: int
) -> None:
    fmt = convert("block", sparse(100, 100, 0.1))

    _, error = compiled("block").launch(fmt, vector(100), sizes={"y": 0}, error_bytes=capacity)

    assert error == "argument y: write at offset 0"[: capacity - 1]
