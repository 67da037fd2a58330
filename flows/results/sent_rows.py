"""The sent rows that result files may answer: those of the chunk a file is named after, else of all runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache

import polars as pl

from flows.results.attribution import ByHand
from flows.results.match import Candidates, candidates, named_in, searched_elsewhere, words_of
from flows.runs.documents import keys_of, read_ledger, read_manifest, with_ledger, without_ledger
from flows.runs.keys import RunId, RunKeys
from flows.runs.store import Store
from schemas import ledger
from schemas.manifest import LedgerPart, Manifest

SENT = ["row", "cuid", "last_4", "fate", "chunk", "position"]
AT_HAND = 4  # ledger parts kept decoded, about 15 MB each: result files arrive in the order of their chunks
_NONE = pl.DataFrame(schema={"run": pl.String, **{name: ledger.dtypes()[name] for name in SENT}}).drop("fate")


def candidate_ids(claims: pl.DataFrame) -> pl.Series:
    """Return every cuid that rows claim (columns `claim`, `error`), and every word of the errors that name none."""
    silent = claims.filter(pl.col("claim").is_null() & pl.col("error").is_not_null())
    words = silent.select(pl.col("error").unique()).select(words_of(pl.col("error"))).to_series().explode()
    return pl.concat([claims["claim"].drop_nulls(), words.drop_nulls()]).unique()


class SentIndex:
    """The sent rows of the committed runs of one issuer, for one ingest."""

    def __init__(self, store: Store, issuer: str) -> None:
        self._store = store
        self._issuer = issuer
        self._part = lru_cache(AT_HAND)(self._read_part)
        self._manifest = lru_cache(AT_HAND)(self._read_manifest)
        self._chunks: dict[tuple[str, str], frozenset[int]] = {}  # of each part read so far, by run and name

    def candidates(self, names: Sequence[str], claims: pl.DataFrame, forced: Sequence[ByHand] = ()) -> Candidates:
        """Return the sent rows of every chunk that result files may answer.

        `names`: of the files. `claims`: of their rows (`read_claims`). `forced`: rows that an operator attributed.
        """
        asked: dict[str, set[int]] = {}
        for run, chunk in (one for name in names for one in named_in(name)):
            asked.setdefault(run, set()).add(chunk)
        named = pl.concat([_NONE, *(self._chunks_of(run, chunks) for run, chunks in sorted(asked.items()))])
        found = candidates(names, named)
        others = searched_elsewhere(claims, found)
        if others.is_empty() and not forced:
            return found
        by_hand = (self._chunk_of(one.run, one.row) for one in forced)
        sent = pl.concat([named, self._search(others), *by_hand]).unique(["run", "row"], maintain_order=True)
        return candidates(names, sent)

    def _chunk_of(self, run: str, row: int) -> pl.DataFrame:
        """Return the sent rows of the chunk that has a row of a run; none if it was not sent."""
        manifest = self._manifest(run)
        for part in manifest.ledger if manifest else ():
            sent = self._part(run, part)
            chunk = sent.filter(row=row)["chunk"]
            if chunk.len():
                return sent.filter(pl.col("chunk") == chunk[0])
        return _NONE

    def _search(self, claims: pl.DataFrame) -> pl.DataFrame:
        """Return the rows of every chunk with one of these claims' candidate ids."""
        if claims.is_empty():
            return _NONE
        cuids = candidate_ids(claims).implode()
        found = [_NONE]
        for manifest in self._committed:
            for part in manifest.ledger:
                sent = self._part(manifest.run, part)
                hit = sent.filter(pl.col("cuid").is_in(cuids))["chunk"].unique()
                found.append(sent.filter(pl.col("chunk").is_in(hit.implode())))
        return pl.concat(found)

    def _chunks_of(self, run: str, chunks: Collection[int]) -> pl.DataFrame:
        """Return the rows of some chunks of a run; none if there is no such run."""
        manifest = self._manifest(run)
        parts = self._parts_of(manifest, frozenset(chunks)) if manifest else ()
        return pl.concat([_NONE, *(part.filter(pl.col("chunk").is_in(list(chunks))) for part in parts)])

    def _parts_of(self, manifest: Manifest, chunks: frozenset[int]) -> Iterator[pl.DataFrame]:
        """Yield the ledger parts that may hold the chunks; a part read before is read again only if it does."""
        for part in manifest.ledger:
            known = self._chunks.get((manifest.run, part.name))
            if known is None or known & chunks:
                yield self._part(manifest.run, part)
                chunks -= self._chunks[manifest.run, part.name]
            if not chunks:
                return

    def _read_part(self, run: str, part: LedgerPart) -> pl.DataFrame:
        (records,) = read_ledger(self._store, keys_of(run), [part], SENT)
        sent = records.filter(fate=ledger.SUBMITTED).select(pl.lit(run).alias("run"), pl.all().exclude("fate"))
        self._chunks[run, part.name] = frozenset(sent["chunk"].unique())
        return sent

    def _read_manifest(self, run: str) -> Manifest | None:
        parsed = RunId.parse(run)
        if parsed is None or parsed.issuer != self._issuer or run in self.purged:
            return None
        return read_manifest(self._store, RunKeys(parsed))

    @cached_property
    def purged(self) -> frozenset[str]:
        """The runs whose ledgers are gone: nothing can be attributed to them any more."""
        return without_ledger(self._store, self._issuer)

    @cached_property
    def _committed(self) -> list[Manifest]:
        return list(with_ledger(self._store, self._issuer))
