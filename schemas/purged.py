"""The record of a purge, written before the first delete: what of a run, when, by whom, under which setting.

The digests of what is gone are in the manifest, which stays.
"""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from schemas.manifest import Document

Part = Literal["chunks", "ledger"]
PARTS: tuple[Part, ...] = ("chunks", "ledger")


class Purged(Document):
    """One part of a run that is gone; `verdict` and `rows` are what its last report said."""

    run: str  # empty for single links that came from no run
    part: Part
    at: AwareDatetime
    by: str
    since: AwareDatetime  # the last answer, or the last sign of life of a run that was never committed
    setting: str  # `chunks_days = 7`
    objects: dict[str, int]  # how many, by folder of the run
    bytes: int
    verdict: str = ""
    rows: dict[str, int] = Field(default_factory=dict)
