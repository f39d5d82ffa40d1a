"""Planning as a whole, on a made-up upstream with its own patches and templates."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.errors import AccessError, AnchorError, ConfigError, LockMismatchError, NumaMirrorError
from numamirror_build.patching.lock import write_lock
from numamirror_build.patching.plan import Plan, make_plan
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams.checkout import Checkout
from tests.unit.patching import made_up

PATCHES = {
    "upstream.toml": """
[[render]]
template = "mirror.h.j2"
path = "ggml/include/ggml-numa-mirror.h"

[scope.cpu]
include = [{ glob = "*.c", reason = "C" }, { glob = "*.h", reason = "C" }]
exclude = [{ glob = "gpu/*", reason = "not for CPU" }]
""",
    "hooks/10-begin.toml": """
[[hook]]
id = "begin"
file = "ggml/src/ggml.c"
function = "compute"
place = "start"
text = "    begin();\\n"
""",
}
FILES = {
    "ggml/include/ggml.h": b"#pragma once\nstruct ggml_tensor {\n    int type;\n    void * data;\n};\n",
    "ggml/src/ggml.c": (
        b'#include "ggml.h"\n\nvoid * compute(struct ggml_tensor * tensor) {\n    return tensor->data;\n}\n'
    ),
    "gpu/gpu.c": b'#include "ggml.h"\n\nvoid * gpu(struct ggml_tensor * t) {\n    return t->data;\n}\n',
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Patches and templates of an upstream called tiny."""
    root = tmp_path / "data"
    for path, text in PATCHES.items():
        (root / "patches/tiny" / path).parent.mkdir(parents=True, exist_ok=True)
        (root / "patches/tiny" / path).write_text(text)
    (root / "templates").mkdir()
    (root / "templates/mirror.h.j2").write_text("// {{ banner }}\n")
    monkeypatch.setattr(data, "_root", lambda: root)
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """The tree of tiny."""
    return made_up.checkout(tmp_path / "checkout", {**FILES, "src/x": b""})


def plan(tmp_path: Path, checkout: Checkout, *, locked: bool = True) -> Plan:
    """Plan with the cache in a temporary folder."""
    return make_plan(Store(tmp_path / "cache"), checkout, locked=locked, progress=Quiet())


def test_everything_comes_together(tmp_path: Path, root: Path, checkout: Checkout) -> None:
    """A plan holds the rewrite's edits, the hooks, the rendered files, and what is out of scope."""
    made = plan(tmp_path, checkout)
    assert made.counts() == {"ggml/src/ggml.c": {"read": 1}}
    assert made.hooks() == {"begin": 1}
    assert [new.path for new in made.new_files] == ["ggml/include/ggml-numa-mirror.h"]
    assert [(left.glob, left.files) for left in made.out_of_scope] == [("gpu/*", ("gpu/gpu.c",))]
    assert (made.upstream, made.tree, made.scope) == ("tiny", made_up.PIN.tree, "cpu")


def test_a_plan_that_is_known_needs_no_tree(tmp_path: Path, root: Path, checkout: Checkout) -> None:
    """The second time the plan comes from the cache, equal to the first, without a look at the tree."""
    first = plan(tmp_path, checkout)
    shutil.rmtree(checkout.path)
    assert plan(tmp_path, checkout) == first


@pytest.mark.parametrize("path", ["patches/tiny/hooks/10-begin.toml", "templates/mirror.h.j2"])
def test_changed_data_makes_a_new_plan(tmp_path: Path, root: Path, checkout: Checkout, path: str) -> None:
    """A change of a hook or of a template is in the next plan."""
    first = plan(tmp_path, checkout)
    text = (root / path).read_text()
    (root / path).write_text(text.replace("begin();", "start();").replace("}}\n", "}}\n// more\n"))
    assert plan(tmp_path, checkout).digest != first.digest


@pytest.mark.parametrize(
    ("path", "content", "kind", "code", "expected"),
    [
        (
            "ggml/src/ggml.c",
            FILES["ggml/src/ggml.c"].replace(b"compute", b"calculate"),
            AnchorError,
            14,
            ["begin", "ggml/src/ggml.c", "compute", "0 times"],
        ),
        (
            "ggml/src/ggml.c",
            FILES["ggml/src/ggml.c"] * 2,
            AnchorError,
            14,
            ["begin", "ggml/src/ggml.c", "compute", "2 times"],
        ),
        (
            "ggml/src/ggml.c",
            FILES["ggml/src/ggml.c"].replace(b"return tensor", b"return nobody_knows"),
            AccessError,
            15,
            ["ggml/src/ggml.c:4", "nobody_knows"],
        ),
    ],
    ids=["anchor-missing", "anchor-twice", "unknown-type"],
)
def test_a_tree_that_does_not_fit_is_an_error(
    tmp_path: Path,
    root: Path,
    checkout: Checkout,
    path: str,
    content: bytes,
    kind: type[NumaMirrorError],
    code: int,
    expected: list[str],
) -> None:
    """A tree that does not fit has its own error, which names what and where; no plan is kept."""
    (checkout.path / path).write_bytes(content)
    with pytest.raises(kind) as caught:
        plan(tmp_path, checkout)
    assert caught.value.exit_code == code
    assert all(word in str(caught.value) for word in expected)
    assert not list((tmp_path / "cache/plans").glob("*.json"))


def test_a_plan_from_the_cache_is_held_against_the_lock(
    tmp_path: Path, root: Path, checkout: Checkout
) -> None:
    """A lock that changed since the plan was made is noticed, unless the lock is to be written anew."""
    made = plan(tmp_path, checkout)
    lock = write_lock(made)
    assert lock == root / "patches/tiny/locks/1.0.toml"
    assert plan(tmp_path, checkout) == made
    lock.write_text(lock.read_text().replace("read = 1", "read = 2"))
    with pytest.raises(LockMismatchError, match="read 1 instead of 2"):
        plan(tmp_path, checkout)
    assert plan(tmp_path, checkout, locked=False) == made


def test_unlisted_commit_is_planned_without_a_lock(tmp_path: Path, root: Path, checkout: Checkout) -> None:
    """A commit that nobody has locked is planned, whatever the locks of other commits say."""
    lock = write_lock(plan(tmp_path, checkout))
    lock.write_text(lock.read_text().replace("read = 1", "read = 2"))
    unlisted = replace(checkout, pin=made_up.other_pin("f" * 12, "f"), key="other")
    assert plan(tmp_path, unlisted).counts() == {"ggml/src/ggml.c": {"read": 1}}


def test_bad_data_is_an_error_that_names_the_file(tmp_path: Path, root: Path, checkout: Checkout) -> None:
    """A data file that is no TOML is an error that names it."""
    (root / "patches/tiny/exceptions.toml").write_text("[[")
    with pytest.raises(ConfigError, match=r"exceptions\.toml"):
        plan(tmp_path, checkout)
