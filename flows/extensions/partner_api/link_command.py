"""`cardlink link`: links from the partner now, for a row, for many, or for fields typed in."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.parameters import Field, Number, Reason
from flows.commands.result import Part, Result, Table
from flows.configuration import read_file
from flows.errors import OperatorError
from flows.redaction import spare
from flows.steps import FILE, ISSUER, ROW, RUN, Option, Sentence, Step, counted

with on_first_use():
    from flows.extensions.partner_api import (
        connection,
        link_plan,
        link_requests,
        linking,
        run_links,
        terminal,
    )
    from flows.runs import stored_run
    from flows.submissions import build
    from schemas import records

if TYPE_CHECKING:
    from flows.extensions.partner_api.link_requests import Terms
    from flows.runs.context import IssuerContext
    from flows.runs.single_links import SingleLink

# exit code if the partner created no link, or a job ended without its card placed
NO_LINK_OR_CARD = 3
LISTED = 50  # rows without a link, shown one by one


class OneWayError(OperatorError):
    """Links were requested in no way or in two."""

    message = Sentence(
        "Name either a row of a run, or one of {prompt}, {errors} and {rows}.",
        prompt=Option("--prompt", of="link"),
        errors=Option("--errors", of="link"),
        rows=Option("--rows", of="link"),
    )
    next_step = Sentence(
        "Type {of_row}, {of_errors}, {of_file}, or {typed} at a terminal.",
        of_row=Step("link", RUN, ROW),
        of_errors=Step("link", RUN, errors=True),
        of_file=Step("link", ISSUER, rows=FILE),
        typed=Step("link", ISSUER, prompt=True),
    )


@entry(
    "link",
    form="it shows one person's secret link, and fields are typed at a terminal",
    acts={"override": "override", "link": ""},
)
def link(
    context: Context,
    target: Annotated[str, Field(metavar="RUN|ISSUER")],
    row: Number | None = None,
    *,
    errors: bool = False,
    rows: Annotated[str, Field(metavar="FILE")] = "",
    prompt: bool = False,
    retry_refused: bool = False,
    expires: Annotated[str, Field(metavar="DATE|PERIOD")] = "",
    by_reference: bool = False,
    override: Annotated[Reason, Field(metavar="REASON")] = "",
    dry_run: bool = False,
) -> Result:
    """Request links from the partner now: one for ROW of RUN, or many, with --errors or --rows; or
    with --prompt one for fields typed in for ISSUER.

    Of many, each is recorded before and after its request; the same command again goes on where it
    stopped and requests nothing twice.

    Args:
        target: A run, or an issuer.
        row: A row of the run, by its number.
        errors: For every row of the run that the partner refused and that has no link; for an
            issuer, of all runs.
        rows: For the rows that a file names, one a line: RUN,ROW, or a cuid.
        prompt: Prompt for the fields instead of reading a row of a run.
        retry_refused: With --errors or --rows, request again what the partner refused as a single
            link before.
        expires: Last day of the links: a date such as 2027-01-31, or a period from today such as
            60d or 3mo (default: `link_expires` of [service], else the partner's 2 months).
        by_reference: For rows that have or had a link, name the card by the partner's own
            reference, which the record of that link has; no card number is sent. Where the extract
            of ROW is gone, name and address are typed in.
        override: Why links are requested for cards that have a link or await one; recorded.
        dry_run: Show for which rows a link would be requested and why not for the others; request
            nothing.

    Example:
        cardlink link first-bank-20261120-3f9c21aa --errors --dry-run
    """
    ways = (row is not None, errors, bool(rows), prompt)
    if sum(ways) != 1:
        raise OneWayError
    issuer_context = context.context_of_target(target, dry_run=dry_run)
    until = link_requests.end_of_links(issuer_context, expires)
    issuer_context = link_requests.judged_until(issuer_context, until)
    references = _references(issuer_context, prompt=prompt) if by_reference else None
    terms = link_requests.Terms(override, until, references)
    if prompt and dry_run:
        line = "dry run: the fields are typed in when the link is requested; nothing was requested"
        return Result({"issuer": issuer_context.issuer.issuer, "dry_run": True}, [line])
    if errors or rows or dry_run:
        names = _row_names(context, issuer_context, target, row, rows)
        plan = link_plan.plan_links(issuer_context, names, retry_refused=retry_refused)
        if dry_run:
            links = linking.rehearse_links(issuer_context, plan, terms=terms)
            return _rehearsed(issuer_context.issuer.issuer, target, links, terms)
        return _requested(context, issuer_context, target, plan, terms)
    return _single(context, issuer_context, target, row, terms)


def _references(context: IssuerContext, *, prompt: bool) -> run_links.CardReferences:
    """Return what finds the cards that references name; CardReferenceError for typed ones."""
    if prompt:
        raise run_links.CardReferenceError(reason="what is typed in is no card of a link")
    return run_links.CardReferences(link_requests.service_of(context))


def _row_names(
    context: Context, issuer_context: IssuerContext, target: str, row: int | None, file: str
) -> list[link_plan.RowName]:
    """Return the rows that a link is wanted for: one, those of a file, or what was refused."""
    if row is not None:
        return [link_plan.RowName(target, row)]
    if file:
        content = read_file(Path(file), Option("--rows", of="link"))
        return link_plan.rows_of_file(issuer_context, file, content)
    if context.issuer_of(target):
        return link_plan.refused_rows_of_all_runs(issuer_context)
    run = stored_run.StoredRun.by_id(issuer_context.adapters, target)
    return link_plan.refused_rows(run)


def _requested(
    context: Context,
    issuer_context: IssuerContext,
    target: str,
    plan: link_plan.LinkPlan,
    terms: Terms,
) -> Result:
    """Request the links of a plan, and show what came of each row."""
    issuer = issuer_context.issuer.issuer
    with (
        connection.service_client(issuer_context.issuer) as client,
        context.progress(target) as show,
    ):

        def on_row(done: int, rows: int) -> None:
            show(build.Progress(done, 0, done / rows))

        links = linking.request_links(
            issuer_context, client, plan, terms=terms.reading(client), on_row=on_row
        )
    shown = [*_balance_lines(target, links, terms), *_others(links)]
    facts = _facts(issuer, links, is_rehearsal=False)
    code = 0 if links.balance.get(records.LINKED, 0) == len(links.outcomes) else NO_LINK_OR_CARD
    if links.stopped is not None:
        problem = links.stopped
        facts["problem"] = {"kind": type(problem).__name__, "message": str(problem.text)}
        return Result(facts, [*shown, "", problem.text], exit_code=problem.exit_code)
    step = Step("deliver", issuer) if links.balance.get(records.LINKED) else None
    return Result(facts, shown, step, code)


def _rehearsed(issuer: str, target: str, links: linking.ManyLinks, terms: Terms) -> Result:
    """Show for which rows a link would be requested."""
    title = f"dry run, nothing was requested: {target}"
    shown = [*_balance_lines(title, links, terms), *_others(links)]
    return Result(_facts(issuer, links, is_rehearsal=True), shown)


def _balance_lines(title: str, links: linking.ManyLinks, terms: Terms) -> Iterator[str]:
    """Yield the balance: every row is in one of its terms."""
    counts = dict(links.balance)
    rows = counts.pop("rows")
    before = counts.pop("linked before")
    outcomes = " + ".join(f"{count:,} {outcome}" for outcome, count in counts.items())
    yield f"{title}: {counted(rows, 'row')} = {outcomes or 'none that the partner refused'}"
    if terms.until is not None:
        yield f"each is requested until {terms.until}"
    if before:
        yield f"{before:,} of them were linked before this command"
    others = sum(outcome.why == linking.OTHER_DAY for outcome in links.outcomes.values())
    if others:
        yield f"{others:,} of them expire on another day than was requested, by the partner's word"


def _others(links: linking.ManyLinks) -> Iterator[Part]:
    """Yield the rows without a link, by what became of them."""
    others = [
        (name.run, name.row, outcome.outcome, outcome.why)
        for name, outcome in links.outcomes.items()
        if outcome.outcome != records.LINKED and outcome.why != linking.NOT_REACHED
    ]
    if others:
        yield ""
        yield Table(("run", "row", "outcome", "why"), others[:LISTED])
    if len(others) > LISTED:
        yield f"and {len(others) - LISTED:,} more; --json has them all"
    if any(outcome == link_plan.LOST for _, _, outcome, _ in others):
        yield "lost: a link may exist; ask the partner, then request it by its row with --override"


def _facts(issuer: str, links: linking.ManyLinks, *, is_rehearsal: bool) -> dict[str, Any]:
    each = [{**name._asdict(), **outcome._asdict()} for name, outcome in links.outcomes.items()]
    return {"issuer": issuer, "dry_run": is_rehearsal, "balance": links.balance, "each": each}


def _single(
    context: Context, issuer_context: IssuerContext, target: str, row: int | None, terms: Terms
) -> Result:
    """Request one link: for a row of a run, or without one for fields typed in."""
    with connection.service_client(issuer_context.issuer) as client:
        if row is None:
            fields = terminal.typed_fields(context.terminal)
            single = linking.link_typed(issuer_context, client, fields, terms=terms)
        else:
            supply = partial(terminal.supplied, context.terminal)
            single = linking.link_row(
                issuer_context, client, target, row, terms=terms.reading(client), supply=supply
            )
    return _linked(single)


def _linked(single: SingleLink) -> Result:
    answer = single.answered
    cuid = single.asked.cuid
    facts: dict[str, Any] = {"attempt": single.id}
    reasons = "unknown"
    if answer is not None:
        facts |= answer.model_dump(mode="json")
        reasons = ", ".join(answer.reasons)
        if answer.message:
            reasons += f": {answer.message}"
    facts["cuid"] = cuid
    recorded = f"recorded: {single.id}"
    if answer is None or answer.outcome != records.LINKED:
        lines = [f"{cuid}: no link ({reasons})", recorded]
        return Result(facts, lines, exit_code=NO_LINK_OR_CARD)
    spare(str(answer.url))
    expires = f"{cuid}: expires on {answer.expires_on}"
    if single.ends_otherwise:
        expires += f" by the partner's record; {single.asked.link_until} was requested"
    if answer.expires_form:
        expires += f", as is usual or was requested: {answer.expires_form} cannot be read"
    lines = [
        f"{answer.url}",
        expires,
        recorded,
        "send the URL to this cardholder and to nobody else",
    ]
    return Result(facts, lines)
