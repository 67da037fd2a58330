"""The errors of boto3 as ours: which of them means what, and whether it may pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError

from flows.errors import CardlinkError
from flows.runs import store
from flows.runs.store import ObjectChangedError, StoreBusyError, StoreRefusedError

T = TypeVar("T")


# all that boto3 raises
FOREIGN = (boto.BotoCoreError, boto.ClientError, HTTPError, OSError, RecursionError)


_BY_CODE: dict[str, type[CardlinkError]] = {  # or by status
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion"), store.ObjectMissingError),
    # a condition failed, or the multipart upload was completed or aborted meanwhile
    **dict.fromkeys(("PreconditionFailed", "NoSuchUpload"), ObjectChangedError),
    "NoSuchBucket": store.StoreMissingError,
    **dict.fromkeys(
        ("AccessDenied", "AllAccessDisabled", "AccountProblem"), store.StoreDeniedError
    ),
    **dict.fromkeys(
        ("InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"), store.StoreCredentialsError
    ),
    **dict.fromkeys(
        ("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"), store.StoreExpiredError
    ),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), store.StoreClockError),
    **dict.fromkeys(
        ("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"), store.StoreFullError
    ),
    "NotImplemented": store.StoreUnsafeError,
    # status 400, but damage or delay in transit: the same request may succeed
    **dict.fromkeys(
        ("BadDigest", "IncompleteBody", "InvalidDigest", "XAmzContentChecksumMismatch"),
        StoreBusyError,
    ),
    **dict.fromkeys(("XAmzContentSHA256Mismatch", "RequestTimeout"), StoreBusyError),
    **dict.fromkeys(("Throttling", "ThrottlingException"), StoreBusyError),
    "401": store.StoreCredentialsError,
    "403": store.StoreDeniedError,
    "404": store.ObjectMissingError,
    "412": ObjectChangedError,
    "501": store.StoreUnsafeError,
    "507": store.StoreFullError,
    # 409: a concurrent conditional write; nothing was written, and botocore does not retry it
    **dict.fromkeys(("408", "409", "429"), StoreBusyError),
}


_BY_KIND: dict[type[Exception], type[CardlinkError]] = {
    **dict.fromkeys(
        (boto.NoCredentialsError, boto.PartialCredentialsError), store.StoreCredentialsError
    ),
    **dict.fromkeys(
        (boto.CredentialRetrievalError, boto.TokenRetrievalError), store.StoreCredentialsError
    ),
    boto.SSOError: store.StoreCredentialsError,
    **dict.fromkeys(
        (boto.ParamValidationError, boto.NoRegionError, boto.InvalidRegionError), StoreRefusedError
    ),
    **dict.fromkeys((boto.ProfileNotFound, boto.ConfigParseError), StoreRefusedError),
    RecursionError: StoreRefusedError,  # boto3 follows a redirect that names no region without end
    boto.FlexibleChecksumError: store.ObjectDamagedError,
}


def with_our_errors(place: str, act: Callable[[], T]) -> T:
    """Return what `act` returns; an error of boto3 becomes one of ours, without a chain to the
    original.
    """
    try:
        return act()
    except FOREIGN as error:
        problem = translated(place, error)
    try:
        raise problem
    finally:
        del problem  # error and frame would keep each other alive, and the callers' rows


def translated(place: str, error: Exception) -> CardlinkError:
    """Return our error for one of boto3's, with names and codes only, never its message."""
    code: str = type(error).__name__
    kind = next(
        (ours for theirs, ours in _BY_KIND.items() if isinstance(error, theirs)), StoreBusyError
    )
    if isinstance(error, boto.ClientError):
        raw = str(error.response.get("Error", {}).get("Code", ""))
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = raw if re.fullmatch(r"[A-Za-z0-9.]{1,60}", raw) else str(status)
        unlisted = StoreRefusedError if 300 <= status < 500 else StoreBusyError
        kind = _BY_CODE.get(code) or _BY_CODE.get(str(status), unlisted)
    problem = f"it does not implement a request we need ({code})"
    return store.error_of(kind, key=place, place=place, code=code, problem=problem)
