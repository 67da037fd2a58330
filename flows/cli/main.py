"""The command line: every entry as a command, in a group if its name has two words.

Results on stdout, everything else on stderr: prompts, and the progress of a pass.
"""

from __future__ import annotations

import gc
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from flows import install, stopping
from flows.commands import on_first_use
from flows.commands.context import Context, Terminal
from flows.commands.entry import Entry, entries_of
from flows.commands.result import Result
from flows.commands.signature import REQUIRED, Parameter
from flows.errors import TryAgainError, translated
from flows.redaction import redacted, shown
from flows.registry import ENTRIES
from flows.simulator import commands as practice
from flows.simulator import demo
from flows.steps import COMMAND_LINE, PROGRAM, CommandLine, Sentence, Text, Words, in_words
from flows.wiring import begin_process, config_folder

with on_first_use():
    from flows.submissions import build

GROUPS = {
    "outbox": (
        "List the chunks to upload, fetch them to a folder, and record what was done with them."
    ),
    "mend": "Put right what went wrong: each verb has --dry-run, and records who, when and why.",
    "audit": "Prove that the audit trail is whole, and hand out the evidence of a run.",
    "job": "Follow a placement job at the partner.",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--config", type=click.Path(path_type=Path), help="Folder of the issuers' TOML files."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option(
    "-v", "--verbose", is_flag=True, help="Show the progress of a submit without a terminal too."
)
@click.version_option(package_name="cardlink")
@click.pass_context
def main(context: click.Context, config: Path | None, as_json: bool, verbose: bool) -> None:
    """Get a card link for every cardholder of a nightly extract, and show who has none and why.

    Exit codes: 0 done and balanced, 1 unexpected, 2 usage or configuration, 3 done but rejects or
    errors above the limit, 4 out of balance, 75 try again.
    """
    # imported modules stay: scanning them takes a quarter of a short submit's CPU
    gc.set_threshold(200_000, 10, 10)
    usual = config_folder()
    folder = config or usual
    words = COMMAND_LINE  # of the commands that are to be pasted
    if folder.absolute() != usual.absolute():
        words = CommandLine(shlex.join([PROGRAM, "--config", str(folder.absolute())]))
    context.obj = {"config": folder, "json": as_json, "verbose": verbose, "words": words}


def add(group: click.Group, entries: Iterable[Entry[...]]) -> None:
    """Add the command of each entry, below the group its name begins with."""
    groups = {"": group}
    for entry in entries:
        below, _, _ = entry.name.rpartition(" ")
        if below not in groups:
            groups[below] = click.Group(below, help=GROUPS[below], short_help=GROUPS[below])
            group.add_command(groups[below])
        groups[below].add_command(command_of(entry))


class StoppedError(TryAgainError):
    """The process was asked to end."""

    message = stopping.MESSAGE
    next_step = stopping.NEXT_STEP


class _Days(click.IntRange):
    """A number of days, with or without a d."""

    name = "number of days, such as 14d"

    def convert(
        self, value: Any, param: click.Parameter | None, context: click.Context | None
    ) -> Any:
        days: Any = str(value).removesuffix("d")
        return super().convert(days, param, context)


def command_of(entry: Entry[...]) -> click.Command:
    """Return the command of an entry."""
    arguments = "\n".join(
        f"{_metavar(parameter)}: {parameter.help}"
        for parameter in entry.parameters
        if parameter.argument
    )
    return click.Command(
        entry.name.rpartition(" ")[2],
        callback=click.pass_context(partial(_run, entry)),
        params=[_parameter(parameter) for parameter in entry.parameters],
        help=f"{entry.summary}\n\n\b\n{arguments}" if arguments else entry.summary,
        short_help=entry.summary,
    )


def _metavar(parameter: Parameter) -> str:
    return parameter.field.metavar or parameter.name.upper()


def _parameter(parameter: Parameter) -> click.Parameter:
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
    metavar = _metavar(parameter) if needed else f"[{_metavar(parameter)}]"
    if parameter.many:
        shape = {"nargs": -1, "required": needed}
        metavar += "..."
    return click.Argument([parameter.name], type=_type(parameter), metavar=metavar, **shape)


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
    if parameter.type is date:
        return click.DateTime(["%Y-%m-%d"])
    if parameter.type is Path:
        return click.Path(path_type=Path, file_okay=not field.folder, dir_okay=field.folder)
    return click.INT if parameter.type is int else click.STRING


def _run(entry: Entry[...], invoked: click.Context, /, **options: Any) -> None:
    """Run a command, print its result, and turn errors into exit codes."""
    shared = invoked.obj
    UNPRINTED.clear()
    try:
        try:
            stopping.enter("working")
            begin_process()
            progress = partial(progress_line, verbose=shared["verbose"])
            terminal = Terminal(sys.stdin.isatty(), say, partial(say, err=True), ask)
            context = Context(shared["config"], progress, terminal, local_files=True)
            result = entry.invoke(context, options)
        finally:
            stopping.enter("over")
    # the boundary: a foreign text could hold a cell; panics are no Exception
    except BaseException as error:  # noqa: BLE001
        result = _result_of(error, entry.name)
    if "error" in result.facts and not shared["json"]:
        say(Sentence("cardlink: {error}", error=result.shown[0]), err=True)
    else:
        print_result(result, as_json=shared["json"])
    if UNPRINTED and not result.exit_code:
        done = "Done, but the" if entry.changes else "The"
        say(f"cardlink: {done} output could not be printed ({UNPRINTED[0]}).", err=True)
        # who left a pipe saw enough
        sys.exit(0 if entry.changes or "pipe" in UNPRINTED[0] else stopping.EXIT_CODE)
    sys.exit(result.exit_code)


def _result_of(error: BaseException, place: str) -> Result:
    """Return the result that reports what ended a command: an error of ours, or a stop signal."""
    reported = translated(place, error)
    stop = stopping.received() or ("SIGINT" if isinstance(error, KeyboardInterrupt) else "")
    if stop and not isinstance(reported, TryAgainError):  # whatever it broke on its way out
        reported = StoppedError(signal=stop)
    facts = {"error": type(reported).__name__, "message": str(reported.text)}
    return Result(facts, [reported.text], exit_code=reported.exit_code)


# seconds between two lines: on a terminal, and in a log
OFTEN = 0.2
SELDOM = 10.0
UNPRINTED: list[str] = []  # why results could not be printed


def say(text: Text, *, err: bool = False) -> None:
    """Print a text as `shown`: it may repeat what the partner or an issuer wrote; its commands can
    be pasted.
    """
    _print(shown(in_words(text, own_words())), err=err)


def own_words() -> Words:
    """Return the words of this command line: its commands name the folder of the TOML files, where
    this one was given another than usual.
    """
    invoked = click.get_current_context(silent=True)
    return invoked.find_root().obj["words"] if invoked else COMMAND_LINE


def _print(text: str, *, err: bool = False, nl: bool = True) -> None:
    """Print a text; where that fails the command goes on without, since its work matters more."""
    try:
        click.echo(text, err=err, nl=nl)
    except OSError as error:
        # also for what Python prints at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2 if err else 1)
        UNPRINTED.extend([] if err else [str(error.strerror)])


def ask(
    label: str, *, secret: bool = False, default: str | None = None, show_default: bool = False
) -> str:
    """Return what is typed, unseen if it is secret; KeyboardInterrupt on Ctrl-C and at the input's
    end.
    """
    # polars makes reads resume after Ctrl-C: a prompt could not be left
    signal.siginterrupt(signal.SIGINT, True)
    try:
        typed: str = click.prompt(
            shown(label), default, hide_input=secret, show_default=show_default, err=True
        )
    except click.Abort:
        pass
    else:
        # a terminal in another encoding gives half surrogates
        return typed.encode("utf-8", "replace").decode()
    raise KeyboardInterrupt


def print_result(result: Result, *, as_json: bool) -> None:
    """Print a result as text, its next step on stderr, or as one JSON object."""
    if as_json:
        line = in_words(result.next_step, own_words()) if result.next_step else ""
        facts = {**result.facts, "next": line, "exit_code": result.exit_code}
        _print(json.dumps(redacted(facts), default=str).replace("\x7f", "\\u007f"))
        return
    for line in result.lines_in(own_words()):
        say(line)
    if result.next_step is None:
        return
    say(Sentence("next: {step:bare}", step=result.next_step), err=True)
    if placeholders := result.next_step.placeholders:
        say(f"      Replace {' and '.join(placeholders)} first.", err=True)


@contextmanager
def progress_line(extract: str, *, verbose: bool) -> Iterator[Callable[[build.Progress], None]]:
    """Show the progress over one extract, on a terminal or if verbose; leave the terminal's line
    empty at the end.
    """
    terminal = sys.stderr.isatty()
    began = time.monotonic()
    width = 0
    pause = float("inf")
    if terminal:
        pause = OFTEN
    elif verbose:
        pause = SELDOM
    due = began + pause

    def show(progress: build.Progress) -> None:
        nonlocal due, width
        now = time.monotonic()
        if now < due:
            return
        due = now + pause
        line = f"{extract}: {build.describe_pace(progress.rows, progress.share, now - began)}"
        if terminal:
            _print(f"\r{line:<{width}}", err=True, nl=False)
            width = len(line)
        else:
            say(line, err=True)

    try:
        yield show
    finally:
        if width:
            _print("\r" + " " * width + "\r", err=True, nl=False)


COMMANDS = [*ENTRIES, *entries_of(practice, demo, install)]
add(main, COMMANDS)
