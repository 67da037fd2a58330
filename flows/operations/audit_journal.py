"""An issuer's journal as it is stored, and what it says of each object of the store and each row.

Its entries are one chain: each has the digest of the one before, and its own. Replayed, they say
which rows the database has; what follows from others (`DERIVED`), and whom they are about or whose
links were delivered, apart.
Of what result files say (`INGESTED`) they have digests.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any, NamedTuple

from sqlalchemy import Connection, Table, func, select

from flows.extensions import hooks
from flows.runs.answers import ANSWERS, answers_stored
from flows.runs.audited_store import FAILED, WRITTEN
from flows.runs.identity import canonical, digest
from flows.runs.journal import content_of, plain
from flows.runs.trail_proof import Prover
from schemas.database import (
    ANSWER,
    ANSWERED_CHUNK,
    DERIVED,
    INGESTED,
    ISSUER,
    JOURNAL,
    LEASE,
    METADATA,
    PERSON,
)

CHANGED = "changed"
REMOVED = "removed"
INSERTED = "inserted"
EMPTIED = "has lost what the journal does not repeat"
BROKEN = "does not follow the entry before it"
FORGED = "has a proof that is not by our key"
UNPROVED = "has no proof, after entries that have one"
NEVER_WRITTEN = "named, and not written"

Key = tuple[Any, ...]  # the primary key of a row, without the issuer
Values = Mapping[str, Any]


class Finding(NamedTuple):
    """One object, row or entry that is not as it was recorded.

    `entry`, `by` and `at` are number, author and time of the entry that first names it.
    """

    key: str
    what: str
    entry: int = 0
    by: str = ""
    at: str = ""


class StoredEntry(NamedTuple):
    """An entry of the journal as the database has it.

    `content` is what digest and proof are of.
    """

    number: int
    at: datetime
    by: str
    what: str
    facts: Values
    changes: Sequence[Values]
    before: str
    digest: str
    proof: str
    proved_by: str
    run: str | None
    content: bytes

    @property
    def place(self) -> str:
        """What it is called in findings."""
        return f"journal/{self.number}"

    @property
    def sha256(self) -> str:
        """The digest that its content has."""
        return digest(self.content)

    @property
    def is_intact(self) -> bool:
        """Whether its content has the digest that it says."""
        return self.sha256 == self.digest

    @property
    def head(self) -> str:
        """Its number and digest: all that must be kept to show later that it was there."""
        return f"{self.number}:{self.digest[:16]}"

    def finding(self, key: str, wrong: str) -> Finding:
        """Return what is wrong with something that this entry names."""
        return Finding(key, wrong, self.number, self.by, self.at.isoformat())


def stored_entries(connection: Connection, issuer: str) -> list[StoredEntry]:
    """Return all entries of an issuer's journal, by number."""
    query = select(JOURNAL).where(JOURNAL.c.issuer == issuer).order_by(JOURNAL.c.number)
    rows = connection.execute(query).mappings()
    return [_stored_entry(row) for row in rows]


def last_number(connection: Connection, issuer: str) -> int:
    """Return the number of the last entry of an issuer's journal, 0 where there is none."""
    last = select(func.max(JOURNAL.c.number)).where(JOURNAL.c.issuer == issuer)
    return connection.execute(last).scalar() or 0


def _stored_entry(row: Mapping[Any, Any]) -> StoredEntry:
    named = {name: row[name] for name in StoredEntry._fields if name != "content"}
    return StoredEntry(**named, content=content_of(row))


def entry_findings(entries: Sequence[StoredEntry], prover: Prover) -> Iterator[Finding]:
    """Yield the entries that are missing or changed, that do not follow the one before, and whose
    proof is wrong or missing.

    Behind one that is wrong, the next cannot be judged.
    """
    yield from _gaps([0, *(entry.number for entry in entries)])
    yield from (entry.finding(entry.place, CHANGED) for entry in entries if not entry.is_intact)
    before: str | None = ""  # the digest of the entry before, where that can be told
    last = 0
    for entry in entries:
        can_tell = entry.is_intact and entry.number == last + 1 and before is not None
        if can_tell and entry.before != before:
            yield entry.finding(entry.place, BROKEN)
        before = entry.digest if entry.is_intact else None
        last = entry.number
    yield from _proof_findings([entry for entry in entries if entry.is_intact], prover)


def _gaps(numbers: Sequence[int]) -> Iterator[Finding]:
    for number, later in pairwise(numbers):
        for missing in range(number + 1, later):
            yield Finding(f"journal/{missing}", REMOVED, missing)


def _proof_findings(entries: Iterable[StoredEntry], prover: Prover) -> Iterator[Finding]:
    """Yield the entries with a wrong proof, and those without one behind the first that has one."""
    is_proved = False
    for entry in entries:
        if not entry.proof and is_proved:
            yield entry.finding(entry.place, UNPROVED)
        if entry.proof:
            is_proved = True
            if prover.is_proof(entry.proof, entry.content, entry.proved_by) is False:
                yield entry.finding(entry.place, FORGED)


def unverified(entries: Iterable[StoredEntry], prover: Prover) -> int:
    """Return how many entries have a proof by a key that is not at hand."""
    keys = Counter(entry.proved_by for entry in entries if entry.proof)
    return sum(number for key, number in keys.items() if prover.is_proof("", b"", key) is None)


class Accepted:
    """What somebody has accepted as it is, by the entries of a journal."""

    def __init__(self, entries: Iterable[StoredEntry]) -> None:
        self._accepted = dict[str, str]()
        for entry in entries:
            self._accepted |= entry.facts.get("accepted", {})

    def __iter__(self) -> Iterator[str]:
        """Yield what was accepted."""
        return iter(self._accepted)

    def has(self, key: str, sha256: str) -> bool:
        """Return whether it was accepted with this digest; "": that it is gone."""
        return self._accepted.get(key) == sha256


# Objects
# --------------------------------------------------------------------------------------------------


class _Mention(NamedTuple):
    """An object as entries name it: `written` is the number of that which says that it is there."""

    entry: StoredEntry
    sha256: str
    written: int | None = None


class NamedObjects:
    """The objects of a store as the intact entries of a journal name them."""

    def __init__(self, entries: Iterable[StoredEntry]) -> None:
        self._mentions = dict[str, list[_Mention]]()
        for entry in entries:
            objects = entry.facts.get("objects", {}) if entry.what != FAILED else {}
            for key, sha256 in objects.items():
                self._add(self._mentions.setdefault(key, []), entry, sha256)

    def _add(self, mentions: list[_Mention], entry: StoredEntry, sha256: str) -> None:
        """Add a mention, or note that what an earlier one names was written."""
        if entry.what != WRITTEN:
            mentions.append(_Mention(entry, sha256))
            return
        for place, mention in enumerate(mentions):
            if mention.written is None and mention.sha256 == sha256:
                mentions[place] = mention._replace(written=entry.number)
                return
        mentions.append(_Mention(entry, sha256, entry.number))

    def __iter__(self) -> Iterator[str]:
        """Yield the keys of all of them."""
        return iter(self._mentions)

    def named_at(self, key: str) -> datetime | None:
        """Return when an object was named last, None where it never was."""
        mentions = self._mentions.get(key)
        return mentions[-1].entry.at if mentions else None

    def finding(self, key: str, sha256: str, since: int) -> Finding | None:
        """Return what is wrong with an object that had this digest ("": it was gone) at some time
        after the entry `since` was the last.

        What was named and never written is one too (NEVER_WRITTEN).
        """
        mentions = self._mentions.get(key)
        if mentions is None:
            return Finding(key, INSERTED) if sha256 else None
        first = mentions[0].entry
        if sha256:
            is_expected = sha256 in _expected(mentions, since)
            return None if is_expected else first.finding(key, CHANGED)
        if any(mention.written is not None for mention in mentions):
            return first.finding(key, REMOVED)
        return mentions[-1].entry.finding(key, NEVER_WRITTEN)


def _expected(mentions: Sequence[_Mention], since: int) -> set[str]:
    """Return the digests that an object may have: what was written last, what was written at the
    same time or since, and what somebody may still write, or has written and was killed.
    """
    last = 0  # the entry that names what was written last
    for mention in mentions:
        if mention.written is not None and mention.written <= since:
            last = max(last, mention.entry.number)
    return {
        mention.sha256 for mention in mentions if mention.written is None or mention.written > last
    }


# Rows
# --------------------------------------------------------------------------------------------------


class JournaledRow(NamedTuple):
    """What entries say of a row: the columns that they wrote; the first of them."""

    entry: StoredEntry
    values: Values


# rows of these are not in entries, or not all of them
_NOT_ENTERED = (*DERIVED, *INGESTED, ISSUER, JOURNAL, LEASE, PERSON)


class JournaledRows:
    """The rows of the tables as the changes of intact entries leave them, by table and key."""

    def __init__(self, entries: Iterable[StoredEntry]) -> None:
        self._tables = dict[str, dict[Key, JournaledRow]]()
        for entry in entries:
            for change in entry.changes:
                table = METADATA.tables.get(change["table"])
                if table is not None:
                    self._apply(table, entry, change)

    def _apply(self, table: Table, entry: StoredEntry, change: Values) -> None:
        rows = self._tables.setdefault(table.name, {})
        values = change["values"]
        condition = change.get("key") or values
        names = key_names(table)
        key = tuple(condition.get(name) for name in names)
        keys = [key] if set(names) <= condition.keys() else _that_have(rows, condition)
        for each in keys:
            if values is None:
                rows.pop(each, None)
                continue
            known = rows.get(each) or JournaledRow(entry, dict(zip(names, each, strict=True)))
            row = known._replace(values={**known.values, **values})
            rows.pop(each, None)
            rows[tuple(row.values[name] for name in names)] = row

    def findings(self, connection: Connection, issuer: str) -> Iterator[tuple[Finding, str]]:
        """Yield the rows that are not as entries wrote them, each with a digest of what it is."""
        for table in METADATA.sorted_tables:
            # every row of it was written by an entry
            is_whole = table not in _NOT_ENTERED and table.info.get("is_entered", True)
            rows = self._tables.get(table.name, {})
            if rows or is_whole:
                yield from _row_findings(rows, table, _stored(connection, table, issuer), is_whole)


def _row_findings(
    rows: Mapping[Key, JournaledRow], table: Table, stored: Mapping[Key, Values], is_whole: bool
) -> Iterator[tuple[Finding, str]]:
    for key, row in rows.items():
        values = stored.get(key)
        place = _place(table, key)
        if values is None:
            yield row.entry.finding(place, REMOVED), ""
        elif any(values[name] != value for name, value in row.values.items()):
            yield row.entry.finding(place, CHANGED), _digest(values)
        else:
            flaws = (row_finding(table, row.values, values) for row_finding in hooks("row_finding"))
            for flaw in filter(None, flaws):
                yield row.entry.finding(place, flaw), _digest(values)
    if is_whole:
        for key in stored.keys() - rows.keys():
            yield Finding(_place(table, key), INSERTED), _digest(stored[key])


def _digest(values: Values) -> str:
    return digest(canonical(dict(values)))


def _place(table: Table, key: Key) -> str:
    """Return what a row is called in findings."""
    return "/".join([table.name, *map(str, key)])


def key_names(table: Table) -> list[str]:
    """Return the columns of a table's primary key, without the issuer."""
    return [column.name for column in table.primary_key if column.name != "issuer"]


def _that_have(rows: Mapping[Key, JournaledRow], condition: Values) -> list[Key]:
    return [key for key, row in rows.items() if condition.items() <= row.values.items()]


def _stored(connection: Connection, table: Table, issuer: str) -> dict[Key, Values]:
    """Return the rows of an issuer in a table, as entries have values, by key."""
    names = key_names(table)
    rows = connection.execute(select(table).where(table.c.issuer == issuer)).mappings()
    plain_rows: list[Values] = [plain(dict(row)) for row in rows]
    return {tuple(row[name] for name in names): row for row in plain_rows}


# What result files say
# --------------------------------------------------------------------------------------------------


def answer_findings(
    entries: Iterable[StoredEntry], connection: Connection, issuer: str
) -> Iterator[tuple[Finding, str]]:
    """Yield what result files say of runs otherwise than entries have it, by the number of the
    file, each with a digest of what it is.
    """
    named = dict[str, dict[str, tuple[StoredEntry, str]]]()
    for entry in entries:
        if entry.run is not None:
            answers = entry.facts.get(ANSWERS, {})
            of_run = named.setdefault(entry.run, {})
            of_run |= {number: (entry, sha256) for number, sha256 in answers.items()}
    answered = select(ANSWERED_CHUNK.c.run).where(ANSWERED_CHUNK.c.issuer == issuer).distinct()
    for run in sorted(named.keys() | set(connection.scalars(answered))):
        stored = answers_stored(connection, issuer, run)
        of_run = named.get(run, {})
        for number in sorted(of_run.keys() | stored, key=int):
            sha256 = stored.get(number, "")
            finding = _answer_finding(f"{ANSWER.name}/{run}/{number}", sha256, of_run.get(number))
            if finding is not None:
                yield finding, sha256


def _answer_finding(
    place: str, sha256: str, named: tuple[StoredEntry, str] | None
) -> Finding | None:
    """Return what is wrong with what a file says of a run ("": nothing), as an entry named it."""
    if named is None:
        return Finding(place, INSERTED) if sha256 else None
    entry, expected = named
    if sha256 == expected:
        return None
    return entry.finding(place, CHANGED if sha256 else REMOVED)
