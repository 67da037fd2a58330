"""The rules keep their price, as a ratio to bare reading, so that it holds on any machine."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from io import BytesIO
from time import process_time
from typing import TypeVar

import polars as pl

from flows.core.rows.checks import check
from flows.core.rows.cvv import hash_cvv
from flows.core.rows.duplicates import SeenRows
from flows.core.rows.normalise import normalise
from schemas.portal import ADDRESS1, COUNTRY, CUID, EMAIL, columns
from schemas.rules import Rules
from tests.builders import portal_rows

ROWS = 100_000
T = TypeVar("T")


def cheapest(run: Callable[[], T]) -> tuple[float, T]:
    """Return the least CPU seconds of three runs, and what the last gave."""
    spent = []
    for _ in range(3):
        start = process_time()
        result = run()
        spent.append(process_time() - start)
    return min(spent), result


def test_normalising_checking_hashing_and_telling_apart_cost_at_most_fifteen_times_reading() -> None:
    rules, number = Rules(), pl.int_range(ROWS).cast(pl.String)
    rows = pl.concat([portal_rows({})] * ROWS).with_columns(
        pl.int_range(1, ROWS + 1, dtype=pl.UInt32).alias("row"),
        ("S-" + number).alias(CUID),
        (number + " Main St").alias(ADDRESS1),
        ("user" + number + "@example.com").alias(EMAIL),
        pl.lit("United States").alias(COUNTRY),
    )
    written = rows.select(columns()).write_csv().encode()
    reading, _ = cheapest(lambda: pl.read_csv(BytesIO(written), infer_schema=False))

    normalising, normal = cheapest(lambda: normalise(rows, rules).with_columns(cuid_made=False))
    checking, verdicts = cheapest(lambda: check(normal, date(2026, 11, 20), rules))
    hashing, _ = cheapest(lambda: hash_cvv(normal))
    seen = SeenRows(rules, ROWS)
    telling, _ = cheapest(lambda: seen.mark(seen.keyed(normal)))

    assert 0 == verdicts.height
    assert normalising + checking + hashing + telling < 15 * reading
