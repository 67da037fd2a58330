"""What is deleted: what goes, what stays and why, and what else is stored there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from flows.commands.entry import Context, Form, Issuer, entry
from flows.commands.result import Result, Table, artifact
from flows.wiring import clean_up_machine, cleaner, issuers, wire

if TYPE_CHECKING:
    from flows.operations.purge import PurgePlan
    from flows.runs.context import IssuerContext

SHOWN = 20  # unknown objects named on a terminal; --json has them all
LIFECYCLE = "deploy/s3-lifecycle.json"


@entry("purge", form=Form("purge", "purge {issuer}", needs=("issuer",), retries=(10, 60)))
def purge(context: Context, issuer: Issuer = "", *, dry_run: bool = False) -> Result:
    """Delete what [retention] no longer keeps: sealed chunks, then ledgers and reports; never what is open or a source.

    Args:
        issuer: Whose runs (default: those of all that are configured).
        dry_run: Show what would be deleted, and why the rest is kept; delete nothing.
    """
    from flows.operations.purge import plan_purge
    from flows.operations.purge import purge as purge_step

    found: list[dict[str, Any]] = []
    shown: list[str | Table] = []
    for name in [issuer] if issuer else issuers(context.folder):
        issuer_context = wire(context.folder, name)
        due = (plan_purge if dry_run else purge_step)(
            issuer_context, cleaner(issuer_context.issuer.root, context.folder)
        )
        found.append(facts(name, due))
        shown += [
            *_due(issuer_context, due, "would be deleted" if dry_run else "deleted"),
            *_artifacts(found[-1], dry_run),
            "",
        ]
    homes = clean_up_machine(dry_run=dry_run)
    if homes:
        shown += [f"gpg homes of killed processes on this machine: {homes}", ""]
    next_step = f"cardlink purge {issuer}".rstrip() if dry_run and any(one["lots"] for one in found) else ""
    reported = {"dry_run": dry_run, "issuers": found, "gpg_homes": homes}
    return Result(reported, shown[:-1] or ["no issuers yet"], next_step)


def facts(issuer: str, due: PurgePlan) -> dict[str, Any]:
    """Return a purge as plain facts: every object that goes by its key, and why the rest stays."""
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


def _artifacts(reported: dict[str, Any], dry_run: bool) -> list[Table]:
    name = reported["issuer"]
    gone = [{column: lot[column] for column in ("run", "part", "setting", "bytes")} for lot in reported["lots"]]
    stays = [
        {column: one[column] for column in ("run", "part", "why")} for one in reported["kept"] if one["until"] is None
    ]
    verb = "would be deleted" if dry_run else "deleted"
    return [
        artifact(gone, f"{name}-purged", f"{name}: {verb}, each part with its record"),
        artifact(stays, f"{name}-kept", f"{name}: kept for what is open, however old"),
    ]


def _due(context: IssuerContext, due: PurgePlan, verb: str) -> Iterator[str | Table]:
    from flows.runs.keys import runs

    name = context.issuer.issuer
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
                f"{lot.record.setting}, begun earlier" if lot.resumed else lot.record.setting,
            ]
            for lot in due.lots
        ]
        yield ""
        yield Table(("run", "part", "objects", "bytes", "because"), rows)
    yield from _kept(due)
    temporary = len(due.leftovers) + len(due.temporary)
    if temporary:
        yield from ["", f"temporary objects of killed processes {verb}: {temporary:,}"]
    yield from (f"not ours, left alone: {key}" for key in due.unknown[:SHOWN])
    if len(due.unknown) > SHOWN:
        yield f"not ours, left alone: {len(due.unknown) - SHOWN:,} more"
    if due.hides:
        yield "The bucket keeps versions: deleting hides, it does not remove. The rule that removes for good, for the"
        yield f"prefix {runs(name)} below the root, stands in {LIFECYCLE}."


def _kept(due: PurgePlan) -> Iterator[str | Table]:
    """Yield what stays: each part that something else than its age keeps, the others by number."""
    from schemas.records import PARTS

    stays = [[one.run, one.part, one.why] for one in due.kept if one.until is None]
    if stays:
        yield ""
        yield Table(("run", "kept", "because"), stays)
    for part in PARTS:
        days = [one.until for one in due.kept if one.part == part and one.until is not None]
        if days:
            yield f"kept for their age: {part} of {len(days):,} runs, the next until {min(days)}"
