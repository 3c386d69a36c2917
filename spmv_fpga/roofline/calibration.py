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
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from ..boards import load_board
from ..errors import SpmvFpgaError
from ..formats.base import WORD_BYTES

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SHIPPED = ("paper", "u50")
_FOLDER = Path(__file__).resolve().parent / "calibrations"

MANY_UNITS = 4
"""Units up to which a design closes at the board's clock; with more, at its clock for many."""

COUNTS = frozenset(
    ("launches", "rows", "nnz", "accesses", "beats", "x_words", "y_words", "fill_cycles",
     "unpack_cycles", "slot_cycles", "reduce_cycles")
)  # fmt: skip
"""What a term may count; each is a property of `model.Workload`."""

ACCESS_RULES = ("words", "values")


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
            raise SpmvFpgaError(
                f"a parameter is {self.value} in {self.low} to {self.high}; it must be finite, "
                "not negative and within its interval."
            )
        if not self.value <= self.high or not self.source:
            raise SpmvFpgaError(
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
        What a compute unit adds.
    w_per_byte_per_s : Parameter
        What each byte a second that the kernel reads of the matrix adds.
    """

    idle_w: Parameter
    kernel_w: Parameter
    w_per_byte_per_s: Parameter


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
        target = Path(path)
        temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(self.to_toml(), "utf-8")
            temporary.replace(target)
        except OSError as error:
            raise SpmvFpgaError(
                f"{path}: cannot be written: {error.strerror or error}."
            ) from None
        finally:
            temporary.unlink(missing_ok=True)


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
        return _calibration(tomllib.loads(Path(path).read_text("utf-8")), board)
    except SpmvFpgaError as error:
        raise SpmvFpgaError(f"{path}: {error}") from None
    except OSError as error:
        raise SpmvFpgaError(
            f"{path}: cannot be read: {error.strerror or error}; the calibration must be "
            f"{', '.join(SHIPPED)} or a file."
        ) from None
    except KeyError as error:
        raise SpmvFpgaError(f"{path}: {error} is missing; add it.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, TypeError, ValueError) as error:
        raise SpmvFpgaError(f"{path}: not a calibration: {error}; mend it.") from None


def _calibration(content: Mapping[str, Any], board: str) -> Calibration:
    return Calibration(
        name=content["name"],
        title=content["title"],
        rates={name: _parameter(entry, board) for name, entry in content["rates"].items()},
        kernels={name: _kernel(entry, board) for name, entry in content["kernels"].items()},
        errors=content.get("errors", {}),
    )


def _kernel(entry: Mapping[str, Any], board: str) -> KernelCalibration:
    power = {name: _parameter(value, board) for name, value in entry["power"].items()}
    return KernelCalibration(
        access=entry["access"],
        lanes=None if entry["lanes"] == "block" else int(entry["lanes"]),
        terms=tuple(_term(term, board) for term in entry["terms"]),
        power=Power(**power),
        time_scatter=entry.get("time_scatter"),
        power_scatter=entry.get("power_scatter"),
        blocks=tuple(entry.get("blocks", ())),
        slices=tuple(entry.get("slices", ())),
        covers={k: (float(v[0]), float(v[1])) for k, v in entry.get("covers", {}).items()},
    )


def _term(entry: Mapping[str, Any], board: str) -> Term:
    facts = dict(entry)
    if "seconds" in facts:
        facts["seconds"] = _parameter(facts["seconds"], board)
    return Term(**facts)


def _parameter(entry: Mapping[str, Any], board: str) -> Parameter:
    """Read a parameter; `board = NAME` takes value and source from the board's file."""
    facts = dict(entry)
    name = facts.pop("board", None)
    if name is not None:
        figure = load_board(board).figures.get(name)
        value = load_board(board).value(name)
        facts["value"] = value
        facts["low"] = min(facts.get("low", value), value)
        facts["high"] = max(facts.get("high", value), value)
        stated = str(figure.source) if figure else ""
        facts["source"] = f"{stated}; {facts['source']}" if "source" in facts else stated
    return Parameter(**facts)


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
    lines += [f"{key} = {_inline(value)}" for key, value in vars(kernel.power).items()]
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
