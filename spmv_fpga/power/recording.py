"""A command under a meter: its power trace, and the regions that it marks itself."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import SensorError, ToolNotFoundError
from .attribution import Attribution, attribute
from .meter import Meter
from .regions import Region, read_region_marks
from .sensor import Sensor
from .trace import Trace

REGIONS_VARIABLE = "SPMV_FPGA_REGIONS"
"""Names the file to which a recorded command appends `begin NAME TIME`, `end NAME TIME`."""


@dataclass(frozen=True)
class Recording:
    """What was recorded of a command.

    Attributes
    ----------
    trace : Trace
    regions : tuple of Region
        Those that the command marked, and the idle phases.
    attribution : Attribution
    status : int
        The command's exit status; negative where a signal ended it.
    """

    trace: Trace
    regions: tuple[Region, ...]
    attribution: Attribution
    status: int


def record(
    command: Sequence[str], sensor: Sensor, *, cadence_s: float, idle_s: float
) -> Recording:
    """Run a command and record a sensor until it ends.

    Parameters
    ----------
    command : sequence of str
        Program and arguments; its output goes where this process's output goes.
    sensor : Sensor
        Not yet opened.
    cadence_s : float
        Seconds between readings.
    idle_s : float
        Seconds of idle power to record before and after.

    Returns
    -------
    Recording

    Raises
    ------
    ToolNotFoundError
        If there is no such program.
    SensorError
        If the sensor gave nothing usable, or the command wrote marks that cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="spmv_fpga_regions_") as folder:
        marks = Path(folder) / "regions"
        environment = {**os.environ, REGIONS_VARIABLE: str(marks)}
        with Meter(sensor, cadence_s=cadence_s, idle_s=idle_s) as meter:
            status = _run(command, environment)
            end_s = time.monotonic()
        marked, warnings = read_region_marks(marks, end_s)
    for region in marked:
        meter.add_region(region.name, region.start_s, region.end_s)
    trace, regions = meter.trace(), meter.regions()
    attribution = attribute(trace, regions, [*meter.warnings, *warnings])
    return Recording(trace, regions, attribution, status)


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    try:
        return subprocess.run(command, env=environment, check=False).returncode
    except FileNotFoundError:
        raise ToolNotFoundError(f"the program {command[0]}", "check its name.") from None
    except OSError as error:
        raise SensorError(f"{command[0]} cannot be run: {error.strerror}.") from None
