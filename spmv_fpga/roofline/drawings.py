"""Drawings of what the code itself holds: a small matrix in both formats, a kernel's data flow.

Nothing here is drawn by hand. The formats are drawn from the arrays of `SlicedEll` and
`BlockedEll`, the data flow from the `SPMV_STREAM` and `SPMV_PROCESS` lines of the kernel's
header, so a drawing cannot say what the code does not do.

References
----------
.. [1] F. Favaro et al., Micromachines 14(11):2030, 2023, Figures 2 and 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array

from ..errors import KernelSpecError
from ..formats import BlockedEll, SlicedEll
from ..formats.base import PADDING_BITS
from ..kernels import Header, HeaderStream, load_kernel, read_header
from . import canvas

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FONT_PT = canvas.SMALLEST_FONT_PT

# An 8×8 matrix with every case: full and sparse tiles, rows of unlike length, tiles that are
# not there. Its entries are 1, 2, 3, … row by row.
_EXAMPLE_COLUMNS = ((0, 1), (0, 1, 2), (2, 3, 5), (3,), (4,), (4, 5), (6,), (6, 7))
_EXAMPLE_EDGE = 4
"""L and P of the drawing."""


# Figure 2: the formats.


def example_matrix() -> Any:
    """Return the small matrix of the drawing: 8×8, entries 1, 2, 3, … row by row.

    >>> example_matrix().shape, example_matrix().nnz
    ((8, 8), 15)
    """
    rows = [i for i, cols in enumerate(_EXAMPLE_COLUMNS) for _ in cols]
    cols = [j for columns in _EXAMPLE_COLUMNS for j in columns]
    values = np.arange(1, len(rows) + 1, dtype=np.float32)
    size = len(_EXAMPLE_COLUMNS)
    return coo_array((values, (rows, cols)), shape=(size, size)).tocsr()


def figure_2() -> Figure:
    """Draw a small matrix in both formats, in the manner of the paper's Figure 2 [1]_."""
    edge = _EXAMPLE_EDGE
    A = example_matrix()
    sliced = SlicedEll.from_csr(A, slice_size=edge)
    blocked = BlockedEll.from_csr(A, block=edge)
    caption = (
        f"One matrix, {A.shape[0]}×{A.shape[1]} with {A.nnz} entries, as kernels scalar and "
        f"block store it, L = P = {edge}. Numbers name entries; hatched slots are padding. "
        f"Sliced ELL stores {sliced.num_stored} slots, density {sliced.density:.2f}; Blocked "
        f"ELL {blocked.num_stored}, density {blocked.density:.2f}."
    )
    with canvas.style():
        figure = canvas.new_figure(5.3)
        canvas.write_caption(figure, caption)
        bottom = canvas.caption_room(figure, caption)
        axes = figure.add_axes((0.0, bottom, 1.0, 1 - bottom))
        # One unit is a cell, on both axes.
        width = 29.0
        height = width * figure.get_figheight() * (1 - bottom) / figure.get_figwidth()
        axes.set(xlim=(0, width), ylim=(height, 0))
        axes.set_axis_off()
        cells = _Cells(axes)
        _draw_matrix(cells, A, blocked, 0.8, 1.6)
        _draw_sliced(cells, sliced, 11.6, 1.6)
        _draw_blocked(cells, blocked, 0.8, 13.3)
    return figure


class _Cells:
    """Draws arrays as rows of squares."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.numbers = count()

    def draw(self, x: float, y: float, text: str, *, is_padding: bool, color: str) -> None:
        """Draw a square with its text; a padding slot is hatched and empty."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(
            Rectangle(
                (x, y), 1, 1, facecolor=canvas.PALE if is_padding else color,
                hatch="////" if is_padding else None, edgecolor=canvas.GREY, linewidth=0.6,
                gid=f"{'padding' if is_padding else 'cell'}-{next(self.numbers)}",
            )
        )  # fmt: skip
        if not is_padding:
            self.write(x + 0.5, y + 0.5, text, ha="center", va="center")

    def strip(self, x: float, y: float, title: str, values: Sequence[object]) -> None:
        """Draw a named array of numbers."""
        self.write(x, y + 0.5, title, va="center", ha="right")
        for k, value in enumerate(values):
            self.draw(x + 0.3 + k, y, str(value), is_padding=False, color="white")

    def write(self, x: float, y: float, text: str, **how: Any) -> None:
        """Write text at a place."""
        self.axes.text(x, y, text, **{"fontsize": _FONT_PT, "color": canvas.INK, **how})

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """Draw a heavy frame."""
        from matplotlib.patches import Rectangle

        self.axes.add_patch(
            Rectangle((x, y), width, height, fill=False, edgecolor=canvas.INK, linewidth=1.6)
        )


# Two tints for strips of rows: told apart in grey as well.
_TINTS = ("#CDE5F3", "#FBE3B5")


def _draw_matrix(cells: _Cells, A: Any, blocked: BlockedEll, x: float, y: float) -> None:
    m, n = A.shape
    P = blocked.block
    cells.write(x, y - 0.6, "The matrix", fontsize=9.5, weight="bold")
    dense = A.toarray()
    for i in range(m):
        for j in range(n):
            filled = dense[i, j] != 0
            color = _TINTS[i // P % 2] if filled else "white"
            text = f"{dense[i, j]:.0f}" if filled else ""
            cells.draw(x + j, y + i, text, is_padding=False, color=color)
    block_row = np.repeat(np.arange(blocked.num_block_rows), blocked.blocks_per_row)
    for row, col in zip(block_row.tolist(), blocked.block_cols.tolist(), strict=True):
        cells.frame(x + col * P, y + row * P, P, P)
    cells.write(x, y + m + 0.6, "Frames: tiles that hold an entry.\nTints: slices, block rows.",
                va="top")  # fmt: skip


def _draw_sliced(cells: _Cells, fmt: SlicedEll, x: float, y: float) -> None:
    L = fmt.slice_size
    cells.write(x, y - 0.6, f"Sliced ELL, L = {L} (kernel scalar)", fontsize=9.5, weight="bold")
    is_padding = (fmt.values.view(np.uint32) == PADDING_BITS).reshape(-1, L)
    values = fmt.values.reshape(-1, L)
    first = 0
    left = x
    for s, width in enumerate(fmt.slice_widths.tolist()):
        cells.write(left, y + 0.2, f"slice {s}", va="bottom")
        for k in range(width):
            for lane in range(L):
                cells.draw(
                    left + k, y + 0.5 + lane, f"{values[first + k, lane]:.0f}",
                    is_padding=bool(is_padding[first + k, lane]), color=_TINTS[s % 2],
                )  # fmt: skip
        cells.frame(left, y + 0.5, width, L)
        first += width
        left += width + 1.2
    cells.write(left, y + 0.5, "In memory slot-column by\nslot-column, so that L\n"
                "neighbours belong to\nL rows.", va="top")  # fmt: skip
    # The arrays in memory's order, a line for each slice.
    top, label = y + L + 1.5, x + 3.6
    slot = 0
    for s, width in enumerate(fmt.slice_widths.tolist()):
        cells.write(label, top + 0.5, f"values of slice {s}", va="center", ha="right")
        cells.write(label, top + 1.5, "col_indices", va="center", ha="right")
        for k in range(width * L):
            hidden = bool(is_padding.ravel()[slot])
            value, column = f"{fmt.values[slot]:.0f}", f"{fmt.col_indices[slot]}"
            cells.draw(label + 0.3 + k, top, value, is_padding=hidden, color=_TINTS[s % 2])
            cells.draw(label + 0.3 + k, top + 1, column, is_padding=hidden, color="white")
            slot += 1
        top += 2.4
    cells.strip(label, top, "slice_widths", fmt.slice_widths.tolist())


def _draw_blocked(cells: _Cells, fmt: BlockedEll, x: float, y: float) -> None:
    P = fmt.block
    cells.write(x, y - 0.6, f"Blocked ELL, P = {P} (kernel block)", fontsize=9.5, weight="bold")
    is_padding = fmt.values.view(np.uint32) == PADDING_BITS
    tile, left = 0, x
    for block_row, num_tiles in enumerate(fmt.blocks_per_row.tolist()):
        cells.write(left, y + 0.2, f"block row {block_row}", va="bottom")
        for _ in range(num_tiles):
            for i in range(P):
                for j in range(P):
                    cells.draw(
                        left + j, y + 0.5 + i, f"{fmt.values[tile, i, j]:.0f}",
                        is_padding=bool(is_padding[tile, i, j]), color=_TINTS[block_row % 2],
                    )  # fmt: skip
            cells.frame(left, y + 0.5, P, P)
            left += P + 0.4
            tile += 1
        left += 0.8
    cells.write(left, y + 0.5, "Each tile is dense\nand lies in memory\nrow by row.", va="top")
    below = y + P + 1.3
    cells.strip(x + 4.4, below, "block_cols", fmt.block_cols.tolist())
    cells.strip(x + 13.6, below, "blocks_per_row", fmt.blocks_per_row.tolist())


# Figure 3: the data flow.


@dataclass(frozen=True)
class Stream:
    """A FIFO between two processes.

    Attributes
    ----------
    name, element : str
        As the header has them.
    depth : str
        Elements that it holds; the constant's name where the number follows from a parameter.
    writer, reader : int
        Numbers of the processes at its ends.
    """

    name: str
    element: str
    depth: str
    writer: int
    reader: int


@dataclass(frozen=True)
class DataFlow:
    """The processes of a kernel and what joins them.

    Attributes
    ----------
    kernel : str
    processes : tuple of str
        Functions, in the order of the header.
    streams : tuple of Stream
    ports : dict of str to int
        Process that each memory port belongs to.
    outputs : tuple of str
        Ports that are written.
    """

    kernel: str
    processes: tuple[str, ...]
    streams: tuple[Stream, ...]
    ports: dict[str, int]
    outputs: tuple[str, ...]

    def depth_of(self) -> tuple[int, ...]:
        """Return how many processes at most stand before each one."""
        levels = [0] * len(self.processes)
        for stream in sorted(self.streams, key=lambda s: s.writer):
            levels[stream.reader] = max(levels[stream.reader], levels[stream.writer] + 1)
        return tuple(levels)


@cache
def data_flow(kernel: str) -> DataFlow:
    """Read a kernel's data flow from its header.

    Parameters
    ----------
    kernel : str
        Name of a kernel's folder.

    Raises
    ------
    KernelSpecError
        If a stream does not join exactly two processes, the earlier to the later.

    Examples
    --------
    >>> flow = data_flow("block")
    >>> flow.processes[0], flow.processes[-1], len(flow.streams)
    ('read_inputs', 'write_y', 12)
    """
    header = read_header(kernel)
    calls = header.processes
    streams = tuple(_stream(stream, header, kernel) for stream in header.streams)
    ports = load_kernel(kernel).ports
    return DataFlow(
        kernel=kernel,
        processes=tuple(call[0] for call in calls),
        streams=streams,
        ports={
            port.name: number
            for port in ports
            for number, call in enumerate(calls)
            if port.name in call[1:]
        },
        outputs=tuple(port.name for port in ports if port.direction == "write"),
    )


def _stream(stream: HeaderStream, header: Header, kernel: str) -> Stream:
    """Find the ends of a stream: in a data-flow region the writer stands before the reader."""
    name, depth = stream.name, stream.depth
    users = [number for number, call in enumerate(header.processes) if name in call[1:]]
    if len(users) != 2:
        raise KernelSpecError(
            f"{kernel}.hpp: stream {name} is used by {len(users)} processes; it must join two."
        )
    constant = re.search(rf"\b{re.escape(depth)}\s*=\s*(\d+)\s*;", header.text)
    # One that follows from a parameter is known by its name only.
    held = depth if depth.isdigit() or constant is None else constant.group(1)
    return Stream(name, stream.c_type.removeprefix("std::"), held, *users)


def figure_3(kernel: str = "block") -> Figure:
    """Draw a kernel's data flow, in the manner of the paper's Figure 3 [1]_.

    Parameters
    ----------
    kernel : str
    """
    flow = data_flow(kernel)
    plan = plan_of(flow)
    caption = (
        f"Data flow of kernel {kernel}, read from {kernel}.hpp: {len(flow.processes)} "
        f"processes (boxes) run side by side, joined by {len(flow.streams)} streams (rounded; "
        "element × depth, by its name where it follows from a parameter). Ports of the "
        "card's memory are yellow."
    )
    with canvas.style():
        rows = plan.bottom - plan.top + 1.0
        figure = canvas.new_figure(0.42 * rows + 0.5)
        canvas.write_caption(figure, caption)
        bottom = canvas.caption_room(figure, caption)
        axes = figure.add_axes((0.0, bottom, 1.0, 1 - bottom))
        axes.set(
            xlim=(plan.left - 0.7, plan.right + 0.7), ylim=(plan.bottom + 0.5, plan.top - 0.5)
        )
        axes.set_axis_off()
        _draw_plan(axes, flow, plan)
    return figure


@dataclass(frozen=True)
class Plan:
    """Where the nodes of a data flow stand: (column, row), rows downwards.

    Attributes
    ----------
    processes, streams : tuple of (float, float)
    ports : dict of str to (float, float)
    """

    processes: tuple[tuple[float, float], ...]
    streams: tuple[tuple[float, float], ...]
    ports: dict[str, tuple[float, float]]

    @property
    def _all(self) -> list[tuple[float, float]]:
        return [*self.processes, *self.streams, *self.ports.values()]

    @property
    def left(self) -> float:
        """Leftmost column."""
        return min(column for column, _ in self._all)

    @property
    def right(self) -> float:
        """Rightmost column."""
        return max(column for column, _ in self._all)

    @property
    def top(self) -> float:
        """Highest row, the least number."""
        return min(row for _, row in self._all)

    @property
    def bottom(self) -> float:
        """Lowest row."""
        return max(row for _, row in self._all)


def plan_of(flow: DataFlow) -> Plan:
    """Place processes on even rows and streams between them.

    Streams to the next row stand in the middle. Those that pass a process get a column of
    their own beside it, so that no line crosses a box; ports stand on the right.
    """
    levels = flow.depth_of()
    columns = [0.0] * len(levels)
    for level in set(levels):
        members = [i for i, own in enumerate(levels) if own == level]
        for k, i in enumerate(members):
            columns[i] = 1.1 * (k - (len(members) - 1) / 2)
    processes = tuple((columns[i], 2.0 * levels[i]) for i in range(len(levels)))

    spans = [levels[s.reader] - levels[s.writer] for s in flow.streams]
    places: list[tuple[float, float]] = [(0.0, 0.0)] * len(flow.streams)
    for level in set(levels):
        short = [
            k for k, s in enumerate(flow.streams) if spans[k] == 1 and levels[s.writer] == level
        ]
        middle = [
            max(columns[flow.streams[k].writer], columns[flow.streams[k].reader], key=abs)
            for k in short
        ]
        is_shared = len(set(middle)) < len(middle)
        for number, k in enumerate(short):
            spread = 1.1 * (number - (len(short) - 1) / 2)
            places[k] = (spread if is_shared else middle[number], 2.0 * level + 1)
    boxes = [*processes, *(places[k] for k, span in enumerate(spans) if span == 1)]
    for k, place in _beside(flow, levels, boxes).items():
        places[k] = place

    ports = {}
    first = [n for n, p in flow.ports.items() if levels[p] == 0 and n not in flow.outputs]
    for name, process in flow.ports.items():
        column, row = processes[process]
        if name in flow.outputs:
            ports[name] = (column, row + 1.2)
        elif name in first:  # side by side above the first process
            ports[name] = (column + 1.4 * (first.index(name) - (len(first) - 1) / 2), row - 1.2)
        else:
            ports[name] = (column + 1.3, row)
    return Plan(processes, tuple(places), ports)


_MOST_ON_ONE_SIDE = 3
_BOX_TO_BOX, _LINE_TO_BOX, _LINE_TO_LINE = 1.1, 0.6, 0.3
"""Columns between the middles of what must not touch."""
_STEP = 0.05


def _beside(
    flow: DataFlow, levels: Sequence[int], boxes: Sequence[tuple[float, float]]
) -> dict[int, tuple[float, float]]:
    """Place the streams that pass a process, the shortest nearest; many take both sides."""
    spans = [levels[s.reader] - levels[s.writer] for s in flow.streams]
    passing = sorted((k for k, span in enumerate(spans) if span > 1), key=lambda k: spans[k])
    sides = (-1, 1) if len(passing) > _MOST_ON_ONE_SIDE else (-1,)
    boxes = list(boxes)
    lines: list[tuple[float, float, float]] = []
    places = {}
    for number, k in enumerate(passing):
        stream = flow.streams[k]
        top, end = 2.0 * levels[stream.writer], 2.0 * levels[stream.reader]
        side = sides[number % len(sides)]
        free = (side * _STEP * step for step in count(1))
        column = next(c for c in free if _is_free(c, top, end, boxes, lines))
        places[k] = (column, top + 1)
        boxes.append(places[k])
        lines.append((column, top, end))
    return places


def _is_free(
    column: float,
    top: float,
    end: float,
    boxes: Sequence[tuple[float, float]],
    lines: Sequence[tuple[float, float, float]],
) -> bool:
    """Whether a line from a row to another, with its box below the first, touches nothing."""
    own = top + 1

    def is_clear(other: float, room: float) -> bool:
        return abs(column - other) > room - _STEP / 2

    return all(
        is_clear(at, _BOX_TO_BOX if row == own else _LINE_TO_BOX)
        for at, row in boxes
        if top <= row <= end
    ) and all(
        is_clear(at, _LINE_TO_BOX if first < own < last else _LINE_TO_LINE)
        for at, first, last in lines
        if first <= end and top <= last
    )


def _draw_plan(axes: Axes, flow: DataFlow, plan: Plan) -> None:
    boxes = [
        _node(axes, place, name, facecolor=_TINTS[0], pad_pt=3.6, gid=f"process-{number}")
        for number, (name, place) in enumerate(zip(flow.processes, plan.processes, strict=True))
    ]
    for stream, place in zip(flow.streams, plan.streams, strict=True):
        text = f"{stream.name}\n{stream.element} × {stream.depth}"
        own = _node(
            axes, place, text, facecolor="white", pad_pt=2.0, gid=f"stream-{stream.name}"
        )
        writer, reader = boxes[stream.writer], boxes[stream.reader]
        if reader.row - writer.row > 2:  # past a process: round it
            start, end = (
                (node.left if own.column < node.column else node.right)
                for node in (writer, reader)
            )
            _line(axes, [start, (own.column, writer.row), own.top])
            _arrow(axes, [own.bottom, (own.column, reader.row), end])
        else:
            _line(axes, [writer.bottom, own.top])
            _arrow(axes, [own.bottom, reader.top])
    for name, place in plan.ports.items():
        own = _node(axes, place, f"{name} (HBM)", facecolor=_TINTS[1], pad_pt=2.8,
                    gid=f"port-{name}")  # fmt: skip
        process = boxes[flow.ports[name]]
        if name in flow.outputs:
            _arrow(axes, [process.bottom, own.top])
        elif own.row == process.row:
            _arrow(axes, [own.left, process.right])
        else:
            _arrow(axes, [own.bottom, process.top])


@dataclass(frozen=True)
class _Node:
    """A box of the drawing, in the units of the axes."""

    column: float
    row: float
    half_width: float
    half_height: float

    @property
    def left(self) -> tuple[float, float]:
        return self.column - self.half_width, self.row

    @property
    def right(self) -> tuple[float, float]:
        return self.column + self.half_width, self.row

    @property
    def top(self) -> tuple[float, float]:
        return self.column, self.row - self.half_height

    @property
    def bottom(self) -> tuple[float, float]:
        return self.column, self.row + self.half_height


def _node(
    axes: Axes,
    place: tuple[float, float],
    text: str,
    *,
    facecolor: str,
    pad_pt: float,
    gid: str,
) -> _Node:
    is_stream = gid.startswith("stream")
    style = "round,rounding_size=0.7" if is_stream else "square"
    written = axes.text(
        *place, text, ha="center", va="center", fontsize=_FONT_PT, color=canvas.INK, gid=gid,
        weight="bold" if gid.startswith("process") else "normal", linespacing=1.05, zorder=3,
        bbox={
            "boxstyle": f"{style},pad={pad_pt / _FONT_PT}", "facecolor": facecolor,
            "edgecolor": canvas.INK, "linewidth": 0.8,
        },
    )  # fmt: skip
    pad = pad_pt * float(axes.figure.dpi) / 72
    extent = written.get_window_extent().padded(pad)
    (x0, y0), (x1, y1) = axes.transData.inverted().transform(extent.get_points())
    return _Node(*place, abs(x1 - x0) / 2, abs(y1 - y0) / 2)


def _line(axes: Axes, path: Sequence[tuple[float, float]]) -> None:
    x, y = zip(*path, strict=True)
    axes.plot(x, y, color=canvas.INK, linewidth=0.9, zorder=2)


def _arrow(axes: Axes, path: Sequence[tuple[float, float]]) -> None:
    _line(axes, path[:-1])
    axes.annotate(
        "", path[-1], xytext=path[-2], zorder=2,
        arrowprops={
            "arrowstyle": "-|>", "color": canvas.INK, "linewidth": 0.9, "shrinkA": 0,
            "shrinkB": 0, "mutation_scale": 8,
        },
    )  # fmt: skip
