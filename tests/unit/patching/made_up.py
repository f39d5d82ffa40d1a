"""A made-up plan on a made-up tree: small, and with everything in it that a plan can have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from numamirror_build.patching.plan import NewFile, Plan, build_plan
from numamirror_build.patching.scope import OutOfScope
from numamirror_build.rewrite import AccessReport, Edit, Site
from numamirror_build.upstreams.checkout import Checkout
from numamirror_build.upstreams.pins import Binding, Pin

PIN = Pin(
    upstream="tiny",
    name="1.0",
    commit="c" * 40,
    tree="a" * 40,
    date="2026-01-02T03:04:05+00:00",
    binding=Binding("tiny-python", "1.0", "tiny_python-1.0.tar.gz", "0" * 64),
    listed=True,
)
FILES = {
    "src/a.c": b"#include <x.h>\nvoid * a(struct t * t) { return t->data; }\n",
    "src/b.c": b"/* caf\xe9 */\nvoid b(void) {\n}\n",
    "README": b"left alone\n",
}
NEW = NewFile("src/mirror.h", b"// ours\n")


def edit(path: str, old: str, new: str, rule: str) -> Edit:
    """Replace the one place where ``old`` is."""
    start = FILES[path].index(old.encode())
    return Edit(path, start, start + len(old), old.encode(), new.encode(), rule)


def insertion(path: str, before: str, new: str, rule: str) -> Edit:
    """Insert before the one place where ``before`` is."""
    start = FILES[path].index(before.encode())
    return Edit(path, start, start, b"", new.encode(), rule)


READ = edit("src/a.c", "t->data", "tensor_data(t)", "read")
INCLUDE = insertion("src/a.c", "#include", '#include "mirror.h"\n', "include")
HOOK_ONE = insertion("src/b.c", "}", "    one();\n", "hook:one")
HOOK_TWO = insertion("src/b.c", "}", "    two();\n", "hook:two")
SITE = Site("src/a.c", 2, 34, "read", "arrow", in_macro=False)


def make(
    *,
    pin: Pin = PIN,
    tree: str | None = PIN.tree,
    sites: tuple[Site, ...] = (SITE,),
    edits: tuple[Edit, ...] = (READ, INCLUDE),
    hooks: tuple[Edit, ...] = (HOOK_ONE, HOOK_TWO),
    new_files: tuple[NewFile, ...] = (NEW,),
) -> Plan:
    """The plan, or one that differs from it a little."""
    return build_plan(
        pin,
        tree,
        "cpu",
        hook_edits=hooks,
        accesses=AccessReport(sites, edits),
        new_files=new_files,
        out_of_scope=(OutOfScope("gpu/*", "not for CPU", ("gpu/k.c",)),),
    )


def other_pin(name: str, digit: str) -> Pin:
    """A pin of another commit, whose tree nobody knows."""
    return replace(PIN, name=name, commit=digit * 40, tree=None)


def checkout(folder: Path, files: Mapping[str, bytes] = FILES) -> Checkout:
    """The made-up tree on disk, with a program, links, an empty folder and git's own files."""
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("README")
    (folder / "folder-link").symlink_to("src")
    for name in ("empty", ".git"):
        (folder / name).mkdir()
    (folder / ".git/config").write_text("")
    return Checkout(PIN, folder, PIN.tree, "path", True, "key", 0.0, True)
