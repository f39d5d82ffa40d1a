"""A small upstream with all that a main job needs: a repository, a binding's sdist, hooks, templates, a lock.

The whole job on it takes some seconds. Steps, tools, cache and delivery are the real ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from numamirror_build.store import file_sha256
from numamirror_build.upstreams.git import run_git
from tests.unit.building import made_up as parts
from tests.unit.rewrite.trees import HEADER
from tests.unit.upstreams.made_up import commit_all

NAME = "small"
JOB = Path(__file__).with_name("small_job.py")

_KERNEL = """\
#include "ggml.h"
#include "info.h"
#include <stdio.h>
#include <stdlib.h>
struct other { void * data; };
const char * tiny_commit(void) { return COMMIT; }
const char * tiny_file(void) { return __FILE__; }
struct ggml_tensor * ggml_get(int i) { return calloc(1 + i, sizeof(struct ggml_tensor)); }
void ggml_use(const void * p) { printf("%d", p != NULL); }
size_t ggml_size(const struct ggml_tensor * t) { return t->data ? 1 : 0; }
int tiny_mirror(void) {
    struct ggml_tensor * t = ggml_get(0);
    struct other o = { NULL };
    t->data = &o;
    o.data = t->data;
#ifdef TINY_MIRROR
    return o.data != NULL;
#else
    return 0;
#endif
}
"""
_MORE = '#include "ggml.h"\nint tiny_more(ggml_tensor & t, int n) { return n ? t.data != nullptr : 0; }\n'
TREE = {
    **{name: parts.TREE[name] for name in ("LICENSE", "vendor/json/LICENSE-MIT", "info.h.in", "main.c")},
    "CMakeLists.txt": parts.TREE["CMakeLists.txt"]
    .replace('option(TINY_MIRROR "" OFF)\n', "# options\n")
    .replace("PUBLIC_HEADER tensor.h", "PUBLIC_HEADER ggml.h"),
    "ggml.h": HEADER.decode(),
    "lib.c": _KERNEL,
    "more.cpp": _MORE,
}
_HOOKS = """\
[[hook]]
id = "option"
file = "CMakeLists.txt"
line = "# options"
place = "after"
text = '''
option(TINY_MIRROR "" OFF)
'''
"""
_ACCESSORS = """\
// {{ banner }}
#pragma once
#include "ggml.h"
#ifdef TINY_AUDIT
#    define TINY_FIELD hidden
#else
#    define TINY_FIELD data
#endif
static inline void * tensor_data(const struct ggml_tensor * t) { return t->TINY_FIELD; }
static inline void * tensor_data_in_loop(const struct ggml_tensor * t) { return t->TINY_FIELD; }
static inline void tensor_set_data(struct ggml_tensor * t, void * p) { t->TINY_FIELD = p; }
"""
_FACTS = """\
name = "small"
git_url = "{url}"
default_pin = "1.0"
sdist_repository = ".git/modules/vendor/tiny"
render = [{{ template = "ggml/ggml-numa-mirror.h.j2", path = "ggml-numa-mirror.h" }}]

[scope.cpu]
include = [
    {{ glob = "*.c", reason = "C" }},
    {{ glob = "*.h", reason = "C" }},
    {{ glob = "*.cpp", reason = "C++" }},
]
exclude = []
""" + parts.FACTS.replace("{", "{{").replace("}", "}}").replace(
    'header = "tensor.h"', 'header = "ggml.h"'
).replace('struct = "tensor"', 'struct = "ggml_tensor"')


@dataclass(frozen=True)
class Small:
    """The upstream on disk; ``data`` stands for the package's, and ``index`` for the package index."""

    folder: Path
    data: Path
    index: Path

    def environment(self, **more: str | Path) -> dict[str, str]:
        """The environment in which the job runs; nothing of the user's settings is in it."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("NUMAMIRROR_", "GIT_", "PIP_", "CCACHE_"))
            and name not in ("CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS")
        }
        given = {
            "SMALL_DATA": self.data,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": self.index,
            "PIP_NO_CACHE_DIR": "1",
            "CCACHE_DISABLE": "1",
            "PYTHONPATH": os.pathsep.join(str(path) for path in sys.path if path),
            **more,
        }
        return {**kept, **{name: str(value) for name, value in given.items()}}

    def start(self, work: Path, *arguments: str | Path, **environ: str | Path) -> subprocess.Popen[str]:
        """Start the program in a folder, with its cache and output there; without arguments the main job."""
        settings: list[str | Path] = [] if arguments else ["--out", work / "dist"]
        given: dict[str, str | Path] = {"CACHE_DIR": work / "cache", "SOURCE": "git", "UPSTREAM": NAME}
        work.mkdir(parents=True, exist_ok=True)
        return subprocess.Popen(
            [sys.executable, JOB, *arguments, *settings],
            cwd=work,
            env=self.environment(**environ, **{f"NUMAMIRROR_{name}": value for name, value in given.items()}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, work: Path, *arguments: str | Path, **environ: str | Path) -> tuple[int, str, str]:
        """Run it to its end: status, output, errors."""
        process = self.start(work, *arguments, **environ)
        out, errors = process.communicate(timeout=600)
        return process.returncode, out, errors


def make(folder: Path) -> Small:
    """Make the upstream below a folder."""
    repository = parts.write(folder / "repository", TREE)
    run_git("init", "--quiet", cwd=repository)
    commit = commit_all(repository, "all")
    tree = run_git("rev-parse", "HEAD^{tree}", cwd=repository).decode().strip()
    archive = parts.sdist(folder / "index")
    data = folder / "data"
    pins = f"""\
[[pin]]
name = "1.0"
commit = "{commit}"
tree = "{tree}"
date = "2026-01-02T03:04:05+00:00"
submodules = {{}}
[pin.binding]
package = "{parts.BINDING.package}"
version = "{parts.BINDING.version}"
sdist = "{parts.BINDING.sdist}"
sha256 = "{file_sha256(archive)}"
"""
    files = {
        f"patches/{NAME}/upstream.toml": _FACTS.format(url=repository.as_uri()),
        f"patches/{NAME}/pins.toml": pins,
        f"patches/{NAME}/hooks/10-options.toml": _HOOKS,
        "templates/ggml/ggml-numa-mirror.h.j2": _ACCESSORS,
        "LICENSE": "our licence\n",
        "NOTICE": "whose\n",
    }
    small = Small(folder, parts.write(data, files), archive.parent)
    status, _, errors = small.run(folder / "lock", "plan", "--update-lock")
    assert status == 0, errors
    return small
