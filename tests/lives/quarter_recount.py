"""The oracle of the quarter: the partner's books and the town's own history.

Nothing here reads what the pipeline counted. Of the store it reads chunk names and what a run is of
(manifests), and compares with what reports say.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from datetime import date, timedelta
from itertools import chain
from typing import NamedTuple

from flows.operations.purge import PurgePlan
from flows.reports.across import reconcile_runs
from flows.runs.keys import extracts, keys_of, results
from schemas.manifest import Manifest
from tests.lives import quarter as life
from tests.lives.findings import Findings, resendings
from tests.lives.partner import Received, run_of
from tests.lives.place import Place, Progress
from tests.lives.quarter import WITHIN, Quarter, report_rows
from tests.night import BANK

DAY = re.compile(r"-(\d{8})\.csv$")
FORGIVEN = timedelta(days=62)  # after a link's life a card that was refused is tried again
# how long after its last answer a chunk and a ledger stay
SETTLED = {"chunks": timedelta(days=7), "ledger": timedelta(days=63)}
FATES = ("read", "submitted", "suppressed")


def lived(place: Place, on_progress: Progress = lambda _: None) -> AbstractContextManager[Quarter]:
    """Live through a quarter, and hold what is about to be purged against the books while it is
    there.
    """
    return life.lived(place, _witness, on_progress)


def _witness(quarter: Quarter, due: PurgePlan) -> None:
    quarter.too_soon += _purged_too_soon(quarter, due)
    ledgers = {lot.record.run for lot in due.lots if lot.record.part == "ledger"}
    for run in quarter.runs():
        if run.run in ledgers - quarter.gone:
            quarter.gone.add(run.run)
            quarter.differing += _differing(quarter, run)


def recount(quarter: Quarter) -> Findings:
    """Recount the quarter."""
    findings = Findings(too_soon=[*quarter.too_soon], differing=[*quarter.differing])
    runs = quarter.runs()
    for run in runs:
        if run.run not in quarter.gone:
            findings.differing += _differing(quarter, run)
    _judge_repeats(quarter, findings)
    findings.forgotten += _forgotten(quarter)
    _judge_counts(quarter, findings)
    stored = {entry.key for entry in quarter.place.store.keys(f"{BANK}/")}
    foreign = {key for key in stored if key.startswith((extracts(BANK), results(BANK)))}
    findings.foreign += sorted(foreign ^ quarter.dropped)
    _count(quarter, runs, findings)
    return findings


def _count(quarter: Quarter, runs: list[Manifest], findings: Findings) -> None:
    """Count what happened."""
    lots = list(chain.from_iterable(due.lots for _, due in quarter.purged))
    booked = quarter.partner.delivered.values()
    findings.count("purged", Counter(lot.record.part for lot in lots if not lot.resumed))
    findings.count("runs", Counter(_kind(run) for run in runs))
    findings.count("delivered", Counter("linked" if row.url else "error" for row in booked))
    findings.count("steps", quarter.did)
    for fate in FATES:
        findings.figures[f"rows: {fate}"] = sum(getattr(run.counts, fate) for run in runs)
    findings.figures["rows: received by the portal"] = len(quarter.partner.received)
    findings.figures["bytes purged"] = sum(lot.record.bytes for lot in lots)
    findings.figures["runs whose report is purged"] = len(quarter.gone)


def _kind(run: Manifest) -> str:
    return run.selection.kind if run.selection else "night"


class StoredOutcomes(NamedTuple):
    """What is said of one sent row: by the report, or by the books."""

    cuid: str
    last_4: str
    state: str
    url: str | None
    expires: date | None


def _differing(quarter: Quarter, run: Manifest) -> list[str]:
    """Name the rows of a run of which its report says something else than the partner's books."""
    names = {chunk.number: chunk.name for chunk in run.chunks}
    columns = ["chunk", "position", "cuid", "last_4", "state", "url", "expires_on"]
    rows = report_rows(quarter, run.run).select(columns).rows()
    reported = {
        (names[chunk], position): StoredOutcomes(*outcome) for chunk, position, *outcome in rows
    }
    books = {
        received.position: _outcome(quarter, received)
        for received in quarter.partner.received
        if received.chunk in names.values()
    }
    if not reported and all(outcome.state == "awaiting" for outcome in books.values()):
        return []  # a run without an answer has no report yet
    return [
        f"{run.run}: {chunk} row {row}"
        for chunk, row in sorted(reported.keys() | books.keys())
        if reported.get((chunk, row)) != books.get((chunk, row))
    ]


def _outcome(quarter: Quarter, received: Received) -> StoredOutcomes:
    """Return what the books say of a row."""
    row = received.row
    if received.position not in quarter.partner.delivered:
        return StoredOutcomes(row.cuid, row.last_4, "awaiting", None, None)
    state = "linked" if row.url else "error"
    return StoredOutcomes(row.cuid, row.last_4, state, row.url, row.expires)


def _judge_repeats(quarter: Quarter, findings: Findings) -> None:
    """Name the cards that were sent again for no reason, and count the reasons of the others."""
    runs = {run.run: run for run in quarter.runs()}
    sendings = (
        ((received.row.cuid, received.row.last_4), received)
        for received in quarter.partner.received
    )
    for before, after in resendings(sendings):
        cause = _cause(quarter, runs, before, after)
        findings.figures[f"sent again: {cause or 'for no reason'}"] += 1
        if not cause:
            first, second = (f"{sent.chunk} ({sent.day})" for sent in (before, after))
            findings.twice.append(f"{after.row.cuid}: {first} and {second}")


def _cause(quarter: Quarter, runs: dict[str, Manifest], before: Received, after: Received) -> str:
    """Say why a card was sent again: an error sent again, a word of the operator, an ending link,
    or a change.
    """
    run = runs[after.run]
    run_before = runs[before.run]
    expires = before.row.expires
    if run.selection is not None and run.selection.override:
        return "override"
    if expires is not None and expires <= run.as_of + timedelta(days=WITHIN):
        return "ending link"
    forgiven = _kind(run) == "resubmit" or run_before.as_of + FORGIVEN < run.as_of
    if before.row.url is None and forgiven:
        return "error sent again"
    days = quarter.town.changes[after.row.cuid]
    changed = any(_extract_day(run_before) < day <= _extract_day(run) for day in days)
    return "change" if changed else ""


def _extract_day(run: Manifest) -> date:
    """Return the day of the extract that a run's rows were read from."""
    day = DAY.search(run.source.key)
    assert day is not None
    return date.fromisoformat(day[1])


def _judge_counts(quarter: Quarter, findings: Findings) -> None:
    """Hold the rows sent and the reconciliation's cardholders against the books."""
    submitted = sum(run.counts.submitted for run in quarter.runs())
    received = len(quarter.partner.received)
    if submitted != received:
        findings.unbalanced.append(f"{submitted} rows submitted, {received} received")
    facts = reconcile_runs(quarter.bench.context)
    counted = _cardholders(quarter, date.fromisoformat(facts["cardholders_since"]))
    for state in ("linked", "awaiting"):
        reported = facts["cardholders"][state]
        if reported != counted[state]:
            numbers = f"{counted[state]} by the books, {reported} reported"
            findings.miscounted.append(f"cardholders {state}: {numbers}")


def _cardholders(quarter: Quarter, since: date) -> Counter[str]:
    """Count the cards of the runs since a day, each once, by the last word on it."""
    runs = {run.run for run in quarter.runs() if run.as_of >= since} - quarter.gone
    last: dict[tuple[str, str], str] = {}
    for sent in quarter.partner.received:
        outcome = _outcome(quarter, sent)
        card = (outcome.cuid, outcome.last_4)
        if sent.run in runs and (outcome.state != "error" or card not in last):
            last[card] = outcome.state
    return Counter(last.values())


def _forgotten(quarter: Quarter) -> list[str]:
    """Name who stands in the last extract with a sound row and has neither a living link, an error,
    nor one coming.
    """
    # cards in the order of their first sending, so that the latest card of a person counts
    cards: dict[tuple[str, str], Received] = {}
    for received in quarter.partner.received:
        cards[received.row.cuid, received.row.last_4] = received
    last = {cuid: received for (cuid, _), received in cards.items()}
    bad = {quarter.town.everybody["cardholder.cuid"][number] for number in quarter.town.bad_until}
    sound = sorted(quarter.town.cuids() - bad)
    return [cuid for cuid in sound if not _served(quarter, last.get(cuid))]


def _served(quarter: Quarter, last: Received | None) -> bool:
    """Return whether a last sending awaits its answer, was refused, or has a living link."""
    if last is None:
        return False
    waits = last.position not in quarter.partner.delivered
    return waits or last.row.url is None or (last.row.expires or quarter.day) > quarter.day


def _purged_too_soon(quarter: Quarter, due: PurgePlan) -> Iterator[str]:
    """Name what was purged of a run before its every row was answered, and the time after that was
    over.
    """
    partner = quarter.partner
    chunks = defaultdict[str, list[str]](list)
    sent = Counter(received.chunk for received in partner.received)
    for chunk in sent:
        chunks[run_of(chunk)].append(chunk)
    answered = Counter(chunk for chunk, _ in partner.delivered)
    waiting = {chunk for chunk in sent if answered[chunk] < sent[chunk]} - quarter.given_up
    for lot in due.lots:
        run = lot.record.run
        days = [partner.answered[chunk] for chunk in chunks[run] if chunk in partner.answered]
        due_on = max(days, default=keys_of(run).run.day) + SETTLED[lot.record.part]
        waits = len(waiting.intersection(chunks[run]))
        if waits or due_on > quarter.day:
            what = f"{lot.record.part} of {run}"
            yield f"{what}: {waits} chunks without an answer, due on {due_on}"
