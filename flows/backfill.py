"""Backfill from the UI: list the nights that were missed, then send exactly that list. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from datetime import date
from typing import Annotated

from prefect import flow
from pydantic import Field

from flows.core.errors import guarded
from flows.forms import IssuerName
from flows.nightly import LONGEST_NIGHT
from flows.shown import Progressing, show_missed, show_outbox, show_submitted
from flows.steps.again.backfill import Span, send
from flows.steps.again.backfill import backfill as list_step
from flows.wiring import config_folder, wire

ListDigest = Annotated[str, Field(pattern=r"^([0-9a-f]{12})?$")]


@flow(
    name="backfill",
    flow_run_name="backfill {issuer}: {first_day} to {last_day}",
    persist_result=False,
    log_prints=False,
    timeout_seconds=LONGEST_NIGHT,
)
@guarded
def backfill(issuer: IssuerName, first_day: date, last_day: date, send_list: ListDigest = "") -> list[str]:
    """List what would be sent of the nights that were missed, or send exactly such a list.

    Args:
        issuer: Whose nights.
        first_day: The first business date.
        last_day: The last business date.
        send_list: Leave it empty to look first: the list is shown with its digest and nothing is written. With that
            digest exactly this list is sent, and refused if anything would come out otherwise by then.
    """
    edges, span = wire(config_folder(), issuer), Span(first_day, last_day)
    if not send_list:
        show_missed(edges, list_step(edges, span))
        return []
    bars: dict[str, Progressing] = {}
    done = send(edges, span, send_list, lambda name, told: bars.setdefault(name, Progressing(name))(told))
    for one in done:
        show_submitted(edges, one)
    show_outbox(edges)
    return [one.manifest.run for one in done]
