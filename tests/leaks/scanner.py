"""Looks for known cards and CVVs, in every form, in everything a night leaves behind, and counts
what it looked at.
"""

from __future__ import annotations

import pickle
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from tests.leaks.containers import parts
from tests.leaks.forms import of_card, of_cvv
from tests.leaks.search import Search

DEPTH = 6  # containers in containers that are opened


class Secret(NamedTuple):
    """A form of a card or CVV, named without showing it."""

    whose: str
    form: str


class Leak(NamedTuple):
    """A secret where none belongs."""

    place: str
    secret: Secret


@dataclass
class Scanned:
    """What was looked at."""

    objects: int = 0
    opened: int = 0
    bytes: int = 0

    def __add__(self, other: Scanned) -> Scanned:
        return Scanned(
            self.objects + other.objects, self.opened + other.opened, self.bytes + other.bytes
        )


@dataclass
class Scanner:
    """Search bytes, texts, exceptions and whole folders for the secrets of an extract; `scanned`
    counts.
    """

    cards: Iterable[str]
    cvvs: Iterable[str]
    scanned: Scanned = field(default_factory=Scanned)

    def __post_init__(self) -> None:
        secrets = {pattern: secret for secret, pattern in _secrets(self.cards, self.cvvs)}
        self.forms = len({secret.form for secret in secrets.values()})
        self._search = Search(secrets.items())
        self._clean: set[bytes] = set()

    def scan(self, place: str, data: bytes, log: bytes = b"") -> list[Leak]:
        """Return the leaks of one object, its name and what is packed in it; `log` is a database's
        -wal.
        """
        self.scanned.objects += 1
        return [*self._name(place), *dict.fromkeys(self._scan(place, data, log, DEPTH))]

    def scan_text(self, place: str, text: str) -> list[Leak]:
        """Return the leaks of a text: an output, a command line, an environment."""
        return self.scan(place, text.encode("utf-8", "surrogateescape"))

    def scan_error(self, place: str, error: BaseException) -> list[Leak]:
        """Return the leaks of an exception: its text, its arguments, its whole chain as printed,
        its pickle.
        """
        printed = "".join(traceback.format_exception(error))
        return [
            *self.scan_text(
                place, f"{printed}\n{error}\n{error!r}\n{error.args!r}\n{vars(error)!r}"
            ),
            *self.scan(f"{place}, pickled", pickle.dumps(error)),
        ]

    def scan_folder(self, folder: Path, without: Iterable[Path] = ()) -> list[Leak]:
        """Return the leaks of everything below a folder but what is below the paths of
        `without`.
        """
        left_out = [path.resolve() for path in without]
        return [
            leak
            for path in sorted(folder.resolve().rglob("*"))
            if not any(path.is_relative_to(other) for other in left_out)
            for leak in self._scan_path(path, str(path.relative_to(folder.resolve())))
        ]

    def _scan_path(self, path: Path, place: str) -> list[Leak]:
        if path.is_symlink():
            return self.scan_text(place, str(path.readlink()))
        if not path.is_file():
            return self._name(place)
        log = path.with_name(f"{path.name}-wal")
        return self.scan(place, path.read_bytes(), log.read_bytes() if log.is_file() else b"")

    def _name(self, place: str) -> list[Leak]:
        return [
            Leak(f"name of {place!r}", secret)
            for secret in self._search.find(place.encode(errors="replace"))
        ]

    def _scan(self, place: str, data: bytes, log: bytes, depth: int) -> list[Leak]:
        digest = sha256(data + log).digest()
        if digest in self._clean:
            return []
        self.scanned.bytes += len(data)
        leaks = [Leak(place, secret) for secret in self._search.find(data)]
        for part in parts(data, log) if depth else ():
            self.scanned.opened += 1
            leaks += self._scan(f"{place}/{part.place}", part.data, b"", depth - 1)
        if not leaks:
            self._clean.add(digest)  # the same bytes need not be opened again
        return leaks


def _secrets(cards: Iterable[str], cvvs: Iterable[str]) -> Iterator[tuple[Secret, bytes]]:
    for number, card in enumerate(sorted(set(cards)), 1):
        yield from ((Secret(f"card {number}", form.name), form.data) for form in of_card(card))
    for number, cvv in enumerate(sorted(set(cvvs)), 1):
        yield from ((Secret(f"CVV {number}", form.name), form.data) for form in of_cvv(cvv))
