"""Thirty exports more, each with a difficulty of its own."""

from __future__ import annotations

from schemas import portal
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    FIRST_NAME,
    IS_PRIMARY,
    LAST_NAME,
    MONTH,
    NAME_ON_CARD,
    PAN,
    POSTAL_CODE,
    SUBNATIONAL,
    YEAR,
)
from tests.extracts.exports import (
    ADDRESS,
    BASE,
    NAMES,
    WITH,
    Cell,
    Columns,
    Export,
    Row,
    constant,
    formatted,
    index,
    people,
    text,
    truth,
)

WHOLE: Columns = {**BASE, **NAMES, **ADDRESS}
FRENCH: Columns = {
    "Numéro client": CUID,
    "Numéro carte": PAN,
    "Exp mois": MONTH,
    "Exp année": YEAR,
    "CVV": CVV,
    "Prénom": FIRST_NAME,
    "Nom": LAST_NAME,
    "Adresse": ADDRESS1,
    "Ville": CITY,
    "Province": SUBNATIONAL,
    "Code postal": POSTAL_CODE,
    "Pays": COUNTRY,
}
EMBOSSED: Columns = {
    "CUSTNUM": CUID,
    "CARDNUM": PAN,
    "EXPMMYY": formatted("{M}{YY}"),
    "CVV2": CVV,
    "EMBOSSNAME": formatted("{FIRST} {LAST}"),
    "FNAME": FIRST_NAME,
    "LNAME": LAST_NAME,
    "ADDRLINE1": ADDRESS1,
    "ADDRLINE2": ADDRESS2,
    "CITY": CITY,
    "STATECD": SUBNATIONAL,
    "ZIPCD": POSTAL_CODE,
}
PATHS: Columns = {
    "holder.id": CUID,
    "card.number": PAN,
    "card.expiry.month": MONTH,
    "card.expiry.year": YEAR,
    "card.cvv": CVV,
    "holder.first_name": FIRST_NAME,
    "holder.last_name": LAST_NAME,
    "address.line1": ADDRESS1,
    "address.line2": ADDRESS2,
    "address.city": CITY,
    "address.state": SUBNATIONAL,
    "address.zip": POSTAL_CODE,
}
FIXED_LINE = (
    "D{0[cardholder.cuid]:<12}{0[service_card.pan]}{0[service_card.expiration_month]}"
    "{0[service_card.expiration_year]}{0[service_card.cvv]}"
    "{0[service_card.address.last_name]:<20}"
    "{0[service_card.address.first_name]:<15}{0[service_card.address.address1]:<40}"
    "{0[service_card.address.city]:<20}{0[service_card.address.subnational]}"
    "{0[service_card.address.postal_code]:<10}"
)


def plus(**more: Cell) -> Columns:
    """Return all usual columns, and these after or instead of them."""
    return {**WHOLE, **more}


def without(*headers: str) -> Columns:
    """Return the usual columns without some."""
    return {header: cell for header, cell in WHOLE.items() if header not in headers}


def thirty() -> dict[str, Export]:
    """Return them by name."""
    exports = {**dates(), **cards(), **names(), **addresses(), **headers(), **lines_around()}
    known = {*portal.columns()}
    assert all(known >= export.truth[0].keys() for export in exports.values())
    return exports


def dates() -> dict[str, Export]:
    rows = people(60)
    few = rows[1:6]
    other_dates = {
        "DOB": constant("19700101"),
        "ISSUED": formatted("20{YY}0101"),
        **WHOLE,
        "LAST_TXN_DT": formatted("{MM}{YY}"),
    }
    return {
        "dates that fit two forms": Export(
            text(few, plus(EXP_DATE=formatted("{MM}/0{n}/{YYYY}"))), truth(few, *WITH)
        ),
        "UTF-16 with timestamps": Export(
            text(
                rows,
                plus(EXP_DATE=formatted("{YYYY}-{MM}-{DD} 00:00:00")),
                delimiter="\t",
                encoding="utf-16",
            ),
            truth(rows, *WITH),
        ),
        "other dates beside": Export(text(rows, other_dates), truth(rows, *WITH)),
        "no dates at all": Export(text(rows, without("EXP_DATE")), truth(rows, *WITH)),
    }


def cards() -> dict[str, Export]:
    rows = people(60)

    def older(row: Row) -> str:
        return rows[-1 - index(row)][PAN]

    def of_row_before(row: Row) -> str:
        return rows[index(row) - 1][PAN]

    def in_fours(row: Row) -> str:
        return " ".join(row[PAN][start : start + 4] for start in (0, 4, 8, 12))

    def masked(row: Row) -> str:
        return f"{row[PAN][:6]}******{row[PAN][-4:]}"

    right_number = {"CARD_NUMBER": masked, "PAN_CLEAR": PAN, **without("CARD_NUMBER")}
    return {
        "an old card beside the new one": Export(
            text(rows, plus(PREV_CARD_NUMBER=older)), truth(rows, *WITH)
        ),
        "a second number that passes for a card": Export(
            text(rows, plus(CARD_TOKEN=of_row_before)), truth(rows, *WITH)
        ),
        "card numbers in fours": Export(text(rows, plus(CARD_NUMBER=in_fours)), truth(rows, *WITH)),
        "a masked number under the better name": Export(
            text(rows, right_number), truth(rows, *WITH)
        ),
        "a status of each card": Export(
            text(rows, plus(CARD_STATUS=lambda row: "AAAC"[index(row) % 4])), truth(rows, *WITH)
        ),
        "a cuid for a household": Export(
            text(rows, plus(CUSTOMER_ID=lambda row: f"C{index(row) // 2}")), truth(rows, *WITH)
        ),
    }


def names() -> dict[str, Export]:
    rows = people(60)
    accents = people(60, plain=False)
    unnamed = without(*NAMES)

    def odd_name(row: Row) -> str:
        return f"Aa{chr(97 + index(row) % 26)}"

    capitals = {FIRST_NAME: formatted("{FIRST}"), LAST_NAME: formatted("{LAST}")}
    embossed = tuple(
        row | {NAME_ON_CARD: f"{row[FIRST_NAME]} {row[LAST_NAME]}".upper()}
        for row in truth(rows, *WITH)
    )
    return {
        "LAST FIRST": Export(
            text(rows, {**unnamed, "NAME": formatted("{LAST} {FIRST}")}),
            truth(rows, *WITH, **capitals),
        ),
        "names that nothing tells apart": Export(
            text(rows, {**unnamed, "NAME": lambda row: f"{odd_name(row)} Zz"}),
            truth(rows, *WITH, **{FIRST_NAME: odd_name, LAST_NAME: constant("Zz")}),
        ),
        "whole names of many words": Export(
            text(accents, {**unnamed, "NAME": formatted("{first} {last}")}, delimiter=";"),
            truth(accents, *WITH),
        ),
        "embossed names and glued headers": Export(text(rows, EMBOSSED), embossed),
    }


def addresses() -> dict[str, Export]:
    rows = people(60)
    both = people(60, canada=True)

    def zip_plus_4(row: Row) -> str:
        return row[POSTAL_CODE] + ("-1234" if row[COUNTRY] == "US" else "")

    def with_quotes(row: Row) -> str:
        return row[ADDRESS1].replace(" ", ' "N" ', 1)

    def with_escaped_quotes(row: Row) -> str:
        return row[ADDRESS1].replace(" ", ' \\"N\\" ', 1)

    mysql = text(rows, plus(ADDRESS1=with_escaped_quotes), delimiter="\t")
    mail = {f"MAIL_{header}": constant("x") for header in ADDRESS}
    residence = {f"RES_{header}": cell for header, cell in ADDRESS.items()}
    every_other = tuple(
        row | {IS_PRIMARY: ("TRUE", "FALSE")[place % 2]}
        for place, row in enumerate(truth(rows, *WITH))
    )
    return {
        "ZIP+4 and Canada": Export(text(both, plus(ZIP=zip_plus_4)), truth(both, *WITH)),
        "ZIPs that lost their zeros": Export(
            text(rows, plus(ZIP=formatted("{short}"))), truth(rows, *WITH)
        ),
        "MySQL": Export(
            mysql.replace(b'""', b'"').replace(b'\t"', b"\t").replace(b'"\t', b"\t"),
            truth(rows, *WITH, **{ADDRESS1: with_quotes}),
        ),
        "primary or secondary": Export(
            text(rows, plus(PRIMARY_IND=lambda row: "PS"[index(row) % 2])), every_other
        ),
        "two addresses": Export(
            text(rows, {**BASE, **NAMES, **mail, **residence}), truth(rows, *WITH)
        ),
        "cells of several lines": Export(
            text(rows, plus(ADDRESS2=constant("Apt 4,\nfloor 2"))),
            truth(rows, *WITH, **{ADDRESS2: constant("Apt 4, floor 2")}),
        ),
    }


def headers() -> dict[str, Export]:
    rows = people(60)
    both = people(60, canada=True)
    numbered = {f"F{number:02d}": cell for number, cell in enumerate(WHOLE.values(), 1)}
    return {
        "no header": Export(text(rows, WHOLE, header=False), truth(rows, *WITH)),
        "unknown headers": Export(text(rows, numbered), truth(rows, *WITH)),
        "month and year in French": Export(
            text(both, FRENCH, delimiter=";", encoding="cp1252"), truth(both, CUID, CVV)
        ),
        "paths as headers": Export(text(rows, PATHS), truth(rows, *WITH)),
    }


def lines_around() -> dict[str, Export]:
    rows = people(60)

    def as_formula(cell: str) -> str:
        return f'="{cell}"' if cell.isdigit() else cell

    return {
        "Excel formulas": Export(text(rows, WHOLE, quote=as_formula), truth(rows, *WITH)),
        "HDR, TRL and no header": Export(
            text(
                rows,
                {"T": constant("DTL"), **WHOLE},
                delimiter="|",
                header=False,
                above="HDR|1|20261120",
                below="TRL|{rows}",
            ),
            truth(rows, *WITH),
        ),
        "fixed width": Export(fixed_width(rows), truth(rows, CUID, CVV)),
        "a report's title, sep= and row count": Export(
            text(
                rows,
                plus(EXP_DATE=formatted("{DD}-{MON}-{YYYY}")),
                delimiter=";",
                above="sep=;\nCardholders of First Bank\n",
                below="({rows} rows affected)",
            ),
            truth(rows, *WITH),
        ),
        "a trailer that counts the lines around": Export(
            text(rows, WHOLE, above="H,20261120", below="T,62"), truth(rows, *WITH)
        ),
        "header and trailer as wide as the rows": Export(
            text(rows, WHOLE, above=f"HDR,20261120,BANK{8 * ','}", below=f"TRL,{{rows}}{9 * ','}"),
            truth(rows, *WITH),
        ),
    }


def fixed_width(rows: tuple[Row, ...]) -> bytes:
    """Return lines of one width between a header and a trailer."""
    lines = [FIXED_LINE.format(row) for row in rows]
    width = len(lines[0])
    header = "H20261120FIRSTBANK".ljust(width)
    trailer = f"T{len(rows):09d}".ljust(width)
    return "\n".join([header, *lines, trailer, ""]).encode()
