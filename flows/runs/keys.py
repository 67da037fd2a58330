"""Names and keys: run ids, chunk names, and where every object is stored.

Also which keys a store accepts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from itertools import chain
from typing import Final, NamedTuple

from flows.extensions import hooks, names
from flows.runs.errors import UnknownRunError
from flows.runs.store import KeyRefusedError

RUN_ID = re.compile(
    r"^(?P<issuer>[a-z0-9][a-z0-9-]*)-(?P<day>\d{8})-(?P<sha>[0-9a-f]{8})"
    r"(-r(?P<again>[2-9]|[1-9]\d+))?$"
)
_OF_CHUNK = re.compile(r"(e(?P<epoch>\d+)-)?\d{5}\.[a-z0-9.]+")  # behind the run

LONGEST_PART = 200  # bytes of a part of a key
TEMPORARY = ".tmp-"  # prefix of the directory store's unfinished files; no key may have it
# of a folder in a listing: S3 gives none, so no store does
FOLDER_TIME = datetime(1970, 1, 1, tzinfo=UTC)
# Folders that others write to, whose files a scanner may have to judge first; and what no one may
# ever change.
_DROPPED = "|".join(["extracts", "results", "corrections", *names("DROPPED")])
DROPPED = re.compile(
    rf"[^/]+/({_DROPPED})/"
    r"|[^/]+/[^/]+/(.+/)?received$"  # a receipt, beside what was handed over
)
LASTING = re.compile(r"[^/]+/journal/")
# as all of ours are, so that most keys are judged by one pattern
_USUAL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# how Python shows bytes in a file name that are not UTF-8
_SURROGATE = re.compile(r"[\ud800-\udfff]")


class RunId(NamedTuple):
    """A run's id: issuer, business date, first 8 hex of the SHA-256 of what it sends.

    That is the extract, or the selection of its rows: so runs of other rows never share a name, not
    even where a store was put back to a copy. `again` counts the runs of an extract on a date.
    """

    issuer: str
    day: date
    sha8: str
    again: int = 1

    def __str__(self) -> str:
        first = f"{self.issuer}-{self.day:%Y%m%d}-{self.sha8}"
        return f"{first}-r{self.again}" if self.again > 1 else first

    @property
    def age(self) -> tuple[date, int, str]:
        """What runs are sorted by, the oldest first, as far as their ids say."""
        return self.day, self.again, self.sha8

    @classmethod
    def parse(cls, text: str) -> RunId | None:
        """Read a run id back, None where the text is not one."""
        parts = RUN_ID.match(text)
        if not parts:
            return None
        try:
            day = date.fromisoformat(parts["day"])
        except ValueError:
            return None
        return cls(parts["issuer"], day, parts["sha"], int(parts["again"] or 1))


def issuer_prefix(name: str) -> Callable[[str], str]:
    """Return the function that gives an issuer's prefix of that name."""
    return lambda issuer: f"{issuer}/{name}/"


extracts = issuer_prefix("extracts")  # the issuer drops extracts here
results = issuer_prefix("results")  # the operator drops result files here
corrections = issuer_prefix("corrections")  # corrected extracts and templates are dropped here
runs = issuer_prefix("runs")  # a folder for each run
# what was read of extracts that have no plan, so that they are read once
identified = issuer_prefix("identified")
reconciliation = issuer_prefix("reconciliation")  # derived: the report across an issuer's runs
# derived: the programme's report, of an issuer, and of all issuers that share a root
programme = issuer_prefix("programme")
ALL_ISSUERS = "programme/"
metrics = issuer_prefix("metrics")  # derived: the metrics of an issuer, and the beat of arrivals
journal = issuer_prefix("journal")  # segments of the journal, by incarnation
# what a purge or an erasure deletes or writes over is below these: in a bucket that keeps versions,
# lifecycle rules remove what it was (deploy/s3-lifecycle.json)
CLEANED: Final = (runs, reconciliation)


def cleaned(issuer: str) -> list[str]:
    """Return the prefixes of an issuer that retention and erasures clean, extensions' too."""
    of_extensions = chain.from_iterable(folders() for folders in hooks("folders"))
    return [
        *(prefix(issuer) for prefix in CLEANED),
        *(f"{issuer}/{folder}/" for folder in of_extensions),
    ]


def period(issuer: str, start: date | None, end: date | None) -> str:
    """Return the prefix of the report across the runs of these business dates.

    That of all runs is the page operators work with, so each period has a folder of its own.
    """
    if start is None and end is None:
        return reconciliation(issuer)
    first = f"{start:%Y%m%d}" if start else "first"
    last = f"{end:%Y%m%d}" if end else "last"
    return f"{reconciliation(issuer)}period-{first}-{last}/"


class RunKeys:
    """Where the objects of one run are stored; what ends in "/" is a prefix."""

    def __init__(self, run: RunId) -> None:
        self.run = run
        self.base = base = f"{runs(run.issuer)}{run}/"
        # the rows of the source that are sent, where those are not all
        self.selection = base + "selection.parquet"
        self.chunks = base + "chunks/"
        self.ledger = base + "ledger/"
        self.resealed = base + "sealed/"  # chunks that were sealed again, a folder for each time

    def sealed(self, generation: int) -> str:
        """Return the prefix of the chunks of the given time (from 1) of sealing again."""
        return f"{self.resealed}{generation}/"

    def report(self, name: str) -> str:
        """Return the key of a derived file, which may be deleted and rebuilt at any time."""
        return f"{self.base}report/{name}"

    def chunk_name(self, number: int, extension: str = "csv.pgp", epoch: int = 1) -> str:
        """Return the file name of chunk `number` (from 1) as it is uploaded.

        `epoch`: of the claim under which it is sealed. So nobody who lost it writes over a chunk.
        """
        taken_over = f"-e{epoch}" if epoch > 1 else ""
        return f"{self.run}{taken_over}-{number:05d}.{extension}"

    def chunk_epoch(self, name: str) -> int:
        """Return the epoch in the file name of a chunk of the run, 0 where it is none."""
        own = f"{self.run}-"
        match = _OF_CHUNK.fullmatch(name.removeprefix(own)) if name.startswith(own) else None
        return int(match["epoch"] or 1) if match else 0


def checked(key: str) -> str:
    """Return `key`.

    Raises KeyRefusedError where it could leave the root or not every store can hold it.
    """
    if len(key) <= LONGEST_PART and _USUAL_KEY.fullmatch(key):
        return key
    parts = key.split("/")
    flaws = {
        "it holds a control character": _CONTROL.search(key),
        "it is not UTF-8": _SURROGATE.search(key),
        "it has an empty part": not all(parts),
        "it has a dotted part": "." in parts or ".." in parts,
        "it is named like a temporary file": any(part.startswith(TEMPORARY) for part in parts),
        "it is too long": len(key.encode(errors="replace")) > 900
        or any(len(part.encode(errors="replace")) > LONGEST_PART for part in parts),
    }
    for reason, is_flawed in flaws.items():
        if is_flawed:
            raise KeyRefusedError(key=shown(key), reason=reason)
    return key


def checked_prefix(prefix: str) -> str:
    """Return `prefix`; KeyRefusedError where no valid key could begin with it."""
    if "/" in prefix:
        checked(prefix.rpartition("/")[0])
    return prefix


def shown(key: str) -> str:
    """Return a key as it can be printed and stored, whatever bytes a file name has."""
    if key.isascii() and key.isprintable():  # as all of ours are, and many are listed
        return key
    return _CONTROL.sub("?", key.encode(errors="backslashreplace").decode())


def keys_of(run: str) -> RunKeys:
    """Return the keys of a run; UnknownRunError where the text is not a run id."""
    parsed = RunId.parse(run)
    if parsed is None:
        raise UnknownRunError(run=run)
    return RunKeys(parsed)
