"""The whole torture: every kind of harm in proportion, on each kind of store, side by side."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from flows.adapters.gpg_home import remove_dead_homes
from tests.stores import KINDS, Place, places
from tests.torture.every_command import Stage, harm_every_command
from tests.torture.faults import fault_many
from tests.torture.kills import kill_many
from tests.torture.night import Children, GateFacts, undisturbed
from tests.torture.nursery import forkserver
from tests.torture.power import lose_power
from tests.torture.races import race_many
from tests.torture.signals import signal_many
from tests.torture.tally import Tally
from tests.torture.whole_system import live_many


class Share(NamedTuple):
    """What one kind of store has to go through: so many kills and signals, and others in
    proportion.
    """

    kind: str
    size: int
    folder: Path
    seed: int


def torture(size: int, folder: Path, seed: int, kinds: Sequence[str] = ()) -> list[Tally]:
    """Harm stores of these kinds (all by default) side by side; print and return the tallies.

    `size` kills, as many signals, as many harms to every command in turn, a third as many races, half as many faults, a quarter as many
    losses of power (of stores on disk) and whole systems in memory.
    """
    kinds = kinds or list(KINDS)
    sizes = [len(range(number, size, len(kinds))) for number in range(len(kinds))]
    shares = [
        Share(kind, part, folder / kind, seed) for kind, part in zip(kinds, sizes, strict=True)
    ]
    with ProcessPoolExecutor(len(shares) + 1, get_context("spawn")) as pool:
        systems = pool.submit(_live, max(1, size // 4))
        sides = [pool.submit(harm, share) for share in shares]
        return [*chain.from_iterable(side.result() for side in sides), systems.result()]


def harm(share: Share) -> list[Tally]:
    """Do every kind of harm to stores of one kind."""
    fresh = f"torture-{share.seed}"
    with stage(share.folder) as (night, children), served(share) as address:
        stores = places(share.kind, address, fresh)
        races, faults = max(1, share.size * 3 // 10), max(1, share.size // 2)
        tallies = [
            _printed(kill_many(night, children, stores, share.size, share.seed)),
            _printed(race_many(night, children, stores, races, share.seed)),
            _printed(fault_many(night, stores, faults, share.seed)),
            _printed(signal_many(night, children, stores, share.size, share.seed)),
            _printed(_commands(share, stores, children)),
        ]
        if KINDS[share.kind].on_disk:
            losses = max(1, share.size // 2)
            tallies.append(_printed(lose_power(night, children, stores, losses, share.seed)))
        return tallies


def _commands(share: Share, stores: Iterator[Place], children: Children) -> Tally:
    """Harm every command in turn, by seed; of a store that other processes see, by SIGKILL too."""
    folder = share.folder / "commands"
    folder.mkdir()
    acts = Stage(folder, stores, on_disk=KINDS[share.kind].on_disk, born=children.nursery)
    return harm_every_command(acts, share.kind, share.size, share.seed)


def served(share: Share) -> AbstractContextManager[str]:
    """Serve a kind of store below the folder; return its address."""
    return KINDS[share.kind].serve(share.folder / "stores")


def _live(systems: int) -> Tally:
    return _printed(live_many(systems))


def _printed(tally: Tally) -> Tally:
    print(tally, flush=True)
    return tally


@contextmanager
def stage(folder: Path) -> Iterator[tuple[GateFacts, Children]]:
    """Set up what every harm needs: a quiet night to compare with, and children."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        forkserver() as born,
        undisturbed(Place("directory", str(folder), "quiet")) as night,
    ):
        yield night, Children(born, folder)
    remove_dead_homes()  # as the next command would: the gpg homes of the killed


def main(size: int, seed: int, kinds: Sequence[str] = ()) -> int:
    """Print what happened; return 1 where anything was lost."""
    begin = time.monotonic()
    with TemporaryDirectory(prefix="cardlink-torture-") as folder:
        tallies = torture(size, Path(folder), seed, kinds)
    lost = sum(len(tally.losses) for tally in tallies)
    print(f"losses: {lost} (seed {seed}, {time.monotonic() - begin:.0f} s)")
    return 1 if lost else 0
