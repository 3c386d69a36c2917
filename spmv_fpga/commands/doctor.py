"""`doctor`: what is installed, what is missing, and the line that mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ..errors import SpmvFpgaError
from .base import Terminal, common_options, pass_terminal

if TYPE_CHECKING:
    from ..runtime.environment import Finding


@click.command()
@common_options
@pass_terminal
def doctor(terminal: Terminal) -> None:
    """Check what is installed; exit 0 only if the main job can run here."""
    from ..report.tables import findings_table
    from ..runtime.environment import check_installation

    findings = [*check_installation(), _baseline_finding(), *_power_findings()]
    terminal.show([findings_table(findings)])
    if missing := [f.name for f in findings if f.is_needed and not f.ok]:
        raise SpmvFpgaError(f"the main job cannot run here; missing: {', '.join(missing)}.")


def _baseline_finding() -> Finding:
    """Return whether the CPU's product is that of oneMKL."""
    from ..baselines.mkl import find_library
    from ..resources import install_command
    from ..runtime.environment import Finding

    library = find_library()
    return Finding(
        "oneMKL",
        library is not None,
        str(library or "not installed; the CPU line is SciPy's"),
        "" if library else f"run `{install_command('mkl')}`",
        is_needed=False,
    )


def _power_findings() -> list[Finding]:
    """Return the power sources; the main job runs without them, and shows no energy."""
    from ..power.sources import find_sensors
    from ..runtime.environment import Finding

    return [
        Finding(f"power source {f.name}", f.ok, f.detail, f.remedy, is_needed=False)
        for f in find_sensors()
    ]
