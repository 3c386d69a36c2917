"""The roofline as a picture: roofs, zones and points, as in Figures 1 and 4 to 6 of the paper.

Vertical is GFLOP/s, horizontal CIA, the computational intensity per access: useful flop per
access. What was measured or published is filled, what was emulated half filled, what is
modelled open; a hairline joins the two views of one product. Each kernel has its marker and
each line its dashes, so the picture is read in grey as well.

References
----------
.. [1] F. Favaro et al., Micromachines 14(11):2030, 2023, sections 2.3, 3.2, 3.3 and 4.3.
.. [2] S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance
   model for multicore architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..figures import Origin
from ..formats.base import WORD_BYTES
from . import canvas
from .calibration import Calibration
from .labels import Anchor, Box, place_labels
from .model import EnergyLines, Roofs, busy_lanes_power_w, energy_lines, roofs
from .points import SERIES, Point

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.text import Text

FIGURE_5_MATRICES = ("chipC0", "gyro_k", "TS2383")
"""A matrix that Block slows down, one that is nearly even, one that it speeds up [1]_."""

_FONT_PT = canvas.SMALLEST_FONT_PT
_CROWDED = 24
"""With more points, or with points of Lanes, lines and zones are named in the legend."""

_ROOM_FOR_TEXT = 1.4
"""Ratio of two roofs from which a line of text stands between them."""

_P1_LINE: dict[str, Any] = {"color": canvas.BLUE, "linewidth": 1.3, "linestyle": "--"}
_P2_LINE: dict[str, Any] = {"color": canvas.VERMILION, "linewidth": 1.3, "linestyle": "-."}
_CAP_LINE: dict[str, Any] = {"color": canvas.PURPLE, "linewidth": 1.5, "linestyle": (0, (1, 1))}
_RED_ZONE = (canvas.VERMILION, 0.30, "////")
_GREEN_ZONE = (canvas.GREEN, 0.16, "")
_RED_TEXT = "red zone (hatched): faster, more energy"
_GREEN_TEXT = "green zone: faster, less energy"

_FILL: Mapping[Origin, str] = {
    "measured": "full",
    "published": "full",
    "emulated": "left",
    "modelled": "none",
}


# Pictures.


def roofline_figure(
    points: Iterable[Point],
    calibration: Calibration,
    *,
    blocks: Sequence[int] = (),
    slice_size: int = 16,
    compute_units: int | Sequence[int] = 1,
    power_cap_w: float = math.inf,
    title: str = "",
    note: str = "",
    height_in: float = 5.4,
) -> Figure:
    """Draw points under the roofs of a calibration.

    Parameters
    ----------
    points : iterable of Point
        None at all draws roofs and zones alone.
    calibration : Calibration
    blocks : sequence of int
        Edges P whose roofs are drawn; by default those of the points, else 16.
    slice_size : int
        L of kernel scalar's peak line.
    compute_units : int or sequence of int
        The fewest have lines and zones of energy, the others roofs alone.
    power_cap_w : float
        Watts that the card may take. Where Block would take more at its access roof, a line
        shows what it reaches at the cap.
    title : str
    note : str
        Goes into the caption.
    height_in : float

    Returns
    -------
    matplotlib Figure
        Save it with `canvas.save`.

    Notes
    -----
    The zones hold the points of the widest P. Red: Block is faster than Scalar at its peak,
    but takes more energy than Scalar would. Green: it gains both.

    Examples
    --------
    >>> from spmv_fpga.roofline.calibration import load_calibration
    >>> axes, = roofline_figure([], load_calibration("paper")).axes
    >>> axes.get_xlabel()
    'CIA: computational intensity per access (useful flop)'
    """
    drawn = list(points)
    edges = tuple(blocks) or _edges(drawn) or (16,)
    asked = (compute_units,) if isinstance(compute_units, int) else compute_units
    fewest, *more = sorted(set(asked))
    by_edge = {P: roofs(calibration, "block", P, fewest) for P in edges}
    lines = energy_lines(calibration, max(edges), slice_size, fewest)
    scaled = [unit_roofs(calibration, max(edges), n, power_cap_w) for n in (fewest, *more)]
    caption = _caption(drawn, calibration, lines, scaled, power_cap_w, note)
    with canvas.style():
        figure = canvas.new_figure(height_in)
        limits = _limits(drawn, [*by_edge.values(), *(s.roofs for s in scaled)], lines)
        axes = _log_axes(figure, caption, title, limits)
        axes.set_xlabel("CIA: computational intensity per access (useful flop)")
        axes.set_ylabel("Performance (GFLOP/s)")
        picture = _Roofline(axes)
        picture.draw_zones(lines, by_edge[max(edges)])
        picture.draw_roofs(by_edge, lines)
        picture.draw_unit_roofs(scaled)
        picture.draw_points(drawn)
        picture.write_caps(scaled, power_cap_w, drawn)
        picture.write_all(lines, by_edge, drawn)
    return figure


@dataclass(frozen=True, kw_only=True)
class UnitRoofs:
    """Roofs of kernel block with a number of units, and what the power cap leaves of them.

    Attributes
    ----------
    compute_units : int
    roofs : Roofs
    power_w : float
        Modelled, at the access roof.
    capped_accesses_per_s : float or None
        Accesses a second at which the modelled power reaches the cap; None where the access
        roof is lower, 0 where idle ports take more than the cap.
    """

    compute_units: int
    roofs: Roofs
    power_w: float
    capped_accesses_per_s: float | None


def unit_roofs(
    calibration: Calibration,
    block: int = 16,
    compute_units: int = 1,
    power_cap_w: float = math.inf,
) -> UnitRoofs:
    """Return the roofs of a number of units, and what reaches the power cap below them.

    Power is idle + units · kernel + slope · bytes a second, so the cap is a rate of
    accesses: a line through the same origin as the access roof.

    Parameters
    ----------
    calibration : Calibration
    block : int
    compute_units : int
    power_cap_w : float

    Examples
    --------
    >>> from spmv_fpga.roofline.calibration import load_calibration
    >>> one = unit_roofs(load_calibration("u50"), compute_units=1, power_cap_w=75.0)
    >>> one.capped_accesses_per_s is None, one.roofs.compute_gflops
    (True, 9.6)
    """
    found = roofs(calibration, "block", block, compute_units)
    lines = energy_lines(calibration, block, compute_units=compute_units)
    over_w = lines.block_power_w - power_cap_w
    slope = calibration.kernel("block", block).power.w_per_byte_per_s.value
    capped = None
    if over_w > 0:
        less = over_w / (slope * found.access_bytes) if slope > 0 else math.inf
        capped = max(found.accesses_per_s - less, 0.0)
    return UnitRoofs(
        compute_units=compute_units,
        roofs=found,
        power_w=lines.block_power_w,
        capped_accesses_per_s=capped,
    )


def figure_1(calibration: Calibration, *, block: int = 16) -> Figure:
    """Draw the idea of a roofline, as the paper's Figure 1, with the roofs of kernel block.

    Two algorithms stand under the roofs: one that memory bounds, one that computing bounds.
    """
    found = roofs(calibration, "block", block)
    bytes_per_s = found.accesses_per_s * WORD_BYTES
    ridge = found.compute_gflops * 1e9 / bytes_per_s
    caption = (
        f"The roofline model. Roofs of kernel block with P = {block}, one channel; "
        f"{_calibration_text(calibration)}."
    )
    with canvas.style():
        figure = canvas.new_figure(4.2)
        x_low, x_high, top = ridge / 24, ridge * 24, found.compute_gflops
        axes = _log_axes(figure, caption, "", (x_low, x_high, top / 20, top * 2))
        axes.set_xlabel("Computational intensity (flop per byte)")
        axes.set_ylabel("Performance (GFLOP/s)")
        axes.axvspan(x_low, ridge, facecolor=canvas.SKY, alpha=0.22, gid="zone-memory", lw=0)
        axes.axvspan(
            ridge, x_high, facecolor=canvas.ORANGE, alpha=0.16, gid="zone-compute", lw=0
        )
        axes.plot(
            [x_low, ridge, x_high], [x_low * bytes_per_s / 1e9, top, top],
            color=canvas.INK, linewidth=2, gid="roof",
        )  # fmt: skip
        picture = _Roofline(axes)
        picture.write(
            f"compute roof: {top:.3g} GFLOP/s",
            x_high,
            top,
            dx=-4,
            dy=4,
            ha="right",
            va="bottom",
        )
        picture.mark_ridge(ridge, top, f"ridge point: {ridge:.2g} flop per byte")
        for number, x, marker in ((1, ridge / 6, "o"), (2, ridge * 4, "s")):
            y = min(top, x * bytes_per_s / 1e9)
            axes.plot(
                [x, x], [top / 20, y], color=canvas.GREY, linewidth=0.8, linestyle=":", zorder=1
            )
            axes.plot(
                [x], [y], marker=marker, color=canvas.VERMILION, markersize=8, linestyle="none",
                gid=f"algorithm-{number}", zorder=5,
            )  # fmt: skip
            picture.write(f"Algorithm {number}", x, y, dx=8, dy=-8, ha="left", va="top")
        picture.write("memory-bound", math.sqrt(x_low * ridge), top * 1.6, ha="center")
        picture.write("compute-bound", math.sqrt(ridge * x_high), top * 1.6, ha="center")
        picture.write_along(
            f"bandwidth roof: {bytes_per_s / 1e9:.3g} GB/s",
            ridge / 5, ridge, bytes_per_s / 1e9,
        )  # fmt: skip
    return figure


def figure_4(calibration: Calibration, *, block: int = 16) -> Figure:
    """Draw the zones of time and energy alone, as the paper's Figure 4."""
    return roofline_figure([], calibration, blocks=(block,), height_in=4.6)


def figure_5(points: Iterable[Point], calibration: Calibration) -> Figure:
    """Draw three matrices, as the paper's Figure 5.

    Parameters
    ----------
    points : iterable of Point
        Those of other matrices than `FIGURE_5_MATRICES`, or with tiles that are not 16×16,
        are left out.
    calibration : Calibration
    """
    chosen = [
        p
        for p in points
        if p.name in FIGURE_5_MATRICES and (p.series == "scalar" or p.parameter == 16)
    ]
    return roofline_figure(chosen, calibration)


def figure_6(points: Iterable[Point], calibration: Calibration, *, note: str = "") -> Figure:
    """Draw kernel block on all matrices, with 8×8 and 16×16 tiles, as the paper's Figure 6.

    Only the widest tiles carry names: a name stands right of or above its narrower tiles.
    """
    blocked = [p for p in points if p.series == "block"]
    widest = max((p.parameter or 0 for p in blocked), default=16)
    named = [replace(p, is_labelled=p.parameter == widest) for p in blocked]
    return roofline_figure(named, calibration, note=note, height_in=7.6)


# What is drawn.


@dataclass(frozen=True)
class _Look:
    title: str
    color: str
    marker: str
    size: float


def _look(point: Point) -> _Look:
    series, parameter = point.series, point.parameter
    if series == "scalar":
        return _Look("Scalar", canvas.BLUE, "o", 6.0)
    if series == "lanes":
        depth = "" if parameter is None else f" depth {parameter}"
        return _Look(f"Lanes{depth}", canvas.INK, "X" if parameter == 16 else "P", 7.0)
    markers = {4: ("<", canvas.PURPLE), 8: ("^", canvas.ORANGE), 32: ("p", canvas.SKY)}
    marker, color = markers.get(parameter or 16, ("s", canvas.VERMILION))
    edge = "" if parameter is None else f" {parameter}×{parameter}"
    if series == "block_max":
        return _Look(f"BlockMax{edge}", canvas.GREEN, "D", 5.0)
    if point.is_least:
        return _Look(f"Block{edge} at least", canvas.GREY, marker, 3.5)
    return _Look(f"Block{edge}", color, marker, 6.0)


def _marker(point: Point) -> dict[str, Any]:
    look = _look(point)
    return {
        "linestyle": "none",
        "marker": look.marker,
        "markersize": look.size,
        "color": look.color,
        "fillstyle": _FILL[point.origin],
        "markerfacecoloralt": "white",
        "markeredgewidth": 1.1 if look.size > 4 else 0.7,
    }


class _Roofline:
    """Draws into axes and remembers where text stands."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.taken: list[Box] = []
        self.lines: list[tuple[tuple[float, float], tuple[float, float]]] = []
        self.gids: set[str] = set()
        self.x_low, self.x_high = axes.get_xlim()
        self.y_low, self.y_high = axes.get_ylim()

    @property
    def _pixels_per_pt(self) -> float:
        return float(self.axes.figure.dpi) / 72

    def _once(self, *parts: str) -> str:
        """Return a name that no other part of the picture has."""
        gid = _gid(*parts)
        while gid in self.gids:
            gid += "_"
        self.gids.add(gid)
        return gid

    # Lines and areas.

    def draw_zones(self, lines: EnergyLines, block: Roofs) -> None:
        """Shade what lies under the roofs of Block and above Scalar's peak."""
        slope, top = block.giga_accesses_per_s, block.compute_gflops
        peak, equal = (min(v, top) for v in (lines.scalar_gflops, lines.equal_energy_gflops))
        if peak < equal:
            self._fill("zone-red", [peak, equal], slope, _RED_ZONE)
        if equal < top:
            self._fill("zone-green", [equal, top], slope, _GREEN_ZONE)

    def _fill(
        self, gid: str, heights: list[float], slope: float, zone: tuple[str, float, str]
    ) -> None:
        low, high = heights
        x = (low / slope, self.x_high, self.x_high, high / slope)
        self.axes.fill(x, (low, low, high, high), gid=gid, zorder=0.5, **_zone_look(*zone))

    def draw_roofs(self, by_edge: Mapping[int, Roofs], lines: EnergyLines) -> None:
        """Draw access and compute roofs, and the two lines of energy."""
        for number, found in enumerate(_distinct(by_edge.values(), "accesses_per_s")):
            top = max(r.compute_gflops for r in by_edge.values())
            end = top / found.giga_accesses_per_s
            start = max(self.x_low, self.y_low / found.giga_accesses_per_s)
            self._line(
                [start, end], [start * found.giga_accesses_per_s, top],
                gid=f"roof-access-{number}", color=canvas.INK, linewidth=1.8,
            )  # fmt: skip
        for P, found in by_edge.items():
            self._line(
                [found.ridge_cia, self.x_high], [found.compute_gflops] * 2,
                gid=f"roof-block{P}", color=canvas.INK, linewidth=1.8,
            )  # fmt: skip
        self._line(
            [self.x_low, self.x_high], [lines.scalar_gflops] * 2,
            gid="line-p1", **_P1_LINE,
        )  # fmt: skip
        self._line(
            [self.x_low, self.x_high], [lines.equal_energy_gflops] * 2,
            gid="line-p2", **_P2_LINE,
        )  # fmt: skip
        self._line(
            [lines.min_cia_energy] * 2, [self.y_low, lines.equal_energy_gflops],
            gid="line-min-cia", color=canvas.GREEN, linewidth=1.1, linestyle=":",
        )  # fmt: skip

    def draw_unit_roofs(self, scaled: Sequence[UnitRoofs]) -> None:
        """Draw the roofs of more units, and where power reaches the cap."""
        tops = [found.roofs.compute_gflops for found in scaled]
        for found, above in zip(scaled[1:], [*tops[2:], math.inf], strict=False):
            top = found.roofs.compute_gflops
            self._slope(
                found.roofs.giga_accesses_per_s, top,
                gid=f"roof-access-x{found.compute_units}", color=canvas.GREY, linewidth=1.1,
            )  # fmt: skip
            self._line(
                [found.roofs.ridge_cia, self.x_high], [top] * 2,
                gid=f"roof-block-x{found.compute_units}", color=canvas.GREY, linewidth=1.1,
            )  # fmt: skip
            is_free = above > _ROOM_FOR_TEXT * top
            self.write(
                f"{found.compute_units} units: {top:.3g} GFLOP/s", self.x_high, top,
                dx=-4, dy=3 if is_free else -3, ha="right", va="bottom" if is_free else "top",
            )  # fmt: skip
        for found in scaled:
            if found.capped_accesses_per_s:
                self._slope(
                    found.capped_accesses_per_s / 1e9, found.roofs.compute_gflops,
                    gid=f"cap-x{found.compute_units}", **_CAP_LINE,
                )  # fmt: skip

    def _slope(self, slope: float, top: float, **how: Any) -> None:
        """Draw `y = slope · x` up to a height."""
        start, end = self._reach(slope, top)
        if start < end:
            self._line([start, end], [start * slope, end * slope], **how)

    def _reach(self, slope: float, top: float) -> tuple[float, float]:
        """Where `y = slope · x` enters the picture, and where it ends at a height."""
        return max(self.x_low, self.y_low / slope), min(top / slope, self.x_high)

    def _line(self, x: list[float], y: list[float], **how: Any) -> None:
        self.axes.plot(x, y, zorder=2, **how)
        self.lines.append(((x[0], y[0]), (x[1], y[1])))

    def draw_points(self, points: Sequence[Point]) -> None:
        """Draw the points; a hairline joins two views of one product."""
        first: dict[tuple[str, str, int | None, int], Point] = {}
        for point in points:
            look = _look(point)
            self.axes.plot(
                [point.cia], [point.gflops], zorder=4, **_marker(point),
                gid=self._once("point", point.origin, *_key_parts(point)),
            )  # fmt: skip
            if point.cia_bounds is not None:
                self.axes.plot(
                    point.cia_bounds, [point.gflops] * 2, color=look.color, linewidth=0.9,
                    marker="|", markersize=4, zorder=3,
                    gid=self._once("bounds", point.origin, *_key_parts(point)),
                )  # fmt: skip
                left, right = ((cia, point.gflops) for cia in point.cia_bounds)
                self.lines.append((left, right))
            other = first.setdefault(point.key, point)
            if other is not point:
                self.axes.plot(
                    [other.cia, point.cia], [other.gflops, point.gflops],
                    color=look.color, linewidth=0.6, zorder=3,
                )  # fmt: skip

    # Text.

    def write_all(
        self, lines: EnergyLines, by_edge: Mapping[int, Roofs], points: Sequence[Point]
    ) -> None:
        """Write what the lines and zones are, the legend, and the names of the points."""
        widest = by_edge[max(by_edge)]
        edges_by_roof: dict[float, list[str]] = {}
        for P, found in by_edge.items():
            edges_by_roof.setdefault(found.compute_gflops, []).append(f"{P}×{P}")
        for top, edges in edges_by_roof.items():
            is_widest = top == widest.compute_gflops
            self.write(
                f"{'compute roof Block ' if is_widest else ''}{', '.join(edges)}: "
                f"{top:.3g} GFLOP/s",
                self.x_high, top, dx=-4, dy=9 if is_widest else 3, ha="right", va="bottom",
            )  # fmt: skip
        self.mark_ridge(
            widest.ridge_cia, widest.compute_gflops,
            f"ridge point: CIA {widest.ridge_cia:.3g}",
        )  # fmt: skip
        for found in _distinct(by_edge.values(), "accesses_per_s"):
            start = max(self.x_low, self.y_low / found.giga_accesses_per_s)
            self.write_along(
                f"access roof: {found.giga_accesses_per_s:.3g} Gaccess/s",
                start, found.ridge_cia, found.giga_accesses_per_s, avoid=points,
            )  # fmt: skip
        self.write(
            f"CIA {lines.min_cia_energy:.3g}: less\nenergy from here",
            lines.min_cia_energy, self.y_low, dx=4, dy=5, ha="left", va="bottom",
        )  # fmt: skip
        # Lanes has nearly the same CIA for all patterns, and the text would stand there.
        if len(points) > _CROWDED or any(p.series == "lanes" for p in points):
            self._write_legend(points, _zone_handles(lines, widest))
        else:
            self._write_zones(lines, widest)
            self._write_legend(points, [])
        self._write_names(points)

    def _write_zones(self, lines: EnergyLines, block: Roofs) -> None:
        self.write(
            _p2_text(lines),
            self.x_high, lines.equal_energy_gflops, dx=-4, dy=3, ha="right", va="bottom",
        )  # fmt: skip
        self.write(
            _p1_text(lines),
            self.x_high, lines.scalar_gflops, dx=-4, dy=-3, ha="right", va="top",
        )  # fmt: skip
        if lines.equal_energy_gflops < block.compute_gflops:
            self.write(
                _GREEN_TEXT, self.x_high, lines.equal_energy_gflops,
                dx=-4, dy=17, ha="right", va="bottom",
            )  # fmt: skip
        if lines.scalar_gflops < lines.equal_energy_gflops:
            self.write(
                _RED_TEXT, self.x_high, lines.scalar_gflops,
                dx=-4, dy=-15, ha="right", va="top",
            )  # fmt: skip

    def write_caps(
        self, scaled: Sequence[UnitRoofs], power_cap_w: float, points: Sequence[Point]
    ) -> None:
        """Write what the lines of the power cap are."""
        for found in scaled:
            if not found.capped_accesses_per_s:
                continue
            slope = found.capped_accesses_per_s / 1e9
            start, end = self._reach(slope, found.roofs.compute_gflops)
            if start < end:
                text = f"{power_cap_w:g} W with {found.compute_units} units"
                self.write_along(text, start, end, slope, avoid=points)

    def mark_ridge(self, x: float, y: float, text: str) -> None:
        """Mark where two roofs meet."""
        self.axes.plot(
            [x], [y], marker="v", markersize=7, color=canvas.INK, linestyle="none", zorder=3,
            gid="ridge",
        )  # fmt: skip
        self.write(text, x, y, dx=-8, ha="right")

    def write(
        self,
        text: str,
        x: float,
        y: float,
        *,
        dx: float = 0.0,
        dy: float = 0.0,
        ha: str = "left",
        va: str = "center",
    ) -> Text:
        """Write text some points away from a place, and keep others off it."""
        written = self.axes.annotate(
            text, (x, y), xytext=(dx, dy), textcoords="offset points", ha=ha, va=va,
            fontsize=_FONT_PT, color=canvas.INK, zorder=5, gid=_gid("text", text),
        )  # fmt: skip
        self.taken.append(Box.of(written.get_window_extent()))
        return written

    def write_along(
        self, text: str, start: float, end: float, slope: float, avoid: Sequence[Point] = ()
    ) -> None:
        """Write text above the line `y = slope · x`, where it covers the least."""
        to_pixels = self.axes.transData.transform
        (x0, y0), (x1, y1) = to_pixels([(start, start * slope), (end, end * slope)])
        angle = math.atan2(y1 - y0, x1 - x0)
        up = (-math.sin(angle), math.cos(angle))
        written = self.axes.annotate(
            text, (start, start * slope), xytext=(3.0 * up[0], 3.0 * up[1]),
            textcoords="offset points", ha="center", va="bottom", fontsize=_FONT_PT,
            color=canvas.INK, zorder=5, gid=_gid("text", text),
        )  # fmt: skip
        length = float(written.get_window_extent().width)
        written.set(rotation=math.degrees(angle), rotation_mode="anchor")
        pixels = [to_pixels((p.cia, p.gflops)) for p in avoid]
        markers = [Box.around(x, y, 6.0) for x, y in pixels]
        near = [Box.around(x, y, 20 * self._pixels_per_pt) for x, y in pixels]
        crossing = [line for line in self.lines if line[0][1] == line[1][1]]

        def covered(part: float) -> tuple[int, int, float]:
            middle = (x0 + part * (x1 - x0), y0 + part * (y1 - y0))
            boxes = self._chain(middle, angle, length)
            ends = [tuple(map(tuple, to_pixels(line))) for line in crossing]
            hits = sum(box.overlaps(m) for box in boxes for m in (*markers, *self.taken))
            hits += sum(box.meets_line(*line) for box in boxes for line in ends)
            return hits, sum(box.overlaps(m) for box in boxes for m in near), abs(part - 0.5)

        margin = 0.5 * length / math.hypot(x1 - x0, y1 - y0)
        parts = [p / 40 for p in range(41) if margin < p / 40 < 1 - margin] or [0.5]
        part = min(parts, key=covered)
        middle = math.exp((1 - part) * math.log(start) + part * math.log(end))
        written.xy = (middle, middle * slope)
        self.taken += self._chain(tuple(to_pixels(written.xy)), angle, length)

    def _chain(self, middle: tuple[float, float], angle: float, length: float) -> list[Box]:
        """Small boxes along a slanted line of text: its upright frame holds much more."""
        height = 1.4 * _FONT_PT * self._pixels_per_pt
        away = 3.0 * self._pixels_per_pt + height / 2
        x, y = middle[0] - away * math.sin(angle), middle[1] + away * math.cos(angle)
        count = max(2, round(length / height))
        along = [(i / count - 0.5) * length for i in range(count + 1)]
        return [
            Box.around(x + a * math.cos(angle), y + a * math.sin(angle), 0.6 * height)
            for a in along
        ]

    def _write_legend(self, points: Sequence[Point], others: Sequence[Artist]) -> None:
        from matplotlib.lines import Line2D

        handles: list[Line2D] = []
        seen = set()
        for point in sorted(points, key=lambda p: (SERIES.index(p.series), p.parameter or 0)):
            look = _look(point)
            entry = (look.title, point.origin)
            if entry in seen:
                continue
            seen.add(entry)
            label = f"{look.title}, {point.origin}"
            handles.append(Line2D([], [], label=label, **_marker(point)))
        if not handles:
            return
        legend = self.axes.legend(
            handles=[*handles, *others], loc="upper left", framealpha=1.0,
            edgecolor=canvas.PALE, borderpad=0.5, handletextpad=0.3, labelspacing=0.35,
        )  # fmt: skip
        self.taken.append(Box.of(legend.get_window_extent()))

    def _write_names(self, points: Sequence[Point]) -> None:
        named: dict[tuple[str, str, int | None, int], Point] = {}
        for point in points:
            if point.is_labelled and (point.key not in named or point.origin != "modelled"):
                named[point.key] = point
        _, left_out = place_labels(
            self.axes,
            [
                Anchor(p.label, p.cia, p.gflops, _gid("label", *_key_parts(p)))
                for p in named.values()
            ],
            obstacles=self.taken,
            markers=[(p.cia, p.gflops) for p in points if not p.is_least],
            lines=self.lines,
            font_pt=_FONT_PT,
            color=canvas.INK,
        )
        if left_out:
            self.axes.text(
                0.99, 0.98, f"no room for the names of {', '.join(left_out)}", ha="right",
                va="top", transform=self.axes.transAxes, fontsize=_FONT_PT, color=canvas.GREY,
            )  # fmt: skip


def _zone_handles(lines: EnergyLines, block: Roofs) -> list[Artist]:
    """Entries of the legend for lines and zones, where the picture has no room for them."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = [
        Line2D([], [], label=_p2_text(lines), **_P2_LINE),
        Line2D([], [], label=_p1_text(lines), **_P1_LINE),
    ]
    if lines.equal_energy_gflops < block.compute_gflops:
        handles.append(Patch(label=_GREEN_TEXT, **_zone_look(*_GREEN_ZONE)))
    if lines.scalar_gflops < lines.equal_energy_gflops:
        handles.append(Patch(label=_RED_TEXT, **_zone_look(*_RED_ZONE)))
    return handles


def _p1_text(lines: EnergyLines) -> str:
    return f"peak of Scalar: {lines.scalar_gflops:.3g} GFLOP/s"


def _p2_text(lines: EnergyLines) -> str:
    return f"P2/P1 × peak of Scalar: {lines.equal_energy_gflops:.3g} GFLOP/s"


def _zone_look(color: str, alpha: float, hatch: str) -> dict[str, Any]:
    from matplotlib.colors import to_rgba

    return {
        "facecolor": to_rgba(color, alpha),
        "hatch": hatch or None,
        "edgecolor": to_rgba(color, 0.55 if hatch else 0.0),
        "linewidth": 0,
    }


def _log_axes(
    figure: Figure, caption: str, title: str, limits: tuple[float, float, float, float]
) -> Axes:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    canvas.write_caption(figure, caption)
    x_low, x_high, y_low, y_high = limits
    width, height = figure.get_figwidth(), figure.get_figheight()
    bottom = canvas.caption_room(figure, caption) + 0.48 / height
    top = 1 - (0.34 if title else 0.14) / height
    axes = figure.add_axes((0.62 / width, bottom, 1 - 0.80 / width, top - bottom))
    axes.set(xscale="log", yscale="log", xlim=(x_low, x_high), ylim=(y_low, y_high))
    for axis, ticks in (
        (axes.xaxis, _ticks(x_low, x_high)),
        (axes.yaxis, _ticks(y_low, y_high)),
    ):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.grid(visible=True, color=canvas.PALE, linewidth=0.6)
    axes.set_axisbelow(True)
    if title:
        axes.set_title(title, loc="left")
    return axes


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times the powers of ten between two bounds.

    >>> _ticks(0.3, 6.0)
    [0.5, 1.0, 2.0, 5.0]
    """
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = (float(f"{m}e{k}") for k in decades for m in (1, 2, 5))
    return [tick for tick in ticks if low <= tick <= high]


def _limits(
    points: Sequence[Point], found: Sequence[Roofs], lines: EnergyLines
) -> tuple[float, float, float, float]:
    """Bounds of both axes: all points, both zones, the ridge, and room for text."""
    cias = [cia for p in points for cia in (p.cia, *(p.cia_bounds or ()))]
    cias.append(lines.min_cia_energy)
    rates = [p.gflops for p in points] + [lines.scalar_gflops]
    ridge = max(r.ridge_cia for r in found)
    top = max(r.compute_gflops for r in found)
    return (
        min(cias) / 1.6,
        max(1.8 * ridge, 1.5 * max(cias)),
        min(rates) / (1.9 if points else 4.0),
        max(2.2 * top, 1.5 * max(rates)),
    )


def _edges(points: Sequence[Point]) -> tuple[int, ...]:
    blocked = [p for p in points if p.series in ("block", "block_max")]
    return tuple(sorted({p.parameter for p in blocked if p.parameter}))


def _distinct(found: Iterable[Roofs], name: str) -> list[Roofs]:
    return list({getattr(r, name): r for r in found}.values())


def _caption(
    points: Sequence[Point],
    calibration: Calibration,
    lines: EnergyLines,
    scaled: Sequence[UnitRoofs],
    power_cap_w: float,
    note: str,
) -> str:
    fewest = scaled[0].compute_units
    units = "one compute unit" if fewest == 1 else f"{fewest} compute units"
    origins = {p.origin for p in points}
    fills = {
        "Filled": sorted(origins & {"measured", "published"}),
        "Half filled": sorted(origins & {"emulated"}),
        "Open": sorted(origins & {"modelled"}),
    }
    scalar, block = (roofs(calibration, kernel) for kernel in ("scalar", "block"))
    has_scalar = any(p.series == "scalar" for p in points)
    is_apart = has_scalar and scalar.access_bytes != block.access_bytes
    marks = [
        f"{fill} points are {' or '.join(names)}" for fill, names in fills.items() if names
    ]
    parts = [
        f"Lines and zones are modelled: {_calibration_text(calibration)}, {units}",
        f"Power of Scalar P1 = {lines.scalar_power_w:.3g} W, of Block "
        f"P2 = {lines.block_power_w:.3g} W",
        "In both zones Block is faster than the peak of Scalar",
        *_units_text(scaled, power_cap_w),
        "Gaccess/s: 10⁹ accesses of Block a second",
        is_apart
        and f"CIA has two scales: an access of Scalar is {scalar.access_bytes} bytes, one of "
        f"Block {block.access_bytes}; the access roof is that of Block",
        *_lanes_text(points, calibration, scaled[0]),
        *marks,
        any(p.cia_bounds for p in points)
        and "Bars: where the point may be, as the density is published in whole per cent",
        any(p.is_least for p in points)
        and "At least: as if something stood in all four 8×8 tiles of each 16×16 tile; "
        "the real number of 8×8 tiles is not known",
        note.rstrip("."),
    ]
    return ". ".join(part for part in parts if part) + "."


def _lanes_text(
    points: Sequence[Point], calibration: Calibration, block: UnitRoofs
) -> list[str]:
    """Say how far roofs, lines and zones, which are of Block, hold for Lanes."""
    depths = sorted({p.parameter or 0 for p in points if p.series == "lanes"})
    if not depths:
        return []
    found = roofs(calibration, "lanes", depths[0], block.compute_units)
    power_w = busy_lanes_power_w(calibration, depths[0], block.compute_units)
    own = (
        "Lanes has the same roofs"
        if found == block.roofs
        else f"Roofs of Lanes, not drawn: {found.compute_gflops:.3g} GFLOP/s and "
        f"{found.giga_accesses_per_s:.3g} Gaccess/s"
    )
    return [f"{own}; an access is {found.access_bytes} bytes, its power {power_w:.3g} W"]


def _units_text(scaled: Sequence[UnitRoofs], power_cap_w: float) -> list[str]:
    """Say what more units take, and what the cap leaves of them."""
    texts = []
    if len(scaled) > 1:
        powers = ", ".join(f"{s.compute_units}: {s.power_w:.3g} W" for s in scaled[1:])
        texts.append(f"Grey: roofs of more units, with their P2, {powers}")
    capped = [s for s in scaled if s.capped_accesses_per_s is not None]
    drawn = [str(s.compute_units) for s in capped if s.capped_accesses_per_s]
    beyond = [str(s.compute_units) for s in capped if not s.capped_accesses_per_s]
    if drawn:
        texts.append(
            f"Dotted: power reaches the cap of {power_cap_w:g} W, with {', '.join(drawn)} units"
        )
    if beyond:
        texts.append(
            f"With {', '.join(beyond)} units it is above the cap of {power_cap_w:g} W even "
            "without traffic"
        )
    return texts


def _key_parts(point: Point) -> list[str]:
    """Return what names a point in the picture; one unit goes without saying."""
    *parts, compute_units = map(str, point.key)
    return parts if point.compute_units == 1 else [*parts, f"x{compute_units}"]


def _calibration_text(calibration: Calibration) -> str:
    return f"calibration {calibration.name}, {calibration.title}"


def _gid(*parts: str) -> str:
    """Return a name for a part of a picture that is also a valid id in SVG."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "_", "-".join(parts))
