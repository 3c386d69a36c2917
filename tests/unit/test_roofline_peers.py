"""Peers: published figures as they were published, modelled ones from what is known."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.io import mmwrite
from scipy.sparse import csr_array, random_array, tril

from spmv_fpga.errors import SpmvFpgaError
from spmv_fpga.formats import count_blocks
from spmv_fpga.matrices import load_matrix
from spmv_fpga.matrices.twins import TwinFigures, make_twin
from spmv_fpga.roofline import load_calibration
from spmv_fpga.roofline.model import published_workload
from spmv_fpga.roofline.peers import (
    Peer,
    compare_peers,
    find_matrix,
    known_density,
    load_peers,
)


@pytest.fixture(scope="module")
def compared():
    return compare_peers(max_units=12)


def rows_of(compared, name):
    return {row.peer.card: row for row in compared.rows if row.peer.name == name}


# Published


def test_twenty_products_are_published_for_each_card():
    cards = [peer.card for peer in load_peers()]
    assert (cards.count("u50"), cards.count("u280")) == (20, 20)


def test_the_best_u50_product_is_as_published():
    peer = load_peers(["u50"])[0]
    assert (peer.name, peer.n, peer.nnz) == ("TSOPF_RS_b2383", 38120, 16171169)
    assert (peer.build, peer.clock_hz) == ("HI-SpMV-18-1-1", 235e6)
    assert peer.time_s == pytest.approx(593.465e-6)
    assert peer.gflops == 54.6259
    assert peer.power_w is None


def test_a_u280_product_has_the_steady_power():
    peer = load_peers(["u280"])[0]
    assert (peer.time_s, peer.power_w) == (pytest.approx(432.572e-6), 70.3)


# The one exception counts other entries than the collection; its file says so.
@pytest.mark.parametrize("peer", [p for p in load_peers() if p.name != "language"],
                         ids=lambda p: f"{p.name}-{p.card}")  # fmt: skip
def test_published_rates_follow_the_stated_convention(peer):
    assert 2 * (peer.nnz + peer.n) / peer.time_s / 1e9 == pytest.approx(peer.gflops, rel=2e-4)


def test_an_unknown_card_is_refused():
    with pytest.raises(SpmvFpgaError, match="it must be u50 or u280"):
        load_peers(["u200"])


# Densities


def test_an_unsymmetric_matrix_has_the_density_that_the_paper_prints():
    assert known_density("TSOPF_RS_b2383", 38120, 16171169).value == 0.71


def test_the_density_of_a_whole_symmetric_matrix_counts_tiles_of_the_diagonal_once():
    # 3,457,658 entries of the triangle in 32,158.28 tiles at 42 %, 1125 on the diagonal.
    found = known_density("nd6k", 18000, 6897316)
    assert found.value == pytest.approx(6897316 / (256 * (2 * 32158.28 - 1125)), rel=1e-6)
    assert "stored triangle" in found.source


def test_a_whole_matrix_has_twice_its_triangles_tiles_less_those_of_a_full_diagonal():
    lower = tril(load_matrix("gallery:banded:n=800,bandwidth=40")).tocsr()
    whole = csr_array(lower + tril(lower, -1).T)
    assert count_blocks(whole, 16) == 2 * count_blocks(lower, 16) - 800 // 16


@pytest.mark.parametrize(("name", "n"), [("mouse_gene", 45101), ("nd6k", 17)])
def test_no_density_is_made_up(name, n):
    assert known_density(name, n, 1000) is None


# Modelled


def test_a_twin_is_counted_as_if_it_had_been_made():
    twin = make_twin(TwinFigures("t", "t", 2000, 60000, 0.3))
    work = published_workload("block", 2000, 60000, 0.3, load_calibration("u50"))
    assert count_blocks(twin, 16) == work.blocks


def test_a_matrix_of_known_density_is_modelled_in_block_with_the_most_units(compared):
    row = rows_of(compared, "TSOPF_RS_b2383")["u50"]
    assert (row.model.workload.kernel, row.model.compute_units) == ("block", 12)
    # 0.1 ms launch, 12 µs x, and a twelfth of 88,970 tiles of 16 words at 195.3 M a second.
    assert row.model.time_s.value == pytest.approx(0.7228e-3, rel=1e-3)
    assert row.gflops.value == pytest.approx(2 * (16171169 + 38120) / 0.7228e-3 / 1e9, rel=1e-3)


def test_block_is_left_out_where_no_density_is_known(compared):
    row = rows_of(compared, "mouse_gene")["u50"]
    assert row.model.workload.kernel == "lanes"
    assert row.density is None
    assert "Block is left out" in row.notes[0]


def test_both_cards_peers_stand_beside_the_same_model(compared):
    rows = rows_of(compared, "crystk03")
    assert rows["u50"].model == rows["u280"].model


def test_repetition_takes_the_launch_out(compared):
    row = rows_of(compared, "thread")["u50"]
    assert row.model.time_s.value - row.repeated_time_s.value == pytest.approx(1e-4)


def test_products_in_panels_cannot_be_repeated_in_a_launch():
    known = load_calibration("u50")
    kernels = {name: known.kernels[name] for name in ("scalar", "block")}
    compared = compare_peers(calibration=replace(known, kernels=kernels), max_units=12)
    row = rows_of(compared, "soc-Pokec")["u50"]
    assert row.model.workload.launches == 25  # 1,632,803 columns, 65,536 at a time
    assert row.repeated_time_s.value is None
    assert "25 parts" in row.repeated_time_s.reason


def test_fewer_units_that_fit_take_longer():
    few, many = (
        compare_peers(max_units=n, cards=["u50"]).rows[0].model.time_s.value for n in (2, 8)
    )
    assert few > many


def test_every_figure_of_the_document_says_where_it_comes_from(compared):
    document = compared.to_json()
    json.dumps(document, allow_nan=False)
    assert len(document["peers"]) == 40
    for row in document["peers"]:
        assert row["convention"] == "2·(nnz + n)/t"
        assert row["published"]["time_s"]["origin"] == "published"
        assert row["model"]["time_s"]["origin"] == "modelled"
        assert row["source"] in ("real", "twin")
    assert document["peers"][0]["published"]["power_w"] == {
        "value": None, "origin": None, "reason": "no power was published",
    }  # fmt: skip
    assert "board u50 by calibration u50" in document["peers_assumptions"]


# Real matrices


@pytest.fixture
def one_peer(monkeypatch):
    """A published product of a matrix of 300 rows."""
    peer = Peer(
        card="u50", system="S", name="small", build="b", n=300, nnz=900, clock_hz=2e8,
        time_s=1e-5, gflops=0.24, power_w=None,
    )  # fmt: skip
    monkeypatch.setattr("spmv_fpga.roofline.peers.load_peers", lambda _: (peer,))
    return peer


def write(folder, name, n, nnz):
    A = random_array((n, n), density=nnz / n**2, rng=1).astype(np.float32)
    folder.mkdir(exist_ok=True)
    mmwrite(folder / f"{name}.mtx", A)


def test_the_real_matrix_is_used_where_it_is_at_hand(one_peer, tmp_path):
    write(tmp_path / "Group", "small", 300, 900)
    (row,) = compare_peers(matrices=tmp_path).rows
    assert (row.source, row.notes) == ("real", ())
    assert row.model.workload.nnz == 900


def test_other_entries_than_the_peers_are_said(one_peer, tmp_path):
    write(tmp_path, "small", 300, 910)
    (row,) = compare_peers(matrices=tmp_path).rows
    assert row.notes == ("+10 entries against the peer's, which drops zeros.",)


def test_a_matrix_of_another_size_is_not_taken(one_peer, tmp_path):
    write(tmp_path, "small", 200, 900)
    (row,) = compare_peers(matrices=tmp_path).rows
    assert row.source == "twin"
    assert row.notes[0] == "small.mtx is not this matrix, it is 200 × 200."


def test_a_damaged_matrix_is_replaced_by_its_twin_and_named(one_peer, tmp_path):
    (tmp_path / "small.mtx").write_text("no matrix")
    (row,) = compare_peers(matrices=tmp_path).rows
    assert row.source == "twin"
    assert row.notes[0].startswith("the real matrix cannot be used: ")


def test_a_matrix_that_is_nowhere_is_not_found(tmp_path):
    assert find_matrix("none_such", tmp_path) is None
