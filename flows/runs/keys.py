"""Names and keys: run ids, chunk names, where every object of a run is stored, and which keys a store takes."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple

from flows.runs.store import KeyRefusedError

RUN_ID = re.compile(
    r"^(?P<issuer>[a-z0-9][a-z0-9-]*)-(?P<day>\d{8})-(?P<sha>[0-9a-f]{8})(-r(?P<again>[2-9]|[1-9]\d+))?$"
)

TEMPORARY = ".tmp-"  # how the directory store names a file that is not yet whole; no key may look like one
FOLDER_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # a folder in a listing has no time of its own on S3, so nowhere
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_SURROGATE = re.compile(r"[\ud800-\udfff]")  # how Python shows bytes in a file name that are not UTF-8


class RunId(NamedTuple):
    """One extract's journey: issuer, business date, first 8 hex of the extract's SHA-256.

    `again` counts from 2 where an operator asked for a new run of an extract that already had one.
    """

    issuer: str
    day: date
    sha8: str
    again: int = 1

    def __str__(self) -> str:
        return _spelled(self)

    @classmethod
    def parse(cls, text: str) -> RunId | None:
        """Read a run id back, None where the text is not one."""
        found = RUN_ID.match(text)
        if not found:
            return None
        raw = found["day"]
        try:
            day = date(int(raw[:4]), int(raw[4:6]), int(raw[6:]))
        except ValueError:
            return None
        return cls(found["issuer"], day, found["sha"], int(found["again"] or 1))


@lru_cache(1024)
def _spelled(run: RunId) -> str:
    """Return a run's id; every key of a run has it, and spelling the day takes longer than all the rest of the key."""
    return f"{run.issuer}-{run.day:%Y%m%d}-{run.sha8}" + (f"-r{run.again}" if run.again > 1 else "")


def extracts(issuer: str) -> str:
    """Return the prefix the issuer drops extracts under."""
    return f"{issuer}/extracts/"


def results(issuer: str) -> str:
    """Return the prefix the operator drops result files under."""
    return f"{issuer}/results/"


def ingested(issuer: str) -> str:
    """Return the prefix of the marks that say which result files are taken up."""
    return f"{issuer}/ingested/"


def probes(issuer: str) -> str:
    """Return the prefix the race probe writes under."""
    return f"{issuer}/probe/"


def submissions(issuer: str, sha256: str) -> str:
    """Return the prefix of the chain of runs that one extract, known by its content, was given."""
    return f"{issuer}/submissions/{sha256}/"


def commits(issuer: str) -> str:
    """Return the prefix of the chain that puts an issuer's commits in one order."""
    return f"{issuer}/commits/"


def corrections(issuer: str) -> str:
    """Return the prefix corrected extracts and filled-in templates are dropped under."""
    return f"{issuer}/corrections/"


def transactions(issuer: str) -> str:
    """Return the prefix the partner's transaction reports are dropped under."""
    return f"{issuer}/transactions/"


def placements(issuer: str) -> str:
    """Return the prefix of the funnel over an issuer's runs and of the transaction reports read for it; derived."""
    return f"{issuer}/placements/"


def attributions(issuer: str) -> str:
    """Return the prefix of what was decided by hand about result files: a chain for each of them."""
    return f"{issuer}/attributions/"


def backfills(issuer: str) -> str:
    """Return the prefix of the lists of missed nights that were sent."""
    return f"{issuer}/backfills/"


def reconciliation(issuer: str) -> str:
    """Return the prefix of the report across an issuer's runs, derived and rebuilt at any time."""
    return f"{issuer}/reconciliation/"


def purged(issuer: str) -> str:
    """Return the prefix of the records of what was purged: one listing tells which runs have no ledger any more."""
    return f"{issuer}/purged/"


def prompted_prefix(issuer: str) -> str:
    """Return the prefix of single links that were asked for from no run."""
    return f"{issuer}/single/"


def runs(issuer: str) -> str:
    """Return the prefix of all runs of an issuer."""
    return f"{issuer}/runs/"


def link(prefix: str, number: int) -> str:
    """Return the key of a link (from 1) of a chain of records."""
    return f"{prefix}{number:06d}.json"


class RunKeys(NamedTuple):
    """Where the objects of one run lie."""

    run: RunId

    @property
    def base(self) -> str:
        """The run's own prefix."""
        return f"{runs(self.run.issuer)}{self.run}/"

    @property
    def plan(self) -> str:
        """What this run is of: written first."""
        return f"{self.base}plan.json"

    @property
    def manifest(self) -> str:
        """The commit: written last."""
        return f"{self.base}manifest.json"

    @property
    def selection(self) -> str:
        """The rows of the source this run sends, where that is not all of them."""
        return f"{self.base}selection.parquet"

    @property
    def chunks(self) -> str:
        """The prefix of the sealed chunks."""
        return f"{self.base}chunks/"

    @property
    def ledger(self) -> str:
        """The prefix of the ledger's parts."""
        return f"{self.base}ledger/"

    @property
    def claims(self) -> str:
        """The prefix of the claim's chain of leases."""
        return f"{self.base}claims/"

    @property
    def seals(self) -> str:
        """The prefix of the seal records: digests of ciphertext, written before the ciphertext."""
        return f"{self.base}seals/"

    @property
    def exchanged(self) -> str:
        """The prefix of what the workers of a run read in parts leave for each other: emptied when it has served."""
        return f"{self.base}exchanged/"

    @property
    def outcomes(self) -> str:
        """The prefix of attributed result rows, derived from result files and ledger."""
        return f"{self.base}outcomes/"

    @property
    def placements(self) -> str:
        """The prefix of what the partner told of the run's links: messages as they were read, and what they say."""
        return f"{self.base}placements/"

    @property
    def events(self) -> str:
        """The prefix of what people and flows did to the run afterwards."""
        return f"{self.base}events/"

    @property
    def closed(self) -> str:
        """The prefix of the chain of breaks closed by hand, and opened again."""
        return f"{self.base}closed/"

    @property
    def reseals(self) -> str:
        """The prefix of the chain of records that chunks were sealed anew."""
        return f"{self.base}reseals/"

    @property
    def resealed(self) -> str:
        """The prefix of all chunks that were sealed anew."""
        return f"{self.base}sealed/"

    def sealed(self, generation: int) -> str:
        """Return the prefix of the chunks that were sealed anew for that time (from 1)."""
        return f"{self.resealed}{generation}/"

    @property
    def singles(self) -> str:
        """The prefix of single links that were asked for from rows of the run."""
        return f"{self.base}single/"

    def purged(self, part: str) -> str:
        """Return the key of the record that a part of the run, `chunks` or `ledger`, was purged."""
        return f"{purged(self.run.issuer)}{self.run}/{part}.json"

    def report(self, name: str) -> str:
        """Return the key of a derived file, which may be deleted and rebuilt at any time."""
        return f"{self.base}report/{name}"

    def chunk_name(self, number: int, extension: str = "csv.pgp") -> str:
        """Return the file name of chunk `number` (from 1) as it is uploaded."""
        return f"{self.run}-{number:05d}.{extension}"

    def chunk(self, number: int, extension: str = "csv.pgp") -> str:
        """Return the key of chunk `number`."""
        return self.chunks + self.chunk_name(number, extension)


def checked(key: str) -> str:
    """Return `key`; KeyRefusedError where it could leave the root or where not every store can hold it."""
    why = _objection(key)
    if why:
        raise KeyRefusedError(key=shown(key), reason=why)
    return key


def checked_prefix(prefix: str) -> str:
    """Return the beginning of keys to list; KeyRefusedError where no key could begin so."""
    if "/" in prefix:
        checked(prefix.rpartition("/")[0])
    return prefix


def shown(key: str) -> str:
    """Return a key as it can be printed and stored, whatever bytes a file name is made of."""
    return _CONTROL.sub("?", key.encode(errors="backslashreplace").decode())


def _objection(key: str) -> str:
    parts = key.split("/")
    if _CONTROL.search(key):
        return "it holds a control character"
    if _SURROGATE.search(key):
        return "it is not UTF-8"
    if not all(parts):
        return "it has an empty part"
    if any(part in (".", "..") for part in parts):
        return "it has a dotted part"
    if any(part.startswith(TEMPORARY) for part in parts):
        return "it is named like a temporary file"
    if len(key.encode()) > 900 or any(len(part.encode()) > 200 for part in parts):
        return "it is too long"
    return ""
