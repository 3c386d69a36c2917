"""Files that the user names: written whole or not at all, and read only if they are files."""

from __future__ import annotations

import errno
import io
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def write_whole(path: str | Path, content: bytes | Callable[[Any], object]) -> None:
    """Write a file whole or not at all, and leave alone what only looks like one.

    A symbolic link stays one, and the file that it leads to is replaced. A pipe or a device
    is written to: a new file in its place would take it away from everybody else.

    Parameters
    ----------
    path : str or Path
        The folder must exist.
    content : bytes or callable
        What to write, or what writes it to the binary file that it is given.

    Raises
    ------
    OSError
        If it cannot be written; a file that stood there is then as it was.
    """
    write = content if callable(content) else lambda file: file.write(content)
    if _is_special(path):
        _write_directly(path, write)
        return
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            write(file)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _is_special(path: str | Path) -> bool:
    try:
        return not stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116 - "" is not "."
    except FileNotFoundError:
        return False


def _write_directly(path: str | Path, write: Callable[[BinaryIO], object]) -> None:
    # Some writers go back and forth, which a pipe cannot.
    whole = io.BytesIO()
    write(whole)
    with Path(path).open("wb") as file:
        file.write(whole.getbuffer())


def require_file(path: str | os.PathLike[str]) -> None:
    """Refuse what is no regular file; to open a pipe that nobody writes to would never end.

    Raises
    ------
    OSError
        Its `strerror` says what stands there; also if nothing does.

    Examples
    --------
    >>> require_file("/dev/null")
    Traceback (most recent call last):
    OSError: [Errno 22] it is a device, not a file: '/dev/null'
    """
    if not os.fspath(path):
        raise OSError(errno.EINVAL, "the file's name is empty")
    mode = os.stat(path).st_mode  # noqa: PTH116 - "" is not "."
    if not stat.S_ISREG(mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a file", os.fspath(path))
