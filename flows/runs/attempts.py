"""Every attempt to get a card its link, from the runs that still matter and single links: linked,
error or awaiting.

A run matters no more once its links have all ended, nothing of it is awaited, and it is older than
a link lives; so a year of nights costs no more than its living links.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from typing import Any, NamedTuple

import polars as pl

from flows.runs import documents
from flows.runs.business_date import local_day
from flows.runs.chunks import chunk_states
from flows.runs.commits import commits_since
from flows.runs.context import IssuerContext
from flows.runs.documents import read_ledger
from flows.runs.frames import from_parquet, shaped
from flows.runs.keys import keys_of
from flows.runs.outcomes import DECISION
from flows.runs.prior_state import CHECKS, SENT, PriorState
from flows.runs.single_links import answers_of, prompted_singles, singles
from flows.runs.store import Store, read
from flows.runs.threads import concurrently, prefetch
from schemas import ledger
from schemas.ledger import AWAITING, LINKED
from schemas.manifest import Manifest
from schemas.records import Abandoned

# of a link (interface.md 8): an error keeps its card from being sent unchanged as long
LIFE = timedelta(days=62)
RECORD = ["row", "chunk", "origin", "cuid", "last_4", "expiration", *CHECKS]
LINKED_ROW = ["row", "cuid", "last_4", "state", "expires_on"]  # what a single link says of its row


class Attempts(NamedTuple):
    """The attempts in one ledger part of a run: `rows` (SENT), and the `digest` of what they were
    read from.
    """

    run: str
    rows: pl.DataFrame
    digest: str


class CardSurvey(NamedTuple):
    """What is known of an issuer's cards, the digest of what that was read from, and the last
    commit before.
    """

    known: PriorState
    digest: str
    commit: int


def survey_cards(context: IssuerContext) -> CardSurvey:
    """Look at every card that a run which still matters has sent."""
    store, issuer = context.adapters.store, context.issuer.issuer
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    # first: later commits are looked at when ours is appended
    links = list(commits_since(store, issuer))
    newest = max((link.as_of for link in links if link.selection is None), default=date.min)
    running = hashlib.sha256(f"{newest} {context.issuer.resend.reissue_column}".encode())

    def frames(found: Iterator[Attempts]) -> Iterator[pl.DataFrame]:
        for one in found:
            running.update(f"{one.run} {one.digest}\n".encode())
            if not one.rows.is_empty():
                yield one.rows

    with closing(prefetch(attempts(store, issuer, today, links))) as found:
        known = PriorState(frames(found), newest, today)
    running.update(f"{known.ended} ended\n".encode())
    return CardSurvey(known, running.hexdigest(), len(links))


def active(today: date) -> pl.Expr:
    """Return whether an attempt keeps its card from being sent: awaiting, or a living link."""
    ended = (pl.col("expires_on") < today).fill_null(value=False)
    return (pl.col("state") == AWAITING) | ((pl.col("state") == LINKED) & ~ended)


def active_twice(store: Store, issuer: str, today: date, links: Sequence[Manifest]) -> pl.DataFrame:
    """Return cuid, last_4, expiration, runs of the cards that are active in more than one run,
    renewals apart.
    """
    renewals = {
        link.run for link in links if link.selection is not None and link.selection.kind == "renew"
    }

    def cards(one: Attempts) -> pl.DataFrame:
        return (
            one.rows.filter(active(today))
            .select("cuid", "last_4", "expiration")
            .drop_nulls()
            .unique()
        )

    first = (one for one in attempts(store, issuer, today, links) if one.run not in renewals)
    runs: dict[str, list[pl.Series]] = {}
    for one in first:
        runs.setdefault(one.run, []).append(cards(one).hash_rows())
    keys = pl.concat(
        [pl.Series(dtype=pl.UInt64), *(pl.concat(parts).unique() for parts in runs.values())]
    )
    twice = keys.filter(keys.is_duplicated()).unique().implode()
    if not twice.item().len():
        return pl.DataFrame(
            schema=dict.fromkeys(("cuid", "last_4", "expiration", "runs"), pl.String)
        )
    second = (one for one in attempts(store, issuer, today, links) if one.run in runs)
    named = (cards(one).with_columns(run=pl.lit(one.run or "typed in")) for one in second)
    found = pl.concat(
        rows.filter(rows.drop("run").hash_rows().is_in(twice)) for rows in named
    ).unique()
    by_card = found.group_by("cuid", "last_4", "expiration").agg(
        runs=pl.col("run").sort().str.join(" ")
    )
    return by_card.sort("cuid", "last_4", "expiration")


def attempts(
    store: Store, issuer: str, today: date, links: Sequence[Manifest]
) -> Iterator[Attempts]:
    """Yield the attempts of the runs that still matter, part by part, in order of commit."""
    turns = {link.run: turn for turn, link in enumerate(links)}
    committed = sorted(documents.with_ledger(store, issuer), key=lambda one: turns.get(one.run, -1))
    summaries = concurrently(lambda run: documents.read_summary(store, keys_of(run.run)), committed)
    relevant = _relevant_runs(committed, summaries, today)
    for manifest, summary in zip(committed, summaries, strict=True):
        if manifest.run in relevant:
            yield from attempts_of(store, manifest, reported=summary is not None)
    done = {manifest.run for manifest in committed} | documents.without_ledger(store, issuer)
    for link in links:
        if link.run not in done and not isinstance(
            documents.read_end(store, keys_of(link.run)), Abandoned
        ):
            yield from _unanswered(store, link)  # about to be committed: counts as sent
    typed = answers_of(prompted_singles(store, issuer)).select(*SENT)
    if not typed.is_empty():
        yield Attempts("", typed, f"typed in {typed['state'].to_list()}")


def _relevant_runs(
    committed: Sequence[Manifest], summaries: Sequence[dict[str, Any] | None], today: date
) -> frozenset[str]:
    """Return the runs that still matter and those they repeat: only these know a row as its extract
    had it.
    """
    by_run = {manifest.run: manifest for manifest in committed}
    found: set[str] = set()
    for manifest, summary in zip(committed, summaries, strict=True):
        one = (
            manifest if manifest.counts.submitted and is_current(manifest, summary, today) else None
        )
        while one is not None and one.run not in found:
            found.add(one.run)
            one = by_run.get(one.selection.of) if one.selection else None
    return frozenset(found)


def is_current(manifest: Manifest, summary: dict[str, Any] | None, today: date) -> bool:
    """Return whether a run still matters for its cards on that day."""
    if summary is None or summary["rows"]["awaiting"] or manifest.as_of + LIFE >= today:
        return True
    return any(day and date.fromisoformat(day) >= today for day in summary["expires"])


def attempts_of(store: Store, manifest: Manifest, *, reported: bool) -> Iterator[Attempts]:
    """Yield the attempts of a committed run, part by part; a single link made for a row since is
    one more of them.
    """
    keys = keys_of(manifest.run)
    cancelled = frozenset(
        one.chunk.number for one in chunk_states(store, keys, manifest) if one.state == "cancelled"
    )
    asked = answers_of(singles(store, keys))
    alone = asked.filter(pl.col("state") == LINKED).unique("row", keep="last", maintain_order=True)
    for one in (_answered if reported else _unanswered)(store, manifest, cancelled):
        rows, here, rest = one.rows, alone, alone
        if not alone.is_empty():
            here, rest = (
                alone.join(rows, on="row", how="semi"),
                alone.join(rows, on="row", how="anti"),
            )
            rows = pl.concat(
                [
                    rows,
                    shaped(here.select(LINKED_ROW).join(rows.drop(LINKED_ROW[1:]), on="row"), SENT),
                ]
            )
        if manifest.selection is not None and manifest.selection.kind == "renew":
            # sent as the extract has them
            rows = rows.with_columns(pl.lit(None, pl.UInt32).alias("origin"))
        yield one._replace(rows=rows, digest=f"{one.digest} {here['row'].to_list()}")
        alone = rest
    if not alone.is_empty():  # rows that were never sent
        yield Attempts(manifest.run, alone.select(*SENT), f"{alone['row'].to_list()}")
    lost = asked.filter(pl.col("state") == AWAITING)
    if not lost.is_empty():
        yield Attempts(manifest.run, lost.select(*SENT), f"unknown {lost['row'].to_list()}")


def _answered(store: Store, manifest: Manifest, cancelled: frozenset[int]) -> Iterator[Attempts]:
    """Yield the attempts of a run that has a report."""
    keys = keys_of(manifest.run)
    for part in manifest.ledger:
        key = documents.rows_key(keys, part)
        content = read(store, key)
        digest = hashlib.sha256(content + repr(sorted(cancelled)).encode()).hexdigest()
        # a row that counts as an error by decision has no answer: its card is sent again, whatever
        # the policy
        answered, records = (
            pl.col("how").ne_missing(DECISION),
            read_ledger(store, keys, [part], RECORD),
        )
        rows = from_parquet(content, key, [*SENT], answered, records)
        # no date was given
        rows = rows.with_columns(pl.col("expires_on").fill_null(manifest.as_of + LIFE))
        yield Attempts(manifest.run, _without(rows, cancelled), digest)


def _unanswered(
    store: Store, manifest: Manifest, cancelled: frozenset[int] = frozenset()
) -> Iterator[Attempts]:
    """Yield the attempts of a run without a report: every row it sent is awaited."""
    keys, submitted = keys_of(manifest.run), pl.col("fate") == ledger.SUBMITTED
    for part, sent in zip(
        manifest.ledger, read_ledger(store, keys, manifest.ledger, RECORD, submitted), strict=True
    ):
        rows = sent.with_columns(state=pl.lit(AWAITING))
        yield Attempts(
            manifest.run, _without(rows, cancelled), f"{part.sha256} {sorted(cancelled)}"
        )


def _without(rows: pl.DataFrame, cancelled: frozenset[int]) -> pl.DataFrame:
    """Leave out what was never sent: rows of cancelled chunks that have no answer."""
    if cancelled:
        rows = rows.filter((pl.col("state") != AWAITING) | ~pl.col("chunk").is_in(list(cancelled)))
    return shaped(rows, SENT)
