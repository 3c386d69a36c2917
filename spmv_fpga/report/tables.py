"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from .. import units
from ..figures import Figure
from ..formats import FormatStats
from ..matrices import IndexRow, MatrixInfo, SuiteEntry
from ..measure import RunResult
from ..runtime.environment import Finding
from ..sweep import SweepLine
from ..toolchain.xclbin import XclbinInfo


def run_tables(result: RunResult) -> list[Table | Text]:
    """Return the report of a run: matrix and kernel, verdict, figures, notes."""
    return [_facts(result), _verdict(result), _figures(result), *_notes(result)]


def _facts(result: RunResult) -> Table:
    fmt, csr = result.format, result.matrix.csr
    parameter = ", ".join(f"{name} {value}" for name, value in fmt.parameters.items())
    facts = {
        "matrix": f"{result.matrix.name}: {csr.shape[0]} × {csr.shape[1]}, "
        f"{result.matrix.nnz} entries ({result.matrix.symmetric})",
        "source": result.matrix.source,
        "kernel": f"{fmt.kernel}, {parameter}, {result.compute_units} compute unit",
        "stored": f"{fmt.num_stored} slots, {units.percent(fmt.density)} full; "
        f"{units.bytes_text(fmt.bytes)} of matrix stream",
        "ran on": _where(result),
    }
    return facts_grid(facts)


def _where(result: RunResult) -> str:
    if result.mode == "reference":
        return "NumPy on this machine (mode reference)"
    kind = {"sw_emu": "emulated card", "hw_emu": "hardware emulation", "hw": "card"}[
        result.mode
    ]
    return f"{kind} {result.provenance['device']} ({result.mode})"


def _verdict(result: RunResult) -> Text:
    if result.error is not None:
        return Text(f"\ny is WRONG: {result.error}\n", style="bold red")
    worst = result.worst_error_over_bound
    return Text(f"\ny verified: worst error is {worst:.3g} of its bound\n", style="green")


def _figures(result: RunResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("a product on", "time", "rate", "power", "energy", "origin"):
        table.add_column(heading)
    model = result.model
    modelled = {"time_s": model.time_s, "gflops": model.gflops}
    modelled |= {"power_w": model.power_w, "energy_j": model.energy_j}
    lines: list[tuple[str, dict[str, Figure]]] = [
        ("FPGA", result.fpga),
        (f"FPGA, by the model ({result.calibration})", modelled),
    ]
    if result.cpu_library:
        threads = "1 thread" if result.cpu_threads == 1 else f"{result.cpu_threads} threads"
        lines.append((f"CPU, {result.cpu_library}, {threads}", result.cpu))
    for name, figures in lines:
        cells = [
            _cell(figures["time_s"], units.seconds),
            _cell(figures["gflops"], units.gflops),
            _cell(figures["power_w"], units.watts),
            _cell(figures["energy_j"], units.joules),
        ]
        table.add_row(Text(name), *cells, figures["time_s"].origin or units.NOTHING)
    return table


def _cell(figure: Figure, text: Callable[[float | None], str]) -> str:
    interval = ""
    if figure.value is not None and figure.low is not None and figure.high is not None:
        half_width = max(figure.high - figure.value, figure.value - figure.low)
        interval = f" ± {100 * half_width / figure.value:.1f} %" if figure.value else ""
    return text(figure.value) + interval


def _notes(result: RunResult) -> list[Text]:
    reasons = {f"FPGA {_name(k)}": f.reason for k, f in result.fpga.items() if f.reason}
    reasons |= {f"CPU {_name(k)}": f.reason for k, f in result.cpu.items() if f.reason}
    grouped: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        grouped.setdefault(str(reason), []).append(name)
    notes = [Text("")]
    if result.fpga["time_s"].value and result.model.time_s.value:
        ratio = result.fpga["time_s"].value / result.model.time_s.value
        notes.append(Text(f"time over the model's: {ratio:.2f}"))
    notes.append(Text(f"by the model, the time is bound by: {result.model.bound}", style="dim"))
    notes += [
        Text(f"{', '.join(names)}: {reason}", style="dim") for reason, names in grouped.items()
    ]
    rates = f"flop = 2 · {result.matrix.nnz} entries ({result.matrix.symmetric})"
    lines = [rates, *_power_notes("FPGA", result.fpga, result.fpga_power)]
    lines += _power_notes("CPU", result.cpu, result.cpu_power)
    if "wall_time_s" in result.fpga:
        lines.append(f"FPGA wall time: {units.seconds(result.fpga['wall_time_s'].value)}")
    notes += [Text(line, style="dim") for line in lines]
    notes += [Text(f"warning: {warning}", style="yellow") for warning in result.warnings]
    return notes


def _power_notes(name: str, figures: dict[str, Figure], facts: dict[str, Any]) -> list[str]:
    """Say what an energy includes, whether it was resolved, and how idle power moved."""
    if not facts:
        return []
    refresh = units.seconds(facts["refresh_s"]["value"])
    note = (
        f"{name} energy: sensor {facts['sensor']} ({facts['boundary']}), {facts['verdict']}, "
        f"{facts['samples']} samples, new values every {refresh}"
    )
    if "energy_dynamic_j" in figures:
        dynamic, idle = figures["energy_dynamic_j"].value, figures["idle_w"].value
        note += f"; {units.joules(dynamic)} above idle, which is {units.watts(idle)}"
    if "idle_drift_w" in figures:
        note += f" ({units.watts(figures['idle_drift_w'].value)} more after the run)"
    return [note]


def _name(key: str) -> str:
    names = {"time_s": "time", "power_w": "power", "energy_j": "energy", "gflops": "rate"}
    return names.get(key, key)


def sweep_line(line: SweepLine) -> Text:
    """Return what became of one matrix with one kernel."""
    styles = {"verified": "green", "wrong": "bold red", "refused": "yellow"}
    parameter = ", ".join(f"{name} {value}" for name, value in line.parameters.items())
    text = Text(f"{line.matrix.name:<24} {line.kernel:<7} {parameter:<10} ")
    return text.append(line.outcome, styles[line.outcome]).append(f"  {line.detail}")


def stats_table(stats: Iterable[FormatStats]) -> Table:
    """Return what each format would store."""
    headings = ["kernel", "slice", "block", "slots", "padding", "blocks", "density", "bytes"]
    return plain_table(
        headings,
        [
            [
                s.kernel,
                s.slice_size,
                s.block,
                s.num_stored,
                s.padding,
                s.blocks,
                units.percent(s.density),
                units.bytes_text(s.bytes),
            ]
            for s in stats
        ],
    )


def suite_table(suite: Iterable[SuiteEntry], cached: set[str]) -> Table:
    """Return the paper's matrices and whether each is on this machine."""
    rows = [
        [e.short, f"{e.group}/{e.name}", e.n, e.nnz, e.density_percent,
         "yes" if f"{e.group}/{e.name}" in cached else ""]
        for e in suite
    ]  # fmt: skip
    return plain_table(["short name", "SuiteSparse", "n", "nnz", "density %", "cached"], rows)


def xclbin_tables(info: XclbinInfo) -> list[Table]:
    """Return what is in an xclbin."""
    parameters = {"block": info.block, "slice": info.slice_size, "room for x": info.x_room}
    facts = {
        "file": info.path,
        "target": info.target,
        "platform": info.platform,
        "uuid": info.uuid,
        "clock": units.hertz(info.clock_hz),
        **{name: value for name, value in parameters.items() if value is not None},
        "built by": info.built_by,
    }
    head = facts_grid(facts)
    arguments = [
        [kernel.name, a.index, a.name, a.kind, a.port, ", ".join(a.memories)]
        for kernel in info.kernels
        for a in kernel.arguments
    ]
    instances = [
        [kernel.name, unit.name, argument, ", ".join(tags)]
        for kernel in info.kernels
        for unit in kernel.instances
        for argument, tags in unit.memories.items()
    ]
    memories = [
        [m.tag, f"{m.base:#x}", units.bytes_text(m.bytes)] for m in info.memories if m.is_used
    ]
    return [
        head,
        plain_table(["kernel", "argument", "name", "kind", "port", "banks"], arguments),
        plain_table(["kernel", "compute unit", "argument", "banks"], instances),
        plain_table(["bank in use", "base", "size"], memories),
    ]


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a plain table; numbers stand right."""
    content = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, heading in enumerate(headings):
        is_number = any(isinstance(row[column], int | float) for row in content)
        table.add_column(heading, justify="right" if is_number else "left")
    for row in content:
        # As Text, which is printed as it stands: a name may hold [brackets].
        table.add_row(*(Text(units.NOTHING if cell is None else str(cell)) for cell in row))
    return table


def index_table(rows: Iterable[IndexRow]) -> Table:
    """Return matrices of the collection."""
    headings = ["SuiteSparse", "rows", "columns", "nnz", "kind"]
    return plain_table(headings, [[r.full_name, r.rows, r.cols, r.nnz, r.kind] for r in rows])


def matrix_table(info: MatrixInfo) -> Table:
    """Return what is known of a matrix."""
    facts: dict[str, Any] = {
        "name": info.name,
        "rows": info.rows,
        "columns": info.cols,
        "entries stored": info.stored,
        "symmetry": info.symmetry,
        "file": info.path,
        "address": info.url,
    }
    if info.suite:
        facts["in the paper"] = (
            f"{info.suite.short}: n {info.suite.n}, nnz {info.suite.nnz}, "
            f"{info.suite.density_percent} % of 16 × 16 tiles full"
        )
    return facts_grid(facts)


def findings_table(findings: Iterable[Finding]) -> Table:
    """Return what the doctor found."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "what", "found", "what to do"):
        table.add_column(heading)
    for f in findings:
        mark = (
            Text("ok", "green") if f.ok else Text("missing" if f.is_needed else "-", "yellow")
        )
        table.add_row(mark, *map(Text, (f.name, f.detail, f.remedy)))
    return table


def facts_grid(facts: Mapping[str, Any]) -> Table:
    """Return two columns: what is known, by name."""
    grid = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value is not None:
            grid.add_row(Text(name, style="bold"), Text(str(value)))
    return grid
