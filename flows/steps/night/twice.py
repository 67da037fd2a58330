"""Whether a new run of an extract would send cards that an earlier run of it may have sent already."""

from __future__ import annotations

from flows.core.run.planning import business_date
from flows.steps.edges import IssuerEdges
from flows.steps.night.plan import find_extract, identify
from flows.steps.night.submit import Request
from flows.steps.runs import plans
from schemas.manifest import Plan


def guard_twice(edges: IssuerEdges, request: Request) -> None:
    """Raise SentTwiceError where another run of the extract would send its cards a second time."""
    if request.new_run:
        from flows.steps.operate.outbox import refuse_twice  # rare, and all that reads answers comes with it

        refuse_twice(edges.edges, request.extract, [plan.run for plan in plans_of(edges, request.extract)])


def plans_of(edges: IssuerEdges, extract: str) -> list[Plan]:
    """Return the plans of the runs that have the bytes of an extract, by date; of a portfolio, of its night."""
    store = edges.edges.store
    entry = find_extract(edges, extract)
    sha256 = identify(store, entry).sha256
    found = [plan for plan in plans(store, edges.issuer.issuer) if plan.source.sha256 == sha256]
    night = business_date(entry.key, entry.modified, edges.issuer.time_zone)
    return [plan for plan in found if not edges.issuer.full_portfolio or plan.as_of == night]
