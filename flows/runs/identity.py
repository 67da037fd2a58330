"""What identifies a run: canonical JSON, digests, and the settings that shape its rows."""

import hashlib
import json
from typing import Any

from pydantic import BaseModel

from flows.runs.header import Header
from schemas.issuer import Issuer
from schemas.portal import INTERFACE

_LETTERS = str.maketrans("0123456789", "ghijklmnop")


def canonical(document: BaseModel | dict[str, Any]) -> bytes:
    """Return JSON with sorted keys and no spaces: equal documents are equal bytes."""
    if isinstance(document, BaseModel):
        document = document.model_dump(mode="json")
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode() + b"\n"


def lettered(text: str) -> str:
    """Return a text with letters from g on in place of its digits: a scanner takes numbers of 13
    to 19 digits for cards, and a tenth of them pass.
    """
    return text.translate(_LETTERS)


def digest(data: bytes) -> str:
    """Return the SHA-256 of stored bytes, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def row_settings(issuer: Issuer, header: Header) -> dict[str, Any]:
    """Return every setting that decides which rows are in which chunk and how they are written."""
    columns = {"columns", "status", "eligible", "rules", "repairs"}
    shaping = issuer.model_dump(mode="json", include=columns)
    shaping["source"] = issuer.source.model_dump(mode="json", exclude=set(issuer.source.PROOFS))
    if issuer.full_portfolio:
        shaping["portfolio"] = issuer.portfolio.model_dump(mode="json")
    else:
        shaping["resend"] = issuer.resend.model_dump(mode="json", include={"changed"})
    portal = issuer.portal.model_dump(
        mode="json", include={"extension", "armor", "compression", "rows_per_chunk"}
    )
    return {**shaping, "portal": {**portal, "header": header.line.decode()}, "interface": INTERFACE}


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Return the names of the settings that differ, dotted (`rules.luhn`)."""
    named: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        before = old.get(key)
        after = new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            named += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            named.append(f"{prefix}{key}")
    return named
