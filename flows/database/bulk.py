"""Polars frames into tables and out of them, through the connection of a transaction.

A frame's columns are columns of a table by name; a null is NULL, and an empty text is a text. Times
are UTC; SQLite keeps them, and days, as ISO texts.
"""

from collections.abc import Iterable, Iterator
from io import BytesIO
from itertools import repeat
from typing import Any, Final

import polars as pl
from sqlalchemy import Connection, Select, Table
from sqlalchemy.dialects import sqlite

REMEMBERED: Final = "frames"  # of a connection's `info`: who is told of each frame
ROWS: Final = 5_000  # of SQLite that are held as Python's objects at a time: few to be collected
_DATE: Final = "%Y-%m-%d"
_TIME: Final = "%Y-%m-%d %H:%M:%S"  # as SQLAlchemy writes one to SQLite, before its microseconds
_CSV: Final = "(FORMAT csv, NULL '')"  # an empty text has quotes there


def insert_frame(connection: Connection, table: Table, frame: pl.DataFrame) -> None:
    """Insert a frame's rows; columns that it lacks get their default."""
    if frame.is_empty():
        return
    remember = connection.info.get(REMEMBERED)
    if remember is not None:
        remember(table, frame)
    if connection.dialect.name == "postgresql":
        _copy_in(connection, table, frame)
    else:
        # a column without a value is left out: most of wide tables have some
        valued = [column.name for column in frame if column.null_count() < len(column)]
        _execute_many(connection, sqlite.insert(table), frame.select(valued))


def read_frame(connection: Connection, query: Select[Any], schema: pl.Schema) -> pl.DataFrame:
    """Return what a query finds as a frame of this schema, whose columns are the query's by
    position.
    """
    if connection.dialect.name == "postgresql":
        return _copy_out(connection, query, schema)
    result = connection.execute(query)
    # of the driver's cursor: SQLAlchemy's rows would be made for nothing
    frames = [_frame_of(rows, schema) for rows in _blocks(result.cursor)]
    result.close()
    return pl.concat([schema.to_frame(), *frames])


def _driver(connection: Connection) -> Any:
    """Return the driver's own connection."""
    return connection.connection.driver_connection


def _execute_many(connection: Connection, insert: sqlite.Insert, frame: pl.DataFrame) -> None:
    """Insert a frame's rows into SQLite."""
    compiled = insert.compile(connection, column_keys=frame.columns)
    for block in frame.select(compiled.positiontup or ()).iter_slices(ROWS):
        stored = block.with_columns(map(_stored, block.columns, block.dtypes))
        rows = zip(*map(_values, stored), strict=True)
        _driver(connection).executemany(str(compiled), rows).close()


def _values(column: pl.Series) -> Iterable[Any]:
    """Return the values of a column; those that are all the same are one object."""
    if len(column) and column[0] == column[-1] and column.n_unique() == 1:
        return repeat(column[0], len(column))
    return column.to_list()


def _stored(name: str, dtype: pl.DataType) -> pl.Expr:
    """Return a column as SQLite keeps it."""
    match dtype:
        case pl.Datetime():
            return pl.col(name).dt.strftime(f"{_TIME}%.6f")
        case pl.Date():
            return pl.col(name).dt.strftime(_DATE)
        case _:
            return pl.col(name)


def _blocks(cursor: Any) -> Iterator[list[tuple[Any, ...]]]:
    while rows := cursor.fetchmany(ROWS):
        yield rows


def _frame_of(rows: list[tuple[Any, ...]], schema: pl.Schema) -> pl.DataFrame:
    """Return rows of SQLite as a frame of a schema."""
    columns = zip(schema.items(), zip(*rows, strict=True), strict=True)
    read = [pl.Series(name, values, _carrier(dtype)) for (name, dtype), values in columns]
    return pl.DataFrame(read).select(_typed(schema, true=1))


def _carrier(dtype: pl.DataType) -> type[pl.DataType]:
    """Return the type in which SQLite gives the values of a column."""
    return pl.Int64 if dtype.is_integer() or dtype == pl.Boolean else pl.String


def _typed(schema: pl.Schema, true: int | str) -> Iterator[pl.Expr]:
    """Yield the columns of a schema from what a database gives for them."""
    for name, dtype in schema.items():
        column = pl.col(name)
        match dtype:
            case pl.Boolean():
                yield column == true
            case pl.Date():
                yield column.str.to_date(_DATE)
            case pl.Datetime():
                text = column.str.strip_suffix("+00")  # of PostgreSQL
                yield text.str.to_datetime(f"{_TIME}%.f", time_unit="us", time_zone="UTC")
            case _:
                yield column.cast(dtype)


def _copy_in(connection: Connection, table: Table, frame: pl.DataFrame) -> None:
    """Send a frame's rows to a table of PostgreSQL."""
    quote = connection.dialect.identifier_preparer.quote
    copy = f"COPY {quote(table.name)} ({', '.join(map(quote, frame.columns))}) FROM STDIN {_CSV}"
    data = BytesIO()
    frame.write_csv(
        data,
        include_header=False,
        quote_style="non_numeric",  # of what is not null
        datetime_format=f"{_TIME}%.6f+00",
    )
    with _driver(connection).cursor() as cursor, cursor.copy(copy) as target:
        target.write(data.getvalue())


def _copy_out(connection: Connection, query: Select[Any], schema: pl.Schema) -> pl.DataFrame:
    """Return what a query of PostgreSQL finds."""
    compiled = query.compile(connection).construct_expanded_state()
    copy = f"COPY ({compiled.statement}) TO STDOUT {_CSV}"
    with _driver(connection).cursor() as cursor, cursor.copy(copy, compiled.parameters) as source:
        data = b"".join(source)
    texts = pl.read_csv(
        data,
        has_header=False,
        schema=dict.fromkeys(schema.names(), pl.String),
        raise_if_empty=False,
    )
    return texts.select(_typed(schema, true="t"))
