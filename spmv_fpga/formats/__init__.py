"""Storage formats, each exactly what its kernel's memory port reads."""

from .base import SparseFormat
from .blocked_ell import BLOCK_SIZES, BlockedEll
from .files import is_format_file, load_format, save_format
from .sell_c_sigma import DEFAULT_DEPTH, DEPTHS, SellCSigma
from .sliced_ell import SLICE_SIZES, SlicedEll
from .stats import FormatStats, format_stats
from .tiles import count_blocks

FORMATS: dict[str, type[SparseFormat]] = {
    "scalar": SlicedEll,
    "block": BlockedEll,
    "lanes": SellCSigma,
}
"""Format of each kernel, by the kernel's name."""

__all__ = [
    "BLOCK_SIZES",
    "DEFAULT_DEPTH",
    "DEPTHS",
    "FORMATS",
    "SLICE_SIZES",
    "BlockedEll",
    "FormatStats",
    "SellCSigma",
    "SlicedEll",
    "SparseFormat",
    "count_blocks",
    "format_stats",
    "is_format_file",
    "load_format",
    "save_format",
]
