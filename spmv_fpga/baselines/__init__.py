"""The same product on the CPU: what the card is held against."""

from .base import Baseline, BaselineResult, open_baseline, time_baseline

__all__ = ["Baseline", "BaselineResult", "open_baseline", "time_baseline"]
