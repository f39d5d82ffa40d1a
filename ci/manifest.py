"""Writes the manifest of a pin: git's ids of what plain folders carry of its commit.

    python ci/manifest.py FOLDER [FOLDER ...] [--without PATH ...] > patches/<upstream>/manifests/<commit>.txt

Each folder is the tree in an unpacked source distribution; what is not the same in all is left out.
The ids say nothing about the commit by themselves: compare them with `git ls-tree -r <commit>`
where that is at hand, or check the pin out with `--source git`, which does so.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from numamirror_build.upstreams.folder import LINK, scan, tree_id
from numamirror_build.upstreams.manifest import format_manifest


def main() -> None:
    """Print the manifest, and to standard error the tree id and what was left out."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--without", action="append", default=[], help="a submodule's place")
    arguments = parser.parse_args()
    found = [scan(folder, without=arguments.without) for folder in arguments.folders]
    same = {
        path: blob
        for path, blob in found[0].items()
        if blob.mode != LINK and all(other.get(path) == blob for other in found)
    }
    print("# Written by ci/manifest.py: modes and git ids of the files that stand for a commit.")
    print(format_manifest(same), end="")
    print(f"tree = {tree_id(same)}", file=sys.stderr)
    for path in sorted(set().union(*found).difference(same)):
        print(f"left out: {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
