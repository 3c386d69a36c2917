"""Users' troubles with archives, downloads, the cache and Ctrl-C."""

from __future__ import annotations

import contextlib
import http.server
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

PATIENCE_S = 30.0
ENDING_LIMIT_S = 5.0

MATRIX = (
    "%%MatrixMarket matrix coordinate real general\n4 4 5\n1 1 1\n2 2 2\n3 3 3\n4 1 -1\n4 4 4\n"
)
Y = [1.0, 4.0, 9.0, 15.0]
VECTOR = "%%MatrixMarket matrix array real general\n4 1\n1\n2\n3\n4\n"
PLACES = "%%MatrixMarket matrix array real general\n40 2\n" + "0.5\n" * 80
INDEX = (
    "2\n01-Jan-2020 00:00:00\n"
    "Test,dense1,4096,4096,8191,1,0,0,0,0.0,0.0,test problem\n"
    "Test,tiny4,4,4,5,1,0,0,0,0.0,0.0,test problem\n"
)


def archive(**members: str) -> bytes:
    """Pack files of `tiny4/`; the double underscore of a keyword stands for a point."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, text in members.items():
            info = tarfile.TarInfo(f"tiny4/{name.replace('__', '.')}")
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return buffer.getvalue()


# The right-hand side comes first, and the plotting positions are the largest.
WITH_OTHERS = archive(
    tiny4_b__mtx=VECTOR,
    tiny4_coord__mtx=PLACES,
    tiny4_nodename__txt="a\nb\n",
    tiny4__mtx=MATRIX,
)
TINY4 = archive(tiny4__mtx=MATRIX)


@dataclass
class Mirror:
    """The collection's web server; `mode` is ok, cut (half) or hold (half, then nothing)."""

    url: str = ""
    mode: str = "ok"
    files: dict[str, bytes] = field(
        default_factory=lambda: {
            "/MM/Test/tiny4.tar.gz": WITH_OTHERS,
            "/files/ssstats.csv": INDEX.encode(),
        }
    )
    requests: list[str] = field(default_factory=list)
    is_half_sent: threading.Event = field(default_factory=threading.Event)
    may_go_on: threading.Event = field(default_factory=threading.Event)

    @property
    def on_line(self) -> dict[str, str]:
        return {"SPMV_FPGA_MIRROR": self.url, "SPMV_FPGA_OFFLINE": ""}


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    state = Mirror()

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
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
                state.may_go_on.wait(PATIENCE_S)
            if state.mode != "cut":
                with contextlib.suppress(OSError):
                    self.wfile.write(body[half:])

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state
        state.may_go_on.set()
        server.shutdown()
        thread.join()


RUN = ("run", "--mode", "reference", "--x", "index", "--y-out", "y.npy", "--matrix")


def y_of(program, *words: str, **changes: str) -> list[float]:
    outcome = program.here(*RUN, *words, "--baseline", "none", **changes)
    assert (outcome.status, outcome.stderr) == (0, "")
    return np.load(program.cwd / "y.npy").tolist()


def put(program, data: bytes) -> Path:
    path = program.cache / "matrices" / "Test" / "tiny4.tar.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


# Archives.


def test_the_matrix_is_found_among_the_other_files_of_an_archive(program):
    (program.cwd / "several.tar.gz").write_bytes(WITH_OTHERS)
    assert y_of(program, "several.tar.gz") == Y


@pytest.mark.network_loopback
def test_a_name_of_the_collection_is_downloaded_once(program, mirror):
    assert y_of(program, "Test/tiny4", **mirror.on_line) == Y
    assert y_of(program, "Test/tiny4") == Y
    assert mirror.requests == ["/MM/Test/tiny4.tar.gz"]


@pytest.mark.network_loopback
def test_a_bare_name_is_looked_up_in_the_index(program, mirror):
    assert y_of(program, "tiny4", **mirror.on_line) == Y
    assert mirror.requests == ["/files/ssstats.csv", "/MM/Test/tiny4.tar.gz"]


@pytest.mark.shared_data
def test_the_shared_archive_gives_its_matrix(program, shared_data):
    assert y_of(program, str(shared_data / "cases/inputs/dl_multi.tar.gz")) == Y


# What broke off.


@pytest.mark.network_loopback
@pytest.mark.parametrize("content", [TINY4[: len(TINY4) // 2], b""], ids=["half", "empty"])
def test_a_broken_archive_in_the_cache_is_fetched_again(program, mirror, content):
    path = put(program, content)
    assert y_of(program, "Test/tiny4", **mirror.on_line) == Y
    assert path.read_bytes() == WITH_OTHERS


@pytest.mark.parametrize("content", [TINY4[: len(TINY4) // 2], b""], ids=["half", "empty"])
def test_a_broken_archive_is_refused_off_line_with_its_path(program, content):
    path = put(program, content)
    program.refuse(*RUN, "Test/tiny4", names=[str(path)], in_process=bool(content))


@pytest.mark.network_loopback
def test_a_download_that_is_cut_is_refused_and_leaves_no_file(program, mirror):
    mirror.mode = "cut"
    outcome = program.run(*RUN, "Test/tiny4", **mirror.on_line)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert outcome.stderr.count("spmv-fpga: ") == 1
    assert "/MM/Test/tiny4.tar.gz" in outcome.stderr
    assert [name for name in program.files() if Path(name).is_file()] == []
    mirror.mode = "ok"
    assert y_of(program, "Test/tiny4", **mirror.on_line) == Y


@pytest.mark.network_loopback
def test_a_killed_download_leaves_nothing_under_the_final_name(program, mirror):
    mirror.mode = "hold"
    process = program.start(*RUN, "Test/tiny4", **mirror.on_line)
    assert mirror.is_half_sent.wait(PATIENCE_S)
    process.kill()
    process.communicate(timeout=PATIENCE_S)
    assert not [name for name in program.files() if name.endswith("tiny4.tar.gz")]
    mirror.may_go_on.set()
    mirror.mode = "ok"
    assert y_of(program, "Test/tiny4", **mirror.on_line) == Y


@pytest.mark.network_loopback
def test_a_name_that_the_mirror_lacks_is_refused(program, mirror):
    outcome = program.here(*RUN, "Test/nothing", **mirror.on_line)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "/MM/Test/nothing.tar.gz" in outcome.stderr
    assert "404" in outcome.stderr


# Off line, read-only, no HOME.


def test_off_line_the_refusal_says_where_to_put_the_file(program):
    path = str(program.cache / "matrices" / "Test" / "tiny4.tar.gz")
    program.refuse(*RUN, "Test/tiny4", names=["SPMV_FPGA_OFFLINE", path])
    put(program, TINY4)
    assert y_of(program, "Test/tiny4") == Y


# Root may write where it likes; without these capabilities it is a user like others.
AS_USER = ("setpriv", "--bounding-set", "-dac_override,-dac_read_search")


class Cluster:
    """A read-only cache with one matrix, a read-only working folder, and no HOME."""

    def __init__(self, program) -> None:
        self.program = program
        archive_path = put(program, TINY4)
        self.folders = [
            program.cwd,
            *(p for p in archive_path.parents if p.is_relative_to(program.cache)),
        ]
        archive_path.chmod(0o444)
        for folder in self.folders:
            folder.chmod(0o555)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        nowhere = {"HOME": None, "XDG_CACHE_HOME": None, "TMPDIR": None}
        return subprocess.run(
            [*(AS_USER if os.geteuid() == 0 else ()), sys.executable, *words],
            cwd=self.program.cwd,
            env=self.program.environment(**nowhere),
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def cluster(program) -> Iterator[Cluster]:
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root needs setpriv to become a user who cannot write everywhere")
    made = Cluster(program)
    yield made
    for folder in made.folders:
        folder.chmod(0o755)


def test_a_read_only_cache_without_home_is_enough(cluster):
    assert cluster.run("-c", "open('new', 'w')").returncode == 1
    words = ("--mode", "reference", "--x", "index", "--json", "--matrix", "Test/tiny4")
    done = cluster.run("-m", "spmv_fpga", "run", *words)
    assert (done.returncode, done.stderr) == (0, "")
    assert '"verified": true' in done.stdout


def test_help_and_import_need_nothing_that_can_be_written(cluster):
    done = cluster.run("-m", "spmv_fpga", "run", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "--matrix" in done.stdout


def test_a_matrix_that_a_read_only_cache_lacks_is_refused(cluster):
    words = ("--mode", "reference", "--matrix", "Test/dense1")
    done = cluster.run("-m", "spmv_fpga", "run", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "matrices/Test/dense1.tar.gz" in done.stderr
    assert "Traceback" not in done.stderr


# Ctrl-C.


def processes_with(variable: str) -> list[int]:
    """Find the living processes that hold a variable in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if variable.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def interrupt(process: subprocess.Popen[str]) -> tuple[str, float]:
    """Press Ctrl-C; return stderr and how long the end took."""
    start_s = time.monotonic()
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert stdout == ""
    return stderr, time.monotonic() - start_s


@pytest.mark.network_loopback
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_during_a_download_ends_cleanly(program, mirror):
    mirror.mode = "hold"
    process = program.start(*RUN, "Test/tiny4", **mirror.on_line)
    assert mirror.is_half_sent.wait(PATIENCE_S)
    stderr, ending_s = interrupt(process)
    assert process.returncode == 130
    assert stderr == "spmv-fpga: interrupted\n"
    assert ending_s < ENDING_LIMIT_S
    assert not [name for name in program.files() if "tiny4" in Path(name).name]
    mirror.may_go_on.set()
    mirror.mode = "ok"
    assert y_of(program, "Test/tiny4", **mirror.on_line) == Y


@pytest.mark.xrt
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_during_an_emulated_run_ends_cleanly(program):
    program.keep_builds()
    mark = f"of {program.folder}"
    words = ("--mode", "sw_emu", "--measure", "1000", "--verbose", "--json")
    process = program.start("run", "--matrix", "gallery:poisson2d", *words, SPMV_FPGA_MARK=mark)
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("multiplying on the card"):
            break
    # The program, the process that drives the card, and the card.
    assert len(processes_with(mark)) == 3
    stderr, ending_s = interrupt(process)
    assert process.returncode == 130
    assert stderr == "spmv-fpga: interrupted\n"
    assert ending_s < ENDING_LIMIT_S
    assert processes_with(mark) == []
    assert list(program.temporary.iterdir()) == []
    assert program.here("run", "--matrix", "gallery:diagonal", "--mode", "sw_emu").status == 0
