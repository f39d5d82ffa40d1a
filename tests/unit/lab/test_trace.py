from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from numamirror_build.errors import BuildError, LabError
from numamirror_build.lab import trace
from numamirror_build.lab.layout import MIB, even_layout, parse_layout
from numamirror_build.lab.trace import CLASSES, PHASES, Count, make_plugin, parse_trace, trace_arguments
from numamirror_build.store import Store

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

# stands for QEMU: marks as many ranges as its argument says, and loads 8 bytes from each
DRIVER = r"""
#include "trace.c"

static void (*access_memory)(unsigned int, qemu_plugin_meminfo_t, uint64_t, void *);
static void (*at_exit)(qemu_plugin_id_t, void *);

void qemu_plugin_register_vcpu_tb_trans_cb(
    qemu_plugin_id_t id, void (*call)(qemu_plugin_id_t, struct qemu_plugin_tb *)) {
    (void) id;
    call(id, NULL);
}
void qemu_plugin_register_atexit_cb(
    qemu_plugin_id_t id, void (*call)(qemu_plugin_id_t, void *), void * data) {
    (void) id;
    (void) data;
    at_exit = call;
}
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn * insn,
    void (*call)(unsigned int, qemu_plugin_meminfo_t, uint64_t, void *), enum qemu_plugin_cb_flags flags,
    enum qemu_plugin_mem_rw rw, void * data) {
    (void) insn;
    (void) flags;
    (void) rw;
    (void) data;
    access_memory = call;
}
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb * tb) { (void) tb; return 1; }
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn * insn) { (void) insn; return 0; }
struct qemu_plugin_insn * qemu_plugin_tb_get_insn(const struct qemu_plugin_tb * tb, size_t i) {
    (void) tb;
    (void) i;
    return NULL;
}
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info) { (void) info; return 3; }
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info) { return info; }
struct qemu_plugin_hwaddr * qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address) {
    (void) info;
    (void) address;
    return (struct qemu_plugin_hwaddr *) &trace; // any but NULL
}
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr * where) { (void) where; return false; }
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr * where) { (void) where; return 0; }

static void mark(enum lab_mark_kind kind, unsigned int value) {
    access_memory(0, 1, LAB_MARK_PAGE + kind * 256 + value, NULL);
}

static void mark_number(uint64_t number) {
    for (int shift = 56; shift >= 0; shift -= 8) {
        mark(LAB_MARK_DIGIT, number >> shift & 255);
    }
}

int main(int argc, char ** argv) {
    char out[] = "out=/dev/stdout", node[] = "node=0:0:4096";
    char * words[] = { out, node };
    qemu_plugin_install(0, NULL, 2, words);
    const uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    for (uint64_t i = 1; i <= n; i++) {
        mark_number(i << 12);
        mark(LAB_MARK_BEGIN, 0);
        mark_number((i << 12) + 64);
        mark(LAB_MARK_END, i < n ? LAB_KV : LAB_WEIGHTS);
    }
    mark(LAB_MARK_PHASE, LAB_PROMPT);
    for (uint64_t i = 1; i <= n; i++) {
        access_memory(0, 0, i << 12, NULL);
        access_memory(0, 0, (i << 12) + 64, NULL);
    }
    at_exit(0, NULL);
    return 0;
}
"""
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


def places(nodes: list[dict[str, Any]], version: str) -> list[str]:
    """What the plugin is told of nodes, with MiB for bytes."""
    layout = parse_layout({"node": nodes}, "file")
    release = f"QEMU emulator version {version}.1 (Debian 1:{version}.1+ds-0)"
    plugin, words = trace_arguments(Path("/a,b"), layout, Path("/out"), release)
    assert plugin == "-plugin" and words.startswith("file=/a,,b,out=/out,node=")
    found = [word.split(":") for word in words.split(",node=")[1:]]
    assert all(int(address) % MIB == 0 for _, *range_ in found for address in range_)
    return [f"{node}: {int(begin) // MIB}-{int(end) // MIB}" for node, begin, end in found]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("7.2", ["0: 0-512", "2: 1024-1088"]),
        ("8.1", ["0: 0-512", "2: 1024-1088"]),
        ("8.2", ["0: 0-512", "2: 512-576"]),
        ("10.0", ["0: 0-512", "2: 512-576"]),
    ],
)
def test_where_the_nodes_memory_is(version: str, expected: list[str]) -> None:
    """Nodes without memory have no place; commas in paths do not end them; QEMU 8.2 tells other addresses."""
    nodes: list[dict[str, Any]] = [{"cpus": 1, "memory": "512M"}, {"cpus": 1}, {"memory": "64M"}]
    assert places(nodes, version) == expected


@pytest.mark.parametrize(
    ("memory", "expected"),
    [
        (("3G", "510M"), ["0: 0-3072", "1: 3072-3582"]),
        (("3G", "512M"), ["0: 0-3072", "1: 4096-4608"]),
        (("1G", "2560M"), ["0: 0-1024", "1: 1024-3072", "1: 4096-4608"]),
        (("4G", "1G"), ["0: 0-3072", "0: 4096-5120", "1: 5120-6144"]),
    ],
)
def test_memory_behind_the_hole(memory: tuple[str, str], expected: list[str]) -> None:
    """From 3.5 GiB on all but the first three lie behind 4 GiB, and a node may lie on both sides."""
    assert places([{"cpus": 1, "memory": size} for size in memory], "10.0") == expected
    assert len(places([{"cpus": 1, "memory": size} for size in memory], "7.2")) == 2


def test_a_qemu_that_says_no_version() -> None:
    """Nothing is counted at places that are guessed."""
    with pytest.raises(LabError, match="does not say its version") as caught:
        trace_arguments(Path("/plugin"), LAYOUT, Path("/out"), "what?")
    assert caught.value.why == "what?"


@needs_compiler
@pytest.mark.parametrize(
    ("exported", "version"), [("int qemu_plugin_n_vcpus(void) { return 1; }", 1), ("", 2)], ids=["1", "2"]
)
def test_the_interface_is_that_of_qemu(tmp_path: Path, exported: str, version: int) -> None:
    """QEMU 9 takes no plugin for version 1, and older ones none for 2: they are told by what they export."""
    (tmp_path / "qemu.c").write_text(
        exported
        + """
        #include <dlfcn.h>
        #include <stdio.h>
        int main(int argc, char ** argv) {
            void * plugin = dlopen(argv[argc - 1], RTLD_LAZY);
            int * version = plugin ? dlsym(plugin, "qemu_plugin_version") : NULL;
            return version ? printf("%d", *version) < 0 : puts(dlerror());
        }
        """
    )
    program = tmp_path / "qemu"
    subprocess.run(["cc", "-rdynamic", tmp_path / "qemu.c", "-o", program, "-ldl"], check=True)
    done = subprocess.run([program, make_plugin(Store(tmp_path / "cache"))], capture_output=True, text=True)
    assert done.stdout == str(version)


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


@needs_compiler
@pytest.mark.parametrize("ranges", [1, 64, 65, 129, 1000])
def test_however_many_ranges_are_marked(tmp_path: Path, ranges: int) -> None:
    """Each keeps its class: none is dropped, and none is counted with everything else."""
    source = tmp_path / "driver.c"
    source.write_text(DRIVER)
    flags = [flag for flag in trace._FLAGS if flag != "-shared"]
    program = tmp_path / "driver"
    subprocess.run(["cc", *flags, f"-I{trace.SOURCE.parent}", source, "-o", program], check=True)
    done = subprocess.run([program, str(ranges)], check=True, capture_output=True, text=True)
    counted = parse_trace(done.stdout, LAYOUT)
    sums = {what: counted.loaded("prompt", what) for what in CLASSES}
    assert sums == {"other": 8 * ranges, "weights": 8, "kv": 8 * (ranges - 1)}
