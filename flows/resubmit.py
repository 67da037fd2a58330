"""Sending rows of a run again from the UI, as a dry run unless said otherwise. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from typing import Annotated, Literal

from prefect import flow
from pydantic import Field

from flows.core.errors import guarded
from flows.core.life.wanted import Wanted
from flows.forms import Reason, RunIdText
from flows.nightly import LONGEST_NIGHT
from flows.shown import Progressing, show_chosen, show_outbox, show_submitted
from flows.steps.again.resubmit import Request, choose
from flows.steps.again.resubmit import resubmit as resubmit_step
from flows.steps.operate.outbox import run_of
from flows.wiring import config_folder, wire
from schemas.actions import RESUBMIT

WHICH = {
    "partner errors": Wanted(errors=True),
    "errors to resubmit as is": Wanted(actions=frozenset({RESUBMIT})),
    "our rejects": Wanted(rejects=True),
    "no answer": Wanted(missing=True),
    "as codes or corrections say": Wanted(),
}
Which = Literal["partner errors", "errors to resubmit as is", "our rejects", "no answer", "as codes or corrections say"]
ReasonCode = Annotated[str, Field(pattern=r"^[a-z_]+(\.[a-z0-9_]+){0,2}$", max_length=80)]
CorrectedName = Annotated[str, Field(pattern=r"^([^/\\.][^/\\]*(/[^/\\.][^/\\]*)*)?$", max_length=200)]


@flow(
    name="resubmit",
    flow_run_name="resubmit {run}: {mode}",
    persist_result=False,
    log_prints=False,
    timeout_seconds=LONGEST_NIGHT,
)
@guarded
def resubmit(
    run: RunIdText,
    which: Which = "partner errors",
    codes: list[ReasonCode] | None = None,
    corrections: CorrectedName = "",
    extract: CorrectedName = "",
    reason: Reason = "",
    mode: Literal["dry run", "send"] = "dry run",
    override_reason: Reason = "",
) -> str:
    """Send rows of a run again as a run of their own; what has a link or waits for its answer stays.

    Args:
        run: The run whose rows are sent again.
        which: Which of its rows.
        codes: Rows refused for these reasons as well, such as address.postal_code or card.pan.unsupported.
        corrections: A filled-in correction template, by its name below the issuer's corrections.
        extract: A corrected extract there, whose rows replace rows by number or cuid; not together with a template.
        reason: Why; kept with the new run. Needed to send.
        mode: A dry run shows how many rows would go out and why the others stay; nothing is written.
        override_reason: Why cards that are linked or awaiting are sent a second time, which is recorded; leave it
            empty to keep them from it.
    """
    edges = wire(config_folder(), run_of(run).issuer)
    wanted = WHICH[which]._replace(codes=frozenset(codes or ()))
    request = Request(run, wanted, reason, override_reason, corrections, extract)
    if mode == "dry run":
        show_chosen(edges, choose(edges, request))
        return ""
    done = resubmit_step(edges, request, Progressing(f"again: {run}"))
    show_submitted(edges, done)
    show_outbox(edges)
    return done.manifest.run
