"""`cardlink link`: one link for a row of a run, or for fields typed in, where a night has left a few people over."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, NamedTuple

import click

from flows.cli.answer import Answer
from flows.cli.typing_in import ask
from flows.core.errors import TryAgainError
from flows.core.names import RunId
from flows.steps.beyond.one_link import link_row, link_typed
from flows.steps.beyond.singles import Single
from flows.steps.runs import UnknownRunError
from flows.wiring import service_client, wire
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
from schemas.singles import LINKED

NOT_LINKED = 3  # exit code where the partner made no link


class Field(NamedTuple):
    """One field to type in; what is secret is not shown, what is optional may be left empty."""

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
_LABELS: Final = {one.column: one.label for one in FIELDS}


class TypingStoppedError(TryAgainError):
    """The prompt was left."""

    says = "Nothing was asked for: the typing was stopped."
    then = "Run the same command again."

    def __init__(self) -> None:
        super().__init__()


def link_row_of_run(folder: Path, run: str, row: int, override: str) -> Answer:
    """Ask for one link for a row of a run; what the request needs and the extract lacks is prompted for."""
    parsed = RunId.parse(run)
    if parsed is None:
        raise UnknownRunError(run)
    edges = wire(folder, parsed.issuer)
    with service_client(edges.issuer) as client:
        return _answer(link_row(edges, client, run, row, override=override, supply=_supply))


def link_typed_in(folder: Path, issuer: str, override: str) -> Answer:
    """Ask for one link for fields typed in."""
    edges = wire(folder, issuer)
    with service_client(edges.issuer) as client:
        return _answer(link_typed(edges, client, _typed(), override=override))


def _answer(single: Single) -> Answer:
    told = single.answered
    facts = {"attempt": single.key, **(told.model_dump(mode="json") if told else {}), "cuid": single.asked.cuid}
    if told is None or told.outcome != LINKED:
        why = ", ".join(told.reasons) if told else "unknown"
        return Answer(facts, [f"{single.asked.cuid}: no link ({why})", f"recorded: {single.key}"], exit_code=NOT_LINKED)
    lines = [f"{told.url}", f"{single.asked.cuid}: ends on {told.expires_on}", f"recorded: {single.key}"]
    return Answer(facts, lines, "the URL is the cardholder's alone: send it to nobody else")


def _typed() -> dict[str, str]:
    """Prompt for the fields on stderr."""
    try:
        return {**{one.column: _prompt(one) for one in FIELDS}, IS_PRIMARY: "TRUE"}
    except (KeyboardInterrupt, click.Abort):
        pass
    raise TypingStoppedError


def _supply(column: str) -> str:
    """Prompt for a field the extract does not have, where somebody sits at a terminal."""
    if not sys.stdin.isatty():
        return ""
    try:
        return _prompt(Field(column, f"{_LABELS[column]} (the extract has none)", optional=True))
    except (KeyboardInterrupt, click.Abort):
        pass
    raise TypingStoppedError


def _prompt(field: Field) -> str:
    default = field.usual or ("" if field.optional else None)
    return ask(field.label, secret=field.secret, default=default, show_default=bool(field.usual)).strip()
