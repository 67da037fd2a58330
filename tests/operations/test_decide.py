"""What an operator decides about a break has its effect on exactly the rows of the break, until it
is reopened.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.book.book import read_book
from flows.reports.cardholder_status import card_statuses
from flows.reports.page import refused_by
from flows.runs.keys import results
from schemas.ledger import AWAITING, ERROR, LINKED
from tests.builders import quick
from tests.cli.test_mend import bank_in, cardlink, decided, sent, told
from tests.night import Bench

WHY = ("--reason", "ticket INC0012345, agreed 2026-11-20")
LINE = "{cuid},{last_4},https://links.example.com/{row},2099-01-01,\n"
HEAD = "cuid,last_4,url,expiration_date,error\n"


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    """Return the bench that writes where the command line of `tmp_path` reads."""
    return bank_in(tmp_path)


@pytest.fixture
def run(bank: Bench, tmp_path: Path) -> str:
    """A committed run of two chunks of ten rows."""
    return sent(tmp_path, 20)


def answer(
    bank: Bench,
    run: str,
    chunk: int,
    rows: int = 10,
    tail: str = "",
    name: str = "",
    mark: str = "",
) -> None:
    """Drop a result of a chunk: links for its first rows, then `tail`."""
    sent = bank.ledger(run).filter(chunk=chunk).sort("position").head(rows)
    lines = [
        LINE.format(**{**one, "row": f"{mark}{one['row']}"}) for one in sent.iter_rows(named=True)
    ]
    content = (HEAD + "".join(lines) + tail).encode()
    bank.store.replace(f"{results('bank')}{name or f'{run}-{chunk:05d}.csv'}", [content])


def states(bank: Bench, run: str, *, chunk: int) -> dict[str, int]:
    found = pl.concat(
        pl.read_parquet(bank.report(run, f"rows/{one.name}")) for one in bank.manifest(run).ledger
    )
    return dict(found.filter(chunk=chunk)["state"].value_counts().iter_rows())


def summary(bank: Bench, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(bank.report(run, "summary.json"))
    return found


def still_active(bank: Bench) -> int:
    """Count the rows that keep their card from being sent."""
    sent = read_book(bank.context.adapters, "bank").sent()
    return sent.filter(pl.col("state").is_in([AWAITING, LINKED])).height


def test_rows_decided_as_lost_are_sent_again_without_an_override_and_the_answer_balances_both_runs(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    answer(bank, run, 1, rows=6)
    answer(bank, run, 2)
    assert cardlink(tmp_path, "ingest", "bank").exit_code == 4

    closed = decided(tmp_path, "mend", "close", run, "RESULT_SHORT", "--decision", "lost", *WHY)
    lost, active = states(bank, run, chunk=1), still_active(bank)
    reported = summary(bank, run)
    again = told(tmp_path, "resubmit", run, "--code", "row.result.lost", "--rows", "4", *WHY)
    answer(bank, again["run"], 1)
    answered = cardlink(tmp_path, "ingest", "bank")

    assert (closed.exit_code, lost, active) == (0, {LINKED: 6, ERROR: 4}, 16)
    assert ["an operator"] == [reason["by"] for reason in refused_by(reported)]
    assert [] == reported["shapes"]
    assert (answered.exit_code, still_active(bank)) == (0, 20)
    assert summary(bank, run)["verdict"] == summary(bank, again["run"])["verdict"] == "balanced"
    assert summary(bank, run)["attempts"]["after"] == {
        "linked": 20,
        "awaiting": 0,
        "error": 0,
        "refused": 0,
    }


def test_a_chunk_without_any_result_is_given_up_once_it_was_uploaded(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    answer(bank, run, 1)
    cardlink(tmp_path, "ingest", "bank")
    lost = ("mend", "close", run, "RESULT_SHORT", "chunk 2", "--decision", "lost", *WHY)

    waiting = cardlink(tmp_path, *lost)
    cardlink(tmp_path, "outbox", "uploaded", run, "2")
    early = cardlink(tmp_path, *lost)
    toml = (tmp_path / "bank.toml").read_text()
    (tmp_path / "bank.toml").write_text(toml.replace("[limits]", "[limits]\nlost_after_days = 0"))
    late = decided(tmp_path, *lost)

    assert (waiting.exit_code, "Chunk 2 of" in waiting.stderr, late.exit_code) == (2, True, 0)
    assert (early.exit_code, "its result may still come" in early.stderr) == (2, True)
    assert states(bank, run, chunk=2) == {ERROR: 10}
    assert told(tmp_path, "upload", "bank")["chunks"] == []


@pytest.mark.parametrize(
    ("decision", "state", "links"),
    quick(1, [("link", LINKED, 20), ("error", ERROR, 19), ("lost", ERROR, 19)]),
)
@pytest.mark.parametrize("kind", quick(1, ["CONFLICTING_RESULT", "URL_AND_ERROR"]))
def test_no_link_of_a_contradiction_is_delivered_before_it_is_decided_which_side_counts(
    bank: Bench, run: str, tmp_path: Path, kind: str, decision: str, state: str, links: int
) -> None:
    answer(bank, run, 1)
    answer(bank, run, 2, rows=9)
    last = bank.ledger(run).filter(chunk=2).sort("position").row(-1, named=True)
    line, refusal = (
        LINE.format(**last),
        json.dumps({"cuid": last["cuid"], "errors": ["city is required"]}),
    )
    quoted = refusal.replace('"', '""')
    if kind == "CONFLICTING_RESULT":
        answer(bank, run, 2, rows=10, name="second.csv")
        answer(bank, run, 2, rows=9, tail=f',,,,"{quoted}"\n')
    else:
        answer(bank, run, 2, rows=9, tail=line.rstrip("\n") + f'"{quoted}"\n')
    cardlink(tmp_path, "ingest", "bank")
    before = states(bank, run, chunk=2), bank.report(run, "links.csv").count(b"https://")

    done = decided(tmp_path, "mend", "close", run, kind, "--decision", decision, *WHY)
    after = states(bank, run, chunk=2), bank.report(run, "links.csv").count(b"https://")
    decided(tmp_path, "mend", "reopen", run, kind, *WHY)

    assert before == ({LINKED: 9, AWAITING: 1}, 19)
    assert (done.exit_code, after) == (
        0,
        ({LINKED: 10} if state == LINKED else {LINKED: 9, ERROR: 1}, links),
    )
    assert (states(bank, run, chunk=2), bank.report(run, "links.csv").count(b"https://")) == before
    assert summary(bank, run)["verdict"] == "out of balance"


@pytest.mark.slow
def test_an_expired_link_is_sent_again_once_that_is_decided(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    answer(
        bank,
        run,
        1,
        rows=9,
        tail=LINE.format(**bank.ledger(run).row(9, named=True)).replace("2099", "2020"),
    )
    cardlink(tmp_path, "ingest", "bank")

    refused = cardlink(tmp_path, "mend", "close", run, "LINK_EXPIRED", "--decision", "lost", *WHY)
    decided(tmp_path, "mend", "close", run, "LINK_EXPIRED", "--decision", "expired", *WHY)
    again = told(tmp_path, "resubmit", run, "--row", "10", *WHY)

    assert (refused.exit_code, "expired, explained" in refused.stderr) == (2, True)
    assert bank.manifest(again["run"]).counts.submitted == 1


@pytest.mark.slow
def test_a_break_that_is_explained_leaves_its_rows_and_the_headline_says_that_they_wait(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    answer(bank, run, 1, rows=6)
    answer(bank, run, 2)
    cardlink(tmp_path, "ingest", "bank")

    shown = decided(tmp_path, "mend", "close", run, "RESULT_SHORT", *WHY)

    assert states(bank, run, chunk=1) == {LINKED: 6, AWAITING: 4}
    assert "balanced, answers awaited; 4 rows still wait" in shown.stdout
    assert (
        "balanced, answers awaited; 4 rows still wait"
        in cardlink(tmp_path, "worklist", "--all").stdout
    )


@pytest.mark.slow
def test_a_decision_does_not_cover_a_row_that_comes_later(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    good, [first, second] = (
        bank.ledger(run),
        bank.ledger(run).filter(chunk=1).sort("position").tail(2).to_dicts(),
    )
    answer(
        bank,
        run,
        1,
        rows=8,
        tail=LINE.format(**{**first, "last_4": "0000"}) + LINE.format(**second),
    )
    answer(bank, run, 2)
    cardlink(tmp_path, "ingest", "bank")
    decided(tmp_path, "mend", "close", run, "LAST4_MISMATCH", "--decision", "lost", *WHY)
    covered = summary(bank, run)["verdict"], states(bank, run, chunk=1)

    answer(
        bank,
        run,
        1,
        rows=8,
        tail="".join(LINE.format(**{**one, "last_4": "0000"}) for one in (first, second)),
    )
    cardlink(tmp_path, "ingest", "bank")

    found = [(one["name"], one["rows"], one["place"]) for one in summary(bank, run)["breaks"]]
    assert good.height == 20
    assert covered == ("balanced", {LINKED: 9, ERROR: 1})
    assert found == [("LAST4_MISMATCH", 1, f"chunk 1, rows {second['row']}")]
    # the link that had come before stays
    assert states(bank, run, chunk=1) == {LINKED: 9, ERROR: 1}


def test_trace_says_that_an_operator_decided_and_what_to_type_next(
    bank: Bench, run: str, tmp_path: Path
) -> None:
    answer(bank, run, 1, rows=9)
    cardlink(tmp_path, "ingest", "bank")
    decided(tmp_path, "mend", "close", run, "RESULT_SHORT", "--decision", "lost", *WHY)
    cuid = bank.ledger(run).filter(chunk=1).sort("position")["cuid"][-1]

    [card] = card_statuses(
        read_book(bank.context.adapters, "bank"), cuid, (), datetime.now(UTC).date()
    )

    assert card.stands == "has no usable answer, as an operator decided: row.result.lost"
    assert (
        str(card.then) == f'send it again as it is: cardlink resubmit {run} --row 10 --reason "WHY"'
    )
