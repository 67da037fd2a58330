"""Close the breaks of a run by a decision about their rows, and reopen them.

Each closing stands with who, when and why; the report is rebuilt after it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, NamedTuple, TypeVar

from flows.book.stored_book import closed_runs
from flows.errors import OperatorError
from flows.reports.rebuild import RunReport, rebuild_lasting
from flows.reports.reconciled import Findings, find_breaks
from flows.runs.closings import add_closing, chunk_of, closed_breaks, place_of
from flows.runs.context import IssuerContext
from flows.runs.errors import NotFoundError
from flows.runs.journal import Act, enter
from flows.runs.outbox import select_chunks
from flows.runs.shown_rows import refuse_other_rows
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import Sentence, Step
from schemas.breaks import EXPLAINED, KINDS, LOST, PLACELESS, RESULT_SHORT, Break
from schemas.records import Closing

B = TypeVar("B", Break, Closing)


class TooEarlyError(OperatorError):
    """A chunk without any result is given up before `lost_after_days` are over."""

    message = (
        "Chunk {number} of {run} was uploaded on {since}: its result may still come. Nothing was "
        "decided."
    )
    next_step = Sentence(
        "Download it again and ask the partner; it can be given up from {day} on ([limits] "
        "lost_after_days)."
    )


class Settled(NamedTuple):
    """The breaks that were closed or reopened, and the report after that."""

    breaks: tuple[Break | Closing, ...]
    report: RunReport


def close_break(
    context: IssuerContext,
    run: str,
    name: str,
    place: str,
    reason: str,
    decision: str = EXPLAINED,
    rows: Collection[int] = (),
    expected: str | None = None,
) -> Settled:
    """Close the open breaks of a kind in a run by a decision.

    All of them, or those at a place, with or without row numbers; of `rows`, only for those.
    OtherRowsError where they have not just as many rows as were `expected`. A
    chunk that was uploaded and has no result at all can be given up as RESULT_SHORT. Raises
    UnknownRunError, NotFoundError (also for a notice, or a decision that is not offered),
    ChunkStateError, TooEarlyError, NoReasonError. The same command again makes the report that one
    which was stopped after its record did not make.
    """
    signed = context.adapters.signed(reason)
    stored = StoredRun.by_id(context.adapters, run)
    seen = stored.closed_breaks
    findings = find_breaks(context, stored)
    _refuse_unless_offered(run, name, decision)
    if (name, decision) == (RESULT_SHORT, LOST):
        findings = _with_unanswered_chunk(context, run, findings, place)
    if _is_unreported(stored, findings, name, place):
        return _settled(context, stored, ())
    chosen = _chosen(run, "open", findings.breaks, name, place)
    _refuse_other_rows(context, run, chosen, expected)
    covered = {open_break: _covered_rows(findings, open_break, decision) for open_break in chosen}
    if rows:
        covered = _only(covered, rows)
    if not _is_recorded(context, stored, seen, "closed", covered, signed, decision):
        return close_break(context, run, name, place, reason, decision, rows, expected)
    return _settled(context, stored, covered)


def runs_to_close(context: IssuerContext, name: str, rows: str | None) -> list[str]:
    """Return the runs of an issuer with open breaks of a kind, which have just so many rows.

    OtherRowsError where they have more or fewer. NotFoundError where no run has any.
    """
    issuer = context.issuer.issuer
    open_rows: dict[str, int] = {}
    runs = StoredRuns(context.adapters, context.issuer.issuer)
    for run in runs.committed(closed_runs(context.adapters, runs)):
        for known in (run.summary or {}).get("breaks", ()):
            if known["name"] == name and not known["notice"]:
                open_rows[run.id] = open_rows.get(run.id, 0) + known["rows"]
    if not open_rows:
        listed = Step("worklist", issuer)
        raise NotFoundError(place=issuer, what=f"open break {name}", command=listed)
    refuse_other_rows(issuer, f"{name} of {issuer}", sum(open_rows.values()), rows)
    return sorted(open_rows)


def reopen_break(
    context: IssuerContext,
    run: str,
    name: str,
    place: str,
    reason: str,
    expected: str | None = None,
) -> Settled:
    """Reopen closed breaks of a kind in a run, all or those at a place; raises as `close_break`.

    The same command again makes the report that one which was stopped after its record did not.
    """
    signed = context.adapters.signed(reason)
    stored = StoredRun.by_id(context.adapters, run)
    seen = stored.closed_breaks
    if _is_open_and_unreported(context, stored, name, place):
        return _settled(context, stored, ())
    chosen = _chosen(run, "closed", seen, name, place)
    _refuse_other_rows(context, run, chosen, expected)
    if not _is_recorded(context, stored, seen, "reopened", dict.fromkeys(chosen, ()), signed):
        return reopen_break(context, run, name, place, reason, expected)
    return _settled(context, stored, chosen)


def _refuse_other_rows(
    context: IssuerContext, run: str, chosen: Sequence[B], expected: str | None
) -> None:
    """Raise OtherRowsError unless the chosen breaks have just so many rows."""
    count = sum(known.rows for known in chosen)
    refuse_other_rows(context.issuer.issuer, f"{chosen[0].name} of {run}", count, expected)


def _refuse_unless_offered(run: str, name: str, decision: str) -> None:
    offered = KINDS[name].decisions if name in KINDS else ()
    if offered and decision not in offered:
        missing = f"decision {decision}, only {', '.join(offered)}"
        raise NotFoundError(place=f"Break {name}", what=missing, command=Step("report", run))


def _with_unanswered_chunk(
    context: IssuerContext, run: str, findings: Findings, place: str
) -> Findings:
    """Return as the only break that an uploaded chunk has no result at all, where it is that.

    It is none before somebody gives the chunk up. Raises ChunkStateError where it is not uploaded,
    TooEarlyError before an answer was waited for long enough.
    """
    is_break = any((known.name, known.place) == (RESULT_SHORT, place) for known in findings.breaks)
    chunk = chunk_of(place)
    unanswered = findings.unanswered.filter(chunk=chunk).height
    if is_break or not unanswered:
        return findings
    outbox = StoredRun.by_id(context.adapters, run).outbox
    [uploaded] = select_chunks(outbox, run, {"uploaded"}, "given up", [chunk])
    wait = timedelta(days=context.issuer.limits.lost_after_days)
    if context.adapters.now() < uploaded.clock + wait:
        day = f"{uploaded.clock + wait:%Y-%m-%d}"
        raise TooEarlyError(number=chunk, run=run, since=f"{uploaded.clock:%Y-%m-%d}", day=day)
    return findings._replace(breaks=(Break(RESULT_SHORT, unanswered, place, "", run),))


def _is_unreported(run: StoredRun, findings: Findings, name: str, place: str) -> bool:
    """Return whether a break is closed and still open in the report.

    Its command was stopped in between.
    """
    reported = (known for known in (run.summary or {}).get("breaks", ()) if not known["notice"])
    is_reported = any(is_at(known["name"], known["place"], name, place) for known in reported)
    is_open = any(is_at(known.name, known.place, name, place) for known in findings.breaks)
    return is_reported and not is_open


def _is_open_and_unreported(context: IssuerContext, run: StoredRun, name: str, place: str) -> bool:
    """Return whether a break is open, and the report does not have it: its closing was taken back.

    Its command was stopped in between.
    """
    if any(is_at(closing.name, closing.place, name, place) for closing in run.closed_breaks):
        return False
    reported = (known for known in (run.summary or {}).get("breaks", ()) if not known["notice"])
    if any(is_at(known["name"], known["place"], name, place) for known in reported):
        return False
    open_breaks = find_breaks(context, run).breaks
    return any(is_at(known.name, known.place, name, place) for known in open_breaks)


def is_at(own_name: str, own_place: str, name: str, place: str) -> bool:
    """Return whether a break is of this kind and at this place, "" for any."""
    return own_name == name and place in ("", own_place, place_of(own_place))


def _chosen(run: str, state: str, breaks: Sequence[B], name: str, place: str) -> tuple[B, ...]:
    """Return the breaks of that name and place; NotFoundError where there is none."""
    chosen = tuple(
        candidate for candidate in breaks if is_at(candidate.name, candidate.place, name, place)
    )
    if not chosen:
        missing = f"{state} break {name} at {place or 'any place'}"
        raise NotFoundError(place=run, what=missing, command=Step("report", run))
    return chosen


def _covered_rows(findings: Findings, open_break: Break, decision: str) -> tuple[int, ...]:
    """Return the rows of a break that its closing covers.

    Of one without rows of its own they are those that the decision has its effect on.
    """
    chunk = chunk_of(open_break.place)
    rows = findings.broken.filter(kind=open_break.name, chunk=chunk)["row"].drop_nulls()
    if open_break.name in PLACELESS or rows.is_empty():
        if decision != LOST:
            return ()
        rows = findings.unanswered.filter(chunk=chunk)["row"]
    return tuple(sorted(set(rows)))


def _only(
    covered: Mapping[Break, tuple[int, ...]], rows: Collection[int]
) -> dict[Break, tuple[int, ...]]:
    """Return the breaks with just those of their rows, and without the breaks that have none."""
    only: dict[Break, tuple[int, ...]] = {}
    for open_break, own in covered.items():
        kept = tuple(row for row in own if row in rows)
        if kept:
            only[open_break._replace(rows=len(kept))] = kept
    return only


def _is_recorded(
    context: IssuerContext,
    run: StoredRun,
    seen: list[Closing],
    outcome: Literal["closed", "reopened"],
    covered: Mapping[B, tuple[int, ...]],
    signed: Mapping[str, Any],
    decision: str = "",
) -> bool:
    """Record that breaks, each with the rows it covers, are closed or open again.

    False where others have closed or reopened breaks of the run since its closings were `seen`. A
    break that is reopened keeps the decision of its closing.
    """

    def work(act: Act) -> bool:
        standing = closed_breaks(context.adapters.within(act.connection), run.issuer, run.id)
        if standing != seen:
            return False
        for chosen, rows in covered.items():
            closing = Closing(
                **signed,
                what=outcome,
                name=chosen.name,
                place=chosen.place,
                rows=chosen.rows,
                decision=decision or getattr(chosen, "decision", ""),
                covers=rows,
            )
            add_closing(act, run.id, closing, standing)
        return True

    entered = f"break {outcome}"
    return enter(context.adapters, run.issuer, entered, work, run=run.id, reason=signed["reason"])


def _settled(context: IssuerContext, run: StoredRun, breaks: Iterable[Break | Closing]) -> Settled:
    """Report a run whose breaks were closed or reopened."""
    return Settled(tuple(breaks), rebuild_lasting(context, run.fresh()))
