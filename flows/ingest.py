"""The answer: new result files are taken up, attributed and reconciled, and the reports rebuilt. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.core.errors import guarded
from flows.steps.ingest import ingest as ingest_step
from flows.steps.report import RunReport
from flows.wiring import config_folder, wire


@task(name="ingest results", persist_result=False, cache_policy=NO_CACHE)
@guarded
def take_up(issuer: str, run: str) -> dict[str, Any]:
    """Attribute new result files, rebuild and show the reports they touch; return counts and summaries."""
    done = ingest_step(wire(config_folder(), issuer), run)
    for report in done.reports:
        _show(report)
    return {**done._asdict(), "reports": [report.summary for report in done.reports]}


@flow(name="ingest", flow_run_name="ingest {issuer}", persist_result=False, log_prints=False)
@guarded
def ingest(issuer: str, run: str = "") -> list[dict[str, Any]]:
    """Take up new result files from the portal, reconcile them, and report per run.

    Args:
        issuer: The issuer, as its TOML file is named.
        run: A run id whose report is rebuilt even without new results; leave empty otherwise.
    """
    log = get_run_logger()
    done = take_up(issuer, run)
    log.info("%s: %d result files with %d rows taken up", issuer, done["files"], done["rows"])
    for trouble in done["breaks"]:
        log.warning("break: %s", trouble)
    for summary in done["reports"]:
        log.info("%s: %s", summary["run"], summary["verdict"])
    reports: list[dict[str, Any]] = done["reports"]
    return reports


def _show(rebuilt: RunReport) -> None:
    """Show the balance, and the breaks where there are any."""
    run = rebuilt.summary["run"]
    create_markdown_artifact(rebuilt.balance.markdown(), key=f"{run}-balance", description=rebuilt.summary["verdict"])
    if rebuilt.breaks:
        table = [found._asdict() for found in rebuilt.breaks]
        create_table_artifact(table, key=f"{run}-breaks", description="What does not balance, and what to do")
