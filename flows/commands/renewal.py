"""Renew the links that are about to expire, or have expired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Field, Issuer, Rows, shown
from flows.commands.result import Part, Result, Table, worst
from flows.commands.sent_runs import run_facts, submitted, upload_step
from flows.commands.submit import LONGEST
from flows.steps import Sentence, Step, counted
from flows.wiring import wire

with on_first_use():
    from flows.reports import lists
    from flows.resend import renewal
    from flows.runs import context as contexts
    from flows.submissions import rehearsal
    from schemas import reasons

RENEW = Form("renew", "renew {issuer}", LONGEST, actor="optional")
STUCK = 2  # exit code where links are due and none could be renewed


@entry("renew", form=RENEW)
def renew(
    context: Context,
    issuer: Issuer,
    *,
    within_days: Annotated[int, Field("--within", "DAYS", days=True, least=0, most=365)] = 14,
    rows: Rows = "",
    dry_run: bool = False,
) -> Result:
    """Renew links about to expire, each from the newest extract that has its card.

    A full portfolio's cardholders must still be in its latest extract. There is one run for each
    extract. Exit code 2 where links are due and none could be renewed.

    Args:
        issuer: Whose cardholders.
        within_days: Renew links that expire within this many days, or have expired.
        dry_run: Show whose link would be renewed, and who is left out and why; write nothing.

    Example:
        cardlink renew first-bank --within 14d --dry-run
    """
    issuer_context = wire(context.folder, issuer)
    if dry_run:
        return _rehearse(issuer_context, within_days)
    is_scheduled = not (context.local_files or context.actor)  # it goes by the settings
    expected = shown(rows, is_named=is_scheduled)
    with context.progress(f"renewal of {issuer}") as progress:
        renewed = renewal.renew(issuer_context, within_days, progress, expected)
    return _renewed(issuer_context, renewed)


def _renewed(context: contexts.IssuerContext, renewed: renewal.Renewed) -> Result:
    """Show the runs that renew links, and who is left out."""
    issuer = context.issuer.issuer
    plan = renewed.plan
    left_out = [*_stuck(plan), _left_out(issuer, plan)]
    runs = [run_facts(run) for run in renewed.runs]
    facts = _facts(issuer, plan) | {"runs": runs}
    if not renewed.runs:
        code = STUCK if plan.stuck else 0
        nothing = f"{issuer}: nothing to renew"
        return Result(facts, [*renewed.remarks, nothing, *left_out], exit_code=code)
    links = sum(run.manifest.counts.submitted for run in renewed.runs)
    headline = f"{issuer}: {_expiring(links, plan)} renewed"
    if len(runs) > 1:
        headline += f", in {counted(len(runs), 'run')}"
    parts: list[Part] = [*renewed.remarks, headline]
    for run in renewed.runs:
        sent = run.manifest.counts.submitted
        renewed_links = counted(sent, "link is renewed", "links are renewed")
        parts += submitted(context, run, renewed_links)
    parts += [error.text for error in renewed.errors]
    code = worst(error.exit_code for error in renewed.errors)
    return Result(facts, [*parts, *left_out], upload_step(issuer), code, outbox=issuer)


def _rehearse(context: contexts.IssuerContext, within_days: int) -> Result:
    """Show whose links would be renewed."""
    issuer = context.issuer.issuer
    plan, runs = renewal.rehearse_renew(context, within_days)
    links = sum(run.counts.submitted for run in runs)
    line = f"{issuer}: {_expiring(links, plan)} would be renewed"
    facts = _facts(issuer, plan) | {"runs": _would_be(plan, runs)}
    refused = [Sentence("refused: {error}", error=run.refused) for run in runs if run.refused]
    parts: list[Part] = [line, *refused, *_stuck(plan), _sources(plan), _left_out(issuer, plan)]
    would_pass = links and not refused
    within = f"{within_days}d"
    count = plan.due
    next_step = Step("renew", issuer, within=within, rows=count) if would_pass else None
    is_stuck = bool(plan.stuck) and not runs
    code = STUCK if is_stuck else 0
    return Result(facts, parts, next_step, 3 if refused else code, rows=count or None)


def _facts(issuer: str, plan: renewal.RenewalPlan) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "until": plan.until.isoformat(),
        "rows": plan.due,
        "left_out": dict(plan.left_out),
        "gone": dict(plan.gone),
    }


def _would_be(plan: renewal.RenewalPlan, runs: Sequence[rehearsal.Checked]) -> list[dict[str, Any]]:
    """Return the facts of the runs that a renewal would make."""
    return [
        {
            "of": source.of.run,
            "extract": source.stored.identity.key,
            "counts": run.counts.model_dump(),
            "chunks": run.chunks,
        }
        for source, run in zip(plan.sources, runs, strict=True)
    ]


def _sources(plan: renewal.RenewalPlan) -> Table:
    rows = [
        (source.stored.identity.key, source.of.run, source.cards.height) for source in plan.sources
    ]
    return Table(("from", "of run", "cards"), rows, on_terminal=bool(rows))


def _stuck(plan: renewal.RenewalPlan) -> Iterator[Part]:
    """Yield what has to be done about cards that are due and cannot be renewed."""
    for extract, cards in plan.gone.items():
        yield (
            f"{counted(cards, 'card')} of {extract}: the extract, or a template that corrected "
            "it, is gone or has changed; put it back, or ask the issuer to name these cardholders "
            "again"
        )
    typed_in = plan.left_out.get(reasons.TYPED_IN, 0)
    if typed_in:
        hint = reasons.reason(reasons.TYPED_IN).hint
        template = "{cards} never in an extract: {hint}"
        yield Sentence(template, cards=counted(typed_in, "card"), hint=hint)


def _expiring(links: int, plan: renewal.RenewalPlan) -> str:
    return f"{counted(links, 'link that expires', 'links that expire')} by {plan.until}"


def _left_out(issuer: str, plan: renewal.RenewalPlan) -> Table:
    cards = [("due", plan.due, ""), *lists.reason_rows(plan.left_out)]
    title = f"{_expiring(plan.due, plan)} due; the others are left out"
    head = ("links", "cards", "what to do")
    return Table(head, cards, f"{issuer}-renewal", title, on_terminal=len(cards) > 1)
