"""Retention: what is due of an issuer is shown, and deleted where that is asked for. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from typing import Any

from prefect import flow, get_run_logger, task
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE

from flows.cli.purge import facts
from flows.core.errors import guarded
from flows.forms import IssuerName
from flows.nightly import passing
from flows.steps.operate.purge import look
from flows.steps.operate.purge import purge as purge_step
from flows.wiring import clear_machine, config_folder, sweeper, wire


@task(
    name="purge",
    task_run_name="purge {issuer}",
    persist_result=False,
    cache_policy=NO_CACHE,
    retries=2,
    retry_delay_seconds=[10, 60],
    retry_condition_fn=passing,
)
@guarded
def clear(issuer: str, *, dry_run: bool) -> dict[str, Any]:
    """Purge one issuer, or only look, and show what goes and what stays; return the counts."""
    edges = wire(config_folder(), issuer)
    due = (look if dry_run else purge_step)(edges, sweeper(edges.issuer.root, config_folder()))
    clear_machine(dry_run=dry_run)
    told = facts(issuer, due)
    gone = [{name: lot[name] for name in ("run", "part", "setting", "bytes")} for lot in told["lots"]]
    described = f"{issuer}: {'would be deleted' if dry_run else 'deleted'}, each part with its record"
    create_table_artifact(gone, key=f"{issuer}-purged", description=described)
    stays = [{name: one[name] for name in ("run", "part", "why")} for one in told["kept"] if one["until"] is None]
    create_table_artifact(stays, key=f"{issuer}-kept", description=f"{issuer}: kept for what is open, however old")
    return {name: len(told[name]) for name in ("lots", "kept", "unknown", "temporary")}


@flow(name="purge", flow_run_name="purge {issuer}", persist_result=False, log_prints=False)
@guarded
def purge(issuer: IssuerName, dry_run: bool = True) -> dict[str, Any]:
    """Delete what [retention] lets go; what is unsent, unanswered or out of balance stays, and so does every source.

    Args:
        issuer: Whose runs.
        dry_run: Only show what would be deleted and why the rest is kept; nothing is deleted.
    """
    done = clear(issuer, dry_run=dry_run)
    get_run_logger().info(
        "%s: %d parts of runs %s, %d kept, %d temporary objects, %d not ours",
        *(issuer, done["lots"], "due" if dry_run else "deleted", done["kept"], done["temporary"], done["unknown"]),
    )
    return done
