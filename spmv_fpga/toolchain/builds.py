"""Building an xclbin for any target, at its place below the build folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..codegen import Project
from ..errors import ToolError
from . import emulation, vitis, xclbin
from .paths import xclbin_path

Step = Callable[[str], None]


@dataclass(frozen=True)
class Build:
    """An xclbin and whether this call has built it."""

    path: Path
    was_built: bool


def build(
    project: Project,
    target: str,
    *,
    platform: str | None = None,
    build_dir: str | Path = "build",
    jobs: int | None = None,
    step: Step = lambda _: None,
) -> Build:
    """Build a project.

    Parameters
    ----------
    project : Project
    target : str
        `hw` or `hw_emu`, by Vitis; `sw_emu`, by the project's own toolchain.
    platform : str, optional
        Vitis platform; chosen by the version of Vitis where none is given.
    build_dir : str or Path
        The xclbin goes to `<build_dir>/<target>/<platform>/<parameters>/<kernel>.xclbin`.
    jobs : int, optional
        Processes that `v++` may run at once.
    step : callable, optional
        Hears what is being done.

    Raises
    ------
    ToolNotFoundError, ToolError
        If a tool is missing or fails; no xclbin is left then.
    """
    if target == "sw_emu":
        step(f"building kernel {project.kernel.name} for emulation")
        return _build_emulated(project, platform, Path(build_dir))
    return _build_with_vitis(project, target, platform, Path(build_dir), jobs, step)


def _out_path(project: Project, target: str, platform: str, build_dir: Path) -> Path:
    return xclbin_path(
        build_dir,
        target,
        platform,
        project.kernel.name,
        parameters=project.parameters,
        compute_units=len(project.units),
    )


def _build_emulated(project: Project, platform: str | None, build_dir: Path) -> Build:
    name = vitis.platform_name(platform) if platform else project.board.emulated_platform
    out = _out_path(project, "sw_emu", name, build_dir)
    built = emulation.build(project)
    try:
        if out.is_file() and out.read_bytes() == built.path.read_bytes():
            return Build(out, False)
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=out.parent) as temporary:
            shutil.copyfile(built.path, Path(temporary) / out.name).replace(out)
    except OSError as error:
        raise ToolError(f"{out}: cannot be written: {error.strerror or error}.") from None
    return Build(out, True)


def _build_with_vitis(
    project: Project,
    target: str,
    platform: str | None,
    build_dir: Path,
    jobs: int | None,
    step: Step,
) -> Build:
    tool = vitis.detect()
    chosen = platform or vitis.default_platform(tool.version)
    out = _out_path(project, target, vitis.platform_name(chosen), build_dir)
    try:
        sources = project.write(out.parent / "src")
    except OSError as error:
        raise ToolError(f"{out.parent}: cannot be written: {error.strerror}.") from None
    design = vitis.Design(
        project.kernel.function,
        sources / project.top,
        sources / "link.cfg",
        chosen,
        clock_hz=project.clock_hz,
        target=target,
        include_dirs=(sources,),
        compute_units=tuple(unit.name for unit in project.units),
    )

    def on_line(line: str) -> None:
        if phase := vitis.phase_of(line):
            step(phase)

    report = vitis.build(
        design,
        out,
        vitis=tool,
        template_files=project.template_files,
        jobs=jobs,
        on_line=on_line,
    )
    if report.was_built:
        xclbin.write_facts_beside(report.path, emulation.facts_of(project))
    return Build(report.path, report.was_built)
