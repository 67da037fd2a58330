"""Nights whose rows go out again: an extract of chosen rows, a run of it, a corrected file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from flows.resend.resubmission import Request
from flows.resend.resubmission_run import resubmit
from flows.resend.selection import RowSelection
from flows.runs.keys import corrections
from flows.submissions.submit import Submitted
from schemas.portal import PAN
from tests.builders import portal_rows
from tests.night import Bench, local_bench, made_once, portal_csv

ERRORS = RowSelection(errors=True)
REJECTS = RowSelection(rejects=True)
PANS = [
    "4242424242424242",
    "4111111111111111",
    "5555555555554444",
    "2223003122003222",
    "6011111111111117",
]


@made_once
def night(folder: Path, fail: float = 0.3, chunk: int = 1000) -> tuple[Bench, str]:
    """Return a bench whose night of 30 rows was submitted, answered and ingested, and its run."""
    bench = local_bench(folder, portal={"rows_per_chunk": chunk})
    run = bench.submit(bench.drop(30)).manifest.run
    bench.answer(fail_share=fail, seed=1)
    bench.ingest()
    return bench, run


@made_once
def of_rows(folder: Path, *rows: dict[str, str | None]) -> tuple[Bench, str]:
    """Submit an extract of these rows, each with a card of its own; return the bench and the
    run.
    """
    bench = local_bench(folder, limits={"max_reject_rate": 1.0, "max_error_rate": 1.0})
    cards = [{PAN: PANS[at % len(PANS)], **row} for at, row in enumerate(rows)]
    return bench, bench.submit(bench.drop_bytes(portal_csv(portal_rows(*cards)))).manifest.run


def again(
    bench: Bench, run: str, wanted: RowSelection = ERRORS, reason: str = "again", **more: Any
) -> Submitted:
    """Resubmit rows of a run."""
    return resubmit(bench.context, Request(run, wanted, reason, **more))


def in_state(bench: Bench, run: str, state: str) -> list[int]:
    """Return the rows of a run's report in that state."""
    found = [
        pl.read_parquet(bench.report(run, f"rows/{part.name}"))
        for part in bench.manifest(run).ledger
    ]
    return sorted(pl.concat(found).filter(state=state)["row"])


def correct(bench: Bench, content: bytes, name: str = "corrected.csv") -> str:
    """Drop a corrected file; return its name."""
    bench.store.replace(corrections(bench.issuer.issuer) + name, [content])
    return name


def sent(bench: Bench, run: str, *columns: str) -> list[tuple[Any, ...]]:
    """Return these columns of the rows of a run as the portal opens them."""
    chunks = [pl.read_csv(chunk, infer_schema=False) for chunk in bench.chunks(run)]
    return pl.concat(chunks).select(columns).rows()
