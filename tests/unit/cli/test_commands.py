"""The command line as a table: arguments -> what is asked of the pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import click
import pytest

from numamirror_build.cli import answers, commands
from numamirror_build.cli.answers import Answer
from numamirror_build.cli.main import USAGE, run
from numamirror_build.config import OPTIONS, usable_cpus
from numamirror_build.pipeline import Request
from numamirror_build.store import Store

DEFAULTS = Request("llama.cpp", jobs=usable_cpus())
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Recorder:
    """Stands for the pipeline, and for the answers made from it."""

    last: ClassVar[Recorder]

    def __init__(self, store: Store, request: Request, progress: object) -> None:
        self.store = store
        self.request = request
        self.calls: list[tuple[Any, ...]] = []
        Recorder.last = self

    def answer(self, *call: Any, **more: Any) -> Answer:
        """Note a call."""
        self.calls.append((*call, *more.values()))
        return Answer({"answer": call[0]}, f"answer: {call[0]}")

    @property
    def pins(self) -> str:
        """What the pins would be."""
        return "pins"

    @property
    def upstream(self) -> Recorder:
        """What the upstream would be."""
        return self

    default_pin = "default"

    def verify(self, level: str, instructions: bool) -> None:
        """Note that a verification would be made."""
        self.calls.append(("verify", level, instructions))

    def verify_in_lab(self) -> None:
        """Note that a verification in the lab would be made."""
        self.calls.append(("verify_in_lab",))

    def export(self, out: Path) -> None:
        """Note that a series would be written."""
        self.calls.append(("export", out))

    def export_into(self, tree: Path) -> None:
        """Note that a tree would be changed."""
        self.calls.append(("export_into", tree))

    def update_lock(self) -> Path:
        """Note that a lock would be written."""
        self.calls.append(("update_lock",))
        return Path("lock")


@pytest.fixture(autouse=True)
def recorder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Put the recorder in the place of the pipeline, and run in an empty folder with an empty environment."""
    monkeypatch.chdir(tmp_path)
    for name in OPTIONS:
        monkeypatch.delenv(f"NUMAMIRROR_{name.upper()}", raising=False)
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(commands, "Pipeline", Recorder)
    monkeypatch.setattr(commands, "run_job", lambda pipeline, out: pipeline.calls.append(("run_job", out)))
    for name in (
        "checkout",
        "plan",
        "tree",
        "audit",
        "build",
        "wheel",
        "verification",
        "series",
        "changed",
        "lock",
    ):
        monkeypatch.setattr(
            answers,
            name,
            lambda pipeline, *more, name=name, **named: pipeline.answer(name, *filter(None, more), **named),
        )
    monkeypatch.setattr(answers, "job", lambda pipeline, products: pipeline.answer("job"))
    monkeypatch.setattr(answers, "pins", lambda *values: Recorder.last.answer("pins", *values))


def request(**changes: Any) -> Request:
    """The default request with changes."""
    return Request(**{**DEFAULTS.__dict__, **changes})


@pytest.mark.parametrize(
    ("line", "wanted", "calls"),
    [
        ("", DEFAULTS, [("run_job", "@dist"), ("job",)]),
        ("--upstream llama.cpp", DEFAULTS, [("run_job", "@dist"), ("job",)]),
        ("--out made", DEFAULTS, [("run_job", "@made"), ("job",)]),
        (f"--pin {COMMIT}", request(pin=COMMIT), [("run_job", "@dist"), ("job",)]),
        ("--source git --git-url file:///m", request(source="git", git_url="file:///m"), None),
        ("--jobs 7 --scope all", request(jobs=7, scope="all"), None),
        ("--cmake-arg -DA=1 --cmake-arg=-DB=2", request(cmake_args=("-DA=1", "-DB=2")), None),
        ("--model smollm2", request(model="smollm2"), None),
        ("pins", DEFAULTS, [("pins", "pins", "default")]),
        ("pins --upstream other", request(upstream="other"), None),
        ("checkout --source sdist", request(source="sdist"), [("checkout",)]),
        ("plan", DEFAULTS, [("plan",)]),
        ("plan --scope all", request(scope="all"), [("plan",)]),
        ("plan --update-lock", DEFAULTS, [("update_lock",), ("lock", Path("lock"))]),
        ("apply --pin 0.3.9", request(pin="0.3.9"), [("tree",)]),
        ("audit", DEFAULTS, [("audit",)]),
        ("build", DEFAULTS, [("build", False)]),
        ("build --pristine --jobs 3", request(jobs=3), [("build", True)]),
        ("wheel --cmake-arg -DA=1", request(cmake_args=("-DA=1",)), [("wheel",)]),
        ("verify", DEFAULTS, [("verify", "quick", False), ("verification",)]),
        (
            "verify --matrix full --instructions --model smollm2",
            request(model="smollm2"),
            [("verify", "full", True), ("verification",)],
        ),
        ("export --into .", DEFAULTS, [("export_into", Path()), ("changed",)]),
        ("verify --lab", DEFAULTS, [("verify_in_lab",), ("verification",)]),
        ("export --out series", DEFAULTS, [("export", "@series"), ("series",)]),
        ("--pin 0.3.9 plan", request(pin="0.3.9"), [("plan",)]),
        ("--pin 0.3.9 plan --pin 0.3.20", request(pin="0.3.20"), [("plan",)]),
    ],
)
def test_arguments_become_one_request_and_one_call(
    line: str, wanted: Request, calls: list[tuple[Any, ...]] | None, tmp_path: Path
) -> None:
    """Each command line makes exactly this request, and asks exactly this of the pipeline."""
    assert run(line.split()) == 0
    assert Recorder.last.request == wanted
    if calls is not None:
        assert Recorder.last.calls == [
            tuple(tmp_path / part[1:] if str(part).startswith("@") else part for part in call)
            for call in calls
        ]


@pytest.mark.parametrize(
    "words", ["--matrix quick", "--instructions", "--model smollm2"], ids=lambda words: words.split()[0]
)
def test_what_has_no_meaning_in_the_lab(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An option that the lab would not follow is refused, before the command or after it."""
    assert run(["verify", "--lab", *words.split()]) == USAGE
    assert f"{words.split()[0]} has no meaning with --lab" in capsys.readouterr().err
    assert Recorder.last.calls == []
    if "model" in words:
        assert run([*words.split(), "verify", "--lab"]) == USAGE


def test_a_model_in_the_environment_does_not_stop_the_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings that are there for other commands are no mistake."""
    monkeypatch.setenv("NUMAMIRROR_MODEL", "smollm2")
    assert run(["verify", "--lab"]) == 0


def test_a_tree_to_change_must_be_there_and_stands_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--into names a folder that is there, and --out beside it says something else."""
    (tmp_path / "file").write_text("")
    for name in ("missing", "file"):
        assert run(["export", "--into", name]) == USAGE
        said = capsys.readouterr().err
        assert name in said and "next:" in said
    assert run(["export", "--into", ".", "--out", "series"]) == USAGE
    assert "--out has no meaning with --into" in capsys.readouterr().err
    assert Recorder.last.calls == []


def test_cache_dir_goes_to_the_store(tmp_path: Path) -> None:
    """--cache-dir names the root of the store, relative to the current folder."""
    assert run(["pins", "--cache-dir", "here"]) == 0
    assert Recorder.last.store.root == tmp_path / "here"
    assert not (tmp_path / "here").exists(), "what only reads makes no cache"


def all_options() -> list[tuple[list[str], str]]:
    """Each option that takes a value, with the words of its command."""
    found: list[tuple[list[str], str]] = []
    groups: list[tuple[list[str], click.Command]] = [([], commands.cli)]
    while groups:
        words, command = groups.pop()
        if isinstance(command, click.Group):
            groups += [([*words, name], one) for name, one in command.commands.items()]
        found += [
            (words, option.opts[0])
            for option in command.params
            if isinstance(option, click.Option) and not option.is_flag
        ]
    return found


@pytest.mark.parametrize(("words", "option"), all_options(), ids=lambda part: "-".join(part).strip("-"))
def test_no_option_takes_nothing(
    words: list[str], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An empty value, most often a variable that is not set, is no folder, no name and no default."""
    before = list(tmp_path.iterdir())
    assert run([*words, option, ""]) == USAGE
    assert f"Invalid value for '{option}': it is empty" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "words",
    [
        "advise --model m --depth 101 --context 100",
        "advise --model m --context 99999999999999999999",
        "advise --model m --depth -1",
        "advise --model m --cache-type foo",
        "advise --model m --cache-type F16",
        "bench --model m --generate 4294967296",
        "cache prune --unused-for nan",
        "cache prune --unused-for -1",
        "cache prune --unused-for inf",
        "lab run --timeout nan -- x",
    ],
)
def test_values_that_cannot_be(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are told as a mistake of the command line, with the option's name."""
    assert run(words.split()) == USAGE
    option = next(word for word in reversed(words.split()) if word.startswith("--") and word != "--")
    assert option in capsys.readouterr().err


@pytest.mark.parametrize("group", ["cache", "lab"])
def test_a_group_alone_lacks_a_command(group: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The message is one line, not the whole help, and says where that is."""
    assert run([group]) == USAGE
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["numamirror-build: Missing command.", f"  next:  numamirror-build {group} --help"]


def test_text_for_people_or_one_document_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json the text, with it one JSON document that has the settings and their origins."""
    run(["plan"])
    assert capsys.readouterr().out == "answer: plan\n"
    run(["plan", "--json", "--scope", "all"])
    document = json.loads(capsys.readouterr().out)
    assert document["answer"] == "plan"
    assert document["settings"]["scope"] == {"value": "all", "from": "command line"}
    assert document["settings"]["pin"] == {"value": None, "from": "default"}
    assert set(document["settings"]) == set(OPTIONS)


def test_settings_command_shows_values_and_origins(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A person sees for each setting what is in force and why."""
    (tmp_path / "numamirror.toml").write_text('pin = "0.3.9"\n')
    assert run(["settings", "--jobs", "5"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["pin", "0.3.9", str(tmp_path / "numamirror.toml")] in lines
    assert ["jobs", "5", "command", "line"] in lines


def test_every_command_has_json_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    """No command is without --json, a sentence of help, and its options' defaults."""
    for words in [
        [],
        *([name] for name in commands.cli.commands),
        ["lab", "run"],
        ["pins", "update"],
        ["cache", "list"],
        ["cache", "prune"],
    ]:
        assert run([*words, "--help"]) == 0
        text = capsys.readouterr().out
        assert "--json" in text
        assert text.splitlines()[2].strip()


def test_a_flag_from_the_environment_counts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """NUMAMIRROR_JSON does what --json does."""
    monkeypatch.setenv("NUMAMIRROR_JSON", "1")
    run(["checkout"])
    assert json.loads(capsys.readouterr().out)["answer"] == "checkout"
