"""A store written by version 0.1 is read, answered, reported, sent again and purged as it was by
that version.

Everything goes through the command line, so that these tests hold whatever becomes of the modules
below it. Dates of the store are years ago, cards expire in 2042: what is expected here holds on any
day until then.
"""

from __future__ import annotations

import csv
import hashlib
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.stored.walk import (
    breaks,
    cardlink,
    fates,
    files,
    finish,
    rows_to_upload,
    states,
    table,
    unpacked,
)

ANSWERED, AGAIN, WAITING = (
    "first-bank-20240304-5a9a3cf0",
    "first-bank-20240305-5a9a3cf0",
    "first-bank-20240306-f18aaccb",
)
PURGED, CHUNKS_PURGED = "first-bank-20230110-d60ed24e", "first-bank-20240210-d7b06610"
KILLED, TURN_TAKEN, PLANNED = (
    "first-bank-20240307-b046ed36",
    "first-bank-20240308-50ca2fc7",
    "first-bank-20240309-c4fba581",
)
PORTFOLIO, CHANGES, BEGUN = (
    "second-bank-20240304-f2c38ce5",
    "second-bank-20240305-0a7ae7da",
    "second-bank-20240306-4cc54341",
)
IN_PARTS, BEGUN_IN_PARTS = "third-bank-20240304-81f9784a", "third-bank-20240305-5048f465"
DUE = {
    (CHUNKS_PURGED, "ledger"),
    *((run, part) for run in (KILLED, TURN_TAKEN, PORTFOLIO) for part in ("chunks", "ledger")),
}


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return unpacked("nights", tmp_path)


@pytest.fixture
def bank_in_parts(tmp_path: Path) -> Path:
    return unpacked("parts", tmp_path)


def test_every_run_stands_as_it_stood(bank: Path) -> None:
    first = {
        run["run"]: (run["state"], fates(run))
        for run in cardlink(bank, "status", "first-bank")["runs"]
    }
    second = {
        run["run"]: (run["state"], fates(run))
        for run in cardlink(bank, "status", "second-bank")["runs"]
    }

    assert {
        PURGED: ("balanced (purged)", (20, 18, 2, 0, 0, 0, 0)),
        CHUNKS_PURGED: ("balanced", (20, 18, 2, 0, 0, 0, 0)),
        ANSWERED: ("out of balance", (70, 32, 15, 5, 18, 0, 0)),
        AGAIN: ("committed; 1 chunk to be uploaded; 15 rows wait", (15, 0, 0, 15, 0, 0, 0)),
        WAITING: (
            "committed; 2 chunks uploaded, 1 chunk on hold; 45 rows wait",
            (60, 0, 0, 60, 0, 0, 0),
        ),
        KILLED: ("not committed", (None,) * 7),
        TURN_TAKEN: ("not committed", (None,) * 7),
        PLANNED: ("not committed", (None,) * 7),
    } == first
    assert {
        PORTFOLIO: ("balanced", (50, 37, 8, 0, 0, 0, 5)),
        CHANGES: ("committed; 1 chunk to be uploaded; 7 rows wait", (55, 0, 0, 7, 0, 0, 48)),
        BEGUN: ("not committed", (None,) * 7),
    } == second


@pytest.mark.slow
def test_results_that_wait_are_ingested_and_those_of_before_are_not_ingested_again(
    bank: Path,
) -> None:
    first, second = cardlink(bank, "ingest", "first-bank"), cardlink(bank, "ingest", "second-bank")
    again = cardlink(bank, "ingest", "second-bank")

    # with the one that has an open break
    assert (3, 44, 4) == (first["files"], first["rows"], first["exit_code"])
    assert {
        AGAIN: ("balanced", (15, 12, 3, 0, 0, 0, 0)),
        ANSWERED: ("out of balance", (70, 33, 14, 5, 18, 0, 0)),
        WAITING: ("balanced, answers awaited", (60, 11, 4, 45, 0, 0, 0)),
    } == {report["run"]: (report["verdict"], fates(report["rows"])) for report in first["reports"]}
    assert (1, 7, 0) == (second["files"], second["rows"], second["exit_code"])
    assert [(CHANGES, "balanced", 7)] == [
        (one["run"], one["verdict"], one["rows"]["linked"]) for one in second["reports"]
    ]
    assert (0, []) == (again["files"], again["reports"])


@pytest.mark.slow
def test_a_result_that_comes_later_joins_what_was_ingested_before(bank: Path) -> None:
    cardlink(bank, "ingest", "first-bank")
    for late in (bank / "answered-later").iterdir():
        shutil.move(late, bank / "store/first-bank/results")

    cardlink(bank, "ingest", "first-bank")

    report = cardlink(bank, "report", WAITING)
    assert ("balanced, answers awaited", (60, 25, 5, 30, 0, 0, 0)) == (
        report["verdict"],
        fates(report["rows"]),
    )


@pytest.mark.slow
def test_a_report_is_rebuilt_with_its_breaks_what_was_closed_and_what_was_sent_again(
    bank: Path,
) -> None:
    cardlink(bank, "ingest", "first-bank")
    folder = bank / "store/first-bank/runs" / ANSWERED / "report"
    before = {
        name: (folder / f"{name}.csv").read_bytes() for name in ("links", "errors", "rejects")
    }
    for name in before:
        (folder / f"{name}.csv").unlink()
    shutil.rmtree(folder / "rows")

    report = cardlink(bank, "report", ANSWERED)

    assert ("out of balance", 4) == (report["verdict"], report["exit_code"])
    assert {
        ("RESULT_SHORT", "chunk 2"): 2,
        ("UNATTRIBUTED_ERROR", "chunk 3"): 1,
        ("UNKNOWN_CUID", "chunk 3"): 1,
        ("DUPLICATE_RESULT", ""): 7,
    } == breaks(report)
    assert [("RESULT_SHORT", 1, "the partner confirmed")] == [
        (one["name"], one["rows"], one["reason"]) for one in report["closed"]
    ]
    assert {"linked": 45, "awaiting": 5, "error": 3, "refused": 17} == report["attempts"]["after"]
    assert {
        "card.pan.unsupported": 7,
        "address.postal_code.other": 3,
        "cardholder.cuid.unavailable": 4,
    } == {one["code"]: one["rows"] for one in report["reasons"]["partner"]}
    assert before == {name: (folder / f"{name}.csv").read_bytes() for name in before}
    assert [33, 14, 18] == [len(table(folder / f"{name}.csv")) for name in before]


def test_a_run_whose_chunks_were_purged_is_reported_and_one_without_ledger_says_so(
    bank: Path,
) -> None:
    kept, gone = cardlink(bank, "report", CHUNKS_PURGED), cardlink(bank, "report", PURGED)

    assert ("balanced", (20, 18, 2, 0, 0, 0, 0)) == (kept["verdict"], fates(kept["rows"]))
    assert 2 == gone["exit_code"]
    assert "2024-03-01" in gone["message"]


def test_the_history_of_a_run_has_everything_that_was_done_to_it(bank: Path) -> None:
    found = {
        run: cardlink(bank, "history", run)["history"]
        for run in (ANSWERED, AGAIN, WAITING, KILLED, PURGED)
    }

    assert {
        ANSWERED: [
            *(
                "planned",
                "claimed",
                "claim given back",
                "committed",
                "opened",
                "manifest written",
                "held",
                "uploaded",
            ),
            *(
                "released",
                "uploaded",
                "answered",
                "answered",
                "attributed by hand",
                "break closed",
                "single",
            ),
            *("answered", "resubmitted", "overdue"),
        ],
        AGAIN: ["planned", "claimed", "claim given back", "committed", "manifest written"],
        WAITING: [
            *("planned", "claimed", "claim given back", "committed", "manifest written"),
            *("held", "cancelled", "uploaded"),
        ],
        KILLED: ["planned", "claimed"],
        PURGED: [
            *("planned", "claim given back", "committed", "manifest written", "answered"),
            *("chunks purged", "ledger purged"),
        ],
    } == {run: [event["what"] for event in history] for run, history in found.items()}


@pytest.mark.slow
def test_a_cardholder_is_traced_over_resubmission_single_link_and_purged_runs(bank: Path) -> None:
    cardlink(bank, "ingest", "first-bank")

    again = cardlink(bank, "trace", "S1-00000016", "--issuer", "first-bank")
    single = cardlink(bank, "trace", "S1-00000066", "--issuer", "first-bank")

    told = ("run", "row", "state", "sent", "origin")
    assert [
        (ANSWERED, 16, "error", "", ""),
        (AGAIN, 16, "linked", "", f"{ANSWERED} row 16"),
    ] == [tuple(one[name] for name in told) for one in again["attempts"]]
    assert [(ANSWERED, 66, "error", "", ""), (ANSWERED, 66, "linked", "single", "")] == [
        tuple(one[name] for name in told) for one in single["attempts"]
    ]
    assert [PURGED] == again["purged"]


@pytest.mark.slow
def test_the_look_across_runs_counts_what_is_outstanding(bank: Path) -> None:
    first, second = (
        cardlink(bank, "reconcile", "first-bank"),
        cardlink(bank, "reconcile", "second-bank"),
    )

    told, other = first["issuers"][0], second["issuers"][0]
    assert ("out of balance", (185, 68, 19, 80, 18, 0, 0)) == (told["verdict"], fates(told["rows"]))
    assert {
        "no result": (3, 45),
        "partial result": (2, 5),
        "result unsettled": (0, 0),
        "on hold or cancelled": (2, 30),
    } == {kind: (one["count"], one["rows"]) for kind, one in told["outstanding"]["missing"].items()}
    assert {"count": 5, "rows": 50} == told["outstanding"]["overdue"]
    assert ("answers overdue", (105, 37, 8, 7, 0, 0, 53)) == (
        other["verdict"],
        fates(other["rows"]),
    )
    assert [3, 4] == sorted([first["exit_code"], second["exit_code"]])


def test_the_outbox_lists_moves_and_gives_out_what_waits(bank: Path, tmp_path: Path) -> None:
    before = cardlink(bank, "outbox", "list", "first-bank")["chunks"]
    cardlink(bank, "outbox", "release", WAITING, 3, "--reason", "the partner is ready")
    fetched = cardlink(bank, "outbox", "fetch", WAITING, "--to", tmp_path / "upload")
    cardlink(bank, "outbox", "uploaded", WAITING, 3)
    after = cardlink(bank, "outbox", "list", "first-bank", "--run", WAITING)["chunks"]

    assert [
        (AGAIN, 1, "waiting"),
        (WAITING, 1, "uploaded"),
        (WAITING, 2, "uploaded"),
        (WAITING, 3, "held"),
    ] == [(chunk["run"], chunk["number"], chunk["state"]) for chunk in before]
    assert [fetched["chunks"][0]["sha256"]] == [
        hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (tmp_path / "upload").glob("*.pgp")
    ]
    assert ["uploaded", "uploaded", "uploaded", "cancelled"] == [chunk["state"] for chunk in after]


@pytest.mark.slow
def test_breaks_are_closed_opened_again_and_attributions_withdrawn(bank: Path) -> None:
    result = f"card-links-{ANSWERED}-00003-result.csv"

    closed = cardlink(
        bank, "mend", "close", ANSWERED, "RESULT_SHORT", "chunk 2", "--reason", "confirmed"
    )
    reopened = cardlink(
        bank, "mend", "reopen", ANSWERED, "RESULT_SHORT", "chunk 3", "--reason", "it came"
    )
    withdrawn = cardlink(
        bank, "mend", "withdraw", "first-bank", result, "--row", 11, "--reason", "wrong row"
    )

    assert [("RESULT_SHORT", "chunk 2", 2)] == [
        (one["name"], one["place"], one["rows"]) for one in closed["breaks"]
    ]
    assert ("RESULT_SHORT", "chunk 2") not in breaks(closed["report"])
    assert 1 == breaks(reopened["report"])["RESULT_SHORT", "chunk 3"]
    assert {0, 4} >= {closed["exit_code"], reopened["exit_code"], withdrawn["exit_code"]}
    report = cardlink(bank, "report", ANSWERED)
    assert ((70, 32, 14, 6, 18, 0, 0), 2) == (
        fates(report["rows"]),
        breaks(report)["UNKNOWN_CUID", "chunk 3"],
    )


@pytest.mark.slow
def test_rows_are_sent_again_once_and_what_is_awaited_only_with_an_override(bank: Path) -> None:
    # as the real one, it ingests first
    would = cardlink(bank, "resubmit", AGAIN, "--errors", "--dry-run")
    refused = cardlink(bank, "resubmit", WAITING, "--missing", "--reason", "no answer")
    sent = cardlink(bank, "resubmit", AGAIN, "--errors", "--reason", "once more")
    repeated = cardlink(bank, "resubmit", AGAIN, "--errors", "--reason", "once more")
    over = cardlink(
        bank,
        "resubmit",
        WAITING,
        "--missing",
        "--reason",
        "no answer",
        "--override",
        "they lost it",
    )

    assert sent["counts"]["read"] == would["rows"]
    assert (2, True) == (refused["exit_code"], "--override" in refused["message"])
    assert (3, False) == (sent["counts"]["submitted"], sent["already"])
    assert (sent["run"], True) == (repeated["run"], repeated["already"])
    assert 45 == over["counts"]["submitted"]
    assert (
        "committed; 1 chunk to be uploaded; 3 rows wait" == states(bank, "first-bank")[sent["run"]]
    )


@pytest.mark.slow
def test_rejects_are_corrected_by_a_template_but_for_those_that_went_out_already(
    bank: Path,
) -> None:
    template, merged = bank / "wrong.csv", bank / "mended.csv"
    written = cardlink(bank, "corrections", ANSWERED, "--to", template)
    lines = table(template)
    for line in lines:
        line["correction"] = {"2": "TRUE", "31": "1 Main St", "63": "TRUE"}.get(line["row"], "")
    with merged.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)

    would = cardlink(bank, "resubmit", ANSWERED, "--corrections", merged, "--dry-run")
    sent = cardlink(
        bank, "resubmit", ANSWERED, "--corrections", merged, "--reason", "the branch called"
    )

    assert 18 == written["lines"]
    assert 3 == would["rows"] == sent["counts"]["submitted"]


@pytest.mark.slow
def test_links_that_end_soon_and_those_that_ended_are_renewed_from_the_latest_extract(
    bank: Path,
) -> None:
    soon = (datetime.now(UTC) + timedelta(days=10)).date().isoformat()
    (result,) = (bank / "store/second-bank/results").glob(f"*{CHANGES}*")
    result.write_text(result.read_text().replace("2024-05-05", soon))
    cardlink(bank, "ingest", "second-bank")

    would = cardlink(bank, "renew", "second-bank", "--dry-run")
    sent = cardlink(bank, "renew", "second-bank")
    again = cardlink(bank, "renew", "second-bank")

    assert ([CHANGES], 42) == ([run["of"] for run in would["runs"]], would["rows"])
    assert [42] == [run["counts"]["submitted"] for run in sent["runs"]]
    assert (0, 42) == (again["rows"], again["left_out"]["card.link.awaiting"])


@pytest.mark.slow
def test_a_purge_takes_what_is_due_keeps_what_is_open_and_never_a_source(bank: Path) -> None:
    sources = files(bank, "first-bank/extracts") | files(bank, "first-bank/results")

    would = cardlink(bank, "purge", "--dry-run")
    done = cardlink(bank, "purge")

    lots = {(lot["run"], lot["part"]) for issuer in would["issuers"] for lot in issuer["lots"]}
    kept = {
        one["run"] for issuer in would["issuers"] for one in issuer["kept"] if one["until"] is None
    }
    assert (
        DUE
        == lots
        == {(lot["run"], lot["part"]) for issuer in done["issuers"] for lot in issuer["lots"]}
    )
    assert {ANSWERED, AGAIN, WAITING, CHANGES} == kept
    assert not [key for issuer in would["issuers"] for key in issuer["unknown"]]
    assert sources == files(bank, "first-bank/extracts") | files(bank, "first-bank/results")
    assert set() == files(bank, f"first-bank/runs/{KILLED}/chunks")
    assert ["balanced (purged)", "abandoned", "out of balance"] == [
        states(bank, "first-bank")[run] for run in (CHUNKS_PURGED, KILLED, ANSWERED)
    ]
    assert {PURGED, CHUNKS_PURGED, KILLED} <= set(cardlink(bank, "trace", "S1-00000016")["purged"])


def test_a_run_killed_among_its_chunks_is_finished_with_every_row_once(bank: Path) -> None:
    run = finish(bank, KILLED, "first-bank-20240307.csv")

    assert (50, 39, 11) == tuple(run["counts"][fate] for fate in ("read", "submitted", "rejected"))
    assert {
        **{
            "address.first_name.missing": 2,
            "card.pan.format": 2,
            "card.pan.missing": 2,
            "card.pan.luhn": 1,
        },
        **{"address.country.unknown": 1, "address.postal_code.missing": 1, "card.cvv.format": 1},
        "card.expiration_month.format": 1,
    } == run["reasons"]
    assert [15, 15, 9] == rows_to_upload(bank, "first-bank", "20240307")


def test_a_run_killed_between_its_turn_and_its_manifest_is_sent_once(bank: Path) -> None:
    run = finish(bank, TURN_TAKEN, "first-bank-20240308.csv")

    # -r2 by another recipe
    assert (True, 49) == (run["run"].startswith(TURN_TAKEN), run["counts"]["submitted"])
    assert [15, 15, 15, 4] == rows_to_upload(bank, "first-bank", "20240308")


@pytest.mark.slow
def test_a_run_that_was_planned_only_is_finished(bank: Path) -> None:
    run = finish(bank, PLANNED, "first-bank-20240309.csv")

    assert ({"address.country.unknown": 1, "address.address1.missing": 1}, 48) == (
        run["reasons"],
        run["counts"]["submitted"],
    )
    assert [15, 15, 15, 3] == rows_to_upload(bank, "first-bank", "20240309")


@pytest.mark.slow
def test_a_portfolio_that_was_planned_only_is_finished_with_what_is_known_now(bank: Path) -> None:
    run = finish(bank, BEGUN, "cards-20240306.txt")

    reasons = {
        "card.cvv.missing": 3,
        "card.link.awaiting": 7,
        "card.link.refused": 8,  # years ago, and unchanged since
        "row.filter.excluded": 6,
    }
    assert reasons == run["reasons"]
    assert (60, 39, 21) == tuple(
        run["counts"][fate] for fate in ("read", "submitted", "suppressed")
    )
    assert [15, 15, 9] == rows_to_upload(bank, "second-bank", "20240306")


@pytest.mark.slow
def test_the_nights_go_on_to_a_balance(bank: Path) -> None:
    missed = cardlink(bank, "backfill", "first-bank", "--from", "2024-03-10", "--to", "2024-03-10")

    sent = cardlink(
        bank,
        "backfill",
        "first-bank",
        "--from",
        "2024-03-10",
        "--to",
        "2024-03-10",
        "--send",
        missed["digest"],
    )
    answered = cardlink(
        bank, "simulate", "first-bank", "--secret-key", bank / "portal-secret.asc", "--fail", 0
    )
    ingested = cardlink(bank, "ingest", "first-bank")

    assert [("first-bank-20240310.csv", 37, 3)] == [
        (one["extract"], one["counts"]["submitted"], one["counts"]["rejected"])
        for one in missed["missed"]
    ]
    assert [] == answered["refused"]
    assert {
        sent["runs"][0]: ("balanced", (40, 37, 0, 0, 3, 0, 0)),
        # the portal was given its cancelled chunk too
        WAITING: ("out of balance", (60, 56, 4, 0, 0, 0, 0)),
    } == {
        one["run"]: (one["verdict"], fates(one["rows"]))
        for one in ingested["reports"]
        if one["run"] in (WAITING, *sent["runs"])
    }
    [waiting] = [one for one in ingested["reports"] if one["run"] == WAITING]
    assert {("RESULT_FOR_CANCELLED", "chunk 4"): 15} == breaks(waiting)


@pytest.mark.slow
def test_a_run_committed_in_parts_is_answered_and_one_begun_in_parts_is_finished(
    bank_in_parts: Path,
) -> None:
    ingested = cardlink(bank_in_parts, "ingest", "third-bank")
    run = finish(bank_in_parts, BEGUN_IN_PARTS, "third-bank-20240305.csv")

    assert [(IN_PARTS, "balanced", (200, 177, 16, 0, 7, 0, 0))] == [
        (one["run"], one["verdict"], fates(one["rows"])) for one in ingested["reports"]
    ]
    assert (200, 189, 11) == tuple(
        run["counts"][fate] for fate in ("read", "submitted", "rejected")
    )
    assert 4 == run["reasons"]["card.pan.format"]
    assert 189 == sum(rows_to_upload(bank_in_parts, "third-bank", "20240305"))


def test_a_purge_takes_what_the_workers_of_parts_left_for_each_other(bank_in_parts: Path) -> None:
    before = [
        files(bank_in_parts, f"third-bank/runs/{run}/exchanged")
        for run in (IN_PARTS, BEGUN_IN_PARTS)
    ]

    done = cardlink(bank_in_parts, "purge", "third-bank")

    assert [4, 4] == [len(names) for names in before]
    assert [] == done["issuers"][0]["unknown"]
    assert [set(), set()] == [
        files(bank_in_parts, f"third-bank/runs/{run}/exchanged")
        for run in (IN_PARTS, BEGUN_IN_PARTS)
    ]
