"""Translate what boto3 raises into our errors: which are temporary, and which need an operator."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError

from flows.errors import CardlinkError, fields_of
from flows.runs.store import (
    ObjectChangedError,
    ObjectDamagedError,
    ObjectMissingError,
    StoreBusyError,
    StoreClockError,
    StoreCredentialsError,
    StoreDeniedError,
    StoreExpiredError,
    StoreFullError,
    StoreMissingError,
    StoreRefusedError,
    StoreUnsafeError,
)

T = TypeVar("T")

FOREIGN = (boto.BotoCoreError, boto.ClientError, HTTPError, OSError, RecursionError)  # all that boto3 raises

_PASSING_CODES = (  # status 400, but damage or delay in transit: the same request may succeed
    *("BadDigest", "IncompleteBody", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"),
    *("RequestTimeout", "Throttling", "ThrottlingException"),
)


_BY_CODE: dict[str, type[CardlinkError]] = {
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion"), ObjectMissingError),
    # a condition failed, or the multipart upload was completed or aborted meanwhile
    **dict.fromkeys(("PreconditionFailed", "NoSuchUpload"), ObjectChangedError),
    "NoSuchBucket": StoreMissingError,
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AccountProblem"), StoreDeniedError),
    **dict.fromkeys(("InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"), StoreCredentialsError),
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"), StoreExpiredError),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), StoreClockError),
    **dict.fromkeys(("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"), StoreFullError),
    "NotImplemented": StoreUnsafeError,
    **dict.fromkeys(_PASSING_CODES, StoreBusyError),
}

_BY_STATUS: dict[int, type[CardlinkError]] = {
    401: StoreCredentialsError,
    403: StoreDeniedError,
    404: ObjectMissingError,
    408: StoreBusyError,
    409: StoreBusyError,  # a concurrent conditional write: nothing was written, and botocore does not retry it
    412: ObjectChangedError,
    429: StoreBusyError,
    501: StoreUnsafeError,
    507: StoreFullError,
}

_CREDENTIALS = (
    *(boto.NoCredentialsError, boto.PartialCredentialsError, boto.CredentialRetrievalError),
    *(boto.TokenRetrievalError, boto.SSOError),
)
_CONFIGURATION = (
    *(boto.ParamValidationError, boto.NoRegionError, boto.InvalidRegionError, boto.ProfileNotFound),
    *(boto.ConfigParseError, RecursionError),  # boto3 follows a redirect that names no region without end
)


def with_our_errors(place: str, act: Callable[[], T]) -> T:
    """Return what `act` returns; an error of boto3 becomes one of ours, without a chain to the original."""
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
    kind: type[CardlinkError] = StoreBusyError
    if isinstance(error, boto.ClientError):
        code, kind = _answered(error)
    elif isinstance(error, boto.FlexibleChecksumError):
        kind = ObjectDamagedError
    elif isinstance(error, _CREDENTIALS):
        kind = StoreCredentialsError
    elif isinstance(error, _CONFIGURATION):
        kind = StoreRefusedError
    fields = {
        "key": place,
        "place": place,
        "code": code,
        "problem": f"it does not implement a request we need ({code})",
    }
    return kind(**{name: fields[name] for name in fields_of(kind)})


def _answered(error: boto.ClientError) -> tuple[str, type[CardlinkError]]:
    """Return the code of an error response, and our class for it."""
    raw = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = raw if re.fullmatch(r"[A-Za-z0-9.]{1,60}", raw) else str(status)
    unlisted = StoreRefusedError if 300 <= status < 500 else StoreBusyError
    return code, _BY_CODE.get(code) or _BY_STATUS.get(status) or unlisted
