"""What the flows show in the Prefect UI: tables of counts, names and digests, progress, and links to reports."""

import time
from typing import Any
from uuid import UUID

from prefect import get_run_logger
from prefect.artifacts import (
    create_link_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from flows.core.report.artifacts import chunk_rows, count_rows, outbox_rows, planned_rows, reason_rows
from flows.core.run.pace import pace
from flows.steps.again.backfill import Listed, missed_rows
from flows.steps.again.renew import Due
from flows.steps.again.resubmit import Chosen
from flows.steps.answers.report import RunReport
from flows.steps.edges import IssuerEdges
from flows.steps.night.making import Progress
from flows.steps.night.rehearse import Rehearsal
from flows.steps.night.submit import Submitted
from flows.steps.operate.outbox import outboxes
from flows.steps.runs import keys_of


class Progressing:
    """A progress bar of one extract: the share of its bytes that is read, with rows a second and time left."""

    def __init__(self, extract: str) -> None:
        self._extract = extract
        self._artifact: UUID | None = None
        self._began = time.monotonic()

    def __call__(self, progress: Progress) -> None:
        """Show how far the pass is."""
        share = round(100 * progress.share, 1)
        told = f"{self._extract}: {pace(progress.rows, progress.share, time.monotonic() - self._began)}"
        if self._artifact is None:
            found = create_progress_artifact(progress=share, description=told)
            self._artifact = found if isinstance(found, UUID) else None
        else:
            update_progress_artifact(artifact_id=self._artifact, progress=share, description=told)


def show_submitted(edges: IssuerEdges, done: Submitted) -> None:
    """Show where the rows went, why rows were refused, and what to upload next."""
    run, log = done.manifest.run, get_run_logger()
    where = address(edges, keys_of(run).chunks)
    rows, reasons = count_rows(done.manifest.counts), reason_rows(done.manifest.reasons)
    create_table_artifact(rows, key=f"{run}-rows", description=f"Where the rows of {run} went")
    create_table_artifact(reasons, key=f"{run}-reasons", description="Reasons, with what to do")
    create_table_artifact(chunk_rows(done.manifest), key=f"{run}-chunks", description=f"To upload next, from {where}")
    for remark in done.remarks:
        log.warning("%s: %s", run, remark)
    fates = ", ".join(f"{line['count']:,} {line['rows']}" for line in rows)
    log.info("%s: %s%s", run, fates, " (was already done)" if done.already else "")
    log.info("%s: %d chunks to upload, from %s", run, len(done.manifest.chunks), where)


def show_outbox(edges: IssuerEdges) -> None:
    """Show the chunks that are not answered yet: the to-do list of whoever uploads."""
    name, waiting = edges.issuer.issuer, list(outboxes(edges.edges, edges.issuer.issuer))
    told = f"{name}: {sum(item.state == 'waiting' for item in waiting)} chunks to upload, {len(waiting)} not answered"
    create_table_artifact(outbox_rows(waiting, edges.edges.now()), key=f"{name}-outbox", description=told)


def show_rehearsal(edges: IssuerEdges, done: Rehearsal) -> None:
    """Show what a real run would send, and what would stop it."""
    run = done.checked.run
    rows, told = count_rows(done.checked.counts), {one.code: one.rows for one in done.checked.found}
    sent = [] if done.already or done.checked.refused else done.checked.chunk_rows
    create_table_artifact(rows, key=f"{run}-dry-rows", description=f"Dry run: where the rows of {run} would go")
    create_table_artifact(reason_rows(told), key=f"{run}-dry-reasons", description="Dry run: reasons, with what to do")
    create_table_artifact(planned_rows(sent), key=f"{run}-dry-chunks", description="Dry run: what would be sent")
    create_markdown_artifact(done.verdict, key=f"{run}-dry", description="Dry run: nothing was written")
    get_run_logger().info("%s", done.verdict)


def show_renewals(edges: IssuerEdges, due: Due) -> None:
    """Show how many links are made anew, and who is left out and why."""
    name, told = edges.issuer.issuer, f"{due.rows.height:,} links that end by {due.until} are due, from {due.of.run}"
    create_table_artifact(reason_rows(due.left_out), key=f"{name}-renewal", description=f"{told}; left out:")
    get_run_logger().info("%s: %s", name, told)


def show_chosen(edges: IssuerEdges, chosen: Chosen) -> None:
    """Show how many rows of a run would go out again, and why the others stay."""
    run, told = chosen.of.run, f"{chosen.going.height:,} rows of {chosen.of.run} would go out again"
    stays = [{"rows": rows, "stays": why} for why, rows in chosen.left.items()]
    create_table_artifact(stays, key=f"{run}-again", description=f"Dry run: {told}; the others:")
    get_run_logger().info("%s: %s; nothing was written", edges.issuer.issuer, told)


def show_missed(edges: IssuerEdges, listed: Listed) -> None:
    """Show what a backfill would send, and the digest that stands for this list."""
    name, log = edges.issuer.issuer, get_run_logger()
    told = f"{len(listed.to_send)} of {len(listed.missed)} extracts would be sent; list {listed.digest}"
    create_table_artifact(missed_rows(listed), key=f"{name}-backfill", description=told)
    log.info("%s: %s; nothing was written", name, told)


def show_report(edges: IssuerEdges, rebuilt: RunReport) -> None:
    """Show the balance, the breaks where there are any, and where the report lies."""
    summary: dict[str, Any] = rebuilt.summary
    run, log = summary["run"], get_run_logger()
    create_markdown_artifact(rebuilt.balance.markdown(), key=f"{run}-balance", description=summary["verdict"])
    if rebuilt.breaks:
        table = [found._asdict() for found in rebuilt.breaks]
        create_table_artifact(table, key=f"{run}-breaks", description="What does not balance, and what to do")
    where = address(edges, keys_of(run).report("report.html"))
    create_link_artifact(link=where, key=f"{run}-report", link_text=f"The report of {run}")
    log.info("%s: %s; report: %s", run, summary["verdict"], where)


def address(edges: IssuerEdges, key: str) -> str:
    """Return where a person finds a key: below [alerts] report_url, else below the store's root."""
    return f"{edges.issuer.alerts.report_url or edges.issuer.root}/{key}"
