"""Frames go into tables and come out as they were, on SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, date, datetime

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Date,
    Integer,
    MetaData,
    Table,
    false,
    select,
)

from flows.database.bulk import insert_frame, read_frame
from flows.database.connection import Database
from schemas.database import TEXT, Moment

BANK = "bank"
THINGS = Table(
    "things",
    MetaData(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("order", TEXT),  # a word of SQL
    Column("count", BigInteger),
    Column("small", Integer),
    Column("is_open", Boolean),
    Column("day", Date),
    Column("moment", Moment),
    Column("state", TEXT),
)
SCHEMA = pl.Schema(
    {
        "number": pl.UInt16(),
        "order": pl.String(),
        "count": pl.UInt32(),
        "small": pl.UInt8(),
        "is_open": pl.Boolean(),
        "day": pl.Date(),
        "moment": pl.Datetime("us", "UTC"),
        "state": pl.Enum(["open", "", "closed, or so"]),
    }
)
PAIRS = Table(
    "pairs",
    MetaData(),
    Column("issuer", TEXT, primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
)
PAIR = pl.Schema({"issuer": pl.String(), "number": pl.Int32()})
FIRST = datetime(1, 1, 1)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999)
# all that PostgreSQL keeps as a text; no half of a pair, and no NUL
TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
HARD = [
    "",
    '"',
    '""',
    "\n",
    "\r\n",
    "\r",
    "\\",
    "\\N",
    "\\.",
    "NULL",
    "null",
    ",",
    " ",
    "t",
    "é",
    "卡",
    "🂡",
]
ROWS = st.lists(
    st.tuples(
        st.none() | TEXTS | st.sampled_from(HARD),
        st.none() | st.integers(0, 2**32 - 1),
        st.none() | st.integers(0, 255),
        st.none() | st.booleans(),
        st.none() | st.dates(),
        st.none() | st.datetimes(FIRST, LAST, timezones=st.just(UTC)),
        st.none() | st.sampled_from(["open", "", "closed, or so"]),
    ),
    max_size=20,
)


def frame_of(rows: list[tuple[object, ...]]) -> pl.DataFrame:
    numbered = [(number, *row) for number, row in enumerate(rows)]
    return pl.DataFrame(numbered, SCHEMA, orient="row")


def stored(connection: Connection) -> pl.DataFrame:
    return read_frame(connection, select(THINGS).order_by(THINGS.c.number), SCHEMA)


def inserted_and_read(database: Database, frame: pl.DataFrame) -> pl.DataFrame:
    with database.rehearsal(BANK) as connection:
        THINGS.create(connection)
        insert_frame(connection, THINGS, frame)
        return stored(connection)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ROWS)
def test_what_is_inserted_is_read_again(database: Database, rows: list[tuple[object, ...]]) -> None:
    frame = frame_of(rows)

    assert_frame_equal(frame, inserted_and_read(database, frame))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.none() | TEXTS | st.sampled_from(HARD), max_size=20))
def test_texts_alone_in_their_rows_are_read_again(
    database: Database, texts: list[str | None]
) -> None:
    frame = frame_of([(one, *[None] * 6) for one in texts])

    with database.rehearsal(BANK) as connection:
        THINGS.create(connection)
        insert_frame(connection, THINGS, frame)
        query = select(THINGS.c.order).order_by(THINGS.c.number)
        read = read_frame(connection, query, pl.Schema({"order": pl.String()}))

    assert texts == read["order"].to_list()


def test_many_texts_with_line_ends_are_read_again(database: Database) -> None:
    frame = frame_of([('a\n"b', number, *[None] * 5) for number in range(60_000)])

    assert_frame_equal(frame, inserted_and_read(database, frame))


def test_values_are_what_other_statements_read_and_write(database: Database) -> None:
    moment = datetime(2026, 11, 20, 12, 30, 0, 120, UTC)
    row = ("x", 7, 1, True, date(2026, 11, 20), moment, "open")

    with database.rehearsal(BANK) as connection:
        THINGS.create(connection)
        insert_frame(connection, THINGS, frame_of([row]))
        by_frame = connection.execute(select(THINGS)).one()
        connection.execute(THINGS.delete())
        connection.execute(THINGS.insert(), dict(zip(THINGS.c.keys(), (0, *row), strict=True)))
        by_statement = stored(connection)

    assert (0, *row) == tuple(by_frame)
    assert_frame_equal(frame_of([row]), by_statement)


def test_sqlite_keeps_days_and_times_as_a_person_reads_them() -> None:
    moment = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)

    with Database("sqlite://").rehearsal(BANK) as connection:
        THINGS.create(connection)
        row = (None, None, None, None, date(2026, 11, 20), moment, None)
        insert_frame(connection, THINGS, frame_of([row]))
        kept = connection.exec_driver_sql("SELECT day, moment FROM things").one()

    assert ("2026-11-20", "2026-11-20 12:30:00.000000") == tuple(kept)


def test_a_query_with_values_is_read(database: Database) -> None:
    frame = frame_of([(f"{number}%", number, *[None] * 5) for number in range(5)])

    with database.rehearsal(BANK) as connection:
        THINGS.create(connection)
        insert_frame(connection, THINGS, frame)
        chosen = THINGS.c.order.in_(["1%", "3%"]) | (THINGS.c.count == 4)
        query = select(THINGS.c.number).where(chosen).order_by(THINGS.c.number)
        read = read_frame(connection, query, pl.Schema({"number": pl.Int64()}))

    assert [1, 3, 4] == read["number"].to_list()


def test_a_query_that_finds_nothing_gives_an_empty_frame_of_the_schema(database: Database) -> None:
    with database.rehearsal(BANK) as connection:
        THINGS.create(connection)
        read = read_frame(connection, select(THINGS).where(false()), SCHEMA)

    assert_frame_equal(SCHEMA.to_frame(), read)


def test_columns_that_a_frame_lacks_are_null(database: Database) -> None:
    frame = frame_of([("x", *[None] * 6)])

    assert_frame_equal(frame, inserted_and_read(database, frame.select("order", "number")))


def test_texts_are_sorted_byte_by_byte(database: Database) -> None:
    names = ["a", "B", "ä", "Z", "_", "卡"]
    pairs = pl.DataFrame({"issuer": names, "number": [1] * 6}, PAIR)

    with database.rehearsal(BANK) as connection:
        PAIRS.create(connection)
        insert_frame(connection, PAIRS, pairs)
        read = read_frame(connection, select(PAIRS).order_by(PAIRS.c.issuer), PAIR)

    assert sorted(names) == read["issuer"].to_list()


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        Moment().process_bind_param(datetime(2026, 11, 20), None)  # type: ignore[arg-type]
