"""The one place where SI values become text.

Inside the package every quantity is in SI units without a prefix and says so in its
name (`time_s`, `energy_j`, `clock_hz`, `value_bytes`).

>>> seconds(0.00725)
'7.250 ms'
>>> bytes_text(268435456)
'256.0 MiB'
>>> seconds(None)
'-'
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

_SI_PREFIXES = (
    (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""),
    (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"), (1e-12, "p"),
)  # fmt: skip
_BINARY_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti")
NOTHING = "-"


def si(value: float | None, unit: str) -> str:
    """Write a value with four digits and an SI prefix; `-` for None.

    >>> si(12.5e9, "B/s"), si(0.0, "W")
    ('12.50 GB/s', '0 W')
    """
    if value is None:
        return NOTHING
    if value == 0 or not math.isfinite(value):
        return f"{value:g} {unit}"
    for scale, prefix in _SI_PREFIXES:
        if abs(value) >= scale * 0.99995:
            return f"{value / scale:#.4g} {prefix}{unit}"
    return f"{value:.3e} {unit}"


def with_bounds(
    value: float | None, low: float | None, high: float | None, text: Callable[[float], str]
) -> str:
    """Write a value and its bounds, which need not lie evenly around it.

    >>> with_bounds(6e-4, 4.51e-4, 9.2e-4, seconds)
    '600.0 µs (451.0 … 920.0)'
    >>> with_bounds(6e-4, 4.51e-4, 1.2e-3, seconds)
    '600.0 µs (451.0 µs … 1.200 ms)'
    """
    if value is None:
        return NOTHING
    if low is None or high is None:
        return text(value)
    written = [text(number) for number in (value, low, high)]
    numbers, names = zip(*(t.split(" ", 1) for t in written), strict=True)
    if len(set(names)) == 1:
        return f"{written[0]} ({numbers[1]} … {numbers[2]})"
    return f"{written[0]} ({written[1]} … {written[2]})"


def count(value: int | None) -> str:
    """Write a count with commas between the thousands.

    >>> count(1540608)
    '1,540,608'
    """
    return NOTHING if value is None else f"{value:,}"


def seconds(value: float | None) -> str:
    """Write a duration, given in seconds."""
    return si(value, "s")


def joules(value: float | None) -> str:
    """Write an energy, given in joules."""
    return si(value, "J")


def watts(value: float | None) -> str:
    """Write a power, given in watts."""
    return si(value, "W")


def hertz(value: float | None) -> str:
    """Write a frequency, given in hertz."""
    return si(value, "Hz")


def gflops(value: float | None) -> str:
    """Write a rate that is already in 1e9 flop per second.

    >>> gflops(4.4592)
    '4.459 GFLOP/s'
    """
    return NOTHING if value is None else f"{value:#.4g} GFLOP/s"


def bytes_text(value: int | None) -> str:
    """Write a size with a binary prefix.

    >>> bytes_text(1000), bytes_text(2048)
    ('1000 B', '2.0 KiB')
    """
    if value is None:
        return NOTHING
    scaled = float(value)
    for prefix in _BINARY_PREFIXES:
        if scaled < 1024 or prefix == _BINARY_PREFIXES[-1]:
            return f"{value} B" if not prefix else f"{scaled:.1f} {prefix}B"
        scaled /= 1024
    raise AssertionError


def ranges(numbers: Iterable[int]) -> str:
    """Write whole numbers in ascending order, neighbours from three on as a range.

    >>> ranges([1, 2, 4, 5, 6])
    '1, 2, 4 to 6'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = (
        f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs
    )
    return ", ".join(texts)


def percent(fraction: float | None, digits: int = 1) -> str:
    """Write a fraction as a percentage.

    >>> percent(0.336), percent(0.336, 0)
    ('33.6 %', '34 %')
    """
    return NOTHING if fraction is None else f"{100 * fraction:.{digits}f} %"
