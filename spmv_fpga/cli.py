"""The command line: the only place that prints.

Exit status: 0 done and verified, 1 the result is wrong, 2 refused, 130 after Ctrl-C, 143
after SIGTERM or SIGHUP. A refusal is one message on stderr; stdout then stays empty, but for
`doctor` and `verify`, which print each finding as they go and judge at the end.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType
from typing import NoReturn

import click

from .commands.base import drop_stdout, stdout_refusal
from .commands.builds import info, render, xclbin_command
from .commands.collection import matrices_group
from .commands.doctor import doctor
from .commands.energy import energy_group
from .commands.fit import fit_command
from .commands.products import convert, formats_command, run_command, verify_command
from .commands.roofline import bandwidth_command, paper_command, predict_command, roofline_group
from .errors import DeviceError, SpmvFpgaError, VerificationError
from .version import __version__

EXIT_WRONG, EXIT_REFUSED, EXIT_INTERRUPTED, EXIT_TERMINATED = 1, 2, 130, 143
PROGRAM = "spmv-fpga"


class Interrupted(BaseException):
    """SIGTERM or SIGHUP: ends the program as Ctrl-C does, clean-up included."""


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 96})
@click.version_option(__version__, prog_name=PROGRAM)
def cli() -> None:
    """Sparse matrix-vector products on an AMD Alveo U50: verified, timed, and testable
    without the card.

    Exit status: 0 done and verified; 1 the result is wrong; 2 refused, with one message on
    stderr; 130 after Ctrl-C; 143 after SIGTERM or SIGHUP.
    """  # noqa: D205


for command in (
    run_command,
    convert,
    formats_command,
    verify_command,
    predict_command,
    roofline_group,
    paper_command,
    bandwidth_command,
    fit_command,
    render,
    xclbin_command,
    info,
    energy_group,
    matrices_group,
    doctor,
):
    cli.add_command(command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and end the process."""
    if sys.stdout is None:  # closed by the caller; an output file must not take its number
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123
    sys.exit(status_of(arguments))


def status_of(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit status."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as nohup has it
            signal.signal(number, _on_signal)
    status = _status_of_command(sys.argv[1:] if arguments is None else arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop_stdout()
    except OSError as error:
        drop_stdout()
        status = status or _refuse(stdout_refusal(error))
    return status


def _status_of_command(arguments: Sequence[str]) -> int:
    try:
        # Not by `cli.main`: it has an exit status and a blank line of its own for Ctrl-C and
        # for a reader who has gone.
        with cli.make_context(PROGRAM, list(arguments)) as context:
            cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        return _refuse(error.format_message())
    except VerificationError as error:
        click.echo(f"{PROGRAM}: wrong result: {error}", err=True)
        return EXIT_WRONG
    except SpmvFpgaError as error:
        if isinstance(error, DeviceError) and error.log and "--verbose" in arguments:
            click.echo(error.log, err=True)
        return _refuse(str(error))
    except (KeyboardInterrupt, click.Abort):
        click.echo(f"{PROGRAM}: interrupted", err=True)
        return EXIT_INTERRUPTED
    except Interrupted:
        click.echo(f"{PROGRAM}: ended by a signal", err=True)
        return EXIT_TERMINATED
    # Anything else would end with status 1, which says that the result is wrong.
    except Exception as error:  # noqa: BLE001
        if "--verbose" in arguments:
            traceback.print_exc()
        return _refuse(_unexpected(error))
    return 0


def _unexpected(error: Exception) -> str:
    """Return what to say of an error that no part of the program foresaw."""
    if isinstance(error, MemoryError):
        return (
            f"the memory is not enough ({str(error) or 'MemoryError'}); take a smaller matrix."
        )
    name = type(error).__name__
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error} ({name}); --verbose shows where."
    return (
        f"an error that should not be, {name}: {error}; please report it with the traceback "
        "that --verbose shows."
    )


def _refuse(message: str) -> int:
    click.echo(f"{PROGRAM}: {message}", err=True)
    return EXIT_REFUSED


def _on_signal(_number: int, _frame: FrameType | None) -> None:
    raise Interrupted
