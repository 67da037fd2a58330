"""Deliver links: what is new since a receiver's last confirmed delivery, and what it may no longer
use.

A delivery's row is made first, with its changes, and pins the bytes of its files, in clear. So of
two processes one wins, and an interrupted delivery is finished by the same command, or superseded
by the next one, which has everything since the last confirmed.

What a receiver has is replayed from its confirmed deliveries (`receivers.py`), by digests of
links: of earlier runs and deliveries only those are read whose links change. What was delivered and
never confirmed may have been used: its links are withdrawn where they no longer live, and what it
withdrew is delivered again where it does. Each receiver has a chain of its own, so a link is
withdrawn from whoever may have it, and from nobody else. Withdrawals that nobody decided wait where
they are more than `[limits] max_withdrawn`; everything else is delivered.
"""

from collections.abc import Collection, Mapping
from datetime import date
from functools import partial
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.book.book import Book, read_book
from flows.book.known_runs import link_digest
from flows.book.stages import served_cards
from flows.extensions.deliveries.changes import CARD as CARD_OF_LINK
from flows.extensions.deliveries.changes import (
    CHANGED,
    DELTA,
    ENDED,
    FORGOTTEN,
    ISSUE,
    LINK,
    STOPPED,
    delivery_files,
    delta,
    perhaps_delivered,
    surely_delivered,
    undecided_withdrawals,
)
from flows.extensions.deliveries.delivered import (
    WITHDRAWN,
    DeliveryId,
    line_of,
    read_delivered_links,
    receivers_with_deliveries,
    write_changes,
)
from flows.extensions.deliveries.formats import DeliveredFile, Delivery, DeliveryNotice
from flows.extensions.deliveries.handover import (
    Handed,
    begin,
    complete,
    free_number,
    sealed,
    sealer_of,
)
from flows.extensions.deliveries.receivers import DeliveredSoFar, delivered_so_far
from flows.extensions.deliveries.settings import DEFAULT, settings_of
from flows.redaction import redact
from flows.runs.business_date import local_day
from flows.runs.context import IssuerContext
from flows.runs.erased import People, erased_people
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act
from flows.runs.single_links import answers_of, prompted_singles
from flows.runs.store import Store, read
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import rows_of
from flows.runs.threads import concurrently
from flows.steps import Step
from schemas.issuer import most_of
from schemas.ledger import LINKED
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
PARQUET = "links.parquet"


class Delivered(NamedTuple):
    """The delivery to be confirmed, if any, its number, and whether it is `fresh`.

    `doubts` are receipts that name other bytes. `finished`: files of it were missing. `waiting`:
    withdrawals that wait for a decision.
    """

    record: Delivery | None = None
    number: int = 0
    fresh: bool = False
    doubts: tuple[str, ...] = ()
    finished: bool = False
    waiting: int = 0


class LinksNow(NamedTuple):
    """The links of an issuer as they are now, for all of its receivers.

    `served`: the cards with a link that can be opened. `stopped`: those that need no link any more.
    `reported`: every card that was sent (ISSUE). `digests`: of the links of closed runs, by run and
    row. Not the book itself, which is the largest of all.
    """

    today: date
    served: pl.DataFrame
    stopped: pl.DataFrame
    reported: pl.DataFrame
    digests: pl.DataFrame


def links_now(context: IssuerContext) -> LinksNow:
    """Read where the cards of an issuer stand now."""
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    book = read_book(context.adapters, context.issuer.issuer)
    parts = [_links_of_part(part, today) for part in book.parts()]
    served = pl.concat(cards for cards, _ in parts)
    stopped = pl.concat(cards for _, cards in parts)
    reported = book.sent(*ISSUE)
    return LinksNow(today, served, stopped, reported, book.runs.links())


def _links_of_part(book: Book, today: date) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the cards with a link, and those that need none any more, as LinksNow has them."""
    cards = book.cards(today)
    stopped = cards.select(*CARD_OF_LINK, "standing").filter(pl.col("standing").is_in(STOPPED))
    return served_cards(cards, today).drop("standing"), stopped.cast({"standing": pl.String})


def deliver(
    context: IssuerContext, receiver: str = DEFAULT, now: LinksNow | None = None, opened: str = ""
) -> Delivered:
    """Write the next delivery to a receiver, or finish the last one.

    No record where it has every living link. `opened`: why it may withdraw any number of links.
    Raises HandedOverMeanwhileError, NotSealedError.
    """
    now = now or links_now(context)
    settings = settings_of(context.issuer, receiver)
    books = delivered_so_far(context, receiver)
    alive = pl.DataFrame(schema=DELTA)
    if not settings.retired:
        alive = _living_links(context, books, now)
    changed = _changes(context, receiver, now, books, alive)
    links = perhaps_delivered(books.delivered, books.unconfirmed).height
    waiting = undecided_withdrawals(changed, books.unconfirmed)
    is_usual = waiting.height <= most_of(context.issuer.limits.max_withdrawn, links)
    if opened or is_usual:
        waiting = waiting.clear()
    changes = _with_urls(context, receiver, changed.join(waiting, on=LINK, how="anti"))
    if changes.is_empty():
        return Delivered(doubts=books.doubts, waiting=waiting.height)
    contents = delivery_files(changes, settings, context.issuer.links)
    record = Delivery(
        after=books.base,
        at=context.adapters.now(),
        by=redact(context.adapters.actor),
        files={name: digest(content) for name, content in contents.items()},
        new=changes.filter(change="new").height,
        replaced=changes.filter(change="replaced").height,
        withdrawn=changes.filter(change=WITHDRAWN).height,
        living=alive.height + waiting.height,
        sealed_to=settings.fingerprint,
        opened="" if is_usual else redact(opened),
    )
    done = _write(context, receiver, books, record, changes, contents)
    return done._replace(waiting=waiting.height)


def _changes(
    context: IssuerContext,
    receiver: str,
    now: LinksNow,
    books: DeliveredSoFar,
    alive: pl.DataFrame,
) -> pl.DataFrame:
    """Return what is to be delivered, withdrawals that wait among it (DELTA)."""
    known = pl.concat([books.delivered, books.unconfirmed]).select(*CARD_OF_LINK).unique()
    erased = erased_people(context.adapters, context.issuer.issuer)
    forgotten = known.filter(erased.named_by(known["cuid"]))
    reasons = [now.stopped, forgotten.with_columns(standing=pl.lit(FORGOTTEN))]
    if settings_of(context.issuer, receiver).retired:
        reasons.append(known.with_columns(standing=pl.lit(ENDED)))
    stopped = pl.concat(reasons)
    return delta(alive, books.delivered, books.unconfirmed, now.reported, stopped, now.today)


def owes_withdrawal(context: IssuerContext, people: People) -> bool:
    """Return whether a receiver may still use a link of these cardholders."""
    receivers = receivers_with_deliveries(context.adapters, context.issuer.issuer)

    def may_use(receiver: str) -> bool:
        books = delivered_so_far(context, receiver)
        is_used = pl.col("change") != WITHDRAWN
        perhaps = [books.delivered, books.unconfirmed.filter(is_used), books.later]
        return bool(people.named_by(pl.concat(perhaps)["cuid"]).any())

    return any(map(may_use, receivers))


def withdrawal_step(context: IssuerContext, people: People) -> Step | None:
    """Return the step that withdraws their links; None where no receiver may use one."""
    return Step("deliver", context.issuer.issuer) if owes_withdrawal(context, people) else None


def _write(
    context: IssuerContext,
    receiver: str,
    books: DeliveredSoFar,
    record: Delivery,
    changes: pl.DataFrame,
    contents: Mapping[str, bytes],
) -> Delivered:
    """Write a delivery as the next one; where the last one is the same, go on with that."""
    same = _unconfirmed_same(books, record)
    if same is not None and same.is_done:
        return Delivered(same.record, same.number, doubts=books.doubts)
    with sealer_of(context, settings_of(context.issuer, receiver)) as sealer:
        files = {PARQUET: parquet(changes), **sealed(contents, sealer)}  # our own record first
    issuer = context.issuer.issuer
    line = line_of(issuer, receiver)
    if same is not None:
        number = same.number
    else:
        last = books.last.number if books.last else 0
        number = free_number(context, line, last)
        id_ = DeliveryId(receiver, number)
        also = partial(_write_changes, id_=id_, changes=changes)
        begin(context, line, number, record, also, after=last)
    written = same.record if same is not None else record
    complete(context, line, number, files, lambda: _notice(context, receiver, number, written))
    is_same = same is not None
    return Delivered(written, number, fresh=not is_same, doubts=books.doubts, finished=is_same)


def _write_changes(act: Act, id_: DeliveryId, changes: pl.DataFrame) -> None:
    write_changes(act.connection, act.issuer, id_, changes)


def _notice(context: IssuerContext, receiver: str, number: int, record: Delivery) -> bytes:
    """Return the done marker of a delivery."""
    line = line_of(context.issuer.issuer, receiver)
    store = context.adapters.store
    is_elsewhere = settings_of(context.issuer, receiver).to is not None
    shared = record.model_dump(include=DeliveryNotice.model_fields.keys() - {"files"})
    contents = {name: read(store, line.folder(number) + name) for name in record.names}
    notice = DeliveryNotice(
        **shared,
        issuer=line.issuer,
        receiver=receiver,
        number=number,
        folder=line.place(number) if is_elsewhere else line.folder(number),
        files=tuple(
            DeliveredFile(name=name, sha256=digest(content), bytes=len(content))
            for name, content in contents.items()
        ),
    )
    return canonical(notice)


def _unconfirmed_same(books: DeliveredSoFar, record: Delivery) -> Handed[Delivery] | None:
    """Return the last delivery where it has the same files and is not confirmed."""
    last = books.last
    if last is None or last.number == books.base:
        return None
    is_same = (last.record.files, last.record.sealed_to) == (record.files, record.sealed_to)
    return last if is_same else None


def _living_links(context: IssuerContext, books: DeliveredSoFar, now: LinksNow) -> pl.DataFrame:
    """Return the links of the cards with one: ISSUE, run, row, until, `link`; url and expires_on if
    read.

    Those that the receiving side surely has are not read, where the book has their digests.
    """
    cards = now.served
    known = cards.join(now.digests, on=["run", "row"], maintain_order="left")
    surely = surely_delivered(books.delivered, books.unconfirmed)
    settled = known.join(surely, on=LINK, how="semi")
    runs = cards.join(settled, on=["run", "row"], how="anti", nulls_equal=True)["run"].unique()
    row = ["run", "row", "cuid"]  # those typed in have no row
    urls = _links_of(context, runs.to_list())
    read = cards.join(urls, on=row, nulls_equal=True, maintain_order="left")
    del urls
    read = read.with_columns(link=link_digest(pl.col("url")))
    unread = settled.filter(~pl.col("run").is_in(runs.implode()))
    living = pl.concat([read, unread], how="diagonal")
    return living.unique(LINK, keep="first", maintain_order=True)


def _links_of(context: IssuerContext, runs: Collection[str]) -> pl.DataFrame:
    """Return the links of the reports of runs (_LINK); of "" those whose fields were typed in."""
    reported = [StoredRun.by_id(context.adapters, run) for run in runs if run]
    frames = rows_of(reported, list(_LINK), pl.col("url").is_not_null())
    if "" in runs:
        attempts = answers_of(prompted_singles(context.adapters, context.issuer.issuer))
        prompted = attempts.filter(pl.col("state") == LINKED)
        frames.append(prompted.select(pl.lit("").alias("run"), *list(_LINK)[1:]))
    return pl.concat([pl.DataFrame(schema=_LINK), *(frame.cast(_LINK) for frame in frames)])


def _with_urls(context: IssuerContext, receiver: str, changes: pl.DataFrame) -> pl.DataFrame:
    """Return changes (DELTA) as they are delivered (CHANGED).

    The URLs of withdrawn links are those of their delivery.
    """
    withdrawn = changes.filter(change=WITHDRAWN)
    numbers = withdrawn["delivery"].unique().to_list()
    store = context.adapters.store
    issuer = context.issuer.issuer
    frames = concurrently(
        lambda number: _delivered_urls(store, issuer, DeliveryId(receiver, number)), numbers
    )
    urls = pl.concat([pl.DataFrame(schema=DELTA).select(_URL), *frames])
    was_delivered = withdrawn.drop("url", "expires_on").join(urls, on=["delivery", *LINK])
    both = [was_delivered, changes.filter(pl.col("change") != WITHDRAWN)]
    return pl.concat([rows.select(*CHANGED).sort("cuid", "last_4", "url") for rows in both])


def _delivered_urls(store: Store, issuer: str, id_: DeliveryId) -> pl.DataFrame:
    """Return the links of a delivery as they were handed out (_URL)."""
    content = read_delivered_links(store, issuer, id_) or b""
    links = pl.read_parquet(BytesIO(content), columns=["cuid", "url", "expires_on"])
    digests = links.with_columns(
        delivery=pl.lit(id_.number, pl.UInt32), link=link_digest(pl.col("url"))
    )
    return digests.select(_URL).unique(LINK)
