"""Entries of the journal are proved by a key that writers of the store do not have."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, insert, select

from flows.adapters.kms_prover import KmsError, KmsProver
from flows.operations.audit import accept, verify
from flows.operations.audit_journal import FORGED, UNPROVED
from flows.runs.adapters import Adapters
from flows.runs.identity import digest
from flows.runs.journal import Act, content_of, enter
from flows.runs.trail_proof import NOT_PROVED, HmacProver, Prover, ShortKeyError
from schemas.database import JOURNAL
from tests import servers
from tests.memory import MemoryStore
from tests.night import BANK, Bench

SECRET = "1" * 64
OTHER = "2" * 64


def recorded(bench: Bench, prover: Prover, times: int = 2) -> Adapters:
    """Make entries by a worker that proves them so; return its edges."""
    adapters = bench.adapters._replace(prover=prover)
    for number in range(times):

        def note(act: Act, number: int = number) -> None:
            act.facts["number"] = number

        enter(adapters, BANK, "noted", note)
    return adapters


def found(adapters: Adapters, prover: Prover) -> list[tuple[str, str]]:
    findings = verify(adapters._replace(prover=prover), BANK).findings
    return [(finding.key, finding.what) for finding in findings]


def forge(adapters: Adapters, proved_by: str = "", proof: str = "") -> str:
    """Add an entry whose digest fits, as who writes to the database can; return its name."""

    def add(connection: Connection) -> str:
        query = select(JOURNAL).order_by(JOURNAL.c.number.desc()).limit(1)
        last = dict(connection.execute(query).mappings().one())
        number = last["number"] + 1
        changed = {"number": number, "before": last["digest"], "by": "nobody"}
        entry = {**last, **changed, "proved_by": proved_by}
        marks = {"digest": digest(content_of(entry)), "proof": proof}
        connection.execute(insert(JOURNAL).values(**{**entry, **marks}))
        return f"journal/{number}"

    return adapters.database.act(BANK, add)


def test_a_journal_of_workers_with_the_key_is_proved_whole() -> None:
    prover = HmacProver.of(SECRET)

    adapters = recorded(Bench(MemoryStore()), prover)

    assert [] == found(adapters, prover)
    assert 0 == verify(adapters, BANK).unproved


def test_who_has_not_the_key_sees_how_many_entries_cannot_be_checked() -> None:
    bench = Bench(MemoryStore())
    recorded(bench, HmacProver.of(SECRET))

    proof = verify(bench.adapters, BANK)

    assert ((), proof.entries) == (proof.findings, proof.unproved)


def test_an_entry_that_was_added_without_the_key_is_found() -> None:
    bench = Bench(MemoryStore())
    prover = HmacProver.of(SECRET)
    adapters = recorded(bench, prover)

    forged = forge(adapters)

    assert [(forged, UNPROVED)] == found(adapters, prover)


def test_an_entry_with_a_proof_that_somebody_made_up_is_found() -> None:
    bench = Bench(MemoryStore())
    prover = HmacProver.of(SECRET)
    adapters = recorded(bench, prover)

    forged = forge(adapters, prover.key, HmacProver.of(OTHER).proof(b"anything"))

    assert [(forged, FORGED)] == found(adapters, prover)


def test_after_a_new_secret_the_old_entries_are_still_proved() -> None:
    bench = Bench(MemoryStore())
    recorded(bench, HmacProver.of(SECRET))

    both = HmacProver.of(f"{OTHER}\n{SECRET}\n")
    adapters = recorded(bench, both)

    assert HmacProver.of(OTHER).key == both.key  # the first one is the current one
    assert [] == found(adapters, both)
    assert 0 == verify(adapters, BANK).unproved
    assert 0 < verify(adapters._replace(prover=HmacProver.of(OTHER)), BANK).unproved


def test_a_worker_that_lacked_the_key_is_accepted_by_one_that_has_it() -> None:
    bench = Bench(MemoryStore())
    prover = HmacProver.of(SECRET)
    adapters = recorded(bench, prover)
    recorded(bench, NOT_PROVED, 1)
    keys = [key for key, _ in found(adapters, prover)]

    for key in keys:
        accept(
            bench.context._replace(adapters=adapters), key, "worker 7 was set up without the key"
        )

    assert len(keys) > 0
    assert [] == found(adapters, prover)


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
    bench = Bench(MemoryStore())
    adapters = recorded(bench, prover)

    assert [] == found(adapters, prover)
    forged = forge(adapters, prover.key, "00" * 32)
    assert [(forged, FORGED)] == found(adapters, prover)
    with pytest.raises(KmsError, match="NotFoundException"):
        KmsProver("alias/none").proof(b"content")
