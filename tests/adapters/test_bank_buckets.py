"""Buckets as banks have them: encrypted by a key of theirs, in an account of theirs, locked,
scanned for malware.
"""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError

from flows.adapters.s3 import PART, S3Store
from flows.database.connection import Database
from flows.errors import CardlinkError
from flows.operations.matters import watch
from flows.runs.keys import extracts, journal, keys_of, results
from flows.runs.store import (
    StoreRefusedError,
    VerdictAwaitedError,
    VerdictRefusedError,
    ensure_usable,
)
from flows.runs.stored_journal import flush_journal
from flows.wiring import wire
from schemas.settings import StoreSettings
from tests import keys, servers
from tests.late import told
from tests.night import BANK, Bench, issuer
from tests.test_command_line import cardlink

KEY = "arn:aws:kms:us-east-1:123456789012:key/5f1c1b1e-0000-4000-8000-000000000000"
STRICT = StoreSettings(
    kms_key=KEY, bucket_key=True, owner="123456789012", lock_mode="COMPLIANCE", lock_days=30
)
SCANNED = StoreSettings(verdict_tag="Scan", verdict_clean="CLEAN")
HEADER = "x-amz-"
TOML = """
issuer = "bank"
root = "s3://cards/{prefix}"
test = true
[portal]
fingerprints = ["{fingerprint}"]
allowed_hosts = ["links.example.com"]
[store]
verdict_tag = "Scan"
verdict_clean = "CLEAN"
"""


class Sent:
    """What a client sent: (operation, path) of every call, and its headers."""

    def __init__(self, client: Any) -> None:
        self.calls: list[tuple[str, str, dict[str, str]]] = []
        client.meta.events.register("before-send.s3", self._note)

    def _note(self, request: Any, event_name: str, **_: object) -> None:
        headers = {
            name.lower(): value.decode() if isinstance(value, bytes) else str(value)
            for name, value in request.headers.items()
        }
        self.calls.append((event_name.rpartition(".")[2], request.url.partition("?")[0], headers))

    def lacking(self, header: str, *operations: str) -> list[tuple[str, str]]:
        """Return the calls of these operations (of all, where none is named) without a header."""
        return [
            (name, url)
            for name, url, sent in self.calls
            if (not operations or name in operations) and HEADER + header not in sent
        ]

    def locked(self) -> set[str]:
        """Return the names that were written with a lock."""
        return {
            url.partition("/cards-")[2].partition("/")[2]
            for _, url, sent in self.calls
            if HEADER + "object-lock-mode" in sent
        }


def bucket(client: Any, *, lock: bool = True) -> str:
    name = f"cards-{uuid4().hex[:8]}"
    client.create_bucket(Bucket=name, ObjectLockEnabledForBucket=lock)
    return name


@pytest.mark.slow
def test_every_call_names_the_account_and_every_write_its_key_and_only_evidence_is_locked(
    moto_server: servers.S3Server,
) -> None:
    client = servers.client(moto_server.endpoint)
    name = bucket(client)
    sent, store = Sent(client), S3Store(name, "", client, settings=STRICT)
    bench = Bench(store, issuer(links={"rows_per_file": 5}))

    run = bench.submit(bench.drop(30)).manifest.run
    bench.answer()
    bench.ingest()
    store.replace(f"{keys_of(run).report('large.csv')}", [bytes(PART), b"1"])
    store.leftovers("", bench.now())
    store.delete(f"{BANK}/metrics/x")
    store.hides()
    store.ensure_lockable()

    writes = {"PutObject", "CreateMultipartUpload"}
    assert len({operation for operation, *_ in sent.calls}) >= 9
    assert [] == sent.lacking("expected-bucket-owner")
    assert [] == sent.lacking("server-side-encryption", *writes)
    assert {KEY} == {
        one["x-amz-server-side-encryption-aws-kms-key-id"]
        for name, _, one in sent.calls
        if name in writes
    }
    assert [] == sent.lacking("server-side-encryption-bucket-key-enabled", *writes)
    flush_journal(bench.adapters, BANK)
    [segment] = [entry.key for entry in store.keys(journal(BANK))]
    kept = client.head_object(Bucket=name, Key=segment)
    assert ("aws:kms", KEY, "COMPLIANCE") == (
        kept["ServerSideEncryption"],
        kept["SSEKMSKeyId"],
        kept["ObjectLockMode"],
    )
    assert {segment} == sent.locked()


def test_a_locked_segment_of_the_journal_cannot_be_deleted_for_good_by_anybody(
    moto_server: servers.S3Server,
) -> None:
    client = servers.client(moto_server.endpoint)
    name = bucket(client)
    bench = Bench(S3Store(name, "", client, settings=STRICT), issuer())
    bench.submit(bench.drop(10))
    flush_journal(bench.adapters, BANK)
    [segment] = [entry.key for entry in bench.store.keys(journal(BANK))]
    version = client.head_object(Bucket=name, Key=segment)["VersionId"]

    with pytest.raises(ClientError, match="AccessDenied"):
        client.delete_object(Bucket=name, Key=segment, VersionId=version)

    assert segment in {entry.key for entry in bench.store.keys("")}


@pytest.mark.parametrize("settings", [STRICT, SCANNED])
def test_a_bucket_that_cannot_lock_is_named_by_the_check_where_locks_are_set(
    moto_server: servers.S3Server, settings: StoreSettings
) -> None:
    client = servers.client(moto_server.endpoint)
    can, cannot = (
        S3Store(bucket(client, lock=lock), "", client, settings=settings) for lock in (True, False)
    )
    refused = pytest.raises(StoreRefusedError, match=r"lock_mode asks for \(ObjectLockConf")

    ensure_usable(can, "check")
    with refused if settings.lock_mode else nullcontext():
        ensure_usable(cannot, "check")


def test_a_store_without_settings_sends_none_of_these_headers(
    moto_server: servers.S3Server,
) -> None:
    client = servers.client(moto_server.endpoint)
    sent = Sent(client)
    bench = Bench(S3Store(bucket(client), "", client), issuer())

    bench.submit(bench.drop(10))

    named = {header for *_, one in sent.calls for header in one}
    assert named.isdisjoint(
        {
            HEADER + one
            for one in ("expected-bucket-owner", "server-side-encryption", "object-lock-mode")
        }
    )
    assert [] == [one for one in sent.calls if "tagging" in one[0].lower()]


@pytest.fixture
def place(moto_server: servers.S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """An issuer on S3 whose drops are scanned, as the command line finds it; and a bench that drops
    what it likes.
    """
    for name, value in moto_server.environment.items():
        monkeypatch.setenv(name, value)
    prefix = uuid4().hex
    (tmp_path / "bank.toml").write_text(
        TOML.format(prefix=prefix, fingerprint=keys.sound().fingerprint)
    )
    (tmp_path / "portal.asc").write_bytes(keys.sound().public)
    store = servers.store(moto_server, prefix)
    return Bench(store, issuer(), database=Database(tmp_path / "cardlink.db"))


def tag(bench: Bench, key: str, verdict: str) -> None:
    """Set the verdict of a dropped file."""
    store: Any = bench.store
    tags = {"TagSet": [{"Key": "Scan", "Value": verdict}]}
    store._client.put_object_tagging(Bucket="cards", Key=store._prefix + key, Tagging=tags)


def facts(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    done = cardlink(folder, "--json", *arguments)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_an_extract_waits_for_its_verdict_and_one_that_is_not_clean_is_never_taken(
    place: Bench, tmp_path: Path
) -> None:
    name = place.drop(10)
    key = extracts(BANK) + name

    waits, named = (
        facts(tmp_path, "submit", "bank"),
        facts(tmp_path, "submit", "bank", "--extract", name),
    )
    tag(place, key, "THREATS_FOUND")
    bad, refused = (
        facts(tmp_path, "submit", "bank"),
        facts(tmp_path, "submit", "bank", "--extract", name),
    )
    shown = facts(tmp_path, "worklist", "bank", "--all")
    alerts = [one.kind for one, _ in told(wire(tmp_path, "bank"))]
    tag(place, key, "CLEAN")
    taken = facts(tmp_path, "submit", "bank")

    assert (0, [], 75) == (waits[0], waits[1]["runs"], named[0])
    assert f"{key} has no malware verdict (tag Scan)" in waits[1]["waiting"][0]
    assert (0, [], 2, "VerdictRefusedError") == (
        bad[0],
        bad[1]["runs"],
        refused[0],
        refused[1]["error"],
    )
    assert "its tag Scan is THREATS_FOUND, not CLEAN" in bad[1]["waiting"][0]
    assert ["unclean"] == [one["state"] for one in shown[1]["extracts"]]
    assert "unclean extracts" in alerts
    assert (0, 1) == (taken[0], len(taken[1]["runs"]))
    assert "unclean extracts" in [
        one.kind for one, is_late in told(wire(tmp_path, "bank")) if not is_late
    ]


def test_nothing_that_was_dropped_is_read_before_its_verdict(moto_server: servers.S3Server) -> None:
    client, prefix = servers.client(moto_server.endpoint), uuid4().hex
    sent = Sent(client)
    outside = Bench(servers.store(moto_server, prefix), issuer())
    bench = Bench(
        S3Store("cards", prefix, client, settings=SCANNED), issuer(source={"sidecar": "ctl"})
    )
    name = outside.drop(10)
    outside.store.replace(f"{extracts(BANK)}{name}.ctl", [b"count=10\n"])
    tag(outside, extracts(BANK) + name, "CLEAN")
    outside.drop_result(b"cuid\n")

    with suppress(CardlinkError):
        bench.submit(name)
    bench.ingest()
    watch(bench.context)

    dropped = [
        url for operation, url, _ in sent.calls if operation == "GetObject" and prefix in url
    ]
    assert [] == [url for url in dropped if "/extracts/" in url or "/results/" in url]
    for key, verdict, kind in (("x", "", VerdictAwaitedError), ("y", "no", VerdictRefusedError)):
        outside.store.create(f"{BANK}/corrections/{key}", b"1")
        if verdict:
            tag(outside, f"{BANK}/corrections/{key}", verdict)
        with pytest.raises(kind):
            bench.store.open(f"{BANK}/corrections/{key}")


def test_a_result_waits_for_its_verdict_and_one_that_is_not_clean_is_a_break(
    place: Bench, tmp_path: Path
) -> None:
    name = place.drop(10)
    tag(place, extracts(BANK) + name, "CLEAN")
    facts(tmp_path, "submit", "bank")
    place.answer()
    files = [entry.key for entry in place.store.keys(results(BANK))]

    waits = cardlink(tmp_path, "ingest", "bank")
    for key in files:
        tag(place, key, "THREATS_FOUND")
    bad = cardlink(tmp_path, "ingest", "bank")
    for key in files:
        tag(place, key, "CLEAN")
    clean = cardlink(tmp_path, "ingest", "bank")

    assert (0, 4, 0) == (waits.returncode, bad.returncode, clean.returncode), clean.stdout
    assert "1 file waits for its malware verdict" in waits.stdout
    assert "the malware scanner did not find it clean" in bad.stdout
    assert "balanced" in clean.stdout


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("lock_days = 30", "lock_mode and lock_days need each other"),
        ('lock_mode = "COMPLIANCE"', "lock_mode and lock_days need each other"),
        ("bucket_key = true", "bucket_key needs kms_key"),
        ('owner = "12345"', '; for example: owner = "111122223333"'),
        ('owner = "1234567890ab"', '; for example: owner = "111122223333"'),
        ('kms_key = "a key"', '; for example: kms_key = "alias/cardlink"'),
        ('lock_mode = "FOR_EVER"\nlock_days = 1', 'takes "GOVERNANCE", "COMPLIANCE"'),
        ('verdict_tag = ""', '; for example: verdict_tag = "Gu'),
        ('verdict_clean = ""', '; for example: verdict_clean = "CLEAN"'),
        ("lock_days = 0", "store.lock_days: Input should be greater than or equal to 1"),
        ('acl = "private"', "store.acl"),
    ],
)
def test_a_bad_setting_is_named_in_one_sentence(
    place: Bench, tmp_path: Path, text: str, sentence: str
) -> None:
    toml = tmp_path / "bank.toml"
    toml.write_text(toml.read_text().partition("[store]")[0] + f"[store]\n{text}\n")

    done = cardlink(tmp_path, "check", "bank")

    assert 2 == done.returncode
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_these_settings_are_refused_where_the_store_is_a_directory(
    place: Bench, tmp_path: Path
) -> None:
    toml = tmp_path / "bank.toml"
    toml.write_text(toml.read_text().replace("s3://cards", "store"))

    done = cardlink(tmp_path, "check", "bank")

    assert 2 == done.returncode
    assert "[store] is for a root on S3" in done.stderr
