"""Kernel lanes on the emulated card: shapes, units, long rows, rounds of y, and its clock."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array, vstack

from spmv_fpga import SellCSigma, open_device
from spmv_fpga.boards import load_board
from spmv_fpga.codegen import render_project
from spmv_fpga.errors import XclbinError
from spmv_fpga.formats.partition import partition
from spmv_fpga.measure import RunOptions, run
from spmv_fpga.reference import compare
from spmv_fpga.runtime.card import Card
from spmv_fpga.runtime.fit import check_fit
from spmv_fpga.toolchain import emulation, xclbin

pytestmark = pytest.mark.xrt

UNITS = (1, 2, 9, 18)
PANEL, Y_ROOM = 64, 8192


def built(units: int) -> str:
    """A kernel with small panels, so that small matrices have several."""
    parameters = {"depth": 8, "panel": PANEL, "y_room": Y_ROOM}
    project = render_project("lanes", parameters, load_board("u50"), compute_units=units)
    return str(emulation.build(project).path)


@pytest.fixture(scope="module", params=UNITS)
def card(request: pytest.FixtureRequest) -> Iterator[Card]:
    with open_device(xclbin=built(request.param)) as shared:
        yield shared


def sparse(m: int, n: int, density: float, seed: int = 0) -> csr_array:
    rng = np.random.default_rng(seed)
    if m * n == 0:
        return csr_array((m, n), dtype=np.float32)
    return csr_array(random_array((m, n), density=density, rng=rng, dtype=np.float32))


def multiply(card: Card, A: csr_array, x: np.ndarray) -> np.ndarray:
    cut = partition(
        A,
        SellCSigma,
        {"depth": 8, "panel": PANEL},
        compute_units=card.compute_units,
        y_room=card.xclbin.y_room,
    )
    y, times = card.spmv(cut, x)
    if A.nnz:
        assert times.cycles is not None
        assert times.cycles.hazards == 0
    return y


@st.composite
def matrices(draw: Any) -> csr_array:
    m, n = draw(st.integers(0, 150)), draw(st.integers(0, 150))
    A = sparse(m, n, draw(st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0])), draw(st.integers(0, 9)))
    if m and n and draw(st.booleans()):  # a row far longer than the others
        dense = A.toarray()
        dense[draw(st.integers(0, m - 1))] = 1.5
        A = csr_array(dense)
    if A.nnz and draw(st.booleans()):
        A.data[:: draw(st.integers(1, 5))] = 0.0  # explicit zeros
    return A


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(A=matrices(), bad=st.sampled_from([None, np.nan, np.inf, -np.inf]))
def test_every_shape_is_right_with_every_number_of_units(
    card: Card, A: csr_array, bad: float | None
) -> None:
    x = np.random.default_rng(1).standard_normal(A.shape[1]).astype(np.float32)
    if bad is not None and len(x):
        x[len(x) // 2] = bad
    assert compare(multiply(card, A, x), A, x) <= 1


def test_rows_that_y_has_no_room_for_take_rounds(card: Card) -> None:
    A = csr_array(vstack([sparse(7000, 50, 0.02, seed) for seed in range(3)]))
    x = np.ones(50, np.float32)
    assert compare(multiply(card, A, x), A, x) <= 1


def test_a_dense_row_is_shared_by_all_units(card: Card) -> None:
    dense = sparse(40, 5000, 0.002).toarray()
    dense[17] = np.linspace(-1, 1, 5000)
    A = csr_array(dense)
    cut = partition(A, SellCSigma, {"panel": PANEL}, compute_units=card.compute_units)
    slots = [part.fmt.num_stored for part in cut.parts]
    assert len(slots) == card.compute_units
    assert compare(multiply(card, A, np.ones(5000, np.float32)), A, np.ones(5000)) <= 1


def test_what_a_kernel_was_built_for_is_checked() -> None:
    info = xclbin.read(built(1))
    assert info.facts.parameters == {"depth": 8, "panel": PANEL}
    assert info.y_room == Y_ROOM
    A = sparse(10, 10, 0.5)
    check_fit(SellCSigma.from_csr(A, panel=PANEL), info)
    with pytest.raises(XclbinError, match="built for panel 64, but the data have panel 128"):
        check_fit(SellCSigma.from_csr(A, panel=128), info)
    tall = SellCSigma.from_csr(sparse(9000, 3, 0.1), panel=PANEL)
    with pytest.raises(XclbinError, match="on-chip room for 8192; multiply fewer rows"):
        check_fit(tall, info)


def test_the_model_and_the_clock_agree_where_memory_binds() -> None:
    result = run(
        RunOptions(
            matrix="gallery:elasticity3d:n=16",
            kernel="lanes",
            compute_units=2,
            mode="sw_emu",
            baseline="none",
        )
    )
    modelled_s = result.model.time_s.value - result.model.terms["launch"]
    assert result.verified
    assert result.cycles.slowest.bound == "memory"
    assert result.fpga["time_s"].value == pytest.approx(modelled_s, rel=0.05)


def test_auto_takes_lanes_where_tiles_are_empty() -> None:
    result = run(RunOptions(matrix="gallery:powerlaw:n=3000", mode="sw_emu", baseline="none"))
    assert (result.format.kernel, result.chosen_by) == ("lanes", "model")
    assert result.verified
