"""Take a result file up again although it was taken up: after a fix, or where its report is in doubt."""

from __future__ import annotations

from flows.steps.answers.ingest import examine
from flows.steps.edges import IssuerEdges
from flows.steps.mend.decide import Decided, decide, decision, find_result
from flows.steps.mend.reason import given


def ingest_again(edges: IssuerEdges, result: str, reason: str, *, dry_run: bool = False) -> Decided:
    """Attribute a result file anew and report the runs it spoke of and speaks of; NoSuchResultError, NoReasonError."""
    why, found = given(reason), find_result(edges, result)
    rows, _ = examine(edges, found)
    return decide(edges, found, decision(edges, found, rows.digest, "again", why), dry_run=dry_run)
