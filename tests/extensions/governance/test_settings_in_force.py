"""Settings are governed: recorded, told in plain words when they change, and agreed to by two."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Connection, Executable, delete, insert, select, update

from flows.cli.main import main
from flows.database.connection import Database
from flows.extensions.governance.changes import Change
from flows.extensions.governance.in_force import SettingsLostError, SettingsNotAgreedError
from flows.extensions.governance.requests import number_of
from flows.extensions.governance.tables import REQUEST, SETTINGS_IN_FORCE
from flows.extensions.governance.two_persons import ApprovalError, RequestChangedError
from flows.operations.evidence import evidence
from flows.registry import ENTRIES
from flows.wiring import open_store
from tests import keys
from tests.builders import quick
from tests.night import Bench, issuer

TOML = """
issuer = "bank"
root = "store"
test = true
[limits]
max_reject_rate = 0.05
[portal]
key_file = "portal.asc"
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
rows_per_chunk = 10
"""
TWO = '[four_eyes]\nacts = ["settings", "gates", "release"]\n'
EXTRACT = "bank-20261120.csv"
GATE = ("submit", "bank", "--extract", EXTRACT, "--open", "reject-rate")
AGREE = ("agree", "bank", "--reason", "ticket 7")


def ours() -> str:
    """Return the fingerprint of the portal's key."""
    return keys.sound().fingerprint


def theirs() -> str:
    """Return that of somebody else's."""
    return keys.sound(copy=2).fingerprint


@pytest.fixture
def bank(tmp_path: Path) -> Bench:
    """Return the bench that writes where the command line of `tmp_path` reads."""
    (tmp_path / "store").mkdir()
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    write(tmp_path, TOML)
    return Bench(
        open_store(issuer(), tmp_path),
        issuer(),
        now=lambda: datetime.now(UTC),
        database=Database(tmp_path / "cardlink.db"),
    )


def write(folder: Path, toml: str, **changes: str) -> None:
    """Write the issuer's TOML, with texts replaced."""
    toml = toml.replace("{fingerprint}", ours())
    for before, after in changes.items():
        toml = toml.replace(before, after)
    (folder / "bank.toml").write_text(toml)


def point_at_another_key(folder: Path) -> None:
    """Let the TOML name another portal's key, and put that key beside it."""
    toml = (folder / "bank.toml").read_text()
    (folder / "bank.toml").write_text(toml.replace(ours(), theirs()))
    (folder / "portal.asc").write_bytes(keys.sound(copy=2).public)


def typed(folder: Path, *arguments: str, who: str = "", approve: str = "") -> Result:
    line = [*arguments]
    line += ["--actor", who] if who else []
    line += ["--approve", approve] if approve else []
    return CliRunner().invoke(main, ["--config", str(folder), "--json", *line])


def facts(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def requested(folder: Path, *arguments: str, who: str = "anna") -> str:
    done = typed(folder, *arguments, who=who)
    assert done.exit_code == 3, done.stdout
    return str(facts(done)["request"])


def recorded(bank: Bench) -> list[dict[str, Any]]:
    """Return the settings that were in force, one after another."""
    query = select(SETTINGS_IN_FORCE).order_by(SETTINGS_IN_FORCE.c.number)
    with bank.database.snapshot() as connection:
        return [dict(row) for row in connection.execute(query).mappings()]


def attack(bank: Bench, *statements: Executable) -> None:
    """Do what somebody can who may write to the database."""

    def work(connection: Connection) -> None:
        for statement in statements:
            connection.execute(statement)

    bank.database.act("bank", work)


def proved(folder: Path) -> tuple[int, set[str]]:
    """Return how `audit verify` ends, and what it finds."""
    done = typed(folder, "audit", "verify", "bank")
    return done.exit_code, {finding["key"] for finding in facts(done)["findings"]}


def refused(done: Result) -> tuple[int, str]:
    return done.exit_code, facts(done)["error"]


def test_the_first_command_records_the_settings_it_finds_and_the_next_says_nothing(
    bank: Bench, tmp_path: Path
) -> None:
    bank.drop(20)

    first = facts(typed(tmp_path, "submit", "bank", who="anna"))
    second = facts(typed(tmp_path, "submit", "bank", who="anna"))

    [record] = recorded(bank)
    [told] = first["settings_changed"]
    assert "record 1" in told
    assert "settings_changed" not in second
    assert ("found", 1) == (record["what"], record["number"])
    assert [ours()] == record["settings"]["portal.fingerprints"]


def test_the_evidence_of_a_run_has_the_settings_that_it_was_made_with(
    bank: Bench, tmp_path: Path
) -> None:
    bank.drop(20)
    [made] = facts(typed(tmp_path, "submit", "bank", who="anna"))["runs"]
    write(tmp_path, TOML, **{"0.05": "0.2"})
    bank.answer()
    typed(tmp_path, "ingest", "bank", who="anna")

    files = evidence(bank.context, made["run"])

    first, _ = recorded(bank)
    settings = json.loads(files["settings_in_force.json"])
    assert (1, first["settings"]) == (settings["number"], settings["settings"])


def test_without_four_eyes_a_change_is_recorded_and_told_in_plain_words_by_run_and_check(
    bank: Bench, tmp_path: Path
) -> None:
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    write(tmp_path, TOML, **{"0.05": "0.2", "links.example.com": "links2.example.com"})
    checked = facts(typed(tmp_path, "check", "bank"))
    bank.drop(20, "bank-20261121.csv", seed=3)

    done = typed(tmp_path, "submit", "bank", who="bert")

    host = "portal.allowed_hosts: links.example.com -> links2.example.com"
    limit = "limits.max_reject_rate: 0.05 -> 0.2"
    [told] = facts(done)["settings_changed"]
    assert 0 == done.exit_code
    assert f"{limit}; {host}" in told
    texts = [each["text"] for each in checked["checks"] if each["part"] == "settings"]
    assert [limit, host] == [text.partition(": ")[2] for text in texts if "changed since" in text]
    before, after = recorded(bank)
    assert "bert via" in after["by"]
    assert before["settings"] != after["settings"]


def test_a_dry_run_tells_a_change_and_records_nothing(bank: Bench, tmp_path: Path) -> None:
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    before = bank.snapshot()
    write(tmp_path, TOML, **{"0.05": "0.2"})

    done = facts(typed(tmp_path, "submit", "bank", "--dry-run"))

    assert "max_reject_rate: 0.05 -> 0.2" in str(done["settings_changed"])
    assert before == bank.snapshot()


@pytest.mark.parametrize(
    ("before", "after"),
    quick(
        3,
        [
            (ours, theirs),
            (TWO, ""),
            ("max_reject_rate = 0.05", "max_reject_rate = 1.0"),
            ("links.example.com", "evil.example.com"),
            ('"settings", ', ""),
            ("[limits]", "[retention]\nchunks_days = 0\n[limits]"),
        ],
    ),
)
def test_a_change_that_needs_two_is_refused_with_exit_code_3_and_the_command_that_agrees(
    bank: Bench,
    tmp_path: Path,
    before: str | Callable[[], str],
    after: str | Callable[[], str],
) -> None:
    before = before if isinstance(before, str) else before()
    after = after if isinstance(after, str) else after()
    write(tmp_path, TOML + TWO)
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    bank.drop(20, "bank-20261121.csv", seed=3)
    stored = bank.snapshot()
    write(tmp_path, TOML + TWO, **{before: after})

    done = typed(tmp_path, "submit", "bank", who="anna")

    assert (3, SettingsNotAgreedError.__name__) == refused(done)
    assert 'cardlink agree bank --reason "WHY"' in facts(done)["message"]
    assert " -> " in facts(done)["message"]
    assert stored == bank.snapshot()


def test_four_eyes_cannot_be_taken_out_of_the_file_by_one_even_where_settings_are_not_named(
    bank: Bench, tmp_path: Path
) -> None:
    two = '[four_eyes]\nacts = ["release"]\n'
    write(tmp_path, TOML + two)
    bank.drop(20)
    [made] = facts(typed(tmp_path, "submit", "bank", who="anna"))["runs"]
    held = typed(tmp_path, "outbox", "hold", made["run"], "1", "--reason", "x", who="anna")
    write(tmp_path, TOML)

    done = typed(tmp_path, "outbox", "release", made["run"], "--reason", "x", who="anna")

    assert 0 == held.exit_code
    assert (3, SettingsNotAgreedError.__name__) == refused(done)
    assert "four_eyes.acts: release -> none" in facts(done)["message"]


@pytest.mark.slow
def test_two_persons_agree_and_the_run_goes_on(bank: Bench, tmp_path: Path) -> None:
    write(tmp_path, TOML + TWO)
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    write(tmp_path, TOML + TWO, **{"0.05": "0.2"})

    number = requested(tmp_path, *AGREE)
    alone = typed(tmp_path, *AGREE, who="anna", approve=number)
    agreed = typed(tmp_path, *AGREE, who="bert", approve=number)
    bank.drop(20, "bank-20261121.csv", seed=3)
    done = typed(tmp_path, "submit", "bank", who="anna")

    assert (2, ApprovalError.__name__) == refused(alone)
    assert ["limits.max_reject_rate: 0.05 -> 0.2"] == facts(agreed)["changes"]
    assert 0 == done.exit_code
    assert "settings_changed" not in facts(done)
    assert ["found", "agreed"] == [record["what"] for record in recorded(bank)]
    assert recorded(bank)[1]["by"].startswith("bert for anna via ")
    assert 0 == typed(tmp_path, "audit", "verify", "bank").exit_code


def test_who_agreed_to_one_change_did_not_agree_to_what_was_typed_after(
    bank: Bench, tmp_path: Path
) -> None:
    write(tmp_path, TOML + TWO)
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    write(tmp_path, TOML + TWO, **{"0.05": "0.06"})
    number = requested(tmp_path, *AGREE)
    write(tmp_path, TOML + TWO, **{"0.05": "0.9"})

    done = typed(tmp_path, *AGREE, who="bert", approve=number)

    assert (2, ApprovalError.__name__) == refused(done)
    assert "0.05 -> 0.9" in facts(done)["message"]
    assert ["found"] == [record["what"] for record in recorded(bank)]


@pytest.mark.slow
def test_a_mapping_is_told_and_needs_two_only_where_the_table_says_so(
    bank: Bench, tmp_path: Path
) -> None:
    write(tmp_path, TOML + TWO)
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    mapped = TOML + '[rules]\nluhn = "off"\n'
    write(tmp_path, mapped + TWO)
    alone = typed(tmp_path, "outbox", "uploaded", run_of(bank), who="anna")
    by_two = mapped.replace("off", "warn") + TWO.replace("settings", "mapping")
    write(tmp_path, by_two)
    number = requested(tmp_path, *AGREE)
    assert 0 == typed(tmp_path, *AGREE, who="bert", approve=number).exit_code
    write(tmp_path, by_two.replace("warn", "off"))

    done = typed(tmp_path, "outbox", "release", run_of(bank), "--reason", "x", who="anna")

    assert 'rules.luhn: "reject" -> "off"' in str(facts(alone)["settings_changed"])
    assert (3, SettingsNotAgreedError.__name__) == refused(done)


def run_of(bank: Bench) -> str:
    return str(next(iter(bank.runs.ids)))


@pytest.mark.parametrize("two", quick(1, [TWO, '[four_eyes]\nacts = ["gates"]\n']))
def test_an_approval_does_not_carry_over_to_another_portal_key(
    bank: Bench, tmp_path: Path, two: str
) -> None:
    write(tmp_path, TOML + two)
    bank.drop(20, bad=0.3)
    number = requested(tmp_path, *GATE)
    point_at_another_key(tmp_path)

    done = typed(tmp_path, *GATE, who="bert", approve=number)

    assert done.exit_code in (2, 3)
    assert f"portal.fingerprints: {ours()} -> {theirs()}" in facts(done)["message"]
    assert not [entry for entry in bank.store.keys("bank/runs/") if "/chunks/" in entry.key]
    assert not list(bank.runs.committed())


@pytest.mark.parametrize("field", quick(2, ["actor", "files", "line", "until", "would"]))
def test_a_request_that_was_edited_in_the_database_is_refused_and_found(
    bank: Bench, tmp_path: Path, field: str
) -> None:
    write(tmp_path, TOML + TWO)
    bank.drop(20, bad=0.3)
    number = requested(tmp_path, *GATE)
    edits = {"actor": "bert", "files": {}, "until": datetime(2099, 1, 1, tzinfo=UTC), "would": {}}
    edited = {field: edits.get(field, "x")}
    attack(bank, update(REQUEST).where(REQUEST.c.number == number).values(**edited))

    done = typed(tmp_path, *GATE, who="anna" if field == "actor" else "bert", approve=number)

    assert (2, RequestChangedError.__name__) == refused(done)
    assert not list(bank.runs.committed())
    assert (4, {f"request/{number}"}) == proved(tmp_path)


def test_a_request_put_into_the_database_in_the_name_of_another_is_refused_and_found(
    bank: Bench, tmp_path: Path
) -> None:
    write(tmp_path, TOML + TWO)
    bank.drop(20, bad=0.3)
    number = requested(tmp_path, *GATE)
    with bank.database.snapshot() as connection:
        [row] = connection.execute(select(REQUEST)).mappings()
    forged = {**row, "actor": "bert"}
    forged["number"] = number_of(forged)
    attack(bank, insert(REQUEST).values(**forged))

    done = typed(tmp_path, *GATE, who="anna", approve=forged["number"])

    assert number == row["number"]
    assert "it is not as the journal has it" in facts(done)["message"]
    assert not list(bank.runs.committed())
    assert (4, {f"request/{forged['number']}"}) == proved(tmp_path)


def test_a_request_whose_use_was_removed_from_the_database_is_not_used_again(
    bank: Bench, tmp_path: Path
) -> None:
    write(tmp_path, TOML + TWO)
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    line = ("outbox", "release", run_of(bank), "1", "--reason", "x")
    typed(tmp_path, "outbox", "hold", run_of(bank), "1", "--reason", "x", who="anna")
    number = requested(tmp_path, *line)
    typed(tmp_path, *line, who="bert", approve=number)
    typed(tmp_path, "outbox", "hold", run_of(bank), "1", "--reason", "y", who="carl")
    unused = {"state": "made", "second": None, "second_by": None}
    attack(bank, update(REQUEST).where(REQUEST.c.number == number).values(**unused))

    done = typed(tmp_path, *line, who="bert", approve=number)

    assert "it is not as the journal has it" in facts(done)["message"]
    assert (4, {f"request/{number}"}) == proved(tmp_path)


def test_a_request_is_refused_with_the_difference_once_its_subject_is_another(
    bank: Bench, tmp_path: Path
) -> None:
    write(tmp_path, TOML + TWO)
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    run = run_of(bank)
    typed(tmp_path, "outbox", "hold", run, "1", "--reason", "x", who="anna")
    line = ("outbox", "release", run, "--rows", "10", "--reason", "x")
    number = requested(tmp_path, *line)
    typed(tmp_path, "outbox", "hold", run, "2", "--reason", "x", who="carl")
    typed(tmp_path, "outbox", "cancel", run, "1", "--reason", "x", who="carl")  # as many rows

    done = typed(tmp_path, *line, who="bert", approve=number)

    assert (2, ApprovalError.__name__) == refused(done)
    assert "chunks.1.number: 1 -> 2" in facts(done)["message"]


def test_settings_whose_records_were_removed_are_not_recorded_anew(
    bank: Bench, tmp_path: Path
) -> None:
    write(tmp_path, TOML + TWO)
    bank.drop(20)
    typed(tmp_path, "submit", "bank", who="anna")
    attack(bank, delete(SETTINGS_IN_FORCE))
    write(tmp_path, TOML)

    done = typed(tmp_path, "submit", "bank", who="anna")

    assert (4, SettingsLostError.__name__) == refused(done)
    assert [] == recorded(bank)
    assert (4, {"settings_in_force/1"}) == proved(tmp_path)


def test_no_setting_that_only_identifies_or_opens_something_is_stored(
    bank: Bench, tmp_path: Path
) -> None:
    secrets = ("fi-4711-key", "safe-4711-key", "token-4711")
    service = (
        f'[service]\nbase_url = "https://api.example.com"\nfi_key = "{secrets[0]}"\n'
        f'safe_key = "{secrets[1]}"\n'
        f'[alerts]\nreport_url = "https://reports.example.com/{secrets[2]}"\n'
    )
    write(tmp_path, TOML + service)
    bank.drop(20)

    typed(tmp_path, "submit", "bank", who="anna")

    [record] = recorded(bank)
    assert "https://reports.example.com" == record["settings"]["alerts.report_url"]
    assert not [secret for secret in secrets if secret in str(record)]


def test_every_command_that_changes_something_is_refused_under_settings_nobody_agreed_to() -> None:
    exempt = [entry.name for entry in ENTRIES if entry.changes and not entry.is_governed]

    assert {"agree", "recover"} == set(exempt)


def test_a_change_of_how_extracts_are_read_is_one_of_the_mapping() -> None:
    acts = [Change(name, 1, 2).act for name in ("source.delimiter", "four_eyes.hours")]

    assert ["mapping", "settings"] == acts
