"""What the store has of acknowledgements: which of them the issuer has confirmed."""

import re
from datetime import datetime, timedelta

from flows.runs.chains import last_record
from flows.runs.keys import acknowledgements, link
from flows.runs.store import Store
from flows.runs.versions import read_document
from schemas.records import Acknowledgement

# a file that names rows, in the folder of an acknowledgement
TOLD_ROWS = re.compile(
    r"/(?P<folder>\d{6}-[0-9a-f]{8}/)[a-z]+\.(csv|json)(\.pgp)?(?<!/done\.json)$"
)


LOOKED_AT = 50  # acknowledgements, the last ones, among which that of a run is looked for


def rows_told(store: Store, issuer: str, run: str) -> int | None:
    """Return how many rows of a run the issuer was told of last, None where not lately."""
    prefix = acknowledgements(issuer)
    number, record = last_record(store, prefix, Acknowledgement)
    for earlier in range(number - 1, number - 1 - LOOKED_AT, -1):
        if record is None:
            break
        if record.run == run and record.rows:
            return sum(record.rows.values())
        record = read_document(store, link(prefix, earlier), Acknowledgement)
    return None


def confirmations(issuer: str) -> str:
    """Return the prefix of the records that the issuer has an acknowledgement."""
    return f"{acknowledgements(issuer)}confirmed/"


def last_confirmed(store: Store, issuer: str) -> int:
    """Return the number of the last acknowledgement that the issuer has confirmed, or 0."""
    prefix = confirmations(issuer)
    names = [entry.key.removeprefix(prefix) for entry in store.keys(prefix)]
    return max((int(name.removesuffix(".json")) for name in names), default=0)


def first_unconfirmed(
    store: Store, issuer: str, within: timedelta, now: datetime
) -> tuple[int, int, Acknowledgement] | None:
    """Return the first acknowledgement whose receipt is late: its number, that of the last one, and
    its record; None where none is late.
    """
    prefix = acknowledgements(issuer)
    number = last_confirmed(store, issuer) + 1
    first = read_document(store, link(prefix, number), Acknowledgement)
    if first is None or now < first.at + within:
        return None
    last, _ = last_record(store, prefix, Acknowledgement)
    return number, last, first
