"""Take extracts to sealed chunks: what `nightly` does each night, for one extract or all that are
new.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Annotated, get_args

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Choice, Form
from flows.commands.parameters import Day, ExtractName, Field, Issuer, Reason
from flows.commands.result import Part, Result, worst
from flows.commands.sent_runs import outcome, run_facts, submitted, upload_step, would_send
from flows.errors import CardlinkError, ExtractError
from flows.extensions import continued
from flows.steps import WHY, Sentence, Step
from flows.wiring import wire
from schemas.actions import Gate

with on_first_use():
    from flows.extracts import trailer
    from flows.runs import context as contexts
    from flows.runs import keys
    from flows.submissions import extract_states, rehearsal
    from flows.submissions import submit as submission

LONGEST = 6.0  # hours: tens of millions of rows take one
OPEN_GATE = Choice(
    "open_gate",
    "A gate that this run may pass, after asking the issuer; recorded with the run.",
    {
        "none": {},
        **{gate: {"opened": (gate,)} for gate in get_args(Gate)},
        "all": {"opened": get_args(Gate)},
    },
)
RERUN = Form(
    "rerun",
    "submit {extract}",
    LONGEST,
    needs=("extract",),
    choices=(OPEN_GATE,),
    retries=(10, 60, 300),
    says_result=True,
)


@entry("submit", form=RERUN, acts={"gates": "opened"})
def submit(
    context: Context,
    issuer: Issuer,
    *,
    extract: ExtractName = "",
    business_date: Day = None,
    opened: Annotated[Sequence[Gate], Field("--open")] = (),
    new_run_reason: Annotated[Reason, Field("--new-run", "REASON")] = "",
    dry_run: bool = False,
) -> Result:
    """Submit extracts: validate every row, seal the chunks, commit them for upload.

    Args:
        issuer: Whose extracts.
        extract: An extract by its name below the issuer's extracts, such as
            first-bank-20261120.csv; a command without it takes all that are not submitted yet.
        business_date: The day the cards must be valid on, if the extract's name does not say it.
        opened: A gate that this run may pass; recorded with the run.
        new_run_reason: Why an extract that already has a run gets another one. Refused while a
            chunk of the earlier run is waiting, uploaded or answered: its cards would be sent
            twice.
        dry_run: Check every row and show exactly what would be sent; write nothing.

    Example:
        cardlink submit first-bank
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    names = [extract]
    waiting: list[str] = []
    if not extract:
        names, waiting = _to_submit(issuer_context, remember=not dry_run)
    requests = [submission.Request(name, business_date, opened, new_run_reason) for name in names]
    refused: list[CardlinkError] = []
    if dry_run:
        checked = list[rehearsal.Checked]()
        for request in requests:
            with _refusals_of(requests, request, issuer, refused):
                checked.append(rehearsal.rehearse(issuer_context, request))
        options = {"date": business_date, "open": sorted(opened), "new_run": new_run_reason}
        step = Step("submit", issuer, extract=extract, **options)
        return _rehearsed(issuer, checked, refused, step)
    done = list[submission.Submitted]()
    for request in requests:
        name = request.extract.rpartition("/")[2]
        with _refusals_of(requests, request, issuer, refused), context.progress(name) as progress:
            submission.refuse_resend(issuer_context, request)
            done.append(submission.submit(issuer_context, request, progress))
    result = _submitted(issuer_context, done, refused, waiting)
    if not requests:
        result = result._replace(shown=[*result.shown, *submission.settle(issuer_context)])
    return continued("after_commit", issuer_context, result)


def _to_submit(context: contexts.IssuerContext, *, remember: bool) -> tuple[list[str], list[str]]:
    """Return the extracts to submit, and a line for each that is not taken."""
    unsubmitted = extract_states.unsubmitted(context, remember=remember)
    names = [extract.key for extract in unsubmitted if not extract.waits]
    waiting = [extract for extract in unsubmitted if extract.waits]
    return names, [f"{extract.key} is not taken: {extract.waits}" for extract in waiting]


@contextmanager
def _refusals_of(
    requests: Sequence[submission.Request],
    request: submission.Request,
    issuer: str,
    refused: list[CardlinkError],
) -> Iterator[None]:
    """Add the error of a refused extract to `refused`, so that it does not stop the others.

    Of one extract alone, the error is raised.
    """
    try:
        yield
    except CardlinkError as error:
        _advise_to_dismiss(error, issuer, request.extract)
        refused.append(error)
        if len(requests) == 1:
            raise


def _advise_to_dismiss(error: CardlinkError, issuer: str, extract: str) -> None:
    """Add how to dismiss an extract to the error that refused it, unless it says that already."""
    is_said = any(step.entry == "dismiss" for step in error.text.steps)
    if isinstance(error, ExtractError) and not is_said:
        template = "If it comes under another name, drop this one: {dismiss}."
        name = extract.removeprefix(keys.extracts(issuer))
        dismiss = Step("dismiss", issuer, name, reason=WHY)
        error.advice.append(Sentence(template, dismiss=dismiss))


def _submitted(
    context: contexts.IssuerContext,
    done: Sequence[submission.Submitted],
    refused: Sequence[CardlinkError],
    waiting: Sequence[str],
) -> Result:
    """Show the runs that were committed, and the extracts that were refused or wait."""
    issuer = context.issuer.issuer
    remarks = _remarks(context, done)
    facts = {
        "issuer": issuer,
        "runs": [run_facts(run) for run in done],
        "refused": [str(error.text) for error in refused],
        "waiting": waiting,
        "remarks": remarks,
    }
    if not done and not refused:
        nothing = [f"{issuer}: no new extract to submit"]
        next_step = Step("worklist", issuer) if waiting else Step("ingest", issuer)
        return Result(facts, waiting or nothing, next_step)
    shown = chain.from_iterable(submitted(context, run) for run in done)
    has_chunks = any(run.manifest.chunks for run in done)
    return Result(
        facts,
        [*shown, *_refusals(refused), *waiting, *remarks],
        upload_step(issuer) if has_chunks else Step("worklist", issuer),
        worst(error.exit_code for error in refused),
        outbox=issuer,
        headline=_headline(done, refused),
    )


def _remarks(
    context: contexts.IssuerContext, done: Sequence[submission.Submitted]
) -> Sequence[Part]:
    """Return what is to be known of the issuer's extracts where a run of one came now."""
    is_new = any(not run.already for run in done)
    return trailer.unproven(context.issuer.source) if is_new else []


def _headline(done: Sequence[submission.Submitted], refused: Sequence[CardlinkError]) -> str:
    """Say in one sentence what came of the runs that were committed now, "" for none."""
    new = [run.manifest for run in done if not run.already]
    return outcome([(run.counts, len(run.chunks)) for run in new], refused) if new else ""


def _rehearsed(
    issuer: str,
    checked: Sequence[rehearsal.Checked],
    errors: Sequence[CardlinkError],
    step: Step,
) -> Result:
    """Show what each extract would send, what would stop it, and the step that sends them."""
    facts = {
        "issuer": issuer,
        "dry_run": True,
        "extracts": [extract.facts for extract in checked],
        "refused": [str(error.text) for error in errors],
    }
    shown: list[Part] = []
    for extract in checked:
        shown += would_send(extract)
        shown += extract.remarks
    shown += _refusals(errors)
    shown = shown or [f"{issuer}: no new extract to submit"]
    code = _exit_code(checked, errors)
    sendable = [extract for extract in checked if not extract.already and not extract.refused]
    next_step = step if sendable and not code else None
    return Result(
        facts,
        ["Dry run: nothing was written", *shown],
        next_step,
        code,
        headline=f"dry run: {_verdict(checked, sendable)}",
    )


def _exit_code(checked: Sequence[rehearsal.Checked], errors: Sequence[CardlinkError]) -> int:
    codes = [error.exit_code for error in errors]
    codes += [3 for extract in checked if extract.refused]
    return worst(codes)


def _verdict(checked: Sequence[rehearsal.Checked], sendable: Sequence[rehearsal.Checked]) -> str:
    """Say in one sentence what a real run would do."""
    if sendable:
        sizes = [(extract.counts, extract.chunks) for extract in sendable]
        return outcome(sizes, sent="would be sent")
    return str(checked[0].verdict) if checked else "nothing to submit"


def _refusals(errors: Iterable[CardlinkError]) -> list[Sentence]:
    return [Sentence("refused: {error}", error=error.text) for error in errors]
