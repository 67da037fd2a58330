"""The documents of a run: the plan (written first) and the manifest (the commit, written last).

Canonical JSON: sorted keys, no spaces, no clock and no process id, so that twins write the same bytes.
"""

from __future__ import annotations

from datetime import date
from typing import Any, Literal

import pandera.polars as pa
import polars as pl
from pydantic import BaseModel, ConfigDict

RECIPE = 3  # goes up when the same extract and settings would give other chunks


class Document(BaseModel):
    """A small immutable JSON object of a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SourceIdentity(Document):
    """Which bytes a run is of: key below the store's root, pinned version, size and SHA-256."""

    key: str
    version: str
    size: int
    sha256: str
    newlines: int = 0  # line ends among the bytes: how many rows to make room for; means nothing where compressed


class Selection(Document):
    """Which rows of its source a run sends, where that is not all of them; they lie in its `selection.parquet`."""

    kind: Literal["resubmit", "renew"]
    of: str  # the run whose rows are sent again
    rows: int
    sha256: str  # of the rows asked for, and of the corrections
    reason: str  # why, as the operator said it
    override: str = ""  # why rows that are linked or awaiting may go out again
    corrections: SourceIdentity | None = None  # the filled-in template that is merged with the source


class Plan(Document):
    """What a run is of, fixed before any work: a rerun takes it over, and is refused where it differs."""

    run: str
    source: SourceIdentity
    as_of: date
    settings_sha256: str
    settings: dict[str, Any]
    recipe: int
    recipients: tuple[str, ...]
    reason: str = ""  # why there is a new run of an extract that already had one
    selection: Selection | None = None
    cut: dict[str, Any] | None = None  # where an earlier version read the extract in parts; always null now
    known: str = ""  # digest of what earlier runs said of the issuer's cards; only where the extract is a portfolio


class Counts(Document):
    """Where the source's rows went; `read` is the sum of the four fates."""

    lines: int
    read: int
    submitted: int
    rejected: int
    duplicate: int
    suppressed: int
    trailer: int | None = None


class ManifestChunk(Document):
    """One sealed chunk: upload file name, data rows, bytes and SHA-256 of the ciphertext."""

    number: int
    name: str
    rows: int
    bytes: int
    sha256: str


class LedgerPart(Document):
    """One Parquet part of the ledger."""

    name: str
    rows: int
    sha256: str


class Manifest(Document):
    """The commit of a run: nothing counts and nothing is shown for upload until it exists."""

    run: str
    source: SourceIdentity
    as_of: date
    settings_sha256: str
    recipe: int
    recipients: tuple[str, ...]
    selection: Selection | None = None
    counts: Counts
    reasons: dict[str, int]
    repairs: dict[str, int]
    chunks: tuple[ManifestChunk, ...]
    ledger: tuple[LedgerPart, ...]


class ChunkTable(pa.DataFrameModel):
    """The manifest's chunks as a table: numbered from 1 without a gap, at most 1000 rows each."""

    number: pl.Int64 = pa.Field(ge=1, unique=True)
    name: pl.String = pa.Field(unique=True)
    rows: pl.Int64 = pa.Field(ge=1, le=1000)
    bytes: pl.Int64 = pa.Field(ge=1)
    sha256: pl.String = pa.Field(str_matches=r"^[0-9a-f]{64}$")

    class Config:
        """Exactly these columns in this order."""

        strict = True
        ordered = True
