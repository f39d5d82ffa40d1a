"""Options of commands, and settings as options and back."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from numamirror_build.config import OPTIONS, Option, key_of

COMMON = ("cache_dir", "json", "quiet", "verbose")

Function = TypeVar("Function", bound=Callable[..., Any])


class _Option(click.Option):
    """An option whose value is never empty: that is most often a shell's variable that is not set.

    As a path it would be the current folder, and as a name any.
    """

    def type_cast_value(self, ctx: click.Context, value: Any) -> Any:
        if value == "" or (isinstance(value, (list, tuple)) and "" in value):
            raise click.BadParameter("it is empty; leave the option out for its default.", ctx, self)
        return super().type_cast_value(ctx, value)


option = functools.partial(click.option, cls=_Option)


class Finite(click.FloatRange):
    """A number in a range; neither NaN, which no range excludes, nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class Version(click.ParamType[str]):
    """A version as the package index writes it."""

    name = "version"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from packaging import version

        try:
            return str(version.Version(value))
        except version.InvalidVersion:
            self.fail(f"{value!r} is no version, such as 0.3.36.", param, ctx)


MOST_TOKENS = 2**31 - 1  # upstreams count them in 32 bits


def tokens(least: int) -> click.IntRange:
    """How many tokens: at least so many, and not more than upstreams can count."""
    return click.IntRange(least, MOST_TOKENS)


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


def _click_option(name: str, setting: Option) -> Callable[[Function], Function]:
    flag = f"--{key_of(name)}"
    if setting.kind == "flag":
        return option(flag, name, is_flag=True, help=setting.help)
    kind: click.ParamType[Any] | None = None
    if setting.choices:
        kind = click.Choice(setting.choices)
    elif setting.kind == "number":
        kind = click.IntRange(min=1)
    return option(
        flag,
        name,
        type=kind,
        multiple=setting.kind == "texts",
        metavar=setting.metavar,
        help=f"{setting.help}  [default: {setting.default_text}]",
    )
