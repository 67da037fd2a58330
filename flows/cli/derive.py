"""Make the command of an entry: its arguments, options, checks and help."""

from __future__ import annotations

import signal
import sys
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from flows.cli.terminal import ProgressLine, Terminal, print_result, say
from flows.commands.entry import REQUIRED, Context, Entry, Parameter
from flows.commands.parameters import OneOf, Range
from flows.commands.result import Result
from flows.errors import BugError, CardlinkError, TryAgainError, full_text, kind_and_place


class StoppedError(TryAgainError):
    """The process was asked to end."""

    message = "Stopped by signal {signal}. Nothing was committed by this command."
    next_step = "Run the same command again; it resumes from what is already published."


class _Date(click.DateTime):
    """A day such as 2026-11-20."""

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        return value if type(value) is date else super().convert(value, param, context).date()


class _Days(click.IntRange):
    """A number of days, with or without a d."""

    name = "number of days, such as 14d"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        days: Any = str(value).removesuffix("d")
        return super().convert(days, param, context)


def command_of(entry: Entry[...]) -> click.Command:
    """Return the command of an entry."""
    arguments = "\n".join(f"{_metavar(one)}: {one.help}" for one in entry.parameters if one.argument)
    return click.Command(
        entry.name.rpartition(" ")[2],
        callback=click.pass_context(partial(_run, entry)),
        params=[_argument(one) if one.argument else _option(one) for one in entry.parameters],
        help=f"{entry.summary}\n\n\b\n{arguments}" if arguments else entry.summary,
        short_help=entry.summary,
    )


def _metavar(one: Parameter) -> str:
    return one.cli.metavar or one.name.upper()


def _argument(one: Parameter) -> click.Argument:
    needed = one.default is REQUIRED
    shown = f"{_metavar(one) if needed else f'[{_metavar(one)}]'}{'...' if one.many else ''}"
    shape: dict[str, Any] = {"nargs": -1} if one.many else {} if needed else {"default": one.default}
    return click.Argument([one.name], type=_type(one), required=needed, metavar=shown, **shape)


def _option(one: Parameter) -> click.Option:
    name = one.option
    if one.type is bool:
        return click.Option([name, one.name], is_flag=True, help=one.help)
    shape: dict[str, Any] = {"default": f"{one.default}d" if one.cli.days else one.default}
    if one.default is REQUIRED:
        shape = {"required": True}
    elif one.many:
        shape = {"multiple": True}
    metavar = one.cli.metavar or ("YYYY-MM-DD" if one.type is date else None)
    shape["show_default"] = one.default not in (REQUIRED, "", None, ())
    return click.Option([name, one.name], type=_type(one), metavar=metavar, help=one.help, **shape)


def _type(one: Parameter) -> click.ParamType[Any]:
    limits: Range | None = one.mark(Range)
    offered: OneOf | None = one.mark(OneOf)
    if get_origin(one.type) is Literal:
        return click.Choice(get_args(one.type))
    if offered is not None and offered.checked:
        return click.Choice(offered.names())
    if limits is not None:
        if one.type is float:
            return click.FloatRange(*limits)
        whole = _Days if one.cli.days else click.IntRange
        return whole(int(limits.least), None if limits.most is None else int(limits.most))
    if one.type is date:
        return _Date(["%Y-%m-%d"])
    if one.type is Path:
        return click.Path(path_type=Path, file_okay=not one.cli.folder, dir_okay=one.cli.folder)
    return click.INT if one.type is int else click.STRING


def _run(entry: Entry[...], invoked: click.Context, /, **given: Any) -> None:
    """Run a command, print its result, and turn errors into exit codes."""
    shared = invoked.obj
    try:
        progress = partial(ProgressLine, verbose=shared["verbose"])
        result = entry.invoke(Context(shared["config"], progress, Terminal(), local_files=True), given)
    except CardlinkError as error:
        result = _failed(error)
    except KeyboardInterrupt as stop:
        result = _failed(StoppedError(signal=stop.args[0] if stop.args else signal.SIGINT))
    except Exception as error:  # noqa: BLE001 - the boundary: a foreign text could hold a cell, so kind and place pass
        result = _failed(BugError(place=entry.name, kind=kind_and_place(error)))
    if "error" in result.facts and not shared["json"]:
        say(f"cardlink: {result.facts['message']}", err=True)
    else:
        print_result(result, as_json=shared["json"])
    sys.exit(result.exit_code)


def _failed(error: CardlinkError) -> Result:
    return Result({"error": type(error).__name__, "message": full_text(error)}, exit_code=error.exit_code)
