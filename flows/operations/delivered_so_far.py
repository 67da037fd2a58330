"""What a receiver has so far: replayed from its confirmed deliveries, and the receipts it dropped.

Deliveries may be confirmed in any order: the newest that is confirmed counts, and what was
delivered before or after it may have been applied as well; before it, also after it where it was
confirmed after it.
"""

from collections.abc import Collection, Iterable
from contextlib import suppress
from datetime import datetime
from typing import NamedTuple

import polars as pl

from flows.book.deliveries import WITHDRAWN, Deliveries, with_chain
from flows.errors import CardlinkError
from flows.operations.handing_over import digests_in_receipts
from flows.operations.link_changes import replayed
from flows.operations.receivers import settings_of
from flows.runs.context import IssuerContext
from flows.runs.delivered import (
    CONFIRMED,
    RECEIVED,
    DeliveryId,
    delivery_folder,
    delivery_key,
    last_delivery,
)
from flows.runs.documents import read_document
from flows.runs.errors import NotFoundError
from flows.runs.identity import canonical, digest
from flows.runs.store import Store, is_stored, read_if_stored
from flows.steps import Step
from schemas.handover import DEFAULT
from schemas.records import Confirmed, Delivery


class DeliveredSoFar(NamedTuple):
    """What was delivered to a receiver so far.

    `newest` is the number of the last delivery (0: none) and `last` its record, `base` is the last
    confirmed one. `delivered` are the links that the receiver has, `unconfirmed` the changes that
    it may have applied without confirming them, `later` those of them after `base`. `doubts` are
    receipts that name other bytes.
    """

    newest: int
    last: Delivery | None
    base: int
    doubts: tuple[str, ...]
    delivered: pl.DataFrame
    unconfirmed: pl.DataFrame
    later: pl.DataFrame


def place_below(issuer: str, id_: DeliveryId) -> str:
    """Return the folder of a delivery where its receiver takes it."""
    return f"{issuer}/{id_.receiver}/{id_.number:06d}/"


def delivered_so_far(context: IssuerContext, receiver: str, known: Deliveries) -> DeliveredSoFar:
    """Read what was delivered to a receiver, and record the receipts that were dropped since."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    known = with_chain(store, issuer, receiver, known)
    newest, last = last_delivery(store, issuer, receiver)
    base, doubts = _last_confirmed(context, receiver, newest)
    confirmed = _confirmed_numbers(known, receiver, base)
    number = pl.col("delivery")
    applied = replayed(known.changes.filter(number.is_in(confirmed)))
    # a superseded delivery counts too: it may have been finished after the one that supersedes it
    first_superseded = confirmed[-2] + 1 if base else 1
    superseded = replayed(known.changes.filter(number.is_between(first_superseded, base)))
    late = _confirmed_after(context, receiver, range(first_superseded, base), base)
    brought_back = known.changes.filter(number.is_in(late))
    later = known.changes.filter(number > base)
    return DeliveredSoFar(
        newest,
        last,
        base,
        doubts,
        delivered=applied.filter(pl.col("change") != WITHDRAWN),
        unconfirmed=pl.concat([superseded, brought_back, later]),
        later=later,
    )


def confirm(context: IssuerContext, number: int, reason: str, receiver: str = DEFAULT) -> Confirmed:
    """Record that a receiver has a delivery; return the record, an earlier one if any.

    Raises NotFoundError where the delivery is not complete, NoReasonError.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    folder = delivery_folder(issuer, number, receiver)
    record = read_document(store, delivery_key(issuer, DeliveryId(receiver, number)), Delivery)
    if record is None or not is_stored(store, folder + max(record.names)):
        named = receiver if receiver != DEFAULT else ""
        raise NotFoundError(
            place=issuer,
            what=f"complete delivery {number}{f' to {named}' if named else ''}",
            command=Step("deliver", issuer, named, dry_run=True),
        )
    confirmed = Confirmed(**context.adapters.signed(reason))
    store.create(folder + CONFIRMED, canonical(confirmed))
    return read_document(store, folder + CONFIRMED, Confirmed) or confirmed


def _confirmed_after(
    context: IssuerContext, receiver: str, superseded: Iterable[int], base: int
) -> list[int]:
    """Return the superseded deliveries that were confirmed after `base`: applied after it, perhaps,
    so that links are back which it withdrew.
    """

    def moment(number: int) -> datetime | None:
        folder = delivery_folder(context.issuer.issuer, number, receiver)
        confirmed = read_document(context.adapters.store, folder + CONFIRMED, Confirmed)
        return confirmed.at if confirmed is not None else None

    moments = {number: moment(number) for number in superseded}
    last = moment(base) if any(moments.values()) else None
    if last is None:
        return []
    return [number for number, time in moments.items() if time is not None and time >= last]


def _confirmed_numbers(known: Deliveries, receiver: str, base: int) -> list[int]:
    """Return the numbers of the confirmed deliveries from 0 (none) to the last, `base`."""
    numbers = [base]
    while (earlier := known.known.get(DeliveryId(receiver, numbers[-1]))) is not None:
        numbers.append(earlier.after)
    return numbers[::-1]


def _last_confirmed(
    context: IssuerContext, receiver: str, newest: int
) -> tuple[int, tuple[str, ...]]:
    """Return the last confirmed delivery, 0 where there is none, and the receipts in doubt.

    A receipt that names the bytes of all files confirms its delivery; in doubt is one that does
    not.
    """
    store = context.adapters.store
    issuer = context.issuer.issuer
    receipts = _Receipts(context, receiver)
    doubts: list[str] = []
    for number in range(newest, 0, -1):
        folder = delivery_folder(issuer, number, receiver)
        if is_stored(store, folder + CONFIRMED):
            return number, tuple(doubts)
        named = receipts.digests(number)
        if named is None:
            continue
        if receipts.is_of(number, named):
            confirm(context, number, "receipt of the receiving side", receiver)
            return number, tuple(doubts)
        doubts.append(folder + RECEIVED)
    return 0, tuple(doubts)


class _Receipts:
    """The receipts of a receiver: beside the files in the store, or where it takes them.

    A place that cannot be read has none: whoever hands files over there says so.
    """

    def __init__(self, context: IssuerContext, receiver: str) -> None:
        self._store = context.adapters.store
        self._issuer = context.issuer.issuer
        self._receiver = receiver
        self._place: Store | None = None
        with suppress(CardlinkError):
            self._place = context.place_of(settings_of(context.issuer, receiver))

    def digests(self, number: int) -> set[str] | None:
        """Return the SHA-256 sums that the receipts of a delivery name; None without any."""
        id_ = DeliveryId(self._receiver, number)
        own = delivery_folder(self._issuer, number, self._receiver) + RECEIVED
        elsewhere = place_below(self._issuer, id_) + RECEIVED
        try:
            return digests_in_receipts([(self._store, own), (self._place, elsewhere)])
        except CardlinkError:
            if self._place is None:
                raise
            self._place = None
        return digests_in_receipts([(self._store, own)])

    def is_of(self, number: int, named: Collection[str]) -> bool:
        """Return whether these are the sums of all files of a delivery, in clear or as sealed."""
        id_ = DeliveryId(self._receiver, number)
        record = read_document(self._store, delivery_key(self._issuer, id_), Delivery)
        if record is None:
            return False
        return any(
            sums and sums.issubset(named)
            for sums in (set(record.files.values()), self._sums_of_sealed(id_, record))
        )

    def _sums_of_sealed(self, id_: DeliveryId, record: Delivery) -> set[str]:
        """Return the sums of the sealed files; none where they are in clear or not all there."""
        if record.sealed_to is None:
            return set()
        folder = delivery_folder(self._issuer, id_.number, id_.receiver)
        contents = [read_if_stored(self._store, folder + name) for name in record.names]
        sums = {digest(content) for content in contents if content is not None}
        return sums if None not in contents else set()
