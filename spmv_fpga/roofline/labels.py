"""Labels beside points, placed so that they cover neither each other nor anything else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .canvas import GREY

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.text import Annotation
    from matplotlib.transforms import Bbox

_DISTANCES_PT = (3.0, 7.0, 12.0, 18.0, 26.0, 36.0, 48.0, 62.0, 78.0, 96.0, 120.0, 150.0)
_DIRECTIONS = 24
_LEADER_FROM_PT = 6.0
"""Labels that are farther away than this get a line to their point."""
_MARGIN_PT = 1.5
_ROUNDS = 4

# What an ugliness costs, as points of distance.
_COST_CROSSES_LINE = 14.0
_COST_CROSSES_LEADER = 60.0
_COST_OVER_MARKER = 10.0
_COST_LEADER_OVER_LABEL = 200.0


Pixel = tuple[float, float]
Line = tuple[Pixel, Pixel]


@dataclass(frozen=True)
class Box:
    """A rectangle in the pixels of a figure."""

    x0: float
    y0: float
    x1: float
    y1: float

    @classmethod
    def of(cls, box: Bbox) -> Box:
        """Return the rectangle of a matplotlib box."""
        return cls(float(box.x0), float(box.y0), float(box.x1), float(box.y1))

    @classmethod
    def around(cls, x: float, y: float, radius: float) -> Box:
        """Return a square round a point.

        >>> Box.around(5.0, 5.0, 1.0)
        Box(x0=4.0, y0=4.0, x1=6.0, y1=6.0)
        """
        return cls(x - radius, y - radius, x + radius, y + radius)

    def grown(self, margin: float) -> Box:
        """Return the rectangle with a margin on every side."""
        return Box(self.x0 - margin, self.y0 - margin, self.x1 + margin, self.y1 + margin)

    def overlaps(self, other: Box) -> bool:
        """Whether the two have an area in common.

        >>> Box(0, 0, 2, 2).overlaps(Box(1, 1, 3, 3)), Box(0, 0, 1, 1).overlaps(Box(1, 0, 2, 1))
        (True, False)
        """
        return (
            self.x0 < other.x1
            and other.x0 < self.x1
            and self.y0 < other.y1
            and other.y0 < self.y1
        )

    def contains(self, other: Box) -> bool:
        """Whether the other lies within."""
        return (
            self.x0 <= other.x0
            and other.x1 <= self.x1
            and self.y0 <= other.y0
            and other.y1 <= self.y1
        )

    def meets_line(self, start: Pixel, end: Pixel) -> bool:
        """Whether a straight line passes through the rectangle.

        >>> box = Box(1, 1, 2, 2)
        >>> box.meets_line((0, 0), (3, 3)), box.meets_line((0, 0), (3, 0))
        (True, False)
        """
        enter, leave = 0.0, 1.0
        for low, high, a, b in (
            (self.x0, self.x1, start[0], end[0]),
            (self.y0, self.y1, start[1], end[1]),
        ):
            if a == b:
                if not low <= a <= high:
                    return False
                continue
            first, last = sorted(((low - a) / (b - a), (high - a) / (b - a)))
            enter, leave = max(enter, first), min(leave, last)
        return enter < leave


@dataclass(frozen=True)
class Anchor:
    """A point, in the units of the axes, and what is written beside it.

    Attributes
    ----------
    text : str
    x, y : float
    gid : str
        Name of the label within the picture.
    """

    text: str
    x: float
    y: float
    gid: str = ""


def place_labels(
    axes: Axes,
    anchors: Sequence[Anchor],
    *,
    obstacles: Sequence[Box] = (),
    markers: Sequence[tuple[float, float]] = (),
    lines: Sequence[Line] = (),
    font_pt: float,
    color: str,
) -> tuple[list[Annotation], list[str]]:
    """Write a label beside each point, as near as the others allow.

    Parameters
    ----------
    axes : matplotlib Axes
        With limits and position as they will stay.
    anchors : sequence of Anchor
    obstacles : sequence of Box
        Pixels that are taken by other text.
    markers : sequence of (float, float)
        All points that are drawn, in the units of the axes; no label covers one.
    lines : sequence of pairs of points
        Straight lines that labels avoid, in the units of the axes.
    font_pt : float
    color : str

    Returns
    -------
    list of Annotation
        The labels that found a place.
    list of str
        Those that did not.

    Notes
    -----
    Greedy, then a few rounds in which each label looks for a better place among the others.
    """
    crowd = _Crowd(axes, obstacles, markers, lines)
    sizes = [crowd.size(anchor.text, font_pt) for anchor in anchors]
    places: dict[int, _Place] = {}
    for _ in range(_ROUNDS):
        before = dict(places)
        for i, anchor in enumerate(anchors):
            places.pop(i, None)
            found = crowd.best_place(anchor, sizes[i], list(places.values()))
            if found is not None:
                places[i] = found
        if places == before:
            break
    written = [crowd.write(anchors[i], places[i], font_pt, color) for i in sorted(places)]
    return written, [a.text for i, a in enumerate(anchors) if i not in places]


@dataclass(frozen=True)
class _Place:
    box: Box
    leader: Line | None

    @property
    def middle(self) -> Pixel:
        return (self.box.x0 + self.box.x1) / 2, (self.box.y0 + self.box.y1) / 2


class _Crowd:
    """What a label must keep clear of, in pixels."""

    def __init__(
        self,
        axes: Axes,
        obstacles: Sequence[Box],
        markers: Sequence[tuple[float, float]],
        lines: Sequence[Line],
    ) -> None:
        self.axes = axes
        self.pixels_per_pt = axes.figure.dpi / 72
        self.room = Box.of(axes.get_window_extent())
        self.obstacles = list(obstacles)
        radius = 3.5 * self.pixels_per_pt
        at = (self._pixels(x, y) for x, y in dict.fromkeys(markers))
        self.markers = [Box.around(*pixel, radius) for pixel in at]
        self.lines = [(self._pixels(*a), self._pixels(*b)) for a, b in lines]

    def _pixels(self, x: float, y: float) -> Pixel:
        at = self.axes.transData.transform((x, y))
        return float(at[0]), float(at[1])

    def size(self, text: str, font_pt: float) -> tuple[float, float]:
        """Return width and height of a text in pixels."""
        probe = self.axes.text(0.5, 0.5, text, fontsize=font_pt, transform=self.axes.transAxes)
        extent = probe.get_window_extent()
        probe.remove()
        return float(extent.width), float(extent.height)

    def best_place(
        self, anchor: Anchor, size: tuple[float, float], others: Sequence[_Place]
    ) -> _Place | None:
        """Return the cheapest place that covers nothing."""
        start = self._pixels(anchor.x, anchor.y)
        best, best_cost = None, math.inf
        for distance_pt in _DISTANCES_PT:
            if distance_pt >= best_cost:
                break
            for place in self._round(start, size, distance_pt):
                if self._is_free(place, others):
                    cost = distance_pt + self._ugliness(place, start, others)
                    if cost < best_cost:
                        best, best_cost = place, cost
        return best

    def _round(
        self, start: Pixel, size: tuple[float, float], distance_pt: float
    ) -> Iterator[_Place]:
        """Places all round a point; the text's near edge is at the distance."""
        width, height = size
        offset = (3.0 + distance_pt) * self.pixels_per_pt
        for step in range(_DIRECTIONS):
            angle = 2 * math.pi * step / _DIRECTIONS
            x = start[0] + (offset + width / 2) * math.cos(angle)
            y = start[1] + (offset + height / 2) * math.sin(angle)
            box = Box(x - width / 2, y - height / 2, x + width / 2, y + height / 2)
            has_leader = distance_pt > _LEADER_FROM_PT
            yield _Place(box, (start, _nearest(box, start)) if has_leader else None)

    def _is_free(self, place: _Place, others: Sequence[_Place]) -> bool:
        wide = place.box.grown(_MARGIN_PT * self.pixels_per_pt)
        if not self.room.contains(wide):
            return False
        taken = (*self.obstacles, *self.markers, *(other.box for other in others))
        return not any(wide.overlaps(box) for box in taken)

    def _ugliness(self, place: _Place, start: Pixel, others: Sequence[_Place]) -> float:
        cost = _COST_CROSSES_LINE * sum(place.box.meets_line(*line) for line in self.lines)
        wide = place.box.grown(_MARGIN_PT * self.pixels_per_pt)
        leaders = (o.leader for o in others if o.leader is not None)
        over = sum(wide.meets_line(*leader) for leader in leaders)
        end = _nearest(place.box, start)
        texts = (*self.obstacles, *(other.box for other in others))
        over += sum(box.meets_line(start, end) for box in texts)
        cost += _COST_LEADER_OVER_LABEL * over
        if place.leader is None:
            return cost
        start, end = place.leader
        own = Box.around(*start, 1.0)
        over = sum(m.meets_line(start, end) for m in self.markers if not m.overlaps(own))
        crossed = sum(o.leader is not None and _cross(place.leader, o.leader) for o in others)
        return cost + _COST_OVER_MARKER * over + _COST_CROSSES_LEADER * crossed

    def write(self, anchor: Anchor, place: _Place, font_pt: float, color: str) -> Annotation:
        """Write a label at its place, with a white rim where it crosses a line."""
        from matplotlib.patheffects import withStroke

        start, middle = self._pixels(anchor.x, anchor.y), place.middle
        offset_pt = [(m - s) / self.pixels_per_pt for m, s in zip(middle, start, strict=True)]
        arrow = {"arrowstyle": "-", "color": GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
        return self.axes.annotate(
            anchor.text,
            (anchor.x, anchor.y),
            xytext=(offset_pt[0], offset_pt[1]),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=font_pt,
            color=color,
            arrowprops=arrow if place.leader is not None else None,
            path_effects=[withStroke(linewidth=1.6, foreground="white")],
            gid=anchor.gid or None,
            zorder=6,
        )


def _nearest(box: Box, point: Pixel) -> Pixel:
    """Return the place on a rectangle that is nearest to a point."""
    return min(max(point[0], box.x0), box.x1), min(max(point[1], box.y0), box.y1)


def _cross(a: Line, b: Line) -> bool:
    """Whether two lines cross.

    >>> _cross(((0, 0), (2, 2)), ((0, 2), (2, 0))), _cross(((0, 0), (1, 1)), ((2, 0), (3, 1)))
    (True, False)
    """

    def side(line: Line, point: Pixel) -> float:
        (x0, y0), (x1, y1) = line
        return (x1 - x0) * (point[1] - y0) - (y1 - y0) * (point[0] - x0)

    return side(a, b[0]) * side(a, b[1]) < 0 and side(b, a[0]) * side(b, a[1]) < 0
