"""Small tables of a run for people: where rows went or would go, why, and what to upload next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from flows.core.report.ages import duration
from flows.core.run.outbox import Item
from schemas.manifest import Counts, Manifest
from schemas.reasons import reason

SHOWN = 200  # chunks listed in one table; chunks.csv has them all


FATES = ("submitted", "rejected", "duplicate", "suppressed")


def count_rows(counts: Counts) -> list[dict[str, Any]]:
    """Return one line per fate of the source's rows."""
    lines = [{"rows": fate, "count": getattr(counts, fate)} for fate in FATES]
    return [*lines, {"rows": "read (sum)", "count": counts.read}]


def reason_rows(reasons: Mapping[str, int]) -> list[dict[str, Any]]:
    """Return one line per reason code, most frequent first, with what to do."""
    ordered = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": code, "rows": number, "what to do": reason(code).action} for code, number in ordered]


def chunk_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """Return one line per chunk to upload."""
    return [
        {"upload": chunk.name, "rows": chunk.rows, "bytes": chunk.bytes, "sha256": chunk.sha256}
        for chunk in manifest.chunks[:SHOWN]
    ]


def planned_rows(chunks: Sequence[int]) -> list[dict[str, Any]]:
    """Return one line per chunk that a real run would make."""
    return [{"chunk": number, "rows": rows} for number, rows in enumerate(chunks[:SHOWN], 1)]


def outbox_rows(items: Sequence[Item], now: datetime) -> list[dict[str, Any]]:
    """Return one line per chunk that is not answered yet, oldest run first."""
    return [
        {
            "chunk": item.chunk.name,
            "state": item.state,
            "since": duration(now - item.since),
            "rows": item.chunk.rows,
            "bytes": item.chunk.bytes,
            "sha256": item.chunk.sha256,
        }
        for item in items[:SHOWN]
    ]
