"""The partner's interface beyond the file, as commands.

A placement job in the terminal, placements of the links.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any, Final

from flows.commands import on_first_use
from flows.commands.context import Context
from flows.commands.entry import entry
from flows.commands.form import Form
from flows.commands.parameters import Field, Issuer, RunName
from flows.commands.result import Part, Place, Result
from flows.commands.results import break_lines
from flows.configuration import load_issuer
from flows.errors import CardlinkError, OperatorError, TryAgainError
from flows.extensions.partner_api.link_command import NO_LINK_OR_CARD
from flows.steps import Sentence, Slot, Step
from flows.wiring import wire

with on_first_use():
    from flows.extensions.partner_api import settings as own_settings

if TYPE_CHECKING:
    import schemas.issuer
    from flows.extensions.partner_api.follow_job import Clock, Followed

POSTED: Final = (
    "Answers are posted to the messaging endpoint, which the partner does not recommend; without "
    "--post-answers the job is updated, which does the same."
)


class FollowingStoppedError(TryAgainError):
    """Following was stopped; the job continues."""

    message = (
        "Stopped following job {job} of {issuer}. "
        "The job continues; its open requests will time out."
    )
    next_step = Sentence(
        "To follow it again: {follow:bare}",
        follow=Step("job follow", Slot("issuer"), Slot("job")),
    )


class WatchingStoppedError(TryAgainError):
    """Watching was stopped; the job continues."""

    message = "Stopped watching job {job} of {issuer}. The job continues."
    next_step = Sentence(
        "To watch it again: {watch:bare}",
        watch=Step("job watch", Slot("issuer"), Slot("job")),
    )


class OtherIssuerError(OperatorError):
    """A run of another issuer than the one named."""

    message = "{run} is not a run of {issuer}."
    next_step = Sentence(
        "{status} lists its runs.",
        status=Step("worklist", Slot("issuer"), all=True),
    )


@entry("job follow", form="it prompts a person for what the job needs")
def job_follow(
    context: Context,
    issuer: Issuer,
    job: Annotated[str, Field(metavar="JOB")],
    *,
    poll: bool = False,
    post_answers: bool = False,
) -> Result:
    """Follow JOB to its end: show its progress, prompt for what it needs, warn before it times out.

    Args:
        issuer: Whose job.
        job: Its id at the partner.
        poll: Poll the job's record instead of reading its messages, each of which can be read only
            once.
        post_answers: Post what is typed to the messaging endpoint instead of updating the job. The
            partner does not recommend it; the update does the same.

    Example:
        cardlink job follow first-bank 0f8b3c2e
    """
    from flows.extensions.partner_api.connection import service_client
    from flows.extensions.partner_api.follow_job import follow
    from flows.extensions.partner_api.profile import INTERFACE
    from flows.extensions.partner_api.terminal import Watcher

    settings = load_issuer(context.folder, issuer)
    profile = settings.table(own_settings.ServiceSettings) or INTERFACE
    watcher = Watcher(context.terminal)
    with service_client(settings) as client:
        answer = client.post_answer if post_answers else client.answer
        if post_answers:
            watcher.note(POSTED)
        try:
            clock = _clock(settings)
            ended = follow(
                client, job, watcher, clock, polling=poll, profile=profile, answer=answer
            )
        except KeyboardInterrupt:
            pass
        else:
            return _ended(issuer, ended)
    raise FollowingStoppedError(issuer=issuer, job=job)


@entry("job watch", form="it shows a person a job as it moves")
def job_watch(
    context: Context,
    issuer: Issuer,
    job: Annotated[str, Field(metavar="JOB")],
) -> Result:
    """Watch JOB to its end by a broadcast channel of its own: show its progress, answer nothing.

    No other client misses a message, so that it can be watched while somebody follows it.

    Args:
        issuer: Whose job.
        job: Its id at the partner.

    Example:
        cardlink job watch first-bank 0f8b3c2e
    """
    from flows.extensions.partner_api.connection import service_client
    from flows.extensions.partner_api.follow_job import watch
    from flows.extensions.partner_api.terminal import Watcher

    settings = load_issuer(context.folder, issuer)
    with service_client(settings) as client:
        try:
            ended = watch(client, job, Watcher(context.terminal), _clock(settings))
        except KeyboardInterrupt:
            pass
        else:
            return _ended(issuer, ended)
    raise WatchingStoppedError(issuer=issuer, job=job)


def _clock(settings: schemas.issuer.Issuer) -> Clock:
    """Return the clock of somebody who looks at a job."""
    from flows.extensions.partner_api.follow_job import EVERY_SECONDS, Clock

    service = settings.table(own_settings.ServiceSettings)
    every = service.follow_every_seconds if service else EVERY_SECONDS
    return Clock(time.monotonic, time.sleep, every)


def _ended(issuer: str, ended: Followed) -> Result:
    """Show how a job ended."""
    lines = [f"job {ended.job_id}: {ended.status}, {ended.termination_type}", ended.meaning]
    code = 0 if ended.placed else NO_LINK_OR_CARD
    return Result({"issuer": issuer, **ended._asdict()}, lines, exit_code=code)


@entry(
    "placements",
    form=Form("placements", "placements of {issuer}", 12, retries=(60, 600), actor="optional"),
)
def placements(
    context: Context, issuer: Issuer, run: RunName = "", *, again: bool = False
) -> Result:
    """Query the partner for the placements of ISSUER's links: opened, authenticated, placed, failed
    by kind.

    A check takes as long as `look_minutes` of [service] allows, and says how many checks the links
    that it left would take: of 20,000 that are all due it needs about eight, of new ones fifteen.

    Args:
        issuer: Whose links (default: those of every run with active links).
        run: Only this run's links.
        again: Query also the links that were queried recently.

    Example:
        cardlink placements first-bank
    """
    from flows.extensions.partner_api.connection import service_client
    from flows.extensions.partner_api.follow_links import follow_links
    from flows.extensions.partner_api.placements import transactions
    from flows.extensions.partner_api.words import (
        doubt_line,
        funnel_tables,
        has_no_response,
        problem_of,
        queries,
    )
    from flows.runs.keys import keys_of

    if run and keys_of(run).run.issuer != issuer:
        raise OtherIssuerError(run=run, issuer=issuer)
    issuer_context = wire(context.folder, issuer)
    service = issuer_context.issuer.table(own_settings.ServiceSettings)
    with service_client(issuer_context.issuer) if service else nullcontext() as client:
        facts = follow_links(issuer_context, client, run, recheck=again)
    root = issuer_context.issuer.root
    problem = problem_of(facts, f"{root}/{transactions(issuer)}")
    shown: list[Part] = [
        *queries(service, facts),
        "",
        *funnel_tables(run or issuer, facts["funnel"]),
        *map(doubt_line, facts["doubts"]),
        *_break_lines(facts["breaks"]),
    ]
    if run:
        shown += ["", Place(f"files: {root}/{keys_of(run).report('')}")]
    if problem is not None:
        return _with_problem(facts, shown, problem)
    code = 4 if facts["breaks"] else 0
    if has_no_response(facts):
        return Result(facts, shown, Step("placements", issuer), code or TryAgainError.exit_code)
    return Result(facts, shown, exit_code=code)


def _with_problem(facts: dict[str, Any], shown: Sequence[Part], problem: CardlinkError) -> Result:
    """Show what is known, and the error that says why it is not more.

    An issuer that does not use the partner's API, or not its messages, is no failure of its
    scheduled flow.
    """
    from flows.extensions.partner_api.words import JobsNeverAskedError, LinksUnknownError

    facts = {
        **facts,
        "problem": {"kind": type(problem).__name__, "message": str(problem.text)},
    }
    code = 4 if facts["breaks"] else problem.exit_code
    is_unused = isinstance(problem, LinksUnknownError | JobsNeverAskedError)
    failure = None if is_unused else problem
    return Result(
        facts,
        [*shown, "", problem.text],
        exit_code=code,
        failure=failure,
        headline=problem.what_happened,
    )


def _break_lines(breaks: Sequence[dict[str, Any]]) -> Iterator[str]:
    for break_ in breaks:
        yield from break_lines(break_, break_["then"])
