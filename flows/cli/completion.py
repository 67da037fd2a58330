"""What a shell offers on Tab: issuers, runs and chunks as they are stored, beside commands and
options.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import click
from click.shell_completion import CompletionItem, get_completion_class

from flows.cli.shared_options import shared_options
from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.result import Result
from flows.commands.signature import Parameter
from flows.configuration import issuers, load_issuer
from flows.errors import CardlinkError, OperatorError
from flows.steps import PROGRAM
from flows.wiring import edges

with on_first_use():
    from flows.runs import keys, stored_run, stored_runs

VARIABLE = "_CARDLINK_COMPLETE"  # as click names it
NEWEST = 50  # runs of an issuer that are offered

Offered = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


class ShellError(OperatorError):
    """A shell whose script cannot be made here."""

    message = "No completion for {shell}: {reason}."
    next_step = "Use another shell, or a newer one."


@entry("completion", form="it prints a script for a person's own shell")
def completion(_context: Context, shell: Literal["bash", "zsh", "fish"]) -> Result:
    """Print the script that lets a shell complete commands, options, issuers, runs and chunks.

    For bash, `eval "$(cardlink completion bash)"` goes into ~/.bashrc; for zsh, the same with its
    name into ~/.zshrc after compinit; for fish, what is printed goes into
    ~/.config/fish/completions/cardlink.fish.

    Args:
        shell: The shell whose script is printed.

    Example:
        cardlink completion bash
    """
    shell_completion = get_completion_class(shell)
    if shell_completion is None:
        raise ShellError(shell=shell, reason="click does not know it")
    script = shell_completion(click.Command(PROGRAM), {}, PROGRAM, VARIABLE)
    text = script.source_template % script.source_vars()
    return Result({"shell": shell, "script": text}, text.splitlines())


def completer_of(parameter: Parameter) -> Offered | None:
    """Return what is offered for a parameter, None where click knows it."""
    match parameter.name:
        case "issuer":
            return _offering(_issuers)
        case "run" if parameter.argument and parameter.field.several:
            return _offering(_issuers, _runs)
        case "target":
            return _offering(_issuers, _runs)
        case "run":
            return _offering(_runs)
        case "chunks":
            return _offering(_chunks)
    return None


def _offering(*sources: Callable[[Path, click.Context], Sequence[str]]) -> Offered:
    """Return the completion by the names of these sources; what cannot be read is not offered."""

    def offered(
        context: click.Context, _parameter: click.Parameter, typed: str
    ) -> list[CompletionItem]:
        folder = shared_options(context).folder
        names = list[str]()
        for source in sources:
            try:
                names += source(folder, context)
            except (CardlinkError, OSError):
                continue
        return [CompletionItem(name) for name in names if name.startswith(typed)]

    return offered


def _issuers(folder: Path, _context: click.Context) -> Sequence[str]:
    return issuers(folder)


def _runs(folder: Path, context: click.Context) -> Sequence[str]:
    """Return the newest runs of the issuer that the line names, or of all."""
    named: str = context.params.get("issuer") or ""
    names = list[str]()
    for issuer in named.split(",") if named else issuers(folder):
        adapters = edges(load_issuer(folder, issuer), folder)
        newest = reversed(stored_runs.StoredRuns(adapters, issuer).ids[-NEWEST:])
        names += map(str, newest)
    return names


def _chunks(folder: Path, context: click.Context) -> Sequence[str]:
    """Return the numbers of the chunks of the run that the line names, without those named."""
    run: str = context.params.get("run") or ""
    adapters = edges(load_issuer(folder, keys.keys_of(run).run.issuer), folder)
    named: Any = context.params.get("chunks") or ()
    outbox = stored_run.StoredRun.by_id(adapters, run).outbox
    numbers = [chunk.chunk.number for chunk in outbox]
    return [str(number) for number in numbers if number not in named]
