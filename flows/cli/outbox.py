"""`cardlink outbox ...`: the chunks that wait for a person, as a to-do list."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from flows.cli.answer import Answer, table
from flows.core.report.ages import duration
from flows.core.run.outbox import Item, Move
from flows.steps.edges import Edges
from flows.steps.operate.outbox import SUMS, fetch, move, outbox, outboxes, run_of
from flows.wiring import edges, load_issuer, now

DONE: dict[Move, str] = {
    "uploaded": "marked as uploaded; the clock of the expected answer runs from now",
    "held": "held back",
    "released": "waiting again",
    "cancelled": "cancelled; they will not be sent",
}


def list_outbox(folder: Path, issuer: str, run: str | None) -> Answer:
    """List the chunks that are not answered yet, or every chunk of a run."""
    outside = _edges(folder, issuer)
    found = outbox(outside, run) if run else list(outboxes(outside, issuer))
    facts = {"issuer": issuer, "chunks": [_facts(item) for item in found]}
    if not found:
        return Answer(facts, [f"{issuer}: nothing waits for an upload or an answer"])
    moment = now()
    lines = [
        [item.chunk.name, item.state, duration(moment - item.since), item.chunk.rows, item.chunk.bytes, item.reason]
        for item in found
    ]
    waiting = [item for item in found if item.state == "waiting"]
    then = f"cardlink outbox fetch {waiting[0].run} --to FOLDER" if waiting else f"cardlink ingest {issuer}"
    return Answer(facts, table(("chunk", "state", "since", "rows", "bytes", "reason"), lines), then)


def fetch_chunks(folder: Path, run: str, to: Path, numbers: Collection[int]) -> Answer:
    """Copy the waiting chunks of a run to a folder, with their digests."""
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    done = fetch(_edges(folder, run_of(run).issuer), run, lambda name, data: _write(to / name, data), numbers)
    facts = {"run": run, "folder": str(to), "chunks": [_facts(item) for item in done.items]}
    if not done.items:
        return Answer(facts, [f"{run}: no chunk waits for its upload"])
    lines = [f"{len(done.items):,} chunks in {to}", f"check them there: sha256sum --check {SUMS}"]
    return Answer(facts, lines, f"upload each file to the portal, then: cardlink outbox uploaded {run}")


def move_chunks(
    folder: Path, run: str, what: Move, numbers: Collection[int], reason: str = "", *, dry_run: bool = False
) -> Answer:
    """Note what was done to chunks of a run, or say what would be noted."""
    issuer = run_of(run).issuer
    done = move(_edges(folder, issuer), run, what, numbers, reason, dry_run=dry_run)
    facts = {"run": run, "move": what, "dry_run": dry_run, "chunks": [_facts(item) for item in done]}
    would = "dry run, nothing was noted: " if dry_run else ""
    return Answer(
        facts,
        [f"{would}{run}: {numbered([item.chunk.number for item in done])} {DONE[what]}"],
        f"cardlink outbox list {issuer}",
    )


def _edges(folder: Path, issuer: str) -> Edges:
    return edges(load_issuer(folder, issuer).root, folder)


def numbered(numbers: Sequence[int]) -> str:
    """Name chunks by number, at most ten of them."""
    named = ", ".join(map(str, numbers[:10]))
    more = f" and {len(numbers) - 10:,} more" if len(numbers) > 10 else ""
    return f"chunks {named}{more}" if numbers else "no chunks"


def _facts(item: Item) -> dict[str, Any]:
    times = {"since": item.since.isoformat(), "clock": item.clock.isoformat()}
    return {"run": item.run, **item.chunk.model_dump(), "state": item.state, **times, "reason": item.reason}


def _write(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, for its owner alone."""
    part = path.with_name(f".{path.name}.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(data)
    part.replace(path)
