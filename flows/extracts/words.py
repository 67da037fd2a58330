"""What issuers call the portal's columns, and the shape that their values have: all that a guess knows by itself."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

from schemas import expressions, places, portal

# A word of ours, and its spellings in headers.
_SPELLINGS = """
    number no nbr num nr nmbr numb id identifier ident key ref reference nummer numero
    date dt dte thru through to until
    customer cust cus client clnt member memb mbr party cardholder holder crdhldr chd ch person owner
    card crd crdt carte | customer_number cif cifno cuid custno | card_number pan cardno
    old prev previous former prior replaced | on the of
    expiration exp expiry expir expire expires expdt expdate valid validity good xpir | month mo mon mth mm mnth mois
    year yr yy yyyy annee | first_name firstname fname givenname forename prenom fstnm fnm | first fst frst given
    last_name lastname lname surname familyname nom lstnm lnm | last lst family sur | name nm nme names | full complete
    emboss emb embossed embossing embossname printed | address addr adr addrs adresse | line ln lin
    street str strt rue | house hse building bldg civic | unit apt apartment suite ste flat
    city cty town municipality locality ville | state st stt province prov region subnational
    zip zp zipcode postalcode postcode postal post pstl | phone phn | country ctry cntry cntr nation pays
    email emailaddress courriel | phone telephone tel mobile cell telno ph | cvv cvc cvn cid csc
    hash hashed sha digest | primary prim pri main | flag ind indicator flg is | code cd cde | status sts stat
    account acct acc | billing bill mailing mail residential residence res legal physical current home
    security sec verification | value val text txt field fld desc | nickname productname
"""
_WORDS = {
    spelling: own.split("_")
    for group in _SPELLINGS.replace("\n", "|").split("|")
    if (words := group.split())
    for own in words[:1]
    for spelling in words
}
_GLUED = re.compile("|".join(sorted((word for word in _WORDS if len(word) > 1), key=len, reverse=True)))
# What a header may say besides.
_NOISE = frozenset({"customer", "card", "code", "date", "flag", "value", "on", "billing", "primary", "account", "full",
                    "number", "name", "line", "1", "address"})  # fmt: skip

EXPIRY, NAME, HOUSE = "expiry", "name", "house"  # what one column may hold of two, and a part of one
_LETTERS = r"[^\d@]*[^\W\d][^\d@]*"
PAIRS: Final = {EXPIRY: (portal.YEAR, portal.MONTH), NAME: (portal.FIRST_NAME, portal.LAST_NAME)}
# What a header says, in our words, one phrase or several; and a regex of the values, "" where another test decides.
# In the order in which they are guessed: what values show best first, so that it is not taken for something else.
ASKED: Final = {
    portal.PAN: ("card number|card|primary account number", ""),
    EXPIRY: ("expiration|expiration month year", ""),
    portal.CVV: ("cvv|cvv 2|security", r"\d{1,4}"),
    portal.CVV_HASH: ("cvv hash|cvv 2 hash|cvv|cvv 2", expressions.HASH_SHAPE),
    portal.EMAIL: ("email|e billing", r"\S+@\S+\.\w+"),
    portal.POSTAL_CODE: ("zip|zip 5", r"\d{3,5}|\d{5}-?\d{4}|[A-Za-z]\d[A-Za-z][ -]?\d[A-Za-z]\d"),
    portal.SUBNATIONAL: ("state", ""),
    portal.COUNTRY: ("country", ""),
    portal.CUID: ("customer number|customer", r"(?=.*\d)[\w./ -]{1,40}|[\w-]{8,40}"),
    portal.CUSTOMER_KEY: ("customer key", ".*"),
    portal.NICKNAME: ("nickname", ".*"),
    portal.ADDRESS2: ("address 2|street 2|unit", ".*"),
    portal.PHONE: ("phone", r"[+(]{0,2}\d[\d ().+/-]{5,20}\d( ?x\d+)?"),
    NAME: ("name|emboss|name on card", _LETTERS),
    portal.ADDRESS1: ("address|street", r"(?=.*[^\W\d]).{4,}"),
    portal.CITY: ("city", _LETTERS),
    portal.NAME_ON_CARD: ("emboss|name on card", _LETTERS),
    portal.IS_PRIMARY: ("primary", "(?i)true|false|t|f|y|n|yes|no|1|0"),
    portal.YEAR: ("expiration year", r"\d{2}|20\d{2}"),
    portal.MONTH: ("expiration month", "0?[1-9]|1[0-2]"),
    portal.FIRST_NAME: ("first name|first", _LETTERS),
    portal.LAST_NAME: ("last name|last", _LETTERS),
    HOUSE: ("house|number street", r"\d{1,6}[ -]?\w?(?:/\d)?"),
}
STATES = {place for country in (places.US, places.CANADA) for place in places.subnational_spellings(country)}
# First names that tell `FIRST LAST` from `LAST FIRST`.
COMMON = frozenset(
    """james john robert michael william david richard joseph thomas charles mary patricia jennifer linda elizabeth
    barbara susan jessica sarah karen ann anne anna emma olivia noah liam daniel matthew mark paul steven andrew
    jane laura maria jose juan luis carlos sophie marie pierre peter george kevin brian emily amy lisa nancy""".split()  # noqa: SIM905  a list of sixty lines
)


@cache
def words_of(header: str) -> frozenset[str]:
    """Return what a header says, in our words: camelCase, abbreviations and words without a gap are understood."""
    plain = unicodedata.normalize("NFKD", header).encode("ascii", "ignore").decode()
    found: list[str] = []
    for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", plain):
        token = part.lower()
        pieces = _GLUED.findall(token)
        if token in _WORDS or "".join(pieces) != token:
            pieces = [token]
        found += [word for piece in pieces for word in _WORDS.get(piece, [piece])]
    return frozenset(found)


def fit(header: str, target: str) -> float:
    """Return how well a header names a column: 1 exactly, less with words beside that tell nothing, 0 not at all."""
    best, words = 0.0, words_of(header)
    for phrase in ASKED[target][0].split("|"):
        wanted = frozenset(phrase.split())
        if wanted <= words and words - wanted <= _NOISE:
            best = max(best, 1 - 0.1 * len(words - wanted))
    return max(best, 2.0 * (header == target))
