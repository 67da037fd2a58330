"""The whole torture: every kind of harm in proportion, on each kind of store, side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from flows.adapters.gpg_home import remove_dead_homes
from tests.stores import KINDS, Place, places
from tests.torture.crossed import race_each_other
from tests.torture.every_command import Stage, harm_every_command
from tests.torture.faults import fault_many
from tests.torture.kills import kill_many
from tests.torture.night import Children, GateFacts, undisturbed
from tests.torture.nursery import Forkserver, forkserver
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
    parts: Sequence[str]

    def size_of(self, part: str) -> int:
        """Return how often this part harms."""
        return max(1, int(self.size * PARTS[part]))


# the parts of a torture, in their order, each with its share of the size
PARTS = {
    "kills": 1.0,
    "races": 0.3,
    "faults": 0.5,
    "signals": 1.0,
    "commands": 1.0,
    "crossed": 0.3,
    "power": 0.5,
    "systems": 0.25,
}


def torture(
    size: int,
    folder: Path,
    seed: int,
    kinds: Sequence[str] = (),
    parts: Sequence[str] = (),
) -> list[Tally]:
    """Harm stores of these kinds by these parts (all by default) side by side; print and return
    the tallies.

    Each part harms `size` times its share, spread over the kinds of store; losses of power are of
    stores on disk, whole systems in memory.
    """
    kinds, parts = kinds or list(KINDS), parts or list(PARTS)
    sizes = [len(range(number, size, len(kinds))) for number in range(len(kinds))]
    shares = [
        Share(kind, part, folder / kind, seed, parts)
        for kind, part in zip(kinds, sizes, strict=True)
    ]
    systems = [max(1, int(size * PARTS["systems"]))] if "systems" in parts else []
    with ProcessPoolExecutor(len(shares) + 1, get_context("spawn")) as pool:
        living = [pool.submit(_live, count) for count in systems]
        sides = [pool.submit(harm, share) for share in shares]
        tallies = chain.from_iterable(side.result() for side in sides)
        return [*tallies, *(lives.result() for lives in living)]


def harm(share: Share) -> list[Tally]:
    """Do each part of a share to stores of one kind."""
    fresh = f"torture-{share.seed}"
    by_disk = KINDS[share.kind].on_disk
    with stage(share.folder) as (night, children), served(share) as address:
        stores = places(share.kind, address, fresh, "" if by_disk else str(share.folder / "rows"))
        seed = share.seed
        harms: dict[str, Callable[[int], Tally]] = {
            "kills": lambda size: kill_many(night, children, stores, size, seed),
            "races": lambda size: race_many(night, children, stores, size, seed),
            "faults": lambda size: fault_many(night, stores, size, seed),
            "signals": lambda size: signal_many(night, children, stores, size, seed),
            "commands": lambda size: _commands(share, stores, children, size),
            "crossed": lambda size: race_each_other(
                _acts(share, "crossed", stores), share.kind, size, seed
            ),
        }
        if by_disk:
            harms["power"] = lambda size: lose_power(night, children, stores, size, seed)
        return [
            _printed(act(share.size_of(part))) for part, act in harms.items() if part in share.parts
        ]


def _commands(share: Share, stores: Iterator[Place], children: Children, size: int) -> Tally:
    """Harm every command in turn, by seed; of a store that other processes see, by SIGKILL too."""
    acts = _acts(share, "commands", stores, children.nursery)
    return harm_every_command(acts, share.kind, size, share.seed)


def _acts(
    share: Share, name: str, stores: Iterator[Place], born: Forkserver | None = None
) -> Stage:
    folder = share.folder / name
    folder.mkdir()
    return Stage(folder, stores, on_disk=KINDS[share.kind].on_disk, born=born)


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
        undisturbed(Place("directory", str(folder), "quiet/store")) as night,
    ):
        yield night, Children(born, folder)
    remove_dead_homes()  # as the next command would: the gpg homes of the killed


def main(size: int, seed: int, kinds: Sequence[str] = (), parts: Sequence[str] = ()) -> int:
    """Print what happened; return 1 where anything was lost."""
    begin = time.monotonic()
    with TemporaryDirectory(prefix="cardlink-torture-") as folder:
        tallies = torture(size, Path(folder), seed, kinds, parts)
    lost = sum(len(tally.losses) for tally in tallies)
    print(f"losses: {lost} (seed {seed}, {time.monotonic() - begin:.0f} s)")
    return 1 if lost else 0
