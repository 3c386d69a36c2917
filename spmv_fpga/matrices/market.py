"""Matrix Market coordinate files: fast where they are plain, exact where they are not.

SciPy's threaded reader does the work. It trusts what it is given, though: it drops
text behind a number (so ``1.0D+05`` reads as 1) and dies on a NUL byte. So every
piece of text is looked at first, and anything that is not plain goes to a
line-by-line reader, which accepts what is valid and names the line of what is not.

Format: Boisvert, Pozo and Remington, "The Matrix Market exchange formats: initial
design", NISTIR 5935 (1996).
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import itertools
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NoReturn

import numpy as np
from scipy.io import mmread
from scipy.sparse import csr_array

from ..errors import MatrixError, shortened
from .model import Entries, Symmetric, check_size, csr_from_entries

#: What the readers of gzip and bzip2 raise on cut or damaged data.
DAMAGE = (EOFError, gzip.BadGzipFile, zlib.error)

_BANNER = "%%MatrixMarket matrix coordinate real|integer|pattern general|symmetric|…"
_FIELDS = {"real": 3, "double": 3, "integer": 3, "pattern": 2}
_SYMMETRIES = ("general", "symmetric", "skew-symmetric")
_NUMBER = re.compile(rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eEdD][+-]?\d+)?")
_INTEGER = re.compile(rb"[+-]?\d+")
_INDEX_NOT_INTEGER = re.compile(rb"^[ \t]*\d*[ \t]+\d*[-+.eE]", re.MULTILINE)
# Halfway between the largest float32 and the next power of two: from here on a
# value rounds to infinity.
_FLOAT32_LIMIT = float(2**128 - 2**103)
_CHUNK_BYTES = 4 << 20


@dataclass(frozen=True)
class Header:
    """First lines of a Matrix Market file.

    Parameters
    ----------
    rows, cols : int
        Size of the matrix.
    stored : int
        Entries that the size line promises.
    field : str
        "real", "double", "integer" or "pattern".
    symmetry : str
        "general", "symmetric" or "skew-symmetric".
    size_line : int
        Number of the size line, from 1.
    """

    rows: int
    cols: int
    stored: int
    field: str
    symmetry: str
    size_line: int

    @property
    def num_fields(self) -> int:
        """Numbers in an entry's line."""
        return _FIELDS[self.field]


def read_header(stream: BinaryIO, path: str | Path) -> Header:
    r"""Read the banner, the comments and the size line; the stream then stands at the entries.

    Raises
    ------
    MatrixError
        If the file is no Matrix Market file, or of a kind that is not supported.

    Examples
    --------
    >>> import io
    >>> text = b"%%MatrixMarket matrix coordinate real symmetric\n% note\n4 4 6\n"
    >>> read_header(io.BytesIO(text), "a.mtx").stored
    6
    """
    field, symmetry = _read_banner(stream.readline(), path)
    for number in itertools.count(2):
        line = stream.readline()
        if not line:
            raise MatrixError("the file ends before its size line.", path=path, line=number)
        if line.strip() and not line.lstrip().startswith(b"%"):
            break
    rows, cols, stored = _read_size(line, path, number)
    if symmetry != "general" and rows != cols:
        raise MatrixError(
            f"a {symmetry} matrix must be square; this one is {rows} x {cols}.",
            path=path,
            line=number,
        )
    return Header(rows, cols, stored, field, symmetry, number)


def _read_banner(line: bytes, path: str | Path) -> tuple[str, str]:
    words = line.removeprefix(b"\xef\xbb\xbf").decode("latin-1").lower().split()

    def refuse(reason: str) -> NoReturn:
        raise MatrixError(reason, path=path, line=1)

    words = [shortened(word) for word in words]
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"]:
        refuse(f"this is no Matrix Market file; its first line must be {_BANNER!r}.")
    layout, field, symmetry = words[2:]
    if field == "complex" or symmetry == "hermitian":
        refuse(
            f"complex values are not supported ({field} {symmetry}); "
            "give a real, integer or pattern matrix."
        )
    if layout != "coordinate":
        refuse(f"the layout is {layout!r}; only 'coordinate' files hold a sparse matrix.")
    if field not in _FIELDS:
        refuse(f"the field is {field!r}; it must be real, integer or pattern.")
    if symmetry not in _SYMMETRIES:
        refuse(f"the symmetry is {symmetry!r}; it must be one of {', '.join(_SYMMETRIES)}.")
    if field == "pattern" and symmetry == "skew-symmetric":
        refuse("a pattern matrix has no signs, so it cannot be skew-symmetric.")
    return field, symmetry


def _read_size(line: bytes, path: str | Path, number: int) -> tuple[int, int, int]:
    words = line.split()
    if len(words) != 3 or not all(re.fullmatch(rb"\d+", word) for word in words):
        text = shortened(line.decode("latin-1").strip())
        raise MatrixError(
            f"the size line is {text!r}; it must hold rows, columns and entries.",
            path=path,
            line=number,
        )
    # Python refuses to read a number of thousands of digits.
    rows, cols, stored = (int(word.lstrip(b"0")[:20] or b"0") for word in words)
    if max(rows, cols, stored) >= 2**62:
        raise MatrixError(
            "the size line holds a number beyond 62 bits.", path=path, line=number
        )
    return rows, cols, stored


class MarketSource:
    """A Matrix Market text that can be opened more than once.

    Parameters
    ----------
    path : Path
        File, possibly compressed (``.gz``, ``.bz2``).
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self) -> BinaryIO:
        """Return a new stream at the start of the text."""
        suffix = self.path.suffix.lower()
        if suffix == ".gz":
            return gzip.open(self.path)  # type: ignore[return-value]
        if suffix == ".bz2":
            return bz2.open(self.path)  # type: ignore[return-value]
        return self.path.open("rb")


def read_market(source: MarketSource, symmetric: Symmetric) -> tuple[csr_array, str]:
    """Read a matrix; return it and what was done about symmetry.

    Returns
    -------
    csr_array, shape (m, n), float32
        Canonical.
    str
        "general", "expanded" or "stored triangle".

    Raises
    ------
    MatrixError
        With file and line, if the text is not a valid real matrix.
    """
    with _read_errors(source.path):
        return _read(source, symmetric)


def peek_header(source: MarketSource) -> Header:
    """Read no more than the header.

    Raises
    ------
    MatrixError
        If the file is no Matrix Market file that is supported.
    """
    with _read_errors(source.path), source.open() as stream:
        return read_header(stream, source.path)


@contextlib.contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except DAMAGE as error:
        reason = f"the compressed file is cut short or damaged ({error}); copy it again."
        raise MatrixError(reason, path=path) from error
    except OSError as error:
        reason = f"the file cannot be read ({error.strerror or error})."
        raise MatrixError(reason, path=path) from error


def _read(source: MarketSource, symmetric: Symmetric) -> tuple[csr_array, str]:
    with source.open() as stream:
        header = read_header(stream, source.path)
        check_size(header.rows, header.cols, source.path)
        entries = _read_plain(stream, header)
    if entries is None:
        entries = _read_lines_again(source)
    full, done = _apply_symmetry(entries, header, symmetric, source.path)
    csr = csr_from_entries(full, (header.rows, header.cols))
    if not np.isfinite(csr.data).all():
        _read_lines_again(source)  # names the line, unless a sum of entries is to blame
        raise MatrixError("entries of one coordinate add up beyond float32.", path=source.path)
    return csr, done


def _read_lines_again(source: MarketSource) -> Entries:
    with source.open() as stream:
        header = read_header(stream, source.path)
        return read_lines(stream, header, source.path)


class _PlainText:
    """A stream for SciPy's reader that ends early where the text is not plain."""

    def __init__(self, header: Header, body: BinaryIO) -> None:
        field = "pattern" if header.field == "pattern" else "real"
        banner = f"%%MatrixMarket matrix coordinate {field} general\n"
        self._pending = f"{banner}{header.rows} {header.cols} {header.stored}\n".encode()
        self._body = body
        self._rest = b""
        self.num_tokens = 0
        self.is_plain = True
        self.error: Exception | None = None

    def read(self, size: int = -1) -> bytes:
        """Return the next whole lines, `size` or more bytes, or nothing at the end."""
        if self._pending:
            pending, self._pending = self._pending, b""
            return pending
        text = self._next_lines(max(size, _CHUNK_BYTES)) if self.is_plain else b""
        self.is_plain = self.is_plain and _is_plain(text)
        if not self.is_plain:
            return b""
        self.num_tokens += _count_tokens(text)
        return text

    def _next_lines(self, size: int) -> bytes:
        try:
            new = self._body.read(size)
        # An exception must not travel through the reader's C++ code.
        except (*DAMAGE, OSError, MatrixError) as error:
            self.error, self.is_plain = error, False
            return b""
        text = self._rest + new
        end = text.rfind(b"\n") + 1 if new else len(text)
        self._rest = text[end:]
        self.is_plain = bool(end) or not new
        return text[:end]


_SHAPE = bytes.maketrans(b"E\t", b"e ")
_NOT_IN_A_NUMBER = (b"..", b".-", b".+", b"--", b"-+", b"+-", b"++", b"e.", b"ee")


def _is_plain(text: bytes) -> bool:
    r"""Say whether lines hold nothing that SciPy's reader would misread.

    >>> _is_plain(b"1 1 -1.5e-3\n"), _is_plain(b"1 1.5 1\n"), _is_plain(b"1 1 1.0D+05\n")
    (True, False, False)
    """
    shape = text.translate(_SHAPE, b"0123456789\r")
    if shape.translate(None, b" \n+-.e") or any(bad in shape for bad in _NOT_IN_A_NUMBER):
        return False
    # With the digits gone, a mark before a blank is in an index, or the line has
    # blanks at its end.
    if any(mark in shape for mark in (b". ", b"- ", b"+ ", b"e ")):
        return not _INDEX_NOT_INTEGER.search(text)
    last = text.rsplit(None, 1)[-1:]
    return not last or bool(_NUMBER.fullmatch(last[0].split()[-1]))


def _count_tokens(text: bytes) -> int:
    is_blank = np.frombuffer(text, np.uint8) <= 32
    if not is_blank.size:
        return 0
    return int(not is_blank[0]) + int(np.count_nonzero(is_blank[:-1] & ~is_blank[1:]))


def _read_plain(stream: BinaryIO, header: Header) -> Entries | None:
    """Return the entries, or None where the text needs a closer look."""
    if header.stored == 0:
        return None
    text = _PlainText(header, stream)
    try:
        coo = mmread(text)
    except (ValueError, OverflowError, MemoryError):
        coo = None
    if text.error is not None:
        raise text.error
    if coo is None or not text.is_plain:
        return None
    if text.num_tokens != header.stored * header.num_fields:
        return None
    return Entries(coo.row, coo.col, coo.data)


def read_lines(stream: Iterable[bytes], header: Header, path: str | Path) -> Entries:
    r"""Read entries line by line: slow, and exact about what is wrong where.

    Signs before numbers, comments between entries and Fortran's ``D`` exponents
    are accepted.

    Raises
    ------
    MatrixError
        With the line's number.

    Examples
    --------
    >>> header = Header(2, 2, 1, "real", "general", 2)
    >>> read_lines([b"3 1 1.0\n"], header, "a.mtx")
    Traceback (most recent call last):
    spmv_fpga.errors.MatrixError: a.mtx: line 3: row index 3 is outside 1 to 2.
    """
    rows, cols, values = array("q"), array("q"), array("d")
    lines = _lines_with_entries(stream, header.size_line + 1)
    for number, line in itertools.islice(lines, header.stored):
        fields = line.split()
        try:
            if len(fields) != header.num_fields:
                is_last = next(lines, None) is None
                raise _BadLineError(_fields_message(len(fields), header, len(rows), is_last))
            rows.append(_index(fields[0], "row", header.rows))
            cols.append(_index(fields[1], "column", header.cols))
            values.append(_value(fields[2]) if len(fields) == 3 else 1.0)
        except _BadLineError as error:
            raise MatrixError(str(error), path=path, line=number) from None
    num_found = len(rows) + sum(1 for _ in lines)
    if num_found != header.stored:
        raise MatrixError(_count_message(header, num_found), path=path, line=header.size_line)
    return Entries(np.array(rows), np.array(cols), np.array(values))


class _BadLineError(Exception):
    """What is wrong with a line, for whoever knows its number."""


def _lines_with_entries(stream: Iterable[bytes], first: int) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(stream, first):
        text = line.strip()
        if text and not text.startswith(b"%"):
            yield number, text


def _count_message(header: Header, num_found: int) -> str:
    hint = "cut short" if num_found < header.stored else "longer than it says"
    return (
        f"the size line promises {header.stored} entries and {num_found} came; "
        f"the file is {hint}, copy it again."
    )


def _fields_message(num_fields: int, header: Header, num_found: int, is_last: bool) -> str:
    if is_last and num_fields < header.num_fields:
        return f"the line is cut; {_count_message(header, num_found)}"
    return (
        f"the line holds {num_fields} fields; a {header.field} entry has {header.num_fields}."
    )


def _index(field: bytes, what: str, limit: int) -> int:
    text = shortened(field.decode("latin-1"))
    if not _INTEGER.fullmatch(field):
        raise _BadLineError(f"{what} index {text!r} is no whole number.")
    # Python refuses to read a number of thousands of digits.
    index = int(field) if len(field) <= 1000 else 0
    if not 1 <= index <= limit:
        raise _BadLineError(f"{what} index {text} is outside 1 to {limit}.")
    return index - 1


def _value(field: bytes) -> float:
    text = field.decode("latin-1")
    if not _NUMBER.fullmatch(field):
        raise _BadLineError(f"value {shortened(text)!r} is no finite number.")
    value = float(text.lower().replace("d", "e"))
    if abs(value) >= _FLOAT32_LIMIT:
        raise _BadLineError(
            f"value {shortened(text)} is beyond float32 (3.4e38); scale the matrix."
        )
    return value


def _apply_symmetry(
    entries: Entries, header: Header, symmetric: Symmetric, path: str | Path
) -> tuple[Entries, str]:
    if header.symmetry == "general":
        return entries, "general"
    rows, cols, values = entries
    if header.symmetry == "skew-symmetric" and np.any(values[rows == cols]):
        raise MatrixError("a skew-symmetric matrix has entries on its diagonal.", path=path)
    _refuse_both_triangles(entries, header, path)
    if symmetric == "stored":
        return entries, "stored triangle"
    off = rows != cols
    mirrored = -values[off] if header.symmetry == "skew-symmetric" else values[off]
    full = Entries(
        np.concatenate((rows, cols[off])),
        np.concatenate((cols, rows[off])),
        np.concatenate((values, mirrored)),
    )
    return full, "expanded"


def _refuse_both_triangles(entries: Entries, header: Header, path: str | Path) -> None:
    """Refuse a pair that stands in both triangles: mirrored, it would count twice."""
    rows, cols, _ = entries
    is_lower, is_upper = rows > cols, rows < cols
    if not (is_lower.any() and is_upper.any()):
        return
    size = max(header.rows, 1)
    lower = rows[is_lower].astype(np.int64) * size + cols[is_lower]
    upper = cols[is_upper].astype(np.int64) * size + rows[is_upper]
    both = np.intersect1d(lower, upper)
    if both.size:
        row, col = divmod(int(both[0]), size)
        raise MatrixError(
            f"the file is {header.symmetry} and holds both ({row + 1}, {col + 1}) and "
            f"({col + 1}, {row + 1}); it must hold one triangle only.",
            path=path,
        )
