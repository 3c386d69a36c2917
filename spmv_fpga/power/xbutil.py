"""The card's power as `xbutil` (`xrt-smi` since 2024) reports it: once, for the record.

The program shows the same cache of one second as the card's user function, and starts a
process for every answer, so it is read only where nothing else is there.

Its JSON (Xilinx/XRT, ReportElectrical.cpp and sensor.cpp) has every number as a string,
`N/A` where a query failed, 0 where there is no sensor, and sometimes a warning in front.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import SensorError, ToolError, ToolNotFoundError
from .sensor import Clock, Fact, Reading, SensorBase, SensorUnavailableError
from .xrt import POWER_STEP_W, SAMPLE_AGE_S, USER_REFRESH_S, card_slot

PROGRAMS = ("xbutil", "xrt-smi")
TIME_LIMIT_S = 15.0
_POWER = "power_consumption_watts"
_TAIL_LINES = 5


# --- The answer -------------------------------------------------------------------------


def read_power(text: str, *, bdf: str | None = None) -> tuple[float | None, str | None]:
    """Find the card's power in an answer of `xbutil examine -r electrical -f JSON`.

    Parameters
    ----------
    text : str
        The whole answer; lines before and after the JSON do no harm.
    bdf : str, optional
        The card's place on the PCI bus; default the first card in the answer.

    Returns
    -------
    power_w : float or None
    reason : str or None
        Why there is no power. Exactly one of the two is None.

    Examples
    --------
    >>> read_power('{"devices": [{"electrical": {"power_consumption_watts": "17.423810"}}]}')
    (17.42381, None)
    >>> read_power('{"devices": [{"electrical": {"power_consumption_watts": "N/A"}}]}')
    (None, 'xbutil reports the power as "N/A"')
    """
    if not text.strip():
        return None, "the answer of xbutil is empty"
    document = next(_json_objects(text), None)
    if document is None:
        return None, "the answer of xbutil is not whole JSON"
    electrical = _electrical(document, bdf)
    if electrical is None:
        card = f" of a card at {bdf}" if bdf else ""
        return None, f"the answer of xbutil has no electrical report{card}"
    if _POWER not in electrical:
        return None, f"the answer of xbutil lacks {_POWER}"
    return _checked(electrical)


def _json_objects(text: str) -> Iterator[dict[str, Any]]:
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        with contextlib.suppress(ValueError, RecursionError):
            yield decoder.raw_decode(text, start)[0]
            return
        # That was a brace in a warning; the report itself begins at the start of a line.
        start = text.find("\n{", start)
        start += start >= 0


def _electrical(document: dict[str, Any], bdf: str | None) -> dict[str, Any] | None:
    devices = document.get("devices")
    for device in devices if isinstance(devices, list) else []:
        if isinstance(device, dict) and _is_at(device, bdf):
            report = device.get("electrical")
            if isinstance(report, dict):
                return report
    return None


def _is_at(device: dict[str, Any], bdf: str | None) -> bool:
    return bdf is None or card_slot(str(device.get("device_id"))) == card_slot(bdf)


def _checked(electrical: dict[str, Any]) -> tuple[float | None, str | None]:
    told = electrical[_POWER]
    try:
        power_w = math.nan if isinstance(told, bool) else float(told)
    except (TypeError, ValueError):
        power_w = math.nan
    if not math.isfinite(power_w):
        errors = [message for message in _error_messages(electrical) if message]
        because = f" ({errors[0]})" if errors else ""
        return None, f"xbutil reports the power as {json.dumps(told)}{because}"
    if power_w <= 0:
        return None, f"xbutil reports {power_w:g} W, which means that no sensor answered"
    return power_w, None


def _error_messages(electrical: dict[str, Any]) -> Iterator[str]:
    rails = electrical.get("power_rails")
    for rail in rails if isinstance(rails, list) else []:
        voltage = rail.get("voltage") if isinstance(rail, dict) else None
        if isinstance(voltage, dict) and voltage.get("error_msg"):
            yield str(voltage["error_msg"])


# --- The program ------------------------------------------------------------------------


def find_command(environ: Mapping[str, str] | None = None) -> list[str] | None:
    """Return the command: `SPMV_FPGA_XBUTIL`, else a program on PATH, else None."""
    told = (os.environ if environ is None else environ).get("SPMV_FPGA_XBUTIL", "").strip()
    if told:
        # A path may hold blanks; a command may hold options.
        return [told] if shutil.which(told) else told.split()
    found = next(filter(None, map(shutil.which, PROGRAMS)), None)
    return [found] if found else None


def query(
    command: Sequence[str] | None = None,
    *,
    bdf: str | None = None,
    time_limit_s: float = TIME_LIMIT_S,
) -> str:
    """Ask once for the electrical report, and return it as it was told.

    Parameters
    ----------
    command : sequence of str, optional
        The program; default `find_command()`.
    bdf : str, optional
        The card's user function on the PCI bus.
    time_limit_s : float
        Then the program and its children are ended.

    Returns
    -------
    str
        For `read_power`. A report is taken even where the program ends with an error.

    Raises
    ------
    ToolNotFoundError
        If there is no such program.
    ToolError
        If it gives no report, or not in time.
    """
    command = find_command() if command is None else list(command)
    if not command:
        raise ToolNotFoundError(
            "xbutil", "run `source /opt/xilinx/xrt/setup.sh`, or name it in SPMV_FPGA_XBUTIL."
        )
    with tempfile.TemporaryDirectory(prefix="spmv_fpga_") as folder:
        report, output = Path(folder) / "electrical.json", Path(folder) / "output.txt"
        device = ["-d", bdf] if bdf else []
        arguments = ["examine", *device, "-r", "electrical", "-f", "JSON", "-o", str(report)]
        whole = [*command, *arguments, "--force"]
        status = _run(whole, output, time_limit_s)
        if report.is_file() and report.stat().st_size:
            return report.read_text(encoding="utf-8", errors="replace")
        if status == 0:
            return ""
        tail = output.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
        raise ToolError(
            f"{command[0]} ended with status {status} and gave no report:",
            command=whole,
            returncode=status,
            tail="\n".join(tail),
        )


def _run(command: list[str], output: Path, time_limit_s: float) -> int:
    try:
        # Its own session, so that a wrapper script does not outlive its time; a file for
        # its output, so that no child of it can hold a pipe open.
        with output.open("wb") as sink:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise ToolNotFoundError(
            command[0], f"name a working xbutil in SPMV_FPGA_XBUTIL ({error.strerror})."
        ) from None
    try:
        return process.wait(time_limit_s)
    except subprocess.TimeoutExpired:
        raise ToolError(
            f"{command[0]} gave no answer within {time_limit_s:g} s; try it by hand.",
            command=command,
        ) from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# --- The sensor -------------------------------------------------------------------------


class XbutilSensor(SensorBase):
    """The power of a card by way of `xbutil`; a last resort, a process for every reading.

    Asks at most once a second, since the program shows a cache of one second; between two
    questions the last answer stands, with its time.

    Parameters
    ----------
    bdf : str, optional
        The card's user function on the PCI bus.
    ask : callable
        Returns the text of an answer; default `query`.
    clock : callable
        Monotonic time in seconds.

    Raises
    ------
    SensorUnavailableError
        If the program is missing or gives no power.
    """

    name = "xrt"
    boundary = "card"
    refresh_s = USER_REFRESH_S
    power_step_w: float | None = POWER_STEP_W

    def __init__(
        self,
        *,
        bdf: str | None = None,
        ask: Callable[[], str] | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        super().__init__()
        self._bdf, self._clock = bdf, clock
        self._ask = ask or (lambda: query(bdf=bdf))
        self._last: Reading | None = None
        self._asked_s = 0.0
        try:
            self.read()
        except SensorError as error:
            raise SensorUnavailableError(
                str(error).rstrip("."), "check the card with `xbutil examine`"
            ) from None

    def read(self) -> Reading:
        """Ask, or repeat an answer that is less than a second old.

        Raises
        ------
        SensorError
            If the answer has no power.
        """
        now_s = self._clock()
        if self._last is not None and now_s - self._asked_s < self.refresh_s:
            return self._last
        self._last, self._asked_s = None, now_s
        try:
            power_w, reason = read_power(self._ask(), bdf=self._bdf)
        except ToolError as error:
            raise self._rejection("no answer", " ".join(str(error).split())) from None
        if power_w is None:
            raise self._rejection("no power", f"{reason}.")
        self._last = Reading(power_w, self._clock())
        return self._last

    def _own_facts(self) -> dict[str, Fact]:
        command = " ".join(find_command() or [])
        return {"command": command, "sample_age_s": SAMPLE_AGE_S}
