"""A card through the whole of it: worker process, real runtime, emulated U50, kernel."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

from spmv_fpga import BlockedEll, SlicedEll, open_device
from spmv_fpga.errors import DeviceError, FormatError, XclbinError
from spmv_fpga.formats.base import SparseFormat
from spmv_fpga.kernels import load_kernel
from spmv_fpga.reference import compare
from spmv_fpga.resources import data_dir
from spmv_fpga.runtime.card import Card
from spmv_fpga.runtime.environment import RunFolder
from spmv_fpga.runtime.fit import check_fit
from spmv_fpga.toolchain import xclbin
from spmv_fpga.toolchain.compiler import find_compiler

pytestmark = pytest.mark.xrt

PLATFORM = "xilinx_u50_gen3x16_xdma_201920_3"
PATIENCE_S = 30
CONVERSIONS: dict[tuple[str, int], Callable[[csr_array], SparseFormat]] = {
    **{("block", p): lambda A, p=p: BlockedEll.from_csr(A, block=p) for p in (4, 8, 16, 32)},
    **{
        ("scalar", s): lambda A, s=s: SlicedEll.from_csr(A, slice_size=s)
        for s in (4, 8, 16, 32)
    },
}

# Stands for the kernel `block`; the number of iterations says what it does.
CRASH, HANG, COMPLAIN = 1, 2, 3
BAD_KERNEL = r"""
#include <cstdio>
#include <cstring>
#include "launch.h"

extern "C" void __stub____xlnx_cl_spmv_block(char **argv) {
  auto *launch = reinterpret_cast<spmv_fpga_launch *>(argv[0]);
  std::puts("a kernel's print");
  switch (*reinterpret_cast<unsigned *>(argv[9])) {
    case 1: *reinterpret_cast<volatile int *>(8) = 1; break;
    case 2: for (volatile bool goes_on = true; goes_on;) {} break;
    case 3: std::strcpy(launch->error, "stream sums still holds 3 tokens"); break;
  }
}
"""


def sparse(m: int, n: int, density: float = 0.1) -> csr_array:
    rng = np.random.default_rng(m + n)
    return csr_array(random_array((m, n), density=density, rng=rng, dtype=np.float32))


def vector(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal(n).astype(np.float32)


def opened(kernel: str = "block", value: int = 16, **options: float) -> Card:
    return open_device(mode="sw_emu", kernel=kernel, block=value, slice_size=value, **options)


@pytest.fixture(autouse=True)
def run_parent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of the test's own in which run folders stand; it must be empty at the end."""
    with RunFolder() as folder:
        parent = folder.path / "r"  # short: a socket's path has 107 characters
        parent.mkdir()
        monkeypatch.setenv("TMPDIR", str(parent))
        yield parent
        assert list(parent.iterdir()) == []


def write_bad_xclbin(path: Path, library: bytes, *, format_version: int = 1) -> Path:
    """Write an xclbin that says it is the kernel `block` for blocks of 16."""
    kernel = load_kernel("block")
    layout = xclbin.lay_out_kernel(
        kernel.function,
        {port.name: f"M_AXI_{str(port.bundle).upper()}" for port in kernel.ports},
        [scalar.name for scalar in kernel.scalars],
        {kernel.unit(1): {"matrix": ["HBM[0]"], "x": ["HBM[1]"], "y": ["HBM[1]"]}},
    )
    spec = xclbin.XclbinSpec(
        platform=PLATFORM,
        target="sw_emu",
        kernels=(layout,),
        memories=xclbin.hbm_banks(),
        clock_hz=300e6,
        library=library,
        facts=xclbin.Facts("block", block=16, x_room=1024, format_version=format_version),
    )
    xclbin.write(path, spec)
    return path


@pytest.fixture(scope="module")
def bad_xclbin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bad")
    source, library = folder / "bad.cpp", folder / "bad.so"
    source.write_text(BAD_KERNEL)
    include = f"-I{data_dir('host') / 'common'}"
    command = [find_compiler(), "-shared", "-fPIC", include, source, "-o", library]
    subprocess.run(command, check=True)
    return write_bad_xclbin(folder / "bad.xclbin", library.read_bytes())


# --- Processes --------------------------------------------------------------------------


@dataclass(frozen=True)
class Process:
    """What Linux says of a process (proc_pid_stat(5))."""

    pid: int
    state: str
    parent: int
    session: int


def processes() -> Iterator[Process]:
    """Yield all that run."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, _, session = path.read_text().rpartition(") ")[2].split()[:4]
        except OSError:  # it ended meanwhile
            continue
        if state != "Z":
            yield Process(int(path.parent.name), state, int(parent), int(session))


def sessions_of(parent: int) -> set[int]:
    """Return the sessions that children of a process lead."""
    return {p.pid for p in processes() if p.parent == parent and p.session == p.pid}


def in_session(session: int) -> list[Process]:
    return [p for p in processes() if p.session == session]


def wait_until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    deadline = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def goes(session: int) -> bool:
    """Wait until all processes of a session have ended; what stays is killed."""
    if wait_until(lambda: not in_session(session)):
        return True
    os.killpg(session, signal.SIGKILL)
    return False


@pytest.fixture
def worker_session() -> Callable[[], int]:
    """Find the session of the one card that the test has open."""
    before = sessions_of(os.getpid())

    def find() -> int:
        [session] = sessions_of(os.getpid()) - before
        return session

    return find


@pytest.fixture(scope="module")
def card() -> Iterator[Card]:
    """A card for blocks of 16, for tests after which it works as before."""
    with opened() as shared:
        yield shared


# --- Products ---------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "value"), CONVERSIONS)
def test_a_product_on_the_card_is_right(kernel: str, value: int) -> None:
    A, x = sparse(257, 129), vector(129)

    with opened(kernel, value) as card:
        y, _ = card.spmv(CONVERSIONS[kernel, value](A), x)

    assert y.dtype == np.float32
    assert compare(y, A, x) <= 1


@pytest.mark.parametrize("kernel", ["block", "scalar"])
def test_matrices_of_all_shapes_follow_each_other_on_one_card(kernel: str) -> None:
    shapes = [(0, 0), (0, 7), (7, 0), (1, 1), (33, 500), (500, 33)]
    products = []

    with opened(kernel) as card:
        for m, n in shapes:
            A = sparse(m, n) if m * n else csr_array((m, n), dtype=np.float32)
            y, _ = card.spmv(CONVERSIONS[kernel, 16](A), vector(n))
            products.append((y.shape, compare(y, A, vector(n)) <= 1))

    assert products == [((m,), True) for m, _ in shapes]


def test_the_same_matrix_is_moved_once_and_x_each_time(card: Card) -> None:
    A = sparse(2000, 2000, 0.05)
    fmt = BlockedEll.from_csr(A)
    packed = []

    class Counted(BlockedEll):
        def buffers(self) -> dict[str, np.ndarray]:
            packed.append(1)
            return super().buffers()

    fmt.__class__ = Counted
    card.spmv(fmt, np.ones(2000, np.float32))
    y, _ = card.spmv(fmt, vector(2000))

    assert packed == [1]
    assert compare(y, A, vector(2000)) <= 1


def test_another_matrix_of_the_same_shape_is_moved(card: Card) -> None:
    A, B = sparse(64, 64), sparse(64, 64) * np.float32(2)

    card.spmv(BlockedEll.from_csr(A), vector(64))
    y, _ = card.spmv(BlockedEll.from_csr(csr_array(B)), vector(64))

    assert compare(y, B, vector(64)) <= 1


def test_every_launch_has_its_times_in_order(card: Card) -> None:
    A = sparse(100, 100)

    y, times = card.spmv(BlockedEll.from_csr(A), vector(100), repeat=5, iterations=2)

    assert compare(y, A, vector(100)) <= 1
    assert (len(times.start_ns), len(times.end_ns), times.iterations) == (5, 5, 2)
    in_order = [t for pair in zip(times.start_ns, times.end_ns, strict=True) for t in pair]
    assert in_order == sorted(in_order)
    seconds = (np.array(times.end_ns) - np.array(times.start_ns)) * 1e-9
    assert times.kernel_s == pytest.approx(seconds)
    assert times.to_card_s > 0
    assert times.to_host_s > 0


def test_thousands_of_launches_in_one_call_have_their_times_too(card: Card) -> None:
    _, times = card.spmv(BlockedEll.from_csr(sparse(16, 16)), vector(16), repeat=2000)

    assert len(times.kernel_s) == 2000
    assert (times.kernel_s > 0).all()


def test_a_card_says_its_mode_device_and_block(card: Card) -> None:
    assert (card.mode, card.device, card.xclbin.block) == ("sw_emu", PLATFORM, 16)
    assert card.driver != ""


def test_x_may_be_any_vector_of_numbers_and_stays_as_it_is(card: Card) -> None:
    A, x = sparse(50, 60), np.arange(120)[::2]

    y, _ = card.spmv(BlockedEll.from_csr(A), x)

    assert compare(y, A, x) <= 1
    assert x.tolist() == list(range(0, 120, 2))


# --- Refusals ---------------------------------------------------------------------------


def test_a_block_that_the_xclbin_is_not_built_for_is_refused_and_the_card_lives_on(
    card: Card,
) -> None:
    A = sparse(64, 64)

    with pytest.raises(XclbinError) as refusal:
        card.spmv(BlockedEll.from_csr(A, block=8), vector(64))
    y, _ = card.spmv(BlockedEll.from_csr(A, block=16), vector(64))

    [reason] = refusal.value.reasons
    assert "built for block 16, but the data have block 8" in reason
    assert compare(y, A, vector(64)) <= 1


def test_an_x_of_another_length_is_refused(card: Card) -> None:
    with pytest.raises(FormatError, match="the matrix has 64 columns"):
        card.spmv(BlockedEll.from_csr(sparse(64, 64)), vector(63))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeat": 0}, "repeat is 0; it must be at least 1."),
        ({"iterations": 0}, "iterations is 0; it must be at least 1."),
    ],
)
def test_less_than_one_launch_or_product_is_refused(
    card: Card, options: dict[str, int], message: str
) -> None:
    with pytest.raises(DeviceError) as refusal:
        card.spmv(BlockedEll.from_csr(sparse(64, 64)), vector(64), **options)

    assert str(refusal.value) == message


def test_a_closed_card_refuses_and_can_be_opened_again() -> None:
    A = sparse(64, 64)
    fmt = BlockedEll.from_csr(A)
    card = opened()
    with card:
        with pytest.raises(DeviceError, match="there is no matrix on the card"):
            card.launch()
        card.spmv(fmt, vector(64))

    with pytest.raises(DeviceError, match="there is no matrix on the card"):
        card.launch()
    with pytest.raises(DeviceError, match="the card is closed; open it with open_device"):
        card.spmv(fmt, vector(64))
    with card:
        y, _ = card.spmv(fmt, vector(64))

    assert compare(y, A, vector(64)) <= 1


def test_a_card_that_is_not_entered_starts_and_leaves_nothing(run_parent: Path) -> None:
    before = sessions_of(os.getpid())

    card = opened()

    assert card.device == ""
    assert list(run_parent.iterdir()) == []
    assert sessions_of(os.getpid()) == before


@pytest.mark.parametrize("mode", ["hw", "hw_emu"])
def test_an_xclbin_for_emulation_is_refused_on_another_target(
    bad_xclbin: Path, mode: str
) -> None:
    with pytest.raises(XclbinError, match="it was built for sw_emu"):
        open_device(mode=mode, xclbin=bad_xclbin)


def test_an_xclbin_for_another_version_of_the_matrix_stream_is_refused(tmp_path: Path) -> None:
    old = write_bad_xclbin(tmp_path / "old.xclbin", b"a library", format_version=0)

    with pytest.raises(XclbinError) as refusal:
        check_fit(BlockedEll.from_csr(sparse(64, 64)), xclbin.read(old))

    assert refusal.value.reasons == (
        "its kernel reads version 0 of the matrix stream, but the data have version 1; "
        "build it again",
    )


# --- Nothing is left, nothing is printed ------------------------------------------------


def test_a_run_prints_nothing_and_leaves_nothing_behind(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    run_parent: Path,
    worker_session: Callable[[], int],
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USER", "spmv_fpga_test_user")
    monkeypatch.chdir(home)

    with opened() as card:
        card.spmv(BlockedEll.from_csr(sparse(64, 64)), vector(64))
        session = worker_session()
        in_use = len(list(run_parent.iterdir()))

    assert capfd.readouterr() == ("", "")
    assert list(home.iterdir()) == []
    assert not Path("/tmp/spmv_fpga_test_user").exists()
    assert (in_use, list(run_parent.iterdir())) == (1, [])
    assert goes(session)


def test_two_cards_can_be_open_at_once() -> None:
    A, x = sparse(200, 100), vector(100)
    blocks, slices = BlockedEll.from_csr(A), SlicedEll.from_csr(A)

    with opened("block") as one, opened("scalar") as other:
        first, _ = one.spmv(blocks, x)
        second, _ = other.spmv(slices, x)
        third, _ = one.spmv(blocks, 2 * x)

    assert compare(first, A, x) <= 1
    assert compare(second, A, x) <= 1
    assert compare(third, A, 2 * x) <= 1


def test_a_card_outlives_the_thread_that_has_opened_it() -> None:
    card = opened()
    thread = threading.Thread(target=card.__enter__)
    thread.start()
    thread.join()

    try:
        y, _ = card.spmv(BlockedEll.from_csr(sparse(64, 64)), vector(64))
    finally:
        card.close()

    assert compare(y, sparse(64, 64), vector(64)) <= 1


def test_a_variable_of_another_emulation_does_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XCL_EMULATION_MODE", "hw_emu")
    monkeypatch.setenv("OCL_ICD_VENDORS", "/nonexistent")
    A = sparse(64, 64)

    with opened() as card:
        y, _ = card.spmv(BlockedEll.from_csr(A), vector(64))

    assert compare(y, A, vector(64)) <= 1


# --- Kernels that fail ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "failure"),
    [
        (
            CRASH,
            "the emulated card failed: spmv_block_1: the kernel crashed with SIGSEGV (an "
            "address that is not mapped)",
        ),
        (
            COMPLAIN,
            "the emulated card failed: spmv_block_1: stream sums still holds 3 tokens",
        ),
    ],
    ids=["crash", "own message"],
)
def test_a_kernel_that_fails_is_one_error_that_names_its_unit(
    bad_xclbin: Path,
    capfd: pytest.CaptureFixture[str],
    run_parent: Path,
    worker_session: Callable[[], int],
    what: int,
    failure: str,
) -> None:
    with open_device(xclbin=bad_xclbin) as card:
        session = worker_session()
        with pytest.raises(DeviceError) as error:
            card.spmv(BlockedEll.from_csr(sparse(64, 64)), vector(64), iterations=what)

    assert str(error.value) == failure
    assert list(run_parent.iterdir()) == []
    assert goes(session)
    assert capfd.readouterr() == ("", "")


def test_a_kernel_that_hangs_is_stopped_when_the_time_is_over(
    bad_xclbin: Path, run_parent: Path, worker_session: Callable[[], int]
) -> None:
    with open_device(xclbin=bad_xclbin, timeout_s=0.5) as card:
        session = worker_session()
        with pytest.raises(DeviceError, match=r"did not end within 0\.5 s and was stopped"):
            card.spmv(BlockedEll.from_csr(sparse(64, 64)), vector(64), iterations=HANG)
        assert list(run_parent.iterdir()) == []

    assert goes(session)


def test_after_a_kernel_that_failed_the_next_card_works(bad_xclbin: Path) -> None:
    fmt = BlockedEll.from_csr(sparse(64, 64))
    with open_device(xclbin=bad_xclbin) as card, pytest.raises(DeviceError):
        card.spmv(fmt, vector(64), iterations=CRASH)

    with opened() as card:
        y, _ = card.spmv(fmt, vector(64))

    assert compare(y, sparse(64, 64), vector(64)) <= 1


def test_a_library_without_the_kernel_is_one_error(bad_xclbin: Path, tmp_path: Path) -> None:
    content = bad_xclbin.read_bytes()
    broken = tmp_path / "broken.xclbin"
    broken.write_bytes(content.replace(b"xlnx_cl_spmv_block", b"xlnx_cl_spmv_blank"))

    with pytest.raises(DeviceError, match="does not export kernel spmv_block"):
        open_device(xclbin=broken).__enter__()


def test_a_worker_that_is_killed_is_one_error(worker_session: Callable[[], int]) -> None:
    with opened() as card:
        session = worker_session()
        os.kill(session, signal.SIGKILL)
        with pytest.raises(
            DeviceError, match="worker, which drives the card, was ended by SIGKILL"
        ):
            card.spmv(BlockedEll.from_csr(sparse(64, 64)), vector(64))

    assert goes(session)


# --- The parent is interrupted, or dies -------------------------------------------------

HANGING_PARENT = """
import sys
import numpy as np
from scipy.sparse import eye_array
from spmv_fpga import BlockedEll, open_device
fmt = BlockedEll.from_csr(eye_array(64, dtype="float32", format="csr"))
with open_device(xclbin=sys.argv[1]) as card:
    card.spmv(fmt, np.ones(64), iterations=2)
"""


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start_parent(run_parent: Path) -> Iterator[Start]:
    """Start Python in a session of its own, so that a signal reaches it alone."""
    package = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(package), *filter(None, sys.path)])
    started = []

    def start(*command: str | Path) -> subprocess.Popen[str]:
        parent = subprocess.Popen(
            [sys.executable, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        started.append(parent)
        return parent

    yield start
    for parent in started:
        with parent:
            parent.kill()


def wait_for_session(parent: subprocess.Popen[str]) -> int:
    """Return the session of the worker as soon as its emulated card runs."""
    assert wait_until(lambda: any(len(in_session(s)) > 1 for s in sessions_of(parent.pid)))
    [session] = sessions_of(parent.pid)
    return session


def wait_for_print(run_parent: Path) -> None:
    """Wait until the bad kernel runs."""

    def has_printed() -> bool:
        logs = [log.read_text() for log in run_parent.glob("*/worker.log")]
        return any("a kernel's print" in log for log in logs)

    assert wait_until(has_printed)


def test_an_interrupt_ends_a_launch_and_all_processes(
    bad_xclbin: Path, run_parent: Path, start_parent: Start
) -> None:
    parent = start_parent("-c", HANGING_PARENT, bad_xclbin)
    session = wait_for_session(parent)
    wait_for_print(run_parent)

    parent.send_signal(signal.SIGINT)
    _, errors = parent.communicate(timeout=PATIENCE_S)

    assert errors.endswith("KeyboardInterrupt\n")
    assert goes(session)
    assert list(run_parent.iterdir()) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_command_leaves_nothing_and_says_so_by_its_status(
    run_parent: Path, start_parent: Start, number: int, status: int
) -> None:
    parent = start_parent(
        "-m", "spmv_fpga", "run", "--matrix", "gallery:poisson2d:n=40", "--mode", "sw_emu",
        "--repeat", "1000000", "--quiet",
    )  # fmt: skip
    session = wait_for_session(parent)
    assert wait_until(lambda: any(run_parent.glob("*/report.jsonl")))

    parent.send_signal(number)
    output, errors = parent.communicate(timeout=PATIENCE_S)

    assert (parent.returncode, output) == (status, "")
    assert "Traceback" not in errors
    assert goes(session)
    assert list(run_parent.iterdir()) == []


def test_worker_and_card_go_with_a_parent_that_is_killed(
    bad_xclbin: Path, run_parent: Path, start_parent: Start
) -> None:
    parent = start_parent("-c", HANGING_PARENT, bad_xclbin)
    session = wait_for_session(parent)
    wait_for_print(run_parent)

    parent.kill()
    parent.communicate(timeout=PATIENCE_S)

    assert goes(session)
    assert len(list(run_parent.iterdir())) == 1  # nobody is there any more to remove it
    with RunFolder() as run:
        assert list(run_parent.iterdir()) == [run.path]


WORKING_PARENT = """
import numpy as np
from scipy.sparse import eye_array
from spmv_fpga import BlockedEll, open_device
fmt = BlockedEll.from_csr(eye_array(64, dtype="float32", format="csr"))
with open_device() as card:
    for i in range(5):
        y, _ = card.spmv(fmt, np.full(64, i))
        assert (y == i).all()
print("done")
"""


def test_two_processes_can_use_their_cards_at_once(start_parent: Start) -> None:
    with opened():  # what is built is built before
        pass
    parents = [start_parent("-c", WORKING_PARENT) for _ in range(2)]

    said = [parent.communicate(timeout=PATIENCE_S) for parent in parents]

    assert said == [("done\n", "")] * 2
