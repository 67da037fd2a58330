"""The way of chunks to the portal in one command: what waits, copied to a folder, recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from flows.commands import outbox
from flows.commands.context import Context
from flows.commands.entry import ACTOR, entry
from flows.commands.parameters import DryRun, Field, Target
from flows.commands.result import Result

NO_FORM = "files are copied to the machine of the person who uploads; the form `outbox` records it"


@entry("upload", form=NO_FORM)
def upload(
    context: Context,
    run: Target,
    chunks: outbox.Chunks = (),
    *,
    to: Annotated[Path | None, Field(folder=True)] = None,
    done: bool = False,
    dry_run: DryRun = False,
    actor: Annotated[str, Field(help=ACTOR)] = "",
) -> Result:
    """List the chunks to upload of RUN, or of all runs of an issuer; copy them to a folder with
    --to, and record that they are uploaded with --done.

    Of an issuer, chunks sealed to a key that is no longer pinned are left out.

    Args:
        to: The folder to copy waiting chunks to, with their SHA-256 sums; with --done, the folder
            they were copied to: just those are recorded.
        done: Record that they are uploaded.

    Example:
        cardlink upload first-bank --to upload
        cardlink upload first-bank --to upload --done
    """
    del actor  # the context's
    if done:
        return outbox.uploaded(context, run, chunks, fetched=to, dry_run=dry_run)
    if to is not None:
        return outbox.fetch(context, run, chunks, to=to)
    issuer = context.issuer_of(run)
    if issuer:
        return outbox.outbox_list(context, issuer)
    return outbox.outbox_list(context, context.context_of(run).issuer.issuer, run=run)
