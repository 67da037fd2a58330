from io import BytesIO
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from pydantic import ValidationError

from flows.reports.rebuild import rebuild
from flows.runs.keys import keys_of
from schemas.settings import LinkSettings
from schemas.tables import Links
from tests.night import Bench, local_bench, made_once


@made_once
def answered(folder: Path, /, rows: int = 50, **links: Any) -> tuple[Bench, str]:
    bench = local_bench(folder, portal={"rows_per_chunk": 20}, links=links)
    run = bench.submit(bench.drop(rows)).manifest.run
    bench.answer()
    bench.ingest()
    return bench, run


def written(bench: Bench, run: str, name: str = "links.csv") -> pl.DataFrame:
    return pl.read_csv(BytesIO(bench.report(run, name)), infer_schema=False)


def test_the_sending_system_gets_its_own_columns_in_its_order_and_its_dates(tmp_path: Path) -> None:
    bench, run = answered(
        tmp_path,
        columns={"url": "Link", "cuid": "Customer Id", "expires_on": "Valid Until"},
        date_format="DD.MM.YYYY",
    )

    table = written(bench, run)

    assert ["Link", "Customer Id", "Valid Until"] == table.columns
    assert table["Link"].str.starts_with("https://links.example.com/").all()
    assert {"20.01.2027"} == set(table["Valid Until"])


def test_links_are_split_where_asked_and_every_one_stands_in_one_file(tmp_path: Path) -> None:
    bench, run = answered(tmp_path, rows_per_file=20)

    files = [written(bench, run, f"links-{number:05d}.csv") for number in (1, 2, 3)]

    assert [20, 20, 10] == [file.height for file in files]
    assert 50 == pl.concat(files)["url"].n_unique()
    assert not (tmp_path / "store" / keys_of(run).report("links.csv")).exists()


def test_files_of_an_earlier_split_keep_no_link_that_could_be_sent(tmp_path: Path) -> None:
    bench, run = answered(tmp_path, rows_per_file=20)
    bench.issuer = bench.issuer.model_copy(update={"links": LinkSettings()})

    rebuild(bench.context, bench.stored(run))

    assert 50 == written(bench, run).height
    assert [0, 0, 0] == [
        written(bench, run, f"links-{number:05d}.csv").height for number in (1, 2, 3)
    ]


@pytest.mark.slow
def test_links_as_parquet_are_the_links_of_the_csv_with_dates_as_dates(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)

    parquet = pl.read_parquet(BytesIO(bench.report(run, "links/part-00001.parquet")))

    Links.validate(parquet)
    assert written(bench, run).equals(parquet.with_columns(pl.col("expires_on").cast(pl.String)))


@pytest.mark.slow
def test_an_analysts_engine_reads_csv_and_parquet_alike_and_keeps_leading_zeros(
    tmp_path: Path,
) -> None:
    run = answered(tmp_path, rows=400)[1]
    folder = tmp_path / "store" / keys_of(run).report("")

    with duckdb.connect() as engine:
        csv = engine.sql(
            "select cuid, last_4, url, expires_on "
            f"from read_csv('{folder}/links.csv', all_varchar=true)"
        )
        parquet = engine.sql(
            "select cuid, last_4, url, expires_on::varchar "
            f"from read_parquet('{folder}/links/*.parquet')"
        )
        rows = [sorted(table.fetchall()) for table in (csv, parquet)]

    assert rows[0] == rows[1]
    assert 400 == len(rows[0])
    assert {4} == {len(last_4) for _, last_4, _, _ in rows[0]}
    assert any(last_4.startswith("0") for _, last_4, _, _ in rows[0])


@pytest.mark.parametrize(
    "links",
    [
        {"columns": {"cuid": "id"}},
        {"columns": {"cuid": "x", "url": "x"}},
        {"columns": {"cuid": "=cmd", "url": "url"}},
        {"columns": {"cuid": "a,b", "url": "url"}},
        {"columns": {"pan": "pan", "cuid": "cuid", "url": "url"}},
        {"rows_per_file": 0},
        {"date_format": "%x"},
    ],
)
def test_a_links_table_that_could_not_be_sent_is_refused(links: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LinkSettings.model_validate(links)
