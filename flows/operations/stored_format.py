"""Put the newest format of what is stored in force, once nobody means to go back any more."""

from __future__ import annotations

from typing import NamedTuple

from flows.runs.chains import add_next
from flows.runs.context import IssuerContext
from flows.runs.formats import NEWEST, Change, brought_by, format_in_force
from flows.runs.keys import formats
from schemas.records import FormatInForce


class Upgraded(NamedTuple):
    """The format that was in force before, and what those behind it bring."""

    before: int
    changes: list[Change]


def upgrade_format(context: IssuerContext, reason: str) -> Upgraded:
    """Record that what is stored of an issuer is written in the newest format from now on.

    One record a format, so that a command that was stopped is finished by its repetition, and what
    a concurrent process recorded counts as well. NoReasonError, NewerStoreError.
    """
    adapters = context.adapters
    issuer = context.issuer.issuer
    before = format_in_force(adapters.store, issuer)
    signed = adapters.signed(reason)
    changes = brought_by(before)
    for number in range(before + 1, NEWEST + 1):
        release = next(change.release for change in changes if change.number == number)
        record = FormatInForce(**signed, number=number, release=release)
        add_next(adapters.store, formats(issuer), number, record)
    return Upgraded(before, changes)
