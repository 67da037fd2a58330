"""The answer: new result files are taken up, attributed and reconciled, and the reports rebuilt. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from typing import Any, Literal

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from flows.core.errors import guarded
from flows.forms import IssuerName, RunIdText
from flows.nightly import HOURS, passing
from flows.shown import show_outbox, show_report
from flows.steps.answers.ingest import ingest as ingest_step
from flows.wiring import config_folder, wire


@task(
    name="ingest results",
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=[10, 60],
    retry_condition_fn=passing,
)
@guarded
def take_up(issuer: str, run: str) -> dict[str, Any]:
    """Attribute new result files, rebuild and show the reports they touch; return counts and summaries."""
    edges = wire(config_folder(), issuer)
    done = ingest_step(edges, run)
    for report in done.reports:
        show_report(edges, report)
    if done.reports:
        show_outbox(edges)
    return {**done._asdict(), "reports": [report.summary for report in done.reports]}


@flow(
    name="ingest",
    flow_run_name="results of {issuer}",
    persist_result=False,
    log_prints=False,
    timeout_seconds=2 * HOURS,
)
@guarded
def ingest(issuer: IssuerName, run: RunIdText | Literal[""] = "") -> list[dict[str, Any]]:
    """Take up new result files from the portal, reconcile them, and report per run.

    Args:
        issuer: Whose results. All that are new are taken up.
        run: A run id whose report is rebuilt even without new results; leave empty otherwise.
    """
    log = get_run_logger()
    done = take_up(issuer, run)
    log.info("%s: %d result files with %d rows taken up", issuer, done["files"], done["rows"])
    for trouble in done["breaks"]:
        log.warning("break: %s", trouble)
    reports: list[dict[str, Any]] = done["reports"]
    return reports
