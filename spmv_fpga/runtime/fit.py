"""Whether data, an xclbin and the environment fit together, before a card is touched.

The runtime's own answers to what does not fit are numbers (-44, -5, -22) or a crash in
the middle of a run. Here every reason is found first, from the file alone, and they are
told together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping

from ..errors import XclbinError
from ..formats.base import SparseFormat
from ..toolchain.emulation import FORMAT_VERSION
from ..toolchain.xclbin import Instance, Kernel, Memory, XclbinInfo

__all__ = ["check_fit", "check_mode", "kernel_name", "reasons_to_refuse"]

EMULATION_VARIABLE = "XCL_EMULATION_MODE"

# XRT gives out a bank's memory in whole pages. In emulation it also keeps two pages of its
# own for each launch in flight, in the bank at address 0, which therefore never holds one
# buffer of its whole size (both found by filling the banks of XRT 2.13's sw_emu to the
# last page). Two launches in flight are allowed for each compute unit.
PAGE_BYTES = 4096
RUNTIME_BYTES_PER_UNIT = 2 * 2 * PAGE_BYTES


def kernel_name(kind: str) -> str:
    """Return the name of the C function, and so of the kernel, for a kind of kernel.

    >>> kernel_name("block")
    'spmv_block'
    """
    return f"spmv_{kind}"


def check_fit(
    fmt: SparseFormat,
    xclbin: XclbinInfo,
    *,
    mode: str = "auto",
    emulation_mode: str | None = None,
    unit: str | None = None,
) -> None:
    """Refuse data that an xclbin cannot take, with every reason at once.

    Checked are: the kernel and its arguments are there; it was built for the block or
    slice, and for the matrix stream, of the data; its target agrees with the mode and with
    `XCL_EMULATION_MODE`; x fits on the chip; each buffer fits the memory banks that its
    argument is connected to.

    Parameters
    ----------
    fmt : SparseFormat
        What shall be multiplied.
    xclbin : XclbinInfo
        See `spmv_fpga.toolchain.xclbin.read`.
    mode : str
        "auto", "hw", "hw_emu" or "sw_emu", as asked for.
    emulation_mode : str, optional
        Value of `XCL_EMULATION_MODE`; the environment's by default, "" for none.
    unit : str, optional
        Compute unit that the data are for; every unit of the kernel by default.

    Raises
    ------
    XclbinError
        Its `reasons` list all that does not fit.
    """
    if emulation_mode is None:
        emulation_mode = os.environ.get(EMULATION_VARIABLE)
    reasons = [
        *_mode_reasons(xclbin, mode, emulation_mode),
        *reasons_to_refuse(fmt, xclbin, unit=unit),
    ]
    if reasons:
        raise XclbinError(reasons, path=xclbin.path)


def check_mode(xclbin: XclbinInfo, mode: str, emulation_mode: str | None) -> str:
    """Return the mode in which an xclbin runs: what it was built for.

    Parameters
    ----------
    xclbin : XclbinInfo
        The file.
    mode : str
        "auto", "hw", "hw_emu" or "sw_emu", as asked for.
    emulation_mode : str or None
        Value of `XCL_EMULATION_MODE`. XRT reads the variable once, when it is loaded; it
        must be the target of an emulation and must not be set for hardware. None and ""
        are taken as not set: the caller then sets it for, or removes it from, the
        process that loads XRT.

    Returns
    -------
    str
        "hw", "hw_emu" or "sw_emu".

    Raises
    ------
    XclbinError
        If the file's target is unknown or differs from the mode or from the variable.
    """
    reasons = list(_mode_reasons(xclbin, mode, emulation_mode))
    if reasons or xclbin.target is None:
        raise XclbinError(reasons, path=xclbin.path)
    return xclbin.target


def reasons_to_refuse(
    fmt: SparseFormat, xclbin: XclbinInfo, *, unit: str | None = None
) -> list[str]:
    """Return every reason why an xclbin cannot take the data; empty where it can.

    Parameters
    ----------
    fmt, xclbin, unit
        As in `check_fit`.

    Returns
    -------
    list of str
        Each without the file's name.
    """
    name = kernel_name(fmt.kernel)
    kernel = xclbin.kernel(name)
    if kernel is None:
        # The sizes of the banks are worth telling even if another kernel is connected
        # to them: then only one change of plan is needed.
        reasons = [_missing_kernel(name, xclbin)]
        stand_in = next((k for k in xclbin.kernels if _pointers(k)), None)
        return (
            reasons if stand_in is None else [*reasons, *_bank_reasons(fmt, xclbin, stand_in)]
        )
    return [
        *_parameter_reasons(fmt, xclbin),
        *_version_reasons(xclbin),
        *_argument_reasons(fmt, kernel),
        *_unit_reasons(kernel, unit),
        *_room_reasons(fmt, xclbin),
        *_bank_reasons(fmt, xclbin, kernel, unit),
    ]


def _mode_reasons(xclbin: XclbinInfo, mode: str, emulation_mode: str | None) -> Iterator[str]:
    target = xclbin.target
    if target is None:
        yield "it does not say whether it was built for hw, hw_emu or sw_emu; build it again"
        return
    if mode not in ("auto", target):
        yield f"it was built for {target}, but --mode is {mode}; use --mode {target} or auto"
    # For hardware any value is wrong, "hw" too: XRT only looks whether there is one.
    if emulation_mode and (target == "hw" or emulation_mode != target):
        remedy = f"`unset {EMULATION_VARIABLE}`"
        if target != "hw":
            remedy += f" or `export {EMULATION_VARIABLE}={target}`"
        yield (
            f"it was built for {target}, but {EMULATION_VARIABLE} is {emulation_mode!r}; "
            f"use {remedy}"
        )


def matrix_room(xclbin: XclbinInfo, function: str, vector_bytes: int) -> int | None:
    """Return how many bytes of a matrix stream every unit has room for.

    Parameters
    ----------
    xclbin : XclbinInfo
    function : str
        Name of the kernel.
    vector_bytes : int
        Bytes of x and y together, for units that have them in the matrix's own bank.

    Returns
    -------
    int or None
        None where the file has no such kernel, or does not say its banks.
    """
    kernel = xclbin.kernel(function)
    rooms = []
    for instance in kernel.instances if kernel else ():
        banks = xclbin.memories_of(instance.name, "matrix")
        if not banks:
            return None
        tags = {bank.tag for bank in banks}
        of_vectors = (xclbin.memories_of(instance.name, name) for name in ("x", "y"))
        shared = tags & {bank.tag for banks in of_vectors for bank in banks}
        has_runtime = any(bank.base == 0 for bank in banks)
        kept = RUNTIME_BYTES_PER_UNIT * xclbin.compute_units if has_runtime else 0
        vectors = _whole_pages(vector_bytes) + 2 * PAGE_BYTES if shared else 0
        room = sum(bank.bytes for bank in banks) - kept - vectors
        rooms.append(max(0, room // PAGE_BYTES * PAGE_BYTES))
    return min(rooms, default=None)


def _missing_kernel(name: str, xclbin: XclbinInfo) -> str:
    present = ", ".join(kernel.name for kernel in xclbin.kernels) or "none"
    return f"it has no kernel {name}; its kernels: {present}; give one built for this kernel"


def _parameter_reasons(fmt: SparseFormat, xclbin: XclbinInfo) -> Iterator[str]:
    built_for = xclbin.facts.parameters
    for parameter, wanted in fmt.parameters.items():
        built = built_for.get(parameter)
        if built is None:
            yield (
                f"it does not say for which {parameter} it was built, and the data have "
                f"{parameter} {wanted}; keep the file {xclbin.path}.json beside it or build "
                "it again"
            )
        elif built != wanted:
            yield (
                f"it was built for {parameter} {built}, but the data have {parameter} "
                f"{wanted}; use --{parameter} {built} or an xclbin for {parameter} {wanted}"
            )


def _version_reasons(xclbin: XclbinInfo) -> Iterator[str]:
    version = xclbin.format_version
    if version is not None and version != FORMAT_VERSION:
        yield (
            f"its kernel reads version {version} of the matrix stream, but the data have "
            f"version {FORMAT_VERSION}; build it again"
        )


def _argument_reasons(fmt: SparseFormat, kernel: Kernel) -> Iterator[str]:
    wanted, present = list(fmt.port_bytes()), _pointers(kernel)
    if wanted != present:
        yield (
            f"the memory arguments of {kernel.name} are {_words(present)}, not "
            f"{_words(wanted)}; build it again"
        )
    values = [a.name for a in kernel.arguments if not a.is_memory]
    missing = [name for name in fmt.scalars() if name not in values]
    if missing:
        yield (
            f"{kernel.name} has no argument {_words(missing)}; its scalar arguments are "
            f"{_words(values)}; build it again"
        )


def _unit_reasons(kernel: Kernel, unit: str | None) -> Iterator[str]:
    present = [instance.name for instance in kernel.instances]
    if not present:
        yield f"{kernel.name} has no compute unit; build it again"
    elif unit is not None and unit not in present:
        yield f"{kernel.name} has no compute unit {unit}; it has {_words(present)}"


def _room_reasons(fmt: SparseFormat, xclbin: XclbinInfo) -> Iterator[str]:
    num_x = fmt.shape[1]
    if xclbin.x_room is not None and num_x > xclbin.x_room:
        yield (
            f"x has {num_x} entries, but the kernel has on-chip room for {xclbin.x_room}; "
            "multiply fewer columns at a time"
        )
    if xclbin.y_room is not None and fmt.y_on_chip > xclbin.y_room:
        yield (
            f"y takes {fmt.y_on_chip} entries, but the kernel has on-chip room for "
            f"{xclbin.y_room}; multiply fewer rows at a time"
        )


def _bank_reasons(
    fmt: SparseFormat, xclbin: XclbinInfo, kernel: Kernel, unit: str | None = None
) -> list[str]:
    sizes = _buffer_sizes(fmt, kernel)
    reasons: dict[str, None] = {}
    for instance in kernel.instances:
        if unit in (None, instance.name):
            reasons.update(dict.fromkeys(_overfull(sizes, xclbin, instance)))
    return list(reasons)


def _buffer_sizes(fmt: SparseFormat, kernel: Kernel) -> dict[str, int]:
    """Return the bytes of each buffer under the name of the argument that takes it.

    In a kernel that is not this project's, the matrix goes to the first pointer.
    """
    pointers = _pointers(kernel)
    sizes = fmt.port_bytes()
    if "matrix" not in pointers:
        sizes = {pointers[0]: sizes["matrix"], **sizes}
    return {name: size for name, size in sizes.items() if name in pointers}


def _overfull(
    sizes: Mapping[str, int], xclbin: XclbinInfo, instance: Instance
) -> Iterator[str]:
    """Tell which sets of banks get more bytes than they hold.

    An argument on a range of banks may lie anywhere in it; so for each set of banks that
    occurs, all the buffers that lie within it must fit.
    """
    banks_of = {name: xclbin.memories_of(instance.name, name) for name in sizes}
    for banks in dict.fromkeys(banks_of.values()):
        if not banks:
            continue
        inside = {name: sizes[name] for name in sizes if set(banks_of[name]) <= set(banks)}
        has_runtime = any(bank.base == 0 for bank in banks)
        kept = RUNTIME_BYTES_PER_UNIT * xclbin.compute_units if has_runtime else 0
        needed = sum(_whole_pages(size) for size in inside.values())
        if needed + kept > sum(bank.bytes for bank in banks):
            yield _overfull_reason(inside, banks, needed, kept)


def _overfull_reason(
    inside: Mapping[str, int], banks: Iterable[Memory], needed: int, kept: int
) -> str:
    need = "needs" if len(inside) == 1 else "need"
    sizes = " + ".join(str(size) for size in inside.values())
    where = _words([bank.tag for bank in banks])
    room = sum(bank.bytes for bank in banks)
    pages = runtime = ""
    if sum(inside.values()) <= room:  # only then do pages and runtime decide
        pages = f" ({needed} in whole pages)"
        runtime = f", of which the runtime keeps {kept}" if kept else ""
    return (
        f"{_words(list(inside))} {need} {sizes} bytes{pages}, but memory bank {where} has "
        f"{room}{runtime}; choose a format with fewer stored slots "
        "(`spmv-fpga convert --stats` lists them) or an xclbin with more memory for it"
    )


def _whole_pages(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def _pointers(kernel: Kernel) -> list[str]:
    return [argument.name for argument in kernel.arguments if argument.is_memory]


def _words(names: list[str]) -> str:
    """Join names as in a sentence.

    >>> _words(["matrix", "x", "y"])
    'matrix, x and y'
    """
    if len(names) < 2:
        return names[0] if names else "none"
    return f"{', '.join(names[:-1])} and {names[-1]}"
