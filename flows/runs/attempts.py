"""Every attempt to get a card its link, over the runs that still say something of it: linked, error or awaiting.

A run whose links have all ended, that waits for nothing and is older than a link lives says nothing any more; so a
year of nights costs what its living links cost.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import date, timedelta
from functools import lru_cache
from io import BytesIO
from typing import Any, NamedTuple

import polars as pl

from flows.runs.chains import commits_since
from flows.runs.chunks import chunk_states
from flows.runs.context import IssuerContext
from flows.runs.documents import (
    has_manifest,
    keys_of,
    read_ledger,
    read_manifest,
    read_summary,
    with_ledger,
    without_ledger,
)
from flows.runs.frames import rows_key
from flows.runs.identity import local_day
from flows.runs.keys import RunKeys
from flows.runs.links import SingleLink, links_of, prompted_singles, singles
from flows.runs.prior_state import ATTEMPT, PriorState
from flows.runs.store import Store, prefetch, read
from schemas import ledger
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import LedgerPart, Manifest
from schemas.records import UNKNOWN

LIFE = timedelta(days=62)  # of a link (interface.md 8): so long an error keeps its card from being sent unchanged
READERS = 16
TINY = 16_384  # bytes: a Parquet object with no row is smaller
RECORD = ["row", "chunk", "origin", "cuid", "last_4", "expiration", "name_check", "address_check"]
SENT: dict[str, pl.DataType | type[pl.DataType]] = {
    "row": pl.UInt32,
    "chunk": pl.UInt32,
    **ATTEMPT,
}
_NONE_SENT = pl.DataFrame(schema=SENT)


class Attempts(NamedTuple):
    """What one ledger part of a run says: `rows` has the columns of SENT; `digest` names what it was read from."""

    run: str
    rows: pl.DataFrame
    digest: str


class CardSurvey(NamedTuple):
    """What is known of an issuer's cards, the digest of what that was read from, and the last commit before."""

    known: PriorState
    digest: str
    commit: int


def survey_cards(context: IssuerContext, also: Iterable[pl.DataFrame] = ()) -> CardSurvey:
    """Look at every card of an issuer that a run of the last weeks, or one with a living link, has sent.

    `also`: attempts (ATTEMPT) that a rehearsal takes for made.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    links = list(commits_since(store, issuer))  # first: what is committed after it is looked at at our own commit
    newest = max((link.as_of for link in links if link.selection is None), default=date.min)
    running = hashlib.sha256(newest.isoformat().encode())

    def frames(built: Iterator[Attempts]) -> Iterator[pl.DataFrame]:
        for one in built:
            running.update(f"{one.run} {one.digest}\n".encode())
            if not one.rows.is_empty():
                yield one.rows
        for frame in also:
            running.update(b"rehearsed")
            yield frame

    with closing(prefetch(attempts(store, issuer, today, links))) as built:
        known = PriorState(frames(built), newest)
    return CardSurvey(known, running.hexdigest(), len(links))


def attempts(store: Store, issuer: str, today: date, links: Sequence[Manifest]) -> Iterator[Attempts]:
    """Yield the attempts of the runs that still say something of their cards, part by part, in order of commit."""
    turns = {link.run: turn for turn, link in enumerate(links)}
    committed = sorted(with_ledger(store, issuer), key=lambda one: turns.get(one.run, -1))
    with ThreadPoolExecutor(READERS) as readers:
        reported = list(readers.map(lambda run: read_summary(store, keys_of(run.run)), committed))
    telling = _relevant_runs(committed, reported, today)
    for manifest, summary in zip(committed, reported, strict=True):
        if manifest.run in telling:
            yield from _of_run(store, manifest, reported=summary is not None)
    done = {manifest.run for manifest in committed} | without_ledger(store, issuer)
    for link in links:
        if link.run not in done and not _abandoned(store, keys_of(link.run)):  # about to be committed: counts as sent
            yield from _unanswered(store, keys_of(link.run), link.ledger)
    typed = _single_attempts(prompted_singles(store, issuer))
    if not typed.is_empty():
        yield Attempts("", typed, f"typed in {typed['state'].to_list()}")


def _relevant_runs(
    committed: Sequence[Manifest], reported: Sequence[dict[str, Any] | None], today: date
) -> frozenset[str]:
    """Return the runs that say something still, and those they repeat: only these know a row as its extract had it."""
    by_run = {manifest.run: manifest for manifest in committed}
    found: set[str] = set()
    for manifest, summary in zip(committed, reported, strict=True):
        one = manifest if manifest.counts.submitted and is_current(manifest, summary, today) else None
        while one is not None and one.run not in found:
            found.add(one.run)
            one = by_run.get(one.selection.of) if one.selection else None
    return frozenset(found)


def _abandoned(store: Store, keys: RunKeys) -> bool:
    """Tell whether a run's manifest is there and is none: an operator gave the run up."""
    return has_manifest(store, keys) and read_manifest(store, keys) is None


def is_current(manifest: Manifest, summary: dict[str, Any] | None, today: date) -> bool:
    """Tell whether a run still says something of its cards on that day."""
    if summary is None or summary["rows"]["awaiting"] or manifest.as_of + LIFE >= today:
        return True
    return any(day and date.fromisoformat(day) >= today for day in summary["expires"])


def attempts_of(store: Store, manifest: Manifest) -> Iterator[Attempts]:
    """Yield the attempts of one committed run, part by part."""
    yield from _of_run(store, manifest, reported=read_summary(store, keys_of(manifest.run)) is not None)


def _of_run(store: Store, manifest: Manifest, *, reported: bool) -> Iterator[Attempts]:
    """Yield a run's attempts; a single link that was made for one of its rows since is one more of them."""
    asked = list(singles(store, keys_of(manifest.run)))
    alone = links_of(asked)
    for one in _attempts(store, manifest, reported=reported):
        rows, built, rest = one.rows, alone, alone
        if not alone.is_empty():
            built = alone.join(rows.drop("cuid", "last_4", "state", "expires_on"), on="row", how="inner")
            rest = alone.join(rows, on="row", how="anti")
            rows = pl.concat([rows, _linked(built)])
        if manifest.selection is not None and manifest.selection.kind == "renew":
            rows = rows.with_columns(pl.lit(None, pl.UInt32).alias("origin"))  # sent as the extract has them
        yield one._replace(rows=rows, digest=f"{one.digest} {built['row'].to_list()}")
        alone = rest
    if not alone.is_empty():  # rows that were never sent
        yield Attempts(manifest.run, _linked(alone), f"{alone['row'].to_list()}")
    lost = _single_attempts(one for one in asked if one.state == UNKNOWN)
    if not lost.is_empty():
        yield Attempts(manifest.run, lost, f"unknown {lost['row'].to_list()}")


def _single_attempts(alone: Iterable[SingleLink]) -> pl.DataFrame:
    """Return what single links say of their cards (SENT): one nobody knows the end of is awaited."""
    states = {"linked": LINKED, "refused": ERROR, UNKNOWN: AWAITING}
    rows = [
        {**one.asked.model_dump(include=SENT.keys() - {"state"}), "state": states[one.state],
         "expires_on": one.answered and one.answered.expires_on}
        for one in alone if one.state in states
    ]  # fmt: skip
    found = pl.DataFrame(
        rows, schema={name: kind for name, kind in SENT.items() if name != "state"} | {"state": pl.String}
    )
    return found.select(pl.col(name).cast(kind) for name, kind in SENT.items())


def _linked(alone: pl.DataFrame) -> pl.DataFrame:
    rows = alone.with_columns(pl.lit(LINKED).alias("state"))
    return rows.select(
        (pl.col(name) if name in rows.columns else pl.lit(None).alias(name)).cast(kind) for name, kind in SENT.items()
    )


def _attempts(store: Store, manifest: Manifest, *, reported: bool) -> Iterator[Attempts]:
    keys = keys_of(manifest.run)
    cancelled = _cancelled(store, keys, manifest)
    if not reported:
        yield from _unanswered(store, keys, manifest.ledger, cancelled)
        return
    for part in manifest.ledger:
        content = read(store, rows_key(keys, part))
        digest = hashlib.sha256(content + repr(sorted(cancelled)).encode()).hexdigest()
        if len(content) < TINY and _is_empty(content):
            yield Attempts(str(keys.run), _NONE_SENT, digest)
            continue
        stated = pl.read_parquet(BytesIO(content), columns=[*SENT])
        rows = stated.with_columns(pl.col("expires_on").fill_null(manifest.as_of + LIFE))  # where nobody said so
        yield Attempts(str(keys.run), _without(rows, cancelled), digest)


@lru_cache(4)
def _is_empty(rows: bytes) -> bool:
    """Tell whether a part of a report has no row; most parts of a portfolio have none, and all of these are alike."""
    return pl.read_parquet(BytesIO(rows), columns=["row"]).is_empty()


def _unanswered(
    store: Store, keys: RunKeys, parts: Iterable[LedgerPart], cancelled: frozenset[int] = frozenset()
) -> Iterator[Attempts]:
    parts = list(parts)
    for part, sent in zip(
        parts, read_ledger(store, keys, parts, RECORD, pl.col("fate") == ledger.SUBMITTED), strict=True
    ):
        rows = sent.with_columns(pl.lit(AWAITING).alias("state"), pl.lit(None, pl.Date).alias("expires_on"))
        yield Attempts(str(keys.run), _without(rows, cancelled), f"{part.sha256} {sorted(cancelled)}")


def _without(rows: pl.DataFrame, cancelled: frozenset[int]) -> pl.DataFrame:
    """Leave out what was never sent: rows of cancelled chunks that nobody answered."""
    if cancelled:
        rows = rows.filter((pl.col("state") != AWAITING) | ~pl.col("chunk").is_in(list(cancelled)))
    return rows.select(pl.col(name).cast(kind) for name, kind in SENT.items())


def _cancelled(store: Store, keys: RunKeys, manifest: Manifest) -> frozenset[int]:
    found = chunk_states(store, keys, manifest)
    return frozenset(item.chunk.number for item in found if item.state == "cancelled")
