"""The commands of the corrected-file loop: `cardlink resubmit` and `cardlink corrections`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from flows.cli.answer import Answer
from flows.cli.command import DRY_RUN, RUN, command
from schemas.actions import ASK, FIX, NOTHING, RESUBMIT

_WHICH = (
    click.option("--errors", is_flag=True, help="Every row the partner refused."),
    click.option("--code", multiple=True, help="Refused for this reason, ours or the partner's, or its first parts."),
    click.option("--action", multiple=True, type=click.Choice([RESUBMIT, FIX, ASK, NOTHING]), help="By what to do."),
    click.option("--missing", is_flag=True, help="Rows without an answer."),
    click.option("--rejects", is_flag=True, help="Rows we refused."),
    click.option("--row", multiple=True, type=click.IntRange(1), help="A row of RUN by its number."),
)


def _which(run: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say which rows; each adds rows."""
    for option in reversed(_WHICH):
        run = option(run)
    return run


@click.command()
@RUN
@_which
@click.option("--corrections", default="", metavar="FILE", help="A filled-in template, here or below corrections/.")
@click.option("--extract", default="", metavar="NAME", help="A corrected extract below the issuer's corrections/.")
@click.option("--reason", default="", help="Why; kept with the new run. Needed unless it is a dry run.")
@click.option("--override", default="", metavar="REASON", help="Send what is linked or awaiting too; recorded.")
@DRY_RUN
@command
def resubmit(
    config: Path,
    run: str,
    corrections: str,
    extract: str,
    reason: str,
    override: str,
    dry_run: bool,
    **which: Any,
) -> Answer:
    """Send rows of RUN again as a run of their own, read anew from its extract or taken from a corrected file."""
    from flows.cli.resubmit import Filter, send_again
    from flows.steps.again.resubmit import Request

    request = Request(run, Filter(**which).wanted, reason, override, corrections, extract)
    return send_again(config, request, dry_run=dry_run)


@click.command()
@RUN
@_which
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), help="The file (default: RUN-corrections.csv).")
@command
def corrections(config: Path, run: str, to: Path | None, **which: Any) -> Answer:
    """Write what RUN's rows were refused for as a template to fill in, without card numbers (default: all of them)."""
    from flows.cli.resubmit import Filter, write_template

    return write_template(config, run, to, Filter(**which).wanted)
