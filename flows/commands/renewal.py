"""Renew the links that are about to expire."""

from __future__ import annotations

from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import DRY_OR_SEND, Form
from flows.commands.parameters import Field, Issuer
from flows.commands.result import Part, Result, Table
from flows.commands.sent_runs import run_facts, submitted
from flows.commands.submit import LONGEST
from flows.steps import Step
from flows.wiring import wire

with on_first_use():
    from flows.reports import lists
    from flows.resend import renewal
    from flows.runs import context as contexts

RENEW = Form("renew", "renew {issuer}: {mode}", LONGEST, choices=(DRY_OR_SEND,), actor="optional")


@entry("renew", form=RENEW)
def renew(
    context: Context,
    issuer: Issuer,
    *,
    within_days: Annotated[int, Field("--within", "DAYS", days=True, least=0, most=365)] = 14,
    dry_run: bool = False,
) -> Result:
    """Renew links about to expire, for cardholders who are still in the latest extract.

    Args:
        issuer: Whose cardholders.
        within_days: Renew links that expire within this many days, or have expired.
        dry_run: Show whose link would be renewed, and who is left out and why; write nothing.
    """
    issuer_context = wire(context.folder, issuer)
    if dry_run:
        return _rehearse(issuer_context, within_days)
    with context.progress(f"renewal of {issuer}") as progress:
        due, done = renewal.renew(issuer_context, within_days, progress)
    if done is None:
        shown: list[Part] = [f"{issuer}: nothing to renew", _left_out(issuer, due)]
        return Result(_due_facts(issuer, due), shown)
    line = f"{done.manifest.counts.submitted:,} links that expire by {due.until} are renewed"
    facts = _due_facts(issuer, due) | run_facts(done)
    shown = [*submitted(issuer_context, done, line), _left_out(issuer, due)]
    return Result(facts, shown, Step("outbox list", issuer), outbox=issuer)


def _rehearse(context: contexts.IssuerContext, within_days: int) -> Result:
    """Show whose links would be renewed."""
    issuer = context.issuer.issuer
    due, checked = renewal.rehearse_renew(context, within_days)
    rows = checked.counts.submitted
    line = (
        f"{issuer}: {rows:,} links that expire by {due.until} would be renewed, from {due.of.run}"
    )
    facts = _due_facts(issuer, due) | {
        "counts": checked.counts.model_dump(),
        "chunks": checked.chunks,
    }
    next_step = Step("renew", issuer, within=f"{within_days}d") if rows else None
    return Result(facts, [line, _left_out(issuer, due)], next_step)


def _due_facts(issuer: str, due: renewal.RenewalPlan) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "of": due.of.run,
        "until": due.until.isoformat(),
        "rows": due.rows.height,
        "left_out": due.left_out,
    }


def _left_out(issuer: str, due: renewal.RenewalPlan) -> Table:
    cards = [("due", due.rows.height, ""), *lists.reason_rows(due.left_out)]
    title = (
        f"{due.rows.height:,} links that expire by {due.until} are due, from {due.of.run}; "
        "the others are left out"
    )
    head = ("links", "cards", "what to do")
    return Table(head, cards, f"{issuer}-renewal", title, on_terminal=len(cards) > 1)
