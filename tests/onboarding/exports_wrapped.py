"""Exports with records around their rows, in other containers, and with a file beside them."""

from __future__ import annotations

import gzip
import hashlib
import zipfile
from collections.abc import Sequence
from io import BytesIO

import xlsxwriter

from schemas.portal import (
    ADDRESS1,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
)
from tests.extracts.exports import index, people
from tests.onboarding.exports_processors import ADDRESS, NAMES, Write, delimited
from tests.onboarding.layouts import Columns, Export, Mark, expiry, export, name

BASE: Columns = {
    "CUST_ID": CUID,
    "CARD_NUMBER": PAN,
    "EXP_DATE": expiry("{MM}{YY}", "MMYY"),
    "CVV": CVV,
    **NAMES,
    **ADDRESS,
}
USED: Columns = {**BASE, "STATUS": Mark("A", ("C", "L", "S"), ("P",))}


def wrapped() -> dict[str, Export]:
    """Return them by name."""
    return {**records_around(), **containers(), **rows_beside(), **no_answer()}


def records_around() -> dict[str, Export]:
    counted = "H|CARDS|20261120|{rows:010d}"
    return {
        "a header record with the count": export(
            USED, delimited("|", above=counted, header=False), named=numbered, proven="row count"
        ),
        "a header record with the count above the names": export(
            USED, delimited("|", above=counted), proven="row count"
        ),
        "header and trailer, both with the count": export(
            USED, delimited("|", above=counted, below="T|{rows:010d}"), proven="row count"
        ),
        "a hash total before the count": export(
            USED, delimited("|", below="TRL|{cards}|{rows}"), proven="hash total"
        ),
        "a hash total behind the count": export(
            USED, delimited("|", below="9|{rows:08d}|{cards:020d}"), proven="hash total"
        ),
        "a hash total in the header": export(
            USED, delimited("|", above="HDR|20261120|{rows}|{cards}"), proven="hash total"
        ),
        "a trailer that counts header and trailer too": export(
            BASE, delimited(",", below="TRAILER,20261120,{rows}")
        ),
        "an end without a count": export(USED, delimited(";", below="*** END OF FILE ***")),
    }


def containers() -> dict[str, Export]:
    plain = export(USED, delimited(";"))
    table = export(USED, delimited("\t", encoding="utf-16"))
    return {
        "gzip": plain._replace(content=gzip.compress(plain.content), name="cards-20261120.csv.gz"),
        "a ZIP of one file": plain._replace(
            content=zipped(plain.content), name="cards-20261120.zip"
        ),
        "UTF-16 of a spreadsheet": table,
        "a workbook": export(USED, workbook(), name="cards-20261120.xlsx"),
        "a workbook with a title and a total row": export(
            USED,
            workbook(title="Cards of First Bank", total=True),
            name="cards-20261120.xlsx",
            proven="row count",
        ),
        "a count beside it": plain._replace(
            beside={".ctl": f"count={len(people(60))}\n".encode()}, proven=".ctl"
        ),
        "a digest beside it": plain._replace(
            beside={".sha256": hashlib.sha256(plain.content).hexdigest().encode()},
            proven=".sha256",
        ),
    }


def rows_beside() -> dict[str, Export]:
    abroad = [
        {**row, COUNTRY: "MX", SUBNATIONAL: "JAL", POSTAL_CODE: "44100"}
        if index(row) % 10 == 3
        else row
        for row in people(60)
    ]
    served: Columns = {**USED, "COUNTRY": COUNTRY}
    foreign = export(served, delimited(), rows=abroad)
    sent = {card: row for card, row in foreign.sent.items() if row[COUNTRY] == "US"}
    return {
        "cardholders abroad": foreign._replace(sent=sent),
        "a card that is added and then deleted": added_and_deleted(),
        "a card that is deleted and then added": added_and_deleted(later="A"),
        "no header and a status": export(USED, delimited(",", header=False), named=numbered),
    }


def numbered(header: str) -> str:
    """Return what `init` calls a column that no header names."""
    return f"column_{[*USED].index(header) + 1}"


def added_and_deleted(later: str = "D") -> Export:
    """Return a delta in which a card has two rows; the later one counts."""
    columns: Columns = {"ACTION": Mark("A"), **BASE}
    whole = export(columns, delimited("|"))
    header, *lines, end = whole.content.decode().split("\n")
    earlier = "A" if later == "D" else "D"
    lines = [f"{earlier}{lines[0][1:]}", *lines[1:], f"{later}{lines[0][1:]}"]
    first = people(60)[0][PAN]
    ended = {first} if later == "D" else set()
    return whole._replace(
        content="\n".join([header, *lines, end]).encode(),
        sent={card: row for card, row in whole.sent.items() if card not in ended},
        ended=frozenset(ended),
        statuses={"ACTION": {"send": ["A"], "delete": ["D"]}},
    )


def no_answer() -> dict[str, Export]:
    plain = export(USED, delimited())
    hidden = plain.content.decode()
    for row in people(60):
        hidden = hidden.replace(row[PAN], f"{row[PAN][:6]}******{row[PAN][-4:]}")
    return {
        "masked card numbers": plain._replace(content=hidden.encode(), refused="pan"),
        "an old workbook": plain._replace(
            content=b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(4096),
            name="cards-20261120.xls",
            refused="an old Excel workbook",
        ),
        "two files in a ZIP": plain._replace(
            content=zipped(plain.content, "more.csv"), name="cards-20261120.zip", refused="ZIP"
        ),
        "a name in one column that holds everything": export(
            {
                "CUSTOMER": CUID,
                "CARD": PAN,
                "EXP": expiry("{MM}{YY}", "MMYY"),
                "HOLDER": name("{first} {last}", "FIRST LAST"),
                "ADDRESS": ADDRESS1,
                "CITY": CITY,
                "STATE": SUBNATIONAL,
                "ZIP": POSTAL_CODE,
                "CARD_ACTIVE": Mark("true", ("false",)),
            },
            delimited(),
        ),
    }


def zipped(content: bytes, *others: str) -> bytes:
    out = BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in ("cards.csv", *others):
            archive.writestr(member, content)
    return out.getvalue()


def workbook(*, title: str = "", total: bool = False) -> Write:
    """Return what writes a sheet, all cells as text."""

    def write(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
        out = BytesIO()
        with xlsxwriter.Workbook(out, {"in_memory": True}) as book:
            sheet = book.add_worksheet("Cards")
            lines = [[title]] * bool(title) + [list(headers), *map(list, rows)]
            for place, line in enumerate(lines):
                for column, cell in enumerate(line):
                    sheet.write_string(place, column, cell)
            if total:
                sheet.write_string(len(lines), 0, "Total")
                sheet.write_number(len(lines), 1, len(rows))
        return out.getvalue()

    return write
