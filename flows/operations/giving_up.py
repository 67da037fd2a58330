"""Give cards up: nobody waits for them any more, until that is taken back.

The account is closed, or the cardholder does not want a link. Each decision stands with who, when
and why; `flows/book/given_up.py` says what it means.
"""

from collections.abc import Collection
from datetime import date
from typing import Any, Literal, NamedTuple

import polars as pl

from flows.book.book import Book, read_book
from flows.book.given_up import given_up_cards, is_given_up
from flows.book.nameless import is_nameless, name_of_row
from flows.book.people import counted_cards
from flows.errors import OperatorError
from flows.reports.cardholder_trace import refuse_card_number
from flows.reports.unlinked import lacking_cards, without_link
from flows.resend import renewal
from flows.resend.ending_links import ending_links
from flows.resend.selection import RowSelection, is_selected
from flows.runs.business_date import local_day
from flows.runs.cards import CARD_WITHOUT_TWIN, CONTENT_FINGERPRINTS, holder
from flows.runs.context import IssuerContext
from flows.runs.decisions import CARDS, decide
from flows.runs.errors import NoSuchRowError, NotFoundError, numbered
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act, enter
from flows.runs.persons import by_person
from flows.runs.shown_rows import refuse_other_rows
from flows.runs.stored_run import StoredRun
from flows.steps import CUID, RUN, WHY, Sentence, Step
from schemas.ledger import AWAITING
from schemas.records import GivingUp, NamedCard

NAMES_NOBODY = "names no cardholder"  # where a row stands that is of no card
_RECORD = ["row", "cuid", "last_4", "expiration", *CONTENT_FINGERPRINTS]


class NoCardsNamedError(OperatorError):
    """The cards to give up are not named, or by rows or chunks without their run."""

    message = "{target}: the cards to give up are not named, or without their run."
    next_step = Sentence(
        "Name rows of a run, {rows}, or cardholders, {cuids}, or the reasons that they wait for.",
        rows=Step("mend give-up", RUN, row=1, reason=WHY),
        cuids=Step("mend give-up", RUN, cuid=CUID, reason=WHY),
    )


class Which(NamedTuple):
    """Which cards are meant; each part adds some.

    Of a `run`: those of its rows; "" means the whole issuer. `codes`: why cards have no link, or
    first parts of codes; cards whose fields were typed in are not meant by them, nor those of runs
    that are not `before` a business date. `chunks`: those of the run's rows in them that still wait
    for an answer. `nameless`: the rows that name no cardholder and wait for the issuer.
    """

    run: str = ""
    rows: frozenset[int] = frozenset()
    cuids: frozenset[str] = frozenset()
    codes: frozenset[str] = frozenset()
    chunks: frozenset[int] = frozenset()
    before: date | None = None
    nameless: bool = False


class Decided(NamedTuple):
    """What was recorded, None where it was so already; the cards by where they stand without it."""

    record: GivingUp | None
    standing: dict[str, int]

    @property
    def cards(self) -> int:
        """How many cards the decision is about."""
        return sum(self.standing.values()) - self.nameless

    @property
    def nameless(self) -> int:
        """How many rows it is about that name no cardholder."""
        return self.standing.get(NAMES_NOBODY, 0)

    @property
    def states(self) -> list[str]:
        """How many of the cards stood where."""
        of_cards = {state: cards for state, cards in self.standing.items() if state != NAMES_NOBODY}
        return [f"{cards:,} {state}" for state, cards in of_cards.items()]

    @property
    def facts(self) -> dict[str, Any]:
        """The decision as plain facts."""
        named = self.record.cards if self.record else ()
        sha256 = digest(canonical({"cards": named}))
        return {"cards": self.cards, "standing": self.standing, "sha256": sha256}


def give_up(
    context: IssuerContext,
    which: Which,
    reason: str,
    rows: str | None = None,
    *,
    undo: bool = False,
) -> Decided:
    """Decide that cards need no link, or take that back; OtherRowsError where these are not just
    so many as were shown.

    Cards that are given up already stay so. Raises NoCardsNamedError, CardGivenError,
    UnknownRunError, NoSuchRowError, NotFoundError where no card is meant, NoReasonError.
    """
    adapters = context.adapters
    signed = adapters.signed(reason)
    issuer = context.issuer.issuer
    _refuse_unnamed(issuer, which)
    meant = _meant(context, read_book(adapters, issuer), which)
    what: Literal["given up", "taken up"] = "taken up" if undo else "given up"

    def work(act: Act) -> Decided:
        given_up = given_up_cards(adapters.within(act.connection), issuer)
        decided = _to_decide(issuer, meant, given_up, which, undo=undo)
        if decided.is_empty():
            return Decided(None, {})
        refuse_other_rows(issuer, which.run or issuer, decided.height, rows)
        named = _as_given_up(given_up, decided) if undo else decided.select(CARD_WITHOUT_TWIN)
        cards = tuple(NamedCard(*card) for card in named.iter_rows())
        record = GivingUp(**signed, what=what, cards=cards)
        by_persons = record.model_copy(update={"cards": by_person(adapters, act, cards)})
        decide(act, CARDS, "", by_persons)
        states = decided["standing"].value_counts(sort=True)
        return Decided(record, dict(states.iter_rows()))

    return enter(adapters, issuer, f"cards {what}", work, reason=signed["reason"])


def _to_decide(
    issuer: str, meant: pl.DataFrame, given_up: pl.DataFrame, which: Which, *, undo: bool
) -> pl.DataFrame:
    """Return the cards among those meant that are not yet as decided; NotFoundError for none."""
    is_out = is_given_up(given_up)
    known = meant.filter(is_out) if undo else meant
    if known.is_empty():
        missing = "such card that is given up" if undo else "such card"
        raise NotFoundError(
            place=which.run or issuer, what=missing, command=Step("cardholders", issuer)
        )
    return known if undo else known.filter(~is_out)


def _refuse_unnamed(issuer: str, which: Which) -> None:
    """Raise NoCardsNamedError: no cards are named, rows without a run, a day without reasons."""
    of_run = which.rows or which.chunks
    is_named = any((of_run, which.cuids, which.codes, which.nameless))
    lacks_run = of_run and not which.run
    lacks_reasons = which.before and not which.codes
    if not is_named or lacks_run or lacks_reasons:
        raise NoCardsNamedError(target=which.run or issuer)


def _as_given_up(decisions: pl.DataFrame, cards: pl.DataFrame) -> pl.DataFrame:
    """Return the decisions that gave these cards up, perhaps as all of a cardholder."""
    of_cards = decisions.join(cards, on=CARD_WITHOUT_TWIN, how="semi", nulls_equal=True)
    whole = decisions.filter(pl.col("last_4").is_null()).join(cards, on="holder", how="semi")
    return pl.concat([of_cards, whole]).select(CARD_WITHOUT_TWIN).unique(maintain_order=True)


def _meant(context: IssuerContext, book: Book, which: Which) -> pl.DataFrame:
    """Return the cards that are meant, each once, as if none were given up: CARD_WITHOUT_TWIN and
    `standing`. Rows that name no cardholder stand there like cards.
    """
    for cuid in which.cuids:
        refuse_card_number(cuid)
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    if which.run and (which.rows or which.cuids):
        named = _cards_of_rows(context, which)
    else:
        named = _cards_of_cuids(book, which.cuids, today)
    refused = named.clear()
    if which.codes:
        refused = _refused_for(context, book, which, today)
    is_awaited = pl.col("chunk").is_in(list(which.chunks)) & (pl.col("state") == AWAITING)
    awaited = book.attempts.filter(is_awaited, run=which.run)
    meant = pl.concat([cards.select(CARD_WITHOUT_TWIN) for cards in (named, refused, awaited)])
    cards = _counted_once(book.of_holders(meant["holder"]), today)
    cards = cards.join(meant, on=CARD_WITHOUT_TWIN, how="semi", nulls_equal=True)
    standing = cards.select(*CARD_WITHOUT_TWIN, pl.col("standing").cast(pl.String))
    return pl.concat([standing, _nameless(book, which)])


def _nameless(book: Book, which: Which) -> pl.DataFrame:
    """Return the rows that are meant and name no cardholder, each as if it were a card."""
    is_meant = pl.col("row").is_in(list(which.rows)) & is_nameless()
    rows = book.attempts.filter(is_meant, run=which.run)
    if which.nameless:
        waiting = book.nameless_undecided
        rows = pl.concat([rows, waiting.filter(run=which.run) if which.run else waiting])
    return rows.select(
        holder=name_of_row(), last_4=pl.lit(None, pl.String), standing=pl.lit(NAMES_NOBODY)
    ).unique(maintain_order=True)


def _counted_once(book: Book, today: date) -> pl.DataFrame:
    """Return the cards of a book, each once, as if none were given up."""
    cards = counted_cards(book.cards_undecided(today))
    return cards.unique(CARD_WITHOUT_TWIN, keep="last", maintain_order=True)


def _cards_of_cuids(book: Book, cuids: Collection[str], today: date) -> pl.DataFrame:
    is_named = pl.col("cuid").is_in(list(cuids))
    holders = book.attempts.select("cuid", "holder").filter(is_named)["holder"]
    return _counted_once(book.of_holders(holders), today).filter(is_named)


def _refused_for(context: IssuerContext, book: Book, which: Which, today: date) -> pl.DataFrame:
    """Return the cards of runs that have no link for these reasons."""
    lacking_of_parts = []
    ending_of_parts = []
    for part in book.parts():
        cards = part.cards_undecided(today)
        lacking_of_parts.append(lacking_cards(cards))
        ending_of_parts.append(ending_links(part, cards, today, today))
    ending = renewal.judged_ending(context, book, pl.concat(ending_of_parts), today)
    lacking = without_link(pl.concat(lacking_of_parts), ending).filter(pl.col("run") != "")
    return _of_reasons(lacking, which)


def _of_reasons(lacking: pl.DataFrame, which: Which) -> pl.DataFrame:
    """Return the cards without a link that are meant, by run, day and reason."""
    if which.run:
        lacking = lacking.filter(run=which.run)
    if which.before:
        lacking = lacking.filter(pl.col("as_of") < which.before)
    selection = RowSelection(codes=which.codes)
    codes = lacking["reason"].drop_nulls().unique()
    meant = [code for code in codes if is_selected(code, selection)]
    return lacking.filter(pl.col("reason").is_in(meant))


def _cards_of_rows(context: IssuerContext, which: Which) -> pl.DataFrame:
    """Return the cards of the rows of the run that are meant; NoSuchRowError."""
    run = StoredRun.by_id(context.adapters, which.run)
    is_meant = pl.col("row").is_in(list(which.rows)) | pl.col("cuid").is_in(list(which.cuids))
    parts = run.with_ledger().ledger
    records = pl.concat([run.ledger_part(part, _RECORD, is_meant) for part in parts])
    lacking = pl.Series(sorted(which.rows - set(records["row"])), dtype=pl.UInt32)
    if len(lacking):
        raise NoSuchRowError(place=which.run, rows=numbered(lacking))
    return records.with_columns(holder(records)).drop_nulls("holder").select(CARD_WITHOUT_TWIN)
