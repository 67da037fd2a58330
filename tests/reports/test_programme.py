"""The programme's report: all issuers by week, each cardholder once, and nothing unknown as zero."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, date, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl

from flows.book.attempts import ATTEMPT
from flows.book.fold import fold
from flows.book.people import balance
from flows.book.stages import NO_STAGES, with_stages
from flows.book.standing import standing
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.link_stages import REPORTED
from flows.extensions.partner_api.placements import transactions
from flows.reports import programme
from flows.reports.programme import IssuerFacts
from flows.reports.programme_report import (
    Programme,
    programme_of,
    programme_page,
    read_issuer,
    write_programme,
)
from flows.reports.run_facts import RunFacts
from tests.night import BANK, NOON, local_bench
from tests.stages import stages_with

TODAY = date(2026, 11, 20)  # a Friday
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
THIS_WEEK, LAST_WEEK = date(2026, 11, 16), date(2026, 11, 9)


def attempt(cuid: str, state: str, day: date = TODAY, **changes: Any) -> dict[str, Any]:
    """Return one attempt as a book has it; a link lives sixty days."""
    return {
        "turn": day.toordinal(),
        "run": f"r{day:%m%d}",
        "as_of": day,
        "row": 1,
        "cuid": cuid,
        "holder": cuid,
        "last_4": "1111",
        "twin": 0,
        "state": state,
        "decided": False,
        "expires_on": day + timedelta(days=60) if state == "linked" else None,
        "tries": 1,
        "sendings": int(state in ("linked", "error", "awaiting")),
        **changes,
    }


def issuer(
    *attempts: dict[str, Any],
    name: str = "bank",
    placed: dict[str, bool] | None = None,
    runs: tuple[RunFacts, ...] = (),
    within: int = 24,
) -> IssuerFacts:
    """Return what is known of an issuer with these attempts."""
    cards = standing(fold(pl.DataFrame([*attempts], ATTEMPT)), TODAY)
    known = [
        {"cuid": holder, "reported_placed": is_placed}
        for holder, is_placed in (placed or {}).items()
    ]
    reported = pl.DataFrame(known, REPORTED)
    cards = with_stages(cards, stages_with(reported=reported))
    return IssuerFacts(name, programme.cardholders(cards), balance(cards), runs, within)


def run(
    day: date, hours: dict[str, int] | None = None, **reasons: list[tuple[str, int]]
) -> RunFacts:
    return RunFacts("r", day, "balanced", {}, reasons, {}, (), hours=hours or {})


def weeks(report: Programme, *columns: str) -> list[tuple[Any, ...]]:
    return report.tables["weeks"].select("week", "issuer", *columns).rows()


def test_a_cardholder_counts_once_in_the_week_first_named_wherever_the_last_attempt_was() -> None:
    report = programme_of(
        [
            issuer(
                attempt("a", "rejected", LAST_WEEK),
                attempt("a", "linked"),
                attempt("b", "linked", LAST_WEEK),
                attempt("c", "awaiting"),
            )
        ],
        NOW,
        12,
    )

    columns = ("named", "sent", "had_link", "linked", "awaiting")
    assert [(LAST_WEEK, "bank", 2, 2, 2, 2, 0), (THIS_WEEK, "bank", 1, 1, 0, 0, 1)] == weeks(
        report, *columns
    )
    assert 3 == report.facts["all"]["named"] == report.facts["cardholders"]["named"]


def test_the_weeks_of_all_issuers_add_up_to_everybody_in_every_state() -> None:
    issuers = [
        issuer(attempt("a", "linked"), attempt("b", "error", LAST_WEEK)),
        issuer(attempt("a", "rejected"), name="other"),
    ]

    report = programme_of(issuers, NOW, 12)

    named = {line["week"]: line["named"] for line in report.facts["weeks"]}
    assert {"2026-11-09": 1, "2026-11-16": 2} == named
    people = report.facts["cardholders"]["people"]
    assert people == {name: report.facts["all"][name] for name in people}
    assert (
        "1 of 3 cardholders have a link; 2 wait for the partner."
        == (report.facts["cardholders"]["sentence"])
    )


def test_placed_is_counted_among_those_of_whom_it_is_known_and_else_not_known() -> None:
    linked = [attempt(cuid, "linked") for cuid in "abc"]
    known = issuer(*linked, name="known", placed={"a": True, "b": False})
    unknown = issuer(*linked, name="unknown")

    report = programme_of([known, unknown], NOW, 12)

    assert [("known", 1, 2), ("unknown", None, 0)] == report.tables["issuers"].select(
        "issuer", "ever_placed", "placed_known"
    ).rows()
    assert (1, 2) == (report.facts["all"]["ever_placed"], report.facts["all"]["placed_known"])
    page = programme_page(report.facts)
    assert '<td class="n zero" data-head="ever placed">not known</td>' in page
    assert '1 <span class="soft small">of 2 known</span>' in page


def test_of_nobody_who_had_a_link_it_is_known_that_no_card_is_placed() -> None:
    report = programme_of([issuer(attempt("a", "error"))], NOW, 12)

    assert 0 == report.facts["all"]["ever_placed"]


def test_a_link_that_ended_is_unused_where_its_card_is_known_not_to_be_placed() -> None:
    ended = TODAY - timedelta(days=70)
    links = [attempt(cuid, "linked", ended) for cuid in "abc"]

    report = programme_of([issuer(*links, placed={"a": True, "b": False})], NOW, 12)

    whole = report.facts["all"]
    assert (2, 1, 1) == (whole["expired"], whole["expired_unused"], whole["expired_known"])


def test_the_page_shows_the_last_weeks_and_those_before_as_one_line() -> None:
    days = [TODAY - timedelta(weeks=back) for back in range(5)]
    known = issuer(*(attempt(f"c{day}", "linked", day) for day in days))

    report = programme_of([known], NOW, 2)

    assert [("", 3), ("2026-11-09", 1), ("2026-11-16", 1)] == [
        (line["week"], line["named"]) for line in report.facts["weeks"]
    ]
    assert 5 == report.tables["weeks"].height


def test_hours_are_of_the_runs_of_a_week_each_held_to_its_own_issuers_agreement() -> None:
    quick = issuer(runs=(run(TODAY, {"2.0": 3, "30.0": 1}),), name="quick", within=1)
    slow = issuer(
        runs=(run(TODAY, {"30.0": 2}), run(LAST_WEEK, {"5.0": 1})), name="slow", within=48
    )

    report = programme_of([quick, slow], NOW, 12)

    lines = {(line["week"]): line for line in report.facts["hours_of_weeks"]}
    assert (6, 2.0, 30.0, 2 / 6) == tuple(
        lines["2026-11-16"][name]
        for name in ("links", "median_hours", "slowest_hours", "share_in_time")
    )
    assert (7, 3 / 7) == (report.facts["hours"]["links"], report.facts["hours"]["share_in_time"])


def test_reasons_are_added_up_by_week_over_all_issuers() -> None:
    luhn = [("card.pan.luhn", 2)]
    issuers = [
        issuer(runs=(run(TODAY, submit=luhn), run(LAST_WEEK, submit=luhn))),
        issuer(runs=(run(TODAY, submit=luhn, partner=[("card.pan.other", 1)]),), name="other"),
    ]

    report = programme_of(issuers, NOW, 12)

    first, second = report.facts["reasons"]
    assert ("card.pan.luhn", 6, {"2026-11-09": 2, "2026-11-16": 4}) == (
        first["code"],
        first["rows"],
        first["weeks"],
    )
    assert ("card.pan.other", "partner", 1) == (second["code"], second["stage"], second["rows"])
    assert 4 == report.tables["reasons"].height


def test_days_run_from_the_link_to_the_placed_card() -> None:
    came = datetime(2026, 11, 10, 9, tzinfo=UTC)
    linked = attempt("a", "linked", LAST_WEEK, since=came)
    cards = standing(fold(pl.DataFrame([linked], ATTEMPT)), TODAY)
    says = {"cuid": "a", "reported_placed": True, "completed_on": date(2026, 11, 14)}
    reported = pl.DataFrame([says], REPORTED)

    known = programme.cardholders(with_stages(cards, stages_with(reported=reported)))

    assert [(LAST_WEEK, True, LAST_WEEK, 4)] == known.select(
        "week", "placed", "placed_week", "days"
    ).rows()


def test_of_two_cards_the_one_named_first_gives_the_week_and_the_one_linked_first_the_days() -> (
    None
):
    cards = [
        attempt("a", "linked", LAST_WEEK, since=datetime(2026, 11, 10, 9, tzinfo=UTC)),
        attempt("a", "linked", last_4="2222", since=datetime(2026, 11, 13, 9, tzinfo=UTC)),
        attempt("b", "rejected"),
    ]
    stand = with_stages(standing(fold(pl.DataFrame(cards, ATTEMPT)), TODAY), NO_STAGES)
    placed_on = pl.when(pl.col("holder") == "a").then(date(2026, 11, 14))

    known = programme.cardholders(stand.with_columns(placed_on=placed_on))

    assert [
        (LAST_WEEK, True, LAST_WEEK, 4),
        (THIS_WEEK, False, None, None),
    ] == known.select("week", "sent", "placed_week", "days").sort("week").rows()


def test_where_nothing_is_known_of_links_that_ended_their_use_is_not_said_to_be_none() -> None:
    counts = pl.DataFrame(
        {
            "placed_known": [0, 1, 0],
            "had_link": [1, 1, 0],
            "ever_placed": [0, 1, 0],
            "expired_known": [0, 1, 0],
            "expired": [1, 1, 0],
            "expired_unused": [0, 1, 0],
        }
    )

    known = programme.without_unknown(counts).select("ever_placed", "expired_unused")

    assert [(None, None), (1, 1), (0, 0)] == known.rows()


def test_the_page_says_the_result_first_and_which_issuers_it_lacks() -> None:
    report = programme_of([issuer(attempt("a", "linked"))], NOW, 12, ["torn"])

    page = programme_page(report.facts)

    assert "1 of 1 cardholder has a link; nobody waits.</p>" in page
    assert "could not be read: torn." in page
    assert 'class="card verdict warn"' in page
    assert "<script" not in page


def test_a_report_of_nobody_can_be_read() -> None:
    page = programme_page(programme_of([issuer()], NOW, 12).facts)

    assert "Nobody was named yet." in page
    assert "No link came yet." in page
    assert "No row failed." in page


def test_a_night_and_a_transaction_report_are_in_page_workbook_and_tables(tmp_path: Path) -> None:
    bench = local_bench(tmp_path)
    done = bench.submit(bench.drop(20, bad=0.2)).manifest.run
    bench.answer()
    bench.ingest()
    cuids = bench.ledger(done).filter(fate="submitted")["cuid"].drop_nulls()
    lines = [f"{cuids[0]},SUCCESSFUL,2026-11-23", f"{cuids[1]},USER_DATA_FAILURE,2026-11-24"]
    report = "\n".join(["cuid,status,completed_on", *lines, ""])
    bench.store.replace(f"{transactions(BANK)}t.csv", [report.encode()])
    follow_links(bench.context, None)

    written = programme_of([read_issuer(bench.context)], NOON, 12)
    write_programme(bench.store, "programme/", written)

    [line] = list(csv.DictReader(io.StringIO(bench.content("programme/issuers.csv").decode())))
    people = balance_of(bench.content("programme/summary.json"))
    assert line["named"] == str(people["named"])
    assert ("1", "2") == (line["ever_placed"], line["placed_known"])
    book = openpyxl.load_workbook(BytesIO(bench.content("programme/report.xlsx")))
    assert ["Weeks", "Issuers", "Reasons", "Hours"] == book.sheetnames
    page = bench.content("programme/report.html").decode()
    assert people["sentence"] in page


def balance_of(summary: bytes) -> dict[str, Any]:
    cardholders: dict[str, Any] = json.loads(summary)["cardholders"]
    return cardholders
