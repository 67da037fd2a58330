"""Make the command of an entry: its arguments, options, checks and help."""

from __future__ import annotations

import signal
import sys
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from flows.cli.terminal import ProgressLine, Terminal, print_result
from flows.commands.entry import REQUIRED, Cli, Context, DayCount, Entry, Folder, OneOf, Parameter, Range
from flows.commands.result import Result
from flows.errors import BugError, CardlinkError, TryAgainError, kind_and_place


class StoppedError(TryAgainError):
    """The process was asked to end."""

    message = "Stopped by signal {signal}. Nothing was committed by this command."
    next_step = "Run the same command again; it resumes from what is already published."


class _Date(click.DateTime):
    """A day such as 2026-11-20."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        """Read a day."""
        return value if type(value) is date else super().convert(value, param, context).date()


class _Days(click.ParamType[int]):
    """A number of days, with or without its d."""

    name = "days"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> int:
        """Read a number of days."""
        number = str(value).removesuffix("d")
        if not (number.isascii() and number.isdigit() and int(number) <= self._most):
            self.fail(f"days from 0d to {self._most}d, such as 14d", param, context)
        return int(number)


_PLAIN: dict[type, click.ParamType[Any]] = {str: click.STRING, int: click.INT, float: click.FLOAT}


def command_of(entry: Entry[...]) -> click.Command:
    """Return the command of an entry."""
    found = entry.parameters
    taken = "\n".join(f"{_metavar(one)}: {one.help}" for one in found if one.argument)
    return click.Command(
        entry.name.rpartition(" ")[2],
        callback=click.pass_context(partial(_run, entry)),
        params=[_argument(one) if one.argument else _option(one) for one in found],
        help=f"{entry.summary}\n\n\b\n{taken}" if taken else entry.summary,
        short_help=entry.summary,
    )


def _metavar(one: Parameter) -> str:
    spelled: Cli = one.mark(Cli) or Cli()
    return spelled.metavar or one.name.upper()


def _argument(one: Parameter) -> click.Argument:
    needed = one.default is REQUIRED
    shape: dict[str, Any] = {"nargs": -1} if one.many else {} if needed else {"default": one.default}
    return click.Argument([one.name], type=_type(one), required=needed, metavar=_shown(one, needed), **shape)


def _shown(one: Parameter, needed: bool) -> str:
    name = _metavar(one) if needed else f"[{_metavar(one)}]"
    return f"{name}..." if one.many else name


def _option(one: Parameter) -> click.Option:
    spelled: Cli = one.mark(Cli) or Cli()
    name = spelled.option or f"--{one.name.replace('_', '-')}"
    if one.type is bool:
        return click.Option([name, one.name], is_flag=True, help=one.help)
    usual = f"{one.default}d" if one.mark(DayCount) else one.default
    shape: dict[str, Any] = {"required": True} if usual is REQUIRED else {"default": usual}
    if one.many:
        shape = {"multiple": True}
    said = usual not in (REQUIRED, "", None, ())
    metavar = spelled.metavar or ("YYYY-MM-DD" if one.type is date else None)
    return click.Option([name, one.name], type=_type(one), metavar=metavar, help=one.help, show_default=said, **shape)


def _type(one: Parameter) -> click.ParamType[Any]:
    limits: Range | None = one.mark(Range)
    offered: OneOf | None = one.mark(OneOf)
    if get_origin(one.type) is Literal:
        return click.Choice(get_args(one.type))
    if offered is not None and offered.checked:
        return click.Choice(offered.names())
    if limits and one.mark(DayCount):
        return _Days(int(limits.most or 0))
    if one.type is date:
        return _Date(["%Y-%m-%d"])
    if one.type is Path:
        folder = one.mark(Folder) is not None
        return click.Path(path_type=Path, file_okay=not folder, dir_okay=folder)
    if limits is None:
        return _PLAIN[one.type]
    if one.type is float:
        return click.FloatRange(limits.least, limits.most, min_open=limits.above)
    return click.IntRange(int(limits.least), None if limits.most is None else int(limits.most))


def _run(entry: Entry[...], invoked: click.Context, /, **given: Any) -> None:
    """Run a verb, print its result, and turn errors into exit codes."""
    shared = invoked.obj
    progress = partial(ProgressLine, verbose=shared["verbose"])
    try:
        result = entry(Context(shared["config"], progress, Terminal(), local_files=True), **given)
    except CardlinkError as error:
        result = _failed(error)
    except KeyboardInterrupt as stop:
        result = _failed(StoppedError(signal=stop.args[0] if stop.args else signal.SIGINT))
    except Exception as error:  # noqa: BLE001 - the boundary: a foreign text could hold a cell, so kind and place pass
        result = _failed(BugError(place=entry.name, kind=kind_and_place(error)))
    if "error" in result.facts and not shared["json"]:
        click.echo(f"cardlink: {result.facts['message']}", err=True)
    else:
        print_result(result, as_json=shared["json"])
    sys.exit(result.exit_code)


def _failed(error: CardlinkError) -> Result:
    return Result({"error": type(error).__name__, "message": str(error)}, exit_code=error.exit_code)
