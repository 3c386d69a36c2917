"""The C++ compiler that builds kernels and the emulated card on this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..errors import ToolError, ToolNotFoundError

INSTALL_COMMAND = "apt-get install -y libxrt1 libxrt-dev g++"
INSTALL_HINT = f"run `{INSTALL_COMMAND}` as root"
COMPILER = "g++"
_TAIL_LINES = 20


def find_compiler() -> Path:
    """Find the C++ compiler.

    Raises
    ------
    ToolNotFoundError
        If there is none on PATH.
    """
    found = shutil.which(COMPILER)
    if found is None:
        raise ToolNotFoundError(f"the C++ compiler {COMPILER}", f"{INSTALL_HINT}.")
    return Path(found)


def run_tool(command: Sequence[str], failure: str, *, cwd: Path | None = None) -> str:
    """Run a tool to its end and return what it prints.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.
    failure : str
        What it means if the tool fails; begins the message.
    cwd : Path, optional
        Folder to run it in.

    Raises
    ------
    ToolNotFoundError
        If there is no such program.
    ToolError
        If it ends with a status other than 0; the last lines of its output are in it.
    """
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            cwd=cwd,
            env={**os.environ, "LC_ALL": "C"},
        )
    except FileNotFoundError:
        raise ToolNotFoundError(command[0], f"{INSTALL_HINT}.") from None
    if done.returncode != 0:
        output = (done.stdout + done.stderr).decode(errors="replace")
        raise ToolError(
            f"{failure} ({Path(command[0]).name} ended with status {done.returncode}):",
            command=command,
            returncode=done.returncode,
            tail="\n".join(output.splitlines()[-_TAIL_LINES:]),
        )
    return done.stdout.decode(errors="surrogateescape")
