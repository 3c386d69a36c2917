"""Predictions, calibrations and the paper's tables, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from .. import units
from ..bandwidth import BandwidthResult
from ..figures import Figure
from ..roofline.calibration import Calibration
from ..roofline.model import Prediction
from ..roofline.paper import DensityRow, PaperResult, TimeRow
from ..roofline.peers import PeerComparison, PeerRow
from ..roofline.predict import PredictionSet
from .tables import facts_grid, plain_table


def prediction_tables(found: PredictionSet) -> list[Table | Text]:
    """Return the candidates with their modelled figures, the choice, and warnings."""
    matrix, csr = found.matrix, found.matrix.csr
    head = (
        f"{matrix.name}: {csr.shape[0]} × {csr.shape[1]}, {matrix.nnz} entries "
        f"({matrix.symmetric}); {matrix.source}"
    )
    headings = ["kernel", "tiles", "full", "CIA", "accesses", "stream", "time", "rate"]
    headings += ["power", "energy", "binds", "best for"]
    shown = _shown(found)
    if has_units := any(c.compute_units > 1 for c in found.candidates):
        headings.insert(1, "units")
    rows = [_candidate(found, i, has_units=has_units) for i in shown]
    notes = [
        *_choices(found, has_units=has_units),
        "",
        "All figures are modelled, ± their 95 % intervals: calibration "
        f"{found.calibration.name}, {found.calibration.title}.",
    ]
    if len(shown) < len(found.candidates):
        notes.append(
            "Of the numbers of units, powers of two, the most and the best; --json has all."
        )
    if found.sampled_rows is not None:
        notes.append(f"Tiles were counted in {found.sampled_rows} rows only.")
    return [
        Text(head),
        Text(""),
        plain_table(headings, rows),
        *(Text(note, style="dim") for note in notes),
        *_warnings(found.warnings),
    ]


def _shown(found: PredictionSet) -> list[int]:
    """Return which candidates a table shows; with many numbers of units not every one."""
    choices = found.choices
    if len(found.candidates) <= 6 * len(choices):
        return list(range(len(found.candidates)))
    best = {i for c in choices for i in (c.best_time, c.best_energy)}
    return [
        i
        for i, c in enumerate(found.candidates)
        if i in best or c.compute_units.bit_count() == 1 or _is_last(found, i)
    ]


def _is_last(found: PredictionSet, i: int) -> bool:
    """Whether a candidate has the most units of its kernel."""
    after = found.candidates[i + 1 : i + 2]
    return not after or after[0].compute_units <= found.candidates[i].compute_units


def _choices(found: PredictionSet, *, has_units: bool) -> list[str]:
    """Say which number of units is best for each kernel, where there were several."""
    if not has_units or len(found.candidates) == len(found.choices):
        return []
    texts = []
    for choice in found.choices:
        time, energy = (found.candidates[i] for i in (choice.best_time, choice.best_energy))
        texts.append(
            f"{_kernel_name(time)}: {time.compute_units} for time "
            f"({units.seconds(time.time_s.value)}), {energy.compute_units} for energy "
            f"({units.joules(energy.energy_j.value)})"
        )
    return ["", f"Best units within what fits: {'; '.join(texts)}."]


def _kernel_name(candidate: Prediction) -> str:
    work = candidate.workload
    parameter = f"P {work.block}" if work.kernel == "block" else f"L {work.slice_size}"
    return f"{work.kernel}, {parameter}"


def _candidate(found: PredictionSet, i: int, *, has_units: bool) -> list[object]:
    candidate, fits = found.candidates[i], found.fits[i]
    work = candidate.workload
    wins = (("time", found.best_time), ("energy", found.best_energy))
    number = str(candidate.compute_units) + ("" if fits else " (too many)")
    return [
        _kernel_name(candidate),
        *([number] if has_units else []),
        work.blocks,
        units.percent(work.density),
        round(candidate.cia, 2),
        candidate.accesses,
        units.bytes_text(work.bytes),
        _with_spread(candidate.time_s, units.seconds),
        units.gflops(candidate.gflops.value),
        units.watts(candidate.power_w.value),
        _with_spread(candidate.energy_j, units.joules),
        candidate.bound,
        ", ".join(name for name, index in wins if index == i),
    ]


def _with_spread(figure: Figure, text: object) -> str:
    shown = text(figure.value)  # type: ignore[operator]
    if figure.value is None or figure.low is None or figure.high is None or not figure.value:
        return str(shown)
    half_width = max(figure.high - figure.value, figure.value - figure.low)
    return f"{shown} ± {100 * half_width / figure.value:.0f} %"


def calibration_tables(calibration: Calibration) -> list[Table | Text]:
    """Return the parameters of a calibration with their bounds and sources."""
    rows = [
        [name, f"{rate.value:.4g}", f"{rate.low:.4g} … {rate.high:.4g}", rate.source]
        for name, rate in calibration.rates.items()
    ]
    for name, kernel in calibration.kernels.items():
        for term in kernel.terms:
            if (seconds := term.seconds) is not None:
                bounds = f"{seconds.low:.4g} … {seconds.high:.4g}"
                key = f"{name}: seconds of {term.name}, each of {term.count}"
                rows.append([key, f"{seconds.value:.4g}", bounds, seconds.source])
    errors = [
        Text(f"left-out error of {name}: {units.percent(error)}", style="dim")
        for name, error in calibration.errors.items()
    ]
    return [plain_table(["parameter", "value", "95 %", "source"], rows), *errors]


def paper_tables(result: PaperResult) -> list[Table | Text]:
    """Return Tables 1 and 2, published beside counted and modelled, and the findings."""
    return [
        Text("Table 1: density of 16 × 16 tiles", style="bold"),
        _densities(result.table1),
        Text("\nTable 2: published, modelled, and modelled by a fit without the row", "bold"),
        _times(result.table2),
        Text(""),
        *(Text(sentence) for sentence in result.summary["sentences"]),
    ]


def peer_tables(found: PeerComparison) -> list[Table | Text]:
    """Return other accelerators' published figures beside this project's modelled ones."""
    headings = ["matrix", "card", "t published", "rate published", "kernel modelled", "units"]
    headings += ["t model", "repeated", "rate model", "16×16 full", "from"]
    return [
        Text("\nPeers: published on the card named, modelled for this project", "bold"),
        plain_table(headings, [_peer(row) for row in found.rows]),
        Text(found.assumptions, "dim"),
        Text(
            "repeated: without the launch, as the peers measure; no figure where x goes in "
            "panels. Where no density is known, Block is left out and Scalar has no padding.",
            "dim",
        ),
    ]


def _peer(row: PeerRow) -> list[object]:
    peer, model = row.peer, row.model
    return [
        peer.name,
        peer.card.upper(),
        units.seconds(peer.time_s),
        units.gflops(peer.gflops),
        _kernel_name(model),
        model.compute_units,
        units.seconds(model.time_s.value),
        units.seconds(row.repeated_time_s.value),
        units.gflops(row.gflops.value),
        "unknown" if row.density is None else units.percent(row.density),
        row.source,
    ]


def _densities(rows: Iterable[DensityRow]) -> Table:
    headings = ["matrix", "n", "nnz", "published", "counted", "from"]
    return plain_table(
        headings,
        [
            [
                row.row.name,
                row.row.n,
                row.row.nnz,
                f"{100 * row.row.density:.0f} %",
                units.percent(row.density) if row.density is not None else row.reason,
                row.source,
            ]
            for row in rows
        ],
    )


def _times(rows: Iterable[TimeRow]) -> Table:
    headings = ["matrix", "kernel", "t published", "t model", "t left out", "error"]
    headings += ["E published", "E given t", "error"]
    return plain_table(
        headings,
        [
            [
                row.row.name,
                row.kernel,
                units.seconds(row.time_published_s),
                units.seconds(row.model.time_s.value),
                units.seconds(row.time_left_out_s.value),
                f"{100 * row.time_error:+.1f} %",
                units.joules(row.energy_published_j),
                units.joules(row.energy_given_time_j.value),
                f"{100 * row.energy_error:+.1f} %",
            ]
            for row in rows
        ],
    )


def _warnings(warnings: Iterable[str]) -> list[Text]:
    return [Text(f"warning: {warning}", style="yellow") for warning in warnings]


def bandwidth_table(found: BandwidthResult) -> Table:
    """Return what a channel gave."""
    rate = found.bytes_per_s
    return facts_grid(
        {
            "ran on": f"{found.device} ({found.mode})",
            "read": f"{units.bytes_text(found.num_bytes)}; the checksum is right",
            "time": units.seconds(found.time_s.value),
            "bandwidth": units.si(rate.value, "B/s"),
            "origin": found.time_s.origin or found.time_s.reason,
        }
    )
