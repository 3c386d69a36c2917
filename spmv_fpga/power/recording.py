"""A command under a meter: its power trace, and the regions that it marks itself."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
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
_PATIENCE_S = 2.0


@dataclass(frozen=True)
class Recording:
    """What was recorded of a command.

    Attributes
    ----------
    trace : Trace
    regions : tuple of Region
        Those that the command marked, and the idle phases.
    status : int
        The command's exit status; negative where a signal ended it.
    warnings : tuple of str
        What went wrong on the way; each mark that cannot be used is named.
    """

    trace: Trace
    regions: tuple[Region, ...]
    status: int
    warnings: tuple[str, ...] = ()

    def attribution(self) -> Attribution:
        """Attribute the trace's energy to the regions."""
        return attribute(self.trace, self.regions, self.warnings)


def record(
    command: Sequence[str],
    sensor: Sensor,
    *,
    cadence_s: float,
    idle_s: float,
    stdout: int | None = None,
) -> Recording:
    """Run a command and record a sensor until it ends.

    Parameters
    ----------
    command : sequence of str
        Program and arguments. It runs in a session of its own, which ends with this call
        where that is interrupted.
    sensor : Sensor
        Not yet opened.
    cadence_s : float
        Seconds between readings.
    idle_s : float
        Seconds of idle power to record before and after.
    stdout : int, optional
        Descriptor that takes the command's output; default this process's stdout.

    Returns
    -------
    Recording

    Raises
    ------
    ToolNotFoundError
        If there is no such program.
    SensorError
        If the sensor gave nothing usable.
    """
    if not (shutil.which(command[0]) or Path(command[0]).exists()):
        raise _no_program(command[0])
    with tempfile.TemporaryDirectory(prefix="spmv_fpga_regions_") as folder:
        marks = Path(folder) / "regions"
        environment = {**os.environ, REGIONS_VARIABLE: str(marks)}
        with Meter(sensor, cadence_s=cadence_s, idle_s=idle_s) as meter:
            status = _run(command, environment, stdout)
            end_s = time.monotonic()
        marked, warnings = read_region_marks(marks, end_s)
    for region in marked:
        meter.add_region(region.name, region.start_s, region.end_s)
    return Recording(meter.trace(), meter.regions(), status, (*meter.warnings, *warnings))


def _run(command: Sequence[str], environment: dict[str, str], stdout: int | None) -> int:
    try:
        process = subprocess.Popen(
            command, env=environment, stdout=stdout, start_new_session=True
        )
    except FileNotFoundError:
        raise _no_program(command[0]) from None
    except OSError as error:
        raise SensorError(f"{command[0]} cannot be run: {error.strerror}.") from None
    try:
        return process.wait()
    finally:
        if process.returncode is None:  # Ctrl-C, or another end from outside
            _end_session(process)


def _end_session(process: subprocess.Popen[bytes]) -> None:
    """Pass Ctrl-C on to a command and its children; end what does not heed it."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_PATIENCE_S)


def _no_program(name: str) -> ToolNotFoundError:
    return ToolNotFoundError(f"the program {name}", "check its name.")
