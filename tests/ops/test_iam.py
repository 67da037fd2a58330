"""The IAM policy: enough for a night on a server that enforces it, and nothing that the night does not call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3.session
import pytest

from flows.core.names import extracts, results
from flows.core.storage.store_errors import StoreDeniedError
from flows.edge.s3 import S3Store
from flows.steps.metrics import measure
from flows.steps.watch import watch
from tests import servers
from tests.night import BANK, Bench, issuer

POLICY = Path(__file__).parent.parent.parent / "deploy" / "iam-policy.json"
ROLE = {
    "PutObject": "s3:PutObject",
    "GetObject": "s3:GetObject",
    "ListObjectsV2": "s3:ListBucket",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "CreateMultipartUpload": "s3:PutObject",
    "UploadPart": "s3:PutObject",
    "CompleteMultipartUpload": "s3:PutObject",
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
}  # the action a call needs


def policy() -> dict[str, Any]:
    """Return the policy of one bucket, without the statement about TLS: loopback has none."""
    text = POLICY.read_text().replace("BUCKET", "cards").replace("PREFIX", "nightly")
    found: dict[str, Any] = json.loads(text)
    found["Statement"] = [one for one in found["Statement"] if one["Sid"] != "NeverInTheClear"]
    return found


def enforce(server: servers.S3Server, on: bool) -> None:
    """Let the server ask for rights from the next call on, or from one that never comes."""
    calls = b"0" if on else b"1000000"
    urlopen(Request(f"{server.endpoint}/moto-api/reset-auth", calls, {"Content-Type": "text/plain"})).close()


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[servers.S3Server, Any]]:
    """A server that asks for rights, and the pipeline's own client."""
    with servers.moto() as server:
        root = boto3.session.Session("test", "test", region_name="us-east-1").client(
            "iam", endpoint_url=server.endpoint
        )
        root.create_user(UserName="cardlink")
        root.put_user_policy(UserName="cardlink", PolicyName="cardlink", PolicyDocument=json.dumps(policy()))
        key = root.create_access_key(UserName="cardlink")["AccessKey"]
        enforce(server, True)
        mine = boto3.session.Session(key["AccessKeyId"], key["SecretAccessKey"], region_name="us-east-1")
        yield server, mine.client("s3", endpoint_url=server.endpoint)


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
    watch(bench.edges)
    measure(bench.edges)

    assert run
    assert called <= ROLE.keys()
    granted = {
        action
        for one in policy()["Statement"]
        if one["Effect"] == "Allow"
        for action in ([one["Action"]] if isinstance(one["Action"], str) else one["Action"])
    }
    needed = {ROLE[name] for name in called} | {"s3:GetObjectVersion", "s3:AbortMultipartUpload"}
    assert needed == granted


@pytest.mark.parametrize("place", [extracts(BANK), results(BANK)])
def test_what_others_drop_cannot_be_written(guarded: tuple[servers.S3Server, Any], place: str) -> None:
    server, client = guarded
    store = S3Store(server.bucket, "nightly", client)

    with pytest.raises(StoreDeniedError):
        store.create(f"{place}x.csv", b"x")


def test_nothing_outside_the_prefix_can_be_written(guarded: tuple[servers.S3Server, Any]) -> None:
    server, client = guarded

    with pytest.raises(StoreDeniedError):
        S3Store(server.bucket, "elsewhere", client).create("x", b"x")
