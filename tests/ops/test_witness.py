"""Prefect is a witness: whatever its server does in the middle of a night, the extracts are
committed all the same.

A real server on SQLite is killed, stopped, restarted and locked out of its database at every phase
of a real flow.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

import pytest
from sqlalchemy import select

from flows.database.connection import Database
from flows.extensions.simulator.demo import AS_OF, ISSUER, TRAILER, prepare
from flows.extensions.simulator.extract import Dialect, write_sample
from flows.extensions.simulator.ui import PREFECT, environment
from schemas.database import LEASE
from tests.leftovers import ended
from tests.night import runs_in
from tests.ops.stage import PATIENCE, ROOT, wait_for
from tests.servers import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
NIGHT = [sys.executable, "-c", f"from flows.nightly import nightly; nightly({ISSUER!r})"]
ROWS = 4000
PHASES = (
    "the flow has begun",
    "a run is planned",
    "a chunk is published",
    "the first run is committed",
)


class Server(NamedTuple):
    """A real Prefect server, which leads its process group, and the folder of everything."""

    folder: Path
    settings: dict[str, str]
    process: subprocess.Popen[bytes]

    def signal(self, number: int) -> None:
        os.killpg(self.process.pid, number)


@contextmanager
def serving(folder: Path, settings: dict[str, str]) -> Iterator[Server]:
    """Run a server until the block ends, however it has been treated."""
    url = settings["PREFECT_API_URL"]
    port = url.removesuffix("/api").rpartition(":")[2]
    command = [*PREFECT, "server", "start", "--host", "127.0.0.1", "--port", port]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            command, env=settings, stdout=log, stderr=log, start_new_session=True
        )
    with ended(process):
        wait_for(lambda: answers(url))
        yield Server(folder, settings, process)


def answers(url: str) -> bool:
    try:
        urlopen(f"{url}/health", timeout=5).close()
    except OSError:
        return False
    return True


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Server]:
    """Three extracts to submit, and a server that has done nothing yet."""
    prepare(tmp_path, ROWS)
    for seed in (2, 3):
        day = AS_OF - timedelta(days=seed)
        with (tmp_path / "store" / ISSUER / "extracts" / f"{ISSUER}-{day:%Y%m%d}.csv").open(
            "wb"
        ) as out:
            write_sample(
                out, ROWS, bad=0.02, seed=seed, as_of=AS_OF, dialect=Dialect(trailer=TRAILER)
            )
    retries = {
        "PREFECT_CLIENT_RETRY_EXTRA_CODES": "500",
        "PREFECT_CLIENT_MAX_RETRIES": "1",
    }  # deploy/prefect.yaml: more
    settings = {
        **environment(tmp_path, free_port(), free_port()),
        **retries,
        "PYTHONPATH": str(ROOT),
    }
    with serving(tmp_path, settings) as running:
        yield running


@contextmanager
def running(server: Server) -> Iterator[subprocess.Popen[bytes]]:
    """Run the night in a process of its own; what it says is in `flow.log`."""
    with (server.folder / "flow.log").open("wb") as log:
        process = subprocess.Popen(
            NIGHT, env=server.settings, stdout=log, stderr=log, start_new_session=True
        )
    with ended(process):
        yield process


def reach(server: Server, phase: str) -> None:
    """Wait until a night has reached a phase."""
    log = server.folder / "flow.log"
    chunks = server.folder / "store" / ISSUER / "runs"
    is_reached: dict[str, Callable[[], object]] = {
        "the flow has begun": lambda: b"Beginning flow run" in log.read_bytes(),
        "a run is planned": lambda: runs_in(server.folder, ISSUER).ids,
        "a chunk is published": lambda: any(chunks.glob("*/chunks/*.pgp")),
        "the first run is committed": lambda: committed(server),
    }
    wait_for(is_reached[phase])


def committed(server: Server) -> int:
    return len(list(runs_in(server.folder, ISSUER).manifests()))


def leases(server: Server) -> list[Any]:
    """Return the claims that were taken."""
    with Database(server.folder / "cardlink.db").snapshot() as connection:
        return list(connection.execute(select(LEASE)))


@pytest.mark.parametrize("phase", PHASES)
def test_a_night_whose_server_is_killed_commits_every_extract(night: Server, phase: str) -> None:
    with running(night) as process:
        reach(night, phase)
        night.signal(signal.SIGKILL)
        before = committed(night)
        process.wait(PATIENCE)

    assert before < 3
    assert 3 == committed(night)


def test_a_night_whose_server_comes_back_is_shown_as_what_it_was(night: Server) -> None:
    with running(night) as process:
        reach(night, "the first run is committed")
        night.signal(signal.SIGKILL)
        night.process.wait()
        with serving(night.folder, night.settings):
            process.wait(PATIENCE)

    assert (0, 3) == (process.returncode, committed(night))


def test_a_night_whose_server_hangs_commits_every_extract_meanwhile(night: Server) -> None:
    with running(night) as process:
        reach(night, "the flow has begun")
        night.signal(signal.SIGSTOP)
        wait_for(lambda: committed(night) == 3)
        alive = process.poll() is None
        night.signal(signal.SIGCONT)
        process.wait(PATIENCE)

    assert (True, 0) == (alive, process.returncode)


def test_a_night_whose_server_cannot_write_its_database_commits_every_extract(
    night: Server,
) -> None:
    database = sqlite3.connect(night.folder / "prefect" / "prefect.db", isolation_level=None)
    with running(night) as process, closing(database):
        reach(night, "the flow has begun")
        database.execute("BEGIN EXCLUSIVE")
        wait_for(lambda: committed(night) == 3)
        database.execute("ROLLBACK")
        process.wait(PATIENCE)

    assert 0 == process.returncode


@pytest.mark.parametrize("phase", PHASES)
def test_a_night_that_is_told_to_end_gives_its_claim_back_and_the_next_one_goes_on_at_once(
    night: Server, phase: str
) -> None:
    with running(night) as process:
        reach(night, phase)
        os.kill(process.pid, signal.SIGTERM)
        process.wait(PATIENCE)
    held = [lease for lease in leases(night) if lease.until > lease.renewed]

    with running(night) as again:
        again.wait(PATIENCE)

    assert [] == held
    assert (0, 3) == (again.returncode, committed(night))
