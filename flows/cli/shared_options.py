"""The options that every command has: they may stand before it or after it, and what is typed last
counts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import click

from flows.steps import COMMAND_LINE, PROGRAM, CommandLine
from flows.wiring import config_folder


@dataclass
class SharedOptions:
    """What a line says for every command."""

    folder: Path = field(default_factory=config_folder)
    as_json: bool = False
    verbose: bool = False
    colorful: bool = field(default_factory=lambda: _allows_color(os.environ))
    typed: Sequence[str] = ()  # the whole line, for what is refused before it is understood

    @property
    def words(self) -> CommandLine:
        """The words of this line: commands to paste name the folder, where it is another than
        usual.
        """
        usual = config_folder()
        if self.folder.absolute() == usual.absolute():
            return COMMAND_LINE
        return CommandLine(shlex.join([PROGRAM, "--config", str(self.folder.absolute())]))


def shared_options(context: click.Context) -> SharedOptions:
    """Return what the line of a command says for every command."""
    return context.find_root().ensure_object(SharedOptions)


@cache
def options() -> list[click.Option]:
    """Return the options of every command."""
    folder = click.Path(path_type=Path)
    return [
        click.Option(
            ["--config"],
            type=folder,
            help="Folder of the issuers' TOML files.",
            callback=_setter(_set_folder),
            expose_value=False,
        ),
        _flag(["--json"], _set_json, "Print one JSON object on stdout."),
        _flag(
            ["-v", "--verbose"],
            _set_verbose,
            "Show the progress of a submit without a terminal too.",
        ),
        _flag(["--no-color"], _set_plain, "Show no colors; so does the variable NO_COLOR."),
    ]


def _flag(
    names: Sequence[str], set_option: Callable[[SharedOptions, Any], None], help_text: str
) -> click.Option:
    callback = _setter(set_option)
    return click.Option(names, is_flag=True, help=help_text, callback=callback, expose_value=False)


def _setter(
    set_option: Callable[[SharedOptions, Any], None],
) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return the callback of an option that is kept, where it is typed."""

    def keep(context: click.Context, _option: click.Parameter, value: Any) -> Any:
        shared = shared_options(context)
        if value:
            set_option(shared, value)
        return value

    return keep


def _set_folder(shared: SharedOptions, folder: Path) -> None:
    shared.folder = folder


def _set_json(shared: SharedOptions, _value: bool) -> None:
    shared.as_json = True


def _set_verbose(shared: SharedOptions, _value: bool) -> None:
    shared.verbose = True


def _set_plain(shared: SharedOptions, _value: bool) -> None:
    shared.colorful = False
    os.environ["NO_COLOR"] = "1"  # for what the demo starts


def _allows_color(environment: os._Environ[str]) -> bool:
    """Return whether the environment allows colors: https://no-color.org, and a terminal that has
    some.
    """
    return not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
