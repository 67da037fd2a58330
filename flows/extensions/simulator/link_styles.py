"""The links that a partner makes of a random marker: what follows the host, by style."""

from __future__ import annotations

import re
from collections.abc import Callable
from string import ascii_letters, digits
from typing import Final

USUAL: Final = "hex"
_LETTERS = digits + ascii_letters
_DAY = 86_400  # seconds
_SOME_DAY = 1_763_856_000  # in epoch seconds


def _decimal(marker: str, length: int) -> str:
    return str(int(marker, 16)).zfill(length)[-length:]


def _base62(number: int) -> str:
    """Return a number in base 62, without leading zeros."""
    text = ""
    while number:
        number, digit = divmod(number, len(_LETTERS))
        text = _LETTERS[digit] + text
    return text or "0"


def _uuid(marker: str) -> str:
    groups = (marker[:8], marker[8:12], f"4{marker[13:16]}", f"a{marker[17:20]}", marker[20:])
    return "-".join(groups)


def _timed(marker: str) -> str:
    moment = _SOME_DAY + int(marker[16:], 16) % _DAY
    return f"{marker[:8]}-{moment}-{marker[8:16]}"


# from 32 hexadecimal digits
STYLES: Final[dict[str, Callable[[str], str]]] = {
    USUAL: lambda marker: f"/l/{marker}",
    "hex24": lambda marker: f"/l/{marker[:24]}",
    "uuid": lambda marker: f"/l/{_uuid(marker)}",
    "8-epoch-8": lambda marker: f"/l/{_timed(marker)}",
    "digits16": lambda marker: f"/l/{_decimal(marker, 16)}",
    "digits19": lambda marker: f"/l/{_decimal(marker, 19)}",
    "base62": lambda marker: f"/l/{_base62(int(marker, 16)).zfill(22)}",
    "number": lambda marker: f"/l/{_base62(int(marker[:16], 16))}",
    "query": lambda marker: f"/verify?lang=en&key={_decimal(marker, 16)}",
    "path": lambda marker: f"/shop/{_base62(int(marker, 16)).zfill(22)}/start",
}


def id_in(url: str) -> str:
    """Return the id of a link: the part of its URL that differs from link to link."""
    path = url.partition("://")[2].partition("/")[2]
    return max(re.split(r"[/?&=]", path), key=len)
