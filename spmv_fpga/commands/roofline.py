"""`predict`, `roofline` and `paper`: what a build would give, before it is built."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..json_files import read_json
from .base import (
    FiniteRange,
    Terminal,
    common_options,
    deliver,
    json_options,
    matrix_options,
    output_file,
    output_folder,
    pass_terminal,
    reorder_option,
    spread_words,
)

if TYPE_CHECKING:
    from ..roofline.emulated import EmulatedTime, Times

PICTURE_ENDINGS = (".svg", ".png", ".pdf")


def _units(
    _context: click.Context, _parameter: click.Parameter, text: str
) -> str | tuple[int, ...]:
    """Return the numbers of compute units of `N` or `N,N,…`, or the word `all` or `max`."""
    if text in ("all", "max"):
        return text
    numbers = [number.strip() for number in text.split(",")]
    if not all(number.isdecimal() and int(number) > 0 for number in numbers):
        raise click.BadParameter(
            f"{text!r} is no number of units; give N, several as 1,4,16, 'all' or 'max'."
        )
    return tuple(map(int, numbers))


def most_units(board: str) -> Callable[[str, Mapping[str, int]], int]:
    """Return how many units of a kernel fit a board, as the model asks for it."""
    from ..boards import load_board
    from ..design_fit import max_units

    card = load_board(board)
    return lambda kernel, parameters: max_units(kernel, parameters, card)


def model_options(command: Any) -> Any:
    """Add the options that choose a model."""
    options = (
        click.option("--calibration", default="u50", show_default=True, metavar="C",
                     help="u50 (this project's kernels), paper (the paper's), or a file."),
        click.option("--board", default="u50", show_default=True, metavar="B",
                     help="Board file's name."),
        click.option("--cu", "compute_units", callback=_units, default="1",
                     show_default=True, metavar="N",
                     help="Compute units: N, several as 1,4,16, max (the most that fit), or "
                     "all up to them."),
        click.option("--clock-hz", type=FiniteRange(1e6, 1e9), metavar="F",
                     help="Kernel clock; the calibration's own by default."),
    )  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


@click.command("predict")
@matrix_options
@reorder_option
@model_options
@click.option(
    "--sample",
    "sample_rows",
    type=click.IntRange(min=1),
    metavar="ROWS",
    help="Count tiles in so many rows only, and state the error.",
)
@json_options
@common_options
@pass_terminal
def predict_command(
    terminal: Terminal,
    /,
    matrix: str,
    symmetric: Any,
    as_json: bool,
    json_out: str | None,
    **options: Any,
) -> None:
    """Predict time, power and energy for every kernel, without running anything."""
    from ..matrices import open_matrix
    from ..report.roofline import prediction_tables
    from ..roofline.predict import predict

    with terminal.download() as progress:
        opened = open_matrix(matrix, symmetric, progress)
    most = most_units(options["board"])
    found = predict(opened, max_units=most, **options)
    tables = prediction_tables(found)
    deliver(terminal, found.to_json(), tables, as_json=as_json, json_out=json_out)


class RooflineGroup(click.Group):
    """A command with sub-commands whose options for many things take many words."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Give each word its option back."""
        if not arguments or arguments[0] not in self.commands:
            arguments = spread_words(arguments, ("--matrix", "--results", "--block"))
        return super().parse_args(context, arguments)


@click.group("roofline", cls=RooflineGroup, invoke_without_command=True)
@click.option("--matrix", "matrices", multiple=True, metavar="M…", help="Matrices to draw.")
@click.option(
    "--symmetric",
    type=click.Choice(["expand", "stored"]),
    default="expand",
    show_default=True,
    help="The whole matrix, or the stored triangle.",
)
@click.option(
    "--results",
    multiple=True,
    metavar="RESULT.json…",
    help="Results of `run --json-out`, drawn beside the model.",
)
@click.option(
    "--block",
    "blocks",
    type=int,
    multiple=True,
    metavar="P…",
    help="Edges of tiles to draw; 16 by default.",
)
@click.option(
    "--slice",
    "slice_size",
    type=int,
    default=16,
    show_default=True,
    metavar="L",
    help="Rows of a slice.",
)
@model_options
@click.option(
    "-o",
    "--output",
    type=output_file,
    metavar="FILE",
    help="Picture to write: .svg, .png or .pdf.",
)
@common_options
@pass_terminal
@click.pass_context
def roofline_group(
    context: click.Context,
    terminal: Terminal,
    /,
    matrices: Sequence[str],
    symmetric: Any,
    results: Sequence[str],
    blocks: Sequence[int],
    slice_size: int,
    calibration: str,
    board: str,
    compute_units: str | tuple[int, ...],
    clock_hz: float | None,
    output: str | None,
) -> None:
    """Draw matrices under the roofs of a calibration."""
    if context.invoked_subcommand:
        return
    if not matrices and not results:
        raise click.UsageError("name matrices with --matrix M…, or results with --results.")
    if not output:
        raise click.UsageError(f"name a picture with -o FILE ({', '.join(PICTURE_ENDINGS)}).")
    if not output.endswith(PICTURE_ENDINGS):
        raise click.UsageError(
            f"{output!r} has no ending of a picture that is known; they are "
            f"{', '.join(PICTURE_ENDINGS)}."
        )
    from ..boards import load_board
    from ..roofline import canvas
    from ..roofline.calibration import load_calibration
    from ..roofline.figures import roofline_figure
    from ..roofline.points import model_points, run_point
    from ..roofline.predict import power_cap_w, predict, units_to_draw

    known, card = load_calibration(calibration, board), load_board(board)
    if clock_hz is not None:
        known = known.with_clock(clock_hz)
    edges = tuple(blocks) or (16,)
    most = most_units(board)
    numbers = units_to_draw(compute_units, max(edges), known, card, most)
    points = []
    for spec in matrices:
        found = predict(
            spec,
            calibration=known,
            board=board,
            blocks=edges,
            slices=(slice_size,),
            compute_units=numbers,
            max_units=most,
            symmetric=symmetric,
        )
        for candidate in found.candidates:
            points += model_points(found.matrix.name, candidate, block_max=len(matrices) < 4)
    for path in results:
        if point := run_point(read_json(path), known):
            points.append(point)
        else:
            terminal.say(f"{path}: has no time of a card, and is not drawn")
    picture = roofline_figure(
        points,
        known,
        blocks=edges,
        slice_size=slice_size,
        compute_units=numbers,
        power_cap_w=power_cap_w(card),
    )
    canvas.save(picture, output)
    terminal.say(f"wrote {output}")


@roofline_group.command("calibrate")
@click.argument("results", nargs=-1, required=True, metavar="RESULT.json…")
@click.option(
    "-o",
    "--output",
    type=output_file,
    required=True,
    metavar="FILE.toml",
    help="Calibration to write.",
)
@click.option(
    "--base",
    default="u50",
    show_default=True,
    metavar="C",
    help="Calibration that gives what the runs do not show.",
)
@click.option("--name", default="own", show_default=True, help="Name of the calibration.")
@common_options
@pass_terminal
def calibrate_command(
    terminal: Terminal, results: Sequence[str], output: str, base: str, name: str
) -> None:
    """Fit a calibration to your own measured runs."""
    from ..report.roofline import calibration_tables
    from ..roofline.own_runs import calibrate

    known = calibrate([read_json(path) for path in results], base=base, name=name)
    known.save(output)
    terminal.show(calibration_tables(known))
    terminal.say(f"wrote {output}")


@click.command("paper")
@click.option(
    "-o", "--output", type=output_folder, metavar="DIR", help="Write the page and its figures."
)
@click.option("--tables", metavar="FILE.csv", help="Other published figures, same columns.")
@click.option("--matrices", metavar="DIR", help="Folder with real matrices; else the cache.")
@click.option(
    "--peers",
    "with_peers",
    is_flag=True,
    help="Other accelerators' published figures beside this project's modelled ones.",
)
@click.option(
    "--emulate",
    is_flag=True,
    help="Run every matrix on the emulated card now (minutes); else the kept times.",
)
@json_options
@common_options
@pass_terminal
def paper_command(
    terminal: Terminal,
    /,
    output: str | None,
    tables: str | None,
    matrices: str | None,
    with_peers: bool,
    emulate: bool,
    as_json: bool,
    json_out: str | None,
) -> None:
    """Set the paper's tables and figures beside the model's and the emulated card's."""
    from ..report.roofline import paper_tables, peer_tables
    from ..roofline.page import write_paper
    from ..roofline.paper import reproduce
    from ..roofline.peers import compare_peers

    if matrices and not Path(matrices).is_dir():
        raise click.BadParameter(f"{matrices!r} is no folder.", param_hint="--matrices")
    with terminal.steps() as step:
        times = _emulated_times(tables, matrices, step) if emulate else None
        step("counting tiles and fitting the model")
        result = reproduce(tables, matrices=matrices, emulated=times)
        peers = None
        if with_peers:
            peers = compare_peers(matrices=matrices, max_units=most_units("u50"))
        if output:
            step("drawing")
            written = write_paper(result, output, matrices, peers)
    document, shown = result.to_json(), paper_tables(result)
    if peers is not None:
        document, shown = {**document, **peers.to_json()}, [*shown, *peer_tables(peers)]
    deliver(terminal, document, shown, as_json=as_json, json_out=json_out)
    if output:
        terminal.say(f"wrote {len(written)} files to {output}; open {written[0]}")


def _emulated_times(
    tables: str | None, matrices: str | None, step: Callable[[str], None]
) -> Times:
    """Run every row of the tables on the emulated card."""
    from ..emulate import emulate_rows
    from ..roofline.paper import load_tables

    times: dict[tuple[str, str], EmulatedTime] = {}
    step("starting the emulated card")
    for time in emulate_rows(load_tables(tables), matrices):
        times[time.name, time.kernel] = time
        step(f"emulating {time.name}, {time.kernel}")
    return times


@click.command("bandwidth")
@click.option(
    "--mode",
    type=click.Choice(["hw", "hw_emu", "sw_emu"]),
    default="sw_emu",
    show_default=True,
    help="hw measures; sw_emu gives back what the board file says of a channel.",
)
@click.option("--xclbin", metavar="FILE", help="Built with `xclbin --kernel bandwidth`.")
@click.option(
    "--board", default="u50", show_default=True, metavar="B", help="Board file's name."
)
@click.option(
    "--bytes",
    "num_bytes",
    type=click.IntRange(min=64),
    default=64 << 20,
    show_default=True,
    metavar="N",
    help="Size of the buffer.",
)
@click.option(
    "--warmup",
    "warmup_s",
    type=FiniteRange(min=0),
    default=1.0,
    show_default=True,
    metavar="S",
    help="Seconds of warm-up on a card.",
)
@click.option(
    "--measure",
    "measure_s",
    type=FiniteRange(min=0),
    default=10.0,
    show_default=True,
    metavar="S",
    help="Seconds of measurement on a card.",
)
@json_options
@common_options
@pass_terminal
def bandwidth_command(
    terminal: Terminal, /, as_json: bool, json_out: str | None, **options: Any
) -> None:
    """Measure what one memory channel of a card gives; a result of hw calibrates the model."""
    from ..bandwidth import measure_bandwidth
    from ..report.roofline import bandwidth_table

    found = measure_bandwidth(**options)
    table = bandwidth_table(found)
    deliver(terminal, found.to_json(), [table], as_json=as_json, json_out=json_out)
