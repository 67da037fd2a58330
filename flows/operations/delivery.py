"""Deliver links: what is new since the last confirmed delivery, and what the receiving side must no
longer use.

A delivery's record is created first and pins the bytes of its files. So of two processes one wins,
and an interrupted delivery is finished by the same command, or superseded by the next one, which
has everything since the last confirmed.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import date
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.errors import TryAgainError
from flows.redaction import redact
from flows.reports.lists import link_files
from flows.runs.attempts import LIFE, is_current
from flows.runs.business_date import local_day
from flows.runs.chains import add_next, last_record
from flows.runs.commits import commits_since
from flows.runs.context import IssuerContext
from flows.runs.documents import read_rows, read_summary, with_ledger
from flows.runs.errors import NotFoundError
from flows.runs.identity import canonical, digest
from flows.runs.keys import deliveries, keys_of, link
from flows.runs.single_links import prompted_links
from flows.runs.store import Store, read_if_stored
from flows.runs.stored_run import StoredRun
from flows.runs.threads import concurrently
from flows.runs.versions import read_document
from schemas.ledger import LINKED
from schemas.manifest import Manifest
from schemas.records import Confirmed, Delivery
from schemas.settings import CHANGES
from schemas.tables import parquet

CARD = ["cuid", "last_4", "expiration"]
LINK = ["cuid", "url"]
REPORTED = [*CARD, "state", "url", "expires_on"]
WITHDRAWN = "withdrawn"
CHANGED = pl.Schema(  # links.parquet: the rows of links.csv
    {
        **dict.fromkeys((*CARD, "url", *CHANGES), pl.String()),
        "expires_on": pl.Date(),
        "until": pl.Date(),
    }
)
PARQUET, RECEIVED, CONFIRMED = "links.parquet", "received", "confirmed.json"
RECEIPT = 1 << 16  # bytes read of one
_SHA256 = re.compile(rb"\b[0-9a-f]{64}\b")


class DeliveredMeanwhileError(TryAgainError):
    """Another process has just written the next delivery."""

    message = "Delivery {number} of {issuer} was written meanwhile by another command. Nothing was written."
    next_step = "Run the same command again: it delivers what is new after that one."


class Delivered(NamedTuple):
    """The delivery to be confirmed, if any, its number, whether it is new, and receipts that name
    other bytes.
    """

    record: Delivery | None = None
    number: int = 0
    fresh: bool = False
    doubts: tuple[str, ...] = ()


# The deliveries by number (0: none), the last confirmed one, receipts that name other bytes, the
# links that the receiving side has, and changes that it may have applied without confirming them.
_Books = tuple[list[Delivery | None], int, tuple[str, ...], pl.DataFrame, pl.DataFrame]


def deliver(context: IssuerContext) -> Delivered:
    """Write the next delivery, or finish the last one; no record where the receiving side has every
    living link.
    """
    store, issuer, now = context.adapters.store, context.issuer.issuer, context.adapters.now()
    (records, base, doubts, held, unconfirmed), today = (
        _books(context),
        local_day(now, context.issuer.time_zone),
    )
    reported = _reported(context, today)
    alive = living(reported, today)
    changes = delta(alive, held, unconfirmed, reported, today)
    if changes.is_empty():
        return Delivered(doubts=doubts)
    named = link_files(iter([changes]), context.issuer.links, CHANGES)
    contents = {name: b"".join(pieces) for name, pieces in named}
    files = {name: digest(data) for name, data in contents.items()}
    record, number = records[-1], len(records) - 1
    fresh = record is None or number == base or record.files != files
    if record is None or fresh:
        number += 1
        counts = {
            name: changes.filter(change=name).height for name in ("new", "replaced", WITHDRAWN)
        }
        by = redact(context.adapters.actor)
        record = Delivery(after=base, at=now, by=by, files=files, **counts, living=alive.height)
    if fresh and not add_next(store, deliveries(issuer), number, record):
        raise DeliveredMeanwhileError(issuer=issuer, number=number)
    for name, data in {PARQUET: parquet(changes), **contents}.items():
        store.create(folder(issuer, number) + name, data)
    return Delivered(record, number, fresh, doubts)


def confirm(context: IssuerContext, number: int, reason: str) -> Confirmed:
    """Record that the receiving side has a delivery; return the record, an earlier one if there is
    one.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    record = read_document(store, link(deliveries(issuer), number), Delivery)
    if (
        record is None
        or read_if_stored(store, folder(issuer, number) + max(record.files), 0) is None
    ):
        raise NotFoundError(
            place=issuer, what=f"complete delivery {number}", command=f"cardlink deliver {issuer}"
        )
    key, ours = folder(issuer, number) + CONFIRMED, Confirmed(**context.adapters.signed(reason))
    store.create(key, canonical(ours))
    return read_document(store, key, Confirmed) or ours


def folder(issuer: str, number: int) -> str:
    """Return the prefix of a delivery's files."""
    return f"{deliveries(issuer)}{number:06d}/"


def replayed(changes: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return the last change of each link in these deliveries, which come in order."""
    return pl.concat([pl.DataFrame(schema=CHANGED), *changes]).unique(
        LINK, keep="last", maintain_order=True
    )


def delta(
    alive: pl.DataFrame,
    held: pl.DataFrame,
    pending: pl.DataFrame,
    reported: pl.DataFrame,
    today: date,
) -> pl.DataFrame:
    """Return what turns `held`, with or without `pending`, into `alive` (CHANGED): links withdrawn,
    then new ones.

    `reported`: the rows of all reports that still matter.
    """
    back = pl.col("change") == WITHDRAWN
    gone = (
        pl.concat([held, pending.filter(~back)])
        .unique(LINK, keep="first")
        .join(alive, on=LINK, how="anti")
    )
    sure = held.join(pending.filter(back), on=LINK, how="anti")
    fresh = alive.join(sure, on=LINK, how="anti")
    why = (
        pl.when("alive").then(pl.lit("replaced"))
        .when(pl.col("until") < today).then(pl.lit("expired"))
        .when("reported").then(pl.lit("contradicted"))
        .otherwise(pl.lit("no longer reported"))
    )  # fmt: skip
    withdrawn = _marked(_marked(gone, alive, "alive"), reported, "reported").with_columns(
        change=pl.lit(WITHDRAWN), why=why
    )
    added = _marked(fresh, gone, "again").with_columns(
        change=pl.when("again").then(pl.lit("replaced")).otherwise(pl.lit("new")),
        why=pl.when("again")
        .then(pl.lit("replaces a link withdrawn"))
        .otherwise(pl.lit("no other link")),
    )
    return pl.concat(
        [one.select(*CHANGED).sort("cuid", "last_4", "url") for one in (withdrawn, added)]
    )


def _marked(rows: pl.DataFrame, others: pl.DataFrame, name: str) -> pl.DataFrame:
    """Add whether the card of each row is among the others."""
    cards = others.select(CARD).unique().with_columns(pl.lit(value=True).alias(name))
    return rows.join(cards, on=CARD, how="left").with_columns(pl.col(name).fill_null(value=False))


def living(reported: pl.DataFrame, today: date) -> pl.DataFrame:
    """Return the links that can be opened, one a card: the one that lasts longest, of equal ones
    the latest run's.
    """
    usable = reported.filter((pl.col("state") == LINKED) & (pl.col("until") >= today))
    ordered = usable.sort("until", "turn", "url", descending=True)
    return ordered.unique(CARD, keep="first", maintain_order=True).unique(
        LINK, keep="first", maintain_order=True
    )


def _reported(context: IssuerContext, today: date) -> pl.DataFrame:
    """Return the rows of all reports that still matter and the links typed in: REPORTED, until,
    turn of the commit.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    turns = {one.run: turn for turn, one in enumerate(commits_since(store, issuer))}

    def rows(run: Manifest) -> list[pl.DataFrame]:
        keys = keys_of(run.run)
        summary = read_summary(store, keys)
        if summary is None or not is_current(StoredRun(store, keys), today):
            return []
        until, turn = (
            pl.col("expires_on").fill_null(run.as_of + LIFE),
            pl.lit(turns.get(run.run, -1), pl.Int64),
        )
        return [
            part.with_columns(until=until, turn=turn)
            for part in read_rows(store, keys, run.ledger, REPORTED)
        ]

    typed = prompted_links(store, issuer).select(
        *REPORTED, pl.col("expires_on").alias("until"), pl.lit(len(turns), pl.Int64).alias("turn")
    )
    return pl.concat(
        [
            typed,
            *(part for parts in concurrently(rows, with_ledger(store, issuer)) for part in parts),
        ]
    )


def _books(context: IssuerContext) -> _Books:
    """Read what was delivered, and record the receipts that were dropped since."""
    store, issuer = context.adapters.store, context.issuer.issuer
    newest, _ = last_record(store, deliveries(issuer), Delivery)
    places = [link(deliveries(issuer), number) for number in range(1, newest + 1)]
    records = [None, *concurrently(lambda key: read_document(store, key, Delivery), places)]
    base, doubts = _last_confirmed(context, records)
    chain = [base]
    while (one := records[chain[0]]) is not None:
        chain.insert(0, one.after)
    held = replayed(_changes(store, issuer, chain)).filter(pl.col("change") != WITHDRAWN)
    # a superseded delivery counts too: it may have been finished after the one that supersedes it
    superseded = replayed(_changes(store, issuer, range(chain[-2] + 1 if base else 1, base + 1)))
    pending = pl.concat([superseded, *_changes(store, issuer, range(base + 1, newest + 1))])
    return records, base, doubts, held, pending


def _changes(store: Store, issuer: str, numbers: Iterable[int]) -> list[pl.DataFrame]:
    """Return the rows (CHANGED) of these deliveries; nothing of those that were interrupted or
    purged.
    """
    found = concurrently(
        lambda number: read_if_stored(store, folder(issuer, number) + PARQUET), numbers
    )
    return [pl.read_parquet(BytesIO(data)).select(*CHANGED) for data in found if data is not None]


def _last_confirmed(
    context: IssuerContext, records: Sequence[Delivery | None]
) -> tuple[int, tuple[str, ...]]:
    """Return the last confirmed delivery, 0 where there is none, and the receipts that name other
    bytes.
    """
    store, issuer, doubts = context.adapters.store, context.issuer.issuer, list[str]()
    for number, record in reversed([*enumerate(records)][1:]):
        place = folder(issuer, number)
        if read_if_stored(store, place + CONFIRMED, 0) is not None:
            return number, tuple(doubts)
        receipt = read_if_stored(store, place + RECEIVED, RECEIPT)
        if record is None or receipt is None:
            continue
        if {sha256.encode() for sha256 in record.files.values()} <= {
            *_SHA256.findall(receipt.lower())
        }:
            confirm(context, number, "receipt of the receiving side")
            return number, tuple(doubts)
        doubts.append(place + RECEIVED)
    return 0, tuple(doubts)
