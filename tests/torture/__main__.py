"""`python -m tests.torture N SEED`: N kills and signals, races and faults in proportion, on both storages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
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


def torture(size: int, folder: Path, seed: int) -> Iterator[Tally]:
    """Yield the tallies of `size` kills, as many signals, a third as many races, half as many faults, and the rest."""
    with stage(folder) as (night, children, server):
        local, s3 = directories(folder / "stores"), prefixes(server, f"torture-{seed}")
        raced, some = max(1, size * 3 // 20), max(1, size // 4)
        yield kill_many(night, children, local, size - size // 2, seed)
        yield kill_many(night, children, s3, size // 2, seed)
        yield race_many(night, children, local, raced, seed)
        yield race_many(night, children, s3, raced, seed)
        yield fault_directories(night, local, some, seed)
        yield fault_s3(night, s3, some, seed)
        yield signal_many(night, children, local, size - size // 2, seed)
        yield signal_many(night, children, s3, size // 2, seed)
        yield lose_power(night, children, local, some, seed)
    yield live_many(some)


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
    lost, begin = 0, time.monotonic()
    with TemporaryDirectory(prefix="cardlink-torture-") as folder:
        for tally in torture(size, Path(folder), seed):
            print(tally, flush=True)
            lost += len(tally.losses)
    print(f"losses: {lost} (seed {seed}, {time.monotonic() - begin:.0f} s)")
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
