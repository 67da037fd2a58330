"""What an issuer was told of its extracts: its acknowledgements, each a row and a folder of files.

What was told last of each run or file that is still open stands in the row of that acknowledgement
(`says`), and nowhere else.
"""

import re
from datetime import datetime, timedelta

from sqlalchemy import func, select

from flows.runs.adapters import Adapters
from flows.runs.handovers import Handed, Line, handed, last_handed
from schemas.database import ACKNOWLEDGEMENT
from schemas.records import Acknowledgement

NOTICE = "done.json"  # written last: whoever reads takes only folders that have it
# a file that names rows, in the folder of an acknowledgement
TOLD_ROWS = re.compile(
    r"/(?P<folder>\d{6}-[0-9a-f]{8}/)[a-z]+\.(csv|json)(\.pgp)?(?<!/done\.json)$"
)


def acknowledgements_to(issuer: str) -> Line[Acknowledgement]:
    """Return the acknowledgements to an issuer."""
    return Line(issuer, ACKNOWLEDGEMENT, Acknowledgement, {})


def told_last(adapters: Adapters, issuer: str) -> dict[str, str]:
    """Return what was told last of each run or file that is still open, by digest."""
    row_of = ACKNOWLEDGEMENT.c
    query = select(row_of.subject, row_of.says).where(
        row_of.issuer == issuer, row_of.says.is_not(None)
    )
    with adapters.database.snapshot() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def runs_by_folder(adapters: Adapters, issuer: str) -> dict[str, str]:
    """Return the run of which each acknowledgement told, "" for none, by its folder."""
    row_of = ACKNOWLEDGEMENT.c
    query = select(row_of.folder, row_of.run).where(row_of.issuer == issuer)
    with adapters.database.snapshot() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def rows_told(adapters: Adapters, issuer: str, run: str) -> int | None:
    """Return of how many rows of a run the issuer was told last; None where it was of none."""
    row = ACKNOWLEDGEMENT.c
    query = select(row.rows).where(row.issuer == issuer, row.run == run, row.done_at.is_not(None))
    with adapters.database.snapshot() as connection:
        newest_first = connection.execute(query.order_by(row.number.desc())).scalars()
        counts = next((rows for rows in newest_first if rows), None)
    return sum(counts.values()) if counts else None


def last_confirmed(adapters: Adapters, issuer: str) -> int:
    """Return the number of the last acknowledgement that the issuer has confirmed, or 0."""
    row = ACKNOWLEDGEMENT.c
    query = select(func.max(row.number)).where(row.issuer == issuer, row.confirmed_at.is_not(None))
    with adapters.database.snapshot() as connection:
        return connection.execute(query).scalar() or 0


def first_unconfirmed(
    adapters: Adapters, issuer: str, within: timedelta, now: datetime
) -> tuple[int, int, Acknowledgement] | None:
    """Return the first acknowledgement whose receipt is late: its number, that of the last one, and
    its record; None where none is late.
    """
    row = ACKNOWLEDGEMENT.c
    later = (row.number > last_confirmed(adapters, issuer), row.done_at.is_not(None))
    ends = select(func.min(row.number), func.max(row.number)).where(row.issuer == issuer, *later)
    with adapters.database.snapshot() as connection:
        first, last = connection.execute(ends).one()
    late = handed(adapters, acknowledgements_to(issuer), first) if first else None
    if late is None or now < late.record.at + within:
        return None
    return first, last, late.record


def half_told(adapters: Adapters, issuer: str) -> Handed[Acknowledgement] | None:
    """Return the last acknowledgement where it is not complete, so that nobody takes it, and what
    it tells was not told again.
    """
    last = last_handed(adapters, acknowledgements_to(issuer))
    if last is None or last.is_done or last.row["says"] is None:
        return None
    return last
