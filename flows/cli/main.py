"""The command line: every command, its options and help; the work is in `flows.steps`."""

from __future__ import annotations

import atexit
import gc
import signal
from datetime import date, datetime
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from flows.cli.again import corrections, resubmit
from flows.cli.answer import Answer
from flows.cli.by_hand import job, link, mend, outbox
from flows.cli.command import ISSUER, StoppedError, command
from flows.edge.process import harden
from flows.wiring import config_folder

DATE = click.DateTime(["%Y-%m-%d"])
MOST_DAYS = 365


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--config", type=click.Path(path_type=Path), help="Folder of the issuers' TOML files.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Say how far a submit is, without a terminal too.")
@click.version_option(package_name="cardlink")
@click.pass_context
def main(context: click.Context, config: Path | None, as_json: bool, verbose: bool) -> None:
    """Get every cardholder of a nightly extract a card link, and show that each one did or why not.

    Exit codes: 0 done and balanced, 1 unexpected, 2 usage or configuration, 3 done but rejects or errors
    above the limit, 4 out of balance, 75 try again.
    """
    harden()
    gc.set_threshold(200_000, 10, 10)  # what is imported stays: a tenth of a command's start went into looking at it
    signal.signal(signal.SIGTERM, _stop)
    context.obj = {"config": config or config_folder(), "json": as_json, "verbose": verbose}


def run() -> None:
    """Be the command: what is left at its end goes with the process, unlooked at, which saves a tenth of a second."""
    atexit.register(gc.freeze)
    main()


def _stop(signum: int, _frame: FrameType | None) -> NoReturn:
    raise StoppedError(signum)


def _days(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """Read a number of days, with or without its d."""
    number = value.removesuffix("d")
    if not (number.isascii() and number.isdigit() and int(number) <= MOST_DAYS):
        raise click.BadParameter(f"days from 0d to {MOST_DAYS}d, such as 14d")
    return int(number)


@main.command()
@ISSUER
@click.option("--from", "extract", type=click.Path(path_type=Path), help="An extract to guess the mapping from.")
@click.option("--root", default="store", show_default=True, help="s3://bucket/prefix or a directory.")
@command
def init(config: Path, issuer: str, extract: Path | None, root: str) -> Answer:
    """Write a first TOML for an issuer, with a guessed mapping where an extract is given."""
    from flows.cli.setup import write_first_toml

    return write_first_toml(config, issuer, extract, root)


@main.command()
@ISSUER
@click.argument("extract", required=False)
@click.option("--date", "day", type=DATE, help="Business date, where the extract's name does not say it.")
@command
def check(config: Path, issuer: str, extract: str | None, day: datetime | None) -> Answer:
    """Check configuration, key and store, and with EXTRACT every row of it; publish nothing (the dry run)."""
    from flows.cli.setup import check_issuer

    return check_issuer(config, issuer, extract, _day(day))


@main.command()
@ISSUER
@click.option("--extract", help="One extract by name; default: all that are not submitted yet.")
@click.option("--date", "day", type=DATE, help="Business date, where the extract's name does not say it.")
@click.option(
    "--open",
    "opened",
    multiple=True,
    type=click.Choice(["reject-rate", "row-jump"]),
    help="Let a run pass a gate on purpose; it is recorded.",
)
@click.option("--new-run", default="", metavar="REASON", help="Make a new run of an extract that already has one.")
@command
def submit(
    config: Path, issuer: str, extract: str | None, day: datetime | None, opened: tuple[str, ...], new_run: str
) -> Answer:
    """Take extracts to sealed chunks and commit them for upload."""
    from flows.cli.submitting import submit_extracts

    return submit_extracts(config, issuer, extract, _day(day), opened, new_run)


@main.command()
@ISSUER
@click.option("--secret-key", type=click.Path(path_type=Path), help="The simulated portal's secret key.")
@click.option(
    "--fail",
    "fail_share",
    type=click.FloatRange(0, 1),
    default=0.05,
    show_default=True,
    help="Share of rows that fail.",
)
@click.option("--shuffle", is_flag=True, help="Answer rows in another order than sent.")
@click.option("--seed", default=0, show_default=True, help="Same seed, same answers.")
@click.option("--serve", is_flag=True, help="Serve the partner's whole interface on loopback until told to end.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="With --serve; default: a free one.")
@click.option("--speed", type=click.FloatRange(0, min_open=True), default=1.0, help="With --serve: its clock's haste.")
@command
def simulate(
    config: Path,
    issuer: str,
    secret_key: Path | None,
    fail_share: float,
    shuffle: bool,
    seed: int,
    serve: bool,
    port: int,
    speed: float,
) -> Answer:
    """Let the simulated portal answer every committed chunk that has no result yet, or serve its whole interface."""
    if serve:
        from flows.cli.serve import Serving, serve_issuer

        return serve_issuer(config, issuer, Serving(secret_key, fail_share, shuffle, seed, port, speed))
    from flows.cli.practice import answer_chunks

    return answer_chunks(config, issuer, secret_key, fail_share, shuffle, seed)


@main.command()
@ISSUER
@command
def ingest(config: Path, issuer: str) -> Answer:
    """Take up new result files, attribute every row, and bring the reports up to date."""
    from flows.cli.commands import ingest_results

    return ingest_results(config, issuer)


@main.command()
@click.argument("run")
@command
def history(config: Path, run: str) -> Answer:
    """Tell who did what to RUN and when, from its first plan to its last result: the audit trail."""
    from flows.cli.history import show_history

    return show_history(config, run)


@main.command()
@click.argument("run")
@command
def report(config: Path, run: str) -> Answer:
    """Rebuild the report of RUN from ledger and results, and print its balance."""
    from flows.cli.commands import rebuild_report

    return rebuild_report(config, run)


@main.command()
@click.argument("issuer", required=False)
@click.option("--from", "start", type=DATE, help="First business date (default: all).")
@click.option("--to", "end", type=DATE, help="Last business date (default: all).")
@command
def reconcile(config: Path, issuer: str | None, start: datetime | None, end: datetime | None) -> Answer:
    """Report across runs: what is outstanding and overdue, what failed over time, who has no link."""
    from flows.cli.reconcile import reconcile_issuers

    return reconcile_issuers(config, issuer, _day(start), _day(end))


@main.command()
@ISSUER
@click.option("--within", "within", callback=_days, default="14d", show_default=True, help="Links that end so soon.")
@click.option("--extract", default="", help="The extract that says who is still there (default: the latest).")
@click.option("--dry-run", is_flag=True, help="Say whose link would be made anew and who is left out; write nothing.")
@command
def renew(config: Path, issuer: str, within: int, extract: str, dry_run: bool) -> Answer:
    """Make new links for cardholders whose link is about to end and who are still in the latest extract."""
    from flows.cli.renew import renew_links

    return renew_links(config, issuer, within, extract, dry_run=dry_run)


@main.command()
@ISSUER
@click.option("--from", "start", type=DATE, required=True, help="First business date.")
@click.option("--to", "end", type=DATE, required=True, help="Last business date.")
@click.option("--send", "digest", metavar="DIGEST", default="", help="Send exactly the list of that digest.")
@command
def backfill(config: Path, issuer: str, start: datetime, end: datetime, digest: str) -> Answer:
    """List the extracts of missed nights and what would be sent of them, or send exactly such a list."""
    from flows.cli.backfill import list_missed, send_missed

    if digest:
        return send_missed(config, issuer, start.date(), end.date(), digest)
    return list_missed(config, issuer, start.date(), end.date())


@main.command()
@ISSUER
@click.argument("run", required=False)
@click.option("--again", is_flag=True, help="Ask even of links that were asked of lately.")
@command
def placements(config: Path, issuer: str, run: str | None, again: bool) -> Answer:
    """Look what became of the links of ISSUER, or of one RUN: opened, authenticated, placed, failed by kind."""
    from flows.cli.placements import show_placements

    return show_placements(config, issuer, run, again=again)


@main.command()
@click.argument("issuer", required=False)
@command
def status(config: Path, issuer: str | None) -> Answer:
    """Show every run, newest first: where its rows went and what waits."""
    from flows.cli.standing import show_status

    return show_status(config, issuer)


@main.command()
@click.argument("issuer", required=False)
@click.option("--dry-run", is_flag=True, help="Show what would be deleted and why the rest is kept; delete nothing.")
@command
def purge(config: Path, issuer: str | None, dry_run: bool) -> Answer:
    """Delete what [retention] lets go: sealed chunks, then ledgers and reports; never what is open, never a source."""
    from flows.cli.purge import purge_issuers

    return purge_issuers(config, issuer, dry_run=dry_run)


@main.command()
@click.argument("cuid")
@click.option("--issuer", help="Only this issuer's runs (default: those of all that are configured).")
@click.option("--url", is_flag=True, help="Show the links themselves: they are personal secrets.")
@command
def trace(config: Path, cuid: str, issuer: str | None, url: bool) -> Answer:
    """Tell everything that happened to one cardholder, over all runs, and what to do next."""
    from flows.cli.trace import trace_cardholder

    return trace_cardholder(config, cuid, issuer, url=url)


@main.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--rows", type=click.IntRange(1), default=1000, show_default=True)
@click.option("--bad", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Share of rows to be refused.")
@click.option("--seed", default=0, show_default=True, help="Same seed, same extract.")
@click.option("--date", "day", type=DATE, help="Business date the cards are valid on (default: today).")
@command
def sample(config: Path, file: Path, rows: int, bad: float, seed: int, day: datetime | None) -> Answer:
    """Generate an extract with test cards only."""
    from flows.cli.practice import generate_extract

    return generate_extract(file, rows, bad, seed, _day(day))


@main.command()
@click.option("--rows", type=click.IntRange(1), help="Generate an extract of this size instead of the sample.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), default=Path("demo"), show_default=True)
@command
def demo(config: Path, rows: int | None, folder: Path) -> Answer:
    """Run a whole night on sample data with a simulated partner: Prefect flows, real gpg, no network."""
    night = import_module("flows.demo")  # by name: the demo stands above the flow files, the command line below
    answer: Answer = night.whole_night(folder, rows)
    return answer


def _day(value: datetime | None) -> date | None:
    return value.date() if value else None


main.add_command(outbox)
main.add_command(mend)
main.add_command(link)
main.add_command(job)
main.add_command(resubmit)
main.add_command(corrections)
