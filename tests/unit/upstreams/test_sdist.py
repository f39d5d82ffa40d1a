from __future__ import annotations

import gzip
import io
import random
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from numamirror_build.errors import ContentMismatchError, SourceError
from numamirror_build.progress import Quiet
from numamirror_build.store import Store, file_sha256
from numamirror_build.upstreams import sdist
from numamirror_build.upstreams.sdist import fetch_sdist, unpack_sdist
from tests.unit.upstreams.conftest import Heard
from tests.unit.upstreams.made_up import SDIST, Tiny


def test_pip_gets_the_named_file(tiny: Tiny, cache: Store) -> None:
    """The sdist comes from the index that pip is set up for, with the name and content that the pin says."""
    archive = fetch_sdist(cache, tiny.pin, progress=Quiet())
    assert archive.name == SDIST
    assert archive.read_bytes() == tiny.archive.read_bytes()


def test_second_time_needs_no_index(tiny: Tiny, cache: Store, heard: Heard) -> None:
    """An sdist that is in the cache is used without asking anybody."""
    first = fetch_sdist(cache, tiny.pin, progress=Quiet())
    tiny.archive.unlink()
    assert fetch_sdist(cache, tiny.pin, progress=heard) == first
    assert heard.steps == []


@pytest.mark.parametrize("damage", ["truncated", "one byte", "deleted"])
def test_damaged_cache_is_filled_again(tiny: Tiny, cache: Store, damage: str) -> None:
    """A cached sdist that no longer has its sha256 is fetched again."""
    archive = fetch_sdist(cache, tiny.pin, progress=Quiet())
    content = archive.read_bytes()
    if damage == "deleted":
        archive.unlink()
    else:
        archive.write_bytes(content[:-100] if damage == "truncated" else content[:-1] + b"\0")
    again = fetch_sdist(cache, tiny.pin, progress=Quiet())
    assert again.read_bytes() == content


def test_truncated_on_the_index(
    tiny: Tiny, cache: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An sdist with another sha256 is a content mismatch, exit code 13, with both sums; it is not run."""
    monkeypatch.setenv("TINY_RAN", str(tmp_path / "ran"))
    fetch_sdist(cache, tiny.pin, progress=Quiet())
    assert (tmp_path / "ran").exists(), "control: pip runs the sdist's backend when the sum is right"
    (tmp_path / "ran").unlink()
    tiny.archive.write_bytes(tiny.archive.read_bytes()[:-7])
    with pytest.raises(ContentMismatchError) as caught:
        fetch_sdist(Store(tmp_path / "other"), tiny.pin, progress=Quiet())
    assert caught.value.exit_code == 13
    assert tiny.pin.binding and tiny.pin.binding.sha256 in str(caught.value)
    assert file_sha256(tiny.archive) in str(caught.value)
    assert not (tmp_path / "ran").exists()


def test_not_on_the_index(tiny: Tiny, cache: Store) -> None:
    """An sdist that pip cannot find is a source error, exit code 12, with pip's reason and the command."""
    tiny.archive.unlink()
    with pytest.raises(SourceError) as caught:
        fetch_sdist(cache, tiny.pin, progress=Quiet())
    assert caught.value.exit_code == 12
    assert "No matching distribution found for tiny-python==1.0" in str(caught.value.why)
    assert "pip download tiny-python==1.0" in str(caught.value.where)


def test_a_prebuilt_wheel_is_never_taken(tiny: Tiny, cache: Store) -> None:
    """When the index has only a wheel of that version, there is no source."""
    tiny.archive.unlink()
    with tarfile.open(tiny.index / "tiny_python-1.0-py3-none-any.whl", "w"):
        pass
    with pytest.raises(SourceError, match="No matching distribution"):
        fetch_sdist(cache, tiny.pin, progress=Quiet())


def test_pin_without_binding(tiny: Tiny, cache: Store) -> None:
    """A pin without a binding has no sdist."""
    with pytest.raises(SourceError, match="no source distribution"):
        fetch_sdist(cache, replace(tiny.pin, binding=None), progress=Quiet())


# --- unpacking ---


def member(name: str, content: bytes = b"", **facts: object) -> tuple[tarfile.TarInfo, bytes]:
    """One entry of an archive."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for key, value in facts.items():
        setattr(info, key, value)
    return info, content


def pack(folder: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive of these entries."""
    archive = folder / "x-1.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    return archive


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    """A link in an archive."""
    return member(name, type=kind, linkname=target)


def test_unpacks_files_programs_and_links(tmp_path: Path) -> None:
    """Content, the executable bit and links inside arrive; set-uid and write permission for others do not."""
    archive = pack(
        tmp_path,
        member("x-1/a/b", b"b", mode=0o4777),
        member("x-1/c", b"c", mode=0o666),
        link("x-1/a/l", "../c"),
        member("x-1/d", type=tarfile.DIRTYPE),
    )
    top = unpack_sdist(archive, tmp_path / "out")
    assert top == tmp_path / "out/x-1"
    assert (top / "a/b").read_bytes() == b"b" and (top / "a/l").read_bytes() == b"c" and (top / "d").is_dir()
    assert ((top / "a/b").stat().st_mode & 0o7777, (top / "c").stat().st_mode & 0o7777) == (0o755, 0o644)


def test_unpacks_only_a_part(tmp_path: Path) -> None:
    """With ``only``, nothing else is written; a part that is not there is an error."""
    archive = pack(tmp_path, member("x-1/a/b", b"b"), member("x-1/ab", b"x"), member("x-1/c", b"c"))
    top = unpack_sdist(archive, tmp_path / "out", only="a")
    assert [str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()] == ["a/b"]
    with pytest.raises(SourceError, match="nothing lies below z"):
        unpack_sdist(archive, tmp_path / "none", only="z")


HOSTILE = {
    "traversal": [member("x-1/../../evil", b"x")],
    "traversal at once": [member("../evil", b"x")],
    "absolute": [member("/tmp/evil", b"x")],
    "two tops": [member("x-1/a", b"x"), member("y-1/a", b"x")],
    "absolute link": [link("x-1/a", "/etc/passwd")],
    "link to the parent": [link("x-1/a", "..")],
    "link to a sibling": [link("x-1/a/b", "../../evil")],
    "write through a link": [link("x-1/a", "."), member("x-1/a/evil", b"x")],
    "link in place of the top": [link("x-1", ".."), member("x-1/evil", b"x")],
    "link through a link": [
        member("x-1/d/e/f", b"x"),
        link("x-1/d/e/up", "../.."),
        link("x-1/d/e/out", "up/../evil"),
    ],
    "hard link": [link("x-1/a", "../evil", tarfile.LNKTYPE)],
    "device": [member("x-1/a", type=tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "named pipe": [member("x-1/a", type=tarfile.FIFOTYPE)],
    "file twice": [member("x-1/a", b"x"), member("x-1/a", b"y")],
    "file as folder": [member("x-1/a", b"x"), member("x-1/a/b", b"y")],
    "no name": [member(".", type=tarfile.DIRTYPE)],
    "links in a circle": [link("x-1/a", "b"), link("x-1/b", "a")],
    "link to itself": [link("x-1/a", "a")],
    "link to nothing": [link("x-1/a", "")],
    "link over a folder": [member("x-1/a", type=tarfile.DIRTYPE), link("x-1/a", "..")],
    "write through a link to a folder": [
        member("x-1/d/f", b"x"),
        link("x-1/l", "d"),
        member("x-1/l", type=tarfile.DIRTYPE),
        member("x-1/l/g", b"x"),
    ],
    "long name": [member("x-1/" + "n" * 256, b"x")],
    "long link": [link("x-1/a", "n" * 5000)],
    "long path": [member("x-1/" + f"{'n' * 50}/" * 30 + "f", b"x")],
    "deep": [member("x-1/" + "n/" * 400 + "f", b"x")],
    "no text": [member("x-1/a", b"x", pax_headers={"path": "x-1/a\0b"})],
    "less than nothing": [member("x-1/a", b"x", pax_headers={"size": "-5"})],
    "terabytes of holes": [
        member(
            "x-1/a",
            b"1\n0\n5\nhello".ljust(517, b"\0"),
            pax_headers={
                "GNU.sparse.major": "1",
                "GNU.sparse.minor": "0",
                "GNU.sparse.name": "x-1/a",
                "GNU.sparse.realsize": str(1 << 45),
            },
        )
    ],
}


@pytest.mark.parametrize("members", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_content_is_refused(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    """What could write or point outside of the folder, or is no file, is refused; nothing appears outside."""
    (tmp_path / "a/b").mkdir(parents=True)
    out = tmp_path / "a/b/out"
    with pytest.raises(SourceError) as caught:
        unpack_sdist(pack(tmp_path, *members), out)
    assert caught.value.exit_code == 12 and "x-1.tar.gz" in str(caught.value.where)
    outside = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(out)]
    assert outside == [tmp_path / "x-1.tar.gz"]
    assert not Path("/tmp/evil").exists()


def header(size: int, kind: bytes = tarfile.REGTYPE) -> bytes:
    """The header of a member that says to be of that size."""
    info = tarfile.TarInfo("x-1/a")
    info.size, info.type = size, kind
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_long_description_of_a_member_is_not_read(tmp_path: Path, kind: bytes) -> None:
    """Names and attributes, which are read at once, are refused by their size alone."""
    archive = tmp_path / "x-1.tar.gz"
    archive.write_bytes(gzip.compress(header(sdist.MAX_HEADER + 1, kind) + b"\0" * 1024))
    with pytest.raises(SourceError, match="what describes a member"):
        unpack_sdist(archive, tmp_path / "out")
    archive.write_bytes(gzip.compress(header(-512, kind) + b"\0" * 1024))
    with pytest.raises(SourceError, match="what describes a member"):
        unpack_sdist(archive, tmp_path / "out")


def test_a_member_that_says_to_be_larger_than_any_disk(tmp_path: Path) -> None:
    """It is refused before a byte of it is unpacked."""
    archive = tmp_path / "x-1.tar.gz"
    archive.write_bytes(gzip.compress(header(1 << 50) + b"\0" * 1024))
    with pytest.raises(SourceError, match="more than"):
        unpack_sdist(archive, tmp_path / "out")


def test_a_bomb_is_refused_before_it_goes_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An archive that unpacks to a thousand times its size is written no further than the limit."""
    monkeypatch.setattr(sdist, "MAX_BYTES", 8 << 20)
    archive = pack(tmp_path, *(member(f"x-1/{number}", bytes(3 << 20)) for number in range(8)))
    assert archive.stat().st_size < (8 * 3 << 20) // 500
    with pytest.raises(SourceError, match="more than"):
        unpack_sdist(archive, tmp_path / "out")
    assert sum(path.stat().st_size for path in (tmp_path / "out/x-1").iterdir()) <= 8 << 20


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_MEMBERS"])
def test_absurd_sizes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    """More bytes or more members than any sdist has are refused before they are written."""
    archive = pack(tmp_path, member("x-1/a", b"123"), member("x-1/b", b"456"), member("x-1/c", b"7"))
    unpack_sdist(archive, tmp_path / "fine")
    monkeypatch.setattr(sdist, limit, {"MAX_BYTES": 5, "MAX_MEMBERS": 1}[limit])
    with pytest.raises(SourceError, match="more than"):
        unpack_sdist(archive, tmp_path / "out")
    assert not (tmp_path / "out/x-1/b").exists()


@pytest.mark.parametrize(
    "cut", [lambda b: b[:40], lambda b: b[: len(b) // 2], lambda b: b"nothing", lambda b: b""]
)
def test_damaged_archive(tmp_path: Path, cut: Callable[[bytes], bytes]) -> None:
    """A truncated archive, or a file that is none, is a source error."""
    archive = pack(tmp_path, member("x-1/a", random.Random(0).randbytes(100_000)))
    archive.write_bytes(cut(archive.read_bytes()))
    with pytest.raises(SourceError, match="damaged"):
        unpack_sdist(archive, tmp_path / "out")
