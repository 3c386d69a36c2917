"""The emulated card: behind the real runtime, and alone before a host of the test's own."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spmv_fpga.errors import ToolNotFoundError
from spmv_fpga.resources import data_dir
from spmv_fpga.runtime.environment import (
    EmulationFiles,
    RunFolder,
    emulation_environment,
    prepare_emulation,
)
from spmv_fpga.toolchain import xclbin
from spmv_fpga.toolchain.compiler import find_compiler

pytestmark = pytest.mark.xrt

HOST = Path(__file__).with_name("card_host.py")
PLATFORM = "xilinx_u50_gen3x16_xdma_201920_3"
BANK = 256 << 20
PATIENCE_S = 60

# What the test's kernel does, by its last argument.
ADD, TOUCH_NOTHING, COMPLAIN, EXIT, THROW, MEET, OVERFLOW = range(7)

KERNEL = r"""
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <thread>
#include "launch.h"

namespace {
std::atomic<int> num_running{0};

bool meet_the_other_unit() {
    ++num_running;
    const auto start = std::chrono::steady_clock::now();
    while (num_running < 2) {
        if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20)) return false;
        std::this_thread::yield();
    }
    return true;
}

int overflow(int depth) {
    volatile char room[4096];
    room[0] = static_cast<char>(depth);
    return depth < 0 ? 0 : overflow(depth + 1) + room[0];
}

template <typename T>
T value(char **argv, int i) { return *reinterpret_cast<T *>(argv[1 + i]); }

unsigned long long address(const spmv_fpga_buffer &buffer) {
    return reinterpret_cast<unsigned long long>(buffer.begin);
}
}  // namespace

extern "C" void __stub____xlnx_cl_vadd(char **argv) {
    const auto *launch = reinterpret_cast<const spmv_fpga_launch *>(argv[0]);
    const float *a = value<const float *>(argv, 0), *b = value<const float *>(argv, 1);
    float *c = value<float *>(argv, 2);
    const unsigned n = value<unsigned>(argv, 3);
    std::puts("a kernel's print");
    switch (value<unsigned>(argv, 4)) {
        case 1: *reinterpret_cast<volatile int *>(8) = 1; break;
        case 2: std::strcpy(launch->error, "stream \"sums\" is full"); return;
        case 3: std::exit(0);
        case 4: throw std::runtime_error("no such row");
        case 5:
            if (!meet_the_other_unit()) std::strcpy(launch->error, "no other unit ran");
            break;
        case 6: std::exit(overflow(0));
    }
    for (unsigned i = 0; i < n; ++i) c[i] = a[i] + b[i];
    const spmv_fpga_buffer *buffers = launch->buffers;
    std::snprintf(launch->report, launch->report_capacity,
                  "{\"begin\": [%llu, %llu, %llu],\n\"bytes\": [%llu, %llu], \"name\": \"%s\"}",
                  address(buffers[0]), address(buffers[1]), address(buffers[2]),
                  buffers[0].bytes, buffers[3].bytes, buffers[4].name);
}
"""


@pytest.fixture(scope="module")
def files() -> EmulationFiles:
    try:
        return prepare_emulation()
    except ToolNotFoundError as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory, files: EmulationFiles) -> Path:
    folder = tmp_path_factory.mktemp("vadd")
    source, library = folder / "vadd.cpp", folder / "vadd.so"
    source.write_text(KERNEL)
    include = f"-I{data_dir('host') / 'common'}"
    command = [find_compiler(), "-shared", "-fPIC", include, source, "-o", library]
    subprocess.run(command, check=True)
    return library


@pytest.fixture(scope="module")
def vadd(library: Path) -> Path:
    """An xclbin with two units, on banks 3, 7, 12 and 4, 8, 13."""
    units = {
        "vadd_1": {"a": ["HBM[3]"], "b": ["HBM[7]"], "c": ["HBM[12]"]},
        "vadd_2": {"a": ["HBM[4]"], "b": ["HBM[8]"], "c": ["HBM[13]"]},
    }
    ports = {"a": "M_AXI_A", "b": "M_AXI_B", "c": "M_AXI_C"}
    spec = xclbin.XclbinSpec(
        platform=PLATFORM,
        target="sw_emu",
        kernels=(xclbin.lay_out_kernel("vadd", ports, ["n", "what"], units),),
        memories=xclbin.hbm_banks(),
        clock_hz=300e6,
        library=library.read_bytes(),
    )
    path = library.with_name("vadd.xclbin")
    xclbin.write(path, spec)
    return path


class Run:
    """A host process of its own session on the emulated card."""

    def __init__(self, files: EmulationFiles, run: RunFolder, vadd: Path, **job: Any) -> None:
        self.run = run
        self.home = run.path / "home"
        self.home.mkdir()
        settings = {"xclbin": str(vadd), "units": ["vadd_1"], "num_values": 1000}
        job_file = run.path / "job.json"
        job_file.write_text(json.dumps({**settings, "what": ADD, "repeat": 1, **job}))
        environment = {**os.environ, **emulation_environment(files, run)}
        self.process = subprocess.Popen(
            [sys.executable, HOST, job_file],
            env={**environment, "HOME": str(self.home)},
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def finish(self) -> dict[str, Any] | None:
        """Wait for it; the JSON document is all that may stand on stdout."""
        try:
            output, self.errors = self.process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            raise
        return json.loads(output) if output else None


@pytest.fixture
def run() -> Iterator[RunFolder]:
    with RunFolder() as folder:
        yield folder


def test_the_real_runtime_adds_two_vectors_on_the_emulated_u50(
    files: EmulationFiles, run: RunFolder, vadd: Path
) -> None:
    host = Run(files, run, vadd, repeat=3)

    result = host.finish()

    assert result is not None, host.errors
    assert result["device"] == PLATFORM
    assert result["is_right"] == [True]
    assert all(start < end for [[start, end]] in result["times_ns"])
    assert [entry["launch"] for entry in run.report()] == [1, 2, 3]
    # What it counts is the same each time, and so is told once.
    assert [entry["report"] is None for entry in run.report()] == [False, True, True]
    assert run.failure() is None


def test_a_kernel_sees_its_buffers_in_the_banks_of_the_connectivity(
    files: EmulationFiles, run: RunFolder, vadd: Path
) -> None:
    Run(files, run, vadd, units=["vadd_2"]).finish()

    [entry] = run.report()
    a, b, c = entry["report"]["begin"]
    assert entry["unit"] == "vadd_2"
    assert (round((b - a) / BANK), round((c - a) / BANK)) == (4, 9)
    assert entry["report"]["bytes"] == [4096, 0]  # whole pages; a scalar has none
    assert entry["report"]["name"] == "what"


def test_two_compute_units_run_side_by_side(
    files: EmulationFiles, run: RunFolder, vadd: Path
) -> None:
    host = Run(files, run, vadd, units=["vadd_1", "vadd_2"], what=MEET)

    result = host.finish()

    assert result is not None, (host.errors, run.failure())
    assert result["is_right"] == [True, True]
    [[first, second]] = result["times_ns"]
    assert max(first[0], second[0]) < min(first[1], second[1])


def test_two_runs_at_once_do_not_meet(files: EmulationFiles, vadd: Path) -> None:
    with RunFolder() as one, RunFolder() as other:
        hosts = [Run(files, folder, vadd, repeat=20) for folder in (one, other)]
        results = [host.finish() for host in hosts]

    assert [result and result["is_right"] for result in results] == [[True], [True]]


def test_several_cards_can_be_emulated(
    files: EmulationFiles, run: RunFolder, vadd: Path
) -> None:
    host = Run(prepare_emulation(num_cards=2), run, vadd, card=1)

    result = host.finish()

    assert result is not None, host.errors
    assert (result["num_devices"], result["is_right"]) == (2, [True])


def test_a_run_leaves_nothing_in_the_home_folder_or_in_a_folder_of_the_user(
    files: EmulationFiles, run: RunFolder, vadd: Path
) -> None:
    host = Run(files, run, vadd)
    host.finish()

    assert list(host.home.iterdir()) == []
    assert not Path("/tmp", "xcl_sock").exists()
    run.remove()
    assert not run.path.exists()


@pytest.mark.parametrize(
    ("what", "failure"),
    [
        (TOUCH_NOTHING, "the kernel crashed with SIGSEGV (an address that is not mapped)"),
        (OVERFLOW, "the kernel crashed with SIGSEGV (an address that is not mapped)"),
        (COMPLAIN, 'stream "sums" is full'),
        (EXIT, "the kernel called exit; it must return."),
        (THROW, "the kernel threw an exception: no such row"),
    ],
    ids=["segfault", "stack overflow", "own message", "exit", "exception"],
)
def test_a_failing_kernel_ends_the_run_and_is_named(
    files: EmulationFiles, run: RunFolder, vadd: Path, what: int, failure: str
) -> None:
    host = Run(files, run, vadd, what=what)

    assert host.finish() is None
    assert host.process.returncode == -signal.SIGTERM
    assert run.failure() == f"vadd_1: {failure}"
    assert is_gone(host.process.pid)


def test_the_card_and_its_socket_go_with_a_host_that_is_killed(
    files: EmulationFiles, run: RunFolder, vadd: Path
) -> None:
    host = Run(files, run, vadd, repeat=1_000_000)
    wait_until(lambda: bool(run.report()))
    sockets = [path.name for path in run.path.iterdir() if path.is_socket()]

    host.process.kill()

    host.finish()
    assert is_gone(host.process.pid)
    assert sockets == [f"device0_1_{host.process.pid}"]  # in no folder that runs share


def is_gone(group: int) -> bool:
    """Say whether all processes of a group have ended, reaped or not."""

    def is_empty() -> bool:
        return not any(
            int(fields[2]) == group and fields[0] != "Z" for fields in map(status_of, pids())
        )

    return wait_until(is_empty)


def pids() -> list[Path]:
    return [path for path in Path("/proc").iterdir() if path.name.isdigit()]


def status_of(process: Path) -> list[str]:
    """Return state, parent and group of a process (Linux, proc_pid_stat(5))."""
    try:
        return (process / "stat").read_text().rpartition(") ")[2].split()[:3]
    except OSError:  # it ended meanwhile
        return ["Z", "0", "0"]


def wait_until(condition: Any) -> bool:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


# --- The card alone ---------------------------------------------------------------------

CLOSE, LOAD, ALLOCATE, FREE, TO_CARD, TO_HOST, WRITE, READ, SETUP = 1, 3, 4, 5, 6, 7, 9, 11, 28
UNIT_BASE = 0x800000


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def encode(fields: dict[int, int | bytes]) -> bytes:
    return b"".join(
        varint(number << 3 | 2) + varint(len(value)) + value
        if isinstance(value, bytes)
        else varint(number << 3) + varint(value)
        for number, value in fields.items()
    )


def decode(message: bytes) -> dict[int, int | bytes]:
    fields: dict[int, int | bytes] = {}
    at = 0

    def read_varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = read_varint()
        value = read_varint()
        if key & 7 == 2:
            fields[key >> 3] = message[at : at + value]
            at += value
        else:
            fields[key >> 3] = value
    return fields


class Card:
    """The card's program, started and asked as XRT does it."""

    def __init__(self, files: EmulationFiles, run: RunFolder) -> None:
        self.run = run
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(run.path / "device0_1_1"))
        listener.listen(1)
        listener.settimeout(PATIENCE_S)
        environment = {
            **os.environ,
            "USER": run.user,
            "EMULATION_SOCKETID": "device0_1_1",
            "SPMV_FPGA_EMULATION_REPORT": str(run.report_path),
        }
        self.process = subprocess.Popen(
            [files.card],
            env=environment,
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.socket, _ = listener.accept()
        self.socket.settimeout(PATIENCE_S)
        listener.close()

    def send(self, call: int, message: bytes) -> None:
        header = struct.pack("<BQBI", 0x09, len(message), 0x15, call)
        self.socket.sendall(header + message)

    def ask(self, call: int, fields: dict[int, int | bytes]) -> dict[int, int | bytes]:
        self.send(call, encode(fields))
        mark, length = struct.unpack("<BQ", self.receive(9))
        assert mark == 0x09
        return decode(self.receive(length))

    def receive(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionResetError
            data += piece
        return bytes(data)

    def load(self, vadd: Path, library: Path) -> int | bytes:
        xml = self.run.path / "vadd.xml"
        xml.write_bytes(xclbin.read_section(vadd, xclbin.SectionKind.EMBEDDED_METADATA) or b"")
        bank = encode({7: BANK})
        message = encode({1: os.fsencode(xml), 2: os.fsencode(library), 6: 0})
        self.send(LOAD, message + encode({8: bank}) * 32)
        _, length = struct.unpack("<BQ", self.receive(9))
        return decode(self.receive(length))[1]

    def start(self, addresses: list[int], *, n: int = 2) -> None:
        """Write the register map twice, as XRT does: without and with the start bit."""
        arguments = b"".join(struct.pack("<QI", address, 0) for address in addresses)
        scalars = struct.pack("<IIII", n, 0, ADD, 0)
        for control in (0, 1):
            data = struct.pack("<IIII", control, 0, 0, 0) + arguments + scalars
            self.ask(WRITE, {1: 0, 2: UNIT_BASE, 3: len(data), 4: data})

    def launch_unanswered(self, first: int) -> None:
        """Start with a first argument that is wrong: the card may die before it answers."""
        data = struct.pack("<4I", 1, 0, 0, 0) + struct.pack("<QI", first, 0) + bytes(64)
        self.send(WRITE, encode({2: UNIT_BASE, 3: len(data), 4: data}))

    def control(self) -> int:
        data = self.ask(READ, {1: 0, 2: UNIT_BASE, 3: 4})[2]
        assert isinstance(data, bytes)
        return int.from_bytes(data, "little")

    def end(self) -> int:
        self.socket.close()
        self.output, self.errors = self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@pytest.fixture
def card(files: EmulationFiles, run: RunFolder) -> Iterator[Card]:
    card = Card(files, run)
    yield card
    if card.socket.fileno() >= 0:
        card.end()


def test_a_launch_runs_from_its_start_bit_to_done(
    card: Card, vadd: Path, library: Path
) -> None:
    assert card.load(vadd, library) == 1
    addresses = [3 * BANK + 4096, 7 * BANK, 12 * BANK]
    for address in addresses:
        assert card.ask(ALLOCATE, {1: address, 2: 4096, 3: 0}) == {1: 1, 2: b""}
    card.ask(TO_CARD, {3: addresses[0], 4: struct.pack("<2f", 1.5, 2.0), 5: 8})
    card.ask(TO_CARD, {3: addresses[1], 4: struct.pack("<2f", 10, 20), 5: 8})
    idle = card.control()

    card.start(addresses)

    assert wait_until(lambda: card.control() & 2)
    assert (idle, card.control() & 1) == (4, 0)
    answer = card.ask(TO_HOST, {3: bytes(8), 4: addresses[2], 5: 8})
    assert answer == {1: 8, 2: struct.pack("<2f", 11.5, 22.0)}
    card.ask(WRITE, {1: 0, 2: UNIT_BASE, 3: 4, 4: struct.pack("<I", 0x10)})
    assert card.control() & 2 == 0


def test_what_a_kernel_prints_stays_off_the_standard_output(
    card: Card, vadd: Path, library: Path
) -> None:
    card.load(vadd, library)
    for address in (3 * BANK, 7 * BANK, 12 * BANK):
        card.ask(ALLOCATE, {1: address, 2: 4096, 3: 0})
    card.start([3 * BANK, 7 * BANK, 12 * BANK])
    assert wait_until(lambda: card.control() & 2)

    card.end()

    assert (card.output, card.errors) == (b"", b"a kernel's print\n")


@pytest.mark.parametrize("count", [0, 1, 65535, 65536, 65537, (3 << 20) + 1])
def test_copies_of_any_length_come_back_unchanged(card: Card, count: int) -> None:
    data = bytes(i * 7 % 251 for i in range(count))
    address = BANK - 1000

    sent = card.ask(TO_CARD, {3: address, 4: data, 5: count, 6: 0})
    got = card.ask(TO_HOST, {3: bytes(count), 4: address, 5: count})

    assert sent == {1: count}
    assert got == {1: count, 2: data}


@pytest.mark.parametrize(
    "first",
    [0, 3 * BANK + 4096, 5 * BANK],
    ids=["zero", "the byte behind a buffer", "a command buffer of the runtime"],
)
def test_a_pointer_outside_of_all_buffers_is_an_error_that_names_the_argument(
    card: Card, vadd: Path, library: Path, first: int
) -> None:
    card.load(vadd, library)
    for address in (3 * BANK, 7 * BANK, 12 * BANK):
        card.ask(ALLOCATE, {1: address, 2: 4096, 3: 0})
    card.ask(ALLOCATE, {1: 5 * BANK, 2: 4096, 3: 1})

    card.launch_unanswered(first)

    assert card.process.wait(PATIENCE_S) == -signal.SIGABRT
    assert card.run.failure() == (
        f"vadd_1: argument a is card address {first:#x}, which lies in no allocated buffer."
    )


def test_a_freed_buffer_is_no_buffer(card: Card, vadd: Path, library: Path) -> None:
    card.load(vadd, library)
    card.ask(ALLOCATE, {1: 3 * BANK, 2: 4096, 3: 0})
    card.ask(FREE, {1: 3 * BANK})

    card.launch_unanswered(3 * BANK)

    assert card.process.wait(PATIENCE_S) == -signal.SIGABRT
    assert "argument a is card address 0x30000000," in (card.run.failure() or "")


def test_a_library_that_does_not_load_is_answered_and_the_card_lives_on(
    card: Card, vadd: Path, tmp_path: Path
) -> None:
    assert card.load(vadd, tmp_path / "absent.so") == 0

    assert card.ask(SETUP, {1: 0}) == {1: 1}
    assert (card.run.failure() or "").startswith(
        "the xclbin cannot be loaded: its library does not load: "
    )


def test_an_allocation_beyond_the_memory_is_refused(card: Card) -> None:
    assert card.ask(ALLOCATE, {1: 31 * BANK, 2: BANK + 1, 3: 0})[1] == 0


def test_a_copy_beyond_the_memory_is_an_error(card: Card) -> None:
    card.send(TO_CARD, encode({3: 32 * BANK - 1, 4: b"ab", 5: 2}))

    assert card.process.wait(PATIENCE_S) == -signal.SIGABRT
    assert card.run.failure() == (
        "a copy of 2 bytes at 0x1ffffffff leaves the card's memory of 8589934592 bytes."
    )


def test_a_request_without_the_right_header_is_an_error(card: Card) -> None:
    card.socket.sendall(b"GET / HTTP/1.1")

    assert card.process.wait(PATIENCE_S) == -signal.SIGABRT
    assert card.run.failure() == "the host sent a request with an unknown header."


def test_a_message_whose_fields_are_longer_than_itself_is_an_error(card: Card) -> None:
    card.send(TO_CARD, encode({3: 0}) + b"\x22\x7f")

    assert card.process.wait(PATIENCE_S) == -signal.SIGABRT
    assert card.run.failure() == "the host sent a message whose fields are longer than itself."


def test_the_card_leaves_only_when_all_is_closed(card: Card) -> None:
    assert card.ask(CLOSE, {2: 1, 3: 0}) == {1: 1}
    assert card.ask(CLOSE, {2: 1, 3: 1}) == {1: 1}
    assert card.process.wait(PATIENCE_S) == 0


def test_the_card_leaves_when_its_host_is_gone(card: Card) -> None:
    assert card.end() == 0
    assert card.run.report() == []
