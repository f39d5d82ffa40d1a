"""What a wheel is built from, for a builder other than ours: cibuildwheel, in containers of older systems.

The folder has the binding's sources with the patched tree in them, the CMake variables, and its settings.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from packaging.version import Version

from numamirror_build import data
from numamirror_build.building import cmake
from numamirror_build.building.binding import binding_inputs, prepare_sources
from numamirror_build.building.build import PLACE, BuildOptions
from numamirror_build.building.portable import EPOCH
from numamirror_build.building.recipe import Recipe, load_recipe
from numamirror_build.building.wheel import RECORD, backend_settings, check_level, facts_of, wheel_settings
from numamirror_build.config import APP
from numamirror_build.errors import ConfigError, OutputError, WheelError
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, write_atomic, write_json
from numamirror_build.upstreams.checkout import fetch_sdist

CONFIG = "cibuildwheel.toml"
SETTINGS = "numamirror.cmake"


def write_sources(
    store: Store, tree: PatchedTree, options: BuildOptions, out: Path, *, progress: Progress
) -> str:
    """Write what a portable wheel is built from.

    Args:
        store: the cache.
        tree: the patched tree that the wheel carries in compiled form.
        options: how to build; the level of x86-64 must be said.
        out: the folder; what an earlier call wrote there is replaced.
        progress: told what goes on.

    Returns:
        The version that the wheel will have.

    Raises:
        ConfigError: no level is said, or one that the upstream cannot be built for.
        OutputError: the folder has something else, or is the current one or around it.
        SourceError: the binding's sdist could not be had.
        ContentMismatchError: the sdist is not what the pin says.
        WheelError: there is no binding, or its sdist does not look as expected.
    """
    pin = tree.checkout.pin
    binding = pin.binding
    if binding is None:
        raise WheelError(f"There is no binding for {pin.upstream} {pin.name}")
    recipe = load_recipe(pin.upstream)
    if options.portable is None:
        raise ConfigError(
            "Sources for other builders need a level of the instruction set",
            where="--portable",
            hint=f"name one: {', '.join(recipe.portable)}",
        )
    check_level(recipe, options.portable)
    out = out.resolve()
    is_ours = (out / CONFIG).is_file() and (out / SETTINGS).is_file()
    if out.exists() and not is_ours and (not out.is_dir() or any(out.iterdir())):
        raise OutputError("The folder has something else", where=str(out), hint="name a folder of its own")
    if Path.cwd().is_relative_to(out):
        raise OutputError("The current folder would be replaced", where=str(out), hint="name another one")
    settings = wheel_settings(recipe, tree, options)
    inputs = {"settings": settings, "arguments": options.cmake_args, "environment": {}}
    key = digest(
        {
            "kind": "sources",
            "binding": asdict(binding),
            "changes": binding_inputs(pin.upstream),
            "backend": backend_settings(recipe),
            "tree": tree.checkout.tree or tree.checkout.key,
            "plan": tree.plan.digest,
            **inputs,
        }
    )
    version = str(Version(f"{binding.version}+numamirror.{key[:10]}"))
    archive = fetch_sdist(store, pin, progress=progress)
    progress.step(f"Writing the sources of {binding.package} {version}")
    half = out.with_name(f".{out.name}.half")
    top = prepare_sources(archive, half, tree, recipe, upstream=pin.upstream, version=version)
    write_json(top / recipe.package / RECORD, facts_of(tree, version, inputs, options.portable))
    write_atomic(top / SETTINGS, _initial_cache(settings))
    write_atomic(top / CONFIG, _config(recipe, options))
    before = out.with_name(f".{out.name}.before")
    shutil.rmtree(before, ignore_errors=True)
    if out.exists():
        out.rename(before)
    top.rename(out)
    for left in (before, half):
        shutil.rmtree(left, ignore_errors=True)
    return version


def _initial_cache(settings: Mapping[str, str]) -> str:
    """The variables for ``cmake -C``, wherever the build folder will be."""
    placed = {name: value for name, value in settings.items() if PLACE in value}
    fixed = {name: value for name, value in settings.items() if name not in placed}
    lines = [
        f'set({name} "{value.replace(PLACE, "${CMAKE_BINARY_DIR}")}" CACHE STRING "")'
        for name, value in placed.items()
    ]
    return "\n".join([cmake.initial_cache(fixed).rstrip("\n"), *lines, ""])


def _config(recipe: Recipe, options: BuildOptions) -> str:
    environment = Environment(
        loader=FileSystemLoader(data.templates()),
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    return environment.get_template(f"ci/{CONFIG}.j2").render(
        app=APP,
        package=recipe.package,
        backend=backend_settings(recipe),
        arguments=shlex.join(["-C", f"/project/{SETTINGS}", *options.cmake_args]),
        epoch=EPOCH,
    )
