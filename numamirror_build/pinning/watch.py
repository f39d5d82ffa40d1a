"""Names in upstream's headers that are worth a look when they are new: operations, types, classes of caches.

``patches/<upstream>/watch.toml`` says where they are declared.
Nothing fails for them: the rewrite and the censuses find what must be changed.
They tell a person what verification does not know of yet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from numamirror_build import data
from numamirror_build.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@dataclass(frozen=True)
class Watch:
    """One sort of names.

    Attributes:
        name: what they are, in the plural.
        files: a glob for the headers that declare them.
        pattern: a regular expression; its one group is the name.
        hint: what a new one may need.
    """

    name: str
    files: str
    pattern: re.Pattern[bytes]
    hint: str

    def names(self, files: Mapping[str, bytes]) -> set[str]:
        """The names in a tree."""
        return {
            name.decode()
            for path in files
            if fnmatchcase(path, self.files)
            for name in self.pattern.findall(files[path])
        }


def load_watches(upstream: str) -> tuple[Watch, ...]:
    """What is watched in an upstream.

    Raises:
        ConfigError: the file is not valid.
    """
    path = data.patches(upstream) / "watch.toml"
    try:
        entries = tomllib.loads(path.read_text())["watch"]
        return tuple(
            Watch(entry["name"], entry["files"], re.compile(entry["pattern"].encode(), re.M), entry["hint"])
            for entry in entries
        )
    except (tomllib.TOMLDecodeError, KeyError, re.error) as error:
        raise ConfigError("A data file is not valid", where=path.name, why=str(error)) from error


def new_names(
    upstream: str, before: Mapping[str, bytes], after: Mapping[str, bytes]
) -> dict[str, tuple[str, ...]]:
    """By sort, the names that only the second tree has; sorts without any are left out."""
    found = {
        watch.name: tuple(sorted(watch.names(after) - watch.names(before)))
        for watch in load_watches(upstream)
    }
    return {name: names for name, names in found.items() if names}
