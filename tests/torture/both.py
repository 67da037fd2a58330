"""The whole torture: every kind of harm in proportion, on both storages side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from flows.adapters.gpg_home import remove_dead_homes
from tests import servers
from tests.torture.faults import fault_directories, fault_s3
from tests.torture.kills import kill_many
from tests.torture.night import Children, GateFacts, undisturbed
from tests.torture.nursery import forkserver
from tests.torture.places import Place, directories, prefixes
from tests.torture.power import lose_power
from tests.torture.races import race_many
from tests.torture.signals import signal_many
from tests.torture.tally import Tally
from tests.torture.whole_system import live_many


def torture(size: int, folder: Path, seed: int) -> list[Tally]:
    """Do it on directories and on S3 side by side; print each tally as it comes, return them all.

    `size` kills, as many signals, a third as many races, half as many faults, a quarter as many losses of power and
    whole systems.
    """
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        sides = [
            pool.submit(side, size, folder / side.__name__, seed)
            for side in (_on_directories, _on_s3)
        ]
        return [tally for side in sides for tally in side.result()]


def _on_directories(size: int, folder: Path, seed: int) -> list[Tally]:
    half, some = size - size // 2, max(1, size // 4)
    with stage(folder) as (night, children, _):
        places = directories(folder / "stores")
        return [
            _told(kill_many(night, children, places, half, seed)),
            _told(race_many(night, children, places, _raced(size), seed)),
            _told(fault_directories(night, places, some, seed)),
            _told(signal_many(night, children, places, half, seed)),
            _told(lose_power(night, children, places, some, seed)),
            _told(live_many(some)),
        ]


def _on_s3(size: int, folder: Path, seed: int) -> list[Tally]:
    with stage(folder) as (night, children, server):
        places = prefixes(server, f"torture-{seed}")
        return [
            _told(kill_many(night, children, places, size // 2, seed)),
            _told(race_many(night, children, places, _raced(size), seed)),
            _told(fault_s3(night, places, max(1, size // 4), seed)),
            _told(signal_many(night, children, places, size // 2, seed)),
        ]


def _raced(size: int) -> int:
    return max(1, size * 3 // 20)


def _told(tally: Tally) -> Tally:
    print(tally, flush=True)
    return tally


@contextmanager
def stage(folder: Path) -> Iterator[tuple[GateFacts, Children, servers.S3Server]]:
    """Set up what every torture needs: a quiet night, children, an S3 server."""
    with (
        forkserver() as born,
        servers.ministack(folder / "s3") as server,
        undisturbed(Place(str(folder / "quiet"))) as night,
    ):
        yield night, Children(born, folder), server
    remove_dead_homes()  # as the next command would: the gpg homes of the killed


def main(size: int, seed: int) -> int:
    """Print what happened; return 1 where anything was lost."""
    begin = time.monotonic()
    with TemporaryDirectory(prefix="cardlink-torture-") as folder:
        lost = sum(len(tally.losses) for tally in torture(size, Path(folder), seed))
    print(f"losses: {lost} (seed {seed}, {time.monotonic() - begin:.0f} s)")
    return 1 if lost else 0
