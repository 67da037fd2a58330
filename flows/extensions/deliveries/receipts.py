"""Receipts of what was handed over: which there are, and which are late."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Generic, NamedTuple

from sqlalchemy import func, select

from flows.errors import CardlinkError
from flows.extensions.deliveries.handover import Handed, Line, R, place_of, read_handed
from flows.extensions.deliveries.settings import Destination
from flows.runs.context import IssuerContext
from flows.runs.identity import digest
from flows.runs.store import Store, read_if_stored

RECEIVED = "received"  # the receipt that is dropped beside the files
RECEIPT = 1 << 16  # bytes read of one
_SHA256 = re.compile(rb"\b[0-9a-f]{64}\b")


def newest_receipt(
    context: IssuerContext, line: Line[R], settings: Destination, sent: Sequence[Handed[R]]
) -> tuple[int, tuple[str, ...]]:
    """Return the number of the last one whose receipt names the SHA-256 of all of its files, in
    clear or as sealed, 0 where there is none; and the receipts of later ones, which name others.

    Receipts are dropped beside the files in the store, or where they are taken. A place that
    cannot be read has none: whoever hands files over there says so. `sent`: the first first.
    """
    store = context.adapters.store
    place: Store | None = None
    with suppress(CardlinkError):
        place = place_of(context, settings)
    doubts: list[str] = []
    for each in reversed(sent):
        own = line.folder(each.number) + RECEIVED
        texts = [read_if_stored(store, own, RECEIPT)]
        try:
            if place is not None:
                there = line.place(each.number) + RECEIVED
                texts.append(read_if_stored(place, there, RECEIPT))
        except CardlinkError:
            place = None
        if texts.count(None) == len(texts):
            continue
        receipts = b" ".join(filter(None, texts)).lower()
        named = {sha256.decode() for sha256 in _SHA256.findall(receipts)}
        if any(sums and sums <= named for sums in _sums(store, line, each)):
            return each.number, tuple(doubts)
        doubts.append(own)
    return 0, tuple(doubts)


def _sums(store: Store, line: Line[R], sent: Handed[R]) -> Iterator[set[str]]:
    """Yield the sums of all files, in clear and as sealed; none where they are in doubt."""
    if not sent.is_done:
        return
    yield set(sent.record.files.values())
    if sent.record.sealed_to is not None:
        folder = line.folder(sent.number)
        contents = [read_if_stored(store, folder + name) for name in sent.record.names]
        if None not in contents:
            yield {digest(content) for content in contents if content is not None}


class Late(NamedTuple, Generic[R]):
    """The first one that is not confirmed in time, and the number of the last."""

    first: int
    last: int
    record: R


def late_receipt(
    context: IssuerContext, line: Line[R], settings: Destination, now: datetime
) -> Late[R] | None:
    """Return what was not confirmed in time since the last one that was; None where none is late.

    A receipt counts for those before it, too.
    """
    if settings.receipt_within_hours is None:
        return None
    column = line.table.c
    is_confirmed = column.confirmed_at.is_not(None)
    with context.adapters.database.snapshot() as connection:
        last = select(func.max(column.number)).where(*line.rows(is_confirmed))
        is_later = column.number > (connection.scalar(last) or 0)
        sent = read_handed(connection, line, is_later, column.done_at.is_not(None))
    within = timedelta(hours=settings.receipt_within_hours)
    if not sent or now < sent[0].record.at + within:
        return None
    return Late(sent[0].number, sent[-1].number, sent[0].record)
