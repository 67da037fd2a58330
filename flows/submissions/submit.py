"""Submit one extract: plan, claim, one streaming pass, gates, and the commit.

What commits is said in `commit.py`; until then the same command again is the recovery. A new run
of an extract is refused where an earlier one may have sent its cards.
"""

from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import date
from typing import NamedTuple

from flows.book.stored_book import known_plans
from flows.errors import BalanceError, CardlinkError, ExtractError, GateError, OperatorError
from flows.extracts.delivery import business_date
from flows.extracts.mapping import Note, stop
from flows.redaction import redact
from flows.reports.lists import write_unsent
from flows.runs.adapters import Adapters
from flows.runs.claim import claimed, clean_up, work_on
from flows.runs.commits import OvertakenError, read_last_turn
from flows.runs.context import IssuerContext
from flows.runs.erased import erased_people
from flows.runs.events import FOR_OPERATOR, REFUSED, record_event
from flows.runs.identity import canonical, digest
from flows.runs.keys import RunKeys
from flows.runs.sealing import Sealer
from flows.runs.store import Entry
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import WHY, Sentence, Slot, Step
from flows.submissions.begun import OVERTAKEN, abandon_left, end_begun
from flows.submissions.build import ExpectedOutcome, Job, OnProgress, Progress, build_run
from flows.submissions.changed_extract import changed_extract
from flows.submissions.commit import commit_run, finish_commits
from flows.submissions.extract_lookup import find_extract, identify
from flows.submissions.gates import CHANGED_EXTRACT, OPENABLE, Built, refusals
from flows.submissions.plan import make_plan, requested_run, submit_step
from flows.submissions.prior_state import PriorState, survey_cards, survey_given_up
from flows.submissions.row_scope import RowScope
from flows.submissions.run_choice import RunInputs
from flows.tracing import stage
from schemas.issuer import Issuer
from schemas.manifest import Manifest
from schemas.rules import RECIPE


class UnexpectedOutcomeError(OperatorError):
    """A run would not have the outcome that was approved."""

    message = (
        "{extract} would send {now:row}, not the {listed} listed, or for other reasons. "
        "Nothing was committed."
    )
    next_step = "List it again, and decide on the new list."


class Request(NamedTuple):
    """A request to submit: an extract by name, and what an operator may decide about it."""

    extract: str
    business_date: date | None = None
    opened: Collection[str] = ()  # gates
    new_run: str = ""  # the reason for a new run of an extract that already has one
    expected: ExpectedOutcome | None = None  # any other outcome is not committed


class Submitted(NamedTuple):
    """A committed run, whether it was committed already, and remarks for the operator.

    `confirmed`: rows of a corrected file that are what their links were made from, and not sent;
    where it has no others, the run is the one that it corrects.
    """

    manifest: Manifest
    already: bool
    remarks: tuple[str, ...] = ()
    confirmed: int = 0


def submit(
    context: IssuerContext, request: Request, on_progress: OnProgress = lambda _: None
) -> Submitted:
    """Take one extract all the way to its manifest; a finished run is left as it is."""
    with context.sealer() as sealer:  # a wrong key is refused before anything is read
        find_extract(context, request.extract)
        finished = finish_commits(context)
        with stage("plan") as note:
            job, remarks = prepare(context, request)
            note(run=job.plan.run)
        done = execute(context, job, sealer, on_progress)
        warnings = (warning.text for warning in sealer.warnings)
        return done._replace(remarks=(*finished, *remarks, *done.remarks, *warnings))


def settle(context: IssuerContext) -> tuple[str, ...]:
    """Finish or end what other commands have left, where there is nothing to submit."""
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    return *finish_commits(context), *end_begun(context, runs)


class _KnownCards(NamedTuple):
    """What other runs know of the issuer's cards, where that counts, up to `last_turn`."""

    last_turn: int
    prior: PriorState | None = None
    digest: str = ""


def prepare(
    context: IssuerContext, request: Request, note: Note = stop, entry: Entry | None = None
) -> tuple[Job, tuple[str, ...]]:
    """Plan the run of an extract (default: of that name), with remarks.

    `note` takes the error that holds a changed extract for a decision.
    """
    entry = entry or find_extract(context, request.extract)
    guarded = context.issuer.full_portfolio or context.issuer.resend.seen_before != "send"
    with ThreadPoolExecutor(1, "identify") as beside:  # the extract is read while the book is
        identity = beside.submit(identify, context.adapters.store, entry)
        cards = _known_cards(context, guarded=guarded)
        source = identity.result()
    inputs = RunInputs(
        business_date(context, entry, request.business_date),
        redact(request.new_run),
        known=erased_people(context.adapters, context.issuer.issuer).marked(cards.digest),
        dated=request.business_date is not None,
    )
    if _may_be_held(context, request):
        changed = changed_extract(context, entry, source, inputs, cards.prior)
        if changed is not None:
            note(changed)
    plan, remarks = make_plan(context, source, inputs)
    job = Job(
        plan,
        entry,
        RowScope(prior=cards.prior),
        request.opened,
        submit_step(source.key, open=sorted(request.opened), new_run=plan.reason),
        since=cards.last_turn,
        runs=StoredRuns(context.adapters, context.issuer.issuer),
        guarded=guarded,
        expected=request.expected,
    )
    return job, remarks


def _known_cards(context: IssuerContext, *, guarded: bool) -> _KnownCards:
    survey = survey_cards(context) if guarded else survey_given_up(context)
    if survey is None:
        return _KnownCards(read_last_turn(context.adapters, context.issuer.issuer))
    return _KnownCards(survey.last_turn, survey.known, survey.digest)


def _may_be_held(context: IssuerContext, request: Request) -> bool:
    """Return whether an extract with the name of a committed one and other content is held back."""
    is_held = context.issuer.source.same_name != "replace"
    return is_held and CHANGED_EXTRACT not in request.opened


def execute(
    context: IssuerContext, job: Job, sealer: Sealer, on_progress: OnProgress = lambda _: None
) -> Submitted:
    """Take a planned run to its manifest under its claim; a finished one is left as it is.

    Runs that others have left are ended after it.
    """
    with _abandoning_overtaken(context.adapters, job):
        submitted = _committed(context, job, sealer, on_progress)
    remarks = (*submitted.remarks, *end_begun(context, job.runs, job.plan.run))
    return submitted._replace(remarks=remarks)


@contextmanager
def _abandoning_overtaken(adapters: Adapters, job: Job) -> Iterator[None]:
    """Abandon a run of selected rows that is overtaken: the same command then selects others."""
    try:
        yield
    except OvertakenError:
        if job.plan.selection is not None:
            abandon_left(adapters, job.plan.run, OVERTAKEN)
        raise


def _committed(
    context: IssuerContext, job: Job, sealer: Sealer, on_progress: OnProgress
) -> Submitted:
    """Take a planned run to its manifest under its claim."""
    adapters = context.adapters
    run = StoredRun.by_id(adapters, job.plan.run)
    finished = run.finished()
    if finished is not None:
        return Submitted(finished, already=True)
    with (
        claimed(adapters, work_on(adapters, run.id)) as claim,
        _recording_refusal(context, run.keys),
    ):
        finished = run.fresh().finished()  # the claim's last holder may have finished it
        if finished is not None:
            return Submitted(finished, already=True)

        def report_progress(progress: Progress) -> None:
            claim.check()
            on_progress(progress)

        clean_up(adapters, run.keys.base)
        if job.opened:  # before the commit: a crash right after it would lose the record
            record_event(adapters, run.keys, "opened", gates=sorted(job.opened))
        with stage("check and seal", run=job.plan.run) as note:
            built = build_run(context, job, sealer, report_progress, claim.epoch)
            _judge(context, job, built)
            note(**built.manifest.counts.model_dump(include={"read", "submitted", "rejected"}))
        with stage("commit", run=job.plan.run):
            is_first = commit_run(context, job, built.manifest, claim)
        # a concurrent process that was first has other chunks
        manifest = built.manifest if is_first else run.fresh().committed()
        return Submitted(manifest, already=not is_first, remarks=built.remarks)


def settings_now(issuer: Issuer) -> str:
    """Return the digest of all settings and of how this version reads rows by them."""
    return digest(canonical({"recipe": RECIPE, **issuer.model_dump(mode="json")}))


@contextmanager
def _recording_refusal(context: IssuerContext, keys: RunKeys) -> Iterator[None]:
    """Record name and sentence of the error that refused a run in the run's history, under which
    settings, and what to do where that is no decision.
    """
    try:
        yield
    except (ExtractError, GateError, BalanceError, OperatorError) as error:
        # on a full disk recording fails too: the first error is the one to show
        with suppress(CardlinkError):
            facts = {
                "why": type(error).__name__,
                "sentence": error.what_happened.rstrip("."),
                "under": settings_now(context.issuer),
            }
            if isinstance(error, ExtractError | OperatorError):
                facts["then"] = error.what_next
            if isinstance(error, OperatorError):
                facts["who"] = FOR_OPERATOR
            record_event(context.adapters, keys, REFUSED, **facts)
        raise


def _judge(context: IssuerContext, job: Job, built: Built) -> None:
    """Raise the error of the first gate that a run fails; UnexpectedOutcomeError where its outcome
    is another than the one that was approved.
    """
    opened = OPENABLE if job.plan.selection else job.opened
    refused = next(refusals(built, context.issuer, opened), None)
    if refused is not None:
        run = StoredRun.by_id(context.adapters, job.plan.run)
        write_unsent(run, built.manifest, portfolio=context.issuer.full_portfolio)
        raise refused
    source = job.plan.source
    counts = built.manifest.counts
    outcome = ExpectedOutcome(source.sha256, counts, built.manifest.reasons)
    if job.expected is not None and job.expected != outcome:
        raise UnexpectedOutcomeError(
            extract=source.key,
            now=counts.submitted,
            listed=job.expected.counts.submitted,
        )


class SentTwiceError(OperatorError):
    """A new run of an extract whose chunks are, or may be, at the portal already."""

    message = (
        "{extract} would be sent twice: {count} of {chunks} chunks of {run} are uploaded, "
        "answered or waiting."
    )
    next_step = Sentence(
        "Cancel those that wait: {cancel}; uploaded ones stay uploaded.",
        cancel=Step("outbox cancel", Slot("run"), reason=WHY, dry_run=True),
    )


def refuse_resend(context: IssuerContext, request: Request) -> None:
    """Raise SentTwiceError where a new run of an extract might send what an earlier run has sent.

    That is where a chunk of the earlier run is not cancelled.
    """
    if not request.new_run:
        return
    store = context.adapters.store
    entry = find_extract(context, request.extract)
    source = identify(store, entry)
    day = business_date(context, entry, request.business_date)
    inputs = RunInputs(day, redact(request.new_run))
    if requested_run(context, source, inputs).is_ended:  # a repetition: there will be no other run
        return
    any_day = not context.issuer.full_portfolio
    for plan in known_plans(context.adapters, StoredRuns(context.adapters, context.issuer.issuer)):
        if plan.sha256 == source.sha256 and (any_day or plan.as_of == day):
            _refuse_sent(StoredRun.by_id(context.adapters, plan.run), request.extract)


def _refuse_sent(run: StoredRun, extract: str) -> None:
    """Raise SentTwiceError where a chunk of a committed run of an extract is not cancelled."""
    outbox = run.outbox if run.manifest is not None else []
    sent = [chunk for chunk in outbox if chunk.state != "cancelled"]
    if sent:
        raise SentTwiceError(extract=extract, count=len(sent), chunks=len(outbox), run=run.id)
