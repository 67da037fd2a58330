"""The IAM policies: enough for a night, or for a purge, on a server that enforces them, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3.session
import pytest

from flows.adapters.s3 import S3Store
from flows.operations.alerts import watch
from flows.operations.metrics import write_metrics
from flows.operations.purge import purge
from flows.partner_api.follow_links import follow_links
from flows.runs.documents import keys_of, read_purged
from flows.runs.keys import corrections, extracts, results, transactions
from flows.runs.store import StoreDeniedError
from tests import servers
from tests.night import BANK, Bench, issuer

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
POLICY, PURGE = DEPLOY / "iam-policy.json", DEPLOY / "iam-purge-policy.json"
ROLE = {
    "PutObject": "s3:PutObject",
    "GetObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "DeleteObject": "s3:DeleteObject",
    "GetBucketVersioning": "s3:GetBucketVersioning",
}  # the action a call needs


def policy(file: Path = POLICY) -> dict[str, Any]:
    """Return a policy of one bucket, without the statement about TLS: loopback has none."""
    text = file.read_text().replace("BUCKET", "cards").replace("PREFIX", "nightly")
    found: dict[str, Any] = json.loads(text)
    found["Statement"] = [one for one in found["Statement"] if one["Sid"] != "NeverInTheClear"]
    return found


def granted(file: Path) -> set[str]:
    """Return the actions a policy allows."""
    allowed = [one["Action"] for one in policy(file)["Statement"] if one["Effect"] == "Allow"]
    return {action for one in allowed for action in ([one] if isinstance(one, str) else one)}


def role(server: servers.S3Server, name: str, file: Path) -> Any:
    """Make a user with a policy; return its client."""
    root = boto3.session.Session("test", "test", region_name="us-east-1").client("iam", endpoint_url=server.endpoint)
    root.create_user(UserName=name)
    root.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps(policy(file)))
    key = root.create_access_key(UserName=name)["AccessKey"]
    mine = boto3.session.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1")
    return mine.client("s3", endpoint_url=server.endpoint)


def enforce(server: servers.S3Server, on: bool) -> None:
    """Let the server ask for rights from the next call on, or from one that never comes."""
    calls = b"0" if on else b"1000000"
    urlopen(Request(f"{server.endpoint}/moto-api/reset-auth", calls, {"Content-Type": "text/plain"})).close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[servers.S3Server, Any]]:
    """A server that asks for rights, and the pipeline's own client."""
    with servers.moto() as server:
        mine = role(server, "cardlink", POLICY)
        enforce(server, True)
        yield server, mine


def test_a_night_needs_no_right_that_the_policy_lacks_and_calls_for_each_it_has(
    guarded: tuple[servers.S3Server, Any],
) -> None:
    server, client = guarded
    called: set[str] = set()
    client.meta.events.register("before-call.s3", lambda model, **_: called.add(model.name))
    bench = Bench(S3Store(server.bucket, "nightly", client), issuer())
    enforce(server, False)  # the issuer has rights of its own
    extract = Bench(servers.store(server, "nightly"), issuer()).drop(30)
    enforce(server, True)

    run = bench.submit(extract).manifest.run
    bench.ingest()
    watch(bench.context)
    write_metrics(bench.context)

    assert run
    assert called <= ROLE.keys()
    needed = {ROLE[name] for name in called} | {"s3:GetObjectVersion", "s3:AbortMultipartUpload"}
    assert needed == granted(POLICY)


def test_a_look_at_placements_needs_no_other_right(guarded: tuple[servers.S3Server, Any]) -> None:
    server, client = guarded
    bench = Bench(S3Store(server.bucket, "nightly", client), issuer())
    dropped = servers.store(server, "nightly")
    enforce(server, False)
    before = Bench(dropped, issuer())
    run = before.submit(before.drop(7, name="bank-20261119.csv", seed=5)).manifest.run
    before.answer()
    before.ingest()
    report = f"cuid,status,completed_on\n{before.ledger(run)['cuid'][0]},SUCCESSFUL,\n"
    dropped.replace(f"{transactions(BANK)}t.csv", [report.encode()])
    enforce(server, True)

    facts = follow_links(bench.context, None, run)

    assert [7, 7, 7, 1, 1, 1] == [one["cardholders"] for one in facts["funnel"]["stages"]]


def test_a_purge_deletes_with_a_role_of_its_own_that_can_do_nothing_else(
    guarded: tuple[servers.S3Server, Any],
) -> None:
    server, client = guarded
    enforce(server, False)
    purger = role(server, "purger", PURGE)
    outside = Bench(servers.store(server, "nightly"), issuer(), now=lambda: datetime.now(UTC))
    run = outside.submit(outside.drop(30, "bank-20261117.csv", seed=1)).manifest.run
    outside.answer()
    outside.ingest()
    before = outside.snapshot().keys()
    enforce(server, True)
    called: set[str] = set()
    purger.meta.events.register("before-call.s3", lambda model, **_: called.add(model.name))
    old = Bench(S3Store(server.bucket, "nightly", client), issuer(), now=lambda: datetime.now(UTC) + timedelta(days=9))

    due = purge(old.context, S3Store(server.bucket, "nightly", purger))

    enforce(server, False)
    assert (
        {keys_of(run).chunks + keys_of(run).chunk_name(1)}
        <= before - outside.snapshot().keys()
        == {entry.key for lot in due.lots for entry in lot.entries}
    )
    assert granted(PURGE) == {ROLE[name] for name in called} | {"s3:AbortMultipartUpload"}
    enforce(server, True)
    for kept in (f"{extracts(BANK)}x", f"{results(BANK)}x", keys_of(run).plan, keys_of(run).purged("chunks")):
        with pytest.raises(StoreDeniedError):
            S3Store(server.bucket, "nightly", purger).delete(kept)


def test_whoever_may_not_delete_is_told_before_a_record_says_that_anything_went(
    guarded: tuple[servers.S3Server, Any],
) -> None:
    server, client = guarded
    enforce(server, False)
    outside = Bench(servers.store(server, "nightly"), issuer(), now=lambda: datetime.now(UTC))
    run = outside.submit(outside.drop(30, "bank-20261118.csv", seed=2)).manifest.run
    outside.answer()
    outside.ingest()
    enforce(server, True)
    old = Bench(S3Store(server.bucket, "nightly", client), issuer(), now=lambda: datetime.now(UTC) + timedelta(days=9))

    with pytest.raises(StoreDeniedError):
        purge(old.context, old.store)  # type: ignore[arg-type]  # the pipeline's own store, which may not

    assert read_purged(old.store, keys_of(run), "chunks") is None


@pytest.mark.parametrize("place", [extracts(BANK), results(BANK), transactions(BANK)])
def test_what_others_drop_cannot_be_written(guarded: tuple[servers.S3Server, Any], place: str) -> None:
    server, client = guarded
    store = S3Store(server.bucket, "nightly", client)

    with pytest.raises(StoreDeniedError):
        store.create(f"{place}x.csv", b"x")


def test_a_filled_in_template_may_be_dropped(guarded: tuple[servers.S3Server, Any]) -> None:
    server, client = guarded
    store = S3Store(server.bucket, "nightly", client)

    dropped = store.create(f"{corrections(BANK)}fix.csv", b"run,row,column,correction")

    assert dropped


def test_nothing_outside_the_prefix_can_be_written(guarded: tuple[servers.S3Server, Any]) -> None:
    server, client = guarded

    with pytest.raises(StoreDeniedError):
        S3Store(server.bucket, "elsewhere", client).create("x", b"x")
