"""Transaction reports dropped into the store: they feed the funnel, and a row of nobody is told,
never dropped.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from flows.book.stored_book import delete_rows
from flows.extensions.partner_api.follow_links import follow_links
from flows.extensions.partner_api.link_stages import reported_rows
from flows.extensions.partner_api.placements import transactions
from flows.extensions.partner_api.tables import REPORTED_ROW, TRANSACTION_REPORT
from tests.night import BANK, Bench, local_bench, made_once

HEADER = "cuid,status,completed_on\n"


@made_once
def night(folder: Path, rows: int = 12) -> tuple[Bench, list[str]]:
    """Return a bench without a service whose run has links, and the cuids of its linked rows."""
    bench = local_bench(folder, portal={"rows_per_chunk": 5})
    run = bench.submit(bench.drop(rows)).manifest.run
    bench.answer()
    bench.ingest()
    return bench, bench.ledger(run)["cuid"].to_list()


def drop(bench: Bench, name: str, *rows: str) -> None:
    bench.store.replace(
        transactions(BANK) + name, [(HEADER + "".join(f"{row}\n" for row in rows)).encode()]
    )


def reached(facts: dict[str, Any]) -> list[int]:
    return [one["cardholders"] for one in facts["funnel"]["stages"]]


@pytest.mark.slow
def test_a_report_feeds_the_funnel_without_a_service(tmp_path: Path) -> None:
    bench, cuids = night(tmp_path)
    drop(
        bench,
        "t.csv",
        f"{cuids[0]},SUCCESSFUL,2026-11-20",
        f"{cuids[1]},USER_DATA_FAILURE,2026-11-20",
        f"{cuids[2]},UPDATING,",
    )

    facts = follow_links(bench.context, None)

    assert [12, 12, 12, 3, 2, 1] == reached(facts)
    assert [("USER_DATA_FAILURE", 1)] == [
        (one["kind"], one["cardholders"]) for one in facts["funnel"]["failed"]
    ]
    assert (1, []) == (facts["funnel"]["under_way"], facts["breaks"])


def test_words_nobody_knows_are_counted_apart_by_their_names_and_fail_nobody(
    tmp_path: Path,
) -> None:
    bench, cuids = night(tmp_path)
    drop(
        bench,
        "t.csv",
        f"{cuids[0]},Card Placed Successfully,2026-11-20",
        f"{cuids[1]},Shipped to the site,2026-11-20",
    )

    funnel = follow_links(bench.context, None)["funnel"]

    placed = funnel["stages"][-1]
    unknown = {cause["cause"]: cause["cardholders"] for cause in placed["unknown"]}
    assert (1, 1, []) == (placed["cardholders"], placed["known"], funnel["failed"])
    assert {"report.status.unknown.SHIPPED_TO_THE_SITE": 1, "never.asked": 10} == unknown


def test_the_same_report_again_under_another_name_and_in_another_order_changes_nothing(
    tmp_path: Path,
) -> None:
    bench, cuids = night(tmp_path)
    rows = [
        f"{cuids[0]},SUCCESSFUL,2026-11-20",
        f"{cuids[1]},PENDING,",
        f"{cuids[1]},PROCESS_FAILURE,2026-11-21",
    ]
    drop(bench, "b.csv", *rows)
    once = follow_links(bench.context, None)["funnel"]
    drop(bench, "a.csv", *reversed(rows))

    again = follow_links(bench.context, None)

    assert (once, 2, 6) == (
        again["funnel"],
        again["transactions"]["files"],
        again["transactions"]["rows"],
    )


def test_a_row_of_no_known_cuid_is_a_break_with_its_place_until_its_link_comes(
    tmp_path: Path,
) -> None:
    bench, cuids = night(tmp_path)
    drop(
        bench,
        "t.csv",
        f"{cuids[0]},SUCCESSFUL,2026-11-20",
        "stranger,SUCCESSFUL,2026-11-20",
        ",PENDING,",
    )

    facts = follow_links(bench.context, None)

    (found,) = facts["breaks"]
    assert ("UNKNOWN_TRANSACTION", 2, "t.csv, rows 2, 3") == (
        found["name"],
        found["rows"],
        found["place"],
    )
    assert [12, 12, 12, 1, 1, 1] == reached(facts)
    assert "stranger" not in json.dumps(facts)


def test_of_a_cuid_without_a_link_only_what_is_harmless_is_stored(tmp_path: Path) -> None:
    bench, cuids = night(tmp_path)
    drop(
        bench,
        "t.csv",
        f"{cuids[0]},SUCCESSFUL,2026-11-20",
        "4242x4242x4242x4242,SUCCESSFUL,2026-11-20",
    )

    facts = follow_links(bench.context, None)
    again = follow_links(bench.context, None)

    assert ["t.csv, rows 2"] == [found["place"] for found in facts["breaks"]]
    assert facts["breaks"] == again["breaks"]
    assert [cuids[0], None] == reported_rows(bench.adapters, BANK)["cuid"].to_list()


def test_days_of_completion_that_cannot_be_read_are_a_break_for_each_form(tmp_path: Path) -> None:
    bench, cuids = night(tmp_path)
    drop(bench, "t.csv", f"{cuids[0]},SUCCESSFUL,in May\n{cuids[1]},SUCCESSFUL,in Mai")

    facts = follow_links(bench.context, None)

    assert [("UNREADABLE_TRANSACTIONS", "t.csv (AA AAA)")] == [
        (one["name"], one["place"]) for one in facts["breaks"]
    ]


def test_a_file_that_is_no_report_is_a_break_and_stops_no_other(tmp_path: Path) -> None:
    bench, cuids = night(tmp_path)
    bench.store.replace(transactions(BANK) + "odd-4242424242424242.csv", [b"<html>"])
    drop(bench, "t.csv", f"{cuids[0]},SUCCESSFUL,2026-11-20")

    facts = follow_links(bench.context, None)

    assert [("DAMAGED_TRANSACTIONS", "odd-[16 digits].csv (file.header.unknown)")] == [
        (one["name"], one["place"]) for one in facts["breaks"]
    ]
    assert 1 == reached(facts)[-1]


@pytest.mark.slow
def test_a_cardholder_of_two_runs_counts_once_over_the_issuer_and_in_each_of_the_runs(
    tmp_path: Path,
) -> None:
    bench, cuids = night(tmp_path)
    second = bench.submit(bench.drop(8, name="bank-20261121.csv", seed=0)).manifest.run
    bench.answer()
    bench.ingest()
    drop(bench, "t.csv", f"{cuids[0]},SUCCESSFUL,2026-11-20")

    whole, one = follow_links(bench.context, None), follow_links(bench.context, None, second)

    shared = set(cuids) & set(bench.ledger(second)["cuid"])
    assert 12 + 8 - len(shared) == reached(whole)[0]
    assert [1, int(cuids[0] in shared)] == [reached(whole)[-1], reached(one)[-1]]


def test_what_is_kept_of_the_reports_can_be_deleted_and_comes_back(tmp_path: Path) -> None:
    bench, cuids = night(tmp_path)
    drop(bench, "t.csv", f"{cuids[0]},SUCCESSFUL,2026-11-20")
    before = follow_links(bench.context, None)["funnel"]

    def delete(connection: Connection) -> None:
        for table in (REPORTED_ROW, TRANSACTION_REPORT):
            delete_rows(connection, table, BANK)

    bench.database.act(BANK, delete)

    assert before == follow_links(bench.context, None)["funnel"]
    assert 1 == reported_rows(bench.adapters, BANK).height


@pytest.mark.slow
def test_a_report_that_was_half_written_gives_way_to_the_whole_and_one_taken_away_still_counts(
    tmp_path: Path,
) -> None:
    bench, cuids = night(tmp_path)
    bench.store.replace(transactions(BANK) + "t.csv", [b""])
    half = follow_links(bench.context, None)
    drop(bench, "t.csv", f"{cuids[0]},SUCCESSFUL,2026-11-20")
    whole = follow_links(bench.context, None)
    (tmp_path / "store" / transactions(BANK) / "t.csv").unlink()

    gone = follow_links(bench.context, None)

    assert ["DAMAGED_TRANSACTIONS"] == [one["name"] for one in half["breaks"]]
    assert ([], 1, 1) == (whole["breaks"], reached(whole)[-1], reached(gone)[-1])
