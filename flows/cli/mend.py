"""`cardlink mend ...`: put right what went wrong, each verb with a dry run, a reason and a record."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from flows.cli.answer import Answer
from flows.cli.commands import report_answer
from flows.cli.outbox import numbered
from flows.core.redaction import redact
from flows.steps.edges import IssuerEdges
from flows.steps.mend.abandon import abandon
from flows.steps.mend.attribute import attribute_row, withdraw
from flows.steps.mend.close_break import Mended, close_break, reopen_break
from flows.steps.mend.decide import Decided
from flows.steps.mend.ingest_again import ingest_again
from flows.steps.mend.reseal import reseal
from flows.steps.mend.take_over import take_over
from flows.steps.operate.outbox import run_of
from flows.wiring import sweeper, wire

DRY = "dry run, nothing was done: "


def abandon_run(folder: Path, run: str, reason: str, *, dry_run: bool) -> Answer:
    """End a run before its commit."""
    issuer = run_of(run).issuer
    done = abandon(wire(folder, issuer).edges, run, reason, dry_run=dry_run)
    line = f"{run}: abandoned; it will never be committed, and nothing of it is sent"
    then = f"a new run of its extract: cardlink submit {issuer} --extract NAME --new-run REASON"
    return _answer(done.model_dump(mode="json"), [line], then, dry_run=dry_run)


def take_over_claim(folder: Path, run: str, reason: str, *, dry_run: bool) -> Answer:
    """End the claim of a dead process."""
    issuer = run_of(run).issuer
    had = take_over(wire(folder, issuer).edges, run, reason, dry_run=dry_run)
    since, until = (moment.isoformat(timespec="seconds") for moment in had[1:])
    lines = [f"{run}: claimed by {had.holder} since {since}, until {until}; that claim is ended"]
    facts = {"run": run, "holder": had.holder, "since": since, "until": until}
    return _answer(facts, lines, f"cardlink submit {issuer}", dry_run=dry_run)


def take_up_again(folder: Path, issuer: str, result: str, reason: str, *, dry_run: bool) -> Answer:
    """Take a result file up again."""
    edges = wire(folder, issuer)
    return _decided(edges, ingest_again(edges, result, reason, dry_run=dry_run), f"{result}: taken up again")


def attribute_by_hand(
    folder: Path, issuer: str, result: str, row: int, to: str, reason: str, *, last_4_confirmed: bool, dry_run: bool
) -> Answer:
    """Give a row of a result file to the row `to` (RUN:ROW) that was sent."""
    edges = wire(folder, issuer)
    run, _, number = to.rpartition(":")
    place = (str(run_of(run)), int(number) if number.isdecimal() else 0)
    done = attribute_row(edges, result, row, place, reason, last_4_confirmed=last_4_confirmed, dry_run=dry_run)
    told = f", but still a break: {done.row['trouble']}" if done.row["trouble"] else f": {done.row['state']}"
    return _decided(edges, done, f"{result}: row {row} belongs to row {place[1]} of {run}{told}")


def withdraw_attribution(folder: Path, issuer: str, result: str, row: int, reason: str, *, dry_run: bool) -> Answer:
    """Take back what was said by hand of a row of a result file."""
    edges = wire(folder, issuer)
    done = withdraw(edges, result, row, reason, dry_run=dry_run)
    return _decided(edges, done, f"{result}: what was said by hand of row {row} is withdrawn")


def close_breaks(folder: Path, run: str, name: str, place: str, reason: str, *, dry_run: bool) -> Answer:
    """Close breaks of a run."""
    edges = wire(folder, run_of(run).issuer)
    return _mended(edges, run, close_break(edges, run, name, place, reason, dry_run=dry_run), "closed", reason)


def reopen_breaks(folder: Path, run: str, name: str, place: str, reason: str, *, dry_run: bool) -> Answer:
    """Take back the closing of breaks of a run."""
    edges = wire(folder, run_of(run).issuer)
    return _mended(edges, run, reopen_break(edges, run, name, place, reason, dry_run=dry_run), "open again", reason)


def reseal_chunks(folder: Path, run: str, numbers: Collection[int], reason: str, *, dry_run: bool) -> Answer:
    """Seal waiting and held chunks of a run anew."""
    issuer = run_of(run).issuer
    edges = wire(folder, issuer)
    done = reseal(edges, sweeper(edges.issuer.root, folder), run, numbers, reason, dry_run=dry_run)
    facts: dict[str, Any] = {"run": run, **done._asdict()}
    keys = ", ".join(done.recipients)
    lines = [f"{run}: {numbered(done.chunks)} sealed anew to {keys}, every row as the ledger has it"]
    if not done.chunks:
        lines = [f"{run}: every chunk that waits or is held is sealed to {keys} already"]
    if done.retired or done.left:
        left = f"; {done.left:,} could not be deleted here: they count for nothing" if done.left else ""
        lines += [f"{done.retired:,} old objects are deleted{left}"]
    return _answer(facts, lines, f"cardlink outbox list {issuer} --run {run}", dry_run=dry_run)


def _mended(edges: IssuerEdges, run: str, done: Mended, state: str, reason: str) -> Answer:
    """Say which breaks were closed or opened, and how the run stands now."""
    lines = [f"{one.name} ({one.rows:,} rows) {one.place}: {state}" for one in done.breaks]
    named = [{"name": one.name, "rows": one.rows, "place": one.place} for one in done.breaks]
    facts: dict[str, Any] = {"run": run, "breaks": named, "reason": redact(reason)}
    if done.report is None:
        return _answer(facts, lines, f"cardlink report {run}", dry_run=True)
    answer = report_answer(edges, done.report.summary)
    told = [*lines, "", *answer.lines]
    return Answer({**facts, "dry_run": False, "report": answer.facts}, told, answer.then, answer.exit_code)


def _decided(edges: IssuerEdges, done: Decided, line: str) -> Answer:
    """Say what was decided about a result file, and how the runs it concerns stand now."""
    facts: dict[str, Any] = {**done.record.model_dump(mode="json"), "outcome": done.row}
    then = f"cardlink status {edges.issuer.issuer}"
    if done.ingested is None:
        return _answer(facts, [line], then, dry_run=True)
    answers = [report_answer(edges, report.summary) for report in done.ingested.reports]
    lines = [line, *(f"break: {one}" for one in done.ingested.breaks)]
    lines += [text for answer in answers for text in ("", *answer.lines)]
    facts = {**facts, "dry_run": False, "reports": [answer.facts for answer in answers]}
    code = max((answer.exit_code for answer in answers), default=0)
    return Answer(facts, lines, then, max(code, 4 if done.ingested.breaks else 0))


def _answer(facts: dict[str, Any], lines: list[str], then: str, *, dry_run: bool) -> Answer:
    told = [f"{DRY}{lines[0]}", *lines[1:]] if dry_run else lines
    return Answer({**facts, "dry_run": dry_run}, told, then)
