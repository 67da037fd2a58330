"""The look across runs: what is outstanding since when, alerts for answers that do not come. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from datetime import date
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.core.errors import guarded
from flows.steps.answers.reconcile import reconcile_runs
from flows.wiring import config_folder, issuers, wire


@task(name="reconcile runs", task_run_name="reconcile {issuer}", persist_result=False, cache_policy=NO_CACHE)
@guarded
def look_across(issuer: str, start: date | None, end: date | None) -> dict[str, Any]:
    """Write and show the report across the runs of one issuer; return its verdict, counts and alerts."""
    facts = reconcile_runs(wire(config_folder(), issuer), start, end)
    waiting = facts["outstanding"]
    create_table_artifact(
        waiting["chunks"], key=f"{issuer}-outstanding", description=f"{issuer}: {facts['verdict']}, oldest first"
    )
    counts = {name: waiting[name] for name in ("count", "rows", "overdue")}
    return {"issuer": issuer, "verdict": facts["verdict"], "outstanding": counts, "alerts": facts["alerts"]}


@flow(name="reconciliation", flow_run_name="reconciliation {issuer}", persist_result=False, log_prints=False)
@guarded
def reconciliation(
    issuer: str = "", from_date: date | None = None, to_date: date | None = None
) -> list[dict[str, Any]]:
    """Report across runs: outstanding results by age, overdue ones told of once, cardholders without a link.

    Args:
        issuer: The issuer, as its TOML file is named; leave empty for all of them.
        from_date: First business date; leave empty for all.
        to_date: Last business date; leave empty for all.
    """
    log = get_run_logger()
    found = [look_across(name, from_date, to_date) for name in ([issuer] if issuer else issuers(config_folder()))]
    for one in found:
        log.info(
            "%s: %s, %d chunks outstanding, %d overdue",
            *(one["issuer"], one["verdict"], one["outstanding"]["count"], one["outstanding"]["overdue"]["count"]),
        )
        for run in one["alerts"]["opened"]:
            log.warning("overdue: the answer of %s has not come in time", run)
    return found
