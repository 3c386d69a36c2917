"""Cards, emulated and real: what fits, what they need around them, and running on them."""

from .card import Card, LaunchTimes, open_device
from .fit import check_fit, check_mode

__all__ = ["Card", "LaunchTimes", "check_fit", "check_mode", "open_device"]
