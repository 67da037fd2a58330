"""The command line: every entry as a command, in a group if its name has two words."""

from __future__ import annotations

import atexit
import gc
import signal
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import NoReturn

import click

from flows import demo
from flows.cli.derive import command_of
from flows.commands.entry import Entry
from flows.commands.every import ENTRIES
from flows.wiring import begin_process, config_folder

GROUPS = {
    "outbox": "List the chunks to upload, fetch them to a folder, and record what was done with them.",
    "mend": "Put right what went wrong: each verb has --dry-run, and records who, when and why.",
    "audit": "Prove that the audit trail is whole, and hand out the evidence of a run.",
    "job": "Follow a placement job at the partner.",
}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--config", type=click.Path(path_type=Path), help="Folder of the issuers' TOML files.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Show the progress of a submit without a terminal too.")
@click.version_option(package_name="cardlink")
@click.pass_context
def main(context: click.Context, config: Path | None, as_json: bool, verbose: bool) -> None:
    """Get a card link for every cardholder of a nightly extract, and show who has none and why.

    Exit codes: 0 done and balanced, 1 unexpected, 2 usage or configuration, 3 done but rejects or errors
    above the limit, 4 out of balance, 75 try again.
    """
    begin_process()
    gc.set_threshold(200_000, 10, 10)  # imported modules stay: scanning them takes a quarter of a short submit's CPU
    signal.signal(signal.SIGTERM, _stop)
    context.obj = {"config": config or config_folder(), "json": as_json, "verbose": verbose}


def run() -> None:
    """Be the command; at exit, skip the final garbage collection."""
    atexit.register(gc.freeze)
    main()


def _stop(signum: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(signum)


def add(group: click.Group, entries: Iterable[Entry[...]]) -> None:
    """Add the command of each entry, below the group its name begins with."""
    groups = {"": group}
    for entry in entries:
        below, _, _ = entry.name.rpartition(" ")
        if below not in groups:
            groups[below] = click.Group(below, help=GROUPS[below], short_help=GROUPS[below])
            group.add_command(groups[below])
        groups[below].add_command(command_of(entry))


add(main, [*ENTRIES, demo.demo])
