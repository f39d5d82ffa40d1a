"""Writes docs/reference.md from the code: commands, settings, exit codes. With --check it only compares."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from numamirror_build import errors
from numamirror_build.cli import machine, main
from numamirror_build.cli.commands import cli
from numamirror_build.cli.options import COMMON
from numamirror_build.config import APP, OPTIONS, SETTINGS_FILE, key_of, variable_of

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference.md"

HEAD = f"""\
<!-- Written by ci/reference.py from the code. Change that, and run it. -->

# Reference

## Commands

`{APP} [OPTIONS]` does the whole job.
`{APP} COMMAND [OPTIONS]` does one step, and the steps before it when they are not in the cache.
An option may stand before or after the command; after it counts more.
All commands take {", ".join(f"`--{key_of(name)}`" for name in COMMON)}.
"""

SETTINGS = f"""
## Settings

A setting's value comes from, lowest to highest:
its default, a settings file, the environment, the command line.
A higher value replaces a lower one; lists are replaced, too, not joined.

The settings file is `{SETTINGS_FILE}`, or the table `[tool.{APP}]` of `pyproject.toml`,
in the current folder or the nearest one above that has either.
Having both in one folder is an error,
and so are unknown keys and values of the wrong type, in the environment as well.
Keys are the options' names without the dashes in front: `cache-dir = "cache"`.
Relative paths count from the file's folder;
those in the environment and on the command line from the current one.
In the environment, lists are words as in a shell, and flags are 1, true, yes, on or 0, false, no, off;
an empty variable counts as not set.

`{APP} settings` prints what is in force and where each value comes from;
every `--json` document says it, too.

| option | environment variable | default | meaning |
|---|---|---|---|
"""

CODES = """
## Exit codes

A failure says what failed, where, why and what to do next on stderr.
With `--json`, the one document on stdout then has `error` (the kind), `exit_code`, `what` and,
for the kinds of failure that are expected, `where`, `why`, `next` and `details`.

| code | kind | meaning |
|---|---|---|
"""

OTHER_CODES = {
    0: ("", "Done."),
    main.USAGE: ("usage", "The command line is wrong."),
    machine.UNHEALTHY: ("", "`doctor` found something that would prevent or spoil the mirror."),
    main.UNEXPECTED: ("unexpected", "A mistake in this program; a log to report it with was written."),
    main.INTERRUPTED: ("interrupted", "Ctrl-C; the same command continues."),
    128 + 13: ("", "Whoever read the output stopped reading."),
    main.TERMINATED: ("terminated", "SIGTERM or SIGHUP; the same command continues."),
}


def reference() -> str:
    """The whole page."""
    return "".join([HEAD, *_commands(), SETTINGS, *_settings(), CODES, *_codes()])


def _commands() -> Iterator[str]:
    yield from _command(click.Context(cli, info_name=APP), "the whole job")
    yield from _subcommands(cli)


def _subcommands(group: click.Group, before: str = "") -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield from _command(click.Context(command, info_name=name), before + name)
            yield from _subcommands(command, f"{before}{name} ")
        else:
            yield from _command(click.Context(command, info_name=name), before + name)


def _command(context: click.Context, title: str) -> Iterator[str]:
    options = [option for option in context.command.params if isinstance(option, click.Option)]
    own = [option for option in options if option.name not in OPTIONS and option.name != "version"]
    text = " ".join((context.command.help or "").split())
    yield f"\n### {title}\n\n{text.replace('. ', '.' + chr(10))}\n\n"
    taken = [f"`{one.opts[0]}`" for one in options if one.name in OPTIONS and one.name not in COMMON]
    yield f"Takes {', '.join(taken) or 'no others'}.\n"
    for option in own:
        yield f"\n- `{option.opts[0]}`: {option.help}\n"


def _settings() -> Iterator[str]:
    for name, option in OPTIONS.items():
        value = f" {'|'.join(option.choices) or option.metavar}" if option.kind != "flag" else ""
        cells = [f"`--{key_of(name)}{value}`", f"`{variable_of(name)}`", option.default_text, option.help]
        yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


def _codes() -> Iterator[str]:
    rows = {
        kind.exit_code: (kind.kind, kind.__doc__ or "")
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.NumaMirrorError)
        if kind is not errors.NumaMirrorError
    }
    for code, (kind, meaning) in sorted({**rows, **OTHER_CODES}.items()):
        yield f"| {code} | {kind} | {meaning.splitlines()[0]} |\n"


if __name__ == "__main__":
    text = reference()
    if sys.argv[1:] == ["--check"]:
        sys.exit(f"{PAGE.name} is not what {Path(__file__).name} writes" if PAGE.read_text() != text else 0)
    PAGE.write_text(text)
