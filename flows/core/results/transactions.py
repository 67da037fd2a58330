"""The partner's transaction report (CSV with cuid, status, completed_on): read by name, every row once, none dropped.

It says of cardholders what job records say of jobs, and feeds the same funnel. Statuses are an open set.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from flows.core.results.head import DELIMITERS
from flows.core.results.jobs import code
from flows.core.results.masking import printable, storable
from flows.core.results.results import EMPTY, HEAD, NOT_A_RESULT, day_in, text_of
from schemas.placements import AUTHENTICATED, BILLABLE, ENDS, PLACED, TRANSACTIONS

_LINE_END = re.compile(r"\r\n|\r|\n")
ROW = pl.Schema({"position": pl.UInt32(), **dict.fromkeys(TRANSACTIONS, pl.String())})
TOLD = pl.Schema(
    {
        "cuid": pl.String(),
        "status": pl.String(),
        "completed_on": pl.Date(),
        "opened": pl.Boolean(),
        "authenticated": pl.Boolean(),
        "running": pl.Boolean(),
        "termination_type": pl.String(),
        "merchant_site": pl.String(),
    }
)


class Transactions(NamedTuple):
    """One report: SHA-256 of its bytes, name, rows (position from 1, then TOLD), problem codes.

    A row that is too long, or ends with its cuid, has none: half a cuid may be somebody else's.
    """

    digest: str
    name: str
    rows: pl.DataFrame
    problems: tuple[str, ...]


def read_transactions(content: bytes, name: str) -> Transactions:
    """Read a transaction report (plain or gzip bytes, any delimiter and date); nothing is raised."""
    text, problems = text_of(content)
    cells, trouble = _rows(_LINE_END.split(text))
    rows = pl.DataFrame(cells, schema=ROW, orient="row")
    return Transactions(hashlib.sha256(content).hexdigest(), name, _told(rows), (*problems, *trouble))


def settled(rows: Iterable[pl.DataFrame]) -> pl.DataFrame:
    """Return one row (TOLD) a cuid over reports in any order and number: placed, else its latest end, else running.

    A transaction has no number of its own, so a row that ended stands over one that runs: it may be the same.
    """
    every = pl.concat([pl.DataFrame(schema=TOLD), *(frame.select(*TOLD) for frame in rows)])
    ordered = every.sort(
        pl.col("termination_type") == BILLABLE,
        ~pl.col("running"),
        "authenticated",
        "completed_on",
        "status",
        descending=True,
        nulls_last=True,
    )
    one = ordered.unique("cuid", keep="first", maintain_order=True)
    came = every.group_by("cuid").agg(pl.col("authenticated").any())
    return one.drop("authenticated").join(came, on="cuid").select(*TOLD).sort("cuid")


def _rows(lines: list[str]) -> tuple[Iterator[tuple[int | str | None, ...]], list[str]]:
    """Return position and cells of every line below the header that is not blank, and problem codes."""
    heads = ((at, head) for at, line in enumerate(lines[:HEAD]) if (head := _head(line)))
    at, head = next(heads, (0, None))
    if head is None:
        return iter(()), [NOT_A_RESULT if any(line.strip() for line in lines) else EMPTY]
    delimiter, places, width = head
    told = (line for line in lines[at + 1 :] if line.strip().strip(delimiter))
    # Line by line: no cell of a report spans lines, so a quote left open spoils its own line only.
    records = (next(csv.reader([printable(line)], delimiter=delimiter), []) for line in told)
    return (_fit(number, record, places, width) for number, record in enumerate(records, start=1)), []


def _head(line: str) -> tuple[str, dict[str, int], int] | None:
    """Find the delimiter under which `line` is a report's header, and where its columns stand."""
    for delimiter in DELIMITERS:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        folded = [re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in cells]
        found = ((name, next((one for one in all_ if one in folded), None)) for name, all_ in TRANSACTIONS.items())
        places = {name: folded.index(spelling) for name, spelling in found if spelling is not None}
        if {"cuid", "status"} <= places.keys():
            return delimiter, places, len(cells)
    return None


def _fit(number: int, record: list[str], places: dict[str, int], width: int) -> tuple[int | str | None, ...]:
    whole = len(record) >= width or places["cuid"] + 1 < len(record)
    fits = whole and not any(cell.strip() for cell in record[width:])
    cells = {name: record[at].strip() or None for name, at in places.items() if at < len(record)}
    return number, cells.get("cuid") if fits else None, cells.get("status"), cells.get("completed_on")


def _told(rows: pl.DataFrame) -> pl.DataFrame:
    """Say of each row what it means: placed, ended otherwise, or still running."""
    words = rows["status"].unique().to_list()
    status = pl.col("status").replace_strict(words, [code(word) for word in words], return_dtype=pl.String)
    coded = rows.with_columns(status.alias("status"), day_in("completed_on").alias("completed_on"), storable("cuid"))
    placed, ended = pl.col("status").is_in(PLACED), pl.col("status").is_in(ENDS) | pl.col("completed_on").is_not_null()
    return coded.with_columns(
        pl.lit(value=True).alias("opened"),
        pl.col("status").is_in(AUTHENTICATED).alias("authenticated"),
        (~placed & ~ended).alias("running"),
        pl.when(placed).then(pl.lit(BILLABLE)).when(ended).then("status").alias("termination_type"),
        pl.lit(None, pl.String).alias("merchant_site"),
    ).select("position", *TOLD)
