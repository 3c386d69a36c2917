"""Power traces: raw samples, what is known of their sensor, and its measured refresh.

A trace holds what was read and nothing else; energies are views of it. Its file is CSV:
lines `# key: value` with the facts, a header, one sample a line, times from a monotonic
clock.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..errors import SensorError, shortened
from ..files import require_file, write_whole

Samples = npt.NDArray[np.float64]

REQUIRED_COLUMNS = ("time_s", "power_w")
OPTIONAL_COLUMNS = ("fetch_s", "energy_j")
POWER_FROM_COUNTER = {"power_from": "energy counter"}
"""The fact of a trace whose sensor only counts: its power is the counter's slope."""
_NUMBERS = ("refresh_s", "power_step_w", "energy_step_j", "sample_age_s")
"""Facts that must be numbers."""
LARGEST = 1e12
"""Seconds, watts and joules beyond this are a mistake, and sums of them overflow."""
_GZIP_MAGIC = b"\x1f\x8b"
_MIN_CHANGES = 8
"""Fewer changes of value than this say nothing about a sensor's period."""


@dataclass(frozen=True, slots=True)
class Refresh:
    """How often a sensor's readings really become new.

    Attributes
    ----------
    period_s : float
        Seconds from one update to the next, as far as the trace can tell: never shorter than
        the interval between samples.
    num_updates : int
        Changes that were seen; 0 where the period was not measured.
    how : str
        `fetch`: changes of the sensor's own time stamp; `counter`: of its energy counter;
        `value`: of its power; `declared`: the file's fact `refresh_s`; `sampling`: nothing
        tells, every sample is taken for new.
    """

    period_s: float
    num_updates: int
    how: Literal["fetch", "counter", "value", "declared", "sampling"]


@dataclass(frozen=True, eq=False)
class Trace:
    """Samples of one sensor over one run, read-only.

    Parameters
    ----------
    time_s : array_like, shape (n,), float64
        Monotonic times of the samples, ascending; n is at least 2. Two samples with the same
        time are a jump.
    power_w : array_like, shape (n,), float64
        Power in watts.
    fetch_s : array_like, shape (n,), float64, optional
        When the sensor took each sample, on the same clock; NaN where unknown.
    energy_j : array_like, shape (n,), float64, optional
        A cumulative hardware counter in joules, unwrapped.
    facts : mapping of str to str, optional
        Provenance. `sensor`, `boundary`, `refresh_s` (nominal), `power_step_w` and
        `energy_step_j` (resolutions) and `sample_age_s` (how far a sample reaches back from
        its time of fetching) are understood, everything else is carried along.

    Raises
    ------
    SensorError
        If lengths differ, a time or power is not finite, something is beyond `LARGEST`,
        times descend, or they span nothing.

    Examples
    --------
    >>> trace = Trace([0.0, 1.0, 2.0], [17.4, 20.5, 20.5], facts={"boundary": "card"})
    >>> trace.duration_s, trace.boundary
    (2.0, 'card')
    """

    time_s: Samples
    power_w: Samples
    fetch_s: Samples | None = None
    energy_j: Samples | None = None
    facts: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS):
            column = getattr(self, name)
            if column is not None:
                object.__setattr__(self, name, _read_only(column))
        object.__setattr__(self, "facts", MappingProxyType(dict(self.facts)))
        check_samples(self.time_s, self.power_w)
        if len(self.time_s) < 2:
            raise SensorError(
                f"the trace holds {len(self.time_s)} sample(s); energy needs at least 2."
            )
        if not self.duration_s > 0:
            raise SensorError("all samples have the same time; energy needs a span of time.")
        for name in OPTIONAL_COLUMNS:
            column = getattr(self, name)
            if column is None:
                continue
            if len(column) != len(self.time_s):
                raise SensorError(
                    f"{name} holds {len(column)} values for {len(self.time_s)} samples; "
                    "give one for each."
                )
            _check_size(name, column)

    @property
    def start_s(self) -> float:
        """Time of the first sample."""
        return float(self.time_s[0])

    @property
    def end_s(self) -> float:
        """Time of the last sample."""
        return float(self.time_s[-1])

    @property
    def duration_s(self) -> float:
        """Seconds from the first sample to the last."""
        return self.end_s - self.start_s

    @property
    def sensor(self) -> str:
        """Name of the sensor, or `unknown`."""
        return self.facts.get("sensor", "unknown")

    @property
    def boundary(self) -> str:
        """What the power flows into: `card`, `package`, …, or `unknown`."""
        return self.facts.get("boundary", "unknown")

    @property
    def interval_s(self) -> float:
        """Median interval between samples."""
        intervals_s = np.diff(self.time_s)
        return float(np.median(intervals_s[intervals_s > 0]))

    def fact(self, key: str) -> float | None:
        """Return a fact as a positive number, or None.

        Raises
        ------
        SensorError
            If the fact is there and is no positive number.
        """
        text = self.facts.get(key)
        if text is None or not text.strip():
            return None
        number = _number(text)
        if not 0 <= number <= LARGEST:
            raise SensorError(
                f"the fact {key} is {shortened(text)!r}; it must be a positive number, at "
                f"most {LARGEST:g}."
            )
        return number or None

    def refresh(self) -> Refresh:
        """Measure the period of the sensor from its changes.

        Notes
        -----
        Time stamps tell best, then an energy counter, then the power itself. A power that
        repeats hides an update, so an interval between changes counts as the number of
        periods that it is nearest to. A stamp that moves with every sample is the reader's
        clock and tells nothing. Where a trace changes too seldom, its declared period holds.

        Examples
        --------
        >>> time_s = np.arange(0, 10, 0.02)
        >>> Trace(time_s, 20 + np.floor(time_s / 0.1) % 7).refresh()
        Refresh(period_s=0.1, num_updates=99, how='value')
        """
        columns = (
            ("fetch", self.fetch_s), ("counter", self.energy_j), ("value", self.power_w)
        )  # fmt: skip
        for how, column in columns:
            if column is None:
                continue
            changes = self.time_s[changed(column)]
            every_sample_is_new = len(changes) > 0.9 * len(self.time_s)
            if how == "fetch" and every_sample_is_new:
                continue
            if len(changes) >= (_MIN_CHANGES if how == "value" else 3):
                period_s = max(_period(np.diff(changes)), self.interval_s)
                return Refresh(round(period_s, 9), len(changes), how)  # type: ignore[arg-type]
        declared_s = self.fact("refresh_s")
        if declared_s is not None:
            return Refresh(max(declared_s, self.interval_s), 0, "declared")
        return Refresh(self.interval_s, 0, "sampling")


def changed(column: Samples) -> npt.NDArray[np.intp]:
    """Return the indices of samples that differ from the one before.

    >>> changed(np.array([1.0, 1.0, 2.0, 2.0, 3.0])).tolist()
    [2, 4]
    """
    return np.flatnonzero(np.diff(column)) + 1


def check_samples(time_s: Samples, power_w: Samples) -> None:
    """Refuse samples that cannot be integrated.

    Raises
    ------
    SensorError
        If the shapes differ, something is not finite or too large, or times descend.
    """
    if time_s.ndim != 1 or time_s.shape != power_w.shape:
        raise SensorError(
            f"time_s has the shape {time_s.shape} and power_w {power_w.shape}; "
            "both must be one-dimensional and equally long."
        )
    if not (np.isfinite(time_s).all() and np.isfinite(power_w).all()):
        raise SensorError("time_s or power_w holds NaN or infinity; leave such samples out.")
    _check_size("time_s", time_s)
    _check_size("power_w", power_w)
    if (np.diff(time_s) < 0).any():
        at = int(np.argmax(np.diff(time_s) < 0)) + 1
        raise SensorError(f"time_s goes back at sample {at}; times must ascend.")


def _check_size(name: str, column: Samples) -> None:
    """Refuse what is beyond `LARGEST`; NaN stands for what is not known."""
    is_beyond = np.abs(column) > LARGEST
    if is_beyond.any():
        at = int(np.argmax(is_beyond))
        raise SensorError(
            f"{name} is {column[at]:g} at sample {at}; at most {LARGEST:g} makes sense, in "
            "seconds, watts and joules."
        )


def read_trace(path: str | Path) -> Trace:
    """Read a trace from its CSV file, plain or compressed with gzip.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    Trace

    Raises
    ------
    SensorError
        If the file cannot be read; with the line number where a line is at fault.
    """
    facts: dict[str, str] = {}
    header: list[str] | None = None
    rows: list[list[float]] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            facts[key.strip()] = value.strip()
        elif header is None:
            header = _header(path, number, line)
        else:
            rows.append(_row(path, number, line, header, rows))
    if header is None:
        raise SensorError(f"{path}: no header; the first line of data must be time_s,power_w.")
    table = np.array(rows, np.float64).reshape(len(rows), len(header))
    columns = {name: table[:, header.index(name)] for name in REQUIRED_COLUMNS}
    columns |= {
        name: table[:, header.index(name)]
        for name in OPTIONAL_COLUMNS
        if name in header and not np.isnan(table[:, header.index(name)]).all()
    }
    try:
        trace = Trace(**columns, facts=facts)
        for key in _NUMBERS:
            trace.fact(key)
        return trace
    except SensorError as error:
        raise SensorError(f"{path}: {error}") from error


def write_trace(path: str | Path, trace: Trace) -> None:
    """Write a trace as CSV, whole or not at all.

    Numbers keep every digit: reading the file gives equal arrays.
    """
    names = [
        name
        for name in (*REQUIRED_COLUMNS, *OPTIONAL_COLUMNS)
        if getattr(trace, name) is not None
    ]
    lines = [f"# {key}: {' '.join(value.split())}" for key, value in trace.facts.items()]
    lines.append(",".join(names))
    columns = [getattr(trace, name).tolist() for name in names]
    lines += [",".join(map(_cell, row)) for row in zip(*columns, strict=True)]
    write_text(path, "\n".join(lines) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Write a text file whole or not at all.

    Raises
    ------
    SensorError
        If the folder cannot be written to.
    """
    try:
        # A fact may be the name of a file, and such a name need not be UTF-8.
        write_whole(path, text.encode(errors="backslashreplace"))
    except OSError as error:
        raise SensorError(f"{path}: cannot be written ({error.strerror}).") from error


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file, plain or compressed with gzip.

    Raises
    ------
    SensorError
        If there is no such file, or it is damaged.
    """
    try:
        require_file(path)
        content = Path(path).read_bytes()
        if content.startswith(_GZIP_MAGIC):
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SensorError(f"{path}: is no text in UTF-8 (byte {error.start}).") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise SensorError(f"{path}: the gzip data are damaged or cut short.") from error
    except OSError as error:
        raise SensorError(f"{path}: cannot be read ({error.strerror}).") from error


def _read_only(column: npt.ArrayLike) -> Samples:
    own = np.array(column, np.float64)
    own.flags.writeable = False
    return own


def _period(intervals_s: Samples) -> float:
    """Return the period behind intervals of which some span several periods."""
    shortest = np.quantile(intervals_s, 0.1)
    # The shortest tenth may be short by the jitter of polling; their like are one period.
    single_s = float(np.median(intervals_s[intervals_s <= 1.5 * shortest]))
    if not single_s > 0:
        return 0.0
    num_periods = np.maximum(np.round(intervals_s / single_s), 1)
    is_near = num_periods <= 3  # further off, one cannot tell how many were missed
    return float(intervals_s[is_near].sum() / num_periods[is_near].sum())


def _header(path: str | Path, number: int, line: str) -> list[str]:
    header = [name.strip() for name in line.split(",")]
    for name in REQUIRED_COLUMNS:
        if header.count(name) != 1:
            raise SensorError(
                f"{path}: line {number}: the header is {shortened(line.strip())!r}; it must "
                f"name {name} once."
            )
    return header


def _row(
    path: str | Path, number: int, line: str, header: list[str], before: list[list[float]]
) -> list[float]:
    cells = line.split(",")
    where = f"{path}: line {number}:"
    if len(cells) != len(header):
        raise SensorError(f"{where} {len(cells)} fields; the header names {len(header)}.")
    row = [_number(cell) for cell in cells]
    for name in REQUIRED_COLUMNS:
        at = header.index(name)
        if not math.isfinite(row[at]):
            raise SensorError(
                f"{where} {name} is {shortened(cells[at].strip())!r}; write a number."
            )
    at = header.index("time_s")
    if before and row[at] < before[-1][at]:
        raise SensorError(f"{where} time_s goes back to {row[at]}; times must ascend.")
    return row


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _cell(number: float) -> str:
    return "" if math.isnan(number) else repr(number)
