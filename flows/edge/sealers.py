"""Keeps gpg sealers between the nights of one process: most issuers seal to the same few keys, night after night."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from threading import Lock
from typing import Literal, NamedTuple

from flows.edge.pgp import GpgSealer, trial_seal

IDLE = 4  # sealers kept, each a private gpg home of a few small files with public keys


class Wanted(NamedTuple):
    """What a sealer is made of: two that are equal seal alike, judged on the same day."""

    keys: tuple[bytes, ...]
    fingerprints: tuple[str, ...]
    armor: bool
    compression: Literal["zip", "none"]
    today: date


class Sealers:
    """Lends out sealers that passed a trial; one that is lent out belongs to its borrower alone."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._idle: dict[Wanted, GpgSealer] = {}
        self._moving = Lock()

    @contextmanager
    def lend(self, wanted: Wanted) -> Iterator[GpgSealer]:
        """Lend a sealer; it is kept for the next night, unless this one ended in an error or a newer one needs room."""
        sealer = self._idle.pop(wanted, None) or _tried(wanted)
        try:
            yield sealer
        except BaseException:
            sealer.close()
            raise
        for other in self._keep(wanted, sealer):
            other.close()

    def _keep(self, wanted: Wanted, sealer: GpgSealer) -> list[GpgSealer]:
        """Keep a sealer as the newest; return those that make room: one alike of a night beside this, the oldest."""
        with self._moving:
            others = [self._idle.pop(wanted)] if wanted in self._idle else []
            self._idle[wanted] = sealer
            return others + [self._idle.pop(oldest) for oldest in list(self._idle)[:-IDLE]]

    def close(self) -> None:
        """End all that are idle; a forked child leaves its parent's alone."""
        while self._idle and os.getpid() == self._process:
            self._idle.popitem()[1].close()


def _tried(wanted: Wanted) -> GpgSealer:
    sealer = GpgSealer(
        wanted.keys, wanted.fingerprints, armor=wanted.armor, compression=wanted.compression, today=wanted.today
    )
    try:
        trial_seal(sealer)
    except BaseException:
        sealer.close()
        raise
    return sealer
