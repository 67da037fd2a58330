"""The journal as the store has it: segments, from which a lost database is rebuilt.

Before anything is done outside, the entries since the last segment are stored. So a database that
is older than its store, a copy of another, or none at all is known by what the store shows: a later
number, or another incarnation. What begins a new incarnation: the first segment, and `recover`.
"""

import re
import secrets
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, func, select, update

from flows.errors import OperatorError
from flows.runs.adapters import Adapters
from flows.runs.documents import read_facts
from flows.runs.identity import canonical
from flows.runs.journal import Act, enter, plain
from flows.runs.keys import journal
from flows.runs.overlay import Overlay
from flows.runs.store import Store
from flows.steps import WHY, Sentence, Slot, Step
from schemas.database import ISSUER, JOURNAL

FOLDER: Final = 1000  # entries in a folder, so that the last segment takes short listings
_SEGMENT = re.compile(
    r".*/journal/(?P<incarnation>\d{4}-[0-9a-f]{8})/\d{4,}/(?P<last>\d{6,})\.json"
)


class OtherJournalError(OperatorError):
    """A database that is not the one that the store was last written with."""

    message = (
        "The database of {issuer} ({place}) is not the one that its store was last written with: "
        "{why}. Nothing was done."
    )
    next_step = Sentence(
        "Check that `root` and CARDLINK_DATABASE_URL are the right ones. If they are, put the "
        "newest database in its place; where there is none: {recover}.",
        recover=Step("recover", Slot("issuer"), reason=WHY),
    )


class Position(NamedTuple):
    """An incarnation of a journal ("" before the first), and the number of an entry."""

    incarnation: str
    number: int


class Known(NamedTuple):
    """What the database has: its incarnation, the last entry in a segment, the last of all."""

    incarnation: str
    stored: int
    last: int


def flush_journal(adapters: Adapters, issuer: str) -> None:
    """Store the entries of an issuer's journal that are in no segment, before something is done
    outside.

    Nothing in a dry run. OtherJournalError.
    """
    if isinstance(adapters.store, Overlay):
        return
    known = refuse_other_journal(adapters, issuer)
    if known.last == known.stored:
        return
    if not known.incarnation:
        begin_incarnation(adapters, issuer, "incarnation begun", "")
        known = _known(adapters, issuer)
    store_segment(adapters, issuer, Position(known.incarnation, known.stored))


def store_segment(adapters: Adapters, issuer: str, after: Position) -> None:
    """Store the entries after one of them as a segment; nothing where there are none."""
    entries = entries_after(adapters, issuer, after.number)
    if not entries:  # a concurrent process was first
        return
    last = entries[-1]["number"]
    key = _key(issuer, Position(after.incarnation, last))
    if not adapters.store.create(key, canonical({"entries": entries})):
        refuse_other_journal(adapters, issuer)  # else another process has stored the same

    def note(connection: Connection) -> None:
        row = ISSUER.c.issuer == issuer
        later = func.coalesce(ISSUER.c.stored, 0) < last
        connection.execute(update(ISSUER).where(row, later).values(stored=last))

    adapters.database.act(issuer, note)


def refuse_other_journal(adapters: Adapters, issuer: str) -> Known:
    """Refuse a database that is not the one that the store was last written with; return what it
    has.

    What looks different because others enter and store something meanwhile is looked at again.
    OtherJournalError.
    """
    while True:
        known = _known(adapters, issuer)
        why = _difference(adapters, issuer, known)
        if not why:
            return known
        if known == _known(adapters, issuer):
            raise OtherJournalError(issuer=issuer, place=adapters.database.place, why=why)


def begin_incarnation(
    adapters: Adapters, issuer: str, act_name: str, before: str, reason: str = "", **facts: Any
) -> None:
    """Begin an incarnation after all those that the store shows, unless another has begun one since
    that was `before`.
    """
    newest = last_stored(adapters.store, issuer).incarnation
    incarnation = f"{int(newest[:4] or '0') + 1:04d}-{secrets.token_hex(4)}"

    def begin(act: Act) -> None:
        row = ISSUER.c.issuer == issuer
        current = act.connection.execute(select(ISSUER.c.incarnation).where(row)).scalar()
        if (current or "") != before:
            return
        act.facts |= {"incarnation": incarnation, **facts}
        act.connection.execute(update(ISSUER).where(row).values(incarnation=incarnation))

    enter(adapters, issuer, act_name, begin, reason=reason)


def incarnation_of(adapters: Adapters, issuer: str) -> str:
    """Return the incarnation of the database's journal, "" before the first."""
    return _known(adapters, issuer).incarnation


def entries_after(adapters: Adapters, issuer: str, number: int) -> list[dict[str, Any]]:
    """Return the whole entries of a journal after a number, as segments have them."""
    query = select(JOURNAL).where(JOURNAL.c.issuer == issuer, JOURNAL.c.number > number)
    with adapters.database.snapshot() as connection:
        rows = connection.execute(query.order_by(JOURNAL.c.number)).mappings().all()
    return [plain(dict(row)) for row in rows]


def last_stored(store: Store, issuer: str) -> Position:
    """Return the last segment of the newest incarnation that the store shows."""
    folder = journal(issuer)
    for _ in range(2):  # the newest incarnation, its last folder
        folder = max((entry.key for entry in store.keys(folder, shallow=True)), default=folder)
    keys = (_SEGMENT.fullmatch(entry.key) for entry in store.keys(folder))
    positions = [Position(key["incarnation"], int(key["last"])) for key in keys if key]
    return max(positions, default=Position("", 0))


def stored_entries(store: Store, issuer: str) -> dict[int, Mapping[str, Any]]:
    """Return the entries of all segments, by number.

    Where an incarnation begins, what others have entered in an earlier one from there on is none.
    """
    entries = dict[int, Mapping[str, Any]]()
    current = ""
    matches = (_SEGMENT.fullmatch(listed.key) for listed in store.keys(journal(issuer)))
    for match in filter(None, matches):
        segment = read_facts(store, match[0])
        of_segment = segment["entries"] if segment else []
        if match["incarnation"] != current and of_segment:
            current = match["incarnation"]
            first = of_segment[0]["number"]
            entries = {number: entry for number, entry in entries.items() if number < first}
        entries |= {entry["number"]: entry for entry in of_segment}
    return entries


def _key(issuer: str, last: Position) -> str:
    """Return the key of the segment that ends with an entry."""
    folder = f"{last.number // FOLDER:04d}"
    return f"{journal(issuer)}{last.incarnation}/{folder}/{last.number:06d}.json"


def _known(adapters: Adapters, issuer: str) -> Known:
    row_of_issuer = select(ISSUER.c.incarnation, ISSUER.c.stored).where(ISSUER.c.issuer == issuer)
    last = select(func.max(JOURNAL.c.number)).where(JOURNAL.c.issuer == issuer)
    with adapters.database.snapshot() as connection:
        row = connection.execute(row_of_issuer).first()
        incarnation, stored = row or (None, None)
        return Known(incarnation or "", stored or 0, connection.execute(last).scalar() or 0)


def _difference(adapters: Adapters, issuer: str, known: Known) -> str:
    """Return how the store's journal is not that of the database, "" where it is."""
    shown = last_stored(adapters.store, issuer)
    if shown.incarnation != known.incarnation and (shown.incarnation or known.stored):
        incarnations = (shown.incarnation, known.incarnation)
        names = [f"journal {each}" if each else "no journal" for each in incarnations]
        return "the store has {}, the database has {}".format(*names)
    if shown.number > known.last:
        return f"the store has entries up to {shown.number:,}, the database up to {known.last:,}"
    if shown.number > known.stored and not _is_own(adapters, issuer, shown):
        return f"entry {shown.number:,} in the store is another one than in the database"
    return ""


def _is_own(adapters: Adapters, issuer: str, shown: Position) -> bool:
    """Return whether a segment that the database has not noted ends with an entry of its own."""
    segment = read_facts(adapters.store, _key(issuer, shown))
    sha256 = segment["entries"][-1]["digest"] if segment else ""
    is_it = (JOURNAL.c.issuer == issuer) & (JOURNAL.c.number == shown.number)
    with adapters.database.snapshot() as connection:
        return connection.execute(select(JOURNAL.c.digest).where(is_it)).scalar() == sha256
