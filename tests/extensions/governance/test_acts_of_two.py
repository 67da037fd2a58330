"""Every act that sends, stops, decides, delivers or deletes can need a second person."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import select

from flows.commands.context import Context
from flows.commands.entry import Entry
from flows.database.connection import Database
from flows.extensions.governance.in_force import SettingsNotAgreedError
from flows.extensions.governance.settings import normalised
from flows.extensions.governance.tables import REQUEST, SETTINGS_IN_FORCE
from flows.extensions.governance.two_persons import NobodyError
from flows.registry import ENTRIES
from schemas.actions import Gate
from schemas.database import DERIVED, ISSUER, JOURNAL, METADATA
from schemas.settings import Act
from tests.builders import quick
from tests.night import DAY
from tests.test_dry_runs import CASES, answered, with_rows

ACTING = {each.name: each for each in ENTRIES if each.acts}
# what is never one person's decision, or is asked for by what it decides about
ALONE = {
    "submit": "of new extracts: the night does it",
    "renew": "the night does it",
    "ingest": "the night does it",
    "acknowledge": "the night does it; a receipt is recorded",
    "outbox uploaded": "it records what a person did",
    "upload": "it records what a person did",
    "recover": "the store says what is applied; nothing is sent by it",
    "decide": "what it carries out is an act by its own name",
    "mend take-over": "it ends a dead claim; nothing is sent by it",
}
TRAIL_ALONE = {"audit accept"}
# Entry governs every command alike: `make test` tries these, `make test-all` each
SOME = ("outbox hold", "mend close", "mend reseal", "deliver", "purge", "link-form")
# what of the database is beside what an act does: who did it, and what is derived
BESIDE = (*DERIVED, ISSUER, JOURNAL, REQUEST, SETTINGS_IN_FORCE)


def need_two(folder: Path) -> None:
    """Let the issuer name every act."""
    acts = ", ".join(f'"{act}"' for act in get_args(Act))
    with (folder / "bank.toml").open("a") as toml:
        toml.write(f"\n[four_eyes]\nacts = [{acts}]\n")


def stored(folder: Path) -> dict[str, Any]:
    """Return what is in store and database but requests, the journal and the settings."""
    files = (file for file in (folder / "store").rglob("*") if file.is_file())
    by_key = {str(file.relative_to(folder / "store")): file.read_bytes() for file in files}
    objects = {key: data for key, data in by_key.items() if not key.startswith("bank/journal/")}
    tables = [table for table in METADATA.sorted_tables if table not in BESIDE]
    with Database(folder / "cardlink.db").snapshot() as connection:
        rows = {table.name: connection.execute(select(table)).all() for table in tables}
    return {**objects, **rows}


@pytest.mark.parametrize(
    "command", quick(3, [*SOME, *sorted(CASES.keys() & ACTING.keys() - {*SOME, "agree"})])
)
def test_an_act_of_two_does_nothing_until_another_person_carries_it_out(
    tmp_path: Path, command: str
) -> None:
    case = CASES[command](tmp_path)
    need_two(tmp_path)
    before = stored(tmp_path)
    acting = ACTING[command]

    asked = acting.invoke(Context(tmp_path, actor="anna"), case)
    after = stored(tmp_path)
    approve = asked.facts["request"]
    done = acting.invoke(Context(tmp_path, actor="bert", options={"approve": approve}), case)

    assert (3, before) == (asked.exit_code, after)
    assert done.exit_code in (0, 4)
    assert (before == stored(tmp_path)) is (command in TRAIL_ALONE)


@pytest.mark.slow
def test_rows_are_sent_again_and_a_gate_is_opened_once_two_persons_said_so(tmp_path: Path) -> None:
    bench, run = answered(tmp_path)
    need_two(tmp_path)
    toml = (tmp_path / "bank.toml").read_text()
    (tmp_path / "bank.toml").write_text(
        toml.replace("max_reject_rate = 1.0", "max_reject_rate = 0.0")
    )
    bench.drop(20, "bank-20261121.csv", bad=0.5, seed=3)
    submit: dict[str, Any] = {
        "issuer": "bank",
        "extract": "bank-20261121.csv",
        "opened": get_args(Gate),
    }
    resubmit: dict[str, Any] = {"run": run, "errors": True, "reason": "the portal was down"}

    for command, case in {
        "submit": submit,
        "resubmit": with_rows(tmp_path, "resubmit", **resubmit),
    }.items():
        asked = ACTING[command].invoke(Context(tmp_path, actor="anna"), case)
        approve = asked.facts["request"]
        done = ACTING[command].invoke(
            Context(tmp_path, actor="bert", options={"approve": approve}), case
        )

        assert (3, 0) == (asked.exit_code, done.exit_code)
    assert 3 == len(list(bench.runs))


@pytest.mark.parametrize("command", ["outbox cancel", "purge", "deliver"])
@pytest.mark.parametrize("nobody", ["", " ", "."])
def test_nobody_is_no_person_neither_as_the_first_nor_as_the_second(
    tmp_path: Path, command: str, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARDLINK_ACTORS", ".*")
    case = CASES[command](tmp_path)
    need_two(tmp_path)
    acting = ACTING[command]

    with pytest.raises(NobodyError):
        acting.invoke(Context(tmp_path, actor=nobody), case)
    approve = acting.invoke(Context(tmp_path, actor="anna"), case).facts["request"]
    with pytest.raises(NobodyError):
        acting.invoke(Context(tmp_path, actor=nobody, options={"approve": approve}), case)


@pytest.mark.parametrize(
    ("first", "second", "is_one"),
    [
        ("alice", "al.ice", True),
        ("alice", "ALICE", True),
        ("alice", "a l-i+c_e", True),
        ("alice", "ａｌｉｃｅ", True),
        ("alice", "аlісе", True),  # Cyrillic letters among the Latin ones
        ("straße", "STRASSE", True),
        ("alice", "alice2", False),
        ("alice", "bert", False),
        ("alice", "alice@bank.example", False),
    ],
)
def test_names_are_one_person_where_they_differ_in_case_punctuation_width_or_spaces(
    first: str, second: str, is_one: bool
) -> None:
    assert is_one is (normalised(first) == normalised(second))


def test_every_command_that_decides_something_is_an_act_or_is_said_why_not() -> None:
    deciding = {each.name for each in ENTRIES if each.changes and each.has_parameter("reason")}

    assert deciding <= ACTING.keys() | ALONE.keys()
    assert {act for each in ENTRIES for act in each.acts} | {"mapping"} == set(get_args(Act))


def parameters(entry: Entry[...]) -> set[str]:
    return {each.name for each in entry.parameters}


def test_every_act_has_the_field_for_the_other_persons_request() -> None:
    assert [] == [each.name for each in ACTING.values() if "approve" not in parameters(each)]


def test_the_refusal_says_who_may(tmp_path: Path) -> None:
    case: dict[str, Any] = CASES["outbox cancel"](tmp_path)
    need_two(tmp_path)

    asked = ACTING["outbox cancel"].invoke(Context(tmp_path, actor="anna"), case)

    assert "anybody but anna whose name CARDLINK_ACTORS accepts" in asked.sentence


# what has no dry run, or is held to it elsewhere
OTHERS: dict[str, dict[str, Any]] = {
    "submit": {"issuer": "bank"},
    "ingest": {"issuer": "bank"},
    "renew": {"issuer": "bank", "within_days": 7},
    "placements": {"issuer": "bank"},
    "link": {"target": "bank", "prompt": True},
    "resubmit": {"run": "bank", "errors": True, "reason": "x"},
    "backfill": {"issuer": "bank", "first_day": DAY, "last_day": DAY},
}
TOGETHER = {"questions", "answers", "reconcile"}  # they report each issuer that refuses, and go on
BY_NUMBER = {"decide"}  # what it carries out refuses
FIRST = (*OTHERS, *SOME)  # whatever sends is among them


@pytest.mark.parametrize(
    "command", quick(len(FIRST), [*FIRST, *sorted(CASES.keys() - {*FIRST, "agree"})])
)
def test_every_command_that_changes_something_refuses_settings_nobody_agreed_to(
    tmp_path: Path, command: str
) -> None:
    prepared = CASES.get(command) or (lambda folder: after_a_night(folder, OTHERS[command]))
    case = prepared(tmp_path)
    need_two(tmp_path)
    agree = ACTING["agree"]
    agree.invoke(Context(tmp_path, actor="anna"), {"issuer": "bank", "reason": "the first"})
    with (tmp_path / "bank.toml").open("a") as toml:
        toml.write("hours = 168\n")
    before = {file: file.read_bytes() for file in (tmp_path / "store").rglob("*") if file.is_file()}
    changing = next(each for each in ENTRIES if each.name == command)

    with pytest.raises(SettingsNotAgreedError, match=r"four_eyes\.hours: 24 -> 168"):
        changing.invoke(Context(tmp_path, actor="anna"), case)

    assert before == {file: file.read_bytes() for file in before}


def after_a_night(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    """Make a night that was answered, and return the case."""
    answered(folder)
    return case


def test_every_command_that_changes_something_is_among_them() -> None:
    changing = {each.name for each in ENTRIES if each.changes} | {"upload"}  # with --done

    assert changing == {*CASES, *OTHERS, *TOGETHER, *BY_NUMBER, "recover"}
