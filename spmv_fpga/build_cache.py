"""Things that are made once: folders in the cache whose name is a hash of their input."""

from __future__ import annotations

import atexit
import functools
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from filelock import FileLock

from .resources import cache_dir


def made_once(section: str, key: str, make: Callable[[Path], None]) -> Path:
    """Return the folder for a key, made by `make` unless the cache holds it already.

    Two processes never make the same folder at the same time, and one that is half made
    never has the final name.

    Parameters
    ----------
    section : str
        Folder below `cache_dir()`.
    key : str
        Hash of all that decides the content.
    make : callable
        Gets an empty folder and fills it.

    Returns
    -------
    Path
        In a private temporary folder, which goes when this process ends, where the cache
        cannot be written.
    """
    try:
        return _made_in(cache_dir() / section, key, make)
    except OSError:  # read-only, full, or no folder at all
        return _made_in(private_folder() / section, key, make)


def _made_in(parent: Path, key: str, make: Callable[[Path], None]) -> Path:
    folder = parent / key
    if folder.is_dir():
        return folder
    parent.mkdir(parents=True, exist_ok=True)
    with FileLock(parent / f"{key}.lock"):
        if folder.is_dir():
            return folder
        with tempfile.TemporaryDirectory(prefix="making_", dir=parent) as temporary:
            made = Path(temporary) / "made"
            made.mkdir()
            make(made)
            made.rename(folder)
    return folder


@functools.cache
def private_folder() -> Path:
    """Return a temporary folder of this process; it goes when the process ends."""
    folder = Path(tempfile.mkdtemp(prefix="spmv_fpga_cache_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def content_key(files: Iterable[Path], facts: Iterable[str] = ()) -> str:
    """Hash the content of files, and texts, to a key of 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for text in facts:
        digest.update(text.encode(errors="surrogateescape") + b"\0")
    for file in files:
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def stamp(path: Path) -> str:
    """Tell one version of a file from another without reading or running it."""
    if not path.exists():
        return f"{path} is absent"
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns}"
