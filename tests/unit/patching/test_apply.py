from __future__ import annotations

import os
from pathlib import Path

import pytest

from numamirror_build import data
from numamirror_build.errors import ApplyError
from numamirror_build.patching.apply import PatchedTree, apply_plan, patch_files, unpatch_files
from numamirror_build.patching.plan import Plan
from numamirror_build.progress import Quiet
from numamirror_build.store import Store
from numamirror_build.upstreams.checkout import Checkout
from tests.unit.patching import made_up


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """The made-up tree on disk, with a program, a link, an empty folder and git's own files."""
    return made_up.checkout(tmp_path / "checkout")


def apply(tmp_path: Path, checkout: Checkout, plan: Plan) -> PatchedTree:
    """Apply with a cache in a temporary folder."""
    return apply_plan(Store(tmp_path / "cache"), checkout, plan, progress=Quiet())


def test_edits_and_new_files_are_in_the_tree(tmp_path: Path, checkout: Checkout) -> None:
    """The patched tree has every edit and new file, and everything else as it was."""
    tree = apply(tmp_path, checkout, made_up.make())
    assert (tree.path / "src/a.c").read_bytes() == (
        b'#include "mirror.h"\n#include <x.h>\nvoid * a(struct t * t) { return tensor_data(t); }\n'
    )
    assert (tree.path / "src/b.c").read_bytes() == (
        b"/* caf\xe9 */\nvoid b(void) {\n    one();\n    two();\n}\n"
    )
    assert (tree.path / "src/mirror.h").read_bytes() == b"// ours\n"
    assert (tree.path / "README").read_bytes() == made_up.FILES["README"]


def test_modes_links_and_folders_are_kept(tmp_path: Path, checkout: Checkout) -> None:
    """Programs stay programs, edited or not; links stay links; empty folders stay; git's own files do not."""
    (checkout.path / "src/a.c").chmod(0o755)
    tree = apply(tmp_path, checkout, made_up.make()).path
    assert os.access(tree / "src/a.c", os.X_OK) and os.access(tree / "run.sh", os.X_OK)
    assert not os.access(tree / "src/b.c", os.X_OK)
    assert (tree / "link").readlink() == Path("README")
    assert (tree / "folder-link").readlink() == Path("src")
    assert (tree / "empty").is_dir()
    assert not (tree / ".git").exists()


def test_a_link_in_a_folders_place_leads_no_change_out(tmp_path: Path, checkout: Checkout) -> None:
    """A tree whose folder is a link to somewhere else, with the same files: refused, and those stay."""
    (checkout.path / "src").rename(tmp_path / "elsewhere")
    (checkout.path / "src").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ApplyError, match="lead out of the tree"):
        apply(tmp_path, checkout, made_up.make())
    assert (tmp_path / "elsewhere/a.c").read_bytes() == made_up.FILES["src/a.c"]
    assert not (tmp_path / "elsewhere/mirror.h").exists()


def test_checkout_is_not_touched(tmp_path: Path, checkout: Checkout) -> None:
    """Applying leaves the checkout as it is: no file of the tree is shared with it."""
    tree = apply(tmp_path, checkout, made_up.make()).path
    for path, content in made_up.FILES.items():
        assert (checkout.path / path).read_bytes() == content
        assert not (tree / path).samefile(checkout.path / path)
    assert not (checkout.path / "src/mirror.h").exists()


def test_second_time_comes_from_the_cache(tmp_path: Path, checkout: Checkout) -> None:
    """The same plan and checkout give the same tree without work; another plan gives another tree."""
    first, second = (apply(tmp_path, checkout, made_up.make()) for _ in range(2))
    other = apply(tmp_path, checkout, made_up.make(hooks=()))
    assert first.fresh and not second.fresh
    assert first.path == second.path != other.path


def test_what_a_source_lacks_is_supplied(
    tmp_path: Path, checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that the build needs is in the tree, a source's own file stays; other content, another tree."""
    monkeypatch.setattr(data, "_root", lambda: tmp_path)
    keys = {apply(tmp_path, checkout, made_up.make()).key}
    folder = tmp_path / "patches/tiny/supplied"
    (folder / "tools").mkdir(parents=True)
    (folder / "README").write_text("ours")
    for content in ("one", "two"):
        (folder / "tools/info.cmake").write_text(content)
        tree = apply(tmp_path, checkout, made_up.make())
        assert (tree.path / "tools/info.cmake").read_text() == content
        assert (tree.path / "README").read_bytes() == made_up.FILES["README"]
        keys.add(tree.key)
    assert len(keys) == 3
    assert not (checkout.path / "tools").exists()


@pytest.mark.parametrize(
    ("path", "content", "expected"),
    [
        (
            "src/a.c",
            made_up.FILES["src/a.c"].replace(b"t->data", b"u->data"),
            f"src/a.c, byte {made_up.READ.start}",
        ),
        ("src/a.c", b"", "src/a.c, byte"),
        ("src/a.c", None, "src/a.c"),
        ("src/mirror.h", b"theirs", "src/mirror.h"),
    ],
    ids=["other-text", "cut-off", "gone", "new-file-exists"],
)
def test_plan_that_does_not_fit_is_an_error(
    tmp_path: Path, checkout: Checkout, path: str, content: bytes | None, expected: str
) -> None:
    """A tree that is not what was planned for is an error that names the place; nothing counts as made."""
    if content is None:
        (checkout.path / path).unlink()
    else:
        (checkout.path / path).write_bytes(content)
    with pytest.raises(ApplyError) as caught:
        apply(tmp_path, checkout, made_up.make())
    assert caught.value.exit_code == 17
    assert expected in str(caught.value.where)
    assert not list((tmp_path / "cache/trees").glob("*.json"))


def test_taking_back_gives_pristine() -> None:
    """Taking a plan back restores every byte and says which files were not there."""
    plan = made_up.make()
    patched = {**made_up.FILES, **patch_files(made_up.FILES, plan)}
    restored = {**patched, **unpatch_files(patched, plan)}
    assert restored == {**made_up.FILES, "src/mirror.h": None}


@pytest.mark.parametrize("path", ["src/a.c", "src/mirror.h"])
def test_taking_back_from_a_changed_tree_is_an_error(path: str) -> None:
    """A patched file that somebody changed where we had changed it cannot be taken back."""
    plan = made_up.make()
    patched = {**made_up.FILES, **patch_files(made_up.FILES, plan)}
    patched[path] = patched[path].replace(b"tensor_data", b"other_data").replace(b"ours", b"theirs")
    with pytest.raises(ApplyError, match=path):
        unpatch_files(patched, plan)
