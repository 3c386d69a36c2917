"""`render`, `xclbin` and `info`: from templates to a file for the card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import SpmvFpgaError
from .base import (
    Terminal,
    common_options,
    deliver,
    kernel_options,
    kernel_parameter,
    pass_terminal,
)


@click.command()
@kernel_options(None)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    help="Folder; build/render/<kernel>_p<block>_l<slice>_cu<n> by default.",
)
@common_options
@pass_terminal
def render(
    terminal: Terminal,
    kernel: str,
    block: int,
    slice_size: int,
    compute_units: int,
    board: str,
    clock_hz: float | None,
    output: str | None,
) -> None:
    """Write the HLS project: kernel, constants, link.cfg and a Makefile."""
    project = _project(kernel, block, slice_size, compute_units, board, clock_hz)
    name = f"{kernel}_p{block}_l{slice_size}_cu{compute_units}"
    folder = Path(output) if output else Path("build/render") / name
    try:
        project.write(folder)
    except OSError as error:
        raise SpmvFpgaError(f"{folder}: cannot be written: {error.strerror}.") from None
    terminal.say(f"wrote {len(project.files)} files to {folder}")


@click.command("xclbin")
@kernel_options(None)
@click.option(
    "--target",
    type=click.Choice(["hw", "hw_emu", "sw_emu"]),
    default="hw",
    show_default=True,
    help="sw_emu needs no Vitis.",
)
@click.option(
    "--platform",
    default="",
    metavar="NAME",
    help="Vitis platform; chosen by the version of Vitis by default.",
)
@click.option("--build-dir", default="build", show_default=True, metavar="DIR")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes of v++.")
@common_options
@pass_terminal
def xclbin_command(
    terminal: Terminal,
    kernel: str,
    block: int,
    slice_size: int,
    compute_units: int,
    board: str,
    clock_hz: float | None,
    target: str,
    platform: str,
    build_dir: str,
    jobs: int | None,
) -> None:
    """Build the xclbin: with Vitis for hw and hw_emu, with a plain compiler for sw_emu."""
    from ..toolchain import builds

    project = _project(kernel, block, slice_size, compute_units, board, clock_hz)
    with terminal.steps() as step:
        built = builds.build(
            project,
            target,
            platform=platform or None,
            build_dir=build_dir,
            jobs=jobs,
            step=step,
        )
    terminal.say(f"{built.path} {'built' if built.was_built else 'is up to date'}")


def _project(
    kernel: str,
    block: int,
    slice_size: int,
    compute_units: int,
    board: str,
    clock_hz: float | None,
) -> Any:
    """Render a kernel."""
    from ..boards import load_board
    from ..codegen import render_project

    return render_project(
        kernel,
        kernel_parameter(kernel, block, slice_size),
        load_board(board),
        compute_units=compute_units,
        clock_hz=clock_hz,
    )


@click.command()
@click.argument("file", metavar="FILE.xclbin")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@common_options
@pass_terminal
def info(terminal: Terminal, file: str, as_json: bool) -> None:
    """Show what is in an xclbin: kernels, arguments, banks, clock, target, platform."""
    from ..report.tables import xclbin_tables
    from ..toolchain.xclbin import read, to_json

    content = read(file)
    deliver(terminal, to_json(content), xclbin_tables(content), as_json=as_json)
