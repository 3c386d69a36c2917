"""`matrices …`: the collection, the cache and the paper's names."""

from __future__ import annotations

from collections.abc import Sequence

import click

from .base import Terminal, common_options, pass_terminal


@click.group("matrices")
def matrices_group() -> None:
    """Look at the collection, the cache and the paper's names."""


@matrices_group.command("list")
@click.argument("pattern", required=False)
@common_options
@pass_terminal
def matrices_list(terminal: Terminal, pattern: str | None) -> None:
    """List the paper's matrices, or those of the collection whose name holds PATTERN."""
    from ..matrices import list_suite, search
    from ..matrices.collection import find_archive
    from ..report.tables import index_table, suite_tables

    if pattern:
        terminal.show([index_table(search(pattern))])
        return
    names = [f"{entry.group}/{entry.name}" for entry in list_suite()]
    terminal.show(suite_tables(list_suite(), {name for name in names if find_archive(name)}))


@matrices_group.command("fetch")
@click.argument("names", nargs=-1, required=True, metavar="NAME…")
@common_options
@pass_terminal
def matrices_fetch(terminal: Terminal, names: Sequence[str]) -> None:
    """Download matrices of the collection into the cache."""
    from ..matrices import fetch

    for name in names:
        with terminal.download() as progress:
            path = fetch(name, progress)
        terminal.say(f"{name}: {path}")


@matrices_group.command("info")
@click.argument("spec", metavar="M")
@common_options
@pass_terminal
def matrices_info(terminal: Terminal, spec: str) -> None:
    """Tell what is known of a matrix, without downloading it."""
    from ..matrices import describe
    from ..report.tables import matrix_table

    terminal.show([matrix_table(describe(spec))])
