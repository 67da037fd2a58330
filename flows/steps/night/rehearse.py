"""The dry run of a submit: exactly what a real run would send, and whether it would be refused; nothing is written."""

from __future__ import annotations

from typing import NamedTuple

from flows.steps.edges import IssuerEdges
from flows.steps.night.check import Checked, Nights, check_extract
from flows.steps.night.commits import late_commits
from flows.steps.night.submit import Request
from flows.steps.night.twice import guard_twice, plans_of
from flows.steps.runs import finished, has_manifest, keys_of, read_manifest
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
    found = [] if request.new_run else plans_of(edges, request.extract)
    known = [plan for plan in found if plan.selection is None]
    for plan in known[-1:]:
        finished(edges.edges.store, keys_of(plan.run))  # AbandonedError, as a real run would raise it
    committed = [plan.run for plan in known if plan.run in _about_to_be(edges) or _committed(edges, plan)]
    day = known[-1].as_of if known else request.business_date  # a rerun takes the day over from the plan
    checked = check_extract(edges, request.extract, day, request.opened, nights)
    return Rehearsal(checked, committed[-1] if committed else "")


def _about_to_be(edges: IssuerEdges) -> set[str]:
    """Return the runs that died between their turn and their manifest: a real run finishes them first."""
    store = edges.edges.store
    lately = (manifest.run for manifest in late_commits(store, edges.issuer.issuer))
    return {run for run in lately if not has_manifest(store, keys_of(run))}


def _committed(edges: IssuerEdges, plan: Plan) -> bool:
    return read_manifest(edges.edges.store, keys_of(plan.run)) is not None
