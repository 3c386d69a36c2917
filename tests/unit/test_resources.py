"""Where files stand, and the line that installs an extra."""

from __future__ import annotations

import sys

from spmv_fpga import resources


def test_an_extra_is_installed_from_the_checkout_into_this_python(monkeypatch):
    monkeypatch.setattr(resources, "is_checkout", lambda: True)
    checkout = resources._PACKAGE.parent

    line = resources.install_command("nvml")

    assert line == f"{sys.executable} -m pip install --editable '{checkout}[nvml]'"


def test_an_extra_of_an_installed_wheel_is_installed_by_name(monkeypatch):
    monkeypatch.setattr(resources, "is_checkout", lambda: False)

    line = resources.install_command("mkl")

    assert line == f"{sys.executable} -m pip install 'spmv_fpga[mkl]'"
