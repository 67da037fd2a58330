"""The night: every extract that is not submitted yet goes all the way to its manifest. Thin on
purpose.
"""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard
# around it.
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed, Failed

from flows.commands.result import Result, worst
from flows.commands.submit import LONGEST, RERUN
from flows.commands.submit import submit as submit_verb
from flows.errors import guarded
from flows.extensions import starts_often
from flows.extracts.errors import EmptyExtractError
from flows.forms import (
    IssuerName,
    business_result,
    ended,
    failing,
    flow_context,
    keep,
    passing,
    show,
    to_do,
)
from flows.runs.business_date import day_off, local_day
from flows.submissions.night_extracts import NightExtracts, night_extracts
from flows.wiring import config_folder, wire


@task(name="find extracts", persist_result=False, cache_policy=NO_CACHE)
@guarded
def find(issuer: str) -> NightExtracts:
    """Return the extracts that are not submitted yet, oldest first, and those that are left."""
    return night_extracts(wire(config_folder(), issuer))


@task(
    name="submit extract",
    task_run_name="submit {extract}",
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=len(RERUN.retries),
    retry_delay_seconds=list[float](RERUN.retries),
    retry_condition_fn=passing,
)
@failing("nightly")
def submit(issuer: str, extract: str) -> Result:
    """Take one extract to its manifest and show where its rows went; return that, without facts if
    it is empty.
    """
    try:
        done = submit_verb(flow_context(), issuer, extract=extract)
    except EmptyExtractError:
        if wire(config_folder(), issuer).issuer.alerts.empty_extract == "alert":
            raise
        return Result({}, [f"{extract} is empty, which [alerts] empty_extract allows"])
    show(done, f"{done.facts['runs'][0]['run']}-submit")
    return done


def _run_name() -> Any:
    issuer = flow_run.get_parameters().get("issuer")
    return f"night of {issuer}, {flow_run.get_scheduled_start_time():%a %d %b %H:%M}"


def _sentence(done: list[Result], states: list[State[Any]]) -> str:
    """Return what came of the night: of each submitted extract, then of each that failed."""
    sentences = [result.sentence for result in done]
    sentences += [str(state.message) for state in states if not state.is_completed()]
    return "; ".join(sentences) or "no new extract"


def _lines(done: list[Result]) -> list[str]:
    """Return the lines of the submitted extracts' results, without their tables and links."""
    lines: list[str] = []
    for result in done:
        lines += result.texts
    return lines


def _runs(done: list[Result]) -> list[Any]:
    """Return the names of the runs; an extract that is empty has none."""
    return [result.facts["runs"][0]["run"] for result in done if result.facts]


@flow(
    name="nightly",
    flow_run_name=_run_name,
    persist_result=False,
    log_prints=False,
    timeout_seconds=LONGEST * 3600,
)
@failing("nightly")
def nightly(issuer: IssuerName, on_any_day: bool = False) -> State[Any]:
    """Submit an issuer's new extracts: check, split, seal and commit them for upload.

    Args:
        issuer: Whose extracts. All that are not submitted yet are, the oldest first.
        on_any_day: Run on a weekend or holiday of the issuer's calendar too; otherwise such a night
            is skipped.
    """
    log = get_run_logger()
    context = wire(config_folder(), issuer)
    why = day_off(
        context.issuer.schedule, local_day(context.adapters.now(), context.issuer.time_zone)
    )
    if why and not on_any_day:
        log.warning(
            "%s: no night today (%s); new extracts wait for the next business night", issuer, why
        )
        return Completed(name="Skipped", message=f"No night today: {why}")
    names, left = find(issuer)
    log.info("%s: %d extracts to submit", issuer, len(names))
    # a refused one does not stop the others
    states = [submit(issuer, name, return_state=True) for name in names]
    outcomes = [state.result(raise_on_failure=False) for state in states]
    done = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    failed = [outcome for outcome in outcomes if not isinstance(outcome, Result)]
    came = "; ".join([_sentence(done, states), *left])
    sentence = " ".join(filter(None, [business_result(context), f"{came}."]))
    keep(Result({}, [sentence, *_lines(done), to_do(issuer)]), f"{issuer}-night")
    if failed:
        return Failed(message=sentence, data=failed[0])
    # where extracts start their night themselves, the schedule finds none every hour
    is_idle = not names and starts_often(context.issuer)
    code = worst(result.exit_code for result in done)
    return ended(sentence, _runs(done), code, is_idle=is_idle)
