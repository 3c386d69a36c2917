"""What all tests share: a cache of their own, the shared data, tools that may be missing."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]
SHARED_DATA = CHECKOUT.parent / "shared"


@pytest.fixture(scope="session", autouse=True)
def _own_cache() -> Iterator[None]:
    """Keep what is built for the tests in the checkout, and the user's cache untouched."""
    before = os.environ.get("SPMV_FPGA_CACHE")
    os.environ["SPMV_FPGA_CACHE"] = before or str(CHECKOUT / "build" / "test_cache")
    yield
    if before is None:
        del os.environ["SPMV_FPGA_CACHE"]


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """Let Ctrl-C reach what tests start, also where a script started them in the background."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def shared_data() -> Path:
    """The folder with matrices and cases beside the checkout."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the shared data folder is not beside the checkout")
    return SHARED_DATA


def _missing_tool(marker: str) -> str | None:
    """Say what a test with this marker lacks here, or None."""
    if marker == "compiler" and not shutil.which("g++"):
        return "g++ is not installed"
    if marker == "clang" and not shutil.which("clang++"):
        return "clang++ is not installed"
    if marker == "xrt":
        from spmv_fpga.errors import SpmvFpgaError
        from spmv_fpga.runtime.environment import prepare_emulation

        try:
            prepare_emulation()
        except SpmvFpgaError as error:
            return str(error)
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose tool is missing, with the reason."""
    for marker in ("compiler", "clang", "xrt"):
        if item.get_closest_marker(marker) and (reason := _missing_tool(marker)):
            pytest.skip(reason)
