"""Submit one extract: plan, claim, one streaming pass, gates, and the manifest last.

Nothing counts before the manifest. Whatever goes wrong before it, the same command again is the recovery. A new run
of an extract is refused where an earlier one may have sent its cards.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from typing import TYPE_CHECKING, NamedTuple

from flows.errors import BalanceError, CardlinkError, ExtractError, GateError, OperatorError
from flows.redaction import redact
from flows.reports.lists import write_rejects
from flows.runs.chains import append_commit, recent_commits
from flows.runs.chunks import outbox
from flows.runs.claim import Claim, claimed, clean_up
from flows.runs.context import Adapters, IssuerContext, record_event
from flows.runs.documents import AbandonedError, finished, has_manifest, keys_of, plans, read_manifest, rows_before
from flows.runs.identity import business_date, canonical
from flows.runs.keys import RunKeys, extracts, submissions
from flows.runs.probe import ensure_store_safe
from flows.runs.sealing import Sealer
from flows.runs.store import ConflictError, Store, write_once
from flows.submissions.build import BuiltRun, ExpectedOutcome, Job, OnProgress, Progress, build_run
from flows.submissions.gates import OPENABLE, GateFacts, refusal
from flows.submissions.plan import find_extract, identify, make_plan
from flows.submissions.rows import Choice
from schemas.manifest import Manifest, Plan

if TYPE_CHECKING:
    from flows.runs.attempts import CardSurvey


class UnexpectedOutcomeError(OperatorError):
    """A run would come out otherwise than it was listed before it was approved."""

    message = (
        "{extract} would send {now} rows now, where {listed} were listed, or for other reasons. Nothing was committed."
    )
    next_step = "Look at the new list, and decide again."


class Request(NamedTuple):
    """What is asked for: an extract by name, and what an operator may decide about it."""

    extract: str
    business_date: date | None = None
    opened: Collection[str] = ()  # gates opened on purpose
    new_run: str = ""  # the reason for a new run of an extract that already has one
    expected: ExpectedOutcome | None = None  # what it must come out as


class Submitted(NamedTuple):
    """A committed run, whether it was found done, and what is worth saying aloud."""

    manifest: Manifest
    already: bool
    remarks: tuple[str, ...] = ()


class Committed(NamedTuple):
    """A manifest that stands, and whether this process wrote it."""

    manifest: Manifest
    ours: bool


def submit(context: IssuerContext, request: Request, on_progress: OnProgress = lambda _: None) -> Submitted:
    """Take one extract all the way to its manifest; a finished run again does nothing and says so.

    Raises the gates' errors, PartialRunError, ClaimedError and what the edges raise; each says what to do.
    """
    with context.sealer() as sealer:  # a key that does not fit is refused before anything is read
        entry = find_extract(context, request.extract)
        ensure_store_safe(context)
        survey = read_prior_state(context) if context.issuer.full_portfolio else None
        known = survey.digest if survey else ""
        planned = make_plan(context, entry, request.business_date, redact(request.new_run), known)
        job = Job(
            planned.plan,
            entry,
            Choice(known=survey.known if survey else None),
            request.opened,
            command(context.issuer.issuer, planned.plan, request.opened),
            since=survey.commit if survey else None,
            expected=request.expected,
        )
        done = execute(context, job, sealer, on_progress)
        return done._replace(remarks=(*planned.remarks, *sealer.warnings))


def execute(context: IssuerContext, job: Job, sealer: Sealer, on_progress: OnProgress = lambda _: None) -> Submitted:
    """Take a planned run to its manifest under its claim; a finished one is left as it is."""
    adapters, keys = context.adapters, keys_of(job.plan.run)
    done = finished(adapters.store, keys)
    if done is not None:
        return Submitted(done, already=True)
    with claimed(adapters, keys.claims) as claim, _recording_refusal(adapters, keys):
        done = finished(adapters.store, keys)  # whoever had the claim before may have finished it
        if done is not None:
            return Submitted(done, already=True)
        manifest, ours = _commit(context, job, sealer, _checking_claim(claim, on_progress))
    return Submitted(manifest, already=not ours)


def _commit(context: IssuerContext, job: Job, sealer: Sealer, on_progress: OnProgress) -> Committed:
    """Do the work under the claim and write the manifest, the commit; a twin that took the claim over may be first."""
    adapters, plan, keys = context.adapters, job.plan, keys_of(job.plan.run)
    clean_up(adapters, keys.base, submissions(context.issuer.issuer, plan.source.sha256))
    if job.opened:  # before the commit: a crash right after it would lose the record
        record_event(adapters, keys, "opened", gates=sorted(job.opened))
    manifest = _build(context, job, sealer, on_progress)
    append_commit(adapters.store, context.issuer.issuer, manifest, job.since)
    return Committed(manifest, _write(context, manifest))


def _write(context: IssuerContext, manifest: Manifest) -> bool:
    """Write the manifest of a run that has its turn; False where another had done so."""
    adapters, keys = context.adapters, keys_of(manifest.run)
    ours = _end(adapters.store, keys, manifest)
    if ours:
        record_event(adapters, keys, "committed", rows=manifest.counts.submitted)
    if manifest.counts.submitted:
        write_rejects(adapters.store, keys, manifest.ledger)  # the issuer need not wait for the partner's answers
    else:
        from flows.reports.rebuild import rebuild  # rare, and its page and workbook take 60 ms to import

        rebuild(context, manifest.run)  # nothing was sent, so no answer will ever bring its report
    return ours


def _end(store: Store, keys: RunKeys, manifest: Manifest) -> bool:
    """Write the manifest; False where a twin had done so, AbandonedError where an operator was first."""
    try:
        return write_once(store, keys.manifest, canonical(manifest))
    except ConflictError as error:
        conflict = error
    finished(store, keys)
    raise conflict


def read_prior_state(context: IssuerContext) -> CardSurvey:
    """Survey the cards of an issuer, once every run that took its turn is committed."""
    from flows.runs.attempts import survey_cards  # for a portfolio alone; all that reads answers comes with it

    finish_commits(context)
    return survey_cards(context)


def finish_commits(context: IssuerContext) -> None:
    """Write the manifests of runs that took their turn and died right after it: they are whole."""
    store, issuer = context.adapters.store, context.issuer.issuer
    for manifest in recent_commits(store, issuer):
        if not has_manifest(store, keys_of(manifest.run)):
            with suppress(AbandonedError):  # an operator was first
                _write(context, manifest)


@contextmanager
def _recording_refusal(adapters: Adapters, keys: RunKeys) -> Iterator[None]:
    """Leave the name of what refused a run with the run."""
    try:
        yield
    except (ExtractError, GateError, BalanceError, OperatorError) as error:
        with suppress(CardlinkError):  # on a full disk the note fails as well, and the first error is the one to tell
            record_event(adapters, keys, "refused", why=type(error).__name__)
        raise


def _build(context: IssuerContext, job: Job, sealer: Sealer, on_progress: OnProgress) -> Manifest:
    """Make chunks and ledger and return the manifest that would commit them; raises where a gate does not hold."""
    plan = job.plan
    built = build_run(context, job, sealer, on_progress)
    _pass_gates(context, plan, built, OPENABLE if plan.selection else job.opened)
    if job.expected not in (None, ExpectedOutcome(plan.source.sha256, built.counts, built.reasons)):
        raise UnexpectedOutcomeError(
            extract=plan.source.key, now=built.counts.submitted, listed=job.expected.counts.submitted
        )
    return _manifest(plan, built)


def command(issuer: str, plan: Plan, opened: Collection[str]) -> str:
    """Return the command line that finishes a run, ready to paste into a shell."""
    words = ["cardlink", "submit", issuer, "--extract", plan.source.key.removeprefix(extracts(issuer))]
    for gate in sorted(opened):
        words += ["--open", gate]
    return shlex.join(words + (["--new-run", plan.reason] if plan.reason else []))


def _pass_gates(context: IssuerContext, plan: Plan, built: BuiltRun, opened: Collection[str]) -> None:
    store, keys = context.adapters.store, keys_of(plan.run)
    night = GateFacts(plan.source.key, built.counts, rows_before(store, keys.run), built.test_cards, built.other_cards)
    refused = refusal(night, context.issuer.limits, test=context.issuer.test, opened=opened)
    if refused is not None:
        write_rejects(store, keys, built.ledger)
        raise refused


def _manifest(plan: Plan, built: BuiltRun) -> Manifest:
    return Manifest(
        run=plan.run,
        source=plan.source,
        as_of=plan.as_of,
        settings_sha256=plan.settings_sha256,
        recipe=plan.recipe,
        selection=plan.selection,
        recipients=plan.recipients,
        counts=built.counts,
        reasons=built.reasons,
        repairs=built.repairs,
        chunks=built.chunks,
        ledger=built.ledger,
    )


def _checking_claim(claim: Claim, on_progress: OnProgress) -> OnProgress:
    """Look after every block whether the claim is still ours."""

    def watch(progress: Progress) -> None:
        claim.check()
        on_progress(progress)

    return watch


class SentTwiceError(OperatorError):
    """Another run of an extract whose chunks are, or may be, at the portal already."""

    message = (
        "{extract} would be sent twice: {count} of the {chunks} chunks of run {run} are uploaded, answered or waiting."
    )
    next_step = "Cancel those that wait (`cardlink outbox cancel {run}`); uploaded ones cannot be taken back."


def refuse_sent(adapters: Adapters, extract: str, runs: Collection[str]) -> None:
    """Raise SentTwiceError where an earlier run of an extract may have sent a card that another run would send."""
    for run in runs:
        if read_manifest(adapters.store, keys_of(run)) is None:
            continue
        found = outbox(adapters, run)
        out = [item for item in found if item.state != "cancelled"]
        if out:
            raise SentTwiceError(extract=extract, count=len(out), chunks=len(found), run=run)


def refuse_resend(context: IssuerContext, request: Request) -> None:
    """Raise SentTwiceError where another run of the extract would send its cards a second time."""
    if request.new_run:
        refuse_sent(
            context.adapters, request.extract, [plan.run for plan in plans_of_extract(context, request.extract)]
        )


def plans_of_extract(context: IssuerContext, extract: str) -> list[Plan]:
    """Return the plans of the runs that have the bytes of an extract, by date; of a portfolio, of its night."""
    store = context.adapters.store
    entry = find_extract(context, extract)
    sha256 = identify(store, entry).sha256
    found = [plan for plan in plans(store, context.issuer.issuer) if plan.source.sha256 == sha256]
    night = business_date(entry.key, entry.modified, context.issuer.time_zone)
    return [plan for plan in found if not context.issuer.full_portfolio or plan.as_of == night]
