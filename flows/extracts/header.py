"""The lines around the records: Excel's `sep=` line, the header with its names, the trailer with its count."""

from __future__ import annotations

import csv
import re

from flows.extracts.errors import HeaderError, TrailerError
from schemas.issuer import SourceSettings

RECORD = "record"  # the only column of a fixed-width extract: the whole line
_SEP = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_NUMBER = re.compile(r"[\s\d.,/+-]*\d[\s\d.,/+-]*")
_CARD_OR_MAIL = re.compile(r"\d[\d -]{4,}\d|@")
_AROUND = "\ufeff\u200b\u00a0 \t"


def is_sep_line(line: str, settings: SourceSettings, name: str) -> bool:
    """Return whether this is Excel's `sep=` line; raises HeaderError if it contradicts the settings."""
    found = _SEP.fullmatch(line)
    if found and found[1] != settings.delimiter:
        problem = f"its sep= line names the delimiter {found[1]!r}, the settings {settings.delimiter!r}"
        raise HeaderError(name=name, problem=problem)
    return found is not None


def header_names(line: str, settings: SourceSettings, name: str) -> tuple[str, ...]:
    """Return the names in a header line; HeaderError, which shows nothing of it, where it looks like data."""
    fields = _fields(line, settings.delimiter, name)
    if any(_NUMBER.fullmatch(field) or _CARD_OR_MAIL.search(field) for field in fields):
        problem = "it looks like a data row; an extract without a header needs header_rows = 0 and names"
        raise HeaderError(name=name, problem=problem)
    if len(fields) < 2:
        best = max(",;\t|", key=line.count)
        hint = f"; with {best!r} it has {line.count(best) + 1}" if line.count(best) else ""
        problem = f"with the delimiter {settings.delimiter!r} it has only one column{hint}"
        raise HeaderError(name=name, problem=problem)
    names = [field.strip(_AROUND) or f"column_{at}" for at, field in enumerate(fields, 1)]
    names = [f"{name}_" if name in ("row", "line") else name for name in names]  # our frames have these two themselves
    for at, found in enumerate(names, 1):
        if names.index(found) + 1 < at:
            raise HeaderError(name=name, problem=f"columns {names.index(found) + 1} and {at} have the same name")
    return tuple(names)


def _fields(line: str, delimiter: str, name: str) -> list[str]:
    if "\r" in line:
        raise HeaderError(name=name, problem="its lines end in CR only; expected LF or CRLF")
    if "\x00" in line or "\x1a" in line:
        raise HeaderError(name=name, problem="it contains bytes that are not text in the encoding of the settings")
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        pass  # our error is raised outside: the original may quote the content
    raise HeaderError(name=name, problem="its quotes are not paired")


def trailer_count(line: str, settings: SourceSettings, name: str, number: int) -> int:
    """Return the count in a trailer; raises TrailerError with the line number, not its content."""
    text = ""
    if settings.trailer_field is not None:
        fields = next(csv.reader([line], delimiter=settings.delimiter), [])
        text = fields[settings.trailer_field - 1] if len(fields) >= settings.trailer_field else ""
    elif found := re.search(settings.trailer or "", line):
        text = found[1] or ""
    if not re.fullmatch(r"\s*[0-9]{1,12}\s*", text):
        raise TrailerError(name=name, problem=f"line {number} has no count where the settings expect it")
    return int(text)
