"""The night: every extract that is not submitted yet goes all the way to its manifest. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.runtime import flow_run
from prefect.states import Completed

from flows.commands.submit import LONGEST
from flows.commands.submit import submit as submit_verb
from flows.errors import guarded
from flows.extracts.errors import EmptyExtractError
from flows.forms import IssuerName, here, passing, show, show_outbox
from flows.runs.identity import day_off, local_day
from flows.submissions.pending import pending
from flows.wiring import config_folder, wire


@task(name="find extracts", persist_result=False, cache_policy=NO_CACHE)
@guarded
def find(issuer: str) -> list[str]:
    """Return the extracts that are not submitted yet, oldest first."""
    return [entry.key for entry in pending(wire(config_folder(), issuer), remember=True)]


@task(
    name="submit extract",
    task_run_name="submit {extract}",
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=3,
    retry_delay_seconds=[10, 60, 300],
    retry_condition_fn=passing,
)
@guarded
def submit(issuer: str, extract: str) -> str:
    """Take one extract to its manifest and show where its rows went; return the run's id, '' for an empty extract."""
    try:
        done = submit_verb(here(), issuer, extract=extract)
    except EmptyExtractError:
        if wire(config_folder(), issuer).issuer.alerts.empty_extract == "alert":
            raise
        get_run_logger().info("%s is empty, which [alerts] empty_extract allows", extract)
        return ""
    show(done)
    return str(done.facts["runs"][0]["run"])


def _run_name() -> Any:
    return f"night of {flow_run.get_parameters().get('issuer')}, {flow_run.get_scheduled_start_time():%a %d %b %H:%M}"


@flow(name="nightly", flow_run_name=_run_name, persist_result=False, log_prints=False, timeout_seconds=LONGEST * 3600)
@guarded
def nightly(issuer: IssuerName, on_any_day: bool = False) -> list[str] | State[None]:
    """Submit an issuer's new extracts: check, split, seal and commit them for upload.

    Args:
        issuer: Whose extracts. All that are not submitted yet are, the oldest first.
        on_any_day: Run on a weekend or holiday of the issuer's calendar too; otherwise such a night is skipped.
    """
    log = get_run_logger()
    context = wire(config_folder(), issuer)
    why = day_off(context.issuer.schedule, local_day(context.adapters.now(), context.issuer.time_zone))
    if why and not on_any_day:
        log.warning("%s: no night today (%s); new extracts wait for the next business night", issuer, why)
        return Completed(name="Skipped", message=f"No night today: {why}")
    names = find(issuer)
    log.info("%s: %d extracts to submit", issuer, len(names))
    ended = [submit(issuer, name, return_state=True) for name in names]  # a refused one does not stop the others
    show_outbox(issuer)
    return [run for state in ended if (run := state.result())]  # raises the first error
