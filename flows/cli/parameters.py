"""A parameter of an entry as click has it: its type, whether it is required, how it is shown."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from flows.cli.completion import completer_of
from flows.commands.parameters import Field
from flows.commands.signature import REQUIRED, Parameter


class _Days(click.IntRange):
    """A number of days, with or without a d."""

    name = "number of days, such as 14d"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        days: Any = str(value).removesuffix("d")
        return super().convert(days, param, context)


class _Formed(click.ParamType[str]):
    """A text whose form is said in words."""

    name = "text"

    def __init__(self, field: Field) -> None:
        self.field = field

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        is_left_out = param is not None and not param.required and not value
        if not is_left_out and not re.fullmatch(self.field.pattern, value):
            self.fail(f"{value!r} is not {self.field.form}.", param, context)
        return value


def click_parameter(parameter: Parameter) -> click.Parameter:
    """Return the argument or option of a parameter."""
    if parameter.argument:
        return _argument(parameter)
    if parameter.type is bool:
        names = [parameter.option, parameter.name]
        return click.Option(names, is_flag=True, help=parameter.help)
    return _option(parameter)


def _need(parameter: Parameter) -> dict[str, Any]:
    """Return what tells click that a parameter is required, or what it is by default."""
    if parameter.default is REQUIRED:
        return {"required": True}
    return {"default": parameter.default}


def _argument(parameter: Parameter) -> click.Argument:
    needed = parameter.default is REQUIRED
    shape = _need(parameter)
    metavar = parameter.metavar if needed else f"[{parameter.metavar}]"
    if parameter.many:
        shape = {"nargs": -1, "required": needed}
        metavar += "..."
    return click.Argument(
        [parameter.name],
        type=_type(parameter),
        metavar=metavar,
        shell_complete=completer_of(parameter),
        **shape,
    )


def _option(parameter: Parameter) -> click.Option:
    shape = _need(parameter)
    if parameter.type is date:
        shape["callback"] = lambda _context, _option, moment: moment and moment.date()
    if parameter.field.days:
        shape["default"] = f"{parameter.default}d"
    elif parameter.many and parameter.default is not REQUIRED:
        shape = {"multiple": True}
    return click.Option(
        [parameter.option, parameter.name],
        type=_type(parameter),
        metavar=parameter.field.metavar or ("YYYY-MM-DD" if parameter.type is date else None),
        help=parameter.help,
        shell_complete=completer_of(parameter),
        show_default=parameter.default not in (REQUIRED, "", None, ()),
        **shape,
    )


def _type(parameter: Parameter) -> click.ParamType[Any]:
    field = parameter.field
    if get_origin(parameter.type) is Literal:
        return click.Choice(get_args(parameter.type))
    if field.names and field.checked:
        return click.Choice(field.names())
    if field.least is not None:
        whole = _Days if field.days else click.IntRange
        limits: Any = field.least, field.most
        return click.FloatRange(*limits) if parameter.type is float else whole(*limits)
    if field.form:
        return _Formed(field)
    if parameter.type is date:
        return click.DateTime(["%Y-%m-%d"])
    if parameter.type is Path:
        return click.Path(path_type=Path, file_okay=not field.folder, dir_okay=field.folder)
    return click.INT if parameter.type is int else click.STRING
