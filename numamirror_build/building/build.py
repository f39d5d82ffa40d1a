"""Building a tree, pristine or patched, out of the tree in a folder of the cache.

Every build has the same shape below its folder: ``source/<place of the tree>`` and ``build``.
The binding's wheel has it too, so a compiler cache gives the objects of one to all others.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numamirror_build import proc
from numamirror_build.building import cmake
from numamirror_build.building.recipe import Recipe, load_recipe
from numamirror_build.building.toolchain import Toolchain, find_toolchain
from numamirror_build.errors import BuildError, ConfigError
from numamirror_build.patching.apply import PatchedTree, PristineTree, supplied_files
from numamirror_build.progress import Progress
from numamirror_build.store import Store, digest, write_atomic

Tree = PristineTree | PatchedTree

_LAYOUT = 1
PLACE = "{build}"
_IDLE_VARIABLES = ("CMAKE_ARGS", "CMAKE_BUILD_PARALLEL_LEVEL", "CMAKE_GENERATOR")
_FLAG_VARIABLES = ("CFLAGS", "CXXFLAGS", "LDFLAGS", "ASMFLAGS")


@dataclass(frozen=True)
class BuildOptions:
    """What a person may choose.

    Attributes:
        jobs: compile steps at the same time; has no influence on the result.
        cmake_args: further arguments for CMake; they come last, so they win.
        programs: names of the programs to build; None for all of the upstream's that the tree has; empty for
            the libraries alone.
        build_type: CMake's build type.
        portable: the level of x86-64 to build for; None: this machine.
    """

    jobs: int = 1
    cmake_args: tuple[str, ...] = ()
    programs: tuple[str, ...] | None = None
    build_type: str = "Release"
    portable: str | None = None


@dataclass(frozen=True)
class Build:
    """Programs and libraries made from a tree.

    Attributes:
        tree: what was built, pristine or patched.
        path: the folder; ``path / "build"`` is CMake's build folder.
        key: digest of all inputs.
        programs: path of each program by its name; they run from where they are, and find their libraries in
            their own folder.
        missing: the programs that this tree does not have.
        libraries: the folder with ``libllama.so``, ``libggml*.so`` and so on.
        files: the programs, the shared libraries and the links to them that belong together.
        compile_commands: CMake's ``compile_commands.json``.
        settings: the CMake variables as they were in effect.
        tools: names and versions of the tools.
        log: the whole output of CMake and Ninja.
        seconds: how long making it took, when it was made.
        fresh: whether this run made it.
    """

    tree: Tree
    path: Path
    key: str
    programs: Mapping[str, Path]
    missing: tuple[str, ...]
    libraries: Path
    files: tuple[Path, ...]
    compile_commands: Path
    settings: Mapping[str, str]
    tools: Mapping[str, str | None]
    log: Path
    seconds: float
    fresh: bool


def make_build(store: Store, tree: Tree, options: BuildOptions, *, progress: Progress) -> Build:
    """Build a tree, or take the build from the cache. An interrupted build goes on where it was.

    Args:
        store: the cache.
        tree: what to build.
        options: how.
        progress: told what goes on.

    Raises:
        ToolMissingError: there is no compiler, no CMake or no Ninja.
        BuildError: configuring or compiling failed, or the tree has none of the programs asked for.
        DiskFullError: no space left.
    """
    recipe = load_recipe(tree.checkout.pin.upstream)
    tools = find_toolchain()
    settings = build_settings(recipe, tree, options)
    programs = _wanted(recipe, options)
    key = build_key(tree, options)
    log = store.root / "logs" / f"build-{key}.log"

    def maker(folder: Path) -> Mapping[str, Any]:
        folder = folder.resolve()
        pin = tree.checkout.pin
        progress.step(f"Building {pin.upstream} {pin.name}, {describe(tree)}")
        with configured(tree, options, folder, log, progress) as ready:
            ready.make(ready.targets)
        project, present = ready.project, ready.programs
        absent = [
            path for name in ready.targets for path in project.targets[name].artifacts if not path.exists()
        ]
        if absent:
            raise BuildError(
                "The build has not made what it was asked for",
                where=str(absent[0].relative_to(folder)),
                why="the build tool ended as if all were well",
                hint=f"the whole output is in {log}",
            )
        files = _products(project, ready.targets)
        if options.portable:
            from numamirror_build.building.portable import check_files

            check_files(files, options.portable, recipe.asked)
        return {
            "programs": {
                name: str(project.targets[name].artifacts[0].relative_to(folder)) for name in present
            },
            "libraries": str(project.targets[recipe.libraries[0]].artifacts[0].parent.relative_to(folder)),
            "files": [str(path.relative_to(folder)) for path in files],
            "settings": effective_settings(project.cache, settings, options),
            "tools": tools.facts(),
        }

    entry = store.make("builds", key, maker, resume=True)
    made = entry.made
    return Build(
        tree=tree,
        path=entry.path,
        key=key,
        programs={name: entry.path / path for name, path in made["programs"].items()},
        missing=tuple(name for name in programs if name not in {*made["programs"], *recipe.optional}),
        libraries=entry.path / made["libraries"],
        files=tuple(entry.path / path for path in made["files"]),
        compile_commands=entry.path / "build/compile_commands.json",
        settings=made["settings"],
        tools=made["tools"],
        log=log,
        seconds=entry.seconds,
        fresh=entry.fresh,
    )


@dataclass(frozen=True)
class Configured:
    """A tree in a folder where it can be built.

    Attributes:
        project: what CMake says of it.
        programs: those of the programs asked for that the tree has.
        targets: these, or the libraries.
        make: builds what it is told: names of targets, or paths of files as Ninja knows them.
    """

    project: cmake.Project
    programs: tuple[str, ...]
    targets: tuple[str, ...]
    make: Callable[[Sequence[str]], None]


@contextmanager
def configured(
    tree: Tree, options: BuildOptions, folder: Path, log: Path, progress: Progress
) -> Iterator[Configured]:
    """Copy a tree to a folder and configure its build there: ``source/<place of the tree>`` and ``build``.

    Args:
        tree: what to build.
        options: how.
        folder: an absolute path; what an interrupted run left there is used.
        log: gets the tools' output.
        progress: told what goes on.

    Raises:
        ToolMissingError: there is no compiler, no CMake or no Ninja.
        BuildError: configuring failed, or the tree has none of the programs asked for.
        DiskFullError: no space left.
    """
    pin = tree.checkout.pin
    recipe = load_recipe(pin.upstream)
    tools = find_toolchain()
    log.parent.mkdir(parents=True, exist_ok=True)
    source = folder / "source" / recipe.vendored
    copy_tree(tree.path, source)
    for name, content in supplied_files(pin.upstream, source).items():
        write_atomic(source / name, content)
    settings = placed_settings(recipe, build_settings(recipe, tree, options), folder, tools)
    cache = folder / "init.cmake"
    write_atomic(cache, cmake.initial_cache(settings))
    env = build_environment(recipe, tree, folder, tools)
    with proc.exclusive(folder / "lock") as lock:
        project = cmake.configure(
            source,
            folder / "build",
            ["-C", str(cache), *options.cmake_args],
            cmake=tools.cmake.path,
            tree=recipe.vendored,
            env=env,
            log=log,
            keep_open=[lock],
        )
        wanted = _wanted(recipe, options)
        present = tuple(name for name in wanted if name in project.targets)
        if wanted and not present:
            raise BuildError(
                "The tree has none of the programs asked for", where=", ".join(wanted), why=str(source)
            )
        yield Configured(
            project=project,
            programs=present,
            targets=present or recipe.libraries,
            make=lambda targets: cmake.ninja(
                folder / "build",
                targets,
                program=tools.ninja.path,
                jobs=options.jobs,
                tree=recipe.vendored,
                env=env,
                log=log,
                progress=progress,
                keep_open=[lock],
            ),
        )


def build_key(tree: Tree, options: BuildOptions) -> str:
    """The digest of all inputs of a build."""
    recipe = load_recipe(tree.checkout.pin.upstream)
    settings = build_settings(recipe, tree, options)
    inputs = build_inputs(recipe, tree, settings, options, find_toolchain())
    return digest({"kind": "build", "programs": _wanted(recipe, options), **inputs})[:20]


def describe(tree: Tree) -> str:
    """``pristine`` or ``patched``."""
    return "patched" if isinstance(tree, PatchedTree) else "pristine"


def build_settings(recipe: Recipe, tree: Tree, options: BuildOptions) -> dict[str, str]:
    """The CMake variables of a build, but for its folder: see :func:`placed_settings`."""
    commit = tree.checkout.pin.commit[:9]
    switch = {recipe.switch: "ON"} if isinstance(tree, PatchedTree) else {}
    return {
        "CMAKE_BUILD_TYPE": options.build_type,
        "CMAKE_EXPORT_COMPILE_COMMANDS": "ON",
        # the rpath of a build has an empty part besides, which is whatever folder is the current one
        "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        "CMAKE_INSTALL_RPATH": "$ORIGIN",
        **{name: value.replace("{commit}", commit) for name, value in recipe.settings.items()},
        **switch,
        **_portable_settings(recipe, options),
    }


def placed_settings(
    recipe: Recipe, settings: Mapping[str, str], folder: Path, tools: Toolchain
) -> dict[str, str]:
    """The CMake variables of a build in a folder: those that it has anywhere, and those that hide the folder.

    The compiler forgets the folder, so that ``__FILE__`` is the path in the tree.
    It sees absolute paths, or with ccache paths relative to the build folder.
    """
    places = (f"../source/{recipe.vendored}/", f"{folder}/source/{recipe.vendored}/")
    placed = {name: value.replace(PLACE, str(folder / "build")) for name, value in settings.items()}
    flags = shlex.join(f"-ffile-prefix-map={place}=" for place in places)
    launcher = {
        f"CMAKE_{language}_COMPILER_LAUNCHER": str(tools.ccache.path)
        for language in ("C", "CXX")
        if tools.ccache
    }
    return {**placed, "CMAKE_C_FLAGS_INIT": flags, "CMAKE_CXX_FLAGS_INIT": flags, **launcher}


def build_environment(recipe: Recipe, tree: Tree, folder: Path, tools: Toolchain) -> dict[str, str]:
    """The environment of the build tools: ccache is blind for the folder of the build,
    and git sees no repository around it, or one that knows the commit's id and nothing else."""
    repository = folder / "repository"
    if recipe.asks_git:
        for name in ("objects", "refs"):
            (repository / name).mkdir(parents=True, exist_ok=True)
        write_atomic(repository / "HEAD", f"{tree.checkout.pin.commit}\n")
    return {
        **tools.environment(),
        "GIT_DIR": str(repository),
        "CCACHE_BASEDIR": str(folder),
        "CCACHE_NOHASHDIR": "1",
    }


def build_inputs(
    recipe: Recipe, tree: Tree, settings: Mapping[str, str], options: BuildOptions, tools: Toolchain
) -> dict[str, Any]:
    """Everything that has an influence on what a build makes, JSON-like, for keys."""
    environment = {
        name: value
        for name, value in sorted(os.environ.items())
        if (name.startswith("CMAKE_") or name in _FLAG_VARIABLES) and name not in _IDLE_VARIABLES
    }
    return {
        "layout": _LAYOUT,
        **({"commit": tree.checkout.pin.commit} if recipe.asks_git else {}),
        **({"supplied": supplied} if (supplied := _supplied(tree)) else {}),
        "tree": tree.checkout.tree or tree.checkout.key,
        "plan": tree.plan.digest if isinstance(tree, PatchedTree) else None,
        "settings": dict(settings),
        "arguments": options.cmake_args,
        "tools": tools.inputs(native=options.portable is None),
        "environment": environment,
    }


def effective_settings(
    cache: Mapping[str, str], settings: Mapping[str, str], options: BuildOptions
) -> dict[str, str]:
    """The variables that we or the person set, and the compiler's flags, as CMake has them; no folders."""
    words = (word.removeprefix("-D") for word in options.cmake_args if word.startswith("-D"))
    named = {word.split("=")[0].split(":")[0] for word in words}
    kind = options.build_type.upper()
    flags = {f"CMAKE_{language}_FLAGS_{kind}" for language in ("C", "CXX")}
    placed = {name for name, value in settings.items() if PLACE in value} - named
    return {
        name: settings[name] if name in placed else cache[name]
        for name in sorted({*settings, *named, *flags})
        if name in cache
    }


def copy_tree(tree: Path, into: Path) -> None:
    """Copy a tree's files, with their times; some trees write into their own folder when they are built.

    What is from the future, as after a clock that went back, is from now: tools would make it forever.
    """
    if into.exists():
        return
    half = into.with_name(f"{into.name}.half")
    shutil.rmtree(half, ignore_errors=True)
    half.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(tree, half, symlinks=True, ignore=shutil.ignore_patterns(".git"))
    now = time.time()
    for path in (half, *half.rglob("*")):
        if path.lstat().st_mtime > now:
            os.utime(path, (now, now), follow_symlinks=False)
    half.rename(into)


def _supplied(tree: Tree) -> dict[str, str]:
    """What a source lacks and a build gets nevertheless, for keys."""
    files = supplied_files(tree.checkout.pin.upstream, tree.checkout.path)
    return {name: content.decode() for name, content in files.items()}


def _portable_settings(recipe: Recipe, options: BuildOptions) -> Mapping[str, str]:
    if options.portable is None:
        return {}
    if options.portable not in recipe.portable:
        raise ConfigError(
            f"This upstream cannot be built for {options.portable}",
            where="--portable",
            hint=f"it can be built for {', '.join(recipe.portable)}",
        )
    return recipe.portable[options.portable]


def _wanted(recipe: Recipe, options: BuildOptions) -> tuple[str, ...]:
    return (*recipe.programs, *recipe.optional) if options.programs is None else options.programs


def _products(project: cmake.Project, targets: Iterable[str]) -> list[Path]:
    """What targets need to run: their files, the shared libraries they depend on, and the links to these."""
    kinds = ("EXECUTABLE", "SHARED_LIBRARY", "MODULE_LIBRARY")
    made = {
        path.resolve(): path.parent
        for target in project.closure(targets)
        if target.kind in kinds
        for path in target.artifacts
        if path.exists()
    }
    return sorted(
        path for folder in set(made.values()) for path in folder.iterdir() if path.resolve() in made
    )
