"""Keep links as they are: a change, or a refused row that was to replace them, does not matter.

Each decision stands with who, when and why; `flows/book/kept_links.py` says what it means.
"""

from collections.abc import Callable
from datetime import date, timedelta
from functools import partial
from typing import NamedTuple

import polars as pl

from flows.book.book import Book, read_book
from flows.book.kept_links import KEPT, files_that_confirm, kept_links
from flows.reports.cardholder_trace import refuse_card_number
from flows.reports.link_work import WITHIN
from flows.resend.ending_links import ending_links
from flows.resend.renewal import judged_ending
from flows.runs.adapters import Adapters
from flows.runs.business_date import local_day
from flows.runs.cards import CARD, CARD_WITHOUT_TWIN
from flows.runs.context import IssuerContext
from flows.runs.decisions import LINKS, decide
from flows.runs.errors import NotFoundError
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act, enter
from flows.runs.keys import keys_of
from flows.runs.persons import by_person
from flows.runs.shown_rows import refuse_other_rows
from flows.steps import Step
from schemas.records import KeptLink, LinkKept


class Which(NamedTuple):
    """Which links are meant: those of a `run`, "" for the whole issuer, and of these some.

    By rows, by cuids, by why a newer row is to replace them: the card has `changed`, or such a row
    was refused by the partner (`replacing`) or by us (`refused`); without any, all.
    """

    run: str = ""
    rows: frozenset[int] = frozenset()
    cuids: frozenset[str] = frozenset()
    changed: bool = False
    replacing: bool = False
    refused: bool = False


class Decided(NamedTuple):
    """What was recorded, None where it was so already; how many links it is about."""

    record: LinkKept | None
    links: int

    @property
    def sha256(self) -> str:
        """The digest of the links, which tells one decision from another."""
        return digest(canonical({"links": self.record.links if self.record else ()}))


def keep_links(
    context: IssuerContext,
    which: Which,
    reason: str,
    rows: str | None = None,
    *,
    undo: bool = False,
    file: tuple[str, int] | None = None,
) -> Decided:
    """Decide that links stay as they are, or take that back; OtherRowsError where these are not
    just so many as were shown.

    `file`: of the issuer, which says so (`LinkKept`). Raises CardGivenError, UnknownRunError,
    NotFoundError where no link is meant, NoReasonError.
    """
    signed = context.adapters.signed(reason)
    issuer = context.issuer.issuer
    _refuse_unclear(which)
    book = read_book(context.adapters, issuer)
    links = _meant(context, book, which)
    were_open = _meant(context, book.without_kept, which)
    if undo:
        links = book.kept.join(were_open, on=CARD_WITHOUT_TWIN, how="semi", nulls_equal=True)
    if links.is_empty() and (undo or were_open.is_empty()):
        missing = "such link that is kept" if undo else "such link that is to be replaced"
        place = which.run or issuer
        raise NotFoundError(place=place, what=missing, command=Step("cardholders", issuer))
    if links.is_empty():
        if file is None or file in files_that_confirm(context.adapters, issuer):
            return Decided(None, 0)
        links = were_open
    count = links.select(CARD_WITHOUT_TWIN).n_unique()
    refuse_other_rows(issuer, which.run or issuer, count, rows)
    record = LinkKept(
        **signed,
        what="asked again" if undo else "kept",
        links=tuple(KeptLink(*link) for link in links.select(*KEPT).iter_rows()),
        file=file,
    )
    if not _is_recorded(context.adapters, issuer, record, book.kept):
        return keep_links(context, which, reason, rows, undo=undo, file=file)
    return Decided(record, count)


def _is_recorded(adapters: Adapters, issuer: str, record: LinkKept, seen: pl.DataFrame) -> bool:
    """Record a decision about links; False where others were decided about than were `seen`."""

    def work(act: Act) -> bool:
        if not kept_links(adapters.within(act.connection), issuer).equals(seen):
            return False
        links = by_person(adapters, act, record.links)
        decide(act, LINKS, "", record.model_copy(update={"links": links}))
        return True

    return enter(adapters, issuer, f"links {record.what}", work, reason=record.reason)


def _refuse_unclear(which: Which) -> None:
    """Raise CardGivenError for a cuid that is a card number, UnknownRunError for no run."""
    for cuid in which.cuids:
        refuse_card_number(cuid)
    if which.run:
        keys_of(which.run)


def _meant(context: IssuerContext, book: Book, which: Which) -> pl.DataFrame:
    """Return the links that are meant (KEPT) and that a newer row is to replace, as a book says."""
    cards = book.cards(_today(context))
    kinds: list[tuple[bool, Callable[[pl.DataFrame], pl.DataFrame]]] = [
        (which.changed, book.changes),
        (which.replacing, book.not_replaced),
        (which.refused, partial(_not_updated, context, book, which)),
    ]
    is_any = not any(is_chosen for is_chosen, _ in kinds)
    frames = [read(cards) for is_chosen, read in kinds if is_chosen or is_any]
    rows = pl.concat([frame.select(*KEPT, "run", "row", "cuid") for frame in frames])
    if which.run:
        rows = rows.filter(run=which.run)
    if which.rows or which.cuids:
        is_named = pl.col("row").is_in(sorted(which.rows))
        is_named &= pl.lit(bool(which.run))  # a row has a number in its run
        rows = rows.filter(is_named | pl.col("cuid").is_in(sorted(which.cuids)))
    return rows.select(*KEPT).unique(maintain_order=True)


def _not_updated(
    context: IssuerContext, book: Book, which: Which, cards: pl.DataFrame
) -> pl.DataFrame:
    """Return the cards with a link of which we refused a newer row, as the worklist counts them:
    without those whose links end, unless they are named.
    """
    refused = book.not_updated(cards)
    if not which.refused or which.rows or which.cuids:
        return refused
    until = _today(context) + timedelta(WITHIN)
    links = ending_links(book, cards, _today(context), until)
    ending = judged_ending(context, book, links, until)
    return refused.join(ending, on=CARD, how="anti", nulls_equal=True)


def _today(context: IssuerContext) -> date:
    return local_day(context.adapters.now(), context.issuer.time_zone)
