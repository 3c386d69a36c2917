"""Where xclbins stand: one folder for every target, platform and set of parameters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..resources import data_dir, is_checkout

BUILD_DIR = "build"


def xclbin_path(
    build_dir: str | Path,
    target: str,
    platform: str,
    kernel: str,
    *,
    block: int,
    slice_size: int,
    compute_units: int,
) -> Path:
    """Return where an xclbin is built to.

    >>> str(xclbin_path("build", "hw", "u50", "block", block=8, slice_size=16, compute_units=1))
    'build/hw/u50/block_p8_l16_cu1/block.xclbin'
    """
    parameters = f"{kernel}_p{block}_l{slice_size}_cu{compute_units}"
    return Path(build_dir) / target / platform / parameters / f"{kernel}.xclbin"


def find_xclbin(
    target: str,
    platforms: Sequence[str],
    kernel: str,
    *,
    block: int | None,
    slice_size: int | None,
    compute_units: int,
) -> Path | None:
    """Find a built xclbin below `build/` of the working folder, or of the checkout.

    A parameter that the kernel does not have (None) may be any: it is only part of the
    folder's name.
    """
    roots = [Path(BUILD_DIR)]
    if is_checkout():
        roots.append(data_dir("hls_templates").parent / BUILD_DIR)
    p, s = (("*" if value is None else value) for value in (block, slice_size))
    pattern = f"{kernel}_p{p}_l{s}_cu{compute_units}/{kernel}.xclbin"
    for root in roots:
        for platform in platforms:
            if found := sorted((root / target / platform).glob(pattern)):
                return found[0].absolute()
    return None
