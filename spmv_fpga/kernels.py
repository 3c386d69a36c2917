"""Kernels: one folder each in `hls_templates/`, described by its `kernel.toml`.

The ports and scalars of `kernel.toml` are the only truth: C++ parameters, interface
pragmas, `link.cfg` and the order of the host's arguments are loops over them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from .errors import KernelSpecError
from .resources import data_dir

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Parameter:
    """A number that is compiled into a kernel."""

    name: str
    constant: str
    default: int
    comment: str
    values: tuple[int, ...] = ()
    minimum: int = 0
    maximum: int = 0
    multiple: int = 1

    def check(self, kernel: str, value: int) -> None:
        """Raise `KernelSpecError` unless the value is allowed."""
        if self.values:
            *others, last = self.values
            allowed = f"{', '.join(map(str, others))} or {last}"
            is_allowed = value in self.values
        else:
            allowed = f"{self.minimum} to {self.maximum}, a multiple of {self.multiple}"
            is_allowed = self.minimum <= value <= self.maximum and value % self.multiple == 0
        if not is_allowed:
            raise KernelSpecError(
                f"{self.name} of kernel {kernel} is {value}; it must be {allowed}."
            )


@dataclass(frozen=True)
class Argument:
    """An argument of a kernel's top function: a memory port or a 32-bit scalar."""

    name: str
    c_type: str
    bundle: str | None = None
    outstanding: int | None = None
    """Bursts in flight; the board's own figure where none is given."""

    @property
    def is_memory(self) -> bool:
        """Whether the argument is a pointer to the card's memory."""
        return self.bundle is not None

    @property
    def direction(self) -> str:
        """`read` or `write`, as seen from the kernel; a port is one of the two."""
        return "read" if self.c_type.startswith("const ") else "write"


@dataclass(frozen=True)
class Kernel:
    """A kernel's description.

    Attributes
    ----------
    name : str
        Folder, command-line value and key everywhere: `scalar`, `block` or `lanes`.
    title : str
    format : str
        Key of the storage format that it reads; empty where it multiplies nothing.
    sources : tuple of str
        Hand-written headers, from its own folder or from `common/`.
    parameters : tuple of Parameter
    ports, scalars : tuple of Argument
        In the order of the top function.
    """

    name: str
    title: str
    format: str
    sources: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    ports: tuple[Argument, ...]
    scalars: tuple[Argument, ...]

    @property
    def function(self) -> str:
        """Name of the top function, and of the kernel in an xclbin.

        >>> load_kernel("block").function
        'spmv_block'
        """
        return f"spmv_{self.name}"

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """All arguments of the top function, ports first."""
        return self.ports + self.scalars

    @property
    def bundles(self) -> tuple[str, ...]:
        """Memory interfaces, each once, in the order of their first port."""
        return tuple(dict.fromkeys(str(port.bundle) for port in self.ports))

    def unit(self, number: int) -> str:
        """Return the name of a compute unit, counted from 1."""
        return f"{self.function}_{number}"

    def resolve(self, chosen: Mapping[str, int]) -> dict[str, int]:
        """Return the value of every parameter, defaults where none is chosen.

        Raises
        ------
        KernelSpecError
            If the kernel has no such parameter, or a value is not allowed.

        Examples
        --------
        >>> load_kernel("block").resolve({"block": 8})
        {'block': 8, 'x_room': 262144}
        """
        known = {p.name for p in self.parameters}
        for name in chosen:
            if name not in known:
                raise KernelSpecError(
                    f"kernel {self.name} has no parameter {name}; it has "
                    f"{', '.join(sorted(known))}."
                )
        values = {p.name: int(chosen.get(p.name, p.default)) for p in self.parameters}
        for parameter in self.parameters:
            parameter.check(self.name, values[parameter.name])
        return values


def kernel_names() -> tuple[str, ...]:
    """Return the names of the kernels that multiply.

    >>> kernel_names()
    ('block', 'lanes', 'scalar')
    """
    return tuple(name for name in template_names() if load_kernel(name).format)


def _choices() -> str:
    *others, last = kernel_names()
    return f"{', '.join(others)} or {last}"


def template_names() -> tuple[str, ...]:
    """Return the names of all kernels, those that only measure included."""
    return tuple(sorted(p.parent.name for p in data_dir("hls_templates").glob("*/kernel.toml")))


def load_product_kernel(name: str) -> Kernel:
    """Read the description of a kernel that multiplies; raises as `load_kernel`."""
    if name not in kernel_names():
        raise KernelSpecError(f"kernel is {name!r}; it must be {_choices()}.")
    return load_kernel(name)


@cache
def load_kernel(name: str) -> Kernel:
    """Read a kernel's description.

    Raises
    ------
    KernelSpecError
        If there is no such kernel, or its `kernel.toml` is wrong.
    """
    if name not in template_names():
        raise KernelSpecError(f"kernel is {name!r}; it must be {_choices()}.")
    path = data_dir("hls_templates") / name / "kernel.toml"
    try:
        content = tomllib.loads(path.read_text("utf-8"))
        return _kernel(content)
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise KernelSpecError(f"{path}: {error}; mend the kernel's description.") from None


@dataclass(frozen=True)
class HeaderStream:
    """A FIFO as a kernel's header declares it; its depth may be a constant's name."""

    c_type: str
    name: str
    depth: str
    is_srl: bool


@dataclass(frozen=True)
class Header:
    """The data flow of a kernel, as its header states it.

    Attributes
    ----------
    text : str
        Without its comments.
    streams : tuple of HeaderStream
        Its `SPMV_STREAM` and `SPMV_STREAM_SRL` lines.
    processes : tuple of tuple of str
        Its `SPMV_PROCESS` lines: the function, then its arguments.
    """

    text: str
    streams: tuple[HeaderStream, ...]
    processes: tuple[tuple[str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> Header:
        """Read a header.

        >>> Header.parse("SPMV_STREAM_SRL(word_t, words, 32);").streams
        (HeaderStream(c_type='word_t', name='words', depth='32', is_srl=True),)
        """
        text = re.sub(r"//[^\n]*", "", text)
        return cls(
            text,
            tuple(
                HeaderStream(c_type, name, depth, bool(srl))
                for srl, c_type, name, depth in _STREAM.findall(text)
            ),
            tuple(
                tuple(word.strip() for word in found.split(","))
                for found in _PROCESS.findall(text)
            ),
        )


_STREAM = re.compile(r"SPMV_STREAM(_SRL)?\(([^,]+), *(\w+), *(\w+)\)")
_PROCESS = re.compile(r"SPMV_PROCESS\(([^)]*)\)")


@cache
def read_header(kernel: str) -> Header:
    """Read the data flow of a kernel from its header.

    Raises
    ------
    KernelSpecError
        If it cannot be read.

    Examples
    --------
    >>> read_header("block").processes[0][:3]
    ('read_inputs', 'x', 'matrix')
    """
    path = data_dir("hls_templates") / kernel / f"{kernel}.hpp"
    try:
        return Header.parse(path.read_text("utf-8"))
    except OSError as error:
        raise KernelSpecError(f"{path}: cannot be read: {error.strerror or error}.") from None


def _kernel(content: dict[str, Any]) -> Kernel:
    return Kernel(
        name=content["name"],
        title=content["title"],
        format=content["format"],
        sources=tuple(content["sources"]),
        parameters=tuple(
            Parameter(**{**p, "values": tuple(p.get("values", ()))})
            for p in content["parameters"]
        ),
        ports=tuple(Argument(**port) for port in content["ports"]),
        scalars=tuple(Argument(c_type="unsigned", **scalar) for scalar in content["scalars"]),
    )
