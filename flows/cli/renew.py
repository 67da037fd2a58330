"""`cardlink renew`: new links for those that end soon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.cli.answer import Answer, table
from flows.cli.progress import ProgressLine
from flows.steps.again.renew import Due, Request, command, renew, renewals
from flows.steps.runs import keys_of
from flows.wiring import wire
from schemas.reasons import reason


def renew_links(folder: Path, name: str, within: int, extract: str, *, dry_run: bool) -> Answer:
    """Make the run that renews an issuer's links, or say what it would be."""
    edges, request = wire(folder, name), Request(within, extract)
    if dry_run:
        due = renewals(edges, request)
        lines = [f"{name}: {due.rows.height:,} links that end by {due.until} would be made anew, from {due.of.run}"]
        then = command(name, request) if due.rows.height else ""
        return Answer(_facts(name, due), [*lines, *_left_out(due.left_out)], then)
    with ProgressLine(name) as progress:
        done = renew(edges, request, progress)
    if done.submitted is None:
        return Answer(_facts(name, done.due), [f"{name}: nothing to renew", *_left_out(done.due.left_out)])
    manifest = done.submitted.manifest
    lines = [
        f"{manifest.run}: {manifest.counts.submitted:,} links that end by {done.due.until} are made anew",
        f"{len(manifest.chunks):,} chunks to upload: {edges.issuer.root}/{keys_of(manifest.run).chunks}",
    ]
    facts = {**_facts(name, done.due), "run": manifest.run, "counts": manifest.counts.model_dump()}
    return Answer(facts, [*lines, *_left_out(done.due.left_out)], f"cardlink outbox list {name}")


def _facts(name: str, due: Due) -> dict[str, Any]:
    until, rows = due.until.isoformat(), due.rows.height
    return {"issuer": name, "of": due.of.run, "until": until, "rows": rows, "left_out": due.left_out}


def _left_out(why: Mapping[str, int]) -> list[str]:
    told = [(code, cards, reason(code).action) for code, cards in why.items()]
    return table(("left out", "cards", "what to do"), told) if told else []
