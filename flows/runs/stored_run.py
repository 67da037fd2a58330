"""One run of an issuer as the store holds it.

Plan, end, ledger, reconciled rows, outcomes, events, report. A function that works on a run is
given a `StoredRun` instead of a store and keys, so that a document is fetched and parsed once
however many functions ask for it. Put here what is read of one run; keep out what writes (the
folder of each stage) and what compares runs (`stored_runs.py`). A run is one class, so this file is
long.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from itertools import chain
from typing import Any, Final, Self

import polars as pl

from flows.errors import BugError
from flows.runs.adapters import Adapters
from flows.runs.chunks import (
    OutboxChunk,
    StoredChunk,
    chunk_states,
    chunks_as_sealed,
    in_outbox,
)
from flows.runs.closings import chunk_of, closed_breaks
from flows.runs.decisions import BREAK, LEDGER, RESEAL, count_decisions, decisions
from flows.runs.documents import read_facts
from flows.runs.errors import AbandonedError, LedgerPurgedError, NotCommittedError, UnknownRunError
from flows.runs.events import CANCELLED, refusals
from flows.runs.frames import from_parquet
from flows.runs.identity import digest
from flows.runs.journal import Entry, entries
from flows.runs.keys import RunKeys, keys_of
from flows.runs.outcomes import StoredOutcomes
from flows.runs.purges import purge_of
from flows.runs.read_once import read_once
from flows.runs.run_records import RunRecord, record_of, records_where
from flows.runs.run_status import (
    Refusal,
    RunStatus,
    purged_status,
    reported_status,
    unreported_status,
)
from flows.runs.single_links import SingleLink, last_links, singles_of_run
from flows.runs.store import (
    ConflictError,
    ObjectMissingError,
    read,
    read_if_stored,
)
from schemas.breaks import LOST, RESULT_SHORT
from schemas.database import JOURNAL, RUN
from schemas.manifest import LedgerPart, Manifest, Plan
from schemas.records import (
    PARTS,
    Abandoned,
    Closing,
    LedgerRewritten,
    Part,
    Purged,
    Reseal,
    RewrittenPart,
)

NO_RECORDS: Final = {"closed": 0, "answers": 0}


class StoredRun:
    """One run as it is stored: each document is read once, when it is first asked for.

    A snapshot: what is written after a document was read does not show. Whoever writes something,
    takes a claim, or has to know what another process wrote meanwhile, goes on with a `fresh` one.
    Every read may raise ConflictError (not written by cardlink).
    """

    def __init__(self, adapters: Adapters, keys: RunKeys) -> None:
        self.adapters = adapters
        self.store = adapters.store
        self.keys = keys

    @classmethod
    def by_id(cls, adapters: Adapters, run: str) -> Self:
        """Return the run of that id; UnknownRunError where the text is not a run id."""
        return cls(adapters, keys_of(run))

    @classmethod
    def of(cls, adapters: Adapters, manifest: Manifest) -> Self:
        """Return the committed run of a manifest, which is not read again."""
        run = cls.by_id(adapters, manifest.run)
        run.__dict__["end"] = manifest
        return run

    @classmethod
    def recorded(cls, adapters: Adapters, record: RunRecord) -> Self:
        """Return a run whose row was read already."""
        run = cls.by_id(adapters, record.run)
        run.__dict__["record"] = record
        return run

    def fresh(self) -> Self:
        """Return the same run as it is stored now: nothing of it is read yet."""
        return type(self)(self.adapters, self.keys)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def id(self) -> str:
        """The run's id as text."""
        return str(self.keys.run)

    @property
    def issuer(self) -> str:
        """The issuer whose run it is."""
        return self.keys.run.issuer

    # Plan and end

    @read_once
    def record(self) -> RunRecord | None:
        """The run as the database has it; None where it was never planned."""
        with self.adapters.database.snapshot() as connection:
            return record_of(connection, self.issuer, self.id)

    @read_once
    def plan(self) -> Plan | None:
        """What the run consists of; None where it was never planned."""
        return self.record.planned() if self.record is not None else None

    def planned(self) -> Plan:
        """Return the plan; UnknownRunError where there is none."""
        if self.plan is None:
            raise UnknownRunError(run=self.id)
        return self.plan

    def as_planned(self) -> RunRecord:
        """Return the run as the database has it; UnknownRunError where it was never planned."""
        if self.record is None:
            raise UnknownRunError(run=self.id)
        return self.record

    @read_once
    def end(self) -> Manifest | Abandoned | None:
        """What ended the run: its manifest, or the record that it was abandoned; None before."""
        return self.record.end() if self.record is not None else None

    @read_once
    def is_ended(self) -> bool:
        """Whether the run is committed or abandoned, even where what says so is unreadable."""
        return self.record is not None and self.record.is_ended

    @property
    def manifest(self) -> Manifest | None:
        """The manifest; None before the commit, and where the run was abandoned."""
        return self.end if isinstance(self.end, Manifest) else None

    def finished(self) -> Manifest | None:
        """Return the manifest, None before the commit.

        Raises AbandonedError where there never will be one.
        """
        if isinstance(self.end, Abandoned):
            raise AbandonedError(run=self.end.run, actor=self.end.by, reason=self.end.reason)
        return self.end

    def committed(self) -> Manifest:
        """Return the manifest.

        Raises UnknownRunError without a plan, NotCommittedError before the commit, AbandonedError.
        """
        manifest = self.finished()
        if manifest is None:
            self.planned()
            status = self.status
            state = ": ".join(filter(None, (status.state, status.why)))
            raise NotCommittedError(run=self.id, issuer=self.issuer, state=state)
        return manifest

    def with_ledger(self) -> Manifest:
        """Return the manifest of a run whose rows can be read.

        Raises as `committed`, and LedgerPurgedError.
        """
        manifest = self.committed()
        self.refuse_purged()
        return manifest

    # Purges

    @read_once
    def purged_chunks(self) -> Purged | None:
        """The record that the run's chunks were purged; None where they were not."""
        return purge_of(self.adapters, self.issuer, self.id, "chunks")

    @read_once
    def purged_ledger(self) -> Purged | None:
        """The record that the run's ledger and report were purged; None where they were not."""
        return purge_of(self.adapters, self.issuer, self.id, "ledger")

    def purged(self, part: Part) -> Purged | None:
        """Return the record that a part was purged; None where it was not."""
        return self.purged_chunks if part == "chunks" else self.purged_ledger

    @property
    def purges(self) -> list[Purged]:
        """The records of the parts that were purged."""
        return [record for part in PARTS if (record := self.purged(part)) is not None]

    def refuse_purged(self) -> None:
        """Raise LedgerPurgedError where the ledger was purged."""
        record = self.purged_ledger
        if record is not None:
            raise LedgerPurgedError(
                run=self.id, date=f"{record.at:%Y-%m-%d}", setting=record.setting
            )

    # Ledger, reconciled rows, report

    def ledger(
        self, columns: list[str] | None = None, only: pl.Expr | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yield the ledger of the committed run part by part; a chunk never spans two parts.

        `columns`: None for all; `only` filters the records. Raises as `committed` and as
        `ledger_part`.
        """
        for part in self.committed().ledger:
            yield self.ledger_part(part, columns, only)

    def ledger_part(
        self, part: LedgerPart, columns: list[str] | None = None, only: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return one part of the ledger, checked against its digest.

        Raises LedgerPurgedError, and ConflictError where it is not what was written.
        """
        key = self.keys.ledger + part.name
        sha256 = part.sha256
        content = read_if_stored(self.store, key)
        if content is None:
            self.fresh().refuse_purged()  # it may have been purged just now
            rewritten = self.fresh().rewritten_parts.get(part.name)
            if rewritten is None:
                raise ObjectMissingError(key=key)
            key = self.keys.ledger + rewritten.now
            sha256 = rewritten.sha256
            content = read(self.store, key)
        if digest(content) != sha256:
            raise ConflictError(key=key)
        return from_parquet(content, columns, only)

    @read_once
    def rewritten_parts(self) -> dict[str, RewrittenPart]:
        """The ledger parts that were written anew without erased cardholders, as they are last."""
        rewritten = decisions(self.adapters, self.issuer, LEDGER, LedgerRewritten, self.id)
        parts = chain.from_iterable(record.parts for record in rewritten)
        return {part.name: part for part in parts}

    def rows(
        self, columns: list[str] | None = None, only: pl.Expr | None = None
    ) -> Iterator[pl.DataFrame]:
        """Yield the reconciled rows of the committed run, ledger part by ledger part.

        `columns`: None for all; `only` filters the rows. ObjectMissingError before its first
        report.
        """
        for part in self.committed().ledger:
            yield self.rows_part(part, columns, only)

    def rows_part(
        self, part: LedgerPart, columns: list[str] | None = None, only: pl.Expr | None = None
    ) -> pl.DataFrame:
        """Return the reconciled rows of one ledger part.

        Raises ObjectMissingError before the first report.
        """
        key = self.rows_key(part)
        return from_parquet(read(self.store, key), columns, only)

    def rows_key(self, part: LedgerPart) -> str:
        """Return the key of the reconciled rows of one ledger part."""
        return self.keys.report(f"rows/{part.name}")

    @read_once
    def summary(self) -> Mapping[str, Any] | None:
        """The facts of the run's report (`summary.json`); None where it has none."""
        return read_facts(self.store, self.keys.report("summary.json"))

    @read_once
    def records_to_report(self) -> dict[str, int]:
        """How many records its report takes in: of closed breaks, and answers to single links; and
        of committed runs that sent its rows again, cancelled chunks, and result files, if any.
        """
        committed = sum(run.manifest is not None for run in self.repeats)
        cancelled = len(self.events(CANCELLED))
        return {
            "closed": count_decisions(self.adapters, self.issuer, BREAK, self.id),
            "answers": sum(single.answered is not None for single in self.single_link_attempts),
            **({"repeats": committed} if committed else {}),
            **({"cancelled": cancelled} if cancelled else {}),
            **self.outcomes.state,
        }

    @property
    def is_report_behind(self) -> bool:
        """Whether something was recorded that its report, which has to show it, was made without.

        The command that recorded it is under way, or was stopped before it made the report.
        """
        try:
            reported = self.summary["open"]["recorded"] if self.summary else NO_RECORDS
        except ConflictError:  # a damaged one is made anew
            reported = None
        return reported != self.records_to_report and self.purged_ledger is None

    # What was done to it

    @read_once
    def history(self) -> list[Entry]:
        """The entries of the journal about the run."""
        return entries(self.adapters, self.issuer, JOURNAL.c.run == self.id)

    def events(self, *kinds: str) -> list[Entry]:
        """Return its entries of these kinds (`answered`, `refused`), as they were made."""
        return [entry for entry in self.history if entry.what in kinds]

    def last_event(self, *kinds: str) -> Entry | None:
        """Return the last entry of these kinds; None without one."""
        return next(reversed(self.events(*kinds)), None)

    @read_once
    def repeats(self) -> list[Self]:
        """The runs that were planned to send rows of it again, as they were planned."""
        with self.adapters.database.snapshot() as connection:
            records = records_where(connection, self.issuer, RUN.c.repeats == self.id)
        runs = (self.recorded(self.adapters, record) for record in records)
        return [run for run in runs if run.is_resubmission]

    @property
    def is_resubmission(self) -> bool:
        """Whether it sends rows of another run again."""
        selection = self.planned().selection
        return selection is not None and selection.kind == "resubmit"

    @read_once
    def refusal(self) -> Refusal | None:
        """What refused the run at its last attempt; None where nothing did."""
        return refusals(self.adapters, self.issuer, JOURNAL.c.run == self.id).get(self.id)

    @property
    def is_replaced(self) -> bool:
        """Whether another run stands in the place of the run, which was never committed."""
        return self.record is not None and self.record.state == "replaced"

    # What was added after the commit

    @read_once
    def outcomes(self) -> StoredOutcomes:
        """What result files said of the run."""
        return StoredOutcomes(self.adapters, self.issuer, self.id)

    @read_once
    def closed_breaks(self) -> list[Closing]:
        """The closings of breaks that are not reopened, by kind and place, oldest first."""
        return closed_breaks(self.adapters, self.issuer, self.id)

    @read_once
    def reseals(self) -> tuple[Reseal, ...]:
        """The records of chunks that were sealed again, oldest first."""
        return tuple(decisions(self.adapters, self.issuer, RESEAL, Reseal, self.id))

    @read_once
    def single_link_attempts(self) -> list[SingleLink]:
        """The single links requested for rows of the run, by row and in order."""
        return singles_of_run(self.adapters, self.issuer, self.id)

    @read_once
    def single_links(self) -> pl.DataFrame:
        """The last single link of each row (LINK, and when it `arrived`)."""
        return last_links(self.single_link_attempts)

    @property
    def committed_at(self) -> datetime:
        """When the committed run was committed."""
        self.committed()
        committed_at = self.as_planned().committed_at
        if committed_at is None:
            raise BugError(place="committed_at", kind="none")
        return committed_at

    @property
    def dropped_at(self) -> datetime | None:
        """When the extract of the committed run had been dropped; None where nothing says so."""
        return self.record.dropped_at if self.record is not None else None

    # Chunks

    @read_once
    def sealed_chunks(self) -> dict[int, StoredChunk]:
        """The chunks of the committed run by number, each as it was sealed last."""
        manifest = self.committed()
        return chunks_as_sealed(self.keys, manifest, self.reseals)

    @property
    def manifest_as_sealed(self) -> Manifest:
        """The manifest with size and digest of each chunk as it was sealed last."""
        chunks = tuple(stored.chunk for stored in self.sealed_chunks.values())
        return self.committed().model_copy(update={"chunks": chunks})

    @read_once
    def chunk_states(self) -> list[OutboxChunk]:
        """The chunks of the committed run with their states: answers do not count."""
        chunks = self.manifest_as_sealed.chunks
        with self.adapters.database.snapshot() as connection:
            return in_outbox(self.id, chunks, chunk_states(connection, self.issuer, self.id))

    @property
    def cancelled_chunks(self) -> frozenset[int]:
        """The numbers of the chunks that were cancelled."""
        return frozenset(
            item.chunk.number for item in self.chunk_states if item.state == "cancelled"
        )

    @read_once
    def answered_chunks(self) -> frozenset[int]:
        """The numbers of the chunks that a result has answered, or a decision that none comes."""
        lost = (
            chunk_of(closing.place)
            for closing in self.closed_breaks
            if (closing.name, closing.decision) == (RESULT_SHORT, LOST)
        )
        answered = self.outcomes.chunks().union(lost)
        if answered or self.purged_ledger is None:
            return answered
        # only finished runs are purged
        numbers = frozenset(item.chunk.number for item in self.chunk_states)
        return numbers - self.cancelled_chunks

    @property
    def outbox(self) -> list[OutboxChunk]:
        """The chunks of the committed run with their states, `answered` among them."""
        return [
            item._replace(state="answered") if item.chunk.number in self.answered_chunks else item
            for item in self.chunk_states
        ]

    # Status

    @read_once
    def status(self) -> RunStatus:
        """The run's state in words, and where its rows are."""
        if self.summary is not None:
            return reported_status(self.id, self.summary)
        if self.manifest is None:
            return self._status_before_commit()
        if self.purged_ledger is not None:
            return purged_status(self.id, self.purged_ledger)
        return unreported_status(self.id, self.manifest)

    def _status_before_commit(self) -> RunStatus:
        if self.end is not None:
            why = self.end.reason if isinstance(self.end, Abandoned) else ""
            return RunStatus(self.id, "abandoned", why=why)
        if self.is_replaced:
            return RunStatus(self.id, "replaced by another run")
        if self.refusal is not None:
            return RunStatus(self.id, "refused", why=self.refusal.sentence)
        return RunStatus(self.id, "not committed")
