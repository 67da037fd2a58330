"""Real `cardlink submit` processes that are told to end, or killed: what they leave, and what the
next one does.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from flows.extensions.simulator.extract import write_sample
from flows.runs.keys import extracts
from tests import keys
from tests.leftovers import ended
from tests.night import runs_in
from tests.stores import places
from tests.torture.harm import stage
from tests.torture.signals import signal_many

CHUNKS = 150
PATIENCE = 300.0  # seconds: a machine with other work is slow, not wrong
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


def configured(folder: Path, chunks: int = CHUNKS) -> Path:
    """Return a folder with an issuer, its key, and an extract of so many chunks."""
    key = keys.sound()
    (folder / "bank.toml").write_text(TOML.format(key.fingerprint))
    (folder / "portal.asc").write_bytes(key.public)
    drop = folder / "store" / extracts("bank")
    drop.mkdir(parents=True)
    with (drop / "bank-20261120.csv").open("wb") as out:
        write_sample(out, chunks * 5, as_of=date(2026, 11, 20))
    return folder


@pytest.fixture(autouse=True)
def heard() -> Iterator[None]:
    """Let children hear SIGHUP where these tests themselves run under nohup: what is ignored is
    inherited.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@contextmanager
def begun(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a submit in a process group of its own, which has ended when the block ends."""
    process = subprocess.Popen(
        [*COMMAND, "submit", "bank"],
        env={**os.environ, "CARDLINK_CONFIG": str(folder), "PYTHONPATH": str(Path.cwd())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with ended(process):
        yield process


def submitted(folder: Path) -> tuple[int, dict[str, Any]]:
    """Run a submit to its end; return its exit code and what it said."""
    with begun(folder) as process:
        return end(process)


def end(process: subprocess.Popen[bytes]) -> tuple[int, dict[str, Any]]:
    """Wait for a submit; return its exit code and what it said."""
    told, _ = process.communicate(timeout=PATIENCE)
    return process.returncode, json.loads(told or b"{}")


def once(there: Callable[[], object]) -> None:
    """Wait until something is there."""
    until = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < until
        time.sleep(0.005)


def found(folder: Path, pattern: str) -> list[Path]:
    return list((folder / "store").rglob(pattern))


def homes(process: int) -> list[Path]:
    """Return the private gpg homes of a process, each once, however many links lead to it."""
    homes_and_links = [
        home
        for root in ("/dev/shm", "/tmp")
        for home in Path(root).glob(f"cardlink-gpg-{process}-*")
    ]
    return list({home.resolve() for home in homes_and_links})


def children(session: int) -> list[str]:
    """Return the command lines of what still runs in a session."""
    listed = subprocess.run(
        ["ps", "-s", str(session), "-o", "args="], capture_output=True, check=False
    )
    return listed.stdout.decode().splitlines()


@pytest.mark.parametrize(
    ("moment", "stop"),
    [
        pytest.param("chunks/*-00001.csv.pgp", signal.SIGHUP, marks=pytest.mark.slow),
        pytest.param("chunks/*.pgp", signal.SIGINT, marks=pytest.mark.slow),
        ("chunks/*-00050.csv.pgp", signal.SIGTERM),
    ],
)
def test_a_submit_told_to_end_gives_its_claim_back_and_leaves_nothing_running(
    tmp_path: Path, moment: str, stop: signal.Signals
) -> None:
    folder = configured(tmp_path)
    with begun(folder) as process:
        once(lambda: found(folder, moment))

        process.send_signal(stop)
        process.send_signal(signal.SIGTERM)  # impatience cuts nothing short
        code, told = end(process)

    assert (75, "StoppedError") == (code, told["error"])
    assert ([], []) == (children(process.pid), homes(process.pid))
    assert ([], []) == ([*runs_in(folder).committed()], found(folder, ".tmp-*"))
    code, told = submitted(folder)  # at once: the claim is free
    assert (0, CHUNKS) == (code, told["runs"][0]["chunks"])


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="/proc tells what a process hears"
)
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_command_told_to_end_before_it_has_loaded_its_libraries_says_one_sentence(
    stop: signal.Signals,
) -> None:
    command = [sys.executable, "-m", "flows.cli", "worklist"]
    with ended(
        subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True)
    ) as process:
        once(lambda: hears(process.pid, signal.SIGHUP))  # the last one that it begins to hear

        process.send_signal(stop)
        _, said = process.communicate(timeout=PATIENCE)

    assert 75 == process.returncode
    assert [f"cardlink: Stopped by {stop.name}"] == [
        line.partition(". ")[0] for line in said.decode().splitlines()
    ]


def hears(process: int, wanted: signal.Signals) -> bool:
    """Return whether a process has a handler for a signal."""
    caught = next(
        line
        for line in Path(f"/proc/{process}/status").read_text().splitlines()
        if "SigCgt" in line
    )
    return bool(int(caught.split()[1], 16) >> (wanted - 1) & 1)


@pytest.mark.slow
def test_no_signal_to_any_command_at_any_moment_ends_wrongly(tmp_path: Path) -> None:
    with stage(tmp_path) as (night, children):
        stores = places("directory", str(tmp_path))

        tally = signal_many(night, children, stores, 12, seed=3)

    assert [] == tally.losses


@pytest.mark.slow
def test_a_killed_submit_leaves_a_home_that_the_next_command_sweeps(tmp_path: Path) -> None:
    folder = configured(tmp_path)
    with begun(folder) as process:
        once(lambda: found(folder, "*.csv.pgp"))
        alive = homes(process.pid)

        process.kill()
        process.communicate()

    assert 1 == len(alive)  # not counted later: any command on this machine may have swept it
    code, _ = submitted(folder)  # at once: the process that had the claim is gone
    assert [] == homes(process.pid)
    assert 0 == code


@pytest.mark.slow
def test_everything_a_submit_writes_is_for_its_owner_only(tmp_path: Path) -> None:
    folder = configured(tmp_path)

    submitted(folder)

    written = [
        path for path in (folder / "store" / "bank").rglob("*") if "extracts" not in path.parts
    ]
    modes = {(path.is_dir(), path.stat().st_mode & 0o777) for path in written}
    assert {(True, 0o700), (False, 0o600)} == modes
