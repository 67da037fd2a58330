"""The claim of a dead process is ended by hand; a living one loses it and does no harm."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import chdir
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from sqlalchemy import update

from flows.adapters.local import LocalStore
from flows.cli.main import main
from flows.extensions.simulator.extract import write_sample
from flows.operations.history import history
from flows.operations.remediation import take_over
from flows.runs.claim import ClaimedError, Lease, LeaseLostError, claimed, work_on
from flows.runs.context import overlaid
from flows.runs.errors import NotFoundError, UnknownRunError
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from schemas.database import LEASE
from tests import keys
from tests.leftovers import ended
from tests.night import DAY, NOON, Bench, edges, submitted, uncommit

WHY = "the machine was switched off"
COMMAND = [sys.executable, "-c", "from flows.cli.__main__ import run; run()", "--json"]
TOML = """
issuer = "bank"
root = "store"
test = true
[portal]
fingerprints = ["{0}"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = 5
"""


@pytest.fixture
def planned(tmp_path: Path) -> tuple[Bench, str]:
    """A bench and a run that is planned and nothing more."""
    bench, _, manifest = submitted(tmp_path, 5)
    run = manifest.run
    uncommit(tmp_path, run)
    return bench, run


@pytest.mark.slow
def test_the_submit_after_a_take_over_goes_on_at_once_from_what_a_killed_process_published(
    tmp_path: Path,
) -> None:
    with ended(begin(configured(tmp_path))) as process:
        once(lambda: found(tmp_path, "chunks/*.pgp"))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    adapters = edges(LocalStore(tmp_path / "store"))
    [run] = map(str, StoredRuns(adapters, "bank").ids)
    # as of a machine that this one cannot look at
    elsewhere = update(LEASE).values(holder="another:1", process="")
    adapters.database.act("bank", lambda connection: connection.execute(elsewhere).close())

    refused = run_it(tmp_path, "submit", "bank")
    rehearsed = run_it(tmp_path, "mend", "take-over", run, "--reason", WHY, "--dry-run")
    taken = run_it(tmp_path, "mend", "take-over", run, "--reason", WHY)
    finished = run_it(tmp_path, "submit", "bank")

    assert (refused["exit_code"], refused["error"]) == (75, "ClaimedError")
    assert {name: rehearsed[name] for name in ("holder", "since", "until")} == {
        name: taken[name] for name in ("holder", "since", "until")
    }
    assert "another:1" == taken["holder"]
    assert (finished["exit_code"], finished["runs"][0]["counts"]["submitted"]) == (0, 750)
    assert StoredRun.by_id(edges(LocalStore(tmp_path / "store")), run).manifest is not None


def test_a_process_that_still_lives_loses_the_claim_at_its_next_beat(
    planned: tuple[Bench, str],
) -> None:
    bench, run = planned
    alive = replace(bench, actor="alive:7").context.adapters

    with claimed(alive, work_on(alive, run), beat=0.01) as claim:
        take_over(bench.context.adapters, run, WHY)

        once(lambda: lost(claim))
        with pytest.raises(LeaseLostError):
            claim.check()


def test_what_is_shown_is_who_holds_it_since_when_and_until_when(
    planned: tuple[Bench, str],
) -> None:
    bench, run = planned
    working = replace(bench, actor="working:7").context.adapters
    later = overlaid(replace(bench, now=lambda: NOON + timedelta(minutes=2)).context).adapters

    with claimed(working, work_on(working, run)) as claim:
        claim.renew(NOON + timedelta(minutes=1))
        shown = take_over(later, run, WHY)

    assert shown == ("working:7", NOON, NOON + timedelta(minutes=4))


def test_a_dry_run_ends_nothing(planned: tuple[Bench, str]) -> None:
    bench, run = planned

    with claimed(replace(bench, actor="working:7").adapters, work_on(bench.adapters, run)):
        take_over(overlaid(bench.context).adapters, run, WHY)

        with (
            pytest.raises(ClaimedError, match="working:7"),
            claimed(bench.adapters, work_on(bench.adapters, run)),
        ):
            pass


def test_a_claim_that_nobody_holds_is_not_taken_over(planned: tuple[Bench, str]) -> None:
    bench, run = planned

    with pytest.raises(NotFoundError, match="no claim to take over"):
        take_over(bench.context.adapters, run, WHY)
    with pytest.raises(UnknownRunError):
        take_over(bench.context.adapters, "bank-20261120-00000000", WHY)


def test_the_history_tells_whose_claim_was_ended_by_whom_and_why(
    planned: tuple[Bench, str],
) -> None:
    bench, run = planned

    with claimed(replace(bench, actor="dead:7").adapters, work_on(bench.adapters, run)):
        take_over(bench.context.adapters, run, WHY)

    [told] = [one for one in history(bench.adapters, run) if one.what == "taken over"]
    assert (told.by, told.facts["holder"], told.facts["reason"]) == ("tester:1", "dead:7", WHY)


def configured(folder: Path) -> Path:
    """Return a folder with an issuer, its key, and an extract of 150 chunks."""
    key = keys.sound()
    (folder / "bank.toml").write_text(TOML.format(key.fingerprint))
    (folder / "portal.asc").write_bytes(key.public)
    drop = folder / "store" / "bank" / "extracts"
    drop.mkdir(parents=True)
    with (drop / "bank-20261120.csv").open("wb") as out:
        write_sample(out, 750, as_of=DAY)
    return folder


def begin(folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    return subprocess.Popen(
        [*COMMAND, "--config", ".", "submit", "bank"],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def run_it(folder: Path, *arguments: str) -> dict[str, Any]:
    with chdir(folder):
        done = CliRunner().invoke(main, ["--json", *arguments])
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def lost(claim: Lease) -> bool:
    try:
        claim.check()
    except LeaseLostError:
        return True
    return False


def once(there: Any) -> None:
    until = time.monotonic() + 300
    while not there():
        assert time.monotonic() < until
        time.sleep(0.005)


def found(folder: Path, pattern: str) -> list[Path]:
    return list((folder / "store").rglob(pattern))
