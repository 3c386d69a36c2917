"""Where the files that are not Python stand, in a checkout and in an installed wheel."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import platformdirs

_PACKAGE = Path(__file__).resolve().parent
_INSIDE = {"hls_templates": "hls_templates", "host": "host", "matrices": "matrices/data"}


def data_dir(name: str) -> Path:
    """Return the folder `hls_templates`, `host` or `matrices`.

    A wheel carries the folder inside the package; in a checkout, editable
    installs included, it stands beside it.

    >>> (data_dir("matrices") / "suite.toml").is_file()
    True
    """
    inside = _PACKAGE / _INSIDE[name]
    return inside if inside.is_dir() else _PACKAGE.parent / name


def is_checkout() -> bool:
    """Say whether the package runs from a source tree."""
    return not (_PACKAGE / _INSIDE["host"]).is_dir()


def cache_dir() -> Path:
    """Return the cache folder, `SPMV_FPGA_CACHE` or the platform's; it may not exist yet."""
    chosen = os.environ.get("SPMV_FPGA_CACHE")
    return Path(chosen).absolute() if chosen else Path(platformdirs.user_cache_dir("spmv-fpga"))


def install_command(extra: str) -> str:
    """Return the line that adds an extra of this project, `mkl` or `nvml`, to this Python.

    >>> install_command("mkl").endswith("[mkl]'")
    True
    """
    what = f"--editable '{_PACKAGE.parent}" if is_checkout() else "'spmv_fpga"
    return f"{sys.executable} -m pip install {what}[{extra}]'"
