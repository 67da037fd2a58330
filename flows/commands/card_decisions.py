"""Decide about cards: they need no link any more, or the link that they have is enough."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import (
    DryRun,
    Field,
    Number,
    Reason,
    ReasonCode,
    Rows,
    Target,
    shown,
)
from flows.commands.remediation import MEND, remediated
from flows.commands.result import Result
from flows.redaction import redact
from flows.steps import Step, counted

with on_first_use():
    from flows.operations import giving_up
    from flows.resend import keeping_links

# a cuid is kept out of every form's log
GIVE_UP = Form("give_up", "give up: {run}", without=("cuid", "chunk", "undo"))
Cuid = Annotated[str, Field(help="A cardholder's reference at the issuer.")]


@entry("mend give-up", form=GIVE_UP, acts={"give-up": ""})
def give_up(
    context: Context,
    run: Target,
    *,
    row: Sequence[Number] = (),
    cuid: Sequence[Cuid] = (),
    codes: Annotated[Sequence[ReasonCode], Field("--code")] = (),
    chunk: Sequence[Number] = (),
    before: date | None = None,
    nameless: bool = False,
    rows: Rows = "",
    undo: bool = False,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Give up cards that need no link any more, such as of a closed account.

    Nobody waits for them, they are not sent again, and a link that they have is withdrawn.

    Args:
        run: The run whose rows are meant; or an issuer: all of its cards.
        row: The card of a row of RUN, by its number.
        cuid: The cards of a cardholder, by the cuid; of RUN, those in its rows.
        codes: Cards without a link for these reasons, ours or the partner's, or a first part of
            one: address.postal_code.
        chunk: Cards of RUN that wait for an answer in this chunk, by its number.
        before: Of the cards that --code means, those of runs before this business date.
        nameless: Rows that name no cardholder, which no other option means but --row.
        undo: Take the cards up again.

    Example:
        cardlink mend give-up first-bank --cuid c-4711 --reason 'account closed'
    """
    issuer = context.issuer_of(run)
    issuer_context = context.context_of_target(run, dry_run=dry_run)
    which = giving_up.Which(
        "" if issuer else run,
        frozenset(row),
        frozenset(cuid),
        frozenset(codes),
        frozenset(chunk),
        before,
        nameless,
    )
    is_named = not (codes or chunk or nameless)
    expected = shown(rows, is_named=is_named, dry_run=dry_run)
    decided = giving_up.give_up(issuer_context, which, reason, expected, undo=undo)
    act = "taken up again" if undo else "given up"
    parts = [counted(decided.cards, "card")] if decided.cards or not decided.nameless else []
    if decided.nameless:
        parts.append(counted(decided.nameless, "row that names", "rows that name") + " nobody")
    line = f"{run}: {' and '.join(parts)} {act}"
    if not decided.standing:
        line = f"{run}: nothing new; everything selected is {act} already"
    when = "now" if undo else "until then"
    if decided.states:
        line += f" ({', '.join(decided.states)} {when})"
    facts = {"target": run, "what": act, **decided.facts, "reason": redact(reason)}
    next_step = Step("worklist", issuer_context.issuer.issuer)
    rows_decided = None if is_named else sum(decided.standing.values())
    return remediated(facts, [line], next_step, dry_run, rows_decided)


@entry("mend keep-link", form=MEND, acts={"keep-link": ""})
def keep_link(
    context: Context,
    run: Target,
    *,
    row: Sequence[Number] = (),
    cuid: Sequence[Cuid] = (),
    changed: bool = False,
    replacing: bool = False,
    refused: bool = False,
    rows: Rows = "",
    undo: bool = False,
    reason: Reason,
    dry_run: DryRun = False,
) -> Result:
    """Keep links as they are, although a newer row of their card says something else.

    A later change that differs is asked about again; the next renewal sends what the card has then.

    Args:
        run: The run whose rows say so; or an issuer: all of its links that are to be replaced.
        row: The link of the card of a row of RUN, by its number.
        cuid: The links of a cardholder, by the cuid.
        changed: Of cards whose name or address has changed: it does not matter.
        replacing: Of cards whose row was to replace the link and was refused: the link is enough.
        refused: Of cards of which we refused a newer row: the link is enough until it ends.
        undo: Ask about these links again.

    Example:
        cardlink mend keep-link first-bank --changed --rows 2 --reason 'same ZIP'
    """
    issuer = context.issuer_of(run)
    issuer_context = context.context_of_target(run, dry_run=dry_run)
    which = keeping_links.Which(
        "" if issuer else run, frozenset(row), frozenset(cuid), changed, replacing, refused
    )
    is_named = bool(row or cuid)
    expected = shown(rows, is_named=is_named, dry_run=dry_run)
    decided = keeping_links.keep_links(issuer_context, which, reason, expected, undo=undo)
    act = "asked about again" if undo else "kept"
    line = f"{run}: {counted(decided.links, 'link')} {act}"
    if decided.record is None:
        line = f"{run}: nothing new; the links selected are {act} already"
    facts = {"target": run, "what": act, "links": decided.links, "reason": redact(reason)}
    facts["sha256"] = decided.sha256
    next_step = Step("worklist", issuer_context.issuer.issuer)
    rows_decided = None if is_named else decided.links
    return remediated(facts, [line], next_step, dry_run, rows_decided)
