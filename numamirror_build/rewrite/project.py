"""The files of a tree, what each includes, and which macros each can see.

Nothing is read before it is asked for: most files of a tree never matter.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Mapping
from functools import cached_property

from numamirror_build.rewrite.macros import Macro, without_decorations
from numamirror_build.rewrite.preprocessor import Directives, Include, scan
from numamirror_build.rewrite.text import FIELD, Text, tokens

SOURCES = (
    ".c .cc .cpp .cxx .cu .m .mm .h .hh .hpp .hxx .cuh .inc .inl .ipp .tcc .def".split()  # noqa: SIM905
)
_DEFINED = re.compile(rb"#[ \t]*define[ \t]+([A-Za-z_]\w*)")
_FIRST = re.compile(rb"#[ \t]*define[ \t]+([A-Za-z_]\w*)[ \t]+([A-Za-z_]\w*)")
_NAME = re.compile(rb"[A-Za-z_]\w*")
_INCLUDED = re.compile(rb"#[ \t]*(?:include|import)[ \t]*([\"<])([^\">\n]+)[\">]")


class Project:
    """A read-only view of a tree's sources."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        self.files = {
            path: files[path] for path in sorted(files) if posixpath.splitext(path)[1].lower() in SOURCES
        }
        self._texts: dict[str, Text] = {}
        self._names: dict[str, frozenset[bytes]] = {}
        self._included: dict[str, list[Include]] = {}
        self._directives: dict[str, Directives] = {}
        self._resolved: dict[tuple[str, str], tuple[str, ...]] = {}
        self._closures: dict[str, dict[str, None]] = {}
        self._contexts: dict[str, dict[str, None]] = {}
        self._macros: dict[bytes, list[Macro]] = {}
        self._kinds: dict[tuple[str, int], str | int] = {}
        self._holders: dict[bytes, tuple[str, ...]] = {}

    def text(self, path: str) -> Text:
        """A file, scanned for comments and literals."""
        if path not in self._texts:
            self._texts[path] = Text.of(self.files[path])
        return self._texts[path]

    def directives(self, path: str) -> Directives:
        """A file's preprocessor directives."""
        if path not in self._directives:
            self._directives[path] = scan(self.text(path))
        return self._directives[path]

    def names(self, path: str) -> frozenset[bytes]:
        """All identifiers in a file's text, those in comments included."""
        if path not in self._names:
            self._names[path] = frozenset(_NAME.findall(self.files[path]))
        return self._names[path]

    def holders(self, name: bytes, within: Iterable[str] | None = None) -> tuple[str, ...]:
        """The files that have a name anywhere in their text; of all files, or of some."""
        if within is not None:
            return tuple(path for path in within if path in self.files and name in self.names(path))
        if name not in self._holders:
            self._holders[name] = tuple(path for path in self.files if name in self.names(path))
        return self._holders[name]

    def definers(self, name: bytes) -> list[str]:
        """The files that may define a class of some name."""
        head = rb"\b(?:struct|class|union)\b(?:[^;{}()]|\(+[^;{}()]*\)+\s*(?=\w))*?"
        rest = rb"\b\s*(?:final\s*)?(?::(?!:)[^;{}]*)?\{"
        defining = re.compile(head + rb"\b" + re.escape(name) + rest)
        return [path for path in self.holders(name) if defining.search(self.files[path])]

    @cached_property
    def field_macros(self) -> frozenset[bytes]:
        """Macros without parameters whose text begins with the name of the field, or with such a macro."""
        first: dict[bytes, set[bytes]] = {}
        for content in self.files.values():
            for name, word in _FIRST.findall(content):
                first.setdefault(word, set()).add(name)
        found = [FIELD]
        for word in found:
            found += sorted(first.get(word, set()).difference(found))
        return frozenset(found[1:])

    def resolve(self, include: Include, path: str) -> tuple[str, ...]:
        """The files that an include directive can mean."""
        folder = posixpath.dirname(path)
        key = (folder, include.name)
        if key not in self._resolved:
            beside = posixpath.normpath(posixpath.join(folder, include.name))
            if beside in self.files:
                self._resolved[key] = (beside,)
            else:
                name = posixpath.normpath(include.name)
                while name.startswith("../"):
                    name = name[3:]
                tail = "/" + name
                same = self._by_name.get(posixpath.basename(name), ())
                self._resolved[key] = tuple(p for p in same if p == name or p.endswith(tail))
        return self._resolved[key]

    def closure(self, path: str) -> dict[str, None]:
        """The file and everything that it includes, in order."""
        if path not in self._closures:
            found = {path: None}
            queue = [path] if path in self.files else []
            for current in queue:
                for include in self._includes(current):
                    for target in self.resolve(include, current):
                        if target not in found:
                            found[target] = None
                            queue.append(target)
            self._closures[path] = found
        return self._closures[path]

    def context(self, path: str) -> dict[str, None]:
        """The closure, and that of all files that include the file, directly or not."""
        if path not in self._contexts:
            found = dict(self.closure(path))
            for user in self.includers(path):
                found.update(self.closure(user))
            self._contexts[path] = found
        return self._contexts[path]

    def includers(self, path: str) -> list[str]:
        """All files whose closure holds the file."""
        found = {path: None}
        queue = [path]
        for current in queue:
            for user in self._users.get(current, ()):
                if user not in found:
                    found[user] = None
                    queue.append(user)
        return queue[1:]

    def users(self, path: str) -> list[str]:
        """The files with an include directive that can mean a file."""
        return self._users.get(path, [])

    def exact_includes(self, path: str, target: str) -> list[Include]:
        """The directives of a file, comments left aside, that can mean a target."""
        found = self.directives(path).includes
        return [include for include in found if target in self.resolve(include, path)]

    def direct_includes(self, path: str, target: str) -> list[Include]:
        """The directives of a file that can mean a target."""
        return [include for include in self._includes(path) if target in self.resolve(include, path)]

    def macros(self, name: bytes, path: str) -> list[Macro]:
        """The definitions of a macro that a file can see; those of its includers if it sees none itself."""
        if name not in self._defined:
            return []
        if name not in self._macros:
            self._macros[name] = [m for p in self._defined[name] for m in self.macros_in(p, name)]
        found = self._macros[name]
        for visible in (self.closure(path), self.context(path)):
            seen = [macro for macro in found if macro.path in visible]
            if seen:
                return seen
        return []

    def macro_names(self, path: str) -> list[bytes]:
        """The identifiers in a file that some file defines as a macro, sorted."""
        return sorted(self.names(path) & self._defined.keys())

    def is_macro(self, name: bytes) -> bool:
        """Whether any file defines a macro of that name."""
        return name in self._defined

    def macro_kind(self, name: bytes, path: str) -> str | int:
        """What a macro's definitions have in common.

        Returns:
            ``blank`` if it stands for qualifiers and attributes only, ``statement`` if it ends a statement,
            the number of a parameter if it wraps that one in attributes, or an empty string.
        """
        definitions = self.macros(name, path)
        kinds = {self._kind(macro) for macro in definitions}
        if len(kinds) > 1 or all(len(macro.body) == 1 and macro.params for macro in definitions):
            return ""
        return kinds.pop()

    def _kind(self, macro: Macro) -> str | int:
        key = (macro.path, macro.start)
        if key in self._kinds:
            return self._kinds[key]
        self._kinds[key] = ""
        params = macro.params or ()

        def is_blank(name: bytes) -> bool:
            return self.is_macro(name) and self.macro_kind(name, macro.path) == "blank"

        rest = without_decorations(macro.body, params, is_blank)
        kind: str | int = ""
        if not rest:
            kind = "blank"
        elif len(rest) == 1 and rest[0].text in params:
            kind = params.index(rest[0].text)
        elif rest[-1].text in (b";", b"}", b"else") or self._ends_in_statement(macro):
            kind = "statement"
        self._kinds[key] = kind
        return kind

    def _ends_in_statement(self, macro: Macro) -> bool:
        last = macro.body[-1]
        depth = 0
        for token in reversed(macro.body):
            depth += (token.text == b")") - (token.text == b"(")
            if depth == 0 and token.kind == "name":
                last = token
                break
            if depth == 0 and token.text != b"(":
                return False
        return (
            last.kind == "name"
            and self.is_macro(last.text)
            and self.macro_kind(last.text, macro.path) == "statement"
        )

    def macros_in(self, path: str, name: bytes) -> Iterable[Macro]:
        """The definitions of a macro that a file holds."""
        plain = self.text(path).plain
        for define in self.directives(path).defines:
            if define.name == name:
                body = tuple(tokens(plain, define.body, define.end))
                yield Macro(name, define.params, define.variadic, body, path, define.start, define.end)

    @cached_property
    def _defined(self) -> dict[bytes, list[str]]:
        found: dict[bytes, list[str]] = {}
        for path, content in self.files.items():
            for name in dict.fromkeys(_DEFINED.findall(content)):
                found.setdefault(name, []).append(path)
        return found

    @cached_property
    def _users(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.files:
            for include in self._includes(path):
                for target in self.resolve(include, path):
                    found.setdefault(target, []).append(path)
        return found

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for path in self.files:
            found.setdefault(posixpath.basename(path), []).append(path)
        return found

    def _includes(self, path: str) -> list[Include]:
        if path not in self._included:
            self._included[path] = [
                Include(m[2].decode("utf-8", "surrogateescape"), m[1] == b'"', m.start(), m.end())
                for m in _INCLUDED.finditer(self.files[path])
            ]
        return self._included[path]
