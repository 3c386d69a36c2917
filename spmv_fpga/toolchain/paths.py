"""Where xclbins stand: one folder for every target, platform and set of parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from ..codegen import parameters_for
from ..kernels import load_kernel
from ..resources import data_dir, is_checkout

BUILD_DIR = "build"

_TILES = (("block", "p", 16), ("slice", "l", 16))
_NAMED: dict[str, tuple[tuple[str, str, int], ...]] = {"lanes": (("depth", "d", 8),)}
"""Parameters in a folder's name, their letters and defaults, where they are not `_TILES`."""


def folder_name(kernel: str, parameters: Mapping[str, int | str], compute_units: int) -> str:
    """Return the name of the folder of a design.

    A kernel without tiles or slices of rows has its own parameter in the name, and its rooms
    for x and y where they are not the usual ones; all others have both tile and slice, with
    their default where they lack one.

    Examples
    --------
    >>> folder_name("block", {"block": 8, "x_room": 65536}, 4)
    'block_p8_l16_cu4'
    >>> folder_name("lanes", {"depth": 16, "panel": 8192}, 18)
    'lanes_d16_x8192_cu18'
    """
    named = _NAMED.get(kernel, _TILES)
    sizes = (f"{letter}{parameters.get(name, usual)}" for name, letter, usual in named)
    rooms = _unusual_rooms(kernel, parameters, compute_units) if kernel in _NAMED else ()
    return "_".join((kernel, *sizes, *rooms, f"cu{compute_units}"))


def _unusual_rooms(
    kernel: str, parameters: Mapping[str, int | str], compute_units: int
) -> Iterator[str]:
    spec = load_kernel(kernel)
    usual = spec.resolve(parameters_for(spec, compute_units))
    for name, letter in (("panel", "x"), ("y_room", "y")):
        value = parameters.get(name, usual[name])
        if value != usual[name]:
            yield f"{letter}{value}"


def xclbin_path(
    build_dir: str | Path,
    target: str,
    platform: str,
    kernel: str,
    *,
    parameters: Mapping[str, int],
    compute_units: int,
) -> Path:
    """Return where an xclbin is built to.

    >>> parameters = {"block": 8}
    >>> str(xclbin_path("build", "hw", "u50", "block", parameters=parameters, compute_units=1))
    'build/hw/u50/block_p8_l16_cu1/block.xclbin'
    """
    folder = folder_name(kernel, parameters, compute_units)
    return Path(build_dir) / target / platform / folder / f"{kernel}.xclbin"


def find_xclbin(
    target: str,
    platforms: Sequence[str],
    kernel: str,
    *,
    block: int | None = None,
    slice_size: int | None = None,
    depth: int | None = None,
    rooms: Mapping[str, int] = MappingProxyType({}),
    compute_units: int,
) -> Path | None:
    """Find a built xclbin below `build/` of the working folder, or of the checkout.

    A parameter that the kernel does not have (None) may be any: it is only part of the
    folder's name. `rooms` are the panel and room for y of kernel lanes, where not the usual.
    """
    roots = [Path(BUILD_DIR)]
    if is_checkout():
        roots.append(data_dir("hls_templates").parent / BUILD_DIR)
    sizes = {"block": block, "slice": slice_size, "depth": depth}
    any_of: dict[str, int | str] = {
        name: "*" if value is None else value for name, value in sizes.items()
    }
    any_of |= rooms
    pattern = f"{folder_name(kernel, any_of, compute_units)}/{kernel}.xclbin"
    for root in roots:
        for platform in platforms:
            if found := sorted((root / target / platform).glob(pattern)):
                return found[0].absolute()
    return None
