"""Time that passes only when a test, or a fake that takes its time, says so."""

from __future__ import annotations


class FakeClock:
    """A monotonic clock, and the clock that also counts the machine's sleep.

    Called, it is the monotonic one.
    """

    ASLEEP_S = 5000.0

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s

    def __call__(self) -> float:
        return self.now_s

    def boottime(self) -> float:
        return self.now_s + self.ASLEEP_S

    def advance(self, duration_s: float) -> None:
        self.now_s += duration_s
