"""Entries of the audit trail are proved by a key that writers of the store do not have."""

from __future__ import annotations

import json

import pytest

from flows.adapters.kms_prover import KmsError, KmsProver
from flows.operations.audit import accept, verify
from flows.operations.audit_entries import FORGED, UNPROVED
from flows.runs.audit_trail import audited, settle_trails
from flows.runs.events import record_event
from flows.runs.identity import canonical, digest
from flows.runs.keys import keys_of
from flows.runs.store import read
from flows.runs.trail_entries import entry_key
from flows.runs.trail_proof import NOT_PROVED, HmacProver, Prover, ShortKeyError
from tests import servers
from tests.memory import MemoryStore
from tests.night import BANK, NOON, Bench, issuer

SECRET = "1" * 64
OTHER = "2" * 64
RUN = keys_of("bank-20261120-00000000")


def recorded(store: MemoryStore, prover: Prover, times: int = 2) -> Bench:
    """Record events by a worker that proves them so; return its bench."""
    bench = Bench(audited(store, "anna", lambda: NOON, prover), issuer())
    for number in range(times):
        record_event(bench.context.adapters, RUN, "noted", number=number, by_key=prover.key)
    settle_trails()
    return bench


def found(store: MemoryStore, prover: Prover) -> list[tuple[str, str]]:
    findings = verify(store, BANK, prover=prover).findings
    return [(finding.key, finding.what) for finding in findings]


def forge(store: MemoryStore, number: int, proved_by: str = "", proof: str = "") -> None:
    """Add an entry whose digest and seal fit, as who writes to the store can."""
    last = read(store, entry_key(BANK, number - 1))
    unsealed = {"before": digest(last), "objects": {}, "by": "nobody", "seal": "", "proof": ""}
    entry = json.loads(last) | unsealed | {"proved_by": proved_by}
    marks = {"seal": digest(canonical(entry)), "proof": proof}
    store.create(entry_key(BANK, number), canonical({**entry, **marks}))


def test_a_trail_of_workers_with_the_key_is_proved_whole() -> None:
    store = MemoryStore()
    prover = HmacProver.of(SECRET)

    recorded(store, prover)

    assert [] == found(store, prover)
    assert 0 == verify(store, BANK, prover=prover).unproved


def test_who_has_not_the_key_sees_how_many_entries_cannot_be_checked() -> None:
    store = MemoryStore()
    recorded(store, HmacProver.of(SECRET))

    proof = verify(store, BANK, prover=NOT_PROVED)

    assert ((), proof.entries) == (proof.findings, proof.unproved)


def test_an_entry_that_was_added_without_the_key_is_found() -> None:
    store = MemoryStore()
    prover = HmacProver.of(SECRET)
    recorded(store, prover)
    number = verify(store, BANK).entries + 1

    forge(store, number)

    assert [(entry_key(BANK, number), UNPROVED)] == found(store, prover)


def test_an_entry_with_a_proof_that_somebody_made_up_is_found() -> None:
    store = MemoryStore()
    prover = HmacProver.of(SECRET)
    recorded(store, prover)
    number = verify(store, BANK).entries + 1

    forge(store, number, prover.key, HmacProver.of(OTHER).proof(b"anything"))

    assert [(entry_key(BANK, number), FORGED)] == found(store, prover)


def test_after_a_new_secret_the_old_entries_are_still_proved() -> None:
    store = MemoryStore()
    recorded(store, HmacProver.of(SECRET))

    both = HmacProver.of(f"{OTHER}\n{SECRET}\n")
    recorded(store, both)

    assert HmacProver.of(OTHER).key == both.key  # the first one is the current one
    assert [] == found(store, both)
    assert 0 == verify(store, BANK, prover=both).unproved
    assert 0 < verify(store, BANK, prover=HmacProver.of(OTHER)).unproved


def test_a_worker_that_lacked_the_key_is_accepted_by_one_that_has_it() -> None:
    store = MemoryStore()
    prover = HmacProver.of(SECRET)
    bench = recorded(store, prover)
    recorded(store, NOT_PROVED, 1)
    keys = [key for key, _ in found(store, prover)]

    for key in keys:
        context = bench.context._replace(adapters=bench.context.adapters._replace(prover=prover))
        accept(context, key, "worker 7 was set up without the key")

    assert len(keys) > 0
    assert [] == found(store, prover)


def test_a_secret_that_could_be_guessed_is_refused() -> None:
    with pytest.raises(ShortKeyError, match="has 5 characters"):
        HmacProver.of("12345")
    assert NOT_PROVED is HmacProver.of("  \n")


def test_a_key_of_kms_proves_and_checks(
    moto_server: servers.S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_server.endpoint)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    kms = KmsProver("")._client
    made = kms.create_key(KeyUsage="GENERATE_VERIFY_MAC", KeySpec="HMAC_256")
    prover = KmsProver(made["KeyMetadata"]["KeyId"])
    store = MemoryStore()
    recorded(store, prover)
    number = verify(store, BANK).entries + 1

    assert [] == found(store, prover)
    forge(store, number, prover.key, "00" * 32)
    assert [(entry_key(BANK, number), FORGED)] == found(store, prover)
    with pytest.raises(KmsError, match="NotFoundException"):
        KmsProver("alias/none").proof(b"content")
