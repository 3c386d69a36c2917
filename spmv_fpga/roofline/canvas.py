"""Paper, ink and files for the pictures.

Matplotlib is imported when a picture is drawn. Pictures are drawn without `pyplot`, so no
window, no display and no state outside the figure. Two drawings of the same data are the
same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import files
from ..errors import SpmvFpgaError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".svg", ".png", ".pdf")

SMALLEST_FONT_PT = 8.0
WIDTH_IN = 7.0
"""Width of the text on a page of A4 or letter paper."""

# Okabe and Ito's colours, told apart by colour-blind readers; nothing rests on colour alone.
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
ORANGE, SKY, PURPLE = "#E69F00", "#56B4E9", "#CC79A7"
INK, GREY, PALE = "#1A1A1A", "#5F5F5F", "#E8E8E8"

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture everywhere
    "font.size": 9.0,
    "text.parse_math": False,  # a matrix may have a dollar in its name
    "axes.labelsize": 9.0,
    "axes.titlesize": 10.0,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.8,
    "axes.unicode_minus": True,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": SMALLEST_FONT_PT,
    "figure.facecolor": "white",
    "figure.dpi": 100.0,
    "savefig.facecolor": "white",
    "svg.fonttype": "path",
    "svg.hashsalt": "spmv_fpga",
    "pdf.fonttype": 42,
    "hatch.linewidth": 0.5,
}
_PNG_DPI = 200
# No date and no version: the same data give the same file.
_METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": None},
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@contextmanager
def style() -> Iterator[None]:
    """Draw and save in the project's style, whatever the user's `matplotlibrc` says."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield


def new_figure(height_in: float, width_in: float = WIDTH_IN) -> Figure:
    """Return an empty figure; call it within `style`."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width_in, height_in))
    FigureCanvasAgg(figure)  # a renderer, so that text can be measured
    return figure


def write_caption(figure: Figure, text: str) -> None:
    """Write what a picture rests on below it, in lines that fit.

    The figure keeps the room: its axes must end above `caption_room(text)`.
    """
    figure.text(
        0.012, 0.012, _wrapped(text, figure.get_figwidth()),
        fontsize=SMALLEST_FONT_PT, color=GREY, va="bottom", ha="left", linespacing=1.25,
    )  # fmt: skip


def caption_room(figure: Figure, text: str) -> float:
    """Return the height of a caption as a fraction of the figure's."""
    lines = _wrapped(text, figure.get_figwidth()).count("\n") + 1
    return 0.02 + lines * 1.3 * SMALLEST_FONT_PT / 72 / figure.get_figheight()


def _wrapped(text: str, width_in: float) -> str:
    import textwrap

    # A letter of the font is 0.56 em wide in running text.
    letters = int(width_in * 72 / (0.56 * SMALLEST_FONT_PT))
    return "\n".join(textwrap.wrap(text, letters))


def to_bytes(figure: Figure, suffix: str) -> bytes:
    """Return the file of a figure; `suffix` is one of `FORMATS`."""
    file = io.BytesIO()
    with style():
        figure.savefig(
            file, format=suffix.lstrip("."), metadata=_METADATA[suffix], dpi=_PNG_DPI
        )
    return file.getvalue()


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure, whole or not at all, in the format of the file's ending.

    Parameters
    ----------
    figure : matplotlib Figure
    path : str or Path
        Ends in `.svg`, `.png` or `.pdf`.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    SpmvFpgaError
        If the ending is another one, or the file cannot be written.
    """
    target = Path(path)
    suffix = check_format(target)
    write_whole(target, to_bytes(figure, suffix))
    return target


def check_format(path: str | Path) -> str:
    """Return the ending of a picture's file, or raise if no picture has it.

    >>> check_format("roofline.SVG")
    '.svg'
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise SpmvFpgaError(
            f"{path}: the name ends in {suffix or 'nothing'}; it must end in .svg, .png or "
            ".pdf."
        )
    return suffix


def write_whole(target: Path, content: bytes) -> None:
    """Write a file whole or not at all.

    Raises
    ------
    SpmvFpgaError
        If it cannot be written.
    """
    try:
        files.write_whole(target, content)
    except OSError as error:
        raise SpmvFpgaError(
            f"{target}: cannot be written: {error.strerror or error}; choose another file."
        ) from None
