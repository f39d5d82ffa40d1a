"""The workflows for a user's repository: valid, safe, and their scripts do what they say."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from numamirror_build import data, workflows
from numamirror_build.cli.main import run
from numamirror_build.errors import ConfigError, OutputError
from numamirror_build.upstreams.pins import load_pins, load_upstream
from numamirror_build.workflows import own_requirement, workflow_text, write_workflow

ROOT = Path(__file__).resolve().parents[2]
TOOLS = Path(sys.executable).parent
EVERY_UPSTREAM = pytest.mark.parametrize("upstream", data.upstream_names())
OURS = "numamirror-build @ git+https://example.org/we/ours.git@0123456789012345678901234567890123456789"
# GitHub's own actions may be named by their tags
ZIZMOR = '{"rules": {"unpinned-uses": {"config": {"policies": {"actions/*": "ref-pin", "*": "hash-pin"}}}}}'


def jobs_of(upstream: str) -> dict[str, Any]:
    """The jobs of an upstream's workflow."""
    jobs: dict[str, Any] = YAML(typ="safe").load(workflow_text(load_upstream(upstream), OURS))["jobs"]
    return jobs


def script(upstream: str, job: str, name: str) -> str:
    """The script of one step."""
    steps = jobs_of(upstream)[job]["steps"]
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
    "requirement", [OURS, 'numamirror-build @ git+https://example.org/"a b".git'], ids=["ours", "odd"]
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
    """The regression's jobs are the installed program's pins; no commit is audited twice."""
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
    names = json.loads(value)
    assert name == "names"
    commits = [pin.commit for pin in load_pins(upstream) if pin.name in names]
    assert commits == list(dict.fromkeys(pin.commit for pin in load_pins(upstream)))


def made_repository(folder: Path) -> Callable[..., str]:
    """Make a repository with a commit; what runs git there."""
    identity = ["-c", "user.name=Somebody", "-c", "user.email=some@body"]

    def git(*words: str) -> str:
        command = ["git", *identity, "-C", str(folder), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    folder.mkdir()
    git("init", "--quiet")
    git("commit", "--quiet", "--allow-empty", "--message", "newest")
    return git


@pytest.mark.parametrize(("update", "audit"), [(0, 0), (14, 0), (0, 18)])
def test_the_newest_commit_is_looked_at(update: int, audit: int, tmp_path: Path) -> None:
    """All that is new at the remote's HEAD is told, and what fits is audited; a failure fails the job."""
    remote = tmp_path / "remote"
    commit = made_repository(remote)("rev-parse", "HEAD")
    program = tmp_path / "bin" / "numamirror-build"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "asked: $*"\necho "an error" >&2\n[ $1 = pins ] && exit {update}\nexit {audit}\n'
    )
    program.chmod(0o755)
    summary = tmp_path / "summary"
    done = run_script(
        script("llama.cpp", "newest", "See what is new, and compile with the field hidden"),
        tmp_path,
        {
            "UPSTREAM_URL": str(remote),
            "GITHUB_STEP_SUMMARY": str(summary),
            "PATH": f"{program.parent}:{os.environ['PATH']}",
        },
    )
    assert done.returncode == (update or audit)
    said = [f"llama.cpp at {commit}", f"asked: pins update --commit {commit}", "an error"]
    if not update:
        said += [f"asked: audit --pin {commit}", "an error"]
    assert summary.read_text().splitlines() == [f"    {line}" for line in said]


@EVERY_UPSTREAM
def test_the_artifact_keeps_what_programs_need(upstream: str, tmp_path: Path) -> None:
    """Programs can be run and links lead somewhere in what is uploaded; the patched tree is not in it."""
    programs, source = tmp_path / "dist" / "bin", tmp_path / "dist" / "source"
    for folder in (programs, source):
        folder.mkdir(parents=True)
        (folder / "llama-cli").touch(0o755)
    (programs / "libggml.so").symlink_to("libggml.so.0")
    done = run_script(script(upstream, "wheel", "Pack"), tmp_path, {})
    assert done.returncode == 0, done.stderr
    upload = jobs_of(upstream)["wheel"]["steps"][-1]
    with tarfile.open(tmp_path / upload["with"]["path"]) as archive:
        members = {member.name: member for member in archive}
    assert members["dist/bin/llama-cli"].mode & stat.S_IXUSR
    assert members["dist/bin/libggml.so"].linkname == "libggml.so.0"
    assert not any(name.startswith("dist/source") for name in members)


@EVERY_UPSTREAM
def test_every_job_ends(upstream: str) -> None:
    """No job can run for GitHub's six hours."""
    assert all(job["timeout-minutes"] < 360 for job in jobs_of(upstream).values())


def test_the_program_comes_from_where_the_clone_does(tmp_path: Path) -> None:
    """Origin's address and the clone's commit, where others can get that; else an error says what lacks."""
    clone = tmp_path / "clone"
    git = made_repository(clone)
    commit = git("rev-parse", "HEAD")

    def refused() -> str:
        with pytest.raises(ConfigError, match="--install") as caught:
            own_requirement(clone)
        return str(caught.value.why)

    assert "no origin" in refused()
    for address in ("https://me:secret@example.org/ours", "ssh://git@example.org:22/ours", "/somewhere"):
        git("config", "remote.origin.url", address)
        assert "no origin" in refused()
    git("config", "remote.origin.url", "https://example.org/ours")
    assert commit in refused()
    git("update-ref", "refs/remotes/origin/main", commit)
    for address in ("https://example.org/ours", "git@example.org:ours", "ssh://git@example.org/ours"):
        git("config", "remote.origin.url", address)
        assert own_requirement(clone) == f"numamirror-build @ git+https://example.org/ours@{commit}"
    git("commit", "--quiet", "--allow-empty", "--message", "not pushed")
    assert git("rev-parse", "HEAD") in refused()


@pytest.mark.parametrize("inside", [False, True])
def test_without_a_clone_somebody_must_say(inside: bool, tmp_path: Path) -> None:
    """Neither an installed program nor sources in a repository of others have a default."""
    made_repository(tmp_path / "theirs")
    ours = tmp_path / "theirs" / "ours"
    ours.mkdir()
    with pytest.raises(ConfigError, match="not run from a clone"):
        own_requirement(ours if inside else None)


@pytest.mark.parametrize("requirement", ["a\nb", "a\rb", "a\u2028b", "a ${{ secrets.X }}", "\udcff"])
def test_a_requirement_that_is_none(requirement: str, tmp_path: Path) -> None:
    """What would be more than a word for pip is refused, and nothing is written."""
    words = ["--into", str(tmp_path), "--install", requirement]
    assert run(["init-ci", *words]) == ConfigError.exit_code
    assert not list(tmp_path.iterdir())


def test_a_folder_inside_of_a_repository(tmp_path: Path) -> None:
    """GitHub does not look there: the error names the top folder, which is taken."""
    top = tmp_path / "a repository"
    made_repository(top)
    (top / "below").mkdir()
    with pytest.raises(OutputError, match=rf"--into '{top}'"):
        write_workflow(top / "below", load_upstream("llama.cpp"), OURS)
    assert not list((top / "below").iterdir())
    assert write_workflow(top, load_upstream("llama.cpp"), OURS).is_file()


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`init-ci` takes the upstream from the settings, and answers with the file."""
    words = ["--upstream", "ik_llama.cpp", "--into", str(tmp_path), "--install", "somewhere", "--json"]
    assert run(["init-ci", *words]) == 0
    path = Path(json.loads(capsys.readouterr().out)["workflow"])
    assert path.read_text() == workflow_text(load_upstream("ik_llama.cpp"), "somewhere")


def test_without_a_word_it_is_what_runs_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without `--install` the jobs install what the clone says."""
    monkeypatch.setattr(workflows, "own_requirement", lambda clone: OURS if clone == ROOT else None)
    assert run(["init-ci", "--into", str(tmp_path)]) == 0
    (path,) = (tmp_path / ".github" / "workflows").iterdir()
    assert path.read_text() == workflow_text(load_upstream("llama.cpp"), OURS)


def test_what_somebody_changed_is_kept(tmp_path: Path) -> None:
    """Writing again changes nothing; a changed file is replaced with force only."""
    upstream = load_upstream("llama.cpp")
    path = write_workflow(tmp_path, upstream, OURS)
    assert write_workflow(tmp_path, upstream, OURS) == path
    path.write_text("mine")
    with pytest.raises(OutputError):
        write_workflow(tmp_path, upstream, OURS)
    assert path.read_text() == "mine"
    write_workflow(tmp_path, upstream, OURS, force=True)
    assert path.read_text() == workflow_text(upstream, OURS)


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    """A folder of the workflow's name is an error, also with force, and stays."""
    upstream = load_upstream("llama.cpp")
    path = write_workflow(tmp_path, upstream, OURS)
    path.unlink()
    path.mkdir()
    for force in (False, True):
        with pytest.raises(OutputError):
            write_workflow(tmp_path, upstream, OURS, force=force)
    assert list(path.parent.iterdir()) == [path]


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    """A folder that does not exist is an error and is not made."""
    with pytest.raises(OutputError):
        write_workflow(tmp_path / "none", load_upstream("llama.cpp"), OURS)
    assert not list(tmp_path.iterdir())


def test_every_setting_of_the_workflow_exists() -> None:
    """The variables that the jobs set are settings of the program."""
    workflow: dict[str, Any] = YAML(typ="safe").load(workflow_text(load_upstream("llama.cpp"), OURS))
    variables = {name for part in (workflow, *workflow["jobs"].values()) for name in part.get("env", ())}
    assert variables == {
        "NUMAMIRROR_UPSTREAM",
        "NUMAMIRROR_PIN",
        "NUMAMIRROR_SOURCE",
        "REQUIREMENT",
        "UPSTREAM_URL",
    }
