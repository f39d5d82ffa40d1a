"""Where the memory of a process is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from numamirror_build.bench.placement import look, moved, placement_of

MAPS = """\
55d0 default file=/usr/bin/llama-bench mapped=2 N0=2 kernelpagesize_kB=4
7f00 default file=/models/my\\040model.gguf mapped=300 N0=100 N3=200 kernelpagesize_kB=4
7f10 default file=/models/another.gguf mapped=5 N0=5 kernelpagesize_kB=4
7f20 bind:3 anon=4 dirty=4 N3=4 kernelpagesize_kB=2048
7f30 default
"""


def has_numa_maps() -> bool:
    """Whether the kernel says where pages are."""
    return Path("/proc/self/numa_maps").exists()


def test_adding_up() -> None:
    """Pages count with their sizes; of mapped files those of the model count for it."""
    made = placement_of(MAPS, {"my model.gguf", "another part.gguf"})
    assert made
    assert made.whole == {"0": 107 * 4096, "3": 200 * 4096 + 4 * 2048 * 1024}
    assert made.model == {"0": 100 * 4096, "3": 200 * 4096}


def test_nothing_is_said() -> None:
    """A process that has ended, or a kernel without nodes, is no placement."""
    assert placement_of("", set()) is None
    assert placement_of("7f30 default\n", set()) is None
    assert look(2**22 + 1, set()) is None


@pytest.mark.skipif(not has_numa_maps(), reason="the kernel has no numa_maps")
def test_a_real_process() -> None:
    """This one has memory somewhere."""
    made = look(os.getpid(), set())
    assert made and sum(made.whole.values()) > 1 << 20


@pytest.mark.parametrize(
    ("before", "after", "share"),
    [
        ({"0": 100}, {"0": 100}, 0),
        ({"0": 100}, {"0": 50, "1": 50}, 0.5),
        ({"0": 100}, {"0": 100, "1": 100}, 0.5),
        ({"0": 100}, {"0": 50}, 0),
        ({}, {}, 0),
    ],
)
def test_moved(before: dict[str, int], after: dict[str, int], share: float) -> None:
    """What is on another node than before, or was not there, as a share of what is there."""
    assert moved(before, after) == share
