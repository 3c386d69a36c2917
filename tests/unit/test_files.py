"""Files that the user names: what is written to, what is replaced, what is refused."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from spmv_fpga.files import require_file, write_whole


def read_fifo(fifo: Path, into: list[bytes]) -> threading.Thread:
    """Start a reader, without which nobody can open the pipe."""
    reader = threading.Thread(target=lambda: into.append(fifo.read_bytes()), daemon=True)
    reader.start()
    return reader


def test_a_file_is_written_and_nothing_else_is_left(tmp_path):
    write_whole(tmp_path / "a", b"new")
    write_whole(tmp_path / "b", lambda file: file.write(b"by a writer"))

    assert (tmp_path / "a").read_bytes() == b"new"
    assert (tmp_path / "b").read_bytes() == b"by a writer"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_writer_that_fails_leaves_the_old_file(tmp_path):
    (tmp_path / "a").write_bytes(b"old")

    def fail(file):
        file.write(b"half")
        raise OSError("no more")

    with pytest.raises(OSError, match="no more"):
        write_whole(tmp_path / "a", fail)

    assert (tmp_path / "a").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to("there/file")

    write_whole(tmp_path / "link", b"new")
    write_whole(tmp_path / "link", b"newer")

    assert (tmp_path / "link").readlink() == Path("there/file")
    assert (tmp_path / "there" / "file").read_bytes() == b"newer"
    assert [path.name for path in (tmp_path / "there").iterdir()] == ["file"]


@pytest.mark.parametrize("name", ["fifo", "link"])
def test_a_pipe_is_written_to_and_stays_one(tmp_path, name):
    fifo, heard = tmp_path / "fifo", []
    os.mkfifo(fifo)
    (tmp_path / "link").symlink_to("fifo")
    reader = read_fifo(fifo, heard)

    write_whole(
        tmp_path / name, lambda file: (file.write(b"12"), file.seek(0), file.write(b"3"))
    )

    reader.join(5)
    assert heard == [b"32"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert (tmp_path / "link").is_symlink()


def test_a_link_to_itself_is_an_error(tmp_path):
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="symbolic links"):
        write_whole(tmp_path / "loop", b"new")


def test_a_regular_file_and_a_link_to_one_are_files(tmp_path):
    (tmp_path / "a").write_bytes(b"")
    (tmp_path / "link").symlink_to("a")
    require_file(tmp_path / "a")
    require_file(tmp_path / "link")


def test_what_is_no_file_is_refused_by_its_kind(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as end:
        end.bind(os.path.relpath(tmp_path / "socket"))
    for path, kind in (
        (tmp_path, "a folder"),
        (tmp_path / "fifo", "a pipe"),
        (tmp_path / "socket", "a socket"),
    ):
        with pytest.raises(OSError, match=f"it is {kind}, not a file"):
            require_file(path)


def test_an_empty_name_is_no_file():
    with pytest.raises(OSError, match="the file's name is empty"):
        require_file("")


def test_a_missing_file_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError):
        require_file(tmp_path / "none")
