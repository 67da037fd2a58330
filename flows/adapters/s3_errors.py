"""The errors of boto3 as ours: what each means, and whether it is temporary."""

import errno
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError

from flows.errors import CardlinkError, LimitError, reason_of
from flows.runs.store import (
    ObjectChangedError,
    ObjectDamagedError,
    ObjectMissingError,
    StoreBusyError,
    StoreClockError,
    StoreCredentialsError,
    StoreDeniedError,
    StoreEndpointError,
    StoreExpiredError,
    StoreFullError,
    StoreMissingError,
    StoreRefusedError,
    error_of,
)

T = TypeVar("T")

# what this machine, and no network, gave no more of
_LIMITS = (errno.ENOMEM, errno.EMFILE, errno.ENFILE)
# all that boto3 raises
FOREIGN = (boto.BotoCoreError, boto.ClientError, HTTPError, OSError, RecursionError)

# by code, or by status where the code is not listed
_BY_CODE: dict[str, type[CardlinkError]] = {
    "NoSuchKey": ObjectMissingError,
    "NoSuchVersion": ObjectMissingError,
    # a condition failed, or the multipart upload was completed or aborted meanwhile
    "PreconditionFailed": ObjectChangedError,
    "NoSuchUpload": ObjectChangedError,
    "NoSuchBucket": StoreMissingError,
    "AccessDenied": StoreDeniedError,
    "AllAccessDisabled": StoreDeniedError,
    "AccountProblem": StoreDeniedError,
    "InvalidAccessKeyId": StoreCredentialsError,
    "InvalidToken": StoreCredentialsError,
    "SignatureDoesNotMatch": StoreCredentialsError,
    "ExpiredToken": StoreExpiredError,
    "ExpiredTokenException": StoreExpiredError,
    "TokenRefreshRequired": StoreExpiredError,
    "RequestTimeTooSkewed": StoreClockError,
    "RequestExpired": StoreClockError,
    "QuotaExceeded": StoreFullError,
    "InsufficientStorage": StoreFullError,
    "XMinioStorageFull": StoreFullError,
    "NotImplemented": StoreRefusedError,
    "ObjectLockConfigurationNotFoundError": StoreRefusedError,
    # status 400, but damage or delay in transit: the same request may succeed
    "BadDigest": StoreBusyError,
    "IncompleteBody": StoreBusyError,
    "InvalidDigest": StoreBusyError,
    "XAmzContentChecksumMismatch": StoreBusyError,
    "XAmzContentSHA256Mismatch": StoreBusyError,
    "RequestTimeout": StoreBusyError,
    "Throttling": StoreBusyError,
    "ThrottlingException": StoreBusyError,
    "401": StoreCredentialsError,
    "403": StoreDeniedError,
    "404": ObjectMissingError,
    "412": ObjectChangedError,
    "501": StoreRefusedError,
    "507": StoreFullError,
    "408": StoreBusyError,
    # a concurrent conditional write; nothing was written, and botocore does not retry it
    "409": StoreBusyError,
    "429": StoreBusyError,
}

_BY_KIND: dict[type[Exception], type[CardlinkError]] = {
    boto.NoCredentialsError: StoreCredentialsError,
    boto.PartialCredentialsError: StoreCredentialsError,
    boto.CredentialRetrievalError: StoreCredentialsError,
    boto.TokenRetrievalError: StoreCredentialsError,
    boto.SSOError: StoreCredentialsError,
    boto.ParamValidationError: StoreRefusedError,
    boto.NoRegionError: StoreRefusedError,
    boto.InvalidRegionError: StoreRefusedError,
    boto.ProfileNotFound: StoreRefusedError,
    boto.ConfigParseError: StoreRefusedError,
    RecursionError: StoreEndpointError,  # boto3 follows a redirect that names no region without end
    boto.FlexibleChecksumError: ObjectDamagedError,
}


# what each answer of S3 has, one of these at least
_ANSWERED: Final = {
    "get_object": {"ETag"},
    "head_object": {"ETag"},
    "put_object": {"ETag"},
    "upload_part": {"ETag"},
    "create_multipart_upload": {"UploadId"},
    "complete_multipart_upload": {"ETag"},
    "get_object_tagging": {"TagSet"},
    "list_objects_v2": {"Name", "IsTruncated", "KeyCount", "Contents"},
}


def ensure_answered(operation: str, place: str, answer: Mapping[str, Any]) -> None:
    """Raise StoreEndpointError where an answer is not one of S3: whoever takes a web page for a
    listing or for a receipt believes that there is nothing, or that something was written.
    """
    expected = _ANSWERED.get(operation)
    if expected and expected.isdisjoint(answer):
        problem = f"its response to {operation} is not from S3; perhaps it is a web page"
        raise StoreEndpointError(place=place, problem=problem)


def with_our_errors(place: str, act: Callable[[], T]) -> T:
    """Return what `act` returns.

    An error of boto3 becomes one of ours, without a chain to the original.
    """
    try:
        return act()
    except FOREIGN as error:
        problem = translated(place, error)
    try:
        raise problem
    finally:
        del problem  # error and frame would keep each other alive, and the callers' rows


def _code_of(error: boto.ClientError, status: int) -> str:
    """Return the code of a response, the status where it has none that can be shown."""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return code if re.fullmatch(r"(?!.*[0-9]{4})[A-Za-z0-9.]{1,60}", code) else str(status)


def _limit(error: BaseException | None) -> int:
    """Return the number of the limit of this machine that an error is about, 0 for none."""
    while error is not None:
        number = getattr(error, "errno", None)
        if number in _LIMITS:
            return int(number)
        error = getattr(error, "kwargs", {}).get("error") or error.__cause__ or error.__context__
    return 0


def _within(error: Exception) -> Exception:
    """Return the endless redirect that an error of boto3's client is about, else the error."""
    cause = getattr(error, "kwargs", {}).get("error")
    return cause if isinstance(cause, RecursionError) else error


def translated(place: str, error: Exception) -> CardlinkError:
    """Return our error for one of boto3's, with names and codes only, never its message."""
    limit = _limit(error)
    if limit:
        return LimitError(place=f"work on {place}", reason=reason_of(limit))
    error = _within(error)
    code: str = type(error).__name__
    kinds = (kind for foreign, kind in _BY_KIND.items() if isinstance(error, foreign))
    kind = next(kinds, StoreBusyError)
    if isinstance(error, boto.ClientError):
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        code = _code_of(error, status)
        unlisted = StoreRefusedError if 300 <= status < 500 else StoreBusyError
        kind = _BY_CODE.get(code) or _BY_CODE.get(str(status), unlisted)
    problem = "it redirects without naming a region"
    return error_of(kind, key=place, place=place, code=code, problem=problem)
