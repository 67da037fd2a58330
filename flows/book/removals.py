"""Whom a purge removes from the book: counted before the ledgers go.

A cardholder is removed with the last ledger that names them; whom another run or a single link
still names stays. Put here what counts; `opening.py` adds up what was counted.
"""

from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from itertools import chain
from typing import NamedTuple

import polars as pl

from flows.book.attempts import ATTEMPT, attempts_typed_in, in_order
from flows.book.book import Book, read_book
from flows.book.fold import fold
from flows.book.people import counted_cards, people
from flows.book.standing import standing
from flows.runs.adapters import Adapters
from flows.runs.cards import CARD
from flows.runs.single_links import SingleLink, prompted_singles
from schemas.records import Removed


class Ledger(NamedTuple):
    """What is about to go: the ledger of a `run`, or single links that belong to none."""

    run: str = ""
    single_links: frozenset[str] = frozenset()  # ids


def removals(
    adapters: Adapters, issuer: str, today: date, ledgers: Sequence[Ledger]
) -> list[Removed]:
    """Return how many leave the book with each of these ledgers, which go in this order.

    Whom several of them name leaves with the last one.
    """
    if not ledgers:
        return []
    singles = prompted_singles(adapters, issuer)
    book = read_book(adapters, issuer)
    traces = _traces(book, singles, ledgers)
    counted = (counted_cards(part.cards(today)) for part in book.parts())
    cards = pl.concat(part.select(*CARD, "cuid", "standing", "who") for part in counted)

    runs = {ledger.run for ledger in ledgers if ledger.run}
    single_links = set(chain.from_iterable(ledger.single_links for ledger in ledgers))
    remaining = [single for single in singles if single.id not in single_links]
    stays = (pl.col("run") != "") & ~pl.col("run").is_in(list(runs))
    later = [book.attempts.filter(stays), attempts_typed_in(remaining)]
    after = counted_cards(standing(fold(in_order(later)), today))

    gone_people = people(cards).join(after, on="holder", how="anti")
    gone_cards = cards.join(after, on=CARD, how="anti", nulls_equal=True)
    people_by_ledger = _by_ledger(gone_people, traces, ["holder"])
    cards_by_ledger = _by_ledger(gone_cards, traces, list(CARD))
    return [
        Removed(people=people_by_ledger[place], cards=cards_by_ledger[place])
        for place in range(len(ledgers))
    ]


def _traces(book: Book, singles: Sequence[SingleLink], ledgers: Sequence[Ledger]) -> pl.DataFrame:
    """Return the cards that each of these ledgers names: CARD, and `place` of the ledger."""
    frames = [pl.DataFrame(schema={name: ATTEMPT[name] for name in CARD} | {"place": pl.UInt32})]
    for place, ledger in enumerate(ledgers):
        if ledger.run:
            attempts = book.attempts.filter(run=ledger.run)
        else:
            removed = [single for single in singles if single.id in ledger.single_links]
            attempts = attempts_typed_in(removed)
        frames.append(attempts.select(*CARD, place=pl.lit(place, pl.UInt32)).unique())
    return pl.concat(frames)


def _by_ledger(
    gone: pl.DataFrame, traces: pl.DataFrame, by: list[str]
) -> dict[int, dict[str, int]]:
    """Return how many of those that are `gone` leave with each ledger, by state."""
    last = traces.group_by(by).agg(pl.col("place").max())
    counted = gone.join(last, on=by, nulls_equal=True).group_by("place", "standing").len()
    by_ledger: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for place, state, number in counted.sort("place", "standing").iter_rows():
        by_ledger[place][state] = number
    return by_ledger
