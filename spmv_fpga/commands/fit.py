"""`fit`: what a design takes of a board, and how many units fit, before it is built."""

from __future__ import annotations

from typing import Any

import click

from .base import (
    MOST_UNITS,
    Terminal,
    common_options,
    deliver,
    json_options,
    kernel_options,
    kernel_parameter,
    note_unused,
    pass_terminal,
)


@click.command("fit")
@kernel_options("block", has_clock=False)
@click.option(
    "--reports",
    metavar="DIR",
    help="Folder of a Vitis build: its reports beside the estimate.",
)
@json_options
@common_options
@pass_terminal
def fit_command(
    terminal: Terminal,
    /,
    kernel: str,
    block: int,
    slice_size: int,
    compute_units: int | str,
    board: str,
    reports: str | None,
    as_json: bool,
    json_out: str | None,
    **lanes: int | None,
) -> None:
    """Say what a design takes of a board, and how many units fit, before it is built."""
    from ..boards import load_board
    from ..design_fit import fit
    from ..report.fit import comparison_tables, fit_tables
    from ..toolchain.reports import compare, read_reports

    parameters = kernel_parameter(kernel, block, slice_size, **lanes)
    note_unused(terminal, kernel, block, slice_size, **lanes)
    card = load_board(board)
    most = _most(kernel, parameters, card)
    asked = (most or 1) if compute_units == MOST_UNITS else int(compute_units)
    report = fit(kernel, parameters, card, asked)
    document = {**report.to_json(), "max_units": most}
    tables = fit_tables(report, most)
    if reports is not None:
        found = read_reports(reports)
        rows = compare(report, found)
        document["comparison"] = [row.to_json() for row in rows]
        tables += comparison_tables(rows, found)
    deliver(terminal, document, tables, as_json=as_json, json_out=json_out)


def _most(kernel: str, parameters: dict[str, int], card: Any) -> int | None:
    """Return how many units fit; None where not even one does."""
    from ..design_fit import fit, max_units

    if not fit(kernel, parameters, card, 1).fits:
        return None
    return max_units(kernel, parameters, card)
