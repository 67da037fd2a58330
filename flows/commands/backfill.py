"""Send the extracts of nights that were missed."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Field, Issuer, ListDigest
from flows.commands.result import Part, Result, Table
from flows.commands.sent_runs import submitted, upload_step
from flows.commands.submit import LONGEST
from flows.steps import Step
from flows.wiring import wire

with on_first_use():
    from flows.resend import backfill as backfills
    from flows.runs import context as contexts

BACKFILL = Form("backfill", "backfill {issuer}: {first_day} to {last_day}", hours=LONGEST)
FATES = ("read", "submitted", "rejected", "ineligible", "suppressed")


@entry("backfill", form=BACKFILL, acts={"resend": "send_list"})
def backfill(
    context: Context,
    issuer: Issuer,
    *,
    first_day: Annotated[date, Field("--from")],
    last_day: Annotated[date, Field("--to")],
    send_list: Annotated[ListDigest, Field("--send", "DIGEST")] = "",
) -> Result:
    """List the extracts of missed nights and what they would send, or send exactly such a list.

    Args:
        issuer: Whose extracts.
        first_day: The first business date.
        last_day: The last business date.
        send_list: The digest of the list to send. Leave it empty first: the list is shown with its
            digest, and nothing is written. A list that would come out differently by now is
            refused.

    Example:
        cardlink backfill first-bank --from 2026-11-01 --to 2026-11-07
    """
    issuer_context = wire(context.folder, issuer)
    if not send_list:
        return _list(issuer_context, first_day, last_day)
    with context.progress(issuer) as progress:
        done = backfills.send(issuer_context, first_day, last_day, send_list, progress)
    shown: list[Part] = [*done.remarks]
    for run in done.runs:
        shown += submitted(issuer_context, run)
    facts = {"issuer": issuer, "list": send_list, "runs": [run.manifest.run for run in done.runs]}
    shown = shown or [f"{issuer}: list {send_list} has nothing to send"]
    return Result(facts, shown, upload_step(issuer), outbox=issuer)


def _list(context: contexts.IssuerContext, first_day: date, last_day: date) -> Result:
    """Show the extracts of missed nights and what they would send."""
    issuer = context.issuer.issuer
    listed = backfills.backfill(context, first_day, last_day)
    missed = [_facts(extract) for extract in listed.missed]
    facts = {"issuer": issuer, "digest": listed.digest, "missed": missed}
    if not missed:
        line = f"{issuer}: every extract from {first_day} to {last_day} is submitted"
        return Result(facts, [line])
    sendable = [extract for extract in missed if not extract["refused"]]
    head = ("extract", "business date", "run", *FATES, "chunks", "refused")
    title = f"{len(sendable)} of {len(missed)} extracts would be sent; list {listed.digest}"
    table = Table(head, [_row(extract) for extract in missed], f"{issuer}-backfill", title)
    next_step = None
    if sendable:
        next_step = Step("backfill", issuer, from_=first_day, to=last_day, send=listed.digest)
    return Result(facts, [table, f"list {listed.digest}; nothing was written"], next_step)


def _facts(extract: backfills.MissedExtract) -> dict[str, Any]:
    _, _, name = extract.checked.extract.partition("/extracts/")
    return {**extract.checked.facts, "extract": name}


def _row(extract: dict[str, Any]) -> list[object]:
    counts = [extract["counts"].get(fate, 0) for fate in FATES]
    place = [extract["extract"], extract["as_of"], extract["run"]]
    return [*place, *counts, extract["chunks"], extract["refused"]]
