"""SciPy's CSR product: compiled, one thread; what is there without any other library."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import scipy
from scipy.sparse import csr_array

from .base import Baseline


class ScipyCsr(Baseline):
    """SciPy's own CSR product.

    Parameters
    ----------
    A : csr_array, shape (m, n), float32
    facts : mapping of str to str, optional

    Examples
    --------
    >>> A = csr_array(np.array([[1, 2], [0, 3]], np.float32))
    >>> ScipyCsr(A).multiply(np.ones(2, np.float32)).tolist()
    [3.0, 3.0]
    """

    def __init__(self, A: csr_array, facts: Mapping[str, str] | None = None) -> None:
        self.library = f"scipy {scipy.__version__}"
        self.threads = 1
        self.facts = dict(facts or {})
        self._A = A
        self._x = np.zeros(A.shape[1], np.float32)
        self._y = np.zeros(A.shape[0], np.float32)

    def place(self, x: npt.NDArray[np.float32]) -> None:
        """Take x, shape (n,), float32."""
        self._x = np.array(x, np.float32)

    def launch(self) -> None:
        """Multiply once; SciPy makes a new y each time."""
        self._y = self._A @ self._x

    def fetch(self) -> npt.NDArray[np.float32]:
        """Return the y of the last launch, shape (m,), a copy."""
        return np.array(self._y, np.float32)
