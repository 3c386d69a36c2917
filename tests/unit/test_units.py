"""SI values become text in one place."""

from __future__ import annotations

import math

import pytest

from spmv_fpga import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.000 s"), (0.001, "1.000 ms"), (999e-6, "999.0 µs"), (2.5e-9, "2.500 ns"),
        (1e-12, "1.000 ps"), (0.9999, "999.9 ms"), (0.99996, "1.000 s"), (3600.0, "3.600 ks"),
        (1e-15, "1.000e-15 s"), (0.0, "0 s"), (-0.002, "-2.000 ms"),
    ],
)  # fmt: skip
def test_a_duration_has_four_digits_and_a_prefix(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("scale", "prefix"),
    [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"),
     (1e-9, "n"), (1e-12, "p")],
)  # fmt: skip
def test_every_prefix_is_its_power_of_ten(scale, prefix):
    assert units.si(2 * scale, "B/s") == f"2.000 {prefix}B/s"


def test_what_is_not_known_is_a_dash():
    for write in (units.seconds, units.joules, units.watts, units.hertz, units.gflops,
                  units.bytes_text, units.percent):  # fmt: skip
        assert write(None) == "-"


def test_what_is_not_finite_is_written_as_it_is():
    assert units.seconds(math.inf) == "inf s"
    assert units.seconds(math.nan) == "nan s"


def test_energy_power_and_clock_have_their_units():
    assert units.joules(0.0125) == "12.50 mJ"
    assert units.watts(17.42381) == "17.42 W"
    assert units.hertz(300e6) == "300.0 MHz"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"), (2**20, "1.0 MiB"),
     (268435456, "256.0 MiB"), (2**30, "1.0 GiB"), (2**40, "1.0 TiB"),
     (2**60, "1048576.0 TiB")],
)  # fmt: skip
def test_sizes_have_binary_prefixes(size, text):
    assert units.bytes_text(size) == text
