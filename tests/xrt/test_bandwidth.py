"""The kernel `bandwidth` on the emulated card, where it only shows that it reads right."""

from __future__ import annotations

import numpy as np
import pytest

from spmv_fpga import bandwidth
from spmv_fpga.bandwidth import measure_bandwidth
from spmv_fpga.errors import DeviceError, SpmvFpgaError, VerificationError
from spmv_fpga.roofline.own_runs import calibrate
from spmv_fpga.runtime import Card


@pytest.mark.xrt
def test_the_checksum_is_right_and_an_emulation_gives_no_bandwidth() -> None:
    found = measure_bandwidth(num_bytes=1 << 16)

    assert (found.mode, found.num_bytes) == ("sw_emu", 65536)
    assert found.time_s.value is None
    assert "sw_emu is no card" in str(found.bytes_per_s.reason)


@pytest.mark.xrt
def test_a_wrong_checksum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: Card, name: str, dtype: object) -> tuple[np.ndarray, float]:
        return np.zeros(16, np.uint32), 0.0

    monkeypatch.setattr(Card, "fetch_port", wrong)

    with pytest.raises(VerificationError, match="checksum"):
        measure_bandwidth(num_bytes=1 << 12)


def test_a_buffer_that_is_no_whole_words_is_refused() -> None:
    with pytest.raises(DeviceError, match="bytes is 100; it must be a multiple of 64"):
        measure_bandwidth(num_bytes=100)


@pytest.mark.xrt
def test_an_emulated_result_does_not_calibrate() -> None:
    found = measure_bandwidth(num_bytes=bandwidth.WORD_BYTES)

    with pytest.raises(SpmvFpgaError, match="no time measured on a card"):
        calibrate([found.to_json()])
