"""Records as a mainframe writes them, made by code that knows nothing of the product.

A field is written by its own function, a record is their bytes, a file is its records behind the
words of its format.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

COPYBOOK = """\
000100* A CARDHOLDER, AS THE CARD SYSTEM UNLOADS HIM                            CARD0001
000200 01  CARD-RECORD.                                                         CARD0002
000300     05  CUST-ID              PIC X(10).                                  CARD0003
000400     05  CARD-NUMBER          PIC 9(16) COMP-3.                           CARD0004
000500     05  EXPIRY-MMYY          PIC 9(4).                                   CARD0005
000600     05  CVV                  PIC 9(3).                                   CARD0006
000700     05  FIRST-NAME           PIC X(20).                                  CARD0007
000800     05  LAST-NAME            PIC X(25).                                  CARD0008
000900     05  STREET-LINE          PIC X(30) OCCURS 2 TIMES.                   CARD0009
001000     05  CITY                 PIC X(20).                                  CARD0010
001100     05  STATE                PIC X(2).                                   CARD0011
001200     05  ZIP                  PIC 9(5) COMP.                              CARD0012
001300     05  BALANCE              PIC S9(7)V99 COMP-3.                        CARD0013
001400     05  LIMIT-AMOUNT         PIC S9(5) SIGN IS LEADING SEPARATE.         CARD0014
001500     05  BRANCH               PIC S9(4).                                  CARD0015
001600         88  HEAD-OFFICE      VALUE 1.                                    CARD0016
001700     05  FILLER               PIC X(4).                                   CARD0017
"""
SOURCE = {"encoding": "cp037", "record_format": "FB", "copybook": COPYBOOK}
COLUMNS = {
    "cardholder.cuid": "CUST-ID",
    "service_card.pan": "CARD-NUMBER",
    "service_card.cvv": "CVV",
    "service_card.expiration_month": {"from": "EXPIRY-MMYY", "format": "MMYY"},
    "service_card.expiration_year": {"from": "EXPIRY-MMYY", "format": "MMYY"},
    "service_card.address.first_name": "FIRST-NAME",
    "service_card.address.last_name": "LAST-NAME",
    "service_card.address.address1": "STREET-LINE(1)",
    "service_card.address.address2": "STREET-LINE(2)",
    "service_card.address.city": "CITY",
    "service_card.address.subnational": "STATE",
    "service_card.address.postal_code": "ZIP",
    "service_card.address.country": {"constant": "US"},
    "service_card.address.is_primary": {"constant": "TRUE"},
}


def text(value: str, size: int, page: str = "cp037") -> bytes:
    return value.ljust(size).encode(page)


def packed(value: int, digits: int, *, signed: bool = False) -> bytes:
    sign = ("d" if value < 0 else "c") if signed else "f"
    halves = f"{abs(value):0{digits}d}{sign}"
    return bytes.fromhex(halves if len(halves) % 2 == 0 else f"0{halves}")


def zoned(value: int, digits: int, *, signed: bool = False, page: str = "cp037") -> bytes:
    written = f"{abs(value):0{digits}d}".encode(page)
    if not signed:
        return written
    zone = 0xD0 if value < 0 else 0xC0
    return written[:-1] + bytes([zone | written[-1] & 0xF])


def binary(value: int, size: int, *, signed: bool = False) -> bytes:
    return value.to_bytes(size, "big", signed=signed)


class Piece(NamedTuple):
    """A field of the copybook: its name and its text, as the product should read it; its bytes."""

    name: str
    text: str | None
    data: bytes


def person(number: int, chance: random.Random, page: str = "cp037") -> list[Piece]:
    """Return the fields of a cardholder, each with what it is as text."""
    last = chance.choice(["SMITH", "O'BRIEN", "VAN DER BERG", "GARCÍA", "MÜLLER"])
    first = chance.choice(["ANN", "LI", "JOSÉ", "MARY JANE"])
    street = f"{chance.randint(1, 999)} ELM STREET"
    unit = chance.choice(["", "APT 7"])
    zip_code = chance.choice([2108, 80202, 60601])
    city, state = {2108: ("BOSTON", "MA"), 80202: ("DENVER", "CO"), 60601: ("CHICAGO", "IL")}[
        zip_code
    ]
    card = card_number(number)
    month, cvv = chance.randint(1, 12), chance.randint(0, 999)
    balance, limit = chance.randint(-(10**8), 10**8), chance.randint(-9999, 9999)
    branch = chance.randint(-999, 999)
    cuid = f"C{number:08d}"
    return [
        Piece("CUST-ID", cuid, text(cuid, 10, page)),
        Piece("CARD-NUMBER", card, packed(int(card), 16)),
        Piece("EXPIRY-MMYY", f"{month:02d}36", zoned(month * 100 + 36, 4, page=page)),
        Piece("CVV", f"{cvv:03d}", zoned(cvv, 3, page=page)),
        Piece("FIRST-NAME", first, text(first, 20, page)),
        Piece("LAST-NAME", last, text(last, 25, page)),
        Piece("STREET-LINE(1)", street, text(street, 30, page)),
        Piece("STREET-LINE(2)", unit or None, text(unit, 30, page)),
        Piece("CITY", city, text(city, 20, page)),
        Piece("STATE", state, text(state, 2, page)),
        Piece("ZIP", f"{zip_code:05d}", binary(zip_code, 4)),
        Piece("BALANCE", _decimal(balance, 7, 2), packed(balance, 9, signed=True)),
        Piece(
            "LIMIT-AMOUNT",
            f"{'-' if limit < 0 else ''}{abs(limit):05d}",
            text("-" if limit < 0 else "+", 1, page) + zoned(abs(limit), 5, page=page),
        ),
        Piece(
            "BRANCH",
            f"{'-' if branch < 0 else ''}{abs(branch):04d}",
            zoned(branch, 4, signed=True, page=page),
        ),
        Piece("", None, text("", 4, page)),
    ]


def _decimal(value: int, whole: int, decimals: int) -> str:
    digits = f"{abs(value):0{whole + decimals}d}"
    return f"{'-' if value < 0 else ''}{digits[:whole]}.{digits[whole:]}"


def card_number(number: int) -> str:
    """Return a card number under a test BIN with a right check digit."""
    body = f"400000{number:09d}"
    digits = [int(digit) for digit in body]
    doubled = [digit * 2 - 9 * (digit > 4) for digit in digits[::2]]
    return f"{body}{-(sum(doubled) + sum(digits[1::2])) % 10}"


def record(pieces: Iterable[Piece]) -> bytes:
    return b"".join(piece.data for piece in pieces)


def texts(pieces: Iterable[Piece]) -> dict[str, str | None]:
    return {piece.name: piece.text for piece in pieces if piece.name}


def fixed(records: Sequence[bytes]) -> bytes:
    return b"".join(records)


def variable(records: Sequence[bytes]) -> bytes:
    return b"".join(binary(len(each) + 4, 2) + bytes(2) + each for each in records)


def blocked(records: Sequence[bytes], per_block: int = 7) -> bytes:
    blocks = [variable(records[at : at + per_block]) for at in range(0, len(records), per_block)]
    return b"".join(binary(len(block) + 4, 2) + bytes(2) + block for block in blocks)


FILES: dict[str, Callable[[Sequence[bytes]], bytes]] = {
    "F": fixed,
    "FB": fixed,
    "V": variable,
    "VB": blocked,
}


KINDS = {
    "CARD-NUMBER": ("packed", 0, False),
    "BALANCE": ("packed", 2, True),
    "EXPIRY-MMYY": ("zoned", 0, False),
    "CVV": ("zoned", 0, False),
    "LIMIT-AMOUNT": ("separate", 0, True),
    "BRANCH": ("overpunched", 0, True),
    "ZIP": ("binary", 5, False),
}


def oracle(data: bytes, pieces: Sequence[Piece]) -> dict[str, str | None] | None:
    """Read a record field by field, as slowly as can be; None where a field cannot be read."""
    cells: dict[str, str | None] = {}
    start = 0
    for piece in pieces:
        raw = data[start : start + len(piece.data)]
        start += len(piece.data)
        if not piece.name:
            continue
        kind, decimals, signed = KINDS.get(piece.name, ("text", 0, False))
        try:
            cells[piece.name] = _cell(raw, kind, decimals, signed=signed)
        except ValueError:
            return None
    return cells


def _cell(raw: bytes, kind: str, decimals: int, *, signed: bool) -> str | None:
    if kind == "text":
        written = raw.rstrip(b"\0").decode("cp037")
        if any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in written):
            raise ValueError
        return written.strip(" ") or None
    if kind == "binary":
        value = int.from_bytes(raw, "big")
        if value >= 10**decimals:
            raise ValueError
        return f"{value:0{decimals}d}"
    if set(raw) in ({0x40}, {0}):
        return None
    if kind == "packed":
        digits, sign = raw.hex()[:-1], raw.hex()[-1]
        if len(digits) != (16 if not signed else 9):
            if digits[0] != "0":
                raise ValueError
            digits = digits[1:]
    elif kind == "separate":
        sign = {0x4E: "c", 0x60: "d"}.get(raw[0], "")
        digits = raw[1:].decode("cp037")
    elif kind == "overpunched":
        sign = f"{raw[-1] >> 4:x}"
        digits = raw[:-1].decode("cp037") + f"{raw[-1] & 15:x}"
    else:
        sign, digits = "f", raw.decode("cp037")
    is_negative = sign in ("b", "d")
    is_wrong = not (digits.isascii() and digits.isdigit()) or sign not in set("abcdef")
    if is_wrong or (is_negative and not signed):
        raise ValueError
    if decimals:
        digits = f"{digits[:-decimals]}.{digits[-decimals:]}"
    return f"{'-' if is_negative else ''}{digits}"
