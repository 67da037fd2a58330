"""The worklist names everything that is to be done about all runs, what is due first on top, until
it is done.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from html import unescape
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest

from flows.runs.keys import reconciliation
from flows.runs.outbox import move
from schemas.tables import Awaiting, Questions, Work
from tests import keys
from tests.builders import portal_rows
from tests.cli.test_mend import bank_in, cardlink, pin, told
from tests.cli.test_mend import sent as sent_night
from tests.late import late
from tests.night import Bench, issuer, portal_csv
from tests.operations.test_decide import WHY, answer


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    """Return the bench that writes where the command line of `tmp_path` reads."""
    return bank_in(tmp_path)


def work(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Return the worklist by kind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for line in told(folder, "worklist", "bank")["worklist"]:
        found.setdefault(line["kind"], []).append(line)
    return found


def _moment(moment: datetime) -> datetime:
    return moment


def words(command: str) -> list[str]:
    """Return a command of the worklist as it is typed."""
    return shlex.split(command.replace("WHY", "lost").replace("RECEIPT", "it is there"))[1:]


def kinds_of_alerts(bank: Bench) -> set[str]:
    """Return the kinds of the alerts that are open now."""
    return {alert.kind for alert in late(bank.context)}


def decided(line: dict[str, Any], decision: str) -> list[str]:
    """Return the command of one of the decisions that a line offers."""
    [choice] = [choice for choice in line["decisions"] if choice["decision"] == decision]
    return words(choice["command"])


def test_a_night_comes_off_the_worklist_step_by_step_by_the_commands_it_names(
    bank: Bench, tmp_path: Path
) -> None:
    run = sent_night(tmp_path, 20, bad=0.2)
    chunks = [chunk.number for chunk in bank.manifest(run).chunks]
    seen = [set(work(tmp_path))]

    cardlink(tmp_path, "outbox", "uploaded", run)
    seen.append(set(work(tmp_path)))
    for chunk in chunks:
        answer(bank, run, chunk, rows=4)
    seen.append(set(work(tmp_path)))
    cardlink(tmp_path, "ingest", "bank")
    seen.append(set(work(tmp_path)))
    [short] = work(tmp_path)["break RESULT_SHORT"]
    assert cardlink(tmp_path, *decided(short, "lost")).exit_code in (0, 3, 4)
    seen.append(set(work(tmp_path)))
    [lost] = work(tmp_path)["rows decided lost, to send again"]
    repeat = told(tmp_path, *decided(lost, "send again"))["run"]
    for sealed in bank.manifest(repeat).chunks:
        answer(bank, repeat, sealed.number)
    cardlink(tmp_path, "ingest", "bank")
    seen.append(set(work(tmp_path)))

    corrections = {"rows to correct", "card fields to correct"}
    assert seen == [
        {"chunks to upload"} | corrections,
        {"results awaited"} | corrections,
        {"results awaited", "result files to ingest"} | corrections,
        {"break RESULT_SHORT"} | corrections,
        {"rows decided lost, to send again"} | corrections,
        corrections,
    ]


def test_held_refused_and_overdue_work_names_who_acts_and_due_work_comes_first(
    tmp_path: Path, bank: Bench
) -> None:
    run = sent_night(tmp_path, 20)
    early = Bench(bank.store, bank.issuer, now=lambda: datetime(2026, 11, 1, tzinfo=UTC))
    late = early.submit(early.drop(10, "bank-20261101.csv", seed=1)).manifest.run
    cardlink(tmp_path, "outbox", "hold", run, "2", *WHY)
    cardlink(tmp_path, "outbox", "uploaded", late)
    bank.store.replace("bank/extracts/bank-20261118.csv", [b"nothing,of,use\n1,2,3\n"])
    cardlink(tmp_path, "submit", "bank", "--extract", "bank-20261118.csv")

    worklist = told(tmp_path, "worklist")["worklist"]

    lines = {line["kind"]: (line["who"], line["first"].split()[1]) for line in worklist}
    assert ("operator", "upload") == lines["chunks to upload"]
    assert ("operator", "upload") == lines["chunks on hold"]
    assert [line["due"] for line in worklist] == sorted(line["due"] for line in worklist)


def test_reconcile_writes_the_worklist_as_page_workbook_and_csv(
    tmp_path: Path, bank: Bench
) -> None:
    run = sent_night(tmp_path, 20)

    cardlink(tmp_path, "reconcile", "bank")

    folder = reconciliation("bank")
    listed = pl.read_csv(
        BytesIO(bank.content(f"{folder}worklist.csv")),
        schema_overrides={"number": pl.UInt32, "chunk": pl.UInt32, "rows": pl.UInt32},
    )
    page = unescape(bank.content(f"{folder}report.html").decode())
    book = bank.content(f"{folder}report.xlsx")
    Work.validate(listed)
    assert listed["chunk"].to_list() == [1, 2]
    assert [f'cardlink upload {run} {chunk} --to "FOLDER"' for chunk in (1, 2)] == [
        *listed["first"]
    ]
    for text in (f'upload {run} --to "FOLDER"', 'decide bank 1-2 hold-back --reason "WHY"'):
        assert f"cardlink {text}" in page
    assert openpyxl.load_workbook(BytesIO(book)).sheetnames[0] == "Worklist"


def test_every_open_row_stands_in_the_lists_of_its_run_with_what_to_ask_the_partner(
    tmp_path: Path, bank: Bench
) -> None:
    run = sent_night(tmp_path, 20)
    answer(bank, run, 1, rows=2)
    stranger = "=unknown,0000,https://links.example.com/1,2099-01-01,\n"
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
    assert set(lists["questions"]["cuid"]) == {*sent[2:10], "'=unknown"}
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
    run = sent_night(tmp_path, 20)

    shown = told(tmp_path, "upload", run, "1", "--to", str(tmp_path / "out"))

    assert f"cardlink --config {tmp_path} upload {run} 1 --done" == shown["next"]


def test_result_files_of_no_run_are_named_on_the_list_until_they_are_gone(
    tmp_path: Path, bank: Bench
) -> None:
    sent_night(tmp_path, 20)
    pages = ("a page.csv", "another.csv")
    for name in pages:
        bank.drop_result(f"<html>Your session for {name} has expired</html>".encode(), name)
    cardlink(tmp_path, "ingest", "bank")

    (line,) = work(tmp_path)["result files to look at"]
    for name in pages:
        (tmp_path / "store/bank/results" / name).unlink()
    cardlink(tmp_path, *words(line["first"]))

    assert f"They belong to no run: 2 files ({', '.join(pages)})." in line["matter"]
    for name in pages:
        assert f"bank/results/{name}: it looks like a login page" in line["matter"]
    assert "result files to look at" not in work(tmp_path)


def test_a_refused_extract_is_checked_first_and_dismissed_last(tmp_path: Path, bank: Bench) -> None:
    bank.drop_bytes(b"nothing,of,use\n1,2,3\n", "bank-20261118.csv")
    cardlink(tmp_path, "submit", "bank")

    (line,) = work(tmp_path)["refused extracts"]
    everything = told(tmp_path, "worklist", "--all")

    assert "takes the place of this one" in line["matter"]
    why = line["matter"].partition("Why: ")[2]
    assert "does not fit [columns]" in why
    assert "Correct [columns] in the issuer's settings, or ask the issuer what changed" in why
    assert 'cardlink check bank bank-20261118.csv --rejects "FILE"' == line["first"]
    assert words(line["first"]) == words(everything["next"])[2:]
    assert ["dismiss"] == [choice["decision"] for choice in line["decisions"]]
    cardlink(tmp_path, *decided(line, "dismiss"))
    assert {} == work(tmp_path)


def test_an_extract_of_another_environment_is_for_the_operator(tmp_path: Path, bank: Bench) -> None:
    toml = tmp_path / "bank.toml"
    toml.write_text("test = false\n" + toml.read_text().replace("test = true\n", ""))
    bank.drop(10, "bank-20261118.csv")
    cardlink(tmp_path, "submit", "bank")

    (line,) = work(tmp_path)["stopped extracts"]

    assert "operator" == line["who"]
    assert "10 test cards at an issuer with test = false" in line["matter"]
    assert "Check that the extract belongs to this issuer and this environment." in line["matter"]
    cardlink(tmp_path, *decided(line, "dismiss"))
    assert {} == work(tmp_path)


def test_a_refused_extract_takes_the_place_of_one_refused_before_under_its_name(
    tmp_path: Path, bank: Bench
) -> None:
    for content in (b"", b"\n"):
        bank.drop_bytes(content, "bank-20261118.csv")
        cardlink(tmp_path, "submit", "bank")

    (line,) = work(tmp_path)["refused extracts"]
    cardlink(tmp_path, *decided(line, "dismiss"))

    assert {} == work(tmp_path)


def test_a_refused_extract_whose_file_was_taken_away_is_abandoned(
    tmp_path: Path, bank: Bench
) -> None:
    bank.drop_bytes(b"", "bank-20261118.csv")
    cardlink(tmp_path, "submit", "bank")
    (tmp_path / "store" / "bank" / "extracts" / "bank-20261118.csv").unlink()

    (line,) = work(tmp_path)["refused extracts"]
    cardlink(tmp_path, *words(line["first"].replace(" --dry-run", "")))

    assert {} == work(tmp_path)


def test_an_extract_refused_by_a_gate_is_sent_by_the_command_that_its_line_offers(
    tmp_path: Path, bank: Bench
) -> None:
    bank.drop(10, "bank-20261118.csv", bad=1.0)
    refused = cardlink(tmp_path, "submit", "bank")

    everything = told(tmp_path, "worklist", "--all")
    (line,) = [line for line in everything["worklist"] if line["kind"] == "refused extracts"]
    [run] = everything["runs"]
    report = cardlink(tmp_path, "report", line["run"])
    assert ("refused", None, None) == (run["state"], run["read"], run["rejected"])
    assert f"Run {run['run']} is not committed: refused: bank/extracts" in report.stderr
    assert f"{line['first'].removeprefix('cardlink')}` writes" in refused.stderr
    assert ["open the gate", "dismiss"] == [each["decision"] for each in line["decisions"]]
    cardlink(tmp_path, *decided(line, "open the gate"))

    assert "refused extracts" not in work(tmp_path)


@pytest.mark.slow
def test_rows_of_a_break_closed_as_explained_wait_on_a_line_of_their_own_that_opens_it_again(
    tmp_path: Path, bank: Bench
) -> None:
    run = sent_night(tmp_path, 10)
    row = bank.ledger(run).sort("position").row(7, named=True)
    stray = "{cuid},{last_4},https://other.example.com/8,2099-01-01,\n".format(**row)
    answer(bank, run, 1, rows=7, tail=stray)
    cardlink(tmp_path, "ingest", "bank")
    breaks = work(tmp_path)
    [host] = breaks["break URL_NOT_ALLOWED"]
    closed = told(tmp_path, *decided(host, "explained"))
    beside = work(tmp_path)
    cardlink(tmp_path, *decided(beside["break RESULT_SHORT"][0], "explained"))
    alone = work(tmp_path)
    [explained] = alone["results still incomplete"]
    cardlink(tmp_path, *decided(explained, "open again"))

    for line in chain.from_iterable(breaks.values()):
        assert "give up" not in [choice["decision"] for choice in line["decisions"]]
    assert words(closed["next"])[2:] == ["worklist", "bank"]
    assert ["results still incomplete"] == [*beside.keys() - {"break RESULT_SHORT"}]
    assert {"results awaited": 2, "results still incomplete": 1} == {
        kind: line["rows"] for kind, [line] in alone.items()
    }
    assert "1 chunk, 1 row (URL_NOT_ALLOWED)" in explained["matter"]
    assert host["rows"] == work(tmp_path)["break URL_NOT_ALLOWED"][0]["rows"]


def test_links_that_were_delivered_are_on_the_worklist_until_their_delivery_is_confirmed(
    bank: Bench, tmp_path: Path
) -> None:
    answer(bank, sent_night(tmp_path, 10), 1)
    cardlink(tmp_path, "ingest", "bank")
    cardlink(tmp_path, "deliver", "bank")

    [line] = work(tmp_path)["links to confirm"]
    cardlink(tmp_path, *words(line["first"]))

    assert (10, "operator") == (line["rows"], line["who"])
    assert "links to confirm" not in work(tmp_path)


def test_nothing_is_decided_for_the_operator_and_what_can_do_least_harm_comes_first(
    bank: Bench, tmp_path: Path
) -> None:
    run = sent_night(tmp_path, 10)
    sent = bank.ledger(run).sort("position").row(9, named=True)
    both = f"{sent['cuid']},{sent['last_4']},https://links.example.com/9,2099-01-01,no\n"
    answer(bank, run, 1, rows=9, tail=both)
    cardlink(tmp_path, "ingest", "bank")

    [line] = work(tmp_path)["break URL_AND_ERROR"]

    assert line["first"].split()[1:3] == ["questions", "bank"]
    assert [choice["decision"] for choice in line["decisions"]] == [
        *("error", "lost", "link", "give up")
    ]
    assert "Do not send this link" in line["matter"]


@pytest.mark.slow
def test_an_overdue_result_is_ingested_then_asked_about_and_given_up_only_after_a_while(
    bank: Bench, tmp_path: Path
) -> None:
    offered = {}
    for days in (3, 8):
        then = datetime.now(UTC) - timedelta(days=days)
        earlier = replace(bank, now=partial(_moment, then))
        name = f"bank-{then:%Y%m%d}.csv"
        run = earlier.submit(earlier.drop(5, name, seed=days)).manifest.run
        move(earlier.context.adapters, run, "uploaded")
        [line] = [
            each
            for line in work(tmp_path)["results overdue"]
            for each in line["each"]
            if each["run"] == run
        ]
        choices = [choice["decision"] for choice in line["decisions"]]
        offered[days] = (line["first"].split()[1], choices)

    assert offered == {3: ("questions", []), 8: ("questions", ["release", "lost", "give up"])}


def test_the_cardholders_of_a_chunk_whose_result_never_comes_are_given_up_and_the_line_is_gone(
    bank: Bench, tmp_path: Path
) -> None:
    then = datetime.now(UTC) - timedelta(days=8)
    earlier = replace(bank, now=partial(_moment, then))
    run = earlier.submit(earlier.drop(5, f"bank-{then:%Y%m%d}.csv")).manifest.run
    move(earlier.context.adapters, run, "uploaded")
    before = kinds_of_alerts(bank)
    [overdue] = work(tmp_path)["results overdue"]

    given_up = told(tmp_path, *decided(overdue, "give up"))

    assert "results overdue" in before
    assert 5 == given_up["cards"]
    assert {} == work(tmp_path)
    assert "nothing to ask" in cardlink(tmp_path, "questions", "bank").stdout
    assert "results overdue" not in kinds_of_alerts(bank)


@pytest.mark.slow
def test_the_rows_of_a_break_that_nobody_can_decide_are_given_up(
    bank: Bench, tmp_path: Path
) -> None:
    run = bank.submit(bank.drop(10)).manifest.run
    answer(bank, run, 1, rows=8)
    cardlink(tmp_path, "ingest", "bank")
    [short] = work(tmp_path)["break RESULT_SHORT"]

    given_up = told(tmp_path, *decided(short, "give up"))

    assert 2 == given_up["cards"]
    assert "break RESULT_SHORT" not in work(tmp_path)


@pytest.mark.slow
def test_one_command_does_the_same_for_all_runs(bank: Bench, tmp_path: Path) -> None:
    runs = [
        bank.submit(bank.drop(10, f"bank-2026111{night}.csv", seed=night)).manifest.run
        for night in range(2)
    ]
    [upload] = work(tmp_path)["chunks to upload"]
    fetched = told(tmp_path, *words(upload["first"].replace("FOLDER", str(tmp_path / "out"))))
    late = bank.submit(bank.drop(10, "bank-20261113.csv", seed=9)).manifest.run
    cardlink(tmp_path, *words(fetched["next"]))
    states = {line["kind"]: line["runs"] for kind in work(tmp_path).values() for line in kind}
    for run in runs:
        answer(bank, run, 1, rows=8)
    cardlink(tmp_path, "ingest", "bank")
    [short] = work(tmp_path)["break RESULT_SHORT"]
    closed = cardlink(tmp_path, *decided(short, "lost"))
    [lost] = work(tmp_path)["rows decided lost, to send again"]
    sent = told(tmp_path, *decided(lost, "send again"))

    assert (2, 2, 20) == (len(fetched["chunks"]), upload["runs"], upload["rows"])
    assert {"chunks to upload": 1, "results awaited": 2} == states
    assert late not in str(fetched)
    assert (0, (2, 4)) == (closed.exit_code, (short["runs"], short["rows"]))
    assert sorted(runs, reverse=True) == [each["of"] for each in sent["runs"]]
    assert "rows decided lost, to send again" not in work(tmp_path)


@pytest.mark.slow
def test_a_decision_about_all_runs_is_refused_once_there_are_other_rows(
    bank: Bench, tmp_path: Path
) -> None:
    runs = [
        bank.submit(bank.drop(10, f"bank-2026111{night}.csv", seed=night)).manifest.run
        for night in range(3)
    ]
    for run in runs[:2]:
        answer(bank, run, 1, rows=8)
    cardlink(tmp_path, "ingest", "bank")
    [short] = work(tmp_path)["break RESULT_SHORT"]
    answer(bank, runs[2], 1, rows=9)
    cardlink(tmp_path, "ingest", "bank")

    done = cardlink(tmp_path, *decided(short, "lost"))

    assert (2, True) == (done.exit_code, "has 5 rows in open breaks RESULT_SHORT" in done.stderr)
    assert 3 == work(tmp_path)["break RESULT_SHORT"][0]["runs"]


@pytest.mark.slow
def test_business_days_without_an_extract_are_on_the_list_until_their_file_or_a_holiday_comes(
    bank: Bench, tmp_path: Path
) -> None:
    toml = (tmp_path / "bank.toml").read_text()
    schedule = '[schedule]\nextract_by = 00:00:00\ndays = ["mon", "tue", "wed", "thu", "fri"]\n'
    (tmp_path / "bank.toml").write_text(toml + schedule)
    today = datetime.now(UTC).date()
    week = [today - timedelta(days=back) for back in range(7, -1, -1)]
    business_days = [day for day in week if day.weekday() < 5]
    first, *missed, last = business_days
    for number, day in enumerate((first, last)):
        bank.submit(bank.drop(5, f"bank-{day:%Y%m%d}.csv", seed=number))

    [line] = work(tmp_path)["business days without an extract"]
    holidays = ", ".join(day.isoformat() for day in missed)
    with_holidays = f"{schedule}holidays = [{holidays}]\n"
    (tmp_path / "bank.toml").write_text(toml + with_holidays)

    assert f"{len(missed)} days" in line["matter"]
    assert f"--from {missed[0]} --to {missed[-1]}" in line["first"]
    assert "business days without an extract" not in work(tmp_path)


@pytest.mark.slow
def test_a_held_extract_and_an_open_request_wait_on_the_list_for_a_decision(
    bank: Bench, tmp_path: Path
) -> None:
    run = sent_night(tmp_path, 10)
    toml = (tmp_path / "bank.toml").read_text()
    (tmp_path / "bank.toml").write_text(toml + '[four_eyes]\nacts = ["release", "gates"]\n')
    cardlink(tmp_path, "outbox", "hold", run, "1", *WHY)
    [held] = work(tmp_path)["chunks on hold"]
    cardlink(tmp_path, *decided(held, "release"), "--actor", "anna")
    [request] = work(tmp_path)["requests for a second person"]
    carried = cardlink(tmp_path, *words(request["first"].replace("YOUR_NAME", "bert")))
    bank.drop(12, seed=5)
    [extract] = work(tmp_path)["extracts held back"]
    dismissed = cardlink(tmp_path, *decided(extract, "dismiss"))

    assert (0, 0) == (carried.exit_code, dismissed.exit_code)
    assert "anna requested it" in request["matter"]
    assert {"chunks to upload"} == set(work(tmp_path))


@pytest.mark.slow
def test_a_chunk_sealed_to_a_key_that_is_no_longer_pinned_is_sealed_again_not_uploaded(
    bank: Bench, tmp_path: Path
) -> None:
    sent_night(tmp_path, 10)
    pin(tmp_path, keys.sound(copy=2))

    kinds = work(tmp_path)
    [line] = kinds["chunks sealed to another key"]
    cardlink(tmp_path, *decided(line, "seal again"))

    assert ["chunks sealed to another key"] == [*kinds]
    assert ["chunks to upload"] == [*work(tmp_path)]
