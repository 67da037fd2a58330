"""The body of `cardlink purge`: what goes, what stays and why, and what else lies there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from flows.cli.answer import Answer, table
from flows.core.names import runs
from flows.steps.edges import IssuerEdges
from flows.steps.operate.purge import Due, look, purge
from flows.wiring import clear_machine, issuers, sweeper, wire
from schemas.purged import PARTS

SHOWN = 20  # unknown objects named on a terminal; --json has them all
LIFECYCLE = "deploy/s3-lifecycle.json"


def purge_issuers(folder: Path, name: str | None, *, dry_run: bool) -> Answer:
    """Purge what is due of one issuer or of all, or only show it."""
    found, lines = [], []
    for issuer in [name] if name else issuers(folder):
        edges = wire(folder, issuer)
        due = (look if dry_run else purge)(edges, sweeper(edges.issuer.root, folder))
        found.append(facts(issuer, due))
        lines += [*_told(edges, due, "would be deleted" if dry_run else "deleted"), ""]
    homes = clear_machine(dry_run=dry_run)
    if homes:
        lines += [f"gpg homes of killed processes on this machine: {homes}", ""]
    told = {"dry_run": dry_run, "issuers": found, "gpg_homes": homes}
    then = f"cardlink purge {name or ''}".rstrip() if dry_run and any(one["lots"] for one in found) else ""
    return Answer(told, lines[:-1] or ["no issuers yet"], then)


def facts(issuer: str, due: Due) -> dict[str, Any]:
    """Return a purge as plain facts: every object that goes by its key, and why the rest stays."""
    return {
        "issuer": issuer,
        "lots": [
            {
                **lot.record.model_dump(mode="json", exclude={"rows"}),
                "keys": [one.key for one in lot.entries],
            }
            for lot in due.lots
        ],
        "kept": [{**kept._asdict(), "until": kept.until and kept.until.isoformat()} for kept in due.kept],
        "unknown": list(due.unknown),
        "temporary": [entry.key for entry in (*due.leftovers, *due.temporary)],
        "versions_stay": due.hides,
    }


def _told(edges: IssuerEdges, due: Due, verb: str) -> Iterator[str]:
    name = edges.issuer.issuer
    objects = sum(len(lot.entries) for lot in due.lots)
    size = sum(entry.size for lot in due.lots for entry in lot.entries)
    yield f"{name}: {objects:,} objects, {size:,} bytes {verb}"
    if due.lots:
        rows = [
            [
                lot.record.run or "single links",
                lot.record.part,
                len(lot.entries),
                sum(one.size for one in lot.entries),
                _why(lot.record.setting, lot.resumed),
            ]
            for lot in due.lots
        ]
        yield from ["", *table(("run", "part", "objects", "bytes", "because"), rows)]
    yield from _kept(due)
    temporary = len(due.leftovers) + len(due.temporary)
    if temporary:
        yield from ["", f"temporary objects of killed processes {verb}: {temporary:,}"]
    for key in due.unknown[:SHOWN]:
        yield f"not ours, left alone: {key}"
    if len(due.unknown) > SHOWN:
        yield f"not ours, left alone: {len(due.unknown) - SHOWN:,} more"
    if due.hides:
        yield "The bucket keeps versions: deleting hides, it does not remove. The rule that removes for good, for the"
        yield f"prefix {runs(name)} below the root, stands in {LIFECYCLE}."


def _kept(due: Due) -> Iterator[str]:
    """Yield what stays: each part that something else than its age keeps, the others by number."""
    stays = [[one.run, one.part, one.why] for one in due.kept if one.until is None]
    yield from ["", *table(("run", "kept", "because"), stays)] if stays else []
    for part in PARTS:
        days = [one.until for one in due.kept if one.part == part and one.until is not None]
        if days:
            yield f"kept for their age: {part} of {len(days):,} runs, the next until {min(days)}"


def _why(setting: str, resumed: bool) -> str:
    return f"{setting}, begun earlier" if resumed else setting
