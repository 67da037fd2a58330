"""The records of what an operator put right: small immutable objects, each with who, when and why."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime

from schemas.manifest import Document, ManifestChunk


class Record(Document):
    """What every record says: who did it, when, and why."""

    at: AwareDatetime
    by: str
    reason: str


class Abandoned(Record):
    """What stands under a run's manifest key where an operator ended the run before its commit."""

    abandoned: Literal[True] = True
    run: str


class Closing(Record):
    """One link of a run's chain `closed/`: a break was closed with so many rows, or is open again."""

    what: Literal["closed", "reopened"]
    name: str
    place: str
    rows: int = 0


class Attribution(Record):
    """One link of a result file's chain: where one of its rows belongs, or no longer, or that it is taken up again.

    It counts for the file of exactly these bytes. `position` is a data row of it; `run` and `row` are the row sent.
    """

    what: Literal["attributed", "withdrawn", "again"]
    result: str  # its key, card numbers masked
    digest: str
    runs: tuple[str, ...] = ()  # those its rows were with, as far as they were taken up
    position: int = 0
    run: str = ""
    row: int = 0
    last_4_confirmed: bool = False


class Reseal(Record):
    """One link of a run's chain `reseals/`: these chunks were sealed anew to these keys, and replace what was."""

    run: str
    generation: int
    recipients: tuple[str, ...]
    chunks: tuple[ManifestChunk, ...]
