"""Putting a build's programs where people want them, with the libraries they need and all licences."""

from __future__ import annotations

import shutil
from pathlib import Path

from numamirror_build import data
from numamirror_build.building.build import Build
from numamirror_build.building.recipe import Recipe, load_recipe
from numamirror_build.errors import disk_full_as_error


def install_programs(build: Build, into: Path) -> list[Path]:
    """Copy a build's programs to a folder, from where they run wherever the folder is moved.

    Args:
        build: the build.
        into: the folder; made when it is not there.

    Returns:
        The files, sorted: programs and libraries in ``bin``, licences in ``licences``.

    Raises:
        DiskFullError: no space left.
    """
    files = {into / target: source for target, source in installed_files(build).items()}
    with disk_full_as_error(str(into)):
        for target, source in files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return sorted(files)


def installed_files(build: Build) -> dict[str, Path]:
    """Where everything goes that people need: relative target with slashes, and source, a file or a link."""
    recipe = load_recipe(build.tree.checkout.pin.upstream)
    licences = licence_files(recipe, build.tree.path)
    return {
        **{f"bin/{path.name}": path for path in build.files},
        **{f"licences/{name}": path for name, path in licences.items()},
    }


def licence_files(recipe: Recipe, tree: Path) -> dict[str, Path]:
    """The licences of everything that is made from a tree, by the name to give them: upstream's and ours."""
    place = Path(recipe.vendored).name
    paths = sorted(path for pattern in recipe.licences for path in tree.glob(pattern) if path.is_file())
    return {
        **{f"{place}/{path.relative_to(tree).as_posix()}": path for path in paths},
        **{f"numamirror-build/{path.name}": path for path in data.licences()},
    }
