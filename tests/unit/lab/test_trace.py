from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from numamirror_build.errors import BuildError, LabError
from numamirror_build.lab import trace
from numamirror_build.lab.layout import even_layout, parse_layout
from numamirror_build.lab.trace import CLASSES, PHASES, Count, make_plugin, parse_trace, trace_arguments
from numamirror_build.store import Store

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
LAYOUT = even_layout(2, 1, "512M", 21)  # five places for CPUs a node

# phase and class by number; CPU 0 is on node 0, 5 and 6 on node 1
TEXT = """\
[0, 3, 1, 0, 1000, 0]
[0, 3, 1, 1, 10, 4]
[0, 3, 0, -1, 7, 7]
[5, 3, 1, 1, 500, 0]
[6, 3, 1, 1, 500, 1]
[5, 2, 2, 0, 3, 0]
"end"
"""


def test_counts_are_summed_per_node() -> None:
    """CPUs of a node count together, in an order that does not depend on the plugin's."""
    assert parse_trace(TEXT, LAYOUT).counts == (
        Count("prompt", "kv", 1, 0, 3, 0),
        Count("generation", "other", 0, None, 7, 7),
        Count("generation", "weights", 0, 0, 1000, 0),
        Count("generation", "weights", 0, 1, 10, 4),
        Count("generation", "weights", 1, 1, 1000, 1),
    )


def test_shares_of_what_is_loaded_remotely() -> None:
    """A load is remote when the memory's node is not the CPU's; what is on no node is."""
    assert parse_trace(TEXT, LAYOUT).as_json()["loads"] == {
        "prompt": {"kv": {"loaded": 3, "loaded_remotely": 3, "remote_share": 1.0}},
        "generation": {
            "other": {"loaded": 7, "loaded_remotely": 7, "remote_share": 1.0},
            "weights": {"loaded": 2010, "loaded_remotely": 10, "remote_share": 0.004975},
        },
    }


@pytest.mark.parametrize(
    "text", ["", "[0, 3, 1, 0, 1000, 0]\n", '[0, 9, 1, 0, 1, 0]\n"end"\n', 'nonsense\n"end"\n']
)
def test_a_trace_that_is_cut_off_is_an_error(text: str) -> None:
    """Counts of a machine that broke down are not taken for all."""
    with pytest.raises(LabError, match="The trace is not complete"):
        parse_trace(text, LAYOUT)


def test_where_the_nodes_memory_is() -> None:
    """Nodes without memory have no place; commas in paths do not end them."""
    nodes = [{"cpus": 1, "memory": "512M"}, {"cpus": 1}, {"memory": "64M"}]
    layout = parse_layout({"node": nodes}, "file")
    mib = 1 << 20
    assert trace_arguments(Path("/a,b"), layout, Path("/out")) == [
        "-plugin",
        f"file=/a,,b,out=/out,node=0:0:{512 * mib},node=1:{1024 * mib}:{1024 * mib},"
        f"node=2:{1024 * mib}:{1088 * mib}",
    ]


@needs_compiler
def test_the_plugin_compiles_without_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The C code is clean; the second time it comes from the cache."""
    monkeypatch.setattr(trace, "_FLAGS", (*trace._FLAGS, "-Werror"))
    store = Store(tmp_path)
    plugin = make_plugin(store)
    symbols = plugin.read_bytes()
    assert b"qemu_plugin_install" in symbols and b"qemu_plugin_version" in symbols
    stamp = plugin.stat().st_mtime_ns
    assert make_plugin(store).stat().st_mtime_ns == stamp


@needs_compiler
def test_code_that_does_not_compile_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the compiler's words."""
    source = tmp_path / "trace.c"
    source.write_text("nonsense")
    monkeypatch.setattr(trace, "SOURCE", source)
    with pytest.raises(BuildError, match="The trace does not compile") as caught:
        make_plugin(Store(tmp_path / "cache"))
    assert "error" in str(caught.value.why)


@needs_compiler
def test_numbers_mean_the_same_in_both_languages(tmp_path: Path) -> None:
    """The header's enumerations and the names here are in one order; marks do no harm outside the lab."""
    names = [f"LAB_{name.upper()}" for name in (*PHASES, "phase_count", *CLASSES, "class_count")]
    source = tmp_path / "main.c"
    printed = "".join(f'printf("%d ", {name});' for name in names)
    source.write_text(
        f'#include "mark.h"\n#include <stdio.h>\nint main(void) {{ {printed}'
        " lab_mark_range(1, 2, LAB_KV); lab_mark_phase(LAB_LOAD); return 0; }\n"
    )
    program = tmp_path / "main"
    subprocess.run(["cc", "-D_GNU_SOURCE", f"-I{trace.HEADER.parent}", source, "-o", program], check=True)
    done = subprocess.run([program], check=True, capture_output=True, text=True)
    assert [int(word) for word in done.stdout.split()] == [
        *range(len(PHASES) + 1),
        *range(len(CLASSES) + 1),
    ]
