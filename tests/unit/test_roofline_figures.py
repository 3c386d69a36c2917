"""The data behind the pictures: what stands where, and that no label hides another."""

from __future__ import annotations

import html
import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from scipy.sparse import random_array

import spmv_fpga
from spmv_fpga import kernels
from spmv_fpga.errors import KernelSpecError, SpmvFpgaError
from spmv_fpga.kernels import kernel_names
from spmv_fpga.roofline import canvas, drawings
from spmv_fpga.roofline.calibration import load_calibration
from spmv_fpga.roofline.drawings import (
    DataFlow,
    Stream,
    data_flow,
    example_matrix,
    figure_2,
    figure_3,
    plan_of,
)
from spmv_fpga.roofline.figures import (
    FIGURE_5_MATRICES,
    figure_1,
    figure_4,
    figure_5,
    figure_6,
    roofline_figure,
    unit_roofs,
)
from spmv_fpga.roofline.labels import Anchor, Box, place_labels
from spmv_fpga.roofline.model import energy_lines, predict_one, published_workload
from spmv_fpga.roofline.page import draw_pictures, render_page, write_paper
from spmv_fpga.roofline.paper import TABLES, reproduce
from spmv_fpga.roofline.peers import compare_peers
from spmv_fpga.roofline.points import Point, model_points, paper_points, run_point, timed_points
from spmv_fpga.roofline.predict import busy_power_w, predict

SLOPE = 0.1953125  # 12.5 GB/s in words of 64 bytes, in giga-accesses a second
PEAK = 0.6  # one product a cycle at 300 MHz
ROOF = 9.6  # sixteen products


@pytest.fixture(scope="module")
def result():
    return reproduce(with_densities=False)


@pytest.fixture(scope="module")
def paper(result):
    return result.calibration


@pytest.fixture(scope="module")
def points(result):
    return paper_points(result)


@pytest.fixture(scope="module")
def pictures(paper, points):
    return {
        "1": figure_1(paper),
        "4": figure_4(paper),
        "5": figure_5(points, paper),
        "6": figure_6(points, paper),
        "own": roofline_figure(own_points(), load_calibration("u50")),
    }


def own_points():
    """A matrix in this project's kernels, with tiles of every width."""
    found = predict(random_array((900, 900), density=0.02, rng=1).tocsr(), calibration="u50")
    return [p for candidate in found.candidates for p in model_points("own", candidate)]


def artist(figure, gid):
    """The one artist with this name."""
    found = figure.findobj(lambda a: a.get_gid() == gid)
    assert len(found) == 1, gid
    return found[0]


def texts(figure, start):
    """All texts whose name begins like this, and the pixels that each covers."""
    found = figure.findobj(lambda a: (a.get_gid() or "").startswith(start))
    return [t.get_text() for t in found], [Box.of(extent(t)) for t in found]


def extent(text):
    """The pixels of a text alone, without the line to its point."""
    if isinstance(text, mpl.text.Annotation):
        text.update_positions(text.figure.canvas.get_renderer())
    return mpl.text.Text.get_window_extent(text)


def line_of(figure, gid):
    return np.column_stack(artist(figure, gid).get_data())


# Roofs, lines, zones


@pytest.mark.parametrize("number", ["4", "5", "6"])
def test_the_access_roof_is_a_line_of_the_channels_accesses_up_to_the_ridge(pictures, number):
    x, y = line_of(pictures[number], "roof-access-0").T
    assert y / x == pytest.approx(SLOPE)
    assert (x[-1], y[-1]) == pytest.approx((49.152, ROOF))


def test_the_compute_roof_goes_right_from_the_ridge(pictures):
    (start, end) = line_of(pictures["4"], "roof-block16")
    assert start == pytest.approx((49.152, ROOF))
    assert end == pytest.approx((pictures["4"].axes[0].get_xlim()[1], ROOF))


def test_each_width_of_tiles_has_its_compute_roof(pictures):
    assert line_of(pictures["6"], "roof-block8")[:, 1] == pytest.approx(ROOF / 2)
    assert line_of(pictures["6"], "roof-block16")[:, 1] == pytest.approx(ROOF)


def test_the_two_energy_lines_lie_p2_over_p1_apart(pictures, paper):
    lines = energy_lines(paper)
    p1, p2 = (line_of(pictures["4"], name)[:, 1] for name in ("line-p1", "line-p2"))
    assert p1 == pytest.approx(PEAK)
    assert p2 / p1 == pytest.approx(lines.block_power_w / lines.scalar_power_w)


def test_the_least_cia_for_energy_is_where_the_second_line_meets_the_access_roof(pictures):
    ((x, _), (_, y)) = line_of(pictures["4"], "line-min-cia")
    assert y == line_of(pictures["4"], "line-p2")[0, 1]
    assert x == pytest.approx(y / SLOPE)


def test_the_red_zone_lies_between_the_lines_and_under_the_access_roof(pictures, paper):
    equal = energy_lines(paper).equal_energy_gflops
    corners = artist(pictures["4"], "zone-red").get_xy()
    right = pictures["4"].axes[0].get_xlim()[1]
    assert corners[:4] == pytest.approx(
        np.array([(PEAK / SLOPE, PEAK), (right, PEAK), (right, equal), (equal / SLOPE, equal)])
    )


def test_the_green_zone_lies_above_the_second_line_and_under_both_roofs(pictures, paper):
    equal = energy_lines(paper).equal_energy_gflops
    corners = artist(pictures["4"], "zone-green").get_xy()
    right = pictures["4"].axes[0].get_xlim()[1]
    assert corners[:4] == pytest.approx(
        np.array([(equal / SLOPE, equal), (right, equal), (right, ROOF), (49.152, ROOF)])
    )


def test_the_zones_are_told_apart_without_colour(pictures):
    red, green = (artist(pictures["4"], f"zone-{name}") for name in ("red", "green"))
    assert red.get_hatch() == "////"
    assert green.get_hatch() is None


def test_figure_1_parts_memory_bound_from_compute_bound_at_the_ridge(pictures):
    ridge = 9.6 / 12.5
    memory, compute = (artist(pictures["1"], f"zone-{n}") for n in ("memory", "compute"))
    assert memory.get_x() + memory.get_width() == pytest.approx(ridge)
    assert compute.get_x() == pytest.approx(ridge)
    assert line_of(pictures["1"], "roof")[1] == pytest.approx((ridge, ROOF))
    ((x, y),) = line_of(pictures["1"], "algorithm-1")
    assert x < ridge
    assert y == pytest.approx(12.5 * x)


def test_roofs_of_one_height_are_named_once(pictures):
    names, _ = texts(pictures["own"], "text-compute_roof")
    assert names == ["compute roof Block 4×4, 8×8, 16×16, 32×32: 9.6 GFLOP/s"]


# Points


def test_a_published_time_is_a_filled_point_and_a_modelled_one_is_open(pictures):
    figure = pictures["5"]
    published = artist(figure, "point-published-TS2383-block-16")
    modelled = artist(figure, "point-modelled-TS2383-block-16")
    assert published.get_xydata()[0] == pytest.approx((22.7199, 4.45917), rel=1e-4)
    assert (published.get_fillstyle(), modelled.get_fillstyle()) == ("full", "none")
    assert published.get_xydata()[0, 0] == modelled.get_xydata()[0, 0]


def test_block_max_counts_the_padding_as_useful(pictures):
    most = artist(pictures["5"], "point-published-TS2383-block_max-16").get_xydata()[0]
    assert most == pytest.approx((32.0, 88970 * 256 * 2 / 7.253e-3 / 1e9))


def test_scalar_of_the_paper_has_two_flop_an_access(pictures):
    x, y = artist(pictures["5"], "point-published-chipC0-scalar-16").get_xydata()[0]
    assert (x, y) == pytest.approx((2.0, 2 * 281150 / 1.576e-3 / 1e9))


def test_figure_5_holds_three_matrices_and_figure_6_all(pictures, points):
    assert sorted(texts(pictures["5"], "label-")[0]) == sorted(3 * FIGURE_5_MATRICES)
    assert sorted(texts(pictures["6"], "label-")[0]) == sorted({p.name for p in points})
    assert len({p.name for p in points}) == 27


def test_a_printed_density_is_a_bar_of_half_a_per_cent_to_each_side(pictures):
    left, right = line_of(pictures["5"], "bounds-published-chipC0-block-16")[:, 0]
    x = artist(pictures["5"], "point-published-chipC0-block-16").get_xydata()[0, 0]
    assert (left / x, right / x) == pytest.approx((0.5, 1.5), rel=1e-3)


def test_four_narrow_tiles_in_each_wide_one_have_half_the_cia(points):
    by_key = {
        (p.parameter, p.origin): p for p in points if p.name == "nd6k" and p.series == "block"
    }
    narrow = by_key[8, "modelled"]
    assert narrow.is_least
    assert narrow.cia == pytest.approx(by_key[16, "modelled"].cia / 2)
    assert narrow.gflops < by_key[16, "modelled"].gflops


@pytest.mark.shared_data
def test_the_narrow_tiles_of_a_matrix_at_hand_are_counted(result, shared_data):
    found = paper_points(result, shared_data / "matrices")
    (ex9,) = (p for p in found if p.name == "ex9" and p.parameter == 8)
    assert not ex9.is_least
    assert ex9.cia == pytest.approx(2 * 51417 / (2454 * 8))


def run_document(gflops, **kernel):
    facts = {"name": "block", "block": 16, "slice": None, "num_stored": 512, "bytes": 2112}
    return {
        "matrix": {"name": "eye", "nnz": 32},
        "kernel": {**facts, **kernel},
        "fpga": {"gflops": gflops},
    }


def test_a_run_is_a_point_at_its_own_accesses():
    document = run_document({"value": 0.5, "origin": "emulated"})
    of_words = run_point(document, load_calibration("u50"))
    of_values = run_point(document, load_calibration("paper"))
    assert (of_words.cia, of_words.gflops, of_words.origin) == (64 / 33, 0.5, "emulated")
    assert of_values.cia == 64 / 32


def lanes_point(depth=8):
    kernel = {"name": "lanes", "block": None, "depth": depth, "num_stored": 128, "bytes": 1088}
    document = run_document({"value": 0.5, "origin": "emulated"}, **kernel)
    return run_point(document, load_calibration("u50"))


def test_a_run_of_lanes_is_a_point_at_the_words_of_its_stream():
    point = lanes_point(16)
    assert (point.series, point.parameter, point.cia) == ("lanes", 16, 64 / 17)


def test_a_calibration_that_does_not_know_lanes_has_no_point_of_it(paper):
    kernel = {"name": "lanes", "depth": 8}
    with pytest.raises(SpmvFpgaError, match="calibration paper does not know kernel lanes"):
        run_point(run_document({"value": 0.5, "origin": "emulated"}, **kernel), paper)


def test_each_kernel_has_a_mark_of_its_own(pictures):
    figure = pictures["own"]
    marks = [
        artist(figure, f"point-modelled-own-{name}").get_marker()
        for name in ("scalar-16", "block-4", "block-8", "block-16", "block-32", "lanes-8")
    ]
    deep = roofline_figure([lanes_point(16)], load_calibration("u50"))
    marks.append(artist(deep, "point-emulated-eye-lanes-16").get_marker())
    assert len(set(marks)) == 7
    assert not {"D", "v"} & set(marks)  # BlockMax, the ridge
    legend = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert legend.index("Lanes depth 8, modelled") == 5


def test_lanes_adds_no_roof_and_the_caption_says_which_it_has():
    own = load_calibration("u50")
    figure = roofline_figure([lanes_point()], own)
    assert not figure.findobj(lambda a: a.get_gid() == "roof-block8")
    caption = figure.texts[0].get_text().replace("\n", " ")
    watts = busy_power_w("lanes", 8, own, 1)
    assert (
        f"Lanes has the same roofs; an access is 64 bytes, its power {watts:.3g} W" in caption
    )


def test_an_emulated_point_is_half_filled(paper):
    point = run_point(run_document({"value": 0.5, "origin": "emulated"}), paper)
    figure = roofline_figure([point], paper)
    assert artist(figure, "point-emulated-eye-block-16").get_fillstyle() == "left"


def test_a_run_without_a_time_of_the_card_is_no_point(paper):
    assert (
        run_point(run_document({"value": None, "origin": None, "reason": "x"}), paper) is None
    )


def test_a_document_that_is_no_run_is_refused(paper):
    with pytest.raises(SpmvFpgaError, match="no run of this program: 'kernel'"):
        run_point({"matrix": {}}, paper)


@pytest.mark.parametrize("wrong", [{"gflops": 0.0}, {"cia": float("inf")}, {"series": "csr"}])
def test_a_point_that_has_no_place_is_refused(wrong):
    right = {"name": "a", "series": "block", "parameter": 16, "cia": 1.0, "gflops": 1.0}
    with pytest.raises(SpmvFpgaError, match=next(iter(wrong))):
        Point(**{**right, "origin": "modelled", **wrong})


def test_a_matrix_without_entries_has_no_points(paper):
    work = published_workload("scalar", 5, 0, 1.0, paper)
    assert timed_points("none", work, 1e-3, "published") == []
    assert model_points("none", predict_one(work, paper)) == []


# Text


@pytest.mark.parametrize("number", ["1", "4", "5", "6", "own"])
def test_no_two_texts_of_a_picture_overlap_and_none_leaves_the_axes(pictures, number):
    figure = pictures[number]
    (axes,) = figure.axes
    upright = [
        Box.of(extent(t))
        for t in figure.findobj(mpl.text.Annotation)
        if t.get_text() and not t.get_rotation()
    ]
    legend = axes.get_legend()
    boxes = [*upright, *([Box.of(legend.get_window_extent())] if legend else [])]
    room = Box.of(axes.get_window_extent())
    assert len(boxes) > 5
    assert all(room.contains(box) for box in boxes)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


@pytest.mark.parametrize("number", ["5", "6"])
def test_no_name_covers_a_point(pictures, number):
    figure = pictures[number]
    to_pixels = figure.axes[0].transData.transform
    lines = figure.findobj(lambda a: (a.get_gid() or "").startswith("point-"))
    pixels = [to_pixels(line.get_xydata()[0]) for line in lines if line.get_markersize() > 4]
    assert len(pixels) > 10
    for box in texts(figure, "label-")[1]:
        assert not any(box.overlaps(Box.around(x, y, 1.0)) for x, y in pixels)


def test_equal_points_get_labels_side_by_side(paper):
    twins = [
        Point(
            name=f"m{i}", series="block", parameter=16, cia=10.0, gflops=1.0, origin="measured"
        )
        for i in range(12)
    ]
    _, boxes = texts(roofline_figure(twins, paper), "label-")
    assert len(boxes) == 12
    assert not any(a.overlaps(b) for a, b in itertools.combinations(boxes, 2))


def test_a_label_without_room_is_reported_and_not_drawn():
    with canvas.style():
        figure = canvas.new_figure(1.0, 1.0)
        axes = figure.add_axes((0.1, 0.1, 0.8, 0.8))
        written, left_out = place_labels(
            axes, [Anchor("a name that is much wider", 0.5, 0.5)], font_pt=8, color="black"
        )
    assert (written, left_out) == ([], ["a name that is much wider"])


def test_a_dollar_in_a_name_is_a_dollar(paper):
    point = Point(
        name="a$x_1$", series="block", parameter=16, cia=9, gflops=1, origin="measured"
    )
    figure = roofline_figure([point], paper)
    assert texts(figure, "label-")[0] == ["a$x_1$"]
    assert not figure.findobj(mpl.text.Annotation)[0].get_parse_math()


def test_every_text_is_large_enough_to_read(pictures):
    for figure in (*pictures.values(), figure_2(), figure_3()):
        sizes = [t.get_fontsize() for t in figure.findobj(mpl.text.Text) if t.get_text()]
        assert min(sizes) >= 8


def test_the_axes_name_their_units_and_the_caption_its_calibration(pictures):
    (axes,) = pictures["4"].axes
    assert axes.get_xlabel() == "CIA: computational intensity per access (useful flop)"
    assert axes.get_ylabel() == "Performance (GFLOP/s)"
    caption = pictures["4"].texts[0].get_text().replace("\n", " ")
    assert caption.startswith("Lines and zones are modelled: calibration paper, the kernels of")


def test_the_lines_of_energy_are_named_after_the_peak_and_p1_and_p2_are_powers(pictures):
    figure = pictures["4"]
    shown = [t.get_text() for t in figure.findobj(mpl.text.Annotation)]
    assert "peak of Scalar: 0.6 GFLOP/s" in shown
    assert any(text.startswith("P2/P1 × peak of Scalar: ") for text in shown)
    caption = figure.texts[0].get_text().replace("\n", " ")
    assert re.search(r"Power of Scalar P1 = [\d.]+ W, of Block P2 = [\d.]+ W", caption)


def test_the_caption_says_what_filled_and_open_points_are(pictures):
    caption = pictures["5"].texts[0].get_text().replace("\n", " ")
    assert "Filled points are published. Open points are modelled." in caption
    assert "CIA has two scales: an access of Scalar is 4 bytes, one of Block 64" in caption


def test_another_calibration_draws_its_own_roofs():
    slower = load_calibration("u50").with_clock(1e8)
    figure = roofline_figure([], slower, blocks=(4,), compute_units=2)
    assert line_of(figure, "line-p1")[0, 1] == pytest.approx(2 * 2 * 0.1)
    assert "2 compute units" in figure.texts[0].get_text().replace("\n", " ")


# Several compute units


@pytest.fixture(scope="module")
def own():
    return load_calibration("u50")


@pytest.fixture(scope="module")
def many(own):
    return roofline_figure([], own, compute_units=(1, 4, 16), power_cap_w=45.0)


@pytest.mark.parametrize(("number", "clock_ghz"), [(4, 0.3), (16, 0.225)])
def test_the_roofs_of_more_units_are_so_many_times_higher(many, number, clock_ghz):
    x, y = line_of(many, f"roof-access-x{number}").T
    assert y / x == pytest.approx(number * SLOPE)
    assert line_of(many, f"roof-block-x{number}")[:, 1] == pytest.approx(
        number * 32 * clock_ghz
    )


def test_the_lines_of_energy_are_those_of_the_fewest_units(many, own):
    assert line_of(many, "line-p1")[0, 1] == pytest.approx(energy_lines(own).scalar_gflops)


def test_power_along_the_line_of_the_cap_is_the_cap(many, own):
    power = own.kernel("block").power
    x, y = line_of(many, "cap-x16").T
    bytes_per_s = 64e9 * y / x
    watts = power.idle_w.value + power.kernel_w.value + 16 * power.unit_w.value
    assert watts + power.w_per_byte_per_s.value * bytes_per_s == pytest.approx(45)
    assert (y / x < 16 * SLOPE).all()


def test_no_cap_is_drawn_where_the_access_roof_is_lower(many):
    assert many.findobj(lambda a: a.get_gid() in ("cap-x1", "cap-x4")) == []


def test_the_caption_says_what_more_units_take(many, own):
    caption = many.texts[0].get_text().replace("\n", " ")
    watts = unit_roofs(own, 16, 4).power_w
    assert f"Grey: roofs of more units, with their P2, 4: {watts:.3g} W, 16:" in caption
    assert "Dotted: power reaches the cap of 45 W, with 16 units" in caption


def test_units_that_pass_the_cap_without_traffic_have_no_line_and_are_named(own):
    figure = roofline_figure([], own, compute_units=(1, 40), power_cap_w=30.0)
    caption = figure.texts[0].get_text().replace("\n", " ")
    assert unit_roofs(own, 16, 40, 30.0).capped_accesses_per_s == 0
    assert "With 40 units it is above the cap of 30 W even without traffic" in caption
    assert figure.findobj(lambda a: (a.get_gid() or "").startswith("cap-")) == []


def test_a_card_without_a_cap_has_no_line(own):
    figure = roofline_figure([], own, compute_units=(1, 40))
    assert figure.findobj(lambda a: (a.get_gid() or "").startswith("cap-")) == []


def test_each_number_of_units_has_its_points_and_names():
    found = predict("twin:ex9", blocks=(16,), slices=(), depths=(), compute_units=(1, 4))
    points = [p for c in found.candidates for p in model_points("ex9", c)]
    assert [p.label for p in points] == ["ex9", "ex9 ×4"]
    figure = roofline_figure(points, load_calibration("u50"), compute_units=(1, 4))
    artist(figure, "point-modelled-ex9-block-16")
    artist(figure, "point-modelled-ex9-block-16-x4")


# Drawings of formats and data flow


def test_figure_2_draws_every_slot_of_both_formats():
    figure = figure_2()
    padding = figure.findobj(lambda a: (a.get_gid() or "").startswith("padding-"))
    # 20 slots of sliced ELL hold 15 entries, thrice drawn; 48 of Blocked ELL hold them once.
    assert example_matrix().nnz == 15
    assert len(padding) == 3 * (20 - 15) + (48 - 15)


def test_the_data_flow_is_that_of_the_source():
    flow = data_flow("block")
    ends = {s.name: (flow.processes[s.writer], flow.processes[s.reader]) for s in flow.streams}
    assert ends["values"] == ("unpack", "multiply")
    assert ends["marks"] == ("unpack", "deal")
    assert ends["y_words"] == ("collect_block_rows", "write_y")
    assert {name: flow.processes[i] for name, i in flow.ports.items()} == {
        "matrix": "read_inputs",
        "x": "read_inputs",
        "y": "write_y",
    }
    assert flow.outputs == ("y",)
    assert ends["x_words"] == ("read_inputs", "gather_x")
    depths = {s.name: s.depth for s in flow.streams}
    assert (depths["words"], depths["values"]) == ("32", "kValueDepth")


@pytest.mark.parametrize("kernel", kernel_names())
def test_no_two_nodes_of_a_data_flow_cover_each_other(kernel):
    figure = figure_3(kernel)
    flow = data_flow(kernel)
    figure.canvas.draw()
    nodes = [
        Box.of(t.get_bbox_patch().get_window_extent())
        for t in figure.findobj(mpl.text.Text)
        if t.get_bbox_patch() is not None
    ]
    assert len(nodes) == len(flow.processes) + len(flow.streams) + len(flow.ports)
    assert not any(a.overlaps(b) for a, b in itertools.combinations(nodes, 2))
    width, height = figure.get_size_inches() * figure.dpi
    assert all(Box(0, 0, width, height).contains(node) for node in nodes)


@pytest.mark.parametrize("kernel", kernel_names())
def test_no_line_of_a_data_flow_crosses_a_box(kernel):
    figure = figure_3(kernel)
    figure.canvas.draw()
    (axes,) = figure.axes
    boxes = [
        t.get_bbox_patch().get_window_extent().padded(-2)
        for t in figure.findobj(mpl.text.Text)
        if t.get_bbox_patch() is not None
    ]
    parts = [
        mpl.path.Path(part)
        for line in axes.lines
        for part in itertools.pairwise(axes.transData.transform(line.get_xydata()))
    ]
    assert len(parts) > len(data_flow(kernel).streams)
    assert not any(part.intersects_bbox(box, filled=False) for part in parts for box in boxes)


def test_many_streams_that_pass_a_process_take_both_sides():
    passing = [(0, 2), (0, 3), (1, 3), (1, 4), (2, 5), (0, 5)]
    next_to = [(i, i + 1) for i in range(5)]
    streams = [Stream(f"s{i}", "float", "2", *ends) for i, ends in enumerate(passing + next_to)]
    flow = DataFlow("none", tuple("abcdef"), tuple(streams), {}, ())
    columns = [column for column, _ in plan_of(flow).streams[: len(passing)]]
    assert len(set(columns)) == 6
    assert sum(column < 0 for column in columns) == 3


def test_a_stream_that_passes_a_process_goes_round_it():
    flow = data_flow("block")
    plan = plan_of(flow)
    place = dict(zip((s.name for s in flow.streams), plan.streams, strict=True))
    rightmost = max(place["values"][0], place["marks"][0])
    assert rightmost < min(column for column, _ in plan.processes)
    assert place["values"][0] != place["marks"][0]


def test_a_stream_with_one_end_is_refused(tmp_path, monkeypatch):
    (tmp_path / "block").mkdir()
    (tmp_path / "block" / "block.hpp").write_text(
        "SPMV_STREAM(word_t, words, 16);\nSPMV_PROCESS(read_matrix, matrix, words, n);\n"
    )
    monkeypatch.setattr(kernels, "data_dir", lambda name: tmp_path)
    monkeypatch.setattr(drawings, "read_header", kernels.read_header.__wrapped__)
    with pytest.raises(
        KernelSpecError, match="stream words is used by 1 processes; it must join"
    ):
        data_flow.__wrapped__("block")


# Files


@pytest.mark.parametrize(
    ("ending", "magic"), [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_a_picture_is_written_in_the_format_of_its_ending(pictures, tmp_path, ending, magic):
    path = canvas.save(pictures["4"], tmp_path / f"roofline.{ending}")
    assert path.read_bytes().startswith(magic)
    assert [p.name for p in tmp_path.iterdir()] == [f"roofline.{ending}"]


def test_another_ending_is_refused(pictures, tmp_path):
    with pytest.raises(
        SpmvFpgaError, match=r"ends in \.jpg; it must end in \.svg, \.png or \.pdf"
    ):
        canvas.save(pictures["4"], tmp_path / "roofline.jpg")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_a_refusal(pictures, tmp_path):
    with pytest.raises(SpmvFpgaError, match="cannot be written: No such file"):
        canvas.save(pictures["4"], tmp_path / "none" / "roofline.svg")


@pytest.mark.parametrize("ending", canvas.FORMATS)
def test_the_same_data_give_the_same_file(paper, ending):
    assert canvas.to_bytes(figure_4(paper), ending) == canvas.to_bytes(figure_4(paper), ending)


def test_the_users_settings_neither_change_a_picture_nor_are_changed(paper):
    before = canvas.to_bytes(figure_4(paper), ".svg")
    with mpl.rc_context({"font.size": 30.0, "axes.facecolor": "black"}):
        assert canvas.to_bytes(figure_4(paper), ".svg") == before
        assert mpl.rcParams["font.size"] == 30.0


# The page


@pytest.fixture(scope="module")
def page(result):
    return render_page(result, draw_pictures(result))


def test_the_page_loads_nothing(page):
    # Names of XML vocabularies look like addresses; nobody fetches them.
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    without_names = re.sub(r"<metadata>.*?</metadata>", "", without_names, flags=re.DOTALL)
    assert not re.search(r"https?://|<script|<link|<img|@import", without_names)


def test_every_id_of_the_page_is_there_once_and_every_reference_has_its_target(page):
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    targets = re.findall(r'href="#([^"]+)"', page) + re.findall(r"url\(#([^)]+)\)", page)
    assert len(targets) > 100
    assert set(targets) <= set(ids)


def test_the_page_says_what_was_found_and_shows_each_matrix(page, result):
    text = re.sub(r"<[^>]+>", " ", page)
    assert all(sentence in text for sentence in result.summary["sentences"])
    row = re.search(r"<tr><td>TS2383</td>.*?</tr>", page.split('id="table2-time"')[1])
    cells = re.findall(r">([\d.]+)<", row[0])
    assert (cells[0], cells[1], cells[5]) == ("6.411", "54.543", "7.253")
    assert (cells[4], cells[8]) == ("53.928", "7.330")  # emulated
    assert page.count("<figure id=") == 7


def test_the_page_shows_every_parameter_with_its_source(page, paper):
    for term in paper.kernel("block").terms:
        assert f"block: {term.name}, × {term.count}" in page
    assert "XRT PR 5184" in page


def test_the_page_has_a_table_of_peers_only_where_they_are_given(result, page):
    peers = compare_peers(cards=["u50"], max_units=12)
    with_peers = render_page(result, (), peers)
    assert 'id="peers"' not in page
    assert peers.assumptions in html.unescape(with_peers)
    assert "MAD-HiSpMV, U50" in with_peers
    assert "block 16, 12 units" in with_peers
    assert with_peers.count("<td>mouse_gene</td>") == 1


def test_a_name_from_a_file_is_text_on_the_page(tmp_path):
    table = tmp_path / "tables.csv"
    table.write_text(TABLES.read_text("utf-8").replace("\nTS2383,", "\n<i>TS</i>&,"), "utf-8")
    page = render_page(reproduce(table, with_densities=False), ())
    assert "&lt;i&gt;TS&lt;/i&gt;&amp;" in page
    assert "<i>TS" not in page


def test_the_page_and_its_figures_are_written_into_a_new_folder(result, tmp_path, monkeypatch):
    monkeypatch.setattr("spmv_fpga.roofline.page.draw_pictures", lambda *_: ())
    files = write_paper(result, tmp_path / "new" / "out")
    assert [p.name for p in files] == ["paper.html"]
    assert Path(files[0]).read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_folder_that_cannot_be_made_is_a_refusal(result, tmp_path, monkeypatch):
    monkeypatch.setattr("spmv_fpga.roofline.page.draw_pictures", lambda *_: ())
    (tmp_path / "file").write_text("")
    with pytest.raises(SpmvFpgaError, match="cannot be made"):
        write_paper(result, tmp_path / "file" / "out")


def test_matplotlib_is_loaded_when_a_picture_is_drawn():
    program = "import sys, spmv_fpga.roofline.page; sys.exit('matplotlib' in sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(Path(spmv_fpga.__file__).parents[1])}
    assert (
        subprocess.run([sys.executable, "-c", program], env=environment, check=False).returncode
        == 0
    )
