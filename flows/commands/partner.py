"""The partner's interface beyond the file: one link now, a placement job in the terminal, what became of the links."""

from __future__ import annotations

import time
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands.entry import Cli, Context, Form, Issuer, Number, Reason, RunName, entry
from flows.commands.result import Result, Table
from flows.errors import OperatorError, TryAgainError
from flows.wiring import load_issuer, service_client, wire

if TYPE_CHECKING:
    from flows.runs.links import SingleLink

NOT_LINKED = 3  # exit code where the partner made no link
NOT_PLACED = 3  # exit code of a job that ended without its card placed


class OneWayError(OperatorError):
    """A link was asked for in no way or in two."""

    message = "A link is for a row of a run, or for fields typed in."
    next_step = "Type `cardlink link RUN ROW`, or `cardlink link ISSUER --prompt` at a terminal."


class FollowingStoppedError(TryAgainError):
    """Following was stopped; the job goes on."""

    message = "Job {job} of {issuer} is no longer followed; it goes on, and its open requests wait until they time out."
    next_step = "To follow it again: cardlink job follow {issuer} {job}"


class OtherIssuerError(OperatorError):
    """A run of another issuer than the one named."""

    message = "{run} is not a run of {issuer}."
    next_step = "`cardlink status {issuer}` lists its runs."


@entry("link", form="its result is one person's secret link, and fields are typed in at a terminal")
def link(
    context: Context,
    target: Annotated[str, Cli(metavar="RUN|ISSUER")],
    row: Number | None = None,
    *,
    prompt: bool = False,
    override: Annotated[Reason, Cli(metavar="REASON")] = "",
) -> Result:
    """Request one link now: for ROW of RUN, or with --prompt for fields typed in for ISSUER.

    Args:
        target: A run, or with --prompt an issuer.
        row: Row number in the run.
        prompt: Prompt for the fields, for ISSUER, instead of a row of a run.
        override: Why a link is requested although the card has one or is awaiting one.
    """
    from flows.partner_api.single_links import link_row, link_typed
    from flows.partner_api.terminal import supplied, typed_fields
    from flows.runs.documents import run_of

    if prompt is (row is not None):
        raise OneWayError
    issuer_context = wire(context.folder, target if row is None else run_of(target).issuer)
    with service_client(issuer_context.issuer) as client:
        if row is None:
            return _linked(link_typed(issuer_context, client, typed_fields(context.terminal), override=override))
        supply = partial(supplied, context.terminal)
        return _linked(link_row(issuer_context, client, target, row, override=override, supply=supply))


def _linked(single: SingleLink) -> Result:
    from schemas.records import LINKED

    reported = single.answered
    facts = {"attempt": single.key, **(reported.model_dump(mode="json") if reported else {}), "cuid": single.asked.cuid}
    if reported is None or reported.outcome != LINKED:
        why = ", ".join(reported.reasons) if reported else "unknown"
        lines = [f"{single.asked.cuid}: no link ({why})", f"recorded: {single.key}"]
        return Result(facts, lines, exit_code=NOT_LINKED)
    lines = [f"{reported.url}", f"{single.asked.cuid}: ends on {reported.expires_on}", f"recorded: {single.key}"]
    return Result(facts, lines, "the URL is the cardholder's alone: send it to nobody else")


@entry("job follow", form="it prompts a person for what the job needs")
def job_follow(
    context: Context, issuer: Issuer, job: Annotated[str, Cli(metavar="JOB")], *, poll: bool = False
) -> Result:
    """Follow JOB to its end: show its progress, prompt for what it needs, warn before it times out.

    Args:
        issuer: Whose job.
        job: Its id at the partner.
        poll: Poll the job's record instead of reading its messages, which are given once.
    """
    from flows.partner_api.follow_job import EVERY_SECONDS, Clock, follow
    from flows.partner_api.terminal import Watcher, shown

    settings = load_issuer(context.folder, issuer)
    every = settings.service.follow_every_seconds if settings.service else EVERY_SECONDS
    clock = Clock(time.monotonic, time.sleep, every)
    with service_client(settings) as client:
        try:
            ended = follow(client, job, Watcher(context.terminal), clock, polling=poll)
        except KeyboardInterrupt:
            pass
        else:
            lines = [f"job {ended.job_id}: {shown(ended.status)}, {shown(ended.termination_type)}", ended.meaning]
            return Result({"issuer": issuer, **ended._asdict()}, lines, exit_code=0 if ended.placed else NOT_PLACED)
    raise FollowingStoppedError(issuer=issuer, job=job)


@entry("placements", form=Form("placements", "placements of {issuer}", hours=12, retries=(60, 600)))
def placements(context: Context, issuer: Issuer, run: RunName = "", *, again: bool = False) -> Result:
    """Check what became of the links of ISSUER, or of one RUN: opened, authenticated, placed, failed by kind.

    Args:
        issuer: Whose links; every run with live links is checked.
        run: Check the links of this run only.
        again: Check links again that were checked recently.
    """
    from flows.partner_api.follow_links import follow_links
    from flows.runs.documents import keys_of, run_of
    from flows.runs.keys import placements as where

    if run and run_of(run).issuer != issuer:
        raise OtherIssuerError(run=run, issuer=issuer)
    issuer_context = wire(context.folder, issuer)
    with service_client(issuer_context.issuer) if issuer_context.issuer.service else nullcontext() as service:
        facts = follow_links(issuer_context, service, run, again=again)
    unanswered = sum(one["unanswered"] for one in facts["looked"])
    files = f"{issuer_context.issuer.root}/{keys_of(run).report('') if run else where(issuer)}"
    shown: list[str | Table] = [
        *_asked(facts, issuer_context.issuer.service),
        "",
        *_funnel(run or issuer, facts["funnel"]),
    ]
    for one in facts["breaks"]:
        shown += ["", f"{one['name']} ({one['rows']:,} rows) {one['place']}", f"  {one['then']}"]
    code = 4 if facts["breaks"] else 75 if unanswered else 0
    next_step = f"cardlink placements {issuer}" if unanswered else ""
    return Result(facts, [*shown, "", f"files: {files}"], next_step, code)


def _asked(facts: dict[str, Any], service: Any) -> list[str]:
    """Say what was asked, and what was not and why."""
    looked, reports = facts["looked"], facts["transactions"]
    asked, messages = (sum(one[what] for one in looked) for what in ("asked", "messages"))
    lines = [f"{facts['issuer']}: {len(facts['runs']):,} runs, {asked:,} links asked of, {messages:,} messages kept"]
    if service is None:
        lines += ["no [service] in the TOML: only transaction reports count"]
    elif not service.follow_cardholders:
        lines += ["jobs are not looked for: [service] follow_cardholders is off"]
    lines += [f"{one['unanswered']:,} links of {one['run']} got no answer" for one in looked if one["unanswered"]]
    lines += [f"{reports['files']:,} transaction reports, {reports['rows']:,} rows"] if reports["files"] else []
    return lines


def _funnel(name: str, funnel: dict[str, Any]) -> list[str | Table]:
    """Return the funnel as tables: stages, failures by kind, by merchant site, by age of link."""
    from flows.reports.funnel import REACHED
    from flows.reports.page import percent

    stages = [[one["stage"], one["cardholders"], percent(one["share"])] for one in funnel["stages"]]
    stages += [[f"failed: {one['kind']}", one["cardholders"], percent(one["share"])] for one in funnel["failed"]]
    stages += [["placement under way", funnel["under_way"], ""]] if funnel["under_way"] else []
    title = f"{name}: from link to placed card"
    shown: list[str | Table] = [Table(("cardholders that came to", "count", "share"), stages, f"{name}-funnel", title)]
    for heading, column, found in (("merchant site", "site", funnel["sites"]), ("age of link", "age", funnel["ages"])):
        reported = [[one[column], *(one[stage] for stage in REACHED)] for one in found if one["linked"]]
        shown += ["", Table((heading, *REACHED), reported)] if reported else []
    return shown
