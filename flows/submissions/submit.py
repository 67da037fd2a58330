"""Submit one extract: plan, claim, one streaming pass, gates, and the manifest last.

Nothing counts before the manifest; until then the same command again is the recovery. A new run of
an extract is refused where an earlier one may have sent its cards.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import date
from typing import Any, NamedTuple

from flows.errors import BalanceError, CardlinkError, ExtractError, GateError, OperatorError
from flows.extracts.delivery import business_date
from flows.extracts.mapping import Note, stop
from flows.redaction import redact
from flows.reports.lists import write_unsent
from flows.runs.adapters import Adapters
from flows.runs.attempts import survey_cards
from flows.runs.claim import claimed, clean_up
from flows.runs.commits import append_commit, last_commit, recent_commits
from flows.runs.context import IssuerContext, overlaid
from flows.runs.documents import finished, has_manifest, plans, read_manifest
from flows.runs.errors import AbandonedError, LedgerPurgedError
from flows.runs.events import DROPPED, record_event
from flows.runs.identity import canonical
from flows.runs.keys import RunKeys, keys_of, submissions
from flows.runs.outbox import outbox
from flows.runs.prior_state import seen_rows
from flows.runs.probe import ensure_store_safe
from flows.runs.sealing import Sealer
from flows.runs.store import ConflictError, Entry, read_if_stored, write_once
from flows.submissions.build import ExpectedOutcome, Job, OnProgress, Progress, build_run
from flows.submissions.changed_extract import changed_extract
from flows.submissions.gates import CHANGED_EXTRACT, OPENABLE, refusals
from flows.submissions.plan import RunInputs, find_extract, identify, make_plan, submit_line
from flows.submissions.rows import Inspection, ReasonRows, RowScope
from schemas.ledger import FATES
from schemas.manifest import Counts, Manifest


class UnexpectedOutcomeError(OperatorError):
    """A run would not have the outcome that was approved."""

    message = "{extract} would send {now} rows, not the {listed} listed, or for other reasons. Nothing was committed."
    next_step = "List it again, and decide on the new list."


class Request(NamedTuple):
    """A request to submit: an extract by name, and what an operator may decide about it."""

    extract: str
    business_date: date | None = None
    opened: Collection[str] = ()  # gates
    new_run: str = ""  # the reason for a new run of an extract that already has one
    expected: ExpectedOutcome | None = None  # any other outcome is not committed


class Submitted(NamedTuple):
    """A committed run, whether it was committed already, and remarks for the operator."""

    manifest: Manifest
    already: bool
    remarks: tuple[str, ...] = ()


def submit(
    context: IssuerContext, request: Request, on_progress: OnProgress = lambda _: None
) -> Submitted:
    """Take one extract all the way to its manifest; a finished run is left as it is."""
    with context.sealer() as sealer:  # a wrong key is refused before anything is read
        find_extract(context, request.extract)
        ensure_store_safe(context)
        finish_commits(context)  # first: what died half-way must not be planned anew
        job, remarks = prepare(context, request)
        done = execute(context, job, sealer, on_progress)
        return done._replace(
            remarks=(*remarks, *done.remarks, *(warning.text for warning in sealer.warnings))
        )


def prepare(
    context: IssuerContext, request: Request, note: Note = stop, entry: Entry | None = None
) -> tuple[Job, tuple[str, ...]]:
    """Plan the run of an extract (default: of that name), with remarks; `note` takes what holds a
    changed one.
    """
    entry = entry or find_extract(context, request.extract)
    guarded = context.issuer.full_portfolio or context.issuer.resend.seen_before != "send"
    survey = survey_cards(context) if guarded else None
    since = survey.commit if survey else last_commit(context.adapters.store, context.issuer.issuer)
    known, prior = (survey.digest, survey.known) if survey else ("", None)
    day = business_date(context, entry, request.business_date)
    asked = RunInputs(
        day, redact(request.new_run), known=known, dated=request.business_date is not None
    )
    source = identify(context.adapters.store, entry)
    watched = context.issuer.source.same_name != "replace" and CHANGED_EXTRACT not in request.opened
    if watched and (changed := changed_extract(context, entry, source, asked, prior)):
        note(changed)
    plan, remarks = make_plan(context, source, asked)
    options = [word for gate in sorted(request.opened) for word in ("--open", gate)]
    line = submit_line(source.key, *options, *(("--new-run", plan.reason) if plan.reason else ()))
    return Job(
        plan, entry, RowScope(prior=prior), request.opened, line, since, guarded, request.expected
    ), remarks


def execute(
    context: IssuerContext, job: Job, sealer: Sealer, on_progress: OnProgress = lambda _: None
) -> Submitted:
    """Take a planned run to its manifest under its claim; a finished one is left as it is."""
    adapters, keys = context.adapters, keys_of(job.plan.run)
    done = finished(adapters.store, keys)
    if done is not None:
        return Submitted(done, already=True)
    with claimed(adapters, keys.claims) as claim, _recording_refusal(adapters, keys):
        done = finished(adapters.store, keys)  # the claim's last holder may have finished it
        if done is not None:
            return Submitted(done, already=True)

        def checked(progress: Progress) -> None:
            claim.check()
            on_progress(progress)

        clean_up(adapters, keys.base, submissions(context.issuer.issuer, job.plan.source.sha256))
        if job.opened:  # before the commit: a crash right after it would lose the record
            record_event(adapters, keys, "opened", gates=sorted(job.opened))
        manifest, remarks = _build(context, job, sealer, checked)
        append_commit(
            adapters.store, context.issuer.issuer, manifest, job.since, guarded=job.guarded
        )
        return Submitted(
            manifest, already=not _commit(context, manifest, job.entry), remarks=remarks
        )


def _commit(context: IssuerContext, manifest: Manifest, extract: Entry | None = None) -> bool:
    """Write manifest and what follows; False where a twin wrote it, AbandonedError where an
    operator was first.
    """
    adapters, keys = context.adapters, keys_of(manifest.run)
    # before the commit, which nothing repeats; the issuer need not wait for results
    if manifest.counts.submitted:
        write_unsent(adapters.store, keys, manifest, portfolio=context.issuer.full_portfolio)
    try:
        ours = write_once(adapters.store, keys.manifest, canonical(manifest))
    except ConflictError:
        finished(adapters.store, keys)
        raise
    if ours:
        dropped = {DROPPED: extract.modified.isoformat()} if extract else {}
        record_event(adapters, keys, "committed", rows=manifest.counts.submitted, **dropped)
    _report_unsent(context, manifest)
    return ours


def _report_unsent(context: IssuerContext, manifest: Manifest) -> None:
    """Write the report of a run that sent nothing, unless there is one: no result will ever bring
    it.
    """
    store, keys = context.adapters.store, keys_of(manifest.run)
    if (
        not manifest.counts.submitted
        and read_if_stored(store, keys.report("summary.json"), 0) is None
    ):
        # rare, and its page and workbook take 60 ms to import
        from flows.reports.rebuild import rebuild

        rebuild(context, manifest.run)


def finish_commits(context: IssuerContext) -> None:
    """Finish runs that died within their commit: write the manifest, or the report of a run that
    sent nothing.
    """
    store, issuer = context.adapters.store, context.issuer.issuer
    for manifest in recent_commits(store, issuer):
        if manifest.newer:  # it is finished by its version
            continue
        finish = _report_unsent if has_manifest(store, keys_of(manifest.run)) else _commit
        with suppress(AbandonedError, LedgerPurgedError):  # an operator or the retention was first
            finish(context, manifest)


@contextmanager
def _recording_refusal(adapters: Adapters, keys: RunKeys) -> Iterator[None]:
    """Record name and sentence of the error that refused a run in the run's history."""
    try:
        yield
    except (ExtractError, GateError, BalanceError, OperatorError) as error:
        # on a full disk recording fails too: the first error is the one to show
        with suppress(CardlinkError):
            sentence = error.message.format(**error.fields).rstrip(".")
            record_event(adapters, keys, "refused", why=type(error).__name__, sentence=sentence)
        raise


def _build(
    context: IssuerContext, job: Job, sealer: Sealer, progress: OnProgress
) -> tuple[Manifest, tuple[str, ...]]:
    """Build chunks and ledger; return the manifest that would commit them, and remarks; raises
    where a gate fails.
    """
    store, plan, keys = context.adapters.store, job.plan, keys_of(job.plan.run)
    built = build_run(context, job, sealer, progress)
    manifest = built.manifest
    refused = next(
        refusals(built, context.issuer, OPENABLE if plan.selection else job.opened), None
    )
    if refused is not None:
        write_unsent(store, keys, manifest, portfolio=context.issuer.full_portfolio)
        raise refused
    if job.expected not in (
        None,
        ExpectedOutcome(plan.source.sha256, manifest.counts, manifest.reasons),
    ):
        raise UnexpectedOutcomeError(
            extract=plan.source.key,
            now=manifest.counts.submitted,
            listed=job.expected.counts.submitted,
        )
    return manifest, tuple(
        f"{plan.source.key} departs from the extracts before it: {one}" for one in built.drift
    )


class SentTwiceError(OperatorError):
    """A new run of an extract whose chunks are, or may be, at the portal already."""

    message = "{extract} would be sent twice: {count} of {chunks} chunks of {run} are uploaded, answered or waiting."
    next_step = "Cancel those that wait: `cardlink outbox cancel {run} --reason WHY`; uploaded ones stay uploaded."


def refuse_resend(context: IssuerContext, request: Request) -> None:
    """Raise SentTwiceError where a new run of an extract might send cards that an earlier run has
    sent.
    """
    if not request.new_run:
        return
    store, entry = context.adapters.store, find_extract(context, request.extract)
    sha256, day = identify(store, entry).sha256, business_date(context, entry)
    for plan in plans(store, context.issuer.issuer):
        repeated = plan.source.sha256 == sha256 and (
            plan.as_of == day or not context.issuer.full_portfolio
        )
        if not repeated or read_manifest(store, keys_of(plan.run)) is None:
            continue
        chunks = outbox(context.adapters, plan.run)
        if sent := [item for item in chunks if item.state != "cancelled"]:
            raise SentTwiceError(
                extract=request.extract, count=len(sent), chunks=len(chunks), run=plan.run
            )


# The dry run: the same route over a store whose writes stay in memory; nothing is sealed.

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
            return (
                f"{self.extract} is committed as run {self.already}: a real run would send nothing."
            )
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
    store, errors = dry.adapters.store, inspection.errors if inspection else list[CardlinkError]()
    job, _ = prepare(dry, request, errors.append, entry)
    keys = keys_of(job.plan.run)
    done = finished(store, keys)
    if done is not None and inspection is None:
        found = [ReasonRows(code, rows, ()) for code, rows in done.reasons.items()]
        return _checked(done, found, ())._replace(already=done.run)
    job = job._replace(
        scope=job.scope._replace(inspection=inspection, note=errors.append if inspection else stop)
    )
    built = build_run(dry, job, None)
    errors += refusals(built, context.issuer, request.opened, REJECTS)
    if not errors and done is None:
        append_commit(store, context.issuer.issuer, built.manifest)
        write_once(store, keys.manifest, canonical(built.manifest))
    already = done.run if done else ""
    return _checked(built.manifest, built.reasons, errors)._replace(already=already)


def _checked(
    manifest: Manifest, found: Sequence[ReasonRows], errors: Iterable[CardlinkError]
) -> Checked:
    sizes = tuple(chunk.rows for chunk in manifest.chunks)
    place, refused = (
        (manifest.source.key, manifest.run, manifest.as_of),
        str(next(iter(errors), "")),
    )
    return Checked(
        *place, manifest.counts, len(sizes), sizes, tuple(found), manifest.repairs, refused
    )


NO_ROWS = Checked(
    "", "", date.min, Counts(lines=0, read=0, **dict.fromkeys(FATES, 0)), 0, (), (), {}, ""
)


def check_selection(dry: IssuerContext, job: Job) -> Checked:
    """Check rows that are sent again as their run would, in an `overlaid` context."""
    built = build_run(dry, job, None)
    return _checked(built.manifest, built.reasons, refusals(built, dry.issuer, OPENABLE))
