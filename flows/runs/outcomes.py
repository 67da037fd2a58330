"""Attributed result rows of a run, kept for its reports.

A Parquet object per group of result files. They are derived from result files and ledger. A file
may be in several groups, where it was ingested again; the last time counts.

Where it came again with other content, all of its contents count: of the earlier ones the answers
that settled a row, so that nobody takes an answer back by changing a file. Where the two differ,
an operator decides (`schemas.breaks.CONFLICTING_RESULT`).
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date, datetime
from io import BytesIO
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from flows.runs.frames import write_parquet
from flows.runs.identity import digest
from flows.runs.keys import RunKeys
from flows.runs.store import Entry, Store, read
from flows.runs.threads import concurrently
from schemas.ledger import ERROR, LINKED
from schemas.reasons import ERASED

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
    "expires_raw": pl.String(),
    "reasons": pl.List(pl.String),  # codes of the partner's error
    "message": pl.String(),  # masked
    "shape": pl.String(),  # masked, ids and numbers blanked: same kind of error, same shape
    # hash of the row as received, without card numbers: the same in two files
    "content": pl.UInt64(),
    "nth": pl.UInt32(),  # occurrence of that content within the file, from 0
}

DECISION = "decision"  # `how` of a row without an answer, about which an operator decided
NAMED = 24  # hex digits of a digest that name an object, and are enough to know a file by
READERS = 8  # objects fetched at a time, of a few megabytes each
FILES = "files"  # the metadata key of the facts about the result files

FILE: dict[str, pl.DataType | type[pl.DataType]] = {
    "file": pl.String,  # digest of its key
    "file_taken": pl.Datetime("us", "UTC"),  # when it was ingested
    "file_modified": pl.Datetime("us", "UTC"),
    "file_digest": pl.String,
    "file_name": pl.String,
    "file_received": pl.Date,
    "file_problems": pl.List(pl.String),
    "file_run": pl.String,  # run and chunk that its name gives
    "file_chunk": pl.UInt32,
}
# of the file among those of its object, from 0; each row has its file's
NUMBER = {"number": pl.UInt16}

# which file answers which chunk, in which object
_ANSWERED = pl.DataFrame(
    schema={
        "key": pl.String,
        **{name: FILE[name] for name in list(FILE)[:4]},
        "chunk": OUTCOME["chunk"],
    }
)


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


class RunOutcomes(NamedTuple):
    """The part of a result file that concerns one run: `rows` of its outcomes."""

    entry: Entry
    one: Attributed
    rows: pl.DataFrame


def write_outcomes(
    store: Store, keys: RunKeys, taken: datetime, answers: Sequence[RunOutcomes]
) -> str:
    """Write the outcomes of a run from some result files, at least one; return the key written.

    It is named after the files and their contents: the same ones ingested again replace it.
    """
    facts = pl.DataFrame([_file_facts(answer, taken) for answer in answers], FILE)
    heights = [answer.rows.height for answer in answers]
    numbers = pl.Series("number", np.repeat(np.arange(len(answers), dtype=np.uint16), heights))
    rows = pl.concat([answer.rows for answer in answers]).with_columns(numbers)
    key = f"{keys.outcomes}{_name(facts)}.parquet"
    write_parquet(store, key, rows, {FILES: facts.write_json()})
    return key


def _name(files: pl.DataFrame) -> str:
    """Return the name of the object with these files and contents."""
    contents = "".join(sorted(files["file"] + files["file_digest"]))
    return digest(contents.encode())[:NAMED]


def _file_facts(answer: RunOutcomes, taken: datetime) -> dict[str, Any]:
    """Return what is stored about one result file (FILE)."""
    result = answer.one
    run, chunk = result.named or (None, None)
    return {
        "file": digest(answer.entry.key.encode()),
        "file_taken": taken,
        "file_modified": answer.entry.modified,
        "file_digest": result.digest,
        "file_name": result.name,
        "file_received": result.received,
        "file_problems": list(result.problems),
        "file_run": run,
        "file_chunk": chunk,
    }


def outcome_rows(store: Store, key: str) -> pl.DataFrame:
    """Return the rows of an object (OUTCOME), each with the name of its file (`file_name`)."""
    rows, files = _opened(store, key)
    named = rows.select(*OUTCOME, "number")
    return named.join(files.select("number", "file_name"), on="number", how="left").drop("number")


def erase_outcomes(store: Store, key: str, which: Callable[[pl.DataFrame], pl.Series]) -> bool:
    """Write outcomes anew in which these rows say that their cardholder was erased, and no more.

    Return whether there are any.
    """
    rows, files = _opened(store, key)
    is_erased = which(rows)
    if not is_erased.any():
        return False
    nothing = pl.lit(None)
    of_place = ["position", "run", "chunk", "row", "nth", "number"]
    facts = {name: nothing for name in rows.columns if name not in of_place} | {
        "how": pl.lit(DECISION),
        "state": pl.lit(ERROR),
        "shape": pl.lit(ERASED),
        "has_link": pl.lit(value=False),
        "reasons": pl.concat_list(pl.lit(ERASED)),
        "content": pl.col("position").cast(pl.UInt64),
    }
    erased = [
        pl.when(is_erased).then(fact).otherwise(pl.col(name)).cast(rows.schema[name]).alias(name)
        for name, fact in facts.items()
    ]
    write_parquet(store, key, rows.with_columns(erased), {FILES: files.drop("number").write_json()})
    return True


class StoredOutcomes:
    """The stored outcomes of a run: which result files concern which chunks.

    Each content of a file counts as it was ingested last.
    """

    def __init__(self, store: Store, keys: RunKeys) -> None:
        self._store = store
        answered = concurrently(
            lambda entry: _chunks_answered(store, entry.key), store.keys(keys.outcomes), READERS
        )
        ordered = pl.concat([_ANSWERED, *answered]).sort("file_taken", "file_modified", "key")
        is_last = pl.col("key") == pl.col("key").last().over("file", "file_digest")
        contents = ordered.filter(is_last)
        is_newest = pl.col("file_digest") == pl.col("file_digest").last().over("file")
        self._files = contents.with_columns(superseded=~is_newest)

    def chunks(self) -> frozenset[int]:
        """Return the chunks that are answered, wholly or in part."""
        return frozenset(self._files["chunk"].drop_nulls())

    def has_results_for(self, result: str) -> bool:
        """Return whether the result file of that key answers any chunk of the run."""
        return digest(result.encode())[:NAMED] in self._files.drop_nulls("chunk")["file"]

    def of(self, chunks: Collection[int]) -> list[Attributed]:
        """Return the attributed result files that concern any of these chunks."""
        concerned = self._files.filter(pl.col("chunk").is_in(list(chunks)))
        selected = concerned.select("key", "file", "superseded").unique()
        groups = selected.group_by("key").agg("file", "superseded").sort("key").iter_rows()
        results: list[Attributed] = []
        for key, files, superseded in groups:
            results += _restore(self._store, key, dict(zip(files, superseded, strict=True)))
        return results


def _chunks_answered(store: Store, key: str) -> pl.DataFrame:
    """Return which chunks the files of an object concern."""
    rows, files = _opened(store, key, [*NUMBER, "chunk"])
    answered = rows.select(*NUMBER, "chunk").unique().join(files, on="number")
    return answered.with_columns(pl.col("file").str.head(NAMED), key=pl.lit(key)).select(
        _ANSWERED.columns
    )


def _restore(store: Store, key: str, selected: Mapping[str, bool]) -> Iterator[Attributed]:
    """Yield some of the files of an object; `selected`: whether they came again since."""
    rows, files = _opened(store, key)
    heights = rows.group_by("number").agg(pl.len())
    is_selected = pl.col("file").str.head(NAMED).is_in(list(selected))
    facts = files.filter(is_selected).join(heights, on="number").sort("number")
    if facts.height < files.height:
        rows = rows.filter(pl.col("number").is_in(facts["number"].implode()))
    outcomes = rows.select(*OUTCOME)
    start = 0
    for file in facts.iter_rows(named=True):
        end = start + file["len"]
        named = None
        if file["file_run"] is not None:
            named = (file["file_run"], file["file_chunk"])
        restored = Attributed(
            digest=file["file_digest"],
            name=file["file_name"],
            received=file["file_received"],
            problems=tuple(file["file_problems"]),
            outcomes=outcomes[start:end],
            named=named,
            arrived=file["file_modified"],
        )
        if selected[file["file"][:NAMED]]:
            restored = restored._replace(outcomes=restored.settled, problems=(), superseded=True)
        yield restored
        start = end


def _opened(
    store: Store, key: str, columns: list[str] | None = None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of an object, at least these columns, and the facts about its files.

    Each file has its number.
    """
    content = read(store, key)
    facts = pl.read_parquet_metadata(BytesIO(content))[FILES]
    rows = pl.read_parquet(BytesIO(content), columns=columns)
    files = pl.read_json(facts.encode(), schema=FILE)
    # polars takes a mapping of names
    return rows, files.with_row_index("number").cast(NUMBER)  # type: ignore[arg-type]
