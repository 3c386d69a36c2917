"""The paper's tables and figures beside the model's, on one page that stands alone.

The page holds its pictures and its style; it loads nothing, runs no script, and is read in
dark, in light and on paper.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import SpmvFpgaError
from ..figures import Figure
from ..units import NOTHING, percent, si
from ..version import __version__
from . import canvas
from .calibration import Calibration, Parameter
from .drawings import figure_2, figure_3
from .figures import figure_1, figure_4, figure_5, figure_6
from .paper import CITATION, DensityRow, PaperResult, TimeRow
from .peers import CONVENTION, PeerComparison, PeerRow
from .points import paper_points

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_TEMPLATE = Path(__file__).resolve().parent / "page.html.j2"
PAGE_NAME = "paper.html"
TITLE = "SpMV on an FPGA by the roofline: the paper's tables and figures beside the model"


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure of the page.

    Attributes
    ----------
    name : str
        Of its file, without an ending: `figure_1`.
    text : str
        What it shows.
    drawing : matplotlib Figure
    """

    name: str
    text: str
    drawing: Drawing

    def to_svg(self) -> str:
        """Return the picture as an element of a page; its ids are its own."""
        svg = canvas.to_bytes(self.drawing, ".svg").decode("utf-8")
        svg = svg[svg.index("<svg") :].rstrip()
        svg = re.sub(r' (id=")', rf" \1{self.name}-", svg)
        svg = re.sub(r'(href="#|url\(#)', rf"\1{self.name}-", svg)
        label = f'<svg role="img" aria-label="{_attribute(self.text)}"'
        opening = re.sub(r' (?:width|height)="[^"]*pt"', "", svg[: svg.index(">")])
        return label + opening.removeprefix("<svg") + svg[svg.index(">") :]


def draw_pictures(
    result: PaperResult, matrices: str | os.PathLike[str] | None = None
) -> tuple[Picture, ...]:
    """Draw Figures 1 to 6.

    Parameters
    ----------
    result : PaperResult
    matrices : path, optional
        Folder with real matrices, whose 8×8 tiles are counted for Figure 6.
    """
    calibration = result.calibration
    points = paper_points(result, matrices)
    return (
        Picture("figure_1", "Figure 1. The roofline model.", figure_1(calibration)),
        Picture(
            "figure_2",
            "Figure 2. A small matrix in both formats, drawn from the arrays of this project's "
            "own objects.",
            figure_2(),
        ),
        Picture(
            "figure_3",
            "Figure 3. Data flow of this project's kernel block, drawn from its source.",
            figure_3("block"),
        ),
        Picture(
            "figure_3_scalar",
            "Data flow of this project's kernel scalar, drawn from its source.",
            figure_3("scalar"),
        ),
        Picture(
            "figure_4",
            "Figure 4. Where Block gains time alone, and where it gains time and energy.",
            figure_4(calibration),
        ),
        Picture(
            "figure_5",
            "Figure 5. Three matrices: one that Block slows down, one that is nearly even, one "
            "that it speeds up. BlockMax counts the padding as useful.",
            figure_5(points, calibration),
        ),
        Picture(
            "figure_6",
            "Figure 6. Kernel block on all matrices. Only 16×16 tiles were published.",
            figure_6(points, calibration),
        ),
    )


def render_page(
    result: PaperResult, pictures: Sequence[Picture], peers: PeerComparison | None = None
) -> str:
    """Return the page as text.

    Parameters
    ----------
    result : PaperResult
        Without Table 1, the page has none.
    pictures : sequence of Picture
    peers : PeerComparison, optional
        Without it, the page has no table of peers.
    """
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(_TEMPLATE.read_text("utf-8"))
    pairs = list(zip(result.table2[::2], result.table2[1::2], strict=True))
    calibration = result.calibration
    return template.render(
        title=TITLE,
        version=__version__,
        citation=CITATION,
        model=f"calibration {calibration.name}, {calibration.title}",
        sentences=result.summary["sentences"],
        table1=[_density_cells(row) for row in result.table1],
        times=[_time_cells(scalar, block) for scalar, block in pairs],
        energies=[_energy_cells(scalar, block) for scalar, block in pairs],
        errors={name: percent(value) for name, value in _errors(calibration).items()},
        figures=[
            # The drawings are this program's own; matplotlib escapes their text.
            {"name": p.name, "text": p.text, "svg": Markup(p.to_svg())}
            for p in pictures
        ],
        parameters=list(_parameter_cells(calibration)),
        peers=[] if peers is None else [_peer_cells(row) for row in peers.rows],
        peers_assumptions="" if peers is None else peers.assumptions,
        convention=CONVENTION,
    )


def write_paper(
    result: PaperResult,
    folder: str | os.PathLike[str],
    matrices: str | os.PathLike[str] | None = None,
    peers: PeerComparison | None = None,
) -> tuple[Path, ...]:
    """Write the page and each of its figures.

    Parameters
    ----------
    result : PaperResult
    folder : path
        Made where it is missing.
    matrices : path, optional
        Folder with real matrices.
    peers : PeerComparison, optional
        Goes onto the page.

    Returns
    -------
    tuple of Path
        `paper.html`, then the figures as SVG.

    Raises
    ------
    SpmvFpgaError
        If the folder or a file in it cannot be written.
    """
    target = Path(folder)
    pictures = draw_pictures(result, matrices)
    page = render_page(result, pictures, peers)
    try:
        target.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpmvFpgaError(
            f"{target}: cannot be made: {error.strerror or error}; choose another folder."
        ) from None
    drawings = [
        (target / f"{p.name}.svg", canvas.to_bytes(p.drawing, ".svg")) for p in pictures
    ]
    files = [(target / PAGE_NAME, page.encode("utf-8")), *drawings]
    for path, content in files:
        canvas.write_whole(path, content)
    return tuple(path for path, _ in files)


# Cells.


def _density_cells(row: DensityRow) -> dict[str, str]:
    counted = None if row.density is None else 100 * row.density
    printed = 100 * row.row.density
    agrees = counted is not None and abs(counted - printed) <= 0.5
    return {
        "name": row.row.name,
        "n": _count(row.row.n),
        "n_counted": _count(row.n),
        "nnz": _count(row.row.nnz),
        "nnz_counted": _count(row.nnz),
        "blocks": _count(row.blocks),
        "density": f"{printed:g} %",
        "density_counted": _density_text(row, counted, agrees),
        "mark": "bad" if not agrees else "good" if row.source == "real" else "",
        "source": row.source if row.reason is None else f"{row.source}: {row.reason}",
    }


def _density_text(row: DensityRow, counted: float | None, agrees: bool) -> str:
    if counted is None:
        return NOTHING
    if row.source == "twin" and agrees:  # made to have it, so counting it shows nothing
        return "as published"
    return f"{counted:.2f} %{'' if agrees else ' (differs)'}"


def _peer_cells(row: PeerRow) -> dict[str, str]:
    peer, model, work = row.peer, row.model, row.model.workload
    rates = (peer.gflops, row.gflops.value, row.repeated_gflops.value)
    published, own, repeated = (NOTHING if v is None else f"{v:.2f}" for v in rates)
    return {
        "name": peer.name,
        "n": _count(peer.n),
        "nnz": _count(peer.nnz),
        "card": f"{peer.system}, {peer.card.upper()}",
        "time": _milli(peer.time_s),
        "gflops": published,
        "kernel": f"{work.kernel} {work.parameter}, {model.compute_units} units",
        "time_model": _milli(model.time_s),
        "gflops_model": own,
        "time_repeated": _milli(row.repeated_time_s),
        "gflops_repeated": repeated,
        "density": "unknown" if row.density is None else percent(row.density),
        "source": f"{row.source}: {' '.join(row.notes)}" if row.notes else row.source,
    }


def _time_cells(scalar: TimeRow, block: TimeRow) -> dict[str, Any]:
    kernels = [
        [
            _milli(row.time_published_s),
            _milli(row.model.time_s),
            _milli(row.time_left_out_s),
            _error(row.time_error),
            _milli(row.time_emulated_s),
        ]
        for row in (scalar, block)
    ]
    kernels[1].append(f"±{percent(block.rounding_error)}")
    return {
        "name": scalar.row.name,
        "cpu": _milli(scalar.row.cpu_time_s),
        "kernels": kernels,
        **_winners(
            (scalar.time_published_s, block.time_published_s),
            (scalar.model.time_s, block.model.time_s),
        ),
    }


def _energy_cells(scalar: TimeRow, block: TimeRow) -> dict[str, Any]:
    return {
        "name": scalar.row.name,
        "cpu": _milli(scalar.row.cpu_energy_j, 1),
        "kernels": [
            [
                _milli(row.energy_published_j, 1),
                _milli(row.model.energy_j, 1),
                _milli(row.energy_given_time_j, 1),
                _error(row.energy_error),
            ]
            for row in (scalar, block)
        ],
        **_winners(
            (scalar.energy_published_j, block.energy_published_j),
            (scalar.model.energy_j, block.model.energy_j),
        ),
    }


def _winners(published: tuple[float, float], modelled: tuple[Figure, Figure]) -> dict[str, str]:
    def winner(scalar: float | None, block: float | None) -> str:
        if scalar is None or block is None:
            return NOTHING
        return "Block" if block < scalar else "Scalar"

    found, model = winner(*published), winner(*(figure.value for figure in modelled))
    return {
        "winner": found,
        "winner_model": model if model == found else f"{model} (differs)",
        "mark": "good" if model == found else "bad",
    }


def _errors(calibration: Calibration) -> Mapping[str, float | None]:
    names = ("scalar_time", "block_time", "block_time_dense", "scalar_energy_given_time",
             "block_energy_given_time")  # fmt: skip
    return {name: calibration.errors.get(name) for name in names}


def _parameter_cells(calibration: Calibration) -> list[dict[str, str]]:
    rows = [
        _cells(name.removesuffix("_hz"), rate, "Hz")
        if name.endswith("_hz")
        else _cells(name.removesuffix("_bytes_per_s"), rate, "B/s")
        for name, rate in calibration.rates.items()
    ]
    for kernel, known in calibration.kernels.items():
        power = known.power
        rows += [
            *(
                _cells(f"{kernel}: {term.name}, × {term.count}", term.seconds, "s")
                for term in known.terms
                if term.seconds is not None
            ),
            _cells(f"{kernel}: idle power", power.idle_w, "W"),
            _cells(f"{kernel}: power of a unit", power.kernel_w, "W"),
            _cells(f"{kernel}: energy of traffic", power.w_per_byte_per_s, "J/B"),
        ]
    return rows


def _cells(name: str, parameter: Parameter, unit: str) -> dict[str, str]:
    return {
        "name": name.replace("_", " "),
        "value": si(parameter.value, unit),
        "low": si(parameter.low, unit),
        "high": si(parameter.high, unit),
        "source": parameter.source,
    }


def _milli(value: float | Figure | None, digits: int = 3) -> str:
    number = value.value if isinstance(value, Figure) else value
    return NOTHING if number is None else f"{1e3 * number:.{digits}f}"


def _error(relative: float) -> str:
    rounded = round(100 * relative, 1) + 0.0  # no minus before a zero
    return f"{rounded:+.1f} %".replace("-", "−")


def _count(number: int | None) -> str:
    return NOTHING if number is None else f"{number:,}"


def _attribute(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
