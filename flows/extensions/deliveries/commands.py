"""Deliver an issuer's links to whoever sends them to the cardholders; tell it what became of its
extracts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Annotated, Any, Literal

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import DryRun, Field, Issuer, Number, Reason
from flows.commands.result import Part, Place, Result, worst
from flows.errors import CardlinkError
from flows.steps import RECEIPT, WHY, Sentence, Step, Values
from flows.wiring import wire

with on_first_use():
    from flows.extensions.deliveries import (
        acknowledgement,
        delivered,
        delivery,
        handover,
        reaching,
        receivers,
        settings,
    )
    from flows.runs import context as contexts

DELIVER = Form(
    "deliver",
    "links of {issuer}",
    hours=2,
    retries=(10, 60),
    says_result=True,
    actor="optional",
)
NOTHING_NEW = "nothing new since the last confirmed delivery"
WITHDRAWALS_WAIT = 3  # the exit code where withdrawals wait for a decision
NOT_HANDED_OVER = 4  # the exit code where a receiver has not got its delivery yet
Receiver = Annotated[str, Field(pattern=r"[a-z][a-z0-9-]{0,40}")]


@entry("deliver", form=DELIVER, acts={"deliver": "", "gates": "opened"})
def deliver(
    context: Context,
    issuer: Issuer,
    receiver: Receiver = "",
    *,
    confirm: Number | None = None,
    opened: Annotated[Sequence[Literal["withdrawals"]], Field("--open")] = (),
    reason: Reason = "",
    dry_run: DryRun = False,
) -> Result:
    """Deliver ISSUER's links that are new or withdrawn since the last confirmed delivery, to each
    receiver or to RECEIVER.

    Args:
        issuer: Whose links, of all runs and single links.
        receiver: Only this one, a table [deliveries.RECEIVER] of the TOML; "default" is the one
            whose deliveries have no name.
        confirm: Record that the receiving side has this delivery; then give the reason, such as its
            receipt.
        opened: A gate that this delivery may pass, with a reason; `withdrawals`: it withdraws more
            links than `[limits] max_withdrawn`.

    Example:
        cardlink deliver first-bank
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    if confirm is not None:
        return _confirm(issuer_context, receiver, confirm, reason, dry_run)
    why_opened = ""
    if opened:
        why_opened = issuer_context.adapters.signed(reason)["reason"]
    named = receivers.receivers_of(issuer_context, receiver)
    outcomes = list(
        reaching.deliver_to(
            issuer_context, named, at_once=True, hands_over=not dry_run, opened=why_opened
        )
    )
    if len(outcomes) == 1 and outcomes[0].error is not None:
        raise outcomes[0].error
    return _delivered(issuer_context, outcomes, dry_run, {"open": opened, "reason": reason})


def with_deliveries(context: contexts.IssuerContext, result: Result) -> Result:
    """Return the result of an ingest, with what was delivered because of it.

    A receiver that cannot be reached is named, and the command is done all the same.
    """
    try:
        outcomes = reaching.deliver_after_ingest(context)
    except CardlinkError as error:
        failed = Sentence("links were not delivered: {error}", error=error.text)
        return _beside(result, "not_delivered", str(error.text), [failed])
    news = [
        each for each in outcomes if each.problem or each.delivered.fresh or each.delivered.waiting
    ]
    lines = [_lines(context, outcome, dry_run=False) for outcome in news]
    facts = [_facts(outcome) for outcome in news]
    return _beside(result, "deliveries", facts, chain.from_iterable(lines)) if news else result


def _beside(result: Result, name: str, facts: object, lines: Iterable[Part]) -> Result:
    """Return the result of a command, with what was done because of it."""
    shown = [*result.shown, *lines]
    return result._replace(facts={**result.facts, name: facts}, shown=shown)


def _confirm(
    context: contexts.IssuerContext, named: str, number: int, reason: str, dry_run: bool
) -> Result:
    issuer = context.issuer.issuer
    receiver = receivers.only_one(context, named)
    confirmed = receivers.confirm(context, number, reason, receiver)
    facts = {
        "issuer": issuer,
        "receiver": receiver,
        "number": number,
        "dry_run": dry_run,
        **confirmed.model_dump(mode="json"),
    }
    line = (
        f"{_name(issuer, receiver)}: delivery {number} confirmed {confirmed.at:%Y-%m-%d %H:%M} "
        f"by {confirmed.by}: {confirmed.reason}"
    )
    next_step = Step("worklist", issuer)
    if dry_run:
        argument = _argument(context, receiver)
        next_step = Step("deliver", issuer, argument, confirm=number, reason=reason)
    return Result(facts, [_marked(line, dry_run)], next_step)


def _delivered(
    context: contexts.IssuerContext,
    outcomes: Sequence[reaching.Outcome],
    dry_run: bool,
    options: Mapping[str, Values],
) -> Result:
    """Show what was delivered to each receiver; the facts of a single one stand alone.

    `options`: those of the command, which a dry run shows again.
    """
    shown: list[Part] = []
    for outcome in outcomes:
        shown += _lines(context, outcome, dry_run=dry_run)
    of_each = [_facts(outcome) for outcome in outcomes]
    facts = {"issuer": context.issuer.issuer, "dry_run": dry_run}
    facts |= of_each[0] if len(of_each) == 1 else {"deliveries": of_each}
    next_step = _next_step(context, outcomes)
    if dry_run and any(each.delivered.fresh or each.delivered.finished for each in outcomes):
        # there is nothing to confirm yet
        argument = "" if len(outcomes) > 1 else _argument(context, outcomes[0].receiver)
        next_step = Step("deliver", context.issuer.issuer, argument, **options)
    return Result(facts, shown, next_step, worst(map(_exit_code, outcomes)))


def _exit_code(outcome: reaching.Outcome) -> int:
    if outcome.error is not None:
        return outcome.error.exit_code
    if outcome.problem:
        return NOT_HANDED_OVER
    return WITHDRAWALS_WAIT if outcome.delivered.waiting else 0


def _next_step(
    context: contexts.IssuerContext, outcomes: Sequence[reaching.Outcome]
) -> Step | None:
    """Return how the first delivery that waits for it is confirmed."""
    issuer = context.issuer.issuer
    for outcome in outcomes:
        done = outcome.delivered
        if done.waiting:
            return _withdrawing(context, outcome)
        is_open = done.record is not None and not outcome.problem
        if is_open and not _is_confirmed(context, outcome):
            named = _argument(context, outcome.receiver)
            return Step("deliver", issuer, named, confirm=done.number, reason=RECEIPT)
    return None


def _is_confirmed(context: contexts.IssuerContext, outcome: reaching.Outcome) -> bool:
    line = delivered.line_of(context.issuer.issuer, outcome.receiver)
    known = handover.handed(context.adapters, line, outcome.delivered.number)
    return known is not None and known.confirmed is not None


def _withdrawing(context: contexts.IssuerContext, outcome: reaching.Outcome) -> Step:
    """Return the step that withdraws the links which wait for a decision."""
    named = _argument(context, outcome.receiver)
    return Step("deliver", context.issuer.issuer, named, open="withdrawals", reason=WHY)


def _facts(outcome: reaching.Outcome) -> dict[str, Any]:
    done = outcome.delivered
    facts: dict[str, Any] = {
        "receiver": outcome.receiver,
        "number": done.number,
        "fresh": done.fresh,
        "doubts": done.doubts,
        "waiting": done.waiting,
    }
    if outcome.problem:
        facts["problem"] = outcome.problem
    if done.record is not None:
        facts |= done.record.model_dump(mode="json")
    return facts


def _lines(
    context: contexts.IssuerContext, outcome: reaching.Outcome, *, dry_run: bool
) -> Iterator[Part]:
    """Yield what is to be said of a receiver."""
    name = _name(context.issuer.issuer, outcome.receiver)
    done = outcome.delivered
    would_be = dry_run and (done.fresh or done.finished)
    record = done.record
    if record is not None:
        state = _state(done, would_be=would_be)
        if _is_confirmed(context, outcome):
            state = "taken, which confirms it"
        counts = (
            f"{name}: delivery {done.number} {state}: {record.new:,} new, "
            f"{record.replaced:,} replaced, {record.withdrawn:,} withdrawn; "
            f"{record.living:,} living links"
        )
        yield _marked(counts, dry_run)
    elif outcome.error is None and not done.waiting:
        yield f"{name}: {NOTHING_NEW}"
    if done.waiting:
        limit = context.issuer.limits.max_withdrawn
        template = (
            f"{name}: {done.waiting:,} links are not withdrawn until somebody decides (their "
            f"cards left, or no answer has them any more; max_withdrawn = {limit}): {{withdraw}}"
        )
        yield Sentence(template, withdraw=_withdrawing(context, outcome))
    for key in done.doubts:
        yield f"{key} names other bytes than were delivered: not confirmed"
    if record is not None and not would_be:
        line = delivered.line_of(context.issuer.issuer, outcome.receiver)
        table = settings.settings_of(context.issuer, outcome.receiver)
        place = _folder(context, line, table, done.number)
        yield Place(f"files: {place} ({' '.join(record.names)})")
    if outcome.problem:
        yield f"{name}: not handed over yet, and tried again by itself: {outcome.problem}"


def _state(done: delivery.Delivered, *, would_be: bool) -> str:
    would = "would be " if would_be else ""
    if done.fresh:
        return f"{would}written"
    if done.finished:
        return f"{would}finished, since its command had ended before its files were written"
    return "not confirmed yet, nothing new since"


def _folder(
    context: contexts.IssuerContext,
    line: handover.Line[Any],
    table: settings.Destination | None,
    number: int,
) -> str:
    """Return where the files are taken."""
    if table is None or table.to is None:
        return f"{context.issuer.root}/{line.folder(number)}"
    return f"{table.to.rstrip('/')}/{line.place(number)}"


def _name(issuer: str, receiver: str) -> str:
    return issuer if receiver == settings.DEFAULT else f"{issuer} to {receiver}"


def _argument(context: contexts.IssuerContext, receiver: str) -> str:
    """Return a receiver as a command names it, "" for the default one where there is no other."""
    is_only = len(receivers.receivers_of(context)) == 1
    return "" if receiver == settings.DEFAULT and is_only else receiver


def _marked(line: str, dry_run: bool) -> str:
    return f"dry run, nothing was written: {line}" if dry_run else line


# Acknowledgements
# --------------------------------------------------------------------------------------------------


ACKNOWLEDGE = Form(
    "acknowledge",
    "acknowledgements of {issuer}",
    retries=(10, 60),
)
LEFT_OUT = {"files"}  # of a record's facts: they begin with the moment
NOT_WANTED = "no [acknowledgement] in its TOML: the issuer is told nothing"


@entry("acknowledge", form=ACKNOWLEDGE)
def acknowledge(
    context: Context,
    issuer: Issuer,
    *,
    confirm: Number | None = None,
    reason: Reason = "",
    dry_run: DryRun = False,
) -> Result:
    """Tell ISSUER what became of its extracts, as far as that is new; `submit` and `ingest` do so
    at their end.

    Args:
        issuer: Whose extracts. `[acknowledgement]` says where the files go, and to whom they are
            sealed.
        confirm: Record that the issuer has this acknowledgement and those before it; then give the
            reason, such as its receipt.

    Example:
        cardlink acknowledge first-bank --dry-run
    """
    issuer_context = wire(context.folder, issuer, dry_run=dry_run)
    facts = {"issuer": issuer, "dry_run": dry_run}
    if confirm is not None:
        confirmed = acknowledgement.confirm(issuer_context, confirm, reason)
        line = (
            f"{issuer}: acknowledgement {confirm} confirmed by {confirmed.by}: {confirmed.reason}"
        )
        facts |= {"number": confirm, **confirmed.model_dump(mode="json")}
        recording = Step("acknowledge", issuer, confirm=confirm, reason=reason)
        return Result(facts, [_marked(line, dry_run)], recording if dry_run else None)
    if settings.acknowledging(issuer_context.issuer) is None:
        return Result({**facts, "told": []}, [f"{issuer}: {NOT_WANTED}"])
    facts_told, lines = tell(issuer_context, dry_run=dry_run)
    nothing = _marked(f"{issuer}: nothing new to tell the issuer", dry_run)
    next_step = Step("acknowledge", issuer) if dry_run and lines else None
    return Result({**facts, "told": facts_told}, lines or [nothing], next_step)


def tell(
    context: contexts.IssuerContext, *, dry_run: bool = False
) -> tuple[list[dict[str, object]], list[Place]]:
    """Tell an issuer what is new of its extracts; return that as facts and as lines."""
    if settings.acknowledging(context.issuer) is None:
        return [], []
    written = acknowledgement.acknowledge(context)
    acknowledgement.take_receipts(context)
    facts = [
        {"number": each.number, **each.record.model_dump(mode="json", exclude=LEFT_OUT)}
        for each in written
    ]
    return facts, [_told_line(context, each, dry_run=dry_run) for each in written]


def after_commit(context: contexts.IssuerContext, result: Result) -> Result:
    """Return the result of a command, with what the issuer was told because of it.

    Where it cannot be told, that is said, and the command is done all the same.
    """
    try:
        written, lines = tell(context)
    except CardlinkError as error:
        failed = Sentence("the issuer was not told: {error}", error=error.text)
        return _beside(result, "not_acknowledged", str(error.text), [failed])
    return _beside(result, "acknowledgements", written, lines) if written else result


def _told_line(
    context: contexts.IssuerContext, written: acknowledgement.Told, *, dry_run: bool
) -> Place:
    record = written.record
    counts = ", ".join(f"{number:,} {status}" for status, number in record.rows.items() if number)
    issuer = context.issuer.issuer
    folder = _folder(
        context,
        acknowledgement.acknowledgements_to(issuer),
        settings.acknowledging(context.issuer),
        written.number,
    )
    rows = f" ({counts})" if counts else ""
    line = f"{issuer}: acknowledgement {written.number} of {record.extract}: {record.status}{rows}"
    return Place("" if dry_run else folder, _marked(line, dry_run))


def after_ingest(context: contexts.IssuerContext, result: Result) -> Result:
    """Deliver links to the receivers that want them now, and tell the issuer of its extracts."""
    return after_commit(context, with_deliveries(context, result))
