"""What a CPU baseline offers.

The interface is that of a card: place x, launch products one after the other, fetch y.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

ALIGNMENT_BYTES = 64
"""A cache line of x86-64, and the width of an AVX-512 register."""


class Baseline(ABC):
    """A CPU library that has been given a matrix; a context manager.

    Attributes
    ----------
    library : str
        Name and version.
    threads : int
        Threads that it multiplies with.
    facts : mapping of str to str
        What else a reader needs to repeat the measurement.
    """

    library: str
    threads: int
    facts: Mapping[str, str]

    @abstractmethod
    def place(self, x: npt.NDArray[np.float32]) -> None:
        """Take x, shape (n,), float32."""

    @abstractmethod
    def launch(self) -> None:
        """Multiply once; nothing but the library's own call belongs here."""

    @abstractmethod
    def fetch(self) -> npt.NDArray[np.float32]:
        """Return the y of the last launch, shape (m,), a copy."""

    def multiply(self, x: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Return A·x."""
        self.place(x)
        self.launch()
        return self.fetch()

    def close(self) -> None:  # noqa: B027 - most libraries hold nothing
        """Free what the library holds; the baseline cannot be used any more."""

    def __enter__(self) -> Baseline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def aligned_zeros(num_values: int) -> npt.NDArray[np.float32]:
    """Return zeros, shape (num_values,), float32, that begin at a cache line.

    >>> aligned_zeros(3).ctypes.data % ALIGNMENT_BYTES
    0
    """
    num_bytes = num_values * np.dtype(np.float32).itemsize
    room = np.zeros(num_bytes + ALIGNMENT_BYTES, np.uint8)
    skipped = -room.ctypes.data % ALIGNMENT_BYTES
    return room[skipped : skipped + num_bytes].view(np.float32)
