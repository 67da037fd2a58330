"""The files of a delivery as its receiver wants them: its columns as CSV, JSON lines or Parquet."""

from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Final

import polars as pl

from flows.runs.frames import csv_pieces
from schemas.handover import Receiver
from schemas.settings import CHANGES, LinkSettings
from schemas.tables import parquet

EXPIRES_ON: Final = "expires_on"


def delivery_files(
    changes: pl.DataFrame, receiver: Receiver, links: LinkSettings
) -> dict[str, bytes]:
    """Return the files of a delivery by name, in clear.

    `changes`: its rows (`flows.operations.link_changes.CHANGED`). `links`: what counts where the
    receiver's own settings do not say.
    """
    own = receiver.columns or links.columns
    columns = [(str(column), name) for column, name in own.items()]
    if not receiver.columns:
        columns += [(name, name) for name in CHANGES]
    dates = links
    if receiver.date_format is not None:
        dates = links.model_copy(update={"date_format": receiver.date_format})
    if receiver.format != "parquet":  # which has dates of its own
        changes = changes.with_columns(pl.col(EXPIRES_ON).dt.strftime(dates.strftime))
    rows = changes.select(pl.col(column).alias(name) for column, name in columns)
    limit = receiver.rows_per_file or links.rows_per_file
    write = _WRITERS[receiver.format]
    return {name: write(part) for name, part in _parts(rows, limit, receiver.format)}


def _parts(rows: pl.DataFrame, limit: int | None, kind: str) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the rows of each file by its name.

    Parquet files are always numbered: links.parquet is our own record of the delivery.
    """
    if limit is None and kind != "parquet":
        yield f"links.{kind}", rows
        return
    for number, part in enumerate(rows.iter_slices(limit or rows.height), start=1):
        yield f"links-{number:05d}.{kind}", part


def _csv(rows: pl.DataFrame) -> bytes:
    return b"".join(csv_pieces([rows], rows.columns, unchanged=True))


def _json_lines(rows: pl.DataFrame) -> bytes:
    out = BytesIO()
    rows.write_ndjson(out)
    return out.getvalue()


_WRITERS: Final[dict[str, Callable[[pl.DataFrame], bytes]]] = {
    "csv": _csv,
    "jsonl": _json_lines,
    "parquet": parquet,
}
