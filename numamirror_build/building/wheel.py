"""The binding's wheel with the patched tree inside, made by the binding's own build with scikit-build-core.

The objects are the same as those of the patched build, so a compiler cache hands them over.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from packaging.version import Version

from numamirror_build import __version__, data, proc
from numamirror_build.building import cmake
from numamirror_build.building.binding import LICENCES, binding_inputs, prepare_sources
from numamirror_build.building.build import (
    BuildOptions,
    build_environment,
    build_inputs,
    build_settings,
    placed_settings,
)
from numamirror_build.building.install import licence_files
from numamirror_build.building.recipe import Recipe, load_recipe
from numamirror_build.building.toolchain import find_toolchain
from numamirror_build.errors import ConfigError, WheelError
from numamirror_build.patching.apply import PatchedTree
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, file_sha256, write_atomic, write_json
from numamirror_build.upstreams.checkout import fetch_sdist
from numamirror_build.upstreams.pins import Binding

RECORD = "numamirror.json"
# files for pkg-config name the folder that the build backend made for what is installed, and forgot
_BACKEND = {"wheel.license-files": f"LICENSE*;{LICENCES}/**/*", "wheel.exclude": "*.pc"}

_LAYOUT = 3
_OURS = "numamirror-build/NOTICE"
_INPUTS = ("wheel", "upstream", "commit", "tree", "plan", "scope", "settings", "arguments", "portable")


@dataclass(frozen=True)
class Wheel:
    """A wheel of the binding.

    Attributes:
        path: the file.
        version: with the local part that says what it is.
        binding: the release of the binding that it was made from.
        key: digest of all inputs.
        sha256: of the file.
        warning: what a person should know about it.
        log: the whole output of pip, CMake and Ninja.
        seconds: how long making it took, when it was made.
        fresh: whether this run made it.
    """

    path: Path
    version: str
    binding: Binding
    key: str
    sha256: str
    warning: str | None
    log: Path
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
        ConfigError: there can be no wheel for the level.
        ToolMissingError: there is no compiler, no CMake or no Ninja.
        SourceError: the binding's sdist could not be had.
        ContentMismatchError: the sdist is not what the pin says.
        WheelError: the wheel could not be built, or lacks something.
        DiskFullError: no space left.
    """
    pin = tree.checkout.pin
    binding = pin.binding
    if binding is None:
        raise WheelError(f"There is no binding for {pin.upstream} {pin.name}")
    recipe = load_recipe(pin.upstream)
    check_level(recipe, options.portable)
    tools = find_toolchain()
    settings = wheel_settings(recipe, tree, options)
    inputs = build_inputs(recipe, tree, settings, options, tools)
    key = digest(
        {
            "kind": "wheel",
            "wheel": _LAYOUT,
            "binding": asdict(binding),
            **({"changes": changes} if (changes := binding_inputs(pin.upstream)) else {}),
            "python": sys.version_info[:2],
            **({"portable": options.portable} if options.portable else {}),
            **({"backend": dict(recipe.backend)} if recipe.backend else {}),
            **inputs,
        }
    )[:20]
    version = str(Version(f"{binding.version}+numamirror.{key[:10]}"))
    log = store.root / "logs" / f"wheel-{key}.log"
    record = {
        **facts_of(tree, version, inputs, options.portable),
        "tools": tools.facts(),
        "native": None if options.portable else tools.cxx.native,  # what a CPU must have
    }

    def maker(folder: Path) -> Mapping[str, Any]:
        folder = folder.resolve()
        archive = fetch_sdist(store, pin, progress=progress)
        progress.step(f"Building the wheel of {binding.package} {version}")
        log.parent.mkdir(parents=True, exist_ok=True)
        source = folder / "source"
        if not source.exists():
            half = prepare_sources(
                archive, folder / "half", tree, recipe, upstream=pin.upstream, version=version
            )
            write_json(half / recipe.package / RECORD, record)
            half.rename(source)
        write_atomic(
            folder / "init.cmake",
            cmake.initial_cache(placed_settings(recipe, settings, folder, tools)),
        )
        with proc.exclusive(folder / "lock") as lock:
            done = proc.run(
                _command(folder, recipe),
                env=_environment(build_environment(recipe, tree, folder, tools), folder, options),
                log=log,
                on_line=lambda line: cmake.report_step(line, progress),
                keep_open=[lock],
            )
        if done.returncode:
            where, why = cmake.first_error(done.output, recipe.vendored)
            raise WheelError(
                "The wheel could not be built",
                where=where,
                why=why or _complaint(done.output),
                hint=f"the whole output is in {log}",
                details={"log": str(log), "returncode": done.returncode},
            )
        path = _only_wheel(folder / "wheel")
        if options.portable:
            from numamirror_build.building.portable import check_wheel, repair_wheel

            path = repair_wheel(path, folder / "portable", log)
            check_wheel(path, options.portable, recipe.asked)
        _check(path, recipe, record, licence_files(recipe, tree.path), hint=f"the whole output is in {log}")
        for made in ("source", "build", "half"):
            shutil.rmtree(folder / made, ignore_errors=True)
        return {"file": str(path.relative_to(folder)), "sha256": file_sha256(path)}

    entry = store.make("wheels", key, maker, resume=True)
    return Wheel(
        path=entry.path / entry.made["file"],
        version=version,
        binding=binding,
        key=key,
        sha256=entry.made["sha256"],
        warning=None
        if pin.listed
        else f"{binding.package} {binding.version} was not made for commit {pin.commit}: it may not fit",
        log=log,
        seconds=entry.seconds,
        fresh=entry.fresh,
    )


def wheel_settings(recipe: Recipe, tree: PatchedTree, options: BuildOptions) -> dict[str, str]:
    """The CMake variables of a wheel's build, but for its folder."""
    return {
        **build_settings(recipe, tree, options),
        # bindings that want an rpath of the build's own get one of the same length in every folder
        "CMAKE_BUILD_RPATH_USE_ORIGIN": "ON",
        **recipe.wheel_settings,
    }


def backend_settings(recipe: Recipe) -> dict[str, str]:
    """The settings of scikit-build-core, wherever it builds."""
    return {**_BACKEND, **recipe.backend}


def check_level(recipe: Recipe, level: str | None) -> None:
    """See that there can be a wheel for a level.

    Raises:
        ConfigError: there can be none.
    """
    if level is not None and level in recipe.no_wheel:
        raise ConfigError(
            f"There is no wheel for {level}",
            where="--portable",
            why=recipe.no_wheel[level],
            hint=f"make the programs alone: build --portable {level}",
        )


def check_made(wheel: Path) -> Mapping[str, Any]:
    """See that a wheel is what the record in it says, whoever built it from our sources.

    Args:
        wheel: the file.

    Returns:
        the record.

    Raises:
        WheelError: it has no record of ours, or is not what the record says.
        PortabilityError: it has an instruction that the level it is for has not.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(f"/{RECORD}"))
            record: dict[str, Any] = json.loads(archive.read(name))
        if record["upstream"] not in data.upstream_names():
            raise ValueError(f"there is no upstream {record['upstream']!r}")
        recipe = load_recipe(record["upstream"])
        lacking = [name for name in (*_INPUTS, "binding") if name not in record]
        if lacking:
            raise ValueError(f"it does not say {', '.join(lacking)}")
    except _unreadable() as error:
        raise WheelError(
            "This is no wheel of ours",
            where=str(wheel),
            why=f"its record cannot be read: {error}",
            hint="give a wheel that numamirror-build made, or built from what its `wheel --sources` wrote",
        ) from error
    try:
        _check(wheel, recipe, record, (f"{Path(recipe.vendored).name}/LICENSE", _OURS))
        if level := record["portable"]:
            from numamirror_build.building.portable import check_wheel

            check_wheel(wheel, level, recipe.asked)
    except _unreadable() as error:
        raise WheelError(
            "The wheel is damaged", where=str(wheel), why=f"{type(error).__name__}: {error}"
        ) from error
    return record


def _unreadable() -> tuple[type[Exception], ...]:
    """What readers of archives, libraries and records raise for files that are damaged."""
    import struct
    import zlib

    from elftools.common.exceptions import ELFError

    kinds = (OSError, ValueError, KeyError, TypeError, RuntimeError, struct.error, zlib.error)
    return (*kinds, zipfile.BadZipFile, ELFError)


def _check(
    wheel: Path,
    recipe: Recipe,
    record: Mapping[str, Any],
    licences: Iterable[str],
    *,
    hint: str | None = None,
) -> None:
    from numamirror_build.building.contents import Expected, check_contents

    expected = Expected(
        package=record["binding"]["package"],
        version=record["wheel"],
        files=recipe.wheel_files,
        record=(f"{recipe.package}/{RECORD}", {name: record[name] for name in _INPUTS}),
        licences=tuple(licences),
        exports=recipe.exports,
        portable=record["portable"] is not None,
        linked=not record["arguments"],
    )
    check_contents(wheel, expected, hint=hint)


def facts_of(
    tree: PatchedTree, version: str, inputs: Mapping[str, Any], portable: str | None
) -> dict[str, Any]:
    """What a wheel says about itself, whoever builds it; ``portable`` is the level it is for."""
    pin = tree.checkout.pin
    return {
        "version": 1,
        "made_by": f"numamirror-build {__version__}",
        "wheel": version,
        "upstream": pin.upstream,
        "pin": pin.name,
        "commit": pin.commit,
        "tree": tree.checkout.tree,
        "verified": tree.checkout.verified,
        "plan": tree.plan.digest,
        "scope": tree.plan.scope,
        "binding": asdict(pin.binding) if pin.binding else None,
        "settings": inputs["settings"],
        "arguments": list(inputs["arguments"]),
        "environment": inputs["environment"],
        "portable": portable,
    }


def _command(folder: Path, recipe: Recipe) -> list[str | Path]:
    """pip, asked for the wheel of the sources; this Python's own scikit-build-core does it."""
    shutil.rmtree(folder / "wheel", ignore_errors=True)
    settings = {
        "build-dir": str(folder / "build"),
        **backend_settings(recipe),
    }
    return [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel"),
        *("--verbose", "--no-deps", "--no-build-isolation", "--no-cache-dir"),
        *("--wheel-dir", folder / "wheel"),
        *(word for name, value in settings.items() for word in ("--config-settings", f"{name}={value}")),
        folder / "source",
    ]


def _environment(inherited: Mapping[str, str], folder: Path, options: BuildOptions) -> dict[str, str]:
    """The environment of pip: that of a build, and what scikit-build-core reads there says the same."""
    return {
        **{name: value for name, value in inherited.items() if not name.startswith("SKBUILD_")},
        "CMAKE_ARGS": shlex.join(["-C", str(folder / "init.cmake"), *options.cmake_args]),
        "CMAKE_BUILD_PARALLEL_LEVEL": str(options.jobs),
        "CMAKE_GENERATOR": "Ninja",
    }


def _only_wheel(folder: Path) -> Path:
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise WheelError("pip did not leave one wheel", where=str(folder), why=f"{len(wheels)} are there")
    return wheels[0]


def _complaint(output: str) -> str | None:
    """The first lines in which pip or the build backend complains."""
    marks = ("ERROR: ", "error: ", "*** ")
    lines = [line.strip() for line in output.splitlines()]
    first = next((number for number, line in enumerate(lines) if line.startswith(marks)), None)
    return None if first is None else "\n".join(lines[first : first + 3])
