"""Records with an entity tag: one that the client has already is not sent again (RFC 9110 13.1)."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Annotated, Any, Final

from fastapi import Header, Response

UNCHANGED: Final = 304
IfNoneMatch = Annotated[str, Header()]


def unless_known(
    record: dict[str, Any], known: str, response: Response
) -> dict[str, Any] | Response:
    """Return a record, its entity tag in the response; or that it is the one that is known."""
    content = json.dumps(record, sort_keys=True, default=str)
    tag = f'"{sha256(content.encode()).hexdigest()[:16]}"'
    if known == tag:
        return Response(status_code=UNCHANGED, headers={"ETag": tag})
    response.headers["ETag"] = tag
    return record
