"""A survey of an issuer's runs: the facts of each, the cardholders without a link, the worklist.

Nothing is written.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, timedelta
from itertools import chain
from typing import NamedTuple

import polars as pl

from flows.book.book import Book, book_of
from flows.book.known_runs import KnownPlan, KnownRuns
from flows.book.opening import NOBODY_REMOVED
from flows.book.people import Balance, balance, is_counted, together
from flows.book.standing import UNKNOWN
from flows.extensions import hooks
from flows.reports.asked import with_asked
from flows.reports.link_forms import forms_to_confirm
from flows.reports.link_work import (
    WITHIN,
    changed_work,
    link_work,
    nameless_work,
    not_replaced_work,
    not_updated_work,
)
from flows.reports.open_items import ReportTerms
from flows.reports.run_facts import RunFacts, facts_of
from flows.reports.unlinked import LINK, NONE_ENDING, lacking_cards, unlinked
from flows.reports.work import Work
from flows.reports.worklist import worklist
from flows.runs.business_date import local_day
from flows.runs.closings import chunk_of, place_of
from flows.runs.context import IssuerContext
from flows.runs.stored_runs import StoredRuns
from schemas.breaks import KINDS, LINK_FORM, LOST


class Beside(NamedTuple):
    """What is known beside the committed runs of an issuer.

    `work`: what is to be done about it, given the plans of all runs. `ending`: the links of a book
    that end by a day or have ended, given all cards as they stand today, and `judged`: the same as
    a renewal judges them (`flows.reports.unlinked.ENDING`).
    """

    work: Callable[[IssuerContext, Sequence[KnownPlan]], Iterable[Work]]
    ending: Callable[[Book, pl.DataFrame, date, date], pl.DataFrame]
    judged: Callable[[IssuerContext, Book, pl.DataFrame, date], pl.DataFrame]


NOTHING_BESIDE = Beside(
    lambda _context, _plans: (),
    lambda _book, _cards, _today, _until: NONE_ENDING,
    lambda _context, _book, _links, _until: NONE_ENDING,
)


class Survey(NamedTuple):
    """What is known across the runs, and what is to be done."""

    runs: list[RunFacts]
    cards: pl.DataFrame  # those without a link (`flows.reports.unlinked.unlinked`)
    balance: Balance
    work: list[Work]  # each thing to do (`flows.reports.worklist`)
    terms: ReportTerms
    active_twice: pl.DataFrame  # cards with a link or a wait in more than one run
    stored: StoredRuns  # all runs, also those that are not committed
    known: KnownRuns  # what is known of them


def survey(
    context: IssuerContext,
    start: date | None = None,
    end: date | None = None,
    beside: Beside = NOTHING_BESIDE,
) -> Survey:
    """Return what is known of the issuer's committed runs of these business dates.

    Of a period: the cardholders whose standing one of its runs decided.
    """
    adapters = context.adapters
    stored = StoredRuns(adapters, context.issuer.issuer)
    terms = ReportTerms(adapters.now(), context.issuer.portal.answer_within_hours)
    book = book_of(adapters, stored)
    today = local_day(terms.now, context.issuer.time_zone)
    cards = surveyed_cards(book, beside, today, start, end)
    ending = beside.judged(context, book, cards.ending, today + timedelta(WITHIN))
    without_link = unlinked(cards.lacking, ending)
    committed = book.runs.committed
    over = book.given_up_chunks
    facts = [_still_awaited(run, over) for run in facts_of(book.runs, adapters, start, end)]
    forms = forms_to_confirm(context, stored, depart=_links_depart(facts))
    work = worklist(
        stored, facts, committed, cards.unknown, without_link, context.issuer, terms, forms
    )
    work += changed_work(context.issuer.issuer, committed, cards.changes)
    work += not_replaced_work(context.issuer.issuer, committed, cards.not_replaced, terms.now)
    work += not_updated_work(context.issuer.issuer, committed, cards.not_updated, ending, terms.now)
    for matters in hooks("matters"):
        work += matters(context, book, terms.now)
    nameless = _of_period(book.nameless, start, end)
    work += nameless_work(context.issuer.issuer, committed, nameless, terms.now)
    work += link_work(context.issuer.issuer, ending, terms.now)
    work += beside.work(context, list(book.runs.plans.values()))
    work = with_asked(stored, work)
    opening = book.opening if (start, end) == (None, None) else NOBODY_REMOVED
    counted = cards.balance._replace(opening=opening, nameless=nameless.height)
    return Survey(facts, without_link, counted, work, terms, cards.twice, stored, book.runs)


class SurveyedCards(NamedTuple):
    """What a survey takes from the cards of a book; of a period, of those that its runs decided."""

    lacking: pl.DataFrame  # those without a link, as the book has them
    balance: Balance
    unknown: int  # single links with unknown outcome
    ending: pl.DataFrame  # links that end or have ended
    changes: pl.DataFrame
    not_replaced: pl.DataFrame
    not_updated: pl.DataFrame
    twice: pl.DataFrame


def surveyed_cards(
    book: Book, beside: Beside, today: date, start: date | None = None, end: date | None = None
) -> SurveyedCards:
    """Return what a survey takes from the cards of a book, part by part."""
    parts = [_of_part(part, beside, today, start, end) for part in book.parts()]
    return SurveyedCards(
        lacking=pl.concat(part.lacking for part in parts),
        balance=together(part.balance for part in parts),
        unknown=sum(part.unknown for part in parts),
        ending=pl.concat(part.ending for part in parts),
        changes=pl.concat(part.changes for part in parts),
        not_replaced=pl.concat(part.not_replaced for part in parts),
        not_updated=pl.concat(part.not_updated for part in parts),
        twice=pl.concat(part.twice for part in parts).sort("cuid", "last_4", "expiration"),
    )


def _of_part(
    book: Book, beside: Beside, today: date, start: date | None, end: date | None
) -> SurveyedCards:
    all_cards = book.cards(today)
    cards = _of_period(all_cards, start, end)
    ending = beside.ending(book, all_cards, today, today + timedelta(WITHIN))
    if cards.height < all_cards.height:
        ending = ending.join(cards, on=LINK, how="semi", nulls_equal=True)
    is_unknown = cards["standing"] == UNKNOWN.name
    return SurveyedCards(
        lacking=lacking_cards(cards),
        balance=balance(cards),
        unknown=cards.filter(is_counted(cards) & is_unknown).height,
        ending=ending,
        changes=_of_period(book.changes(all_cards), start, end),
        not_replaced=_of_period(book.not_replaced(all_cards), start, end),
        not_updated=_of_period(book.not_updated(all_cards), start, end),
        twice=book.active_twice(today),
    )


def _still_awaited(run: RunFacts, over: Collection[tuple[str, int]]) -> RunFacts:
    """Return the facts of a run without the chunks of which nobody waits for an answer any more.

    `over`: as of `flows.book.book.Book.given_up_chunks`. A break that decides about no rows stays.
    """
    if not over:
        return run
    waiting = [chunk for chunk in run.waiting if (run.run, chunk.chunk) not in over]
    breaks = [
        known
        for known in run.breaks
        if LOST not in KINDS[known["name"]].decisions
        or (run.run, chunk_of(place_of(known["place"]))) not in over
    ]
    return run._replace(waiting=tuple(waiting), breaks=breaks)


def _links_depart(facts: Iterable[RunFacts]) -> bool:
    """Return whether a run has links that are not of the form of the others."""
    breaks = chain.from_iterable(run.breaks for run in facts)
    return any(run_break["name"] == LINK_FORM for run_break in breaks)


def _of_period(cards: pl.DataFrame, start: date | None, end: date | None) -> pl.DataFrame:
    """Return the cards whose standing a run of these business dates decided."""
    if start is None and end is None:
        return cards
    return cards.filter(pl.col("as_of").is_between(start or date.min, end or date.max))
