"""Results as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from rich.table import Table
from rich.text import Text

from .. import units
from ..figures import Figure
from ..format_sizes import VARIANTS, FormatSizes, mean_bytes
from ..formats import FormatStats
from ..matrices import IndexRow, Matrix, MatrixInfo, SuiteEntry
from ..measure import RunResult
from ..runtime.environment import Finding
from ..sweep import SweepLine
from ..toolchain.xclbin import XclbinInfo
from .cycles import emulated_over_model, explanation


def run_tables(result: RunResult, *, explain: bool = False) -> list[Table | Text]:
    """Return the report of a run: matrix and kernel, verdict, figures, cycles, notes."""
    return [
        _facts(result),
        Text(""),
        _verdict(result),
        Text(""),
        _figures(result),
        Text(""),
        *(explanation(result) if explain else []),
        *_notes(result, is_explained=explain),
    ]


def _facts(result: RunResult) -> Table:
    fmt = result.format
    parameter = ", ".join(f"{name} {value}" for name, value in fmt.parameters.items())
    rounds = f", {fmt.num_rounds} rounds" if fmt.num_rounds > 1 else ""
    facts = {
        "matrix": matrix_line(result.matrix),
        "source": result.matrix.source,
        "kernel": f"{fmt.kernel}, {parameter}, {_units(result.compute_units)}"
        + rounds
        + _CHOSEN_BY[result.chosen_by]
        + _ORDERS[result.reorder],
        "stored": f"{units.count(fmt.num_stored)} slots, {units.percent(fmt.density)} full; "
        f"{units.bytes_text(fmt.bytes)} of matrix stream",
        "ran on": _where(result),
    }
    return facts_grid(facts)


def matrix_line(matrix: Matrix) -> str:
    """Return name, size and entries of a matrix."""
    rows, cols = matrix.csr.shape
    return (
        f"{matrix.name}: {units.count(rows)} × {units.count(cols)}, "
        f"{units.count(matrix.nnz)} entries ({matrix.symmetric})"
    )


def _units(number: int) -> str:
    return "1 compute unit" if number == 1 else f"{number} compute units"


_CHOSEN_BY = {
    "user": "",
    "xclbin": "; as the xclbin was built",
    "model": "; chosen by the model, for time",
}

_ORDERS = {"none": "", "rcm": "; rows and columns in reverse Cuthill-McKee order"}


def _where(result: RunResult) -> str:
    if result.mode == "reference":
        return "NumPy on this machine (mode reference)"
    kind = {"sw_emu": "emulated card", "hw_emu": "hardware emulation", "hw": "card"}[
        result.mode
    ]
    return f"{kind} {result.provenance['device']} ({result.mode})"


def _verdict(result: RunResult) -> Text:
    if result.error is not None:
        return Text(f"y is WRONG: {result.error}", style="bold red")
    worst = result.worst_error_over_bound
    return Text(f"y verified: worst error is {worst:.3g} of its bound", style="green")


def _figures(result: RunResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("a product on", "time", "rate", "power", "energy", "origin"):
        table.add_column(heading)
    model = result.model
    modelled = {"time_s": model.time_s, "gflops": model.gflops}
    modelled |= {"power_w": model.power_w, "energy_j": model.energy_j}
    lines: list[tuple[str, dict[str, Figure], bool | None]] = [
        (_card_label(result.fpga["time_s"]), result.fpga, result.fpga_steady),
        (f"FPGA, by the model ({result.calibration})", modelled, None),
    ]
    if result.cpu_library:
        threads = "1 thread" if result.cpu_threads == 1 else f"{result.cpu_threads} threads"
        lines.append((f"CPU, {result.cpu_library}, {threads}", result.cpu, result.cpu_steady))
    for name, figures, is_steady in lines:
        mark = " unstable" if is_steady is False else ""
        cells = [
            figure_cell(figures["time_s"], units.seconds) + mark,
            figure_cell(figures["gflops"], units.gflops) + mark,
            figure_cell(figures["power_w"], units.watts),
            figure_cell(figures["energy_j"], units.joules),
        ]
        table.add_row(*map(Text, (name, *cells, figures["time_s"].origin or units.NOTHING)))
    return table


def _card_label(time_s: Figure) -> str:
    """Name the line of the card; emulated cycles do not hold what a launch costs."""
    return "FPGA, without its start" if time_s.origin == "emulated" else "FPGA"


def figure_cell(figure: Figure, text: Callable[[float], str]) -> str:
    """Return a figure with its bounds, which need not lie evenly around it.

    >>> figure_cell(Figure(value=2.0, origin="modelled", low=1.5, high=4.0), units.watts)
    '2.000 W (1.500 … 4.000)'
    """
    return units.with_bounds(figure.value, figure.low, figure.high, text)


def _notes(result: RunResult, *, is_explained: bool) -> list[Text]:
    reasons = {
        f"{processor} {_COLUMNS[key]}": figures[key].reason
        for processor, figures in (("FPGA", result.fpga), ("CPU", result.cpu))
        if processor == "FPGA" or result.cpu_library
        for key in _COLUMNS
        if figures[key].reason
    }
    grouped: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        grouped.setdefault(str(reason), []).append(name)
    notes = []
    emulated = emulated_over_model(result.fpga["time_s"], result.model)
    if emulated is not None:
        launch = units.seconds(result.model.terms.get("launch"))
        hint = "" if is_explained else "; --explain says where the cycles go"
        notes.append(
            Text(
                f"emulated time over the model's: {emulated:.3f}, both without starting the "
                f"kernel ({launch} by the model){hint}"
            )
        )
    elif result.fpga["time_s"].value and result.model.time_s.value:
        ratio = result.fpga["time_s"].value / result.model.time_s.value
        notes.append(Text(f"time over the model's: {ratio:.2f}"))
    most = bound_words(result.model.bound)
    notes.append(Text(f"what takes the most time, by the model: {most}", style="dim"))
    notes += [
        Text(f"{', '.join(names)}: {reason}", style="dim") for reason, names in grouped.items()
    ]
    rates = f"flop = 2 · {units.count(result.matrix.nnz)} entries ({result.matrix.symmetric})"
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


_COLUMNS = {"time_s": "time", "gflops": "rate", "power_w": "power", "energy_j": "energy"}

_TERMS = {
    "launch": "starting the kernel",
    "x": "reading x into the chip",
    "fill": "filling the pipeline",
    "channel": "reading the matrix from memory",
    "accesses": "reading the matrix from memory",
    "unpack": "unpacking the tiles",
    "slots": "multiplying the stored slots",
    "entries": "multiplying the entries",
    "reduce": "adding up the products of rows",
    "add": "adding sums of pieces to y",
    "panels": "changing from one panel of columns to the next",
    "lanes": "multiplying the stored slots, sixteen a cycle",
    "rows": "the work for each row",
    "y": "writing y",
}


def bound_words(bound: str) -> str:
    """Say in words which term of the model binds a time.

    >>> bound_words("channel")
    'channel: reading the matrix from memory'
    """
    return f"{bound}: {_TERMS[bound]}" if bound in _TERMS else bound


def sweep_line(line: SweepLine) -> Text:
    """Return what became of one matrix with one kernel."""
    styles = {"verified": "green", "wrong": "bold red", "refused": "yellow"}
    parameter = ", ".join(f"{name} {value}" for name, value in line.parameters.items())
    kernel, parameter = ("all", "") if line.is_unusable else (line.kernel, parameter)
    text = Text(_SWEEP_COLUMNS.format(line.matrix.name, kernel, parameter))
    return text.append(f"{line.outcome:<9}", styles[line.outcome]).append(f" {line.detail}")


_SWEEP_COLUMNS = "{:<24} {:<7} {:<9} "
SWEEP_HEADING = Text(
    _SWEEP_COLUMNS.format("matrix", "kernel", "with") + "product   worst error over its bound",
    style="bold",
)


def stats_tables(matrix: Matrix, stats: Iterable[FormatStats]) -> list[Table | Text]:
    """Return the matrix, and what each format would store of it."""
    return [Text(f"{matrix_line(matrix)}; {matrix.source}"), Text(""), _stats_table(stats)]


def _stats_table(stats: Iterable[FormatStats]) -> Table:
    headings = ["kernel", "slice", "block", "depth", "slots", "padding", "blocks", "density"]
    headings += ["bytes"]
    return plain_table(
        headings,
        [
            [
                s.kernel,
                s.slice_size,
                s.block,
                s.depth,
                s.num_stored,
                s.padding,
                s.blocks,
                units.percent(s.density),
                units.bytes_text(s.bytes),
            ]
            for s in stats
        ],
    )


def sizes_tables(
    counted: Sequence[FormatSizes], skipped: Iterable[FormatSizes]
) -> list[Table | Text]:
    """Return what was skipped, and the bytes a non-zero of each format, their means last."""
    means = [["geometric mean", "", *_two_decimals(mean_bytes(counted))]]
    rows = [
        [sizes.name, units.count(sizes.nnz), *_two_decimals(sizes.bytes_per_entry)]
        for sizes in counted
    ]
    table = plain_table(["bytes a non-zero", "entries", *VARIANTS], rows + means)
    for column in table.columns[1:]:
        column.justify = "right"
    return [
        *(Text(f"{sizes.name}: skipped; {sizes.reason}", "yellow") for sizes in skipped),
        table,
    ]


def _two_decimals(values: Iterable[float]) -> list[str]:
    return [f"{value:.2f}" for value in values]


def suite_tables(suite: Iterable[SuiteEntry], cached: set[str]) -> list[Table | Text]:
    """Return the paper's matrices and whether each is on this machine."""
    head = (
        "The paper's matrices, with n, nnz and the density of 16 × 16 tiles as it prints them."
    )
    rows = [
        [e.short, f"{e.group}/{e.name}", e.n, e.nnz, e.density_percent,
         "yes" if f"{e.group}/{e.name}" in cached else ""]
        for e in suite
    ]  # fmt: skip
    headings = ["short name", "SuiteSparse", "n", "nnz", "density %", "on this machine"]
    return [Text(head), Text(""), plain_table(headings, rows)]


def xclbin_tables(info: XclbinInfo) -> list[Table | Text]:
    """Return what is in an xclbin."""
    parameters = {**info.facts.parameters, "room for x": info.x_room}
    parameters["room for y"] = info.y_room
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
    connected = {tag for *_, tags in instances for tag in tags.split(", ")}
    memories = [
        [m.tag, f"{m.base:#x}", units.bytes_text(m.bytes)]
        for m in info.memories
        if m.tag in connected
    ]
    return [
        head,
        Text(""),
        plain_table(["kernel", "argument", "name", "kind", "port", "banks"], arguments),
        Text(""),
        plain_table(["kernel", "compute unit", "argument", "banks"], instances),
        Text(""),
        plain_table(["connected bank", "base", "size"], memories),
    ]


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Return a plain table; numbers stand right."""
    content = [list(row) for row in rows]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, heading in enumerate(headings):
        is_number = any(isinstance(row[column], int | float) for row in content)
        justify: Literal["left", "right"] = "right" if is_number else "left"
        table.add_column(heading, justify=justify, overflow="fold")
    for row in content:
        # As Text, which is printed as it stands: a name may hold [brackets].
        table.add_row(*(Text(_plain(cell)) for cell in row))
    return table


def _plain(cell: Any) -> str:
    return units.count(cell) if cell is None or isinstance(cell, int) else str(cell)


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
            f"{info.suite.short}: n {units.count(info.suite.n)}, "
            f"nnz {units.count(info.suite.nnz)}, "
            f"{info.suite.density_percent} % of 16 × 16 tiles full"
        )
    return facts_grid(facts)


def findings_table(findings: Iterable[Finding]) -> Table:
    """Return what the doctor found."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("", "what", "found", "what to do"):
        table.add_column(heading, overflow="fold")  # a path that is cut is of no use
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
            grid.add_row(Text(name, style="bold"), Text(_plain(value)))
    return grid
