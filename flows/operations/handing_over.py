"""Hand files over to others: sealed to their key, copied to where they take them, and receipted.

What is told to an issuer and the links of a receiver go the same way. Put here what both do.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TypeVar

from flows.errors import CardlinkError, TryAgainError
from flows.runs.context import IssuerContext
from flows.runs.handovers import Handed
from flows.runs.sealing import Plain, Sealer
from flows.runs.store import Store, is_stored, read_if_stored
from schemas import records
from schemas.handover import HandedOver

R = TypeVar("R", bound=records.HandedOver)
RECEIVED = "received"  # the receipt that is dropped beside the files
RECEIPT = 1 << 16  # bytes read of one
_SHA256 = re.compile(rb"\b[0-9a-f]{64}\b")


class NotSealedError(TryAgainError):
    """gpg sealed no file for whom it is for."""

    message = (
        "{name} could not be sealed to the key of whom it is for ({trouble}). Nothing was written."
    )
    next_step = "Run {same_command} again; if it persists, check key_file of its table in the TOML."


def sealer_of(
    context: IssuerContext, settings: HandedOver | None
) -> AbstractContextManager[Sealer | None]:
    """Open the sealer to the key that is pinned; it is None where the files stay in clear."""
    if settings is None or settings.key_file is None:
        return nullcontext()
    return context.sealer_to(settings)


def sealed(plain: Mapping[str, bytes], sealer: Sealer | None) -> dict[str, bytes]:
    """Return the files as they are handed over, by name; NotSealedError."""
    if sealer is None:
        return dict(plain)
    messages = sealer.seal([Plain(name, content) for name, content in plain.items()])
    for message in messages:
        if message.trouble:
            raise NotSealedError(name=message.name, trouble=message.trouble)
    return {f"{message.name}.pgp": message.data for message in messages}


def copy_to(
    store: Store,
    folder: str,
    names: Iterable[str],
    place: Store,
    below: str,
    done: Mapping[str, bytes],
) -> None:
    """Copy the files of a folder to a place, below a prefix, and last what says that they are
    there.

    `done`: its name, and its content. Nothing where it is there already.
    """
    [(marker, content)] = done.items()
    if is_stored(place, below + marker):
        return
    for name in names:
        file = read_if_stored(store, folder + name)
        if file is not None:  # None: retention or an erasure removed it
            place.create(below + name, file)
    place.create(below + marker, content)


class Receipts:
    """The receipts that were dropped: beside the files in the store, or where they are taken.

    A place that cannot be read has none: whoever hands files over there says so.
    """

    def __init__(self, context: IssuerContext, settings: HandedOver) -> None:
        self._store = context.adapters.store
        self._place: Store | None = None
        with suppress(CardlinkError):
            self._place = context.place_of(settings)

    def newest(
        self,
        sent: Sequence[Handed[R]],
        folders: Callable[[Handed[R]], tuple[str, str]],
        sums: Callable[[Handed[R]], Iterable[Collection[str]]],
    ) -> tuple[int, tuple[str, ...]]:
        """Return the number of the last one whose receipt names the SHA-256 of all of its files, 0
        where there is none, and the receipts of later ones, which name others.

        `sent`: the last ones, the first first. `folders`: where the files are in the store, and
        at their place. `sums`: of all files, in each form in which they may be named.
        """
        doubts: list[str] = []
        for each in reversed(sent):
            own, elsewhere = folders(each)
            named = self._digests(own + RECEIVED, elsewhere + RECEIVED)
            if named is None:
                continue
            if any(whole and named.issuperset(whole) for whole in sums(each)):
                return each.number, tuple(doubts)
            doubts.append(own + RECEIVED)
        return 0, tuple(doubts)

    def _digests(self, own: str, elsewhere: str) -> set[str] | None:
        """Return the SHA-256 sums that receipts name; None where there is none."""
        texts = [read_if_stored(self._store, own, RECEIPT)]
        try:
            if self._place is not None:
                texts.append(read_if_stored(self._place, elsewhere, RECEIPT))
        except CardlinkError:
            self._place = None
        present = [text for text in texts if text is not None]
        if not present:
            return None
        return {sha256.decode() for sha256 in _SHA256.findall(b" ".join(present).lower())}


def place_lines(context: IssuerContext, settings: HandedOver) -> list[str]:
    """Return what is fine about a key and a place, by a trial seal and a listing."""
    lines = []
    with sealer_of(context, settings) as sealer:
        if sealer is not None:
            lines.append(f"{settings.fingerprint}: the trial seal is as expected")
    place = context.place_of(settings)
    if place is not None:
        count = sum(1 for _ in place.keys("", shallow=True))
        lines.append(f"{settings.to}: can be listed, {count:,} objects")
    return lines or ["stays in the store, in clear"]
