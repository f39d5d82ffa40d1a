"""What the documentation says, against the code."""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from numamirror_build import data
from numamirror_build.building.recipe import load_recipe
from numamirror_build.cli.commands import cli
from numamirror_build.config import OPTIONS, key_of
from numamirror_build.upstreams.pins import load_pins

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
RUNTIME = (ROOT / "docs" / "runtime.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def commands_of(page: Path) -> Iterator[list[str]]:
    """The words of each command line of this repository in a page's shell blocks."""
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
        for line in block.splitlines():
            words = shlex.split(re.sub(r"<[^>]*>", "WORD", line), comments=True)
            if words and words[0].startswith("./"):
                yield words


def sources_of_the_runtime() -> str:
    """All that we add to upstream's tree."""
    folder = data.templates()
    others = ("ci", "lab", "report")
    return "".join(
        path.read_text() for path in sorted(folder.rglob("*.j2")) if path.parent.name not in others
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_exist_and_know_their_options(page: Path) -> None:
    """Every command line of this repository that a page shows can be typed as it stands."""
    for words in commands_of(page):
        script = ROOT / words[0]
        assert os.access(script, os.X_OK), words
        if script.name != "numamirror-build":
            continue
        own = words[1 : words.index("--") if "--" in words else None]
        command: click.Command = cli
        for word in itertools.takewhile(lambda word: not word.startswith("-"), own):
            if not isinstance(command, click.Group):
                assert any(isinstance(one, click.Argument) for one in command.params), words
                break
            command = command.commands[word]
        known = {option for parameter in command.params for option in parameter.opts}
        assert {word for word in own if word.startswith("--")} <= known, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_those_of_a_clone(page: Path) -> None:
    """Whoever has only cloned this repository has no numamirror-build on PATH."""
    assert not re.findall(r"```sh\n(?:[^`]*\n)?numamirror-build.*", page.read_text())


def test_the_readme_has_its_two_commands() -> None:
    """The whole job and all tests are one command each."""
    shown = [" ".join(words) for words in commands_of(ROOT / "README.md")]
    assert shown[:2] == ["./numamirror-build --upstream ik_llama.cpp", "./ci/test"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """No page links to a file that is not there."""
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_the_reference_is_what_the_code_says() -> None:
    """docs/reference.md is up to date with options, settings and exit codes."""
    spec = importlib.util.spec_from_file_location("reference", ROOT / "ci" / "reference.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "reference.md").read_text()
    assert page == module.reference(), "run python ci/reference.py"
    assert all(f"`--{key_of(name)}" in page for name in OPTIONS)


@pytest.mark.parametrize("upstream", data.upstream_names())
def test_the_readme_names_the_programs(upstream: str) -> None:
    """The programs that the README promises are those that are built."""
    row = next(line for line in README.splitlines() if line.startswith(f"| programs of {upstream}: "))
    assert re.findall(r"`(llama-[a-z-]+)`", row) == list(load_recipe(upstream).programs)


def test_every_variable_of_the_runtime_is_documented() -> None:
    """docs/runtime.md lists exactly the environment variables that our C++ reads."""
    read = set(re.findall(r'get_?env\("([A-Z_]+)"[,)]', sources_of_the_runtime()))
    table = set(re.findall(r"^\| `(GGML_[A-Z_]+)` \|", RUNTIME, re.MULTILINE))
    assert table == read


def test_every_error_of_the_runtime_is_documented() -> None:
    """docs/runtime.md explains exactly the error codes that the status record can have."""
    raised = set(re.findall(r'fail\("([a-z-]+)"', sources_of_the_runtime()))
    section = RUNTIME.split("## When it cannot be had")[1].split("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)) == raised


def test_the_changelog_names_the_pins() -> None:
    """Every listed pin is in the changelog, the default marked."""
    text = (ROOT / "CHANGELOG.md").read_text()
    for pin in load_pins("llama.cpp"):
        assert re.search(rf"\b{re.escape(pin.name)}\b", text), pin.name
