"""What the partner said: result files in the database, and what came of each of their rows.

A row of `result_file` is a content of a file, as it was ingested last: its `number` says in which
order. What a file says is written in one act with what it waits for (`flows/results/intake.py`).

Where a file came again with other content, all of its contents count: of the earlier ones the
answers that settled a row, so that nobody takes an answer back by changing a file. Where the two
differ, an operator decides (`schemas.breaks.CONFLICTING_RESULT`).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from flows.database.bulk import insert_frame, read_frame
from flows.runs.adapters import Adapters
from flows.runs.events import ANSWERED, TAKEN_BACK
from flows.runs.identity import digest
from flows.runs.journal import Act, enter
from flows.runs.outcomes import (
    DECISION,
    LINE,
    OUTCOME,
    STORED,
    Attributed,
    restored,
    rows_of_run,
)
from flows.runs.store import Entry
from schemas.database import ANSWER, ANSWERED_CHUNK, INGESTED, RESULT_FILE
from schemas.ledger import ERROR
from schemas.reasons import ERASED

ANSWERS = "answers"  # the fact of a journal entry: digests of what files say of the run, by number
_PERSONAL = ("cuid", "last_4", "url", "has_link", "expires_on", "expires_form", "message")
SETTLED = None  # the basis of a file that nothing can change any more


class FileState(NamedTuple):
    """What is known of a result file apart from its rows: as the table `result_file` has it."""

    key: str
    decisions: int = 0
    basis: str | None = SETTLED
    outcome: str = ""
    told: str = ""


class ReadResult(NamedTuple):
    """A result file that was read: as it is stored, what came of it, and what is known of it."""

    entry: Entry
    attributed: Attributed
    state: FileState


# Written
# --------------------------------------------------------------------------------------------------


def file_id(key: str) -> str:
    """Return what a result file is known by, since its key may hold a card number."""
    return digest(key.encode())[:32]


def store_results(act: Act, taken: datetime, results: Sequence[ReadResult]) -> list[frozenset[str]]:
    """Write result files with their answers in an act, in place of what they said before.

    Return, for each, the runs that it answered before, with whatever content, and answers no more.
    The journal names the files of each run.
    """
    files = [file_id(result.entry.key) for result in results]
    own = select(func.max(RESULT_FILE.c.number)).where(RESULT_FILE.c.issuer == act.issuer)
    # before anything is deleted: no number is that of two
    first = 1 + (act.connection.execute(own).scalar() or 0)
    before, gone = _replaced(act, files, [result.attributed.digest for result in results])
    rows = [
        {"issuer": act.issuer, "number": number, "file": file, "taken_at": taken, **_facts(result)}
        for number, (file, result) in enumerate(zip(files, results, strict=True), first)
    ]
    act.connection.execute(insert(RESULT_FILE), rows)
    answers = _answers([result.attributed for result in results], first)
    is_of_chunk = pl.col("chunk").is_not_null()
    chunks = answers.filter(is_of_chunk).group_by("run", "chunk", "number").agg(rows=pl.len())
    issuer = pl.lit(act.issuer).alias("issuer")
    insert_frame(act.connection, ANSWERED_CHUNK, chunks.with_columns(issuer))
    insert_frame(act.connection, ANSWER, answers.with_columns(issuer))
    left = [
        before.get(file, frozenset()) - result.attributed.runs
        for file, result in zip(files, results, strict=True)
    ]
    _note(act, results, answers, first, gone, left)
    return left


def _replaced(
    act: Act, files: Sequence[str], digests: Sequence[str]
) -> tuple[dict[str, frozenset[str]], dict[int, set[str]]]:
    """Delete what these files said before with the same content, or about no run; what they said
    with another is superseded.

    Return the runs that each answered, and those that what is gone answered, by its number.
    """
    table = RESULT_FILE.c
    query = select(table.number, table.file, table.digest).where(
        table.issuer == act.issuer, table.file.in_(files)
    )
    known = act.connection.execute(query).all()
    if not known:
        return {}, {}
    answered = runs_of(act.connection, act.issuer, [row.number for row in known])
    now = dict(zip(files, digests, strict=True))
    gone = [
        row.number for row in known if row.digest == now[row.file] or not answered.get(row.number)
    ]
    _delete(act, gone)
    is_left = (table.issuer == act.issuer) & table.number.in_([row.number for row in known])
    act.connection.execute(update(RESULT_FILE).where(is_left).values(is_superseded=True))
    before = dict[str, frozenset[str]]()
    for row in known:
        before[row.file] = before.get(row.file, frozenset()) | answered.get(row.number, set())
    return before, {number: answered.get(number, set()) for number in gone}


def _delete(act: Act, numbers: Sequence[int]) -> None:
    """Delete result files with all that they say."""
    for table in INGESTED:
        is_one = (table.c.issuer == act.issuer) & table.c.number.in_(numbers)
        act.connection.execute(delete(table).where(is_one))


def runs_of(connection: Connection, issuer: str, numbers: Sequence[int]) -> dict[int, set[str]]:
    """Return the runs that result files answer, by the number of each that answers any."""
    chunk = ANSWERED_CHUNK.c
    query = select(chunk.number, chunk.run).where(chunk.issuer == issuer, chunk.number.in_(numbers))
    runs = dict[int, set[str]]()
    for number, run in connection.execute(query.distinct()):
        runs.setdefault(number, set()).add(run)
    return runs


def runs_answered_by(adapters: Adapters, issuer: str, key: str) -> tuple[str, ...]:
    """Return the runs that a result file answers, with whatever content."""
    table = RESULT_FILE.c
    query = select(table.number).where(table.issuer == issuer, table.file == file_id(key))
    with adapters.database.snapshot() as connection:
        numbers = list(connection.scalars(query))
        runs = runs_of(connection, issuer, numbers)
    return tuple(sorted(frozenset().union(*runs.values())))


def _facts(result: ReadResult) -> dict[str, Any]:
    """Return what is stored of a result file."""
    file = result.attributed
    run, chunk = file.named or (None, None)
    return {
        **result.state._asdict(),
        "digest": file.digest,
        "name": file.name,
        "size": result.entry.size,
        "version": result.entry.version,
        "came_at": result.entry.modified,
        "received": file.received,
        "named_run": run,
        "named_chunk": chunk,
        "problems": list(file.problems),
        "is_superseded": False,
    }


def _answers(files: Sequence[Attributed], first: int) -> pl.DataFrame:
    """Return the rows of files that answer any run, as they are stored; `first`: their numbers."""
    kept = [(number, file) for number, file in enumerate(files, first) if file.runs]
    numbers = np.repeat([number for number, _ in kept], [file.outcomes.height for _, file in kept])
    frames = [pl.DataFrame(schema=OUTCOME), *(file.outcomes for _, file in kept)]
    is_answer = pl.col("row").is_not_null()
    rows = pl.concat(frames).with_columns(pl.Series("number", numbers, pl.Int64))
    rows = rows.select(
        *("number", "position", "run", "chunk", "row", "how", "url", "expires_on", "shape"),
        pl.when(~is_answer).then(pl.col("cuid", "last_4")),
        pl.coalesce("trouble", "state").alias("outcome"),
        pl.when(pl.col("url").is_null()).then("has_link"),
        "expires_form",
        pl.col("reasons").list.join(LINE),
        "message",
        pl.col("content").reinterpret(signed=True),
        pl.when(pl.col("nth") > 0).then("nth"),
    )
    if not rows["run"].null_count():
        return rows
    homes = pl.DataFrame(
        [(number, min(file.runs)) for number, file in kept],
        {"number": pl.Int64, "home": pl.String},
        orient="row",
    )
    homed = rows.join(homes, on="number", how="left", maintain_order="left")
    return homed.with_columns(run=pl.coalesce("run", "home")).drop("home")


def _note(
    act: Act,
    results: Sequence[ReadResult],
    answers: pl.DataFrame,
    first: int,
    gone: Mapping[int, Collection[str]],
    left: Sequence[Collection[str]],
) -> None:
    """Say in the journal which files answer each run: names, digests, a count, and the digest of
    what each says by its number, "" for those that are `gone`; and which each has `left`.
    """
    notes = _answering(results, answers, first)
    taken_back = dict[str, dict[str, Any]]()
    for result, runs in zip(results, left, strict=True):
        for run in runs:
            _add_names(taken_back.setdefault(run, {ANSWERS: {}}), result)
    for number, runs in gone.items():
        for run in runs:
            facts = notes.get(run) or taken_back[run]
            facts[ANSWERS][str(number)] = ""
    for run, facts in notes.items():
        act.note(ANSWERED, run, **facts)
    for run, facts in taken_back.items():
        act.note(TAKEN_BACK, run, **facts)
    homeless = [result.attributed for result in results if not result.attributed.runs]
    if homeless:
        act.facts |= names_of(homeless)


def _answering(
    results: Sequence[ReadResult], answers: pl.DataFrame, first: int
) -> dict[str, dict[str, Any]]:
    """Return by run which files answer it, how many rows, and the digest of what each says."""
    notes = dict[str, dict[str, Any]]()
    for (run, number), rows in answers.group_by("run", "number", maintain_order=True):
        facts = notes.setdefault(run, {"rows": 0, ANSWERS: {}})
        _add_names(facts, results[number - first])
        facts["rows"] += rows.height
        facts[ANSWERS][str(number)] = digest_of_answers(rows)
    return notes


def _add_names(facts: dict[str, Any], result: ReadResult) -> None:
    for name, values in names_of([result.attributed]).items():
        facts[name] = [*facts.get(name, ()), *values]


def digest_of_answers(rows: pl.DataFrame) -> str:
    """Return a digest of who gets which link by the answers of a file to a run."""
    links = rows.sort("position").select("position", "row", "outcome", "url", "expires_on")
    return digest(links.write_csv().encode())


def names_of(files: Sequence[Attributed]) -> dict[str, list[str]]:
    """Return names and digests of result files, as the history of a run has them."""
    return {
        "results": [file.name for file in files],
        "digests": [file.digest for file in files],
    }


# Erased, purged
# --------------------------------------------------------------------------------------------------


def erase_answers(
    adapters: Adapters, issuer: str, run: str, which: Callable[[pl.DataFrame], pl.Series]
) -> None:
    """Leave of these answers of a run only that their cardholder was erased.

    `which` is given run, row and cuid of all.
    """

    def erase(act: Act) -> None:
        named = run_answers(act.connection, issuer, run)
        places = named.filter(which(named)).select(
            pl.lit(issuer).alias("of_issuer"), of_number="number", of_position="position"
        )
        if places.is_empty():
            return
        table = ANSWER.c
        erased = (
            update(ANSWER)
            .where(
                table.issuer == bindparam("of_issuer"),
                table.number == bindparam("of_number"),
                table.position == bindparam("of_position"),
            )
            .values(
                **dict.fromkeys(_PERSONAL),
                how=DECISION,
                outcome=ERROR,
                shape=ERASED,
                reasons=ERASED,
                content=table.position,
            )
        )
        act.connection.execute(erased, places.to_dicts())
        act.facts["rows"] = places.height
        changed = places["of_number"].unique()
        act.facts[ANSWERS] = {
            number: sha256
            for number, sha256 in answers_stored(act.connection, issuer, run).items()
            if int(number) in changed
        }

    enter(adapters, issuer, "answers erased", erase, run=run)


def run_answers(connection: Connection, issuer: str, run: str) -> pl.DataFrame:
    """Return all answers of a run that name somebody (OUTCOME), each with the number and the name
    of its file (`number`, `file_name`). Who was sent the row is not named again.
    """
    file = RESULT_FILE.c
    chunk = ANSWERED_CHUNK.c
    numbers = select(chunk.number).where(chunk.issuer == issuer, chunk.run == run)
    query = rows_of_run(issuer, run).add_columns(file.name)
    query = query.where(
        ANSWER.c.number.in_(numbers),
        ANSWER.c.shape.is_distinct_from(ERASED),
        file.issuer == issuer,
        file.number == ANSWER.c.number,
    )
    rows = read_frame(connection, query, pl.Schema({**STORED, "file_name": pl.String()}))
    return restored(rows, run)


def purge_answers(adapters: Adapters, issuer: str, run: str) -> None:
    """Delete the answers of a run; that its chunks are answered stays."""

    def purge(act: Act) -> None:
        chunk = ANSWERED_CHUNK.c
        numbers = select(chunk.number).where(chunk.issuer == issuer, chunk.run == run)
        answer = ANSWER.c
        of_run = (answer.issuer == issuer) & answer.number.in_(numbers) & (answer.run == run)
        purged = dict.fromkeys(answers_stored(act.connection, issuer, run), "")
        if purged:
            act.connection.execute(delete(ANSWER).where(of_run))
            act.facts[ANSWERS] = purged

    enter(adapters, issuer, "answers purged", purge, run=run)


def answers_stored(connection: Connection, issuer: str, run: str) -> dict[str, str]:
    """Return the digests of what result files say of a run, by number, as it is stored."""
    chunk = ANSWERED_CHUNK.c
    numbers = select(chunk.number).where(chunk.issuer == issuer, chunk.run == run)
    query = rows_of_run(issuer, run).where(ANSWER.c.number.in_(numbers))
    rows = read_frame(connection, query, pl.Schema(STORED))
    by_number = rows.sort("number").group_by("number", maintain_order=True)
    return {str(number): digest_of_answers(of_file) for (number,), of_file in by_number}
