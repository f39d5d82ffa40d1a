from __future__ import annotations

import re
from datetime import datetime

import pytest

from numamirror_build import data
from numamirror_build.errors import ConfigError, UnknownPinError, UnknownUpstreamError
from numamirror_build.upstreams.folder import tree_id
from numamirror_build.upstreams.pins import find_pin, load_pins, load_upstream, manifest, submodules
from tests.unit.upstreams.made_up import Tiny

UPSTREAM = "llama.cpp"


def test_the_promised_pins_are_listed() -> None:
    """llama.cpp has the pins of four releases of the binding; the newest is the default."""
    assert {"0.3.9", "0.3.20", "0.3.30", "0.3.36"} <= {pin.name for pin in load_pins(UPSTREAM)}
    assert find_pin(UPSTREAM, None).name == "0.3.36"


def test_releases_that_vendor_one_commit_share_its_manifest() -> None:
    """The five releases of the binding carry one commit; its tree is that of the manifest's files."""
    pins = load_pins("ik_llama.cpp")
    assert [pin.name for pin in pins] == ["0.1.0", "0.1.2", "0.1.3", "0.1.4", "0.1.5"]
    assert {(pin.commit, pin.tree, pin.manifest) for pin in pins} == {
        (pins[0].commit, pins[0].tree, pins[0].manifest)
    }
    blobs = manifest(pins[0])
    assert blobs and tree_id(blobs) == pins[0].tree
    assert (
        find_pin("ik_llama.cpp", pins[0].commit) == find_pin("ik_llama.cpp", pins[0].commit[:9]) == pins[-1]
    )


def test_pins_whose_sources_carry_git_data_have_no_manifest() -> None:
    """For a pin without a manifest, all of the commit's files count."""
    assert manifest(find_pin(UPSTREAM, None)) is None


@pytest.mark.parametrize("upstream", data.upstream_names())
def test_data_of_pins_is_complete_and_ordered(upstream: str) -> None:
    """Every listed pin has full ids, a date with its zone and a sha256; old before new, none twice.

    Several releases of a binding may vendor one commit.
    """
    pins = load_pins(upstream)
    for pin in pins:
        assert re.fullmatch(r"[0-9a-f]{40} [0-9a-f]{40}", f"{pin.commit} {pin.tree}"), pin.name
        assert pin.binding is None or re.fullmatch(r"[0-9a-f]{64}", pin.binding.sha256), pin.name
        assert pin.binding is None or pin.binding.version in pin.binding.sdist
    dates = [datetime.fromisoformat(pin.date or "") for pin in pins]
    assert all(date.tzinfo for date in dates)
    assert dates == sorted(dates)
    assert len({pin.name for pin in pins}) == len({pin.binding for pin in pins}) == len(pins)
    assert load_upstream(upstream).name == upstream


@pytest.mark.parametrize("form", ["name", "commit", "COMMIT", "prefix", "shortest prefix"])
def test_find_pin_by_name_commit_or_prefix(form: str) -> None:
    """A listed pin goes by its name, its commit in either case, or 7 digits of it and more."""
    pin = load_pins(UPSTREAM)[1]
    wanted = {
        "name": pin.name,
        "commit": pin.commit,
        "COMMIT": pin.commit.upper(),
        "prefix": pin.commit[:12],
        "shortest prefix": pin.commit[:7],
    }[form]
    assert find_pin(UPSTREAM, wanted) == pin


def test_any_full_commit_is_an_unlisted_pin() -> None:
    """A full commit id that no list has is a pin, too: content unknown, with the default pin's binding."""
    pin = find_pin(UPSTREAM, "0123456789abcdef" * 2 + "01234567")
    assert (pin.name, pin.tree, pin.date, pin.listed) == ("0123456789ab", None, None, False)
    assert pin.binding == find_pin(UPSTREAM, None).binding


@pytest.mark.parametrize(
    "wanted", ["", "master", "b1234", "0.3", "abc", "0123456789", "g" * 40, "a" * 39, "a" * 41]
)
def test_anything_else_is_an_unknown_pin(wanted: str) -> None:
    """Branches, tags, parts of names and unknown abbreviations are refused: exit code 11, with the list."""
    with pytest.raises(UnknownPinError, match=r"known pins: .*0\.3\.36") as caught:
        find_pin(UPSTREAM, wanted)
    assert caught.value.exit_code == 11


def test_a_prefix_of_two_commits_is_refused(tiny: Tiny) -> None:
    """An abbreviation that fits two listed commits names neither."""
    path = tiny.data / "patches/tiny/pins.toml"
    other = tiny.pin.commit[:-1] + ("0" if tiny.pin.commit[-1] != "0" else "1")
    path.write_text(path.read_text() + path.read_text().replace(tiny.pin.commit, other))
    with pytest.raises(UnknownPinError, match="several commits"):
        find_pin("tiny", other[:10])
    assert find_pin("tiny", other).commit == other


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[[pin]]", "[[pin]", r"pins\.toml\n.*line 1"),
        ("[[pin]]", "[pin]", r"pins\.toml, pin 1\n"),
        ("tree =", "trees =", r"pins\.toml, pin 1\n.*lacks 'tree'"),
        ("date =", "dates =", r"pin 1\n.*lacks 'date'"),
        ('tree = "', 'tree = "abc', r"pin 1\n.*tree has not 40 hex digits"),
        ("sdist =", "archive =", r"pin 1\n.*archive"),
        ("date =", 'manifest = "manifests/x.txt"\ndate =', r"pin 1\n.*no file manifests/x\.txt"),
    ],
)
def test_a_list_with_a_slip_says_where_it_is(tiny: Tiny, old: str, new: str, says: str) -> None:
    """File and line of what is no TOML, number and key of a pin that lacks something."""
    path = tiny.data / "patches/tiny/pins.toml"
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(ConfigError) as caught:
        load_pins("tiny")
    assert re.search(says, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(("text", "says"), [("name =\n", "line 1"), ("name = 'tiny'\n", "lacks 'git_url'")])
def test_damaged_facts_about_an_upstream(tiny: Tiny, text: str, says: str) -> None:
    """The same for what is known whatever the pin."""
    (tiny.data / "patches/tiny/upstream.toml").write_text(text)
    with pytest.raises(ConfigError, match=rf"upstream\.toml[^,]*{says}"):
        load_upstream("tiny")


@pytest.mark.parametrize("name", ["", "llama", "../patches/llama.cpp", "LLAMA.CPP"])
def test_unknown_upstream(name: str) -> None:
    """An upstream without data is refused with exit code 10 and the names there are."""
    with pytest.raises(UnknownUpstreamError, match=r"known: .*llama\.cpp") as caught:
        find_pin(name, None)
    assert caught.value.exit_code == 10


def test_submodules_are_data_of_the_pin() -> None:
    """The oldest pin links to one repository that its tree does not contain; unlisted pins link to none."""
    assert submodules(find_pin(UPSTREAM, "0.3.9")) == {
        "ggml/src/ggml-kompute/kompute": "4565194ed7c32d1d2efa32ceab4d3c6cae006306"
    }
    assert submodules(find_pin(UPSTREAM, "a" * 40)) == {}
