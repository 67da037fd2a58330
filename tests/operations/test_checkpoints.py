"""A witness elsewhere keeps where a trail ends: what is cut, put back or deleted is found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from flows.cli.main import main
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
from flows.runs.audit_trail import audited, settle_trails
from flows.runs.events import record_event
from flows.runs.keys import keys_of, trail
from flows.runs.signed_note import Signer
from flows.runs.store import ConflictError, read
from tests import keys
from tests.memory import MemoryStore
from tests.night import BANK, NOON, Bench, issuer

SIGNER = Signer.new("audit.example.com")
RUN = keys_of("bank-20261120-00000000")


def store_of(objects: Mapping[str, bytes]) -> MemoryStore:
    """Return a store with these objects."""
    store = MemoryStore()
    for key, data in objects.items():
        store.create(key, data)
    return store


def recorded(store: MemoryStore, times: int) -> None:
    """Record events, as a command does."""
    bench = Bench(audited(store, "anna", lambda: NOON), issuer())
    for number in range(times):
        record_event(bench.context.adapters, RUN, "noted", number=number, of=times)
    settle_trails()


def seen(store: MemoryStore, place: MemoryStore, days: int = 0) -> int:
    """Let the witness look; return the entry up to which it has seen the trail."""
    return witness(store, place, BANK, SIGNER, NOON + timedelta(days=days)).number


def findings(store: MemoryStore, place: MemoryStore) -> set[tuple[str, str]]:
    """Return what a proof finds that knows the last checkpoint."""
    checkpoint = last_checkpoint(place, BANK, SIGNER.verifier)
    proof = verify(store, BANK, checkpoint=checkpoint)
    return {(finding.key, finding.what) for finding in proof.findings}


def test_a_trail_that_grows_is_witnessed_again_and_again() -> None:
    store, place = MemoryStore(), MemoryStore()

    numbers = []
    for day in range(3):
        recorded(store, day + 1)
        numbers.append(seen(store, place, day))

    last = last_checkpoint(place, BANK, SIGNER.verifier)
    assert last is not None
    assert [*sorted(set(numbers[:-1])), last.number] == numbers
    assert set() == findings(store, place)
    assert ["000001.txt", "000002.txt", "000003.txt"] == [key[-10:] for key in place.objects]


@pytest.mark.parametrize("left", [0, 1, 3])
def test_a_store_that_is_put_back_cut_or_deleted_is_found_and_not_signed(left: int) -> None:
    store, place = MemoryStore(), MemoryStore()
    recorded(store, 5)
    number = seen(store, place)
    entries = sorted(key for key in store.objects if key.startswith(trail(BANK)))
    records = sorted(key for key in store.objects if key not in entries)
    rolled_back = store_of({key: read(store, key) for key in entries[:left] + records[:left]})

    found = findings(rolled_back, place)

    what = f"it has {left} entries" if left else "it is gone"
    expected = f"does not go on from entry {number}, as a witness saw it: {what}"
    assert (trail(BANK), expected) in found
    with pytest.raises(NotExtendedError, match=what):
        seen(rolled_back, place, 1)
    assert 1 == len(place.objects)


def test_a_trail_that_was_written_anew_is_not_the_one_that_was_seen() -> None:
    store, place = MemoryStore(), MemoryStore()
    recorded(store, 3)
    seen(store, place)
    other = MemoryStore()
    recorded(other, 9)

    assert any("that entry is another one" in what for _, what in findings(other, place))
    assert set() == {(one.key, one.what) for one in verify(other, BANK).findings}


def test_a_witness_signs_no_trail_with_a_changed_entry() -> None:
    store, place = MemoryStore(), MemoryStore()
    recorded(store, 3)
    key = f"{trail(BANK)}0000/000002.json"
    store.replace(key, [read(store, key).replace(b"anna", b"bert")])

    with pytest.raises(NotExtendedError, match=r"000002\.json: changed"):
        seen(store, place)


def test_a_checkpoint_that_the_witness_did_not_sign_is_refused() -> None:
    store, place = MemoryStore(), MemoryStore()
    recorded(store, 3)
    seen(store, place)
    seen(store, place, days=1)
    key = max(place.objects)
    place.replace(key, [read(place, key).replace(b"\n4\n", b"\n3\n")])

    with pytest.raises(ConflictError, match=key[-10:]):
        last_checkpoint(place, BANK, SIGNER.verifier)
    with pytest.raises(ConflictError):
        last_checkpoint(place, BANK, Signer.new(SIGNER.name).verifier)


@pytest.mark.parametrize(
    ("hours", "state"), [(25, WITNESSED), (26, WITNESSED), (26.1, STALE), (27, STALE)]
)
def test_a_checkpoint_is_stale_after_the_hours_of_the_settings(hours: float, state: str) -> None:
    store, place = MemoryStore(), MemoryStore()
    recorded(store, 1)
    seen(store, place)
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


def test_by_the_commands_alone_a_witness_is_set_up_and_finds_an_issuer_that_was_removed(
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
    (tmp_path / "store/bank").rename(tmp_path / "gone")
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


def test_a_command_settles_what_it_wrote_so_that_its_last_record_cannot_be_taken_for_unwritten(
    tmp_path: Path,
) -> None:
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    (tmp_path / "bank.toml").write_text(TOML.format(fingerprint=keys.sound().fingerprint))
    extracts = tmp_path / "store/bank/extracts"
    extracts.mkdir(parents=True)
    typed(tmp_path, "sample", str(extracts / "bank-20261120.csv"), "--rows", "20")
    assert 0 == typed(tmp_path, "submit", "bank", "--date", "2026-11-20").exit_code
    [event] = (tmp_path / "store/bank/runs").glob("*/events/*-committed-*.json")
    event.unlink()

    done = typed(tmp_path, "--json", "audit", "verify", "bank")

    facts = json.loads(done.stdout)
    assert (4, []) == (done.exit_code, facts["unfinished"])
    assert [event.name] == [Path(one["key"]).name for one in facts["findings"]]
