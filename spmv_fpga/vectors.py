"""The vector x of a product, from the command line's words for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from .errors import MatrixError
from .files import require_file, write_whole

DEFAULT_X = "random:1"


def make_x(spec: str, num_cols: int) -> npt.NDArray[np.float32]:
    """Make x.

    Parameters
    ----------
    spec : str
        `index` (1, 2, 3, …), `ones`, `random` or `random:SEED` (uniform in [-1, 1)), or a
        path to a `.npy` file.
    num_cols : int
        Length, n.

    Returns
    -------
    ndarray, shape (n,), float32

    Raises
    ------
    MatrixError
        If the words are unknown, or the file does not hold n real numbers.

    Examples
    --------
    >>> make_x("index", 3).tolist()
    [1.0, 2.0, 3.0]
    """
    kind, _, argument = spec.partition(":")
    if spec == "index":
        return np.arange(1, num_cols + 1, dtype=np.float32)
    if spec == "ones":
        return np.ones(num_cols, np.float32)
    if kind == "random":
        return _random(argument, num_cols)
    if spec.endswith(".npy"):
        return _from_file(Path(spec), num_cols)
    raise MatrixError(f"x is {spec!r}; it must be index, ones, random[:SEED] or FILE.npy.")


def _random(seed: str, num_cols: int) -> npt.NDArray[np.float32]:
    if seed and not seed.isdecimal():
        raise MatrixError(f"the seed of x is {seed!r}; it must be a whole number.")
    rng = np.random.default_rng(int(seed or 1))
    return rng.random(num_cols, np.float32) * np.float32(2) - np.float32(1)


def _from_file(path: Path, num_cols: int) -> npt.NDArray[np.float32]:
    try:
        require_file(path)
        with path.open("rb") as file:
            x = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as error:
        raise MatrixError(f"x cannot be read: {error.strerror or error}.", path=path) from None
    except ValueError as error:
        raise MatrixError(f"x is no .npy file of numbers ({error}).", path=path) from None
    if x.shape != (num_cols,):
        raise MatrixError(
            f"x has shape {x.shape}; the matrix has {num_cols} columns, so it must be "
            f"({num_cols},).",
            path=path,
        )
    if not np.can_cast(x.dtype, np.float64, "same_kind"):
        raise MatrixError(f"x has dtype {x.dtype}; it must hold real numbers.", path=path)
    with np.errstate(over="ignore"):
        return np.asarray(x, np.float32)


def save_y(path: str | Path, y: npt.NDArray[np.float32]) -> None:
    """Write y as a `.npy` file under exactly this name, whole or not at all."""
    try:
        write_whole(path, lambda file: np.save(file, y))
    except OSError as error:
        raise MatrixError(
            f"y cannot be written: {error.strerror or error}.", path=path
        ) from None
