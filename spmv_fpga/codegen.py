"""From a kernel, its parameters and a board to an HLS project.

Rendering is strict (a name that is undefined, or given and not used, is an error) and a
pure function of its input: no date, no path, no machine. Loops live in hand-written
headers, which are copied as they are; templates fill constants, ports and connectivity.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta

from .boards import Board
from .errors import KernelSpecError, RenderError
from .kernels import Kernel, load_kernel
from .resources import data_dir
from .version import __version__

MANY_UNITS_X_ROOM = 65536
FEW_UNITS_WITH_Y, MANY_UNITS_Y_ROOM = 8, 16384
MAX_UNITS_IN_ONE_SLR = 8
"""Half of the units that a U50 has ports for: its two regions are nearly alike (UG1120)."""


@dataclass(frozen=True)
class Unit:
    """A compute unit and the bank of each of its memory interfaces."""

    name: str
    slr: str | None
    banks: dict[str, str]


@dataclass(frozen=True)
class Project:
    """A rendered HLS project.

    Attributes
    ----------
    kernel : Kernel
    parameters : dict
        Every parameter with its value.
    board : Board
    units : tuple of Unit
    clock_hz : float
    files : dict of str to str
        Text of each file by its name.
    template_files : tuple of Path
        Files that the project was made from.
    """

    kernel: Kernel
    parameters: dict[str, int]
    board: Board
    units: tuple[Unit, ...]
    clock_hz: float
    files: dict[str, str]
    template_files: tuple[Path, ...]

    @property
    def top(self) -> str:
        """Name of the file with the top function."""
        return f"{self.kernel.function}.cpp"

    @property
    def source_hash(self) -> str:
        """SHA-256 over the names and texts of all files."""
        digest = hashlib.sha256()
        for name, text in sorted(self.files.items()):
            digest.update(f"{name}\0{len(text)}\0{text}".encode())
        return digest.hexdigest()

    def write(self, folder: str | Path) -> Path:
        """Write all files; a file whose text did not change keeps its time stamp."""
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            path = target / name
            if not path.is_file() or path.read_bytes() != text.encode():
                path.write_bytes(text.encode())
        return target


def render_project(
    kernel: str,
    parameters: Mapping[str, int],
    board: Board,
    *,
    compute_units: int = 1,
    clock_hz: float | None = None,
) -> Project:
    """Render a kernel's HLS project.

    Parameters
    ----------
    kernel : str
        `scalar` or `block`.
    parameters : mapping of str to int
        Parameters that differ from their defaults.
    board : Board
    compute_units : int
        Copies of the kernel; each takes its banks in turn.
    clock_hz : float, optional
        Clock to ask for; the board's figure for so many units where none is given.

    Returns
    -------
    Project

    Raises
    ------
    KernelSpecError
        If a parameter is wrong, or the units need more ports than there are.
    RenderError
        If a template uses a name that is undefined, or does not use a name it is given.

    Examples
    --------
    >>> from spmv_fpga.boards import load_board
    >>> project = render_project("block", {"block": 16}, load_board("u50"))
    >>> print(project.files["link.cfg"].splitlines()[2])
    nk=spmv_block:1:spmv_block_1
    """
    spec = with_ports_for(load_kernel(kernel), board, compute_units)
    values = spec.resolve({**parameters_for(spec, compute_units), **parameters})
    clock = board.expected_clock_hz(compute_units) if clock_hz is None else clock_hz
    if not 1e6 <= clock <= 1e9:
        raise KernelSpecError(f"clock_hz is {clock}; it must be between 1e6 and 1e9.")
    units = _place_units(spec, board, compute_units)
    templates = data_dir("hls_templates")
    sources = tuple(_source_path(templates, kernel, name) for name in spec.sources)
    names = {"version": __version__, "kernel": kernel, "function": spec.function}
    texts = {path.name: path.read_text("utf-8") for path in sources}
    constants = [
        {"name": p.constant, "value": values[p.name], "comment": p.comment}
        for p in spec.parameters
    ]
    top = f"{spec.function}.cpp"
    renderings: dict[str, tuple[str, dict[str, Any]]] = {
        "constants.hpp": (
            "constants.hpp.j2",
            {"constants": constants, "version": __version__, "kernel": kernel},
        ),
        top: (
            "top.cpp.j2",
            {**names, "arguments": spec.arguments, "ports": spec.ports, "axi": board.axi},
        ),
        "link.cfg": ("link.cfg.j2", {**names, "units": units, "ports": spec.ports}),
        "Makefile": (
            "Makefile.j2",
            {
                **names,
                "units": units,
                "platform": board.platforms[0],
                "clock_hz": round(clock),
                "sources": sorted([top, "constants.hpp", *spec.sources]),
            },
        ),
    }
    for name, (template, content) in renderings.items():
        texts[name] = render(templates / "common" / template, content)
    return Project(
        kernel=spec,
        parameters=values,
        board=board,
        units=units,
        clock_hz=clock,
        files=dict(sorted(texts.items())),
        template_files=(
            *sources,
            templates / kernel / "kernel.toml",
            *(templates / "common" / template for template, _ in renderings.values()),
        ),
    )


def parameters_for(spec: Kernel, compute_units: int) -> dict[str, int]:
    """Return the parameters that follow from the number of units, which share a chip.

    One or two units have the kernel's default room for x; more have 65,536 elements each,
    which are 8 URAM of 4,096 words of 72 bits (UG573), 128 of the 640 of a U50 at 16 units.
    Up to 8 units of kernel lanes have room for 32,768 elements of y each, more for 16,384,
    which is 16 blocks of RAM of 1,024 words of 32 bits (UG573).

    Parameters
    ----------
    spec : Kernel
    compute_units : int

    Examples
    --------
    >>> parameters_for(load_kernel("block"), 16)
    {'x_room': 65536}
    >>> [parameters_for(load_kernel("lanes"), n) for n in (8, 9, 17)]
    [{}, {'y_room': 16384}, {'y_room': 16384}]
    """
    own = {p.name: p for p in spec.parameters}
    chosen = {}
    if "x_room" in own and compute_units > 2:
        chosen["x_room"] = MANY_UNITS_X_ROOM
    if "y_room" in own and compute_units > FEW_UNITS_WITH_Y:
        chosen["y_room"] = MANY_UNITS_Y_ROOM
    return chosen


def render(template: Path, content: Mapping[str, Any]) -> str:
    """Render one template strictly.

    Raises
    ------
    RenderError
        If the template uses a name that `content` lacks, or lacks one that it holds.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # C++ and configuration files, no markup
    )
    source = template.read_text("utf-8")
    try:
        used = jinja2.meta.find_undeclared_variables(environment.parse(source))
        if unused := sorted(set(content) - used):
            raise RenderError(f"{template.name}: {', '.join(unused)} is given and not used.")
        return environment.get_template(template.name).render(content)
    except jinja2.TemplateError as error:
        line = getattr(error, "lineno", None)
        where = template.name if line is None else f"{template.name}, line {line}"
        raise RenderError(f"{where}: {error.message}.") from None


def _source_path(templates: Path, kernel: str, name: str) -> Path:
    for folder in (kernel, "common"):
        path = templates / folder / name
        if path.is_file():
            return path
    raise KernelSpecError(
        f"kernel {kernel} names {name}, which stands in no folder of templates."
    )


def with_ports_for(spec: Kernel, board: Board, compute_units: int) -> Kernel:
    """Return the kernel with one memory interface where its own are too many for the units.

    Each interface has a channel of its own; two on one channel would halve the matrix's
    share of it. Where a design does not close with so many channels, or ports, all
    arguments of a unit come through one interface.
    """
    interfaces = compute_units * len(spec.bundles)
    if interfaces <= min(board.value("max_channels"), board.value("max_ports")):
        return spec
    bundle = spec.bundles[0]
    ports = tuple(replace(port, bundle=bundle, outstanding=None) for port in spec.ports)
    return replace(spec, ports=ports)


def _place_units(spec: Kernel, board: Board, compute_units: int) -> tuple[Unit, ...]:
    """Give every interface of every unit a bank of its own.

    Two interfaces have banks 2i and 2i + 1, which share a memory controller, so that neither
    crosses the switch. The runtime keeps small buffers of its own in bank 0, which would cut
    its room in two.
    """
    if compute_units < 1:
        raise KernelSpecError(f"cu is {compute_units}; it must be at least 1.")
    max_channels = int(board.value("max_channels"))
    if compute_units > max_channels:
        raise KernelSpecError(
            f"cu is {compute_units}; a unit needs a memory channel of its own, and a design "
            f"for {board.title} closes with at most {max_channels}."
        )
    step = len(spec.bundles)
    # The ports are in one region of the chip; many units need the others too.
    slr = board.slr if compute_units <= MAX_UNITS_IN_ONE_SLR else None
    units = []
    for number in range(compute_units):
        banks = {
            bundle: board.bank(step * (1 + number) + i) for i, bundle in enumerate(spec.bundles)
        }
        units.append(Unit(spec.unit(number + 1), slr, banks))
    return tuple(units)
