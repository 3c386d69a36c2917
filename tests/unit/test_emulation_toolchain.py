"""From a project to an xclbin without Vitis: what is built, when, and what is kept."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from spmv_fpga import build_cache, codegen, kernels
from spmv_fpga.boards import load_board
from spmv_fpga.codegen import Project, render_project
from spmv_fpga.errors import ToolError, ToolNotFoundError
from spmv_fpga.resources import data_dir
from spmv_fpga.toolchain import builds, emulation, xclbin
from spmv_fpga.version import __version__

pytestmark = pytest.mark.compiler

# Stands for g++ on PATH: notes that it was called and makes the library that it is asked for.
COMPILER = """#!/bin/sh
echo "$@" >> {log}
while [ $# -gt 1 ]; do
  if [ "$1" = -o ]; then echo a library > "$2"; fi
  shift
done
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "cache"
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(path))
    return path


@pytest.fixture
def count_builds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Put a compiler that only counts in front of PATH."""
    log = tmp_path / "compiler.log"
    log.touch()
    program = tmp_path / "bin" / "g++"
    program.parent.mkdir()
    program.write_text(COMPILER.format(log=log))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    return lambda: len(log.read_text().splitlines())


@pytest.fixture
def own_templates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the templates that the test may change."""
    copy = tmp_path / "hls_templates"
    shutil.copytree(data_dir("hls_templates"), copy)
    for module in (codegen, kernels):
        monkeypatch.setattr(
            module, "data_dir", lambda name: copy if name == "hls_templates" else data_dir(name)
        )
    return copy


@pytest.fixture
def own_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the host's headers that the test may change."""
    copy = tmp_path / "host"
    shutil.copytree(data_dir("host"), copy)
    monkeypatch.setattr(emulation, "data_dir", lambda _: copy)
    return copy


def project(kernel: str = "block", *, units: int = 1, clock: float | None = None, **p: int):
    return render_project(kernel, p, load_board("u50"), compute_units=units, clock_hz=clock)


def folders(cache: Path) -> list[str]:
    parent = cache / "build" / "sw_emu"
    return sorted(p.name for p in parent.iterdir() if p.is_dir()) if parent.is_dir() else []


def test_the_same_parameters_never_build_twice(count_builds: Callable[[], int]) -> None:
    first = emulation.build(project(block=8))
    second = emulation.build(project(block=8))

    assert (first.was_built, second.was_built) == (True, False)
    assert first.path == second.path
    assert count_builds() == 1


def test_a_default_that_is_given_is_the_same_build(count_builds: Callable[[], int]) -> None:
    emulation.build(project())
    emulation.build(project(block=16))

    assert count_builds() == 1


OTHERS: dict[str, Callable[[], Project]] = {
    "block": lambda: project(block=8),
    "x_room": lambda: project(x_room=1024),
    "kernel": lambda: project("scalar"),
    "units": lambda: project(units=2),
    "clock": lambda: project(clock=250e6),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_differs_never_mixes(count_builds: Callable[[], int], what: str) -> None:
    one = emulation.build(project())
    other = emulation.build(OTHERS[what]())

    assert other.was_built
    assert one.path != other.path
    assert count_builds() == 2


def test_a_header_with_another_text_is_another_build(
    count_builds: Callable[[], int], own_host: Path
) -> None:
    one = emulation.build(project())
    with (own_host / "hls" / "fibers.hpp").open("a") as header:
        header.write("// another text\n")

    other = emulation.build(project())

    assert other.was_built
    assert one.path != other.path


def test_another_compiler_is_another_build(
    count_builds: Callable[[], int], tmp_path: Path
) -> None:
    emulation.build(project())
    with (tmp_path / "bin" / "g++").open("a") as program:
        program.write("# a newer version\n")

    assert emulation.build(project()).was_built


def test_a_template_with_another_text_is_another_build(
    count_builds: Callable[[], int], own_templates: Path
) -> None:
    emulation.build(project())
    with (own_templates / "block" / "block.hpp").open("a") as header:
        header.write("// another text\n")

    assert emulation.build(project()).was_built


def test_a_kernel_that_does_not_compile_is_told_and_leaves_nothing(
    cache: Path, own_templates: Path
) -> None:
    with (own_templates / "block" / "block.hpp").open("a") as header:
        header.write("this is no C++\n")

    with pytest.raises(ToolError) as failure:
        emulation.build(project())

    assert str(failure.value).startswith(
        "kernel block does not compile (g++ ended with status 1):\n"
    )
    assert "block.hpp" in failure.value.tail
    assert "this is no C++" in failure.value.tail
    assert folders(cache) == []


def test_without_a_compiler_the_refusal_names_it_and_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ToolNotFoundError) as refusal:
        emulation.build(project())

    assert str(refusal.value) == (
        "the C++ compiler g++ is missing; run "
        "`apt-get install -y libxrt1 libxrt-dev g++` as root."
    )


def test_where_the_cache_cannot_be_written_a_private_folder_serves(
    count_builds: Callable[[], int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a_file").touch()
    private = tmp_path / "private"
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "a_file" / "cache"))
    monkeypatch.setattr(build_cache, "private_folder", lambda: private)

    built = emulation.build(project())

    assert built.path.is_relative_to(private)
    assert xclbin.read(built.path).block == 16


def test_what_is_in_a_cache_is_used_where_nothing_can_be_written(
    count_builds: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    built = emulation.build(project())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("the file system is read-only")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(Path, "write_bytes", refuse)
    monkeypatch.setattr(build_cache, "FileLock", refuse)

    assert emulation.build(project()) == emulation.EmulationBuild(built.path, False)


def test_two_processes_at_once_build_once(count_builds: Callable[[], int]) -> None:
    code = (
        "from spmv_fpga.boards import load_board\n"
        "from spmv_fpga.codegen import render_project\n"
        "from spmv_fpga.toolchain.emulation import build\n"
        "print(build(render_project('block', {}, load_board('u50'))).was_built)\n"
    )
    path = os.pathsep.join(filter(None, [str(Path(emulation.__file__).parents[2]), *sys.path]))
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=60)[0] for process in processes]

    assert sorted(said) == ["False\n", "True\n"]
    assert count_builds() == 1


def test_an_xclbin_says_what_it_was_built_for(count_builds: Callable[[], int]) -> None:
    wanted = project(block=8, x_room=1024, units=2, clock=250e6)

    info = xclbin.read(emulation.build(wanted).path)

    assert info.target == "sw_emu"
    assert info.platform == "xilinx_u50_gen3x16_xdma_201920_3"
    assert info.clock_hz == 250e6
    assert info.facts == xclbin.Facts(
        kernel="block",
        block=8,
        slice=None,
        x_room=1024,
        format_version=1,
        version=__version__,
        source_hash=wanted.source_hash,
    )
    assert info.built_by == f"spmv_fpga {__version__}"


def test_a_kernel_for_slices_says_its_slice_and_no_block(
    count_builds: Callable[[], int],
) -> None:
    info = xclbin.read(emulation.build(project("scalar", slice=32)).path)

    assert (info.kernel_kind, info.slice_size, info.block) == ("scalar", 32, None)


def test_arguments_and_banks_are_those_of_the_project(count_builds: Callable[[], int]) -> None:
    info = xclbin.read(emulation.build(project(units=2)).path)

    [kernel] = info.kernels
    assert kernel.name == "spmv_block"
    assert [a.name for a in kernel.arguments] == [
        "matrix", "x", "y", "num_words", "num_descriptors", "num_tiles", "num_block_rows",
        "num_x_words", "iterations",
    ]  # fmt: skip
    assert [a.is_memory for a in kernel.arguments] == [True] * 3 + [False] * 6
    assert [unit.name for unit in kernel.instances] == ["spmv_block_1", "spmv_block_2"]
    banks = [
        [info.memories_of(unit.name, port)[0].tag for port in ("matrix", "x", "y")]
        for unit in kernel.instances
    ]
    assert banks == [["HBM[2]", "HBM[3]", "HBM[3]"], ["HBM[4]", "HBM[5]", "HBM[5]"]]
    assert len(info.memories) == 32


def test_a_library_exports_the_entry_of_the_vendors_emulation_alone() -> None:
    built = emulation.build(project(x_room=64)).path
    listing = subprocess.run(
        ["nm", "-D", "--defined-only", built.with_suffix(".so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    functions = [line.split()[2] for line in listing.splitlines() if line.split()[1] == "T"]

    assert functions == ["__stub____xlnx_cl_spmv_block"]


# --- Beside the build folder ------------------------------------------------------------

PLACE = "sw_emu/xilinx_u50_gen3x16_xdma_201920_3/block_p8_l16_cu1/block.xclbin"


def test_a_build_for_emulation_stands_below_the_build_folder(
    count_builds: Callable[[], int], tmp_path: Path
) -> None:
    said: list[str] = []

    build = builds.build(
        project(block=8), "sw_emu", build_dir=tmp_path / "build", step=said.append
    )

    assert build == builds.Build(tmp_path / "build" / PLACE, True)
    assert xclbin.read(build.path).block == 8
    assert sorted(p.name for p in build.path.parent.iterdir()) == ["block.xclbin"]
    assert said == ["building kernel block for emulation"]


def test_the_second_build_is_found_and_has_the_same_content(
    count_builds: Callable[[], int], tmp_path: Path
) -> None:
    first = builds.build(project(block=8), "sw_emu", build_dir=tmp_path / "build")
    content, time_ns = first.path.read_bytes(), first.path.stat().st_mtime_ns

    second = builds.build(project(block=8), "sw_emu", build_dir=tmp_path / "build")

    assert second == builds.Build(first.path, False)
    assert (second.path.read_bytes(), second.path.stat().st_mtime_ns) == (content, time_ns)
    assert count_builds() == 1


def test_an_xclbin_with_another_content_is_replaced(
    count_builds: Callable[[], int], tmp_path: Path
) -> None:
    first = builds.build(project(block=8), "sw_emu", build_dir=tmp_path / "build")
    content = first.path.read_bytes()
    first.path.write_bytes(b"cut")

    second = builds.build(project(block=8), "sw_emu", build_dir=tmp_path / "build")

    assert second.was_built
    assert second.path.read_bytes() == content


def test_a_build_folder_that_cannot_be_written_is_named(
    count_builds: Callable[[], int], tmp_path: Path
) -> None:
    (tmp_path / "build").touch()

    with pytest.raises(ToolError) as refusal:
        builds.build(project(block=8), "sw_emu", build_dir=tmp_path / "build")

    assert str(refusal.value) == f"{tmp_path / 'build' / PLACE}: cannot be written: " + (
        "Not a directory."
    )
