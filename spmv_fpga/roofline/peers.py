"""Other accelerators' published times beside what the model says of this project's kernels.

The published figures stand in `peers_u50.csv` and `peers_u280.csv`, a file for each card,
with their source and convention in the first lines. What is modelled rests on the matrix
itself where it is at hand. Otherwise it rests on a twin: published order and entries, and
the density of 16×16 tiles where one is known. A twin is not made for this, for its counts
follow from those figures.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..boards import Board, load_board
from ..errors import MatrixError, SpmvFpgaError
from ..figures import Figure, unknown
from ..formats.sell_c_sigma import DEFAULT_DEPTH, SellCSigma
from ..matrices import Matrix, open_matrix
from ..matrices.collection import cached
from ..matrices.suite import SuiteEntry, find_in_suite
from .calibration import Calibration, load_calibration
from .model import Prediction, predict_one, published_workload
from .predict import (
    ALL,
    DEFAULT_MAX_UNITS,
    MaxUnits,
    default_x_room,
    default_y_room,
    fitting_units,
    in_rounds,
    predict,
)

CARDS = ("u50", "u280")
CONVENTION = "2·(nnz + n)/t"
"""Flop a second as the peers count them; this project counts 2·nnz/t."""

_FOLDER = Path(__file__).resolve().parent
_SYSTEM = "MAD-HiSpMV"
_COLUMNS = ("name", "n", "nnz", "build", "clock_mhz", "time_us", "gflops")
_TILE = 16
_PARAMETERS = {"scalar": _TILE, "block": _TILE, "lanes": DEFAULT_DEPTH}
_SUFFIXES = (".mtx", ".mtx.gz", ".mtx.bz2", ".tar.gz", ".mat", ".npz")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A published product, in SI units.

    Attributes
    ----------
    card, system, name, build : str
        Name of the board, of the accelerator, of the matrix, and of the design.
    n, nnz : int
        Of the whole matrix; explicit zeros are not counted.
    clock_hz : float
    time_s : float
        One product among many inside one launch.
    gflops : float
        As published, 1e9 flop a second by `CONVENTION`.
    power_w : float or None
        Whole board, steady.
    """

    card: str
    system: str
    name: str
    build: str
    n: int
    nnz: int
    clock_hz: float
    time_s: float
    gflops: float
    power_w: float | None


def load_peers(cards: Iterable[str] = CARDS) -> tuple[Peer, ...]:
    """Read the published figures of the peers.

    Examples
    --------
    >>> peers = load_peers()
    >>> len(peers), peers[0].name, round(peers[0].time_s * 1e3, 3)
    (40, 'TSOPF_RS_b2383', 0.593)
    """
    return tuple(peer for card in cards for peer in _read(card))


def _read(card: str) -> list[Peer]:
    path = _FOLDER / f"peers_{card}.csv"
    if not path.is_file():
        raise SpmvFpgaError(f"card is {card!r}; it must be {' or '.join(CARDS)}.")
    lines = [t for t in path.read_text("utf-8").splitlines() if not t.startswith("#")]
    return [_peer(card, record) for record in csv.DictReader(lines)]


def _peer(card: str, record: Mapping[str, str]) -> Peer:
    steady = record.get("steady_w")
    return Peer(
        card=card,
        system=_SYSTEM,
        name=record["name"],
        build=record["build"],
        n=int(record["n"]),
        nnz=int(record["nnz"]),
        clock_hz=float(record["clock_mhz"]) * 1e6,
        time_s=float(record["time_us"]) * 1e-6,
        gflops=float(record["gflops"]),
        power_w=float(steady) if steady else None,
    )


@dataclass(frozen=True)
class KnownDensity:
    """What is known of the 16×16 tiles of a whole matrix.

    Attributes
    ----------
    value : float
        nnz ÷ (256 · tiles), a fraction.
    source : str
    """

    value: float
    source: str


def known_density(name: str, n: int, nnz: int) -> KnownDensity | None:
    """Return the density of a matrix of the paper, for the whole matrix; None where unknown.

    Parameters
    ----------
    name : str
        Of the matrix in the SuiteSparse Matrix Collection.
    n, nnz : int
        Order and entries of the whole matrix.

    Notes
    -----
    The paper prints the density of the stored triangle. Of its T = nnz ÷ (256 · density)
    tiles at most n ÷ 16 lie on the diagonal; the others are there twice in the whole
    matrix. With every tile of the diagonal filled, the whole has 2 T - n ÷ 16.

    Examples
    --------
    >>> known_density("TSOPF_RS_b2383", 38120, 16171169).value
    0.71
    >>> round(known_density("nd6k", 18000, 6897316).value, 3)
    0.426
    >>> known_density("mouse_gene", 45101, 28967291) is None
    True
    """
    entry = find_in_suite(name)
    if entry is None or entry.n != n:
        return None
    printed = entry.density_percent / 100
    source = f"Favaro et al. 2023, Table 1: {entry.density_percent:g} %"
    if not entry.is_symmetric:
        return KnownDensity(printed, source)
    return KnownDensity(
        _expanded_density(entry, nnz), f"{source} of the stored triangle, both triangles taken"
    )


def _expanded_density(entry: SuiteEntry, nnz: int) -> float:
    tiles = entry.nnz / (_TILE**2 * entry.density_percent / 100)
    both = 2 * tiles - math.ceil(entry.n / _TILE)
    return min(nnz / (_TILE**2 * both), 1.0)


@dataclass(frozen=True, kw_only=True)
class PeerRow:
    """A published product beside the modelled one.

    Attributes
    ----------
    peer : Peer
    model : Prediction
        Of the kernel and number of units with the least modelled time, among those known.
    source : str
        `real`, or `twin` for counts that follow from published figures.
    density : float or None
        Of the tiles of the modelled kernel block; for `twin` of 16×16 tiles; None where
        none is known.
    notes : tuple of str
        What this row rests on.
    """

    peer: Peer
    model: Prediction
    source: str
    density: float | None
    notes: tuple[str, ...] = ()

    @property
    def gflops(self) -> Figure:
        """Modelled, by the peers' convention, launch included."""
        return self._rate(self.model.time_s)

    @property
    def repeated_time_s(self) -> Figure:
        """Modelled time of one product among many in a launch, as the peers measure it."""
        launches = self.model.workload.launches
        if launches > 1:
            what = "y goes in" if self.model.workload.kernel == "lanes" else "x goes in"
            return unknown(f"{what} {launches} parts, each with its launch")
        launch_s = self.model.terms.get("launch", 0.0)
        total = self.model.time_s.value
        return unknown("no time") if total is None else _modelled(total - launch_s)

    @property
    def repeated_gflops(self) -> Figure:
        """Modelled, by the peers' convention, as the peers measure it."""
        return self._rate(self.repeated_time_s)

    def _rate(self, time_s: Figure) -> Figure:
        if time_s.value is None:
            return time_s
        return time_s.inverse_of(2 * (self.peer.nnz + self.peer.n) / 1e9)

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON has it."""
        peer, model, work = self.peer, self.model, self.model.workload
        power = peer.power_w
        return {
            "name": peer.name,
            "n": peer.n,
            "nnz": peer.nnz,
            "card": peer.card,
            "system": peer.system,
            "build": peer.build,
            "convention": CONVENTION,
            "published": {
                "time_s": _published(peer.time_s).to_json(),
                "gflops": _published(peer.gflops).to_json(),
                "power_w": (
                    unknown("no power was published") if power is None else _published(power)
                ).to_json(),
            },
            "model": {
                "kernel": work.kernel,
                "block": work.block,
                "slice": work.slice_size,
                "depth": work.depth,
                "compute_units": model.compute_units,
                "launches": work.launches,
                "bound": model.bound,
                "time_s": model.time_s.to_json(),
                "gflops": self.gflops.to_json(),
                "power_w": model.power_w.to_json(),
                "energy_j": model.energy_j.to_json(),
            },
            "repeated": {
                "time_s": self.repeated_time_s.to_json(),
                "gflops": self.repeated_gflops.to_json(),
            },
            "density": self.density,
            "source": self.source,
            "notes": list(self.notes),
        }


def _modelled(value: float) -> Figure:
    return Figure(value=value, origin="modelled")


def _published(value: float) -> Figure:
    return Figure(value=value, origin="published")


@dataclass(frozen=True, kw_only=True)
class PeerComparison:
    """All rows, and what they rest on.

    Attributes
    ----------
    rows : tuple of PeerRow
    assumptions : str
        One sentence that a report must show.
    """

    rows: tuple[PeerRow, ...]
    assumptions: str

    def to_json(self) -> dict[str, Any]:
        """Return the keys that `spmv-fpga paper --peers` adds to its document."""
        return {
            "peers": [row.to_json() for row in self.rows],
            "peers_assumptions": self.assumptions,
        }


def compare_peers(
    *,
    matrices: str | os.PathLike[str] | None = None,
    calibration: str | os.PathLike[str] | Calibration = "u50",
    board: str = "u50",
    max_units: MaxUnits = DEFAULT_MAX_UNITS,
    x_room: Callable[[int], int] = default_x_room,
    cards: Sequence[str] = CARDS,
) -> PeerComparison:
    """Set the peers' published figures beside this project's modelled ones.

    Parameters
    ----------
    matrices : path, optional
        Folder that is searched for the real matrices first, then the cache.
    calibration : str, path or Calibration
    board : str
        Card that is modelled, whatever card the peer ran on.
    max_units, x_room
        As for `predict`.
    cards : sequence of str
        Cards of the peers.

    Examples
    --------
    >>> row = compare_peers(cards=["u50"]).rows[0]
    >>> row.peer.name, row.model.workload.kernel, row.model.time_s.origin
    ('TSOPF_RS_b2383', 'block', 'modelled')
    """
    model = _Model(load_calibration(calibration, board), load_board(board), max_units, x_room)
    peers = load_peers(cards)
    folder = None if matrices is None else Path(matrices)
    matrices_of = {peer.name: peer for peer in peers}
    modelled = {name: model.of(peer, folder) for name, peer in matrices_of.items()}
    rows = tuple(
        PeerRow(
            peer=peer,
            model=modelled[peer.name].model,
            source=modelled[peer.name].source,
            density=modelled[peer.name].density,
            notes=modelled[peer.name].notes,
        )
        for peer in peers
    )
    return PeerComparison(rows=rows, assumptions=_assumptions(model))


@dataclass(frozen=True)
class _Modelled:
    """What the model says of a matrix, and what that rests on."""

    model: Prediction
    source: str
    density: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class _Model:
    """What a matrix is modelled with."""

    calibration: Calibration
    board: Board
    max_units: MaxUnits
    x_room: Callable[[int], int]

    def of(self, peer: Peer, folder: Path | None) -> _Modelled:
        """Model a peer's matrix: itself where it is at hand, else its twin."""
        path = find_matrix(peer.name, folder)
        if path is None:
            return self._of_twin(peer)
        try:
            matrix = open_matrix(path)
        except MatrixError as error:
            return self._of_twin(peer, f"the real matrix cannot be used: {error}")
        if matrix.csr.shape != (peer.n, peer.n):
            rows, cols = matrix.csr.shape
            return self._of_twin(
                peer, f"{path.name} is not this matrix, it is {rows} × {cols}."
            )
        return self._of_real(peer, matrix)

    def _of_real(self, peer: Peer, matrix: Matrix) -> _Modelled:
        found = predict(
            matrix,
            calibration=self.calibration,
            board=self.board.name,
            compute_units=ALL,
            max_units=self.max_units,
            x_room=self.x_room,
        )
        best = found.candidates[found.best_time]
        apart = matrix.nnz - peer.nnz
        notes = (f"{apart:+} entries against the peer's, which drops zeros.",) if apart else ()
        density = best.workload.density if best.workload.kernel == "block" else None
        return _Modelled(best, "real", density, notes)

    def _of_twin(self, peer: Peer, *notes: str) -> _Modelled:
        density = known_density(peer.name, peer.n, peer.nnz)
        if density is None:
            best = self._best_of_twin(peer, {"scalar": 1.0, "lanes": 1.0})
            note = "no density of tiles is known: Block is left out, the others unpadded."
            return _Modelled(best, "twin", None, (*notes, note))
        best = self._best_of_twin(peer, {"scalar": 1.0, "block": density.value, "lanes": 1.0})
        return _Modelled(best, "twin", density.value, (*notes, f"density: {density.source}."))

    def _best_of_twin(self, peer: Peer, densities: Mapping[str, float]) -> Prediction:
        """Return the fastest of the kernels, each with the numbers of units that fit."""
        candidates = [
            self._predicted(peer, kernel, value, number)
            for kernel, value in densities.items()
            if kernel in self.calibration.kernels
            for number in fitting_units(
                kernel, _PARAMETERS[kernel], self.max_units, self.calibration, self.board
            )
        ]
        return min(candidates, key=lambda c: c.time_s.value or math.inf)

    def _predicted(
        self, peer: Peer, kernel: str, density: float, compute_units: int
    ) -> Prediction:
        room = self.x_room(compute_units)
        if kernel == "lanes":  # y goes in parts, and each may need all of x
            room = compute_units * SellCSigma.max_rows(default_y_room(compute_units))
        rounds = -(-peer.n // room)
        runs = compute_units * rounds
        work = published_workload(kernel, peer.n, peer.nnz, density, self.calibration, runs)
        work = in_rounds(work, rounds, x_loads=float(rounds))
        return predict_one(work, self.calibration, compute_units)


def _assumptions(model: _Model) -> str:
    return (
        f"Modelled: this project's kernels on board {model.board.name} by calibration "
        f"{model.calibration.name}, launch, x and y included, work split evenly, as many units "
        "as are best and fit; published: one of many products in a launch, on the card named; "
        f"GFLOP/s are {CONVENTION} in both."
    )


def find_matrix(name: str, folder: Path | None = None) -> Path | None:
    """Return the file of a matrix by its name in the collection, whatever its group, or None.

    Parameters
    ----------
    name : str
    folder : path, optional
        Searched first, with the folders in it; then the cache.
    """
    if folder is not None:
        for suffix in _SUFFIXES:
            found = sorted([*folder.glob(f"{name}{suffix}"), *folder.glob(f"*/{name}{suffix}")])
            if found:
                return found[0]
    return next((path for path in cached() if path.name == f"{name}.tar.gz"), None)
