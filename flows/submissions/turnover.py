"""Who would leave by an extract, and who comes, before its commit: in numbers, and a few cuids.

A new prefix before all cuids, another portfolio under the name of this one, or half of a portfolio
keep every rule and the number of rows: known cards are not named, and lose their links.
"""

from collections.abc import Iterator
from typing import NamedTuple

import polars as pl

from flows.book.book import Book, book_of, book_of_holders
from flows.book.departures import FOLLOWED, extract_of, movement, naming_of
from flows.book.stages import served_cards
from flows.runs.business_date import local_day
from flows.runs.cards import CARD_WITHOUT_TWIN, is_among
from flows.runs.context import IssuerContext
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.manifest import Manifest, Plan

EXAMPLES = 3  # cuids that are named
LIKENESS = ["name_check", "last_4"]  # by which a card under another cuid is known


class Turnover(NamedTuple):
    """How many of the `known` cards would leave, and how many come for the first time.

    Of those who leave, `links` have a link, and `renamed` the name and last four digits of one who
    comes. The cuids are examples.
    """

    known: int = 0
    left: int = 0
    new: int = 0
    links: int = 0
    renamed: int = 0
    left_cuids: str = ""
    new_cuids: str = ""

    @property
    def renamed_words(self) -> str:
        """Say that the same cards may come under other cuids, "" where few do."""
        if not self.left or self.renamed * 2 <= self.left:
            return ""
        return f"; {self.renamed:,} of both have one name and last four digits under two cuids"

    @property
    def remarks(self) -> Iterator[str]:
        """Yield what will happen to those who leave, where somebody does."""
        if self.left:
            yield (
                f"{self.left:,} of {self.known:,} known cards leave ({self.left_cuids}); "
                f"{self.links:,} of them have a link, which the next deliveries withdraw; "
                "withdrawals above max_withdrawn wait for a decision"
            )


NO_TURNOVER = Turnover()


def turnover_of(
    context: IssuerContext, plan: Plan, manifest: Manifest, runs: StoredRuns, since: int
) -> Turnover:
    """Return who would leave and come by a run whose ledger is written.

    Nobody by an extract that is older than the newest, or that can neither leave out nor delete.
    `since`: the last turn before it.
    """
    extract = extract_of(manifest, plan, since + 1)
    if plan.selection is not None or not (extract.full or extract.closes):
        return NO_TURNOVER
    book = book_of(context.adapters, runs, FOLLOWED)
    if manifest.as_of < book.newest:
        return NO_TURNOVER
    run = StoredRun.by_id(context.adapters, plan.run)

    def ledger(columns: list[str]) -> Iterator[pl.DataFrame]:
        """Read columns of the ledger, part by part; the run is not committed yet."""
        for part in manifest.ledger:
            yield run.ledger_part(part, columns)

    naming = naming_of(extract, ledger)
    known, left, new = movement(book.attempts, naming, book.departures)
    turned = Turnover(known=known, new=new.height, new_cuids=_examples(new))
    if left.is_empty():
        return turned
    leaving = book_of_holders(context.adapters, runs, left["holder"])
    return turned._replace(
        left=left.height,
        left_cuids=_examples(left),
        links=_with_link(context, leaving, left),
        renamed=_renamed(leaving, left, new, pl.concat(ledger(["cuid", *LIKENESS]))),
    )


def _with_link(context: IssuerContext, leaving: Book, left: pl.DataFrame) -> int:
    """Return how many of these cards have a link that can be opened."""
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    cards = leaving.cards(today)
    return served_cards(cards.filter(is_among(cards, left, CARD_WITHOUT_TWIN)), today).height


def _renamed(leaving: Book, left: pl.DataFrame, new: pl.DataFrame, rows: pl.DataFrame) -> int:
    """Return how many of the cards that leave look like one that is new, by the ledger's rows."""
    of_new = is_among(rows.with_columns(holder="cuid"), new, CARD_WITHOUT_TWIN)
    attempts = leaving.attempts.filter(is_among(leaving.attempts, left, CARD_WITHOUT_TWIN))
    is_like_new = is_among(attempts, rows.filter(of_new).drop_nulls(), LIKENESS)
    return attempts.filter(is_like_new).select(CARD_WITHOUT_TWIN).unique().height


def _examples(cards: pl.DataFrame) -> str:
    """Return the first cuids of cards, and how many more there are."""
    holders = cards["holder"].unique().sort()
    first = ", ".join(holders.head(EXAMPLES))
    others = holders.len() - EXAMPLES
    return f"{first} and {others:,} more" if others > 0 else first
