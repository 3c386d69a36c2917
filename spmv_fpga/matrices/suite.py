"""The matrices of the paper's Table 1, from ``matrices/suite.toml``."""

from __future__ import annotations

import difflib
import functools
import sys
from collections.abc import Iterable
from dataclasses import dataclass

from ..resources import data_dir

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class SuiteEntry:
    """One matrix as the paper prints it.

    Parameters
    ----------
    short : str
        Name in the paper, such as ``"TS2383"``.
    group, name : str
        Name in the SuiteSparse Matrix Collection.
    n : int
        Order of the square matrix.
    nnz : int
        Entries that the paper multiplied: of the stored triangle where symmetric.
    density_percent : float
        nnz ÷ (256 · non-empty 16 x 16 tiles), in per cent, as printed.
    is_symmetric : bool
        Whether the collection stores one triangle only.
    """

    short: str
    group: str
    name: str
    n: int
    nnz: int
    density_percent: float
    is_symmetric: bool

    @property
    def full_name(self) -> str:
        """``Group/Name``."""
        return f"{self.group}/{self.name}"


@functools.cache
def list_suite() -> tuple[SuiteEntry, ...]:
    """Return the 27 matrices in the paper's order.

    >>> len(list_suite()), list_suite()[-1].full_name
    (27, 'TSOPF/TSOPF_RS_b2383')
    """
    text = (data_dir("matrices") / "suite.toml").read_text(encoding="utf-8")
    return tuple(SuiteEntry(**record) for record in tomllib.loads(text)["matrix"])


def find_in_suite(name: str) -> SuiteEntry | None:
    """Return the matrix with this short name, name or ``Group/Name``.

    >>> find_in_suite("TSOPF_RS_b2383").short
    'TS2383'
    """
    for entry in list_suite():
        if name in (entry.short, entry.name, entry.full_name):
            return entry
    return None


def near_names(name: str, others: Iterable[str] = ()) -> str:
    """Return a sentence with names that resemble `name`.

    >>> near_names("TS2384")
    'did you mean TS2383, TS300 or TS162?'
    """
    known = {key for e in list_suite() for key in (e.short, e.name, e.full_name)} | set(others)
    by_lower_case = {key.lower(): key for key in sorted(known)}
    near = difflib.get_close_matches(name.lower(), by_lower_case, n=3, cutoff=0.5)
    if not near:
        return "`spmv-fpga matrices list` shows the names that it knows."
    *most, last = (by_lower_case[key] for key in near)
    return f"did you mean {', '.join(most)} or {last}?" if most else f"did you mean {last}?"
