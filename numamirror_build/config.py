"""Settings: one table, four layers.

From lowest to highest: defaults, a settings file, environment variables ``NUMAMIRROR_<OPTION>``,
the command line.
A higher layer replaces a lower one's value; lists are replaced, too, not joined.
The settings file is ``numamirror.toml`` or the table ``[tool.numamirror-build]`` of ``pyproject.toml``,
in the current folder or the nearest one above that has either; having both in one folder is an error.
"""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from numamirror_build.errors import ConfigError
from numamirror_build.toml import read_toml, unknown

APP = "numamirror-build"
ENVIRONMENT_PREFIX = "NUMAMIRROR_"
SETTINGS_FILE = "numamirror.toml"
TRUE = ("1", "true", "yes", "on")
FALSE = ("0", "false", "no", "off")


def default_cache_dir() -> Path:
    """The user's cache folder for this program, or what ``NUMAMIRROR_CACHE_DIR`` says."""
    named = os.environ.get(f"{ENVIRONMENT_PREFIX}CACHE_DIR")
    return Path(named).expanduser().absolute() if named else Path(platformdirs.user_cache_dir(APP))


def usable_cpus() -> int:
    """How many CPUs this process may run on."""
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True)
class Option:
    """What is known about one setting beside its name.

    Attributes:
        kind: ``text``, ``number``, ``flag``, ``texts`` (a list), ``path``,
            or ``place`` (one of ``words``, or a path).
        help: one sentence for help texts and the reference.
        metavar: what stands for the value in help texts.
        choices: the values allowed; empty for any.
        words: the values of a place that are no paths.
        default_text: the default as help texts write it; empty for the value itself.
    """

    kind: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    default_text: str = ""


def _option(kind: str, help: str, **more: Any) -> dict[str, Option]:
    return {"option": Option(kind, help, **more)}


@dataclass(frozen=True)
class Settings:
    """The effective settings. Paths are absolute.

    ``origins`` says for each name where its value came from.
    """

    upstream: str = field(
        default="llama.cpp",
        metadata=_option("text", "The upstream to build: llama.cpp or ik_llama.cpp.", metavar="NAME"),
    )
    pin: str | None = field(
        default=None,
        metadata=_option(
            "text",
            "The commit to build: a pin's name, a listed commit or its beginning, or any full commit id.",
            metavar="COMMIT|NAME",
            default_text="the upstream's default pin",
        ),
    )
    source: str = field(
        default="auto",
        metadata=_option(
            "place",
            "Where upstream's files come from. auto tries the cache, then the package index, then git;"
            " PATH is a clone or a plain folder.",
            metavar="auto|git|sdist|PATH",
            words=("auto", "git", "sdist"),
        ),
    )
    git_url: str | None = field(
        default=None,
        metadata=_option(
            "text",
            "A git remote to fetch from, for example a mirror.",
            metavar="URL",
            default_text="upstream's own",
        ),
    )
    model: str | None = field(
        default=None,
        metadata=_option(
            "place",
            "A GGUF file: what advise and bench are asked about, what verify takes beside the project's own"
            " small models; smollm2 is a real one from the package index.",
            metavar="FILE.gguf|smollm2",
            words=("smollm2",),
        ),
    )
    out: Path = field(
        default_factory=lambda: Path("dist").absolute(),
        metadata=_option(
            "path",
            "The folder for what is made.",
            metavar="DIR",
            default_text="dist in the current folder",
        ),
    )
    jobs: int = field(
        default_factory=usable_cpus,
        metadata=_option(
            "number",
            "Compile steps at the same time.",
            metavar="N",
            default_text="the number of usable CPUs",
        ),
    )
    cmake_arg: tuple[str, ...] = field(
        default=(),
        metadata=_option(
            "texts", "An argument for CMake, for both builds and the wheel; may be repeated.", metavar="ARG"
        ),
    )
    portable: str | None = field(
        default=None,
        metadata=_option(
            "text",
            "Build for every CPU of a level of x86-64 instead of this machine's,"
            " see that nothing asks for more, and make the wheel one for other systems (manylinux).",
            metavar="LEVEL",
            choices=("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-all"),
            default_text="this machine's CPU alone",
        ),
    )
    scope: str = field(
        default="cpu",
        metadata=_option(
            "text",
            "What is rewritten: cpu for the code that the CPU backend's threads run,"
            " all for GPU backends, tools and tests as well.",
            choices=("cpu", "all"),
        ),
    )
    cache_dir: Path = field(
        default_factory=default_cache_dir,
        metadata=_option(
            "path",
            "The cache: downloads, trees and builds.",
            metavar="DIR",
            default_text="numamirror-build in the user's cache folder",
        ),
    )
    json: bool = field(default=False, metadata=_option("flag", "Print one JSON document on stdout."))
    quiet: bool = field(default=False, metadata=_option("flag", "Show no progress."))
    verbose: bool = field(
        default=False,
        metadata=_option("flag", "Show progress line by line, also when stderr is not a terminal."),
    )
    origins: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Each setting with its value and where that came from."""
        return {
            name: {
                "value": str(value) if isinstance(value := getattr(self, name), Path) else value,
                "from": self.origins.get(name, "default"),
            }
            for name in OPTIONS
        }


def _described(item: dataclasses.Field[Any]) -> Option:
    option: Option = item.metadata["option"]
    plain = "none" if item.default in (None, ()) else str(item.default).lower()
    return dataclasses.replace(option, default_text=option.default_text or plain)


OPTIONS: dict[str, Option] = {
    item.name: _described(item) for item in dataclasses.fields(Settings) if "option" in item.metadata
}


def key_of(name: str) -> str:
    """The name of a setting as files and the command line write it: ``cache-dir``."""
    return name.replace("_", "-")


def variable_of(name: str) -> str:
    """The environment variable of a setting: ``NUMAMIRROR_CACHE_DIR``."""
    return ENVIRONMENT_PREFIX + name.upper()


def load_settings(command_line: Mapping[str, Any], environ: Mapping[str, str], folder: Path) -> Settings:
    """The effective settings.

    Args:
        command_line: values by setting name, only those that were given.
        environ: the environment.
        folder: the current folder, where the search for a settings file begins.

    Raises:
        ConfigError: an unknown key, or a value of the wrong type, in any layer.
    """
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for layer in (
        _from_file(folder),
        _from_environment(environ, folder),
        _from_command_line(command_line, folder),
    ):
        for name, (value, origin) in layer.items():
            values[name] = value
            origins[name] = origin
    return Settings(**values, origins=origins)


Layer = dict[str, tuple[Any, str]]


def _from_file(folder: Path) -> Layer:
    found = _find_file(folder)
    if found is None:
        return {}
    path, table = found
    names = {key_of(name): name for name in OPTIONS}
    layer: Layer = {}
    for key, value in table.items():
        if key not in names:
            raise unknown("setting", key, str(path), names)
        layer[names[key]] = (_checked(names[key], value, path.parent, f"{path}, key {key}"), str(path))
    return layer


def _find_file(folder: Path) -> tuple[Path, Mapping[str, Any]] | None:
    """The settings file that counts for a folder, with its table."""
    for place in (folder, *folder.parents):
        own, project = place / SETTINGS_FILE, place / "pyproject.toml"
        tool = read_toml(project, "A settings file").get("tool", {}) if project.is_file() else {}
        table = tool.get(APP) if isinstance(tool, dict) else None
        if own.is_file() and table is not None:
            raise ConfigError(
                "Two settings files in one folder",
                where=f"{own} and [tool.{APP}] in {project}",
                hint="keep one of them",
            )
        if own.is_file():
            return own, read_toml(own, "A settings file")
        if table is not None:
            if not isinstance(table, dict):
                raise ConfigError(f"tool.{APP} is not a table", where=str(project))
            return project, table
    return None


def _from_environment(environ: Mapping[str, str], folder: Path) -> Layer:
    names = {variable_of(name): name for name in OPTIONS}
    layer: Layer = {}
    for variable, text in environ.items():
        if not variable.startswith(ENVIRONMENT_PREFIX):
            continue
        if variable not in names:
            raise unknown("environment variable", variable, "the environment", names)
        if text:
            name, where = names[variable], f"environment variable {variable}"
            layer[name] = (_checked(name, _from_text(name, text, where), folder, where), where)
    return layer


def _from_text(name: str, text: str, where: str) -> Any:
    """A value as a settings file would have it; left as it is when it does not look like one."""
    kind = OPTIONS[name].kind
    if kind == "number" and text.strip().isdecimal():
        return int(text)
    if kind == "flag" and text.lower() in TRUE + FALSE:
        return text.lower() in TRUE
    if kind == "texts":
        try:
            return shlex.split(text)
        except ValueError as error:
            raise ConfigError(
                f"Not a list of words: {text}", where=where, why=str(error), hint="quote as in a shell"
            ) from error
    return text


def _from_command_line(given: Mapping[str, Any], folder: Path) -> Layer:
    return {
        name: (_checked(name, value, folder, f"option --{key_of(name)}"), "command line")
        for name, value in given.items()
    }


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value  # which neither a path nor an argument can have


_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "text": ("a text", _is_text),
    "place": ("a text", _is_text),
    "path": ("a path", lambda value: isinstance(value, Path) or _is_text(value)),
    "number": ("a number of at least 1", lambda value: type(value) is int and value >= 1),
    "flag": ("true or false", lambda value: isinstance(value, bool)),
    "texts": (
        "a list of texts",
        lambda value: isinstance(value, (list, tuple)) and all(map(_is_text, value)),
    ),
}


def _checked(name: str, value: Any, base: Path, where: str) -> Any:
    """A value of the right type; relative paths count from ``base``."""
    option = OPTIONS[name]
    wanted, right = _TYPES[option.kind]
    if not right(value) or value == "":
        raise ConfigError(f"{key_of(name)} must be {wanted}, not {value!r}", where=where)
    if option.choices and value not in option.choices:
        raise ConfigError(
            f"{key_of(name)} must be one of {', '.join(option.choices)}, not {value!r}", where=where
        )
    if option.kind == "texts":
        return tuple(value)
    if option.kind == "path":
        return _absolute(base, value)
    if option.kind == "place" and value not in option.words:
        return str(_absolute(base, value))
    return value


def _absolute(base: Path, value: str | Path) -> Path:
    return Path(os.path.normpath(base / Path(value).expanduser()))
