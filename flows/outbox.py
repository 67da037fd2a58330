"""The manual step from the UI: note that chunks are uploaded, hold, release or cancel them. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from typing import Literal

from prefect import flow, get_run_logger

from flows.core.errors import guarded
from flows.core.run.outbox import Move
from flows.forms import ChunkNumber, Reason, RunIdText
from flows.shown import show_outbox
from flows.steps.operate.outbox import move, run_of
from flows.wiring import config_folder, wire

MOVES: dict[str, Move] = {"uploaded": "uploaded", "hold": "held", "release": "released", "cancel": "cancelled"}


@flow(name="outbox", flow_run_name="outbox: {action} {run}", persist_result=False, log_prints=False)
@guarded
def outbox(
    run: RunIdText,
    action: Literal["uploaded", "hold", "release", "cancel"] = "uploaded",
    chunks: list[ChunkNumber] | None = None,
    reason: Reason = "",
) -> int:
    """Note what was done with the chunks of a run, and show what is left to upload.

    Args:
        run: The run's id, as the outbox table shows it.
        action: What was done. A cancelled chunk is never sent; a held one waits for its release.
        chunks: Their numbers; leave it at None for all of the run that it can be done to.
        reason: Why; needed to hold, release and cancel. Kept in the run's history.
    """
    edges = wire(config_folder(), run_of(run).issuer)
    done = move(edges.edges, run, MOVES[action], chunks or (), reason)
    get_run_logger().info("%s: %d chunks %s", run, len(done), MOVES[action])
    show_outbox(edges)
    return len(done)
