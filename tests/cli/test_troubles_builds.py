"""Users' troubles with `make xclbin`: timing that is not met, another BLOCK's old file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="needs GNU make")

ONE = "%%MatrixMarket matrix coordinate real general\n1 1 1\n1 1 -3.5\n"
# Stands in for v++: notes its arguments, and writes them into the output.
VPP = r"""#!/usr/bin/env bash
printf '%s\n' "$*" >>"$VPP_LOG"
out=""; link=0; previous=""
for word in "$@"; do
  case "$previous" in -o|--output) out="$word" ;; esac
  case "$word" in --output=*) out="${word#--output=}" ;; -l|--link) link=1 ;; esac
  previous="$word"
done
"""
GOOD = VPP + '[ -z "$out" ] || { mkdir -p "$(dirname "$out")"; echo "made by: $*" >"$out"; }\n'
NO_TIMING = (
    VPP
    + """if [ "$link" = 1 ]; then
  echo "CRITICAL WARNING: [Timing 38-282] The design failed to meet the timing requirements."
  echo "ERROR: [VPL 101-2] design did not meet timing - Design did not meet timing."
  echo "ERROR: [v++ 60-661] v++ link run 'run_link' failed"
  exit 1
fi
[ -z "$out" ] || { mkdir -p "$(dirname "$out")"; echo object >"$out"; }
"""
)


class Checkout:
    """A copy of the checkout whose virtual environment is this Python."""

    def __init__(self, program, tree: Path, stand_in) -> None:
        self.program, self.stand_in = program, stand_in
        self.tree = program.folder / "tree"
        shutil.copytree(tree, self.tree)
        venv = program.folder / "venv"
        (venv / "bin").mkdir(parents=True)
        (venv / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        (venv / "bin" / "python").chmod(0o755)
        (venv / ".installed").touch()
        self.log = program.folder / "vpp.log"
        self.log.touch()

    def make(self, *words: str, vpp: str = GOOD, **changes: str) -> str:
        """Run make; return all that it prints, and keep its status."""
        fakes = self.stand_in("v++", vpp)
        environment = self.program.environment(
            PATH=f"{fakes}{os.pathsep}{os.environ['PATH']}", VPP_LOG=str(self.log), **changes
        )
        environment["PYTHONPATH"] = str(self.tree)
        done = subprocess.run(
            ["make", "xclbin", f"VENV={self.program.folder}/venv", *words],
            cwd=self.tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.status = done.returncode
        return done.stdout

    def links(self) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if "--link" in line]

    def built(self, block: int, target: str = "hw") -> list[Path]:
        folder = f"build/{target}/*/block_p{block}_l16_cu1/block.xclbin"
        return list(self.tree.glob(folder))


@pytest.fixture
def checkout(program, copied_tree, stand_in) -> Checkout:
    return Checkout(program, copied_tree, stand_in)


def test_timing_that_is_not_met_leaves_no_xclbin(checkout):
    words = ("KERNEL=block", "BLOCK=16", "TARGET=hw")
    checkout.make(*words)
    assert (checkout.status, len(checkout.built(16))) == (0, 1)
    for template in (checkout.tree / "hls_templates" / "block").iterdir():
        template.touch()
    output = checkout.make(*words, vpp=NO_TIMING)
    assert checkout.status != 0
    assert "did not meet timing" in "\n".join(output.splitlines()[-20:])
    assert checkout.built(16) == []


def test_another_block_never_gives_the_old_xclbin(checkout):
    for block in ("16", "32", "16"):
        checkout.make("TARGET=hw", f"BLOCK={block}")
        assert checkout.status == 0
    assert len(checkout.links()) == 2
    (at_16,), (at_32,) = checkout.built(16), checkout.built(32)
    assert "block_p16_l16_cu1" in at_16.read_text()
    assert "block_p32_l16_cu1" in at_32.read_text()
    constants = [
        path.parent.joinpath("src", "constants.hpp").read_text() for path in (at_16, at_32)
    ]
    assert constants[0] != constants[1]


def test_the_block_may_come_from_the_environment(checkout):
    checkout.make("TARGET=hw", BLOCK="32")
    assert len(checkout.built(32)) == 1
    checkout.make("TARGET=hw", "BLOCK=32")
    assert len(checkout.links()) == 1


def test_without_vitis_the_build_is_refused_in_one_message(checkout):
    (checkout.program.folder / "bin").mkdir()
    for tool in ("sh", "sed", "make", "echo"):
        (checkout.program.folder / "bin" / tool).symlink_to(str(shutil.which(tool)))
    environment = checkout.program.environment(PATH=str(checkout.program.folder / "bin"))
    done = subprocess.run(
        ["make", "xclbin", f"VENV={checkout.program.folder}/venv"],
        cwd=checkout.tree,
        env=environment | {"PYTHONPATH": str(checkout.tree)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("spmv-fpga: ") == 1
    assert "v++" in done.stderr
    assert not (checkout.tree / "build").exists()


@pytest.mark.compiler
def test_a_run_refuses_an_xclbin_for_another_block_and_names_both(checkout):
    checkout.program.keep_builds()
    checkout.make("TARGET=sw_emu", "BLOCK=16")
    assert checkout.status == 0
    (file,) = checkout.built(16, "sw_emu")
    matrix = checkout.program.write("one.mtx", ONE)
    words = ("run", "--mode", "sw_emu", "--kernel", "block", "--block", "32")
    checkout.program.refuse(
        *(*words, "--xclbin", str(file), "--matrix", matrix),
        names=["built for block 16", "block 32"],
        in_process=True,
    )
