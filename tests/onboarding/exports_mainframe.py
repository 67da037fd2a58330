"""Exports of mainframes: fixed width, and records by a copybook, as public layouts have them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    CUID,
    CVV,
    FIRST_NAME,
    LAST_NAME,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
)
from tests.extracts.exports import constant, formatted
from tests.onboarding.exports_processors import Write
from tests.onboarding.layouts import Aside, Columns, Export, Mark, beside, expiry, export, name

FIXED: Columns = {
    "type": beside(constant("D")),
    "customer": CUID,
    "card": PAN,
    "expiry": expiry("{YYYY}{MM}", "YYYYMM"),
    "cvv": CVV,
    "status": Mark("A", ("C", "L", "S")),
    "last": LAST_NAME,
    "first": FIRST_NAME,
    "street": ADDRESS1,
    "city": CITY,
    "state": SUBNATIONAL,
    "zip": POSTAL_CODE,
}
WIDTHS = {
    "type": 1,
    "customer": 14,
    "card": 16,
    "expiry": 6,
    "cvv": 3,
    "status": 2,
    "last": 25,
    "first": 20,
    "street": 40,
    "city": 25,
    "state": 2,
    "zip": 10,
}
# where the layout says otherwise than the blanks between the fields
PLACES = {CUID: "{ at = [2, 15] }", ADDRESS1: "{ at = [88, 127] }"}
# after the card record of a public sample of a mainframe card system, with the address beside it
CARD_COPYBOOK = """\
       01  CARD-RECORD.
           05  CARD-NUM                          PIC X(16).
           05  CARD-CUST-ID                      PIC X(11).
           05  CARD-CVV-CD                       PIC 9(03).
           05  CARD-EMBOSSED-NAME                PIC X(50).
           05  CARD-EXPIRATION-DATE              PIC X(10).
           05  CARD-ACTIVE-STATUS                PIC X(01).
           05  CARD-ADDR-LINE-1                  PIC X(50).
           05  CARD-ADDR-LINE-2                  PIC X(50).
           05  CARD-ADDR-CITY                    PIC X(30).
           05  CARD-ADDR-STATE-CD                PIC X(02).
           05  CARD-ADDR-ZIP                     PIC X(10).
           05  FILLER                            PIC X(59).
"""
CARD: Columns = {
    "CARD-NUM": PAN,
    "CARD-CUST-ID": CUID,
    "CARD-CVV-CD": CVV,
    "CARD-EMBOSSED-NAME": name("{first} {last}", "FIRST LAST"),
    "CARD-EXPIRATION-DATE": expiry("{YYYY}-{MM}-{DD}", "YYYY-MM-DD"),
    "CARD-ACTIVE-STATUS": Mark("Y", ("N",)),
    "CARD-ADDR-LINE-1": ADDRESS1,
    "CARD-ADDR-LINE-2": ADDRESS2,
    "CARD-ADDR-CITY": CITY,
    "CARD-ADDR-STATE-CD": SUBNATIONAL,
    "CARD-ADDR-ZIP": POSTAL_CODE,
}
# after the base segment of a public layout of account reporting
REPORT_COPYBOOK = """\
       01  BASE-SEGMENT.
           05  IDENTIFICATION-NUMBER             PIC X(20).
           05  CONSUMER-ACCOUNT-NUMBER           PIC 9(16) COMP-3.
           05  PORTFOLIO-TYPE                    PIC X(01).
           05  DATE-OPENED                       PIC 9(08).
           05  EXPIRATION-YYMM                   PIC 9(04).
           05  SECURITY-CODE                     PIC 9(03).
           05  ACCOUNT-STATUS                    PIC X(02).
           05  CURRENT-BALANCE                   PIC S9(09) COMP-3.
           05  DATE-CLOSED                       PIC 9(08).
           05  SURNAME                           PIC X(20).
           05  FIRST-NAME                        PIC X(20).
           05  ECOA-CODE                         PIC X(01).
           05  FIRST-LINE-OF-ADDRESS             PIC X(32).
           05  SECOND-LINE-OF-ADDRESS            PIC X(32).
           05  CITY                              PIC X(20).
           05  STATE                             PIC X(02).
           05  POSTAL-CODE                       PIC X(09).
"""
REPORT: Columns = {
    "IDENTIFICATION-NUMBER": CUID,
    "CONSUMER-ACCOUNT-NUMBER": PAN,
    "PORTFOLIO-TYPE": Aside(("R", "C")),
    "DATE-OPENED": beside(constant("05022019")),
    "EXPIRATION-YYMM": expiry("{YY}{MM}", "YYMM"),
    "SECURITY-CODE": CVV,
    "ACCOUNT-STATUS": Mark("11", ("13", "97", "DA"), ("05",)),
    "CURRENT-BALANCE": beside(formatted("{n}")),
    "DATE-CLOSED": Mark("00000000", ("01312024", "12152025"), date="MMDDYYYY"),
    "SURNAME": LAST_NAME,
    "FIRST-NAME": FIRST_NAME,
    "ECOA-CODE": Mark("1", ("X", "Z"), also=("2",)),
    "FIRST-LINE-OF-ADDRESS": ADDRESS1,
    "SECOND-LINE-OF-ADDRESS": ADDRESS2,
    "CITY": CITY,
    "STATE": SUBNATIONAL,
    "POSTAL-CODE": POSTAL_CODE,
}
_FIELD = re.compile(r"05  (\S+) +PIC S?([X9])\((\d+)\)( COMP-3)?\.")


def mainframe() -> dict[str, Export]:
    """Return them by name."""
    return {**fixed_width(), **records()}


def fixed_width() -> dict[str, Export]:
    def at(header: str) -> str:
        before = [*WIDTHS][: [*WIDTHS].index(header)]
        return f"at [{sum(map(WIDTHS.__getitem__, before)) + 1}"

    trailed = lines(above="H20261120", below="T{rows:09d}")
    counted = lines(above="HCARDS20261120{rows:010d}")
    return {
        "fixed width between header and trailer": export(
            FIXED, trailed, named=at, proven="row count", places=PLACES
        ),
        "fixed width under a header with the count": export(
            FIXED, counted, named=at, proven="row count", places=PLACES
        ),
    }


def lines(*, above: str = "", below: str = "") -> Write:
    """Return what writes lines of fixed width."""

    def write(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
        size = sum(WIDTHS[header] for header in headers)
        cells = ["".join(_fitted(*cell) for cell in zip(headers, row, strict=True)) for row in rows]
        around = [text.format(rows=len(rows)).ljust(size) for text in (above, below)]
        head = [around[0]] * bool(above)
        return "\n".join([*head, *cells, *[around[1]] * bool(below), ""]).encode()

    return write


def _fitted(header: str, cell: str) -> str:
    return cell.ljust(WIDTHS[header])[: WIDTHS[header]]


def records() -> dict[str, Export]:
    return {
        "the card record of a public sample in ASCII": export(
            CARD, copybook(CARD_COPYBOOK, "latin-1"), copybook=CARD_COPYBOOK, name=DATA
        ),
        "the card record of a public sample in EBCDIC": export(
            CARD, copybook(CARD_COPYBOOK, "cp037"), copybook=CARD_COPYBOOK, name=DATA
        ),
        "records with a trailer record": export(
            CARD,
            copybook(CARD_COPYBOOK, "cp037", below="TRAILER {rows:09d}"),
            copybook=CARD_COPYBOOK,
            name=DATA,
            proven="row count",
        ),
        "records under a header record with the count": export(
            CARD,
            copybook(CARD_COPYBOOK, "cp037", above="HEADER 20261120 {rows:09d}"),
            copybook=CARD_COPYBOOK,
            name=DATA,
            proven="row count",
        ),
        "account reporting with packed numbers": export(
            REPORT, copybook(REPORT_COPYBOOK, "cp037"), copybook=REPORT_COPYBOOK, name=DATA
        ),
    }


DATA = "cards-20261120.dat"


def copybook(text: str, page: str, *, above: str = "", below: str = "") -> Write:
    """Return what writes records of fixed length by a copybook."""
    fields = [field for field in _FIELD.findall(text) if field[0] != "FILLER"]
    filler = re.search(r"FILLER +PIC X\((\d+)\)", text)
    left = int(filler[1]) if filler else 0

    def field(cell: str, kind: str, size: int, packed: str) -> bytes:
        if packed:
            digits = f"{int(cell or 0):0{size}d}"
            halves = digits + ("f" if size == 16 else "c")
            return bytes.fromhex(halves if len(halves) % 2 == 0 else f"0{halves}")
        filled = cell.zfill(size) if kind == "9" else cell.ljust(size)
        return filled[:size].encode(page)

    def write(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
        assert [*headers] == [each[0] for each in fields]
        data = [
            b"".join(
                field(cell, kind, int(size), packed)
                for cell, (_, kind, size, packed) in zip(row, fields, strict=True)
            )
            + (" " * left).encode(page)
            for row in rows
        ]
        around = [
            text.format(rows=len(rows)).ljust(len(data[0])).encode(page) for text in (above, below)
        ]
        return b"".join([around[0]] * bool(above) + data + [around[1]] * bool(below))

    return write
