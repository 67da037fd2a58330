"""What every command shares: the guard that prints its answer and turns errors into exit codes, and its options."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from flows.cli.answer import Answer, say
from flows.core.errors import BugError, CardlinkError, TryAgainError, kind_and_place

ISSUER = click.argument("issuer")
RUN = click.argument("run")
CHUNKS = click.argument("chunks", nargs=-1, type=click.IntRange(1))
REASON = click.option("--reason", required=True, help="Kept in the run's history.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done, refuse what would be refused; no more.")


class StoppedError(TryAgainError):
    """The process was asked to end."""

    says = "Stopped by signal {0}. Nothing was committed by this command."
    then = "Run the same command again; it goes on from what is already published."

    def __init__(self, signum: int) -> None:
        super().__init__(signum)


def command(run: Callable[..., Answer]) -> Callable[..., None]:
    """Make a command of a function: give it the config folder, print its answer, turn errors into exit codes."""

    @click.pass_context
    @wraps(run)
    def guarded(context: click.Context, /, *args: Any, **options: Any) -> None:
        as_json = context.obj["json"]
        try:
            answer = run(context.obj["config"], *args, **options)
        except CardlinkError as error:
            answer = _error(error)
        except KeyboardInterrupt:
            answer = _error(StoppedError(signal.SIGINT))
        except Exception as error:  # noqa: BLE001 - the boundary: a foreign text could hold a cell, so kind and place pass
            answer = _error(BugError(context.command.name or "cardlink", kind_and_place(error)))
        if answer.facts.get("error") and not as_json:
            click.echo(f"cardlink: {answer.facts['message']}", err=True)
        else:
            say(answer, as_json=as_json)
        sys.exit(answer.exit_code)

    return guarded


def _error(error: CardlinkError) -> Answer:
    facts = {"error": type(error).__name__, "message": str(error)}
    return Answer(facts, [], exit_code=error.exit_code)
