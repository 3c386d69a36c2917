"""The command line: the only place that prints.

Exit status: 0 done and verified, 1 the result is wrong, 2 refused, 130 after Ctrl-C. A
refusal is one message on stderr; stdout then stays empty.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from .errors import SpmvFpgaError, VerificationError
from .version import __version__

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from .matrices import Progress

EXIT_WRONG, EXIT_REFUSED, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 130, 143
PROGRAM = "spmv-fpga"

Command = TypeVar("Command", bound=Callable[..., Any])


class Interrupted(BaseException):
    """SIGTERM or SIGHUP: ends the program as Ctrl-C does, clean-up included."""


class Terminal:
    """Where results and progress go.

    Attributes
    ----------
    quiet, verbose : bool
    color : bool
    """

    def __init__(self) -> None:
        self.quiet = False
        self.verbose = False
        self.color = True

    def console(self, *, stderr: bool = False) -> Console:
        """Return a console; tables are never cut to fit a file."""
        from rich.console import Console

        stream = sys.stderr if stderr else sys.stdout
        width = None if stream.isatty() else 200
        no_color = True if not self.color else None
        return Console(
            stderr=stderr, no_color=no_color, width=width, highlight=False, soft_wrap=True
        )

    def show(self, renderables: Iterable[RenderableType]) -> None:
        """Print results."""
        if not self.quiet:
            console = self.console()
            for renderable in renderables:
                console.print(renderable)

    def say(self, text: str) -> None:
        """Print a note on stderr, unless it shall be quiet."""
        if not self.quiet:
            click.echo(text, err=True)

    @contextmanager
    def steps(self) -> Iterator[Callable[[str], None]]:
        """Show what is being done while it is done, on a terminal only."""
        if self.verbose:
            yield lambda text: click.echo(f"{text} …", err=True)
        elif self.quiet or not sys.stderr.isatty():
            yield lambda _: None
        else:
            with self.console(stderr=True).status("") as status:
                yield lambda text: status.update(f"{text} …")

    @contextmanager
    def download(self) -> Iterator[Progress | None]:
        """Draw a bar on a terminal while a file comes."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        columns = ("downloading", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=self.console(stderr=True), transient=True) as bar:
            task = bar.add_task("", start=False, visible=False)

            def update(done: int, total: int | None) -> None:
                bar.start_task(task)
                bar.update(task, completed=done, total=total, visible=True)

            yield update


pass_terminal = click.make_pass_decorator(Terminal, ensure=True)


def common_options(command: Command) -> Command:
    """Add the options of every command."""

    def set_flag(
        name: str, value: bool
    ) -> Callable[[click.Context, click.Parameter, bool], None]:
        def callback(context: click.Context, _: click.Parameter, given: bool) -> None:
            if given:
                setattr(context.ensure_object(Terminal), name, value)

        return callback

    for flag, name, value, text in (
        ("--no-color", "color", False, "No colours (as with NO_COLOR)."),
        ("--verbose", "verbose", True, "Say each step."),
        ("--quiet", "quiet", True, "Print errors only."),
    ):
        command = click.option(
            flag, is_flag=True, expose_value=False, callback=set_flag(name, value), help=text
        )(command)
    return command


def matrix_options(command: Command) -> Command:
    """Add the options that name a matrix."""
    command = click.option(
        "--symmetric",
        type=click.Choice(["expand", "stored"]),
        default="expand",
        show_default=True,
        help="Multiply the whole matrix, or only the triangle in the file, as the paper did.",
    )(command)
    return click.option(
        "--matrix",
        required=True,
        metavar="M",
        help="A path (.mtx, .mtx.gz, .mtx.bz2, .tar.gz, .mat, .npz), a SuiteSparse name, the "
        "paper's short name (TS2383), gallery:NAME:key=value,… or twin:NAME.",
    )(command)


def kernel_options(kernel_default: str | None) -> Callable[[Command], Command]:
    """Return a decorator that adds the options that name a kernel.

    With a default of `auto` the parameters have none of their own: they may come from an
    xclbin.
    """
    has_auto = kernel_default == "auto"

    def add(command: Command) -> Command:
        options = (
            click.option("--kernel", default=kernel_default, show_default=True, metavar="K",
                         required=kernel_default is None,
                         help=("auto, " if has_auto else "") + "block or scalar."),
            click.option("--block", type=int, default=None if has_auto else 16, metavar="P",
                         help="Edge of a tile: 4, 8, 16 (the default) or 32."),
            click.option("--slice", "slice_size", type=int, default=None if has_auto else 16,
                         metavar="L", help="Rows of a slice: 4, 8, 16 (the default) or 32."),
            click.option("--cu", "compute_units", type=int, default=1, show_default=True,
                         metavar="N", help="Compute units."),
            click.option("--board", default="u50", show_default=True, metavar="B",
                         help="Board file's name."),
            click.option("--clock-hz", type=click.FloatRange(min=0, min_open=True), metavar="F",
                         help="Kernel clock; the board's own figure by default."),
        )  # fmt: skip
        for option in reversed(options):
            command = option(command)
        return command

    return add


def json_options(command: Command) -> Command:
    """Add `--json` and `--json-out`."""
    command = click.option(
        "--json-out", metavar="FILE", help="Write the result as JSON into a file as well."
    )(command)
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the result as one JSON document."
    )(command)


def deliver(
    terminal: Terminal,
    document: dict[str, Any],
    renderables: Iterable[RenderableType],
    *,
    as_json: bool,
    json_out: str | None = None,
) -> None:
    """Give a result to the user as asked for."""
    from .report.documents import to_text, write_whole

    text = to_text(document)
    if json_out:
        write_whole(json_out, text)
    if as_json:
        sys.stdout.write(text)
    else:
        terminal.show(renderables)


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96})
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Sparse matrix-vector products on an AMD Alveo U50: verified, timed, and testable
    without the card.
    """  # noqa: D205


@cli.command("run")
@matrix_options
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
@click.option("--y-out", metavar="FILE.npy", help="Write y.")
@click.option("--repeat", type=click.IntRange(min=1), metavar="N", help="Launches.")
@click.option(
    "--warmup",
    "warmup_s",
    type=click.FloatRange(min=0),
    metavar="S",
    help="Seconds of warm-up (120 on a card).",
)
@click.option(
    "--measure",
    "measure_s",
    type=click.FloatRange(min=0),
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
@json_options
@common_options
@pass_terminal
def run_command(
    terminal: Terminal,
    /,
    as_json: bool,
    json_out: str | None,
    y_out: str | None,
    x_spec: str,
    **options: Any,
) -> None:
    """Multiply a matrix on the card, or the emulated one; verify, time, compare."""
    from .measure import RunOptions, run
    from .report.documents import run_document
    from .report.tables import run_tables
    from .vectors import save_y

    with terminal.download() as progress, terminal.steps() as step:
        result = run(RunOptions(x=x_spec, **options), progress=progress, step=step)
    if y_out:
        save_y(y_out, result.y)
    document = run_document(result)
    deliver(terminal, document, run_tables(result), as_json=as_json, json_out=json_out)
    if result.error:
        raise result.error


@cli.command()
@matrix_options
@kernel_options("block")
@click.option("-o", "--output", metavar="FILE.npz", help="Write the converted matrix.")
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
    **_: Any,
) -> None:
    """Convert a matrix to a kernel's format and save it, or count what formats would store."""
    from .formats import FORMATS, format_stats, save_format
    from .kernels import load_kernel
    from .matrices import open_matrix
    from .report.documents import stats_document
    from .report.tables import stats_table

    if not stats and not output:
        raise click.UsageError("give -o FILE.npz to save the matrix, or --stats to count.")
    load_kernel(kernel)
    with terminal.download() as progress:
        loaded = open_matrix(matrix, symmetric, progress)
    if stats:
        counts = format_stats(loaded.csr)
        document = stats_document(loaded, counts)
        deliver(terminal, document, [stats_table(counts)], as_json=as_json, json_out=json_out)
    if output:
        parameter = {"block": block} if kernel == "block" else {"slice": slice_size}
        fmt = FORMATS[load_kernel(kernel).format].convert(loaded.csr, parameter)
        save_format(output, fmt)
        terminal.say(f"wrote {output}: {fmt!r}")


@cli.command()
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


@cli.command("xclbin")
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
    from .toolchain import builds

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
    """Render a kernel; the other kernel's parameter is checked, and not used."""
    from .boards import load_board
    from .codegen import render_project
    from .formats.blocked_ell import check_block
    from .formats.sliced_ell import check_slice_size

    check_block(block)
    check_slice_size(slice_size)
    parameters = {"block": block} if kernel == "block" else {"slice": slice_size}
    return render_project(
        kernel, parameters, load_board(board), compute_units=compute_units, clock_hz=clock_hz
    )


@cli.command()
@click.argument("file", metavar="FILE.xclbin")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@common_options
@pass_terminal
def info(terminal: Terminal, file: str, as_json: bool) -> None:
    """Show what is in an xclbin: kernels, arguments, banks, clock, target, platform."""
    from .report.tables import xclbin_tables
    from .toolchain.xclbin import read, to_json

    content = read(file)
    deliver(terminal, to_json(content), xclbin_tables(content), as_json=as_json)


@cli.group("matrices")
def matrices_group() -> None:
    """Look at the collection, the cache and the paper's names."""


@matrices_group.command("list")
@click.argument("pattern", required=False)
@common_options
@pass_terminal
def matrices_list(terminal: Terminal, pattern: str | None) -> None:
    """List the paper's matrices, or those of the collection whose name holds PATTERN."""
    from .matrices import list_suite, search
    from .matrices.collection import find_archive
    from .report.tables import index_table, suite_table

    if pattern:
        terminal.show([index_table(search(pattern))])
        return
    names = [f"{entry.group}/{entry.name}" for entry in list_suite()]
    terminal.show([suite_table(list_suite(), {name for name in names if find_archive(name)})])


@matrices_group.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@common_options
@pass_terminal
def matrices_fetch(terminal: Terminal, names: Sequence[str]) -> None:
    """Download matrices of the collection into the cache."""
    from .matrices import fetch

    for name in names:
        with terminal.download() as progress:
            path = fetch(name, progress)
        terminal.say(f"{name}: {path}")


@matrices_group.command("info")
@click.argument("spec", metavar="M")
@common_options
@pass_terminal
def matrices_info(terminal: Terminal, spec: str) -> None:
    """Tell what is known of a matrix, without downloading it."""
    from .matrices import describe
    from .report.tables import matrix_table

    terminal.show([matrix_table(describe(spec))])


@cli.command()
@common_options
@pass_terminal
def doctor(terminal: Terminal) -> None:
    """Check what is installed; exit 0 only if the main job can run here."""
    from .report.tables import findings_table
    from .runtime.environment import check_installation

    findings = check_installation()
    terminal.show([findings_table(findings)])
    if missing := [f.name for f in findings if f.is_needed and not f.ok]:
        raise SpmvFpgaError(f"the main job cannot run here; missing: {', '.join(missing)}.")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and end the process."""
    sys.exit(status_of(arguments))


def status_of(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _on_signal)
    try:
        cli.main(arguments, prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _refuse(error.format_message())
    except VerificationError as error:
        click.echo(f"{PROGRAM}: wrong result: {error}", err=True)
        return EXIT_WRONG
    except SpmvFpgaError as error:
        return _refuse(str(error))
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"{PROGRAM}: interrupted", err=True)
        return EXIT_INTERRUPTED
    except Interrupted:
        click.echo(f"{PROGRAM}: ended by a signal", err=True)
        return EXIT_TERMINATED
    except BrokenPipeError:  # the reader of stdout has seen enough
        sys.stderr.close()
        return 0
    return 0


def _refuse(message: str) -> int:
    click.echo(f"{PROGRAM}: {message}", err=True)
    return EXIT_REFUSED


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    raise Interrupted
