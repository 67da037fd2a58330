"""The night: every extract that is not submitted yet goes all the way to its manifest. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from datetime import date
from typing import Any, Literal

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task

from flows.core.artifacts import chunk_rows, count_rows, reason_rows
from flows.core.errors import TryAgainError, guarded
from flows.steps.pending import pending
from flows.steps.submit import Request, Submitted
from flows.steps.submit import submit as submit_step
from flows.wiring import config_folder, wire

Gate = Literal["reject-rate", "row-jump"]


def passing(_task: Task[..., Any], _run: TaskRun, state: State[Any]) -> bool:
    """Retry only what the error tree calls passing; everything else needs somebody."""
    return isinstance(state.data, TryAgainError) or "TryAgain" in (state.message or "")


@task(name="find extracts", persist_result=False, cache_policy=NO_CACHE)
@guarded
def find(issuer: str) -> list[str]:
    """Name the extracts that are not submitted yet, oldest first."""
    return [entry.key for entry in pending(wire(config_folder(), issuer))]


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
def submit(issuer: str, extract: str, business_date: date | None, opened: list[Gate], new_run: str) -> dict[str, Any]:
    """Take one extract to its manifest; return the run's id and counts."""
    done = submit_step(wire(config_folder(), issuer), Request(extract, business_date, opened, new_run))
    _show(done)
    return {"run": done.manifest.run, "already": done.already, **done.manifest.counts.model_dump()}


@flow(name="nightly", flow_run_name="nightly {issuer}", persist_result=False, log_prints=False)
@guarded
def nightly(
    issuer: str,
    extract: str | None = None,
    business_date: date | None = None,
    open_gates: list[Gate] | None = None,
    new_run_reason: str = "",
) -> list[dict[str, Any]]:
    """Submit an issuer's extracts: check, split, seal and commit them for upload.

    Args:
        issuer: The issuer, as its TOML file is named.
        extract: One extract by file name; leave empty for all that are not submitted yet.
        business_date: The day the cards must be valid on; leave empty to take it from the extract's name.
        open_gates: Gates to let this run pass on purpose; recorded with the run.
        new_run_reason: Why an extract that already has a run gets another one; leave empty otherwise.
    """
    log = get_run_logger()
    names = [extract] if extract else find(issuer)
    log.info("%s: %d extracts to submit", issuer, len(names))
    runs = [submit(issuer, name, business_date, open_gates or [], new_run_reason) for name in names]
    for run in runs:
        log.info(
            "%s: %d rows read, %d submitted, %d rejected, %d duplicate, %d suppressed%s",
            *(run[word] for word in ("run", "read", "submitted", "rejected", "duplicate", "suppressed")),
            " (was already done)" if run["already"] else "",
        )
    return runs


def _show(done: Submitted) -> None:
    """Show where the rows went, why rows were refused, and what to upload next."""
    run = done.manifest.run
    create_table_artifact(count_rows(done.manifest), key=f"{run}-rows", description=f"Where the rows of {run} went")
    create_table_artifact(reason_rows(done.manifest), key=f"{run}-reasons", description="Reasons, with what to do")
    create_table_artifact(chunk_rows(done.manifest), key=f"{run}-chunks", description="To upload to the portal next")
