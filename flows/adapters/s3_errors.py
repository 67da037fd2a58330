"""What boto3 raises, told as errors of ours: which pass with time, and which an operator must see to."""

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

FOREIGN = (boto.BotoCoreError, boto.ClientError, HTTPError, OSError)  # all that boto3 and its sockets raise

_BY_CODE: dict[str, Callable[..., CardlinkError]] = {
    **dict.fromkeys(("NoSuchKey", "NoSuchVersion"), lambda place, code: ObjectMissingError(key=place)),
    # a condition did not hold, or the upload in parts was completed or swept by another meanwhile
    **dict.fromkeys(("PreconditionFailed", "NoSuchUpload"), lambda place, code: ObjectChangedError(key=place)),
    "NoSuchBucket": StoreMissingError,
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AccountProblem"), StoreDeniedError),
    **dict.fromkeys(
        (
            "ExpiredToken",
            "ExpiredTokenException",
            "InvalidAccessKeyId",
            "InvalidToken",
            "SignatureDoesNotMatch",
            "TokenRefreshRequired",
        ),
        StoreCredentialsError,
    ),
    **dict.fromkeys(("RequestTimeTooSkewed", "RequestExpired"), StoreClockError),
    **dict.fromkeys(("QuotaExceeded", "InsufficientStorage", "XMinioStorageFull"), StoreFullError),
    "NotImplemented": lambda place, code: StoreUnsafeError(
        place=place, problem="it does not implement a request we need"
    ),
    **dict.fromkeys(
        (
            "BadDigest",
            "IncompleteBody",
            "InvalidDigest",
            "RequestTimeout",
            "Throttling",
            "ThrottlingException",
            "XAmzContentChecksumMismatch",
            "XAmzContentSHA256Mismatch",
        ),
        StoreBusyError,  # 400 by number, but damage or delay on the way: the same request again may well arrive
    ),
}

_BY_STATUS: dict[int, Callable[..., CardlinkError]] = {
    401: StoreCredentialsError,
    403: StoreDeniedError,
    404: lambda place, code: ObjectMissingError(key=place),
    408: StoreBusyError,
    409: StoreBusyError,  # a conditional write met one under way: nothing was written, botocore does not retry it
    412: lambda place, code: ObjectChangedError(key=place),
    429: StoreBusyError,
    501: lambda place, code: StoreUnsafeError(place=place, problem="it does not implement a request we need"),
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
    """Return what `act` returns; what boto3 raises becomes an error of ours, with no chain to the foreign one."""
    try:
        return act()
    except FOREIGN as error:
        problem = translated(place, error)
    try:
        raise problem
    finally:
        del problem  # it and its frame would hold each other, and the callers' rows, until garbage is collected


def translated(place: str, error: Exception) -> CardlinkError:
    """Return our error for one of boto3's: names and codes only, never a foreign message."""
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
