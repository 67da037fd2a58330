"""What the partner said: the answers of a run, as they are stored (`answers.py` writes them)."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple

import polars as pl
from sqlalchemy import RowMapping, select

from flows.database.bulk import read_frame
from flows.runs.adapters import Adapters
from schemas.database import ANSWER, ANSWERED_CHUNK, RESULT_FILE
from schemas.ledger import BROKEN, ERROR, LINKED

OUTCOME: dict[str, pl.DataType] = {
    "position": pl.UInt32(),  # data row of the result file, from 1
    "run": pl.String(),  # null: belongs to no chunk
    "chunk": pl.UInt32(),
    "row": pl.UInt32(),  # null: belongs to no sent row
    # as sent where attributed, else as received, unless it looks like a card number
    "cuid": pl.String(),
    "last_4": pl.String(),
    # cuid, error_cuid, token, position, elimination, by hand; null where not attributed
    "how": pl.String(),
    "state": pl.String(),  # linked, error, broken
    "trouble": pl.String(),  # name of the break, null where there is none
    "url": pl.String(),  # of linked rows, and of those that came with a good link beside an error
    "has_link": pl.Boolean(),  # the row had a url, stored or not
    "expires_on": pl.Date(),
    "expires_form": pl.String(),  # of a date that cannot be read: A and 9 for its characters
    "reasons": pl.List(pl.String),  # codes of the partner's error
    "message": pl.String(),  # masked
    "shape": pl.String(),  # masked, ids and numbers blanked: same kind of error, same shape
    # hash of the row as received, without card numbers: the same in two files
    "content": pl.UInt64(),
    "nth": pl.UInt32(),  # occurrence of that content within the file, from 0
}

DECISION = "decision"  # `how` of a row without an answer, about which an operator decided
LINE = "\n"  # between the codes of a row
# as it is stored: what follows from other columns is not
STORED = {
    "number": pl.Int64(),  # of the file
    "position": pl.UInt32(),
    "chunk": pl.UInt32(),
    "row": pl.UInt32(),
    "cuid": pl.String(),
    "last_4": pl.String(),
    "how": pl.String(),
    "outcome": pl.String(),
    "url": pl.String(),
    "has_link": pl.Boolean(),
    "expires_on": pl.Date(),
    "expires_form": pl.String(),
    "reasons": pl.String(),
    "message": pl.String(),
    "shape": pl.String(),
    "content": pl.Int64(),  # databases have no unsigned numbers
    "nth": pl.UInt32(),
}


class Attributed(NamedTuple):
    """One result file, every row attributed or reported as a break.

    Without card numbers; columns: OUTCOME.
    """

    digest: str
    name: str
    received: date | None
    problems: tuple[str, ...]
    outcomes: pl.DataFrame
    named: tuple[str, int] | None  # run and chunk that the file's name gives, where they were sent
    arrived: datetime | None = None  # when the file was dropped, of a stored one
    superseded: bool = False  # an earlier content of the file: only what settled a row

    @property
    def settled(self) -> pl.DataFrame:
        """Its rows (OUTCOME) that answer a sent row with a link or an error."""
        is_answer = pl.col("state").is_in([LINKED, ERROR])
        return self.outcomes.filter(is_answer & pl.col("row").is_not_null())

    @property
    def runs(self) -> frozenset[str]:
        """The runs that it answers."""
        # looked at as a list: with a thousand files, an expression for each takes longer
        return frozenset(self.outcomes["run"].to_list()) - {None}


class StoredOutcomes:
    """The stored answers of a run: which result files concern which chunks."""

    def __init__(self, adapters: Adapters, issuer: str, run: str) -> None:
        self._database = adapters.database
        self._issuer = issuer
        self._run = run
        chunk = ANSWERED_CHUNK.c
        file = RESULT_FILE.c
        query = select(chunk.number, chunk.chunk, RESULT_FILE).where(
            chunk.issuer == issuer,
            chunk.run == run,
            file.issuer == chunk.issuer,
            file.number == chunk.number,
        )
        self._chunks: dict[int, set[int]] = {}  # by the number of the file that answers them
        self._files: dict[int, RowMapping] = {}
        with self._database.snapshot() as connection:
            for row in connection.execute(query.order_by(chunk.number)):
                self._chunks.setdefault(row.number, set()).add(row.chunk)
                self._files[row.number] = row._mapping

    def chunks(self) -> frozenset[int]:
        """Return the chunks that are answered, wholly or in part."""
        return frozenset().union(*self._chunks.values())

    def links(self) -> list[tuple[str, int]]:
        """Return the links that results gave, each with its row."""
        answer = ANSWER.c
        query = select(answer.url, answer.row).where(
            answer.issuer == self._issuer,
            answer.number.in_(list(self._files)),
            answer.run == self._run,
            answer.url.is_not(None),
        )
        with self._database.snapshot() as connection:
            return [(url, row) for url, row in connection.execute(query)]

    @property
    def state(self) -> dict[str, int]:
        """How many result files answer the run, and the number of the last; nothing where none
        does.
        """
        if not self._files:
            return {}
        superseded = sum(file["is_superseded"] for file in self._files.values())
        return {"results": len(self._files) - superseded, "ingest": max(self._files)}

    def of(self, chunks: Collection[int], sent: pl.DataFrame | None = None) -> list[Attributed]:
        """Return the attributed result files that concern any of these chunks.

        `sent`: row, cuid and last_4 of what was sent; without them the rows that answer one have no
        cuid and last_4.
        """
        numbers = [number for number, of in self._chunks.items() if not of.isdisjoint(chunks)]
        if not numbers:
            return []
        query = rows_of_run(self._issuer, self._run).where(ANSWER.c.number.in_(numbers))
        with self._database.snapshot() as connection:
            ordered = query.order_by(ANSWER.c.number, ANSWER.c.position)
            rows = read_frame(connection, ordered, pl.Schema(STORED))
        heights = dict(rows.group_by("number").agg(pl.len()).iter_rows())
        if sent is not None:
            of_row = sent.select("row", pl.col("cuid", "last_4").name.suffix("_sent"))
            rows = rows.join(of_row, on="row", how="left", maintain_order="left").with_columns(
                cuid=pl.coalesce("cuid_sent", "cuid"), last_4=pl.coalesce("last_4_sent", "last_4")
            )
        outcomes = restored(rows, self._run).select(*OUTCOME)
        return list(self._attributed(numbers, outcomes, heights))

    def _attributed(
        self, numbers: Sequence[int], outcomes: pl.DataFrame, heights: Mapping[int, int]
    ) -> Iterator[Attributed]:
        start = 0
        for number in numbers:
            end = start + heights.get(number, 0)
            yield self._file(number, outcomes[start:end])
            start = end

    def _file(self, number: int, outcomes: pl.DataFrame) -> Attributed:
        facts = self._files[number]
        named = None
        if facts["named_run"] is not None:
            named = (facts["named_run"], facts["named_chunk"])
        file = Attributed(
            digest=facts["digest"],
            name=facts["name"],
            received=facts["received"],
            problems=tuple(facts["problems"]),
            outcomes=outcomes,
            named=named,
            arrived=facts["came_at"],
        )
        if facts["is_superseded"]:
            return file._replace(outcomes=file.settled, problems=(), superseded=True)
        return file


def rows_of_run(issuer: str, run: str) -> Any:
    """Return the query for answers of a run (STORED)."""
    columns = [ANSWER.c[name] for name in STORED]
    return select(*columns).where(ANSWER.c.issuer == issuer, ANSWER.c.run == run)


def restored(rows: pl.DataFrame, run: str) -> pl.DataFrame:
    """Return stored answers of a run as they were (OUTCOME), but for what was sent."""
    is_answer = pl.col("outcome").is_in([LINKED, ERROR])
    return rows.with_columns(
        run=pl.when(pl.col("chunk").is_not_null()).then(pl.lit(run)),
        state=pl.when(is_answer).then("outcome").otherwise(pl.lit(BROKEN)),
        trouble=pl.when(~is_answer).then("outcome"),
        has_link=pl.col("url").is_not_null() | pl.col("has_link").fill_null(value=False),
        reasons=pl.col("reasons").str.split(LINE),
        content=pl.col("content").reinterpret(signed=False),
        nth=pl.col("nth").fill_null(0),
    ).drop("outcome")
