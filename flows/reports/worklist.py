"""The worklist: what is to be done about all runs of an issuer, by whom, and the commands to paste.

Due first on top. It is derived from the facts of the runs and from what waits beside them; nothing
of it is kept. What is said about each kind of work is in `flows.reports.work_kinds`; work that no
committed run knows of comes from `flows.operations.undecided_work`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import polars as pl

from flows.book.known_runs import KnownPlan
from flows.reports import work_kinds as kinds
from flows.reports.dropped_corrections import unsent_files
from flows.reports.open_items import MISSING, ReportTerms, WaitingChunk
from flows.reports.run_facts import RunFacts
from flows.reports.unlinked_work import unlinked_work
from flows.reports.work import Work
from flows.results.dropped import files_to_ingest, result_files, stray_files
from flows.results.learned_forms import LearnedForm
from flows.results.masking import mask_key
from flows.runs.adapters import Adapters
from flows.runs.closings import chunk_of, kept_answers, place_of
from flows.runs.run_status import Refusal
from flows.runs.store import is_stored
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.steps import WHY, Step
from schemas.actions import GATE_OF
from schemas.breaks import DECISIONS, EXPLAINED, KINDS, LOST, RESULT_SHORT
from schemas.issuer import Issuer
from schemas.settings import Alerts

MAY_BE_COPIED = timedelta(minutes=1)  # since its last write, a file may be under way


def worklist(
    runs: StoredRuns,
    facts: Sequence[RunFacts],
    committed: Collection[KnownPlan],
    unknown: int,
    lacking: pl.DataFrame,
    issuer: Issuer,
    terms: ReportTerms,
    forms: Iterable[LearnedForm] = (),
) -> list[Work]:
    """Return what is to be done about these runs and beside them.

    `committed` are the plans of all committed runs, `unknown` how many cards have a single link
    whose outcome is unknown, `lacking` the cards without a link (`unlinked`), `forms` those of
    links that are to be confirmed.
    """
    name = runs.issuer
    work: list[Work] = []
    answered = kept_answers(runs.adapters, name)
    for run in facts:
        work += _chunks(issuer, run, terms, answered)
        work += _breaks(name, run)
        work += _behind(name, run, terms)
    work += unlinked_work(name, committed, lacking, terms.now)
    work += _unknown(name, unknown, terms)
    work += _results(runs.adapters, name, terms.now)
    work += unsent_corrections(runs.adapters, name, committed)
    work += _refused_extracts(runs, committed, issuer.alerts)
    work += _link_forms(name, forms, terms)
    return work


def _chunks(
    issuer: Issuer, run: RunFacts, terms: ReportTerms, answered: Collection[tuple[str, int]]
) -> Iterator[Work]:
    """Yield the chunks to upload, on hold, and awaited; what came and does not fit is a break.

    `answered`: those of which the partner answered that they are lost.
    """
    broken = {chunk_of(run_break["place"]) for run_break in run.breaks}
    for chunk in run.waiting:
        explained = list(_explained(issuer, run, chunk, terms))
        yield from explained
        others = chunk.awaiting - sum(work.rows for work in explained)
        if others > 0 and chunk.chunk not in broken and not chunk.is_cancelled:
            work = _chunk(issuer, chunk._replace(awaiting=others), terms, answered)
            is_incomplete = work.kind == kinds.INCOMPLETE
            fields = _closed_fields(run, RESULT_SHORT, chunk) if is_incomplete else ()
            yield work._replace(fields=fields)


def _explained(
    issuer: Issuer, run: RunFacts, chunk: WaitingChunk, terms: ReportTerms
) -> Iterator[Work]:
    """Yield the breaks of a chunk that were closed as explained although their rows wait.

    Their answer came and does not count: none is due. Of a result that is short, one may be.
    """
    for closed in run.closed:
        if chunk_of(closed["place"]) == chunk.chunk and _leaves_rows_answered(closed):
            rows = min(closed["rows"], chunk.awaiting)
            work = _chunk(issuer, chunk, terms)
            yield work._replace(
                due=chunk.since,
                kind=kinds.INCOMPLETE,
                rows=rows,
                fields=_closed_fields(run, closed["name"], chunk),
                is_late=work.is_late and rows == chunk.awaiting,
                note="",
            )


def _leaves_rows_answered(closed: Mapping[str, Any]) -> bool:
    """Return whether rows of a closed break wait although an answer came for each of them."""
    name = closed["name"]
    meaning = DECISIONS[EXPLAINED].meaning
    is_explained = closed["decision"] == meaning
    return is_explained and name != RESULT_SHORT and LOST in KINDS[name].decisions


def _closed_fields(run: RunFacts, name: str, chunk: WaitingChunk) -> tuple[tuple[str, Any], ...]:
    """Return what names the closed breaks of a kind in a chunk, and how many rows they have."""
    closed = [known for known in run.closed if known["name"] == name]
    rows = sum(known["rows"] for known in closed if chunk_of(known["place"]) == chunk.chunk)
    return ("name", name), ("place", f"chunk {chunk.chunk}"), ("closed", rows)


def _chunk(
    issuer: Issuer,
    chunk: WaitingChunk,
    terms: ReportTerms,
    answered: Collection[tuple[str, int]] = (),
) -> Work:
    """Return what is to be done about a chunk that waits."""
    is_due = chunk.since + timedelta(hours=terms.within)
    given_up_from = chunk.since + timedelta(days=issuer.limits.lost_after_days)
    is_overdue = terms.now > is_due
    is_on_hold = chunk.state == "held"
    is_unsent = is_on_hold or (chunk.state == "waiting" and chunk.missing == MISSING)
    is_answered = (chunk.run, chunk.chunk) in answered
    is_fitting = set(chunk.sealed_to) <= set(issuer.portal.fingerprints)
    table = [
        (is_unsent and not is_fitting, kinds.OTHER_KEY),
        (is_on_hold, kinds.ON_HOLD),
        (is_unsent, kinds.TO_UPLOAD),
        (not is_overdue, kinds.AWAITED),
        (chunk.missing == MISSING and is_answered, kinds.ANSWER_KEPT),
        (chunk.missing == MISSING, kinds.OVERDUE),
        (True, kinds.INCOMPLETE),
    ]
    kind = next(kind for holds, kind in table if holds)
    is_late = terms.now >= given_up_from
    notes = {kinds.AWAITED: f"The first is expected by {is_due:%Y-%m-%d %H:%M} UTC."}
    notes[kinds.ANSWER_KEPT] = f"The first counts from {given_up_from:%Y-%m-%d} on."
    if not is_late:
        notes[kinds.OVERDUE] = f"The first can be given up from {given_up_from:%Y-%m-%d} on."
    return Work(
        due=chunk.since if kind in (kinds.TO_UPLOAD, kinds.OTHER_KEY) else is_due,
        kind=kind,
        issuer=issuer.issuer,
        run=chunk.run,
        chunk=chunk.chunk,
        rows=chunk.awaiting,
        since=chunk.since,
        is_late=is_late,
        note=notes.get(kind, ""),
    )


def _breaks(issuer: str, run: RunFacts) -> Iterator[Work]:
    """Yield the open breaks of a run."""
    awaiting = {chunk.chunk: chunk.awaiting for chunk in run.waiting}
    for run_break in run.breaks:
        since = datetime.fromisoformat(run_break["since"])
        place = place_of(run_break["place"])
        yield Work(
            due=since,
            kind=f"break {run_break['name']}",
            issuer=issuer,
            run=run.run,
            chunk=chunk_of(place) or None,
            rows=run_break["rows"],
            since=since,
            fields=() if chunk_of(place) else (("place", place), ("name", place)),
            is_late=awaiting.get(chunk_of(place)) == run_break["rows"],
        )


def _behind(issuer: str, run: RunFacts, terms: ReportTerms) -> Iterator[Work]:
    """Yield a run whose report was made without something recorded since."""
    if run.is_behind:
        now = terms.now
        yield Work(due=now, kind=kinds.BEHIND, issuer=issuer, run=run.run, since=now)


def _unknown(issuer: str, unknown: int, terms: ReportTerms) -> Iterator[Work]:
    """Yield the single links whose outcome is unknown."""
    if unknown:
        now = terms.now
        yield Work(due=now, kind=kinds.UNKNOWN_SINGLES, issuer=issuer, since=now, rows=unknown)


def _results(adapters: Adapters, issuer: str, now: datetime) -> Iterator[Work]:
    """Yield the result files that no ingest has read yet, and those with breaks that belong to no
    run, while they are there.
    """
    files = result_files(adapters, issuer)
    entries = files_to_ingest(files, now)
    is_new = bool(entries) and now - entries[-1].modified < MAY_BE_COPIED
    note = "The newest has just come: wait until it is copied." if is_new else ""
    for entry in entries:
        key = mask_key(entry.key)
        yield _about_file(issuer, kinds.TO_INGEST, key, entry.modified, note=note)
    for entry, trouble in stray_files(files).items():
        yield _about_file(issuer, kinds.STRAY_RESULTS, entry.key, entry.modified, note=trouble)


def unsent_corrections(
    adapters: Adapters, issuer: str, committed: Iterable[KnownPlan]
) -> Iterator[Work]:
    """Yield the filled-in templates, and corrected extracts, that no committed run has sent."""
    for entry in unsent_files(adapters, issuer, committed):
        yield _about_file(issuer, kinds.CORRECTIONS, entry.key, entry.modified)


def _about_file(
    issuer: str, kind: str, key: str, since: datetime, run: str = "", note: str = ""
) -> Work:
    """Return work about a dropped file, by its name below its folder."""
    name = key.split("/", 2)[2]
    named = (("name", name),)
    return Work(due=since, kind=kind, issuer=issuer, since=since, run=run, fields=named, note=note)


def _refused_extracts(
    runs: StoredRuns, committed: Collection[KnownPlan], alerts: Alerts
) -> Iterator[Work]:
    """Yield the extracts that were refused, until somebody decides about them."""
    committed_runs = {plan.run for plan in committed}
    extracts = {plan.key for plan in committed if plan.is_whole}
    for run, refused in runs.refused(committed_runs, extracts).items():
        stored = StoredRun.by_id(runs.adapters, run)
        key = stored.planned().source.key
        why = _why_refused(stored.refusal)
        kind = _kind_refused(stored.refusal)
        work = _about_file(runs.issuer, kind, key, refused, run, why)
        gate = GATE_OF.get(stored.refusal.error) if stored.refusal else None
        if not is_stored(runs.store, key):
            abandon = Step("mend abandon", run, reason=WHY, dry_run=True)
            work = work._replace(step=abandon, note=f"Its file was taken away: abandon it. {why}")
        if gate:
            work = work._replace(fields=(*work.fields, ("gate", gate)))
        if _is_usual(stored.refusal, alerts):
            work = work._replace(alert=False)
        yield work


def _is_usual(refusal: Refusal | None, alerts: Alerts) -> bool:
    """Return whether an extract was refused because it is empty, as it may be."""
    is_empty = refusal is not None and refusal.error == "EmptyExtractError"
    return is_empty and alerts.empty_extract == "allow"


def _kind_refused(refusal: Refusal | None) -> str:
    """Return the kind of work about a refused extract, by who can mend it."""
    if refusal is None or refusal.of_content:
        return kinds.REFUSED_EXTRACTS
    return kinds.STOPPED_EXTRACTS


def _why_refused(refusal: Refusal | None) -> str:
    sentence = f"Why: {refusal.sentence}" if refusal else ""
    return f"{sentence}. {refusal.then}" if refusal and refusal.then else sentence


def _link_forms(issuer: str, forms: Iterable[LearnedForm], terms: ReportTerms) -> Iterator[Work]:
    """Yield the forms of links that are to be confirmed."""
    for learned in forms:
        yield Work(
            due=terms.now,
            kind=kinds.LINK_FORMS,
            issuer=issuer,
            since=terms.now,
            rows=learned.links,
            fields=(("name", str(learned.form)),),
        )
