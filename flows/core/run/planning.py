"""What a run is of: canonical JSON, the settings that shape its rows, and the business date of an extract."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import date, datetime
from typing import Any
from zoneinfo import ZoneInfo

from pydantic import BaseModel

from flows.core.rows.chunk_csv import Header
from schemas.issuer import Issuer
from schemas.portal import INTERFACE

DATE_IN_NAME = re.compile(r"(?<!\d)(20\d\d)[-_]?(0[1-9]|1[0-2])[-_]?(0[1-9]|[12]\d|3[01])(?!\d)")


def canonical(document: BaseModel | dict[str, Any]) -> bytes:
    """Return JSON with sorted keys and no spaces: equal documents are equal bytes."""
    plain = document.model_dump(mode="json") if isinstance(document, BaseModel) else document
    return json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def digest(data: bytes) -> str:
    """Return the SHA-256 of stored bytes, 64 hex digits."""
    return hashlib.sha256(data).hexdigest()


def row_settings(issuer: Issuer, header: Header) -> dict[str, Any]:
    """Return every setting that decides which rows stand in which chunk and how they are written there."""
    shaping = issuer.model_dump(mode="json", include={"source", "columns", "filter", "rules", "repairs"})
    if issuer.full_portfolio:
        shaping["portfolio"] = issuer.portfolio.model_dump(mode="json")
    portal = issuer.portal.model_dump(mode="json", include={"extension", "armor", "compression", "rows_per_chunk"})
    return {**shaping, "portal": {**portal, "header": header.line.decode()}, "interface": INTERFACE}


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Name the settings that differ, dotted (`rules.luhn`)."""
    named: list[str] = []
    for key in sorted(old.keys() | new.keys()):
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            named += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            named.append(f"{prefix}{key}")
    return named


def business_date(key: str, dropped: datetime, time_zone: str) -> date:
    """Read the business date from the extract's name (2026-11-20, 20261120), else take the day it was dropped."""
    found = DATE_IN_NAME.search(key.rpartition("/")[2])
    if found:
        try:
            return date(int(found[1]), int(found[2]), int(found[3]))
        except ValueError:  # 20260231 is no date: fall through to the day of the drop
            pass
    return dropped.astimezone(ZoneInfo(time_zone)).date()
