"""The folders into which others drop files: which of the files there are meant for us.

Systems leave files of their own beside those of people: previews, marks, copies under way. They are
left alone. A file whose name cannot be used is a matter of its own, and stops nothing else.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from flows.extensions import names
from flows.redaction import redact
from flows.runs.keys import checked, results, shown
from flows.runs.store import Entry, KeyRefusedError, Store

FOLDERS = ("extracts", "results", "corrections", *names("DROPPED"))

# what file managers, browsers, transfers and editors leave beside files; what begins with a dot is
# hidden, of a Mac (._x.csv), or under way (rsync's .x.csv.Xy12ab)
_COMPANION = re.compile(
    r"\.(?!\.).*|Thumbs\.db|desktop\.ini|~\$.*|.*(?::Zone\.Identifier|\.filepart|\.part|\.partial"
    r"|\.crdownload|\.tmp|\.swp|~)",
    re.IGNORECASE,
)


class LeftFile(NamedTuple):
    """A file that nothing takes: its name as it can be shown, and why it cannot be used."""

    entry: Entry
    name: str
    reason: str = ""

    @property
    def waits(self) -> str:
        """What is said of it where it is not taken."""
        return f"its name cannot be used: {self.reason}"


class DroppedFiles(NamedTuple):
    """The files of a folder: those to work with, those of systems, those that cannot be used."""

    files: list[Entry]
    companions: list[LeftFile]
    unusable: list[LeftFile]


def dropped_files(store: Store, prefix: str, *, shown_as_is: bool = True) -> DroppedFiles:
    """Return what others dropped into a folder, by key.

    `shown_as_is`: names are shown and stored, so none may contain a card number.
    """
    dropped = DroppedFiles([], [], [])
    for entry in store.keys(prefix):
        if is_companion(entry.key):
            dropped.companions.append(_left(entry, prefix))
            continue
        reason = _flaw(entry.key)
        if shown_as_is and not reason and redact(entry.key) != entry.key:
            reason = "it contains a card number"
        if reason:
            dropped.unusable.append(_left(entry, prefix, reason))
        else:
            dropped.files.append(entry)
    return dropped


def _left(entry: Entry, prefix: str, reason: str = "") -> LeftFile:
    return LeftFile(entry, redact(shown(entry.key).removeprefix(prefix)), reason)


def dropped_folders(store: Store, issuer: str) -> Iterator[tuple[str, DroppedFiles]]:
    """Yield the folders of an issuer into which others drop files, each with its files."""
    for folder in FOLDERS:
        prefix = f"{issuer}/{folder}/"
        dropped = dropped_files(store, prefix, shown_as_is=prefix != results(issuer))
        yield folder, dropped


def is_companion(key: str) -> bool:
    """Return whether a file is one that a system leaves beside those of people, or under way."""
    return _COMPANION.fullmatch(key.rpartition("/")[2]) is not None


def _flaw(key: str) -> str:
    """Return why a key cannot be used, "" where it can."""
    try:
        checked(key)
    except KeyRefusedError as error:
        return str(error.fields["reason"])
    return ""
