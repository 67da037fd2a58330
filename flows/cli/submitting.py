"""`cardlink submit`, apart from the other commands: every night waits for its imports."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import Any

from flows.cli.answer import Answer
from flows.cli.progress import ProgressLine
from flows.core.errors import CardlinkError
from flows.steps.edges import IssuerEdges
from flows.steps.night.pending import pending
from flows.steps.night.submit import Request, Submitted, submit
from flows.steps.night.twice import guard_twice
from flows.steps.runs import keys_of
from flows.wiring import wire


def submit_extracts(
    folder: Path, name: str, extract: str | None, day: date | None, opened: Collection[str], new_run: str
) -> Answer:
    """Submit the named extract, or all that are not submitted yet."""
    edges = wire(folder, name)
    names = [extract] if extract else [entry.key for entry in pending(edges)]
    tried = [_try(edges, Request(one, day, opened, new_run)) for one in names]
    done = [one for one in tried if isinstance(one, Submitted)]
    refused = [one for one in tried if isinstance(one, CardlinkError)]
    if refused and len(tried) == 1:
        raise refused[0]
    facts = {"issuer": name, "runs": [_facts(one) for one in done], "refused": [str(one) for one in refused]}
    if not tried:
        return Answer(facts, [f"{name}: every extract is submitted already"], f"cardlink ingest {name}")
    lines = [line for one in done for line in _submitted(edges, one)] + [f"refused: {one}" for one in refused]
    then = f"upload the chunks to the portal, drop the results, then: cardlink ingest {name}"
    return Answer(facts, lines, then, max((one.exit_code for one in refused), default=0))


def _try(edges: IssuerEdges, request: Request) -> Submitted | CardlinkError:
    """Submit one extract; an error of ours is returned, so that one that is refused leaves the others."""
    try:
        guard_twice(edges, request)
        with ProgressLine(request.extract.rpartition("/")[2]) as progress:
            return submit(edges, request, progress)
    except CardlinkError as error:
        return error


def _facts(done: Submitted) -> dict[str, Any]:
    manifest = done.manifest
    return {
        "run": manifest.run,
        "already": done.already,
        "counts": manifest.counts.model_dump(),
        "reasons": manifest.reasons,
        "repairs": manifest.repairs,
        "chunks": len(manifest.chunks),
        "remarks": list(done.remarks),
    }


def _submitted(edges: IssuerEdges, done: Submitted) -> list[str]:
    manifest, counts = done.manifest, done.manifest.counts
    if done.already:
        return [f"{manifest.run}: already committed, nothing to do"]
    fates = ("read", "submitted", "rejected", "duplicate", "suppressed")
    told = ", ".join(f"{getattr(counts, fate):,} {fate}" for fate in fates)
    root, keys = edges.issuer.root, keys_of(manifest.run)
    lines = [
        *done.remarks,
        f"{manifest.run}: {told}",
        f"{len(manifest.chunks):,} chunks to upload: {root}/{keys.chunks}",
    ]
    if counts.rejected or counts.duplicate:
        lines.append(f"rows not sent, each with its reason: {root}/{keys.report('rejects.csv')}")
    return lines
