"""`cardlink job follow`: a placement job in the terminal, for whoever helps a cardholder through it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

import click

from flows.cli.answer import Answer
from flows.cli.command import StoppedError
from flows.cli.typing_in import ask
from flows.core.errors import TryAgainError
from flows.core.redaction import redact
from flows.steps.beyond.follow import EVERY_SECONDS, WARN_SECONDS, Clock, Followed, follow
from flows.wiring import load_issuer, service_client
from schemas.jobs import UPDATING, CredentialRequest, Standing

FAILED = 3  # exit code of a job that ended without its card placed


class FollowingStoppedError(TryAgainError):
    """Following was stopped; the job was not."""

    says = "Job {1} of {0} is not followed any more; it runs on, and waits for what it asked until its time is up."
    then = "cardlink job follow {0} {1} goes on with it."

    def __init__(self, issuer: str, job: str) -> None:
        super().__init__(issuer, job)


def follow_job(folder: Path, name: str, job: str, *, polling: bool) -> Answer:
    """Follow a job until it ends."""
    issuer = load_issuer(folder, name)
    with service_client(issuer) as client:
        every = issuer.service.follow_every_seconds if issuer.service else EVERY_SECONDS
        clock = Clock(time.monotonic, time.sleep, every)
        try:
            return _answer(name, follow(client, job, Terminal(), clock, polling=polling))
        except (KeyboardInterrupt, click.Abort, StoppedError):
            pass
    raise FollowingStoppedError(name, job)


def _answer(name: str, ended: Followed) -> Answer:
    lines = [f"job {ended.job_id}: {shown(ended.status)}, {shown(ended.termination_type)}", ended.meaning]
    return Answer({"issuer": name, **ended._asdict()}, lines, exit_code=0 if ended.placed else FAILED)


class Terminal:
    """Talk on stderr; what is secret is typed blindly, and nothing typed is kept."""

    def show(self, standing: Standing, left: float | None) -> None:
        """Print one line: status, both phases, time left, and what the service wants the user to read."""
        parts = [
            shown(standing.status or "(no status)"),
            _percent("authentication", standing.auth_percent_complete),
            _percent("whole job", standing.percent_complete),
            f"{_minutes(left)} left" if left is not None and not standing.ended else "",
            shown(standing.status_message or ""),
            "(authenticated: the cardholder may leave)" if standing.status == UPDATING else "",
        ]
        _say("  ".join(part for part in parts if part))

    def warn(self, left: float) -> None:
        """Print how little time is left."""
        _say(f"! {_minutes(left)} left before this job times out")

    def note(self, text: str) -> None:
        """Print a sentence."""
        _say(shown(text))

    def collect(self, request: CredentialRequest, left: float | None) -> dict[str, str]:
        """Prompt for each value under its label, secret ones unseen; warn while that is being done."""
        with _warning(self, left):
            return {
                one.key_name: ask(shown(one.label or one.key_name), secret=one.secret) for one in request.account_link
            }


def shown(text: str) -> str:
    """Return a foreign text as a terminal may show it: no control characters, no card numbers."""
    return redact("".join(char if char.isprintable() else " " for char in text))


@contextmanager
def _warning(terminal: Terminal, left: float | None) -> Iterator[None]:
    """Warn a minute before the time is up, should that be within the block."""
    if left is None:
        yield
        return
    timer = Timer(max(0.0, left - WARN_SECONDS), terminal.warn, [min(left, WARN_SECONDS)])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _say(line: str) -> None:
    click.echo(line, err=True)


def _percent(what: str, number: int | None) -> str:
    return "" if number is None else f"{what} {min(100, max(0, number))}%"


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
