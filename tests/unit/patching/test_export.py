from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from numamirror_build.patching.apply import patch_files
from numamirror_build.patching.export import export_series
from numamirror_build.patching.scope import TreeFiles
from numamirror_build.store import Store
from numamirror_build.upstreams.checkout import Checkout
from numamirror_build.upstreams.git import run_git
from tests.unit.patching import made_up

COMMITTER = {"GIT_COMMITTER_NAME": "Somebody", "GIT_COMMITTER_EMAIL": "some@body"}


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """The made-up tree on disk."""
    return made_up.checkout(tmp_path / "checkout")


def export(tmp_path: Path, checkout: Checkout, name: str) -> list[Path]:
    """Export with a cache and into a folder of that name."""
    return export_series(Store(tmp_path / f"cache-{name}"), checkout, made_up.make(), tmp_path / name)


def apply_mails(patches: list[Path], tree: Path) -> list[str]:
    """What a user does: a repository with the tree in it and ``git am``; returns the commits' subjects."""
    (tree / ".git/config").unlink(missing_ok=True)
    run_git("init", "--quiet", tree)
    run_git("add", "--all", "--force", cwd=tree)
    author = {"GIT_AUTHOR_NAME": "Somebody", "GIT_AUTHOR_EMAIL": "some@body"}
    run_git("commit", "--quiet", "--message", "pristine", cwd=tree, env={**author, **COMMITTER})
    run_git("am", "--quiet", *patches, cwd=tree, env=COMMITTER)
    return run_git("log", "--reverse", "--format=%s", cwd=tree).decode().splitlines()


def test_series_applies_and_gives_the_patched_tree(tmp_path: Path, checkout: Checkout) -> None:
    """`git am` of the series on the pin's tree gives exactly the patched tree, modes included."""
    (checkout.path / "src/b.c").chmod(0o755)
    patches = export(tmp_path, checkout, "out")
    subjects = apply_mails(patches, checkout.path)
    assert subjects == [
        "pristine",
        "ggml : add the sources of the NUMA mirror",
        "ggml : reach the data of tensors through accessors",
        "ggml : call the NUMA mirror",
    ]
    after = TreeFiles(checkout.path)
    assert {path: after[path] for path in patch_files(made_up.FILES, made_up.make())} == patch_files(
        made_up.FILES, made_up.make()
    )
    assert after["README"] == made_up.FILES["README"]
    assert os.access(checkout.path / "src/b.c", os.X_OK) and not os.access(checkout.path / "src/a.c", os.X_OK)


def test_steps_are_our_files_then_rewrite_then_hooks(tmp_path: Path, checkout: Checkout) -> None:
    """The first patch has new files only, the second what the rewrite edits, the third what hooks edit."""
    patches = export(tmp_path, checkout, "out")
    touched = [re.findall(r"^\+\+\+ b/(.*)$", patch.read_text("latin-1"), re.MULTILINE) for patch in patches]
    assert touched == [["src/mirror.h"], ["src/a.c"], ["src/b.c"]]
    assert [patch.name[:5] for patch in patches] == ["0001-", "0002-", "0003-"]


def test_same_bytes_whoever_exports(
    tmp_path: Path, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the user's git configuration nor the environment nor the time changes a byte of the series."""
    first = export(tmp_path, checkout, "first")
    config = tmp_path / "home/.gitconfig"
    config.parent.mkdir()
    config.write_text(
        "[user]\nname = X\n[format]\nsignature = mine\nsubjectPrefix = MINE\n[diff]\nnoprefix = true\n"
    )
    monkeypatch.setenv("HOME", str(config.parent))
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Y")
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2001-01-01T00:00:00Z")
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    second = export(tmp_path, checkout, "second")
    assert [patch.read_bytes() for patch in first] == [patch.read_bytes() for patch in second]


def test_patches_say_what_they_are_for(tmp_path: Path, checkout: Checkout) -> None:
    """Each mail names the generator, the upstream commit and the plan, and carries the date of the pin."""
    for patch in export(tmp_path, checkout, "out"):
        text = patch.read_text("latin-1")
        assert "From: numamirror-build <numamirror-build@localhost>" in text
        assert "Date: Fri, 2 Jan 2026 03:04:05 +0000" in text
        assert f"for tiny {made_up.PIN.commit}\n(plan {made_up.make().digest[:12]}, scope cpu)." in text


def test_an_earlier_series_is_replaced(tmp_path: Path, checkout: Checkout) -> None:
    """Patches of ours from an earlier export are gone, so that `*.patch` is the series; others' stay."""
    (first, *_) = export(tmp_path, checkout, "out")
    first.rename(tmp_path / "out/0009-old.patch")
    (tmp_path / "out/0001-theirs.patch").write_text("From: somebody\n")
    series = export(tmp_path, checkout, "out")
    assert sorted((tmp_path / "out").iterdir()) == sorted([*series, tmp_path / "out/0001-theirs.patch"])
