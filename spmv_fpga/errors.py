"""Exceptions of the package.

Every refusal is an `SpmvFpgaError`. The library raises, the command line turns
`VerificationError` into exit status 1 and any other `SpmvFpgaError` into 2.
A message is one sentence that says what, which value, and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_MAX_QUOTED = 80
"""Characters of a file's content that a message repeats."""


def shortened(text: str) -> str:
    """Return text that a message can hold: a damaged file may give megabytes of it.

    >>> shortened("1.5x"), len(shortened("9" * 5_000_000))
    ('1.5x', 80)
    """
    return text if len(text) <= _MAX_QUOTED else f"{text[: _MAX_QUOTED - 1]}…"


class SpmvFpgaError(Exception):
    """Base class of every error that this package raises on purpose."""


class MatrixError(SpmvFpgaError, ValueError):
    """A name or a file that gives no usable matrix.

    Parameters
    ----------
    reason : str
        What is wrong and what to do about it.
    path : str or Path, optional
        File (or matrix name) that the reason is about.
    line : int, optional
        Line number, counted from 1, in a text file.
    """

    def __init__(
        self, reason: str, *, path: str | Path | None = None, line: int | None = None
    ) -> None:
        self.reason = reason
        self.path = None if path is None else str(path)
        self.line = line
        where = "" if path is None else f"{path}: "
        where += "" if line is None else f"line {line}: "
        super().__init__(where + reason)


class FormatError(SpmvFpgaError, ValueError):
    """Sizes or indices that do not fit a storage format."""


class KernelSpecError(SpmvFpgaError, ValueError):
    """A kernel's description or its parameters are wrong."""


class BoardError(SpmvFpgaError, ValueError):
    """A board file is missing, wrong, or does not hold the figure that is asked for."""


class RenderError(SpmvFpgaError):
    """A template uses an undefined name, or is given one that it does not use."""


class ToolError(SpmvFpgaError, RuntimeError):
    """An external tool failed.

    Parameters
    ----------
    reason : str
        What failed and what to do about it.
    command : sequence of str, optional
        Command line that was run.
    returncode : int, optional
        Its exit status.
    log_path : Path, optional
        File with the whole output.
    tail : str, optional
        Last lines of the output; part of the message.
    """

    def __init__(
        self,
        reason: str,
        *,
        command: Sequence[str] = (),
        returncode: int | None = None,
        log_path: Path | None = None,
        tail: str = "",
    ) -> None:
        self.command = tuple(command)
        self.returncode = returncode
        self.log_path = log_path
        self.tail = tail
        super().__init__(f"{reason}\n{tail}" if tail else reason)


class ToolNotFoundError(ToolError):
    """A program or a system package that is needed is not installed.

    Parameters
    ----------
    tool : str
        Name of what is missing.
    hint : str
        The one line that mends it.
    """

    def __init__(self, tool: str, hint: str) -> None:
        self.tool = tool
        self.hint = hint
        super().__init__(f"{tool} is missing; {hint}")


class XclbinError(SpmvFpgaError, ValueError):
    """An xclbin that cannot be read, or that does not fit the data or the environment.

    Parameters
    ----------
    reasons : str or sequence of str
        Every reason that was found.
    path : str or Path, optional
        File that the reasons are about.
    """

    def __init__(self, reasons: str | Sequence[str], *, path: str | Path | None = None) -> None:
        self.reasons = (reasons,) if isinstance(reasons, str) else tuple(reasons)
        self.path = None if path is None else str(path)
        where = f"{path}: " if path else ""
        super().__init__(where + "; ".join(self.reasons))


class DeviceError(SpmvFpgaError, RuntimeError):
    """No card, the wrong platform, or a card (emulated or real) that failed.

    Parameters
    ----------
    reason : str
        What failed and what to do about it.
    log : str, optional
        Last lines of the runtime's own log; no part of the message.
    """

    def __init__(self, reason: str, *, log: str = "") -> None:
        self.log = log
        super().__init__(reason)


class SensorError(SpmvFpgaError, RuntimeError):
    """No reading from a power sensor, or readings that cannot be used."""


class VerificationError(SpmvFpgaError):
    """The product differs from the reference by more than rounding explains.

    Parameters
    ----------
    reason : str
        What differs.
    row : int, optional
        First row that is wrong, counted from 0.
    got, expected, bound : float, optional
        Value found, value wanted and largest difference allowed in that row.
    """

    def __init__(
        self,
        reason: str,
        *,
        row: int | None = None,
        got: float | None = None,
        expected: float | None = None,
        bound: float | None = None,
    ) -> None:
        self.row, self.got, self.expected, self.bound = row, got, expected, bound
        super().__init__(reason)
