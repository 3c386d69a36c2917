"""`verify`: what it says of a folder, and its exit status."""

from __future__ import annotations

import numpy as np
import pytest

EYE = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 1\n2 2 1\n"


@pytest.fixture
def folder(program):
    """A folder with a matrix and a file that only looks like one."""
    (program.cwd / "folder").mkdir()
    program.write("folder/eye.mtx", EYE)
    program.write("folder/text.mtx", "no matrix\n")
    return program


def verify(program, *words):
    return program.here("verify", "folder", "--mode", "reference", *words)


def test_an_unusable_file_is_named_once_and_is_no_failure(folder):
    outcome = verify(folder)
    assert (outcome.status, outcome.stderr) == (0, "")
    heading, *lines, summary = outcome.stdout.splitlines()
    assert heading.endswith("product   worst error over its bound")
    assert [line.split()[0] for line in lines].count("text.mtx") == 1
    assert summary == "10 verified, 0 wrong, 1 refused"


def test_the_json_of_verify_has_every_product(folder):
    document = verify(folder, "--kernel", "scalar", "--json").document
    assert document["counts"] == {"verified": 4, "wrong": 0, "refused": 1}
    eye = [p for p in document["products"] if p["matrix"].endswith("eye.mtx")]
    assert [p["slice"] for p in eye] == [4, 8, 16, 32]
    assert {p["worst_error_over_bound"] for p in eye} == {0.0}
    (refused,) = (p for p in document["products"] if p["outcome"] == "refused")
    assert refused["kernel"] is None
    assert "no Matrix Market file" in refused["reason"]


def test_a_wrong_product_of_a_folder_ends_with_status_1(folder, monkeypatch):
    from spmv_fpga.formats import SlicedEll

    monkeypatch.setattr(SlicedEll, "spmv", lambda self, x: np.zeros(2, np.float32))
    outcome = verify(folder, "--kernel", "scalar")
    assert outcome.status == 1
    assert "0 verified, 4 wrong, 1 refused" in outcome.stdout


def test_a_folder_without_a_usable_matrix_ends_with_status_2(folder):
    (folder.cwd / "folder" / "eye.mtx").unlink()
    outcome = verify(folder)
    assert outcome.status == 2
    assert "no matrix could be multiplied" in outcome.stderr


def test_a_place_that_does_not_exist_is_refused_before_anything_is_printed(program):
    program.refuse("verify", "absent", names=["absent"], in_process=True)
