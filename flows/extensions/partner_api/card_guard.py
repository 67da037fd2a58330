"""Which cards get no single link: those that have one or await one, and those given up.

The link may be from any run or a single link. Put here what keeps a request from being made; keep
out how it is made.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import polars as pl
from sqlalchemy import ColumnElement, true

from flows import steps
from flows.book.attempts import SINGLE, active
from flows.book.book import Book, book_of
from flows.book.given_up import is_given_up
from flows.book.stored_book import MOST_NAMED
from flows.errors import OperatorError
from flows.runs.business_date import local_day
from flows.runs.commits import read_last_turn
from flows.runs.context import IssuerContext
from flows.runs.stored_runs import StoredRuns
from flows.steps import REASON, Option, Sentence, Step
from schemas.database import ATTEMPT
from schemas.ledger import LINKED
from schemas.records import SingleAsked


class CardTakenError(OperatorError):
    """The card has a link or awaits one, or is given up."""

    message = "No link was requested: {reason}."
    next_step = Sentence(
        "{trace} shows the history. To request another one anyway: {override}.",
        trace=Step("trace", steps.CUID),
        override=Option("--override", REASON, of="link"),
    )


class CardGuard:
    """The cards with some cuids that are taken, by the issuer's book, which is read by one query,
    when first needed.
    """

    def __init__(self, context: IssuerContext, cuids: Collection[str]) -> None:
        self._context = context
        self._cuids = cuids
        self._today = local_day(context.adapters.now(), context.issuer.time_zone)
        self._book: Book | None = None

    def refuse_taken(self, attempt: SingleAsked) -> None:
        """Raise CardTakenError if the card has an active link or awaits one, or is given up.

        An attempt that says why it is made all the same (`override`) is never refused.
        """
        if attempt.override:
            return
        book = self._book or self._read()
        of_cuid = book.attempts.filter(cuid=attempt.cuid)
        _refuse_given_up(book, of_cuid, attempt)
        of_card = pl.col("last_4") == attempt.last_4
        for earlier in of_cuid.filter(of_card & active(self._today)).iter_rows(named=True):
            raise CardTakenError(reason=_reason(earlier))

    def renew(self) -> None:
        """Let the book be read anew if a run was committed since: it may have sent a card."""
        if self._book is None:
            return
        if read_last_turn(self._context.adapters, self._book.issuer) > self._book.last_turn:
            self._book = None

    def _read(self) -> Book:
        adapters = self._context.adapters
        is_meant: ColumnElement[bool] = ATTEMPT.c.cuid.in_(sorted(self._cuids))
        if len(self._cuids) > MOST_NAMED:
            is_meant = true()
        runs = StoredRuns(adapters, self._context.issuer.issuer)
        self._book = book_of(adapters, runs, which=is_meant)
        return self._book


def _refuse_given_up(book: Book, attempts: pl.DataFrame, attempt: SingleAsked) -> None:
    """Raise CardTakenError if an operator decided that the card needs no link."""
    if book.given_up.is_empty():
        return
    last_4 = pl.lit(attempt.last_4, pl.String)
    of_cuid = attempts.select("holder", last_4=last_4)
    typed_in = pl.DataFrame({"holder": [attempt.cuid], "last_4": [attempt.last_4]})
    cards = pl.concat([of_cuid, typed_in])
    if not cards.filter(is_given_up(book.given_up)).is_empty():
        raise CardTakenError(reason="an operator decided that this card needs no link")


def _reason(attempt: Mapping[str, Any]) -> str:
    """Return what holds a card; `attempt`: as the book has it (ATTEMPT)."""
    place = "what was typed in for this card"
    if attempt["run"]:
        place = f"row {attempt['row']} of {attempt['run']}"
    if attempt["state"] == LINKED:
        return f"{place} has a link"
    if attempt["wait"] == SINGLE:
        return (
            f"{place} was requested as a single link and has no answer: "
            "it is under way or was lost; the partner knows which"
        )
    return f"{place} is sent and not answered"
