"""The collection: names, downloads that break off, archives put there by hand, off line."""

from __future__ import annotations

import contextlib
import http.server
import io
import os
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from spmv_fpga.errors import MatrixError
from spmv_fpga.matrices import cached, describe, fetch, load_matrix, open_matrix, search
from spmv_fpga.matrices.collection import archive_target, resolve
from spmv_fpga.matrices.suite import list_suite
from spmv_fpga.resources import cache_dir

TINY4 = b"""%%MatrixMarket matrix coordinate real general
4 4 5
1 1 1
2 2 2
3 3 3
4 1 -1
4 4 4
"""
INDEX = b"""2
01-Jan-2020 00:00:00
Test,dense1,4096,4096,8191,1,0,0,0,0.0,0.0,test problem
Test,tiny4,4,4,5,1,0,0,0,0.0,0.0,test problem,13th column
"""


def archive_bytes(name: str, text: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for member, data in ((f"{name}/{name}_b.mtx", b"%%"), (f"{name}/{name}.mtx", text)):
            info = tarfile.TarInfo(member)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


TINY4_ARCHIVE = archive_bytes("tiny4", TINY4)


@dataclass
class Mirror:
    """A web server of the tests' own; `mode` is ok, cut or hold (half, then nothing)."""

    url: str = ""
    mode: str = "ok"
    files: dict[str, bytes] = field(
        default_factory=lambda: {
            "/MM/Test/tiny4.tar.gz": TINY4_ARCHIVE,
            "/files/ssstats.csv": INDEX,
        }
    )
    requests: list[str] = field(default_factory=list)
    is_half_sent: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def mirror(monkeypatch):
    state = Mirror()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def do_GET(self):
            state.requests.append(self.path)
            body = state.files.get(self.path)
            self.send_response(404 if body is None else 200)
            body = body or b"no such file"
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = len(body) // 2
            self.wfile.write(body[:half])
            self.wfile.flush()
            state.is_half_sent.set()
            if state.mode == "hold":
                state.may_go_on.wait(30)
            if state.mode != "cut":
                with contextlib.suppress(OSError):
                    self.wfile.write(body[half:])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        monkeypatch.setenv("SPMV_FPGA_MIRROR", state.url)
        yield state
        state.may_go_on.set()
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def _fresh_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("SPMV_FPGA_OFFLINE", raising=False)
    monkeypatch.setattr("spmv_fpga.matrices.collection.is_checkout", lambda: False)


@pytest.fixture
def offline(monkeypatch):
    monkeypatch.setenv("SPMV_FPGA_OFFLINE", "1")


def put(full_name: str, data: bytes) -> Path:
    path = archive_target(full_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def files_below(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*"))


def times_index(A):
    return (A @ [1.0, 2.0, 3.0, 4.0]).tolist()


# Names.


def test_the_suite_holds_the_27_matrices_of_the_paper():
    suite = list_suite()
    assert len(suite) == 27
    assert len({entry.full_name for entry in suite}) == 27
    assert sum(entry.nnz for entry in suite) == 39_484_978
    last = suite[-1]
    assert (last.short, last.n, last.nnz, last.density_percent) == (
        "TS2383",
        38120,
        16171169,
        71,
    )


@pytest.mark.parametrize("name", ["TS2383", "TSOPF_RS_b2383", "TSOPF/TSOPF_RS_b2383"])
def test_a_matrix_of_the_paper_has_three_names(name):
    assert resolve(name) == "TSOPF/TSOPF_RS_b2383"


@pytest.mark.usefixtures("offline")
def test_a_misspelt_name_is_refused_with_near_ones():
    with pytest.raises(MatrixError, match="TS2383"):
        load_matrix("TS2838")


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("name", ["a/b/c", "../x", "a b", "Test/../x", ""])
def test_a_name_that_none_can_have_is_refused(name):
    with pytest.raises(MatrixError):
        load_matrix(name)


@pytest.mark.network_loopback
def test_a_bare_name_is_found_through_the_index(mirror):
    assert times_index(load_matrix("tiny4")) == [1, 4, 9, 15]
    assert mirror.requests == ["/files/ssstats.csv", "/MM/Test/tiny4.tar.gz"]


@pytest.mark.network_loopback
def test_an_unknown_bare_name_is_refused_with_near_ones_of_the_index(mirror):
    with pytest.raises(MatrixError, match="tiny4"):
        load_matrix("tiny5")


@pytest.mark.usefixtures("offline")
def test_a_bare_name_in_the_cache_needs_no_index():
    put("Test/tiny4", TINY4_ARCHIVE)
    assert times_index(load_matrix("tiny4")) == [1, 4, 9, 15]


@pytest.mark.usefixtures("offline")
def test_a_bare_name_in_two_groups_is_refused_with_both():
    put("Test/tiny4", TINY4_ARCHIVE)
    put("Other/tiny4", TINY4_ARCHIVE)
    with pytest.raises(MatrixError, match=r"Other/tiny4, Test/tiny4"):
        load_matrix("tiny4")


@pytest.mark.network_loopback
def test_the_index_is_searched_by_part_or_by_pattern(mirror):
    assert [row.full_name for row in search("DENSE")] == ["Test/dense1"]
    assert [row.nnz for row in search("test/*")] == [8191, 5]
    assert mirror.requests == ["/files/ssstats.csv"]


@pytest.mark.network_loopback
def test_an_index_that_is_none_is_refused_and_not_kept(mirror):
    mirror.files["/files/ssstats.csv"] = b"<html>\n\nplease log in\n"
    with pytest.raises(MatrixError, match="index"):
        search("x")
    assert not cache_dir().exists()


@pytest.mark.network_loopback
def test_searching_touches_no_home_folder(mirror, tmp_path, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    search("tiny")
    assert list(home.iterdir()) == []
    assert "ssgetpy" not in sys.modules


# Download.


@pytest.mark.network_loopback
def test_a_download_gets_its_name_when_it_is_whole_and_leaves_nothing_else(mirror):
    matrix = open_matrix("Test/tiny4")
    assert times_index(matrix.csr) == [1, 4, 9, 15]
    path = cache_dir() / "matrices" / "Test" / "tiny4.tar.gz"
    assert matrix.source == f"SuiteSparse Test/tiny4 (cached archive {path})"
    assert files_below(cache_dir()) == [
        "matrices",
        "matrices/Test",
        "matrices/Test/tiny4.tar.gz",
    ]
    assert path.read_bytes() == TINY4_ARCHIVE
    assert cached() == [path]


@pytest.mark.network_loopback
def test_a_second_fetch_asks_nobody(mirror):
    assert fetch("Test/tiny4") == fetch("Test/tiny4")
    assert mirror.requests == ["/MM/Test/tiny4.tar.gz"]


@pytest.mark.network_loopback
def test_progress_ends_at_the_promised_length(mirror):
    steps = []
    fetch("Test/tiny4", lambda done, total: steps.append((done, total)))
    assert steps[-1] == (len(TINY4_ARCHIVE), len(TINY4_ARCHIVE))


@pytest.mark.network_loopback
def test_a_download_that_breaks_off_is_refused_and_leaves_nothing(mirror):
    mirror.mode = "cut"
    with pytest.raises(MatrixError) as caught:
        fetch("Test/tiny4")
    assert str(archive_target("Test/tiny4")) in str(caught.value)
    assert not cache_dir().exists()


@pytest.mark.network_loopback
def test_an_index_that_breaks_off_is_not_kept(mirror):
    mirror.mode = "cut"
    with pytest.raises(MatrixError):
        search("tiny")
    assert not cache_dir().exists()


@pytest.mark.network_loopback
@pytest.mark.parametrize("body", [b"", b"<html>no</html>", TINY4_ARCHIVE[:-6]])
def test_an_answer_that_is_no_whole_archive_is_refused_and_leaves_nothing(mirror, body):
    mirror.files["/MM/Test/tiny4.tar.gz"] = body
    with pytest.raises(MatrixError, match="not whole"):
        fetch("Test/tiny4")
    assert not cache_dir().exists()


@pytest.mark.network_loopback
def test_a_matrix_that_the_mirror_lacks_is_refused_with_the_address(mirror):
    with pytest.raises(MatrixError) as caught:
        load_matrix("Test/nothing")
    message = str(caught.value)
    assert "404" in message
    assert f"{mirror.url}/MM/Test/nothing.tar.gz" in message
    assert str(archive_target("Test/nothing")) in message
    assert not cache_dir().exists()


@pytest.mark.network_loopback
def test_a_refused_connection_says_where_to_put_the_file(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("SPMV_FPGA_MIRROR", f"http://127.0.0.1:{free.getsockname()[1]}")
        with pytest.raises(MatrixError, match=r"refused.*Test/tiny4\.tar\.gz"):
            load_matrix("Test/tiny4")
    assert not cache_dir().exists()


@pytest.mark.network_loopback
def test_a_server_that_never_answers_is_given_up(monkeypatch):
    monkeypatch.setattr("spmv_fpga.matrices.download._ANSWER_S", 0.1)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setenv("SPMV_FPGA_MIRROR", f"http://127.0.0.1:{silent.getsockname()[1]}")
        with pytest.raises(MatrixError, match="timed out"):
            load_matrix("Test/tiny4")


BROKEN = ("cut in half", "empty")  # the bytes would differ in every process


@pytest.mark.network_loopback
@pytest.mark.parametrize("broken", [TINY4_ARCHIVE[: len(TINY4_ARCHIVE) // 2], b""], ids=BROKEN)
def test_a_broken_archive_in_the_cache_is_fetched_again(mirror, broken):
    path = put("Test/tiny4", broken)
    assert times_index(load_matrix("Test/tiny4")) == [1, 4, 9, 15]
    assert path.read_bytes() == TINY4_ARCHIVE
    path.write_bytes(broken)
    assert fetch("Test/tiny4").read_bytes() == TINY4_ARCHIVE


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("broken", [TINY4_ARCHIVE[: len(TINY4_ARCHIVE) // 2], b""], ids=BROKEN)
def test_a_broken_archive_is_refused_with_its_path_off_line(broken):
    path = put("Test/tiny4", broken)
    with pytest.raises(MatrixError) as caught:
        load_matrix("Test/tiny4")
    assert str(path) in str(caught.value)
    assert path.read_bytes() == broken


@pytest.mark.network_loopback
def test_what_a_killed_download_left_is_cleared_by_the_next(mirror):
    target = put("Test/tiny4", b"half")
    target.rename(target.with_name(".tiny4.tar.gz.abc.part"))
    fetch("Test/tiny4")
    assert list(target.parent.iterdir()) == [target]


FETCH = "from spmv_fpga.matrices import fetch; fetch('Test/tiny4')"


@pytest.mark.network_loopback
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGKILL])
def test_a_download_that_is_stopped_leaves_no_file_with_the_final_name(mirror, sent):
    mirror.mode = "hold"
    process = subprocess.Popen(
        [sys.executable, "-c", FETCH],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
    )
    assert mirror.is_half_sent.wait(30)
    # The first half is in the socket; the temporary file exists before the request.
    process.send_signal(sent)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode != 0
    assert not archive_target("Test/tiny4").exists()
    if sent == signal.SIGINT:
        assert b"KeyboardInterrupt" in stderr
        assert not cache_dir().exists()


@pytest.mark.network_loopback
def test_a_process_that_waited_for_another_uses_its_file(mirror):
    mirror.mode = "hold"
    found = []
    threads = [threading.Thread(target=lambda: found.append(fetch("Test/tiny4"))) for _ in "ab"]
    for thread in threads:
        thread.start()
    assert mirror.is_half_sent.wait(30)
    mirror.may_go_on.set()
    for thread in threads:
        thread.join(30)
    assert found == [archive_target("Test/tiny4")] * 2
    assert mirror.requests == ["/MM/Test/tiny4.tar.gz"]


# Off line, read-only, put there by hand.


@pytest.mark.usefixtures("offline")
def test_off_line_a_missing_matrix_is_refused_at_once_with_where_to_put_it():
    start = time.monotonic()
    with pytest.raises(MatrixError) as caught:
        load_matrix("TS2383")
    assert time.monotonic() - start < 5
    message = str(caught.value)
    assert str(cache_dir() / "matrices/TSOPF/TSOPF_RS_b2383.tar.gz") in message
    assert "SPMV_FPGA_OFFLINE" in message
    assert "twin:TS2383" in message
    assert not cache_dir().exists()


@pytest.mark.usefixtures("offline")
def test_an_archive_put_there_by_hand_works_and_nothing_is_written_beside_it():
    path = put("Test/tiny4", TINY4_ARCHIVE)
    before = files_below(cache_dir())
    assert times_index(load_matrix("Test/tiny4")) == [1, 4, 9, 15]
    assert fetch("Test/tiny4") == path
    assert files_below(cache_dir()) == before


@pytest.mark.network_loopback
def test_a_cache_that_cannot_be_written_is_refused_with_the_variable(
    mirror, tmp_path, monkeypatch
):
    (tmp_path / "plain").write_text("a file, so no folder can be made below")
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "plain" / "cache"))
    with pytest.raises(MatrixError, match="SPMV_FPGA_CACHE"):
        load_matrix("Test/tiny4")
    assert mirror.requests == []


@pytest.mark.usefixtures("offline")
def test_a_checkout_is_searched_before_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("spmv_fpga.matrices.collection.is_checkout", lambda: True)
    monkeypatch.setattr("spmv_fpga.matrices.collection.data_dir", lambda name: tmp_path / name)
    put("Test/tiny4", b"never read")
    ours = tmp_path / "matrices" / "Test" / "tiny4.tar.gz"
    ours.parent.mkdir(parents=True)
    ours.write_bytes(TINY4_ARCHIVE)
    assert fetch("Test/tiny4") == ours


@pytest.mark.usefixtures("offline")
def test_describe_tells_the_published_figures_without_the_matrix():
    info = describe("TS2383")
    assert (info.rows, info.stored, info.path) == (38120, 16171169, None)
    assert info.url is not None
    assert info.url.endswith("/MM/TSOPF/TSOPF_RS_b2383.tar.gz")
