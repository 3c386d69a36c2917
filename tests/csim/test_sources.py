"""What compilers say of the rendered sources, for emulation and as a vendor reads them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spmv_fpga.boards import load_board
from spmv_fpga.codegen import Project, render_project
from spmv_fpga.kernels import kernel_names, load_kernel, template_names

STRICT = ["-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
COMPILERS = [
    pytest.param("g++", ["-Wno-unknown-pragmas"], marks=pytest.mark.compiler, id="g++"),
    pytest.param("clang++", [], marks=pytest.mark.clang, id="clang++"),
]
compilers = pytest.mark.parametrize(("compiler", "flags"), COMPILERS)

PROJECTS = [
    ("bandwidth", {}),
    *(
        (kernel, {parameter.name: value})
        for kernel in kernel_names()
        for parameter in load_kernel(kernel).parameters
        for value in (parameter.values or (parameter.minimum,))
    ),
]
projects = pytest.mark.parametrize(
    ("kernel", "parameters"),
    PROJECTS,
    ids=["-".join([k, *(f"{n}={v}" for n, v in p.items())]) for k, p in PROJECTS],
)

# What the vendor's headers offer, as far as the kernels use it.
VENDOR_STREAM = """#pragma once
namespace hls {
template <typename T>
class stream {
 public:
  explicit stream(const char* name) : name_(name) {}
  stream(const stream&) = delete;
  T read();
  void write(const T& token);

 private:
  const char* name_;
};
}  // namespace hls
"""
VENDOR_VECTOR = """#pragma once
#include <cstddef>
namespace hls {
template <typename T, std::size_t N>
class alignas(N * sizeof(T)) vector {
 public:
  vector() = default;
  vector(const T& value);
  T& operator[](std::size_t lane) { return lanes_[lane]; }
  const T& operator[](std::size_t lane) const { return lanes_[lane]; }

 private:
  T lanes_[N];
};
}  // namespace hls
"""


def rendered(kernel: str, **parameters: int) -> Project:
    return render_project(kernel, parameters, load_board("u50"))


def compile_quietly(command: list[Any]) -> str:
    """Return what the compiler says; nothing where all is well."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stderr


@compilers
@projects
def test_rendered_sources_compile_without_a_warning(
    tmp_path: Path,
    include_flags: list[str],
    stub_of: Callable[[Project], str],
    compiler: str,
    flags: list[str],
    kernel: str,
    parameters: dict[str, int],
) -> None:
    project = rendered(kernel, **parameters)
    folder = project.write(tmp_path)
    both = folder / "both.cpp"
    both.write_text(stub_of(project))

    said = compile_quietly([compiler, *STRICT, *flags, *include_flags, f"-I{folder}", both])

    assert said == ""


@compilers
@pytest.mark.parametrize("standard", ["c++14", "c++17"])
@pytest.mark.parametrize("kernel", template_names())
def test_the_branch_for_synthesis_is_valid_cpp(
    tmp_path: Path, compiler: str, flags: list[str], standard: str, kernel: str
) -> None:
    project = rendered(kernel)
    folder = project.write(tmp_path)
    (folder / "hls_stream.h").write_text(VENDOR_STREAM)
    (folder / "hls_vector.h").write_text(VENDOR_VECTOR)
    ignored = ["-Wno-unknown-pragmas", "-Wno-unused-label"]  # both are the vendor's tool's

    said = compile_quietly(
        [compiler, *STRICT, *ignored, f"-std={standard}", f"-I{folder}", folder / project.top]
    )

    assert said == ""


@pytest.mark.compiler
@pytest.mark.parametrize(
    ("kernel", "constant", "wrong", "assertion"),
    [
        ("block", "kBlock = 16", "kBlock = 5", "block is 4, 8, 16 or 32"),
        ("block", "kXRoom = 262144", "kXRoom = 40", "the room for x is whole words"),
        ("scalar", "kSlice = 16", "kSlice = 6", "slice is 4, 8, 16 or 32"),
        ("scalar", "kXRoom = 262144", "kXRoom = 40", "the room for x is whole words"),
    ],
)
def test_constants_that_do_not_fit_are_refused_by_the_compiler(
    tmp_path: Path,
    include_flags: list[str],
    kernel: str,
    constant: str,
    wrong: str,
    assertion: str,
) -> None:
    project = rendered(kernel)
    folder = project.write(tmp_path)
    constants = folder / "constants.hpp"
    text = constants.read_text()
    assert constant in text
    constants.write_text(text.replace(constant, wrong))

    said = compile_quietly(
        ["g++", "-fsyntax-only", "-Wno-unknown-pragmas", *include_flags, f"-I{folder}",
         folder / project.top]
    )  # fmt: skip

    assert f"static assertion failed: {assertion}" in said
