"""`render`, `xclbin` and `info`: from templates to a file for the card."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import SpmvFpgaError, ToolError
from .base import (
    Terminal,
    common_options,
    deliver,
    kernel_options,
    kernel_parameter,
    note_unused,
    number_of_units,
    output_folder,
    pass_terminal,
)


@click.command()
@kernel_options(None)
@click.option(
    "-o",
    "--output",
    type=output_folder,
    metavar="DIR",
    help="Folder; build/render/<kernel>_p<block>_l<slice>_cu<n>, or lanes_d<depth>_cu<n>, by "
    "default.",
)
@common_options
@pass_terminal
def render(
    terminal: Terminal,
    /,
    kernel: str,
    block: int,
    slice_size: int,
    compute_units: int | str,
    board: str,
    clock_hz: float | None,
    output: str | None,
    **lanes: int | None,
) -> None:
    """Write the HLS project: kernel, constants, link.cfg and a Makefile."""
    from ..toolchain.paths import folder_name

    parameters = kernel_parameter(kernel, block, slice_size, **lanes)
    project = _project(kernel, parameters, compute_units, board, clock_hz)
    note_unused(terminal, kernel, block, slice_size, **lanes)
    named = {"block": block, "slice": slice_size, **project.parameters}
    name = folder_name(kernel, named, len(project.units))
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
@click.option(
    "--build-dir", type=output_folder, default="build", show_default=True, metavar="DIR"
)
@click.option("--jobs", type=click.IntRange(min=1), metavar="N", help="Processes of v++.")
@common_options
@pass_terminal
def xclbin_command(
    terminal: Terminal,
    /,
    kernel: str,
    block: int,
    slice_size: int,
    compute_units: int | str,
    board: str,
    clock_hz: float | None,
    target: str,
    platform: str,
    build_dir: str,
    jobs: int | None,
    **lanes: int | None,
) -> None:
    """Build the xclbin: with Vitis for hw and hw_emu, with a plain compiler for sw_emu."""
    from ..toolchain import builds

    parameters = kernel_parameter(kernel, block, slice_size, **lanes)
    project = _project(kernel, parameters, compute_units, board, clock_hz)
    note_unused(terminal, kernel, block, slice_size, **lanes)
    estimate = _check_room(terminal, project, is_emulated=target == "sw_emu")
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
    if target == "hw" and built.was_built:
        _compare(terminal, estimate, built.path.parent)


def _project(
    kernel: str,
    parameters: dict[str, int],
    compute_units: int | str,
    board: str,
    clock_hz: float | None,
) -> Any:
    """Render a kernel."""
    from ..boards import load_board
    from ..codegen import render_project

    card = load_board(board)
    return render_project(
        kernel,
        parameters,
        card,
        compute_units=number_of_units(compute_units, kernel, parameters, card),
        clock_hz=clock_hz,
    )


def _check_room(terminal: Terminal, project: Any, *, is_emulated: bool) -> Any:
    """Refuse hours of build for what does not fit the board; emulation has room for all."""
    from ..design_fit import fit

    report = fit(project.kernel.name, project.parameters, project.board, len(project.units))
    if is_emulated and report.refusal:
        terminal.say(f"warning: for the card itself, {report.refusal}")
    elif not is_emulated:
        report.check()
    return report


def _compare(terminal: Terminal, estimate: Any, folder: Path) -> None:
    """Show the estimate beside what v++ reports of the build."""
    from ..report.fit import comparison_tables
    from ..toolchain.reports import compare, read_reports

    try:
        found = read_reports(folder)
    except ToolError as error:  # the xclbin is good without them
        terminal.say(f"note: the estimate is not compared: {error}")
        return
    terminal.show(comparison_tables(compare(estimate, found), found))


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
