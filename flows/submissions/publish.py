"""What a run stores of its rows: the ledger, and chunks as the portal reads them, a cuid once in
each.

Chunks are sealed in groups while the reading goes on, and published create-only, each read back
before it counts; the digests of a group's ciphertext are written before the ciphertext itself.
"""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from io import BytesIO
from threading import Lock
from typing import NamedTuple

import numpy as np
import polars as pl
from pandera.config import ValidationDepth, config_context
from pandera.errors import SchemaErrors
from pydantic import RootModel

from flows.errors import BugError, LimitError, OperatorError, TryAgainError
from flows.runs.chains import CONTESTS, records
from flows.runs.context import IssuerContext
from flows.runs.identity import Header, canonical, digest
from flows.runs.keys import RunKeys, link
from flows.runs.sealing import Plain, Sealed, Sealer
from flows.runs.store import (
    ConflictError,
    ObjectDamagedError,
    ObjectMissingError,
    Store,
    StoreBusyError,
    read,
)
from flows.stopping import uninterrupted
from schemas import ledger
from schemas.ledger import Ledger
from schemas.manifest import LedgerPart, ManifestChunk
from schemas.portal import CUID, MAX_ROWS
from schemas.tables import parquet

# chunks per gpg process and seal record; raise RECIPE with it, since older records would not be
# found
GROUP = 32
SEALERS = 2  # gpg processes at a time
ENOUGH = 100  # failed chunks after which the cause is not the chunks' own
_DIGITS = 3  # of a seal record's number
PATIENCE = 100_000  # rows searched for a full chunk; limits memory where one cuid fills an extract


class Splitter:
    """Collect rows until they make whole chunks; rows keep their order except for repeated
    cuids.
    """

    def __init__(self, limit: int = MAX_ROWS, patience: int = PATIENCE) -> None:
        self._limit = limit
        self._patience = max(limit, patience)
        self._waiting: pl.DataFrame | None = None

    def add(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame]:
        """Take more rows (any columns, `cardholder.cuid` among them) and yield the chunks that are
        full.
        """
        waiting = rows if self._waiting is None else pl.concat([self._waiting, rows])
        # the usual case: one check for all chunks
        alone = waiting.get_column(CUID).n_unique() == waiting.height
        whole = waiting.height - waiting.height % self._limit if alone else 0
        self._waiting = waiting.slice(whole)
        yield from waiting.head(whole).iter_slices(self._limit)
        while (chunk := self._next(last=False)) is not None:
            yield chunk

    def finish(self) -> Iterator[pl.DataFrame]:
        """Yield the rest in as few chunks as possible."""
        while (chunk := self._next(last=True)) is not None:
            yield chunk

    def _next(self, *, last: bool) -> pl.DataFrame | None:
        """Return the next chunk: the first rows of different cuids; None where it could still get
        more.
        """
        waiting = self._waiting
        if waiting is None or waiting.is_empty():
            return None
        # few cuids repeat: the first rows are enough for most chunks
        for size in (self._limit, self._patience):
            window = waiting.head(size)
            first = window.get_column(CUID).is_first_distinct()
            if int(first.sum()) >= self._limit:
                break
        else:
            if window.height < self._patience and not last:
                return None
        take = first & (first.cum_sum() <= self._limit)
        self._waiting = pl.concat([window.filter(~take), waiting.slice(window.height)])
        return window.filter(take)


def lines(rows: pl.DataFrame, order: Sequence[str]) -> pl.Series:
    """Return each row as a chunk's line, columns in the portal's `order`; BugError for a line break
    in a cell.
    """
    out = BytesIO()
    rows.select(order).write_csv(out, include_header=False, quote_style="necessary")
    text = pl.read_lines(out.getvalue()).to_series()
    if len(text) != rows.height:
        raise BugError(place="writing lines", kind="a cell holds a line break")
    return text


def write_chunk(text: pl.Series, header: Header) -> bytes:
    """Return the CSV of the lines of at most 1000 rows (interface.md 2.6)."""
    body: bytes = text.str.join("\n").cast(pl.Binary).item()
    return b"%b%b\n" % (header.line, body)


class _SealRecord(RootModel[dict[str, str]]):
    """One link of the chain: the digests of freshly sealed chunks, by chunk name."""


class SealRecords:
    """The seal records of one group of chunks of one run, as far as they have been read."""

    def __init__(self, store: Store, prefix: str, group: int) -> None:
        self._store, self._prefix = store, f"{prefix}{group:05d}-"
        self._sealed: set[tuple[str, str]] = set()
        self._reading = Lock()  # the uploads of a group ask at the same time
        self.length = 0
        self._catch_up()

    def names(self, chunk: str, sha256: str) -> bool:
        """Return whether this run, or a twin just now, has sealed `chunk` to exactly these
        bytes.
        """
        if (chunk, sha256) not in self._sealed:
            self._catch_up()
        return (chunk, sha256) in self._sealed

    def add(self, digests: Mapping[str, str]) -> None:
        """Write the digests of freshly sealed chunks, by chunk name, as the chain's next record."""
        record = canonical(dict(digests))
        for _ in range(CONTESTS):
            if self._store.create(link(self._prefix, self.length + 1, _DIGITS), record):
                self._sealed.update(digests.items())
                self.length += 1
                return
            self._catch_up()
        raise StoreBusyError(place=self._prefix, code="contested")

    def _catch_up(self) -> None:
        with self._reading:
            for record in records(self._store, self._prefix, _SealRecord, self.length + 1, _DIGITS):
                self._sealed.update(record.root.items())
                self.length += 1


class ForeignChunkError(OperatorError):
    """An unknown object is at a chunk's key."""

    message = "{key}: unknown object of {size} bytes at a chunk's key (truncated or foreign). Nothing was overwritten."
    next_step = "Move the object away and find out who wrote it, then run the same command again."


class PartialRunError(TryAgainError):
    """Some chunks could not be sealed or published; the others are published, nothing is
    committed.
    """

    message = (
        "{run}: {count} chunks not published ({reason}); {published} are. Nothing is committed yet."
    )
    next_step = "To finish it: {command}"


class ChunkDraft(NamedTuple):
    """One chunk in the clear: its number, upload name and lines."""

    number: int
    name: str
    text: pl.Series


class Outcome(NamedTuple):
    """What became of one chunk: published, or the code of its trouble; `foreign`: an operator must
    act.
    """

    number: int
    chunk: ManifestChunk | None
    trouble: str = ""
    foreign: ForeignChunkError | None = None


class Publisher:
    """Take chunks in order, publish them in any order, return their outcomes in order; without
    `sealer` only count.
    """

    def __init__(self, context: IssuerContext, sealer: Sealer | None, keys: RunKeys) -> None:
        self._store, self._sealer, self._keys = context.adapters.store, sealer, keys
        self._header, self._extension = context.header, context.issuer.portal.extension
        self._sealers = ThreadPoolExecutor(SEALERS, "seal")
        self._connections = ThreadPoolExecutor(context.adapters.connections, "publish")
        self._group: list[ChunkDraft] = []
        self._under_way: list[Future[list[Outcome]]] = []
        self._outcomes: list[Outcome] = []
        self._troubled = 0
        self.count = 0

    @property
    def has_given_up(self) -> bool:
        """Whether so many chunks have failed that going on would only take time."""
        return self._troubled >= ENOUGH

    def add(self, rows: pl.DataFrame) -> int:
        """Take one chunk's rows and return its number (from 1); waits while sealing is behind."""
        self.count += 1
        name = self._keys.chunk_name(self.count, self._extension)
        if self._sealer is None:
            chunk = ManifestChunk(
                number=self.count, name=name, rows=rows.height, bytes=0, sha256=""
            )
            self._outcomes.append(Outcome(self.count, chunk))
            return self.count
        self._group.append(ChunkDraft(self.count, name, rows["text"]))
        if len(self._group) == GROUP:
            self.send()
        return self.count

    def send(self) -> None:
        """Seal and publish the waiting chunks; a group that is not full must be the last."""
        if not self._group:
            return
        if len(self._under_way) >= 2 * SEALERS:
            self._collect()
        group, self._group = self._group, []
        # a thread that was started and is not known would seal on after the end
        with uninterrupted():
            self._under_way.append(self._sealers.submit(self._publish, group))

    def finish(self) -> list[Outcome]:
        """Return the outcome of every chunk, in order, and end the threads."""
        self.send()
        while self._under_way:
            self._collect()
        self.close()
        return sorted(self._outcomes, key=lambda outcome: outcome.number)

    def close(self) -> None:
        """End the threads: requests and gpg processes in progress finish, what waits is dropped."""
        self._connections.shutdown(wait=False, cancel_futures=True)
        self._sealers.shutdown(cancel_futures=True)
        self._connections.shutdown()

    def _collect(self) -> None:
        outcomes = self._under_way.pop(0).result()
        self._troubled += sum(outcome.chunk is None for outcome in outcomes)
        self._outcomes += outcomes

    def _publish(self, group: Sequence[ChunkDraft]) -> list[Outcome]:
        try:
            return self._publish_group(group)
        except LimitError:  # of this machine, so no chunk will fare better
            raise
        except TryAgainError as error:  # its seal records could not be read or written
            return [Outcome(draft.number, None, type(error).__name__) for draft in group]

    def _publish_group(self, group: Sequence[ChunkDraft]) -> list[Outcome]:
        """Adopt what a dead run or a twin published, seal and publish the rest."""
        records = SealRecords(self._store, self._keys.seals, (group[0].number - 1) // GROUP)
        found: list[Outcome | None] = [None] * len(group)
        if records.length:
            found = list(self._connections.map(lambda draft: self._adopt(draft, records), group))
        todo = [draft for draft, outcome in zip(group, found, strict=True) if outcome is None]
        fresh = self._seal(todo)
        digests = [digest(one.data) for one in fresh]
        named = zip(todo, fresh, digests, strict=True)
        if sealed := {draft.name: sha256 for draft, one, sha256 in named if not one.trouble}:
            records.add(sealed)
        stored = self._connections.map(partial(self._store_one, records), todo, fresh, digests)
        return [outcome for outcome in found if outcome is not None] + list(stored)

    def _seal(self, todo: Sequence[ChunkDraft]) -> list[Sealed]:
        """Seal drafts, those that failed once more: a gpg that was killed takes its whole group
        with it.
        """
        plain = [
            Plain(self._keys.chunk_name(one.number, "csv"), write_chunk(one.text, self._header))
            for one in todo
        ]
        sealed = self._sealer.seal(plain) if plain and self._sealer else []
        failed = [one for one, done in zip(plain, sealed, strict=True) if done.trouble]
        again = iter(self._sealer.seal(failed) if failed and self._sealer else [])
        return [next(again) if one.trouble else one for one in sealed]

    def _store_one(
        self, records: SealRecords, draft: ChunkDraft, fresh: Sealed, sha256: str
    ) -> Outcome:
        if fresh.trouble:
            return Outcome(draft.number, None, fresh.trouble)
        try:
            self._store.create(self._keys.chunks + draft.name, fresh.data)
        except TryAgainError as error:
            return Outcome(draft.number, None, type(error).__name__)
        outcome = self._adopt(draft, records, fresh.data, sha256)
        return outcome or Outcome(draft.number, None, ObjectMissingError.__name__)

    def _adopt(
        self, draft: ChunkDraft, records: SealRecords, fresh: bytes = b"", sha256: str = ""
    ) -> Outcome | None:
        """Read back the object at a chunk's key (None: there is none); it counts where a seal
        record names its digest.

        `fresh` and `sha256`: what was sealed just now, so that the same bytes are not hashed twice.
        """
        key = self._keys.chunks + draft.name
        try:
            stored = read(self._store, key)
            sha256 = sha256 if stored == fresh else digest(stored)
            ours = records.names(draft.name, sha256)
            # damaged in transit, not in the store
            if not ours and read(self._store, key) != stored:
                raise ObjectDamagedError(key=key)
        except ObjectMissingError:
            return None
        except TryAgainError as error:
            return Outcome(draft.number, None, type(error).__name__)
        if not ours:
            return Outcome(draft.number, None, foreign=ForeignChunkError(key=key, size=len(stored)))
        return Outcome(
            draft.number,
            ManifestChunk(
                number=draft.number,
                name=draft.name,
                rows=len(draft.text),
                bytes=len(stored),
                sha256=sha256,
            ),
        )


# The ledger: records made from rows, checked by the model in `schemas.ledger`, written as Parquet
# parts.


def sent_records(chunks: Sequence[pl.DataFrame], numbers: Sequence[int]) -> pl.DataFrame:
    """Return the ledger records of the rows of some chunks (at least one), in the chunks' order."""
    heights = [rows.height for rows in chunks]
    records = pl.concat(chunks).with_columns(
        cuid=CUID,
        fate=pl.lit(ledger.SUBMITTED),
        chunk=pl.Series(np.repeat(numbers, heights), dtype=pl.UInt32),
        position=pl.Series(
            np.concatenate([np.arange(1, height + 1) for height in heights]), dtype=pl.UInt16
        ),
    )
    return records.select(*ledger.dtypes())


def with_reasons(rows: pl.DataFrame, verdicts: pl.DataFrame) -> pl.DataFrame:
    """Add the list column `reasons` ("column|code" each, empty where there is none).

    Not by `pl.format`: polars 2.1 panics in it where columns have different chunks, as concatenated
    verdicts do.
    """
    if verdicts.is_empty():
        return rows.with_columns(pl.lit([], pl.List(pl.String)).alias("reasons"))
    coded = verdicts.select("row", reasons=pl.concat_str("column", "code", separator="|"))
    reasons = coded.group_by("row", maintain_order=True).agg("reasons")
    joined = rows.select("row").join(reasons, on="row", how="left", maintain_order="left")
    return rows.with_columns(joined["reasons"].fill_null([]))


def unsent_records(rows: pl.DataFrame, fate: pl.Expr) -> pl.DataFrame:
    """Return ledger records of rows with their `reasons`; a cuid that holds a card number is left
    out.
    """
    holds_card = pl.col("reasons").list.contains(f"{CUID}|cardholder.cuid.card_number")
    kept = {name: pl.col(name) for name in ("cuid_made", "last_4", "expiration", "reasons")}
    return _unsent(rows, fate, cuid=pl.when(~holds_card).then(CUID), **kept)


def unread_records(lines: pl.DataFrame, fate: pl.Expr) -> pl.DataFrame:
    """Return ledger records of lines of which only the place and one code are known."""
    return _unsent(
        lines, fate, cuid_made=pl.lit(False), reasons=pl.concat_list("|" + pl.col("code"))
    )


def _unsent(rows: pl.DataFrame, fate: pl.Expr, **cells: pl.Expr) -> pl.DataFrame:
    """Return ledger records, without origin, of rows that are not sent; cells that are not given
    are null.
    """
    given = {"row": pl.col("row"), "line": pl.col("line"), "fate": fate, **cells}
    kinds = {name: kind for name, kind in ledger.dtypes().items() if name != "origin"}
    return rows.select(
        given.get(name, pl.lit(None)).cast(kind).alias(name) for name, kind in kinds.items()
    )


def check_records(records: pl.DataFrame) -> None:
    """Raise BugError, which names columns and shows no cell, where records are not as the ledger's
    model declares.
    """
    try:
        with config_context(
            validation_enabled=True, validation_depth=ValidationDepth.SCHEMA_AND_DATA
        ):
            Ledger.validate(records, lazy=True)
        return
    except SchemaErrors as errors:
        named = [str(error.schema.name) for error in errors.schema_errors]
        if named == [Ledger.__name__]:
            named = [
                name
                for name, holds in ledger.HOLDS.items()
                if not records.select(holds.all()).item()
            ]
        problem = ", ".join(dict.fromkeys(named))
    except Exception as error:  # noqa: BLE001  polars' errors may show cells, as pandera's do: ours is raised below
        problem = type(error).__name__
    raise BugError(place="ledger", kind=problem)


class LedgerWriter:
    """Write ledger records in parts, which chunks never span."""

    def __init__(
        self, store: Store, keys: RunKeys, part_rows: int = 250_000, *, anew: bool = False
    ) -> None:
        self._store, self._keys, self._part_rows, self._anew = store, keys, part_rows, anew
        self._waiting: list[pl.DataFrame] = []
        self._parts: list[LedgerPart] = []

    def add(self, records: pl.DataFrame) -> None:
        """Take records, in any order, and write a part of them where they are enough."""
        self._waiting.append(records)
        if sum(map(len, self._waiting)) >= self._part_rows:
            self.finish()

    def finish(self) -> list[LedgerPart]:
        """Write the rest and return all parts; one that exists counts if it holds the same
        records.
        """
        if any(map(len, self._waiting)):
            frame, self._waiting = pl.concat(self._waiting).sort("row"), []
            check_records(frame)
            name = f"part-{len(self._parts) + 1:05d}.parquet"
            key, data = (
                self._keys.ledger + name,
                parquet(frame, compression="zstd", statistics=True),
            )
            # a dry run, maybe with other settings than those of the run that is stored
            if self._anew:
                self._store.replace(key, [data])
            else:
                self._store.create(key, data)
            stored = read(self._store, key)
            same = stored == data
            with suppress(pl.exceptions.PolarsError):  # not Parquet
                same = same or pl.read_parquet(BytesIO(stored)).equals(frame)
            if not same:
                raise ConflictError(key=key)
            self._parts.append(LedgerPart(name=name, rows=frame.height, sha256=digest(stored)))
        return self._parts
