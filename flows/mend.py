"""Put a run right from the UI: abandon, take over, seal anew, close a break, open it again. Thin on purpose."""

# Annotations stay real objects here: Prefect makes the form of a flow from them, through the guard around it.
from typing import Literal

from prefect import flow, get_run_logger
from prefect.artifacts import create_markdown_artifact

from flows.cli.answer import Answer
from flows.cli.mend import abandon_run, close_breaks, reopen_breaks, reseal_chunks, take_over_claim
from flows.core.errors import guarded
from flows.forms import BreakName, ChunkNumber, ChunkPlace, Reason, RunIdText
from flows.wiring import config_folder

Verb = Literal["take over", "abandon", "reseal", "close", "reopen"]


@flow(name="mend", flow_run_name="mend: {verb} {run}", persist_result=False, log_prints=False)
@guarded
def mend(
    run: RunIdText,
    verb: Verb,
    reason: Reason = "",
    chunks: list[ChunkNumber] | None = None,
    break_name: BreakName = "none",
    place: ChunkPlace = "",
    dry_run: bool = True,
) -> int:
    """Put right what went wrong with a run; result files are mended on the command line: cardlink mend.

    Args:
        run: The run's id.
        verb: Take over ends the claim of a dead process. Abandon ends a run before its commit, for good. Reseal
            seals waiting and held chunks anew to the keys of the settings. Close settles a break nothing more can be
            done about; reopen takes that back.
        reason: Why; needed, and kept with what is done.
        chunks: For reseal, their numbers; leave it at None for all that are sealed to another key.
        break_name: For close and reopen, which kind of break.
        place: For close and reopen, a chunk, such as "chunk 7"; leave it empty for all breaks of that kind.
        dry_run: Only say what would be done, and refuse what would be refused.
    """
    folder = config_folder()
    if verb == "take over":
        answer = take_over_claim(folder, run, reason, dry_run=dry_run)
    elif verb == "abandon":
        answer = abandon_run(folder, run, reason, dry_run=dry_run)
    elif verb == "reseal":
        answer = reseal_chunks(folder, run, chunks or (), reason, dry_run=dry_run)
    else:
        close = close_breaks if verb == "close" else reopen_breaks
        answer = close(folder, run, str(break_name), place, reason, dry_run=dry_run)
    return _show(run, answer)


def _show(run: str, answer: Answer) -> int:
    told = "\n".join(f"- {line}" for line in answer.lines if line)
    create_markdown_artifact(told, key=f"{run}-mended", description=answer.lines[0])
    get_run_logger().info("%s", answer.lines[0])
    return answer.exit_code
