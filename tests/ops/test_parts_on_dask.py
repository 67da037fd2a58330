"""An extract read in parts on a real Dask cluster of two worker processes, one of which is killed in the middle."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from flows.core.names import extracts, runs
from flows.simulator.extract import write_sample
from flows.ui import environment, server
from tests import keys
from tests.night import BANK, DAY, Bench, local_bench
from tests.servers import free_port

NIGHT = f"from flows.nightly import nightly; nightly({BANK!r}, on_any_day=True)"
ROWS = 60_000
TOML = """
issuer = "{bank}"
root = "store"
test = true
[limits]
max_reject_rate = 0.5
[portal]
key_file = "portal.asc"
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
[scale]
parts = 4
least_part_mib = 4
workers = 2
runner = "{runner}"
"""


def prepare(folder: Path, runner: str) -> Bench:
    """Return a bench on a folder with settings and an extract."""
    bench = local_bench(folder)
    (folder / f"{BANK}.toml").write_text(TOML.format(bank=BANK, fingerprint=keys.sound().fingerprint, runner=runner))
    (folder / "portal.asc").write_bytes(keys.sound().public)
    place = folder / "store" / extracts(BANK)
    place.mkdir(parents=True)
    with (place / "bank-20261120.csv").open("wb") as out:
        write_sample(out, ROWS, bad=0.02, seed=5, as_of=DAY)
    return bench


@contextmanager
def night(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run the night's flow in a process of its own."""
    port = free_port()
    settings = environment(folder, port)
    with server(settings, folder / "server.log", port), (folder / "night.log").open("wb") as log:
        child = subprocess.Popen([sys.executable, "-c", NIGHT], env=settings, stdout=log, stderr=log)
        try:
            yield child
        finally:
            below = psutil.Process(child.pid).children(recursive=True) if child.poll() is None else []
            for process in [*below, child]:
                process.kill()
            child.wait()


def kill_a_worker(child: subprocess.Popen[bytes], folder: Path) -> int:
    """Kill one of the cluster's processes as soon as chunks appear; return its id."""
    end = time.monotonic() + 60
    while time.monotonic() < end and child.poll() is None:
        if any((folder / "store" / runs(BANK)).glob("*/chunks/*.pgp")):
            below = psutil.Process(child.pid).children(recursive=True)
            pid: int = next(one.pid for one in below if "spawn_main" in str(one.cmdline()))
            os.kill(pid, signal.SIGKILL)
            return pid
        time.sleep(0.01)
    return 0


def lines(bench: Bench) -> list[str]:
    """Return every line the portal gets."""
    run = next(path.name for path in (bench.store._root / runs(BANK)).iterdir())  # type: ignore[attr-defined]  # a directory
    return sorted(line for chunk in bench.chunks(run) for line in chunk.decode().splitlines()[1:])


def test_a_killed_worker_is_replaced_and_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    bench, alone = prepare(tmp_path / "dask", "dask"), prepare(tmp_path / "alone", "threads")
    alone.submit("bank-20261120.csv")

    with night(tmp_path / "dask") as child:
        killed = kill_a_worker(child, tmp_path / "dask")
        ended = child.wait(100)

    assert killed
    assert 0 == ended, (tmp_path / "dask" / "night.log").read_text()[-3000:]
    assert lines(alone) == lines(bench)
