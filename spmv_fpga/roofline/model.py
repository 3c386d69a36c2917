"""The extended roofline: time, power and energy of a product from counts alone.

The axes are those of Favaro et al. 2023, section 3.2: GFLOP/s over CIA, useful flop per
access of a kernel's value port. Two roofs bound a kernel: parallel flop × clock, and
accesses a second × CIA. Beyond the roofs the model has what they lack: a constant per
launch, the load of x, and the cost of rows (see `calibration`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from ..errors import SpmvFpgaError
from ..figures import Figure, unknown
from ..formats import FormatStats
from ..formats.base import WORD_BYTES, WORD_LANES, density
from ..formats.lane_layout import PIECE_BYTES, SLOT_BYTES
from ..formats.sell_c_sigma import DEFAULT_DEPTH, DEFAULT_PANEL
from ..formats.stats import in_runs
from .calibration import Calibration, KernelCalibration, Parameter, Power, Term

ADD_REUSE_CYCLES = 8
"""Cycles before a sum may be touched again: `kReuseDistance` of common/reduce.hpp."""
FILL_CYCLES = 200
"""Cycles until the first result leaves the pipeline: twice the port's latency of 64 cycles
(boards/u50.toml; x, then the matrix) and 11 floating operations of 6, rounded up."""

X_FILLS_PER_WORD = 2
"""Cycles that a word of x takes to fill the copies: `kFillsPerWord` of lanes/lanes.hpp."""
PANEL_CYCLES = 140
"""Cycles between panels, x apart: two latencies of the memory port and what the pipelines hold,
counted by the emulated card."""

_VALUE_BYTES = 4
_INDEX_BYTES = 4


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What one compute unit does for one product, in counts.

    Attributes
    ----------
    kernel : str
        `scalar`, `block` or `lanes`.
    block, slice_size, depth : int or None
    rows, cols : int
        Shape of the matrix; of a share of it where several units divide the rows.
    nnz, num_stored : int
        True entries, and slots with padding.
    blocks : int or None
        Tiles.
    num_empty : int
        Block rows without tiles.
    accesses, access_bytes : int
        Transfers of the value port, and bytes of one.
    matrix_bytes, bytes : int
        Values and indices, and all that is read of the matrix.
    count_error : float
        Relative half width of the 95 % interval of the counts; 0 where they are exact.
    num_chunks, num_panels : int
        Of SELL-C-sigma: chunks, and panels that a unit passes, whose x is loaded one by one.
    """

    kernel: str
    block: int | None
    slice_size: int | None
    rows: int
    cols: int
    nnz: int
    num_stored: int
    blocks: int | None
    num_empty: int
    accesses: int
    access_bytes: int
    matrix_bytes: int
    bytes: int
    count_error: float = 0.0
    depth: int | None = None
    num_chunks: int = 0
    num_panels: int = 0

    @property
    def parameter(self) -> int | None:
        """P, L or depth; None where it is not known."""
        if self.kernel == "lanes":
            return self.depth
        return self.block if self.kernel == "block" else self.slice_size

    @property
    def density(self) -> float:
        """`nnz / num_stored`."""
        return density(self.nnz, self.num_stored)

    @property
    def flop(self) -> int:
        """Useful floating-point operations, 2·nnz."""
        return 2 * self.nnz

    @property
    def cia(self) -> float:
        """Useful flop per access."""
        return self.flop / self.accesses if self.accesses else 0.0

    @property
    def theoretical_cia(self) -> float:
        """Flop per access, padding counted as if it were useful."""
        return 2 * self.num_stored / self.accesses if self.accesses else 0.0

    # What the terms of a calibration count.

    @property
    def launches(self) -> int:
        """One."""
        return 1

    @property
    def beats(self) -> int:
        """Words of the 512-bit port that the accesses take; a narrow one takes a whole."""
        return self.accesses * -(-self.access_bytes // WORD_BYTES)

    @property
    def x_words(self) -> int:
        """Words of x that are loaded before the first product."""
        return -(-self.cols // WORD_LANES)

    @property
    def y_words(self) -> int:
        """Words of y that are written."""
        return -(-self.rows // WORD_LANES)

    @property
    def fill_cycles(self) -> int:
        """Cycles until the pipeline is full."""
        return FILL_CYCLES

    @property
    def x_fill_cycles(self) -> int:
        """Cycles in which kernel lanes fills its copies of x: half a word each."""
        return X_FILLS_PER_WORD * self.x_words

    @property
    def panel_cycles(self) -> int:
        """Cycles between panels of kernel lanes, while pipelines run empty and fill again."""
        return PANEL_CYCLES * self.num_panels

    @property
    def add_cycles(self) -> int:
        """Cycles in which kernel lanes adds sums of pieces to y: two for sixteen of them."""
        return 2 * (self.depth or 0) * self.num_chunks

    @property
    def y_cycles(self) -> int:
        """Cycles in which kernel lanes writes y: two for a word."""
        return 2 * self.y_words

    @property
    def lane_cycles(self) -> int:
        """Cycles of a datapath that takes sixteen slots each."""
        return -(-self.num_stored // WORD_LANES)

    @property
    def slot_cycles(self) -> int:
        """Cycles of a datapath that takes one slot each."""
        return -(-self.num_stored // WORD_LANES) * WORD_LANES

    @property
    def unpack_cycles(self) -> int:
        """Cycles of kernel block's `unpack`: words, and one for each empty block row."""
        return -(-self.bytes // WORD_BYTES) + self.num_empty

    @property
    def reduce_cycles(self) -> int:
        """Cycles of the two reducers of common/reduce.hpp, which take strips in turn.

        A strip costs a reducer its words, a wait where partial sums must settle, and one
        cycle for each group that it drains; `collect` takes one group a cycle.
        """
        strips, words, groups = self._strips()
        wait = ADD_REUSE_CYCLES if groups < ADD_REUSE_CYCLES else 0
        busy = words + self.num_empty + strips * groups + (strips - self.num_empty) * wait
        return max(-(-busy // 2), strips * groups)

    def _strips(self) -> tuple[int, int, int]:
        """Return the strips, their words of sums in all, and a strip's groups of rows."""
        if self.kernel == "block" and self.block is not None:
            rows_per_word = max(WORD_LANES // self.block, 1)
            words = self.num_stored // WORD_LANES
            return -(-self.rows // self.block), words, self.block // rows_per_word
        slice_size = self.slice_size or WORD_LANES
        return -(-self.rows // slice_size), self.num_stored, slice_size

    def share(self, compute_units: int) -> Workload:
        """Return one unit's part of rows that are split evenly by accesses.

        >>> from spmv_fpga.roofline.calibration import load_calibration
        >>> whole = published_workload("block", 32, 512, 1.0, load_calibration("paper"))
        >>> whole.accesses, whole.share(2).accesses
        (32, 16)
        """
        if compute_units < 1:
            raise SpmvFpgaError(f"compute_units is {compute_units}; it must be 1 or more.")

        def part(count: int) -> int:
            return -(-count // compute_units)

        return replace(
            self,
            rows=part(self.rows),
            nnz=part(self.nnz),
            num_stored=part(self.num_stored),
            blocks=None if self.blocks is None else part(self.blocks),
            num_empty=part(self.num_empty),
            accesses=part(self.accesses),
            matrix_bytes=part(self.matrix_bytes),
            bytes=part(self.bytes),
            num_chunks=part(self.num_chunks),
        )

    def scaled(self, factor: float) -> Workload:
        """Return a workload that stores `factor` times as much, for its interval."""

        def of(count: int) -> int:
            return max(round(factor * count), 0)

        return replace(
            self,
            num_stored=max(of(self.num_stored), self.nnz),
            blocks=None if self.blocks is None else of(self.blocks),
            accesses=of(self.accesses),
            matrix_bytes=of(self.matrix_bytes),
            bytes=of(self.bytes),
        )


def workload(
    stats: FormatStats,
    shape: tuple[int, int],
    calibration: Calibration,
    *,
    count_error: float = 0.0,
) -> Workload:
    """Count the work of a kernel from what its format would store.

    Parameters
    ----------
    stats : FormatStats
    shape : (int, int)
        Rows and columns of the matrix.
    calibration : Calibration
        Says what an access is.
    count_error : float
        Relative half width of the interval of the counts, where rows were sampled.

    Examples
    --------
    >>> from scipy.sparse import eye_array
    >>> from spmv_fpga.formats import format_stats
    >>> from spmv_fpga.roofline.calibration import load_calibration
    >>> stats, = format_stats(eye_array(32, format="csr"), blocks=[16], slices=[])
    >>> w = workload(stats, (32, 32), load_calibration("u50"))
    >>> w.accesses, w.access_bytes, round(w.cia, 3)
    (33, 64, 1.939)
    """
    known = calibration.kernel(stats.kernel, stats.parameter)
    counted_in_words = known.access == "words"
    rows, cols = shape
    return Workload(
        kernel=stats.kernel,
        block=stats.block,
        slice_size=stats.slice_size,
        rows=rows,
        cols=cols,
        nnz=stats.nnz,
        num_stored=stats.num_stored,
        blocks=stats.blocks,
        num_empty=_num_empty(stats, rows),
        accesses=stats.num_words if counted_in_words else _value_accesses(stats),
        access_bytes=WORD_BYTES if counted_in_words else _value_access_bytes(stats.block),
        matrix_bytes=stats.matrix_bytes,
        bytes=stats.bytes if counted_in_words else _array_bytes(stats, rows),
        count_error=count_error,
        depth=stats.depth,
        num_chunks=stats.num_chunks,
        num_panels=stats.num_panels,
    )


def published_workload(
    kernel: str, n: int, nnz: int, density_16: float, calibration: Calibration, runs: int = 1
) -> Workload:
    """Count the work from published figures: order, entries, density of 16×16 tiles.

    Slots of sliced ELL and of SELL-C-sigma are not published, so those of kernels scalar and
    lanes are taken to be the entries; rows of lanes, to have entries in every panel. `runs`
    are the parts that units and rounds cut its entries into.

    Examples
    --------
    >>> from spmv_fpga.roofline.calibration import load_calibration
    >>> w = published_workload("block", 38120, 16171169, 0.71, load_calibration("paper"))
    >>> w.blocks, w.accesses, round(w.cia, 2)
    (88970, 1423520, 22.72)
    """
    if kernel == "lanes":
        stats = _published_lanes(n, nnz)
        cut = in_runs(stats, runs * stats.num_panels)
        return workload(replace(cut, num_panels=stats.num_panels), (n, n), calibration)
    if kernel == "scalar":
        stats = FormatStats(
            kernel=kernel,
            block=None,
            slice_size=16,
            nnz=nnz,
            num_stored=nnz,
            blocks=None,
            num_words=2 * -(-nnz // WORD_LANES),
            matrix_bytes=(_VALUE_BYTES + _INDEX_BYTES) * nnz,
        )
        return workload(stats, (n, n), calibration)
    if not 0 < density_16 <= 1:
        raise SpmvFpgaError(f"density is {density_16}; it must be in (0, 1].")
    blocks = round(nnz / (256 * density_16))
    stats = FormatStats(
        kernel=kernel,
        block=16,
        slice_size=None,
        nnz=nnz,
        num_stored=256 * blocks,
        blocks=blocks,
        num_words=16 * blocks + -(-blocks // WORD_LANES),
        matrix_bytes=_VALUE_BYTES * 256 * blocks + _INDEX_BYTES * blocks,
    )
    return workload(stats, (n, n), calibration)


def _published_lanes(n: int, nnz: int) -> FormatStats:
    """Count SELL-C-sigma without padding, all rows in all panels."""
    places = DEFAULT_DEPTH * WORD_LANES
    num_panels = -(-n // DEFAULT_PANEL)
    num_chunks = -(-min(num_panels * n, nnz) // places)
    num_stored = max(nnz, num_chunks * places)
    matrix_bytes = SLOT_BYTES * num_stored + PIECE_BYTES * num_chunks * places
    return FormatStats(
        kernel="lanes",
        block=None,
        slice_size=None,
        nnz=nnz,
        num_stored=num_stored,
        blocks=None,
        num_words=num_panels + -(-matrix_bytes // WORD_BYTES),
        matrix_bytes=matrix_bytes,
        depth=DEFAULT_DEPTH,
        panel=DEFAULT_PANEL,
        num_chunks=num_chunks,
        num_panels=num_panels,
        last_slots=num_panels * num_stored // num_chunks if num_chunks else 0,
    )


def _value_access_bytes(block: int | None) -> int:
    return _VALUE_BYTES * (block or 1)


def _value_accesses(stats: FormatStats) -> int:
    return stats.num_stored // (stats.block or 1)


def _array_bytes(stats: FormatStats, rows: int) -> int:
    """Bytes where values, indices and tiles per block row are arrays of their own."""
    strip = stats.block or stats.slice_size or 1
    return stats.matrix_bytes + _INDEX_BYTES * -(-rows // strip)


def _num_empty(stats: FormatStats, rows: int) -> int:
    """Block rows without tiles; from the descriptors' words, so up to 15 too many."""
    if stats.blocks is None or stats.block is None:
        return 0
    descriptor_words = stats.num_words - stats.num_stored // WORD_LANES
    at_most = WORD_LANES * descriptor_words - stats.blocks
    block_rows = -(-rows // stats.block)
    return min(max(at_most, block_rows - stats.blocks, 0), block_rows)


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What the model says of one kernel with one parameter.

    Attributes
    ----------
    workload : Workload
        Of the whole matrix.
    compute_units : int
    time_s, gflops, power_w, energy_j : Figure
        Modelled, with 95 % intervals; energy is that of the launch.
    terms : dict of str to float
        Seconds; they add up to the time.
    overlapped : dict of str to float
        Seconds of every term that overlaps, hidden or not.
    energy_parts : dict of str to float
        Joules of `idle`, `kernel` and `traffic`; they add up to the energy.
    bound : str
        The longest of `terms`.
    roofs : Roofs
    warnings : tuple of str
    """

    workload: Workload
    compute_units: int
    time_s: Figure
    gflops: Figure
    power_w: Figure
    energy_j: Figure
    terms: dict[str, float]
    overlapped: dict[str, float]
    energy_parts: dict[str, float]
    bound: str
    roofs: Roofs
    warnings: tuple[str, ...] = ()

    @property
    def cia(self) -> float:
        """Useful flop per access."""
        return self.workload.cia

    @property
    def theoretical_cia(self) -> float:
        """Flop per access, padding included."""
        return self.workload.theoretical_cia

    @property
    def accesses(self) -> int:
        """Transfers of the value port."""
        return self.workload.accesses

    @property
    def block_max_gflops(self) -> float | None:
        """GFLOP/s if the padding counted as useful: the paper's BlockMax."""
        if self.time_s.value is None or not self.time_s.value > 0:
            return None
        return 2 * self.workload.num_stored / self.time_s.value / 1e9


@dataclass(frozen=True, kw_only=True)
class Roofs:
    """The two roofs of a kernel.

    Attributes
    ----------
    compute_gflops : float
        Parallel flop × clock.
    accesses_per_s : float
        Accesses of all channels.
    access_bytes : int
    """

    compute_gflops: float
    accesses_per_s: float
    access_bytes: int

    @property
    def giga_accesses_per_s(self) -> float:
        """Slope of the access roof: GFLOP/s for each flop per access."""
        return self.accesses_per_s / 1e9

    @property
    def ridge_cia(self) -> float:
        """CIA where the roofs meet."""
        return self.compute_gflops / self.giga_accesses_per_s

    def attainable_gflops(self, cia: float) -> float:
        """Return the lower roof at a CIA.

        >>> roofs = Roofs(compute_gflops=9.6, accesses_per_s=0.2e9, access_bytes=64)
        >>> roofs.attainable_gflops(10), roofs.attainable_gflops(100)
        (2.0, 9.6)
        """
        return min(self.compute_gflops, self.giga_accesses_per_s * cia)


def roofs(
    calibration: Calibration, kernel: str, parameter: int | None = None, compute_units: int = 1
) -> Roofs:
    """Return the roofs of a kernel.

    Parameters
    ----------
    calibration : Calibration
    kernel : str
    parameter : int, optional
        P or L.
    compute_units : int
        Each has a channel of its own.

    Notes
    -----
    The access roof is the bandwidth of a channel over the bytes of an access, times the
    units. The bandwidth is that of a 512-bit port (Favaro et al. 2023, section 4.3), and a
    tile's row takes one of its words also where P is below 16: "an increase in the data of
    each access impacts the intensity but not the bandwidth" (section 3.2). That is why 8×8
    tiles lose to 16×16 in its Figure 6.

    Examples
    --------
    >>> from spmv_fpga.roofline.calibration import load_calibration
    >>> r = roofs(load_calibration("paper"), "block", 16)
    >>> r.compute_gflops, r.accesses_per_s, round(r.ridge_cia, 3)
    (9.6, 195312500.0, 49.152)
    """
    known = calibration.kernel(kernel, parameter)
    lanes = known.lanes or parameter or WORD_LANES
    clock_hz = calibration.rate("clock_hz", compute_units).value
    in_words = known.access == "words"
    block = (parameter or WORD_LANES) if kernel == "block" else None
    access_bytes = WORD_BYTES if in_words else _value_access_bytes(block)
    beat_bytes = access_bytes if kernel == "scalar" else max(access_bytes, WORD_BYTES)
    channel = calibration.rate("channel_bytes_per_s").value
    return Roofs(
        compute_gflops=2 * lanes * clock_hz * compute_units / 1e9,
        accesses_per_s=channel / beat_bytes * compute_units,
        access_bytes=access_bytes,
    )


@dataclass(frozen=True, kw_only=True)
class EnergyLines:
    """The lines of section 3.3 of Favaro et al. 2023 and the zones between them.

    Below `scalar_gflops` Block is slower than Scalar at its best; up to
    `equal_energy_gflops` it is faster and takes more energy (red); above, it gains both
    (green).

    Attributes
    ----------
    scalar_gflops : float
        Peak of the Scalar kernel, P1's line.
    scalar_power_w, block_power_w : float
        P1 and P2.
    accesses_per_s : float
        Access roof of the Block kernel.
    """

    scalar_gflops: float
    scalar_power_w: float
    block_power_w: float
    accesses_per_s: float

    @property
    def equal_energy_gflops(self) -> float:
        """Performance at which Block takes the energy of Scalar at its peak: P2/P1 times it."""
        return self.block_power_w / self.scalar_power_w * self.scalar_gflops

    @property
    def min_cia_time(self) -> float:
        """CIA from which Block can be faster than Scalar at its peak."""
        return self.scalar_gflops * 1e9 / self.accesses_per_s

    @property
    def min_cia_energy(self) -> float:
        """CIA from which Block can take less energy."""
        return self.equal_energy_gflops * 1e9 / self.accesses_per_s


def energy_lines(
    calibration: Calibration, block: int = 16, slice_size: int = 16, compute_units: int = 1
) -> EnergyLines:
    """Return the lines that part the zones of the roofline.

    P1 and P2 are the powers of the two kernels with their ports busy all the time.

    Examples
    --------
    >>> lines = EnergyLines(
    ...     scalar_gflops=0.6, scalar_power_w=18.0, block_power_w=21.0, accesses_per_s=0.2e9
    ... )
    >>> round(lines.equal_energy_gflops, 6), round(lines.min_cia_energy, 6)
    (0.7, 3.5)
    """
    scalar = roofs(calibration, "scalar", slice_size, compute_units)
    blocked = roofs(calibration, "block", block, compute_units)
    scalar_power = calibration.kernel("scalar", slice_size).power
    block_power = calibration.kernel("block", block).power
    scalar_bytes = min(
        scalar.accesses_per_s * scalar.access_bytes,
        _slot_bytes(calibration.kernel("scalar", slice_size)) * scalar.compute_gflops * 1e9 / 2,
    )
    block_bytes = blocked.accesses_per_s * blocked.access_bytes
    return EnergyLines(
        scalar_gflops=scalar.compute_gflops,
        scalar_power_w=_power_w(scalar_power, scalar_bytes, compute_units),
        block_power_w=_power_w(block_power, block_bytes, compute_units),
        accesses_per_s=blocked.accesses_per_s,
    )


def busy_lanes_power_w(calibration: Calibration, depth: int, compute_units: int) -> float:
    """Return the modelled power of kernel lanes with its ports busy all the time, in watts."""
    found = roofs(calibration, "lanes", depth, compute_units)
    power = calibration.kernel("lanes", depth).power
    return _power_w(power, found.accesses_per_s * found.access_bytes, compute_units)


def _slot_bytes(known: KernelCalibration) -> int:
    """Bytes that one slot of sliced ELL brings through the port whose bytes are counted."""
    return _VALUE_BYTES + (_INDEX_BYTES if known.access == "words" else 0)


def predict_one(work: Workload, calibration: Calibration, compute_units: int = 1) -> Prediction:
    """Predict time, power and energy of one product.

    Parameters
    ----------
    work : Workload
        Of the whole matrix.
    calibration : Calibration
    compute_units : int
        The rows are split among them evenly by accesses; each loads all of x.

    Examples
    --------
    >>> from spmv_fpga.roofline.calibration import load_calibration
    >>> paper = load_calibration("paper")
    >>> work = published_workload("block", 38120, 16171169, 0.71, paper)
    >>> p = predict_one(work, paper)
    >>> p.bound, 7.0e-3 < p.time_s.value < 9.0e-3
    ('accesses', True)
    """
    known = calibration.kernel(work.kernel, work.parameter)
    unit = work.share(compute_units)
    terms, overlapped = _seconds(unit, known, calibration, compute_units)
    time_s = math.fsum(terms.values())
    spread = _time_spread(unit, known, calibration, compute_units, time_s)
    time = _figure(time_s, *spread)
    gflops = _gflops(time, work.flop)

    traffic = work.accesses * work.access_bytes / time_s if time_s > 0 else 0.0
    power_w = _power_w(known.power, traffic, compute_units)
    power_spread = _power_spread(known, traffic, compute_units)
    energy_spread = tuple(
        math.hypot(t / time_s, p / power_w) * time_s * power_w if time_s * power_w > 0 else 0.0
        for t, p in zip(spread, power_spread, strict=True)
    )
    power = known.power
    return Prediction(
        workload=work,
        compute_units=compute_units,
        time_s=time,
        gflops=gflops,
        power_w=_figure(power_w, *power_spread),
        energy_j=_figure(power_w * time_s, *energy_spread),
        terms=terms,
        overlapped=overlapped,
        energy_parts={
            "idle": power.idle_w.value * time_s,
            "kernel": power.design_w(compute_units) * time_s,
            "traffic": power.w_per_byte_per_s.value * traffic * time_s,
        },
        bound=max(terms, key=lambda name: terms[name]),
        roofs=roofs(calibration, work.kernel, work.parameter, compute_units),
        warnings=_warnings(work, known, calibration, compute_units),
    )


def _gflops(time_s: Figure, flop: int) -> Figure:
    return time_s.inverse_of(flop / 1e9) if flop else unknown("the matrix has no entries")


def _seconds(
    unit: Workload, known: KernelCalibration, calibration: Calibration, compute_units: int
) -> tuple[dict[str, float], dict[str, float]]:
    """Return the terms that add up to the time, and all that overlap."""
    in_turn: dict[str, float] = {}
    overlapped: dict[str, float] = {}
    for term in known.terms:
        cost = _cost(term, calibration, compute_units).value
        seconds = getattr(unit, term.count) * cost
        (overlapped if term.overlaps else in_turn)[term.name] = seconds
    if overlapped:
        longest = max(overlapped, key=lambda name: overlapped[name])
        in_turn[longest] = overlapped[longest]
    return in_turn, overlapped


def _cost(term: Term, calibration: Calibration, compute_units: int) -> Parameter:
    """Seconds a count, bounds in the order of time."""
    if term.seconds is not None:
        return term.seconds
    rate = calibration.rate(str(term.rate), compute_units)
    return Parameter(1 / rate.value, 1 / rate.high, 1 / rate.low, rate.source)


def _time_spread(
    unit: Workload,
    known: KernelCalibration,
    calibration: Calibration,
    compute_units: int,
    time_s: float,
) -> tuple[float, float]:
    """How far below and above the time its interval reaches.

    A fitted calibration knows what it misses on rows that it never saw, which holds the
    errors of its parameters. Without one, each parameter goes to its bounds by itself, and
    the changes are added as independent ones.
    """
    counts = _count_spread(unit, known, calibration, compute_units, time_s)
    if known.time_scatter is not None:
        scatter = known.time_scatter * time_s
        return math.hypot(scatter, counts[0]), math.hypot(scatter, counts[1])
    below, above = [counts[0]], [counts[1]]
    for moved in _moved_rates(known, calibration, compute_units):
        for change in (
            math.fsum(_seconds(unit, changed, rates, compute_units)[0].values()) - time_s
            for changed, rates in moved
        ):
            (above if change > 0 else below).append(change)
    return math.hypot(*below), math.hypot(*above)


def _moved_rates(
    known: KernelCalibration, calibration: Calibration, compute_units: int
) -> list[list[tuple[KernelCalibration, Calibration]]]:
    """Every parameter at its low and its high bound, the others as they are."""
    moved = []
    clock = calibration.rate("clock_hz", compute_units)
    for name in ("clock_hz", "channel_bytes_per_s"):
        rate = clock if name == "clock_hz" else calibration.rate(name)
        others = {k: v for k, v in calibration.rates.items() if k != "many_unit_clock_hz"}
        base = {**others, "clock_hz": clock}
        moved.append(
            [
                (known, replace(calibration, rates={**base, name: _exact(rate, bound)}))
                for bound in (rate.low, rate.high)
            ]
        )
    for i, term in enumerate(known.terms):
        if term.seconds is not None:
            seconds = term.seconds
            moved.append(
                [
                    (_with_term(known, i, _exact(seconds, bound)), calibration)
                    for bound in (seconds.low, seconds.high)
                ]
            )
    return moved


def _exact(parameter: Parameter, value: float) -> Parameter:
    return replace(parameter, value=value, low=value, high=value)


def _with_term(known: KernelCalibration, i: int, seconds: Parameter) -> KernelCalibration:
    terms = (*known.terms[:i], replace(known.terms[i], seconds=seconds), *known.terms[i + 1 :])
    return replace(known, terms=terms)


def _count_spread(
    unit: Workload,
    known: KernelCalibration,
    calibration: Calibration,
    compute_units: int,
    time_s: float,
) -> tuple[float, float]:
    if not unit.count_error:
        return 0.0, 0.0
    less, more = (
        math.fsum(_seconds(unit.scaled(f), known, calibration, compute_units)[0].values())
        for f in (1 - unit.count_error, 1 + unit.count_error)
    )
    return time_s - less, more - time_s


def _power_w(power: Power, bytes_per_s: float, compute_units: int) -> float:
    return (
        power.idle_w.value
        + power.design_w(compute_units)
        + power.w_per_byte_per_s.value * bytes_per_s
    )


def _power_spread(
    known: KernelCalibration, bytes_per_s: float, compute_units: int
) -> tuple[float, float]:
    power = known.power
    if known.power_scatter is not None:
        scatter = known.power_scatter * _power_w(power, bytes_per_s, compute_units)
        return scatter, scatter
    parts = (
        (power.idle_w, 1.0),
        (power.kernel_w, 1.0),
        (power.unit_w, float(compute_units)),
        (power.w_per_byte_per_s, bytes_per_s),
    )
    below = math.hypot(*((p.value - p.low) * count for p, count in parts))
    above = math.hypot(*((p.high - p.value) * count for p, count in parts))
    return below, above


def _figure(value: float, below: float, above: float) -> Figure:
    return Figure(
        value=value, origin="modelled", low=max(value - below, 0.0), high=value + above
    )


def _warnings(
    work: Workload, known: KernelCalibration, calibration: Calibration, compute_units: int
) -> tuple[str, ...]:
    """Say where the workload lies outside what the calibration covers."""
    label = work.kernel if work.parameter is None else f"{work.kernel} {work.parameter}"
    found = []
    fitted = {"block": known.blocks, "scalar": known.slices}.get(work.kernel, ())
    if fitted and work.parameter not in fitted:
        sizes = ", ".join(map(str, fitted))
        found.append(f"{label}: calibration {calibration.name} was fitted on {sizes} only.")
    for name, (low, high) in known.covers.items():
        value = getattr(work, name)
        if not low <= value <= high:
            shown = f"{value:.3g}" if isinstance(value, float) else f"{value}"
            found.append(
                f"{label}: {name} is {shown}; calibration {calibration.name} covers "
                f"{low:g} to {high:g}."
            )
    if compute_units > 1 and "many_unit_clock_hz" not in calibration.rates:
        found.append(f"{label}: calibration {calibration.name} knows one compute unit only.")
    return tuple(found)
