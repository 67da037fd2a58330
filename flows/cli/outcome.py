"""How a command ends: its result as text or as one JSON object, its errors, a line that cannot be
understood.
"""

from __future__ import annotations

import io
import json
from datetime import date
from typing import Any, NoReturn

import click

from flows import stopping
from flows.cli import VERSION
from flows.cli.shared_options import SharedOptions, shared_options
from flows.cli.terminal import say, write
from flows.commands.result import Result
from flows.errors import OperatorError, TryAgainError, translated
from flows.redaction import redacted
from flows.steps import PROGRAM, Sentence, Words, in_words


class StoppedError(TryAgainError):
    """The process was asked to end."""

    message = stopping.MESSAGE
    next_step = stopping.NEXT_STEP


class UsageError(OperatorError):
    """A line that no command takes."""

    message = "{problem}"
    next_step = "`{command} --help` shows what it takes."


def print_result(result: Result, command: str, shared: SharedOptions) -> None:
    """Print a result as text, its next step on stderr, or as one JSON object."""
    if shared.as_json:
        _print_json(result, command, shared)
        return
    if "error" in result.facts:
        say(Sentence("cardlink: {error}", error=result.shown[0]), err=True, color="red")
        return
    for line in result.lines_in(shared.words):
        say(line)
    if result.next_step is None:
        return
    say(Sentence("next: {step:bare}", step=result.next_step), err=True, color="cyan")
    placeholders = result.next_step.placeholders
    if placeholders:
        say(f"      Replace {' and '.join(placeholders)} first.", err=True)


def _print_json(result: Result, command: str, shared: SharedOptions) -> None:
    facts = redacted(outcome(result, command, shared.words))
    write(json.dumps(facts).replace("\x7f", "\\u007f"))


def outcome(result: Result, command: str, words: Words) -> dict[str, Any]:
    """Return a result as deploy/outcome.schema.json has it."""
    line = in_words(result.next_step, words) if result.next_step else ""
    envelope = {"version": VERSION, "command": command}
    facts: dict[str, Any] = _plain(result.facts)
    return {**envelope, **facts, "next": line, "exit_code": result.exit_code}


def _plain(fact: Any) -> Any:
    """Return a fact of values that JSON has: times by ISO 8601, named fields as an object."""
    if isinstance(fact, dict):
        return {str(name): _plain(value) for name, value in fact.items()}
    if hasattr(fact, "_asdict"):
        return _plain(fact._asdict())
    if isinstance(fact, list | tuple):
        return [_plain(value) for value in fact]
    if isinstance(fact, date):
        return fact.isoformat()
    return fact if isinstance(fact, str | int | float | None) else str(fact)


def result_of(error: BaseException, place: str) -> Result:
    """Return the result that reports what ended a command: an error of ours, or a stop signal."""
    reported = translated(place, error)
    stop = stopping.received() or ("SIGINT" if isinstance(error, KeyboardInterrupt) else "")
    if stop and not isinstance(reported, TryAgainError):  # whatever it broke on its way out
        reported = StoppedError(signal=stop)
    facts = {"error": type(reported).__name__, "message": str(reported.text)}
    return Result(facts, [reported.text], exit_code=reported.exit_code)


def refuse(error: click.UsageError, context: click.Context) -> NoReturn:
    """Report a line that cannot be understood, and exit; of what was typed, nothing that could be a
    card is repeated.
    """
    shared = shared_options(context)
    refused = error.ctx or context
    # an option behind the mistake was not read yet
    shared.as_json = shared.as_json or "--json" in shared.typed
    if shared.as_json:
        problem = error.format_message().rstrip(". ")
        problem += "" if problem.endswith("?") else "."
        reported = UsageError(problem=problem, command=refused.command_path)
        command = refused.command_path.removeprefix(PROGRAM).strip()
        print_result(result_of(reported, command), command, shared)
    else:
        shown = io.StringIO()
        error.show(shown)
        for line in shown.getvalue().splitlines():
            say(line, err=True)
    context.exit(UsageError.exit_code)
