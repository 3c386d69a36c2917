"""Regions: named spans of time, nested, entered many times, from several threads.

A region only notes two times; energy is attributed afterwards, from the trace.
"""

from __future__ import annotations

import json
import math
import threading
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import SensorError, shortened
from ..files import require_file
from ..json_files import parse_json
from .trace import LARGEST, read_text, write_text

_MOST_WARNINGS = 10
_NOT_IN_NAMES = ("Cc", "Cs", "Zl", "Zp")
"""Unicode categories: controls, surrogates, ends of a line and of a paragraph."""


@dataclass(frozen=True, slots=True)
class Region:
    """One entry of a region.

    Attributes
    ----------
    name : str
    start_s, end_s : float
        On the trace's clock.
    depth : int
        Regions of the same thread that were open when it was entered.
    thread : int
        Number of its thread, counted from 0 in the order of first entries.
    parent : int or None
        Index of the enclosing region in the same sequence.
    """

    name: str
    start_s: float
    end_s: float
    depth: int = 0
    thread: int = 0
    parent: int | None = None

    @property
    def duration_s(self) -> float:
        """Seconds from entry to exit."""
        return self.end_s - self.start_s


@dataclass(slots=True)
class _Entry:
    """A region that may still be open."""

    name: str
    start_s: float
    depth: int
    thread: int
    parent: int | None
    end_s: float | None = None


_Lane = tuple[int, list[int]]
"""The number of a thread that may be one of several, and its open regions."""


class Regions:
    """Recorder of regions; any thread may enter them.

    Parameters
    ----------
    clock : callable, optional
        Returns seconds on the trace's clock.

    Examples
    --------
    >>> ticks = iter([0.0, 1.0, 3.0, 4.0])
    >>> regions = Regions(clock=lambda: next(ticks))
    >>> with regions.region("solve"):
    ...     with regions.region("spmv"):
    ...         pass
    >>> [(r.name, r.duration_s, r.depth, r.parent) for r in regions.snapshot(5.0)]
    [('solve', 4.0, 0, None), ('spmv', 2.0, 1, 0)]
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: list[_Entry] = []
        self._num_threads = 0
        self._local = threading.local()

    @contextmanager
    def region(self, name: str) -> Iterator[None]:
        """Mark the enclosed statements; an exception ends the region too."""
        entry = self._enter(_checked_name(name))
        try:
            yield
        finally:
            self._local.stack.pop()
            entry.end_s = self._clock()

    def add(self, name: str, start_s: float, end_s: float) -> None:
        """Note a region whose times are already known, for example a device's event."""
        with self._lock:
            entry = _Entry(_checked_name(name), start_s, 0, self._thread(), None, end_s)
            self._entries.append(entry)

    def snapshot(self, end_s: float) -> tuple[Region, ...]:
        """Return all regions in the order of entry; open ones end at `end_s`."""
        with self._lock:
            entries = [(e, end_s if e.end_s is None else e.end_s) for e in self._entries]
        return tuple(
            Region(e.name, e.start_s, max(end_s, e.start_s), e.depth, e.thread, e.parent)
            for e, end_s in entries
        )

    def open_names(self) -> tuple[str, ...]:
        """Return the names of regions that are still open."""
        with self._lock:
            return tuple(e.name for e in self._entries if e.end_s is None)

    def _enter(self, name: str) -> _Entry:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        stack: list[int] = self._local.stack
        with self._lock:
            parent = stack[-1] if stack else None
            entry = _Entry(name, math.nan, len(stack), self._thread(), parent)
            stack.append(len(self._entries))
            self._entries.append(entry)
            # Read under the lock and last, so that waiting for it is not part of the region.
            entry.start_s = self._clock()
        return entry

    def _thread(self) -> int:
        if not hasattr(self._local, "number"):
            self._local.number = self._num_threads
            self._num_threads += 1
        return int(self._local.number)


def nest(regions: Iterable[Region]) -> tuple[Region, ...]:
    """Find each region's parent from its times alone.

    A region is the child of the innermost region of its thread that contains it. One that
    overlaps only in part cannot be of the same thread and is given another number.

    Returns
    -------
    tuple of Region
        In the order of their starts, with `depth`, `thread` and `parent` set.

    Examples
    --------
    >>> spans = [Region("a", 0, 9), Region("b", 1, 2), Region("c", 8, 12)]
    >>> [(r.name, r.thread, r.parent) for r in nest(spans)]
    [('a', 0, None), ('b', 0, 0), ('c', 1, None)]
    """
    ordered = sorted(regions, key=lambda r: (r.start_s, -r.end_s))
    lanes: dict[int, list[_Lane]] = {}  # by the thread that was given
    num_lanes = 0
    nested: list[Region] = []
    for region in ordered:
        own = lanes.setdefault(region.thread, [])
        lane = _free_lane(region, own, nested)
        if lane is None:
            lane = (num_lanes, [])
            own.append(lane)
            num_lanes += 1
        number, stack = lane
        parent = stack[-1] if stack else None
        stack.append(len(nested))
        nested.append(replace(region, depth=len(stack) - 1, thread=number, parent=parent))
    return tuple(nested)


def _free_lane(
    region: Region, lanes: Sequence[_Lane], nested: Sequence[Region]
) -> _Lane | None:
    """Return the first lane whose open regions all end before a region or contain it."""
    for lane in lanes:
        _, stack = lane
        while stack and nested[stack[-1]].end_s <= region.start_s:
            stack.pop()
        if not stack or nested[stack[-1]].end_s >= region.end_s:
            return lane
    return None


def read_regions(path: str | Path) -> tuple[Region, ...]:
    """Read regions from their JSON file.

    Parameters
    ----------
    path : str or Path
        A document `{"regions": [{"name": …, "start_s": …, "end_s": …}, …]}`; a number
        `thread` beside them keeps regions of several threads apart.

    Raises
    ------
    SensorError
        If the file cannot be read, or an entry is at fault; it says which.
    """
    document = parse_json(read_text(path), path, SensorError)
    entries = document.get("regions") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise SensorError(f'{path}: no list "regions"; write {{"regions": [{{"name": …}}]}}.')
    return nest(_region(path, number, entry) for number, entry in enumerate(entries))


def write_regions(path: str | Path, regions: Iterable[Region]) -> None:
    """Write regions as JSON, whole or not at all."""
    entries = [
        {
            "name": _checked_name(r.name),
            "start_s": r.start_s,
            "end_s": r.end_s,
            "thread": r.thread,
        }
        for r in regions
    ]
    write_text(path, json.dumps({"regions": entries}, ensure_ascii=False, indent=1) + "\n")


def read_region_marks(path: str | Path, end_s: float) -> tuple[tuple[Region, ...], list[str]]:
    """Read the lines that a recorded command appended to the file in `SPMV_FPGA_REGIONS`.

    Parameters
    ----------
    path : str or Path
        Lines `begin NAME TIME` and `end NAME TIME`; a name may hold blanks, the time is a
        monotonic one in seconds. No file means no regions.
    end_s : float
        When the command ended.

    Returns
    -------
    regions : tuple of Region
    warnings : list of str
        A line that makes no sense is left out, a region that is still open ends at `end_s`;
        both are told here. Nothing is raised: the command has run, and what was recorded of
        it must not be lost to a line.

    Notes
    -----
    An end closes the region of its name that was begun last.
    """
    try:
        text = _marks_text(path)
    except OSError as error:
        return (), [f"the regions' file cannot be read: {error.strerror}"]
    open_starts: dict[str, list[float]] = {}
    regions: list[Region] = []
    warnings: list[str] = []
    for number, line in enumerate(text.split("\n"), start=1):
        trouble = _follow(line.strip(), open_starts, regions)
        if trouble:
            warnings.append(f"line {number} of the marks was left out: {trouble}")
    if len(warnings) > _MOST_WARNINGS:
        more = len(warnings) - _MOST_WARNINGS
        warnings[_MOST_WARNINGS:] = [f"{more} more lines of the marks were left out"]
    for name, starts in open_starts.items():
        regions += [Region(name, start_s, max(end_s, start_s)) for start_s in starts]
        if starts:
            warnings.append(f"region {shortened(name)!r} was never ended; it ends with the run")
    return nest(regions), warnings


def _marks_text(path: str | Path) -> str:
    if not Path(path).exists():
        return ""
    require_file(path)
    return Path(path).read_bytes().decode("utf-8", errors="replace")


def _follow(
    line: str, open_starts: dict[str, list[float]], regions: list[Region]
) -> str | None:
    """Open or close a region as a line says, or say why it makes no sense."""
    if not line:
        return None
    mark = _mark(line)
    if mark is None:
        return f"{shortened(line)!r}; write `begin NAME TIME` or `end NAME TIME`"
    verb, name, at_s = mark
    if verb == "begin":
        open_starts.setdefault(name, []).append(at_s)
        return None
    if not open_starts.get(name):
        return f"{shortened(name)!r} ends before it begins"
    start_s = open_starts[name][-1]
    if at_s < start_s:
        return f"{shortened(name)!r} ends at {at_s}, before {start_s}"
    open_starts[name].pop()
    regions.append(Region(name, start_s, at_s))
    return None


def _mark(line: str) -> tuple[str, str, float] | None:
    words = line.split()
    verb, name = words[0], line[len(words[0]) : -len(words[-1])].strip()
    try:
        at_s = float(words[-1])
    except ValueError:
        at_s = math.nan
    if verb not in ("begin", "end") or not is_name(name) or not abs(at_s) <= LARGEST:
        return None
    return verb, name, at_s


def _region(path: str | Path, number: int, entry: Any) -> Region:
    where = f"{path}: region {number}"
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise SensorError(f"{where}: no name; write a text.")
    where += f" ({shortened(entry['name'])!r})"
    start_s, end_s = (_seconds(where, key, entry.get(key)) for key in ("start_s", "end_s"))
    if end_s < start_s:
        raise SensorError(f"{where}: end_s is {end_s}, before start_s {start_s}.")
    thread = entry.get("thread", 0)
    if not isinstance(thread, int):
        raise SensorError(f"{where}: thread is {thread!r}; write a whole number.")
    return Region(_checked_name(entry["name"]), start_s, end_s, thread=thread)


def _seconds(where: str, key: str, at_s: Any) -> float:
    is_number = isinstance(at_s, (int, float)) and not isinstance(at_s, bool)
    if not (is_number and abs(at_s) <= LARGEST):
        raise SensorError(
            f"{where}: {key} is {at_s!r}; write seconds, at most {LARGEST:g} either way."
        )
    return float(at_s)


def _checked_name(name: str) -> str:
    if not is_name(name):
        raise SensorError(
            f"a region's name is {shortened(name)!r}; give a text of one line, without control "
            "characters or surrogates."
        )
    return name


def is_name(name: str) -> bool:
    r"""Say whether a text can name a region: one line that can be written and printed.

    >>> is_name("[loop] x²"), is_name("two\nlines"), is_name("\ud800")
    (True, False, False)
    """
    return bool(name.strip()) and not any(
        unicodedata.category(c) in _NOT_IN_NAMES and c != "\t" for c in name
    )
