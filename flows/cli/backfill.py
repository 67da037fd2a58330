"""`cardlink backfill`: the nights that were missed, as a list; then exactly that list."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from flows.cli.answer import Answer, table
from flows.cli.progress import ProgressLine
from flows.steps.again.backfill import Listed, Span, backfill, missed_rows, send
from flows.wiring import wire

HEAD = ("extract", "business date", "run", "rows", "sent", "rejected", "suppressed", "chunks")


def list_missed(folder: Path, name: str, start: date, end: date) -> Answer:
    """List what a backfill would send."""
    listed = backfill(wire(folder, name), Span(start, end))
    facts = {**listed.model_dump(mode="json"), "digest": listed.digest}
    if not listed.missed:
        return Answer(facts, [f"{name}: every extract from {start} to {end} is submitted"])
    lines = [*_sent(listed), *(f"refused: {one.extract}: {one.refused}" for one in listed.missed if one.refused)]
    if not listed.to_send:
        return Answer(facts, lines)
    then = f"cardlink backfill {name} --from {start} --to {end} --send {listed.digest}"
    return Answer(facts, [*lines, f"list {listed.digest}; nothing was written"], then)


def send_missed(folder: Path, name: str, start: date, end: date, digest: str) -> Answer:
    """Send exactly a list."""
    with ProgressLine(name) as progress:
        done = send(wire(folder, name), Span(start, end), digest, lambda _, told: progress(told))
    facts = {"issuer": name, "list": digest, "runs": [one.manifest.run for one in done]}
    lines = [
        f"{one.manifest.run}: {one.manifest.counts.submitted:,} rows in {len(one.manifest.chunks):,} chunks"
        for one in done
    ]
    return Answer(facts, lines or [f"{name}: nothing of list {digest} is to be sent"], f"cardlink outbox list {name}")


def _sent(listed: Listed) -> list[str]:
    rows = [list(row.values())[: len(HEAD)] for row in missed_rows(listed) if not row["refused"]]
    return table(HEAD, rows) if rows else []
