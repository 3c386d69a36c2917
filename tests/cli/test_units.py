"""The main job with several compute units."""

from __future__ import annotations

import numpy as np
import pytest

from spmv_fpga.boards import load_board
from spmv_fpga.codegen import render_project
from spmv_fpga.matrices import load_matrix
from spmv_fpga.reference import compare
from spmv_fpga.toolchain import emulation, xclbin

POISSON = "gallery:poisson2d:n=40"
EMULATED = ("--mode", "sw_emu", "--baseline", "none")


@pytest.mark.xrt
@pytest.mark.parametrize("kernel", ["block", "scalar"])
def test_a_run_with_three_units_is_verified_and_says_their_number(program, kernel):
    program.keep_builds()
    words = ("--matrix", POISSON, "--kernel", kernel, "--cu", "3", "--y-out", "y.npy")

    outcome = program.here("run", *EMULATED, *words, "--x", "ones", "--json")

    assert (outcome.status, outcome.stderr) == (0, "")
    document = outcome.document
    assert document["verified"] is True
    assert document["kernel"]["compute_units"] == 3
    assert document["kernel"]["num_stored"] >= document["matrix"]["nnz"] == 5 * 1600 - 4 * 40
    A = load_matrix(POISSON)
    assert compare(np.load(program.cwd / "y.npy"), A, np.ones(1600)) <= 1


@pytest.mark.xrt
def test_several_launches_of_several_units_are_verified(program):
    program.keep_builds()

    y = program.multiply(
        POISSON, "--mode", "sw_emu", "--kernel", "block", "--cu", "3", "--repeat", "4", x="ones"
    )

    assert compare(np.float32(y), load_matrix(POISSON), np.ones(1600)) <= 1


@pytest.mark.xrt
def test_the_units_of_a_given_xclbin_are_used(program):
    program.keep_builds()
    project = render_project("block", {}, load_board("u50"), compute_units=3)
    path = emulation.build(project).path

    outcome = program.here(
        "run", *EMULATED, "--matrix", POISSON, "--xclbin", str(path), "--json"
    )

    assert outcome.status == 0
    assert outcome.document["verified"] is True
    assert outcome.document["kernel"]["compute_units"] == 3


@pytest.mark.xrt
def test_x_beyond_its_room_is_multiplied_in_panels(program):
    program.keep_builds()  # more than two units have room for 65 536 elements
    words = ("--matrix", "gallery:diagonal:n=140000", "--kernel", "scalar", "--cu", "3")

    outcome = program.here("run", *EMULATED, *words, "--json")

    assert outcome.status == 0
    assert outcome.document["verified"] is True
    assert outcome.document["kernel"]["compute_units"] == 3


@pytest.mark.xrt
def test_a_built_xclbin_says_its_units_and_their_banks(program):
    program.keep_builds()
    words = ("--kernel", "block", "--cu", "3", "--target", "sw_emu", "--build-dir", "build")
    assert program.here("xclbin", *words).status == 0
    [path] = (program.cwd / "build").rglob("*.xclbin")

    outcome = program.here("info", str(path), "--json")

    assert "cu3" in str(path.parent.name)
    assert outcome.document["compute_units"] == 3
    [kernel] = outcome.document["kernels"]
    assert [unit["name"] for unit in kernel["instances"]] == [
        "spmv_block_1", "spmv_block_2", "spmv_block_3",
    ]  # fmt: skip
    info = xclbin.read(path)
    assert [info.memories_of(f"spmv_block_{i}", "matrix")[0].tag for i in (1, 2, 3)] == [
        "HBM[2]", "HBM[4]", "HBM[6]",
    ]  # fmt: skip


@pytest.mark.xrt
@pytest.mark.shared_data
def test_a_matrix_larger_than_a_bank_is_verified(program, shared_data):
    program.keep_builds()
    matrix = str(shared_data / "matrices" / "G2_circuit.mtx.gz")

    outcome = program.here(
        "run", *EMULATED, "--matrix", matrix, "--kernel", "block", "--block", "32", "--json"
    )

    assert outcome.status == 0
    assert outcome.document["verified"] is True
    assert outcome.document["kernel"]["num_stored"] == 87975 * 32 * 32
    assert outcome.document["kernel"]["bytes"] > 256 << 20
