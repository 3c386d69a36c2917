"""Boards: one TOML file each, every hardware figure with its source.

A board is added by a file. A figure that a file does not hold is unknown, and asking for
it raises.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..errors import BoardError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MANY_UNITS = 4
"""Units up to which a design closes at a board's clock; with more, at its clock for many."""
RESOURCES = ("lut", "ff", "bram", "uram", "dsp")
"""What a design takes of the chip: LUTs, flip-flops, RAM blocks of 36 Kib, of 288 Kib, DSPs."""

_FOLDER = Path(__file__).resolve().parent
_AXI_FIELDS = (
    "latency", "num_read_outstanding", "num_write_outstanding", "max_burst_length",
)  # fmt: skip


@dataclass(frozen=True)
class Figure:
    """A hardware fact: a value in SI units and where it comes from."""

    value: float | int | str
    source: str


@dataclass(frozen=True)
class Board:
    """What the project knows of a card.

    Attributes
    ----------
    name, title : str
        Short and full name.
    platforms : tuple of str
        Vitis platforms, newest first.
    emulated_platform : str
        Name under which the emulated card shows itself.
    memory_tag : str
        Name of a memory bank in connectivity, for example `HBM`.
    num_banks : int
    bank_bytes : int
    slr : str
        Region of the chip that the memory ports are in.
    axi : dict of str to int
        Parameters of the memory ports' adapters.
    figures : dict of str to Figure
        Clocks, rates and limits, and for each of `RESOURCES` how much is `_available`, what
        the `_shell` takes, and the share that is the `_limit`, shell included.
    """

    name: str
    title: str
    platforms: tuple[str, ...]
    emulated_platform: str
    memory_tag: str
    num_banks: int
    bank_bytes: int
    slr: str
    axi: dict[str, int]
    figures: dict[str, Figure]

    def value(self, figure: str) -> float:
        """Return a figure's value; raises `BoardError` if the board's file lacks it.

        >>> load_board("u50").value("power_cap_w")
        75.0
        """
        if figure not in self.figures:
            raise BoardError(
                f"board {self.name} does not say {figure}; add it, with its source, to "
                f"{self.name}.toml."
            )
        return float(self.figures[figure].value)

    def expected_clock_hz(self, compute_units: int) -> float:
        """Return the clock, in hertz, that a design of so many units closes at.

        >>> [load_board("u50").expected_clock_hz(n) / 1e6 for n in (4, 5, 8)]
        [300.0, 225.0, 225.0]
        """
        clock_hz = self.value("clock_hz")
        if compute_units <= MANY_UNITS:
            return clock_hz
        return min(clock_hz, self.value("many_unit_clock_hz"))

    def bank(self, number: int) -> str:
        """Return the name of a memory bank.

        >>> load_board("u50").bank(3)
        'HBM[3]'
        """
        return f"{self.memory_tag}[{number}]"


def board_names() -> tuple[str, ...]:
    """Return the names of all boards."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


@cache
def load_board(name: str) -> Board:
    """Read a board's file.

    Raises
    ------
    BoardError
        If there is no such board, its file is damaged, or a figure has no source.
    """
    if name not in board_names():
        raise BoardError(f"board is {name!r}; it must be {' or '.join(board_names())}.")
    try:
        return _board(name, tomllib.loads((_FOLDER / f"{name}.toml").read_text("utf-8")))
    except (tomllib.TOMLDecodeError, KeyError) as error:
        raise BoardError(f"{name}.toml: {error}; mend the board's file.") from None


def _board(name: str, content: dict[str, Any]) -> Board:
    memory = {k: v for k, v in content["memory"].items() if k != "tag"}
    facts = {k: _figure(name, k, v) for k, v in {**memory, **content["axi"]}.items()}
    return Board(
        name=name,
        title=content["title"],
        platforms=tuple(content["platforms"]),
        emulated_platform=content["emulated_platform"],
        memory_tag=content["memory"]["tag"],
        num_banks=int(facts["num_banks"].value),
        bank_bytes=int(facts["bank_bytes"].value),
        slr=str(facts["slr"].value),
        axi={field: int(facts[field].value) for field in _AXI_FIELDS},
        figures={
            k: _figure(name, k, v)
            for k, v in {**content["figures"], **content.get("resources", {})}.items()
        },
    )


def _figure(board: str, name: str, entry: Any) -> Figure:
    if not isinstance(entry, dict) or set(entry) != {"value", "source"} or not entry["source"]:
        raise BoardError(f"{board}.toml: {name} must be {{ value = …, source = … }}.")
    return Figure(entry["value"], entry["source"])
