"""Small tables of a committed run for people: where rows went, why, and what to upload next."""

from __future__ import annotations

from typing import Any

from schemas.manifest import Manifest
from schemas.reasons import reason

SHOWN = 200  # chunks listed in one table; chunks.csv has them all


def count_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """Return one line per fate of the source's rows."""
    counts = manifest.counts
    fates = ("submitted", "rejected", "duplicate", "suppressed")
    lines = [{"rows": fate, "count": getattr(counts, fate)} for fate in fates]
    return [*lines, {"rows": "read (sum)", "count": counts.read}]


def reason_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """Return one line per reason code, most frequent first, with what to do."""
    ordered = sorted(manifest.reasons.items(), key=lambda item: (-item[1], item[0]))
    return [{"reason": code, "rows": number, "what to do": reason(code).action} for code, number in ordered]


def chunk_rows(manifest: Manifest) -> list[dict[str, Any]]:
    """Return one line per chunk to upload."""
    return [
        {"upload": chunk.name, "rows": chunk.rows, "bytes": chunk.bytes, "sha256": chunk.sha256}
        for chunk in manifest.chunks[:SHOWN]
    ]
