"""`--reorder` of `run` and `predict`."""

from __future__ import annotations

import pytest

POWERLAW = "gallery:powerlaw:n=200"
WIDE = "%%MatrixMarket matrix coordinate real general\n2 3 1\n1 3 1\n"


@pytest.mark.parametrize("kernel", ["block", "scalar"])
def test_y_is_in_the_order_of_the_matrix(program, kernel):
    plain = program.multiply(POWERLAW, "--kernel", kernel)
    moved = program.multiply(POWERLAW, "--kernel", kernel, "--reorder", "rcm")
    assert moved == pytest.approx(plain, rel=1e-4, abs=1e-4)


@pytest.mark.xrt
def test_the_card_multiplies_the_reordered_matrix(program):
    program.keep_builds()
    words = ("run", "--mode", "sw_emu", "--baseline", "none", "--matrix", POWERLAW)
    words += ("--symmetric", "stored", "--kernel", "block", "--reorder", "rcm")
    document = program.here(*words, "--json").document
    assert document["verified"] is True
    assert document["kernel"]["reorder"] == "rcm"


def test_the_report_of_a_run_says_the_order(program):
    words = ("run", "--mode", "reference", "--baseline", "none", "--matrix", POWERLAW)
    assert "Cuthill" not in program.here(*words).stdout
    moved = program.here(*words, "--reorder", "rcm").stdout
    assert "; rows and columns in reverse Cuthill-McKee order\n" in moved


def test_predict_says_the_tiles_before_and_after_and_the_better_order(program):
    words = ("predict", "--matrix", "gallery:diagonal:n=64", "--reorder", "rcm")
    outcome = program.here(*words)
    assert outcome.status == 0
    assert "reordering (rcm): P 4 25.0 % full before, 25.0 % after; P 8 " in outcome.stdout
    assert "Better order for time: the matrix's own; " in outcome.stdout
    candidates = program.here(*words, "--json").document["candidates"]
    before = [c["density_before"] for c in candidates]
    # 64 pieces of one entry are half a chunk of lanes.
    assert before == [1, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 2]


@pytest.mark.parametrize("command", ["run", "predict"])
def test_a_matrix_that_is_not_square_is_refused(program, command):
    matrix = program.write("wide.mtx", WIDE)
    words = (command, "--matrix", matrix, "--reorder", "rcm")
    program.refuse(*words, names=["2 x 3", "rcm", "square"], in_process=True)
