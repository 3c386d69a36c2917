"""Users' troubles with xclbin files and the runtime: refused before a card is touched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from spmv_fpga import BlockedEll, SlicedEll, load_matrix
from spmv_fpga.errors import XclbinError
from spmv_fpga.runtime import check_fit
from spmv_fpga.toolchain import xclbin

ONE = "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 -3.5\n"
PLATFORM = "xilinx_u50_gen3x16_xdma_5_202210_1"
BANK_BYTES = 268435456
ARGUMENTS = ("vals", "cols", "x", "y")
NO_PYOPENCL = 'raise ModuleNotFoundError("No module named \'pyopencl\'", name="pyopencl")\n'
PROBE = """import json, os
if os.environ.get("PROBE_OUT"):
    with open(os.environ["PROBE_OUT"], "w") as file:
        json.dump(os.environ.get("XCL_EMULATION_MODE"), file)
raise ImportError("pyopencl stand-in: environment noted")
"""


def write_xclbin(
    path: Path, target: str = "hw", name: str = "krnl_spmv", bank_bytes: int = BANK_BYTES
) -> str:
    """Write a container without a bitstream whose kernel is none of this project's."""
    kernel = xclbin.lay_out_kernel(
        name,
        {argument: f"M_AXI_GMEM{i}" for i, argument in enumerate(ARGUMENTS)},
        ["rows"],
        {f"{name}_1": {argument: [f"HBM[{i}]"] for i, argument in enumerate(ARGUMENTS)}},
    )
    spec = xclbin.XclbinSpec(
        platform=PLATFORM,
        target=target,
        kernels=(kernel,),
        memories=xclbin.hbm_banks(4, bank_bytes),
        clock_hz=300e6,
    )
    xclbin.write(path, spec)
    return path.name


def dense_row() -> csr_array:
    """One full row over a diagonal, 4096 × 4096."""
    A = np.eye(4096, dtype=np.float32)
    A[0] = 1
    return csr_array(A)


def one_wide_block_row() -> csr_array:
    """65,536 rows; 65 tiles in the first block row, 1 in each of the others."""
    rows = np.concatenate([np.zeros(65, np.int32), np.arange(16, 65536, 16, dtype=np.int32)])
    cols = np.concatenate([np.arange(0, 65 * 16, 16, dtype=np.int32), rows[65:]])
    return csr_array((np.ones(4160, np.float32), (rows, cols)), shape=(65536, 65536))


# No OpenCL.


def test_without_pyopencl_reference_mode_runs(program, stand_in):
    fakes = stand_in("pyopencl/__init__.py", NO_PYOPENCL)
    matrix = program.write("one.mtx", ONE)
    words = ("run", "--mode", "reference", "--x", "index", "--y-out", "y.npy", "--quiet")
    outcome = program.run(*words, "--matrix", matrix, PYTHONPATH=fakes)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (0, "", "")
    assert np.load(program.cwd / "y.npy").tolist() == [-3.5]


def test_a_card_run_says_what_is_missing_and_which_file_to_source(program):
    matrix = program.write("one.mtx", ONE)
    names = ["OCL_ICD_VENDORS=/nonexistent", "XILINX_XRT is not set", "pyopencl",
             "source /opt/xilinx/xrt/setup.sh"]  # fmt: skip
    if Path("/opt/xilinx/xrt").exists():
        pytest.skip("AMD's runtime is installed, so that less is missing")
    words = ("run", "--mode", "hw", "--matrix", matrix)
    program.refuse(*words, names=names, OCL_ICD_VENDORS="/nonexistent")


def test_a_card_run_without_pyopencl_names_it_as_missing(program, stand_in):
    fakes = stand_in("pyopencl/__init__.py", NO_PYOPENCL)
    words = ("run", "--mode", "hw", "--matrix", program.write("one.mtx", ONE))
    program.refuse(*words, names=["pyopencl is missing", "pip install"], PYTHONPATH=fakes)


@pytest.mark.xrt
def test_an_emulated_run_without_pyopencl_says_how_to_install_it(program, stand_in):
    fakes = stand_in("pyopencl/__init__.py", NO_PYOPENCL)
    program.keep_builds()
    words = ("run", "--mode", "sw_emu", "--matrix", program.write("one.mtx", ONE))
    outcome = program.run(*words, PYTHONPATH=fakes)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "pyopencl" in outcome.stderr
    assert "pip install pyopencl" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_a_pyopencl_that_raises_when_it_is_imported_is_named(program, stand_in):
    fakes = stand_in("pyopencl/__init__.py", 'raise RuntimeError("boom")\n')
    program.keep_builds()
    words = ("run", "--mode", "sw_emu", "--matrix", program.write("one.mtx", ONE))
    outcome = program.run(*words, PYTHONPATH=fakes)
    assert (outcome.status, outcome.stdout) == (2, "")
    assert "pyopencl cannot be imported (RuntimeError: boom)" in outcome.stderr
    assert "spmv-fpga doctor" in outcome.stderr


# XCL_EMULATION_MODE.

WRONG_VALUES = [
    ("hw", "sw_emu"), ("hw", "hw_emu"), ("hw", "true"),
    ("sw_emu", "hw_emu"), ("sw_emu", "true"),
    ("hw_emu", "sw_emu"), ("hw_emu", "true"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "value"), WRONG_VALUES)
def test_an_emulation_mode_that_does_not_fit_the_file_is_refused(program, target, value):
    file = write_xclbin(program.cwd / "given.xclbin", target)
    words = ("run", "--xclbin", file, "--matrix", program.write("one.mtx", ONE))
    names = [file, f"built for {target}", f"XCL_EMULATION_MODE is '{value}'"]
    program.refuse(*words, names=names, in_process=True, XCL_EMULATION_MODE=value)


@pytest.mark.parametrize("target", ["hw", "sw_emu", "hw_emu"])
def test_a_refusal_loads_nothing_first(program, stand_in, target):
    fakes = stand_in("pyopencl/__init__.py", PROBE)
    file = write_xclbin(program.cwd / "given.xclbin", target)
    words = ("run", "--xclbin", file, "--matrix", program.write("one.mtx", ONE))
    program.refuse(
        *words,
        names=[f"built for {target}", "'true'"],
        XCL_EMULATION_MODE="true",
        PYTHONPATH=fakes,
        PROBE_OUT=str(program.cwd / "probe.json"),
    )


@pytest.mark.xrt
@pytest.mark.parametrize("value", [None, "sw_emu"])
def test_the_emulation_mode_is_set_before_opencl_is_loaded(program, stand_in, value):
    program.keep_builds()
    words = ("--kernel", "block", "--target", "sw_emu", "--quiet")
    assert program.here("xclbin", *words).status == 0
    file = str(next(program.cwd.glob("build/sw_emu/*/block_p16_l16_cu1/block.xclbin")))
    outcome = program.run(
        *("run", "--xclbin", file, "--matrix", program.write("one.mtx", ONE)),
        XCL_EMULATION_MODE=value,
        PYTHONPATH=stand_in("pyopencl/__init__.py", PROBE),
        PROBE_OUT=str(program.cwd / "probe.json"),
    )
    assert outcome.status == 2
    assert json.loads((program.cwd / "probe.json").read_text()) == "sw_emu"


# Kernels and banks.


def test_a_kernel_that_the_file_lacks_is_refused_with_those_it_has(program):
    file = write_xclbin(program.cwd / "other.xclbin", name="vadd")
    words = ("run", "--mode", "hw", "--kernel", "block", "--xclbin", file, "--matrix")
    matrix = program.write("one.mtx", ONE)
    program.refuse(*words, matrix, names=[file, "spmv_block", "vadd"])


def test_info_shows_a_foreign_file(program):
    file = write_xclbin(program.cwd / "other.xclbin", name="vadd")
    outcome = program.here("info", file)
    assert outcome.status == 0
    for text in ("vadd", *ARGUMENTS, "rows", "HBM[0]", "HBM[3]", PLATFORM, "hw"):
        assert text in outcome.stdout


@pytest.mark.parametrize(("kernel", "least_bytes"), [("scalar", 2 * 278464), ("block", 523264)])
def test_a_buffer_larger_than_its_bank_is_refused_with_the_numbers(
    program, kernel, least_bytes
):
    file = write_xclbin(program.cwd / "small.xclbin", bank_bytes=65536)
    info = xclbin.read(program.cwd / file)
    A = dense_row()
    fmt = SlicedEll.from_csr(A) if kernel == "scalar" else BlockedEll.from_csr(A)
    with pytest.raises(XclbinError) as refused:
        check_fit(fmt, info, emulation_mode="")
    size = fmt.port_bytes()["matrix"]
    assert size >= least_bytes
    assert any(
        f"{size} bytes" in reason and "HBM[0] has 65536" in reason
        for reason in refused.value.reasons
    )


def test_a_large_matrix_of_few_tiles_is_no_reason_to_refuse(tmp_path):
    fmt = BlockedEll.from_csr(one_wide_block_row(), block=16)
    assert (len(fmt.block_cols), fmt.values.nbytes) == (4160, 4259840)
    info = xclbin.read(tmp_path / write_xclbin(tmp_path / "hw.xclbin"))
    with pytest.raises(XclbinError) as refused:
        check_fit(fmt, info, emulation_mode="")
    assert [reason for reason in refused.value.reasons if "bytes" in reason] == []


# The same cases as they stand in the shared data folder.


@pytest.mark.shared_data
def test_the_shared_matrix_of_many_tiles_fits_at_16_and_not_at_32(shared_data):
    A = load_matrix(shared_data / "matrices" / "G2_circuit.mtx.gz")
    info = xclbin.read(shared_data / "cases/inputs/hx_hw_u50.xclbin")
    at_32 = BlockedEll.from_csr(A, block=32)
    assert (len(at_32.block_cols), at_32.values.nbytes) == (87975, 360345600)
    with pytest.raises(XclbinError) as refused:
        check_fit(at_32, info, emulation_mode="")
    assert "HBM[0] has 268435456" in str(refused.value)
    assert str(at_32.port_bytes()["matrix"]) in str(refused.value)
    at_16 = BlockedEll.from_csr(A, block=16)
    assert (len(at_16.block_cols), at_16.values.nbytes) == (115680, 118456320)
    with pytest.raises(XclbinError) as refused:
        check_fit(at_16, info, emulation_mode="")
    assert [reason for reason in refused.value.reasons if "bytes" in reason] == []


@pytest.mark.shared_data
@pytest.mark.parametrize("kernel", ["scalar", "block"])
def test_the_shared_small_banks_are_refused_on_the_command_line(program, shared_data, kernel):
    inputs = shared_data / "cases/inputs"
    words = (
        "--mode",
        "hw",
        "--kernel",
        kernel,
        "--xclbin",
        str(inputs / "hx_small_banks.xclbin"),
    )
    matrix = str(inputs / "cv_dense_row.mtx")
    program.here("convert", "--stats", "--matrix", matrix)  # keeps the parsed matrix
    program.refuse(
        "run", *words, "--matrix", matrix, names=["HBM[0]", "65536"], in_process=True
    )


@pytest.mark.shared_data
@pytest.mark.parametrize(("target", "value"), WRONG_VALUES)
def test_a_shared_file_is_refused_under_another_emulation_mode(
    program, shared_data, target, value
):
    name = f"hx_{target.replace('_', '')}_u50.xclbin"
    words = ("run", "--xclbin", str(shared_data / "cases/inputs" / name), "--matrix")
    program.refuse(
        *(*words, program.write("one.mtx", ONE)),
        names=[name, f"built for {target}", f"XCL_EMULATION_MODE is '{value}'"],
        in_process=True,
        XCL_EMULATION_MODE=value,
    )


@pytest.mark.shared_data
def test_info_shows_the_shared_foreign_file(program, shared_data):
    file = str(shared_data / "cases/inputs/hx_kernel_other.xclbin")
    document = program.here("info", file, "--json").document
    (kernel,) = document["kernels"]
    assert kernel["name"] == "vadd"
    assert [a["name"] for a in kernel["arguments"]] == [*ARGUMENTS, "rows"]
    assert [a["memories"] for a in kernel["arguments"][:4]] == [[f"HBM[{i}]"] for i in range(4)]
