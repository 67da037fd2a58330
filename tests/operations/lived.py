"""Store and database of an issuer as some nights have left them, to be changed by whoever writes to one of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from flows.database.connection import Database
from flows.operations.audit import Proof, verify
from tests.memory import MemoryStore
from tests.night import BANK, Bench

Objects = Mapping[str, bytes]


class Lived(NamedTuple):
    """Everything that is stored, and the bytes of the database."""

    bench: Bench
    objects: dict[str, bytes]
    database: bytes

    @classmethod
    def of(cls, bench: Bench) -> Lived:
        """Return what a bench with a database in a file has lived."""
        objects = bench.snapshot()
        bench.database.close()  # what it was told last is in its file then
        return cls(bench, objects, Path(bench.database.place).read_bytes())

    def changed(self, objects: Objects | None = None, *statements: str) -> Bench:
        """Return a bench with these objects, on whose database these statements were executed."""
        file = Path(self.bench.database.place).with_name(f"{uuid4().hex}.db")
        file.write_bytes(self.database)
        connection = sqlite3.connect(file)
        for statement in statements:
            connection.execute(statement)
        connection.commit()
        connection.close()
        store = MemoryStore()
        for key, data in (self.objects if objects is None else objects).items():
            store.create(key, data)
        return replace(self.bench, store=store, database=Database(file))

    def proof(self, objects: Objects | None = None, *statements: str, head: str = "") -> Proof:
        """Return the proof of that."""
        return verify(self.changed(objects, *statements).adapters, BANK, head)

    def found(self, objects: Objects | None = None, *statements: str) -> set[tuple[str, str]]:
        """Return what the proof of that finds, by key."""
        return {(one.key, one.what) for one in self.proof(objects, *statements).findings}
