"""The open toolchain: a rendered kernel becomes an xclbin for software emulation.

The kernel's own sources are compiled by a plain C++ compiler with the headers of
`host/hls`; the shared library stands in the xclbin where hardware has its bitstream, with
the same metadata as a file for the card. Vitis is not needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..build_cache import content_key, made_once, stamp
from ..codegen import Project, render
from ..resources import data_dir
from ..version import __version__
from . import xclbin
from .compiler import find_compiler, run_tool

FORMAT_VERSION = 1
"""Version of the packed matrix streams; a file of another version is not run."""

_FLAGS = (
    "-std=c++17", "-O3", "-fPIC", "-shared", "-fvisibility=hidden",
    "-Wall", "-Wextra", "-Wno-unknown-pragmas",
    "-U_FORTIFY_SOURCE",  # its longjmp refuses to go to another stack
    "-mtls-dialect=gnu2",  # what belongs to a thread is found without a call
    "-DSPMV_EMULATION",
)  # fmt: skip


@dataclass(frozen=True)
class EmulationBuild:
    """A built xclbin.

    Attributes
    ----------
    path : Path
    was_built : bool
        False where the same input had been built before.
    """

    path: Path
    was_built: bool


def build(project: Project, *, is_timed: bool = True) -> EmulationBuild:
    """Compile a project for software emulation; the same input is never built twice.

    Parameters
    ----------
    project : Project
        From `spmv_fpga.codegen.render_project`.
    is_timed : bool
        Whether the kernel counts its cycles; without, a little faster, for comparison.

    Returns
    -------
    EmulationBuild
        The xclbin in the cache.

    Raises
    ------
    ToolNotFoundError
        If there is no C++ compiler.
    ToolError
        If the kernel does not compile.
    """
    compiler = find_compiler()
    host = data_dir("host")
    headers = sorted([*(host / "hls").iterdir(), host / "common" / "launch.h"])
    flags = _FLAGS if is_timed else (*_FLAGS, "-DSPMV_UNTIMED")
    facts = (
        project.source_hash,
        " ".join(flags),
        stamp(compiler),
        f"{project.clock_hz} {project.board.emulated_platform} {FORMAT_VERSION}",
    )
    own_code = [Path(__file__), Path(str(xclbin.__file__))]
    is_new = False

    def make(folder: Path) -> None:
        nonlocal is_new
        is_new = True
        library = _compile(project, folder, compiler, flags)
        xclbin.write(folder / _file_name(project), _spec(project, library.read_bytes()))

    key = content_key([*headers, *own_code], facts)
    folder = made_once("build/sw_emu", key, make)
    return EmulationBuild(folder / _file_name(project), is_new)


def _file_name(project: Project) -> str:
    return f"{project.kernel.name}.xclbin"


def _compile(
    project: Project, folder: Path, compiler: Path, flags: Sequence[str] = _FLAGS
) -> Path:
    host = data_dir("host")
    sources = project.write(folder / "src")
    entry = sources / "stub.cpp"
    names = {
        "version": __version__,
        "kernel": project.kernel.name,
        "function": project.kernel.function,
        "arguments": project.kernel.arguments,
    }
    entry.write_text(render(host / "hls" / "stub.cpp.j2", names), "utf-8")
    library = folder / f"{project.kernel.name}.so"
    run_tool(
        [
            str(compiler), *flags, "-o", str(library),
            f"-I{sources}", f"-I{host / 'hls'}", f"-I{host / 'common'}",
            str(entry),
        ],
        f"kernel {project.kernel.name} does not compile",
    )  # fmt: skip
    return library


def _spec(project: Project, library: bytes) -> xclbin.XclbinSpec:
    kernel, board = project.kernel, project.board
    units = {
        unit.name: {port.name: (unit.banks[str(port.bundle)],) for port in kernel.ports}
        for unit in project.units
    }
    layout = xclbin.lay_out_kernel(
        kernel.function,
        {port.name: f"M_AXI_{str(port.bundle).upper()}" for port in kernel.ports},
        [scalar.name for scalar in kernel.scalars],
        units,
    )
    return xclbin.XclbinSpec(
        platform=board.emulated_platform,
        target="sw_emu",
        kernels=(layout,),
        memories=xclbin.hbm_banks(board.num_banks, board.bank_bytes),
        clock_hz=project.clock_hz,
        library=library,
        facts=facts_of(project),
        built_by=("spmv_fpga", __version__),
    )


def facts_of(project: Project) -> xclbin.Facts:
    """Return what an xclbin of the project says about itself, whoever builds it."""
    return xclbin.Facts(
        kernel=project.kernel.name,
        block=project.parameters.get("block"),
        slice=project.parameters.get("slice"),
        x_room=project.parameters.get("x_room"),
        format_version=FORMAT_VERSION,
        version=__version__,
        source_hash=project.source_hash,
        depth=project.parameters.get("depth"),
        panel=project.parameters.get("panel"),
        y_room=project.parameters.get("y_room"),
    )
