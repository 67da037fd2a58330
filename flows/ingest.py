"""The answer: new result files are taken up, attributed and reconciled, and the reports rebuilt. Thin on purpose."""

from __future__ import annotations

from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_markdown_artifact, create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.core.errors import guarded
from flows.steps.ingest import take_up
from flows.steps.report import RunReport, rebuild
from flows.wiring import config_folder, wire


@task(name="take up results", persist_result=False, cache_policy=NO_CACHE)
@guarded
def take(issuer: str) -> dict[str, Any]:
    """Attribute every result file not taken up yet; return counts and the runs they touch."""
    taken = take_up(wire(config_folder(), issuer))
    return {"files": taken.files, "rows": taken.rows, "runs": list(taken.runs), "breaks": list(taken.breaks)}


@task(name="report run", task_run_name="report {run}", persist_result=False, cache_policy=NO_CACHE)
@guarded
def report(issuer: str, run: str) -> dict[str, Any]:
    """Rebuild one run's report; return its balance in numbers."""
    rebuilt = rebuild(wire(config_folder(), issuer), run)
    _show(rebuilt)
    return rebuilt.summary


@flow(name="ingest", flow_run_name="ingest {issuer}", persist_result=False, log_prints=False)
@guarded
def ingest(issuer: str, run: str | None = None) -> list[dict[str, Any]]:
    """Take up new result files from the portal, reconcile them, and report per run.

    Args:
        issuer: The issuer, as its TOML file is named.
        run: A run id whose report is rebuilt even without new results; leave empty otherwise.
    """
    log = get_run_logger()
    taken = take(issuer)
    log.info("%s: %d result files with %d rows taken up", issuer, taken["files"], taken["rows"])
    for trouble in taken["breaks"]:
        log.warning("%s", trouble)
    reports = [report(issuer, one) for one in sorted({*taken["runs"], *([run] if run else [])})]
    for summary in reports:
        log.info("%s: %s", summary["run"], summary["verdict"])
    return reports


def _show(rebuilt: RunReport) -> None:
    """Show the balance, and the breaks where there are any."""
    run = rebuilt.summary["run"]
    create_markdown_artifact(rebuilt.balance.markdown(), key=f"{run}-balance", description=rebuilt.summary["verdict"])
    if rebuilt.breaks:
        table = [found._asdict() for found in rebuilt.breaks]
        create_table_artifact(table, key=f"{run}-breaks", description="What does not balance, and what to do")
