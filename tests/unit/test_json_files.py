"""JSON from outside: what is no JSON, or would surprise later, is refused with its file."""

from __future__ import annotations

import os

import pytest

from spmv_fpga.errors import SensorError, SpmvFpgaError
from spmv_fpga.json_files import parse_json, read_json


def test_a_document_is_read(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('\ufeff{"a": [1, -2.5e3, "\\ud83d\\ude00", null, true]}', "utf-8")
    assert read_json(path) == {"a": [1, -2500.0, "\U0001f600", None, True]}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "line 1"),
        ('{"a":\n\n1,}', "line 3"),
        ("[NaN]", "NaN is no number"),
        ("[-Infinity]", "-Infinity is no number"),
        ("[1e999]", "the number 1e999 is too large"),
        ("[" + "9" * 309 + "]", "a number of 309 digits is too large"),
        ("[-1" + "0" * 9999 + "]", "digits is too large"),
        ('["\\ud800"]', "half a character"),
        ('{"\\udc00": 1}', "half a character"),
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"a":' * 100_000 + "1" + "}" * 100_000, "nested too deep"),
    ],
)
def test_what_is_no_json_is_refused_with_its_place(text, reason):
    with pytest.raises(SensorError) as refused:
        parse_json(text, "a.json", SensorError)
    assert str(refused.value).startswith("a.json: is no JSON document: ")
    assert reason in str(refused.value)


def test_the_largest_whole_number_fits_a_float64():
    assert parse_json("9" * 308, "a.json") == int("9" * 308)
    assert float(parse_json("9" * 308, "a.json")) < float("inf")


def test_a_file_that_is_no_text_is_refused(tmp_path):
    (tmp_path / "a.json").write_bytes(b"[1, \xff]")
    with pytest.raises(SpmvFpgaError, match=r"a\.json: .* byte 4 is no UTF-8"):
        read_json(tmp_path / "a.json")


def test_what_cannot_be_read_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for name in ("pipe", "lost", "."):
        with pytest.raises(SpmvFpgaError, match="cannot be read"):
            read_json(tmp_path / name)
