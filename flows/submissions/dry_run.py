"""The dry run: an extract takes the route of a submit over a store whose writes stay in memory; nothing is sealed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, NamedTuple

from flows.errors import CardlinkError
from flows.runs.chains import append_commit
from flows.runs.context import IssuerContext, overlaid
from flows.runs.documents import finished, keys_of
from flows.runs.identity import canonical
from flows.runs.prior_state import seen_rows
from flows.runs.store import Entry, write_once
from flows.submissions.build import Job, build_run
from flows.submissions.gates import OPENABLE, refusals
from flows.submissions.rows import Inspection, ReasonRows
from flows.submissions.submit import Request, finish_commits, prepare, refuse_resend
from schemas.ledger import FATES
from schemas.manifest import Counts, Manifest

REJECTS = "what `cardlink check ISSUER EXTRACT --rejects FILE` writes"


class Checked(NamedTuple):
    """The result of a dry run: where rows would go, why, and the gate that would refuse the run."""

    extract: str
    run: str
    as_of: date
    counts: Counts
    chunks: int
    chunk_rows: tuple[int, ...]
    found: tuple[ReasonRows, ...]
    repairs: dict[str, int]
    refused: str
    already: str = ""  # the committed run of the extract, if there is one

    @property
    def verdict(self) -> str:
        """A sentence on what a submit would do."""
        if self.already:
            return f"{self.extract} is committed as run {self.already}: a real run would send nothing."
        if self.refused:
            return f"{self.extract} would be refused: {self.refused}"
        rows = f"{self.counts.submitted:,} of {self.counts.read:,} rows in {self.chunks:,} chunks"
        seen = seen_rows({one.code: one.rows for one in self.found})
        rest = f" {seen:,} already have or await a link." if seen else ""
        return f"{self.extract} would be run {self.run}, as of {self.as_of}: {rows} would be sent.{rest}"

    @property
    def facts(self) -> dict[str, Any]:
        """The result as plain facts."""
        return {**self._asdict(), "counts": self.counts.model_dump()}


def rehearse(
    context: IssuerContext, request: Request, inspection: Inspection | None = None, entry: Entry | None = None
) -> Checked:
    """Check every row as a submit would, of the extract `entry` where it is not among the issuer's.

    In a context that is `overlaid` what would pass is committed there, so that the next extract is checked as after it.
    What is wrong with mapping and gates is noted in `inspection`, where there is one. Raises what a submit raises
    before it reads the rows.
    """
    dry = overlaid(context)
    refuse_resend(dry, request)
    finish_commits(dry)
    store, errors = dry.adapters.store, inspection.errors if inspection else list[CardlinkError]()
    job, _ = prepare(dry, request, errors.append, entry)
    keys = keys_of(job.plan.run)
    done = finished(store, keys)
    if done is not None and inspection is None:
        found = [ReasonRows(code, rows, ()) for code, rows in done.reasons.items()]
        return _checked(done, found)._replace(already=done.run)
    job = job._replace(scope=job.scope._replace(inspection=inspection))
    manifest, facts = build_run(dry, job, None)
    errors += refusals(facts._replace(rejects=REJECTS), context.issuer, request.opened)
    if not errors and done is None:
        append_commit(store, context.issuer.issuer, manifest)
        write_once(store, keys.manifest, canonical(manifest))
    already = done.run if done else ""
    return _checked(manifest, facts.reasons)._replace(refused=str(errors[0]) if errors else "", already=already)


def _checked(manifest: Manifest, found: Sequence[ReasonRows]) -> Checked:
    sizes = tuple(chunk.rows for chunk in manifest.chunks)
    place = manifest.source.key, manifest.run, manifest.as_of
    return Checked(*place, manifest.counts, len(sizes), sizes, tuple(found), manifest.repairs, "")


class SelectionOutcome(NamedTuple):
    """What a run of selected rows would come to: its counts, its chunks, and the gate that would refuse it."""

    counts: Counts
    chunks: int = 0
    refused: str = ""


NO_ROWS = SelectionOutcome(Counts(lines=0, read=0, **dict.fromkeys(FATES, 0)))


def check_selection(dry: IssuerContext, job: Job) -> SelectionOutcome:
    """Check rows that are sent again as their run would, in an `overlaid` context."""
    manifest, facts = build_run(dry, job, None)
    refused = next(refusals(facts, dry.issuer, OPENABLE), "")
    return SelectionOutcome(manifest.counts, len(manifest.chunks), str(refused))
