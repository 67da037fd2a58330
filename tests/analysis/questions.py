"""The questions of deploy/ANALYSIS.md, put to two engines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import duckdb
import polars as pl

from schemas.analysis import TABLES

PAGE = Path(__file__).parent.parent.parent / "deploy" / "ANALYSIS.md"
Answer = list[tuple[Any, ...]]


def questions() -> dict[str, str]:
    """Return the SQL of each question, by its heading."""
    found = re.findall(r"^### (\d+\. .+?)\n\n```sql\n(.+?)```", PAGE.read_text(), re.M | re.S)
    return dict(found)


def by_duckdb(root: Path, sql: str) -> Answer:
    """Return what DuckDB answers, over the export below a root."""
    with duckdb.connect() as engine:
        engine.execute("SET TimeZone = 'UTC'")
        for table in TABLES:
            pattern = f"{root}/*/analysis/{table}/**/*.parquet"
            engine.execute(
                f"CREATE VIEW {table} AS SELECT * FROM"
                f" read_parquet('{pattern}', hive_partitioning = true)"
            )
        return [tuple(map(_plain, row)) for row in engine.execute(sql).fetchall()]


def by_polars(root: Path, sql: str) -> Answer:
    """Return what polars answers to the same SQL."""
    tables = {
        table: pl.scan_parquet(f"{root}/*/analysis/{table}/**/*.parquet", hive_partitioning=True)
        for table in TABLES
    }
    return [
        tuple(map(_plain, row)) for row in pl.SQLContext(tables).execute(sql, eager=True).rows()
    ]


def _plain(value: Any) -> Any:
    return value.isoformat() if hasattr(value, "isoformat") else value
