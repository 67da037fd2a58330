"""The operator's commands on an S3 server: one winner of a manifest's key, and old ciphertext deleted
for good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from flows.adapters.s3 import S3Store
from flows.operations.reseal import reseal
from flows.runs.keys import keys_of
from tests import keys, servers
from tests.night import Bench, issuer

WHY = "the portal has a new key"
NEW = keys.sound(copy=2)
CHUNKS = {"rows_per_chunk": 10}


@pytest.fixture(scope="module")
def server() -> Iterator[servers.S3Server]:
    with servers.moto() as running:
        yield running


@pytest.fixture
def store(server: servers.S3Server, request: pytest.FixtureRequest) -> S3Store:
    return servers.store(server, request.node.name[:40])


@pytest.mark.slow
def test_chunks_sealed_anew_leave_no_old_object(store: S3Store) -> None:
    bench = Bench(store, issuer(portal=CHUNKS))
    run = bench.submit(bench.drop(30)).manifest.run
    before = bench.chunks(run)
    new = replace(
        bench, issuer=issuer(portal={**CHUNKS, "fingerprints": [NEW.fingerprint]}), key=NEW
    )

    done = reseal(new.context, store, run, (), WHY)

    sealed = [key for key in bench.snapshot() if key.endswith(".pgp")]
    assert (done.chunks, done.retired, done.left) == ((1, 2, 3), 3, 0)
    assert new.chunks(run) == before
    assert sealed == [f"{keys_of(run).sealed(1)}{run}-{number:05d}.csv.pgp" for number in (1, 2, 3)]
