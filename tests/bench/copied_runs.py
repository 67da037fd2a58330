"""Many runs of an issuer, made of a few real ones: copied in store and database, each under names,
days, cuids and digests of its own.

What is derived is not copied: the next command makes it of what is there, as it makes any.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, timedelta
from hashlib import sha256
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import Connection, Table, insert, select

from flows.runs.answers import ANSWERS, answers_stored, file_id
from flows.runs.identity import canonical, digest
from flows.runs.journal import content_of
from flows.runs.store import Entry
from schemas.database import ANSWER, ANSWERED_CHUNK, CHUNK, JOURNAL, RESULT_FILE, RUN
from tests.clocked import ClockedStore
from tests.night import Bench

COPIED = (RUN, CHUNK, RESULT_FILE, ANSWERED_CHUNK, ANSWER)
NUMBERS = {  # columns that go on where the copied block ends, with the table they count
    "run": {"number": RUN.c.number, "turn": RUN.c.turn},
    "result_file": {"number": RESULT_FILE.c.number},
    "answered_chunk": {"number": RESULT_FILE.c.number},
    "answer": {"number": RESULT_FILE.c.number},
}
FOR_PEOPLE = (".html", ".xlsx")  # pages, which no command reads
CUID = re.compile(r"(?<=\bS)(\d+)-(\d{8})\b")
DAY = re.compile(r"(?<!\d)(20\d\d)-(\d\d)-(\d\d)(?!\d)")
PLAIN_DAY = re.compile(r"\b(20\d\d)(\d\d)(\d\d)(?=-|T)")
LINK = re.compile(r"(?<=/l/)[0-9a-f]{32}")
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")
RUN_NAME = re.compile(r"(?<=\d-)[0-9a-f]{8}\b")
VERSION = re.compile(r"\b\d+-\d+-\d{19}\b")  # of an object in a directory
CARDS = 1000  # of a run at most
DROPPED = ("extracts", "results")


def repeat(bench: Bench, days: int, copies: int) -> None:
    """Add so many copies of all runs of a bench to its store and database, each so many days after
    the one before.
    """
    block = _block_of(bench)
    own = [Copy(block, number, timedelta(days=days * number)) for number in range(1, copies + 1)]
    for copy in own:
        copy.write_objects()
    versions = {
        entry.key: entry.version
        for folder in DROPPED
        for entry in bench.store.keys(f"{bench.issuer.issuer}/{folder}/")
    }
    for copy in own:
        copy.find_versions(versions)
        bench.database.act(bench.issuer.issuer, copy.write_rows)


class Block(NamedTuple):
    """All that a store and a database have of the runs that are copied."""

    store: ClockedStore
    clock: Any
    rows: Mapping[Table, Sequence[Mapping[str, Any]]]
    objects: Mapping[str, bytes]
    entries: Mapping[str, Entry]


def _block_of(bench: Bench) -> Block:
    assert isinstance(bench.store, ClockedStore)
    rows = {}
    with bench.database.snapshot() as connection:
        for table in (*COPIED, JOURNAL):
            rows[table] = [dict(row) for row in connection.execute(select(table)).mappings()]
    entries = {
        entry.key: entry
        for entry in bench.store.keys(f"{bench.issuer.issuer}/")
        if not entry.key.endswith(FOR_PEOPLE)
    }
    objects = {key: bench.content(key) for key in entries}
    return Block(bench.store, bench.now, rows, objects, entries)


class Copy:
    """A copy of a block: what names, days, cuids and digests become in it."""

    def __init__(self, block: Block, number: int, later: timedelta) -> None:
        self.block = block
        self.number = number
        self.later = later
        self.digests = dict[str, str]()
        self.names = dict[str, str]()  # of runs, by their last part
        self.versions = dict[str, str]()  # of extracts and result files

    def write_objects(self) -> None:
        """Write the objects, extracts first, since runs are named by their digests."""
        by_stage = sorted(self.block.objects, key=lambda key: "/extracts/" not in key)
        for key in by_stage:
            content = self.block.objects[key]
            copied = self.content(key, content)
            before, after = sha256(content).hexdigest(), sha256(copied).hexdigest()
            self.digests[before] = after
            if "/extracts/" in key:
                self.names[before[:8]] = after[:8]
            self.block.clock.moment = self.block.entries[key].modified + self.later
            self.block.store.create(self.text(key), copied)

    def find_versions(self, versions: Mapping[str, str]) -> None:
        """Note which versions the extracts and result files have, as the store lists them."""
        for key, entry in self.block.entries.items():
            if key.split("/")[1] in DROPPED:
                self.versions[entry.version] = versions[self.text(key)]

    def content(self, key: str, content: bytes) -> bytes:
        """Return the content of an object in the copy."""
        if key.endswith(".parquet"):
            frame = pl.read_parquet(BytesIO(content))
            columns = [
                pl.col(name).map_elements(self.text, return_dtype=pl.String)
                for name, kind in frame.schema.items()
                if kind == pl.String
            ]
            days = [
                pl.col(name) + self.later
                for name, kind in frame.schema.items()
                if kind in (pl.Date, pl.Datetime)
            ]
            copied = BytesIO()
            frame.with_columns(*columns, *days).write_parquet(copied)
            return copied.getvalue()
        if key.endswith("/summary.json"):
            summary = json.loads(self.text(content.decode()))
            results = self.block.rows[RESULT_FILE]
            newest = max(row["number"] for row in results)
            summary["open"]["recorded"]["ingest"] += self.number * newest
            return canonical(summary)
        if key.endswith((".csv", ".json")):
            return self.text(content.decode()).encode()
        return content

    def text(self, text: str) -> str:
        """Return a text of the copy."""
        text = DIGEST.sub(lambda found: self.digests.get(found[0], found[0]), text)
        text = RUN_NAME.sub(lambda found: self.names.get(found[0], found[0]), text)
        text = VERSION.sub(lambda found: self.versions.get(found[0], found[0]), text)
        text = CUID.sub(self._cuid, text)
        text = LINK.sub(self._link, text)
        text = DAY.sub(self._day, text)
        return PLAIN_DAY.sub(self._plain_day, text)

    def _cuid(self, found: re.Match[str]) -> str:
        return f"{found[1]}-{int(found[2]) + self.number * CARDS:08d}"

    def _link(self, found: re.Match[str]) -> str:
        return sha256(f"{self.number} {found[0]}".encode()).hexdigest()[:32]

    def _day(self, found: re.Match[str]) -> str:
        return (date(*map(int, found.groups())) + self.later).isoformat()

    def _plain_day(self, found: re.Match[str]) -> str:
        return f"{date(*map(int, found.groups())) + self.later:%Y%m%d}"

    def write_rows(self, connection: Connection) -> None:
        """Write the rows, and their entries as the next of the journal."""
        for table in COPIED:
            rows = [self._row(table, row) for row in self.block.rows[table]]
            connection.execute(insert(table), rows)
        newest = select(JOURNAL.c.number, JOURNAL.c.digest).order_by(JOURNAL.c.number.desc())
        number, before = connection.execute(newest.limit(1)).one()
        entries = []
        for row in self.block.rows[JOURNAL]:
            number += 1
            entry = {**self._row(JOURNAL, row), "number": number, "before": before}
            entry["at"] = entry["at"].astimezone(UTC)
            if ANSWERS in entry["facts"]:
                answers = answers_stored(connection, row["issuer"], entry["run"])
                entry["facts"][ANSWERS] = answers
            before = digest(content_of(entry))
            entries.append({**entry, "digest": before})
        connection.execute(insert(JOURNAL), entries)

    def _row(self, table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row of the copy."""
        copied = {name: self._value(value) for name, value in row.items()}
        self._count_on(table.name, copied)
        if table is RESULT_FILE:
            copied["file"] = file_id(copied["key"])
        for change in copied.get("changes", ()):
            self._count_on(change["table"], change["values"])
        return copied

    def _count_on(self, table: str, values: dict[str, Any]) -> None:
        """Let the numbers of a row go on where the copy before ends."""
        for name, counted in NUMBERS.get(table, {}).items():
            if values.get(name) is not None:
                rows = self.block.rows[counted.table]
                values[name] += self.number * max(row[counted.name] for row in rows)

    def _value(self, value: Any) -> Any:
        """Return a value of the copy."""
        match value:
            case str():
                return self.text(value)
            case dict() | list():
                return json.loads(self.text(json.dumps(value)))
            case date():
                return value + self.later
            case _:
                return value
