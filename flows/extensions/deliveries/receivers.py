"""The receivers of an issuer: who there is, and what each has so far.

That is replayed from its confirmed deliveries, and the receipts it dropped. Deliveries may be
confirmed in any order: the newest that is confirmed counts, and what was delivered before or after
it may have been applied as well; before it, also after it where it was confirmed after it.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import polars as pl

from flows.errors import OperatorError
from flows.extensions.deliveries.changes import replayed
from flows.extensions.deliveries.delivered import (
    WITHDRAWN,
    DeliveryId,
    delivered_links_key,
    line_of,
    read_changes,
    receivers_with_deliveries,
)
from flows.extensions.deliveries.formats import Confirmed, Delivery
from flows.extensions.deliveries.handover import Handed, confirm_handed, read_handed
from flows.extensions.deliveries.receipts import newest_receipt
from flows.extensions.deliveries.settings import DEFAULT, receivers_in, settings_of
from flows.extensions.deliveries.tables import DELIVERY_CHANGE
from flows.runs.context import IssuerContext
from flows.steps import Option, Sentence, Step


class NoReceiverError(OperatorError):
    """A receiver was named that has no table in the issuer's TOML."""

    message = "{issuer} has no receiver {receiver}. Its receivers: {receivers}."
    next_step = "Name one of these, or write the table [deliveries.{receiver}] into its TOML."


class WhichReceiverError(OperatorError):
    """A delivery was to be confirmed, and there are several receivers."""

    message = "{issuer} has several receivers, each with deliveries of its own: {receivers}."
    next_step = Sentence(
        "Name the receiver after the issuer, before {option}.", option=Option("--confirm")
    )


def receivers_of(context: IssuerContext, named: str = "") -> list[str]:
    """Return the receivers of an issuer in order, or the one that is named; NoReceiverError.

    The default one is among them where it has a table, where nobody else has, and where it has
    deliveries already, whose links must still be withdrawn.
    """
    configured = list(receivers_in(context.issuer))
    receivers = configured
    if DEFAULT not in configured and (not configured or has_default(context)):
        receivers = [DEFAULT, *configured]
    if not named:
        return receivers
    if named not in receivers:
        raise NoReceiverError(
            issuer=context.issuer.issuer, receiver=named, receivers=", ".join(receivers)
        )
    return [named]


def has_default(context: IssuerContext) -> bool:
    """Return whether the default receiver has deliveries."""
    return DEFAULT in receivers_with_deliveries(context.adapters, context.issuer.issuer)


def without_table(context: IssuerContext) -> list[str]:
    """Return the receivers that have deliveries and no table any more: nothing is withdrawn."""
    stored = receivers_with_deliveries(context.adapters, context.issuer.issuer)
    return [name for name in stored if name not in {DEFAULT, *receivers_in(context.issuer)}]


def only_one(context: IssuerContext, named: str) -> str:
    """Return whose delivery is meant; WhichReceiverError where that is not said."""
    receivers: Sequence[str] = receivers_of(context, named)
    if len(receivers) > 1:
        raise WhichReceiverError(issuer=context.issuer.issuer, receivers=", ".join(receivers))
    return receivers[0]


class DeliveredSoFar(NamedTuple):
    """What was delivered to a receiver so far.

    `last` is the last delivery, None where there is none, `base` the number of the last confirmed
    one, or 0. `delivered` are the links that the receiver has, `unconfirmed` the changes that it
    may have applied without confirming them, `later` those of them after `base`. `doubts` are
    receipts that name other bytes.
    """

    last: Handed[Delivery] | None
    base: int
    doubts: tuple[str, ...]
    delivered: pl.DataFrame
    unconfirmed: pl.DataFrame
    later: pl.DataFrame


def delivered_so_far(context: IssuerContext, receiver: str) -> DeliveredSoFar:
    """Read what was delivered to a receiver, and record the receipts that were dropped since."""
    issuer = context.issuer.issuer
    with context.adapters.database.snapshot() as connection:
        deliveries = read_handed(connection, line_of(issuer, receiver))
        known = read_changes(connection, issuer, DELIVERY_CHANGE.c.receiver == receiver)
    number = pl.col("delivery")
    known = known.filter(~number.is_in(_never_written(context, receiver, deliveries)))
    confirmations, doubts = _confirmations(context, receiver, deliveries)
    base = max(confirmations, default=0)
    confirmed = _confirmed_numbers({each.number: each.record for each in deliveries}, base)
    applied = replayed(known.filter(number.is_in(confirmed)))
    # a superseded delivery counts too: it may have been finished after the one that supersedes it
    first_superseded = confirmed[-2] + 1 if base else 1
    superseded = replayed(known.filter(number.is_between(first_superseded, base)))
    late = _confirmed_after(confirmations, range(first_superseded, base), base)
    brought_back = known.filter(number.is_in(late))
    later = known.filter(number > base)
    return DeliveredSoFar(
        deliveries[-1] if deliveries else None,
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
    issuer = context.issuer.issuer
    listing = Step("deliver", issuer, receiver if receiver != DEFAULT else "", dry_run=True)
    return confirm_handed(context, line_of(issuer, receiver), number, reason, listing)


def _never_written(
    context: IssuerContext, receiver: str, deliveries: Collection[Handed[Delivery]]
) -> list[int]:
    """Return the deliveries whose process died before it wrote their links, or any file."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    begun = [each.number for each in deliveries if not each.is_done]
    return [
        number
        for number in begun
        if delivered_links_key(store, issuer, DeliveryId(receiver, number)) is None
    ]


def _confirmations(
    context: IssuerContext, receiver: str, deliveries: Collection[Handed[Delivery]]
) -> tuple[Mapping[int, Confirmed], tuple[str, ...]]:
    """Return who confirmed each delivery, by number, and the receipts in doubt.

    A receipt that names the bytes of all files confirms its delivery; in doubt is one that does
    not. Those that came before the last confirmed delivery are not looked for.
    """
    confirmations = {each.number: each.confirmed for each in deliveries if each.confirmed}
    base = max(confirmations, default=0)
    unconfirmed = [each for each in deliveries if each.number > base]
    line = line_of(context.issuer.issuer, receiver)
    settings = settings_of(context.issuer, receiver)
    number, doubts = newest_receipt(context, line, settings, unconfirmed)
    if number:
        receipt = confirm(context, number, "receipt of the receiving side", receiver)
        confirmations[number] = receipt
    return confirmations, doubts


def _confirmed_after(
    confirmations: Mapping[int, Confirmed], superseded: Collection[int], base: int
) -> list[int]:
    """Return the superseded deliveries that were confirmed after `base`: applied after it, perhaps,
    so that links are back which it withdrew.
    """
    moments = {number: each.at for number, each in confirmations.items() if number in superseded}
    return [number for number, time in moments.items() if time >= confirmations[base].at]


def _confirmed_numbers(deliveries: Mapping[int, Delivery], base: int) -> list[int]:
    """Return the numbers of the confirmed deliveries from 0 (none) to the last, `base`."""
    numbers = [base]
    while numbers[-1]:
        numbers.append(deliveries[numbers[-1]].after)
    return numbers[::-1]
