"""The settings: layers, checks, and the search for a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from numamirror_build.config import OPTIONS, Settings, default_cache_dir, key_of, load_settings, variable_of
from numamirror_build.errors import ConfigError


def test_without_anything_the_defaults_hold(tmp_path: Path) -> None:
    """No file, no variable and no option: every setting has its default, and says so."""
    settings = load_settings({}, {}, tmp_path)
    assert settings == Settings()
    assert {entry["from"] for entry in settings.as_json().values()} == {"default"}


def test_each_layer_overrides_the_one_below(tmp_path: Path) -> None:
    """Command line over environment over file over default, each with its origin."""
    (tmp_path / "numamirror.toml").write_text('pin = "file"\nsource = "git"\njobs = 3\n')
    environ = {"NUMAMIRROR_PIN": "environment", "NUMAMIRROR_JOBS": "4"}
    settings = load_settings({"pin": "line"}, environ, tmp_path)
    assert (settings.pin, settings.jobs, settings.source, settings.scope) == ("line", 4, "git", "cpu")
    shown = settings.as_json()
    assert shown["pin"]["from"] == "command line"
    assert shown["jobs"]["from"] == "environment variable NUMAMIRROR_JOBS"
    assert shown["source"]["from"] == str(tmp_path / "numamirror.toml")
    assert shown["scope"]["from"] == "default"


def test_a_list_is_replaced_and_not_joined(tmp_path: Path) -> None:
    """A higher layer's cmake-arg replaces the lower layer's."""
    (tmp_path / "numamirror.toml").write_text('cmake-arg = ["-DA=1"]\n')
    environ = {"NUMAMIRROR_CMAKE_ARG": "-DB='two words' -DC=3"}
    assert load_settings({}, {}, tmp_path).cmake_arg == ("-DA=1",)
    assert load_settings({}, environ, tmp_path).cmake_arg == ("-DB=two words", "-DC=3")
    assert load_settings({"cmake_arg": ("-DD=4",)}, environ, tmp_path).cmake_arg == ("-DD=4",)


def test_pyproject_is_read_from_a_folder_below(tmp_path: Path) -> None:
    """The nearest folder upwards with our table counts; a pyproject.toml without it does not."""
    (tmp_path / "pyproject.toml").write_text('[tool.numamirror-build]\nout = "made"\n')
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    (below / "pyproject.toml").write_text('[project]\nname = "other"\n')
    settings = load_settings({}, {}, below)
    assert settings.out == tmp_path / "made", "relative to the file's folder"
    assert settings.origins["out"] == str(tmp_path / "pyproject.toml")


def test_two_files_in_one_folder_are_an_error(tmp_path: Path) -> None:
    """Nobody has to guess which of two files counts."""
    (tmp_path / "pyproject.toml").write_text("[tool.numamirror-build]\n")
    (tmp_path / "numamirror.toml").write_text("")
    with pytest.raises(ConfigError, match="Two settings files"):
        load_settings({}, {}, tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("jobbs = 2", "did you mean jobs?"),
        ("cache_dir = 'x'", "did you mean cache-dir?"),
        ("zzzzzz = 1", "known are: cache-dir, cmake-arg"),
        ("jobs = 'two'", "jobs must be a number of at least 1, not 'two'"),
        ("jobs = 0", "jobs must be a number of at least 1, not 0"),
        ("jobs = true", "jobs must be a number of at least 1, not True"),
        ("pin = 7", "pin must be a text, not 7"),
        ("pin = ''", "pin must be a text, not ''"),
        ("json = 'yes'", "json must be true or false, not 'yes'"),
        ("cmake-arg = '-DA=1'", "cmake-arg must be a list of texts, not '-DA=1'"),
        (r'cmake-arg = ["a\u0000b"]', r"cmake-arg must be a list of texts, not ['a\x00b']"),
        (r'out = "a\u0000b"', r"out must be a path, not 'a\x00b'"),
        (r'source = "a\u0000b"', r"source must be a text, not 'a\x00b'"),
        (r'git-url = "a\u0000b"', r"git-url must be a text, not 'a\x00b'"),
        ("scope = 'gpu'", "scope must be one of cpu, all, not 'gpu'"),
        ("jobs = ", "not valid TOML"),
    ],
)
def test_a_bad_file_is_named_with_the_key(tmp_path: Path, line: str, message: str) -> None:
    """An unknown key or a wrong type names the file, and the key or the nearest valid one."""
    path = tmp_path / "numamirror.toml"
    path.write_text(line + "\n")
    with pytest.raises(ConfigError) as caught:
        load_settings({}, {}, tmp_path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value.where)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("NUMAMIRROR_JOB", "2", "did you mean NUMAMIRROR_JOBS?"),
        ("NUMAMIRROR_JOBS", "many", "jobs must be a number"),
        ("NUMAMIRROR_VERBOSE", "maybe", "verbose must be true or false"),
        ("NUMAMIRROR_CMAKE_ARG", "'", "Not a list of words"),
    ],
)
def test_a_bad_variable_is_named(tmp_path: Path, variable: str, value: str, message: str) -> None:
    """A variable that is misspelt or has a wrong value is an error, not ignored."""
    with pytest.raises(ConfigError) as caught:
        load_settings({}, {variable: value}, tmp_path)
    assert message in str(caught.value)


@pytest.mark.parametrize(("text", "value"), [("1", True), ("On", True), ("false", False), ("no", False)])
def test_flags_in_the_environment(tmp_path: Path, text: str, value: bool) -> None:
    """The usual words for true and false are understood."""
    assert load_settings({}, {"NUMAMIRROR_JSON": text}, tmp_path).json is value


def test_an_empty_variable_is_no_setting(tmp_path: Path) -> None:
    """An empty variable counts as not set, as shells and CI systems leave them."""
    assert load_settings({}, {"NUMAMIRROR_PIN": ""}, tmp_path).pin is None


def test_words_are_kept_and_paths_made_absolute(tmp_path: Path) -> None:
    """``sdist`` stays a word; any other source is a path, from the current folder."""
    assert load_settings({"source": "sdist"}, {}, tmp_path).source == "sdist"
    assert load_settings({"source": "../tree"}, {}, tmp_path / "a").source == str(tmp_path / "tree")
    assert load_settings({"model": "smollm2"}, {}, tmp_path).model == "smollm2"
    assert load_settings({"model": "m.gguf"}, {}, tmp_path).model == str(tmp_path / "m.gguf")


def test_cache_dir_of_the_environment_is_the_default_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the tests and the log of errors use agrees with the setting."""
    monkeypatch.setenv("NUMAMIRROR_CACHE_DIR", str(tmp_path))
    assert default_cache_dir() == tmp_path
    monkeypatch.delenv("NUMAMIRROR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert default_cache_dir() == tmp_path / "xdg" / "numamirror-build"


def test_names_in_files_and_environment() -> None:
    """One name, three spellings."""
    assert (key_of("cache_dir"), variable_of("cache_dir")) == ("cache-dir", "NUMAMIRROR_CACHE_DIR")
    assert "origins" not in OPTIONS
