"""The placements of a run's links, as they are stored: what the service said of each.

Messages are stored, create-only, before they are interpreted, because the partner gives each one
once. Everything else can be derived from them again, in any order.
"""

from datetime import datetime
from io import BytesIO

import polars as pl
from pydantic import BaseModel, ConfigDict, ValidationError

from flows.extensions.partner_api.link_placements import dtypes
from flows.runs.identity import canonical, digest
from flows.runs.keys import issuer_prefix
from flows.runs.store import ObjectMissingError, Store, read, read_if_stored
from flows.runs.stored_run import StoredRun
from schemas.manifest import LedgerPart

transactions = issuer_prefix("transactions")  # the partner's transaction reports are dropped here
# the funnel over an issuer's runs, and the transaction reports read for it
placements = issuer_prefix("placements")


def placements_of(run: StoredRun) -> str:
    """Return the prefix of the partner's messages about a run's links, and what they mean."""
    return f"{run.keys.base}placements/"


def placements_key(run: StoredRun, part: LedgerPart) -> str:
    """Return the placements key of one ledger part."""
    return placements_of(run) + part.name


def messages_of(run: StoredRun, part: LedgerPart) -> str:
    """Return the prefix of the messages about the links of one ledger part."""
    return f"{placements_of(run)}messages/{part.name.partition('.')[0]}/"


def read_placements(
    run: StoredRun, part: LedgerPart, columns: list[str] | None = None
) -> pl.DataFrame:
    """Return the placements of one ledger part; none before the first check.

    They have the columns of `Placements`, or `columns` of them.
    """
    try:
        content = BytesIO(read(run.store, placements_key(run, part)))
    except ObjectMissingError:
        return pl.DataFrame(schema=dtypes()).select(columns or list(dtypes()))
    return pl.read_parquet(content, columns=columns)


def checks(issuer: str) -> str:
    """Return the prefix of the marks of checks: an object for each run whose links were queried."""
    return f"{placements(issuer)}checks/"


class _Mark(BaseModel):
    """A check of a run's links: when it began; at its end, a digest of what is stored of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    began: datetime | None = None
    placements: str = ""
    reading: str = ""  # a digest of the settings that the service's answers were read with


def mark_check(run: StoredRun, began: datetime | None = None, reading: str = "") -> None:
    """Note that the placements of a run may change from now on, or that a check has ended.

    So one listing says of which runs they may be others than before. `reading`: a digest of the
    settings that its answers were read with; without it, as noted before.
    """
    reading = reading or read_with(run)
    mark = _Mark(began=began, reading=reading)
    if began is None:
        entries = run.store.keys(placements_of(run), shallow=True)
        tables = [entry.key for entry in entries if entry.key.endswith(".parquet")]
        contents = [digest(read(run.store, key)) for key in tables]
        mark = _Mark(placements=digest("".join(contents).encode()), reading=reading)
    run.store.replace(_mark_key(run.issuer, run.id), [canonical(mark.model_dump(mode="json"))])


def read_with(run: StoredRun) -> str:
    """Return the digest of the settings that answers about a run's links were last read with."""
    return _mark(run.store, run.issuer, run.id).reading


def check_marks(store: Store, issuer: str) -> dict[str, str]:
    """Return the runs whose links were queried, each with a text that every check changes."""
    prefix = checks(issuer)
    return {
        entry.key.removeprefix(prefix).removesuffix(".json"): entry.version
        for entry in store.keys(prefix)
    }


def is_checked(store: Store, issuer: str, run: str) -> bool:
    """Return whether the last check of a run has ended; one that was killed has not."""
    mark = _mark(store, issuer, run)
    return mark != _Mark() and mark.began is None


def _mark(store: Store, issuer: str, run: str) -> _Mark:
    """Return the mark of a run's last check, an empty one where there is none."""
    content = read_if_stored(store, _mark_key(issuer, run))
    try:
        return _Mark.model_validate_json(content or b"")
    except ValidationError:  # not written by us, or not whole
        return _Mark()


def _mark_key(issuer: str, run: str) -> str:
    return f"{checks(issuer)}{run}.json"
