"""Cards, emulated and real: what fits, what they need around them, and running on them."""

from .card import Card, Job, LaunchTimes, open_device
from .fit import check_fit, check_mode

__all__ = ["Card", "Job", "LaunchTimes", "check_fit", "check_mode", "open_device"]
