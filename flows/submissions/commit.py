"""What commits a run: one transaction, in which it gets its turn, its manifest and its chunks.

**A run is committed when it has a turn, and not before.** Only then are its chunks offered for
upload, and only then do results and reports count it. Until then nothing is decided: the same
command again is the recovery (`flows/submissions/begun.py` has what becomes of those that nobody
repeats).

The turn is the issuer's next number. A run that was planned after another's turn finds its cards
awaiting; one that was planned before it and sends one of them is not committed (OvertakenError;
where `[resend] seen_before = "send"`, only a run of the same extract is refused). What the others
have sent is read from their ledgers before the transaction, which looks only whether somebody has
taken a turn since. It also looks whether the process still holds its claim, and whether an operator
has abandoned the run.
"""

from contextlib import suppress
from functools import partial

from flows.installed import installed_build
from flows.reports.lists import write_unsent
from flows.runs.adapters import Adapters
from flows.runs.chunks import as_offered
from flows.runs.claim import Lease, holder_of, work_on
from flows.runs.commits import last_turn, read_commits, refuse_overtaken
from flows.runs.context import IssuerContext
from flows.runs.errors import AbandonedError, LedgerPurgedError, UnknownRunError
from flows.runs.journal import Act, enter
from flows.runs.run_records import record_of, records_where
from flows.runs.store import is_stored
from flows.runs.stored_run import StoredRun
from flows.submissions.build import Job
from schemas.database import CHUNK, RUN
from schemas.manifest import Manifest


def commit_run(
    context: IssuerContext, job: Job, manifest: Manifest, lease: Lease | None = None
) -> bool:
    """Commit a run that was built; False where a concurrent process has committed it.

    `lease`: the claim under which it was built; None in a dry run. Raises OvertakenError where a
    run that was committed since this one was planned sends any of its cards, LeaseLostError,
    AbandonedError where an operator abandoned it first.
    """
    adapters = context.adapters
    # before the commit: after it no command comes back to this run, so after a crash in between
    # the issuer would have its rejects only with the first results
    if lease is not None and manifest.counts.submitted:
        run = StoredRun.by_id(adapters, manifest.run)
        write_unsent(run, manifest, portfolio=context.issuer.full_portfolio)
    seen = job.since
    is_first: bool | None = None
    while is_first is None:
        for commit in read_commits(adapters, context.issuer.issuer, seen):
            refuse_overtaken(adapters, manifest, commit.manifest, guarded=job.guarded)
            seen = commit.turn
        attempt = partial(_commit, adapters, job, manifest, lease, seen)
        is_first = enter(adapters, context.issuer.issuer, "committed", attempt, run=manifest.run)
    if lease is not None:
        _report_if_nothing_sent(context, manifest)
    return is_first


def _commit(
    adapters: Adapters, job: Job, manifest: Manifest, lease: Lease | None, seen: int, act: Act
) -> bool | None:
    """Commit a run within an act, after the turns that were `seen`.

    Returns whether it was the first to do so; None where there are later turns to look at.
    """
    record = record_of(act.connection, act.issuer, manifest.run)
    if record is None:
        raise UnknownRunError(run=manifest.run)
    if record.state == "committed":
        return False
    if record.state == "abandoned":
        raise AbandonedError(run=record.run, actor=record.abandoned_by, reason=record.abandoned_why)
    if lease is not None:
        lease.check_epoch(act.connection)
    if last_turn(act.connection, act.issuer) != seen:
        return None
    now = adapters.now()
    act.update(
        RUN,
        {"run": manifest.run},
        state="committed",
        replaced_by=None,
        turn=seen + 1,
        committed_at=now,
        dropped_at=job.entry.modified,
        sequence=manifest.sequence,
        manifest=manifest.model_dump(mode="json"),
        report_due=not manifest.counts.submitted,
    )
    offered = as_offered(now, adapters.actor)
    for chunk in manifest.chunks:
        act.insert(CHUNK, run=manifest.run, **chunk.model_dump(), **offered)
    act.facts |= {"rows": manifest.counts.submitted, "release": installed_build()}
    return True


def finish_commits(context: IssuerContext) -> tuple[str, ...]:
    """Write the reports of committed runs that sent nothing and whose process died before that.

    Returns a remark of each.
    """
    adapters = context.adapters
    with adapters.database.snapshot() as connection:
        due = records_where(connection, context.issuer.issuer, RUN.c.report_due)
    remarks: list[str] = []
    for record in due:
        run = StoredRun.recorded(adapters, record)
        if holder_of(work_on(adapters, run.id), adapters.now()) is not None:
            continue
        with suppress(LedgerPurgedError):  # the retention was first
            _report_if_nothing_sent(context, run.committed())
            remarks.append(f"run {run.id} is committed; its report is written now")
    return tuple(remarks)


def _report_if_nothing_sent(context: IssuerContext, manifest: Manifest) -> None:
    """Write the report of a run that sent nothing, unless there is one: no result will bring it."""
    if manifest.counts.submitted:
        return
    run = StoredRun.of(context.adapters, manifest)
    if not is_stored(run.store, run.keys.report("summary.json")):
        # rare, and its page and workbook take 60 ms to import
        from flows.reports.rebuild import rebuild

        rebuild(context, run)

    def note(act: Act) -> None:
        act.update(RUN, {"run": run.id}, report_due=False)

    enter(context.adapters, run.issuer, "reported", note, run=run.id)
