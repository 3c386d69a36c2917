"""Download to a temporary name, checked before it gets its own.

What has its final name is whole: its length is what the server promised and the
caller's check passed. Whatever stops a download (Ctrl-C included) leaves neither
a partial file nor an empty folder.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from ..errors import MatrixError
from ..resources import cache_dir

#: Called with the bytes that have come and the bytes promised, None where unknown.
Progress = Callable[[int, "int | None"], None]

#: Waiting for a connection and for the first byte of an answer: a refusal must come
#: within five seconds.
_CONNECT_S, _ANSWER_S = 2.5, 3.5
#: Waiting for more once bytes are coming.
_STALL_S = 20.0
_CHUNK_BYTES = 64 << 10


def is_offline() -> bool:
    """Say whether ``SPMV_FPGA_OFFLINE`` forbids the network."""
    return os.environ.get("SPMV_FPGA_OFFLINE", "") not in ("", "0")


def download(
    url: str,
    target: Path,
    check: Callable[[Path], object],
    progress: Progress | None = None,
    *,
    keep_whole: bool = True,
) -> Path:
    """Put what `url` gives at `target`.

    Parameters
    ----------
    url : str
        Address of the file.
    target : Path
        Final name; its folder is made.
    check : callable
        Raises `MatrixError` if the file at the path that it is given is not whole.
    progress : callable, optional
        Called now and then, see `Progress`.
    keep_whole : bool
        Whether a whole file that is there already will do: another process may have
        finished while this one waited for the lock.

    Raises
    ------
    MatrixError
        If the file does not come whole, or cannot be written; it says where to put
        the file by hand.
    """
    hint = f"put {url} at {target} by hand"
    with _locked(target, hint):
        for stale in target.parent.glob(f".{target.name}.*.part"):
            stale.unlink(missing_ok=True)
        if keep_whole and target.exists():
            with contextlib.suppress(MatrixError):
                check(target)
                return target
        with _write_errors(hint):
            handle, name = tempfile.mkstemp(
                prefix=f".{target.name}.", suffix=".part", dir=target.parent
            )
        temporary = Path(name)
        try:
            with _write_errors(hint), os.fdopen(handle, "wb") as file:
                for chunk in _chunks(url, hint, progress):
                    file.write(chunk)
            _check_whole(temporary, url, hint, check)
            temporary.chmod(0o644)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    return target


def _check_whole(path: Path, url: str, hint: str, check: Callable[[Path], object]) -> None:
    try:
        check(path)
    except MatrixError as error:
        reason = f"what the server sent is not whole: {error.reason} Try again or {hint}."
        raise MatrixError(reason, path=url) from error


def _chunks(url: str, hint: str, progress: Progress | None) -> Iterator[bytes]:
    """Yield the body of an answer as it comes over the wire, and check its length."""
    import requests
    from urllib3.exceptions import HTTPError

    try:
        with requests.get(
            url,
            stream=True,
            timeout=(_CONNECT_S, _ANSWER_S),
            headers={"Accept-Encoding": "identity", "User-Agent": "spmv-fpga"},
        ) as response:
            if response.status_code != 200:
                raise MatrixError(
                    f"the server answers {response.status_code}; {hint}.", path=url
                )
            length = response.headers.get("Content-Length", "")
            promised = int(length) if length.isdigit() else None
            socket = getattr(getattr(response.raw, "connection", None), "sock", None)
            if socket is not None:
                socket.settimeout(_STALL_S)
            done = 0
            while chunk := response.raw.read(_CHUNK_BYTES, decode_content=False):
                done += len(chunk)
                yield chunk
                if progress is not None:
                    progress(done, promised)
    except (requests.RequestException, HTTPError, TimeoutError, ConnectionError) as error:
        reason = f"the download failed ({_short(error)}); check the network or {hint}."
        raise MatrixError(reason, path=url) from error
    if promised is not None and done != promised:
        reason = f"{done} of {promised} bytes came; try again or {hint}."
        raise MatrixError(reason, path=url)


def _short(error: BaseException) -> str:
    """Return the innermost cause: requests wraps it in several layers of text."""
    inner: object = error
    while isinstance(inner, BaseException):
        error = inner
        inner = (
            getattr(error, "reason", None) or error.__cause__ or next(iter(error.args), None)
        )
    return str(error).rsplit(">: ", maxsplit=1)[-1] or type(error).__name__


@contextlib.contextmanager
def _write_errors(hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise MatrixError(
            f"the cache folder cannot be written ({error}); {hint}, or set "
            "SPMV_FPGA_CACHE to a folder that can be written."
        ) from error


@contextlib.contextmanager
def _locked(target: Path, hint: str) -> Iterator[None]:
    """Hold the file's lock; leave no lock file, and no folder that is empty."""
    from filelock import FileLock

    lock_path = target.with_name(f".{target.name}.lock")
    try:
        with _write_errors(hint):
            target.parent.mkdir(parents=True, exist_ok=True)
            lock = FileLock(lock_path)
            lock.acquire()
        try:
            yield
        finally:
            # Removed while it is held. Who waits for it opens the path anew; at worst
            # two processes load the same file, each to a name of its own.
            lock_path.unlink(missing_ok=True)
            lock.release()
    finally:
        _remove_empty_folders(target.parent)


def _remove_empty_folders(folder: Path) -> None:
    with contextlib.suppress(OSError):
        while folder == cache_dir() or cache_dir() in folder.parents:
            folder.rmdir()
            folder = folder.parent
