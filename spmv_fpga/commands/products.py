"""`run`, `verify`, `convert`, `formats`: products, and what they are made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from ..errors import SpmvFpgaError, VerificationError
from .base import (
    FiniteRange,
    Terminal,
    common_options,
    deliver,
    json_options,
    kernel_options,
    kernel_parameter,
    matrix_options,
    note_unused,
    output_file,
    pass_terminal,
    reorder_option,
)


@click.command("run")
@matrix_options
@reorder_option
@kernel_options("auto")
@click.option(
    "--mode",
    type=click.Choice(["auto", "hw", "hw_emu", "sw_emu", "reference"]),
    default="auto",
    show_default=True,
    help="A card, an emulation, or NumPy alone (reference).",
)
@click.option("--xclbin", metavar="FILE", help="Program the card with this file.")
@click.option(
    "--x",
    "x_spec",
    default="random:1",
    show_default=True,
    metavar="X",
    help="index, ones, random[:SEED] or FILE.npy.",
)
@click.option("--y-out", type=output_file, metavar="FILE.npy", help="Write y.")
@click.option("--repeat", type=click.IntRange(min=1), metavar="N", help="Launches.")
@click.option(
    "--warmup",
    "warmup_s",
    type=FiniteRange(min=0),
    metavar="S",
    help="Seconds of warm-up (120 on a card).",
)
@click.option(
    "--measure",
    "measure_s",
    type=FiniteRange(min=0),
    metavar="S",
    help="Seconds of measurement (180 on a card).",
)
@click.option(
    "--baseline",
    type=click.Choice(["auto", "mkl", "scipy", "none"]),
    default="auto",
    show_default=True,
    help="CPU library to compare with.",
)
@click.option(
    "--power",
    default="auto",
    show_default=True,
    metavar="S",
    help="auto, none, xrt, rapl, nvml or replay:FILE.",
)
@click.option(
    "--calibration",
    default="u50",
    show_default=True,
    metavar="C",
    help="Of the model: u50, paper, or a file.",
)
@click.option(
    "--require-energy", is_flag=True, help="Refuse to run where energy cannot be measured."
)
@click.option(
    "--explain", is_flag=True, help="Emulated cycles: what binds, and what each process does."
)
@json_options
@common_options
@pass_terminal
def run_command(
    terminal: Terminal,
    /,
    explain: bool,
    as_json: bool,
    json_out: str | None,
    y_out: str | None,
    x_spec: str,
    **options: Any,
) -> None:
    """Multiply a matrix on the card, or the emulated one; verify, time, compare."""
    from ..measure import RunOptions, run
    from ..report.documents import run_document
    from ..report.tables import run_tables
    from ..vectors import save_y

    with terminal.download() as progress, terminal.steps() as step:
        result = run(RunOptions(x=x_spec, **options), progress=progress, step=step)
    parameters = ("block", "slice_size", "depth", "panel", "y_room")
    note_unused(terminal, result.format.kernel, **{name: options[name] for name in parameters})
    if y_out:
        save_y(y_out, result.y)
    document = run_document(result)
    tables = run_tables(result, explain=explain)
    deliver(terminal, document, tables, as_json=as_json, json_out=json_out)
    if result.error:
        raise result.error


@click.command("verify")
@click.argument("places", nargs=-1, required=True, metavar="FOLDER_OR_FILE…")
@click.option(
    "--kernel",
    default="all",
    show_default=True,
    metavar="K",
    help="all, block, lanes or scalar; each with every block, slice or depth.",
)
@click.option(
    "--mode",
    type=click.Choice(["sw_emu", "reference"]),
    default="sw_emu",
    show_default=True,
    help="The emulated card, or NumPy alone (reference).",
)
@click.option(
    "--x",
    "x_spec",
    default="random:1",
    show_default=True,
    metavar="X",
    help="index, ones or random[:SEED].",
)
@json_options
@common_options
@pass_terminal
def verify_command(
    terminal: Terminal,
    /,
    places: Sequence[str],
    kernel: str,
    mode: str,
    x_spec: str,
    as_json: bool,
    json_out: str | None,
) -> None:
    """Multiply every matrix of a folder with every kernel, and verify each product.

    A file that is no usable matrix is named once, and is no failure. Exit status: 0 where
    all products are right, 1 where one is wrong, 2 where there was nothing to multiply.
    """
    from ..report.documents import sweep_document
    from ..report.tables import SWEEP_HEADING, sweep_line
    from ..sweep import SweepLine, kernel_variants, matrix_files, sweep

    counts = {"verified": 0, "wrong": 0, "refused": 0}
    lines: list[SweepLine] = []
    for line in sweep(matrix_files(places), kernel_variants(kernel), mode=mode, x=x_spec):
        if not as_json:
            terminal.show([sweep_line(line)] if lines else [SWEEP_HEADING, sweep_line(line)])
        counts[line.outcome] += 1
        lines.append(line)
    summary = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    document = sweep_document(lines, counts)
    deliver(terminal, document, [summary], as_json=as_json, json_out=json_out)
    if counts["wrong"]:
        raise VerificationError(f"{counts['wrong']} products are wrong.")
    if not counts["verified"]:
        raise SpmvFpgaError("no matrix could be multiplied; the lines above say why.")


@click.command()
@matrix_options
@kernel_options("block")
@click.option(
    "-o", "--output", type=output_file, metavar="FILE.npz", help="Write the converted matrix."
)
@click.option("--stats", is_flag=True, help="Count what every format would store.")
@json_options
@common_options
@pass_terminal
def convert(
    terminal: Terminal,
    /,
    matrix: str,
    symmetric: Any,
    kernel: str,
    block: int,
    slice_size: int,
    output: str | None,
    stats: bool,
    as_json: bool,
    json_out: str | None,
    depth: int | None,
    panel: int | None,
    y_room: int | None,
    **_: Any,
) -> None:
    """Convert a matrix to a kernel's format and save it, or count what formats would store."""
    from ..formats import DEFAULT_DEPTH, FORMATS, format_stats, save_format
    from ..kernels import load_product_kernel
    from ..matrices import open_matrix
    from ..report.documents import stats_document
    from ..report.tables import stats_tables

    if not stats and not output:
        raise click.UsageError("give -o FILE.npz to save the matrix, or --stats to count.")
    if (as_json or json_out) and not stats:
        raise click.UsageError("--json and --json-out print what --stats counts; give --stats.")
    lanes = {"depth": depth, "panel": panel, "y_room": y_room}
    parameter = kernel_parameter(kernel, block, slice_size, **lanes)
    spec = load_product_kernel(kernel)
    note_unused(terminal, kernel, block, slice_size, **lanes)
    with terminal.download() as progress:
        loaded = open_matrix(matrix, symmetric, progress)
    if output:
        fmt = FORMATS[spec.format].convert(loaded.csr, parameter)
        save_format(output, fmt)
        terminal.say(f"wrote {output}: {fmt!r}")
        if not output.endswith(".npz"):
            terminal.say(
                "note: it is a NumPy .npz file; --matrix needs that ending to read it."
            )
    if stats:
        counts = format_stats(loaded.csr, depths=[DEFAULT_DEPTH])
        document = stats_document(loaded, counts)
        tables = stats_tables(loaded, counts)
        deliver(terminal, document, tables, as_json=as_json, json_out=json_out)


@click.command("formats")
@click.argument("places", nargs=-1, required=True, metavar="FOLDER_OR_FILE…")
@click.option(
    "--min-entries",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Leave out matrices with fewer entries; a symmetric one has both triangles.",
)
@json_options
@common_options
@pass_terminal
def formats_command(
    terminal: Terminal,
    /,
    places: Sequence[str],
    min_entries: int,
    as_json: bool,
    json_out: str | None,
) -> None:
    """Count the bytes a non-zero of every format, for all matrices of a folder.

    Bytes are all that the card reads of a matrix: values, indices and padding. The last line
    is the geometric mean. A file that is no usable matrix is named and skipped.
    """
    from ..format_sizes import FormatSizes, count_formats, sizes_document
    from ..report.tables import sizes_tables
    from ..sweep import matrix_files

    found: list[FormatSizes] = []
    with terminal.steps() as step:
        for file in matrix_files(places):
            step(f"counting {file.name}")
            found += count_formats([file], min_entries)
    counted = [sizes for sizes in found if sizes.stats]
    skipped = [sizes for sizes in found if not sizes.stats]
    if not counted:
        reason = f"; {skipped[0].reason}" if skipped else "."
        raise SpmvFpgaError(f"no usable matrix has {min_entries} entries or more{reason}")
    document = sizes_document(counted, skipped)
    tables = sizes_tables(counted, skipped)
    deliver(terminal, document, tables, as_json=as_json, json_out=json_out)
