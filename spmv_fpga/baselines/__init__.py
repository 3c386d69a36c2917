"""The same product on the CPU: what the card is held against."""

from .base import Baseline
from .choice import BASELINES, open_baseline
from .timing import MEASURE_S, WARMUP_S, BaselineResult, baseline_times, time_baseline

__all__ = [
    "BASELINES",
    "MEASURE_S",
    "WARMUP_S",
    "Baseline",
    "BaselineResult",
    "baseline_times",
    "open_baseline",
    "time_baseline",
]
