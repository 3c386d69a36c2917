"""What commands share: options, the terminal, and delivery of results."""

from __future__ import annotations

import io
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

import click

from ..errors import SpmvFpgaError, shortened

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from ..matrices import Progress

MOST_UNITS = "max"

_WIDE = 2000
"""Columns of a file or a pipe: no cell is folded there."""
DEFAULT_PARAMETER = 16
"""Of block and slice."""
_TRAILING_BLANKS = re.compile(r" +$", re.MULTILINE)

Command = TypeVar("Command", bound=Callable[..., Any])


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

    def console(self, stream: TextIO, file: TextIO) -> Console:
        """Return a console that writes to `file` what suits `stream`.

        Tables are never cut where the stream is no terminal.
        """
        from rich.console import Console

        is_terminal = stream.isatty()
        return Console(
            file=file,
            force_terminal=is_terminal or None,
            width=None if is_terminal else _WIDE,
            no_color=None if self.color else True,
            highlight=False,
            soft_wrap=True,
        )

    def show(self, renderables: Iterable[RenderableType]) -> None:
        """Print results."""
        if self.quiet:
            return
        # In one piece: rich would end the process itself where nobody reads on.
        text = io.StringIO()
        console = self.console(sys.stdout, text)
        for renderable in renderables:
            console.print(renderable)
        write_stdout(_TRAILING_BLANKS.sub("", text.getvalue()))

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
            from rich.text import Text

            # As Text: a step may name a file, and that may hold [brackets].
            with self.console(sys.stderr, sys.stderr).status("") as status:
                yield lambda text: status.update(Text(f"{text} …"))

    @contextmanager
    def download(self) -> Iterator[Progress | None]:
        """Draw a bar on a terminal while a file comes."""
        if self.quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.progress import BarColumn, DownloadColumn, Progress, TransferSpeedColumn

        columns = ("downloading", BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(
            *columns, console=self.console(sys.stderr, sys.stderr), transient=True
        ) as bar:
            task = bar.add_task("", start=False, visible=False)

            def update(done: int, total: int | None) -> None:
                bar.start_task(task)
                bar.update(task, completed=done, total=total, visible=True)

            yield update


pass_terminal = click.make_pass_decorator(Terminal, ensure=True)


def output_file(name: str) -> str:
    """Refuse a file that cannot be written before the work is done, not after."""
    _check_name(name)
    path = Path(os.path.realpath(name))  # a link is followed: its target is written
    if path.is_dir():
        raise click.BadParameter(f"{name!r} is a folder; name a file.")
    if Path(name).exists() and not path.is_file():  # a pipe or a device is written to
        if not os.access(name, os.W_OK):
            raise click.BadParameter(f"{name!r} cannot be written; name another.")
        return name
    if not path.parent.is_dir():
        raise click.BadParameter(f"the folder of {name!r} does not exist; make it.")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise click.BadParameter(f"the folder of {name!r} cannot be written; name another.")
    return name


def output_folder(name: str) -> str:
    """Refuse an empty name, which would mean the current folder, and one that cannot be."""
    _check_name(name)
    return name


def _check_name(name: str) -> None:
    if not name:
        raise click.BadParameter("the name is empty; give one.")
    try:
        Path(name).exists()
    except OSError as error:
        reason = f"{shortened(name)!r} cannot be a file's name: {error.strerror}."
        raise click.BadParameter(reason) from None


class FiniteRange(click.FloatRange):
    """A range of numbers; NaN, which is in no range, and infinity are refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> float:
        """Return the number."""
        number = float(super().convert(value, param, context))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, context)
        return number


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


def reorder_option(command: Command) -> Command:
    """Add the option that puts rows and columns into another order."""
    return click.option(
        "--reorder",
        type=click.Choice(["none", "rcm"]),
        default="none",
        show_default=True,
        help="Order of rows and columns in the kernel; rcm (reverse Cuthill-McKee) of a square "
        "matrix brings entries close to the diagonal. x and y keep their order.",
    )(command)


class UnitCount(click.IntRange):
    """A number of compute units, or `max`: as many as fit the board."""

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        """Return the number, or `max`."""
        return MOST_UNITS if value == MOST_UNITS else super().convert(value, param, context)


def number_of_units(
    asked: int | str, kernel: str, parameters: Mapping[str, int], board: Any
) -> int:
    """Return the number that `--cu` asks for, where `max` is as many as fit the board."""
    from ..design_fit import max_units

    if asked == MOST_UNITS:
        return max_units(kernel, parameters, board)
    return int(asked)


def kernel_options(
    kernel_default: str | None, *, has_clock: bool = True
) -> Callable[[Command], Command]:
    """Return a decorator that adds the options that name a kernel.

    With a default of `auto` block and slice have none of their own: they may come from an
    xclbin. The parameters of kernel lanes are `depth`, `panel` and `y_room`, None where none
    is given.
    """
    has_auto = kernel_default == "auto"

    # A default of None would count as given.
    kernel: dict[str, Any] = (
        {"default": kernel_default} if kernel_default else {"required": True}
    )
    names = {"auto": "auto, block, lanes or scalar.", "block": "block, lanes or scalar."}
    every = "block, lanes, scalar, or bandwidth, which measures a memory channel."

    def add(command: Command) -> Command:
        options = (
            click.option("--kernel", metavar="K", show_default=True, **kernel,
                         help=names.get(kernel_default or "", every)),
            click.option("--block", type=int, metavar="P",
                         default=None if has_auto else DEFAULT_PARAMETER,
                         help="Edge of a tile: 4, 8, 16 (the default) or 32."),
            click.option("--slice", "slice_size", type=int, metavar="L",
                         default=None if has_auto else DEFAULT_PARAMETER,
                         help="Rows of a slice: 4, 8, 16 (the default) or 32."),
            click.option("--cu", "compute_units", type=UnitCount(min=1), default=1,
                         show_default=True, metavar="N",
                         help="Compute units; max: as many as fit the board."),
            click.option("--board", default="u50", show_default=True, metavar="B",
                         help="Board file's name."),
            click.option("--clock-hz", type=FiniteRange(1e6, 1e9), metavar="F",
                         help="Kernel clock; the board's own figure by default."),
        )  # fmt: skip
        for option in reversed(options if has_clock else options[:-1]):
            command = option(command)
        return _lanes_options(command)

    return add


def _lanes_options(command: Command) -> Command:
    """Add the parameters of kernel lanes, which has defaults of its own."""
    for flag, metavar, text in (
        ("--y-room", "N", "Of lanes: elements of y on chip; fewer by default in many units."),
        ("--panel", "N", "Of lanes: elements of x on chip at a time; 16384 by default."),
        (
            "--depth",
            "D",
            "Of lanes: accesses until a row returns: 8 (the default) or 16.",
        ),
    ):
        command = click.option(flag, type=int, metavar=metavar, help=text)(command)
    return command


def json_options(command: Command) -> Command:
    """Add `--json` and `--json-out`."""
    command = click.option(
        "--json-out",
        type=output_file,
        metavar="FILE",
        help="Write the result as JSON into a file as well.",
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
    from ..report.documents import to_text, write_text

    text = to_text(document)
    if json_out:
        write_text(json_out, text)
    if as_json:
        write_stdout(text)
    else:
        terminal.show(renderables)


def write_stdout(text: str) -> None:
    """Write to stdout; a reader that has seen enough is no error, a full disk is one."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        raise SpmvFpgaError(stdout_refusal(error)) from None


def kernel_parameter(
    kernel: str, block: int, slice_size: int, **lanes: int | None
) -> dict[str, int]:
    """Return the kernel's own parameters; others are checked, and not used.

    >>> kernel_parameter("lanes", 16, 16, depth=8, panel=None)
    {'depth': 8}
    """
    from ..formats.blocked_ell import check_block
    from ..formats.sliced_ell import check_slice_size
    from ..kernels import load_kernel

    check_block(block)
    check_slice_size(slice_size)
    of_lanes = {name: value for name, value in lanes.items() if value is not None}
    load_kernel("lanes").resolve(of_lanes)
    chosen = {"block": block, "slice": slice_size, **of_lanes}
    own = {parameter.name for parameter in load_kernel(kernel).parameters}
    return {name: value for name, value in chosen.items() if name in own}


def note_unused(
    terminal: Terminal,
    kernel: str,
    block: int | None,
    slice_size: int | None,
    **lanes: int | None,
) -> None:
    """Say so where a parameter was set that the kernel does not have."""
    from ..kernels import load_kernel

    own = {parameter.name for parameter in load_kernel(kernel).parameters}
    given = {"block": block, "slice": slice_size}
    asked = {name: value for name, value in given.items() if value != DEFAULT_PARAMETER}
    for name, value in {**asked, **lanes}.items():
        if name not in own and value is not None:
            flag = name.replace("_", "-")
            terminal.say(f"note: kernel {kernel} has no {name}; --{flag} {value} is not used.")


def spread_words(arguments: Sequence[str], options: Sequence[str]) -> list[str]:
    """Repeat an option before each word up to the next option.

    >>> spread_words(["--a", "x", "y", "-o", "z"], ["--a"])
    ['--a', 'x', '--a', 'y', '-o', 'z']
    """
    words: list[str] = []
    option = None
    for word in arguments:
        if word in options:
            option = word
        elif word.startswith("-") or option is None:
            option = None
            words.append(word)
        else:
            words += [option, word]
    return words


def stdout_refusal(error: OSError) -> str:
    """Return what to say where stdout cannot be written."""
    return f"stdout cannot be written: {error.strerror}; send it elsewhere."


def drop_stdout() -> None:
    """Send the rest of stdout nowhere, so that Python's last flush does not fail."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
