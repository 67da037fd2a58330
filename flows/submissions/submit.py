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
from flows.runs.chains import late_commits, take_turn
from flows.runs.chunks import outbox
from flows.runs.claim import Claim, claimed, sweep
from flows.runs.context import Edges, IssuerEdges, note
from flows.runs.documents import AbandonedError, finished, has_manifest, keys_of, plans, read_manifest, rows_before
from flows.runs.identity import business_date, canonical
from flows.runs.keys import RunKeys, extracts, submissions
from flows.runs.probe import prove
from flows.runs.sealing import Sealer
from flows.runs.store import ConflictError, Store, write_once
from flows.submissions.build import Expected, Job, Made, Progress, Tell, make
from flows.submissions.gates import OPENABLE, Night, refusal
from flows.submissions.plan import find_extract, identify, make_plan
from flows.submissions.rows import Choice
from schemas.manifest import Manifest, Plan

if TYPE_CHECKING:
    from flows.runs.attempts import Survey


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
    expected: Expected | None = None  # what it must come out as


class Submitted(NamedTuple):
    """A committed run, whether it was found done, and what is worth saying aloud."""

    manifest: Manifest
    already: bool
    remarks: tuple[str, ...] = ()


class Committed(NamedTuple):
    """A manifest that stands, and whether this process wrote it."""

    manifest: Manifest
    ours: bool


def submit(edges: IssuerEdges, request: Request, tell: Tell = lambda _: None) -> Submitted:
    """Take one extract all the way to its manifest; a finished run again does nothing and says so.

    Raises the gates' errors, PartialRunError, ClaimedError and what the edges raise; each says what to do.
    """
    with edges.sealer() as sealer:  # a key that does not fit is refused before anything is read
        entry = find_extract(edges, request.extract)
        prove(edges)
        world = look_around(edges) if edges.issuer.full_portfolio else None
        known = world.digest if world else ""
        planned = make_plan(edges, entry, request.business_date, redact(request.new_run), known)
        job = Job(
            planned.plan,
            entry,
            Choice(known=world.known if world else None),
            request.opened,
            command(edges.issuer.issuer, planned.plan, request.opened),
            since=world.commit if world else None,
            expected=request.expected,
        )
        done = carry_out(edges, job, sealer, tell)
        return done._replace(remarks=(*planned.remarks, *sealer.warnings))


def carry_out(edges: IssuerEdges, job: Job, sealer: Sealer, tell: Tell = lambda _: None) -> Submitted:
    """Take a planned run to its manifest under its claim; a finished one is left as it is."""
    outside, keys = edges.edges, keys_of(job.plan.run)
    done = finished(outside.store, keys)
    if done is not None:
        return Submitted(done, already=True)
    with claimed(outside, keys.claims) as claim, _refusals_noted(outside, keys):
        done = finished(outside.store, keys)  # whoever had the claim before may have finished it
        if done is not None:
            return Submitted(done, already=True)
        manifest, ours = _commit(edges, job, sealer, _watching(claim, tell))
    return Submitted(manifest, already=not ours)


def _commit(edges: IssuerEdges, job: Job, sealer: Sealer, tell: Tell) -> Committed:
    """Do the work under the claim and write the manifest, the commit; a twin that took the claim over may be first."""
    outside, plan, keys = edges.edges, job.plan, keys_of(job.plan.run)
    sweep(outside, keys.base, submissions(edges.issuer.issuer, plan.source.sha256))
    if job.opened:  # before the commit: a crash right after it would lose the record
        note(outside, keys, "opened", gates=sorted(job.opened))
    manifest = _work(edges, job, sealer, tell)
    take_turn(outside.store, edges.issuer.issuer, manifest, job.since)
    return Committed(manifest, _write(edges, manifest))


def _write(edges: IssuerEdges, manifest: Manifest) -> bool:
    """Write the manifest of a run that has its turn; False where another had done so."""
    outside, keys = edges.edges, keys_of(manifest.run)
    ours = _end(outside.store, keys, manifest)
    if ours:
        note(outside, keys, "committed", rows=manifest.counts.submitted)
    if manifest.counts.submitted:
        write_rejects(outside.store, keys, manifest.ledger)  # the issuer need not wait for the partner's answers
    else:
        from flows.reports.rebuild import rebuild  # rare, and its page and workbook take 60 ms to import

        rebuild(edges, manifest.run)  # nothing was sent, so no answer will ever bring its report
    return ours


def _end(store: Store, keys: RunKeys, manifest: Manifest) -> bool:
    """Write the manifest; False where a twin had done so, AbandonedError where an operator was first."""
    try:
        return write_once(store, keys.manifest, canonical(manifest))
    except ConflictError as error:
        conflict = error
    finished(store, keys)
    raise conflict


def look_around(edges: IssuerEdges) -> Survey:
    """Survey the cards of an issuer, once every run that took its turn is committed."""
    from flows.runs.attempts import survey  # for a portfolio alone; all that reads answers comes with it

    finish_turns(edges)
    return survey(edges)


def finish_turns(edges: IssuerEdges) -> None:
    """Write the manifests of runs that took their turn and died right after it: they are whole."""
    store, issuer = edges.edges.store, edges.issuer.issuer
    for manifest in late_commits(store, issuer):
        if not has_manifest(store, keys_of(manifest.run)):
            with suppress(AbandonedError):  # an operator was first
                _write(edges, manifest)


@contextmanager
def _refusals_noted(outside: Edges, keys: RunKeys) -> Iterator[None]:
    """Leave the name of what refused a run with the run."""
    try:
        yield
    except (ExtractError, GateError, BalanceError, OperatorError) as error:
        with suppress(CardlinkError):  # on a full disk the note fails as well, and the first error is the one to tell
            note(outside, keys, "refused", why=type(error).__name__)
        raise


def _work(edges: IssuerEdges, job: Job, sealer: Sealer, tell: Tell) -> Manifest:
    """Make chunks and ledger and return the manifest that would commit them; raises where a gate does not hold."""
    plan = job.plan
    made = make(edges, job, sealer, tell)
    _pass_gates(edges, plan, made, OPENABLE if plan.selection else job.opened)
    if job.expected not in (None, Expected(plan.source.sha256, made.counts, made.reasons)):
        raise UnexpectedOutcomeError(
            extract=plan.source.key, now=made.counts.submitted, listed=job.expected.counts.submitted
        )
    return _manifest(plan, made)


def command(issuer: str, plan: Plan, opened: Collection[str]) -> str:
    """Return the command line that finishes a run, ready to paste into a shell."""
    words = ["cardlink", "submit", issuer, "--extract", plan.source.key.removeprefix(extracts(issuer))]
    for gate in sorted(opened):
        words += ["--open", gate]
    return shlex.join(words + (["--new-run", plan.reason] if plan.reason else []))


def _pass_gates(edges: IssuerEdges, plan: Plan, made: Made, opened: Collection[str]) -> None:
    store, keys = edges.edges.store, keys_of(plan.run)
    night = Night(plan.source.key, made.counts, rows_before(store, keys.run), made.test_cards, made.other_cards)
    refused = refusal(night, edges.issuer.limits, test=edges.issuer.test, opened=opened)
    if refused is not None:
        write_rejects(store, keys, made.ledger)
        raise refused


def _manifest(plan: Plan, made: Made) -> Manifest:
    return Manifest(
        run=plan.run,
        source=plan.source,
        as_of=plan.as_of,
        settings_sha256=plan.settings_sha256,
        recipe=plan.recipe,
        selection=plan.selection,
        recipients=plan.recipients,
        counts=made.counts,
        reasons=made.reasons,
        repairs=made.repairs,
        chunks=made.chunks,
        ledger=made.ledger,
    )


def _watching(claim: Claim, tell: Tell) -> Tell:
    """Look after every block whether the claim is still ours."""

    def watch(progress: Progress) -> None:
        claim.check()
        tell(progress)

    return watch


class SentTwiceError(OperatorError):
    """Another run of an extract whose chunks are, or may be, at the portal already."""

    message = (
        "{extract} would be sent twice: {count} of the {chunks} chunks of run {run} are uploaded, answered or waiting."
    )
    next_step = "Cancel those that wait (`cardlink outbox cancel {run}`); uploaded ones cannot be taken back."


def refuse_twice(edges: Edges, extract: str, runs: Collection[str]) -> None:
    """Raise SentTwiceError where an earlier run of an extract may have sent a card that another run would send."""
    for run in runs:
        if read_manifest(edges.store, keys_of(run)) is None:
            continue
        found = outbox(edges, run)
        out = [item for item in found if item.state != "cancelled"]
        if out:
            raise SentTwiceError(extract=extract, count=len(out), chunks=len(found), run=run)


def guard_twice(edges: IssuerEdges, request: Request) -> None:
    """Raise SentTwiceError where another run of the extract would send its cards a second time."""
    if request.new_run:
        refuse_twice(edges.edges, request.extract, [plan.run for plan in plans_of(edges, request.extract)])


def plans_of(edges: IssuerEdges, extract: str) -> list[Plan]:
    """Return the plans of the runs that have the bytes of an extract, by date; of a portfolio, of its night."""
    store = edges.edges.store
    entry = find_extract(edges, extract)
    sha256 = identify(store, entry).sha256
    found = [plan for plan in plans(store, edges.issuer.issuer) if plan.source.sha256 == sha256]
    night = business_date(entry.key, entry.modified, edges.issuer.time_zone)
    return [plan for plan in found if not edges.issuer.full_portfolio or plan.as_of == night]
