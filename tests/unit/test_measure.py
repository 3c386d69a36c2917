"""The main job on a card that stands in for a real one, with sensors that do.

The card says what its kernel took; time on the clock is another matter, as on hardware.
Readings of its sensor come every 2 ms, and idle phases end once they were read.
"""

from __future__ import annotations

import functools
import io
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console

from spmv_fpga import measure, metering
from spmv_fpga.errors import SensorError
from spmv_fpga.kernels import load_kernel
from spmv_fpga.measure import RunOptions, run
from spmv_fpga.power import Meter, Trace
from spmv_fpga.power.replay import ReplaySensor
from spmv_fpga.power.sensor import Reading
from spmv_fpga.report.documents import run_document
from spmv_fpga.report.tables import run_tables
from spmv_fpga.timing import Timing
from spmv_fpga.toolchain import xclbin

PRODUCT_S = 0.0025
IDLE_W, LOAD_W, DRIFT_W = 17.0, 25.0, 0.5
CADENCE_S = 0.002
MATRIX = "gallery:poisson2d:n=8"
NNZ = 5 * 64 - 4 * 8


class StandInCard(nullcontext):
    """A card whose power, and whose sensor, follow what it is asked to do."""

    device, driver = "stand-in", "XRT 2.13.466"
    clock_hz = 300e6
    name, boundary, energy_step_j = "xrt", "card", None
    power_step_w = 0.0153

    def __init__(self, refresh_s: float = CADENCE_S) -> None:
        super().__init__()
        self.refresh_s = refresh_s
        self.power_w = IDLE_W
        self.num_reads = self.num_idle = 0
        self.iterations: list[int] = []
        self.num_launches = 0
        self.product_s = lambda launch: PRODUCT_S
        self.events: list[str] = []

    def __enter__(self) -> StandInCard:
        return self

    def __exit__(self, *_: object) -> None:
        self.events.append("closed")

    # --- What a card does ---

    def place(self, fmt, x, *, iterations: int = 1) -> float:
        self._y = fmt.spmv(x)
        self.iterations.append(iterations)
        return 0.001

    def launch(self, repeat: int = 1) -> SimpleNamespace:
        self.power_w = LOAD_W
        self.events.append("card launch")
        numbers = range(self.num_launches, self.num_launches + repeat)
        self.num_launches += repeat
        time.sleep(0.001)  # lets the sampler read
        product_s = np.array([self.product_s(number) for number in numbers])
        return SimpleNamespace(kernel_s=product_s * self.iterations[-1], cycles=None)

    def fetch(self) -> tuple[np.ndarray, float]:
        return self._y, 0.002

    # --- What its sensor does ---

    def read(self) -> Reading:
        self.num_reads += 1
        return Reading(self.power_w)

    def facts(self) -> dict[str, str]:
        return {}

    def rest(self, _duration_s: float) -> None:
        """Be idle until the sensor was read often enough."""
        self.power_w = IDLE_W + self.num_idle * DRIFT_W
        self.num_idle += 1
        enough = self.num_reads + 12
        while self.num_reads < enough:
            time.sleep(CADENCE_S)


def block_xclbin() -> xclbin.XclbinInfo:
    """Describe a file for a card with one unit of the kernel `block`."""
    kernel = load_kernel("block")
    banks = {"matrix": ["HBM[0]"], "x": ["HBM[1]"], "y": ["HBM[1]"]}
    layout = xclbin.lay_out_kernel(
        kernel.function,
        {port.name: f"M_AXI_{port.name.upper()}" for port in kernel.ports},
        [scalar.name for scalar in kernel.scalars],
        {kernel.unit(1): banks},
    )
    return xclbin.XclbinInfo(
        path="block.xclbin",
        target="hw",
        platform="xilinx_u50",
        uuid="5ba0",
        kernels=(layout,),
        memories=xclbin.hbm_banks(),
        clock_hz=300e6,
        built_by=None,
        facts=xclbin.Facts(kernel="block", block=16, slice=16, x_room=1024),
        sections=(),
    )


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> StandInCard:
    """A card of 17 W at rest and 25 W at work, with its sensor, and nothing else."""
    stand_in = StandInCard()
    monkeypatch.setattr(measure, "open_device", lambda **_: stand_in)
    monkeypatch.setattr(measure.containers, "read", lambda _: block_xclbin())
    meter = functools.partial(Meter, cadence_s=CADENCE_S, sleep=stand_in.rest)
    monkeypatch.setattr(metering, "Meter", meter)
    monkeypatch.setattr(metering, "_SETTLE_S", 0.0)
    monkeypatch.setattr(metering, "open_sensor", lambda name: sensor_of(name, stand_in))
    return stand_in


def sensor_of(name: str, card: StandInCard) -> StandInCard:
    if name == "xrt":
        return card
    raise SensorError(f"there is no {name} here.")


def on_card(**options) -> measure.RunResult:
    defaults = {"mode": "hw", "xclbin": "block.xclbin", "baseline": "none", "warmup_s": 0.05,
                "measure_s": 0.4}  # fmt: skip
    return run(RunOptions(matrix=MATRIX, **{**defaults, **options}))


# --- Time on a card ---------------------------------------------------------------------


def test_the_time_on_a_card_is_that_of_its_kernel_a_product(card: StandInCard) -> None:
    result = on_card()
    time_s = result.fpga["time_s"]
    assert time_s.value == pytest.approx(PRODUCT_S)
    assert time_s.origin == "measured"
    assert time_s.n == result.provenance["launches"] >= 7
    assert result.fpga["gflops"].value == pytest.approx(2e-9 * NNZ / PRODUCT_S)
    assert result.verified


def test_a_launch_holds_as_many_products_as_fit_a_quarter_of_a_second(
    card: StandInCard,
) -> None:
    result = on_card()
    assert card.iterations == [1, 100]
    assert result.provenance["iterations"] == 100


def test_a_product_longer_than_that_is_launched_alone(card: StandInCard) -> None:
    card.product_s = lambda launch: 2.0
    assert on_card().provenance["iterations"] == 1
    assert card.iterations == [1, 1]


def test_wall_time_stands_beside_kernel_time(card: StandInCard) -> None:
    result = on_card(repeat=8)
    wall = result.fpga["wall_time_s"]
    assert wall.n == 800
    assert wall.origin == "measured"
    assert wall.value is not None
    assert 0 < wall.value != result.fpga["time_s"].value


def test_the_steps_on_a_real_card_are_timed(card: StandInCard) -> None:
    host = on_card(repeat=1).host
    assert host["to_card_s"].value == 0.001
    assert host["to_host_s"].value == 0.002


def test_unsteady_times_say_so(card: StandInCard) -> None:
    card.product_s = lambda launch: PRODUCT_S if launch < 31 else 2 * PRODUCT_S
    result = on_card(repeat=60, warmup_s=0.0)
    assert result.warnings == (
        "FPGA: the time of a product changed by 50.0 % within the measurement; it was not "
        "steady after the warm-up: take a longer one.",
    )


def test_the_reader_learns_what_it_takes_to_repeat_the_run(card: StandInCard) -> None:
    provenance = on_card(repeat=1).provenance
    assert provenance["platform"] == "xilinx_u50"
    assert provenance["xclbin_uuid"] == "5ba0"
    assert provenance["clock_hz"] == 300e6
    assert provenance["driver"] == "XRT 2.13.466"
    for key in ("cpu", "cpus", "cpu_governor", "numpy", "scipy", "python", "system"):
        assert key in provenance


# --- Energy on a card -------------------------------------------------------------------


def test_power_and_time_are_of_the_same_window(card: StandInCard) -> None:
    result = on_card()
    figures, facts = result.fpga, result.fpga_power
    assert figures["power_w"].value == pytest.approx(LOAD_W, rel=0.01)
    wall_s = figures["wall_time_s"].value
    assert wall_s is not None
    assert figures["energy_j"].value == pytest.approx(LOAD_W * wall_s, rel=0.02)
    assert (facts["sensor"], facts["boundary"], facts["verdict"]) == ("xrt", "card", "resolved")
    assert abs(facts["conservation_error"]) <= 1e-9


def test_idle_power_before_and_after_gives_dynamic_energy_and_drift(card: StandInCard) -> None:
    figures = on_card().fpga
    assert figures["idle_w"].value == pytest.approx(IDLE_W + DRIFT_W / 2, rel=0.01)
    assert figures["idle_drift_w"].value == pytest.approx(DRIFT_W, abs=0.05)
    wall_s = figures["wall_time_s"].value
    assert wall_s is not None
    dynamic_j = (LOAD_W - IDLE_W - DRIFT_W / 2) * wall_s
    assert figures["energy_dynamic_j"].value == pytest.approx(dynamic_j, rel=0.05)


def test_a_slow_sensor_leaves_time_and_no_energy(card: StandInCard) -> None:
    card.refresh_s = 10.0
    result = on_card(measure_s=0.1)
    assert result.fpga["time_s"].value == pytest.approx(PRODUCT_S)
    assert result.fpga_power["verdict"] == "unresolved"
    for key in ("energy_j", "power_w"):
        document = result.fpga[key].to_json()
        assert document["value"] is None
        assert document["reason"].startswith("unresolved: a window of ")


def test_a_sensor_of_a_few_refresh_periods_gives_bounds_only(card: StandInCard) -> None:
    card.refresh_s = 0.1
    result = on_card()
    power = result.fpga["power_w"]
    assert result.fpga_power["verdict"] == "bound only"
    assert power.low is not None
    assert power.high is not None
    assert power.low < LOAD_W < power.high


def test_a_sensor_that_fails_leaves_time_and_a_reason(
    card: StandInCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Reading:
        raise SensorError("the card's sensors are all zero.")

    monkeypatch.setattr(card, "read", fail)
    monkeypatch.setattr(card, "rest", lambda _: None)
    monkeypatch.setattr("spmv_fpga.power.sampler._FIRST_SAMPLE_S", 0.0)
    monkeypatch.setattr(metering, "Meter", functools.partial(Meter, sleep=lambda _: None))
    result = on_card(measure_s=0.05)
    assert result.fpga["time_s"].value == pytest.approx(PRODUCT_S)
    assert "the card's sensors are all zero" in str(result.fpga["energy_j"].reason)


def test_a_replayed_trace_is_metered_like_a_sensor(
    card: StandInCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = np.arange(0, 600, 0.01)
    trace = Trace(times, np.full(len(times), 21.0), facts={"boundary": "card"})
    monkeypatch.setattr(metering, "open_sensor", lambda name: ReplaySensor(trace))
    meter = functools.partial(Meter, cadence_s=CADENCE_S, sleep=lambda _: None)
    monkeypatch.setattr(metering, "Meter", meter)
    result = on_card(power="replay:card.csv")
    assert result.fpga["power_w"].value == pytest.approx(21.0)
    assert result.fpga_power["sensor"] == "replay"
    assert result.cpu["energy_j"].reason == "no baseline was asked for"


def test_the_table_names_sensor_boundary_verdict_and_idle_power(card: StandInCard) -> None:
    text = "\n".join(str(line) for line in run_tables(on_card()))
    assert "FPGA energy: sensor xrt (card), resolved, " in text
    assert "above idle, which is 17.2" in text
    assert "500.0 mW more after the run" in text
    assert "FPGA wall time: " in text


def test_the_document_holds_figures_with_their_origin(card: StandInCard) -> None:
    fpga = run_document(on_card())["fpga"]
    for key in ("time_s", "power_w", "energy_j", "energy_dynamic_j", "wall_time_s"):
        assert fpga[key]["origin"] == "measured"
    assert fpga["cycles"]["value"] is None
    assert fpga["verdict"] == "resolved"


# --- The processors' turns --------------------------------------------------------------


class StandInLibrary(nullcontext):
    """A CPU library that notes when it multiplies."""

    library, threads = "stand-in 1.0", 1

    def __init__(self, csr, events: list[str]) -> None:
        super().__init__()
        self._csr, self._events, self.facts = csr, events, {"build": "none"}

    def __enter__(self) -> StandInLibrary:
        return self

    def place(self, x: np.ndarray) -> None:
        self._y = self._csr @ x

    def launch(self) -> None:
        self._events.append("cpu launch")

    def fetch(self) -> np.ndarray:
        return self._y


def test_the_cpu_multiplies_only_after_the_card_was_closed(
    card: StandInCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        measure, "open_baseline", lambda _, csr: StandInLibrary(csr, card.events)
    )
    result = on_card(repeat=2, baseline="auto", measure_s=0.001, warmup_s=0.0)
    events = card.events
    assert events.index("closed") < events.index("cpu launch")
    assert "card launch" not in events[events.index("closed") :]
    assert result.provenance["cpu_build"] == "none"
    assert result.cpu["energy_j"].reason == "there is no rapl here."


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, float]]:
    """What `measure_times` is asked for; it measures nothing."""
    told: list[tuple[float, float]] = []

    def note(products, *, warmup_s: float, measure_s: float, window, **_) -> Timing:
        told.append((warmup_s, measure_s))
        with window:
            return Timing(np.full(7, PRODUCT_S), 0.0, 1.0, warmup_s)

    monkeypatch.setattr(measure, "measure_times", note)
    return told


def test_a_card_is_warmed_up_for_120_s_and_measured_for_180_s_and_so_is_the_cpu(
    card: StandInCard, windows: list[tuple[float, float]]
) -> None:
    on_card(baseline="scipy", warmup_s=None, measure_s=None, power="none")
    assert windows == [(120.0, 180.0), (120.0, 180.0)]


def test_without_a_card_the_cpu_is_measured_for_a_moment(
    windows: list[tuple[float, float]],
) -> None:
    run(RunOptions(matrix=MATRIX, mode="reference", baseline="scipy", power="none"))
    assert windows == [(0.2, 0.2)]


def test_the_windows_of_both_can_be_set(
    card: StandInCard, windows: list[tuple[float, float]]
) -> None:
    on_card(baseline="scipy", warmup_s=1.0, measure_s=2.0, power="none")
    assert windows == [(1.0, 2.0), (1.0, 2.0)]


# --- Energy of the CPU ------------------------------------------------------------------

CPU_W = 40.0


@contextmanager
def counting(root: Path, power_w: float = CPU_W) -> Iterator[None]:
    """Make a powercap tree with a package whose counter counts until the end."""
    zone = root / "intel-rapl:0"
    zone.mkdir(parents=True)
    (zone / "name").write_text("package-0\n")
    (zone / "max_energy_range_uj").write_text("262143328850\n")
    counter = os.open(zone / "energy_uj", os.O_RDWR | os.O_CREAT)
    is_over, start_s = threading.Event(), time.monotonic()

    def show() -> None:
        counted_uj = int((time.monotonic() - start_s) * power_w * 1e6)
        # Digits of the same number, so that no reader sees a part of it.
        os.pwrite(counter, f"{counted_uj:012d}\n".encode(), 0)

    def count() -> None:
        while not is_over.wait(0.001):
            show()

    show()
    thread = threading.Thread(target=count)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        os.close(counter)


@pytest.fixture
def quick_meter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metering, "Meter", functools.partial(Meter, cadence_s=CADENCE_S))
    monkeypatch.setattr(metering, "_SETTLE_S", 0.0)


def on_cpu(**options) -> measure.RunResult:
    defaults = {"mode": "reference", "baseline": "scipy", "warmup_s": 0.0, "measure_s": 0.5}
    return run(RunOptions(matrix=MATRIX, **{**defaults, **options}))


@pytest.mark.usefixtures("quick_meter")
@pytest.mark.parametrize("power", ["auto", "rapl"])
def test_the_cpu_has_the_energy_that_its_counter_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, power: str
) -> None:
    monkeypatch.setenv("SPMV_FPGA_POWERCAP", str(tmp_path / "powercap"))
    with counting(tmp_path / "powercap"):
        cpu = run_document(on_cpu(power=power, require_energy=True))["cpu"]
    assert (cpu["sensor"], cpu["boundary"]) == ("rapl", "package")
    assert cpu["verdict"] in ("resolved", "bound only")  # as the machine lets the sampler read
    assert cpu["power_w"]["value"] == pytest.approx(CPU_W, rel=0.1)  # late on a busy machine
    assert cpu["power_w"]["origin"] == "measured"
    products = cpu["energy_window_j"]["value"] / cpu["energy_j"]["value"]
    assert products == pytest.approx(cpu["time_s"]["n"])


@pytest.mark.usefixtures("quick_meter")
def test_an_emulated_product_has_no_energy_though_the_cpu_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPMV_FPGA_POWERCAP", str(tmp_path / "powercap"))
    with counting(tmp_path / "powercap"):
        result = on_cpu()
    assert result.cpu["energy_j"].value is not None
    assert result.fpga["energy_j"].reason == "mode reference: NumPy made y, no card"
    assert result.fpga_power == {}


@pytest.mark.usefixtures("quick_meter")
def test_without_a_counter_the_cpu_has_times_and_a_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPMV_FPGA_POWERCAP", str(tmp_path))
    result = on_cpu(measure_s=0.01)
    assert result.cpu["time_s"].value is not None
    assert str(tmp_path) in str(result.cpu["energy_j"].reason)
    assert result.cpu_power == {}


# --- Energy that is required ------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "reasons"),
    [
        ({"power": "none"}, ["of the CPU: no power source was asked for"]),
        ({"power": "xrt"}, ["of the CPU: power source xrt does not measure the CPU"]),
        ({"baseline": "none"}, ["mode reference has no card, and there is no baseline"]),
        ({"mode": "sw_emu", "power": "none"}, ["of the CPU: no power source was asked for"]),
        (
            {"mode": "hw", "power": "rapl"},
            [
                "of the card: power source rapl does not measure the card",
                "of the CPU: there is",
            ],
        ),
        ({"mode": "hw", "power": "nvml", "baseline": "none"}, ["of the card: power source"]),
    ],
)
def test_required_energy_that_cannot_be_had_is_refused_before_the_run(
    card: StandInCard, options: dict[str, str], reasons: list[str]
) -> None:
    with pytest.raises(SensorError, match="energy is required and cannot be measured") as error:
        on_cpu(require_energy=True, xclbin="block.xclbin", **options)
    for reason in reasons:
        assert reason in str(error.value)
    assert card.events == []


def test_required_energy_that_can_be_had_is_measured(card: StandInCard) -> None:
    result = on_card(require_energy=True)
    assert result.fpga["energy_j"].value is not None


# --- What the table says ------------------------------------------------------------------


def table_of(result) -> str:
    """Everything that a report prints, without colours or padding."""
    console = Console(file=io.StringIO(), width=500, color_system=None)
    for part in run_tables(result):
        console.print(part)
    return console.file.getvalue()


def multiplied(**options) -> measure.RunResult:
    chosen = {"matrix": MATRIX, "mode": "reference", "baseline": "none", **options}
    return run(RunOptions(**chosen))


def test_the_report_says_that_the_model_chose_the_kernel() -> None:
    result = multiplied()
    assert run_document(result)["kernel"]["chosen_by"] == "model"
    assert "; chosen by the model, for time" in table_of(result)


def test_a_kernel_that_the_user_named_is_the_users_choice() -> None:
    result = multiplied(kernel="scalar")
    assert run_document(result)["kernel"]["chosen_by"] == "user"
    assert "chosen by" not in table_of(result)


def test_an_xclbin_chooses_its_kernel(card: StandInCard) -> None:
    assert on_card(repeat=7).chosen_by == "xclbin"


def test_a_figure_shows_the_ends_of_its_interval_and_not_half_its_width() -> None:
    result = multiplied()
    time_s = result.model.time_s
    low, high = (f"{1e6 * end:#.4g}" for end in (time_s.low, time_s.high))
    assert f"({low} … {high})" in table_of(result)


def test_a_time_that_is_not_steady_is_marked_where_it_stands(card: StandInCard) -> None:
    card.product_s = lambda launch: PRODUCT_S if launch < 31 else 2 * PRODUCT_S
    result = on_card(repeat=60, warmup_s=0.0)
    assert result.fpga_steady is False
    (line,) = (line for line in table_of(result).splitlines() if line.startswith("FPGA  "))
    assert line.count("unstable") == 2


def test_counts_have_commas_and_cycles_have_no_line() -> None:
    text = table_of(multiplied(matrix="gallery:poisson2d:n=64"))
    assert "4,096 × 4,096, 20,224 entries" in text
    assert "cycles" not in text


def test_what_binds_the_time_is_said_in_words() -> None:
    assert "what takes the most time, by the model: launch: starting the kernel" in table_of(
        multiplied()
    )


@pytest.mark.usefixtures("_no_mkl")
def test_another_library_than_onemkl_is_a_warning() -> None:
    result = multiplied(baseline="auto", warmup_s=0.0, measure_s=0.0)
    assert any("in place of oneMKL" in warning for warning in result.warnings)
    assert "cpu_instead_of_mkl" not in result.provenance


@pytest.fixture
def _no_mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spmv_fpga.baselines.mkl.find_library", lambda: None)
