"""Exports as banks write them, made of the same cardholders: what each holds is known, cell by
cell.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from io import BytesIO
from typing import NamedTuple

import polars as pl

from flows.simulator.extract import write_sample
from schemas import portal
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)
from tests.night import DAY

Row = dict[str, str]
Cell = str | Callable[[Row], str]  # a portal column, or what a cell is made of
PLAIN = ("Smith", "Ng", "Garcia", "Nguyen", "Roy", "Begay", "Brown", "Lopez", "Clark", "Young")
FIRST = (
    "Ann",
    "James",
    "Mary",
    "Liam",
    "Emma",
    "Noah",
    "Olivia",
    "Chloe",
    "David",
    "Susan",
    "Ty",
    "Aoife",
)


class Export(NamedTuple):
    """One export: its bytes, and the cells that its rows hold, by portal column."""

    content: bytes
    truth: tuple[Row, ...]


@cache
def people(rows: int, *, canada: bool = False, plain: bool = True) -> tuple[Row, ...]:
    """Return cardholders, of the US only or also of Canada; `plain`: names of one word each."""
    out = BytesIO()
    write_sample(out, rows * 3, as_of=DAY, seed=7)
    frame = pl.read_csv(BytesIO(out.getvalue()), infer_schema=False).drop("service_card.cvv_hash")
    frame = frame.filter(pl.col(CVV).is_not_null())
    frame = frame if canada else frame.filter(pl.col(COUNTRY) == "US")
    found = frame.head(rows).with_row_index().to_dicts()
    assert len(found) == rows
    for at, row in enumerate(found):
        row["index"] = str(at)
        if plain:
            row |= {FIRST_NAME: FIRST[at * 7 % len(FIRST)], LAST_NAME: PLAIN[at * 3 % len(PLAIN)]}
    return tuple({name: value or "" for name, value in row.items()} for row in found)


def last_day(row: Row) -> str:
    """Return the day a card expires."""
    return f"{calendar.monthrange(2000 + int(row[YEAR]), int(row[MONTH]))[1]:02d}"


def account(row: Row) -> str:
    """Return a number of 16 digits beside the card, which is no card: most have a wrong check
    digit.
    """
    return f"4{int(row['index']) * 7_919_317 + 100_000_000_000_037:015d}"


def house(row: Row) -> str:
    """Return the house number of a street line."""
    return row[ADDRESS1].partition(" ")[0]


def street(row: Row) -> str:
    """Return a street line without its house number."""
    return row[ADDRESS1].partition(" ")[2]


def made(pattern: str) -> Callable[[Row], str]:
    """Return what makes a cell of a pattern such as `{MM}/{YY}`."""

    def cell(row: Row) -> str:
        month = calendar.month_name[int(row[MONTH])][:3]
        return pattern.format(
            YY=row[YEAR], YYYY=f"20{row[YEAR]}", MM=row[MONTH], DD=last_day(row), MON=month, mon=month.upper(),
            M=int(row[MONTH]), first=row[FIRST_NAME], last=row[LAST_NAME], FIRST=row[FIRST_NAME].upper(),
            LAST=row[LAST_NAME].upper(), pan=row[PAN], zip=row[POSTAL_CODE], short=row[POSTAL_CODE].lstrip("0"),
            cvv=row[CVV], state=row[SUBNATIONAL], city=row[CITY], n=int(row["index"]),
        )  # fmt: skip

    return cell


def text(
    rows: Sequence[Row],
    columns: Mapping[str, Cell],
    *,
    delimiter: str = ",",
    above: str = "",
    below: str = "",
    header: bool = True,
    encoding: str = "utf-8",
    newline: str = "\n",
    quote: Callable[[str], str] = lambda cell: cell,
) -> bytes:
    """Return an export with a header; `above` and `below` are lines around it, with {rows}."""

    def line(cells: Sequence[str]) -> str:
        special = (delimiter, '"')
        return delimiter.join(
            '"' + cell.replace('"', '""') + '"'
            if any(one in cell for one in special)
            else quote(cell)
            for cell in cells
        )

    body = [line([*columns])] if header else []
    body += [
        line([row[cell] if isinstance(cell, str) else cell(row) for cell in columns.values()])
        for row in rows
    ]
    lines = [
        *above.format(rows=len(rows)).splitlines(),
        *body,
        *below.format(rows=len(rows)).splitlines(),
    ]
    return newline.join([*lines, ""]).encode(encoding)


def truth(rows: Sequence[Row], *columns: str, **changed: Callable[[Row], str]) -> tuple[Row, ...]:
    """Return what the rows of an export hold: these columns, and by default all that every export
    has.
    """
    held = (
        *columns,
        PAN,
        YEAR,
        MONTH,
        ADDRESS1,
        CITY,
        SUBNATIONAL,
        COUNTRY,
        POSTAL_CODE,
        FIRST_NAME,
        LAST_NAME,
    )
    return tuple(
        {name: changed[name](row) if name in changed else row[name] for name in held}
        | {IS_PRIMARY: "TRUE"}
        for row in rows
    )


ADDRESS: Mapping[str, Cell] = {
    "ADDRESS1": ADDRESS1, "ADDRESS2": ADDRESS2, "CITY": CITY, "STATE": SUBNATIONAL, "ZIP": POSTAL_CODE
}  # fmt: skip
NAMES: Mapping[str, Cell] = {"FIRST_NAME": FIRST_NAME, "LAST_NAME": LAST_NAME}
BASE: Mapping[str, Cell] = {
    "CUSTOMER_ID": CUID,
    "CARD_NUMBER": PAN,
    "EXP_DATE": made("{MM}{YY}"),
    "CVV": CVV,
}
WITH = (CUID, CVV, ADDRESS2)


def constant(value: str) -> Callable[[Row], str]:
    """Return a cell that is the same in every row."""
    return lambda _: value


def seven() -> dict[str, Export]:
    """Return the seven exports that a new issuer is most likely to have."""
    rows, accents = people(60), people(60, plain=False)
    excel: Mapping[str, Cell] = {
        "Customer No": CUID, "Card Number": PAN, "Valid Thru": made("{MM}/{YY}"), "CVV": CVV,
        "First Name": FIRST_NAME, "Last Name": LAST_NAME, "Street": ADDRESS1, "Apt": ADDRESS2, "City": CITY,
        "State": SUBNATIONAL, "Zip Code": POSTAL_CODE, "E-Mail": EMAIL, "Phone": PHONE,
    }  # fmt: skip
    camel: Mapping[str, Cell] = {
        "customerId": CUID, "cardNumber": PAN, "expMonth": made("{M}"), "expYear": made("{YYYY}"), "cvv": CVV,
        "firstName": FIRST_NAME, "lastName": LAST_NAME, "addressLine1": ADDRESS1, "addressLine2": ADDRESS2,
        "city": CITY, "state": SUBNATIONAL, "postalCode": POSTAL_CODE, "country": COUNTRY, "email": EMAIL,
    }  # fmt: skip
    upper: Mapping[str, Cell] = {
        "CUSTOMER NUMBER": CUID, "CARD NUMBER": PAN, "EXPIRATION DATE": made("{YYYY}{MM}"), "CVV2": CVV,
        "FIRST NAME": FIRST_NAME, "LAST NAME": LAST_NAME, "ADDRESS LINE 1": ADDRESS1, "ADDRESS LINE 2": ADDRESS2,
        "CITY NAME": CITY, "STATE CODE": SUBNATIONAL, "ZIP CODE": POSTAL_CODE, "BRANCH": made("{n}"),
    }  # fmt: skip
    short: Mapping[str, Cell] = {
        "CUST_NBR": CUID, "CRD_NBR": PAN, "EXP_DT": made("{MM}{YY}"), "CVC": CVV, "FST_NM": FIRST_NAME,
        "LST_NM": LAST_NAME, "ADDR_LN_1": ADDRESS1, "ADDR_LN_2": ADDRESS2, "CTY": CITY, "ST": SUBNATIONAL,
        "ZIP_CD": POSTAL_CODE, "PH_NBR": PHONE,
    }  # fmt: skip
    core: Mapping[str, Cell] = {
        "CIF": CUID, "PAN": PAN, "EXPIRY": made("{YYYY}{MM}{DD}"), "CVV2": CVV, "NAME": made("{last}, {first}"),
        "ADDR1": ADDRESS1, "ADDR2": ADDRESS2, "CITY": CITY, "ST": SUBNATIONAL, "ZIP": POSTAL_CODE,
    }  # fmt: skip
    tab: Mapping[str, Cell] = {
        "Member ID": CUID, "Cardholder Name": made("{first} {last}"), "Card No.": PAN,
        "Expires": made("{DD}/{MM}/{YYYY}"), "Security Code": CVV, "Address": ADDRESS1, "Unit": ADDRESS2,
        "Town": CITY, "State": SUBNATIONAL, "ZIP": POSTAL_CODE, "Mobile": PHONE,
    }  # fmt: skip
    snake: Mapping[str, Cell] = {
        "customer_id": CUID, "account_number": account, "card_number": PAN, "card_exp": made("{YYYY}-{MM}"),
        "cvv": CVV, "first_name": FIRST_NAME, "last_name": LAST_NAME, "house_number": house, "street": street,
        "city": CITY, "state": SUBNATIONAL, "zip": POSTAL_CODE, "opened_on": constant("2019-04-01"),
    }  # fmt: skip
    return {
        "excel": Export(
            text(accents, excel, delimiter=";", encoding="cp1252", newline="\r\n"),
            truth(accents, *WITH, EMAIL, PHONE),
        ),
        "camel": Export(text(accents, camel), truth(accents, *WITH, EMAIL)),
        "upper": Export(text(rows, upper), truth(rows, *WITH)),
        "short": Export(text(rows, short), truth(rows, *WITH, PHONE)),
        "core": Export(
            text(
                rows,
                core,
                delimiter="|",
                above="HDR|20261120|FIRSTBANK|CARDS",
                below="TRL|20261120|{rows:09d}",
            ),
            truth(rows, *WITH),
        ),
        "tab": Export(text(rows, tab, delimiter="\t"), truth(rows, *WITH, PHONE)),
        "snake": Export(text(rows, snake), truth(rows, CUID, CVV)),
    }


def thirty() -> dict[str, Export]:
    """Return thirty more, each with a difficulty of its own."""
    rows, hard, both = people(60), people(60, plain=False), people(60, canada=True)
    whole = {**BASE, **NAMES, **ADDRESS}

    def plus(**more: Cell) -> Mapping[str, Cell]:
        return {name: cell for name, cell in {**whole, **more}.items() if cell}

    def mmyy(pattern: str) -> Mapping[str, Cell]:
        return plus(EXP_DATE=made(pattern))

    named = {name: cell for name, cell in whole.items() if name not in NAMES}
    spaced = {name: cell for name, cell in whole.items() if name != "EXP_DATE"}
    fixed = (
        "D{0[cardholder.cuid]:<12}{0[service_card.pan]}{0[service_card.expiration_month]}"
        "{0[service_card.expiration_year]}{0[service_card.cvv]}{0[service_card.address.last_name]:<20}"
        "{0[service_card.address.first_name]:<15}{0[service_card.address.address1]:<40}"
        "{0[service_card.address.city]:<20}{0[service_card.address.subnational]}"
        "{0[service_card.address.postal_code]:<10}"
    )
    lines = [fixed.format(row) for row in rows]
    frame = [
        "H20261120FIRSTBANK".ljust(len(lines[0])),
        *lines,
        f"T{len(rows):09d}".ljust(len(lines[0])),
    ]
    exports = {
        "dates that fit two forms": Export(
            text(rows[1:6], mmyy("{MM}/0{n}/{YYYY}")), truth(rows[1:6], *WITH)
        ),
        "an old card beside the new one": Export(
            text(rows, plus(PREV_CARD_NUMBER=lambda row: rows[-1 - int(row["index"])][PAN])), truth(rows, *WITH)
        ),
        "a second number that passes for a card": Export(
            text(rows, plus(CARD_TOKEN=lambda row: rows[int(row["index"]) - 1][PAN])), truth(rows, *WITH)
        ),
        "ZIP+4 and Canada": Export(
            text(both, {**whole, "ZIP": lambda row: row[POSTAL_CODE] + ("-1234" if row[COUNTRY] == "US" else "")}),
            truth(both, *WITH),
        ),
        "ZIPs that lost their zeros": Export(text(rows, plus(ZIP=made("{short}"))), truth(rows, *WITH)),
        "card numbers in fours": Export(
            text(rows, plus(CARD_NUMBER=lambda row: " ".join(row[PAN][at : at + 4] for at in (0, 4, 8, 12)))),
            truth(rows, *WITH),
        ),
        "Excel formulas": Export(
            text(rows, whole, quote=lambda cell: f'="{cell}"' if cell.isdigit() else cell), truth(rows, *WITH)
        ),
        "MySQL": Export(
            text(rows, {**whole, "ADDRESS1": lambda row: row[ADDRESS1].replace(" ", ' \\"N\\" ', 1)}, delimiter="\t")
            .replace(b'""', b'"').replace(b'\t"', b"\t").replace(b'"\t', b"\t"),
            truth(rows, *WITH, **{ADDRESS1: lambda row: row[ADDRESS1].replace(" ", ' "N" ', 1)}),
        ),
        "no header": Export(text(rows, whole, header=False), truth(rows, *WITH)),
        "HDR, TRL and no header": Export(
            text(rows, {"T": constant("DTL"), **whole}, delimiter="|", header=False, above="HDR|1|20261120",
                 below="TRL|{rows}"), truth(rows, *WITH)
        ),
        "fixed width": Export("\n".join([*frame, ""]).encode(), truth(rows, CUID, CVV)),
        "UTF-16 with timestamps": Export(
            text(rows, mmyy("{YYYY}-{MM}-{DD} 00:00:00"), delimiter="\t", encoding="utf-16"), truth(rows, *WITH)
        ),
        "a report's title, sep= and row count": Export(
            text(rows, mmyy("{DD}-{MON}-{YYYY}"), delimiter=";", above="sep=;\nCardholders of First Bank\n",
                 below="({rows} rows affected)"), truth(rows, *WITH)
        ),
        "LAST FIRST": Export(text(rows, {**named, "NAME": made("{LAST} {FIRST}")}), truth(
            rows, *WITH, **{FIRST_NAME: made("{FIRST}"), LAST_NAME: made("{LAST}")})),
        "names that nothing tells apart": Export(
            text(rows, {**named, "NAME": lambda row: f"Aa{chr(97 + int(row['index']) % 26)} Zz"}),
            truth(rows, *WITH, **{FIRST_NAME: lambda row: f"Aa{chr(97 + int(row['index']) % 26)}",
                                  LAST_NAME: constant("Zz")}),
        ),
        "unknown headers": Export(
            text(rows, {f"F{at:02d}": cell for at, cell in enumerate(whole.values(), 1)}), truth(rows, *WITH)
        ),
        "primary or secondary": Export(
            text(rows, plus(PRIMARY_IND=lambda row: "PS"[int(row["index"]) % 2])),
            tuple(row | {IS_PRIMARY: ("TRUE", "FALSE")[at % 2]} for at, row in enumerate(truth(rows, *WITH))),
        ),
        "two addresses": Export(
            text(rows, {**BASE, **NAMES, **{f"MAIL_{name}": constant("x") for name in ADDRESS},
                        **{f"RES_{name}": cell for name, cell in ADDRESS.items()}}), truth(rows, *WITH)
        ),
        "month and year in French": Export(
            text(both, {
                "Numéro client": CUID, "Numéro carte": PAN, "Exp mois": MONTH, "Exp année": YEAR, "CVV": CVV,
                "Prénom": FIRST_NAME, "Nom": LAST_NAME, "Adresse": ADDRESS1, "Ville": CITY,
                "Province": SUBNATIONAL, "Code postal": POSTAL_CODE, "Pays": COUNTRY,
            }, delimiter=";", encoding="cp1252"), truth(both, CUID, CVV),
        ),
        "no dates at all": Export(text(rows, spaced), truth(rows, *WITH)),
        "embossed names and glued headers": Export(
            text(rows, {"CUSTNUM": CUID, "CARDNUM": PAN, "EXPMMYY": made("{M}{YY}"), "CVV2": CVV,
                        "EMBOSSNAME": made("{FIRST} {LAST}"), "FNAME": FIRST_NAME, "LNAME": LAST_NAME,
                        "ADDRLINE1": ADDRESS1, "ADDRLINE2": ADDRESS2, "CITY": CITY, "STATECD": SUBNATIONAL,
                        "ZIPCD": POSTAL_CODE}),
            tuple(row | {NAME_ON_CARD: f"{row[FIRST_NAME]} {row[LAST_NAME]}".upper()} for row in truth(rows, *WITH)),
        ),
        "a masked number under the better name": Export(
            text(rows, {"CARD_NUMBER": lambda row: row[PAN][:6] + "******" + row[PAN][-4:],
                        "PAN_CLEAR": PAN,
                        **{name: cell for name, cell in whole.items() if cell != PAN}}), truth(rows, *WITH)
        ),
        "whole names of many words": Export(
            text(hard, {**named, "NAME": made("{first} {last}")}, delimiter=";"), truth(hard, *WITH)
        ),
        "a trailer that counts the lines around": Export(
            text(rows, whole, above="H,20261120", below="T,62"), truth(rows, *WITH)
        ),
        "header and trailer as wide as the rows": Export(
            text(rows, whole, above=f"HDR,20261120,BANK{8 * ','}", below=f"TRL,{{rows}}{9 * ','}"), truth(rows, *WITH)
        ),
        "paths as headers": Export(
            text(rows, {"holder.id": CUID, "card.number": PAN, "card.expiry.month": MONTH, "card.expiry.year": YEAR,
                        "card.cvv": CVV, "holder.first_name": FIRST_NAME, "holder.last_name": LAST_NAME,
                        "address.line1": ADDRESS1, "address.line2": ADDRESS2, "address.city": CITY,
                        "address.state": SUBNATIONAL, "address.zip": POSTAL_CODE}), truth(rows, *WITH)
        ),
        "cells of several lines": Export(
            text(rows, {**whole, "ADDRESS2": constant("Apt 4,\nfloor 2")}),
            truth(rows, *WITH, **{ADDRESS2: constant("Apt 4, floor 2")}),
        ),
        "other dates beside": Export(
            text(rows, {"DOB": constant("19700101"), "ISSUED": made("20{YY}0101"), **whole,
                        "LAST_TXN_DT": made("{MM}{YY}")}), truth(rows, *WITH)
        ),
        "a cuid for a household": Export(
            text(rows, {**whole, "CUSTOMER_ID": lambda row: f"C{int(row['index']) // 2}"}), truth(rows, *WITH)
        ),
        "a status of each card": Export(
            text(rows, plus(CARD_STATUS=lambda row: "AAAC"[int(row["index"]) % 4])), truth(rows, *WITH)
        ),
    }  # fmt: skip
    assert {*portal.columns()} >= {name for one in exports.values() for name in one.truth[0]}
    return exports
