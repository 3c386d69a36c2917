"""Kernels run natively: the library out of an xclbin, called as the emulated card calls it."""

from __future__ import annotations

import ctypes
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from spmv_fpga.boards import load_board
from spmv_fpga.codegen import Project, render, render_project
from spmv_fpga.formats import FORMATS
from spmv_fpga.formats.base import SparseFormat
from spmv_fpga.resources import data_dir
from spmv_fpga.runtime.cycles import UnitCycles
from spmv_fpga.toolchain import emulation, xclbin
from spmv_fpga.toolchain.compiler import find_compiler

WORD_BYTES = 64
GUARD_BYTES = 256
GUARD = 0xA5
ERROR_BYTES = 1000
REPORT_BYTES = 64 << 10
LAUNCH_VERSION = 2
# A memory as fast as the port, without latency: only the kernel itself takes time.
IDEAL_MEMORY = {
    "bytes_per_cycle": 64.0,
    "setup_cycles": 0.0,
    "latency_cycles": 0,
    "burst_words": 64,
}


class Buffer(ctypes.Structure):
    """`spmv_fpga_buffer` of host/common/launch.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("begin", ctypes.c_void_p),
        ("bytes", ctypes.c_ulonglong),
        ("bank", ctypes.c_uint),
        ("sharers", ctypes.c_uint),
        ("outstanding", ctypes.c_uint),
    )


class Memory(ctypes.Structure):
    """`spmv_fpga_memory` of host/common/launch.h."""

    _fields_ = (
        ("bytes_per_cycle", ctypes.c_double),
        ("setup_cycles", ctypes.c_double),
        ("latency_cycles", ctypes.c_uint),
        ("burst_words", ctypes.c_uint),
    )


class Launch(ctypes.Structure):
    """`spmv_fpga_launch` of host/common/launch.h."""

    _fields_ = (
        ("version", ctypes.c_uint),
        ("unit", ctypes.c_char_p),
        ("num_arguments", ctypes.c_uint),
        ("buffers", ctypes.POINTER(Buffer)),
        ("memory", ctypes.POINTER(Memory)),
        ("error", ctypes.c_void_p),
        ("error_capacity", ctypes.c_ulonglong),
        ("report", ctypes.c_void_p),
        ("report_capacity", ctypes.c_ulonglong),
    )


class CardMemory:
    """A buffer on the card: aligned to a word, with a guard behind it."""

    def __init__(self, num_bytes: int, content: npt.NDArray[Any] | None = None) -> None:
        raw = np.full(num_bytes + WORD_BYTES + GUARD_BYTES, GUARD, np.uint8)
        start = -raw.ctypes.data % WORD_BYTES
        self.bytes = raw[start : start + num_bytes]
        self._guard = raw[start + num_bytes : start + num_bytes + GUARD_BYTES]
        self.bytes[:] = 0xFF  # NaN, where the kernel writes nothing
        if content is not None:
            flat = content.reshape(-1).view(np.uint8)
            self.bytes[: len(flat)] = flat

    @property
    def address(self) -> int:
        return self.bytes.ctypes.data

    def is_guard_whole(self) -> bool:
        return bool((self._guard == GUARD).all())


@dataclass(frozen=True)
class Kernel:
    """A compiled kernel."""

    project: Project
    library: ctypes.CDLL
    reports: list[str] = field(default_factory=list)

    def launch(
        self,
        fmt: SparseFormat,
        x: npt.ArrayLike,
        *,
        iterations: int = 1,
        error_bytes: int = ERROR_BYTES,
        sizes: dict[str, int] | None = None,
        memory: dict[str, float] | None = None,
        sharers: int = 1,
        **scalars: int,
    ) -> tuple[npt.NDArray[np.float32], str]:
        """Run one launch; returns y, all that the kernel writes of it, and its error text.

        `sizes` overrides what the launch says of the buffers' bytes, `scalars` the
        arguments of the format. With `memory` the launch is timed.
        """
        vector = np.asarray(x, np.float32)
        contents = {"matrix": fmt.buffers()["matrix"], "x": vector, "y": None}
        ports = {n: CardMemory(s, contents[n]) for n, s in fmt.port_bytes().items()}
        said = {n: piece.bytes.nbytes for n, piece in ports.items()} | (sizes or {})
        numbers = fmt.scalars() | {"iterations": iterations} | scalars
        names = [argument.name for argument in self.project.kernel.arguments]
        values = [
            ctypes.c_void_p(ports[name].address)
            if name in ports
            else ctypes.c_uint32(numbers[name])
            for name in names
        ]
        buffers = (Buffer * len(names))(
            *(
                Buffer(
                    name.encode(),
                    ports[name].address if name in ports else None,
                    said.get(name, 0),
                    names.index(name),
                    sharers,
                    16,
                )
                for name in names
            )
        )
        error = CardMemory(error_bytes)
        error.bytes[:] = 0
        report = CardMemory(REPORT_BYTES)
        report.bytes[:] = 0
        facts = ctypes.pointer(Memory(**memory)) if memory else None
        launch = Launch(
            LAUNCH_VERSION, b"unit", len(names), buffers, facts,
            error.address, error_bytes, report.address, REPORT_BYTES,
        )  # fmt: skip
        argv = (ctypes.c_void_p * (1 + len(names)))(
            ctypes.addressof(launch), *map(ctypes.addressof, values)
        )
        function = getattr(self.library, f"__stub____xlnx_cl_{self.project.kernel.function}")
        function.restype = None
        function(argv)
        assert all(piece.is_guard_whole() for piece in (*ports.values(), error, report))
        self.reports.append(report.bytes.tobytes().split(b"\0")[0].decode())
        text = error.bytes.tobytes().split(b"\0")[0].decode()
        return ports["y"].bytes.view(np.float32), text

    def multiply(
        self, fmt: SparseFormat, x: npt.ArrayLike, *, iterations: int = 1
    ) -> npt.NDArray[np.float32]:
        """Return y of shape (m,); an error text of the kernel fails the test."""
        y, error = self.launch(fmt, x, iterations=iterations)
        assert error == ""
        return y[: fmt.shape[0]]

    def time(
        self,
        fmt: SparseFormat,
        x: npt.ArrayLike,
        *,
        iterations: int = 1,
        sharers: int = 1,
        **memory: float,
    ) -> UnitCycles:
        """Return what a launch counts, with a memory that differs from the ideal one."""
        _, error = self.launch(
            fmt, x, iterations=iterations, sharers=sharers, memory=IDEAL_MEMORY | memory
        )
        assert error == ""
        return UnitCycles.of(
            "unit", json.loads(self.reports[-1]), (IDEAL_MEMORY | memory)["bytes_per_cycle"]
        )


DEFAULTS = {"block": {"block": 16}, "scalar": {"slice": 16}, "lanes": {"depth": 8}}


@pytest.fixture(scope="session")
def convert() -> Callable[..., SparseFormat]:
    """Make the storage format of a kernel: `convert("block", A, block=8)`."""
    return lambda kernel, A, **parameters: FORMATS[kernel].convert(
        A, parameters or DEFAULTS[kernel]
    )


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Kernel]:
    """Compile a kernel, each once: `compiled("block", block=8)`."""
    folder = tmp_path_factory.mktemp("kernels")

    @cache
    def load(kernel: str, **parameters: int) -> Kernel:
        project = render_project(kernel, parameters, load_board("u50"))
        built = emulation.build(project).path
        library = folder / f"{project.source_hash}.so"
        if not library.exists():  # a default may be given or left out
            content = xclbin.read_section(built, xclbin.SectionKind.BITSTREAM)
            library.write_bytes(content or b"")
        return Kernel(project, ctypes.CDLL(str(library)))

    return load


@pytest.fixture(scope="session")
def stub_of() -> Callable[[Project], str]:
    """Return the text of the entry that the emulated card calls."""

    def text(project: Project) -> str:
        names = {
            "version": "test",
            "kernel": project.kernel.name,
            "function": project.kernel.function,
            "arguments": project.kernel.arguments,
        }
        return render(data_dir("host") / "hls" / "stub.cpp.j2", names)

    return text


@pytest.fixture(scope="session")
def include_flags() -> list[str]:
    """Return the compiler's options for the headers that stand in for the vendor's."""
    host = data_dir("host")
    return ["-std=c++17", "-DSPMV_EMULATION", f"-I{host / 'hls'}", f"-I{host / 'common'}"]


@pytest.fixture(scope="session")
def compile_program(
    tmp_path_factory: pytest.TempPathFactory, include_flags: list[str]
) -> Callable[[str], Path]:
    """Compile a program of C++ text against the headers that stand in for the vendor's."""

    def compiled(text: str) -> Path:
        folder = tmp_path_factory.mktemp("program")
        source, path = folder / "program.cpp", folder / "program"
        source.write_text(text)
        command = [
            find_compiler(), *include_flags, "-Wall", "-Wextra", "-Werror",
            "-Wno-unknown-pragmas", "-O1", "-U_FORTIFY_SOURCE", "-o", path, source,
        ]  # fmt: skip
        subprocess.run(command, check=True)
        return path

    return compiled
