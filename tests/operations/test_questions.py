"""The questions to the partner about all runs of all issuers, and its answers, which are decisions."""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from flows.extensions.governance.tables import REQUEST
from flows.operations.giving_up import Which, give_up
from flows.operations.questions import open_questions
from flows.runs.closings import kept_answers
from flows.runs.events import ASKED
from flows.runs.outbox import move
from schemas.ledger import AWAITING, ERROR, LINKED
from tests.cli.test_mend import bank_in, cardlink, told
from tests.night import NOON, Bench, local_bench, made_once, runs_in, uncommit
from tests.operations.test_decide import WHY, answer

STATES = (LINKED, ERROR, AWAITING)
REFUSED = "{cuid},{last_4},,,card type is not supported\n"


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    """Return the bench that writes where the command line of `tmp_path` reads."""
    return bank_in(tmp_path)


@pytest.fixture
def runs(bank: Bench, tmp_path: Path) -> list[str]:
    """Two runs: a result that lacks two rows, and one with a refusal only the partner knows of."""
    return answered(tmp_path)


@made_once
def answered(folder: Path) -> list[str]:
    bank = bank_in(folder)
    runs = [
        bank.submit(bank.drop(10, f"bank-2026111{night}.csv", seed=night)).manifest.run
        for night in range(2)
    ]
    answer(bank, runs[0], 1, rows=8)
    last = bank.ledger(runs[1]).sort("position").row(9, named=True)
    answer(bank, runs[1], 1, rows=9, tail=REFUSED.format(**last))
    cardlink(folder, "ingest", "bank")
    return runs


def written(folder: Path) -> list[dict[str, str]]:
    file = folder / "questions.csv"
    file.unlink(missing_ok=True)
    cardlink(folder, "questions", "--to", str(file))
    return list(csv.DictReader(file.read_text("utf-8-sig").splitlines()))


def filled(folder: Path, questions: list[dict[str, str]], *answers: str) -> str:
    """Write the file as the partner fills it in; return its name."""
    file = folder / "answers.csv"
    with file.open("w", newline="") as out:
        writer = csv.DictWriter(out, list(questions[0]))
        writer.writeheader()
        for question, word in zip(questions, answers, strict=True):
            writer.writerow(question | {"answer": word})
    return str(file)


def states(bank: Bench, run: str) -> dict[str, int]:
    summary = bank.stored(run).summary or {}
    return {name: rows for name, rows in summary["rows"].items() if rows and name in STATES}


@pytest.mark.slow
def test_one_file_asks_about_all_runs_and_says_which_answers_there_are(
    runs: list[str], tmp_path: Path
) -> None:
    questions = written(tmp_path)

    assert [runs[0], runs[0], runs[1]] == [question["chunk"][:-14] for question in questions]
    assert ["explained | lost"] * 2 + ["send again"] == [line["answers"] for line in questions]
    assert "card type is not supported" in questions[2]["question"]
    assert 3 == len({question["id"] for question in questions})


@pytest.mark.slow
def test_a_line_that_was_asked_about_begins_with_the_answer_until_there_is_something_new_to_ask(
    bank: Bench, runs: list[str], tmp_path: Path
) -> None:
    def asking() -> dict[str, tuple[str, str, str]]:
        lines = told(tmp_path, "worklist", "bank")["worklist"]
        return {
            line["kind"]: (
                line["first"].split()[1],
                line["decisions"][0]["decision"],
                written_on(line),
            )
            for line in lines
            if line["kind"] in ("errors to ask about", "break RESULT_SHORT")
        }

    before = asking()
    written(tmp_path)
    asked = asking()
    written(tmp_path)
    repeated = [len(bank.stored(run).events(ASKED)) for run in runs]
    last = bank.ledger(runs[1]).sort("position").row(9, named=True)
    answer(bank, runs[1], 1, rows=9, tail=REFUSED.format(**last).replace("type", "brand"))
    cardlink(tmp_path, "ingest", "bank")

    assert ("questions", "send again", "") == before["errors to ask about"]
    assert ("answers", "ask again", "The") == asked["errors to ask about"]
    assert ("answers", "ask again", "The") == asked["break RESULT_SHORT"]
    assert [1, 1] == repeated
    assert before["errors to ask about"] == asking()["errors to ask about"]


def written_on(line: dict[str, Any]) -> str:
    """Return how many of its questions a line says were written: "The", "" for none."""
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    named = re.search(rf"(\w+) questions were written on {today}", line["matter"])
    return named[1] if named else ""


def test_answers_are_decisions_row_by_row_and_a_dry_run_changes_nothing(
    bank: Bench, runs: list[str], tmp_path: Path
) -> None:
    file = filled(tmp_path, written(tmp_path), "lost", "", "send again")
    before = bank.snapshot()

    rehearsed = told(tmp_path, "answers", file, *WHY, "--dry-run")
    unchanged = bank.snapshot()
    done = told(tmp_path, "answers", file, *WHY)
    again = told(tmp_path, "answers", file, *WHY)

    assert before == unchanged
    assert rehearsed["decided"] == done["decided"]
    assert {LINKED: 8, ERROR: 1, AWAITING: 1} == states(bank, runs[0])
    assert ([], 2) == (again["decided"], again["settled"])
    assert 1 == len(written(tmp_path))


@pytest.mark.slow
def test_answers_whose_command_died_before_its_commit_are_finished_by_the_same_command(
    tmp_path: Path,
) -> None:
    answered(tmp_path)
    file = filled(tmp_path, written(tmp_path), "lost", "", "send again")
    cardlink(tmp_path, "answers", file, "--reason", "mail")
    run = str(runs_in(tmp_path).ids[-1])
    uncommit(tmp_path, run)

    done = cardlink(tmp_path, "answers", file, "--reason", "mail")

    assert 0 == done.exit_code, done.stdout
    assert run in {committed.id for committed in runs_in(tmp_path).committed()}


@pytest.mark.slow
def test_an_answer_about_a_row_that_we_did_not_send_closes_its_break(
    bank: Bench, tmp_path: Path
) -> None:
    run = bank.submit(bank.drop(10)).manifest.run
    answer(bank, run, 1, tail="stranger,0000,,,card type is not supported\n")
    cardlink(tmp_path, "ingest", "bank")

    file = filled(tmp_path, written(tmp_path), "explained")
    done = told(tmp_path, "answers", file, *WHY)

    assert [{"run": run, "about": "UNKNOWN_CUID", "answer": "explained", "questions": 1}] == (
        done["decided"]
    )
    assert [] == (bank.stored(run).summary or {})["breaks"]


def test_the_partner_is_asked_about_chunks_that_were_uploaded_and_are_overdue_and_no_others(
    tmp_path: Path,
) -> None:
    bench = local_bench(tmp_path, portal={"rows_per_chunk": 2, "answer_within_hours": 24})
    run = bench.submit(bench.drop(6)).manifest.run
    move(bench.context.adapters, run, "uploaded", [1, 2], "")
    rows = bench.ledger(run).filter(chunk=2)["row"]
    give_up(bench.context, Which(run, rows=frozenset(rows)), "they left")

    asked = [
        [question.place for question in open_questions(at(bench, hours).context)]
        for hours in (24, 24.1)
    ]

    assert [[], ["chunk 1"]] == asked


def at(bench: Bench, hours: float) -> Bench:
    return replace(bench, now=lambda: NOON + timedelta(hours=hours))


def test_a_file_with_an_answer_that_is_none_decides_nothing(
    bank: Bench, runs: list[str], tmp_path: Path
) -> None:
    file = filled(tmp_path, written(tmp_path), "lost", "link", "")

    done = cardlink(tmp_path, "answers", file, *WHY)

    assert (2, True) == (done.exit_code, "has no answer of its choices" in done.stderr)
    assert {LINKED: 8, AWAITING: 2} == states(bank, runs[0])


def test_answers_need_a_second_person_only_where_an_issuer_of_theirs_says_so_of_what_they_decide(
    bank: Bench, runs: list[str], tmp_path: Path
) -> None:
    toml = (tmp_path / "bank.toml").read_text()
    other = toml.replace('"bank"', '"abbey"') + '[four_eyes]\nacts = ["close"]\n'
    (tmp_path / "abbey.toml").write_text(other)
    (tmp_path / "bank.toml").write_text(toml + '[four_eyes]\nacts = ["lost"]\n')
    questions = written(tmp_path)

    lost = told(tmp_path, "answers", filled(tmp_path, questions, "", "lost", ""), *WHY)
    explained = told(tmp_path, "answers", filled(tmp_path, questions, "explained", "", ""), *WHY)

    assert (True, False) == ("request" in lost, "request" in explained)
    assert [1] == [decided["questions"] for decided in explained["decided"]]
    with bank.database.snapshot() as connection:
        assert ["bank"] == connection.execute(select(REQUEST.c.issuer)).scalars().all()


@pytest.mark.slow
def test_giving_rows_up_can_need_a_second_person(
    bank: Bench, runs: list[str], tmp_path: Path
) -> None:
    toml = (tmp_path / "bank.toml").read_text()
    (tmp_path / "bank.toml").write_text(toml + '[four_eyes]\nacts = ["lost"]\n')
    close = ("mend", "close", runs[0], "RESULT_SHORT", "--rows", "2", *WHY, "--decision")

    explained = cardlink(tmp_path, *close, "explained", "--dry-run")
    lost: dict[str, Any] = told(tmp_path, *close, "lost", "--actor", "anna")

    assert explained.exit_code in (0, 3, 4)
    assert "request" in lost
    assert {LINKED: 8, AWAITING: 2} == states(bank, runs[0])


def test_an_answer_about_a_whole_chunk_is_not_applied_once_other_rows_of_it_wait(
    bank: Bench, tmp_path: Path
) -> None:
    early = replace(bank, now=lambda: datetime(2026, 11, 1, tzinfo=UTC))
    run = early.submit(early.drop(10, "bank-20261101.csv", seed=1)).manifest.run
    move(early.context.adapters, run, "uploaded")
    [question] = written(tmp_path)
    earlier = question | {"rows": "12"}  # when more of it waited

    stale = cardlink(tmp_path, "answers", filled(tmp_path, [earlier], "lost"), *WHY)
    done = cardlink(tmp_path, "answers", filled(tmp_path, [question], "lost"), *WHY, "--dry-run")

    assert (2, 0) == (stale.exit_code, done.exit_code)
    assert f"RESULT_SHORT at chunk 1 of {run}: this is about 10 rows now, not 12" in stale.stdout
    assert "1 question would be decided" in done.stdout


def three_days_old(bank: Bench) -> str:
    """Return a run whose only chunk was uploaded three days ago, and has no result."""
    ago = datetime.now(UTC) - timedelta(days=3)
    early = replace(bank, now=lambda: ago)
    run = early.submit(early.drop(10, "bank-20261101.csv", seed=1)).manifest.run
    move(early.context.adapters, run, "uploaded")
    return run


def test_an_answer_that_may_not_take_effect_yet_is_kept_until_an_ingest_may_decide_so(
    bank: Bench, tmp_path: Path
) -> None:
    run = three_days_old(bank)
    file = filled(tmp_path, written(tmp_path), "lost")
    day = f"{datetime.now(UTC) + timedelta(days=4):%Y-%m-%d}"

    kept = told(tmp_path, "answers", file, *WHY)
    asked_again = told(tmp_path, "questions", "--to", str(tmp_path / "none.csv"))
    [line] = told(tmp_path, "worklist", "bank")["worklist"]
    cardlink(tmp_path, "ingest", "bank")
    waiting = list(kept_answers(bank.context.adapters, "bank"))
    toml = (tmp_path / "bank.toml").read_text()
    (tmp_path / "bank.toml").write_text(toml.replace("[limits]", "[limits]\nlost_after_days = 0"))
    decided = cardlink(tmp_path, "ingest", "bank")

    expected = f"{run}, chunk 1: the answer lost is kept, since a result may still come; the first"
    assert [f"{expected} ingest from {day} on decides so"] == kept["kept"]
    assert (0, [], 0) == (len(kept["decided"]), kept["refused"], asked_again["questions"])
    assert "answers that wait" == line["kind"]
    assert f"The first counts from {day} on." in line["matter"]
    assert ([(run, 1)], {ERROR: 10}) == (waiting, states(bank, run))
    assert "the answer lost of " in decided.stdout
    kinds = [line["kind"] for line in told(tmp_path, "worklist", "bank")["worklist"]]
    assert ["rows decided lost, to send again"] == kinds


def test_an_overdue_result_waits_for_the_partner_once_its_first_step_was_pasted(
    bank: Bench, tmp_path: Path
) -> None:
    three_days_old(bank)
    [before] = told(tmp_path, "worklist", "bank")["worklist"]

    cardlink(tmp_path, *before["first"].replace('"FILE"', str(tmp_path / "ask.csv")).split()[1:])
    [after] = told(tmp_path, "worklist", "bank")["worklist"]

    assert ("results overdue", "operator") == (before["kind"], before["who"])
    assert ("results overdue", "partner") == (after["kind"], after["who"])
    assert after["first"].startswith("cardlink answers ")


@pytest.mark.slow
def test_a_kept_answer_is_dropped_once_a_result_came(bank: Bench, tmp_path: Path) -> None:
    run = three_days_old(bank)
    told(tmp_path, "answers", filled(tmp_path, written(tmp_path), "lost"), *WHY)
    answer(bank, run, 1)

    done = cardlink(tmp_path, "ingest", "bank")

    assert "the answer lost is not needed any more" in done.stdout
    assert {LINKED: 10} == states(bank, run)
    assert {} == kept_answers(bank.context.adapters, "bank")


@pytest.mark.parametrize("word", ["WHY", "lost | explained", "ANSWER"])
def test_a_placeholder_is_no_answer(
    bank: Bench, runs: list[str], tmp_path: Path, word: str
) -> None:
    questions = written(tmp_path)

    done = cardlink(tmp_path, "answers", filled(tmp_path, questions, word, "", ""), *WHY)

    assert 2 == done.exit_code
    assert "Nothing was decided" in done.stderr
