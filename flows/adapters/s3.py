"""S3 as a store.

An ETag pins what is read, and one loop retries. `create` is atomic where the store has conditional
writes; where it has none, an object is looked for before it is written. That is enough for chunks,
ledgers, deliveries and the journal, whose names the database gives to one process, or whose content
is the same whoever writes it. An alert or a summary may then be sent twice by two concurrent
processes.

What a bucket asks for is a setting of the store, never of its callers: encryption and lock of what
is written, the owner on every call, and the malware scanner's verdict on a dropped file, which
`open` itself asks for, so that no way of reading one can pass it. The list of pending extracts asks
before only to say what waits. A lock is put on what nothing ever deletes (`LASTING`).

Retries are ours alone (botocore tries once), because only then do we know whether the response to a
write was lost. A 412 after a lost response is read and compared. Pins are ETags, because listings
carry no version id.

The file is long, and one subject: every method is a call or two of S3 with the same bucket, prefix,
headers, retries and errors. What has a subject of its own is elsewhere: reading an open object in
`s3_source.py`, the meaning of S3's errors in `s3_errors.py`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from heapq import merge
from itertools import chain
from threading import Lock
from typing import Any

import boto3
from botocore.config import Config

from flows.adapters.s3_errors import ensure_answered, with_our_errors
from flows.adapters.s3_pace import keep_pace
from flows.adapters.s3_source import S3Source
from flows.errors import CardlinkError
from flows.redaction import redact
from flows.runs import store
from flows.runs.keys import DROPPED, FOLDER_TIME, LASTING, checked, checked_prefix
from flows.runs.retry import Retry
from flows.runs.store import Entry, ObjectChangedError, StoreRefusedError
from schemas.settings import StoreSettings

PART = 8 * 2**20  # bytes; S3 takes up to 10,000 parts of at least 5 MiB: enough for 78 GiB
_USUAL = StoreSettings()


def connect(
    url: str,
    *,
    threads: int,
    retry: Retry | None = None,
    profile: str | None = None,
    settings: StoreSettings = _USUAL,
) -> S3Store:
    """Open `s3://bucket/prefix` for `threads` callers at once.

    Endpoint, region and credentials are boto3's own. `profile` names a profile of the AWS
    configuration, for credentials other than the process's own.

    botocore makes one attempt only: its retries share a quota that runs out under load, and hide
    whether the response to a write was lost. Every wait is bounded: 5 s to connect, 30 s for each
    piece of a response.
    """
    scheme, _, path = url.partition("://")
    bucket, _, prefix = path.partition("/")
    if scheme != "s3" or not bucket:
        raise StoreRefusedError(place=url, code="not s3://bucket/prefix")
    config = Config(
        connect_timeout=5,
        read_timeout=30,
        retries={"total_max_attempts": 1, "mode": "standard"},
        max_pool_connections=threads + 2,  # the extract and a listing hold one each
        # presigned links have an older one by default, which new buckets refuse
        signature_version="s3v4",
    )

    def client() -> Any:
        return with_our_errors(
            url, lambda: boto3.session.Session(profile_name=profile).client("s3", config=config)
        )

    opened = S3Store(bucket, prefix, client(), retry, settings)
    opened.reconnect = client
    return opened


class S3Store:
    """Objects below `prefix` of a bucket: Store, Cleaner, Presigner, Screened, Lockable.

    Thread-safe, as boto3's clients are.
    """

    def __init__(
        self,
        bucket: str,
        prefix: str,
        client: Any,
        retry: Retry | None = None,
        settings: StoreSettings = _USUAL,
    ) -> None:
        self._bucket = bucket
        self._prefix = f"{prefix.strip('/')}/" if prefix.strip("/") else ""
        self._retry = retry or Retry()
        self._client = keep_pace(client, self._retry.clock)
        # only credentials that worked are waited for: those of a command that begins are its user's
        self._temporary: tuple[type[Exception], ...] = store.TEMPORARY
        self.reconnect: Callable[[], Any] = lambda: client
        self._has_conditions = True  # until it shows that it has none
        self._connecting = Lock()
        self._settings = settings
        self._where = {"Bucket": bucket}
        if settings.owner:
            self._where["ExpectedBucketOwner"] = settings.owner

    def __repr__(self) -> str:
        return f"S3Store('s3://{self._bucket}/{self._prefix}')"

    def create(self, key: str, data: bytes) -> bool:
        """Write `key`; False if it exists.

        True also where a response was lost and the object has the same content.
        """
        request = {"Key": self._name(key), "Body": data, **self._written_as(key)}
        is_unanswered = False

        def put() -> bool:
            nonlocal is_unanswered
            try:
                return self._put_new(key, request)
            except store.TEMPORARY:
                is_unanswered = True
                raise

        is_created = self._retry(put, self._temporary)
        return is_created or (is_unanswered and store.read_if_stored(self, key) == data)

    def _put_new(self, key: str, request: dict[str, Any]) -> bool:
        """Write an object unless there is one; False where there is."""
        if self._has_conditions:
            try:
                self._call("put_object", key, IfNoneMatch="*", **request)
            except ObjectChangedError:  # 412: taken
                return False
            except StoreRefusedError:
                pass  # the condition perhaps: if not, the same is refused without it
            else:
                return True
        with suppress(store.ObjectMissingError):
            self._call("head_object", key, Key=request["Key"])
            return False
        self._call("put_object", key, **request)
        self._has_conditions = False
        return True

    def replace(self, key: str, parts: Iterable[bytes]) -> None:
        """Write `key` atomically over any earlier content, which stays if `parts` raises."""
        name = self._name(key)
        pieces = _regrouped(parts, PART)
        first = next(pieces)
        second = next(pieces, None)
        if second is None:
            self._retried("put_object", key, Key=name, Body=first, **self._written_as(key))
        else:
            self._replace_in_parts(key, name, chain([first, second], pieces))

    def open(self, key: str, pin: Entry | None = None) -> S3Source:
        """Open `key`, at the ETag of `pin` if given; ObjectMissingError or ObjectChangedError."""
        name = self._name(key)
        self.ensure_clean(key)
        condition = {"IfMatch": pin.version} if pin else {}
        response = self._retried("get_object", key, Key=name, **condition)
        entry = self._entry(
            name, response["ContentLength"], response["LastModified"], response["ETag"]
        )
        if pin and pin.version != entry.version:  # the server ignored If-Match
            response["Body"].close()
            raise ObjectChangedError(key=key)
        request = partial(self._call, "get_object", key, Key=name, IfMatch=entry.version)
        return S3Source(self._bucket, entry, response["Body"], request, self._retry)

    def ensure_clean(self, key: str) -> None:
        """Read the verdict on a dropped file, where the settings require one.

        Raises VerdictAwaitedError and VerdictRefusedError.
        """
        tag = self._settings.verdict_tag
        clean = self._settings.verdict_clean
        if tag is None or not DROPPED.match(key):
            return
        listed = self._retried("get_object_tagging", key, Key=self._name(key))["TagSet"]
        tags = {entry["Key"]: entry["Value"] for entry in listed}
        if tag not in tags:
            raise store.VerdictAwaitedError(key=key, tag=tag)
        if tags[tag] != clean:
            verdict = redact(tags[tag])[:40]
            raise store.VerdictRefusedError(key=key, tag=tag, found=verdict, clean=clean)

    def keys(self, prefix: str, *, shallow: bool = False) -> Iterator[Entry]:
        """List objects whose key begins with `prefix`, in key order.

        `shallow`: one level; folders end in '/' with size 0.
        """
        request = {"Prefix": self._prefix + checked_prefix(prefix)}
        if shallow:
            request["Delimiter"] = "/"
        while True:
            page = self._retried("list_objects_v2", prefix, **request)
            yield from self._entries_of(page)
            if not page.get("IsTruncated"):
                return
            if not page.get("NextContinuationToken"):
                raise store.StoreEndpointError(
                    place=self._bucket, problem="its listing is incomplete"
                )
            request["ContinuationToken"] = page["NextContinuationToken"]

    def _entries_of(self, page: dict[str, Any]) -> Iterator[Entry]:
        """Yield what a page of a listing has, in key order."""
        objects = (
            self._entry(listed["Key"], listed["Size"], listed["LastModified"], listed["ETag"])
            for listed in page.get("Contents", [])
            if not listed["Key"].endswith("/")  # consoles create empty ones to show folders
        )
        folders = (
            self._entry(listed["Prefix"], 0, FOLDER_TIME, "")
            for listed in page.get("CommonPrefixes", [])
        )
        return merge(objects, folders, key=lambda entry: entry.key.encode())

    def delete(self, key: str) -> None:
        """Remove `key`, if it exists."""
        self._retried("delete_object", key, Key=self._name(key))

    def leftovers(self, prefix: str, before: datetime) -> list[Entry]:
        """List the multipart uploads under `prefix` that killed writers left before `before`.

        Their sizes are not known.
        """
        request = {"Prefix": self._prefix + checked_prefix(prefix)}
        abandoned: list[Entry] = []
        while True:
            page = self._retried("list_multipart_uploads", prefix, **request)
            abandoned += (
                self._entry(upload["Key"], 0, upload["Initiated"], upload["UploadId"])
                for upload in page.get("Uploads", [])
                if upload["Initiated"] < before
            )
            if not page.get("IsTruncated") or not page.get("NextKeyMarker"):
                return abandoned
            request |= {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page.get("NextUploadIdMarker", ""),
            }

    def discard(self, leftover: Entry) -> None:
        """Abort an upload that `leftovers` listed."""
        upload = {"Key": self._prefix + leftover.key, "UploadId": leftover.version}
        with suppress(ObjectChangedError):  # ended meanwhile
            self._retried("abort_multipart_upload", leftover.key, **upload)

    def hides(self) -> bool | None:
        """Return whether the bucket is versioned.

        None if we may not ask, or the server does not know.
        """
        try:  # suspended counts too: earlier objects keep their versions
            return "Status" in self._retried("get_bucket_versioning", self._bucket)
        except (store.StoreDeniedError, StoreRefusedError):
            return None

    def ensure_lockable(self) -> None:
        """Raise StoreRefusedError where objects are to be locked and the bucket has no locks."""
        if self._settings.lock_mode:
            place = "the Object Lock that [store] lock_mode asks for"
            self._retried("get_object_lock_configuration", place)

    def presigned(self, key: str, hours: int) -> str:
        """Return a link to an HTML page that works for some hours, "" for none.

        It can do what our credentials can.
        """
        shown = {
            "ResponseContentType": "text/html; charset=utf-8",
            "ResponseContentDisposition": "inline",
        }
        # a browser cannot send the owner's header
        request = {"Bucket": self._bucket, "Key": self._name(key), **shown}
        if not hours:
            return ""
        sign = partial(
            self._client.generate_presigned_url, "get_object", request, ExpiresIn=hours * 3600
        )
        return str(with_our_errors(key, sign))

    def _written_as(self, key: str) -> dict[str, Any]:
        """Return how an object is written: its encryption, and where it is evidence, its lock."""
        settings = self._settings
        headers: dict[str, Any] = {}
        if settings.kms_key:
            headers |= {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": settings.kms_key}
        if settings.bucket_key is not None:
            headers["BucketKeyEnabled"] = settings.bucket_key
        if settings.lock_mode and settings.lock_days and LASTING.match(key):
            until = datetime.now(UTC) + timedelta(days=settings.lock_days)
            headers |= {"ObjectLockMode": settings.lock_mode, "ObjectLockRetainUntilDate": until}
        return headers

    def _name(self, key: str) -> str:
        return self._prefix + checked(key)

    def _call(self, operation: str, key: str, **request: Any) -> Any:
        client = self._client
        try:
            answer = with_our_errors(
                key, lambda: getattr(client, operation)(**self._where, **request)
            )
        except store.StoreExpiredError:
            # a client reads its profile once: a new one finds what was renewed there
            with self._connecting:
                if self._client is client:
                    self._client = keep_pace(self.reconnect(), self._retry.clock)
            raise
        ensure_answered(operation, key, answer)
        self._temporary = (*store.TEMPORARY, store.StoreExpiredError)
        return answer

    def _retried(self, operation: str, key: str, **request: Any) -> Any:
        return self._retry(lambda: self._call(operation, key, **request), self._temporary)

    def _entry(self, name: str, size: int, modified: datetime, version: str) -> Entry:
        return Entry(name.removeprefix(self._prefix), size, modified.astimezone(UTC), version)

    def _replace_in_parts(self, key: str, name: str, pieces: Iterable[bytes]) -> None:
        """Upload in parts, which appear all at once or not at all.

        Any early end aborts the upload, even a signal.
        """
        marker = secrets.token_hex(16)
        headers = {"Metadata": {"cardlink-write": marker}, **self._written_as(key)}
        upload = self._retried("create_multipart_upload", key, Key=name, **headers)
        where = {"Key": name, "UploadId": upload["UploadId"]}
        try:
            done = []
            for number, piece in enumerate(pieces, start=1):
                part = self._retried("upload_part", key, **where, PartNumber=number, Body=piece)
                done.append({"PartNumber": number, "ETag": part["ETag"]})
            self._complete(key, where, done, marker)
        except BaseException:
            # the error that led here counts; cleanup removes the upload later
            with suppress(CardlinkError):
                self._call("abort_multipart_upload", key, **where)
            raise

    def _complete(
        self, key: str, where: dict[str, str], done: list[dict[str, Any]], marker: str
    ) -> None:
        try:
            self._retried(
                "complete_multipart_upload", key, **where, MultipartUpload={"Parts": done}
            )
        except (ObjectChangedError, StoreRefusedError):
            # The first response was lost and the upload is complete, so it is gone: the marker
            # shows whose object it is
            head = self._retried("head_object", key, Key=where["Key"])
            if head["Metadata"].get("cardlink-write") != marker:
                raise


def _regrouped(parts: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Yield the same bytes in pieces of `size`, the last one shorter.

    Without any bytes there is one empty piece.
    """
    held = bytearray()
    for part in parts:
        held += part
        while len(held) > size:
            yield bytes(held[:size])
            del held[:size]
    yield bytes(held)
