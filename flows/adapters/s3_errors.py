"""Translate what boto3 raises into our errors: which are temporary, and which need an operator."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError

from flows.errors import CardlinkError
from flows.runs.store import (
    ObjectChangedError,
    ObjectDamagedError,
    ObjectMissingError,
    StoreBusyError,
    StoreClockError,
    StoreCredentialsError,
    StoreDeniedError,
    StoreFullError,
    StoreMissingError,
    StoreRefusedError,
    StoreUnsafeError,
)

T = TypeVar("T")

FOREIGN = (boto.BotoCoreError, boto.ClientError, HTTPError, OSError)  # everything boto3 and its sockets raise

_CREDENTIAL_CODES = (
    *("ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch"),
    "TokenRefreshRequired",
)
_PASSING_CODES = (  # status 400, but damage or delay in transit: the same request may succeed
    *("BadDigest", "IncompleteBody", "InvalidDigest", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch"),
    *("RequestTimeout", "Throttling", "ThrottlingException"),
)


def _not_implemented(place: str, code: str) -> CardlinkError:
    return StoreUnsafeError(place=place, problem=f"it does not implement a request that is needed ({code})")


_BY_CODE: dict[str, Callable[..., CardlinkError]] = {
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion"), lambda place, code: ObjectMissingError(key=place)),
    # a condition failed, or the multipart upload was completed or aborted meanwhile
    **dict.fromkeys(("PreconditionFailed", "NoSuchUpload"), lambda place, code: ObjectChangedError(key=place)),
    "NoSuchBucket": StoreMissingError,
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AccountProblem"), StoreDeniedError),
    **dict.fromkeys(_CREDENTIAL_CODES, StoreCredentialsError),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), StoreClockError),
    **dict.fromkeys(("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"), StoreFullError),
    "NotImplemented": _not_implemented,
    **dict.fromkeys(_PASSING_CODES, StoreBusyError),
}

_BY_STATUS: dict[int, Callable[..., CardlinkError]] = {
    401: StoreCredentialsError,
    403: StoreDeniedError,
    404: lambda place, code: ObjectMissingError(key=place),
    408: StoreBusyError,
    409: StoreBusyError,  # a concurrent conditional write: nothing was written, and botocore does not retry it
    412: lambda place, code: ObjectChangedError(key=place),
    429: StoreBusyError,
    501: _not_implemented,
    507: StoreFullError,
}

_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.CredentialRetrievalError,
    boto.TokenRetrievalError,
    boto.SSOError,
)
_CONFIGURATION = (
    boto.ParamValidationError,
    boto.NoRegionError,
    boto.InvalidRegionError,
    boto.ProfileNotFound,
    boto.ConfigParseError,
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
    if isinstance(error, boto.ClientError):
        return _answered(place, error)
    kind = type(error).__name__
    if isinstance(error, boto.FlexibleChecksumError):
        return ObjectDamagedError(key=place)
    if isinstance(error, _CREDENTIALS):
        return StoreCredentialsError(place=place, code=kind)
    if isinstance(error, _CONFIGURATION):
        return StoreRefusedError(place=place, code=kind)
    return StoreBusyError(place=place, code=kind)


def _answered(place: str, error: boto.ClientError) -> CardlinkError:
    raw = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    code = raw if re.fullmatch(r"[A-Za-z0-9.]{1,60}", raw) else str(status)
    make = _BY_CODE.get(code) or _BY_STATUS.get(status)
    if make is None:
        make = StoreRefusedError if 300 <= status < 500 else StoreBusyError
    return make(place=place, code=code)
