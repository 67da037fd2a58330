"""A first guess of `[source]` and `[columns]` from the beginning of an extract.

Header names go into the text, cells never: values only decide between formats.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import BinaryIO, NamedTuple

from flows.extracts.decode import line_blocks
from flows.extracts.errors import EncodingError, HeaderError, TruncatedError
from flows.extracts.header import header_names
from schemas import portal
from schemas.issuer import SourceSettings
from schemas.mapping import READINGS, date_shape
from schemas.rules import REQUIRED

HEAD = 1 << 20  # bytes looked at for all but the end
SAMPLE = 200  # records looked at
DELIMITERS = ",;\t|"
COMMENTS = ("#", "*", "!")
_SEP = re.compile('"?sep=', re.IGNORECASE)
# What issuers call the columns, in lower case letters and digits only.
WORDS = {
    portal.CUID: ("cuid", "customerid", "custid", "customernumber", "custno", "cardholderid", "memberid", "clientid"),
    portal.PAN: ("pan", "cardnumber", "cardno", "cardnum", "primaryaccountnumber"),
    portal.YEAR: ("expirationyear", "expyear", "expyy", "expiryyear"),
    portal.MONTH: ("expirationmonth", "expmonth", "expmm", "expirymonth"),
    portal.NAME_ON_CARD: ("nameoncard", "embossname", "embossedname", "embossingname"),
    portal.CVV_HASH: ("cvvhash", "cvv2hash"),
    portal.CVV: ("cvv", "cvv2", "cvc", "cvc2", "securitycode"),
    portal.NICKNAME: ("nickname", "productname"),
    portal.ADDRESS1: ("address1", "addressline1", "addr1", "addrline1", "street", "street1", "streetaddress"),
    portal.ADDRESS2: ("address2", "addressline2", "addr2", "addrline2", "street2", "apt", "unit"),
    portal.CITY: ("city", "town"),
    portal.SUBNATIONAL: ("subnational", "state", "province", "stateprovince", "region", "statecode"),
    portal.COUNTRY: ("country", "countrycode"),
    portal.POSTAL_CODE: ("postalcode", "postcode", "zip", "zipcode", "zip5"),
    portal.EMAIL: ("email", "emailaddress", "mail"),
    portal.PHONE: ("phone", "phonenumber", "mobile", "mobilephone", "telephone", "cell"),
    portal.FIRST_NAME: ("firstname", "givenname", "fname", "forename"),
    portal.LAST_NAME: ("lastname", "surname", "familyname", "lname"),
    portal.IS_PRIMARY: ("isprimary", "primary", "primaryaddress"),
}
EXPIRY = ("expiry", "expirydate", "expiration", "expirationdate", "exp", "expdate", "validthru", "goodthru")
FULL_NAME = ("name", "fullname", "cardholdername", "customername", "holdername")


class Sample(NamedTuple):
    """The beginning of an extract: the settings that read it, its header, and the values of each column."""

    settings: SourceSettings
    header: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]


def first_tables(stream: BinaryIO, name: str) -> str:
    """Return TOML tables `[source]` and `[columns]`, guessed from the beginning and end of an extract; ExtractError."""
    sample = _sample(stream.read(HEAD), name)
    stream.seek(0)
    last = _last_byte(stream, sample.settings.encoding, name)
    return f"{_source_table(sample.settings, last)}\n{_columns_table(sample)}"


def _last_byte(stream: BinaryIO, encoding: str, name: str) -> bytes:
    """Return the last byte of an extract, b"" where it is cut off."""
    last = b""
    with suppress(TruncatedError, EncodingError):
        for block in line_blocks(stream, encoding, name):
            last = block
        return last.rstrip(b"\x1a")[-1:]
    return b""


def _sample(head: bytes, name: str) -> Sample:
    encoding, text = _decoded(head, name)
    lines = text.splitlines()
    at = next((number for number, line in enumerate(lines) if _is_header(line)), 0)
    delimiter = max(DELIMITERS, key=lines[at].count)
    comment = lines[0][0] if at and lines[0][:1] in COMMENTS else None
    titles = 0 if comment or _SEP.match(lines[0]) else at
    settings = SourceSettings.model_validate(
        {"encoding": encoding, "delimiter": delimiter, "comment": comment, "header_rows": titles + 1}
    )
    header, rows = header_names(lines[at], settings, name), []
    with suppress(csv.Error):  # the reader will report the line; a guess can do without
        records = csv.reader(lines[at + 1 : at + 1 + SAMPLE], delimiter=delimiter)
        rows = [row for row in records if len(row) == len(header)]
    return Sample(settings, header, tuple(tuple(row[at].strip() for row in rows) for at in range(len(header))))


def _guess_columns(sample: Sample) -> dict[str, str]:
    """Return portal column -> TOML value, for every column that a header suggests."""
    plain = {header: _plain(header) for header in sample.header}
    found: dict[str, str] = {}
    for target in portal.columns():
        known = (*WORDS.get(target, ()), _plain(target))
        match = next((header for word in known for header in sample.header if plain[header] == word), None)
        if match is not None:
            found[target] = _quoted(match)
    for header, values in zip(sample.header, sample.values, strict=True):
        for target, form in _taken_apart(plain[header], values).items():
            found.setdefault(target, f'{{ from = {_quoted(header)}, format = "{form}" }}')
    return found


def _taken_apart(plain: str, values: Sequence[str]) -> dict[str, str]:
    """Return portal column -> format, for a header whose values combine two columns."""
    if plain in EXPIRY:
        return dict.fromkeys((portal.YEAR, portal.MONTH), _date_form(values))
    if plain in FULL_NAME and values and all("/" in value for value in values):
        return dict.fromkeys((portal.FIRST_NAME, portal.LAST_NAME), "SURNAME/GIVEN")
    return {}


def _plain(header: str) -> str:
    return re.sub(r"[^a-z0-9]", "", header.rsplit(".", 1)[-1].lower())


def _quoted(header: str) -> str:
    return json.dumps(header, ensure_ascii=False)  # a JSON string is a TOML string


def _decoded(head: bytes, name: str) -> tuple[str, str]:
    """Return the encoding that reads `head`, and its text up to the last whole line."""
    for encoding in ("utf-8", "utf-16", "cp1252"):
        try:
            whole = _beginning(head[: len(head) & ~1] if encoding == "utf-16" else head, encoding, name)
            text = codecs.getincrementaldecoder("cp1252" if encoding == "cp1252" else "utf-8")().decode(whole)
        except (EncodingError, UnicodeError):
            continue
        if text.strip():
            return encoding, text[: text.rfind("\n") + 1] or text
    raise HeaderError(name=name, problem="the file has none in UTF-8, UTF-16 or cp1252")


def _beginning(head: bytes, encoding: str, name: str) -> bytes:
    """Return what can be read of a beginning that may end in the middle of compressed data."""
    found = b""
    with suppress(TruncatedError):
        for block in line_blocks(io.BytesIO(head), encoding, name, 1 << 12):
            found += block
    return found


def _is_header(line: str) -> bool:
    return max(map(line.count, DELIMITERS)) >= 2 and not _SEP.match(line) and line[:1] not in COMMENTS


def _date_form(values: Sequence[str]) -> str:
    """Return the first format that fits every value, MMYY if none does."""
    present = [value for value in values if value]
    fitting = (form for form in READINGS if all(re.match(date_shape(form, real=True), value) for value in present))
    return next(fitting, "MMYY") if present else "MMYY"


def _source_table(settings: SourceSettings, last: bytes) -> str:
    lines = [
        "[source]",
        'pattern = "*"                # which files under extracts/ are this issuer\'s',
        f"delimiter = {json.dumps(settings.delimiter)}",
        f'encoding = "{settings.encoding}"',
        f"header_rows = {settings.header_rows}              # the last of them has the column names",
    ]
    if settings.comment:
        lines.append(f"comment = {json.dumps(settings.comment)}              # lines that begin like this are skipped")
    ending = "true  # the last line has one: a file whose last line does not was cut off"
    if last not in (b"", b"\n"):
        ending = "false # the last line has none; with true it would be refused as cut off"
    lines += [
        "# trailer = '^TRL,([0-9]+)'  # a last line with the row count in the group",
        f"final_newline = {ending}",
    ]
    return "\n".join(lines) + "\n"


def _columns_table(sample: Sample) -> str:
    guessed = _guess_columns(sample)
    lines = ["[columns]"]
    for target in portal.columns():
        if target in guessed:
            lines.append(f'"{target}" = {guessed[target]}')
        elif target in REQUIRED:
            lines.append(f'# "{target}" = ""  # required; no header looks like it')
    used = " ".join(guessed.values())
    left = [header for header in sample.header if _quoted(header) not in used]
    if left:
        lines.append(f"# not used: {', '.join(left)}")
    return "\n".join(lines) + "\n"
