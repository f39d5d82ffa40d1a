"""Settings as options of a command, and back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from numamirror_build.config import OPTIONS, Option, key_of

COMMON = ("cache_dir", "json", "quiet", "verbose")

Function = TypeVar("Function", bound=Callable[..., Any])


def setting_options(*names: str) -> Callable[[Function], Function]:
    """A decorator that gives a command the options of these settings, and those that all commands have."""

    def decorate(function: Function) -> Function:
        for name in reversed([*names, *COMMON]):
            function = _click_option(name, OPTIONS[name])(function)
        return function

    return decorate


def given_settings(context: click.Context) -> dict[str, Any]:
    """The settings that the command line names; what stands after a subcommand counts more than before it."""
    given = given_settings(context.parent) if context.parent else {}
    for name, value in context.params.items():
        if name in OPTIONS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            given[name] = value
    return given


def refuse_beside(flag: str, *names: str) -> None:
    """A usage error when the command line names one of these options beside a flag that overrides them."""
    context: click.Context | None = click.get_current_context()
    while context:
        for name in names:
            if context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
                raise click.UsageError(f"--{key_of(name)} has no meaning with {flag}: leave it out.")
        context = context.parent


def _click_option(name: str, option: Option) -> Callable[[Function], Function]:
    flag = f"--{key_of(name)}"
    if option.kind == "flag":
        return click.option(flag, name, is_flag=True, help=option.help)
    kind: click.ParamType[Any] | None = None
    if option.choices:
        kind = click.Choice(option.choices)
    elif option.kind == "number":
        kind = click.IntRange(min=1)
    return click.option(
        flag,
        name,
        type=kind,
        multiple=option.kind == "texts",
        metavar=option.metavar,
        help=f"{option.help}  [default: {option.default_text}]",
    )
