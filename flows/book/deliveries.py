"""The changes of all deliveries of links, each link by its digest, and which links they leave.

They are kept with the stages (`kept_stages.py`), so whoever delivers, or asks what was delivered,
opens no delivery of earlier days.
"""

from collections.abc import Mapping
from datetime import datetime
from io import BytesIO
from typing import NamedTuple

import polars as pl
from pydantic import BaseModel, ConfigDict

from flows.book.known_rows import link_digest
from flows.runs.chains import last_record
from flows.runs.delivered import read_delivered_links
from flows.runs.identity import digest
from flows.runs.keys import deliveries, link
from flows.runs.single_links import ARRIVED
from flows.runs.store import Store
from flows.runs.threads import concurrently
from flows.runs.versions import read_document
from schemas.records import Delivery

LOOK = ("cuid", "last_4", "expiration")  # of a card, as a delivery has it
ROW = ("run", "row")  # that a link came of; null in deliveries of earlier versions
WITHDRAWN = "withdrawn"
CHANGE = pl.Schema(
    {
        "delivery": pl.UInt32(),
        "run": pl.String(),
        "row": pl.UInt32(),
        **dict.fromkeys(LOOK, pl.String()),
        "link": pl.UInt64(),  # the digest of its URL
        "change": pl.String(),
        "until": pl.Date(),
        "at": ARRIVED,  # when the delivery was made
    }
)
DELIVERED_LINK = pl.Schema(
    {
        "run": pl.String(),
        "row": pl.UInt32(),
        **dict.fromkeys(LOOK, pl.String()),
        "until": pl.Date(),
        "delivered": ARRIVED,
    }
)


class KnownDelivery(BaseModel):
    """What is kept of a delivery: its record, and the stored `objects` that it was read from.

    `after`: the delivery that it goes on from. `at`: None where its record is gone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    objects: str
    at: datetime | None = None
    after: int = 0


class Deliveries(NamedTuple):
    """The deliveries by number, and their changes in order (CHANGE), those purged apart."""

    known: Mapping[int, KnownDelivery]
    changes: pl.DataFrame


NO_DELIVERIES = Deliveries({}, pl.DataFrame(schema=CHANGE))


def read_deliveries(store: Store, issuer: str, kept: Deliveries) -> Deliveries:
    """Return all deliveries, from what is kept and from those that are others than they were."""
    listed = _listed(store, issuer)
    newest, _ = last_record(store, deliveries(issuer), Delivery)
    numbers = sorted({*listed, *range(1, newest + 1)})
    stay = [number for number in numbers if _fits(kept.known.get(number), listed.get(number))]
    if numbers == stay == list(kept.known):
        return kept
    new = sorted(set(numbers).difference(stay))
    read = concurrently(lambda number: _read_one(store, issuer, number), new)
    known = {number: kept.known[number] for number in stay}
    for number, (record, _) in zip(new, read, strict=True):
        known[number] = _known(record, listed.get(number, ""))
    changes = [kept.changes.filter(pl.col("delivery").is_in(stay)), *(frame for _, frame in read)]
    in_order = pl.concat(changes).sort("delivery", maintain_order=True)
    return Deliveries(dict(sorted(known.items())), in_order)


def _fits(known: KnownDelivery | None, objects: str | None) -> bool:
    """Return whether a delivery was read from the objects that are listed of it now."""
    return known is not None and bool(objects) and known.objects == objects


def _known(record: Delivery | None, objects: str) -> KnownDelivery:
    if record is None:
        return KnownDelivery(objects=objects)
    return KnownDelivery(objects=objects, at=record.at, after=record.after)


def _listed(store: Store, issuer: str) -> dict[int, str]:
    """Return a digest of the objects of each delivery, as they are listed, by its number."""
    chain = deliveries(issuer)
    objects = dict[int, list[str]]()
    for entry in store.keys(chain):
        number = entry.key.removeprefix(chain)[:6]
        if number.isdecimal():
            line = f"{entry.key} {entry.size} {entry.version}"
            objects.setdefault(int(number), []).append(line)
    return {number: digest("\n".join(lines).encode()) for number, lines in objects.items()}


def _read_one(store: Store, issuer: str, number: int) -> tuple[Delivery | None, pl.DataFrame]:
    """Return the record of a delivery, and its changes (CHANGE)."""
    record = read_document(store, link(deliveries(issuer), number), Delivery)
    content = read_delivered_links(store, issuer, number)
    if content is None:
        return record, NO_DELIVERIES.changes
    stored = pl.read_parquet(BytesIO(content))
    lacking = [name for name in ROW if name not in stored.columns]
    changes = stored.with_columns(
        *(pl.lit(None, CHANGE[name]).alias(name) for name in lacking),
        delivery=pl.lit(number, pl.UInt32),
        link=link_digest(pl.col("url")),
        at=pl.lit(record.at if record is not None else None, ARRIVED),
    )
    return record, changes.select(*CHANGE).cast(CHANGE)


def delivered_links(changes: pl.DataFrame) -> pl.DataFrame:
    """Return the links that were delivered and not withdrawn since, and when first.

    `changes`: those of all deliveries in order (CHANGE). Of those of one row, or without a row of
    one look, that end on the same day the first.
    """
    links = changes.group_by("cuid", "link", maintain_order=True).agg(
        pl.col(*ROW, *LOOK[1:], "until", "change").last(),
        delivered=pl.col("at").filter(pl.col("change") != WITHDRAWN).first(),
    )
    standing = links.filter(pl.col("change") != WITHDRAWN).sort("delivered")
    once = standing.unique([*ROW, *LOOK, "until"], keep="first", maintain_order=True)
    return once.select(*DELIVERED_LINK).cast(DELIVERED_LINK)
