"""The book of an issuer: read it once, and ask it.

`read_book` brings it together from all that is recorded. Nothing has a window: a run counts until
retention removes its ledger, and then what its cards have left is what later runs say. Whom no
other run names is part of the opening balance.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property

import polars as pl
from sqlalchemy import ColumnElement

from flows.book.attempts import (
    ATTEMPT,
    SENT,
    active,
    attempts_typed_in,
    in_order,
)
from flows.book.fold import Folded, fold, is_not_replaced, newest_rows
from flows.book.given_up import given_up_cards, is_given_up
from flows.book.kept_links import kept_links
from flows.book.known_runs import NO_RUNS, KnownRuns
from flows.book.nameless import name_of_row, waiting_rows, waiting_turns
from flows.book.news import read_mark
from flows.book.opening import NOBODY_REMOVED, OpeningBalance
from flows.book.stages import Stages, stages_of, with_stages
from flows.book.standing import (
    CHANGED_SINCE,
    GIVEN_UP,
    LEFT,
    NOT_REPLACED,
    NOT_UPDATED,
    State,
    standing,
    with_excluded,
    with_state,
)
from flows.book.stored_book import (
    known_runs_of,
    of_cuid,
    of_holders,
    read_attempts,
    read_departed,
    read_runs,
)
from flows.book.upkeep import BookOfRuns, tables
from flows.runs.adapters import Adapters
from flows.runs.cards import CONTENT_FINGERPRINTS, ISSUE, is_single
from flows.runs.single_links import prompted_singles
from flows.runs.stored_runs import StoredRuns
from schemas.ledger import AWAITING

PART = 250_000  # attempts that are looked at together, about


@dataclass(frozen=True)
class Book:
    """Every attempt for every card of an issuer, as it is recorded now, and how they add up."""

    issuer: str
    last_turn: int  # of the run that was committed last
    newest: date  # business date of the latest whole extract
    attempts: pl.DataFrame  # ATTEMPT, in the order of their runs
    departures: pl.DataFrame  # who has left or is left out (`flows.book.departures.DEPARTED`)
    read_stages: Callable[[], Stages]
    given_up: pl.DataFrame  # the cards that are given up (`flows.book.given_up.GIVEN_UP`)
    kept: pl.DataFrame  # the links that stay as they are (`flows.book.kept_links.KEPT`)
    opening: OpeningBalance = NOBODY_REMOVED  # whom retention removed
    read_runs: Callable[[], KnownRuns] = lambda: NO_RUNS
    # of the extracts whose rows that name no cardholder wait for the issuer
    nameless_turns: frozenset[int] = frozenset()
    extract_days: Mapping[int, date] = field(
        default_factory=dict
    )  # by the numbers of their commits

    @property
    def departed(self) -> pl.DataFrame:
        """The cards that have left (`flows.book.departures.DEPARTED`, without `excluded`)."""
        return self.departures.drop("excluded").drop_nulls("since")

    @property
    def excluded(self) -> pl.DataFrame:
        """The cards that `[status]` leaves out of the newest extract that has them: holder, last_4,
        `excluded`, since when.
        """
        left_out = self.departures.filter(pl.col("since").is_null())
        return left_out.select("holder", "last_4", "excluded")

    @property
    def nameless(self) -> pl.DataFrame:
        """The rows that name no cardholder and wait for the issuer (ATTEMPT)."""
        is_given_up = name_of_row().is_in(self.given_up["holder"].implode())
        return self.nameless_undecided.filter(~is_given_up)

    @property
    def nameless_undecided(self) -> pl.DataFrame:
        """The rows that would wait for the issuer if none were given up (`nameless`)."""
        return waiting_rows(self.attempts, self.nameless_turns)

    @cached_property
    def stages(self) -> Stages:
        """How far links came, read when asked for."""
        return self.read_stages()

    @cached_property
    def runs(self) -> KnownRuns:
        """The plans of the runs, and the figures of closed ones, read when asked for."""
        return self.read_runs()

    @cached_property
    def folded(self) -> Folded:
        """How the attempts of each card add up, worked out when asked for."""
        return fold(self.attempts)

    def parts(self) -> Iterator["Book"]:
        """Yield the book by cardholders: all attempts of some of them, PART at a time.

        What is asked about cardholders adds up over the parts, in the memory that one takes.
        """
        number = self.attempts.height // PART + 1
        if number == 1:
            yield self
            return
        part_of = self.attempts.select(pl.col("holder").hash() % number).to_series()
        for part in range(number):
            yield self._of(self.attempts.filter(part_of == part))

    def of_cuid(self, cuid: str) -> "Book":
        """Return the book of the cardholders who were ever named by this cuid alone."""
        return self.of_holders(self.attempts.select("cuid", "holder").filter(cuid=cuid)["holder"])

    def of_holders(self, holders: pl.Series) -> "Book":
        """Return the book of these cardholders alone."""
        is_theirs = pl.col("holder").is_in(holders.unique().implode())
        return self._of(self.attempts.filter(is_theirs))

    def _of(self, attempts: pl.DataFrame) -> "Book":
        """Return the book with some of its attempts, all of each cardholder."""
        return replace(
            self,
            attempts=attempts,
            read_stages=lambda: self.stages,
            read_runs=lambda: self.runs,
        )

    def sent(self, *columns: str) -> pl.DataFrame:
        """Return the attempts that were sent and have an answer, a link, or wait for one.

        Without those of which an operator decided that no usable answer comes. With all columns, or
        with these.
        """
        names = columns or ATTEMPT.names()
        read = self.attempts.select(*dict.fromkeys((*names, "state", "decided")))
        return read.filter(pl.col("state").is_in(SENT) & ~pl.col("decided")).select(names)

    def active_twice(self, today: date) -> pl.DataFrame:
        """Return the cards that are active in more than one run, renewals apart.

        One whose name or address had changed was replaced on purpose: only what was sent like the
        last counts.
        Columns: cuid, last_4, expiration, and `runs`, their ids.
        """
        is_counted = active(today) & ~pl.col("renewal")
        look = ["cuid", "last_4", "expiration"]
        repeated = self.attempts.filter(~is_single(self.attempts, ISSUE))
        attempts = repeated.filter(is_counted).drop_nulls(look)
        run = pl.when(pl.col("run") == "").then(pl.lit("typed in")).otherwise("run")
        is_like_last = pl.all_horizontal(
            (pl.col(name) == pl.col(name).last()).fill_null(value=True)
            for name in CONTENT_FINGERPRINTS
        )
        runs = attempts.group_by(ISSUE, maintain_order=True).agg(
            pl.col("cuid").first(), runs=run.filter(is_like_last).unique().sort()
        )
        several = runs.filter(pl.col("runs").list.len() > 1)
        listed = several.select(*look, pl.col("runs").list.join(" "))
        return listed.unique().sort(look)

    def changes(self, cards: pl.DataFrame) -> pl.DataFrame:
        """Return the cards that have a link and have changed since (`standing.CHANGED_SINCE`).

        Columns: those of the newest row that says so (ATTEMPT), `link` and `refused` (KEPT),
        `is_name` and `is_address`: what has changed. `cards`: all that `cards` returns.
        """
        folded = self._open(cards, CHANGED_SINCE)
        sent = folded.attempt("content")
        change = folded.attempt("change")
        last = folded.attempt("last")
        differs = {
            is_other: (change[check] != sent[check]).fill_null(value=True)
            for is_other, check in (("is_name", "name_check"), ("is_address", "address_check"))
        }
        is_refused = is_not_replaced(folded, self.kept)
        refused = pl.select(pl.when(is_refused).then(last["run"]).otherwise(pl.lit("")))
        return change.with_columns(**differs, link=sent["run"], refused=refused.to_series())

    def not_replaced(self, cards: pl.DataFrame) -> pl.DataFrame:
        """Return the cards with a link whose last row was refused (`standing.NOT_REPLACED`).

        Columns: those of that row (ATTEMPT), `link` and `refused` (KEPT). `cards`: all that `cards`
        returns.
        """
        folded = self._open(cards, NOT_REPLACED)
        sent = folded.attempt("content")
        return folded.attempt("last").with_columns(link=sent["run"], refused="run")

    def not_updated(self, cards: pl.DataFrame) -> pl.DataFrame:
        """Return the cards with a link of which we refused the newest row (`standing.NOT_UPDATED`).

        Columns: those of that row (`newest_rows`), `link` and `refused` (KEPT), and of what the
        link was made from `name_linked` and `address_linked`. `cards`: all that `cards` returns.
        """
        folded = self._open(cards, NOT_UPDATED)
        sent = folded.attempt("content")
        return newest_rows(folded).with_columns(
            link=sent["run"],
            refused="run",
            name_linked=sent["name_check"],
            address_linked=sent["address_check"],
        )

    def _open(self, cards: pl.DataFrame, state: State) -> Folded:
        """Return the issues of `cards` in a state in which somebody acts, where they are the newest
        of their card.
        """
        is_open = (cards["standing"] == state.name) & cards["current"] & (cards["who"] != "")
        return Folded(self.attempts, self.folded.places.filter(is_open))

    def cards(self, today: date) -> pl.DataFrame:
        """Return where each issue of each card stands on a day (`standing`, `with_stages`)."""
        cards = self.cards_undecided(today)
        if self.given_up.is_empty():
            return cards
        given_up = cards.filter(is_given_up(self.given_up)).select("holder", "last_4")
        return with_state(cards, GIVEN_UP, given_up)

    @property
    def given_up_chunks(self) -> frozenset[tuple[str, int]]:
        """The uploaded chunks whose cards that still wait are all given up: run and number."""
        if self.given_up.is_empty():
            return frozenset()
        is_uploaded = pl.col("wait").cast(pl.String).is_in(["uploaded", "answered"])
        waiting = self.attempts.filter((pl.col("state") == AWAITING) & is_uploaded)
        is_over = is_given_up(self.given_up).all()
        chunks = waiting.group_by("run", "chunk").agg(is_over.alias("is_over"))
        return frozenset(chunks.filter("is_over").select("run", "chunk").iter_rows())

    @property
    def without_kept(self) -> "Book":
        """The book as if nobody had decided that a link stays as it is."""
        return replace(self, kept=self.kept.clear())

    def cards_undecided(self, today: date) -> pl.DataFrame:
        """Return where each issue of each card would stand if none were given up (`cards`)."""
        cards = standing(self.folded, today, self.kept, self.extract_days)
        cards = with_stages(cards, self.stages)
        return with_state(with_excluded(cards, self.excluded), LEFT, self.departed)


def read_book(adapters: Adapters, issuer: str, columns: Sequence[str] = ATTEMPT.names()) -> Book:
    """Return an issuer's book as everything that is recorded says.

    `columns`: those of the attempts, for who asks for nothing else.
    """
    return book_of(adapters, StoredRuns(adapters, issuer), columns)


def book_of_cuid(adapters: Adapters, issuer: str, cuid: str) -> Book:
    """Return an issuer's book of the cardholders who were ever named by this cuid alone."""
    runs = StoredRuns(adapters, issuer)
    return book_of(adapters, runs, which=of_cuid(issuer, cuid)).of_cuid(cuid)


def book_of_holders(adapters: Adapters, runs: StoredRuns, holders: pl.Series) -> Book:
    """Return the book of these cardholders alone."""
    return book_of(adapters, runs, which=of_holders(holders)).of_holders(holders)


def book_of(
    adapters: Adapters,
    runs: StoredRuns,
    columns: Sequence[str] = ATTEMPT.names(),
    which: ColumnElement[bool] | None = None,
) -> Book:
    """Return the book of an issuer's runs, as `read_book` does; which there are is listed once.

    `which`: the attempts of runs that are read; all without it.
    """
    issuer = runs.issuer
    typed_in = attempts_typed_in(prompted_singles(adapters, issuer)).select(columns)
    with tables(adapters, issuer, BookOfRuns(runs)) as connection:
        mark = read_mark(connection, issuer)
        rows = read_runs(connection, issuer)
        attempts = in_order([read_attempts(connection, issuer, columns, which), typed_in])
        departed = read_departed(connection, issuer)
    extracts = [row.extract for row in rows.values() if row.extract is not None]
    return Book(
        issuer,
        mark.turn,
        mark.newest,
        attempts,
        departed,
        lambda: stages_of(runs),
        given_up_cards(adapters, issuer),
        kept_links(adapters, issuer),
        mark.removed,
        lambda: known_runs_of(adapters, runs, rows),
        waiting_turns(extracts),
        {extract.turn: extract.day for extract in extracts},
    )
