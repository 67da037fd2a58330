"""Read what happened to one cardholder in all runs of an issuer."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import polars as pl

from flows.book.stored_book import known_runs
from flows.errors import OperatorError
from flows.reports.cardholder import SINGLE, Attempt, attempt_of, single_attempt
from flows.runs.adapters import Adapters
from flows.runs.single_links import prompted_singles
from flows.runs.store import ObjectMissingError
from flows.runs.stored_run import StoredRun
from flows.runs.stored_runs import StoredRuns
from flows.runs.threads import concurrently
from schemas import ledger
from schemas.database import SINGLE_LINK
from schemas.expressions import holds_card
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.manifest import LedgerPart

RECORD = ["row", "cuid", "last_4", "expiration", "fate", "chunk", "position", "origin", "reasons"]


class CardGivenError(OperatorError):
    """What was given as a cuid contains a card number."""

    message = (
        "This contains a card number, so no cardholder has it as a cuid:"
        " a row with such a cuid is rejected."
    )
    next_step = "Give the cardholder's cuid, and remove the number from the shell's history."


class CardholderTrace(NamedTuple):
    """A cardholder's attempts, oldest first, and the runs whose ledgers are purged."""

    attempts: tuple[Attempt, ...]
    purged: tuple[str, ...]


def refuse_card_number(cuid: str) -> None:
    """Raise CardGivenError, without the text, where the rule of cuids would reject it."""
    schema = {"cuid": pl.String, "pan": pl.String}
    row = pl.DataFrame({"cuid": [cuid], "pan": [None]}, schema)
    if row.select(holds_card(pl.col("cuid"), pl.col("pan"))).item():
        raise CardGivenError


def trace(adapters: Adapters, issuer: str, cuid: str, *, urls: bool = False) -> CardholderTrace:
    """Return every attempt of a cardholder in an issuer's committed runs; links only with `urls`.

    Raises CardGivenError.
    """
    refuse_card_number(cuid)
    runs = StoredRuns(adapters, issuer)
    purged = runs.without_ledger
    without = purged | known_runs(adapters, runs).without(cuid)
    searched = [run for run in runs.ids if str(run) not in without]
    attempts: list[Attempt] = []
    for in_run in concurrently(lambda run: _attempts_in(runs.run(run), cuid), searched):
        attempts += in_run
    for single in prompted_singles(adapters, issuer, SINGLE_LINK.c.cuid == cuid):
        typed_in = Attempt(single.asked.at, issuer, "")
        attempts.append(single_attempt(typed_in, single.asked, single.answered))
    if not urls:
        attempts = [attempt._replace(url=None) for attempt in attempts]
    attempts.sort(key=lambda attempt: (attempt.at, attempt.row))
    return CardholderTrace(tuple(attempts), tuple(sorted(purged)))


def _attempts_in(run: StoredRun, cuid: str) -> list[Attempt]:
    """Return the attempts in one run, and its single links."""
    if run.manifest is None:
        return []
    records: list[dict[str, Any]] = []
    results: dict[int, dict[str, Any]] = {}
    for part in run.manifest.ledger:
        # of a part without the cuid only that column is decoded
        of_part = run.ledger_part(part, RECORD, pl.col("cuid") == cuid)
        records += of_part.to_dicts()
        results |= _results_in(run, part, of_part.filter(fate=ledger.SUBMITTED)["row"].to_list())
    if not records:
        return []
    shared = _shared_facts(run)
    return [*_sent_attempts(run, shared, records, results), *_single_attempts(run, shared, records)]


def _shared_facts(run: StoredRun) -> Attempt:
    """Return what all attempts of the run have in common."""
    selection = run.committed().selection
    repeats = selection.of if selection else ""
    return Attempt(run.committed_at, run.issuer, run.id, origin=repeats)


def _sent_attempts(
    run: StoredRun,
    shared: Attempt,
    records: Sequence[Mapping[str, Any]],
    results: Mapping[int, Mapping[str, Any]],
) -> list[Attempt]:
    """Return the attempts of ledger records; of a row that waits with the state of its chunk."""
    waiting = [record["row"] for record in records if _waits(record, results)]
    # most have an answer, so that the outbox need not be read
    outbox = run.outbox if waiting else []
    chunk_states = {item.chunk.number: item.state for item in outbox}
    attempts = []
    for record in records:
        chunk_state = ""
        if record["row"] in waiting:
            chunk_state = chunk_states.get(record["chunk"], "")
        result = results.get(record["row"], {})
        attempts.append(attempt_of(shared, record, result, chunk_state))
    return attempts


def _waits(record: Mapping[str, Any], results: Mapping[int, Mapping[str, Any]]) -> bool:
    """Return whether a ledger record's row was sent and has no answer."""
    if record["fate"] != ledger.SUBMITTED:
        return False
    result = results.get(record["row"])
    return result is None or result["state"] == AWAITING


def _single_attempts(
    run: StoredRun, shared: Attempt, records: Sequence[Mapping[str, Any]]
) -> list[Attempt]:
    """Return the attempts to get a single link for a row of these ledger records."""
    rows = {record["row"] for record in records}
    repeats_nothing = shared._replace(origin="")
    return [
        single_attempt(repeats_nothing, single.asked, single.answered)
        for single in run.single_link_attempts
        if single.asked.row in rows
    ]


def _results_in(run: StoredRun, part: LedgerPart, rows: list[int]) -> dict[int, dict[str, Any]]:
    """Return the reconciled rows of these rows by row, as their result files have them.

    There are none before the first report. A single link that counts for a row is an attempt of
    its own, so the row is as it was without it.
    """
    if not rows:
        return {}
    try:
        reconciled = run.rows_part(part, None, pl.col("row").is_in(rows))
    except ObjectMissingError:
        return {}
    return {row["row"]: _without_single_link(row) for row in reconciled.iter_rows(named=True)}


def _without_single_link(row: dict[str, Any]) -> dict[str, Any]:
    if row["how"] != SINGLE:
        return row
    if row["reasons"] or row["message"]:
        state = ERROR
    elif row["result"]:
        state = LINKED
    else:
        state = AWAITING
    return {**row, "state": state, "url": None, "expires_on": None, "how": None}
