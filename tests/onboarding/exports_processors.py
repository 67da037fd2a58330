"""Delimited exports in the layouts of card processors and core systems, whose status codes differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    COUNTRY,
    CUID,
    CVV,
    EMAIL,
    FIRST_NAME,
    LAST_NAME,
    PAN,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
)
from tests.extracts.exports import account, constant, formatted, index
from tests.onboarding.layouts import Aside, Columns, Export, Mark, beside, expiry, export, name

Write = Callable[[Sequence[str], Sequence[Sequence[str]]], bytes]


def delimited(
    delimiter: str = ",",
    *,
    above: str = "",
    below: str = "",
    header: bool = True,
    encoding: str = "utf-8",
    newline: str = "\n",
) -> Write:
    """Return what writes delimited text; `above` and `below` are lines with {rows} and {cards}."""

    def cell(text: str) -> str:
        has_marks = delimiter in text or '"' in text
        return '"{}"'.format(text.replace('"', '""')) if has_marks else text

    def write(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> bytes:
        cards = sum(int(text) for row in rows for text in row if _is_card(text))
        facts = {"rows": len(rows), "cards": cards}
        lines = above.format(**facts).splitlines()
        table = [headers, *rows] if header else rows
        lines += [delimiter.join(map(cell, row)) for row in table]
        lines += below.format(**facts).splitlines()
        return newline.join([*lines, ""]).encode(encoding)

    return write


def _is_card(text: str) -> bool:
    return len(text) == 16 and text.isdigit()


ADDRESS: Columns = {
    "ADDR_LINE_1": ADDRESS1,
    "ADDR_LINE_2": ADDRESS2,
    "CITY": CITY,
    "STATE": SUBNATIONAL,
    "ZIP": POSTAL_CODE,
}
NAMES: Columns = {"FIRST_NAME": FIRST_NAME, "LAST_NAME": LAST_NAME}


def processors() -> dict[str, Export]:
    """Return them by name."""
    return {**credit(), **debit(), **prepaid(), **modern(), **cores()}


def credit() -> dict[str, Export]:
    total: Columns = {
        "CLIENT_NBR": beside(constant("8123")),
        "CH_CUST_ID": CUID,
        "CH_ACCT_NBR": PAN,
        "CH_EXPIR_DT": expiry("{YY}{MM}", "YYMM"),
        "CH_CVV2": CVV,
        "CH_EXT_STATUS_CD": Mark("", tuple("BCEFILUZ")),
        "CH_FIRST_NM": FIRST_NAME,
        "CH_LAST_NM": LAST_NAME,
        "CH_ADDR_1": ADDRESS1,
        "CH_ADDR_2": ADDRESS2,
        "CH_CITY": CITY,
        "CH_STATE_CD": SUBNATIONAL,
        "CH_ZIP_CD": POSTAL_CODE,
    }
    first_data: Columns = {
        "SYS_PRIN": beside(formatted("4721{n:04d}")),
        "CUSTOMER_NBR": CUID,
        "CARDHOLDER_NBR": PAN,
        "EXPIRATION_DATE": expiry("{MM}{YYYY}", "MMYYYY"),
        "CVC2": CVV,
        "EMBOSS_LINE_1": name("{FIRST} {LAST}", "FIRST LAST"),
        **ADDRESS,
        "BLOCK_CODE_1": Mark("", ("L", "S", "F")),
        "BLOCK_CODE_2": Mark("", ("C", "D"), ("P",)),
    }
    two: Columns = {
        "CIF_NO": CUID,
        "CARD_NO": PAN,
        "EXP_DT": expiry("{MM}/{YY}", "MM/YY"),
        "CVV": CVV,
        **NAMES,
        **ADDRESS,
        "CARD_STAT": Mark("N", ("L", "S")),
        "ACCT_STAT": Mark("N", ("C", "X")),
        "VIP_FLG": Aside(("Y", "N", "N", "N")),
    }
    reissue: Columns = {
        "CUST_NUMBER": CUID,
        "PREV_CARD_NUMBER": beside(_another_card),
        "CARD_NUMBER": PAN,
        "EXPIRY": expiry("{YYYY}-{MM}", "YYYY-MM"),
        "CVV2": CVV,
        **NAMES,
        **ADDRESS,
        "REISSUE_CD": Aside(("0", "1", "2")),
        "PLASTIC_STATUS": Mark("1", ("7", "8", "9"), ("2",)),
    }
    card: Columns = {
        "Account ID": CUID,
        "PAN": PAN,
        "Exp": expiry("{MM}{YY}", "MMYY"),
        "CVV": CVV,
        "Name": name("{last}, {first}", "LAST, FIRST"),
        "Street": ADDRESS1,
        "City": CITY,
        "St": SUBNATIONAL,
        "Zip": POSTAL_CODE,
        "Chargeoff Dt": Mark("", ("20240131", "20251215"), date="YYYYMMDD"),
        "Deceased Ind": Mark("N", ("Y",)),
    }
    upper = {FIRST_NAME: formatted("{FIRST}"), LAST_NAME: formatted("{LAST}")}
    return {
        "external status of a credit processor": export(total, delimited("|")),
        "two block codes": export(first_data, delimited(), changed=upper),
        "card and account both N": export(two, delimited(";")),
        "plastic status beside a reissue code": export(reissue, delimited()),
        "charge-off date and death": export(card, delimited("\t")),
    }


def _another_card(row: dict[str, str]) -> str:
    """Return a card number that is nobody's, with a right check digit."""
    body = f"400012{index(row) * 7_654_321 % 10**9:09d}"
    doubled = [int(digit) * (2 - place % 2) for place, digit in enumerate(body)]
    return body + str(-sum(number // 10 + number % 10 for number in doubled) % 10)


def debit() -> dict[str, Export]:
    portico: Columns = {
        "MemberNumber": CUID,
        "CardID": PAN,
        "ExpDate": expiry("{MM}{YY}", "MMYY"),
        "CVV": CVV,
        "FirstName": FIRST_NAME,
        "LastName": LAST_NAME,
        "AddressLine1": ADDRESS1,
        "AddressLine2": ADDRESS2,
        "City": CITY,
        "State": SUBNATIONAL,
        "ZipCode": POSTAL_CODE,
        "CardStatus": Mark("1", tuple("234589H"), ("0", "6")),
    }
    gold: Columns = {
        "Card Nbr": PAN,
        "Nbr Seq": Aside(("1", "2")),
        "Customer": CUID,
        "Exp Date": expiry("{MM}/{YYYY}", "MM/YYYY"),
        "CVV": CVV,
        "Short Name": beside(formatted("{LAST}")),
        "First Name": FIRST_NAME,
        "Last Name": LAST_NAME,
        "Address": ADDRESS1,
        "City": CITY,
        "State": SUBNATIONAL,
        "Zip": POSTAL_CODE,
        "Crd Stat": Mark("0", ("99", "101", "102", "103", "104", "105", "106", "199")),
    }
    symitar: Columns = {
        "accountnumber": beside(account),
        "carduuid": CUID,
        "cardnumber": PAN,
        "expirationdate": expiry("{YYYY}{MM}{DD}", "YYYYMMDD"),
        "cvv2": CVV,
        "firstname": FIRST_NAME,
        "lastname": LAST_NAME,
        "street": ADDRESS1,
        "extraaddress": ADDRESS2,
        "city": CITY,
        "state": SUBNATIONAL,
        "zipcode": POSTAL_CODE,
        "deleteid": Mark("0", ("1",)),
        "closedate": Mark("", ("2024-01-31", "2025-12-15"), date="YYYY-MM-DD"),
    }
    fleet: Columns = {
        "Driver ID": CUID,
        "Card Number": PAN,
        "Card Creation Date": beside(constant("26092019")),
        "Card Expiry Date": expiry("{DD}{MM}{YYYY}", "DDMMYYYY"),
        "Current Status Code": Mark("100", ("200", "300", "404", "501", "900"), ("400", "402")),
        "First Name": FIRST_NAME,
        "Surname": LAST_NAME,
        "Address 1": ADDRESS1,
        "Town": CITY,
        "State": SUBNATIONAL,
        "Zip": POSTAL_CODE,
    }
    hot: Columns = {
        "PAN": PAN,
        "CIF": CUID,
        "EXPIRY_YYMM": expiry("{YY}{MM}", "YYMM"),
        "CVV": CVV,
        **NAMES,
        **ADDRESS,
        "HOTLIST_FLG": Mark("0", ("1",)),
        "ISSUE_REASON": Aside(("NEW", "REN", "REP")),
    }
    return {
        "digits and H of a credit union": export(portico, delimited()),
        "numbers of three digits are captured": export(gold, delimited("|")),
        "a soft delete and a closing date": export(symitar, delimited()),
        "fleet cards": export(fleet, delimited(";")),
        "a hot list": export(hot, delimited(",")),
    }


def prepaid() -> dict[str, Export]:
    letters: Columns = {
        "PRN": CUID,
        "CAD": beside(formatted("{n:06d}")),
        "CARD_NUM": PAN,
        "EXPIRY": expiry("{YYYY}{MM}", "YYYYMM"),
        "CVV2": CVV,
        **NAMES,
        **ADDRESS,
        "EMAIL": EMAIL,
        "CARD_STATUS": Mark("N", tuple("CLSZ"), ("D", "P")),
    }
    thredd: Columns = {
        "PublicToken": CUID,
        "PAN": PAN,
        "ExpDate": expiry("{YYYY}-{MM}-{DD}", "YYYY-MM-DD"),
        "CVV2": CVV,
        "FirstName": FIRST_NAME,
        "LastName": LAST_NAME,
        "Addr1": ADDRESS1,
        "Addr2": ADDRESS2,
        "City": CITY,
        "State": SUBNATIONAL,
        "PostCode": POSTAL_CODE,
        "StatCode": Mark("00", ("41", "43", "46", "83", "99"), ("04", "05", "62")),
    }
    load: Columns = {
        "Cardholder Id": CUID,
        "Card No": PAN,
        "Valid Thru": expiry("{MM}/{YY}", "MM/YY"),
        "CVC": CVV,
        "Cardholder Name": name("{first} {last}", "FIRST LAST"),
        "Address Line 1": ADDRESS1,
        "City": CITY,
        "State": SUBNATIONAL,
        "Postal Code": POSTAL_CODE,
        "Mobile": PHONE,
        "Activation Date": beside(constant("2025-03-01")),
        "Cancel Date": Mark("", ("01/31/2024", "12/15/2025"), date="MM/DD/YYYY"),
        "KYC Level": Aside(("FULL", "LITE")),
    }
    return {
        "single letters of a prepaid programme": export(letters, delimited()),
        "numbers of two digits": export(thredd, delimited()),
        "a date of cancelling": export(load, delimited()),
    }


def modern() -> dict[str, Export]:
    paths: Columns = {
        "user.token": CUID,
        "card.pan": PAN,
        "card.expiration": expiry("{MM}{YY}", "MMYY"),
        "card.cvv_number": CVV,
        "card.state": Mark("ACTIVE", ("TERMINATED",), ("SUSPENDED", "UNACTIVATED")),
        "user.first_name": FIRST_NAME,
        "user.last_name": LAST_NAME,
        "user.address1": ADDRESS1,
        "user.address2": ADDRESS2,
        "user.city": CITY,
        "user.state": SUBNATIONAL,
        "user.postal_code": POSTAL_CODE,
        "user.country": COUNTRY,
    }
    reasons: Columns = {
        "customerId": CUID,
        "cardNumber": PAN,
        "expiration": expiry("{MM}/{YY}", "MM/YY"),
        "cvv": CVV,
        "givenName": FIRST_NAME,
        "familyName": LAST_NAME,
        "line1": ADDRESS1,
        "line2": ADDRESS2,
        "city": CITY,
        "state": SUBNATIONAL,
        "postalCode": POSTAL_CODE,
        "statusReasonCode": Mark("NotSet", ("Lost", "Stolen", "FraudBlocked", "Expired")),
        "adminBlocked": Mark("false", ("true",)),
    }
    exceptions: Columns = {
        "cardholder_ref": CUID,
        "pan": PAN,
        "exp_date": expiry("{YYYY}-{MM}", "YYYY-MM"),
        "cvv2": CVV,
        "first_name": FIRST_NAME,
        "last_name": LAST_NAME,
        "street_address": ADDRESS1,
        "city": CITY,
        "state": SUBNATIONAL,
        "zip": POSTAL_CODE,
        "exception_action": Mark("", ("CLOS", "LCPU", "SCPU", "PUWF"), ("DNTH",)),
    }
    return {
        "states in words under paths": export(paths, delimited()),
        "a reason and a block of an administrator": export(reasons, delimited()),
        "codes of an exception file": export(exceptions, delimited()),
    }


def cores() -> dict[str, Export]:
    enfuce: Columns = {
        "REPORTING_DATE": beside(constant("2026-11-20")),
        "CUSTOMER_NUMBER": CUID,
        "PAN": PAN,
        "EXPIRY_DATE": expiry("{YYYY}-{MM}-{DD}", "YYYY-MM-DD"),
        "CVV2": CVV,
        **NAMES,
        **ADDRESS,
        "CLOSING_DATE": Mark("", ("2024-01-31", "2025-12-15"), date="YYYY-MM-DD"),
        "OPENING_DATE": beside(constant("2019-05-02")),
        "MAIN_CARD": Aside(("1", "0")),
    }
    deltas: Columns = {
        "MAINT_TYPE": Mark("C", ("D",), also=("A",)),
        "CUST_NO": CUID,
        "CARD_NO": PAN,
        "EXP": expiry("{MM}{YY}", "MMYY"),
        "CVV": CVV,
        **NAMES,
        **ADDRESS,
    }
    primary: Columns = {
        "CUSTOMER_KEY": CUID,
        "CARD_NUMBER": PAN,
        "EXPIRY_DATE": expiry("{MM}/{YYYY}", "MM/YYYY"),
        "CVV": CVV,
        **NAMES,
        **ADDRESS,
        "PRIMARY_CARDHOLDER_IND": Aside(("Y", "N")),
        "LIFECYCLE": Mark("ACTIVE", ("CLOSED", "LOST"), ("DORMANT",)),
    }
    life: Columns = {
        "Cust #": CUID,
        "Card #": PAN,
        "Exp Mo": "service_card.expiration_month",
        "Exp Yr": "service_card.expiration_year",
        "CVV": CVV,
        "First": FIRST_NAME,
        "Last": LAST_NAME,
        "Addr": ADDRESS1,
        "Apt": ADDRESS2,
        "City": CITY,
        "ST": SUBNATIONAL,
        "ZIP": POSTAL_CODE,
        "Remarks": Mark("", ("deceased", "lost card", "closed")),
    }
    return {
        "a date of closing": export(enfuce, delimited("|")),
        "a delta of additions, changes and deletions": export(deltas, delimited("|")),
        "main cardholders and a life cycle": export(primary, delimited()),
        "remarks that say it": export(life, delimited()),
    }
