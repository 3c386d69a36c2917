"""`predict`, `roofline` and `paper` with several compute units and with peers."""

from __future__ import annotations

import pytest

TWIN = "twin:ex9"


def test_all_numbers_of_units_are_in_the_document(program):
    outcome = program.here("predict", "--matrix", TWIN, "--cu", "all", "--json")
    assert outcome.status == 0
    candidates, choices = outcome.document["candidates"], outcome.document["choices"]
    assert len(choices) == 6
    assert len(candidates) == sum(choice["max_units"] for choice in choices)
    for choice in choices:
        best = candidates[choice["best_time"]]
        assert best["kernel"] == choice["kernel"]
        assert best["fits"]


def test_the_table_names_the_best_number_of_units_of_each_kernel(program):
    outcome = program.here("predict", "--matrix", TWIN, "--cu", "1,2,4", COLUMNS="200")
    assert outcome.status == 0
    text = " ".join(outcome.stdout.split())
    assert "Best units within what fits: scalar, L 16: 4 for time" in text


def test_one_unit_has_no_column_of_units(program):
    outcome = program.here("predict", "--matrix", TWIN, COLUMNS="200")
    assert " units " not in outcome.stdout


@pytest.mark.parametrize("asked", ["0", "1,", "-1", "many", "1.5"])
def test_a_number_of_units_that_is_none_is_refused(program, asked):
    program.refuse(
        "predict", "--matrix", TWIN, "--cu", asked, names=["--cu", asked], in_process=True
    )


def test_a_picture_may_show_several_numbers_of_units(program):
    words = ("roofline", "--matrix", TWIN, "--cu", "1,8", "-o", "r.svg")
    outcome = program.here(*words)
    assert outcome.status == 0
    picture = (program.cwd / "r.svg").read_text("utf-8")
    assert 'id="roof-access-x8"' in picture
    assert 'id="point-modelled-twin_ex9-lanes-8-x8"' in picture


def test_peers_stand_in_the_document_only_where_asked_for(program, monkeypatch):
    monkeypatch.setattr("spmv_fpga.roofline.paper.table_1", lambda *_: ())  # slow, not of peers
    without = program.here("paper", "--json").document
    document = program.here("paper", "--peers", "--json").document
    assert set(document) - set(without) == {"peers", "peers_assumptions"}
    assert document["peers"][0]["name"] == "TSOPF_RS_b2383"
    assert document["peers"][0]["published"]["time_s"]["value"] == pytest.approx(593.465e-6)


def test_the_table_of_peers_says_its_assumptions(program, monkeypatch):
    monkeypatch.setattr("spmv_fpga.roofline.paper.table_1", lambda *_: ())
    outcome = program.here("paper", "--peers", COLUMNS="220")
    assert outcome.status == 0
    assert "Modelled: this project's kernels on board u50 by calibration u50" in outcome.stdout
    assert "593.5 µs" in outcome.stdout


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" * 100_000 + "]" * 100_000, "nested too deep"),
        ('{"kernel": NaN}', "NaN is no number"),
        ("[]", "no"),
        ('"text"', "no"),
        ('{"kernel": {"name": [], "block": 1, "slice": 1}, "fpga": {"gflops": 1}}', "no"),
    ],
)
def test_a_result_that_is_none_is_refused_by_its_file(program, text, reason):
    program.write("r.json", text)
    for words in (
        ("roofline", "--results", "r.json", "-o", "r.svg"),
        ("roofline", "calibrate", "r.json", "-o", "own.toml"),
    ):
        program.refuse(*words, names=["result" if reason == "no" else reason], in_process=True)
