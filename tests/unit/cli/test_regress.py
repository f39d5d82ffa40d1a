"""`regress` and `pins update`: what is asked for, and what is answered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from numamirror_build import data
from numamirror_build.cli import regress, update
from numamirror_build.cli.main import USAGE, run
from numamirror_build.errors import AnchorError, OutputError, SourceError
from numamirror_build.pinning.assess import Assessment
from numamirror_build.pipeline import Request
from numamirror_build.regress.run import Regression
from numamirror_build.upstreams.pins import find_pin, load_pins
from tests.unit.regress.made_up import REGRESSION

PASSED = replace(REGRESSION, results=REGRESSION.results[:2])


class Runner:
    """Stands for the run; keeps what it was asked for."""

    def __init__(self, answer: Regression) -> None:
        self.answer = answer

    def __call__(self, store: Any, requests: list[Request], level: str, **more: Any) -> Regression:
        self.requests, self.level = requests, level
        self.parallel, self.defaults = more["parallel"], more["defaults"]
        return self.answer


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runner:
    """A run that passes."""
    made = Runner(PASSED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(regress, "run_regression", made)
    monkeypatch.setattr(regress, "usable_cpus", lambda: 16)
    return made


def test_by_default_all_pins_are_planned(runner: Runner) -> None:
    """Of all upstreams; of releases with one commit, the newest; one after the other."""
    assert run(["regress"]) == 0
    newest = {pin.commit: (name, pin.name) for name in data.upstream_names() for pin in load_pins(name)}
    assert [(one.upstream, one.pin) for one in runner.requests] == list(newest.values())
    assert (runner.level, runner.parallel) == ("plan", 1)


def test_each_release_has_its_wheel(runner: Runner) -> None:
    """Where wheels are made, releases with one commit are several pins."""
    for level in ("build", "verify"):
        assert run(["regress", "--upstream", "ik_llama.cpp", "--level", level]) == 0
        assert [one.pin for one in runner.requests] == [pin.name for pin in load_pins("ik_llama.cpp")]


@pytest.mark.usefixtures("runner")
def test_no_pin_is_not_all_pins() -> None:
    """Names that are none are a mistake, and not the default."""
    assert run(["regress", "--pins", ","]) == USAGE


def test_pins_and_upstream_can_be_named(runner: Runner) -> None:
    """Names and commits, each once, of the upstream that is asked for."""
    assert run(["regress", "--pins", "0.3.9,8733e0cf6eef,0.3.36", "--level", "audit", "--jobs", "3"]) == 0
    assert [(one.upstream, one.pin, one.jobs) for one in runner.requests] == [
        ("llama.cpp", "0.3.9", 3),
        ("llama.cpp", "0.3.36", 3),
    ]
    assert (runner.level, runner.parallel) == ("audit", 4)
    assert run(["regress", "--upstream", "ik_llama.cpp"]) == 0
    assert {one.upstream for one in runner.requests} == {"ik_llama.cpp"}


def test_the_table_and_the_failures_are_shown(runner: Runner, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is that of the first failure; its reason stands below the table."""
    runner.answer = REGRESSION
    assert run(["regress"]) == 14
    out = capsys.readouterr().out
    assert "llama.cpp 3: plan failed\nIt <failed>\na.c\nx\ny\n" in out
    assert out.endswith("2 of 3 pins passed, 12 s\n")


def test_files_for_ci_and_docs(runner: Runner, tmp_path: Path) -> None:
    """JUnit XML and the page are written where they are wanted; the page has the command that makes it."""
    assert run(["regress", "--pins", "0.3.9", "--junit", "a/j.xml", "--page", "p.md"]) == 0
    assert (tmp_path / "a/j.xml").read_text().startswith("<?xml")
    assert "./numamirror-build regress --pins 0.3.9 --level plan\n" in (tmp_path / "p.md").read_text()


def test_the_defaults_can_go_farther(runner: Runner, tmp_path: Path) -> None:
    """One page for the audits of all pins and the verification of the defaults."""
    assert run(["regress", "--level", "audit", "--defaults", "verify", "--page", "p.md"]) == 0
    assert (runner.level, runner.defaults) == ("audit", "verify")
    command = "./numamirror-build regress --level audit --defaults verify\n"
    assert command in (tmp_path / "p.md").read_text()


@pytest.mark.usefixtures("runner")
def test_the_page_has_all_options_that_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they were given; those that change no result are left out, and so are passwords."""
    monkeypatch.setenv("NUMAMIRROR_SCOPE", "all")
    arguments = ["--source", "/a b", "--git-url", "https://me:secret@host/x", "--cmake-arg", "-DA=1 2"]
    more = ["--cmake-arg", "-DB=3", "--model", "smollm2", "--jobs", "7", "--upstream", "ik_llama.cpp"]
    assert run(["regress", *arguments, *more, "--page", "p.md"]) == 0
    assert (
        "./numamirror-build regress --upstream ik_llama.cpp --source '/a b' --git-url 'https://***@host/x'"
        " --scope all --cmake-arg '-DA=1 2' --cmake-arg -DB=3 --model smollm2 --level plan\n"
    ) in (tmp_path / "p.md").read_text()


def test_two_files_are_not_one(runner: Runner, tmp_path: Path) -> None:
    """The second would be written over the first."""
    (tmp_path / "link").symlink_to("same")
    assert run(["regress", "--junit", "./same", "--page", "link"]) == USAGE
    assert not hasattr(runner, "requests")


@pytest.mark.parametrize("option", ["--junit", "--page"])
@pytest.mark.parametrize("place", ["/proc/x", "file/x", "."])
def test_a_file_that_cannot_be_written_is_told_before(
    runner: Runner, tmp_path: Path, option: str, place: str
) -> None:
    """The work is not done for nothing."""
    (tmp_path / "file").write_text("")
    assert run(["regress", option, place]) == OutputError.exit_code
    assert not hasattr(runner, "requests")


FITS = Assessment(
    "0.3.36",
    SimpleNamespace(pin=find_pin("llama.cpp", "0.3.36")),  # type: ignore[arg-type]
    "0.3.30",
    sites={f"{name}.c": {"read": number} for number, name in enumerate("abcdefghijkl", start=1)},
    hooks={"cache": "new.c; before: old.c"},
    names={"operations": ("GGML_OP_NEW",)},
)
NEEDS = replace(
    FITS, version="0.4", problems=(AnchorError("An anchor is gone", where="a.c", why="nearest: b"),)
)
MISSING = Assessment("0.5", None, "0.3.36", problems=(SourceError("pip could not get it"),))


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Three releases on the index; the list has what is adopted."""
    adopted: list[str] = []
    offered = {made.version: made for made in (FITS, NEEDS, MISSING)}

    def adopt(_store: Any, made: Assessment) -> list[Path]:
        adopted.append(made.version)
        return [Path("pins.toml")]

    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(update, "newer_releases", lambda upstream: list(offered))
    monkeypatch.setattr(update, "assess", lambda store, upstream, version, progress: offered[version])
    monkeypatch.setattr(update, "adopt", adopt)
    return adopted


def test_update_writes_only_when_told_to(index: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Without --write nothing is listed; with it, what needs no hand work, and nothing else."""
    assert run(["pins", "update"]) == AnchorError.exit_code
    assert index == [] and "nothing was written" in capsys.readouterr().out
    assert run(["pins", "update", "--write"]) == AnchorError.exit_code
    assert index == ["0.3.36"] and "written:\n  pins.toml" in capsys.readouterr().out


def test_update_looks_at_commits(
    index: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A commit is asked for at the remote that is named, and is not listed."""
    asked: list[tuple[str, str | None]] = []

    def assess(store: Any, upstream: str, commit: str, *, git_url: str | None, progress: Any) -> Assessment:
        asked.append((commit, git_url))
        return replace(FITS, version=commit)

    monkeypatch.setattr(update, "assess_commit", assess)
    assert run(["pins", "update", "--commit", "HEAD", "--git-url", "somewhere"]) == 0
    assert asked == [("HEAD", "somewhere")] and index == []
    out = capsys.readouterr().out
    assert out.startswith("HEAD (0c1e57098bba") and "--write" not in out
    assert run(["pins", "update", "--commit", "HEAD", "--write"]) == 2


def test_update_says_what_changes_and_what_is_needed(
    index: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Accesses by file (the most changed first), moved hooks, new names with a hint; or every problem."""
    assert run(["pins", "update", "--release", "0.3.36"]) == 0
    out = capsys.readouterr().out
    assert "0.3.36 (0c1e57098bba43ac29e6e3b677cdceebdd22334f, 2026-10-01): needs no hand work" in out
    assert "accesses: +78 in 12 files\n    l.c: read +12\n" in out and "and 2 more files" in out
    assert (
        "hook cache: new.c; before: old.c" in out and "new operations: GGML_OP_NEW\n    an operation" in out
    )
    assert run(["pins", "update", "--release", "0.4"]) == AnchorError.exit_code
    assert "hand work, 1 problem\n" in (out := capsys.readouterr().out) and "nearest: b" in out
    assert run(["pins", "update", "--release", "0.5"]) == SourceError.exit_code
    assert "0.5: its files could not be had\n" in (out := capsys.readouterr().out) and "hand work" not in out


def test_update_says_which_scope_needs_hand_work(
    monkeypatch: pytest.MonkeyPatch, index: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the code of the CPU backend fits, a person may go without the rest."""
    made = replace(NEEDS, plans={"cpu": SimpleNamespace(digest="d")})  # type: ignore[dict-item]
    monkeypatch.setattr(update, "assess", lambda *_, **__: made)
    assert run(["pins", "update", "--release", "0.4"]) == AnchorError.exit_code
    assert "scope cpu needs no hand work, only scope all does" in capsys.readouterr().out


def test_what_was_seen_and_written_is_told_whatever_follows(
    monkeypatch: pytest.MonkeyPatch, index: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An error that ends the command does not take along what was done before it."""

    def adopt(_store: Any, made: Assessment) -> list[Path]:
        if index:
            raise OutputError("It cannot be written")
        index.append(made.version)
        return [Path("pins.toml")]

    second = replace(FITS, version="0.3.37", sites={"a.c": {"read": 3}})
    monkeypatch.setattr(update, "newer_releases", lambda upstream: ["0.3.36", "0.4", "0.3.37"])
    offered = {"0.3.36": FITS, "0.4": NEEDS, "0.3.37": second}
    monkeypatch.setattr(update, "assess", lambda store, upstream, version, progress: offered[version])
    monkeypatch.setattr(update, "adopt", adopt)
    assert run(["pins", "update", "--write"]) == OutputError.exit_code
    out = capsys.readouterr().out
    assert "accesses: +3 in 1 file\n" in out
    assert out.endswith("written:\n  pins.toml\n\nit ended here:\n  It cannot be written\n")
    index.clear()
    assert run(["pins", "update", "--write", "--json"]) == OutputError.exit_code
    document = json.loads(capsys.readouterr().out)
    assert (document["written"], document["stopped"]["error"]) == (["pins.toml"], "output")
    monkeypatch.setattr(update, "newer_releases", lambda upstream: ["0.3.36"])
    assert index and run(["pins", "update", "--write"]) == OutputError.exit_code


@pytest.mark.parametrize("version", ["latest", "x y", ">=0.3", "-h", "1.0\n--pre", "../1"])
def test_a_release_must_be_a_version(
    index: list[str], capsys: pytest.CaptureFixture[str], version: str
) -> None:
    """Nothing else reaches pip."""
    assert run(["pins", "update", "--release", version]) == USAGE
    assert "is no version" in capsys.readouterr().err


def test_a_remote_is_for_commits(index: list[str]) -> None:
    """Releases come from the package index: a remote would not be asked."""
    assert run(["pins", "update", "--git-url", "somewhere"]) == USAGE
    assert run(["pins", "update", "--release", "0.3.36", "--git-url", "somewhere"]) == USAGE


def test_update_for_machines(index: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One document: each release with the pin it would be, its problems, and what was written."""
    assert run(["pins", "update", "--release", "0.5", "--json"]) == SourceError.exit_code
    document = json.loads(capsys.readouterr().out)
    assert document["written"] == []
    (release,) = document["releases"]
    assert (release["version"], release["fits"], release["pin"]) == ("0.5", False, None)
    assert release["problems"][0]["error"] == "source"


def test_no_newer_release_is_an_answer(index: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing to look at the command says so and succeeds."""
    monkeypatch.setattr(update, "newer_releases", lambda upstream: [])
    assert run(["pins", "update"]) == 0
