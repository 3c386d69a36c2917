"""What README and docs show is true: commands, options, the Python example, links."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from spmv_fpga.cli import cli

CHECKOUT = Path(__file__).resolve().parents[1]
PAGES = [CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *CHECKOUT.glob("docs/*.md")]
README = (CHECKOUT / "README.md").read_text("utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.MULTILINE | re.DOTALL)


def shown_commands() -> list[str]:
    lines = [line for text in blocks(README, "") for line in text.splitlines()]
    return [line.partition("#")[0].strip() for line in lines if line.startswith("spmv-fpga ")]


@pytest.mark.parametrize("line", shown_commands())
def test_a_command_in_the_readme_is_one_that_the_program_takes(line: str) -> None:
    words = shlex.split(line)[1:]
    command = cli.commands[words[0]]

    context = command.make_context(words[0], words[1:], resilient_parsing=False)

    assert context.params


def test_the_table_of_commands_names_every_command() -> None:
    named = set(re.findall(r"^\| `spmv-fpga (\w+)", README, re.MULTILINE))

    assert named == set(cli.commands)


def test_every_option_that_the_readme_names_exists() -> None:
    options = {
        flag for command in walk(cli) for parameter in command.params for flag in parameter.opts
    }
    named = set(re.findall(r"`(--[a-z-]+)", README)) - {"--help"}

    assert named <= options


def walk(command: click.Command) -> list[click.Command]:
    if not isinstance(command, click.Group):
        return [command]
    return [inner for sub in command.commands.values() for inner in walk(sub)]


@pytest.mark.xrt
def test_the_python_example_runs() -> None:
    (example,) = blocks(README, "python")

    exec(compile(example, "README.md", "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8"))

    missing = [
        link for link in links if "://" not in link and not (page.parent / link).exists()
    ]

    assert missing == []
