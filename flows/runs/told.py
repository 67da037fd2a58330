"""What the store has of acknowledgements: the rows of a run that the issuer was told of last, and
which of them it has confirmed.

The rows are carried on: `book/acknowledged.json` has them up to one record of the chain, so that
only what came after it is read. It is derived: where it is missing, or names a record that is not
there, the whole chain is read once.
"""

import re
from contextlib import suppress
from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict, ValidationError

from flows.runs.chains import last_record, records, whole_chain
from flows.runs.documents import read_document
from flows.runs.identity import canonical
from flows.runs.keys import acknowledgements, book, link
from flows.runs.store import Store, read_if_stored
from schemas.records import Acknowledgement

DONE = "done.json"  # the record again, written last: whoever reads takes only folders that have it
# a file that names rows, in the folder of an acknowledgement
TOLD_ROWS = re.compile(
    r"/(?P<folder>\d{6}-[0-9a-f]{8}/)[a-z]+\.(csv|json)(\.pgp)?(?<!/done\.json)$"
)


class RowsTold(BaseModel):
    """Rows that an issuer was told of last, by run: of the acknowledgements up to number `until`,
    which is in `folder`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    until: int = 0
    folder: str = ""
    rows: dict[str, int] = {}

    def after(self, record: Acknowledgement) -> "RowsTold":
        """Return it with the next acknowledgement."""
        rows = self.rows
        if record.rows:
            rows = {**rows, record.run: sum(record.rows.values())}
        return RowsTold(until=self.until + 1, folder=record.folder, rows=rows)


def rows_told(store: Store, issuer: str) -> RowsTold:
    """Return how many rows of each run the issuer was told of last."""
    prefix = acknowledgements(issuer)
    known = _carried_on(store, issuer)
    last = read_document(store, link(prefix, known.until), Acknowledgement)
    if last is not None and last.folder == known.folder:
        news = list(records(store, prefix, Acknowledgement, known.until + 1))
    else:
        known = RowsTold()
        news = whole_chain(store, prefix, Acknowledgement)
    for record in news:
        known = known.after(record)
    return known


def carry_on(store: Store, issuer: str) -> None:
    """Keep how many rows of each run the issuer was told of, so that nobody reads them again."""
    store.replace(_key(issuer), [canonical(rows_told(store, issuer))])


def _carried_on(store: Store, issuer: str) -> RowsTold:
    content = read_if_stored(store, _key(issuer))
    with suppress(ValidationError):
        return RowsTold.model_validate_json(content or b"{}")
    return RowsTold()


def _key(issuer: str) -> str:
    return f"{book(issuer)}acknowledged.json"


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
