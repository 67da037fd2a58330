"""What became of the links: looked at, counted as a funnel, shown. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from contextlib import nullcontext
from typing import Any, Literal

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.core.errors import guarded
from flows.forms import IssuerName, RunIdText
from flows.nightly import HOURS, passing
from flows.steps.beyond.placements import follow_links
from flows.wiring import config_folder, service_client, wire


@task(
    name="look at links",
    task_run_name="links of {issuer}",
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=[60, 600],
    retry_condition_fn=passing,
)
@guarded
def look_at_links(issuer: str, run: str, again: bool) -> dict[str, Any]:
    """Follow the links of an issuer's runs to their ends, show the funnel, and return what was done."""
    edges = wire(config_folder(), issuer)
    with service_client(edges.issuer) if edges.issuer.service else nullcontext() as service:
        facts = follow_links(edges, service, run, again=again)
    shown = run or issuer
    create_table_artifact(
        facts["funnel"]["stages"], key=f"{shown}-funnel", description=f"{shown}: from link to placed card"
    )
    return facts


@flow(
    name="placements",
    flow_run_name="placements of {issuer}",
    persist_result=False,
    log_prints=False,
    timeout_seconds=12 * HOURS,
)
@guarded
def placements(issuer: IssuerName, run: RunIdText | Literal[""] = "", again: bool = False) -> dict[str, Any]:
    """Look what became of an issuer's links: opened, authenticated, placed, failed by kind.

    Args:
        issuer: Whose links. Every run with links that live is looked at.
        run: A run id, to look at its links alone; leave empty otherwise.
        again: Ask even of links that were asked of lately.
    """
    log = get_run_logger()
    facts = look_at_links(issuer, run, again)
    for one in facts["looked"]:
        log.info(
            "%s: %d of %d links asked of, %d messages kept", *(one[k] for k in ("run", "asked", "links", "messages"))
        )
        if one["unanswered"]:
            log.warning("%s: %d links got no answer", one["run"], one["unanswered"])
    for found in facts["breaks"]:
        log.warning("break: %s, %d rows, %s", found["name"], found["rows"], found["place"])
    return {name: facts[name] for name in ("issuer", "runs", "looked", "rebuilt", "transactions", "funnel")}
