"""Import of the `power_profile_*.csv` that the Xilinx runtime writes (`power_profile=true`).

The file holds volts and amperes of the card's rails, from the same cache of one second that
the card's user function shows, however short its interval is set; power is computed here.
Its times are milliseconds since the profiler first looked at its clock, so regions that were
marked on the machine's monotonic clock do not fit it.

Source: Xilinx/XRT, the power profiling plug-in of XDP. Its traps, all met here: a comma ends
each line; times have six significant digits (steps of 1 ms after 100 s, of 10 ms, written
as 1.00001e+06, after 1000 s); a node that cannot be read is 0; rows may be shorter than the
header.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import SensorError
from ..files import require_file
from .trace import Samples, Trace
from .xrt import POWER_STEP_W, SAMPLE_AGE_S, USER_REFRESH_S

_FIRST_WORDS = "Target device:"
_RAILS = ("12v_pex", "12v_aux", "3v3_pex")
_LOWEST_12V_MV = 10_000
_SIGNIFICANT_DIGITS = 6


def is_power_profile(path: Path) -> bool:
    """Say whether a file begins as the runtime's power profiles do."""
    try:
        require_file(path)
        with path.open("rb") as file:
            return file.read(len(_FIRST_WORDS)) == _FIRST_WORDS.encode()
    except OSError:
        return False


def read_power_profile(path: str | Path) -> Trace:
    """Read a power profile as a trace of the whole card.

    Parameters
    ----------
    path : str or Path
        A `power_profile_*.csv`.

    Returns
    -------
    Trace
        Times in seconds since the profiler's own start. Samples whose times were rounded to
        the same value are spread evenly up to the next. Rows with a 12 V rail under 10 V or
        without current are no measurements; the fact `rejected` counts them, and cut rows.

    Raises
    ------
    SensorError
        If the file cannot be read, is no power profile, has a line that is not made of
        numbers, runs backwards, or has fewer than two usable rows.
    """
    path = Path(path)
    try:
        require_file(path)
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise SensorError(
            f"{path} cannot be read ({error.strerror}); give a power_profile file."
        ) from None
    if len(lines) < 2 or not lines[0].startswith(_FIRST_WORDS):
        raise SensorError(f"{path} is no power_profile file; line 1 must name a target device.")
    columns = _find_columns(path, lines[1])
    rows = list(_rows(path, lines, columns))
    usable = [row for row in rows if row is not None]
    if len(usable) < 2:
        raise SensorError(
            f"{path} has {len(usable)} usable row(s) of {len(rows)}; a trace needs two."
        )
    stamps_s = np.array([row.time_ms for row in usable]) / 1e3
    step_s = _time_step_s(float(stamps_s[-1]))
    return Trace(
        _spread(stamps_s, step_s),
        np.array([row.power_w for row in usable]),
        facts={
            "sensor": "xrt",
            "boundary": "card",
            "refresh_s": str(USER_REFRESH_S),
            "power_step_w": str(POWER_STEP_W),
            "sample_age_s": str(SAMPLE_AGE_S),
            "target_device": lines[0].removeprefix(_FIRST_WORDS).strip(),
            "imported_from": path.name,
            "clock": "since the profiler's start",
            "time_step_s": f"{step_s:g}",
            "rejected": str(len(rows) - len(usable)),
        },
    )


@dataclass(frozen=True, slots=True)
class _Row:
    time_ms: float
    power_w: float


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the time and the pairs of voltage and current stand; the first pair is 12V_PEX."""

    time: int
    pairs: tuple[tuple[int, int], ...]

    @property
    def last(self) -> int:
        return max(self.time, *(max(pair) for pair in self.pairs))


def _find_columns(path: Path, header: str) -> _Columns:
    names = [name.strip() for name in header.split(",")]
    wanted = ("timestamp", "12v_pex_vol", "12v_pex_curr")
    for name in wanted:
        if name not in names:
            raise SensorError(f"{path}: line 2: there is no column {name}.")
    pairs = [
        (names.index(f"{rail}_vol"), names.index(f"{rail}_curr"))
        for rail in _RAILS
        if f"{rail}_vol" in names and f"{rail}_curr" in names
    ]
    return _Columns(names.index("timestamp"), tuple(pairs))


def _rows(path: Path, lines: Sequence[str], columns: _Columns) -> Iterator[_Row | None]:
    """Yield a row for each line that has text, None for one that is no measurement."""
    earlier_ms = -math.inf
    for number, line in enumerate(lines[2:], 3):
        if not line.strip():
            continue
        fields = line.split(",")
        if len(fields) <= columns.last:
            yield None
            continue
        try:
            row = _row(fields, columns)
        except ValueError as error:
            raise SensorError(f"{path}: line {number}: {error}; give a whole file.") from None
        if row is not None:
            if row.time_ms < earlier_ms:
                raise SensorError(
                    f"{path}: line {number}: time runs backwards; give the file of one run."
                )
            earlier_ms = row.time_ms
        yield row


def _row(fields: Sequence[str], columns: _Columns) -> _Row | None:
    time_ms = float(fields[columns.time])
    pairs = [(float(fields[v]), float(fields[i])) for v, i in columns.pairs]
    power_w = sum(voltage * current for voltage, current in pairs) * 1e-6
    if not (math.isfinite(power_w) and math.isfinite(time_ms)):
        raise ValueError("not a finite number")
    voltage, current = pairs[0]
    is_measured = voltage >= _LOWEST_12V_MV and current > 0
    return _Row(time_ms, power_w) if is_measured else None


def _time_step_s(largest_s: float) -> float:
    """Return the step of the largest time in the file: the sixth digit of its milliseconds.

    >>> _time_step_s(21.0), _time_step_s(150.0), _time_step_s(1500.0)
    (0.0001, 0.001, 0.01)
    """
    if largest_s <= 0:
        return 10.0 ** -(_SIGNIFICANT_DIGITS + 2)
    digits = math.floor(math.log10(largest_s * 1e3)) + 1
    return float(f"1e{digits - _SIGNIFICANT_DIGITS - 3}")


def _spread(stamps_s: Samples, step_s: float) -> Samples:
    """Give samples with the same rounded time different ones, in order.

    >>> [float(t) for t in _spread(np.array([1.0, 1.0, 1.01]), 0.01)]
    [1.0, 1.005, 1.01]
    """
    starts = np.flatnonzero(np.diff(stamps_s, prepend=-np.inf))
    counts = np.diff(starts, append=len(stamps_s))
    room_s = np.minimum(np.diff(stamps_s[starts], append=np.inf), step_s)
    rank = np.arange(len(stamps_s)) - np.repeat(starts, counts)
    times: Samples = stamps_s + rank * np.repeat(room_s / counts, counts)
    return times
