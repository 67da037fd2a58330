"""`cardlink resubmit` and `cardlink corrections`: rows go out again, and the file in which people correct them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flows.cli.answer import Answer, table
from flows.cli.progress import ProgressLine
from flows.core.errors import OperatorError
from flows.core.life.wanted import Wanted
from flows.core.names import corrections
from flows.steps.again.corrections import REFUSED_ROWS, correction_template
from flows.steps.again.resubmit import Chosen, Request, choose, command, resubmit
from flows.steps.night.submit import Submitted
from flows.steps.operate.outbox import run_of
from flows.steps.rows import csv_pieces
from flows.steps.runs import keys_of
from flows.wiring import wire
from schemas.corrections import template_columns

LISTED = 20  # rows that stay, shown one by one
BOM = "\ufeff".encode()  # a spreadsheet that reads it saves UTF-8


class FileThereError(OperatorError):
    """A template would overwrite a file, which somebody may have filled in."""

    says = "{0} is already there."
    then = "Name another with --to, or take it away."

    def __init__(self, path: str) -> None:
        super().__init__(path)


class Filter(NamedTuple):
    """Which rows, as the options of a command say it."""

    errors: bool = False
    code: Sequence[str] = ()
    action: Sequence[str] = ()
    missing: bool = False
    rejects: bool = False
    row: Sequence[int] = ()

    @property
    def wanted(self) -> Wanted:
        """The same as a step is asked for it."""
        codes, actions, rows = frozenset(self.code), frozenset(self.action), frozenset(self.row)
        return Wanted(self.errors, codes, actions, self.missing, self.rejects, rows)


def send_again(folder: Path, request: Request, *, dry_run: bool) -> Answer:
    """Send rows of a run again, or say which rows would be sent and why the others stay."""
    edges = wire(folder, run_of(request.run).issuer)
    local = Path(request.corrections)
    content = local.read_bytes() if request.corrections and local.is_file() else None
    named = request._replace(corrections=local.name) if content is not None else request
    if dry_run:
        return _would(request, choose(edges, named, content))
    with ProgressLine(request.run) as progress:
        done = resubmit(edges, named, progress, content)
    return _sent(edges.issuer.root, request, done)


def write_template(folder: Path, run: str, to: Path | None, wanted: Wanted) -> Answer:
    """Write the correction template of a run to a file for its owner alone; FileThereError."""
    edges, path = wire(folder, run_of(run).issuer), to or Path(f"{run}-corrections.csv")
    if path.exists():
        raise FileThereError(str(path))
    frames = list(correction_template(edges, run, wanted if wanted.anything else REFUSED_ROWS))
    pieces = csv_pieces(frames, template_columns())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
        out.writelines([BOM, *pieces])
    lines = sum(frame.height for frame in frames)
    told = [
        f"{path}: {lines:,} lines, one per row and reason",
        "fill in the column correction; (empty) takes a field away; a line may be added for another column of a row",
        f"or drop it, filled in, below {edges.issuer.root}/{corrections(edges.issuer.issuer)}",
    ]
    then = f"cardlink resubmit {run} --corrections {path} --reason REASON --dry-run"
    return Answer({"run": run, "file": str(path), "lines": lines}, told, then if lines else "")


def _would(request: Request, chosen: Chosen) -> Answer:
    rows, left = chosen.going, chosen.rows.drop_nulls("why")
    lines = [f"dry run, nothing was written: {rows.height:,} rows of {request.run} would go out again"]
    if chosen.already is not None:
        lines = [f"dry run: run {chosen.already.run} is of these rows and for this reason; nothing would be sent"]
    over = rows.filter("over").height
    lines += [f"{over:,} of them are linked or await their answer: the override sends them a second time"] * bool(over)
    shown = left.head(LISTED).select("origin", "state", "why", "where").fill_null("").rows()
    lines += ["", *table(("row", "state", "stays: it is", "in run"), shown)] if shown else []
    lines += [f"and {left.height - LISTED:,} more"] * (left.height > LISTED)
    strangers = chosen.source.strangers
    lines += [f"{len(strangers):,} rows of the corrected extract replace nothing asked for"] * bool(len(strangers))
    then = command(request if request.reason else request._replace(reason="REASON"))
    return Answer(_would_facts(request, chosen), lines, then if rows.height else "")


def _would_facts(request: Request, chosen: Chosen) -> dict[str, Any]:
    told = ("row", "origin", "state", "reason", "why", "where")
    return {
        "of": request.run,
        "dry_run": True,
        "rows": chosen.going.height,
        "overridden": chosen.going.filter("over").height,
        "left": chosen.left,
        "each": chosen.rows.select(told).to_dicts(),
        "strangers": chosen.source.strangers.to_list(),
        "already": chosen.already.run if chosen.already else None,
    }


def _sent(root: str, request: Request, done: Submitted) -> Answer:
    manifest, counts = done.manifest, done.manifest.counts
    facts = {"of": request.run, "run": manifest.run, "already": done.already, "counts": counts.model_dump()}
    then = f"cardlink outbox list {run_of(manifest.run).issuer}"
    if done.already:
        return Answer(facts, [f"{manifest.run}: already committed with these rows, nothing to do"], then)
    keys = keys_of(manifest.run)
    lines = [
        f"{manifest.run}: {counts.submitted:,} rows of {request.run} go out again",
        f"{len(manifest.chunks):,} chunks to upload: {root}/{keys.chunks}",
    ]
    if counts.rejected or counts.duplicate:
        lines.append(f"{counts.rejected + counts.duplicate:,} still refused: {root}/{keys.report('rejects.csv')}")
    return Answer(facts, lines, then)
