"""The attempts in an issuer's book: every row that any run sent or refused, and single links."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Literal

import polars as pl
import pytest

from flows.book.attempts import (
    _RECORD,
    _RESULT,
    ATTEMPT,
    _as_attempts,
    _sent_with_twins,
    _shared,
    _with_results,
    _with_single_times,
    attempts_typed_in,
)
from flows.book.book import read_book
from flows.results.row_states import run_rows
from flows.runs.outbox import move
from flows.runs.single_links import SingleLink, row_attempt
from flows.runs.stored_run import StoredRun
from flows.submissions.prior_state import survey_cards
from schemas.ledger import dtypes
from schemas.manifest import Selection
from schemas.portal import CITY, COUNTRY, CUID, PAN, POSTAL_CODE
from schemas.reasons import CHANGED, COUNTRY_NOT_SERVED
from schemas.records import SingleAnswered, SingleAsked
from tests.builders import portal_rows
from tests.facts import manifest
from tests.night import DAY, NOON, Bench, local_bench, made_once, portal_csv, submitted
from tests.singles import recorded

TWO_MONTHS = timedelta(days=62)
OTHER_CARD, THIRD_CARD = "5555555555554444", "4111111111111111"  # published test cards


def known(bench: Bench) -> pl.DataFrame:
    """Return all attempts, oldest first."""
    return read_book(bench.context.adapters, "bank").attempts


def states(bench: Bench) -> Counter[str]:
    """Count the attempts by what came of them."""
    return Counter(known(bench)["state"].to_list())


@made_once
def answered(folder: Path, /, **portal: object) -> Bench:
    """Return a bench with an answered night of 20 cardholders."""
    bench = local_bench(folder)
    bench.submit(bench.drop(20))
    bench.answer(**portal)  # type: ignore[arg-type]  # what Portal takes
    bench.ingest()
    return bench


def test_before_its_answer_a_row_waits_whether_there_is_a_report_or_not(tmp_path: Path) -> None:
    bench, _, manifest = submitted(tmp_path, 20, portal={"rows_per_chunk": 5})
    run = manifest.run

    before = states(bench)
    bench.answer()
    (tmp_path / "store" / "bank" / "results" / f"card-links-{run}-00002-result.csv").unlink()
    bench.ingest()

    assert {"awaiting": 20} == before
    assert {"linked": 15, "awaiting": 5} == states(bench)


def test_a_row_that_was_answered_is_told_as_its_report_tells_it(tmp_path: Path) -> None:
    bench = answered(tmp_path, fail_share=0.4, seed=3, expires=date(2027, 1, 20))

    found = known(bench)

    assert {"linked", "error"} == set(found["state"].to_list())
    assert [date(2027, 1, 20)] == found.filter(state="linked")["expires_on"].unique().to_list()


def test_a_link_whose_end_nobody_told_ends_two_months_after_its_night(tmp_path: Path) -> None:
    bench, _, manifest = submitted(tmp_path, 1)
    run = manifest.run
    cuid, last_4 = bench.ledger(run).select("cuid", "last_4").row(0)
    bench.drop_result(
        f"cuid,last_4,url,expiration_date,error\n{cuid},{last_4},https://links.example.com/1,,\n".encode()
    )
    bench.ingest()

    found = known(bench)

    assert [("linked", DAY + TWO_MONTHS)] == found.select("state", "expires_on").rows()


def test_no_run_is_too_old_to_count(tmp_path: Path) -> None:
    bench = answered(tmp_path, expires=DAY + timedelta(days=10))

    (cards,) = (
        read_book(bench.context.adapters, "bank")
        .cards(DAY + timedelta(days=900))["standing"]
        .unique()
    )

    assert "expired" == cards


def test_a_run_that_waits_says_so(tmp_path: Path) -> None:
    bench, *_ = submitted(tmp_path, 20)

    assert {"awaiting": 20} == states(bench)
    assert [(1, 1)] == known(bench).select("turn", "content").unique().rows()


def test_rows_of_a_cancelled_chunk_were_never_sent(tmp_path: Path) -> None:
    bench, _, manifest = submitted(tmp_path, 20, portal={"rows_per_chunk": 5})
    run = manifest.run
    move(bench.context.adapters, run, "cancelled", [2, 3], "the wrong key")

    assert {"awaiting": 10, "cancelled": 10} == states(bench)
    assert 10 == known(bench)["tries"].sum()


@pytest.mark.slow
def test_a_cancelled_chunk_of_which_an_answer_came_was_sent_and_its_other_rows_wait(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 5})
    run = bench.submit(bench.drop(20)).manifest.run
    bench.answer()
    move(bench.context.adapters, run, "cancelled", [1, 2], "the wrong key")
    file = tmp_path / "store" / "bank" / "results" / f"card-links-{run}-00001-result.csv"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:4]))
    (file.parent / f"card-links-{run}-00002-result.csv").unlink()

    bench.ingest()

    assert {"linked": 13, "awaiting": 2, "cancelled": 5} == states(bench)
    rows = pl.concat(run_rows(StoredRun.by_id(bench.adapters, run)))
    assert {"linked": 13, "awaiting": 2, "cancelled": 5} == Counter(rows["state"].to_list())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("told_end", "ends"), [(date(2027, 1, 20), date(2027, 1, 20)), (None, DAY + TWO_MONTHS)]
)
def test_a_single_link_that_was_made_for_a_row_since_is_one_more_attempt_at_it(
    tmp_path: Path, told_end: date | None, ends: date
) -> None:
    bench = answered(tmp_path, fail_share=1.0)
    run = next(bench.runs.committed()).id
    row, cuid, last_4, expiration = (
        bench.ledger(run).select("row", "cuid", "last_4", "expiration").row(0)
    )
    at = datetime(2026, 11, 20, 13, tzinfo=UTC)
    asked = SingleAsked(
        row=row, cuid=cuid, last_4=last_4, expiration=expiration, at=at, by="tester"
    )
    answer = SingleAnswered(
        outcome="linked", at=at, url="https://links.example.com/1", expires_on=told_end
    )
    recorded(bench.adapters, row_attempt(run, row, 1), asked, answer)

    own = known(bench).filter(cuid=cuid)

    columns = ["state", "expiration", "expires_on", "channel", "tries", "sendings"]
    assert [
        ("error", expiration, None, "file", 1, 1),
        ("linked", expiration, ends, "single", 1, 1),
    ] == own.select(columns).rows()
    assert at == own["since"][1]


def test_what_was_not_sent_is_an_attempt_with_the_first_of_its_reasons(tmp_path: Path) -> None:
    bench = local_bench(tmp_path, limits={"max_reject_rate": 1.0, "max_ineligible_rate": 1.0})
    rows = portal_rows(
        {},
        {CUID: "c-2", CITY: "", POSTAL_CODE: "ABC", PAN: OTHER_CARD},
        {CUID: "c-3", COUNTRY: "Mexico", PAN: THIRD_CARD},
    )

    bench.submit(bench.drop_bytes(portal_csv(rows)))

    columns = ["state", "reason", "tries", "sendings"]
    assert [
        ("awaiting", None, 1, 1),
        ("rejected", "address.city.missing", 1, 0),
        ("rejected", COUNTRY_NOT_SERVED, 1, 0),
    ] == known(bench).sort("row").select(columns).rows()


@pytest.mark.slow
def test_what_was_read_has_a_digest_that_changes_with_every_news(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    digests = [survey_cards(bench.context).digest]
    run = bench.submit(bench.drop(20)).manifest.run
    digests.append(survey_cards(bench.context).digest)
    bench.answer()
    bench.ingest()
    digests += [survey_cards(bench.context).digest, survey_cards(bench.context).digest]
    bench.submit(bench.drop(5, "bank-20261121.csv", seed=2))
    digests.append(survey_cards(bench.context).digest)

    assert run
    assert digests[2] == digests[3]
    assert 4 == len(set(digests))


@pytest.mark.slow
def test_an_answer_counts_since_it_was_ingested_and_says_by_which_channel_it_came(
    tmp_path: Path,
) -> None:
    bench = answered(tmp_path)
    later = replace(bench, now=lambda: NOON + timedelta(days=1))
    later.ingest()

    attempts = known(later).filter(pl.col("state").is_in(["linked", "error"]))

    assert [(NOON, "file")] == attempts.select("since", "channel").unique().rows()


def test_cards_that_look_the_same_are_numbered_by_row_however_often_one_was_tried() -> None:
    facts = {"turn": 1, "holder": "a", "last_4": "4242", "expiration": "2912", "twin": 0}
    tries = [
        {**facts, "row": row, "state": state, "decided": False, "renewal": False}
        for row, state in ((1, "error"), (2, "linked"), (1, "linked"))
    ]

    numbered = _sent_with_twins(pl.DataFrame(tries, ATTEMPT))

    assert [(1, 0), (2, 1), (1, 0)] == numbered.select("row", "twin").rows()


RECORDS = {  # how a row is recorded: fate, reasons; state, how, reasons, result
    "that waits": ("submitted", [], None, None, None, None),
    "with a link": ("submitted", [], "linked", "cuid", None, "a.csv"),
    "the partner refused": ("submitted", [], "error", "cuid", ["x.y", "x.z"], "a.csv"),
    "an operator decided": ("submitted", [], "error", "decision", ["lost"], None),
    "we refused": ("rejected", ["pan|card.pan.luhn", "city|c.missing"], None, None, None, None),
    "not eligible": ("ineligible", ["country|a.served"], None, None, None, None),
    "with a single link": ("rejected", ["pan|card.pan.luhn"], "linked", "single", None, None),
    "that has changed": ("suppressed", [f"|{CHANGED}"], None, None, None, None),
}


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ("that waits", ("awaiting", None, False, "file", None, 1, 1)),
        ("with a link", ("linked", None, False, "file", NOON, 1, 1)),
        ("the partner refused", ("error", "x.y", False, "file", NOON, 1, 1)),
        ("an operator decided", ("error", "lost", True, "file", None, 1, 1)),
        ("we refused", ("rejected", "card.pan.luhn", False, "file", None, 1, 0)),
        ("not eligible", ("rejected", "a.served", False, "file", None, 1, 0)),
        ("with a single link", ("linked", None, False, "single", None, 1, 1)),
        ("that has changed", ("changed", CHANGED, False, "file", None, 0, 0)),
    ],
)
def test_what_the_record_of_a_row_and_its_result_say_of_an_attempt(
    record: str, says: tuple[object, ...]
) -> None:
    fate, reasons, state, how, refusals, file = RECORDS[record]
    types = {name: dtypes()[name] for name in _RECORD}
    records = pl.DataFrame([{"row": 1, "fate": fate, "reasons": reasons}], types)
    answer = {"row": 1, "state": state, "how": how, "reasons": refusals, "result": file}
    results = pl.DataFrame([answer] if state else [], _RESULT)

    attempts = _as_attempts(_with_results(records, results), {"a.csv": NOON})

    columns = ["state", "reason", "decided", "channel", "since", "tries", "sendings"]
    assert [says] == attempts.select(columns).rows()


def test_a_single_link_is_there_since_it_came_and_that_of_a_file_since_its_file_was_ingested() -> (
    None
):
    later = NOON + timedelta(hours=1)
    linked = [{"row": row, "channel": channel} for row, channel in ((1, "single"), (2, "file"))]
    rows = pl.DataFrame([{**link, "since": NOON} for link in linked], ATTEMPT)
    singles = pl.DataFrame(
        {"row": [2, 1], "arrived": [later, later]}, {"row": pl.UInt32, "arrived": ATTEMPT["since"]}
    )

    assert [later, NOON] == _with_single_times(rows, singles)["since"].to_list()


def test_a_single_link_whose_fields_were_typed_in_is_an_attempt_since_its_answer_came() -> None:
    asked = SingleAsked(row=None, cuid="a", last_4="4242", expiration="2912", at=NOON, by="anna")
    came = NOON + timedelta(hours=1)
    linked = SingleLink("1.json", asked, SingleAnswered(outcome="linked", at=came, url="https://l"))

    attempts = attempts_typed_in([linked, SingleLink("2.json", asked, None)])

    columns = ["state", "wait", "since", "as_of", "expires_on"]
    assert [
        ("linked", None, came, DAY, DAY + TWO_MONTHS),
        ("awaiting", "single", None, None, None),
    ] == attempts.select(columns).rows()


@pytest.mark.parametrize(("kind", "says"), [("renew", (True, None)), ("resubmit", (False, 5))])
def test_a_row_of_a_renewal_is_of_its_extract_and_any_other_selected_one_repeats_a_row(
    kind: Literal["renew", "resubmit"], says: tuple[bool, int | None]
) -> None:
    selection = Selection(kind=kind, of="r0", rows=1, sha256="a" * 64, reason="lost")
    resent = manifest(1).model_copy(update={"selection": selection})
    rows = pl.DataFrame({"origin": [5]}, {"origin": pl.UInt32})

    attempts = rows.with_columns(**_shared(resent, 3, 2))

    assert [(*says, 3, 2)] == attempts.select("renewal", "origin", "turn", "content").rows()
    assert rows.schema["origin"] == attempts.schema["origin"]
