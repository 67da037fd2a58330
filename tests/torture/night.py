"""One night, undisturbed, as the measure; and what a disturbed one must have in common with it:
everything.

Lost, doubled or moved rows, objects that belong to nobody, reports that differ: `losses` names them
all.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

from flows.adapters.gpg_opener import GpgOpener
from flows.database.connection import Database
from flows.extensions.simulator.answer import answer_store
from flows.extensions.simulator.extract import write_sample
from flows.extensions.simulator.portal import Portal
from flows.results.known_files import known_files
from flows.runs.identity import canonical
from flows.runs.keys import extracts, keys_of, results
from flows.runs.sealing import Opener
from flows.runs.store import Store
from schemas.manifest import Manifest
from tests import keys
from tests.night import BANK, DAY, Bench, copied, issuer
from tests.stores import Place
from tests.torture.nursery import Forkserver

EXTRACT = "bank-20261120.csv"
ROWS, PER_CHUNK = 110, 3  # 34 chunks, so that there are two sealing groups
BEGIN = datetime.now(UTC).replace(microsecond=0)
# when what died at the beginning is run again: its claim has run out
LATER = BEGIN + timedelta(hours=12)
REPORTS = ("links.csv", "errors.csv", "rejects.csv", "chunks.csv", "summary.json")


class Remembering:
    """An opener that opens each message once: the same bytes hold the same rows."""

    def __init__(self, opener: Opener) -> None:
        self._opener = opener
        self._opened: dict[bytes, bytes] = {}

    def open(self, message: bytes, limit: int) -> bytes:
        """Return the content of one message."""
        name = hashlib.sha256(message).digest()
        if name not in self._opened:
            self._opened[name] = self._opener.open(message, limit)
        return self._opened[name]


@dataclass(frozen=True)
class Moment:
    """What is stored at a moment: all objects, and a database in memory with all rows."""

    objects: Mapping[str, bytes] = field(default_factory=dict)
    rows: Database = field(default_factory=lambda: Database("sqlite://"))


@dataclass(frozen=True)
class GateFacts:
    """The undisturbed night: its objects and rows before and after the answers were taken up, and
    its chunks in the clear.
    """

    opener: Opener
    extract: bytes
    manifest: Manifest | None = None
    answered: Moment = Moment()
    reported: Moment = Moment()
    chunks: tuple[bytes, ...] = ()

    @property
    def run(self) -> str:
        """The run of the night."""
        assert self.manifest is not None
        return self.manifest.run

    def bench(self, place: Place, now: datetime = LATER, actor: str = "later:1") -> Bench:
        """Return the issuer's bench on another store."""
        edges = place.open(), _issuer(), lambda: now
        return Bench(*edges, actor=actor, database=place.database())

    def dropped(self, place: Place) -> Bench:
        """Return the bench with the extract dropped."""
        bench = self.bench(place)
        bench.store.replace(extracts(BANK) + EXTRACT, [self.extract])
        return bench

    def until_answered(self, place: Place) -> Bench:
        """Return the bench as it was before the answers were taken up."""
        return self._at(self.answered, place)

    def until_reported(self, place: Place) -> Bench:
        """Return the bench as it was at the end."""
        return self._at(self.reported, place)

    def _at(self, moment: Moment, place: Place) -> Bench:
        bench = self.bench(place)
        _put(bench.store, moment.objects)
        copied(moment.rows, place.rows)
        return bench

    def drop_results(self, bench: Bench) -> None:
        """Drop the partner's answers, unless they are there."""
        objects = self.answered.objects.items()
        _put(bench.store, {key: data for key, data in objects if key.startswith(results(BANK))})

    def submit_losses(self, bench: Bench) -> list[str]:
        """Name what differs from the undisturbed night in what stands for upload."""
        keys_, found = keys_of(self.run), []
        manifest = bench.manifest(self.run)
        paths = [keys_.chunks + chunk.name for chunk in manifest.chunks]
        sealed = [bench.content(path) for path in paths]
        if _of_committed_epochs(bench, manifest) != paths:
            found.append("an object that is no chunk of the run, or a chunk that is gone")
        if [hashlib.sha256(data).hexdigest() for data in sealed] != [
            chunk.sha256 for chunk in manifest.chunks
        ]:
            found.append("a chunk that is not the one its manifest names")
        if tuple(self.opener.open(data, 1 << 24) for data in sealed) != self.chunks:
            found.append("rows of a chunk")
        if not _ledger(self.reported.objects, self.run).equals(bench.ledger(self.run)):
            found.append("the ledger")
        if _facts(manifest) != _facts(self.manifest):
            found.append("the manifest's counts")
        if [run.id for run in bench.runs.committed()] != [self.run]:
            found.append("a second commit")
        return found

    def report_losses(self, bench: Bench) -> list[str]:
        """Take up the answers, and name what differs from the undisturbed night in the reports."""
        self.drop_results(bench)
        bench.ingest()
        found = [
            f"report/{name}"
            for name in REPORTS
            if _same(name, bench.report(self.run, name))
            != _same(name, self.reported.objects[keys_of(self.run).report(name)])
        ]
        if bench.ingest().files or len(known_files(bench.adapters, BANK)) != len(self.chunks):
            found.append("a result that is not marked as taken up, or twice")
        return found


@dataclass
class Children:
    """Starts children on jobs of one night."""

    nursery: Forkserver
    folder: Path
    key: tuple[str, str, str] = field(
        default_factory=lambda: (
            keys.sound().public.decode(),
            keys.sound().secret.decode(),
            keys.sound().fingerprint,
        )
    )

    def start(
        self,
        do: str,
        place: Place,
        *,
        crash: Any = None,
        now: datetime = BEGIN,
        actor: str = "first:1",
    ) -> tuple[int, Path]:
        """Start a child; return its process id and the file it will tell in what it came to."""
        job = self.job(do, place, crash=crash, now=now, actor=actor)
        answer = Path(job["answer"])
        answer.unlink(missing_ok=True)
        return self.nursery.start(job), answer

    def job(
        self,
        do: str,
        place: Place,
        *,
        crash: Any = None,
        now: datetime = BEGIN,
        actor: str = "first:1",
    ) -> dict[str, Any]:
        """Return what a child is told to do."""
        # a default may be a value that a TOML must not have
        settings = _issuer().model_dump(mode="json", exclude_defaults=True)
        answer = str(self.folder / f"{actor}.json")
        job = {
            "do": do,
            "place": place,
            "crash": crash,
            "now": now.isoformat(),
            "actor": actor,
            "extract": EXTRACT,
        }
        return {**job, "key": self.key, "issuer": settings, "answer": answer}

    def command(self, argv: list[str], place: Place, *, crash: Any = None) -> tuple[int, Path]:
        """Start a command line on a store; return its process id and the folder of what it
        prints.
        """
        folder = self.folder / "command"
        folder.mkdir(exist_ok=True)
        (folder / f"{BANK}.toml").write_text(_TOML.format(keys.sound().fingerprint, PER_CHUNK))
        (folder / "portal.asc").write_text(self.key[0])
        for left in ("passed.json", "stdout", "stderr"):
            (folder / left).unlink(missing_ok=True)
        return self.nursery.start(
            {"argv": argv, "place": place, "crash": crash, "folder": str(folder)}
        ), folder

    def passed(self, folder: Path) -> dict[str, int]:
        """Return the boundaries that a command passed."""
        found: dict[str, int] = json.loads((folder / "passed.json").read_text())
        return found


_TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
max_error_rate = 0.5
[portal]
fingerprints = ["{}"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = {}
"""


@contextmanager
def undisturbed(place: Place) -> Iterator[GateFacts]:
    """Live through the night without a disturbance."""
    out = BytesIO()
    write_sample(out, ROWS, bad=0.08, seed=1, as_of=DAY)
    with GpgOpener([keys.sound().secret]) as gpg:
        opener = Remembering(gpg)
        night = GateFacts(opener, out.getvalue())
        bench = night.dropped(place)
        manifest = bench.submit(EXTRACT).manifest
        portal = Portal(opener, today=LATER.date(), fail_share=0.2, shuffle=True, seed=7)
        answer_store(bench.adapters, BANK, portal)
        answered = _moment(bench)
        bench.ingest()
        names = [keys_of(manifest.run).chunks + chunk.name for chunk in manifest.chunks]
        opened = tuple(opener.open(answered.objects[name], 1 << 24) for name in names)
        yield replace(
            night, manifest=manifest, answered=answered, reported=_moment(bench), chunks=opened
        )


def _moment(bench: Bench) -> Moment:
    return Moment(bench.snapshot(), copied(bench.database))


def _issuer() -> Any:
    return issuer(portal={"rows_per_chunk": PER_CHUNK})


def _put(store: Store, objects: Mapping[str, bytes]) -> None:
    for key, data in objects.items():
        store.create(key, data)


def _of_committed_epochs(bench: Bench, manifest: Manifest) -> list[str]:
    """Return the keys below those of a run's chunks, without what was sealed and never committed:
    the epoch of a chunk is in its name.
    """
    keys_ = keys_of(manifest.run)
    epochs = {keys_.chunk_epoch(chunk.name) for chunk in manifest.chunks}
    stored = [entry.key for entry in bench.store.keys(keys_.chunks)]
    return [key for key in stored if keys_.chunk_epoch(Path(key).name) in {0, *epochs}]


def _facts(manifest: Manifest | None) -> bytes:
    """Return a manifest without what sealing and storing make different each time."""
    assert manifest is not None
    plain = manifest.model_dump(mode="json")
    chunks = [{name: chunk[name] for name in ("number", "rows")} for chunk in plain["chunks"]]
    same = (
        "run",
        "as_of",
        "settings_sha256",
        "recipe",
        "recipients",
        "counts",
        "reasons",
        "repairs",
    )
    return canonical({**{name: plain[name] for name in same}, "chunks": chunks})


def _same(name: str, report: bytes) -> bytes:
    """Return a report without the names and identities that sealing and storing make different each
    time, and the hour of it.
    """
    if name == "chunks.csv":
        return (
            pl.read_csv(report, infer_schema=False)
            .drop("name", "bytes", "sha256", strict=False)
            .write_csv()
            .encode()
        )
    if name == "summary.json":
        facts = json.loads(report)
        # a file that could not be read at first has taken a number too
        recorded = {**facts["open"]["recorded"], "ingest": 0}
        timeless = {
            "source": {**facts["source"], "version": ""},
            "open": {**facts["open"], "sent": "", "recorded": recorded},
            "seen": "",
        }
        timeless["hours"] = facts["hours"]["links"]
        return canonical({**facts, **timeless})
    return report


def _ledger(objects: Mapping[str, bytes], run: str) -> pl.DataFrame:
    parts = [data for key, data in objects.items() if key.startswith(keys_of(run).ledger)]
    return pl.concat(pl.read_parquet(BytesIO(part)) for part in parts).sort("row")
