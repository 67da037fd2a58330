"""What a header says, in our words, whatever the issuer's spelling."""

import re
import unicodedata
from functools import cache

# A word of ours, and its spellings in headers.
_SPELLINGS = """
    number no nbr num nr nmbr numb id identifier ident key ref reference nummer numero
    date dt dte thru through to until
    customer cust cus client clnt member memb mbr party cardholder holder crdhldr chd ch person
        owner
    card crd crdt carte
    customer_number cif cifno cuid custno
    card_number pan cardno
    old prev previous former prior replaced
    on the of
    expiration exp expiry expir expire expires expdt expdate valid validity good xpir
    month mo mon mth mm mnth mois
    year yr yy yyyy annee
    first_name firstname fname givenname forename prenom fstnm fnm
    first fst frst given
    last_name lastname lname surname familyname nom lstnm lnm
    last lst family sur
    name nm nme names
    full complete
    emboss emb embossed embossing embossname printed
    address addr adr addrs adresse
    line ln lin
    street str strt rue
    house hse building bldg civic
    unit apt apartment suite ste flat
    city cty town municipality locality ville
    state st stt province prov region subnational
    zip zp zipcode postalcode postcode postal post pstl
    country ctry cntry cntr nation pays
    email emailaddress courriel
    phone telephone tel mobile cell telno ph phn
    cvv cvc cvn cid csc
    hash hashed sha digest
    primary prim pri main
    flag ind indicator flg is
    code cd cde
    status sts stat
    account acct acc
    billing bill mailing mail residential residence res legal physical current home
    security sec verification
    value val text txt field fld desc
    nickname productname
"""
# What a header may say besides.
_NOISE = """
    customer card code date flag value on billing primary account full number name line 1 address
"""


def _words() -> dict[str, list[str]]:
    """Return our words of each spelling."""
    words = {}
    groups = _SPELLINGS.replace("\n        ", " ")
    for group in groups.splitlines():
        spellings = group.split()
        for spelling in spellings:
            words[spelling] = spellings[0].split("_")
    return words


_WORDS = _words()
_LONGEST_FIRST = sorted((word for word in _WORDS if len(word) > 1), key=len, reverse=True)
_GLUED = re.compile("|".join(_LONGEST_FIRST))
_TELLS_NOTHING = frozenset(_NOISE.split())


@cache
def words_of(header: str) -> frozenset[str]:
    """Return what a header says, in our words.

    camelCase, abbreviations and words without a gap are understood.
    """
    plain = unicodedata.normalize("NFKD", header).encode("ascii", "ignore").decode()
    words: set[str] = set()
    for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+", plain):
        for spelling in _spellings(part.lower()):
            words.update(_WORDS.get(spelling, [spelling]))
    return frozenset(words)


def _spellings(token: str) -> list[str]:
    """Return the spellings that a token is glued of; itself where it is not."""
    pieces: list[str] = _GLUED.findall(token)
    if token in _WORDS or "".join(pieces) != token:
        return [token]
    return pieces


def phrase_fit(header: str, phrases: str) -> float:
    """Return how well a header says one of several phrases, which are separated by `|`.

    1 exactly, less with words beside that tell nothing, 0 not at all.
    """
    best = 0.0
    words = words_of(header)
    for phrase in phrases.split("|"):
        needed = frozenset(phrase.split())
        beside = words - needed
        if needed <= words and beside <= _TELLS_NOTHING:
            best = max(best, 1 - 0.1 * len(beside))
    return best
