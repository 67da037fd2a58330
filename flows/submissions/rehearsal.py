"""The dry run of a submit: the same route over a store whose writes stay in memory.

Nothing is sealed. What would be committed is committed in memory, so that the next extract is
checked as after it.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import Any, NamedTuple

from flows.errors import CardlinkError
from flows.extracts.mapping import stop
from flows.runs.context import IssuerContext, overlaid
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun
from flows.steps import Sentence, Text, counted
from flows.submissions.build import Job, build_run
from flows.submissions.commit import commit_run, finish_commits
from flows.submissions.gates import OPENABLE, refusals
from flows.submissions.row_scope import Inspection
from flows.submissions.rows import ReasonRows
from flows.submissions.submit import Request, prepare, refuse_resend
from schemas.ledger import FATES
from schemas.manifest import Counts, Manifest
from schemas.reasons import seen_rows


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
    refused: Text
    already: str = ""  # the committed run of the extract, if there is one
    columns: tuple[str, ...] = ()  # which came or went since the last extract
    remarks: tuple[str, ...] = ()  # as a submit would make them
    others: str = ""  # what became of what is joined by key

    @property
    def verdict(self) -> Text:
        """A sentence on what a submit would do."""
        if self.already:
            return (
                f"{self.extract} is committed as run {self.already}: a real run would send nothing."
            )
        if self.refused:
            template = "{extract} would be refused: {error}"
            return Sentence(template, extract=self.extract, error=self.refused)
        run = f"{self.extract} would be run {self.run}, as of {self.as_of}"
        chunks = counted(self.chunks, "chunk")
        rows = f"{self.counts.submitted:,} of {self.counts.read:,} rows in {chunks}"
        verdict = f"{run}: {rows} would be sent."
        seen = seen_rows({reason.code: reason.rows for reason in self.found})
        return f"{verdict} {seen:,} already have or await a link." if seen else verdict

    @property
    def facts(self) -> dict[str, Any]:
        """The result as plain facts."""
        plain = {"counts": self.counts.model_dump(), "refused": str(self.refused)}
        return {**self._asdict(), **plain}


NO_ROWS = Checked(
    extract="",
    run="",
    as_of=date.min,
    counts=Counts(lines=0, read=0, **dict.fromkeys(FATES, 0)),
    chunks=0,
    chunk_rows=(),
    found=(),
    repairs={},
    refused="",
)


def rehearse(
    context: IssuerContext,
    request: Request,
    inspection: Inspection | None = None,
    entry: Entry | None = None,
) -> Checked:
    """Check every row as a submit would, of the extract `entry` where it is not among the issuer's.

    In a context that is `overlaid` what would pass is committed there, so that the next extract is
    checked as after it. What is wrong with mapping and gates is noted in `inspection`, where there
    is one. Raises what a submit raises before it reads the rows.
    """
    dry = overlaid(context)
    refuse_resend(dry, request)
    finish_commits(dry)
    errors: list[CardlinkError] = inspection.errors if inspection else []
    job, _ = prepare(dry, request, errors.append, entry)
    done = StoredRun.by_id(dry.adapters, job.plan.run).finished()
    if done is not None and inspection is None:
        reasons = [ReasonRows(code, rows, ()) for code, rows in done.reasons.items()]
        return _checked(done, reasons, ())._replace(already=done.run)
    note = errors.append if inspection else stop
    scope = job.scope._replace(inspection=inspection, note=note)
    built = build_run(dry, job._replace(scope=scope), None)
    if inspection is not None:
        inspection.layout = built.manifest.layout
    errors += refusals(built, context.issuer, request.opened)
    if not errors and done is None:
        commit_run(dry, job, built.manifest)
    already = done.run if done else ""
    checked = _checked(built.manifest, built.reasons, errors)
    columns = tuple(built.columns)
    return checked._replace(already=already, columns=columns, remarks=built.remarks)


def check_selection(dry: IssuerContext, job: Job) -> Checked:
    """Check rows that are sent again as their run would, in an `overlaid` context."""
    built = build_run(dry, job, None)
    return _checked(built.manifest, built.reasons, refusals(built, dry.issuer, OPENABLE))


def _checked(
    manifest: Manifest, reasons: Sequence[ReasonRows], errors: Iterable[CardlinkError]
) -> Checked:
    first_error = next(iter(errors), None)
    return Checked(
        extract=manifest.source.key,
        run=manifest.run,
        as_of=manifest.as_of,
        counts=manifest.counts,
        chunks=len(manifest.chunks),
        chunk_rows=tuple(chunk.rows for chunk in manifest.chunks),
        found=tuple(reasons),
        repairs=manifest.repairs,
        refused=first_error.sentence if first_error else "",
        others=_others(manifest),
    )


def _others(manifest: Manifest) -> str:
    """Say what became of the rows of a second file, or of records of other types."""
    joined = manifest.joined
    if joined is None:
        return ""
    files = manifest.source.files
    others = f"rows of {files[1].key}" if files else "records of other types"
    return (
        f"{joined.read:,} {others}: {joined.used:,} joined, {joined.unused:,} that no row needs, "
        f"{joined.refused:,} that cannot be read"
    )
