"""Purge what [retention] no longer keeps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any, NamedTuple

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Issuer
from flows.commands.result import Part, Result, Table
from flows.steps import Step, counted
from flows.wiring import cleaner, wire

with on_first_use():
    from flows.operations import purge as operation
    from flows.runs import keys
    from schemas import records

PURGE = Form("purge", "purge {issuer}", needs=("issuer",), retries=(10, 60), actor="optional")
SHOWN = 20  # unknown objects named on a terminal; --json has them all
LIFECYCLE = "deploy/s3-lifecycle.json"


class _Purged(NamedTuple):
    """What a purge does, or would do, at an issuer, and how it is shown."""

    facts: dict[str, Any]
    shown: list[Part]


@entry("purge", form=PURGE, acts={"purge": ""})
def purge(context: Context, issuer: Issuer = "", *, dry_run: bool = False) -> Result:
    """Delete what [retention] allows: chunks, ledgers, reports; never open work, never a source.

    Args:
        issuer: Whose runs (default: those of all that are configured).
        dry_run: Show what would be deleted and why the rest is kept; delete nothing.

    Example:
        cardlink purge first-bank --dry-run
    """
    act = operation.plan_purge if dry_run else operation.purge
    participle = "would be deleted" if dry_run else "deleted"

    def of_issuer(name: str) -> list[_Purged]:
        issuer_context = wire(context.folder, name)
        plan = act(issuer_context, cleaner(issuer_context.issuer, context.folder))
        return [_Purged(facts(name, plan), [*_shown(name, plan, participle), ""])]

    purged, unread = context.each(issuer, of_issuer)
    shown = list(chain.from_iterable(each.shown for each in purged))
    is_due = dry_run and any(each.facts["lots"] for each in purged)
    result = Result(
        {"dry_run": dry_run, "issuers": [each.facts for each in purged]},
        shown[:-1] or ["no issuers yet"],
        Step("purge", issuer) if is_due else None,
    )
    return result.beside(unread)


def facts(issuer: str, plan: operation.PurgePlan) -> dict[str, Any]:
    """Return a purge as plain facts: the key of every object that goes, and why the rest stays."""
    return {
        "issuer": issuer,
        "lots": [_lot_facts(lot) for lot in plan.lots],
        "kept": [
            {**kept._asdict(), "until": kept.until and kept.until.isoformat()} for kept in plan.kept
        ],
        "unknown": list(plan.unknown),
        "temporary": [entry.key for entry in plan.leftovers],
        "versions_stay": plan.hides,
    }


def _lot_facts(lot: operation.PurgeUnit) -> dict[str, Any]:
    record = lot.record.model_dump(mode="json", exclude={"rows"})
    return {**record, "keys": lot.names}


def _shown(name: str, plan: operation.PurgePlan, participle: str) -> Iterator[Part]:
    """Yield what goes, what stays for open work or for its age, and what is not ours."""
    rows = [_lot_row(lot) for lot in plan.lots]
    objects = sum(row.objects for row in rows)
    size = sum(row.bytes for row in rows)
    yield f"{name}: {counted(objects, 'object')}, {size:,} bytes {participle}"
    title = f"{name}: {participle}, each part with its record"
    head = ("run", "part", "objects", "bytes", "because")
    yield from _table(Table(head, rows, f"{name}-purged", title, on_terminal=bool(rows)))
    stays = [(kept.run, kept.part, kept.why) for kept in plan.kept if kept.until is None]
    title = f"{name}: kept for open work, however old"
    yield from _table(
        Table(("run", "kept", "because"), stays, f"{name}-kept", title, on_terminal=bool(stays))
    )
    yield from _young(plan)
    if plan.leftovers:
        yield ""
        yield f"temporary objects of killed processes {participle}: {len(plan.leftovers):,}"
    yield from _unknown(plan)
    if plan.hides:
        yield (
            "The bucket keeps versions: deleted objects are only hidden. The lifecycle rules that "
            "remove them for"
        )
        folders = len(keys.cleaned(name))
        yield f"good, for {folders} folders of {name} below the root, are in {LIFECYCLE}."


class _LotRow(NamedTuple):
    run: str
    part: str
    objects: int
    bytes: int
    because: str


def _lot_row(lot: operation.PurgeUnit) -> _LotRow:
    because = lot.record.setting
    if lot.resumed:
        because += ", begun earlier"
    size = sum(entry.size for entry in lot.entries)
    run = lot.record.run or "single links"
    return _LotRow(run, lot.record.part, len(lot.names), size, because)


def _table(table: Table) -> Iterator[Part]:
    """Yield a table, with a blank line before it where a terminal shows it."""
    if table.on_terminal:
        yield ""
    yield table


def _young(plan: operation.PurgePlan) -> Iterator[str]:
    """Yield how much is kept for its age, and until when the next."""
    for part in records.PARTS:
        days = [kept.until for kept in plan.kept if kept.part == part and kept.until is not None]
        if days:
            runs = counted(len(days), "run")
            yield f"kept for their age: {part} of {runs}, the next until {min(days)}"


def _unknown(plan: operation.PurgePlan) -> Iterator[str]:
    for key in plan.unknown[:SHOWN]:
        yield f"unknown, left alone: {key}"
    if len(plan.unknown) > SHOWN:
        yield f"unknown, left alone: {len(plan.unknown) - SHOWN:,} more"
