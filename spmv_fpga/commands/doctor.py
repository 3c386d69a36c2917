"""`doctor`: what is installed, what is missing, and the line that mends it."""

from __future__ import annotations

import click

from ..errors import SpmvFpgaError
from .base import Terminal, common_options, pass_terminal


@click.command()
@common_options
@pass_terminal
def doctor(terminal: Terminal) -> None:
    """Check what is installed; exit 0 only if the main job can run here."""
    from ..report.tables import findings_table
    from ..runtime.environment import check_installation

    findings = check_installation()
    terminal.show([findings_table(findings)])
    if missing := [f.name for f in findings if f.is_needed and not f.ok]:
        raise SpmvFpgaError(f"the main job cannot run here; missing: {', '.join(missing)}.")
