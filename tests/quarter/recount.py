"""The recount, from the partner's books and the town's own history: nothing here reads what the
pipeline counted.

Of the store it reads chunk names and what a run is of (manifests), and compares with what reports
say.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import date, timedelta
from itertools import pairwise
from typing import NamedTuple

from flows.operations.purge import PurgePlan
from flows.runs.keys import keys_of
from flows.simulator.portal import Booked
from schemas.manifest import Manifest
from tests.quarter.life import WITHIN, Quarter, report_rows
from tests.quarter.partner import Received

DAY = re.compile(r"-(\d{8})\.csv$")
FORGIVEN = timedelta(days=62)  # after a link's life a card that was refused is tried again
# how long after its last answer a chunk and a ledger stay
SETTLED = timedelta(days=7), timedelta(days=63)


@dataclass
class Witness:
    """Holds what is about to be purged against the books while it is there."""

    gone: set[str] = field(default_factory=set)  # runs whose report went with their ledger
    differed: dict[str, list[str]] = field(default_factory=dict)
    too_soon: list[str] = field(default_factory=list)

    def __call__(self, quarter: Quarter, due: PurgePlan) -> None:
        """Look at one purge."""
        self.too_soon += purged_too_soon(quarter, quarter.day, due)
        runs = {run.run: run for run in quarter.runs()}
        for run in {
            lot.record.run for lot in due.lots if lot.record.part == "ledger"
        } & runs.keys() - self.gone:
            self.gone.add(run)
            if wrong := differing(quarter, runs[run]):
                self.differed[run] = wrong

    def differing(self, quarter: Quarter) -> dict[str, list[str]]:
        """Return what differs in all reports, those that are gone included."""
        kept = [run for run in quarter.runs() if run.run not in self.gone]
        return self.differed | {
            run.run: wrong for run in kept if (wrong := differing(quarter, run))
        }


class StoredOutcomes(NamedTuple):
    """What is said of one sent row: by the report, or by the books."""

    cuid: str
    last_4: str
    state: str
    url: str | None
    expires: date | None


def differing(quarter: Quarter, run: Manifest) -> list[str]:
    """Name the rows of a run of which its report says something else than the partner's books."""
    names = {chunk.number: chunk.name for chunk in run.chunks}
    columns = ["chunk", "position", "cuid", "last_4", "state", "url", "expires_on"]
    rows = report_rows(quarter, run.run).select(columns).rows()
    found = {(names[chunk], position): StoredOutcomes(*told) for chunk, position, *told in rows}
    books = {
        (one.chunk, one.row.row): _as_told(
            one.row, quarter.partner.delivered.get((one.chunk, one.row.row))
        )
        for one in quarter.partner.received
        if one.chunk in names.values()
    }
    if not found and all(told.state == "awaiting" for told in books.values()):
        return []  # a run without an answer has no report yet
    every = sorted(found.keys() | books.keys())
    return [
        f"{chunk} row {row}"
        for chunk, row in every
        if found.get((chunk, row)) != books.get((chunk, row))
    ]


def _as_told(row: Booked, delivered: Booked | None) -> StoredOutcomes:
    if delivered is None:
        return StoredOutcomes(row.cuid, row.last_4, "awaiting", None, None)
    return StoredOutcomes(
        row.cuid, row.last_4, "linked" if row.url else "error", row.url, row.expires
    )


def sent_without_cause(quarter: Quarter) -> tuple[list[str], Counter[str]]:
    """Name the cards that were sent again for no reason, and count the reasons of the others."""
    runs = {run.run: run for run in quarter.runs()}
    causes: Counter[str] = Counter()
    wrong = []
    for (cuid, _), attempts in _by_card(quarter).items():
        for before, after in pairwise(attempts):
            cause = _cause(quarter, runs, before, after)
            causes[cause or "none"] += 1
            wrong += (
                []
                if cause
                else [f"{cuid}: {before.chunk} ({before.day}) and {after.chunk} ({after.day})"]
            )
    return wrong, causes


def _by_card(quarter: Quarter) -> dict[tuple[str, str], list[Received]]:
    cards: dict[tuple[str, str], list[Received]] = defaultdict(list)
    for one in quarter.partner.received:
        cards[one.row.cuid, one.row.last_4].append(one)
    return cards


def _cause(quarter: Quarter, runs: dict[str, Manifest], before: Received, after: Received) -> str:
    """Say why a card was sent again: an error sent again, a word of the operator, an ending link,
    or a change.
    """
    run = runs[_run(after.chunk)]
    if run.selection is not None and run.selection.override:
        return "override"
    if before.row.expires is not None and before.row.expires <= run.as_of + timedelta(days=WITHIN):
        return "ending link"
    if before.row.url is None and (
        _resubmits(run) or runs[_run(before.chunk)].as_of + FORGIVEN < run.as_of
    ):
        return "error sent again"
    told, now = _spoken(runs, runs[_run(before.chunk)]), _spoken(runs, run)
    changed = any(told < day <= now for day in quarter.town.changes[after.row.cuid])
    return "change" if changed else ""


def _resubmits(run: Manifest) -> bool:
    return run.selection is not None and run.selection.kind == "resubmit"


def _spoken(runs: dict[str, Manifest], run: Manifest) -> date:
    """Return the day of the extract that a run's rows were read from."""
    found = DAY.search(run.source.key)
    assert found is not None
    return date(int(found[1][:4]), int(found[1][4:6]), int(found[1][6:]))


def _run(chunk: str) -> str:
    return chunk.partition(".")[0][:-6]


def cardholders(quarter: Quarter, since: date, gone: Collection[str]) -> dict[str, int]:
    """Count the cards of the runs since a day, each once, that have a link or wait for one by the
    last word on it.
    """
    runs = {run.run for run in quarter.runs() if run.as_of >= since and run.run not in gone}
    last: dict[tuple[str, str], str] = {}
    for one in quarter.partner.received:
        if _run(one.chunk) in runs:
            told = _as_told(one.row, quarter.partner.delivered.get((one.chunk, one.row.row)))
            if told.state != "error" or told[:2] not in last:
                last[told.cuid, told.last_4] = told.state
    counted = Counter(last.values())
    return {state: counted[state] for state in ("linked", "awaiting")}


def forgotten(quarter: Quarter) -> list[str]:
    """Name who stands in the last extract with a sound row and has neither a living link, an error,
    nor one coming.
    """
    last = {cuid: attempts[-1] for (cuid, _), attempts in _by_card(quarter).items()}
    bad = {quarter.town.everybody["cardholder.cuid"][number] for number in quarter.town.bad_until}
    found = []
    for cuid in sorted(quarter.town.cuids() - bad):
        one = last.get(cuid)
        waits = one is not None and (one.chunk, one.row.row) not in quarter.partner.delivered
        if one is None or not (
            waits or one.row.url is None or (one.row.expires or quarter.day) > quarter.day
        ):
            found.append(cuid)
    return found


def purged_too_soon(quarter: Quarter, day: date, due: PurgePlan) -> Iterator[str]:
    """Name what was purged of a run before its every row was answered, and the time after that was
    over.
    """
    sent = Counter(one.chunk for one in quarter.partner.received)
    answered = Counter(chunk for chunk, _ in quarter.partner.delivered)
    for lot in due.lots:
        chunks = [chunk for chunk in sent if _run(chunk) == lot.record.run]
        waits = [
            chunk
            for chunk in chunks
            if answered[chunk] < sent[chunk] and chunk not in quarter.given_up
        ]
        last = max(
            (
                quarter.partner.answered[chunk]
                for chunk in chunks
                if chunk in quarter.partner.answered
            ),
            default=None,
        )
        due_on = (last or keys_of(lot.record.run).run.day) + SETTLED[lot.record.part == "ledger"]
        if waits or due_on > day:
            yield f"{lot.record.part} of {lot.record.run}: {len(waits)} chunks without an answer, due on {due_on}"
