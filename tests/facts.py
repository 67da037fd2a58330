"""Facts of reports made up for tests of pages and workbooks: counts of any size without the rows
behind them.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import polars as pl

from flows.extensions.partner_api import funnel as report_funnel
from flows.reports import lists as tables
from flows.reports.summary import summarise
from flows.reports.tally import CHUNKS, ResultFile, Tally, add
from flows.runs.chunks import OutboxChunk
from schemas.breaks import Break
from schemas.manifest import Counts, LedgerPart, Manifest, ManifestChunk, SourceIdentity
from tests.night import issuer

RUN = "bank-20261120-0123abcd"
SENT = datetime(2026, 11, 20, 3, tzinfo=UTC)
NOW = SENT + timedelta(hours=6)


def manifest(chunks: int, rejected: int = 0) -> Manifest:
    """Return the manifest of a run of so many chunks of 1000 rows."""
    sent = 1000 * chunks
    return Manifest(
        run=RUN,
        source=SourceIdentity(
            key="bank/extracts/bank-20261120.csv", version="1", size=10, sha256="a" * 64
        ),
        as_of=date(2026, 11, 20),
        settings_sha256="b" * 64,
        recipe=1,
        recipients=("C" * 40,),
        counts=Counts(
            lines=sent,
            read=sent + rejected,
            submitted=sent,
            rejected=rejected,
            duplicate=0,
            suppressed=0,
        ),
        reasons={"card.pan.luhn": rejected} if rejected else {},
        repairs={},
        chunks=tuple(
            ManifestChunk(
                number=at, name=f"{RUN}-{at:05d}.csv.pgp", rows=1000, bytes=9, sha256="d" * 64
            )
            for at in range(1, chunks + 1)
        ),
        ledger=(LedgerPart(name="part-00001.parquet", rows=1, sha256="e" * 64),),
    )


def total(chunks: int, *, missing: int = 0, errors: int = 50, **changes: Any) -> Tally:
    """Return the tally of a run whose last `missing` chunks are not answered; `changes` replace
    fields.
    """
    numbers = list(range(1, chunks + 1))
    silent = [at > chunks - missing for at in numbers]
    counts = {
        "sent": [1000] * chunks,
        "answers": [0 if one else 1000 for one in silent],
        "links": [0 if one else 1000 - errors for one in silent],
        "linked": [0 if one else 1000 - errors for one in silent],
        "error": [0 if one else errors for one in silent],
        "awaiting": [1000 if one else 0 for one in silent],
    }
    frame = pl.DataFrame(
        {
            "run": [RUN] * chunks,
            "chunk": numbers,
            **counts,
            "state": ["awaiting" if one else "answered" for one in silent],
            "results": [
                [] if one else [f"result-{at}.csv"] for at, one in zip(numbers, silent, strict=True)
            ],
        },
        schema=CHUNKS,
    )
    files = frozenset(
        ResultFile(f"{at:064x}", f"result-{at}.csv", NOW.date(), 1000) for at in numbers
    )
    return add([])._replace(chunks=frame, files=files, **changes)


def waiting(run: Manifest) -> list[OutboxChunk]:
    """Return the chunks of such a run as they wait for their upload."""
    return [OutboxChunk(RUN, chunk, "waiting", SENT, SENT) for chunk in run.chunks]


def facts(
    chunks: int = 3, *, rejected: int = 0, breaks: frozenset[Break] = frozenset(), **of_total: Any
) -> tuple[dict[str, Any], pl.DataFrame]:
    """Return the summary, with a trend of fourteen like nights, and the chunk table of such a
    run.
    """
    run = manifest(chunks, rejected)
    whole = total(chunks, breaks=breaks, **of_total)
    summary = summarise(run, whole, issuer(), waiting(run), NOW, {"cardlink": "0"})
    night = {"run": RUN, "state": summary["verdict"], "ineligible": 0, **summary["rows"]}
    days = [date(2026, 11, 20) - timedelta(days=back) for back in range(13, -1, -1)]
    trend = [{**night, "as_of": day.isoformat()} for day in days]
    return {**summary, "trend": trend}, tables.chunks(run, whole.chunks)


def funnel(sites: int = 3, kind: str = "USER_DATA_FAILURE") -> dict[str, Any]:
    """Return the funnel of a thousand cardholders of each stage, and of each merchant site; of one
    more thousand the service refused everything.
    """
    yes, no = report_funnel.YES + "service", report_funnel.NO + "service"
    refused = f"{report_funnel.UNKNOWN}service.answer.refused.403"
    linked, unlinked = (f"{state}result files" for state in (report_funnel.YES, report_funnel.NO))
    nothing = [None] * 3
    counted: list[tuple[Any, ...]] = [
        (False, None, *nothing, None, None, 0, 1000),
        (True, unlinked, *nothing, None, None, 0, 1000),
        (True, linked, refused, refused, refused, None, None, 0, 1000),
    ]
    for reached in range(4):
        stages = [yes] * reached + [no] * (3 - reached)
        counted.append((True, linked, *stages, None, None, 0, 1000))
    for at in range(sites):
        site = f"site-{at}.example.com"
        counted.append((True, linked, yes, no, no, kind, site, 0, 1000))
    schema = report_funnel.cells([]).schema
    told = report_funnel.facts(pl.DataFrame(counted, schema, orient="row"))
    unanswered = [{"cause": "service.answer.refused.403", "links": 1000}]
    return {**told, "seen": NOW.isoformat(), "unasked": 7, "unanswered": unanswered}


def people(across: dict[str, Any]) -> dict[str, int]:
    """Return how many cardholders stand where, of the facts across runs."""
    counts = across["cardholders"]["people"]
    return {state: number for state, number in counts.items() if number}
