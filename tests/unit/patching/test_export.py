from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.errors import ApplyError, ConfigError, OutputError
from numamirror_build.patching.apply import patch_files
from numamirror_build.patching.export import _SERIES, DOCUMENT, export_series
from numamirror_build.patching.scope import TreeFiles
from numamirror_build.upstreams.checkout import Checkout
from numamirror_build.upstreams.git import run_git
from tests.unit.patching import made_up

COMMITTER = {"GIT_COMMITTER_NAME": "Somebody", "GIT_COMMITTER_EMAIL": "some@body"}


@pytest.fixture(autouse=True)
def hooks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the made-up plan's hooks would be from."""
    folder = tmp_path / "patches/tiny/hooks"
    folder.mkdir(parents=True)
    (folder / "20-options.toml").write_text('[[hook]]\nid = "one"\n')
    (folder / "40-loader.toml").write_text('[[hook]]\nid = "two"\n')
    monkeypatch.setattr(data, "patches", lambda upstream: tmp_path / "patches" / upstream)
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """The made-up tree on disk."""
    return made_up.checkout(tmp_path / "checkout")


def export(tmp_path: Path, checkout: Checkout, name: str) -> list[Path]:
    """Export into a folder of that name."""
    return export_series(checkout, made_up.make(), tmp_path / name)


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
        "llama : load models and make caches with the NUMA mirror",
        "common : add --numa mirror and its companions",
        "docs : describe the NUMA mirror",
    ]
    after = TreeFiles(checkout.path)
    expected = patch_files(made_up.FILES, made_up.make())
    assert {path: after[path] for path in expected} == expected
    assert after[DOCUMENT] == (data.templates() / "export/numa-mirror.md").read_bytes()
    assert after["README"] == made_up.FILES["README"]
    assert os.access(checkout.path / "src/b.c", os.X_OK) and not os.access(checkout.path / "src/a.c", os.X_OK)


def test_each_patch_has_its_part(tmp_path: Path, checkout: Checkout) -> None:
    """New files, the rewrite, the hooks by the files that they are from, the document; in that order."""
    patches = export(tmp_path, checkout, "out")
    texts = [patch.read_text("latin-1") for patch in patches]
    touched = [re.findall(r"^\+\+\+ b/(.*)$", text, re.MULTILINE) for text in texts]
    assert touched == [["src/mirror.h"], ["src/a.c"], ["src/b.c"], ["src/b.c"], [DOCUMENT]]
    assert [patch.name[:5] for patch in patches] == [f"000{number}-" for number in range(1, 6)]
    assert ["+    two();" in text for text in texts] == [False, False, True, False, False]
    assert ["+    one();" in text for text in texts] == [False, False, False, True, False]


def test_no_hook_is_lost(tmp_path: Path, checkout: Checkout, hooks: Path) -> None:
    """A file of hooks that the series has no patch for is an error, and nothing is written."""
    (hooks / "40-loader.toml").rename(hooks / "70-audio.toml")
    with pytest.raises(ConfigError, match="takes these hooks") as caught:
        export(tmp_path, checkout, "out")
    assert "audio" in str(caught.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("upstream", data.upstream_names())
def test_the_series_knows_all_files_of_hooks(upstream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every upstream, and names none that no upstream has."""
    monkeypatch.undo()
    files = {path.stem.partition("-")[2] for path in (data.patches(upstream) / "hooks").glob("*.toml")}
    assert files == {part for patch in _SERIES for part in patch.parts if " " not in part}


def test_upstreams_own_document_is_kept(tmp_path: Path, checkout: Checkout) -> None:
    """A tree that has a file of that name is an error, and nothing is written."""
    (checkout.path / "docs").mkdir()
    (checkout.path / DOCUMENT).write_text("theirs")
    with pytest.raises(ApplyError) as caught:
        export(tmp_path, checkout, "out")
    assert caught.value.where == DOCUMENT
    assert not (tmp_path / "out").exists()


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


@pytest.mark.parametrize(
    ("name", "link"),
    [("0001-", False), ("0005-", False), ("0009-other.patch", False), ("0009-other.patch", True)],
)
def test_what_is_in_the_way_leaves_the_folder_alone(
    tmp_path: Path, checkout: Checkout, name: str, link: bool
) -> None:
    """Where something else has a patch's place, or would be taken for one: one error, no patch is written."""
    out = tmp_path / "out"
    place = next((path for path in export(tmp_path, checkout, "out") if name in path.name), out / name)
    place.unlink(missing_ok=True)
    if link:
        place.symlink_to("nowhere")
    else:
        place.mkdir()

    def content() -> dict[str, bytes]:
        return {path.name: path.read_bytes() if path.is_file() else b"" for path in out.iterdir()}

    before = content()
    with pytest.raises(OutputError) as caught:
        export_series(checkout, made_up.make(pin=made_up.other_pin("2.0", "d")), out)
    assert place.name in str(caught.value) and caught.value.hint
    assert content() == before
