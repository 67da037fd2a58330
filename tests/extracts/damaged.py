"""Damaged extracts of every kind we have met or feared, each with the verdict it must get."""

from __future__ import annotations

import gzip
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import zstandard

from flows.errors import CardlinkError
from flows.extracts.errors import (
    ArchiveError,
    EmptyExtractError,
    EncodingError,
    HeaderError,
    NotCsvError,
    TrailerError,
    TruncatedError,
)
from schemas import portal
from schemas.source import SourceSettings

HEADER = ",".join(portal.columns())
FIELDS = len(portal.columns())
WIDTH = 60


class Damaged(NamedTuple):
    """One damaged extract: rows accepted and (line, code) refused, or the error that refuses it
    whole.
    """

    kind: str
    data: bytes
    accepted: int = 0
    refused: tuple[tuple[int, str], ...] = ()
    error: type[CardlinkError] | None = None
    settings: SourceSettings = SourceSettings()


def row(number: int, street: str = "12 Main St", first: str = "Zoë") -> str:
    """Return one good row; `street` stands in the middle of it, verbatim."""
    cells = {
        portal.CUID: f"C{number:05}",
        portal.PAN: "4242424242424242",
        portal.YEAR: "27",
        portal.MONTH: "11",
        portal.CVV: "123",
        portal.ADDRESS1: street,
        portal.CITY: "Boston",
        portal.SUBNATIONAL: "MA",
        portal.COUNTRY: "US",
        portal.POSTAL_CODE: "02108",
        portal.FIRST_NAME: first,
        portal.LAST_NAME: "Smith",
        portal.IS_PRIMARY: "TRUE",
    }
    return ",".join(cells.get(name, "") for name in portal.columns())


def lines(*rows: str, end: str = "\n", header: str = HEADER) -> bytes:
    """Return an extract of these rows under the header."""
    return "".join(line + end for line in (header, *rows)).encode()


def csv_settings(**values: Any) -> SourceSettings:
    """Return source settings with these values."""
    return SourceSettings(**values)


def _one_bad(kind: str, bad: str, code: str) -> Damaged:
    """Return an extract whose second row is bad and whose other two are good."""
    return Damaged(kind, lines(row(1), bad, row(3)), 2, ((3, code),))


def _sound(kind: str, data: bytes, accepted: int = 3, **values: Any) -> Damaged:
    return Damaged(kind, data, accepted, settings=csv_settings(**values))


def _whole(kind: str, data: bytes, error: type[CardlinkError], **values: Any) -> Damaged:
    return Damaged(kind, data, error=error, settings=csv_settings(**values))


def zipped(*files: bytes, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return files in a ZIP archive."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for number, content in enumerate(files, 1):
            archive.writestr(f"cards-{number}.csv", content)
    return packed.getvalue()


def _workbook() -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    return packed.getvalue()


QUOTED = '"12, Main St"'
TWICE = f"{HEADER},note, note"
THREE = (row(1), row(2), row(3))
GOOD = lines(*THREE)
ASCII = lines(*(row(number, first="Zoe") for number in (1, 2, 3)))
MANY = lines(*(row(number) for number in range(1, 501)))
TRAILER: dict[str, Any] = {"trailer": r"^TRL\|([0-9]+)"}
FIXED: dict[str, Any] = {"format": "fixed", "width": WIDTH, "header_rows": 0}
FIXED_LINE = "4242424242424242" + "1127" + "x" * 40


def line_kinds() -> list[Damaged]:
    """Return extracts in which single lines are damaged."""
    return [
        _one_bad("a short row", row(2).removesuffix(",TRUE"), "line.fields.too_few"),
        _one_bad("a row cut in the middle", row(2)[:40], "line.fields.too_few"),
        _one_bad("a long row", row(2) + ",", "line.fields.too_many"),
        _one_bad("a comma not quoted", row(2, "12 Main St, Apt 4"), "line.fields.too_many"),
        _one_bad("inches", row(2, '5" Main St'), "line.quote.bare"),
        _one_bad("a quote in the middle of a field", row(2, 'Main "A" St'), "line.quote.bare"),
        _one_bad("text after the closing quote", row(2, '"Main" St'), "line.quote.bare"),
        _one_bad("a space before the opening quote", row(2, ' "Main St"'), "line.quote.bare"),
        _one_bad("a quote escaped by a backslash", row(2, r'"the \"A\" house"'), "line.quote.bare"),
        _one_bad("a quote that never ends", row(2, '"Main St'), "line.quote.unterminated"),
        _one_bad(
            "a doubled quote that never ends", row(2, '"Main ""St'), "line.quote.unterminated"
        ),
        _one_bad("a lone quote as a field", row(2, '"'), "line.quote.unterminated"),
        _one_bad("a NUL byte", row(2, "Main\0St"), "line.character.control"),
        _one_bad("a NUL byte in quotes", row(2, '"Main\0St"'), "line.character.control"),
        _one_bad("a line of NUL bytes", "\0" * 80, "line.character.control"),
        _one_bad("Ctrl-Z in a row", row(2, "Main\x1aSt"), "line.character.control"),
        _one_bad("Ctrl-Z as a line in the middle", "\x1a", "line.character.control"),
        _one_bad("a CR in a row", row(2, "Main\rSt"), "line.character.control"),
        _one_bad(
            "two rows with a CR between them", row(2) + "\r" + row(2), "line.character.control"
        ),
        _one_bad(
            "commas only, as spreadsheets leave them", "," * (FIELDS - 1), "line.fields.empty"
        ),
        _one_bad("commas and spaces only", " ," * (FIELDS - 1), "line.fields.empty"),
        _one_bad("empty quotes only", ",".join(['""'] * FIELDS), "line.fields.empty"),
        _one_bad("a trailer nobody described", "TRL|3", "line.fields.too_few"),
        _one_bad("a comment nobody described", "# made by hand", "line.fields.too_few"),
        _one_bad("a title line in the middle", "Page 2", "line.fields.too_few"),
        _one_bad("another delimiter", row(2).replace(",", ";"), "line.fields.too_few"),
        _one_bad("a whole row in quotes", f'"{row(2)}"', "line.fields.too_few"),
        _one_bad("two rows glued", row(2) + row(2), "line.fields.too_many"),
        Damaged(
            "one byte that is not UTF-8",
            lines(*THREE).replace("Zoë".encode(), b"Zo\xeb", 1),
            2,
            ((2, "line.encoding.invalid"),),
        ),
        Damaged(
            "half a character",
            lines(*THREE).replace("ë".encode(), b"\xc3", 1),
            2,
            ((2, "line.encoding.invalid"),),
        ),
        Damaged(
            "an encoded surrogate",
            lines(*THREE).replace("ë".encode(), b"\xed\xa0\x80", 1),
            2,
            ((2, "line.encoding.invalid"),),
        ),
        Damaged(
            "two stray quotes two rows apart",
            lines(row(1, '"Main'), row(2), row(3, 'Main"'), row(4)),
            2,
            ((2, "line.quote.unterminated"), (4, "line.quote.bare")),
        ),
        Damaged(
            "two stray quotes in neighbours",
            lines(row(1, '"Main'), row(2, 'St"'), row(3)),
            1,
            ((2, "line.quote.unterminated"), (3, "line.quote.bare")),
        ),
        Damaged(
            "a quote that never ends on line 7 of many",
            lines(*(row(n, '"Main' if n == 6 else "Main") for n in range(1, 400))),
            398,
            ((7, "line.quote.unterminated"),),
        ),
        Damaged(
            "a row broken in two without quotes",
            lines(row(1), *row(2, "12 Main\nSt").split("\n"), row(3)),
            2,
            ((3, "line.fields.too_few"), (4, "line.fields.too_few")),
        ),
        Damaged(
            "a record longer than a hundred lines",
            lines(row(1), row(2, '"' + "\n" * 120 + '"'), row(3)),
            2,
            ((3, "line.quote.unterminated"), (123, "line.quote.unterminated")),
        ),
        Damaged(
            "C1 control characters in latin-1",
            ASCII.replace(b"Zoe", b"Zo\x80", 1),
            2,
            ((2, "line.encoding.invalid"),),
            settings=csv_settings(encoding="latin-1"),
        ),
        Damaged(
            "a byte cp1252 does not have",
            ASCII.replace(b"Zoe", b"Zo\x81", 1),
            2,
            ((2, "line.encoding.invalid"),),
            settings=csv_settings(encoding="cp1252"),
        ),
        Damaged(
            "one UTF-8 row in a cp1252 extract",
            ASCII.replace(b"Zoe", "Zoë".encode(), 1),
            2,
            ((2, "line.encoding.invalid"),),
            settings=csv_settings(encoding="cp1252"),
        ),
        Damaged(
            "fixed width: a short and a long line",
            f"{FIXED_LINE}\n{FIXED_LINE[1:]}\n{FIXED_LINE}x\n".encode(),
            1,
            ((2, "line.length.short"), (3, "line.length.long")),
            settings=csv_settings(**FIXED),
        ),
        Damaged(
            "fixed width: a NUL byte",
            f"{FIXED_LINE}\n{FIXED_LINE[1:]}\0\n".encode(),
            1,
            ((2, "line.character.control"),),
            settings=csv_settings(**FIXED),
        ),
    ]


def sound_kinds() -> list[Damaged]:
    """Return extracts that look odd and lose nothing."""
    return [
        _sound("CRLF", lines(*THREE, end="\r\n")),
        _sound("CR CR LF", lines(*THREE, end="\r\r\n")),
        _sound("CR CR LF behind the rows alone", GOOD.replace(b",TRUE\n", b",TRUE\r\r\n")),
        _sound("a delimiter behind the header alone", lines(*THREE, header=HEADER + ",")),
        _sound("a delimiter behind the rows alone", lines(*(f"{line}," for line in THREE))),
        _sound(
            "a delimiter behind all rows but the last", lines(f"{row(1)},", f"{row(2)},", row(3))
        ),
        _sound(
            "a delimiter behind all lines but the last",
            lines(f"{row(1)},", f"{row(2, QUOTED)},", row(3, QUOTED), header=HEADER + ","),
        ),
        _sound(
            "commas only behind the last row",
            lines(*THREE, "," * (FIELDS - 1), "", " ," * (FIELDS - 1), ",".join(['""'] * FIELDS)),
        ),
        _sound(
            "commas only before a trailer that counts the rows",
            GOOD + b"," * (FIELDS - 1) + b"\nTRL|3\n",
            **TRAILER,
        ),
        _sound("two equal names", lines(*(f"{line},1,2" for line in THREE), header=TWICE)),
        _sound("LF and CRLF mixed", lines(row(1), row(2) + "\r", row(3))),
        _sound("a byte order mark", b"\xef\xbb\xbf" + GOOD),
        _sound("no newline at the end", GOOD[:-1], final_newline=False),
        _sound("blank lines", lines(row(1), "", "   ", row(2), row(3), "", "")),
        _sound("Ctrl-Z at the end", GOOD + b"\x1a"),
        _sound("a repeated header", lines(row(1), HEADER, row(2), row(3))),
        _sound("a sep= line", b"sep=,\n" + GOOD),
        _sound("a comment above the header", b"# cardholders\n" + GOOD, comment="#"),
        _sound(
            "comments between rows", lines(row(1), '# "a note', row(2), "#", row(3)), comment="#"
        ),
        _sound("a title above the header", b"Cardholders\n" + GOOD, header_rows=2),
        _sound("no header", GOOD.partition(b"\n")[2], header_rows=0, names=portal.columns()),
        _sound("a trailer", GOOD + b"TRL|3\n", **TRAILER),
        _sound(
            "a trailer as wide as a row", GOOD + b"TRL|3" + b"," * (FIELDS - 1) + b"\n", **TRAILER
        ),
        _sound("a quoted newline", lines(row(1, '"Main\nSt"'), row(2), row(3))),
        _sound(
            "a quoted newline at the very end",
            lines(*(line + ',"a\nb"' for line in THREE), header=HEADER + ",note"),
        ),
        _sound("a quoted CRLF", lines(row(1, '"Main\r\nSt"'), row(2), row(3), end="\r\n")),
        _sound("a quoted comma and doubled quotes", lines(row(1, '"Main, ""A"""'), row(2), row(3))),
        _sound(
            "every field in quotes",
            lines(
                *('"' + row(n).replace(",", '","') + '"' for n in (1, 2, 3)),
                header='"' + HEADER.replace(",", '","') + '"',
            ),
        ),
        _sound("gzip", gzip.compress(GOOD)),
        _sound(
            "gzip in two members", gzip.compress(GOOD[:300]) + gzip.compress(GOOD[300:]) + b"\0\0"
        ),
        _sound("zstd", zstandard.compress(GOOD)),
        _sound("ZIP", zipped(GOOD)),
        _sound("ZIP, padded", zipped(GOOD) + bytes(512)),
        _sound("UTF-16", GOOD.decode().encode("utf-16"), encoding="utf-16"),
        _sound("UTF-16 without its mark", GOOD.decode().encode("utf-16-be"), encoding="utf-16"),
        _sound("cp1252", GOOD.decode().encode("cp1252"), encoding="cp1252"),
        _sound("backslashes", lines(row(1, "C:\\"), row(2, '"C:\\"'), row(3, "\\N"))),
    ]


def whole_kinds() -> list[Damaged]:
    """Return content that is no extract, or not the one the settings describe."""
    headless = GOOD.partition(b"\n")[2]
    return [
        _whole("nothing", b"", EmptyExtractError),
        _whole("gzip of nothing", gzip.compress(b""), EmptyExtractError),
        _whole("a byte order mark only", b"\xef\xbb\xbf", EmptyExtractError),
        _whole("newlines only", b"\n\n\n", EmptyExtractError),
        _whole("a header only", f"{HEADER}\n".encode(), EmptyExtractError),
        _whole("a header without its newline", HEADER.encode(), TruncatedError),
        _whole("a header without the trailer", f"{HEADER}\n".encode(), TruncatedError, **TRAILER),
        _whole("a web page", b"<!DOCTYPE html><html><body>502</body></html>", NotCsvError),
        _whole("an XML error of a store", b'<?xml version="1.0"?><Error/>', NotCsvError),
        _whole("a workbook", _workbook(), NotCsvError),
        _whole("an old workbook", b"\xd0\xcf\x11\xe0" + bytes(600), NotCsvError),
        _whole("JSON", b'[{"pan": "x"}]', NotCsvError),
        _whole("a PDF", b"%PDF-1.7\n", NotCsvError),
        _whole("Parquet", b"PAR1" + bytes(100), NotCsvError),
        _whole("an OpenPGP message in armor", b"-----BEGIN PGP MESSAGE-----\n", NotCsvError),
        _whole("binary data", bytes(range(32)) * 300, NotCsvError),
        _whole("gzip twice", gzip.compress(gzip.compress(GOOD)), NotCsvError),
        _whole("gzip cut off", gzip.compress(MANY)[:-9], TruncatedError),
        _whole("gzip with a flipped byte", _flipped(gzip.compress(MANY)), TruncatedError),
        _whole("zstd cut off", zstandard.compress(MANY)[:-3], TruncatedError),
        _whole(
            "zstd with a flipped byte",
            _flipped(zstandard.ZstdCompressor(write_checksum=True).compress(MANY)),
            TruncatedError,
        ),
        _whole("ZIP of nothing", zipped(b""), EmptyExtractError),
        _whole("ZIP twice", zipped(zipped(GOOD)), NotCsvError),
        _whole("ZIP cut off", zipped(MANY)[:-9], TruncatedError),
        _whole("ZIP with a flipped byte", _flipped(zipped(MANY)), TruncatedError),
        _whole("ZIP of two files", zipped(GOOD, GOOD), ArchiveError),
        _whole("two ZIPs in one file", zipped(GOOD) + zipped(GOOD), ArchiveError),
        _whole("UTF-16 nobody asked for", GOOD.decode().encode("utf-16"), EncodingError),
        _whole(
            "UTF-16 without mark nobody asked for", GOOD.decode().encode("utf-16-le"), EncodingError
        ),
        _whole("UTF-8 where UTF-16 is asked for", GOOD, EncodingError, encoding="utf-16"),
        _whole(
            "UTF-16 cut in a character",
            GOOD.decode().encode("utf-16")[:-1],
            EncodingError,
            encoding="utf-16",
        ),
        _whole("cp1252 nobody asked for", GOOD.decode().encode("cp1252"), EncodingError),
        _whole("UTF-8 where cp1252 is asked for", GOOD, EncodingError, encoding="cp1252"),
        _whole(
            "a UTF-8 mark where latin-1 is asked for",
            b"\xef\xbb\xbf" + ASCII,
            EncodingError,
            encoding="latin-1",
        ),
        _whole("semicolons nobody asked for", GOOD.replace(b",", b";"), HeaderError),
        _whole("a sep= line of another delimiter", b"sep=;\n" + GOOD, HeaderError),
        _whole("CR alone as line end", GOOD.replace(b"\n", b"\r"), HeaderError),
        _whole("no header where one is asked for", headless, HeaderError),
        _whole(
            "a header with a stray quote",
            GOOD.replace(b"service_card.cvv,", b'service"card.cvv,"', 1),
            HeaderError,
        ),
        _whole("a header glued to the first row", GOOD.replace(b"\n", b"", 1), HeaderError),
        _whole("a header shorter than every row", lines(*THREE, header=HEADER[:200]), HeaderError),
        _whole("a trailer in the middle", lines(row(1), "TRL|3", row(2)), TrailerError, **TRAILER),
        _whole("two trailers", GOOD + b"TRL|3\nTRL|3\n", TrailerError, **TRAILER),
        _whole(
            "a trailer without a count", GOOD + b"TRL|\n", TrailerError, trailer=r"^TRL\|([0-9]*)"
        ),
        _whole(
            "a trailer whose count is a word",
            GOOD + b"TRL,three\n",
            TrailerError,
            trailer="^TRL,(.*)",
        ),
        _whole("a missing trailer", GOOD, TruncatedError, **TRAILER),
        _whole("a last row that may be cut off", GOOD[:-2], TruncatedError),
        _whole("a last row cut off in a field", GOOD[:-40], TruncatedError, final_newline=False),
        _whole(
            "a last row cut off in a field, with a newline", GOOD[:-40] + b"\n\n", TruncatedError
        ),
        _whole(
            "a last row cut off in quotes",
            lines(row(1), row(2, '"Main St"'))[:-45],
            TruncatedError,
            final_newline=False,
        ),
        _whole(
            "a last row cut off behind a quoted newline",
            lines(row(1), row(2, '"Main')),
            TruncatedError,
        ),
        _whole(
            "a last row cut off behind two quoted newlines",
            lines(row(1), row(2, '"Main\nSt')),
            TruncatedError,
        ),
        _whole("a line that does not end", lines(row(1)) + b"x" * (18 << 20), NotCsvError),
    ]


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x55]) + data[middle + 1 :]


def every_kind() -> list[Damaged]:
    """Return all of them."""
    return [*line_kinds(), *sound_kinds(), *whole_kinds()]


def write(folder: Path) -> list[Path]:
    """Write them all as files, each with its settings and verdict beside it as JSON; return the
    extracts.
    """
    paths = []
    for number, case in enumerate(every_kind(), 1):
        path = folder / f"{number:03}-{re.sub('[^a-z0-9]+', '-', case.kind.lower())}.csv"
        path.write_bytes(case.data)
        verdict = {
            "accepted": case.accepted,
            "refused": case.refused,
            "error": case.error and case.error.__name__,
        }
        beside = {
            "kind": case.kind,
            "settings": case.settings.model_dump(exclude_defaults=True),
            "verdict": verdict,
        }
        path.with_suffix(".json").write_text(json.dumps(beside, indent=2))
        paths.append(path)
    return paths
