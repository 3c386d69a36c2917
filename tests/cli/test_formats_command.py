"""`formats`: bytes a non-zero of every format, for all matrices of a folder."""

from __future__ import annotations

import pytest

GENERAL = "%%MatrixMarket matrix coordinate real general\n"
SYMMETRIC = "%%MatrixMarket matrix coordinate real symmetric\n"


@pytest.fixture
def folder(program):
    """A folder with a diagonal, a symmetric matrix, one without entries, and a text."""
    (program.cwd / "folder").mkdir()
    entries = "".join(f"{i} {i} 1\n" for i in range(1, 17))
    program.write("folder/eye.mtx", f"{GENERAL}16 16 16\n{entries}")
    program.write("folder/pair.mtx", f"{SYMMETRIC}2 2 1\n2 1 5\n")
    program.write("folder/none.mtx", f"{GENERAL}2 2 0\n")
    program.write("folder/text.mtx", "no matrix\n")
    return program


def test_each_matrix_has_a_line_and_the_last_one_is_the_geometric_mean(folder):
    outcome = folder.here("formats", "folder")
    assert (outcome.status, outcome.stderr) == (0, "")
    *skipped, heading, eye, pair, mean = outcome.stdout.splitlines()
    assert [line.partition(": skipped; ")[0] for line in skipped] == ["none.mtx", "text.mtx"]
    assert "the matrix has no entries" in skipped[0]
    columns = "entries scalar 16 block 4 block 8 block 16 block 32 lanes 8 lanes 16"
    assert " ".join(heading.split()) == f"bytes a non-zero {columns}"
    # Block 4: a word of descriptors and four tiles of a word, for 16 entries.
    assert eye.split()[:4] == ["eye", "16", "8.00", "20.00"]
    assert pair.split()[:4] == ["pair", "2", "64.00", "64.00"]
    assert mean.split()[:4] == ["geometric", "mean", "22.63", "35.78"]


def test_the_json_has_every_format_and_the_means(folder):
    document = folder.here("formats", "folder", "--json").document
    eye, pair = document["matrices"]
    assert (pair["rows"], pair["cols"], pair["nnz"]) == (2, 2, 2)
    kinds = [(f["kernel"], f["block"], f["slice"], f["depth"]) for f in eye["formats"]]
    assert kinds == [
        ("scalar", None, 16, None),
        *(("block", size, None, None) for size in (4, 8, 16, 32)),
        *(("lanes", None, None, depth) for depth in (8, 16)),
    ]
    for one in eye["formats"]:
        assert one["bytes_per_entry"] == one["bytes"] / 16
    assert document["geometric_mean"][0]["bytes_per_entry"] == pytest.approx(512**0.5)
    assert [each["matrix"] for each in document["skipped"]] == [
        "folder/none.mtx", "folder/text.mtx"
    ]  # fmt: skip


def test_small_matrices_are_left_out_where_asked(folder):
    document = folder.here("formats", "folder", "--min-entries", "3", "--json").document
    assert [each["name"] for each in document["matrices"]] == ["eye"]


def test_a_folder_without_a_usable_matrix_is_refused(folder):
    words = ("formats", "folder/text.mtx", "folder/pair.mtx", "--min-entries", "3")
    folder.refuse(*words, names=["3 entries", "text.mtx", "no Matrix Market"], in_process=True)


def test_a_place_that_does_not_exist_is_refused(program):
    program.refuse("formats", "absent", names=["absent"], in_process=True)
