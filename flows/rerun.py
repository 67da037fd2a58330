"""The ad-hoc rerun: one extract by hand, as a dry run unless said otherwise. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from datetime import date
from typing import Literal

from prefect import flow, get_run_logger, task
from prefect.cache_policies import NO_CACHE

from flows.core.errors import guarded
from flows.core.run.gates import OPENABLE
from flows.forms import ExtractName, IssuerName, Reason
from flows.nightly import LONGEST_NIGHT, submit
from flows.shown import show_outbox, show_rehearsal
from flows.steps.night.rehearse import rehearse as rehearse_step
from flows.steps.night.submit import Request
from flows.steps.night.twice import guard_twice
from flows.wiring import config_folder, wire


@task(name="rehearse", task_run_name="rehearse {extract}", persist_result=False, cache_policy=NO_CACHE)
@guarded
def rehearse(issuer: str, extract: str, day: date | None, opened: tuple[str, ...], new_run: str) -> str:
    """Check every row and show what a real run would send; return the run it would be."""
    edges = wire(config_folder(), issuer)
    done = rehearse_step(edges, Request(extract, day, opened, new_run))
    show_rehearsal(edges, done)
    return done.checked.run


@flow(
    name="rerun",
    flow_run_name="{mode}: {extract}",
    persist_result=False,
    log_prints=False,
    timeout_seconds=LONGEST_NIGHT,
)
@guarded
def rerun(
    issuer: IssuerName,
    extract: ExtractName,
    mode: Literal["dry run", "send"] = "dry run",
    business_date: date | None = None,
    open_gate: Literal["none", "reject-rate", "row-jump", "both"] = "none",
    new_run_reason: Reason = "",
) -> str:
    """Run one extract by hand: finish a run that broke off, look at one before it goes, or send one again.

    Args:
        issuer: Whose extract.
        extract: Its file name below the issuer's extracts, such as first-bank-20261120.csv.
        mode: A dry run checks every row and shows exactly what would be sent; nothing is written.
        business_date: The day the cards must be valid on; leave it at None to take it from the extract's name.
        open_gate: A gate to let this run pass on purpose, after asking the issuer; recorded with the run.
        new_run_reason: Why an extract that already has a run gets another one. Refused as long as one chunk of
            the earlier run is uploaded, answered or waiting, since its cards would go out twice.
    """
    log = get_run_logger()
    opened = OPENABLE if open_gate == "both" else tuple({open_gate} - {"none"})
    log.info("%s: %s of %s", issuer, mode, extract)
    if mode == "dry run":
        return rehearse(issuer, extract, business_date, opened, new_run_reason)
    edges = wire(config_folder(), issuer)
    guard_twice(edges, Request(extract, business_date, opened, new_run_reason))
    run = submit(issuer, extract, business_date, opened, new_run_reason)
    show_outbox(edges)
    return run
