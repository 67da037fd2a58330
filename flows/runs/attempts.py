"""Every attempt to get a card its link: linked, error or awaiting.

They come from the runs that still matter and from single links. A run matters no more once its
links have all ended, nothing of it is awaited, and it is older than a link lives; so a year of
nights costs no more than its living links.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from datetime import date, timedelta
from functools import partial
from typing import NamedTuple

import polars as pl

from flows.runs.business_date import local_day
from flows.runs.commits import commits_since
from flows.runs.context import IssuerContext
from flows.runs.frames import from_parquet, shaped
from flows.runs.outcomes import DECISION
from flows.runs.prior_state import CHECKS, SENT, PriorState
from flows.runs.single_links import answers_of, prompted_singles
from flows.runs.store import read
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently, prefetch
from schemas import ledger
from schemas.ledger import AWAITING, LINKED
from schemas.manifest import LedgerPart, Manifest
from schemas.records import Abandoned

# of a link (interface.md 8): an error keeps its card from being sent unchanged as long
LIFE = timedelta(days=62)
RECORD = ["row", "chunk", "origin", "cuid", "last_4", "expiration", *CHECKS]
LINKED_ROW = ["row", "cuid", "last_4", "state", "expires_on"]  # what a single link says of its row
CARD = ["cuid", "last_4", "expiration"]


class Attempts(NamedTuple):
    """The attempts in one ledger part of a run.

    `rows` (SENT), and the `digest` of what they were read from.
    """

    run: str
    rows: pl.DataFrame
    digest: str


class CardSurvey(NamedTuple):
    """What is known of an issuer's cards.

    Also the digest of what that was read from, and the number of the last commit before.
    """

    known: PriorState
    digest: str
    commit: int


def survey_cards(context: IssuerContext) -> CardSurvey:
    """Look at every card that a run which still matters has sent."""
    store = context.adapters.store
    issuer = context.issuer.issuer
    today = local_day(context.adapters.now(), context.issuer.time_zone)
    # first: later commits are looked at when ours is appended
    commits = list(commits_since(store, issuer))
    whole = (commit.as_of for commit in commits if commit.selection is None)
    newest = max(whole, default=date.min)
    running = hashlib.sha256(f"{newest} {context.issuer.resend.reissue_column}".encode())

    def frames(parts: Iterator[Attempts]) -> Iterator[pl.DataFrame]:
        for part in parts:
            running.update(f"{part.run} {part.digest}\n".encode())
            if not part.rows.is_empty():
                yield part.rows

    with closing(prefetch(attempts(StoredRuns(store, issuer), today, commits))) as parts:
        known = PriorState(frames(parts), newest, today)
    running.update(f"{known.ended} ended\n".encode())
    return CardSurvey(known, running.hexdigest(), len(commits))


def active(today: date) -> pl.Expr:
    """Return whether an attempt keeps its card from being sent: awaiting, or a living link."""
    ended = (pl.col("expires_on") < today).fill_null(value=False)
    return (pl.col("state") == AWAITING) | ((pl.col("state") == LINKED) & ~ended)


def active_twice(runs: StoredRuns, today: date, commits: Sequence[Manifest]) -> pl.DataFrame:
    """Return the cards that are active in more than one run, renewals apart: CARD, and `runs`."""
    renewals = {commit.run for commit in commits if _is_renewal(commit)}
    hashes: dict[str, list[pl.Series]] = defaultdict(list)
    for part in attempts(runs, today, commits):
        if part.run not in renewals:
            hashes[part.run].append(_active_cards(part, today).hash_rows())
    repeated = _in_several(hashes.values())
    if repeated.is_empty():
        return pl.DataFrame(schema=dict.fromkeys((*CARD, "runs"), pl.String))
    cards = pl.concat(
        _cards_among(repeated, part, today)
        for part in attempts(runs, today, commits)
        if part.run in hashes
    )
    runs_of_card = pl.col("run").sort().str.join(" ")
    return cards.unique().group_by(CARD).agg(runs=runs_of_card).sort(CARD)


def _is_renewal(run: Manifest) -> bool:
    return run.selection is not None and run.selection.kind == "renew"


def _active_cards(part: Attempts, today: date) -> pl.DataFrame:
    return part.rows.filter(active(today)).select(CARD).drop_nulls().unique()


def _in_several(hashes_by_run: Iterable[list[pl.Series]]) -> pl.Series:
    """Return the hashes that occur in more than one run."""
    by_run = [pl.concat(hashes).unique() for hashes in hashes_by_run]
    hashes = pl.concat([pl.Series(dtype=pl.UInt64), *by_run])
    return hashes.filter(hashes.is_duplicated()).unique()


def _cards_among(hashes: pl.Series, part: Attempts, today: date) -> pl.DataFrame:
    """Return the active cards with one of these hashes, and the run."""
    cards = _active_cards(part, today)
    selected = cards.filter(cards.hash_rows().is_in(hashes.implode()))
    return selected.with_columns(run=pl.lit(part.run or "typed in"))


def attempts(runs: StoredRuns, today: date, commits: Sequence[Manifest]) -> Iterator[Attempts]:
    """Yield the attempts of the runs that still matter, part by part, in order of commit."""
    turns = {commit.run: turn for turn, commit in enumerate(commits)}
    stored = sorted(runs.with_ledger(), key=lambda run: turns.get(run.id, -1))
    concurrently(lambda run: run.summary, stored)  # kept in each
    relevant = _relevant_ids(stored, today)
    for run in stored:
        if run.id in relevant:
            yield from attempts_of(run)
    known = {run.id for run in stored} | runs.without_ledger
    for commit in commits:
        if commit.run not in known:
            run = StoredRun.by_id(runs.store, commit.run)
            if not isinstance(run.end, Abandoned):
                # about to be committed: counts as sent
                yield from _unanswered(run, commit.ledger)
    typed = answers_of(prompted_singles(runs.store, runs.issuer)).select(*SENT)
    if not typed.is_empty():
        yield Attempts("", typed, f"typed in {typed['state'].to_list()}")


def _relevant_ids(runs: Sequence[StoredRun], today: date) -> frozenset[str]:
    """Return the runs that still matter and those they repeat.

    Only these know a row as its extract had it.
    """
    manifests = {run.id: run.committed() for run in runs}
    relevant: set[str] = set()
    for run in runs:
        manifest: Manifest | None = run.committed()
        if not run.committed().counts.submitted or not is_current(run, today):
            continue
        while manifest is not None and manifest.run not in relevant:
            relevant.add(manifest.run)
            manifest = manifests.get(manifest.selection.of) if manifest.selection else None
    return frozenset(relevant)


def is_current(run: StoredRun, today: date) -> bool:
    """Return whether a committed run still matters for its cards on that day."""
    if run.summary is None or run.summary["rows"]["awaiting"]:
        return True
    last_days = (date.fromisoformat(day) for day in run.summary["expires"] if day)
    return run.committed().as_of + LIFE >= today or any(day >= today for day in last_days)


def attempts_of(run: StoredRun) -> Iterator[Attempts]:
    """Yield the attempts of a committed run, part by part.

    A single link made for a row since is one more of them.
    """
    manifest = run.committed()
    requested = answers_of(run.single_link_attempts)
    linked = requested.filter(pl.col("state") == LINKED)
    links = linked.unique("row", keep="last", maintain_order=True)
    cancelled = run.cancelled_chunks
    if run.summary is None:
        parts = _unanswered(run, manifest.ledger, cancelled)
    else:
        parts = _answered(run, cancelled)
    for part in parts:
        rows, of_part, links = _with_single_links(part.rows, links)
        if _is_renewal(manifest):
            # sent as the extract has them
            rows = rows.with_columns(pl.lit(None, pl.UInt32).alias("origin"))
        yield Attempts(run.id, rows, f"{part.digest} {of_part['row'].to_list()}")
    if not links.is_empty():  # rows that were never sent
        yield Attempts(run.id, links.select(*SENT), f"{links['row'].to_list()}")
    unknown = requested.filter(pl.col("state") == AWAITING)
    if not unknown.is_empty():
        yield Attempts(run.id, unknown.select(*SENT), f"unknown {unknown['row'].to_list()}")


def _with_single_links(
    rows: pl.DataFrame, links: pl.DataFrame
) -> tuple[pl.DataFrame, pl.DataFrame, pl.DataFrame]:
    """Return the attempts with the single links of their rows.

    Also these links, and those of other rows.
    """
    if links.is_empty():
        return rows, links, links
    of_rows = links.join(rows, on="row", how="semi")
    linked = of_rows.select(LINKED_ROW).join(rows.drop(LINKED_ROW[1:]), on="row")
    others = links.join(rows, on="row", how="anti")
    return pl.concat([rows, shaped(linked, SENT)]), of_rows, others


def _answered(run: StoredRun, cancelled: frozenset[int]) -> Iterator[Attempts]:
    """Yield the attempts of a run that has a report."""
    manifest = run.committed()
    # a row that counts as an error by decision has no answer: its card is sent again, whatever the
    # policy
    answered = pl.col("how").ne_missing(DECISION)
    for part in manifest.ledger:
        key = run.rows_key(part)
        content = read(run.store, key)
        digest = hashlib.sha256(content + repr(sorted(cancelled)).encode()).hexdigest()
        records = partial(run.ledger_part, part, RECORD)
        rows = from_parquet(content, key, [*SENT], answered, records)
        # no date was given
        rows = rows.with_columns(pl.col("expires_on").fill_null(manifest.as_of + LIFE))
        yield Attempts(run.id, _without(rows, cancelled), digest)


def _unanswered(
    run: StoredRun, parts: Iterable[LedgerPart], cancelled: frozenset[int] = frozenset()
) -> Iterator[Attempts]:
    """Yield the attempts of a run without a report: every row it sent is awaited."""
    submitted = pl.col("fate") == ledger.SUBMITTED
    for part in parts:
        rows = run.ledger_part(part, RECORD, submitted).with_columns(state=pl.lit(AWAITING))
        yield Attempts(run.id, _without(rows, cancelled), f"{part.sha256} {sorted(cancelled)}")


def _without(rows: pl.DataFrame, cancelled: frozenset[int]) -> pl.DataFrame:
    """Leave out what was never sent: rows of cancelled chunks that have no answer."""
    if cancelled:
        rows = rows.filter((pl.col("state") != AWAITING) | ~pl.col("chunk").is_in(list(cancelled)))
    return shaped(rows, SENT)
