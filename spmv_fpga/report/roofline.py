"""Predictions, calibrations and the paper's tables, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from .. import units
from ..bandwidth import BandwidthResult
from ..figures import Figure
from ..formats.base import WORD_BYTES
from ..roofline.calibration import Calibration
from ..roofline.emulated import BOARD
from ..roofline.model import Prediction
from ..roofline.paper import DensityRow, PaperResult, TimeRow
from ..roofline.peers import PeerComparison, PeerRow
from ..roofline.predict import PredictionSet, best_time_s
from .tables import bound_words, facts_grid, figure_cell, matrix_line, plain_table


def prediction_tables(found: PredictionSet) -> list[Table | Text]:
    """Return the candidates with their modelled figures, the choice, and warnings."""
    head = f"{matrix_line(found.matrix)}; {found.matrix.source}"
    if found.before:
        head += f"; rows and columns reordered ({found.reorder})"
    headings = ["kernel", "tiles", "full", "CIA", "accesses", "stream", "time", "rate"]
    headings += ["power", "energy", "bound by", "best for"]
    shown = _shown(found)
    if has_units := any(c.compute_units > 1 for c in found.candidates):
        headings.insert(1, "units")
    rows = [_candidate(found, i, has_units=has_units) for i in shown]
    notes = [
        *_choices(found, has_units=has_units),
        "",
        *_orders(found),
        *_within_error(found),
        "All figures are modelled, with 95 % intervals (low … high): calibration "
        f"{found.calibration.name}, {found.calibration.title}.",
        "CIA: computational intensity per access, useful flop of a 64-byte word."
        if found.candidates[0].workload.access_bytes == WORD_BYTES
        else "CIA: computational intensity per access, useful flop of one access.",
        *_bounds(found, shown),
    ]
    if len(shown) < len(found.candidates):
        notes.append(
            "Of the numbers of units, powers of two, the most and the best; --json has all."
        )
    if found.sampled_rows is not None:
        notes.append(f"Tiles were counted in {units.count(found.sampled_rows)} rows only.")
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


def _orders(found: PredictionSet) -> list[str]:
    """Say what another order does to the tiles, and which one is better."""
    before = found.before
    if before is None:
        return []
    densities = [
        f"P {then.workload.block} {units.percent(then.workload.density)} full before, "
        f"{units.percent(now.workload.density)} after"
        for then, now in (
            (before.candidates[choice.best_time], found.candidates[choice.best_time])
            for choice in found.choices
        )
        if now.workload.kernel == "block"
    ]
    own = f"{units.seconds(best_time_s(before))} as it stands"
    moved = f"{units.seconds(best_time_s(found))} in the order {found.reorder}"
    is_better = found.better_order == found.reorder
    tiles = f"Tiles, before and after reordering ({found.reorder}): {'; '.join(densities)}."
    return [
        *([tiles] if densities else []),
        f"Better order for time: {found.reorder}; {moved}, {own}."
        if is_better
        else f"Better order for time: the matrix's own; {own}, {moved}.",
        "",
    ]


def _kernel_name(candidate: Prediction) -> str:
    work = candidate.workload
    letter = {"block": "P", "lanes": "depth"}.get(work.kernel, "L")
    parameter = f"{letter} {work.parameter}"
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
        figure_cell(candidate.time_s, units.seconds),
        figure_cell(candidate.gflops, units.gflops),
        figure_cell(candidate.power_w, units.watts),
        figure_cell(candidate.energy_j, units.joules),
        candidate.bound,
        ", ".join(name for name, index in wins if index == i),
    ]


def _within_error(found: PredictionSet) -> list[str]:
    """Name the candidates that the model cannot tell from the best."""
    notes = []
    for goal, best, name in (
        ("time", found.best_time, "time_s"),
        ("energy", found.best_energy, "energy_j"),
    ):
        least: Figure = getattr(found.candidates[best], name)
        others: dict[str, list[int]] = {}
        for i, c in enumerate(found.candidates):
            if i != best and found.fits[i] and _is_within(getattr(c, name), least):
                others.setdefault(_kernel_name(c), []).append(c.compute_units)
        if others:
            winner = found.candidates[best]
            texts = [_with_units(found, *other) for other in others.items()]
            notes.append(
                f"Best for {goal} is "
                f"{_with_units(found, _kernel_name(winner), [winner.compute_units])}; within "
                f"the error of it: {'; '.join(texts)}."
            )
    return notes


def _is_within(figure: Figure, best: Figure) -> bool:
    return None not in (figure.value, best.high) and figure.value <= best.high  # type: ignore[operator]


def _with_units(found: PredictionSet, name: str, numbers: Sequence[int]) -> str:
    """Return a kernel with numbers of units, where there are several to tell apart."""
    if len({c.compute_units for c in found.candidates}) == 1:
        return name
    return f"{name} (units {units.ranges(numbers)})"


def _bounds(found: PredictionSet, shown: Sequence[int]) -> list[str]:
    """Explain the terms that stand under "bound by"."""
    terms = dict.fromkeys(found.candidates[i].bound for i in shown)
    return [
        f"Bound by: the term that takes the most time. {'; '.join(map(bound_words, terms))}."
    ]


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
        *_emulated_notes(result.table2),
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
            "repeated: without the launch, as the peers measure; no figure where a "
            "product takes several. Where no density is known, Block is left out; Scalar and "
            "Lanes have no padding.",
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
                units.percent(row.row.density, 0),
                _counted(row),
                row.source,
            ]
            for row in rows
        ],
    )


def _counted(row: DensityRow) -> str | None:
    """Return the density that was counted; of a twin, which is made to have it, say so."""
    if row.density is None:
        return row.reason
    return "as published" if row.source == "twin" else units.percent(row.density)


def _times(rows: Iterable[TimeRow]) -> Table:
    headings = ["matrix", "kernel", "t published", "t model", "t left out", "its error"]
    headings += ["t emulated", "over published", "E published", "E given t", "its error"]
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
                units.seconds(row.time_emulated_s.value),
                _signed_percent(row.emulated_error),
                units.joules(row.energy_published_j),
                units.joules(row.energy_given_time_j.value),
                f"{100 * row.energy_error:+.1f} %",
            ]
            for row in rows
        ],
    )


def _signed_percent(fraction: float | None) -> str:
    return units.NOTHING if fraction is None else f"{100 * fraction:+.1f} %"


def _emulated_notes(rows: Iterable[TimeRow]) -> list[Text]:
    """Say what the emulated times are of, and why there is none."""
    rows = list(rows)
    reasons = dict.fromkeys(
        str(r.time_emulated_s.reason) for r in rows if r.emulated_source is None
    )
    real = dict.fromkeys(row.row.name for row in rows if row.emulated_source == "real")
    notes = [f"t emulated: {reason}" for reason in reasons]
    if any(row.emulated_source for row in rows):
        which = f"twins; {', '.join(real)} real" if real else "twins"
        notes.append(
            f"t emulated: this project's kernels, one unit on {BOARD}, of {which}; starting "
            "the kernel is not in it, and is in the published times"
        )
    return [Text(note, style="dim") for note in notes]


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
