"""A made-up upstream with all that a build looks at: options, a library, programs, licences, accesses."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Mapping
from pathlib import Path

from numamirror_build.patching.apply import PatchedTree, PristineTree
from numamirror_build.patching.plan import Plan
from numamirror_build.patching.scope import OutOfScope
from numamirror_build.rewrite import Site
from numamirror_build.upstreams.checkout import Checkout
from numamirror_build.upstreams.pins import Binding, Pin

BINDING = Binding("tiny-python", "1.5", "tiny_python-1.5.tar.gz", "0" * 64)
PIN = Pin("tiny", "1.0", "c0ffee" + "0" * 34, None, None, BINDING, listed=True)

NOTHING: Mapping[str, str] = {}

FACTS = """
[build]
switch = "TINY_MIRROR"
programs = ["tiny-cli", "tiny-extra", "tiny-absent"]
optional = ["tiny-optional"]
libraries = ["tiny"]
vendored = "vendor/tiny"
package = "tiny_python"
licences = ["LICENSE", "vendor/**/LICENSE*"]

[build.settings]
BUILD_SHARED_LIBS = "ON"
CMAKE_LIBRARY_OUTPUT_DIRECTORY = "{build}/bin"
TINY_COMMIT = "{commit}"

[binding]
versions = [{ file = "tiny_python/__init__.py", name = "__version__" }]
files = ["tiny_python/lib/libtiny.so"]

[binding.settings]
TINY_WHEEL = "$ORIGIN;b"

[audit]
header = "tensor.h"
struct = "tensor"
field = "data"
hidden = "hidden"
define = "TINY_AUDIT"
"""

TREE = {
    "LICENSE": "upstream's licence\n",
    "vendor/json/LICENSE-MIT": "somebody's licence\n",
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.15)
project(tiny C CXX)
option(TINY_MIRROR "" OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
configure_file(info.h.in ${CMAKE_CURRENT_SOURCE_DIR}/info.h)
add_library(tiny lib.c more.cpp)
set_target_properties(tiny PROPERTIES VERSION 1.2.3 SOVERSION 1 PUBLIC_HEADER tensor.h)
target_include_directories(tiny PUBLIC .)
if (TINY_MIRROR)
    target_compile_definitions(tiny PUBLIC TINY_MIRROR)
endif()
foreach (program tiny-cli tiny-extra ${TINY_OPTIONAL})
    add_executable(${program} main.c)
    target_link_libraries(${program} PRIVATE tiny)
endforeach()
install(TARGETS tiny LIBRARY DESTINATION lib)
""",
    "info.h.in": '#define COMMIT "@TINY_COMMIT@"\n',
    "tensor.h": """\
#pragma once
struct inner { void * data; };
struct tensor {
    int n;
    struct { int data; } nested;
    void * data; // the field
};
""",
    "accessor.h": """\
#pragma once
#include "tensor.h"
#ifdef TINY_AUDIT
#    define FIELD hidden
#else
#    define FIELD data
#endif
static inline void * tensor_data(const struct tensor * t) { return t->FIELD; }
""",
    "lib.c": """\
#include "accessor.h"
#include "info.h"
const char * tiny_commit(void) { return COMMIT; }
const char * tiny_file(void) { return __FILE__; }
void * tiny_read(struct tensor * t) { return tensor_data(t); }
int tiny_mirror(void) {
#ifdef TINY_MIRROR
    return 1;
#else
    return 0;
#endif
}
""",
    "more.cpp": '#include "tensor.h"\nint tiny_more(inner & i) { return i.data != nullptr; }\n',
    "main.c": """\
#include <stdio.h>
const char * tiny_commit(void);
const char * tiny_file(void);
int tiny_mirror(void);
int main(void) {
    printf("%s %s %d\\n", tiny_commit(), tiny_file(), tiny_mirror());
    return 0;
}
""",
}

SDIST = {
    "pyproject.toml": """\
[build-system]
requires = ["scikit-build-core"]
build-backend = "scikit_build_core.build"
[project]
name = "tiny_python"
dynamic = ["version"]
license = { text = "MIT" }
[tool.scikit-build]
wheel.packages = ["tiny_python"]
wheel.py-api = "py3"
[tool.scikit-build.metadata.version]
provider = "scikit_build_core.metadata.regex"
input = "tiny_python/__init__.py"
""",
    "LICENSE.md": "the binding's licence\n",
    "CMakeLists.txt": """\
cmake_minimum_required(VERSION 3.15)
project(tiny_python)
add_subdirectory(vendor/tiny)
install(TARGETS tiny LIBRARY DESTINATION ${SKBUILD_PLATLIB_DIR}/tiny_python/lib)
set_target_properties(tiny PROPERTIES INSTALL_RPATH "$ORIGIN")
""",
    "tiny_python/__init__.py": """\
import ctypes, pathlib
library = ctypes.CDLL(str(pathlib.Path(__file__).parent / "lib" / "libtiny.so"))

__version__ = "1.5"
""",
    "vendor/tiny/CMakeLists.txt": 'message(FATAL_ERROR "the tree that the sdist came with")\n',
    "vendor/tiny/.git": "gitdir: ../../.git/modules/vendor/tiny\n",
    ".git/HEAD": "ref: refs/heads/main\n",
}


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files below a folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def data_root(folder: Path, facts: str = FACTS) -> Path:
    """A folder such as the package's data is in."""
    return write(
        folder, {"patches/tiny/upstream.toml": facts, "LICENSE": "our licence\n", "NOTICE": "whose\n"}
    )


def pristine(folder: Path, key: str = "k", *, changed: Mapping[str, str] = NOTHING) -> PristineTree:
    """The tree, with some files' content changed."""
    return PristineTree(_checkout(write(folder, {**TREE, **changed}), key))


def patched(
    folder: Path,
    digest: str = "d",
    *,
    sites: tuple[Site, ...] = (),
    out_of_scope: tuple[OutOfScope, ...] = (),
    pin: Pin = PIN,
    changed: Mapping[str, str] = NOTHING,
) -> PatchedTree:
    """The tree as one with a plan applied."""
    checkout = _checkout(pristine(folder, changed=changed).path, "k", pin)
    plan = Plan("tiny", pin, None, "cpu", sites, (), (), out_of_scope, digest)
    return PatchedTree(plan, checkout, folder, "k", 0.0, fresh=True)


def sdist(folder: Path, *, changed: Mapping[str, str] = NOTHING) -> Path:
    """The binding's sdist, with some files' content changed, in a folder that is made anew."""
    shutil.rmtree(folder, ignore_errors=True)
    top = write(folder / "tiny_python-1.5", {**SDIST, **changed})
    with tarfile.open(folder / BINDING.sdist, "w:gz") as archive:
        archive.add(top, top.name)
    return folder / BINDING.sdist


def _checkout(path: Path, key: str, pin: Pin = PIN) -> Checkout:
    return Checkout(pin, path, None, "path", False, key, 0.0, fresh=True)
