"""Kernel descriptions: each is complete, and agrees with the format that it reads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import eye_array

from spmv_fpga import kernels
from spmv_fpga.errors import KernelSpecError
from spmv_fpga.formats import FORMATS
from spmv_fpga.kernels import kernel_names, load_kernel
from spmv_fpga.resources import data_dir

KERNELS = kernel_names()


def test_there_are_the_kernels_of_the_command_line():
    assert KERNELS == ("block", "lanes", "scalar")


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_has_its_folders_name_and_a_format(name):
    kernel = load_kernel(name)
    assert kernel.name == name
    assert kernel.function == f"spmv_{name}"
    assert kernel.unit(2) == f"spmv_{name}_2"
    assert FORMATS[kernel.format].kernel == name


@pytest.mark.parametrize("name", KERNELS)
def test_every_source_stands_in_the_kernels_folder_or_the_common_one(name):
    templates = data_dir("hls_templates")
    for source in load_kernel(name).sources:
        assert (templates / name / source).is_file() or (
            templates / "common" / source
        ).is_file()


@pytest.mark.parametrize("name", KERNELS)
def test_every_header_of_the_kernels_folder_is_a_source(name):
    headers = {path.name for path in (data_dir("hls_templates") / name).glob("*.hpp")}
    assert headers <= set(load_kernel(name).sources)


@pytest.mark.parametrize("name", KERNELS)
def test_ports_and_scalars_are_those_of_the_formats_buffers(name):
    kernel = load_kernel(name)
    A = eye_array(40, format="csr", dtype=np.float32)
    defaults = kernel.resolve({})
    fmt = FORMATS[kernel.format].convert(A, defaults)
    assert set(fmt.parameters) < set(defaults)
    assert [port.name for port in kernel.ports] == list(fmt.port_bytes())
    assert [scalar.name for scalar in kernel.scalars] == [*fmt.scalars(), "iterations"]
    assert set(fmt.buffers()) == {"matrix"}


@pytest.mark.parametrize("name", KERNELS)
def test_x_is_read_and_y_is_written_on_a_bundle_that_they_share(name):
    ports = {port.name: port for port in load_kernel(name).ports}
    assert {n: p.direction for n, p in ports.items()} == {
        "matrix": "read", "x": "read", "y": "write"
    }  # fmt: skip
    shared = "matrix" if name == "lanes" else "vectors"  # a small unit has one port
    assert load_kernel(name).bundles == tuple(dict.fromkeys(("matrix", shared)))
    assert ports["x"].bundle == ports["y"].bundle == shared
    assert all(port.is_memory for port in ports.values())


@pytest.mark.parametrize("name", KERNELS)
def test_scalars_are_unsigned_and_no_memory(name):
    scalars = load_kernel(name).scalars
    assert {(s.c_type, s.is_memory) for s in scalars} == {("unsigned", False)}
    assert load_kernel(name).arguments == load_kernel(name).ports + scalars


def test_defaults_are_sixteen_rows_and_a_quarter_million_elements_of_x():
    assert load_kernel("block").resolve({}) == {"block": 16, "x_room": 262144}
    assert load_kernel("scalar").resolve({}) == {"slice": 16, "x_room": 262144}


def test_lanes_returns_after_eight_accesses_and_has_room_for_a_panel_and_for_y():
    assert load_kernel("lanes").resolve({}) == {"depth": 8, "panel": 16384, "y_room": 32768}


@pytest.mark.parametrize(("kernel", "name"), [("block", "block"), ("scalar", "slice")])
@pytest.mark.parametrize("value", [4, 8, 16, 32])
def test_each_size_of_the_format_is_allowed(kernel, name, value):
    assert load_kernel(kernel).resolve({name: value})[name] == value


@pytest.mark.parametrize(("kernel", "name"), [("block", "block"), ("scalar", "slice")])
@pytest.mark.parametrize("value", [-4, 0, 1, 12, 64])
def test_another_size_is_refused_with_those_allowed(kernel, name, value):
    message = f"^{name} of kernel {kernel} is {value}; it must be 4, 8, 16 or 32.$"
    with pytest.raises(KernelSpecError, match=message):
        load_kernel(kernel).resolve({name: value})


@pytest.mark.parametrize("room", [0, 8, 17, 1048577, 1048592, 2**40])
def test_a_room_for_x_that_is_out_of_range_or_no_whole_words_is_refused(room):
    message = f"x_room of kernel scalar is {room}; it must be 16 to 1048576, a multiple of 16"
    with pytest.raises(KernelSpecError, match=message):
        load_kernel("scalar").resolve({"x_room": room})


def test_the_room_for_x_of_block_is_whole_tiles_of_the_largest_size():
    assert load_kernel("block").resolve({"x_room": 32})["x_room"] == 32
    with pytest.raises(KernelSpecError, match="48; it must be 32 to 1048576, a multiple of 32"):
        load_kernel("block").resolve({"x_room": 48})


def test_a_parameter_that_the_kernel_lacks_is_refused_with_those_it_has():
    with pytest.raises(
        KernelSpecError, match="block has no parameter slice; it has block, x_r"
    ):
        load_kernel("block").resolve({"slice": 16})


@pytest.mark.parametrize("name", ["panes", "", "common", "../block"])
def test_a_kernel_that_is_not_there_is_refused_with_those_there_are(name):
    with pytest.raises(KernelSpecError, match="it must be block, lanes or scalar"):
        load_kernel(name)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("title =", "caption ="),
        ("[[scalars]]", "[[scalar]]"),
        ("c_type =", "ctype ="),
        ("constant =", "constnt ="),
        ("[[ports]]", "[[ports]"),
    ],
)
def test_a_misspelt_description_is_refused_by_its_file(tmp_path, monkeypatch, old, new):
    text = (data_dir("hls_templates") / "block" / "kernel.toml").read_text("utf-8")
    assert old in text
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kernel.toml").write_text(text.replace(old, new), "utf-8")
    monkeypatch.setattr(kernels, "data_dir", lambda name: tmp_path)
    with pytest.raises(KernelSpecError, match=r"mine.kernel\.toml: .*mend the kernel's desc"):
        load_kernel("mine")
