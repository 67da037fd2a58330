"""A night on a bench: an issuer with real gpg and a real store, an extract dropped, a portal that
answers.
"""

from __future__ import annotations

import atexit
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from functools import cache, partial, wraps
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, cast
from weakref import WeakKeyDictionary

import polars as pl
from sqlalchemy import Connection, Table, delete, insert, select, update

from flows.adapters.gpg_opener import GpgOpener
from flows.adapters.gpg_sealer import GpgSealer
from flows.adapters.local import LocalStore
from flows.book.stored_book import forget_rows
from flows.database.connection import Database, Transactions
from flows.extensions.simulator.answer import Answered, Habits, answer_store
from flows.extensions.simulator.extract import write_sample
from flows.extensions.simulator.portal import Portal
from flows.extensions.simulator.portal_key import PortalKey
from flows.reports.ingestion import Ingested, ingest
from flows.runs.adapters import Adapters
from flows.runs.audited_store import audited
from flows.runs.context import IssuerContext
from flows.runs.header import default_header
from flows.runs.keys import extracts, keys_of, results
from flows.runs.openpgp import Compression
from flows.runs.sealing import Opener, Sealer
from flows.runs.store import Store
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.trail_proof import NOT_PROVED, Prover
from flows.submissions.submit import Request, Submitted, submit
from schemas.database import CHUNK, INGESTED, ISSUER, JOURNAL, METADATA, RUN
from schemas.issuer import Issuer
from schemas.manifest import Manifest
from tests import keys
from tests.copies import copy_folder
from tests.memory import KilledError
from tests.storms import FailingDatabase

BANK = "bank"
GPG = "gpg"
DAY = date(2026, 11, 20)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
B = TypeVar("B", bound="Bench")
P = ParamSpec("P")
T = TypeVar("T")


def issuer(**changes: Any) -> Issuer:
    """Return a test issuer with wide limits; `changes` replace whole tables or keys."""
    portal = {"fingerprints": [keys.sound().fingerprint], "allowed_hosts": ["links.example.com"]}
    portal |= changes.pop("portal", {})
    limits = {"max_reject_rate": 0.5, "max_error_rate": 0.5}
    return Issuer.model_validate(
        {
            "issuer": BANK,
            "root": "store",
            "test": True,
            "limits": limits,
            **changes,
            "portal": portal,
        }
    )


def uncommit(folder: Path, run: str) -> None:
    """Make a run as if its process had died right before its commit; the last run of a local
    bench.
    """
    issuer = keys_of(run).run.issuer
    Database(folder / "cardlink.db").act(issuer, partial(_uncommit, run))


def _uncommit(run: str, connection: Connection) -> None:
    forget_rows(connection, keys_of(run).run.issuer)
    entry = (JOURNAL.c.run == run) & (JOURNAL.c.what == "committed")
    connection.execute(delete(JOURNAL).where(entry))
    connection.execute(delete(CHUNK).where(CHUNK.c.run == run))
    nothing = dict.fromkeys(("turn", "committed_at", "dropped_at", "sequence", "manifest"))
    planned = {**nothing, "state": "planned", "report_due": False}
    connection.execute(update(RUN).where(RUN.c.run == run).values(planned))


_DATABASES = WeakKeyDictionary[Any, Database]()


def database_of(store: Store) -> Database:
    """Return the database beside a store: in the folder of a local one, else one in memory; that of
    the store within, where one is laid over another.
    """
    within = getattr(store, "store", None)
    if within is not None:
        return database_of(within)
    root = getattr(store, "_root", None)
    if isinstance(root, Path) and root.name == "store":
        return Database(root.parent / "cardlink.db")
    if isinstance(root, Path):
        return Database(root.parent / f"{root.name}.db")
    return _DATABASES.setdefault(store, Database("sqlite://"))


def copied(database: Database, to: Path | None = None) -> Database:
    """Return a database in memory, or in this file, with the rows of another one."""
    copy = Database(to or "sqlite://")
    with database.snapshot() as here, copy.snapshot() as there:
        there.commit()
        source, target = here.connection.driver_connection, there.connection.driver_connection
        assert source is not None
        source.backup(target)
    return copy


def moved_to(bench: B, database: Database) -> B:
    """Return the bench with its rows in another database, which has none of its issuer, or in the
    one that it has.
    """
    is_another = database.place != bench.database.place
    for table in METADATA.sorted_tables if is_another else ():
        if table is ISSUER:  # its row comes with the first act
            continue
        with bench.database.snapshot() as connection:
            rows = [dict(row) for row in connection.execute(select(table)).mappings()]
        write = partial(_insert_rows, table, rows)
        if rows:
            database.act(bench.issuer.issuer, write)
    return replace(bench, database=database)


def _insert_rows(table: Table, rows: list[dict[str, Any]], connection: Connection) -> None:
    connection.execute(insert(table), rows)


def put_back(database: Path, copy: Path, issuer: str) -> None:
    """Give an issuer the rows in the file of a database that it has in a copy of it."""
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("ATTACH ? AS copy", (str(copy),))
        connection.execute("BEGIN IMMEDIATE")
        for table in METADATA.sorted_tables:
            of_issuer = f"{table.name} WHERE issuer = ?"
            connection.execute(f"DELETE FROM main.{of_issuer}", (issuer,))
            into = f"INSERT INTO main.{table.name}"
            connection.execute(f"{into} SELECT * FROM copy.{of_issuer}", (issuer,))
        connection.execute("COMMIT")


def beside(store: T, database: Database) -> T:
    """Return a store whose database is that of another one."""
    _DATABASES[store] = database
    return store


def runs_in(folder: Path, issuer: str = BANK) -> StoredRuns:
    """Return the runs of an issuer whose TOML file, database and store are in a folder."""
    return StoredRuns(edges(LocalStore(folder / "store")), issuer)


def forget_results(database: Transactions) -> None:
    """Forget what was ingested, as though no ingest had been."""

    def forget(connection: Connection) -> None:
        for table in INGESTED:
            connection.execute(delete(table).where(table.c.issuer == BANK))

    database.act(BANK, forget)


def edges(store: Store, database: Database | None = None) -> Adapters:
    """Return the edges of a test that has no bench: this store, by default its database."""
    beside = database or database_of(store)
    return audited(Adapters(store, lambda: NOON, "tester:1", beside))


class SealTerms(NamedTuple):
    """What makes two sealers the same."""

    key: bytes
    fingerprints: tuple[str, ...]
    armor: bool
    compression: Compression
    today: date
    gpg: str

    def sealer(self) -> GpgSealer:
        """Return a sealer of its own."""
        return GpgSealer(
            [self.key],
            self.fingerprints,
            armor=self.armor,
            compression=self.compression,
            today=self.today,
            gpg=self.gpg,
        )


def killed_at(
    bench: B, what: str, times: int = 1, *, late: bool = False, for_good: bool = False
) -> B:
    """Return the bench whose process is killed where it commits an act that its journal calls so,
    the so-manyth, or (`late`) right after it; `for_good`: it gives no claim back either.
    """
    met = count(1)
    dead: list[bool] = []

    def trouble(done: str) -> KilledError | None:
        if dead and for_good:
            return KilledError()
        if done != what or next(met) != times:
            return None
        dead.append(True)
        return KilledError()

    return replace(bench, database=FailingDatabase(bench.database, trouble, late=late))


@dataclass
class Bench:
    """One issuer with everything a night needs."""

    store: Store
    issuer: Issuer = field(default_factory=issuer)
    now: Callable[[], datetime] = lambda: NOON
    key: PortalKey = field(default_factory=keys.sound)
    actor: str = "tester:1"
    gpg: str = GPG  # another has a sealer of its own each time
    folder: Path | None = None  # of a local bench
    database: Database = field(default=None)  # type: ignore[assignment]  # that of the store
    prover: Prover = NOT_PROVED

    def __post_init__(self) -> None:
        if self.database is None:
            self.database = database_of(self.store)

    @property
    def adapters(self) -> Adapters:
        """Its edges: this store, this database."""
        edges = Adapters(self.store, self.now, self.actor, self.database)
        return audited(edges._replace(prover=self.prover))

    @property
    def context(self) -> IssuerContext:
        """The issuer's edges: this store, real gpg."""
        return IssuerContext(
            self.issuer,
            self.adapters,
            default_header(),
            self._sealer,
            self._opener,
        )

    def drop(
        self, rows: int = 50, name: str = "bank-20261120.csv", *, bad: float = 0.0, seed: int = 0
    ) -> str:
        """Drop a generated extract; return its name."""
        out = BytesIO()
        write_sample(out, rows, bad=bad, seed=seed, as_of=DAY)
        return self.drop_bytes(out.getvalue(), name)

    def drop_bytes(self, content: bytes, name: str = "bank-20261120.csv") -> str:
        """Drop an extract as it is; return its name."""
        self.store.replace(extracts(self.issuer.issuer) + name, [content])
        return name

    def submit(self, extract: str, **request: Any) -> Submitted:
        """Submit one extract."""
        return submit(self.context, Request(extract, **request))

    def answer(self, habits: Habits | None = None, **portal: Any) -> Answered:
        """Let the simulated portal answer what is committed."""
        with GpgOpener([self.key.secret]) as opener:
            return answer_store(
                self.adapters,
                self.issuer.issuer,
                Portal(opener, today=self.now().date(), **portal),
                habits,
            )

    def drop_result(self, content: bytes, name: str = "result.csv") -> None:
        """Drop a result file as it is."""
        self.store.replace(results(self.issuer.issuer) + name, [content])

    def ingest(self) -> Ingested:
        """Take up new results."""
        return ingest(self.context)

    def content(self, key: str) -> bytes:
        """Return what is stored under a key."""
        with self.store.open(key) as source:
            return source.read()

    def stored(self, run: str) -> StoredRun:
        """Return a run as it is stored now."""
        return StoredRun.by_id(self.adapters, run)

    @property
    def runs(self) -> StoredRuns:
        """The issuer's runs as they are stored now."""
        return StoredRuns(self.adapters, self.issuer.issuer)

    def manifest(self, run: str) -> Manifest:
        """Return a committed run's manifest."""
        return self.stored(run).committed()

    def ledger(self, run: str) -> pl.DataFrame:
        """Return a committed run's ledger, by row."""
        return pl.concat(self.stored(run).ledger()).sort("row")

    def chunks(self, run: str) -> list[bytes]:
        """Return the plain CSV of every committed chunk, in order, as the portal opens it."""
        with GpgOpener([self.key.secret]) as opener:
            keys = [chunk.key for chunk in self.stored(run).sealed_chunks.values()]
            return [opener.open(self.content(key), 1 << 24) for key in keys]

    def report(self, run: str, name: str) -> bytes:
        """Return a file of a run's report."""
        return self.content(keys_of(run).report(name))

    def snapshot(self) -> dict[str, bytes]:
        """Return everything in the store but segments of the journal, which the database has."""
        listed = [entry.key for entry in self.store.keys("") if "/journal/" not in entry.key]
        return {key: self.content(key) for key in listed}

    @contextmanager
    def _sealer(self) -> Iterator[Sealer]:
        portal = self.issuer.portal
        terms = SealTerms(
            self.key.public,
            portal.fingerprints,
            portal.armor,
            portal.compression,
            self.now().date(),
            shutil.which(self.gpg) or self.gpg,
        )
        if self.gpg == GPG:
            yield _open_sealer(terms)
        else:
            with terms.sealer() as sealer:
                yield sealer

    @contextmanager
    def _opener(self) -> Iterator[Opener | None]:
        yield None


@cache
def _open_sealer(terms: SealTerms) -> GpgSealer:
    """Return a sealer that is open until the test process ends: gpg starts three times for it."""
    sealer = terms.sealer()
    atexit.register(sealer.close)
    return sealer


def local_bench(folder: Path, **changes: Any) -> Bench:
    """Return a bench on a directory store."""
    (folder / "store").mkdir(parents=True)
    database = Database(folder / "cardlink.db")
    return Bench(LocalStore(folder / "store"), issuer(**changes), folder=folder, database=database)


MADE: dict[str, tuple[Path, Any]] = {}  # what `made_once` keeps, by function and arguments


def made_once(make: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """Let what `make` makes in a folder, for each of its arguments, be made once in a test process;
    each call gets a copy in its own folder, whose files are read as new ones. The benches that are returned, alone or in a tuple, are
    local ones, and their store is moved along.
    """

    @wraps(make)
    def copied(folder: Path, /, *arguments: P.args, **named: P.kwargs) -> T:
        case = repr((make.__module__, make.__qualname__, arguments, sorted(named.items())))
        if case not in MADE:
            first = kept_folder("made-")
            MADE[case] = first, make(first, *arguments, **named)
        origin, result = MADE[case]
        if (folder / "cardlink.db").exists():  # of another issuer that is in the folder already
            _add_rows(origin / "cardlink.db", folder / "cardlink.db")
            ignored = shutil.ignore_patterns("cardlink.db*")
            copy_folder(origin, folder, ignored)
        else:
            copy_folder(origin, folder)
        return cast(T, _moved(result, folder))

    return copied


def _add_rows(origin: Path, target: Path) -> None:
    """Add the rows of one database to another one, of other issuers."""
    with closing(sqlite3.connect(target, isolation_level=None)) as database:
        database.execute("ATTACH ? AS origin", (str(origin),))
        for table in METADATA.sorted_tables:
            database.execute(f"INSERT INTO main.{table.name} SELECT * FROM origin.{table.name}")


def _moved(result: object, folder: Path) -> object:
    if isinstance(result, Bench):
        database = Database(folder / "cardlink.db")
        return replace(result, store=LocalStore(folder / "store"), folder=folder, database=database)
    if type(result) is tuple:
        return tuple(_moved(part, folder) for part in result)
    return copy(result) if isinstance(result, list | dict) else result


@made_once
def submitted(folder: Path, /, rows: int = 10, **changes: Any) -> tuple[Bench, str, Manifest]:
    """Return a bench with one night behind it, the night's extract, and the manifest of its run."""
    bench = local_bench(folder, **changes)
    extract = bench.drop(rows)
    return bench, extract, bench.submit(extract).manifest


def kept_folder(prefix: str) -> Path:
    """Return an empty folder that is there until the test process ends."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def portal_csv(rows: pl.DataFrame) -> bytes:
    """Return rows of the portal's 20 columns as an extract."""
    return rows.drop("row", "line").write_csv().encode()
