"""What is made once is made once, whole or not at all, and read-only disks do not stop it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock, Timeout

from spmv_fpga import build_cache
from spmv_fpga.build_cache import content_key, made_once, private_folder, stamp

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def maker(text: str = "made"):
    """A `make` that notes its calls."""
    calls = []

    def make(folder: Path) -> None:
        assert list(folder.iterdir()) == []
        calls.append(folder)
        (folder / "result").write_text(text)

    return make, calls


def test_the_same_key_is_made_once(cache):
    make, calls = maker()
    first = made_once("build", "abc", make)
    assert first == made_once("build", "abc", make) == cache / "build" / "abc"
    assert (first / "result").read_text() == "made"
    assert len(calls) == 1


def test_other_keys_and_sections_are_made_apart():
    made = [
        made_once(section, key, maker(section + key)[0])
        for section, key in (("build", "a"), ("build", "b"), ("driver", "a"))
    ]
    assert [(folder / "result").read_text() for folder in made] == [
        "builda",
        "buildb",
        "drivera",
    ]


def test_what_fails_half_way_leaves_nothing_and_is_made_anew(cache):
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise RuntimeError("the compiler failed")

    with pytest.raises(RuntimeError, match="the compiler failed"):
        made_once("build", "abc", fail)
    assert [path.name for path in (cache / "build").iterdir() if path.is_dir()] == []
    folder = made_once("build", "abc", maker()[0])
    assert [path.name for path in folder.iterdir()] == ["result"]


def test_nothing_half_made_has_the_final_name(cache):
    seen = []

    def make(folder: Path) -> None:
        seen.append((cache / "build" / "abc").exists())

    made_once("build", "abc", make)
    assert seen == [False]
    assert (cache / "build" / "abc").is_dir()


def test_a_cache_that_cannot_be_made_is_replaced_by_a_private_one(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPMV_FPGA_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(build_cache, "private_folder", lambda: tmp_path / "private")
    make, calls = maker()
    folder = made_once("build", "abc", make)
    assert folder == made_once("build", "abc", make) == tmp_path / "private" / "build" / "abc"
    assert len(calls) == 1


def test_a_full_cache_is_served_from_a_disk_that_cannot_be_written(cache, monkeypatch):
    made_once("build", "abc", maker()[0])

    def refuse(*args, **kwargs):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(build_cache, "FileLock", refuse)
    assert made_once("build", "abc", maker()[0]) == cache / "build" / "abc"


def test_the_private_folder_goes_when_its_process_ends():
    program = (
        "from spmv_fpga.build_cache import private_folder as f; "
        "assert f() == f() and f().is_dir(); print(f())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    folder = Path(done.stdout.strip())
    assert folder.name.startswith("spmv_fpga_cache_")
    assert not folder.exists()


def test_two_processes_make_the_same_thing_once(tmp_path):
    program = """
import sys
from spmv_fpga.build_cache import made_once

def make(folder):
    print("making", flush=True)
    sys.stdin.readline()
    (folder / "result").write_text("whole")

print("asking", flush=True)
print((made_once("build", "abc", make) / "result").read_text())
"""

    def start() -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, env={**os.environ, "PYTHONPATH": str(CHECKOUT)},
        )  # fmt: skip
        assert process.stdout.readline() == "asking\n"
        return process

    first = start()
    assert first.stdout.readline() == "making\n"
    second = start()
    assert first.communicate("done\n")[0] == "whole\n"
    assert second.communicate("done\n")[0] == "whole\n"  # and not "making"


def test_nobody_else_makes_the_same_thing_meanwhile(cache):
    def make(folder: Path) -> None:
        with pytest.raises(Timeout):
            FileLock(cache / "build" / "abc.lock").acquire(timeout=0)
        with FileLock(cache / "build" / "other.lock").acquire(timeout=0):
            (folder / "result").write_text("made")

    assert (made_once("build", "abc", make) / "result").read_text() == "made"


def test_the_private_folder_is_one_for_the_process():
    assert private_folder() is private_folder()


# Keys


def test_a_key_is_sixteen_hexadecimal_digits(tmp_path):
    (tmp_path / "a").write_text("text")
    key = content_key([tmp_path / "a"], ["fact"])
    assert len(key) == 16
    assert int(key, 16) >= 0


def test_a_key_depends_on_content_and_not_on_names_or_times(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).write_text("text")
    os.utime(tmp_path / "b", (1, 1))
    assert content_key([tmp_path / "a"]) == content_key([tmp_path / "b"])


def test_every_change_gives_another_key(tmp_path):
    for name, text in {"a": "one", "b": "two", "ab": "onetwo", "empty": ""}.items():
        (tmp_path / name).write_text(text)
    a, b, ab, empty = (tmp_path / name for name in ("a", "b", "ab", "empty"))
    keys = [
        content_key([]), content_key([a]), content_key([b]), content_key([a, b]),
        content_key([b, a]), content_key([ab]), content_key([ab, empty]),
        content_key([], ["x"]), content_key([a], ["x"]), content_key([a], ["x", "y"]),
        content_key([a], ["xy"]), content_key([a], ["y", "x"]),
    ]  # fmt: skip
    assert len(set(keys)) == len(keys)


def test_a_fact_may_be_a_path_that_is_no_text():
    assert content_key([], [os.fsdecode(b"/caf\xe9")]) != content_key([], ["/caf"])


def test_a_stamp_changes_with_the_file(tmp_path):
    path = tmp_path / "g++"
    assert stamp(path) == f"{path} is absent"
    path.write_text("one")
    before = stamp(path)
    assert stamp(path) == before
    path.write_text("three")
    assert stamp(path) != before
