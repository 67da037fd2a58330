"""What only S3 has: pages, folder markers, versions, uploads left behind, addresses, and the words
of its errors.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.request import urlopen
from uuid import uuid4

import pytest
from botocore import exceptions as boto

from flows.adapters.s3 import S3Store, connect
from flows.adapters.s3_errors import translated
from flows.errors import CardlinkError
from flows.runs.retry import Retry
from flows.runs.store import (
    ObjectChangedError,
    StoreBusyError,
    StoreCredentialsError,
    StoreDeniedError,
    StoreEndpointError,
    StoreMissingError,
    StoreRefusedError,
)
from tests import servers


@pytest.fixture
def prefix() -> str:
    return uuid4().hex


def small_pages(params: dict[str, Any], **_: object) -> None:
    params["MaxKeys"] = 2


@pytest.mark.parametrize("kind", ["moto_server", "ministack_server"])
@pytest.mark.parametrize("shallow", [False, True])
def test_a_listing_of_many_pages_is_whole_and_in_order(
    request: pytest.FixtureRequest, prefix: str, kind: str, shallow: bool
) -> None:
    server: servers.S3Server = request.getfixturevalue(kind)
    client = servers.client(server.endpoint)
    client.meta.events.register("before-parameter-build.s3.ListObjectsV2", small_pages)
    store = S3Store(server.bucket, prefix, client)
    for key in ("a", "b/1", "b/2", "b/3", "c", "d/1", "e"):
        store.create(key, b"")

    found = [entry.key for entry in store.keys("", shallow=shallow)]

    assert (
        ["a", "b/", "c", "d/", "e"] if shallow else ["a", "b/1", "b/2", "b/3", "c", "d/1", "e"]
    ) == found


def test_the_empty_objects_by_which_a_console_shows_folders_are_not_extracts(
    moto_server: servers.S3Server, prefix: str
) -> None:
    client, store = servers.client(moto_server.endpoint), servers.store(moto_server, prefix)
    for marker in ("extracts/", "extracts/old/"):
        client.put_object(Bucket=moto_server.bucket, Key=f"{prefix}/{marker}", Body=b"")
    store.create("extracts/a.csv", b"1")

    assert ["extracts/a.csv"] == [entry.key for entry in store.keys("extracts/")]
    assert ["extracts/a.csv", "extracts/old/"] == [
        entry.key for entry in store.keys("extracts/", shallow=True)
    ]


def test_a_pin_holds_in_a_bucket_that_keeps_versions_too(moto_server: servers.S3Server) -> None:
    client, bucket = servers.client(moto_server.endpoint), f"versions-{uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    store = S3Store(bucket, "", client)
    store.create("a", b"old")
    pin = next(store.keys("a"))

    store.replace("a", [b"new"])

    with pytest.raises(ObjectChangedError):
        store.open("a", pin)
    assert not store.create("a", b"third")


def test_uploads_that_a_killed_writer_left_are_aborted_when_they_are_old(
    ministack_server: servers.S3Server, prefix: str
) -> None:
    # moto dates every upload to 2010
    client, store = (
        servers.client(ministack_server.endpoint),
        servers.store(ministack_server, prefix),
    )
    client.create_multipart_upload(Bucket=ministack_server.bucket, Key=f"{prefix}/report/links.csv")
    hour = timedelta(hours=1)

    young = store.leftovers("report/", datetime.now(UTC) - hour)
    [old] = store.leftovers("report/", datetime.now(UTC) + hour)
    store.discard(old)

    assert ([], "report/links.csv") == (young, old.key)
    assert "Uploads" not in client.list_multipart_uploads(
        Bucket=ministack_server.bucket, Prefix=prefix
    )


def test_connect_finds_the_server_by_the_standard_environment(
    moto_server: servers.S3Server, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in moto_server.environment.items():
        monkeypatch.setenv(name, value)

    store = connect(f"s3://{moto_server.bucket}/{prefix}/", threads=4)

    assert store.create("a", b"1")
    assert ["a"] == [entry.key for entry in store.keys("")]
    assert f"S3Store('s3://{moto_server.bucket}/{prefix}/')" == repr(store)


def test_a_bucket_that_is_not_there_is_said_at_once(moto_server: servers.S3Server) -> None:
    store = S3Store("no-such-bucket", "", servers.client(moto_server.endpoint))

    with pytest.raises(StoreMissingError, match="NoSuchBucket"):
        store.create("a", b"")
    with pytest.raises(StoreMissingError):
        list(store.keys(""))


def test_a_server_that_is_not_there_is_said_after_the_budget() -> None:
    client = servers.client(f"http://127.0.0.1:{servers.free_port()}")
    store = S3Store("cards", "", client, Retry(budget=0.3))

    with pytest.raises(StoreBusyError, match="EndpointConnectionError"):
        store.create("a", b"")


def test_missing_credentials_are_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, os.devnull)

    with pytest.raises(StoreCredentialsError, match="NoCredentialsError"):
        connect("s3://cards/x", threads=1).create("a", b"")


@pytest.mark.parametrize("url", ["cards/prefix", "s3://", "s3:///prefix", "https://cards/prefix"])
def test_an_address_that_is_not_one_of_s3_is_refused(url: str) -> None:
    with pytest.raises(StoreRefusedError):
        connect(url, threads=1)


ANSWERS: list[tuple[str, int, type[CardlinkError]]] = [
    ("SlowDown", 503, StoreBusyError),
    ("NeverHeardOf", 503, StoreBusyError),
    ("NeverHeardOf", 400, StoreRefusedError),
    ("RequestTimeout", 400, StoreBusyError),
    ("BadDigest", 400, StoreBusyError),
    ("PermanentRedirect", 301, StoreRefusedError),
    ("403", 403, StoreDeniedError),
    ("", 0, StoreBusyError),
]


@pytest.mark.parametrize(("code", "status", "kind"), ANSWERS)
def test_an_error_response_is_translated_by_its_code_or_else_by_its_status(
    code: str, status: int, kind: type[CardlinkError]
) -> None:
    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}

    error = translated("a", boto.ClientError(answer, "PutObject"))

    assert kind is type(error)


@pytest.mark.parametrize(
    "error",
    [RecursionError(), boto.HTTPClientError(error=RecursionError())],
    ids=["bare", "within"],
)
def test_an_endless_redirect_is_named_wherever_boto3_meets_it(error: Exception) -> None:
    ours = translated("a", error)

    assert isinstance(ours, StoreEndpointError)
    assert "it redirects without naming a region" in str(ours)


def test_a_foreign_message_is_never_shown() -> None:
    answer = {"Error": {"Code": "4242 4242 4242 4242"}, "ResponseMetadata": {"HTTPStatusCode": 400}}

    error = translated("a", boto.ClientError(answer, "PutObject"))

    assert {"place": "a", "code": "400"} == error.fields


def test_every_error_that_botocore_has_is_one_of_ours() -> None:
    kinds: list[type[Exception]] = [
        kind
        for kind in vars(boto).values()
        if isinstance(kind, type) and issubclass(kind, boto.BotoCoreError)
    ]

    ours = [translated("a", kind.__new__(kind)) for kind in kinds]

    assert len(kinds) > 50
    assert all(isinstance(error, CardlinkError) for error in ours)


@pytest.mark.parametrize("hours", [0, 12])
def test_a_presigned_link_opens_a_report_as_a_page_without_credentials(
    moto_server: servers.S3Server, prefix: str, hours: int
) -> None:
    store = servers.store(moto_server, prefix)
    store.create("report.html", b"<p>done</p>")

    url = store.presigned("report.html", hours)

    assert bool(hours) == bool(url)
    if hours:
        with urlopen(url, timeout=60) as answer:
            assert b"<p>done</p>" == answer.read()
            assert "text/html; charset=utf-8" == answer.headers["Content-Type"]


def test_a_presigned_link_is_signed_as_every_bucket_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")

    url = connect("s3://cards/prod", threads=1).presigned("bank/report.html", 12)

    assert "/prod/bank/report.html?" in url
    assert "X-Amz-Expires=43200" in url
    assert "X-Amz-Signature=" in url
