"""Options in a matrix's name: ``key=value,key=value``."""

from __future__ import annotations

from collections.abc import Collection

from ..errors import MatrixError, shortened


def parse_options(text: str, allowed: Collection[str], spec: str) -> dict[str, str]:
    """Split options and refuse keys that are unknown or given twice.

    Parameters
    ----------
    text : str
        What follows the name, such as ``"n=64,seed=2"``; may be empty.
    allowed : collection of str
        Keys that the name knows.
    spec : str
        The whole name, for messages.

    Raises
    ------
    MatrixError
        If a key is unknown, repeated or without a value.

    Examples
    --------
    >>> parse_options("n=64,seed=2", ("n", "seed"), "gallery:banded:n=64,seed=2")
    {'n': '64', 'seed': '2'}
    """
    options: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        key, separator, value = (part.strip() for part in item.partition("="))
        if key not in allowed:
            known = ", ".join(allowed)
            raise MatrixError(f"{key!r} is no option here; there are {known}.", path=spec)
        if not separator or not value:
            raise MatrixError(f"{key} has no value; write {key}=VALUE.", path=spec)
        if key in options:
            raise MatrixError(f"{key} is given twice; give it once.", path=spec)
        options[key] = value
    return options


def whole_number(key: str, text: str, spec: str, *, least: int = 1) -> int:
    """Read a whole number of at least `least`.

    >>> whole_number("n", "64", "gallery:diagonal:n=64")
    64
    """
    # Python refuses to read a number of thousands of digits.
    is_whole = text.isascii() and text.isdigit() and len(text) <= 18
    if not is_whole or int(text) < least:
        raise MatrixError(
            f"{key} is {shortened(text)}; it must be a whole number of at least {least}, of at "
            "most 18 digits.",
            path=shortened(spec),
        )
    return int(text)
