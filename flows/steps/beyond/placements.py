"""The round that goes on from "linked" to "card placed": reports taken up, links looked at, funnels counted.

Works with the partner's service, with its transaction reports, or with both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from flows.core.errors import OperatorError
from flows.core.names import placements
from flows.core.ports import Placing, Store
from flows.core.run.calendar import local_day
from flows.core.run.planning import canonical
from flows.steps.again.attempts import lives
from flows.steps.answers.linked import single_links
from flows.steps.answers.report import rebuild
from flows.steps.beyond.funnel import funnel_of, run_funnel
from flows.steps.beyond.look import Looked, look
from flows.steps.beyond.transactions import take_up
from flows.steps.edges import IssuerEdges
from flows.steps.operate.purged import refuse_purged, without_ledger
from flows.steps.runs import UnknownRunError, keys_of, manifests, read_manifest, read_summary
from schemas.manifest import Manifest


class NoLinksError(OperatorError):
    """A run that has no report has no links to look at."""

    message = "{run} has no report yet, so its links are unknown."
    next_step = "Ingest its results first: `cardlink ingest`."


def follow_links(edges: IssuerEdges, service: Placing | None, run: str = "", *, again: bool = False) -> dict[str, Any]:
    """Look at the links of a run, or of every run with links that live, and return the funnel and what was done.

    Reports of runs whose funnel changed are rebuilt. `again`: ask even of links that were asked of lately. Without a
    service only transaction reports are taken up. Raises UnknownRunError, NoLinksError; see also `look`.
    """
    store, issuer = edges.edges.store, edges.issuer.issuer
    today = local_day(edges.edges.now(), edges.issuer.time_zone)
    kept = [one for one in manifests(store, issuer) if one.run not in without_ledger(store, issuer)]
    taken = take_up(store, issuer, reversed(kept))
    runs = [_one(store, run)] if run else [one for one in kept if _followed(store, one, edges)]
    looked = list(_looks(edges, service, runs, again=again))
    changed = [one.run for one in runs if _renewed(edges, one)]
    facts = {
        "issuer": issuer,
        "at": edges.edges.now().isoformat(timespec="seconds"),
        "runs": [one.run for one in runs],
        "looked": [one._asdict() for one in looked],
        "rebuilt": changed,
        "transactions": {"files": taken.files, "rows": taken.rows},
        "breaks": [one._asdict() for one in taken.breaks],
        "funnel": funnel_of(store, issuer, runs, today),
    }
    if not run:
        store.replace(f"{placements(issuer)}summary.json", [canonical(facts)])
    return facts


def _looks(edges: IssuerEdges, service: Placing | None, runs: Sequence[Manifest], *, again: bool) -> Iterator[Looked]:
    settings = edges.issuer.service
    if service is not None and settings is not None:
        for one in reversed(runs):  # of two links of a cardholder the newer one is the likelier to have led to a job
            yield look(edges, service, settings, one, again=again)


def _one(store: Store, run: str) -> Manifest:
    keys = keys_of(run)
    refuse_purged(store, keys)
    manifest = read_manifest(store, keys)
    if manifest is None:
        raise UnknownRunError(run=run)
    if read_summary(store, keys) is None:
        raise NoLinksError(run=run)
    return manifest


def _followed(store: Store, manifest: Manifest, edges: IssuerEdges) -> bool:
    """Tell whether a run has links, and says something of them still."""
    summary = read_summary(store, keys_of(manifest.run))
    today = local_day(edges.edges.now(), edges.issuer.time_zone)
    if summary is None or not lives(manifest, summary, today):
        return False
    return bool(summary["rows"]["linked"] or single_links(store, keys_of(manifest.run)).height)


def _renewed(edges: IssuerEdges, manifest: Manifest) -> bool:
    """Rebuild a run's report where its funnel says something new."""
    store = edges.edges.store
    today = local_day(edges.edges.now(), edges.issuer.time_zone)
    before = (read_summary(store, keys_of(manifest.run)) or {}).get("funnel") or {}
    after = run_funnel(store, manifest, today) or {}
    if {**before, "seen": ""} == {**after, "seen": ""}:
        return False
    rebuild(edges, manifest.run)
    return True
