"""Prompts of the partner's interface at a terminal: the fields of one card, what a job needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from signal import SIG_IGN, SIGUSR1, pthread_kill, siginterrupt, signal
from threading import Event, Thread, get_ident
from typing import Final, NamedTuple

from flows.commands.context import Terminal
from flows.errors import TryAgainError
from flows.extensions.partner_api.follow_job import EVERY_SECONDS, PromptEndedError
from flows.extensions.partner_api.service_objects import UPDATING, CredentialRequest, RunStatus
from flows.redaction import hide
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)

END_OF_PROMPT: Final = SIGUSR1  # to ourselves, while somebody is prompted


class TypingStoppedError(TryAgainError):
    """The prompt was cancelled."""

    message = "Cancelled; no request was sent."
    next_step = "Run {same_command} again."


class Field(NamedTuple):
    """One field to type in: a secret one is not shown, an optional one may be left empty."""

    column: str
    label: str
    secret: bool = False
    optional: bool = False
    usual: str = ""


FIELDS: Final = (
    Field(CUID, "Cuid, the issuer's reference", optional=True),
    Field(FIRST_NAME, "First name"),
    Field(LAST_NAME, "Last name"),
    Field(NAME_ON_CARD, "Name on the card"),
    Field(PAN, "Card number", secret=True),
    Field(MONTH, "Expiration month, two digits"),
    Field(YEAR, "Expiration year, two digits"),
    Field(CVV, "CVV, Enter for none", secret=True, optional=True),
    Field(ADDRESS1, "Street address"),
    Field(ADDRESS2, "Apartment, suite", optional=True),
    Field(CITY, "City"),
    Field(SUBNATIONAL, "State or province"),
    Field(POSTAL_CODE, "ZIP or postal code"),
    Field(COUNTRY, "Country", usual="US"),
    Field(PHONE, "Phone number"),
    Field(EMAIL, "E-mail", optional=True),
)


def typed_fields(terminal: Terminal) -> dict[str, str]:
    """Prompt for the fields of one card; TypingStoppedError if the prompt is cancelled."""
    typed = {field.column: _prompt(terminal, field) for field in FIELDS}
    return {**typed, IS_PRIMARY: "TRUE"}


def supplied(terminal: Terminal, column: str) -> str:
    """Prompt for a field that no extract has, if a person is at the terminal."""
    if not terminal.attended:
        return ""
    label = next(field.label for field in FIELDS if field.column == column)
    return _prompt(terminal, Field(column, f"{label} (no extract has it)", optional=True))


def _prompt(terminal: Terminal, field: Field) -> str:
    default = "" if field.optional else None
    show_default = False
    if field.usual:
        default = field.usual
        show_default = True
    try:
        typed = terminal.ask(
            field.label, secret=field.secret, default=default, show_default=show_default
        )
    except KeyboardInterrupt:
        pass
    else:
        return typed.strip()
    raise TypingStoppedError


class Watcher:
    """Shows a job's progress on stderr; secrets are typed unseen, and nothing typed is kept."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal

    def show(self, standing: RunStatus, left: float | None) -> None:
        """Show one line: status, both phases, time left, and the service's message for the user."""
        parts = [
            standing.status or "(no status)",
            _percent("authentication", standing.auth_percent_complete),
            _percent("whole job", standing.percent_complete),
        ]
        if left is not None and not standing.ended:
            parts.append(f"{_minutes(left)} left")
        parts.append(standing.status_message or "")
        if standing.status == UPDATING:
            parts.append("(authenticated: the cardholder may leave)")
        self._terminal.say("  ".join(part for part in parts if part))

    def warn(self, left: float) -> None:
        """Show how much time is left."""
        self._terminal.say(f"! {_minutes(left)} left before this job times out")

    def note(self, text: str) -> None:
        """Show a sentence."""
        self._terminal.say(text)

    def collect(self, request: CredentialRequest, look: Callable[[], bool]) -> dict[str, str]:
        """Prompt for each value under its label, secret ones unseen, until the job has ended."""
        with _looking(look):
            answers = {}
            for prompt in request.account_link:
                label = prompt.label or prompt.key_name
                answer = self._terminal.ask(label, secret=prompt.secret)
                if prompt.secret:
                    hide(answer)
                answers[prompt.key_name] = answer
            return answers


@contextmanager
def _looking(look: Callable[[], bool]) -> Iterator[None]:
    """Look every other second while somebody types; PromptEndedError once a look says so."""
    is_typed = Event()
    typist = get_ident()

    def look_on() -> None:
        while not is_typed.wait(EVERY_SECONDS):
            if look():
                pthread_kill(typist, END_OF_PROMPT)
                return

    def end(_number: int, _frame: object) -> None:
        if not is_typed.is_set():
            raise PromptEndedError

    signal(END_OF_PROMPT, end)
    siginterrupt(END_OF_PROMPT, True)
    Thread(target=look_on, daemon=True).start()
    try:
        yield
    finally:
        is_typed.set()
        signal(END_OF_PROMPT, SIG_IGN)  # a look may be under way


def _percent(phase: str, percent: int | None) -> str:
    return "" if percent is None else f"{phase} {min(100, max(0, percent))}%"


def _minutes(seconds: float) -> str:
    minutes, left = divmod(int(seconds), 60)
    return f"{minutes}:{left:02d}"
