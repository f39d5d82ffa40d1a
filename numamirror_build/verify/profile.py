"""What verification must know of an upstream: ``patches/<upstream>/verify.toml`` as a value."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from numamirror_build import data

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Setting = bool | int | float
Settings = tuple[tuple[str, Setting], ...]


@dataclass(frozen=True)
class Option:
    """Something that upstream can do otherwise than by default.

    Attributes:
        name: for cases' names.
        group: options of one group exclude each other.
        model: parameters of a model that is loaded with it.
        context: parameters of a context that is made with it.
        archs: architectures for which it means something; empty for all.
        usual: whether it is taken when no other of its group is.
    """

    name: str
    group: str
    model: Settings
    context: Settings
    archs: tuple[str, ...] = ()
    usual: bool = False


@dataclass(frozen=True)
class Instead:
    """What takes the place of a case that upstream cannot do.

    Attributes:
        flash: flash attention on or off; None as in the case.
        options: names of options that it has besides.
    """

    flash: bool | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Rule:
    """Cases that upstream cannot do. What is empty or None holds for all.

    Attributes:
        reason: why, for people.
        models: globs of models' names.
        archs: architectures.
        prompts: tokens in the prompt.
        batches: tokens evaluated at once.
        actions: what is done.
        kv: globs of types of the cache.
        flash: flash attention on or off.
        options: names of options, one of which is among the case's.
        unless: names of options, none of which is.
        path: a file of upstream's, when it depends on that.
        text: what that file has at the commits that the rule is for.
        instead: what takes the case's place, if anything does.
    """

    reason: str
    models: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    prompts: tuple[int, ...] = ()
    batches: tuple[int, ...] = ()
    actions: tuple[str, ...] = ()
    kv: tuple[str, ...] = ()
    flash: bool | None = None
    options: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    path: str | None = None
    text: str = ""
    instead: Instead | None = None

    def holds_in(self, tree: Path) -> bool:
        """Whether the rule is for this commit."""
        if self.path is None:
            return True
        file = tree / self.path
        return file.is_file() and self.text in file.read_text(errors="replace")

    def is_for(self, model: str, arch: str) -> bool:
        """Whether the rule is for this model."""
        named = not self.models or any(fnmatchcase(model, glob) for glob in self.models)
        return named and (not self.archs or arch in self.archs)


@dataclass(frozen=True)
class Profile:
    """An upstream, as verification sees it.

    Attributes:
        binding: the Python package that drives its libraries; ``runner/bindings.py`` has a class for each.
        variable: the environment variable that makes the binding load other libraries than its own.
        file: what that variable names, below the folder with the libraries; empty for the folder itself.
        libraries: what every process must have loaded.
        asking: how the mirror is asked for in Python, for people.
        models: the recipes of models that it can load.
        left_out: recipes that it cannot, each with the reason.
        pair: two of the models: the one for what needs one only, and the second of cases that take two.
        caches: types of the cache.
        flash: whether attention is flash attention by default; None when the library decides.
        options: what else there is to choose.
        rules: cases that it cannot do.
        too_damaged: cases that it cannot do with an empty replica: what is no number ends the program.
        readers: with so many threads each one reads K and V; empty: with any number.
        computes_in_loading: whether it computes weights from others when it loads a model.
        repacked: what the log says of weights that were repacked; with a number, which is not 0.
        repacking: what the library's system information has when it can repack; None when it always can.
    """

    binding: str
    variable: str
    file: str
    libraries: tuple[str, ...]
    asking: str
    models: tuple[str, ...]
    left_out: Mapping[str, str]
    pair: tuple[str, str]
    caches: tuple[str, ...]
    flash: bool | None
    options: tuple[Option, ...]
    rules: tuple[Rule, ...]
    too_damaged: tuple[Rule, ...]
    readers: tuple[int, ...]
    computes_in_loading: bool
    repacked: re.Pattern[str]
    repacking: str | None

    def options_for(self, arch: str) -> tuple[tuple[Option, ...], ...]:
        """The options that mean something for an architecture, by group."""
        groups: dict[str, list[Option]] = {}
        for option in self.options:
            if not option.archs or arch in option.archs:
                groups.setdefault(option.group, []).append(option)
        return tuple(tuple(group) for group in groups.values())

    def rules_for(self, tree: Path, model: str, arch: str) -> tuple[Rule, ...]:
        """The rules for a model at a commit."""
        return tuple(rule for rule in self.rules if rule.is_for(model, arch) and rule.holds_in(tree))


def load_profile(upstream: str) -> Profile:
    """The profile of an upstream that there is data for."""
    table = tomllib.loads(profile_path(upstream).read_text(encoding="utf-8"))
    first, second = table["pair"]
    return Profile(
        binding=table["binding"],
        variable=table["library"]["variable"],
        file=table["library"]["file"],
        libraries=tuple(table["libraries"]),
        asking=table["asking"],
        models=tuple(table["models"]),
        left_out={entry["name"]: entry["reason"] for entry in table.get("no_model", [])},
        pair=(first, second),
        caches=tuple(table["caches"]),
        flash=table.get("flash"),
        options=tuple(_option(entry) for entry in table.get("option", [])),
        rules=tuple(_rule(entry) for entry in table.get("left_out", [])),
        too_damaged=tuple(_rule(entry) for entry in table.get("too_damaged", [])),
        readers=tuple(table.get("readers", ())),
        computes_in_loading=table.get("computes_in_loading", False),
        repacked=re.compile(table["repacked"]["log"]),
        repacking=table["repacked"].get("system"),
    )


def profile_path(upstream: str) -> Path:
    """The file that a profile is read from."""
    return data.patches(upstream) / "verify.toml"


def _option(entry: Mapping[str, Any]) -> Option:
    return Option(
        entry["name"],
        entry["group"],
        tuple(sorted(entry.get("model", {}).items())),
        tuple(sorted(entry.get("context", {}).items())),
        tuple(entry.get("archs", ())),
        entry.get("usual", False),
    )


def _rule(entry: Mapping[str, Any]) -> Rule:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()
    }
    if "instead" in values:
        values["instead"] = Instead(
            values["instead"].get("flash"), tuple(values["instead"].get("options", ()))
        )
    return Rule(**values)
