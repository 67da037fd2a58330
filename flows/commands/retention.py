"""What is deleted: what goes, what stays and why, and what else is stored there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from flows.commands import on_first_use
from flows.commands.entry import Context, Form, entry
from flows.commands.parameters import Issuer
from flows.commands.result import Result, Table
from flows.wiring import cleaner, wire

with on_first_use():
    from flows.operations import purge as operation
    from flows.runs import keys
    from schemas import records

PURGE = Form("purge", "purge {issuer}", needs=("issuer",), retries=(10, 60), actor="optional")
SHOWN = 20  # unknown objects named on a terminal; --json has them all
LIFECYCLE = "deploy/s3-lifecycle.json"


@entry("purge", form=PURGE, second="purge")
def purge(context: Context, issuer: Issuer = "", *, dry_run: bool = False) -> Result:
    """Delete what [retention] allows: sealed chunks, then ledgers and reports; never open work, never a source.

    Args:
        issuer: Whose runs (default: those of all that are configured).
        dry_run: Show what would be deleted and why the rest is kept; delete nothing.
    """
    verb, act = ("would be deleted", operation.plan_purge) if dry_run else ("deleted", operation.purge)

    def of_one(name: str) -> list[tuple[dict[str, Any], list[str | Table]]]:
        issuer_context = wire(context.folder, name)
        due = act(issuer_context, cleaner(issuer_context.issuer, context.folder))
        return [(facts(name, due), [*_due(name, due, verb), ""])]

    done, unread = context.each(issuer, of_one)
    found, shown = [one for one, _ in done], [line for _, lines in done for line in lines]
    next_step = f"cardlink purge {issuer}".rstrip() if dry_run and any(one["lots"] for one in found) else ""
    return Result({"dry_run": dry_run, "issuers": found}, shown[:-1] or ["no issuers yet"], next_step).beside(unread)


def facts(issuer: str, due: operation.PurgePlan) -> dict[str, Any]:
    """Return a purge as plain facts: the key of every object that goes, and why the rest stays."""
    return {
        "issuer": issuer,
        "lots": [
            {**lot.record.model_dump(mode="json", exclude={"rows"}), "keys": [one.key for one in lot.entries]}
            for lot in due.lots
        ],
        "kept": [{**kept._asdict(), "until": kept.until and kept.until.isoformat()} for kept in due.kept],
        "unknown": list(due.unknown),
        "temporary": [entry.key for entry in (*due.leftovers, *due.temporary)],
        "versions_stay": due.hides,
    }


def _due(name: str, due: operation.PurgePlan, verb: str) -> Iterator[str | Table]:
    """Yield what goes, what stays for another reason than its age, how much stays for its age, and what is not ours."""
    sizes = [sum(entry.size for entry in lot.entries) for lot in due.lots]
    yield f"{name}: {sum(len(lot.entries) for lot in due.lots):,} objects, {sum(sizes):,} bytes {verb}"
    because = [f"{lot.record.setting}, begun earlier" if lot.resumed else lot.record.setting for lot in due.lots]
    named = [(lot.record.run or "single links", lot.record.part, len(lot.entries)) for lot in due.lots]
    gone = [(*lot, size, why) for lot, size, why in zip(named, sizes, because, strict=True)]
    title = f"{name}: {verb}, each part with its record"
    yield from [""] if gone else []
    yield Table(("run", "part", "objects", "bytes", "because"), gone, f"{name}-purged", title, bool(gone))
    stays = [(one.run, one.part, one.why) for one in due.kept if one.until is None]
    yield from [""] if stays else []
    title = f"{name}: kept for open work, however old"
    yield Table(("run", "kept", "because"), stays, f"{name}-kept", title, bool(stays))
    for part in records.PARTS:
        if days := [one.until for one in due.kept if one.part == part and one.until is not None]:
            yield f"kept for their age: {part} of {len(days):,} runs, the next until {min(days)}"
    if temporary := len(due.leftovers) + len(due.temporary):
        yield from ["", f"temporary objects of killed processes {verb}: {temporary:,}"]
    yield from (f"unknown, left alone: {key}" for key in due.unknown[:SHOWN])
    if len(due.unknown) > SHOWN:
        yield f"unknown, left alone: {len(due.unknown) - SHOWN:,} more"
    if due.hides:
        yield "The bucket keeps versions: deleted objects are only hidden. The lifecycle rule that removes them for"
        yield f"good, for the prefix {keys.runs(name)} below the root, is in {LIFECYCLE}."
