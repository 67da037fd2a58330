"""The dry run of a submit: exactly what a real run would send, and whether it would be refused; nothing is written."""

from __future__ import annotations

from typing import NamedTuple

from flows.core.run.planning import business_date
from flows.steps.edges import IssuerEdges
from flows.steps.night.check import Checked, Nights, check_extract
from flows.steps.night.commits import late_commits
from flows.steps.night.plan import find_extract, identify
from flows.steps.night.submit import Request
from flows.steps.operate.outbox import refuse_twice
from flows.steps.runs import finished, has_manifest, keys_of, plans, read_manifest
from schemas.manifest import Plan


class Rehearsal(NamedTuple):
    """What a real run would do: the run it would be, its rows, and `already` where it is committed."""

    checked: Checked
    already: str

    @property
    def verdict(self) -> str:
        """Say in a sentence what a real run would do."""
        checked = self.checked
        if self.already:
            return f"{checked.extract} is committed as run {self.already}: a real run would send nothing."
        if checked.refused:
            return f"{checked.extract} would be refused: {checked.refused}"
        rows = f"{checked.counts.submitted:,} of {checked.counts.read:,} rows in {checked.chunks:,} chunks"
        return f"{checked.extract} would be run {checked.run}, as of {checked.as_of}: {rows} would be sent."


def rehearse(edges: IssuerEdges, request: Request, nights: Nights | None = None) -> Rehearsal:
    """Check every row as a submit would after `nights`; SentTwiceError where a new run would send a card twice."""
    guard_twice(edges, request)
    found = [] if request.new_run else _plans_of(edges, request.extract)
    known = [plan for plan in found if plan.selection is None]
    for plan in known[-1:]:
        finished(edges.edges.store, keys_of(plan.run))  # AbandonedError, as a real run would raise it
    committed = [plan.run for plan in known if plan.run in _about_to_be(edges) or _committed(edges, plan)]
    day = known[-1].as_of if known else request.business_date  # a rerun takes the day over from the plan
    checked = check_extract(edges, request.extract, day, request.opened, nights)
    return Rehearsal(checked, committed[-1] if committed else "")


def guard_twice(edges: IssuerEdges, request: Request) -> None:
    """Raise SentTwiceError where another run of the extract would send its cards a second time."""
    if request.new_run:
        refuse_twice(edges.edges, request.extract, [plan.run for plan in _plans_of(edges, request.extract)])


def _about_to_be(edges: IssuerEdges) -> set[str]:
    """Return the runs that died between their turn and their manifest: a real run finishes them first."""
    store = edges.edges.store
    lately = (manifest.run for manifest in late_commits(store, edges.issuer.issuer))
    return {run for run in lately if not has_manifest(store, keys_of(run))}


def _committed(edges: IssuerEdges, plan: Plan) -> bool:
    return read_manifest(edges.edges.store, keys_of(plan.run)) is not None


def _plans_of(edges: IssuerEdges, extract: str) -> list[Plan]:
    """Return the plans of the runs that have the bytes of an extract, by date; of a portfolio, of its night."""
    store = edges.edges.store
    entry = find_extract(edges, extract)
    sha256 = identify(store, entry).sha256
    found = [plan for plan in plans(store, edges.issuer.issuer) if plan.source.sha256 == sha256]
    night = business_date(entry.key, entry.modified, edges.issuer.time_zone)
    return [plan for plan in found if not edges.issuer.full_portfolio or plan.as_of == night]
