"""The analysts' export: everything once, without card data, up to date, and the same answers by two
engines.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest

from flows.analysis import export as exporting
from flows.analysis.export import export, export_where_wanted
from flows.runs.keys import analysis
from schemas.analysis import TABLES
from schemas.ledger import Ledger
from schemas.portal import CITY, CUID, POSTAL_CODE
from tests.analysis.questions import by_duckdb, by_polars, questions
from tests.builders import portal_rows
from tests.night import BANK, NOON, Bench, issuer, local_bench, made_once, portal_csv

NIGHTS = ("bank-20261120.csv", "bank-20261121.csv")


def extract(night: int) -> bytes:
    """Return an extract of eight cardholders, two of whom can never be sent."""
    bad: tuple[dict[str, str | None], ...] = ({CITY: None}, {POSTAL_CODE: "1"})
    good = [{CUID: f"n{night}-{number}"} for number in range(6)]
    return portal_csv(portal_rows(*({CUID: f"bad-{n}", **row} for n, row in enumerate(bad)), *good))


@made_once
def two_nights(folder: Path, /) -> tuple[Bench, list[str]]:
    """Return a bench with two nights, each exported, of which the second waits for some answers."""
    first = local_bench(folder, portal={"rows_per_chunk": 3})
    runs = [first.submit(first.drop_bytes(extract(1), NIGHTS[0])).manifest.run]
    export(first.context)
    first.answer(fail_share=0.3)
    first.ingest()
    second = replace(first, now=lambda: NOON + timedelta(days=1))
    runs.append(second.submit(second.drop_bytes(extract(2), NIGHTS[1])).manifest.run)
    export(second.context)
    return second, runs


def exported(bench: Bench, table: str) -> pl.DataFrame:
    """Return a table of the export."""
    assert bench.folder is not None
    files = f"{bench.folder}/store/*/analysis/{table}/**/*.parquet"
    return pl.read_parquet(files, hive_partitioning=True)


def files(bench: Bench) -> dict[str, bytes]:
    """Return the tables as they are stored."""
    stored = bench.snapshot().items()
    return {key: data for key, data in stored if key.startswith(analysis(BANK)) and "=" in key}


@pytest.mark.slow
def test_duckdb_and_polars_give_the_same_answers_to_the_ten_questions(tmp_path: Path) -> None:
    two_nights(tmp_path)
    root = tmp_path / "store"

    answers = {name: by_duckdb(root, sql) for name, sql in questions().items()}

    assert [f"{number}." for number in range(1, 11)] == [name.split()[0] for name in answers]
    assert answers == {name: by_polars(root, sql) for name, sql in questions().items()}
    assert [] == [name for name, answer in answers.items() if not answer]


@pytest.mark.slow
def test_every_row_of_every_run_is_exported_once_with_its_fate_and_reason(tmp_path: Path) -> None:
    bench, runs = two_nights(tmp_path)
    names = ["run", "row", "line", "cuid", "fate", "chunk", "position"]

    rows = exported(bench, "rows")

    ledgers = [bench.ledger(run).with_columns(run=pl.lit(run)) for run in runs]
    assert pl.concat(ledgers).select(names).rows() == rows.sort("run", "row").select(names).rows()
    rejected = rows.filter(state="rejected")
    assert {("bad-0", "issuer"), ("bad-1", "issuer")} == set(rejected.select("cuid", "who").rows())
    assert 0 == rejected["reason"].null_count()
    assert sum(run["linked"] for run in exported(bench, "runs").to_dicts()) == (
        rows.filter(state="linked").height
    )
    assert rows.filter(state="linked").height == rows["answered_at"].drop_nulls().len() - (
        rows.filter(state="error").height
    )


def test_no_table_has_card_data(tmp_path: Path) -> None:
    bench, _ = two_nights(tmp_path)
    look = {"last_4", "expiration", "url", "name_check", "address_check"}

    columns = {column for table in TABLES for column in exported(bench, table).columns}

    assert set() == columns & (look | {column for column in Ledger.dtypes() if "check" in column})
    texts = [
        str(value)
        for table in TABLES
        for column in exported(bench, table).select(pl.col(pl.String)).to_dict().values()
        for value in column.drop_nulls()
    ]
    assert [] == [text for text in texts if "4242" in text or "https:" in text]


def test_where_nothing_is_new_nothing_is_written(tmp_path: Path) -> None:
    bench, _ = two_nights(tmp_path)
    export(bench.context)
    before = {entry.key: entry.version for entry in bench.store.keys(analysis(BANK))}

    done = export(bench.context)

    assert (0, 0, None, False) == done
    assert before == {entry.key: entry.version for entry in bench.store.keys(analysis(BANK))}


def test_all_of_it_made_anew_has_the_same_bytes_and_damage_is_made_whole(tmp_path: Path) -> None:
    bench, _ = two_nights(tmp_path)
    export(bench.context)
    before = files(bench)
    damaged = min(key for key in before if "/rows/" in key)

    anew = export(bench.context, anew=True)
    as_anew = files(bench)
    bench.store.replace(damaged, [b"other"])
    mended = export(bench.context)

    assert (2, 16) == (anew.runs, anew.rows)
    assert before == as_anew == files(bench)
    assert 1 == mended.runs


def test_answers_change_the_rows_of_their_run_alone_and_the_book_of_the_day(tmp_path: Path) -> None:
    bench, runs = two_nights(tmp_path)
    export(bench.context)
    before = files(bench)

    bench.answer()
    bench.ingest()
    export(bench.context)

    changed = {key for key, data in files(bench).items() if before.get(key) != data}
    assert all(runs[1] in key or "as_of=2026-11-21/book" in key for key in changed)
    assert 0 == exported(bench, "rows").filter(state="awaiting").height
    standing = exported(bench, "book").filter(pl.col("is_current"), as_of=NOON.date())
    assert "to upload" in set(standing["standing"])  # as it was on that day


def test_the_book_of_a_large_issuer_waits_for_an_ingest_with_nothing_to_take_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, _ = two_nights(tmp_path)
    monkeypatch.setattr(exporting, "BOOK_AT_ONCE", 10)
    bench.answer()
    bench.ingest()

    busy = export(bench.context, is_busy=True)
    idle = export(bench.context)

    assert (None, True) == (busy.cards, busy.is_book_due)
    cards = exported(bench, "book").filter(as_of=NOON.date() + timedelta(days=1)).height
    assert (cards, False) == (idle.cards, idle.is_book_due)


def test_an_issuer_that_wants_no_export_has_none(tmp_path: Path) -> None:
    bench, _ = two_nights(tmp_path)
    before = files(bench)
    bench.answer()
    bench.ingest()
    wants = replace(bench, issuer=issuer(analysis={"export": True}))

    export_where_wanted(bench.context, is_busy=False)
    without = files(bench)
    export_where_wanted(wants.context, is_busy=False)

    assert before == without != files(bench)
