"""The workflows for a user's repository: valid, safe, and their scripts do what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from numamirror_build import data
from numamirror_build.cli.main import run
from numamirror_build.errors import OutputError
from numamirror_build.upstreams.pins import load_pins, load_upstream
from numamirror_build.workflows import RELEASE, workflow_text, write_workflow

TOOLS = Path(sys.executable).parent
EVERY_UPSTREAM = pytest.mark.parametrize("upstream", data.upstream_names())
# GitHub's own actions may be named by their tags
ZIZMOR = '{"rules": {"unpinned-uses": {"config": {"policies": {"actions/*": "ref-pin", "*": "hash-pin"}}}}}'


def script(upstream: str, job: str, name: str) -> str:
    """The script of one step."""
    steps = YAML(typ="safe").load(workflow_text(load_upstream(upstream)))["jobs"][job]["steps"]
    (found,) = (step["run"] for step in steps if step.get("name") == name)
    return str(found)


def run_script(text: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a step's script as GitHub does."""
    file = folder / "step.sh"
    file.write_text(text)
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", file],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@EVERY_UPSTREAM
@pytest.mark.parametrize(
    "requirement", [RELEASE, 'numamirror-build @ git+https://example.org/"a b".git'], ids=["release", "odd"]
)
def test_linters_find_nothing(upstream: str, requirement: str, tmp_path: Path) -> None:
    """The file obeys GitHub's schema, and a security linter has no finding."""
    path = write_workflow(tmp_path, load_upstream(upstream), requirement)
    assert YAML(typ="safe").load(path)["env"]["REQUIREMENT"] == requirement
    settings = tmp_path / "zizmor.yml"
    settings.write_text(ZIZMOR)
    for tool, *options in (
        ("check-jsonschema", "--builtin-schema", "vendor.github-workflows"),
        ("zizmor", "--offline", "--config", str(settings)),
    ):
        done = subprocess.run([TOOLS / tool, *options, path], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@EVERY_UPSTREAM
def test_the_pins_are_asked_for(upstream: str, tmp_path: Path) -> None:
    """The regression's jobs are the pins that the installed program knows."""
    done = run_script(
        script(upstream, "pins", "List the pins"),
        tmp_path,
        {
            "NUMAMIRROR_UPSTREAM": upstream,
            "GITHUB_OUTPUT": str(tmp_path / "output"),
            "PATH": f"{TOOLS}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, done.stderr
    name, _, value = (tmp_path / "output").read_text().partition("=")
    assert (name, json.loads(value)) == ("names", [pin.name for pin in load_pins(upstream)])


@pytest.mark.parametrize("status", [0, 15])
def test_the_newest_commit_is_audited(status: int, tmp_path: Path) -> None:
    """What the remote's HEAD is gets audited; the answer is in the summary, and a failure fails the job."""
    remote = tmp_path / "remote"
    identity = ["-c", "user.name=Somebody", "-c", "user.email=some@body"]

    def git(*words: str) -> str:
        command = ["git", *identity, "-C", str(remote), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    remote.mkdir()
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "newest")
    program = tmp_path / "bin" / "numamirror-build"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "asked: $*"\necho "an error" >&2\nexit {status}\n')
    program.chmod(0o755)
    summary = tmp_path / "summary"
    done = run_script(
        script("llama.cpp", "newest", "Plan, and compile with the field hidden"),
        tmp_path,
        {
            "UPSTREAM_URL": str(remote),
            "GITHUB_STEP_SUMMARY": str(summary),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == status
    commit = git("rev-parse", "HEAD")
    assert summary.read_text() == f"llama.cpp at {commit}\nasked: audit --pin {commit}\nan error\n"


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`init-ci` takes the upstream from the settings, and answers with the file."""
    words = ["--upstream", "ik_llama.cpp", "--into", str(tmp_path), "--install", "somewhere", "--json"]
    assert run(["init-ci", *words]) == 0
    path = Path(json.loads(capsys.readouterr().out)["workflow"])
    assert path.read_text() == workflow_text(load_upstream("ik_llama.cpp"), "somewhere")


def test_what_somebody_changed_is_kept(tmp_path: Path) -> None:
    """Writing again changes nothing; a changed file is replaced with force only."""
    upstream = load_upstream("llama.cpp")
    path = write_workflow(tmp_path, upstream)
    assert write_workflow(tmp_path, upstream) == path
    path.write_text("mine")
    with pytest.raises(OutputError):
        write_workflow(tmp_path, upstream)
    assert path.read_text() == "mine"
    write_workflow(tmp_path, upstream, force=True)
    assert path.read_text() == workflow_text(upstream)


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    """A folder of the workflow's name is an error, also with force, and stays."""
    upstream = load_upstream("llama.cpp")
    path = write_workflow(tmp_path, upstream)
    path.unlink()
    path.mkdir()
    for force in (False, True):
        with pytest.raises(OutputError):
            write_workflow(tmp_path, upstream, force=force)
    assert list(path.parent.iterdir()) == [path]


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    """A folder that does not exist is an error and is not made."""
    with pytest.raises(OutputError):
        write_workflow(tmp_path / "none", load_upstream("llama.cpp"))
    assert not list(tmp_path.iterdir())


def test_every_setting_of_the_workflow_exists() -> None:
    """The variables that the jobs set are settings of the program."""
    workflow: dict[str, Any] = YAML(typ="safe").load(workflow_text(load_upstream("llama.cpp")))
    variables = {name for part in (workflow, *workflow["jobs"].values()) for name in part.get("env", ())}
    assert variables == {
        "NUMAMIRROR_UPSTREAM",
        "NUMAMIRROR_PIN",
        "NUMAMIRROR_SOURCE",
        "REQUIREMENT",
        "UPSTREAM_URL",
    }
