"""The ledger's parts: the same whoever writes them and however often."""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.adapters.local import LocalStore
from flows.errors import BugError
from flows.runs.keys import RunId, RunKeys
from flows.runs.store import ConflictError, Store, StoreFullError
from flows.runs.stored_run import StoredRun
from flows.submissions.ledger import LedgerWriter, unread_records
from schemas import ledger
from schemas.manifest import LedgerPart
from schemas.tables import parquet
from tests.builders import share_of
from tests.night import BANK, DAY, edges
from tests.storms import FailingStore

KEYS = RunKeys(RunId(BANK, DAY, "0" * 8))
PART_ROWS = 10


def records(first: int, count: int) -> pl.DataFrame:
    """Return the records of lines that could not be read."""
    rows = pl.DataFrame({"row": range(first, first + count)}, schema={"row": pl.UInt32})
    lines = rows.with_columns(line=pl.col("row") + 1, code=pl.lit("line.quote.bare"))
    unread = unread_records(lines, pl.lit(ledger.REJECTED))
    return unread.with_columns(pl.lit(None, pl.UInt32).alias("origin")).select(*ledger.dtypes())


def write(store: Store, sizes: Sequence[int]) -> list[LedgerPart]:
    writer, first = LedgerWriter(store, KEYS, PART_ROWS), 1
    for size in sizes:
        writer.add(records(first, size))
        first += size
    return writer.finish()


@settings(max_examples=share_of(0.4))
@given(st.lists(st.integers(1, 25), min_size=1, max_size=12))
def test_every_record_stands_in_one_part_and_a_rerun_adopts_them_all(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    store = LocalStore(tmp_path_factory.mktemp("store"))

    parts, again = write(store, sizes), write(store, sizes)

    assert again == parts
    assert [f"part-{number:05d}.parquet" for number in range(1, len(parts) + 1)] == [
        part.name for part in parts
    ]
    assert all(part.rows >= PART_ROWS for part in parts[:-1])
    run = StoredRun(edges(store), KEYS)
    stored = [run.ledger_part(part) for part in parts]
    assert [part.rows for part in parts] == [frame.height for frame in stored]
    assert list(range(1, sum(sizes) + 1)) == pl.concat(stored)["row"].to_list()


@pytest.mark.parametrize("part", [1, 2, 3])
def test_a_part_that_cannot_be_written_ends_the_pass_and_the_next_one_finishes_it(
    tmp_path: Path, part: int
) -> None:
    store, full = LocalStore(tmp_path), f"part-{part:05d}"
    failing = FailingStore(
        store, lambda _, key: StoreFullError(place=key, code="ENOSPC") if full in key else None
    )

    with pytest.raises(StoreFullError, match=full):
        write(failing, [PART_ROWS, PART_ROWS, PART_ROWS])

    assert [f"part-{number:05d}.parquet" for number in range(1, part)] == [
        entry.key.rpartition("/")[2] for entry in store.keys(KEYS.ledger)
    ]
    assert 3 == len(write(store, [PART_ROWS, PART_ROWS, PART_ROWS]))


def test_records_that_are_none_are_our_bug_and_show_no_cell(tmp_path: Path) -> None:
    writer = LedgerWriter(LocalStore(tmp_path), KEYS, PART_ROWS)
    strange = records(1, PART_ROWS).with_columns(last_4=pl.lit("4242424242424242"))

    with pytest.raises(BugError, match="last_4") as caught:
        writer.add(strange)

    assert "4242424242424242" not in "".join(traceback.format_exception(caught.value))


def test_a_part_counts_where_it_has_the_same_records_in_other_bytes_and_no_others(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path)
    [part] = write(store, [PART_ROWS])
    key = f"{KEYS.ledger}{part.name}"
    store.replace(key, [parquet(records(1, PART_ROWS), compression="uncompressed")])

    [adopted] = write(store, [PART_ROWS])

    assert PART_ROWS == adopted.rows
    assert part.sha256 != adopted.sha256
    for content in (parquet(records(2, PART_ROWS)), b"no Parquet"):
        store.replace(key, [content])
        with pytest.raises(ConflictError):
            write(store, [PART_ROWS])
