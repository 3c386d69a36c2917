"""Regions: recorder, nesting, files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from spmv_fpga.errors import SensorError
from spmv_fpga.power import Region, Regions, read_region_marks, read_regions, write_regions
from spmv_fpga.power.regions import nest


def counting_clock() -> Callable[[], float]:
    now_s = iter(range(1000))
    return lambda: float(next(now_s))


def test_nested_and_repeated_regions_are_kept_in_order_of_entry() -> None:
    regions = Regions(counting_clock())
    with regions.region("solve"):  # 0 … 5
        for _ in range(2):
            with regions.region("spmv"):  # 1 … 2, 3 … 4
                pass
    assert regions.snapshot(9.0) == (
        Region("solve", 0.0, 5.0),
        Region("spmv", 1.0, 2.0, depth=1, parent=0),
        Region("spmv", 3.0, 4.0, depth=1, parent=0),
    )


def test_a_region_ends_when_an_exception_leaves_it() -> None:
    regions = Regions(counting_clock())
    with pytest.raises(ZeroDivisionError), regions.region("spmv"):
        raise ZeroDivisionError
    assert regions.open_names() == ()
    assert regions.snapshot(9.0) == (Region("spmv", 0.0, 1.0),)


def test_an_open_region_ends_with_the_snapshot() -> None:
    regions = Regions(counting_clock())
    with regions.region("spmv"):
        assert regions.open_names() == ("spmv",)
        assert regions.snapshot(7.0) == (Region("spmv", 0.0, 7.0),)


def test_threads_nest_by_themselves() -> None:
    regions = Regions(counting_clock())

    def work() -> None:
        with regions.region("worker"):
            pass

    with regions.region("main"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    main, worker = regions.snapshot(9.0)
    assert (main.thread, worker.thread) == (0, 1)
    assert (worker.depth, worker.parent) == (0, None)


def test_many_threads_lose_no_region() -> None:
    regions = Regions()

    def work() -> None:
        for _ in range(50):
            with regions.region("outer"), regions.region("inner"):
                pass

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorded = regions.snapshot(0.0)
    assert len(recorded) == 800
    for region in recorded:
        if region.parent is not None:
            outer = recorded[region.parent]
            assert (outer.name, outer.thread) == ("outer", region.thread)
            assert outer.start_s <= region.start_s <= region.end_s <= outer.end_s


@pytest.mark.parametrize("name", ["", "  ", "two\nlines", "\ud800", "\x1b[2J"])
def test_a_name_must_be_a_line_of_text(name: str) -> None:
    with pytest.raises(SensorError, match="region's name"), Regions().region(name):
        pass


def test_a_region_with_known_times_can_be_added() -> None:
    regions = Regions()
    regions.add("launch", 1.0, 2.0)
    assert regions.snapshot(9.0) == (Region("launch", 1.0, 2.0),)


def test_nesting_is_found_from_times() -> None:
    spans = [Region("b", 1, 2), Region("a", 0, 5), Region("c", 1, 1.5), Region("d", 5, 6)]
    assert [(r.name, r.depth, r.parent) for r in nest(spans)] == [
        ("a", 0, None), ("b", 1, 0), ("c", 2, 1), ("d", 0, None)
    ]  # fmt: skip


def test_partly_overlapping_regions_are_of_two_threads() -> None:
    nested = nest([Region("a", 0, 2), Region("b", 1, 3), Region("c", 2, 2.5)])
    assert [(r.thread, r.parent) for r in nested] == [(0, None), (1, None), (0, None)]


def test_regions_of_two_threads_do_not_nest_in_one_another() -> None:
    nested = nest([Region("a", 0, 4, thread=3), Region("b", 1, 2, thread=5)])
    assert [r.parent for r in nested] == [None, None]
    assert nested[0].thread != nested[1].thread


def test_a_written_file_reads_back_equal(tmp_path: Path) -> None:
    regions = nest([Region("über alles", 0, 4), Region("b", 1, 2), Region("c", 3, 9)])
    write_regions(tmp_path / "r.json", regions)
    assert read_regions(tmp_path / "r.json") == regions


def test_a_name_that_no_file_can_hold_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(SensorError, match="region's name"):
        write_regions(tmp_path / "r.json", [Region("\ud800", 0, 1)])
    assert list(tmp_path.iterdir()) == []


def test_the_plain_document_is_read(tmp_path: Path) -> None:
    document = {"regions": [{"name": "spmv", "start_s": 1.25, "end_s": 21}], "other": 1}
    (tmp_path / "r.json").write_text(json.dumps(document))
    assert read_regions(tmp_path / "r.json") == (Region("spmv", 1.25, 21.0),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no JSON document: line 1"),
        ("[]", 'no list "regions"'),
        ('{"regions": {}}', 'no list "regions"'),
        ('{"regions": [{"start_s": 1}]}', "region 0: no name"),
        ('{"regions": [{"name": "a", "start_s": 1}]}', r"region 0 \('a'\): end_s is None"),
        ('{"regions": [{"name": "a", "start_s": NaN, "end_s": 1}]}', "NaN is no number"),
        ('{"regions": [{"name": "a", "start_s": 1e13, "end_s": 2e13}]}', "at most 1e"),
        ('{"regions": [{"name": "a", "start_s": 1' + "0" * 400 + "}]}", "401 digits"),
        ('{"regions": [{"name": "\\ud800", "start_s": 0, "end_s": 1}]}', "half a character"),
        ('{"regions": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deep"),
        ('{"regions": [{"name": "a", "start_s": true, "end_s": 1}]}', "start_s is True"),
        ('{"regions": [{"name": "a", "start_s": 2, "end_s": 1}]}', "before start_s 2"),
        ('{"regions": [{"name": " ", "start_s": 0, "end_s": 1}]}', "region's name"),
        ('{"regions": [{"name": "a", "start_s": 0, "end_s": 1, "thread": "x"}]}', "thread"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "r.json").write_text(text)
    with pytest.raises(SensorError, match=message):
        read_regions(tmp_path / "r.json")


def marks(tmp_path: Path, text: str) -> tuple[tuple[Region, ...], list[str]]:
    (tmp_path / "marks").write_text(text)
    return read_region_marks(tmp_path / "marks", end_s=9.0)


def test_marks_of_a_command_become_regions(tmp_path: Path) -> None:
    pulses = "begin spmv 2\nend spmv 3\n\nbegin spmv 4\nend spmv 5\n"
    regions, warnings = marks(tmp_path, f"begin solve A 1.0\n{pulses}end solve A 6\n")
    assert [(r.name, r.start_s, r.end_s, r.depth) for r in regions] == [
        ("solve A", 1, 6, 0), ("spmv", 2, 3, 1), ("spmv", 4, 5, 1)
    ]  # fmt: skip
    assert warnings == []


def test_an_end_closes_the_last_begin_of_its_name(tmp_path: Path) -> None:
    regions, _ = marks(tmp_path, "begin f 1\nbegin f 2\nend f 3\nend f 4\n")
    assert [(r.start_s, r.end_s) for r in regions] == [(1, 4), (2, 3)]


def test_a_region_that_was_never_ended_ends_with_the_run_and_is_told(tmp_path: Path) -> None:
    regions, warnings = marks(tmp_path, "begin spmv 1\n")
    assert regions == (Region("spmv", 1.0, 9.0),)
    assert warnings == ["region 'spmv' was never ended; it ends with the run"]


def test_a_last_line_that_was_cut_short_is_left_out_and_told(tmp_path: Path) -> None:
    regions, warnings = marks(tmp_path, "begin spmv 1\nend spmv 2\nbeg")
    assert regions == (Region("spmv", 1.0, 2.0),)
    assert warnings == [
        "line 3 of the marks was left out: 'beg'; write `begin NAME TIME` or `end NAME TIME`"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("end spmv 1\n", "'spmv' ends before it begins"),
        ("begin spmv\n", "'begin spmv'; write"),
        ("start spmv 1\n", "'start spmv 1'"),
        ("garbage\n", "'garbage'"),
        ("begin spmv soon\n", "'begin spmv soon'"),
        ("begin spmv nan\n", "'begin spmv nan'"),
        ("begin spmv 1e300\n", "'begin spmv 1e300'"),
        ("begin \x1b 1\n", "begin"),
    ],
)
def test_a_mark_that_makes_no_sense_is_left_out_and_told_with_its_line(
    tmp_path: Path, text: str, message: str
) -> None:
    regions, warnings = marks(tmp_path, f"begin a 2\n{text}end a 3\n")
    assert regions == (Region("a", 2.0, 3.0),)
    assert len(warnings) == 1
    assert warnings[0].startswith("line 2 of the marks was left out: ")
    assert message in warnings[0]


def test_an_end_before_its_begin_does_not_end_the_region(tmp_path: Path) -> None:
    regions, warnings = marks(tmp_path, "begin spmv 2\nend spmv 1\nend spmv 4\n")
    assert regions == (Region("spmv", 2.0, 4.0),)
    assert warnings == ["line 2 of the marks was left out: 'spmv' ends at 1.0, before 2.0"]


def test_a_thousand_lines_of_garbage_give_few_warnings(tmp_path: Path) -> None:
    regions, warnings = marks(tmp_path, "garbage\n" * 1000 + "begin a 1\nend a 2\n")
    assert regions == (Region("a", 1.0, 2.0),)
    assert len(warnings) == 11
    assert warnings[-1] == "990 more lines of the marks were left out"


def test_marks_that_are_no_text_do_not_lose_those_that_are(tmp_path: Path) -> None:
    (tmp_path / "marks").write_bytes(b"begin a 1\n\xff\xfe\nend a 2\n")
    regions, warnings = read_region_marks(tmp_path / "marks", end_s=9.0)
    assert regions == (Region("a", 1.0, 2.0),)
    assert len(warnings) == 1


def test_a_folder_in_place_of_the_marks_is_told(tmp_path: Path) -> None:
    regions, warnings = read_region_marks(tmp_path, end_s=9.0)
    assert regions == ()
    assert warnings == ["the regions' file cannot be read: it is a folder, not a file"]


def test_a_command_that_marks_nothing_has_no_regions(tmp_path: Path) -> None:
    assert read_region_marks(tmp_path / "absent", end_s=9.0) == ((), [])
