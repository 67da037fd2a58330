"""Deliver an issuer's links to whoever sends them to the cardholders."""

from __future__ import annotations

from typing import Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import DRY_OR_SEND, Form
from flows.commands.parameters import DryRun, Issuer, Number, Reason
from flows.commands.result import Result
from flows.steps import RECEIPT, Step
from flows.wiring import wire

with on_first_use():
    from flows.operations import delivery as deliveries
    from flows.runs import context as contexts
    from flows.runs import delivered

DELIVER = Form(
    "deliver",
    "links of {issuer}",
    hours=2,
    choices=(DRY_OR_SEND,),
    retries=(10, 60),
    says_result=True,
)
NOTHING_NEW = "nothing new since the last confirmed delivery"


@entry("deliver", form=DELIVER, second={"deliver": ""})
def deliver(
    context: Context,
    issuer: Issuer,
    *,
    confirm: Number | None = None,
    reason: Reason = "",
    dry_run: DryRun = False,
) -> Result:
    """Deliver ISSUER's links that are new or withdrawn since the last confirmed delivery.

    Args:
        issuer: Whose links, of all runs and single links.
        confirm: Record that the receiving side has this delivery; then give the reason, such as its
            receipt.

    Example:
        cardlink deliver first-bank
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    if confirm is not None:
        return _confirm(issuer_context, confirm, reason, dry_run)
    return _deliver(issuer_context, dry_run)


def _confirm(context: contexts.IssuerContext, number: int, reason: str, dry_run: bool) -> Result:
    issuer = context.issuer.issuer
    confirmed = deliveries.confirm(context, number, reason)
    facts = {
        "issuer": issuer,
        "number": number,
        "dry_run": dry_run,
        **confirmed.model_dump(mode="json"),
    }
    line = (
        f"{issuer}: delivery {number} confirmed {confirmed.at:%Y-%m-%d %H:%M} "
        f"by {confirmed.by}: {confirmed.reason}"
    )
    return Result(facts, [_marked(line, dry_run)])


def _deliver(context: contexts.IssuerContext, dry_run: bool) -> Result:
    issuer = context.issuer.issuer
    done = deliveries.deliver(context)
    facts: dict[str, Any] = {
        "issuer": issuer,
        "number": done.number,
        "fresh": done.fresh,
        "dry_run": dry_run,
        "doubts": done.doubts,
    }
    doubts = [f"{key} names other bytes than were delivered: not confirmed" for key in done.doubts]
    record = done.record
    if record is None:
        return Result(facts, [f"{issuer}: {NOTHING_NEW}", *doubts])
    would_be = dry_run and done.fresh
    state = "would be written" if would_be else _state(done)
    line = (
        f"{issuer}: delivery {done.number} {state}: {record.new:,} new, "
        f"{record.replaced:,} replaced, {record.withdrawn:,} withdrawn; "
        f"{record.living:,} living links"
    )
    place = f"{context.issuer.root}/{delivered.delivery_folder(issuer, done.number)}"
    files = f"files: {place} ({' '.join(record.files)})"
    next_step = Step("deliver", issuer, confirm=done.number, reason=RECEIPT)
    if would_be:  # there is nothing to confirm yet, nor a file
        next_step = Step("deliver", issuer)
    facts |= record.model_dump(mode="json")
    shown = [_marked(line, dry_run), *doubts, *([] if would_be else [files])]
    return Result(facts, shown, next_step)


def _state(done: deliveries.Delivered) -> str:
    return "written" if done.fresh else "not confirmed yet, nothing new since"


def _marked(line: str, dry_run: bool) -> str:
    return f"dry run, nothing was written: {line}" if dry_run else line
