"""Persons with keys: requests and approvals count only with a signature, made by real gpg."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import select

from flows.adapters.local import LocalStore
from flows.cli.main import main
from flows.commands.context import Context
from flows.commands.outbox import cancel
from flows.database.connection import Database
from flows.extensions.governance.requests import UNSIGNED, WHOLE, number_of, of_names
from flows.extensions.governance.signatures import is_signed_by
from flows.extensions.governance.tables import REQUEST
from flows.extensions.governance.two_persons import NotProvedError, RequestChangedError
from flows.runs.journal import Act, enter
from tests import keys
from tests.night import edges
from tests.test_dry_runs import outbox

TWO = """
[four_eyes]
acts = ["cancel"]
[four_eyes.persons]
anna = "{anna}"
bert = "{bert}"
"""
KEYS = {"anna": keys.sound(copy=11), "bert": keys.sound(copy=12), "mallory": keys.sound(copy=13)}


@pytest.fixture
def run(tmp_path: Path) -> str:
    """A committed run of an issuer that pins the keys of two persons."""
    made = outbox(tmp_path)
    with (tmp_path / "bank.toml").open("a") as toml:
        toml.write(TWO.format(anna=KEYS["anna"].fingerprint, bert=KEYS["bert"].fingerprint))
    (tmp_path / "persons").mkdir()
    (tmp_path / "persons" / "anna.asc").write_bytes(KEYS["anna"].public)
    (tmp_path / "persons" / "bert.asc").write_bytes(KEYS["bert"].public)
    return str(made["run"])


def typed(folder: Path, run: str, who: str, key: str, approve: str = "") -> Result:
    """Cancel the chunks of a run as somebody with that person's key."""
    environment: dict[str, str | None] = {"CARDLINK_PERSON_KEY_FILE": None}
    if key:
        file = folder / f"{key}.secret.asc"
        file.write_bytes(KEYS[key].secret)
        environment["CARDLINK_PERSON_KEY_FILE"] = str(file)
    line = ["outbox", "cancel", run, "1", "--reason", "ticket 7", "--actor", who]
    line += ["--approve", approve] if approve else []
    config = ["--config", str(folder), "--json"]
    return CliRunner(env=environment).invoke(main, [*config, *line])


def facts(done: Result) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def stored(folder: Path) -> dict[str, Any]:
    """Return the one request that is stored."""
    with Database(folder / "cardlink.db").snapshot() as connection:
        [row] = connection.execute(select(REQUEST)).mappings()
    return {str(name): value for name, value in row.items()}


def test_two_persons_act_with_their_keys_and_both_signatures_are_stored(
    tmp_path: Path, run: str
) -> None:
    number = facts(typed(tmp_path, run, "anna", "anna"))["request"]

    done = typed(tmp_path, run, "bert", "bert", number)

    row = stored(tmp_path)
    anna = KEYS["anna"]
    bert = KEYS["bert"]
    assert 0 == done.exit_code
    assert (number, "ended") == (row["number"], row["state"])
    assert is_signed_by(of_names(row, UNSIGNED), row["signature"], anna.public, anna.fingerprint)
    second = (of_names(row, WHOLE), row["second_signature"])
    assert is_signed_by(*second, bert.public, bert.fingerprint)


@pytest.mark.parametrize(
    ("who", "key", "why"),
    [
        ("anna", "", "no key of theirs is at hand"),
        ("anna", "bert", "the key at hand is not theirs"),
        ("anna", "mallory", "the key at hand is not theirs"),
        ("mallory", "mallory", "[four_eyes] persons does not name them"),
    ],
)
def test_a_name_without_its_persons_signature_neither_requests_nor_approves(
    tmp_path: Path, run: str, who: str, key: str, why: str
) -> None:
    number = facts(typed(tmp_path, run, "bert", "bert"))["request"]

    requested = typed(tmp_path, run, who, key)
    approved = typed(tmp_path, run, who, key, number)

    for refused in (requested, approved):
        assert (3, NotProvedError.__name__) == (refused.exit_code, facts(refused)["error"])
        assert why in facts(refused)["message"]
        assert "Those who may: anna, bert" in facts(refused)["message"]


def test_a_form_has_nobodys_key_so_its_names_do_not_count(
    tmp_path: Path, run: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "anna.secret.asc").write_bytes(KEYS["anna"].secret)
    monkeypatch.setenv("CARDLINK_PERSON_KEY_FILE", str(tmp_path / "anna.secret.asc"))

    with pytest.raises(NotProvedError):
        cancel.invoke(
            Context(tmp_path, actor="anna"), {"run": run, "chunks": (1,), "reason": "ticket 7"}
        )


def test_a_request_forged_with_its_entry_is_refused_because_nobody_signed_it(
    tmp_path: Path, run: str
) -> None:
    typed(tmp_path, run, "anna", "anna")
    forged = {**stored(tmp_path), "actor": "bert"}
    forged["number"] = number_of(forged)
    put(tmp_path, forged)

    done = typed(tmp_path, run, "anna", "anna", forged["number"])

    assert (2, RequestChangedError.__name__) == (done.exit_code, facts(done)["error"])
    assert "bert did not sign it" in facts(done)["message"]


def put(folder: Path, values: dict[str, Any]) -> None:
    """Put a request with its entry into the database, as whoever can write to that can."""

    def work(act: Act) -> None:
        own = {name: value for name, value in values.items() if name not in ("issuer", "entry")}
        act.insert(REQUEST, **own, entry=act.number)

    outside = edges(LocalStore(folder / "store"), Database(folder / "cardlink.db"))
    adapters = outside._replace(now=lambda: datetime.now(UTC))
    enter(adapters, "bank", "request made", work)
