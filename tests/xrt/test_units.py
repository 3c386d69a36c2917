"""Several compute units on the emulated card: shares, column panels and rounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array, vstack

from spmv_fpga import open_device
from spmv_fpga.boards import load_board
from spmv_fpga.codegen import Project, render_project
from spmv_fpga.errors import DeviceError, FormatError, XclbinError
from spmv_fpga.formats import FORMATS
from spmv_fpga.formats.partition import Partition, partition
from spmv_fpga.reference import compare
from spmv_fpga.runtime.card import Card, Job
from spmv_fpga.runtime.fit import matrix_room
from spmv_fpga.toolchain import emulation, xclbin

pytestmark = pytest.mark.xrt

KERNELS = {"block": {"block": 16}, "scalar": {"slice": 16}}
UNITS = (1, 2, 3, 7, 16)
X_ROOM = 64
BANK, SMALL_BANK = 256 << 20, 64 << 10

Write = Callable[..., Path]


def project(kernel: str, units: int) -> Project:
    parameters = {**KERNELS[kernel], "x_room": X_ROOM}
    return render_project(kernel, parameters, load_board("u50"), compute_units=units)


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Write an xclbin for some units; each kernel is compiled once for all numbers of them."""
    folder = tmp_path_factory.mktemp("units")

    def written(kernel: str, units: int, bank_bytes: int = BANK) -> Path:
        path = folder / f"{kernel}_{units}_{bank_bytes}.xclbin"
        compiled = emulation.build(project(kernel, 16)).path
        library = xclbin.read_section(compiled, xclbin.SectionKind.BITSTREAM)
        assert library
        rendered = project(kernel, units)
        spec = rendered.kernel
        layout = xclbin.lay_out_kernel(
            spec.function,
            {port.name: f"M_AXI_{str(port.bundle).upper()}" for port in spec.ports},
            [scalar.name for scalar in spec.scalars],
            {
                unit.name: {p.name: [unit.banks[str(p.bundle)]] for p in spec.ports}
                for unit in rendered.units
            },
        )
        content = xclbin.XclbinSpec(
            platform=rendered.board.emulated_platform,
            target="sw_emu",
            kernels=(layout,),
            memories=xclbin.hbm_banks(32, bank_bytes),
            clock_hz=300e6,
            library=library,
            facts=xclbin.read(compiled).facts,
        )
        xclbin.write(path, content)
        return path

    return written


@pytest.fixture(
    scope="module",
    params=[(kernel, units) for kernel in KERNELS for units in UNITS],
    ids=lambda param: f"{param[0]}-{param[1]}",
)
def card(request: pytest.FixtureRequest, write: Write) -> Iterator[Card]:
    """A card with each kernel and each number of units, and room for 64 elements of x."""
    with open_device(xclbin=write(*request.param)) as shared:
        yield shared


@pytest.fixture(scope="module", params=KERNELS)
def small_banks(request: pytest.FixtureRequest, write: Write) -> Iterator[Card]:
    """A card with three units and banks of 64 KiB, on which most matrices take rounds."""
    with open_device(xclbin=write(request.param, 3, SMALL_BANK)) as shared:
        yield shared


def kernel_of(card: Card) -> str:
    return str(card.xclbin.kernel_kind)


def cut(A: csr_array, card: Card, compute_units: int | None = None) -> Partition:
    """Cut a matrix for what a card says of itself."""
    kernel = kernel_of(card)
    vector_bytes = 4 * (X_ROOM + A.shape[0])
    return partition(
        A,
        FORMATS[kernel],
        KERNELS[kernel],
        compute_units=compute_units or card.compute_units,
        x_room=card.xclbin.x_room,
        bank_bytes=matrix_room(card.xclbin, f"spmv_{kernel}", vector_bytes),
    )


def sparse(m: int, n: int, density: float = 0.1) -> csr_array:
    rng = np.random.default_rng(m + n)
    return csr_array(random_array((m, n), density=density, rng=rng, dtype=np.float32))


def dense_row(m: int, n: int, row: int) -> csr_array:
    cols = np.arange(n)
    return csr_array((np.float32(cols + 1), (np.full(n, row), cols)), shape=(m, n))


def empty(m: int, n: int) -> csr_array:
    return csr_array((m, n), dtype=np.float32)


def stacked(*matrices: csr_array) -> csr_array:
    return csr_array(vstack(matrices, format="csr"))


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(n).astype(np.float32)


# --- Shares and panels ------------------------------------------------------------------

SHAPES = {
    "no rows": empty(0, 50),
    "no columns": empty(50, 0),
    "nothing": empty(0, 0),
    "no entries": empty(100, 100),
    "one row": sparse(1, 60, 0.5),
    "one column": sparse(300, 1, 0.5),
    "one element": sparse(1, 1, 1.0),
    "more units than strips": sparse(33, 64),
    "rows that are no multiple of a strip": sparse(523, 61),
    "one dense row": dense_row(200, 320, 77),
    "empty rows above": stacked(empty(300, 50), sparse(100, 50)),
    "empty rows below": stacked(sparse(100, 50), empty(300, 50)),
    "empty rows between": stacked(sparse(50, 90), empty(400, 90), sparse(50, 90)),
    "two panels": sparse(200, 128),
    "three panels": sparse(200, 129),
    "four panels": sparse(200, 250),
    "five panels": sparse(200, 320),
    "an empty panel": stacked(sparse(64, 64), empty(64, 64)) @ np.eye(64, 192, dtype="f4"),
}


def test_matrices_of_all_shapes_follow_each_other(card: Card) -> None:
    wrong = []
    for name, given_matrix in SHAPES.items():
        A = csr_array(given_matrix)
        y, times = card.spmv(cut(A, card), vector(A.shape[1]))
        if y.shape != (A.shape[0],) or not compare(y, A, vector(A.shape[1])) <= 1:
            wrong.append(name)
        assert (times.kernel_s >= 0).all()

    assert wrong == []


@settings(
    derandomize=True,
    max_examples=6,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    m=st.integers(0, 600),
    n=st.integers(0, 320),
    density=st.sampled_from([0.001, 0.02, 0.3]),
    num_empty=st.sampled_from([0, 100]),
)
def test_any_matrix_is_multiplied_rightly(
    card: Card, m: int, n: int, density: float, num_empty: int
) -> None:
    A = stacked(sparse(m, n, density), empty(num_empty, n), sparse(m // 3, n, density))

    y, _ = card.spmv(cut(A, card), vector(n), repeat=2, iterations=2)

    assert compare(y, A, vector(n)) <= 1


def test_a_format_is_cut_for_the_units_that_the_card_has(card: Card) -> None:
    A = sparse(300, 64)  # 19 strips
    kernel = kernel_of(card)
    fmt = FORMATS[kernel].convert(A, KERNELS[kernel])

    y, times = card.spmv(fmt, vector(64), repeat=2)

    assert compare(y, A, vector(64)) <= 1
    assert times.unit_times_ns.shape == (2, 2, card.compute_units)
    assert (times.unit_times_ns[1] > times.unit_times_ns[0]).all()


def test_a_nan_in_one_panel_reaches_only_the_rows_with_an_entry_there(card: Card) -> None:
    A = sparse(200, 192)
    x = vector(192)
    x[100] = np.nan

    y, _ = card.spmv(cut(A, card), x)

    assert np.isnan(y).tolist() == (A[:, [100]].toarray()[:, 0] != 0).tolist()
    assert 0 < np.isnan(y).sum() < 200
    assert compare(y, A, x) <= 1


def test_infinities_of_two_panels_cancel_to_nan_without_a_warning(card: Card) -> None:
    A, x = stacked(dense_row(1, 128, 0), sparse(60, 128)), vector(128)
    x[[3, 70]] = np.inf, -np.inf

    y, _ = card.spmv(cut(A, card), x)

    assert np.isnan(y[0])
    assert compare(y, A, x) <= 1


def test_a_matrix_cut_for_fewer_units_is_multiplied_rightly(card: Card) -> None:
    A = sparse(200, 100)

    y, times = card.spmv(cut(A, card, compute_units=1), vector(100))

    assert compare(y, A, vector(100)) <= 1
    assert times.unit_times_ns.shape == (2, 1, 1)


def test_a_matrix_cut_for_more_units_is_refused_and_the_card_lives_on(card: Card) -> None:
    A, units = sparse(600, 60), card.compute_units

    with pytest.raises(DeviceError) as refusal:
        card.spmv(cut(A, card, compute_units=units + 1), vector(60))
    y, _ = card.spmv(cut(A, card), vector(60))

    assert str(refusal.value) == (
        f"the matrix is cut for {units + 1} compute units, and {card.xclbin.path} has {units}."
    )
    assert compare(y, A, vector(60)) <= 1


def test_more_columns_than_their_room_are_refused_where_the_matrix_is_not_cut(
    card: Card,
) -> None:
    kernel = kernel_of(card)
    fmt = FORMATS[kernel].convert(sparse(100, 65), KERNELS[kernel])

    with pytest.raises(XclbinError, match="x has 65 entries, but the kernel has on-chip room"):
        card.spmv(fmt, vector(65))


# --- Launches side by side --------------------------------------------------------------


def most_at_once(starts: np.ndarray, ends: np.ndarray) -> int:
    return max(int(((starts <= now) & (now < ends)).sum()) for now in starts)


@pytest.mark.parametrize("kernel", KERNELS)
def test_launches_of_different_units_overlap_in_time(kernel: str, write: Write) -> None:
    # Long enough that the first is not over before the last has begun.
    A = sparse(4096, 64, 0.5)
    with open_device(xclbin=write(kernel, 3)) as card:
        y, times = card.spmv(cut(A, card), vector(64), repeat=5, iterations=4)

    assert compare(y, A, vector(64)) <= 1
    starts, ends = times.unit_times_ns
    assert starts.shape == (5, 3)
    assert max(map(most_at_once, starts, ends)) >= 2
    assert times.kernel_s == pytest.approx((ends.max(axis=1) - starts.min(axis=1)) * 1e-9)


# --- Rounds -----------------------------------------------------------------------------


def test_a_matrix_larger_than_the_banks_takes_rounds_and_is_right(small_banks: Card) -> None:
    A = sparse(3000, 60, 0.5)
    matrix = cut(A, small_banks)

    y, times = small_banks.spmv(matrix, vector(60), repeat=3, iterations=2)

    assert matrix.num_rounds >= 3
    assert matrix.bytes > 3 * SMALL_BANK
    assert compare(y, A, vector(60)) <= 1
    assert (len(times.kernel_s), times.iterations) == (3, 2)
    last_round_s = (np.array(times.end_ns) - np.array(times.start_ns)) * 1e-9
    assert (times.kernel_s > last_round_s).all()  # rounds are added up
    assert times.to_card_s > 0
    assert times.to_host_s > 0


def test_rounds_of_several_panels_add_up(small_banks: Card) -> None:
    A = sparse(2000, 300, 0.2)
    matrix = cut(A, small_banks)

    y, _ = small_banks.spmv(matrix, vector(300))

    assert matrix.num_rounds > len({part.col_start for part in matrix.parts}) == 5
    assert compare(y, A, vector(300)) <= 1


def test_products_follow_each_other_where_they_take_rounds(small_banks: Card) -> None:
    A, B, C = sparse(3000, 60, 0.5), sparse(2500, 64, 0.5), sparse(100, 64)
    x = vector(64)
    in_rounds, others, small = (cut(each, small_banks) for each in (A, B, C))
    assert in_rounds.num_rounds > 1 < others.num_rounds
    assert small.num_rounds == 1

    for matrix, whole, operand in (
        (in_rounds, A, x[:60]),
        (in_rounds, A, 3 * x[:60]),
        (others, B, x),
        (small, C, x),
        (in_rounds, A, -x[:60]),
    ):
        y, _ = small_banks.spmv(matrix, operand)
        assert compare(y, whole, operand) <= 1


def test_launches_without_placing_again_repeat_all_rounds(small_banks: Card) -> None:
    A = sparse(3000, 60, 0.5)
    small_banks.place(cut(A, small_banks), vector(60))

    for repeat in (1, 2):
        times = small_banks.launch(repeat)
        y, _ = small_banks.fetch()
        assert len(times.kernel_s) == repeat
        assert compare(y, A, vector(60)) <= 1


def test_rounds_of_one_launch_have_its_iterations(small_banks: Card) -> None:
    A = sparse(3000, 60, 0.5)
    matrix = cut(A, small_banks)

    found = [small_banks.spmv(matrix, vector(60), iterations=k) for k in (1, 4, 1)]

    assert [times.iterations for _, times in found] == [1, 4, 1]
    assert all(compare(y, A, vector(60)) <= 1 for y, _ in found)


def test_larger_matrices_after_smaller_ones_find_room(small_banks: Card) -> None:
    # A bank has 16 pages of 4 KiB; a strip of a unit takes about one.
    for rows in (90, 300, 520, 90, 620, 1500, 16, 620):
        A = sparse(rows, 60, 0.5)
        y, _ = small_banks.spmv(cut(A, small_banks), vector(60))
        assert compare(y, A, vector(60)) <= 1


NO_ROOM = DeviceError("MemoryError: clSetKernelArg failed: OUT_OF_RESOURCES")


def fail_to_place(monkeypatch: pytest.MonkeyPatch, *failures: DeviceError) -> None:
    """Let rounds after the first find no room, as often as there are failures."""
    place_round, left = Card._place_round, list(failures)

    def place_or_fail(card: Card, number: int) -> float:
        if number and left:
            raise left.pop()
        return place_round(card, number)

    monkeypatch.setattr(Card, "_place_round", place_or_fail)


def test_a_round_without_room_goes_on_on_a_fresh_card(
    small_banks: Card, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, B = sparse(3000, 60, 0.5), sparse(2500, 60, 0.5)
    fail_to_place(monkeypatch, NO_ROOM)
    restarts: list[int] = []
    restart = Card._restart
    monkeypatch.setattr(Card, "_restart", lambda card: (restarts.append(1), restart(card)))

    y, times = small_banks.spmv(cut(A, small_banks), vector(60), repeat=2, iterations=3)
    z, _ = small_banks.spmv(cut(B, small_banks), vector(60))

    assert len(restarts) == 1
    assert times.iterations == 3
    assert compare(y, A, vector(60)) <= 1
    assert compare(z, B, vector(60)) <= 1


@pytest.mark.parametrize(
    "failures",
    [(NO_ROOM, NO_ROOM), (DeviceError("the card is closed."),)],
    ids=["no room again", "another error"],
)
def test_a_round_that_a_fresh_card_does_not_mend_is_one_error(
    small_banks: Card, monkeypatch: pytest.MonkeyPatch, failures: tuple[DeviceError, ...]
) -> None:
    A = sparse(3000, 60, 0.5)
    fail_to_place(monkeypatch, *failures)

    with pytest.raises(DeviceError) as error:
        small_banks.spmv(cut(A, small_banks), vector(60))
    y, _ = small_banks.spmv(cut(A, small_banks), vector(60))

    assert error.value is failures[0]
    assert compare(y, A, vector(60)) <= 1


def test_a_strip_larger_than_a_bank_is_refused_with_the_numbers(write: Write) -> None:
    card = open_device(xclbin=write("block", 2, 4096))  # a strip has four tiles of 1 KiB

    with pytest.raises(FormatError, match=r"16 rows of the matrix need 4112 bytes, and a"):
        cut(dense_row(16, 64, 0), card)


def test_a_counter_beyond_32_bits_is_refused_before_the_card_is_asked(write: Write) -> None:
    card = open_device(xclbin=write("block", 1))
    scalars = {"num_words": 1, "num_descriptors": 1, "num_tiles": 0, "num_x_words": 1}
    job = Job({"matrix": 64, "x": 64, "y": 64}, {}, {**scalars, "num_block_rows": 1 << 32}, 1)

    with pytest.raises(DeviceError, match=r"needs a counter of 4294967296, which has 32 bits"):
        card.place_job(job)


# --- Banks ------------------------------------------------------------------------------


def banks_of(path: Path, argument: str) -> list[str]:
    """Return the bank of an argument of every unit, which must be one."""
    info = xclbin.read(path)
    [kernel] = info.kernels
    banks = []
    for unit in kernel.instances:
        [bank] = info.memories_of(unit.name, argument)
        banks.append(bank.tag)
    return banks


def test_14_units_have_a_channel_each_and_the_next_for_vectors() -> None:
    path = emulation.build(
        render_project("block", {}, load_board("u50"), compute_units=14)
    ).path

    assert banks_of(path, "matrix") == [f"HBM[{2 + 2 * i}]" for i in range(14)]
    for argument in ("x", "y"):
        assert banks_of(path, argument) == [f"HBM[{3 + 2 * i}]" for i in range(14)]
    assert xclbin.read(path).x_room == 65536


def test_16_units_have_a_channel_each_with_their_vectors() -> None:
    path = emulation.build(
        render_project("block", {}, load_board("u50"), compute_units=16)
    ).path

    for argument in ("matrix", "x", "y"):
        assert banks_of(path, argument) == [f"HBM[{1 + i}]" for i in range(16)]
