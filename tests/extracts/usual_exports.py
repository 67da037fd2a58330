"""The seven exports that a new issuer is most likely to have."""

from __future__ import annotations

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
from tests.extracts.exports import (
    WITH,
    Columns,
    Export,
    account,
    constant,
    formatted,
    house,
    people,
    street,
    text,
    truth,
)

EXCEL: Columns = {
    "Customer No": CUID,
    "Card Number": PAN,
    "Valid Thru": formatted("{MM}/{YY}"),
    "CVV": CVV,
    "First Name": FIRST_NAME,
    "Last Name": LAST_NAME,
    "Street": ADDRESS1,
    "Apt": ADDRESS2,
    "City": CITY,
    "State": SUBNATIONAL,
    "Zip Code": POSTAL_CODE,
    "E-Mail": EMAIL,
    "Phone": PHONE,
}
CAMEL: Columns = {
    "customerId": CUID,
    "cardNumber": PAN,
    "expMonth": formatted("{M}"),
    "expYear": formatted("{YYYY}"),
    "cvv": CVV,
    "firstName": FIRST_NAME,
    "lastName": LAST_NAME,
    "addressLine1": ADDRESS1,
    "addressLine2": ADDRESS2,
    "city": CITY,
    "state": SUBNATIONAL,
    "postalCode": POSTAL_CODE,
    "country": COUNTRY,
    "email": EMAIL,
}
UPPER: Columns = {
    "CUSTOMER NUMBER": CUID,
    "CARD NUMBER": PAN,
    "EXPIRATION DATE": formatted("{YYYY}{MM}"),
    "CVV2": CVV,
    "FIRST NAME": FIRST_NAME,
    "LAST NAME": LAST_NAME,
    "ADDRESS LINE 1": ADDRESS1,
    "ADDRESS LINE 2": ADDRESS2,
    "CITY NAME": CITY,
    "STATE CODE": SUBNATIONAL,
    "ZIP CODE": POSTAL_CODE,
    "BRANCH": formatted("{n}"),
}
SHORT: Columns = {
    "CUST_NBR": CUID,
    "CRD_NBR": PAN,
    "EXP_DT": formatted("{MM}{YY}"),
    "CVC": CVV,
    "FST_NM": FIRST_NAME,
    "LST_NM": LAST_NAME,
    "ADDR_LN_1": ADDRESS1,
    "ADDR_LN_2": ADDRESS2,
    "CTY": CITY,
    "ST": SUBNATIONAL,
    "ZIP_CD": POSTAL_CODE,
    "PH_NBR": PHONE,
}
CORE: Columns = {
    "CIF": CUID,
    "PAN": PAN,
    "EXPIRY": formatted("{YYYY}{MM}{DD}"),
    "CVV2": CVV,
    "NAME": formatted("{last}, {first}"),
    "ADDR1": ADDRESS1,
    "ADDR2": ADDRESS2,
    "CITY": CITY,
    "ST": SUBNATIONAL,
    "ZIP": POSTAL_CODE,
}
TAB: Columns = {
    "Member ID": CUID,
    "Cardholder Name": formatted("{first} {last}"),
    "Card No.": PAN,
    "Expires": formatted("{DD}/{MM}/{YYYY}"),
    "Security Code": CVV,
    "Address": ADDRESS1,
    "Unit": ADDRESS2,
    "Town": CITY,
    "State": SUBNATIONAL,
    "ZIP": POSTAL_CODE,
    "Mobile": PHONE,
}
SNAKE: Columns = {
    "customer_id": CUID,
    "account_number": account,
    "card_number": PAN,
    "card_exp": formatted("{YYYY}-{MM}"),
    "cvv": CVV,
    "first_name": FIRST_NAME,
    "last_name": LAST_NAME,
    "house_number": house,
    "street": street,
    "city": CITY,
    "state": SUBNATIONAL,
    "zip": POSTAL_CODE,
    "opened_on": constant("2019-04-01"),
}


def seven() -> dict[str, Export]:
    """Return them by name."""
    rows = people(60)
    accents = people(60, plain=False)
    return {
        "excel": Export(
            text(accents, EXCEL, delimiter=";", encoding="cp1252", newline="\r\n"),
            truth(accents, *WITH, EMAIL, PHONE),
        ),
        "camel": Export(text(accents, CAMEL), truth(accents, *WITH, EMAIL)),
        "upper": Export(text(rows, UPPER), truth(rows, *WITH)),
        "short": Export(text(rows, SHORT), truth(rows, *WITH, PHONE)),
        "core": Export(
            text(
                rows,
                CORE,
                delimiter="|",
                above="HDR|20261120|FIRSTBANK|CARDS",
                below="TRL|20261120|{rows:09d}",
            ),
            truth(rows, *WITH),
        ),
        "tab": Export(text(rows, TAB, delimiter="\t"), truth(rows, *WITH, PHONE)),
        "snake": Export(text(rows, SNAKE), truth(rows, CUID, CVV)),
    }
