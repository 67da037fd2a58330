"""The links of a run: the ids by which the service is asked for their records, the cards of which
these records are, and which cards get no single link.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final, NamedTuple, Protocol

import polars as pl
from sqlalchemy import ColumnElement, true

from flows import steps
from flows.book.attempts import SINGLE, active
from flows.book.book import Book, book_of
from flows.book.given_up import is_given_up
from flows.book.stored_book import MOST_NAMED
from flows.errors import OperatorError
from flows.extensions.partner_api.job_records import best, jobs_of
from flows.extensions.partner_api.placements import linked_rows, read_placements
from flows.extensions.partner_api.service_objects import CardLink
from flows.extensions.partner_api.settings import BY_CUID, ServiceSettings
from flows.runs.business_date import local_day
from flows.runs.commits import read_last_turn
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import REASON, Option, Sentence, Slot, Step
from schemas.database import ATTEMPT
from schemas.ledger import LINKED
from schemas.records import SingleAsked


class LinkedRow(NamedTuple):
    """A row with a link; `link_id`: that its record has at the service, None where none is its
    own.
    """

    row: int
    cuid: str
    url: str
    expires_on: date | None
    link_id: str | None


class LinkIds:
    """The ids of links: what the service recorded with a single link, else what `link_id`
    finds.
    """

    def __init__(self, settings: ServiceSettings, run: StoredRun) -> None:
        self._settings = settings
        self._recorded = _recorded_ids(run)
        self._shared = self._shared_ids(run)

    def of(self, url: str, cuid: str | None) -> str | None:
        """Return the id of the link at a URL, None where there is none."""
        recorded = None
        if self._settings.link_id != BY_CUID:
            recorded = self._recorded.get(url)
        return recorded or self._settings.id_of(url, cuid)

    def is_shared(self, link_id: str) -> bool:
        """Return whether different links have this id, so that it is none of theirs."""
        return link_id in self._shared

    def _shared_ids(self, run: StoredRun) -> set[str]:
        if self._settings.link_id == BY_CUID:
            return set()
        urls = linked_rows(run, "url")["url"].unique()
        ids = Counter(self.of(url, None) for url in urls)
        return {link_id for link_id, links in ids.items() if link_id is not None and links > 1}


class RunLinks:
    """The linked rows of a run, read once; none before its first report."""

    def __init__(self, settings: ServiceSettings, run: StoredRun) -> None:
        self._links = linked_rows(run)
        self._ids = LinkIds(settings, run)

    def of_row(self, row: int) -> LinkedRow | None:
        """Return a row with its link, None where it has none."""
        for link in self._links.filter(row=row).iter_rows(named=True):
            link_id = self._own_id(link["url"], link["cuid"])
            return LinkedRow(row, link["cuid"], link["url"], link["expires_on"], link_id)
        return None

    def _own_id(self, url: str, cuid: str) -> str | None:
        link_id = self._ids.of(url, cuid)
        return None if link_id is None or self._ids.is_shared(link_id) else link_id


def _recorded_ids(run: StoredRun) -> dict[str, str]:
    """Return the ids that the service gave with single links, by URL; a masked one is no id."""
    answers = [single.answered for single in run.single_link_attempts]
    return {
        answer.url: answer.link_id
        for answer in answers
        if answer is not None and answer.url and answer.link_id and "[" not in answer.link_id
    }


NOT_READ: Final = "(read when the link is requested)"  # in a rehearsal, in place of an id


class CardReferenceError(OperatorError):
    """The partner's record of a card cannot be found, so that no reference can name it."""

    message = "No link was requested: {reason}, so no reference can name the card."
    next_step = Sentence(
        "Request it by the card's number: without {by_reference}.",
        by_reference=Option("--by-reference", of="link"),
    )


class LinkRecords(Protocol):
    """The records of links at the partner."""

    def card_link(self, link_id: str) -> CardLink:
        """Return a link's record, its card and cardholder with it."""


class CardReferences:
    """Finds the cards of rows; without `records` it only looks whether a row has a link."""

    def __init__(self, settings: ServiceSettings, records: LinkRecords | None = None) -> None:
        self._settings = settings
        self._records = records
        self._links = dict[str, RunLinks]()  # by run

    def reading(self, records: LinkRecords) -> CardReferences:
        """Return what finds cards by these records."""
        return CardReferences(self._settings, records)

    def of(self, run: StoredRun, row: int, cuid: str) -> dict[str, Any]:
        """Return the reference of the card of a linked row, as a request has it.

        Raises CardReferenceError, and what the service's client raises.
        """
        link_id = self._link_id(run, row)
        card_id = self._card_id(link_id, cuid) if self._records else NOT_READ
        number: int | str = int(card_id) if card_id.isdigit() else card_id
        return {self._settings.name("request.card_id"): number}

    def _link_id(self, run: StoredRun, row: int) -> str:
        if run.id not in self._links:
            self._links[run.id] = RunLinks(self._settings, run)
        link = self._links[run.id].of_row(row)
        if link is None:
            raise CardReferenceError(reason=f"row {row} of {run.id} has no link")
        if link.link_id is None:
            raise CardReferenceError(reason="no id of its own is found in the link's URL")
        return link.link_id

    def _card_id(self, link_id: str, cuid: str) -> str:
        assert self._records is not None  # noqa: S101 - for the type checker: `of` has looked
        record = self._records.card_link(link_id)
        if record.cuid not in (None, cuid):
            raise CardReferenceError(reason="the record of its link is another cardholder's")
        if record.card_id is None:
            raise CardReferenceError(
                reason="the record of its link names no card ([service.names] link.card_id)"
            )
        return record.card_id


class NothingToProbeError(OperatorError):
    """There is no link whose record could be asked for."""

    message = "There is no link of {issuer} to ask about: {why}."
    next_step = Sentence(
        "Ingest results first; {placements} says what is known of links. Where no id is found, "
        "correct [service] link_id.",
        placements=Step("placements", Slot("issuer")),
    )


class KnownLink(NamedTuple):
    """A linked row: its link's id at the service, and the id of a job that is known of it."""

    run: str
    row: int
    link_id: str | None
    job_id: str | None


def newest_link(
    runs: Sequence[StoredRun], settings: ServiceSettings, row: int | None = None
) -> KnownLink | None:
    """Return a link of the newest of these runs that has any, or of a row; None without one.

    One whose cardholder has a job comes first.
    """
    for run in reversed(runs):
        link = next(_links_of(run, settings, row), None)
        if link is not None:
            return link
    return None


def _links_of(run: StoredRun, settings: ServiceSettings, row: int | None) -> Iterator[KnownLink]:
    ids = LinkIds(settings, run)
    jobs = read_placements(run.adapters, run.issuer, [run.id]).select("row", "jobs")
    rows = linked_rows(run).join(jobs, on="row", how="left")
    if row is not None:
        rows = rows.filter(row=row)
    has_none = pl.col("jobs").fill_null("[]") == "[]"
    for link in rows.sort(has_none, "row").iter_rows(named=True):
        job = best(jobs_of(link["jobs"]))
        link_id = ids.of(link["url"], link["cuid"])
        yield KnownLink(run.id, link["row"], link_id, job.job_id if job else None)


# Which cards get no single link: those that have one or await one, and those given up
# --------------------------------------------------------------------------------------------------


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
