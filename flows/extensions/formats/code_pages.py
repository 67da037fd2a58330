"""The EBCDIC code pages by name: what each byte is as text, and the bytes that write numbers.

Python has some, the package `ebcdic` the others. All write letters, digits, blank, point and minus
with the same bytes; they differ in accents and brackets.
"""

import codecs
from functools import cache
from typing import Final, Literal, get_args
from unicodedata import category

import ebcdic  # noqa: F401  registers the code pages that Python lacks

EbcdicPage = Literal[
    "cp037",
    "cp1025",
    "cp1026",
    "cp1047",
    "cp1097",
    "cp1112",
    "cp1122",
    "cp1123",
    "cp1140",
    "cp1141",
    "cp1142",
    "cp1143",
    "cp1144",
    "cp1145",
    "cp1146",
    "cp1147",
    "cp1148",
    "cp1149",
    "cp273",
    "cp277",
    "cp278",
    "cp280",
    "cp284",
    "cp285",
    "cp290",
    "cp297",
    "cp420",
    "cp424",
    "cp500",
    "cp833",
    "cp838",
    "cp870",
    "cp871",
    "cp875",
]
EBCDIC: Final = frozenset(get_args(EbcdicPage))
UNDEFINED: Final = "\x00"  # what a byte is that its code page does not define: no text has it
BLANK: Final = 0x40
LINE_END: Final = 0x25  # of the two that end lines, the one that is "\n" in `characters`
NEXT_LINE: Final = 0x15


@cache
def characters(encoding: str) -> str:
    """Return the 256 characters of a one-byte encoding; both line ends of EBCDIC are a newline."""
    decode = codecs.getdecoder(encoding)
    texts = [decode(bytes([byte]), "ignore")[0] or UNDEFINED for byte in range(256)]
    if encoding in EBCDIC:
        texts[NEXT_LINE] = "\n"
        texts[LINE_END] = "\n"
    return "".join(texts)


def decoded(data: bytes, encoding: str) -> str:
    """Return what bytes are in a code page."""
    return codecs.charmap_decode(data, "strict", characters(encoding))[0]


@cache
def controls(encoding: str) -> bytes:
    """Return the bytes that are no text in a code page: control characters, and undefined ones."""
    kinds = map(category, characters(encoding))
    return bytes(byte for byte, kind in enumerate(kinds) if kind == "Cc")
