"""JSON documents that come from outside, read so that nothing in them surprises later.

Every number is finite and fits a float64, every text can be written as UTF-8.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NoReturn

from .errors import SpmvFpgaError
from .files import require_file

_MOST_DIGITS = 308
"""Whole numbers of more digits fit no float64."""


def read_json(path: str | Path, error: type[SpmvFpgaError] = SpmvFpgaError) -> Any:
    """Read a JSON file.

    Parameters
    ----------
    path : str or Path
    error : type, optional
        What to raise.

    Raises
    ------
    SpmvFpgaError
        If the file cannot be read or is no JSON; says which and why.
    """
    try:
        require_file(path)
        text = Path(path).read_text("utf-8-sig")
    except OSError as cause:
        raise error(f"{path}: cannot be read: {cause.strerror}.") from None
    except UnicodeDecodeError as cause:
        raise error(
            f"{path}: is no JSON document: byte {cause.start} is no UTF-8; write it as UTF-8."
        ) from None
    return parse_json(text, path, error)


def parse_json(text: str, where: str | Path, error: type[SpmvFpgaError] = SpmvFpgaError) -> Any:
    """Parse the text of a JSON document.

    Parameters
    ----------
    text : str
    where : str or Path
        Where it comes from, for messages.
    error : type, optional
        What to raise.

    Raises
    ------
    SpmvFpgaError
        If it is no JSON, is nested too deep, holds NaN, a number that fits no float64, or
        half a character.

    Examples
    --------
    >>> parse_json('{"a": 1.5}', "a.json")
    {'a': 1.5}
    >>> parse_json('{"a": NaN}', "a.json")
    Traceback (most recent call last):
    ...
    spmv_fpga.errors.SpmvFpgaError: a.json: is no JSON document: NaN is no number; mend it.
    """
    try:
        document = json.loads(
            text, parse_int=_whole, parse_float=_real, parse_constant=_refuse_constant
        )
        if "\\u" in text:  # only an escape can stand for half a character
            json.dumps(document, ensure_ascii=False).encode()
    except json.JSONDecodeError as cause:
        reason = f"line {cause.lineno}: {cause.msg}"
    except RecursionError:
        reason = "it is nested too deep"
    except UnicodeEncodeError as cause:
        half = cause.object[cause.start]
        reason = f"{half!r} is half a character (a surrogate without its other half)"
    except ValueError as cause:
        reason = str(cause)
    else:
        return document
    raise error(f"{where}: is no JSON document: {reason}; mend it.")


def _whole(text: str) -> int:
    if len(text.lstrip("-")) > _MOST_DIGITS:
        raise ValueError(f"a number of {len(text)} digits is too large")
    return int(text)


def _real(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
