"""The partner's interface beyond the file: one link now, a placement job in the terminal,
placements of the links.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from flows.commands import on_first_use
from flows.commands.entry import Context, Form, entry
from flows.commands.parameters import Field, Issuer, Number, Reason, RunName
from flows.commands.result import Result, Table
from flows.commands.results import break_lines
from flows.configuration import load_issuer
from flows.errors import OperatorError, TryAgainError
from flows.redaction import hiding
from flows.steps import ISSUER, ROW, RUN, Option, Sentence, Slot, Step
from flows.wiring import begin_process, secret, wire

with on_first_use():
    from flows.runs import retry as retries

if TYPE_CHECKING:
    from flows.partner_api.client import ServiceClient
    from flows.runs.single_links import SingleLink
    from schemas.issuer import Issuer as IssuerSettings

# exit code if the partner created no link, or a job ended without its card placed
NO_LINK_OR_CARD = 3


class OneWayError(OperatorError):
    """A link was requested in no way or in two."""

    message = Sentence(
        "Name either a row of a run, or an issuer with {prompt}.",
        prompt=Option("--prompt", of="link"),
    )
    next_step = Sentence(
        "Type {of_row}, or {typed} at a terminal.",
        of_row=Step("link", RUN, ROW),
        typed=Step("link", ISSUER, prompt=True),
    )


class FollowingStoppedError(TryAgainError):
    """Following was stopped; the job continues."""

    message = "Stopped following job {job} of {issuer}. The job continues; its open requests will time out."
    next_step = Sentence(
        "To follow it again: {follow:bare}",
        follow=Step("job follow", Slot("issuer"), Slot("job")),
    )


class OtherIssuerError(OperatorError):
    """A run of another issuer than the one named."""

    message = "{run} is not a run of {issuer}."
    next_step = Sentence(
        "{status} lists its runs.",
        status=Step("status", Slot("issuer")),
    )


@contextmanager
def service_client(issuer: IssuerSettings) -> Iterator[ServiceClient]:
    """Open the client of an issuer's [service]; NoServiceError, ServiceSecretsError,
    FileUnreadableError.
    """
    from flows.partner_api.client import open_client
    from flows.partner_api.service import NoServiceError, ServiceSecretsError
    from flows.partner_api.transport import Credentials

    begin_process()
    settings = issuer.service
    if settings is None:
        raise NoServiceError(issuer=issuer.issuer)
    names = {
        name: f"CARDLINK_SERVICE_{name.upper()}"
        for name in ("app_name", "app_key", "username", "password")
    }
    secrets = {name: secret(variable) for name, variable in names.items()}
    missing = [names[name] for name, value in secrets.items() if not value]
    if missing:
        raise ServiceSecretsError(names=", ".join(missing))
    retry = retries.Retry(attempts=settings.tries)
    with (
        hiding(secrets["app_key"], secrets["password"]),
        open_client(settings, Credentials(**secrets), retry) as client,
    ):
        yield client


@entry(
    "link",
    form="it shows one person's secret link, and fields are typed at a terminal",
    second="override",
    when="override",
)
def link(
    context: Context,
    target: Annotated[str, Field(metavar="RUN|ISSUER")],
    row: Number | None = None,
    *,
    prompt: bool = False,
    override: Annotated[Reason, Field(metavar="REASON")] = "",
) -> Result:
    """Request one link from the partner now: for ROW of RUN, or with --prompt for fields typed in
    for ISSUER.

    Args:
        target: A run, or with --prompt an issuer.
        row: A row of the run, by its number.
        prompt: Prompt for the fields instead of reading a row of a run.
        override: Why a link is requested for a card that has a link or awaits one; recorded.
    """
    from flows.partner_api.single_links import link_row, link_typed
    from flows.partner_api.terminal import supplied, typed_fields
    from flows.runs.keys import keys_of

    if prompt is (row is not None):
        raise OneWayError
    issuer_context = wire(context.folder, target if row is None else keys_of(target).run.issuer)
    with service_client(issuer_context.issuer) as client:
        if row is None:
            return _linked(
                link_typed(
                    issuer_context, client, typed_fields(context.terminal), override=override
                )
            )
        supply = partial(supplied, context.terminal)
        return _linked(
            link_row(issuer_context, client, target, row, override=override, supply=supply)
        )


def _linked(single: SingleLink) -> Result:
    from schemas.records import LINKED

    answer, cuid = single.answered, single.asked.cuid
    facts = {
        "attempt": single.key,
        **(answer.model_dump(mode="json") if answer else {}),
        "cuid": cuid,
    }
    recorded = f"recorded: {single.key}"
    if answer is None or answer.outcome != LINKED:
        why = ", ".join(answer.reasons) if answer else "unknown"
        return Result(facts, [f"{cuid}: no link ({why})", recorded], exit_code=NO_LINK_OR_CARD)
    lines = [f"{answer.url}", f"{cuid}: expires on {answer.expires_on}", recorded]
    return Result(facts, [*lines, "send the URL to this cardholder and to nobody else"])


@entry("job follow", form="it prompts a person for what the job needs")
def job_follow(
    context: Context,
    issuer: Issuer,
    job: Annotated[str, Field(metavar="JOB")],
    *,
    poll: bool = False,
) -> Result:
    """Follow JOB to its end: show its progress, prompt for what it needs, warn before it times out.

    Args:
        issuer: Whose job.
        job: Its id at the partner.
        poll: Poll the job's record instead of reading its messages, each of which can be read only
            once.
    """
    from flows.partner_api.follow_job import EVERY_SECONDS, Clock, follow
    from flows.partner_api.terminal import Watcher

    settings = load_issuer(context.folder, issuer)
    every = settings.service.follow_every_seconds if settings.service else EVERY_SECONDS
    with service_client(settings) as client:
        try:
            watcher, clock = Watcher(context.terminal), Clock(time.monotonic, time.sleep, every)
            ended = follow(client, job, watcher, clock, polling=poll)
        except KeyboardInterrupt:
            pass
        else:
            lines = [f"job {ended.job_id}: {ended.status}, {ended.termination_type}", ended.meaning]
            return Result(
                {"issuer": issuer, **ended._asdict()},
                lines,
                exit_code=0 if ended.placed else NO_LINK_OR_CARD,
            )
    raise FollowingStoppedError(issuer=issuer, job=job)


@entry(
    "placements",
    form=Form("placements", "placements of {issuer}", 12, retries=(60, 600), actor="optional"),
)
def placements(
    context: Context, issuer: Issuer, run: RunName = "", *, again: bool = False
) -> Result:
    """Query the partner for the placements of ISSUER's links: opened, authenticated, placed, failed
    by kind.

    Args:
        issuer: Whose links (default: those of every run with active links).
        run: Only this run's links.
        again: Query also the links that were queried recently.
    """
    from flows.partner_api.follow_links import follow_links
    from flows.runs.keys import keys_of
    from flows.runs.keys import placements as where

    if run and keys_of(run).run.issuer != issuer:
        raise OtherIssuerError(run=run, issuer=issuer)
    issuer_context = wire(context.folder, issuer)
    service = issuer_context.issuer.service
    with service_client(issuer_context.issuer) if service else nullcontext() as client:
        facts = follow_links(issuer_context, client, run, again=again)
    looked, reports = facts["looked"], facts["transactions"]
    asked, messages, unanswered = (
        sum(one[what] for one in looked) for what in ("asked", "messages", "unanswered")
    )
    shown: list[str | Table] = [
        f"{issuer}: {len(facts['runs']):,} runs, {asked:,} links queried, {messages:,} messages"
    ]
    if service is None:
        shown += ["the TOML has no [service]: only transaction reports count"]
    elif not service.follow_cardholders:
        shown += ["[service] follow_cardholders is off: jobs are not queried"]
    shown += [
        f"{one['unanswered']:,} links of {one['run']} got no response"
        for one in looked
        if one["unanswered"]
    ]
    shown += (
        [f"{reports['files']:,} transaction reports, {reports['rows']:,} rows"]
        if reports["files"]
        else []
    )
    shown += ["", *_funnel(run or issuer, facts["funnel"])]
    shown += [line for one in facts["breaks"] for line in break_lines(one, one["then"])]
    shown += [
        "",
        f"files: {issuer_context.issuer.root}/{keys_of(run).report('') if run else where(issuer)}",
    ]
    code = 4 if facts["breaks"] else 75 if unanswered else 0
    next_step = Step("placements", issuer) if unanswered else None
    return Result(facts, shown, next_step, code)


def _funnel(name: str, funnel: dict[str, Any]) -> list[str | Table]:
    """Return the funnel as tables: stages, failures by kind, by merchant site, by age of link."""
    from flows.partner_api.funnel import REACHED
    from flows.reports.wording import percent

    stages = [[one["stage"], one["cardholders"], percent(one["share"])] for one in funnel["stages"]]
    stages += [
        [f"failed: {one['kind']}", one["cardholders"], percent(one["share"])]
        for one in funnel["failed"]
    ]
    stages += [["in progress", funnel["under_way"], ""]] if funnel["under_way"] else []
    title = f"{name}: from link to placed card"
    shown: list[str | Table] = [
        Table(("cardholders who reached", "count", "share"), stages, f"{name}-funnel", title)
    ]
    for heading, column, found in (
        ("merchant site", "site", funnel["sites"]),
        ("age of link", "age", funnel["ages"]),
    ):
        rows = [[one[column], *(one[stage] for stage in REACHED)] for one in found if one["linked"]]
        shown += ["", Table((heading, *REACHED), rows)] if rows else []
    return shown
