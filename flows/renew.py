"""Renewal: every morning, and by hand, new links for those that end soon. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from typing import Annotated, Literal

from prefect import flow, get_run_logger
from pydantic import Field

from flows.core.errors import guarded
from flows.forms import IssuerName
from flows.nightly import LONGEST_NIGHT
from flows.shown import Progressing, show_outbox, show_renewals, show_submitted
from flows.steps.again.renew import Request, renewals
from flows.steps.again.renew import renew as renew_step
from flows.wiring import config_folder, wire

Days = Annotated[int, Field(ge=0, le=365)]


@flow(
    name="renew",
    flow_run_name="renew {issuer}: {mode}",
    persist_result=False,
    log_prints=False,
    timeout_seconds=LONGEST_NIGHT,
)
@guarded
def renew(issuer: IssuerName, within_days: Days = 14, mode: Literal["dry run", "send"] = "dry run") -> str:
    """Make new links for cardholders whose link is about to end and who are still in the latest extract.

    Args:
        issuer: Whose cardholders.
        within_days: Links that end within so many days, or have ended, are made anew.
        mode: A dry run shows how many, and who is left out and why; nothing is written.
    """
    edges, request = wire(config_folder(), issuer), Request(within_days)
    if mode == "dry run":
        show_renewals(edges, renewals(edges, request))
        return ""
    done = renew_step(edges, request, Progressing(f"renewal of {issuer}"))
    show_renewals(edges, done.due)
    if done.submitted is None:
        get_run_logger().info("%s: nothing to renew", issuer)
        return ""
    show_submitted(edges, done.submitted)
    show_outbox(edges)
    return done.submitted.manifest.run
