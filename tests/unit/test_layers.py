"""The shape of the package: its layers, what an import costs, and complete tables."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import spmv_fpga
from spmv_fpga import errors
from spmv_fpga.formats import FORMATS
from spmv_fpga.kernels import kernel_names, load_kernel, template_names
from spmv_fpga.resources import data_dir

PACKAGE = Path(spmv_fpga.__file__).parent

# From the lowest to the highest; a module or a sub-package each. None imports a higher one.
LAYERS = (
    ("version", "errors", "files", "units", "resources"),
    (
        "build_cache",
        "figures",
        "json_files",
        "stats",
        "timing",
        "vectors",
        "matrices",
        "formats",
        "reference",
        "boards",
    ),
    ("kernels", "codegen", "roofline", "design_fit"),
    ("toolchain", "runtime", "power", "baselines"),
    ("metering",),
    ("bandwidth", "emulate", "format_sizes", "measure", "sweep"),
    ("report",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
RANKS = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}

# Modules that cost time or need the card's software, and who may import them at the top.
IMPORTERS_ALLOWED = {"pyopencl": {"runtime/device.py"}, "ssgetpy": set(), "requests": set()}

MODULES = sorted(PACKAGE.rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def part_of(path: Path) -> str:
    """The module or sub-package of the package that a file belongs to."""
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(tree: ast.AST, path: Path) -> Iterator[tuple[str, ...]]:
    """Dotted names that a module imports, at the top or within a function."""
    package = ("spmv_fpga", *path.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (tuple(alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) + 1 - node.level] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            yield from ((*base, alias.name) for alias in node.names)


def test_every_module_has_a_layer():
    assert {part_of(path) for path in MODULES} - {"__init__"} <= set(RANKS)


# The package's own face is above all layers: it looks its names up when they are first used.
@pytest.mark.parametrize("path", [p for p in MODULES if part_of(p) != "__init__"], ids=relative)
def test_no_module_imports_a_higher_layer(path):
    own = RANKS[part_of(path)]
    for name in imports(ast.parse(path.read_text("utf-8")), path):
        if name[0] == "spmv_fpga" and len(name) > 1 and name[1] in RANKS:
            assert RANKS[name[1]] <= own, f"{relative(path)} imports {'.'.join(name)}"


@pytest.mark.parametrize("module", sorted(IMPORTERS_ALLOWED))
def test_what_needs_time_or_a_card_is_imported_where_it_is_used(module):
    importers = set()
    for path in MODULES:
        tree = ast.parse(path.read_text("utf-8"))
        for function in ast.walk(tree):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                function.body = []
        if any(name[0] == module for name in imports(tree, path)):
            importers.add(relative(path))
    assert importers == IMPORTERS_ALLOWED[module]


def test_only_the_device_imports_pyopencl():
    importers = {
        relative(path)
        for path in MODULES
        for name in imports(ast.parse(path.read_text("utf-8")), path)
        if name[0] == "pyopencl"
    }
    assert importers == {"runtime/device.py"}


def test_only_the_worker_imports_the_device():
    importers = {
        relative(path)
        for path in MODULES
        for name in imports(ast.parse(path.read_text("utf-8")), path)
        if name[:3] == ("spmv_fpga", "runtime", "device")
    }
    assert importers == {"runtime/worker.py"}


def test_the_library_prints_nothing():
    printers = {
        relative(path)
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("print", "input")
    }
    assert printers == set()


# What an import costs: a process without HOME, in which every write is noted.

WATCHED_IMPORT = """
import os, sys
writes = []
def watch(event, args):
    if event == "open":
        path, mode, flags = args
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and path != os.devnull:
            writes.append((event, str(path)))
    elif event in ("os.mkdir", "os.rename", "os.remove", "os.link", "os.symlink", "os.utime",
                   "shutil.rmtree", "tempfile.mkstemp", "tempfile.mkdtemp",
                   "subprocess.Popen", "socket.connect"):
        writes.append((event, str(args)))
sys.addaudithook(watch)
import {module}
loaded = sorted({{name.split(".")[0] for name in sys.modules}} & {unwanted!r})
sys.stdout.write(repr((loaded, writes)))
"""


def watch_import(module: str, unwanted: set[str], cwd: Path) -> tuple[list[str], list[str]]:
    """Import a module in a process of its own; return what it loaded and what it wrote."""
    environment = {k: v for k, v in os.environ.items() if k not in ("HOME", "SPMV_FPGA_CACHE")}
    environment |= {"PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    program = WATCHED_IMPORT.format(module=module, unwanted=unwanted)
    cwd.chmod(0o500)
    try:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            cwd=cwd, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
    finally:
        cwd.chmod(0o700)
    assert done.stderr == ""
    return ast.literal_eval(done.stdout)


@pytest.mark.parametrize("module", ["spmv_fpga", "spmv_fpga.cli"])
def test_the_face_and_the_command_line_load_neither_scipy_nor_the_cards_software(
    module, tmp_path
):
    unwanted = {"pyopencl", "ssgetpy", "requests", "scipy", "numpy", "rich"}
    assert watch_import(module, unwanted, tmp_path) == ([], [])


@pytest.mark.parametrize(
    "module",
    [
        "spmv_fpga.measure",
        "spmv_fpga.report.tables",
        "spmv_fpga.runtime",
        "spmv_fpga.toolchain.builds",
    ],
)
def test_all_that_a_run_needs_loads_without_pyopencl_and_writes_nothing(module, tmp_path):
    assert watch_import(module, {"pyopencl", "ssgetpy", "requests"}, tmp_path) == ([], [])
    assert list(tmp_path.iterdir()) == []


def test_every_public_name_is_there():
    assert sorted(spmv_fpga._HOMES) == sorted(set(spmv_fpga.__all__) - {"__version__"})
    for name in spmv_fpga.__all__:
        assert getattr(spmv_fpga, name) is not None


def test_the_face_lists_its_names_and_gives_them_to_a_star_import():
    names: dict[str, object] = {}
    exec("from spmv_fpga import *", names)
    assert set(spmv_fpga.__all__) <= set(names)
    assert set(spmv_fpga.__all__) <= set(dir(spmv_fpga))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'spmv_fpga' has no attribute 'speed'"):
        spmv_fpga.speed  # noqa: B018


# Complete tables

BASES = {"SparseFormat", "StripFormat", "EntryFormat"}


def test_every_format_is_in_its_table():
    classes = {
        node.name
        for path in (PACKAGE / "formats").glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id in BASES for base in node.bases)
    }
    assert classes - BASES == {cls.__name__ for cls in FORMATS.values()}
    assert all(cls.kernel == name for name, cls in FORMATS.items())


def test_every_kernel_folder_is_a_kernel_and_has_a_format():
    folders = {path.name for path in data_dir("hls_templates").iterdir() if path.is_dir()}
    assert folders - {"common"} == set(template_names())
    assert {load_kernel(name).format for name in kernel_names()} == set(FORMATS)


def test_every_error_is_one_of_the_packages():
    tree = ast.parse((PACKAGE / "errors.py").read_text("utf-8"))
    names = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert len(names) > 10
    assert all(issubclass(getattr(errors, name), errors.SpmvFpgaError) for name in names)
