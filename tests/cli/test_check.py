"""`cardlink check` says everything at once: settings, keys, store, mapping, columns, rows; and
`cardlink settings`.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.submissions.sample import Sample
from schemas.portal import CITY, CUID, CVV, CVV_HASH, FIRST_NAME, PAN, POSTAL_CODE, YEAR, columns
from schemas.reference import SCHEMA_FILE, every_key, json_schema
from schemas.tables import Rejects
from tests import keys as gpg
from tests.builders import portal_rows
from tests.cli.test_keys_and_names import configured
from tests.night import portal_csv
from tests.test_command_line import cardlink

EXTRACT = "bank-20261120.csv"
BAD = ({CITY: None}, {POSTAL_CODE: "2"}, {PAN: "4111111111111112"}, {FIRST_NAME: None})


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    """Return the folder of an issuer whose extract has nineteen rows, four of them to refuse."""
    configured(tmp_path, gpg.sound(), more="[limits]\nmax_reject_rate = 0.5\n")
    drop(tmp_path, portal_csv(portal_rows(*BAD, *({} for _ in range(15)))))
    return tmp_path


def drop(folder: Path, content: bytes) -> None:
    (folder / "store" / "bank" / "extracts" / EXTRACT).write_bytes(content)


def change(folder: Path, old: str, new: str) -> None:
    file = folder / "bank.toml"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def found(folder: Path, *arguments: str) -> tuple[int, dict[str, str], Any]:
    """Check; return the exit code, the error of each part that is wrong, and all facts."""
    done = cardlink(folder, "--json", "check", "bank", *arguments)
    facts = json.loads(done.stdout)
    return (
        done.returncode,
        {one["part"]: one["error"] for one in facts["checks"] if one["error"]},
        facts,
    )


def test_a_sound_issuer_is_ok_in_every_part(bank: Path) -> None:
    done = cardlink(bank, "check", "bank", EXTRACT)

    words = [
        line.split()[:2]
        for line in done.stdout.splitlines()
        if line.startswith(("settings", "key", "store"))
    ]
    parts = [["settings", "ok"], ["key", "ok"], ["store", "ok"], ["settings", "ok"]]
    assert (0, parts) == (done.returncode, words)
    assert "mapping   ok" in done.stdout
    assert "15 of 19 rows in 1 chunk would be sent" in done.stdout


def test_everything_that_is_wrong_is_said_at_once_and_the_worst_decides(bank: Path) -> None:
    (bank / "portal.asc").write_text("no key")
    change(bank, "max_reject_rate = 0.5", "max_reject_rate = 0.1\nmax_row_jmp = 1")
    change(bank, "[portal]", '[source]\nencoding = "ascii"\n[schedule]\ncountry = "XX"\n[portal]')
    drop(bank, portal_csv(portal_rows(*BAD)).replace(CITY.encode(), b"TOWN"))

    code, wrong, facts = found(bank, EXTRACT)

    parts = {
        "settings": "ConfigurationError",
        "schedule": "UnknownCalendarError",
        "key": "UnreadableKeyError",
        "mapping": "MappingError",
    }
    assert (2, [*parts, "file"]) == (code, [*wrong])
    assert parts["settings"] == wrong["settings"]
    of_mapping = [one["text"] for one in facts["checks"] if one["part"] == "mapping"]
    assert [True, True] == [
        "it has no column" in of_mapping[0],
        "unknown columns: TOWN" in of_mapping[1],
    ]
    assert "RejectRateError" in [one["error"] for one in facts["checks"] if one["part"] == "file"]
    assert all(
        "max_row_jmp" in one["text"]
        for one in facts["checks"]
        if one["error"] == "ConfigurationError"
    )


def test_every_gate_that_would_refuse_the_run_is_named(bank: Path) -> None:
    change(bank, "test = true", "test = false")
    change(bank, "max_reject_rate = 0.5", "max_reject_rate = 0.1")

    code, _, facts = found(bank, EXTRACT)

    errors = [one["error"] for one in facts["checks"] if one["part"] == "file"]
    assert (2, ["WrongCardsError", "RejectRateError"]) == (code, errors)


def test_a_store_that_cannot_be_reached_does_not_hide_a_wrong_key(bank: Path) -> None:
    (bank / "portal.asc").write_text("no key")
    change(bank, 'root = "store"', 'root = "bank.toml"')

    code, wrong, _ = found(bank, EXTRACT)

    assert (2, ["key", "store", "file"]) == (code, [*wrong])


def test_a_truncated_extract_still_shows_its_columns(bank: Path) -> None:
    drop(bank, portal_csv(portal_rows(*({} for _ in range(20))))[:-30])

    code, wrong, facts = found(bank, EXTRACT)

    assert (2, {"file": "TruncatedError"}) == (code, wrong)
    assert [*columns()] == [one["column"] for one in facts["columns"]]


def test_the_columns_say_where_they_come_from_how_much_there_is_and_what_is_refused(
    bank: Path,
) -> None:
    mapping = "".join(f'"{name}" = "{name}"\n' for name in columns() if name != POSTAL_CODE)
    change(
        bank,
        "[portal]",
        f'[columns]\n{mapping}"{POSTAL_CODE}" = {{ from = "{POSTAL_CODE}", pad = 3 }}\n[portal]',
    )

    _, _, facts = found(bank, EXTRACT)

    shown = {one["column"]: one for one in facts["columns"]}
    assert (f'"{CITY}"', 0.947, "1 missing (reject)") == tuple(
        shown[CITY][one] for one in ("from", "filled", "verdicts")
    )
    assert f'{{ from = "{POSTAL_CODE}", pad = 3 }}' == shown[POSTAL_CODE]["from"]
    assert "99999  999" == shown[POSTAL_CODE]["shapes"]
    assert "1 luhn (reject)" == shown[PAN]["verdicts"]


def test_nothing_shown_is_a_cell(bank: Path) -> None:
    rows = portal_rows(*({CUID: f"kunde-{number}", CITY: "Žilina"} for number in range(20)))
    drop(bank, portal_csv(rows))

    done = cardlink(bank, "check", "bank", EXTRACT)

    cells = {
        str(cell)
        for row in csv.reader(portal_csv(rows).decode().splitlines()[1:])
        for cell in row
        if len(cell) > 3
    }
    assert [] == [cell for cell in cells if cell in done.stdout]
    assert "AAAAA-9" in done.stdout
    assert "AAAAAA" in done.stdout


def test_a_hash_has_no_shape() -> None:
    signs = "ab+/" * 10 + "abc="
    sample = Sample()

    sample.add(pl.DataFrame({"row": [1], "line": [2], CVV_HASH: [signs]}))

    assert (1.0, ["A" * 20 + "..."]) == sample.look(CVV_HASH)


def test_the_rejects_file_has_every_row_that_would_not_be_sent_and_no_card_number(
    bank: Path,
) -> None:
    done = cardlink(bank, "check", "bank", EXTRACT, "--rejects", "rejects.csv")

    text = (bank / "rejects.csv").read_text()
    listed = Rejects.validate(pl.read_csv(bank / "rejects.csv", schema=Rejects.dtypes()))
    assert "rejects   ok     rejects.csv: 4 lines" in done.stdout
    assert [1, 2, 3, 4] == sorted(set(listed["row"]))
    assert 0o600 == (bank / "rejects.csv").stat().st_mode & 0o777
    assert "4111111111111112" not in text


def test_the_rejects_file_says_what_was_found_in_shape_and_of_a_cvv_only_its_length(
    bank: Path,
) -> None:
    bad = (
        {YEAR: "11/27"},
        {PAN: "4111x"},
        {CVV: "1x2"},
        {CVV: None, CVV_HASH: "a1b2c3d4"},
        {CITY: None},
    )
    drop(bank, portal_csv(portal_rows(*bad, *({} for _ in range(14)))))

    cardlink(bank, "check", "bank", EXTRACT, "--rejects", "rejects.csv")

    listed = pl.read_csv(bank / "rejects.csv", schema=Rejects.dtypes())
    assert dict(listed.select("column", "found").iter_rows()) == {
        YEAR: "shape 99/99",
        PAN: "shape 9999A",
        CVV: "3 characters",
        CVV_HASH: "8 characters",
        CITY: "empty",
    }


def test_a_rejects_file_that_cannot_be_written_is_one_finding_among_the_others(bank: Path) -> None:
    code, wrong, facts = found(bank, EXTRACT, "--rejects", "nowhere/rejects.csv")

    assert (2, {"rejects": "FileNotFoundError"}) == (code, wrong)
    assert facts["columns"]


@pytest.mark.slow
def test_no_file_is_named_that_was_not_written(bank: Path) -> None:
    change(bank, "max_reject_rate = 0.5", "max_reject_rate = 0.1")

    tried = [
        cardlink(bank, "check", "bank", EXTRACT),
        cardlink(bank, "submit", "bank", "--dry-run"),
    ]
    taken = cardlink(bank, "check", "bank", EXTRACT, "--rejects", "portal.asc")

    assert [3, 3, 2] == [one.returncode for one in (*tried, taken)]
    assert all("rejects.csv" not in one.stdout + one.stderr for one in tried)
    assert all(f'`cardlink check bank {EXTRACT} --rejects "FILE"`' in one.stdout for one in tried)
    assert "portal.asc already exists" in taken.stderr


def test_files_that_not_everybody_can_read_are_named(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = bank / "secret.asc"
    secret.write_bytes(gpg.sound().secret)
    secret.chmod(0o600)
    (bank / "portal.asc").chmod(0o644)
    (bank / "bank.toml").chmod(0o640)
    group = (bank / "bank.toml").stat().st_gid
    monkeypatch.setenv("CARDLINK_PRIVATE_KEY_FILE", str(secret))

    code, wrong, facts = found(bank)

    then = "can read it; run this check as the nightly process's user too"
    toml = f"bank.toml: only user {os.getuid()} and group {group} {then}"
    unproven, *others = reversed(facts["warnings"])
    assert (0, {}, [f"{secret}: only user {os.getuid()} {then}", toml]) == (code, wrong, others)
    assert unproven.startswith("nothing proves an extract whole")
    assert "own key" in [one["part"] for one in facts["checks"]]


def test_a_dry_run_names_the_lines_of_the_file_whose_rows_are_refused(bank: Path) -> None:
    done = json.loads(cardlink(bank, "--json", "submit", "bank", "--dry-run").stdout)

    lines = {each["code"]: each["lines"] for each in done["extracts"][0]["found"]}
    assert ([2], [4]) == (lines["address.city.missing"], lines["card.pan.luhn"])


@pytest.mark.slow
def test_a_dry_run_says_which_columns_came(bank: Path) -> None:
    mapping = "".join(f'"{name}" = "{name}"\n' for name in columns())
    change(bank, "[limits]", f"[columns]\n{mapping}[limits]")
    assert 0 == cardlink(bank, "submit", "bank").returncode
    header, *rows = portal_csv(portal_rows({}, {})).decode().splitlines()
    lines = [f"{header},SEGMENT", *(f"{row},x" for row in rows)]
    later = bank / "store" / "bank" / "extracts" / "bank-20261121.csv"
    later.write_text("\n".join(lines) + "\n")

    done = cardlink(bank, "submit", "bank", "--dry-run")

    assert "bank-20261121.csv has new columns: SEGMENT" in done.stdout


@pytest.mark.slow
def test_a_submit_says_where_nothing_proves_its_extract_whole_and_a_trailer_ends_that(
    bank: Path,
) -> None:
    unproven = json.loads(cardlink(bank, "--json", "submit", "bank").stdout)
    again = json.loads(cardlink(bank, "--json", "submit", "bank", "--extract", EXTRACT).stdout)
    trailed = portal_csv(portal_rows({}, {})) + b"TRL|2\n"
    (bank / "store" / "bank" / "extracts" / "bank-20261121.csv").write_bytes(trailed)
    change(bank, "[limits]", "[source]\ntrailer = '^TRL\\|([0-9]+)$'\n[limits]")

    proven = json.loads(cardlink(bank, "--json", "submit", "bank").stdout)

    [remark] = unproven["remarks"]
    assert remark.startswith("nothing proves an extract whole")
    assert ([], []) == (again["remarks"], proven["remarks"])


def test_a_private_key_that_opens_nothing_is_found_before_the_night(
    bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CARDLINK_PRIVATE_KEY_FILE", str(bank / "nowhere.asc"))

    code, wrong, _ = found(bank, EXTRACT)

    assert 2 == code
    assert "FileUnreadableError" == wrong["own key"]


def test_settings_prints_every_key_with_its_example(tmp_path: Path) -> None:
    done = cardlink(tmp_path, "settings")

    lines = done.stdout.splitlines()
    assert 0 == done.returncode
    assert [] == [
        one.path for one in every_key() if f"    example: {one.name} = {one.example}" not in lines
    ]


@pytest.mark.parametrize("key", ["encoding", "source.encoding"])
def test_settings_explains_one_key(tmp_path: Path, key: str) -> None:
    done = cardlink(tmp_path, "settings", key)

    name, help_text = done.stdout.splitlines()[:2]
    assert "source.encoding" == name
    assert help_text.startswith("    character encoding; never guessed. `cp037`, `cp500`")
    assert 'example: encoding = "cp1252"' in done.stdout


def test_settings_names_the_nearest_of_a_key_that_does_not_exist(tmp_path: Path) -> None:
    done = cardlink(tmp_path, "settings", "encodng")

    assert (2, "") == (done.returncode, done.stdout)
    assert "Did you mean source.encoding?" in done.stderr


def test_init_writes_the_schema_that_the_first_line_of_the_toml_names(tmp_path: Path) -> None:
    cardlink(tmp_path, "init", "first-bank")
    first = (tmp_path / SCHEMA_FILE).read_text()
    (tmp_path / SCHEMA_FILE).write_text("{}")

    cardlink(tmp_path, "settings", "--schema")

    assert json_schema() == json.loads(first) == json.loads((tmp_path / SCHEMA_FILE).read_text())
    assert f"#:schema ./{SCHEMA_FILE}" == (tmp_path / "first-bank.toml").read_text().splitlines()[0]
