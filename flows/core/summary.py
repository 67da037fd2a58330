"""The facts of a run's summary.json: where its rows went, why, what is open, and the verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from flows.core.attribution import ERROR
from flows.core.balance import Balance
from flows.core.reconcile import Reconciled
from schemas.issuer import Limits
from schemas.manifest import Manifest
from schemas.reasons import reason

BALANCED = "balanced"
WAITING = "balanced, answers awaited"
ABOVE_LIMIT = "balanced, rejects or errors above the limit"
OUT_OF_BALANCE = "out of balance"
EXIT_CODES = {BALANCED: 0, WAITING: 0, ABOVE_LIMIT: 3, OUT_OF_BALANCE: 4}


def summarise(
    manifest: Manifest, settled: Reconciled, books: Balance, limits: Limits, results: Sequence[str]
) -> dict[str, Any]:
    """Return the summary of a reconciled run; counts, codes, digests and names only."""
    counts = manifest.counts
    states = {name: int(settled.chunks[name].sum()) for name in ("linked", "error", "awaiting")}
    partner = Counter(settled.rows.filter(state=ERROR)["reasons"].explode().drop_nulls().to_list())
    return {
        "run": manifest.run,
        "as_of": manifest.as_of.isoformat(),
        "source": manifest.source.model_dump(),
        "settings_sha256": manifest.settings_sha256,
        "recipients": list(manifest.recipients),
        "verdict": verdict(manifest, states, books, limits),
        "rows": {
            "read": counts.read,
            "linked": states["linked"],
            "error": states["error"],
            "awaiting": states["awaiting"],
            "rejected": counts.rejected,
            "duplicate": counts.duplicate,
            "suppressed": counts.suppressed,
        },
        "chunks": {
            "sent": len(manifest.chunks),
            **{state: settled.chunks.filter(state=state).height for state in ("answered", "partial", "awaiting")},
        },
        "reasons": {"submit": _told(manifest.reasons), "partner": _told(partner)},
        "repairs": manifest.repairs,
        "balance": [{**line._asdict(), "holds": line.holds} for line in books.lines],
        "breaks": [found._asdict() for found in settled.breaks],
        "results": sorted(results),
    }


def verdict(manifest: Manifest, states: dict[str, int], books: Balance, limits: Limits) -> str:
    """Say how a run stands: out of balance first, then limits, then whether answers are awaited."""
    counts = manifest.counts
    if not books.holds:
        return OUT_OF_BALANCE
    answered = states["linked"] + states["error"]
    if counts.rejected > limits.max_reject_rate * counts.read or states["error"] > limits.max_error_rate * answered:
        return ABOVE_LIMIT
    return WAITING if states["awaiting"] else BALANCED


def _told(codes: dict[str, int] | Counter[str]) -> list[dict[str, str | int]]:
    ordered = sorted(codes.items(), key=lambda item: (-item[1], item[0]))
    return [{"code": code, "rows": number, "action": reason(code).action} for code, number in ordered]
