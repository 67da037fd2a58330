"""The commands of what a person decides or sits through: `cardlink outbox`, `mend`, `link` and `job`."""

from __future__ import annotations

from pathlib import Path

import click

from flows.cli.answer import Answer
from flows.cli.command import CHUNKS, DRY_RUN, ISSUER, REASON, RUN, command


@click.group()
def outbox() -> None:
    """List the chunks to upload, fetch them to a folder, and note what was done with them."""


@outbox.command("list")
@ISSUER
@click.option("--run", help="Every chunk of one run, answered ones too.")
@command
def outbox_list(config: Path, issuer: str, run: str | None) -> Answer:
    """List the chunks that are not answered yet: what to upload, what is held, what is out since when."""
    from flows.cli.outbox import list_outbox

    return list_outbox(config, issuer, run)


@outbox.command("fetch")
@RUN
@CHUNKS
@click.option("--to", type=click.Path(path_type=Path, file_okay=False), required=True, help="The folder to fill.")
@command
def outbox_fetch(config: Path, run: str, chunks: tuple[int, ...], to: Path) -> Answer:
    """Copy the waiting chunks of RUN (or the CHUNKS numbered) to a folder, with their SHA-256 sums."""
    from flows.cli.outbox import fetch_chunks

    return fetch_chunks(config, run, to, chunks)


@outbox.command("uploaded")
@RUN
@CHUNKS
@DRY_RUN
@command
def outbox_uploaded(config: Path, run: str, chunks: tuple[int, ...], *, dry_run: bool) -> Answer:
    """Note that the waiting chunks of RUN (or the CHUNKS numbered) are in the portal."""
    from flows.cli.outbox import move_chunks

    return move_chunks(config, run, "uploaded", chunks, dry_run=dry_run)


@outbox.command("hold")
@RUN
@CHUNKS
@REASON
@DRY_RUN
@command
def outbox_hold(config: Path, run: str, chunks: tuple[int, ...], reason: str, *, dry_run: bool) -> Answer:
    """Hold waiting chunks back: they are not given out until they are released."""
    from flows.cli.outbox import move_chunks

    return move_chunks(config, run, "held", chunks, reason, dry_run=dry_run)


@outbox.command("release")
@RUN
@CHUNKS
@REASON
@DRY_RUN
@command
def outbox_release(config: Path, run: str, chunks: tuple[int, ...], reason: str, *, dry_run: bool) -> Answer:
    """Let held chunks, or ones marked as uploaded by mistake, wait for their upload again."""
    from flows.cli.outbox import move_chunks

    return move_chunks(config, run, "released", chunks, reason, dry_run=dry_run)


@outbox.command("cancel")
@RUN
@CHUNKS
@REASON
@DRY_RUN
@command
def outbox_cancel(config: Path, run: str, chunks: tuple[int, ...], reason: str, *, dry_run: bool) -> Answer:
    """Cancel chunks that wait or are held, for good: they will not be sent."""
    from flows.cli.outbox import move_chunks

    return move_chunks(config, run, "cancelled", chunks, reason, dry_run=dry_run)


@click.group()
def mend() -> None:
    """Put right what went wrong: each verb is tried with --dry-run, and kept with who, when and why."""


RESULT = click.argument("result")
ROW = click.option("--row", type=click.IntRange(1), required=True, help="Data row of the result file, from 1.")


@mend.command("abandon")
@RUN
@REASON
@DRY_RUN
@command
def mend_abandon(config: Path, run: str, reason: str, *, dry_run: bool) -> Answer:
    """End RUN before its commit, for good: it is never taken up again, and nothing of it is sent."""
    from flows.cli.mend import abandon_run

    return abandon_run(config, run, reason, dry_run=dry_run)


@mend.command("take-over")
@RUN
@REASON
@DRY_RUN
@command
def mend_take_over(config: Path, run: str, reason: str, *, dry_run: bool) -> Answer:
    """End the claim that a dead process has on RUN, so that the next submit goes on at once."""
    from flows.cli.mend import take_over_claim

    return take_over_claim(config, run, reason, dry_run=dry_run)


@mend.command("reseal")
@RUN
@CHUNKS
@REASON
@DRY_RUN
@command
def mend_reseal(config: Path, run: str, chunks: tuple[int, ...], reason: str, *, dry_run: bool) -> Answer:
    """Seal waiting and held chunks of RUN anew (or the CHUNKS numbered) to the keys the settings name now."""
    from flows.cli.mend import reseal_chunks

    return reseal_chunks(config, run, chunks, reason, dry_run=dry_run)


@mend.command("ingest-again")
@ISSUER
@RESULT
@REASON
@DRY_RUN
@command
def mend_ingest_again(config: Path, issuer: str, result: str, reason: str, *, dry_run: bool) -> Answer:
    """Take the file RESULT up again although it was taken up, and report the runs it speaks of."""
    from flows.cli.mend import take_up_again

    return take_up_again(config, issuer, result, reason, dry_run=dry_run)


@mend.command("attribute")
@ISSUER
@RESULT
@ROW
@click.option("--to", metavar="RUN:ROW", required=True, help="The row that was sent: run, and row of its extract.")
@click.option("--last-4-confirmed", is_flag=True, help="The partner says it is that card, whatever its last digits.")
@REASON
@DRY_RUN
@command
def mend_attribute(
    config: Path, issuer: str, result: str, row: int, to: str, reason: str, *, last_4_confirmed: bool, dry_run: bool
) -> Answer:
    """Give a row of the file RESULT that no rule could place to the row it answers."""
    from flows.cli.mend import attribute_by_hand

    return attribute_by_hand(
        config, issuer, result, row, to, reason, last_4_confirmed=last_4_confirmed, dry_run=dry_run
    )


@mend.command("withdraw")
@ISSUER
@RESULT
@ROW
@REASON
@DRY_RUN
@command
def mend_withdraw(config: Path, issuer: str, result: str, row: int, reason: str, *, dry_run: bool) -> Answer:
    """Take back what `mend attribute` said of a row of the file RESULT."""
    from flows.cli.mend import withdraw_attribution

    return withdraw_attribution(config, issuer, result, row, reason, dry_run=dry_run)


BREAK = click.argument("name", metavar="BREAK")
PLACE = click.argument("place", required=False, default="")


@mend.command("close")
@RUN
@BREAK
@PLACE
@REASON
@DRY_RUN
@command
def mend_close(config: Path, run: str, name: str, place: str, reason: str, *, dry_run: bool) -> Answer:
    """Close breaks of RUN that nothing more can be done about, such as RESULT_SHORT, all or those at PLACE."""
    from flows.cli.mend import close_breaks

    return close_breaks(config, run, name, place, reason, dry_run=dry_run)


@mend.command("reopen")
@RUN
@BREAK
@PLACE
@REASON
@DRY_RUN
@command
def mend_reopen(config: Path, run: str, name: str, place: str, reason: str, *, dry_run: bool) -> Answer:
    """Take back the closing of breaks of RUN, all of a kind or those at PLACE."""
    from flows.cli.mend import reopen_breaks

    return reopen_breaks(config, run, name, place, reason, dry_run=dry_run)


def _one_way(context: click.Context, _argument: click.Parameter, row: int | None) -> int | None:
    """Take a row, or the wish to be prompted."""
    if context.params["prompt"] is (row is not None):
        raise click.UsageError("name a run and a row, or an issuer with --prompt")
    return row


@click.command("link")
@click.argument("target", metavar="RUN|ISSUER")
@click.argument("row", type=click.IntRange(1), required=False, callback=_one_way)
@click.option(
    "--prompt", is_flag=True, is_eager=True, help="Type the fields in for ISSUER instead of naming a row of a run."
)
@click.option("--override", default="", metavar="REASON", help="Ask although the card has a link or waits for one.")
@command
def link(config: Path, target: str, row: int | None, override: str, prompt: bool) -> Answer:
    """Ask the partner for one link now: for ROW of RUN, or with --prompt for fields typed in for ISSUER."""
    from flows.cli.link import link_row_of_run, link_typed_in

    return link_typed_in(config, target, override) if row is None else link_row_of_run(config, target, row, override)


@click.group()
def job() -> None:
    """Follow a placement job at the partner."""


@job.command("follow")
@ISSUER
@click.argument("job_id", metavar="JOB")
@click.option("--poll", is_flag=True, help="Poll the job's record instead of reading its messages, which come once.")
@command
def job_follow(config: Path, issuer: str, job_id: str, *, poll: bool) -> Answer:
    """Follow JOB to its end: show how it goes, prompt for what it needs, warn before its time is up."""
    from flows.cli.job import follow_job

    return follow_job(config, issuer, job_id, polling=poll)
