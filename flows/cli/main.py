"""The command line: every entry as a command, in a group if its name has two words.

Results on stdout, everything else on stderr: prompts, and the progress of a pass.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from functools import partial
from typing import Any

import click

from flows import install, stopping
from flows.cli import completion
from flows.cli.command import Command, CommandGroup, Commands
from flows.cli.outcome import print_result, result_of
from flows.cli.parameters import click_parameter
from flows.cli.sections import GROUPS
from flows.cli.shared_options import shared_options
from flows.cli.terminal import UNPRINTED, ask, progress_line, say
from flows.commands import on_first_use
from flows.commands.context import Context, Terminal
from flows.commands.entry import Entry, entries_of
from flows.registry import ENTRIES
from flows.steps import PROGRAM
from flows.wiring import begin_process

with on_first_use():
    from flows import installed


def _print_version(context: click.Context, _parameter: click.Parameter, is_given: bool) -> None:
    """Print the number of the build, and exit."""
    if is_given and not context.resilient_parsing:
        click.echo(f"{PROGRAM}, version {installed.installed_build()}")
        context.exit()


@click.group(
    PROGRAM,
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_print_version,
    help="Show the version and exit.",
)
def main() -> None:
    """Get a card link for every cardholder of a nightly extract, and show who has none and why.

    Exit codes: 0 done and balanced, 1 unexpected, 2 usage or configuration, 3 done but rejects or
    errors above the limit, 4 out of balance, 75 try again.
    """


def add(group: click.Group, entries: Iterable[Entry[...]]) -> None:
    """Add the command of each entry, below the group its name begins with."""
    groups = {"": group}
    for entry in entries:
        below, _, _ = entry.name.rpartition(" ")
        if below in group.commands and below not in groups:
            group.add_command(command_of(entry), entry.name)
            continue
        if below not in groups:
            groups[below] = CommandGroup(below, help=GROUPS[below], short_help=GROUPS[below])
            group.add_command(groups[below])
        groups[below].add_command(command_of(entry))


def command_of(entry: Entry[...]) -> click.Command:
    """Return the command of an entry."""
    parameters = entry.parameters
    arguments = "\n".join(
        f"{parameter.metavar}: {parameter.help}" for parameter in parameters if parameter.argument
    )
    return Command(
        entry.name.rpartition(" ")[2],
        callback=click.pass_context(partial(_run, entry)),
        params=[click_parameter(parameter) for parameter in parameters],
        help=f"{entry.summary}\n\n\b\n{arguments}" if arguments else entry.summary,
        short_help=entry.summary.partition("\n")[0],
        epilog="\n  ".join(["\b\nExample:", *entry.examples]),
    )


def _run(entry: Entry[...], invoked: click.Context, /, **options: Any) -> None:
    """Run a command, print its result, and turn errors into exit codes."""
    shared = shared_options(invoked)
    UNPRINTED.clear()
    try:
        try:
            stopping.enter("working")
            begin_process()
            progress = partial(progress_line, verbose=shared.verbose)
            terminal = Terminal(sys.stdin.isatty(), say, partial(say, err=True), ask)
            context = Context(shared.folder, progress, terminal, local_files=True)
            result = entry.invoke(context, options)
        finally:
            stopping.enter("over")
    # the boundary: a foreign text could hold a cell; panics are no Exception
    except BaseException as error:  # noqa: BLE001
        result = result_of(error, entry.name)
    print_result(result, entry.name, shared)
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


COMMANDS = [*ENTRIES, *entries_of(install, completion)]
add(main, COMMANDS)
