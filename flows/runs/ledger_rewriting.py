"""A ledger without the rows of erased cardholders.

A part is written anew under another name, which is recorded, before the old one goes; so a process
that is killed leaves either, and whoever goes on finds what is left. Rows stay where they were
counted: their records have their place and a reason, and nothing of a person.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from flows.runs.decisions import LEDGER, count_decisions, decide
from flows.runs.identity import digest
from flows.runs.journal import Act, enter
from flows.runs.store import Cleaner, write_once
from flows.runs.stored_run import StoredRun
from schemas.manifest import LedgerPart
from schemas.reasons import ERASED
from schemas.records import LedgerRewritten, RewrittenPart
from schemas.tables import parquet

_PLACE_OF_ROW = ("row", "line", "fate", "chunk", "position", "origin")


def erase_from_ledger(
    cleaner: Cleaner, run: StoredRun, rows: Sequence[int], signed: Mapping[str, Any]
) -> None:
    """Leave of rows of a run's ledger that they were there."""
    parts = _write_anew(run, rows, signed)
    for anew in parts:
        for entry in list(run.store.keys(run.keys.ledger + anew.name.removesuffix(".parquet"))):
            if _number_of(entry.key) < _number_of(anew.now):  # a later one is another erasure's
                cleaner.delete(entry.key)


def _write_anew(
    run: StoredRun, rows: Sequence[int], signed: Mapping[str, Any]
) -> tuple[RewrittenPart, ...]:
    """Write and record what the ledger is without these rows; once more where another erasure
    recorded its own meanwhile, and may have removed what we wrote.
    """
    while True:
        now = run.fresh()
        number = count_decisions(run.adapters, run.issuer, LEDGER, run.id)
        rewritten = [_rewritten(now, part, rows) for part in now.committed().ledger]
        parts = tuple(part for part in rewritten if part is not None)
        record = LedgerRewritten(**signed, parts=parts)
        if not parts or _is_recorded(run, record, number, len(rows)):
            return parts


def _is_recorded(run: StoredRun, record: LedgerRewritten, seen: int, rows: int) -> bool:
    """Record parts that are written anew without so many rows; False where there are more records
    than were seen.
    """

    def work(act: Act) -> bool:
        within = run.adapters.within(act.connection)
        if count_decisions(within, run.issuer, LEDGER, run.id) != seen:
            return False
        decide(act, LEDGER, run.id, record)
        act.facts["rows"] = rows
        return True

    return enter(run.adapters, run.issuer, "erased", work, run=run.id)


def _number_of(name: str) -> int:
    """Return how often a part of a ledger was written anew, by its name; 0 for the first."""
    number = name.removesuffix(".parquet").partition("-erased-")[2]
    return int(number or 0)


def _rewritten(run: StoredRun, part: LedgerPart, rows: Sequence[int]) -> RewrittenPart | None:
    """Write a part of the ledger anew without what it has of these rows; None where it has none."""
    ledger = run.ledger_part(part)
    is_erased = pl.col("row").is_in(rows)
    if not ledger.select(is_erased.any()).item():
        return None
    code = pl.concat_list("reasons", pl.lit(f"|{ERASED}"))
    facts = {name: pl.lit(None) for name in ledger.columns if name not in _PLACE_OF_ROW}
    facts |= {"cuid_made": pl.lit(value=False), "reasons": code}
    anew = ledger.with_columns(
        pl.when(is_erased).then(fact).otherwise(pl.col(name)).cast(ledger.schema[name]).alias(name)
        for name, fact in facts.items()
    )
    name = part.name.removesuffix(".parquet")
    count = 1 + sum(1 for _ in run.store.keys(f"{run.keys.ledger}{name}-erased-"))
    earlier = run.rewritten_parts.get(part.name)
    if earlier is not None:
        count = max(count, 1 + _number_of(earlier.now))
    now = f"{name}-erased-{count}.parquet"
    content = parquet(anew, compression="zstd", statistics=True)
    write_once(run.store, run.keys.ledger + now, content)
    return RewrittenPart(part.name, now, digest(content))
