"""Calibrations: every number of the model, each with its interval and its source.

A calibration is one TOML file. Two are shipped and never mixed: `paper` describes the
kernels of Favaro et al. as their tables show them, `u50` describes this project's kernels
on the figures of the board's file. A third is made from a user's own runs by `calibrate`.

A kernel's time is a sum of terms, each a count of the workload times seconds a count, or
divided by one of the calibration's rates. Of the terms that overlap only the longest
counts::

    t = Σ terms that follow one another + max(terms that overlap)
    P = idle + units · kernel + slope · bytes per second
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..boards import MANY_UNITS, load_board
from ..errors import SpmvFpgaError, shortened
from ..files import require_file, write_whole
from ..formats.base import WORD_BYTES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = ("paper", "u50")
_FOLDER = Path(__file__).resolve().parent / "calibrations"

COUNTS = frozenset(
    ("launches", "rows", "nnz", "accesses", "beats", "x_words", "y_words", "fill_cycles",
     "unpack_cycles", "slot_cycles", "reduce_cycles", "x_fill_cycles", "panel_cycles",
     "lane_cycles", "add_cycles", "y_cycles")
)  # fmt: skip
"""What a term may count; each is a property of `model.Workload`."""

ACCESS_RULES = ("words", "values")

COVERED = ("rows", "cols", "nnz", "density")
"""Quantities of a workload whose range a calibration may state."""

LARGEST = 1e18
"""No figure of a card is larger, in SI units; products of larger ones would overflow."""

MOST_LANES = 4096
"""Products a cycle, and edges of tiles, beyond this are a mistake."""


class _ParameterError(SpmvFpgaError):
    """A parameter that contradicts itself."""


@dataclass(frozen=True)
class Parameter:
    """A number of the model, in SI units.

    Attributes
    ----------
    value : float
    low, high : float
        Bounds of a 95 % interval, or, as the source says, of what is plausible.
    source : str
    """

    value: float
    low: float
    high: float
    source: str

    def __post_init__(self) -> None:
        bounds = (self.low, self.value, self.high)
        if not all(math.isfinite(v) for v in bounds) or not 0 <= self.low <= self.value:
            raise _ParameterError(
                f"a parameter is {self.value} in {self.low} to {self.high}; it must be finite, "
                "not negative and within its interval."
            )
        if not self.value <= self.high or not self.source:
            raise _ParameterError(
                f"a parameter is {self.value} in {self.low} to {self.high}, source "
                f"{self.source!r}; it must lie in its interval and have a source."
            )


@dataclass(frozen=True)
class Term:
    """A part of a kernel's time.

    Attributes
    ----------
    name : str
        What a result says binds.
    count : str
        One of `COUNTS`.
    overlaps : bool
        Whether it runs beside the other terms that overlap.
    seconds : Parameter or None
        Seconds a count, or
    rate : str or None
        the rate of the calibration that the count is divided by.
    """

    name: str
    count: str
    overlaps: bool = False
    seconds: Parameter | None = None
    rate: str | None = None

    def __post_init__(self) -> None:
        if self.count not in COUNTS:
            raise SpmvFpgaError(
                f"term {self.name} counts {self.count!r}; it must be one of "
                f"{', '.join(sorted(COUNTS))}."
            )
        if (self.seconds is None) == (self.rate is None):
            raise SpmvFpgaError(f"term {self.name} needs either seconds or a rate.")


@dataclass(frozen=True)
class Power:
    """Terms of a kernel's power.

    Attributes
    ----------
    idle_w : Parameter
        The card without a kernel at work.
    kernel_w : Parameter
        What an active design adds, whatever its units.
    w_per_byte_per_s : Parameter
        What each byte a second that the kernel reads of the matrix adds.
    unit_w : Parameter
        What each compute unit adds; nothing where only designs of one unit are known.
    """

    idle_w: Parameter
    kernel_w: Parameter
    w_per_byte_per_s: Parameter
    unit_w: Parameter = Parameter(0.0, 0.0, 0.0, "not told apart: one unit")

    def design_w(self, compute_units: int) -> float:
        """Return what the units of a design draw beyond idle power, traffic excluded."""
        return self.kernel_w.value + compute_units * self.unit_w.value


@dataclass(frozen=True)
class KernelCalibration:
    """What the model knows of a kernel.

    Attributes
    ----------
    access : str
        `words`: an access is 64 bytes of the matrix stream. `values`: an access is one word
        of the array of values, 4 bytes in kernel scalar, 4·P in block.
    lanes : int or None
        Products a cycle; None where it is the edge P of a tile.
    terms : tuple of Term
    power : Power
    time_scatter, power_scatter : float or None
        Relative half widths of 95 % intervals, from the errors of rows that were left out
        of the fit. None: intervals come from those of the parameters.
    blocks, slices : tuple of int
        Parameters that it was fitted with; empty where it holds for all.
    covers : mapping of str to (float, float)
        Ranges of `rows`, `cols`, `nnz` and `density` that it was fitted on.
    """

    access: str
    lanes: int | None
    terms: tuple[Term, ...]
    power: Power
    time_scatter: float | None = None
    power_scatter: float | None = None
    blocks: tuple[int, ...] = ()
    slices: tuple[int, ...] = ()
    covers: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.access not in ACCESS_RULES:
            raise SpmvFpgaError(
                f"access is {self.access!r}; it must be {' or '.join(ACCESS_RULES)}."
            )


@dataclass(frozen=True)
class Calibration:
    """All parameters of the model.

    Attributes
    ----------
    name, title : str
    rates : mapping of str to Parameter
        Shared by the kernels: `clock_hz`, `many_unit_clock_hz` where there is one, and
        `channel_bytes_per_s`.
    kernels : mapping of str to KernelCalibration
        By the kernel's name; `block_p8` or `scalar_l32` goes before `block` or `scalar`.
    errors : mapping of str to float
        Mean absolute relative errors of left-out rows, where it was fitted.
    """

    name: str
    title: str
    rates: Mapping[str, Parameter]
    kernels: Mapping[str, KernelCalibration]
    errors: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, rate in self.rates.items():
            if not rate.low >= 1 / LARGEST:  # counts are divided by it
                raise SpmvFpgaError(f"rates.{name}.low is {rate.low}; a rate is above 0.")

    def kernel(self, name: str, parameter: int | None = None) -> KernelCalibration:
        """Return what is known of a kernel, with this P or L if it has its own entry.

        >>> load_calibration("u50").kernel("scalar").lanes
        1
        """
        own = f"{name}_{'p' if name == 'block' else 'l'}{parameter}"
        found = self.kernels.get(own) or self.kernels.get(name)
        if found is None:
            raise SpmvFpgaError(
                f"calibration {self.name} does not know kernel {name}; it knows "
                f"{', '.join(sorted(self.kernels))}."
            )
        return found

    def rate(self, name: str, compute_units: int = 1) -> Parameter:
        """Return a rate; the clock is lower where there are many units.

        `words_per_s` is that of one 512-bit port: the lower of the clock and the channel.

        >>> load_calibration("u50").rate("clock_hz", compute_units=8).value
        225000000.0
        >>> load_calibration("u50").rate("words_per_s").value
        195312500.0
        """
        if name == "words_per_s":
            return self._words_per_s(compute_units)
        many = self.rates.get("many_unit_clock_hz")
        if name == "clock_hz" and compute_units > MANY_UNITS and many is not None:
            clock = self.rates["clock_hz"]
            return many if many.value < clock.value else clock
        if name not in self.rates:
            raise SpmvFpgaError(f"calibration {self.name} has no rate {name}; add it.")
        return self.rates[name]

    def _words_per_s(self, compute_units: int) -> Parameter:
        clock = self.rate("clock_hz", compute_units)
        channel = self.rate("channel_bytes_per_s")
        binds = clock if clock.value < channel.value / WORD_BYTES else channel
        return Parameter(
            min(clock.value, channel.value / WORD_BYTES),
            min(clock.low, channel.low / WORD_BYTES),
            min(clock.high, channel.high / WORD_BYTES),
            binds.source,
        )

    def with_clock(self, clock_hz: float) -> Calibration:
        """Return the calibration with another clock, taken as exact.

        >>> load_calibration("u50").with_clock(2e8).rate("clock_hz").value
        200000000.0
        """
        if not (math.isfinite(clock_hz) and clock_hz > 0):
            raise SpmvFpgaError(f"the clock is {clock_hz} Hz; it must be more than 0.")
        given = Parameter(clock_hz, clock_hz, clock_hz, "given by the user")
        clocks = [name for name in self.rates if name.endswith("clock_hz")]
        return replace(self, rates={**self.rates, **dict.fromkeys(clocks, given)})

    def to_toml(self) -> str:
        """Return the text of the calibration's file."""
        return _to_toml(self)

    def save(self, path: str | Path) -> None:
        """Write the calibration's file, whole or not at all."""
        try:
            write_whole(path, self.to_toml().encode())
        except OSError as error:
            raise SpmvFpgaError(
                f"{path}: cannot be written: {error.strerror or error}."
            ) from None


def load_calibration(
    source: str | os.PathLike[str] | Calibration = "u50", board: str = "u50"
) -> Calibration:
    """Return a calibration: `paper`, `u50`, or that of a file.

    Parameters
    ----------
    source : str, path or Calibration
        A calibration is given back as it is.
    board : str
        Board whose file gives the figures that the calibration takes from one.

    Raises
    ------
    SpmvFpgaError
        If there is no such file, or it lacks something.

    Examples
    --------
    >>> load_calibration("paper").kernel("block").blocks
    (16,)
    """
    if isinstance(source, Calibration):
        return source
    return _load_shipped(str(source), board) if str(source) in SHIPPED else _load(source, board)


@cache
def _load_shipped(name: str, board: str) -> Calibration:
    return _load(_FOLDER / f"{name}.toml", board)


def _load(path: str | os.PathLike[str], board: str) -> Calibration:
    try:
        require_file(path)
        return _calibration(tomllib.loads(Path(path).read_text("utf-8")), board)
    except SpmvFpgaError as error:
        raise SpmvFpgaError(f"{path}: {error}") from None
    except OSError as error:
        raise SpmvFpgaError(
            f"{path}: cannot be read: {error.strerror or error}; the calibration must be "
            f"{', '.join(SHIPPED)} or a file."
        ) from None
    except RecursionError:
        raise SpmvFpgaError(f"{path}: not a calibration: nested too deep; mend it.") from None
    except ValueError as error:  # no TOML, or no UTF-8
        raise SpmvFpgaError(f"{path}: not a calibration: {error}; mend it.") from None


# A file's content, checked: a message names the key and what stands there.


def _calibration(content: Mapping[str, Any], board: str) -> Calibration:
    top = _Entry("", content, ("name", "title", "rates", "kernels", "errors"))
    return Calibration(
        name=top.text("name"),
        title=top.text("title"),
        rates={name: _parameter(entry, board) for name, entry in top.entries("rates").items()},
        kernels={name: _kernel(entry, board) for name, entry in top.entries("kernels").items()},
        errors=top.table("errors", {}).numbers(),
    )


def _kernel(entry: _Entry, board: str) -> KernelCalibration:
    entry.allow(
        "access", "lanes", "terms", "power", "time_scatter", "power_scatter", "blocks",
        "slices", "covers",
    )  # fmt: skip
    power = entry.table("power")
    power.allow(*(field.name for field in fields(Power)))
    return KernelCalibration(
        access=entry.text("access"),
        lanes=None if entry.get("lanes") == "block" else entry.whole("lanes"),
        terms=tuple(_term(term, board) for term in entry.tables("terms")),
        power=Power(**{k: _parameter(v, board) for k, v in power.entries().items()}),
        time_scatter=entry.number("time_scatter", None),
        power_scatter=entry.number("power_scatter", None),
        blocks=entry.wholes("blocks"),
        slices=entry.wholes("slices"),
        covers=_covers(entry.table("covers", {})),
    )


def _covers(entry: _Entry) -> dict[str, tuple[float, float]]:
    entry.allow(*COVERED)
    covers = {}
    for key in entry.content:
        bounds = entry.items(key)
        if len(bounds) != 2:
            raise entry.wrong(key, "a list of two numbers, the least and the most")
        low, high = (_number(bound) for bound in bounds)
        if low is None or high is None or not low <= high:
            raise entry.wrong(key, "two numbers that ascend")
        covers[key] = (low, high)
    return covers


def _term(entry: _Entry, board: str) -> Term:
    entry.allow(*(field.name for field in fields(Term)))
    has_seconds = "seconds" in entry.content
    return Term(
        name=entry.text("name"),
        count=entry.text("count"),
        overlaps=entry.flag("overlaps"),
        seconds=_parameter(entry.table("seconds"), board) if has_seconds else None,
        rate=entry.text("rate") if "rate" in entry.content else None,
    )


def _parameter(entry: _Entry, board: str) -> Parameter:
    """Read a parameter; `board = NAME` takes value and source from the board's file."""
    entry.allow("value", "low", "high", "source", "board")
    try:
        if "board" in entry.content:
            return _board_parameter(entry, board)
        value, low, high = (entry.number(key) for key in ("value", "low", "high"))
        return Parameter(value, low, high, entry.text("source"))
    except _ParameterError as error:
        raise SpmvFpgaError(f"{entry.where}: {error}") from None


def _board_parameter(entry: _Entry, board: str) -> Parameter:
    name, card = entry.text("board"), load_board(board)
    value, figure = card.value(name), card.figures.get(name)
    source = str(figure.source) if figure else ""
    if "source" in entry.content:
        source = f"{source}; {entry.text('source')}"
    low, high = min(entry.number("low", value), value), max(entry.number("high", value), value)
    return Parameter(value, low, high, source)


def _number(value: Any) -> float | None:
    """Return a number of a file, None where it is none that the model can use."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and 0 <= value <= LARGEST else None


_NEEDED: Any = object()


@dataclass(frozen=True)
class _Entry:
    """A table of the file, with its place in it."""

    where: str
    content: Mapping[str, Any]
    allowed: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.content, Mapping):
            raise SpmvFpgaError(
                f"{self.where} is {shortened(repr(self.content))}; it must be a table."
            )
        if self.allowed is not None:
            self.allow(*self.allowed)

    def key(self, key: str) -> str:
        return f"{self.where}.{key}" if self.where else key

    def wrong(self, key: str, wanted: str) -> SpmvFpgaError:
        found = shortened(repr(self.content[key]))
        return SpmvFpgaError(f"{self.key(key)} is {found}; it must be {wanted}.")

    def allow(self, *keys: str) -> None:
        for key in self.content:
            if key not in keys:
                raise SpmvFpgaError(
                    f"{self.key(shortened(key))} is not known; it must be one of "
                    f"{', '.join(keys)}."
                )

    def get(self, key: str, default: Any = _NEEDED) -> Any:
        if key in self.content:
            return self.content[key]
        if default is not _NEEDED:
            return default
        where = f"{self.where}: " if self.where else ""
        raise SpmvFpgaError(f"{where}{key!r} is missing; add it.")

    def text(self, key: str) -> str:
        text = self.get(key)
        if not isinstance(text, str) or not text.strip():
            raise self.wrong(key, "a text")
        return text

    def flag(self, key: str) -> bool:
        flag = self.get(key, False)
        if not isinstance(flag, bool):
            raise self.wrong(key, "true or false")
        return flag

    def number(self, key: str, default: Any = _NEEDED) -> Any:
        if key not in self.content and default is not _NEEDED:
            return default
        number = _number(self.get(key))
        if number is None:
            raise self.wrong(key, f"a finite number, not negative and at most {LARGEST:g}")
        return number

    def numbers(self) -> dict[str, float]:
        return {key: self.number(key) for key in self.content}

    def whole(self, key: str) -> int:
        if not _is_whole(self.get(key)):
            raise self.wrong(key, f"a whole number from 1 to {MOST_LANES}")
        return int(self.content[key])

    def wholes(self, key: str) -> tuple[int, ...]:
        if key not in self.content:
            return ()
        if not all(map(_is_whole, self.items(key))):
            raise self.wrong(key, f"a list of whole numbers from 1 to {MOST_LANES}")
        return tuple(self.content[key])

    def items(self, key: str) -> Sequence[Any]:
        found = self.get(key)
        if not isinstance(found, list | tuple):
            raise self.wrong(key, "a list")
        return found

    def table(self, key: str, default: Any = _NEEDED) -> _Entry:
        return _Entry(self.key(key), self.get(key, default))

    def tables(self, key: str) -> list[_Entry]:
        where = self.key(key)
        return [_Entry(f"{where}[{i}]", content) for i, content in enumerate(self.items(key))]

    def entries(self, key: str | None = None) -> dict[str, _Entry]:
        table = self if key is None else self.table(key)
        return {name: table.table(name) for name in table.content}


def _is_whole(value: Any) -> bool:
    return type(value) is int and 1 <= value <= MOST_LANES


# TOML, written: strings as JSON writes them are TOML strings too.


def _to_toml(calibration: Calibration) -> str:
    lines = [
        f"# Calibration of the roofline model: {calibration.title}.",
        "# SI units; low and high bound a 95 % interval unless the source says otherwise.",
        f"name = {_text(calibration.name)}",
        f"title = {_text(calibration.title)}",
        "",
        "[rates]",
        *(f"{name} = {_inline(rate)}" for name, rate in calibration.rates.items()),
    ]
    if calibration.errors:
        lines += [
            "",
            "# Mean absolute relative errors of rows left out of the fit.",
            "[errors]",
        ]
        lines += [f"{name} = {error!r}" for name, error in calibration.errors.items()]
    for name, kernel in calibration.kernels.items():
        lines += ["", *_kernel_lines(name, kernel)]
    return "\n".join(lines) + "\n"


def _kernel_lines(name: str, kernel: KernelCalibration) -> list[str]:
    lines = [
        f"[kernels.{name}]",
        f"access = {_text(kernel.access)}",
        f"lanes = {_text('block') if kernel.lanes is None else kernel.lanes}",
    ]
    facts = {
        "time_scatter": kernel.time_scatter,
        "power_scatter": kernel.power_scatter,
        "blocks": list(kernel.blocks) or None,
        "slices": list(kernel.slices) or None,
    }
    lines += [f"{key} = {fact!r}" for key, fact in facts.items() if fact is not None]
    if kernel.covers:
        lines += ["", f"[kernels.{name}.covers]"]
        lines += [f"{key} = [{low!r}, {high!r}]" for key, (low, high) in kernel.covers.items()]
    lines += ["", f"[kernels.{name}.power]"]
    defaults = {field.name: field.default for field in fields(Power)}
    told = {k: v for k, v in vars(kernel.power).items() if v != defaults[k]}
    lines += [f"{key} = {_inline(value)}" for key, value in told.items()]
    for term in kernel.terms:
        lines += ["", f"[[kernels.{name}.terms]]", f"name = {_text(term.name)}"]
        lines.append(f"count = {_text(term.count)}")
        if term.overlaps:
            lines.append("overlaps = true")
        if term.rate is not None:
            lines.append(f"rate = {_text(term.rate)}")
        if term.seconds is not None:
            lines.append(f"seconds = {_inline(term.seconds)}")
    return lines


def _inline(parameter: Parameter) -> str:
    numbers = f"value = {parameter.value!r}, low = {parameter.low!r}, high = {parameter.high!r}"
    return f"{{ {numbers}, source = {_text(parameter.source)} }}"


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
