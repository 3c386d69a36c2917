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
def test_the_checksum_is_right_and_the_emulated_bandwidth_is_that_of_a_channel() -> None:
    found = measure_bandwidth(num_bytes=1 << 16)

    assert (found.mode, found.num_bytes) == ("sw_emu", 65536)
    assert found.time_s.origin == found.bytes_per_s.origin == "emulated"
    # 1,024 words at 12.5 GB/s are 1,573 cycles of 300 MHz; the rest is latency.
    assert found.time_s.value == pytest.approx((1573 + 193) / 300e6, rel=1e-3)


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
