"""Deliver links: what is new since the last confirmed delivery, and what may no longer be used.

A delivery's record is created first and pins the bytes of its files. So of two processes one wins,
and an interrupted delivery is finished by the same command, or superseded by the next one, which
has everything since the last confirmed.

What the receiving side has is replayed from the confirmed deliveries (`flows/book/deliveries.py`),
by digests of links: of earlier runs and deliveries only those are read whose links change. What was
delivered and never confirmed may have been used: its links are withdrawn where they no longer live,
and what it withdrew is delivered again where it does.
"""

import re
from collections.abc import Collection
from datetime import date
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.book.book import Book, read_book
from flows.book.deliveries import WITHDRAWN, Deliveries
from flows.book.kept import keep_up_to_date
from flows.book.kept_stages import known_deliveries
from flows.book.known_rows import link_digest
from flows.book.standing import GIVEN_UP, LEFT, SERVED
from flows.errors import TryAgainError
from flows.operations.link_changes import CARD as CARD_OF_LINK
from flows.operations.link_changes import (
    CHANGED,
    DELTA,
    ISSUE,
    LINK,
    delta,
    replayed,
    surely_delivered,
)
from flows.redaction import redact
from flows.reports.links import link_files
from flows.runs.business_date import local_day
from flows.runs.cards import CARD
from flows.runs.chains import add_next, last_record
from flows.runs.context import IssuerContext
from flows.runs.delivered import delivery_folder, read_delivered_links
from flows.runs.erased import People, erased_people
from flows.runs.errors import NotFoundError
from flows.runs.identity import canonical, digest
from flows.runs.keys import deliveries, link
from flows.runs.single_links import prompted_links
from flows.runs.store import Store, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import rows_of
from flows.runs.threads import concurrently
from flows.runs.versions import read_document
from flows.steps import Step
from schemas.records import Confirmed, Delivery
from schemas.settings import CHANGES
from schemas.tables import parquet

_LINK = pl.Schema(
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        "cuid": pl.String(),
        "url": pl.String(),
        "expires_on": pl.Date(),
    }
)
_URL = ["delivery", *LINK, "url", "expires_on"]
STOPPED = [LEFT.name, GIVEN_UP.name]  # states in which a card needs no link
FORGOTTEN = "forgotten"  # why the links of erased cardholders are withdrawn
PARQUET = "links.parquet"
RECEIVED = "received"
CONFIRMED = "confirmed.json"
RECEIPT = 1 << 16  # bytes read of one
_SHA256 = re.compile(rb"\b[0-9a-f]{64}\b")


class DeliveredMeanwhileError(TryAgainError):
    """Another process has just written the next delivery."""

    message = (
        "Delivery {number} of {issuer} was written meanwhile by another command. "
        "Nothing was written."
    )
    next_step = "Run {same_command} again: it delivers what is new after that one."


class Delivered(NamedTuple):
    """The delivery to be confirmed, if any, its number, and whether it is `fresh`.

    `doubts` are receipts that name other bytes.
    """

    record: Delivery | None = None
    number: int = 0
    fresh: bool = False
    doubts: tuple[str, ...] = ()


class _Books(NamedTuple):
    """What was delivered so far.

    `newest` is the number of the last delivery (0: none) and `last` its record, `base` is the last
    confirmed one. `delivered` are the links that the receiving side has, `unconfirmed` the changes
    that it may have applied without confirming them, `later` those of them after `base`. `doubts`
    are receipts that name other bytes.
    """

    newest: int
    last: Delivery | None
    base: int
    doubts: tuple[str, ...]
    delivered: pl.DataFrame
    unconfirmed: pl.DataFrame
    later: pl.DataFrame


def deliver(context: IssuerContext) -> Delivered:
    """Write the next delivery, or finish the last one.

    No record where the receiving side has every living link. Raises DeliveredMeanwhileError.
    """
    now = context.adapters.now()
    today = local_day(now, context.issuer.time_zone)
    book = read_book(context.adapters.store, context.issuer.issuer)
    cards = book.cards(today)
    books = _books(context, book.stages.deliveries)
    alive = _living_links(context, book, books, _cards_with_links(cards, today))
    stopped = cards.filter(pl.col("standing").is_in(STOPPED)).select(*CARD_OF_LINK, "standing")
    stopped = pl.concat([stopped.cast({"standing": pl.String}), _forgotten(context, books)])
    delivered_links = books.delivered, books.unconfirmed
    changes = _with_urls(context, delta(alive, *delivered_links, book.sent, stopped, today))
    if changes.is_empty():
        return Delivered(doubts=books.doubts)
    contents = _link_files(context, changes)
    record = Delivery(
        after=books.base,
        at=now,
        by=redact(context.adapters.actor),
        files={name: digest(content) for name, content in contents.items()},
        new=changes.filter(change="new").height,
        replaced=changes.filter(change="replaced").height,
        withdrawn=changes.filter(change=WITHDRAWN).height,
        living=alive.height,
    )
    delivered = _record(context, books, record)
    place = delivery_folder(context.issuer.issuer, delivered.number)
    for name, content in {PARQUET: parquet(changes), **contents}.items():
        context.adapters.store.create(place + name, content)
    keep_up_to_date(context)
    return delivered


def _forgotten(context: IssuerContext, books: _Books) -> pl.DataFrame:
    """Return the cards of erased cardholders of which the receiving side may have links."""
    erased = erased_people(context.adapters.store, context.issuer.issuer)
    known = pl.concat([books.delivered, books.unconfirmed]).select(*CARD_OF_LINK).unique()
    cards = known.filter(erased.named_by(known["cuid"]))
    return cards.with_columns(standing=pl.lit(FORGOTTEN))


def owes_withdrawal(context: IssuerContext, people: People) -> bool:
    """Return whether the receiving side may still use a link of these cardholders."""
    books = _books(context, known_deliveries(context.adapters.store, context.issuer.issuer))
    is_used = pl.col("change") != WITHDRAWN
    perhaps = [books.delivered, books.unconfirmed.filter(is_used), books.later]
    return bool(people.named_by(pl.concat(perhaps)["cuid"]).any())


def _record(context: IssuerContext, books: _Books, record: Delivery) -> Delivered:
    """Record a delivery as the next one; where the last one has the same files, go on with that."""
    issuer = context.issuer.issuer
    last = books.last
    number = books.newest
    if last is not None and number != books.base and last.files == record.files:
        return Delivered(last, number, False, books.doubts)
    number += 1
    if not add_next(context.adapters.store, deliveries(issuer), number, record):
        raise DeliveredMeanwhileError(issuer=issuer, number=number)
    return Delivered(record, number, True, books.doubts)


def confirm(context: IssuerContext, number: int, reason: str) -> Confirmed:
    """Record that the receiving side has a delivery; return the record, an earlier one if any.

    Raises NotFoundError where the delivery is not complete, NoReasonError.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    place = delivery_folder(issuer, number)
    record = read_document(store, link(deliveries(issuer), number), Delivery)
    if record is None or read_if_stored(store, place + max(record.files), 0) is None:
        raise NotFoundError(
            place=issuer, what=f"complete delivery {number}", command=Step("deliver", issuer)
        )
    confirmed = Confirmed(**context.adapters.signed(reason))
    store.create(place + CONFIRMED, canonical(confirmed))
    return read_document(store, place + CONFIRMED, Confirmed) or confirmed


def _link_files(context: IssuerContext, changes: pl.DataFrame) -> dict[str, bytes]:
    """Return the CSV files of a delivery by name."""
    files = link_files(iter([changes]), context.issuer.links, CHANGES)
    return {name: b"".join(pieces) for name, pieces in files}


def _cards_with_links(cards: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the cards with a link that can be opened, each once: ISSUE, `run`, `row`, `until`.

    Each in its newest issue where that has one, else in that whose link lasts longest.
    """
    is_served = pl.col("standing").cast(pl.String).is_in([state.name for state in SERVED])
    linked = cards.filter(is_served & (pl.col("until") >= today))
    best_first = linked.sort("current", "until", descending=True)
    of_card = best_first.unique(CARD, keep="first", maintain_order=True)
    return of_card.select(*ISSUE, "run", "row", "until")


def _living_links(
    context: IssuerContext, book: Book, books: _Books, cards: pl.DataFrame
) -> pl.DataFrame:
    """Return the links of these cards: ISSUE, run, row, until, `link`; url and expires_on if read.

    Those that the receiving side surely has are not read, where the book has their digests.
    """
    known = cards.join(book.runs.links(), on=["run", "row"], maintain_order="left")
    surely = surely_delivered(books.delivered, books.unconfirmed)
    settled = known.join(surely, on=LINK, how="semi")
    runs = cards.join(settled, on=["run", "row"], how="anti", nulls_equal=True)["run"].unique()
    urls = _links_of(context, runs.to_list())
    row = ["run", "row", "cuid"]  # those typed in have no row
    read = cards.join(urls, on=row, nulls_equal=True, maintain_order="left")
    read = read.with_columns(link=link_digest(pl.col("url")))
    unread = settled.filter(~pl.col("run").is_in(runs.implode()))
    living = pl.concat([read, unread], how="diagonal")
    return living.unique(LINK, keep="first", maintain_order=True)


def _links_of(context: IssuerContext, runs: Collection[str]) -> pl.DataFrame:
    """Return the links of the reports of runs (_LINK); of "" those whose fields were typed in."""
    store = context.adapters.store
    reported = [StoredRun.by_id(store, run) for run in runs if run]
    frames = rows_of(reported, list(_LINK), pl.col("url").is_not_null())
    if "" in runs:
        prompted = prompted_links(store, context.issuer.issuer)
        frames.append(prompted.select(pl.lit("").alias("run"), *list(_LINK)[1:]))
    return pl.concat([pl.DataFrame(schema=_LINK), *(frame.cast(_LINK) for frame in frames)])


def _with_urls(context: IssuerContext, changes: pl.DataFrame) -> pl.DataFrame:
    """Return changes (DELTA) as they are delivered (CHANGED).

    The URLs of withdrawn links are those of their delivery.
    """
    withdrawn = changes.filter(change=WITHDRAWN)
    numbers = withdrawn["delivery"].unique().to_list()
    store = context.adapters.store
    frames = concurrently(
        lambda number: _delivered_urls(store, context.issuer.issuer, number), numbers
    )
    urls = pl.concat([pl.DataFrame(schema=DELTA).select(_URL), *frames])
    was_delivered = withdrawn.drop("url", "expires_on").join(urls, on=["delivery", *LINK])
    both = [was_delivered, changes.filter(pl.col("change") != WITHDRAWN)]
    return pl.concat([rows.select(*CHANGED).sort("cuid", "last_4", "url") for rows in both])


def _delivered_urls(store: Store, issuer: str, number: int) -> pl.DataFrame:
    """Return the links of a delivery as they were handed out (_URL)."""
    content = read_delivered_links(store, issuer, number) or b""
    links = pl.read_parquet(BytesIO(content), columns=["cuid", "url", "expires_on"])
    digests = links.with_columns(
        delivery=pl.lit(number, pl.UInt32), link=link_digest(pl.col("url"))
    )
    return digests.select(_URL).unique(LINK)


def _books(context: IssuerContext, known: Deliveries) -> _Books:
    """Read what was delivered, and record the receipts that were dropped since."""
    newest, last = last_record(context.adapters.store, deliveries(context.issuer.issuer), Delivery)
    base, doubts = _last_confirmed(context, newest)
    confirmed = _confirmed_numbers(known, base)
    number = pl.col("delivery")
    applied = replayed(known.changes.filter(number.is_in(confirmed)))
    # a superseded delivery counts too: it may have been finished after the one that supersedes it
    first_superseded = confirmed[-2] + 1 if base else 1
    superseded = replayed(known.changes.filter(number.is_between(first_superseded, base)))
    later = known.changes.filter(number > base)
    return _Books(
        newest,
        last,
        base,
        doubts,
        delivered=applied.filter(pl.col("change") != WITHDRAWN),
        unconfirmed=pl.concat([superseded, later]),
        later=later,
    )


def _confirmed_numbers(known: Deliveries, base: int) -> list[int]:
    """Return the numbers of the confirmed deliveries from 0 (none) to the last, `base`."""
    numbers = [base]
    while numbers[-1] in known.known:
        numbers.append(known.known[numbers[-1]].after)
    return numbers[::-1]


def _last_confirmed(context: IssuerContext, newest: int) -> tuple[int, tuple[str, ...]]:
    """Return the last confirmed delivery, 0 where there is none, and the receipts in doubt.

    A receipt that names the bytes of all files confirms its delivery; in doubt is one that does
    not.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    doubts: list[str] = []
    for number in range(newest, 0, -1):
        place = delivery_folder(issuer, number)
        if read_if_stored(store, place + CONFIRMED, 0) is not None:
            return number, tuple(doubts)
        receipt = read_if_stored(store, place + RECEIVED, RECEIPT)
        record = read_document(store, link(deliveries(issuer), number), Delivery)
        if record is None or receipt is None:
            continue
        named = {sha256.decode() for sha256 in _SHA256.findall(receipt.lower())}
        if named.issuperset(record.files.values()):
            confirm(context, number, "receipt of the receiving side")
            return number, tuple(doubts)
        doubts.append(place + RECEIVED)
    return 0, tuple(doubts)
