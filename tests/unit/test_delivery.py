"""Handing over: what appears, what is left alone, what is copied again."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from numamirror_build import delivery
from numamirror_build.delivery import MANIFEST, Item, Product, check_place, deliver
from numamirror_build.errors import OutputError


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """A folder with things to hand over."""
    folder = tmp_path / "made"
    (folder / "tree" / "src").mkdir(parents=True)
    (folder / "tree" / "src" / "a.c").write_text("int a;\n")
    (folder / "tree" / "b.txt").write_text("b\n")
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    (folder / "lib.so.1").write_text("library")
    (folder / "lib.so").symlink_to("lib.so.1")
    return folder


def items(made: Path) -> list[Item]:
    """All of it."""
    return [
        Item("tree", made / "tree", "source", "k1", 1.5, True),
        Item("program", made / "tool", "bin/tool", "k2", 2.5, False),
        Item("library", made / "lib.so.1", "bin/lib.so.1", "k2", 2.5, False),
        Item("library", made / "lib.so", "bin/lib.so", "k2", 2.5, False),
    ]


def hand_over(tmp_path: Path, what: list[Item], **facts: str) -> tuple[Product, ...]:
    """Deliver to the test's output folder."""
    return deliver(tmp_path / "out", what, facts, locks=tmp_path / "locks")


def test_everything_arrives_with_size_digest_and_mode(tmp_path: Path, made: Path) -> None:
    """Files, links and folders are copied, and described."""
    products = {product.path.name: product for product in hand_over(tmp_path, items(made), pin="p")}
    out = tmp_path / "out"
    assert (out / "source/src/a.c").read_text() == "int a;\n"
    assert (out / "bin/tool").stat().st_mode & 0o777 == 0o755
    assert (out / "bin/lib.so").readlink() == Path("lib.so.1")
    tool = products["tool"]
    assert (tool.size, tool.sha256) == (10, hashlib.sha256(b"#!/bin/sh\n").hexdigest())
    assert (tool.seconds, tool.fresh) == (2.5, False)
    sums = (f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in
            (("b.txt", b"b\n"), ("src/a.c", b"int a;\n")))  # fmt: skip
    assert products["source"].sha256 == hashlib.sha256("".join(sums).encode()).hexdigest()
    assert products["source"].size == 9
    manifest = json.loads((out / MANIFEST).read_text())
    assert (manifest["complete"], manifest["pin"]) == (True, "p")
    assert [entry["path"] for entry in manifest["files"]] == [
        "source", "bin/tool", "bin/lib.so.1", "bin/lib.so",
    ]  # fmt: skip


def test_nothing_is_written_again_when_nothing_changed(tmp_path: Path, made: Path) -> None:
    """A second delivery of the same leaves every file, the manifest included, as it is."""
    first = hand_over(tmp_path, items(made))
    out = tmp_path / "out"
    before = {path: path.lstat().st_mtime_ns for path in out.rglob("*")}
    assert hand_over(tmp_path, items(made)) == first
    assert {path: path.lstat().st_mtime_ns for path in out.rglob("*")} == before


def test_what_changed_is_replaced_and_what_is_no_longer_made_goes(tmp_path: Path, made: Path) -> None:
    """The folder holds the last delivery, not a mixture with the one before."""
    hand_over(tmp_path, items(made))
    (made / "tool").write_text("#!/bin/bash\n")
    (made / "tree" / "b.txt").unlink()
    tree, tool, *_ = items(made)
    hand_over(tmp_path, [Item("tree", tree.source, "source", "k9", 1.0, True), tool])
    out = tmp_path / "out"
    assert (out / "bin/tool").read_text() == "#!/bin/bash\n"
    assert not (out / "source/b.txt").exists()
    assert sorted(path.name for path in (out / "bin").iterdir()) == ["tool"]


def test_a_damaged_file_is_copied_again(tmp_path: Path, made: Path) -> None:
    """A program that somebody cut short or removed is there again after the next run."""
    hand_over(tmp_path, items(made))
    (tmp_path / "out/bin/tool").write_text("")
    shutil.rmtree(tmp_path / "out/source")
    hand_over(tmp_path, items(made))
    assert (tmp_path / "out/bin/tool").read_text() == "#!/bin/sh\n"
    assert (tmp_path / "out/source/b.txt").exists()


def test_other_peoples_files_are_never_touched(tmp_path: Path, made: Path) -> None:
    """Something of the user's in the way is an error, and stays; beside ours it does not matter."""
    (tmp_path / "out/source").mkdir(parents=True)
    (tmp_path / "out/source/mine").write_text("precious")
    with pytest.raises(OutputError) as caught:
        hand_over(tmp_path, items(made))
    assert caught.value.where == str(tmp_path / "out/source")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["source"]
    (tmp_path / "out/source").rename(tmp_path / "out/mine")
    hand_over(tmp_path, items(made))
    hand_over(tmp_path, [])
    assert (tmp_path / "out/mine/mine").read_text() == "precious"


def test_an_interrupted_delivery_is_known_as_unfinished_and_goes_on(
    tmp_path: Path, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped at any file, the manifest says incomplete, and the next run finishes."""
    place = delivery._place
    for fatal in range(4):
        out = tmp_path / f"out{fatal}"
        count = 0

        def stop_at(out: Path, item: Item, fatal: int = fatal) -> dict[str, object]:
            nonlocal count
            count += 1
            if count > fatal:
                raise KeyboardInterrupt
            return place(out, item)

        monkeypatch.setattr(delivery, "_place", stop_at)
        with pytest.raises(KeyboardInterrupt):
            deliver(out, items(made), {}, locks=tmp_path / "locks")
        assert json.loads((out / MANIFEST).read_text())["complete"] is False
        monkeypatch.setattr(delivery, "_place", place)
        deliver(out, items(made), {}, locks=tmp_path / "locks")
        assert json.loads((out / MANIFEST).read_text())["complete"] is True
        assert (out / "bin/lib.so").exists()


def test_an_output_folder_that_is_a_file_is_an_output_error(tmp_path: Path, made: Path) -> None:
    """The message names the path and the option."""
    (tmp_path / "out").write_text("")
    with pytest.raises(OutputError, match="--out"):
        hand_over(tmp_path, items(made))


@pytest.mark.parametrize("out", ["/proc/x", "file/x"])
def test_an_output_folder_that_cannot_be_made_is_an_output_error(
    tmp_path: Path, made: Path, out: str
) -> None:
    """Whatever the operating system says; told before as well as when it is handed over."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="--out"):
        deliver(tmp_path / out, items(made), {}, locks=tmp_path / "locks")
    with pytest.raises(OutputError):
        check_place(tmp_path / out)
