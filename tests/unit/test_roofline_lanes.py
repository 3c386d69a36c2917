"""The model of kernel lanes: counts by hand, units, rounds of y, and published times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scipy.sparse import csr_array, eye_array

from spmv_fpga import load_matrix
from spmv_fpga.boards import load_board
from spmv_fpga.codegen import render_project
from spmv_fpga.design_fit import max_units
from spmv_fpga.errors import SpmvFpgaError
from spmv_fpga.formats import format_stats
from spmv_fpga.roofline.calibration import load_calibration
from spmv_fpga.roofline.model import (
    PANEL_CYCLES,
    busy_lanes_power_w,
    predict_one,
    published_workload,
    roofs,
    workload,
)
from spmv_fpga.roofline.peers import compare_peers
from spmv_fpga.roofline.predict import default_y_room, predict

U50, KNOWN = load_board("u50"), load_calibration("u50")


def test_published_counts_are_six_bytes_an_entry_and_two_a_row_of_each_panel():
    work = published_workload("lanes", 38120, 16171169, 1.0, KNOWN)
    pieces = -(-3 * 38120 // 128) * 128
    assert (work.num_panels, work.num_chunks) == (3, pieces // 128)
    assert work.matrix_bytes == 6 * 16171169 + 2 * pieces
    assert work.accesses == 3 + -(-work.matrix_bytes // 64)
    assert work.depth == work.parameter == 8


def test_time_is_x_panels_and_y_in_turn_and_the_longer_of_words_and_slots():
    work = published_workload("lanes", 38120, 16171169, 1.0, KNOWN)
    terms = predict_one(work, KNOWN).terms
    words_per_s = 12.5e9 / 64
    assert terms == {
        "launch": 1e-4,
        "x": pytest.approx(2 * 2383 / 300e6),
        "fill": pytest.approx(200 / 300e6),
        "panels": pytest.approx(3 * PANEL_CYCLES / 300e6),
        "channel": pytest.approx(work.accesses / words_per_s),
        "y": pytest.approx(2 * 2383 / 300e6),
    }


def test_every_unit_has_a_last_chunk_that_is_half_empty_in_every_panel():
    one = published_workload("lanes", 38120, 16171169, 1.0, KNOWN)
    many = published_workload("lanes", 38120, 16171169, 1.0, KNOWN, 23)
    half_chunks = 22 * 3 / 2
    words_of_a_chunk = one.accesses / one.num_chunks
    assert many.accesses == pytest.approx(
        one.accesses + half_chunks * words_of_a_chunk, rel=1e-4
    )
    assert 23 * many.share(23).accesses == pytest.approx(many.accesses, abs=23)
    assert many.share(23).num_panels == 3


def test_units_pass_the_panels_that_their_entries_touch():
    A = load_matrix("gallery:banded:n=100000,bandwidth=3")
    one, nine = predict(A, blocks=(), slices=(), depths=(8,), compute_units=(4, 9)).candidates
    assert -(-100_000 // 16384) == 7
    assert (one.workload.num_panels, nine.workload.num_panels) == (3, 2)
    assert nine.terms["x"] < one.terms["x"]


def test_a_room_for_y_that_is_given_decides_the_rounds():
    A = csr_array(eye_array(70_000, dtype="float32"))
    (found,) = predict(A, blocks=(), slices=(), depths=(8,), y_room=lambda _: 8192).candidates
    assert found.workload.launches == 12  # 6,144 rows beside the words for long rows


def test_words_are_those_that_the_format_stores():
    A = csr_array(eye_array(40000, dtype="float32"))
    (stats,) = format_stats(A, blocks=[], slices=[], depths=[8])
    work = workload(stats, A.shape, KNOWN)
    assert (work.accesses, work.num_stored, work.num_panels) == (stats.num_words, 40064, 3)


def test_the_compute_roof_is_sixteen_products_a_cycle():
    assert roofs(KNOWN, "lanes", 8).compute_gflops == pytest.approx(2 * 16 * 0.3)
    assert busy_lanes_power_w(KNOWN, 8, 23) < 75 < busy_lanes_power_w(KNOWN, 8, 28)


@pytest.mark.parametrize("units", [1, 8, 9, 23])
def test_the_room_for_y_is_the_kernels(units):
    rendered = render_project("lanes", {}, U50, compute_units=units).parameters
    assert default_y_room(units) == rendered["y_room"]


def test_rows_that_y_has_no_room_for_are_rounds():
    A = csr_array(eye_array(100_000, dtype="float32"))
    found = predict(A, blocks=(), slices=(), depths=(8,), compute_units=(1, 8))
    one, eight = found.candidates
    assert (one.workload.launches, eight.workload.launches) == (4, 1)  # 30,720 rows a round
    assert one.terms["launch"] == 4 * eight.terms["launch"]
    # A unit loads the panels that its entries touch, in every round; y is written once.
    assert (one.workload.num_panels, eight.workload.num_panels) == (4 * 3, 2)
    assert one.workload.x_words == pytest.approx(6 * eight.workload.x_words, rel=1e-3)
    assert one.workload.y_words == eight.workload.y_words


def test_a_calibration_without_the_kernel_has_no_such_candidate():
    found = predict("twin:ex9", calibration="paper")
    assert "lanes" not in {c.workload.kernel for c in found.candidates}
    with pytest.raises(SpmvFpgaError, match="calibration paper does not know kernel lanes"):
        predict("twin:ex9", calibration="paper", depths=(8,))
    without = replace(KNOWN, kernels={k: v for k, v in KNOWN.kernels.items() if k != "lanes"})
    assert "lanes" not in {
        c.workload.kernel for c in predict("twin:ex9", calibration=without).candidates
    }


def test_dense_matrices_are_modelled_half_again_as_fast_as_published():
    units = max_units("lanes", {}, U50)
    rows = compare_peers(
        cards=["u50"],
        max_units=lambda kernel, _: units if kernel == "lanes" else 16,
    ).rows
    faster = {
        row.peer.name: row.peer.time_s / row.repeated_time_s.value
        for row in rows
        if row.peer.name in ("TSOPF_RS_b2383", "nd6k", "crankseg_2", "thread")
    }
    assert len(faster) == 4
    assert min(faster.values()) >= 1.5
