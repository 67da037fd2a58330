"""Retention on S3 servers: what is due goes, uploads never completed are aborted, and versions are
told of.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from flows.adapters.s3 import S3Store
from flows.commands.purge import facts
from flows.operations.purge import plan_purge, purge
from flows.runs.stored_runs import StoredRuns
from tests import servers
from tests.builders import quick
from tests.night import BANK, Bench, edges, issuer


@pytest.fixture(params=quick(1, ["ministack_server", "moto_server"]))
def server(request: pytest.FixtureRequest) -> servers.S3Server:
    found: servers.S3Server = request.getfixturevalue(request.param)
    return found


def answered(store: S3Store) -> Bench:
    """Return a bench on a store, 400 days after everything of its one run was answered."""
    bench = Bench(store, issuer(), now=lambda: datetime.now(UTC))
    bench.submit(bench.drop(30))
    bench.answer()
    bench.ingest()
    return replace(bench, now=lambda: datetime.now(UTC) + timedelta(days=400))


@pytest.mark.slow
def test_what_is_due_goes_and_uploads_that_nobody_completes_are_aborted(
    server: servers.S3Server,
) -> None:
    store, client = servers.store(server, "plain-purge"), servers.client(server.endpoint)
    bench = answered(store)
    dead = f"{BANK}/runs/bank-20261120-00000000/report/links.csv"
    client.create_multipart_upload(Bucket=server.bucket, Key=f"plain-purge/{dead}")
    before = bench.snapshot().keys()

    dry = plan_purge(bench.context, store)
    purge(bench.context, store)

    assert before - bench.snapshot().keys() == {
        entry.key for lot in dry.lots for entry in lot.entries
    }
    assert ([dead], False) == ([entry.key for entry in dry.leftovers], dry.hides)
    assert ([], ()) == (store.leftovers("", bench.now()), plan_purge(bench.context, store).lots)
    assert 1 == len(StoredRuns(edges(store), BANK).without_ledger)


@pytest.mark.slow
def test_a_bucket_that_keeps_versions_is_told_of_with_the_rule_it_needs(
    server: servers.S3Server,
) -> None:
    client = servers.client(server.endpoint)
    client.create_bucket(Bucket="purged-versions")
    client.put_bucket_versioning(
        Bucket="purged-versions", VersioningConfiguration={"Status": "Enabled"}
    )
    store = S3Store("purged-versions", "", client)
    bench = answered(store)

    due = purge(bench.context, store)

    [gone, *_] = [entry.key for lot in due.lots for entry in lot.entries]
    kept = client.list_object_versions(Bucket="purged-versions", Prefix=gone)
    assert (1, 1) == (len(kept["Versions"]), len(kept["DeleteMarkers"]))
    assert facts(BANK, due)["versions_stay"] is True
