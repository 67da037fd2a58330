"""A moto server that judges requests of S3 as AWS does: identity policies and the bucket's own,
with their conditions.

moto itself knows most actions and resources. Added here: conditions, the rights that a header needs
(a lock, a KMS key) or a query, and the policy of the bucket. The key `test` is the account's owner, whom only a
bucket's policy refuses. Every right that a request used is a line of the file IAM_LOG: Sid and
action. Loopback counts as TLS, but for a request with the header X-In-The-Clear.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

from moto.core.authorization import ActionAuthenticatorMixin
from moto.iam.access_control import PermissionResult, S3IAMRequest
from moto.s3.exceptions import S3AccessDeniedError
from moto.s3.models import FakeBucket, s3_backends
from moto.server import main

OWNER = "test"


def like(patterns: Any, text: str) -> bool:
    """Return whether a text is like one of the patterns, in which `*` is any text and `?` any
    character.
    """
    each = [patterns] if isinstance(patterns, str) else patterns
    parts = (re.escape(one).replace(r"\*", ".*").replace(r"\?", ".") for one in each)
    return any(re.fullmatch(part, text, re.DOTALL) for part in parts)


def holds(operator: str, key: str, wanted: Any, context: Mapping[str, str]) -> bool:
    """Return whether a condition holds for a request."""
    found = context.get(key)
    if operator == "Null":
        return (found is None) is (wanted == "true")
    if operator == "Bool":
        return found is not None and found == str(wanted)
    if operator == "StringLike":
        return found is not None and like(wanted, found)
    raise ValueError(f"a policy has the condition {operator}, which this server does not know")


def applies(
    statement: Mapping[str, Any], action: str, resource: str, context: Mapping[str, str]
) -> bool:
    """Return whether a statement is about a request."""
    conditions = [
        holds(operator, key, wanted, context)
        for operator, keys in statement.get("Condition", {}).items()
        for key, wanted in keys.items()
    ]
    return (
        like(statement["Action"], action)
        and like(statement["Resource"], resource)
        and all(conditions)
    )


def needed(request: Any, action: str, resource: str) -> Iterator[tuple[str, str]]:
    """Yield the rights that a request needs, each with its resource."""
    if "object-lock" in parse_qs(urlsplit(request.uri).query, keep_blank_values=True):
        action = "GetBucketObjectLockConfiguration"
    yield f"s3:{action}", resource
    if request.headers.get("x-amz-object-lock-mode"):
        yield "s3:PutObjectRetention", resource
    if key := request.headers.get("x-amz-server-side-encryption-aws-kms-key-id"):
        yield "kms:GenerateDataKey", key
    bucket, _, name = resource.rpartition(":::")[2].partition("/")
    if action == "GetObject" and name:
        kept = s3_backends[request.current_account]["aws"].get_object(bucket, name)
        if kept is not None and kept.kms_key_id:
            yield "kms:Decrypt", kept.kms_key_id


def context_of(request: Any) -> dict[str, str]:
    """Return the condition keys of a request."""
    query = parse_qs(urlsplit(request.uri).query, keep_blank_values=True)
    partial = "uploads" in query or "partNumber" in query
    found = {"aws:SecureTransport": "true", "kms:ViaService": "s3.us-east-1.amazonaws.com"}
    found |= {"aws:SecureTransport": "false"} if request.headers.get("X-In-The-Clear") else {}
    found["s3:ObjectCreationOperation"] = "false" if partial else "true"
    found |= {"s3:prefix": query["prefix"][0]} if "prefix" in query else {}
    given = request.headers.get("If-None-Match")
    return found | ({"s3:if-none-match": given} if given else {})


def authorize(request: Any, kind: type, resource: str = "*") -> None:
    """Refuse a request of S3 that lacks a right, or that the bucket refuses."""
    credential = re.search("Credential=([^/]+)/", request.headers.get("Authorization", ""))
    if credential is None or kind is not S3IAMRequest:
        return
    action = request._get_action()
    context, own = context_of(request), Path(os.environ["IAM_LOG"])
    bucket = resource.rpartition(":::")[2].partition("/")[0]
    stored = s3_backends[request.current_account]["aws"].buckets.get(bucket)
    shared = json.loads(stored.policy)["Statement"] if stored and stored.policy else []
    rights = list(needed(request, action if isinstance(action, str) else action[0], resource))
    mine = [] if credential[1] == OWNER else statements(request, kind)
    for right, of in rights:
        about = [one for one in [*mine, *shared] if applies(one, right, of, context)]
        if any(one["Effect"] == "Deny" for one in about) or not (about or credential[1] == OWNER):
            raise S3AccessDeniedError
        with own.open("a") as log:
            log.writelines(json.dumps([one["Sid"], right]) + "\n" for one in about)


def statements(request: Any, kind: type) -> list[dict[str, Any]]:
    """Return the statements of the caller's own policies, once the signature is checked."""
    query = urlsplit(request.uri).query
    asked = kind(
        account_id=request.current_account,
        method=request.method,
        path=request.raw_path + (f"?{query}" if query else ""),
        data=request.data,
        body=request.raw_body,
        headers=request.headers,
        action=request._get_action(),
    )
    asked.check_signature()
    found = [json.loads(one["policy_document"]) for one in asked._access_key.collect_policies()]
    return [statement for one in found for statement in one["Statement"]]


if __name__ == "__main__":
    with (
        patch.object(ActionAuthenticatorMixin, "_authenticate_and_authorize_action", authorize),
        # moto fails every condition
        patch.object(FakeBucket, "get_permission", lambda *_: PermissionResult.NEUTRAL),
    ):
        main()
