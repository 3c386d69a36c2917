"""Archives of the collection: ``NAME.tar.gz`` with ``NAME/NAME.mtx`` and its companions.

An archive is read as a stream and never unpacked. Right-hand sides, coordinates
and node names (``NAME_b.mtx``, ``NAME_coord.mtx``, ``NAME_nodename.txt``) lie
beside the matrix; only the name tells them apart, neither order nor size does.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from ..errors import MatrixError
from .market import DAMAGE, MarketSource

_CHUNK_BYTES = 1 << 20


class ArchiveError(MatrixError):
    """An archive that is empty, cut short, damaged or without its matrix."""


class ArchiveSource(MarketSource):
    """The matrix in an archive, as a text that can be opened more than once."""

    def open(self) -> BinaryIO:
        """Return a stream over the matrix that checks the archive when it ends."""
        return io.BufferedReader(_Member(self.path), _CHUNK_BYTES)


class _Member(io.RawIOBase):
    """The bytes of the matrix; at their end the rest of the archive is read as well.

    gzip's checksum and length stand at the end of the file, so only who reads all
    of it knows that it is whole.
    """

    def __init__(self, path: Path) -> None:
        self._stack = contextlib.ExitStack()
        self._path = path
        with _archive_errors(path), contextlib.ExitStack() as stack:
            self._gzip = stack.enter_context(gzip.open(path))
            self._file, self.name = _find_matrix(stack, self._gzip, path)
            self._stack = stack.pop_all()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        with _archive_errors(self._path):
            data = self._file.read(len(buffer))
            if not data:
                _drain(self._gzip)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stack.close()
        super().close()


def _find_matrix(
    stack: contextlib.ExitStack, stream: gzip.GzipFile, path: Path
) -> tuple[BinaryIO, str]:
    archive = stack.enter_context(
        tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK_BYTES)  # noqa: SIM115
    )
    seen = []
    for member in archive:
        inside = PurePosixPath(member.name)
        seen.append(member.name)
        is_matrix = inside.stem in (inside.parent.name, matrix_name(path))
        if member.isfile() and inside.suffix.lower() == ".mtx" and is_matrix:
            file = archive.extractfile(member)
            if file is not None:
                return stack.enter_context(file), inside.stem  # type: ignore[return-value]
    raise ArchiveError(
        f"the archive holds no NAME/NAME.mtx, only {', '.join(seen) or 'nothing'}.", path=path
    )


@contextlib.contextmanager
def _archive_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (*DAMAGE, tarfile.TarError) as error:
        reason = f"the archive is empty, cut short or damaged ({error}); fetch it again."
        raise ArchiveError(reason, path=path) from error


def _drain(stream: gzip.GzipFile) -> None:
    while stream.read(_CHUNK_BYTES):
        pass


def check_archive(path: Path) -> str:
    """Read an archive to its end and return its matrix's name.

    Raises
    ------
    ArchiveError
        If it is empty, cut short, damaged or without its matrix.
    """
    with _Member(path) as member, _archive_errors(path):
        _drain(member._gzip)
        return member.name


def matrix_name(path: Path) -> str:
    """Return a file's name without the suffixes of matrix files.

    >>> matrix_name(Path("a/b.c.mtx.gz"))
    'b.c'
    """
    name = path.name
    for suffix in (".gz", ".bz2", ".tgz", ".tar", ".mtx", ".mat", ".npz"):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)]
    return name
