"""The binding's wheel with the patched tree inside, made by the binding's own build with scikit-build-core.

The objects are the same as those of the patched build, so a compiler cache hands them over.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from numamirror_build import __version__, data, proc
from numamirror_build.building import cmake
from numamirror_build.building.build import (
    BuildOptions,
    build_environment,
    build_inputs,
    build_settings,
    copy_tree,
    folder_settings,
)
from numamirror_build.building.recipe import Recipe, load_recipe
from numamirror_build.building.toolchain import Toolchain, find_toolchain
from numamirror_build.errors import WheelError
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, file_sha256, write_atomic, write_json
from numamirror_build.upstreams.checkout import fetch_sdist, unpack_sdist
from numamirror_build.upstreams.pins import Binding

RECORD = "numamirror.json"
LICENCES = "numamirror-licences"

_VERSION_LINE = re.compile(r'^__version__ = "([^"\n]+)"$', re.MULTILINE)
_LAYOUT = 1


@dataclass(frozen=True)
class Wheel:
    """A wheel of the binding.

    Attributes:
        path: the file.
        package: name of the package on the index.
        version: with the local part that says what it is.
        binding: the release of the binding that it was made from.
        key: digest of all inputs.
        sha256: of the file.
        notes: what a person should know, such as that the binding is not the one made for this commit.
        seconds: how long making it took, when it was made.
        fresh: whether this run made it.
    """

    path: Path
    package: str
    version: str
    binding: Binding
    key: str
    sha256: str
    notes: tuple[str, ...]
    seconds: float
    fresh: bool


def make_wheel(store: Store, tree: PatchedTree, options: BuildOptions, *, progress: Progress) -> Wheel:
    """Make the wheel, or take it from the cache. An interrupted build goes on where it was.

    Args:
        store: the cache.
        tree: the patched tree that the wheel carries in compiled form.
        options: how to build; ``programs`` has no influence.
        progress: told what goes on.

    Raises:
        ToolMissingError: there is no compiler, no CMake or no Ninja.
        SourceError: the binding's sdist could not be had.
        ContentMismatchError: the sdist is not what the pin says.
        WheelError: the wheel could not be built, or lacks something.
        DiskFullError: no space left.
    """
    raise NotImplementedError
