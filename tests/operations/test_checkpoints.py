"""A witness elsewhere keeps where a journal ends: what is cut, put back or deleted is found."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from sqlalchemy import Connection, insert, select, update

from flows.cli.main import main
from flows.database.connection import Database
from flows.operations.audit import verify
from flows.operations.checkpoints import (
    STALE,
    UNWITNESSED,
    WITNESSED,
    NotExtendedError,
    last_checkpoint,
    witness,
    witnessed,
)
from flows.runs.adapters import Adapters
from flows.runs.journal import Act, enter
from flows.runs.signed_note import Signer
from flows.runs.store import ConflictError, read
from schemas.database import JOURNAL
from tests import keys
from tests.memory import MemoryStore
from tests.night import BANK, NOON, edges

SIGNER = Signer.new("audit.example.com")


def recorded(times: int, adapters: Adapters | None = None) -> Adapters:
    """Make so many more entries in a journal, by default an empty one."""
    adapters = adapters or edges(MemoryStore())
    for number in range(times):

        def note(act: Act, number: int = number) -> None:
            act.facts["number"] = number, times

        enter(adapters, BANK, "noted", note)
    return adapters


def cut(adapters: Adapters, left: int) -> Adapters:
    """Return edges whose database has so many entries alone, as a copy that was put back has."""
    database = Database("sqlite://")
    with adapters.database.snapshot() as connection:
        rows = connection.execute(select(JOURNAL).where(JOURNAL.c.number <= left)).mappings().all()

    def write(connection: Connection) -> None:
        for row in rows:
            connection.execute(insert(JOURNAL).values(**row))

    database.act(BANK, write)
    return adapters._replace(database=database)


def seen(adapters: Adapters, place: MemoryStore, days: int = 0) -> int:
    """Let the witness look; return the entry up to which it has seen the journal."""
    later = adapters._replace(now=lambda: NOON + timedelta(days=days))
    return witness(later, place, BANK, SIGNER).number


def findings(adapters: Adapters, place: MemoryStore) -> set[tuple[str, str]]:
    """Return what a proof finds that knows the last checkpoint."""
    checkpoint = last_checkpoint(place, BANK, SIGNER.verifier)
    proof = verify(adapters, BANK, checkpoint=checkpoint)
    return {(finding.key, finding.what) for finding in proof.findings}


def test_a_journal_that_grows_is_witnessed_again_and_again() -> None:
    adapters, place = recorded(0), MemoryStore()

    numbers = []
    for day in range(3):
        recorded(day + 1, adapters)
        numbers.append(seen(adapters, place, day))

    assert [1, 3, 6] == numbers
    assert set() == findings(adapters, place)
    assert ["000001.txt", "000002.txt", "000003.txt"] == [key[-10:] for key in place.objects]


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_database_that_is_put_back_cut_or_deleted_is_found_and_not_signed(left: int) -> None:
    adapters, place = recorded(5), MemoryStore()
    number = seen(adapters, place)
    rolled_back = cut(adapters, left)

    found = findings(rolled_back, place)

    what = f"it has {left} entries" if left else "it is gone"
    expected = f"does not go on from entry {number}, as a witness saw it: {what}"
    assert ("journal", expected) in found
    with pytest.raises(NotExtendedError, match=what):
        seen(rolled_back, place, 1)
    assert 1 == len(place.objects)


def test_a_journal_that_was_written_anew_is_not_the_one_that_was_seen() -> None:
    adapters, place = recorded(3), MemoryStore()
    seen(adapters, place)
    other = recorded(9)

    assert any("that entry is another one" in what for _, what in findings(other, place))
    assert () == verify(other, BANK).findings


def test_a_witness_signs_no_journal_with_a_changed_entry() -> None:
    adapters, place = recorded(3), MemoryStore()
    forged = update(JOURNAL).where(JOURNAL.c.number == 2).values(by="bert")
    adapters.database.act(BANK, lambda connection: connection.execute(forged).close())

    with pytest.raises(NotExtendedError, match="journal/2: changed"):
        seen(adapters, place)


def test_a_checkpoint_that_the_witness_did_not_sign_is_refused() -> None:
    adapters, place = recorded(3), MemoryStore()
    seen(adapters, place)
    seen(adapters, place, days=1)
    key = max(place.objects)
    place.replace(key, [read(place, key).replace(b"\n3\n", b"\n2\n")])

    with pytest.raises(ConflictError, match=key[-10:]):
        last_checkpoint(place, BANK, SIGNER.verifier)
    with pytest.raises(ConflictError):
        last_checkpoint(place, BANK, Signer.new(SIGNER.name).verifier)


@pytest.mark.parametrize(
    ("hours", "state"), [(25, WITNESSED), (26, WITNESSED), (26.1, STALE), (27, STALE)]
)
def test_a_checkpoint_is_stale_after_the_hours_of_the_settings(hours: float, state: str) -> None:
    adapters, place = recorded(1), MemoryStore()
    seen(adapters, place)
    checkpoint = last_checkpoint(place, BANK, SIGNER.verifier)

    assert state == witnessed(checkpoint, NOON + timedelta(hours=hours), 26)
    assert UNWITNESSED == witnessed(None, NOON, 26)


TOML = """
issuer = "bank"
root = "store"
test = true
[portal]
key_file = "portal.asc"
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
"""


def typed(folder: Path, *arguments: str, key: str = "") -> Result:
    """Type a command in the folder of the TOML."""
    environment = {"CARDLINK_WITNESS_KEY_FILE": key} if key else {}
    return CliRunner().invoke(main, ["--config", str(folder), *arguments], env=environment)


@pytest.mark.parametrize("name", ["", "a b", "a+b"])
def test_a_name_that_a_signature_cannot_hold_is_refused_before_anything_is_written(
    tmp_path: Path, name: str
) -> None:
    refused = typed(tmp_path, "audit", "witness-key", name, str(tmp_path / "witness.key"))

    assert 2 == refused.exit_code
    assert f"{name!r} is not 1 to 100 characters" in refused.output
    assert [] == list(tmp_path.iterdir())


def test_by_the_commands_alone_a_witness_is_set_up_and_finds_a_database_that_was_removed(
    tmp_path: Path,
) -> None:
    key = tmp_path / "witness.key"
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    made = typed(tmp_path, "--json", "audit", "witness-key", SIGNER.name, str(key))
    public = json.loads(made.stdout)["key"]
    toml = TOML.format(fingerprint=keys.sound().fingerprint)
    toml += f'[audit]\nwitness = "elsewhere"\nwitness_key = "{public}"\n'
    (tmp_path / "bank.toml").write_text(toml)
    (tmp_path / "store").mkdir()
    (tmp_path / "elsewhere").mkdir()
    sample = str(tmp_path / "store/bank/extracts/bank-20261120.csv")
    Path(sample).parent.mkdir(parents=True)

    nobody = typed(tmp_path, "audit", "verify", "bank")
    unsigned = typed(tmp_path, "audit", "witness", "bank")
    assert 0 == typed(tmp_path, "sample", sample, "--rows", "20").exit_code
    assert 0 == typed(tmp_path, "submit", "bank", "--date", "2026-11-20").exit_code
    signed = typed(tmp_path, "audit", "witness", "bank", key=str(key))
    verified = typed(tmp_path, "audit", "verify", "bank")
    (tmp_path / "cardlink.db").rename(tmp_path / "gone")
    removed = typed(tmp_path, "audit", "verify", "bank")

    assert "unwitnessed: nobody outside keeps where the trail ends" in nobody.output
    assert "a cut-off end would not show" in nobody.output
    assert (2, 0, 0, 4) == tuple(one.exit_code for one in (unsigned, signed, verified, removed)), [
        one.output for one in (unsigned, signed, verified, removed)
    ]
    assert "witnessed: entry" in verified.stdout
    assert "everything is as it was recorded" in verified.stdout
    assert "as a witness saw it: it is gone" in removed.stdout
    assert 0o600 == key.stat().st_mode & 0o777
    assert SIGNER.name in key.read_text()
