"""The worklist names everything that is to be done about all runs, what is due first on top, until
it is done.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest

from flows.runs.keys import reconciliation
from flows.wiring import open_store
from schemas.tables import Awaiting, Questions, Work
from tests import keys
from tests.builders import portal_rows
from tests.cli.test_mend import cardlink, pin, told
from tests.night import Bench, issuer, portal_csv
from tests.operations.test_decide import WHY, answer


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    """Return the bench that writes where the command line of `tmp_path` reads."""
    (tmp_path / "store").mkdir()
    pin(tmp_path, keys.sound())
    return Bench(
        open_store(issuer(), tmp_path),
        issuer(portal={"rows_per_chunk": 10}),
        now=lambda: datetime.now(UTC),
    )


def work(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the worklist by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in told(folder, "worklist", "bank")["worklist"]:
        found.setdefault(line["kind"], []).append(line)
    return found


def test_a_night_comes_off_the_worklist_step_by_step_by_the_commands_it_names(
    bank: Bench, tmp_path: Path
) -> None:
    run = bank.submit(bank.drop(20, bad=0.2)).manifest.run
    chunks = [chunk.number for chunk in bank.manifest(run).chunks]
    seen = [set(work(tmp_path))]

    cardlink(tmp_path, "outbox", "uploaded", run)
    seen.append(set(work(tmp_path)))
    for chunk in chunks:
        answer(bank, run, chunk, rows=4)
    cardlink(tmp_path, "ingest", "bank")
    seen.append(set(work(tmp_path)))
    for line in work(tmp_path)["break RESULT_SHORT"]:
        assert cardlink(
            tmp_path, *shlex.split(line["command"].replace("WHY", "lost"))[1:]
        ).exit_code in (0, 3, 4)
    seen.append(set(work(tmp_path)))
    [lost] = work(tmp_path)["rows decided lost, to send again"]
    repeat = told(tmp_path, *shlex.split(lost["command"].replace("WHY", "lost"))[1:])["run"]
    answer(bank, repeat, 1)
    answer(bank, repeat, 2)
    cardlink(tmp_path, "ingest", "bank")
    seen.append(set(work(tmp_path)))

    corrections = "rows to correct"
    assert seen == [
        {"chunks to upload", corrections},
        {"results awaited", corrections},
        {"break RESULT_SHORT", corrections},
        {"rows decided lost, to send again", corrections},
        {corrections},
    ]


def test_held_refused_and_overdue_work_names_who_acts_and_due_work_comes_first(
    tmp_path: Path, bank: Bench
) -> None:
    early = Bench(bank.store, bank.issuer, now=lambda: datetime(2026, 11, 1, tzinfo=UTC))
    late = early.submit(early.drop(10, "bank-20261101.csv", seed=1)).manifest.run
    run = bank.submit(bank.drop(20)).manifest.run
    cardlink(tmp_path, "outbox", "hold", run, "2", *WHY)
    cardlink(tmp_path, "outbox", "uploaded", late)
    bank.store.replace("bank/extracts/bank-20261118.csv", [b"nothing,of,use\n1,2,3\n"])
    cardlink(tmp_path, "submit", "bank", "--extract", "bank-20261118.csv")

    worklist = told(tmp_path, "worklist")["worklist"]

    lines = {line["kind"]: (line["who"], line["command"].split()[1]) for line in worklist}
    assert lines["chunks to upload"] == lines["chunks held"] == ("operator", "outbox")
    assert [line["due"] for line in worklist] == sorted(line["due"] for line in worklist)


def test_reconcile_writes_the_worklist_as_page_workbook_and_csv(
    tmp_path: Path, bank: Bench
) -> None:
    run = bank.submit(bank.drop(20)).manifest.run

    cardlink(tmp_path, "reconcile", "bank")

    folder = reconciliation("bank")
    listed = pl.read_csv(
        BytesIO(bank.content(f"{folder}worklist.csv")),
        schema_overrides={"chunk": pl.UInt32, "rows": pl.UInt32},
    )
    page = bank.content(f"{folder}report.html").decode()
    book = bank.content(f"{folder}report.xlsx")
    Work.validate(listed)
    assert listed["chunk"].to_list() == [1, 2]
    assert f"cardlink outbox fetch {run} 1 --to FOLDER" in page
    assert openpyxl.load_workbook(BytesIO(book)).sheetnames[0] == "Worklist"


def test_every_open_row_stands_in_the_lists_of_its_run_with_what_to_ask_the_partner(
    tmp_path: Path, bank: Bench
) -> None:
    run = bank.submit(bank.drop(20)).manifest.run
    answer(bank, run, 1, rows=2)
    stranger = "=stranger,0000,https://links.example.com/1,2099-01-01,\n"
    answer(bank, run, 2, rows=9, tail=stranger)
    cardlink(tmp_path, "ingest", "bank")

    lists = {
        name: pl.read_csv(BytesIO(bank.report(run, f"{name}.csv")), infer_schema=False)
        for name in ("awaiting", "breaks", "questions")
    }

    sent = bank.ledger(run).sort("chunk", "position")["cuid"].to_list()
    open_rows = {*sent[2:10], sent[19]}
    Awaiting.validate(lists["awaiting"].cast({"row": pl.UInt32, "chunk": pl.UInt32}))
    Questions.validate(lists["questions"])
    assert set(lists["awaiting"]["cuid"]) == open_rows
    assert dict(lists["breaks"]["break"].value_counts().iter_rows()) == {
        "RESULT_SHORT": 8,
        "UNKNOWN_CUID": 1,
    }
    assert set(lists["questions"]["cuid"]) == {*sent[2:10], "'=stranger"}
    assert set(lists["questions"]["chunk"]) == {chunk.name for chunk in bank.manifest(run).chunks}


@pytest.mark.slow
def test_after_many_messy_nights_reconcile_says_how_many_and_names_the_worklist(
    tmp_path: Path, bank: Bench
) -> None:
    for night in range(3):
        run = bank.submit(bank.drop(10, f"bank-2026111{night}.csv", seed=night)).manifest.run
        answer(bank, run, 1, rows=5)
    cardlink(tmp_path, "ingest", "bank")

    shown = cardlink(tmp_path, "reconcile", "bank").stdout

    assert f"1. break RESULT_SHORT: 3 (cardlink --config {tmp_path} worklist bank)" in shown
    assert json.loads(bank.content(f"{reconciliation('bank')}summary.json"))["more_work"] == 0


def test_of_two_runs_of_a_day_the_one_committed_last_is_the_one_to_correct(
    tmp_path: Path, bank: Bench
) -> None:
    unfit = {"service_card.address.city": None}
    files = [portal_csv(portal_rows(unfit, {})), portal_csv(portal_rows(unfit, {}, {}))]
    files.sort(key=lambda content: hashlib.sha256(content).hexdigest(), reverse=True)
    bank.issuer = issuer(limits={"max_reject_rate": 1.0, "max_row_jump": 1000.0})

    runs = [
        bank.submit(bank.drop_bytes(content, f"bank-20261120-{number}.csv")).manifest.run
        for number, content in enumerate(files)
    ]

    assert runs[0] > runs[1]
    assert [runs[1]] == [line["run"] for line in work(tmp_path)["rows to correct"]]


def test_after_a_fetch_of_one_chunk_only_that_one_is_recorded_as_uploaded(
    tmp_path: Path, bank: Bench
) -> None:
    run = bank.submit(bank.drop(20)).manifest.run

    shown = told(tmp_path, "outbox", "fetch", run, "1", "--to", str(tmp_path / "out"))

    assert f"cardlink --config {tmp_path} outbox uploaded {run} 1" == shown["next"]


def test_a_result_file_of_no_run_is_on_the_list_until_it_is_gone(
    tmp_path: Path, bank: Bench
) -> None:
    bank.submit(bank.drop(20))
    bank.drop_result(b"<html>Your session has expired</html>", "a page.csv")
    cardlink(tmp_path, "ingest", "bank")

    (line,) = work(tmp_path)["result files to look at"]
    shown = cardlink(tmp_path, *shlex.split(line["command"])[1:])
    (tmp_path / "store/bank/results/a page.csv").unlink()

    assert "break: bank/results/a page.csv" in shown.stdout
    assert "result files to look at" not in work(tmp_path)


def test_a_refused_extract_leaves_the_list_by_what_its_command_says_next(
    tmp_path: Path, bank: Bench
) -> None:
    bank.drop_bytes(b"nothing,of,use\n1,2,3\n", "bank-20261118.csv")
    cardlink(tmp_path, "submit", "bank")

    (line,) = work(tmp_path)["refused extracts"]
    shown = told(tmp_path, *shlex.split(line["command"])[1:])
    cardlink(tmp_path, *shlex.split(shown["next"])[1:])

    assert {} == work(tmp_path)


def test_links_that_were_delivered_are_on_the_worklist_until_their_delivery_is_confirmed(
    bank: Bench, tmp_path: Path
) -> None:
    answer(bank, bank.submit(bank.drop(10)).manifest.run, 1)
    cardlink(tmp_path, "ingest", "bank")
    cardlink(tmp_path, "deliver", "bank")

    [line] = work(tmp_path)["links to confirm"]
    cardlink(tmp_path, *shlex.split(line["command"])[1:])

    assert (10, "operator") == (line["rows"], line["who"])
    assert "links to confirm" not in work(tmp_path)
