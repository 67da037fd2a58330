"""A survey of an issuer's runs: the facts of each, the cardholders without a link, the worklist.

Nothing is written.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from typing import NamedTuple

import polars as pl

from flows.reports.open_items import ReportTerms
from flows.reports.run_facts import RunFacts, run_facts
from flows.reports.unlinked import CARD, failed_attempts, unlinked
from flows.reports.worklist import Work, worklist
from flows.results.batches import parted
from flows.results.row_states import Cardholders, run_rows
from flows.runs.attempts import LIFE
from flows.runs.commits import commits_since
from flows.runs.context import IssuerContext
from flows.runs.keys import RunId
from flows.runs.single_links import prompted_links
from flows.runs.store import Store
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.manifest import Manifest

BATCH = 100_000  # rows looked at together


class Survey(NamedTuple):
    """What is known across the runs, and what is to be done."""

    runs: list[RunFacts]
    cards: pl.DataFrame  # those without a link (`flows.reports.unlinked.unlinked`)
    cardholders: dict[str, int]  # by the last state of their cards
    work: list[Work]
    terms: ReportTerms
    since: date


class _Run(NamedTuple):
    manifest: Manifest
    facts: RunFacts | None  # of a run of these business dates


class _Cards(NamedTuple):
    unlinked: pl.DataFrame
    by_state: dict[str, int]


def survey(context: IssuerContext, start: date | None = None, end: date | None = None) -> Survey:
    """Return what is known of the issuer's committed runs of these business dates.

    Without `start` every run counts, but cardholders only those of the runs of the last LIFE, since
    that reads every row: once.
    """
    adapters = context.adapters
    stored = StoredRuns(adapters.store, context.issuer.issuer)
    terms = ReportTerms(adapters.now(), context.issuer.portal.answer_within_hours)
    since = start or terms.now.date() - LIFE
    with ThreadPoolExecutor(adapters.connections) as readers:
        runs = _read_runs(stored, readers, start, end)
        recent = [run.manifest for run in runs if run.facts and run.facts.as_of >= since]
        cards = _read_cards(stored, recent, readers)
    manifests = [run.manifest for run in runs]
    facts = [run.facts for run in runs if run.facts]
    work = worklist(stored, facts, manifests, cards.unlinked, terms)
    return Survey(facts, cards.unlinked, cards.by_state, work, terms, since)


def _read_runs(
    stored: StoredRuns, readers: ThreadPoolExecutor, start: date | None, end: date | None
) -> list[_Run]:
    """Return the committed runs, by business date, those between `start` and `end` with facts."""

    def read(run_id: RunId) -> _Run | None:
        run = stored.run(run_id)
        if run.manifest is None:
            return None
        as_of = run.manifest.as_of
        chosen = (start or as_of) <= as_of <= (end or as_of)
        return _Run(run.manifest, run_facts(run) if chosen else None)

    return [run for run in readers.map(read, stored.ids) if run is not None]


def _read_cards(
    stored: StoredRuns, manifests: Iterable[Manifest], readers: ThreadPoolExecutor
) -> _Cards:
    """Read every row of these runs, in the order of their commits, for the cards without a link."""
    turns = {link.run: turn for turn, link in enumerate(commits_since(stored.store, stored.issuer))}
    with_rows = [manifest for manifest in manifests if manifest.run not in stored.without_ledger]
    in_order = sorted(with_rows, key=lambda manifest: turns.get(manifest.run, -1))
    cardholders = Cardholders()
    attempts: list[pl.DataFrame] = []
    frames = readers.map(lambda manifest: _rows_of(stored.store, manifest), in_order)
    # a frame costs more than its rows, where runs are small
    for some in parted(frames, lambda frame: frame.height, BATCH):
        rows = pl.concat(some)
        cardholders.add([rows])
        attempts.append(failed_attempts(rows))
    cardholders.add([prompted_links(stored.store, stored.issuer)])
    return _Cards(unlinked(attempts, cardholders.settled()), cardholders.count())


def _rows_of(store: Store, manifest: Manifest) -> pl.DataFrame:
    rows = run_rows(StoredRun.of(store, manifest))
    parts = [part.select(*CARD, "state", "reasons") for part in rows]
    return pl.concat(parts).with_columns(pl.lit(manifest.run).alias("run"))
