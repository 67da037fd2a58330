"""The command line: every entry as a command, in a group if its name has two words.

Results on stdout, everything else on stderr: prompts, and the progress of a pass.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import click

from flows import install, stopping
from flows.cli.parameters import click_parameter, metavar_of
from flows.cli.terminal import UNPRINTED, ask, print_result, progress_line, say
from flows.commands.context import Context, Terminal
from flows.commands.entry import Entry, entries_of
from flows.commands.result import Result
from flows.errors import TryAgainError, translated
from flows.registry import ENTRIES
from flows.simulator import commands as practice
from flows.simulator import demo, practice_people
from flows.steps import COMMAND_LINE, PROGRAM, CommandLine, Sentence
from flows.wiring import begin_process, config_folder

GROUPS = {
    "outbox": (
        "List the chunks to upload, fetch them to a folder, and record what was done with them."
    ),
    "mend": "Put right what went wrong: each command has --dry-run, and records who, when and why.",
    "audit": "Prove that the audit trail is whole, and hand out the evidence of a run.",
    "job": "Follow a placement job at the partner.",
    "service": "The partner's API: what it answers, and the settings that fit it.",
    "person": "What is stored of one person: export all of it, or forget them.",
}


class Commands(click.Group):
    """The commands; one of two words may begin with another command: `practice people`."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a line begins with, and what follows it."""
        two_words = " ".join(args[:2])
        if two_words in self.commands:
            return two_words, self.commands[two_words], args[2:]
        return super().resolve_command(context, args)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
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
        if below in group.commands and below not in groups:
            group.add_command(command_of(entry), entry.name)
            continue
        if below not in groups:
            groups[below] = click.Group(below, help=GROUPS[below], short_help=GROUPS[below])
            group.add_command(groups[below])
        groups[below].add_command(command_of(entry))


class StoppedError(TryAgainError):
    """The process was asked to end."""

    message = stopping.MESSAGE
    next_step = stopping.NEXT_STEP


def command_of(entry: Entry[...]) -> click.Command:
    """Return the command of an entry."""
    parameters = entry.parameters
    arguments = "\n".join(
        f"{metavar_of(parameter)}: {parameter.help}"
        for parameter in parameters
        if parameter.argument
    )
    return click.Command(
        entry.name.rpartition(" ")[2],
        callback=click.pass_context(partial(_run, entry)),
        params=[click_parameter(parameter) for parameter in parameters],
        help=f"{entry.summary}\n\n\b\n{arguments}" if arguments else entry.summary,
        short_help=entry.summary,
    )


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
        _exit_unprinted(entry, UNPRINTED[0])
    sys.exit(result.exit_code)


def _exit_unprinted(entry: Entry[...], reason: str) -> None:
    """Exit where a command is done, and its output could not be printed."""
    done = "Done, but the" if entry.changes else "The"
    say(f"cardlink: {done} output could not be printed ({reason}).", err=True)
    if entry.changes or "pipe" in reason:  # who left a pipe saw enough
        sys.exit(0)
    sys.exit(stopping.EXIT_CODE)


def _result_of(error: BaseException, place: str) -> Result:
    """Return the result that reports what ended a command: an error of ours, or a stop signal."""
    reported = translated(place, error)
    stop = stopping.received() or ("SIGINT" if isinstance(error, KeyboardInterrupt) else "")
    if stop and not isinstance(reported, TryAgainError):  # whatever it broke on its way out
        reported = StoppedError(signal=stop)
    facts = {"error": type(reported).__name__, "message": str(reported.text)}
    return Result(facts, [reported.text], exit_code=reported.exit_code)


COMMANDS = [*ENTRIES, *entries_of(practice, practice_people, demo, install)]
add(main, COMMANDS)
