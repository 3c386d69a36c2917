"""The commands `spmv-fpga energy …`: power traces and the energy of regions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from ..errors import SensorError
from ..json_files import read_json
from .base import (
    FiniteRange,
    Terminal,
    common_options,
    deliver,
    json_options,
    output_file,
    pass_terminal,
    spread_words,
)

if TYPE_CHECKING:
    from ..power.comparison import RunFigures

_STDERR = 2


@click.group("energy")
def energy_group() -> None:
    """Record power traces, attribute their energy to regions, compare variants."""


@energy_group.command("record")
@click.option(
    "--power",
    default="auto",
    show_default=True,
    metavar="S",
    help="auto, xrt, rapl, nvml or replay:FILE.",
)
@click.option("-o", "--output", type=output_file, metavar="TRACE.csv", help="Write the trace.")
@click.option("--regions-out", type=output_file, metavar="R.json", help="Write the regions.")
@click.option(
    "--cadence",
    "cadence_s",
    type=FiniteRange(min=1e-4, max=3600),
    default=0.02,
    show_default=True,
    metavar="S",
    help="Seconds between readings.",
)
@click.option(
    "--idle",
    "idle_s",
    type=FiniteRange(min=0, max=86400),
    default=0.0,
    show_default=True,
    metavar="S",
    help="Seconds of idle power to record before and after.",
)
@json_options
@common_options
@click.argument(
    "command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…"
)
@pass_terminal
def record_command(
    terminal: Terminal,
    /,
    power: str,
    output: str | None,
    regions_out: str | None,
    cadence_s: float,
    idle_s: float,
    as_json: bool,
    json_out: str | None,
    command: Sequence[str],
) -> None:
    """Run COMMAND and record a power sensor meanwhile.

    COMMAND may mark regions: it appends lines "begin NAME TIME" and "end NAME TIME", with
    a monotonic time in seconds, to the file named in SPMV_FPGA_REGIONS. The exit status is
    that of COMMAND.
    """
    from ..power import write_regions, write_trace
    from ..power.recording import record
    from ..power.sources import choose_sensor
    from ..report.energy import attribution_tables

    recording = record(
        command,
        choose_sensor(power),
        cadence_s=cadence_s,
        idle_s=idle_s,
        stdout=_STDERR if as_json else None,  # stdout holds the document and nothing else
    )
    # Before all else: a run of hours is not to be lost to what comes of its figures.
    if output:
        write_trace(output, recording.trace)
    if regions_out:
        write_regions(regions_out, recording.regions)
    attribution = recording.attribution()
    deliver(
        terminal, attribution.to_json(), attribution_tables(attribution),
        as_json=as_json, json_out=json_out,
    )  # fmt: skip
    if recording.status:
        terminal.say(f"{command[0]} ended with status {recording.status}")
        shell_status = recording.status if recording.status > 0 else 128 - recording.status
        raise click.exceptions.Exit(shell_status)


@energy_group.command("integrate")
@click.argument("trace", metavar="TRACE")
@click.option("--regions", metavar="R.json", help="Regions on the trace's clock.")
@json_options
@common_options
@pass_terminal
def integrate_command(
    terminal: Terminal, /, trace: str, regions: str | None, as_json: bool, json_out: str | None
) -> None:
    """Attribute the energy of a recorded TRACE to regions."""
    from ..power import attribute, read_regions
    from ..power.replay import load_trace
    from ..report.energy import attribution_tables

    attribution = attribute(load_trace(trace), read_regions(regions) if regions else ())
    deliver(
        terminal, attribution.to_json(), attribution_tables(attribution),
        as_json=as_json, json_out=json_out,
    )  # fmt: skip


class ManyFiles(click.Command):
    """A command whose options `--a` and `--b` take all words up to the next option."""

    def parse_args(self, context: click.Context, arguments: list[str]) -> list[str]:
        """Give each word its option back."""
        return super().parse_args(context, spread_words(arguments, ("--a", "--b")))


@energy_group.command("compare", cls=ManyFiles)
@click.option(
    "--a", "files_a", multiple=True, required=True, metavar="FILE…", help="Runs of variant a."
)
@click.option(
    "--b", "files_b", multiple=True, required=True, metavar="FILE…", help="Runs of variant b."
)
@click.option("--region", metavar="NAME", help="Region; not needed where the runs have one.")
@click.option("--paired", is_flag=True, help="Runs of a and b took turns.")
@click.option("--force", is_flag=True, help="Compare unlike sensors or boundaries too.")
@json_options
@common_options
@pass_terminal
def compare_command(
    terminal: Terminal,
    /,
    files_a: Sequence[str],
    files_b: Sequence[str],
    region: str | None,
    paired: bool,
    force: bool,
    as_json: bool,
    json_out: str | None,
) -> None:
    """Compare two variants over many runs: what time says, and what energy says.

    Each FILE is the JSON of `energy integrate` for one run.
    """
    from ..power.comparison import compare
    from ..report.energy import comparison_texts

    runs_a, runs_b = (
        [_figures(file, region) for file in files] for files in (files_a, files_b)
    )
    comparison = compare(runs_a, runs_b, paired=paired, force=force)
    deliver(
        terminal, comparison.to_json(), comparison_texts(comparison),
        as_json=as_json, json_out=json_out,
    )  # fmt: skip


def _figures(path: str, region: str | None) -> RunFigures:
    from ..power.comparison import RunFigures

    try:
        return RunFigures.from_document(read_json(path, SensorError), region)
    except SensorError as error:
        reason = str(error)
        raise SensorError(reason if path in reason else f"{path}: {reason}") from None
