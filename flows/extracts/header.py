"""What stands around the records: a `sep=` line, comments, the header with its names, the count of a trailer."""

from __future__ import annotations

import csv
import re

from flows.extracts.errors import HeaderError, TrailerError
from schemas.issuer import SourceSettings

RECORD = "record"  # the one column of a fixed-width extract: the whole line
_SEP = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_NUMBER = re.compile(r"[\s\d.,/+-]*\d[\s\d.,/+-]*")
_CARD_OR_MAIL = re.compile(r"\d[\d -]{4,}\d|@")
_AROUND = "\ufeff\u200b\u00a0 \t"


def is_sep_line(line: str, settings: SourceSettings, name: str) -> bool:
    """Return whether this is Excel's `sep=` line; raises HeaderError where it contradicts the settings."""
    found = _SEP.fullmatch(line)
    if found and found[1] != settings.delimiter:
        says, asked = repr(found[1]), repr(settings.delimiter)
        raise HeaderError(name=name, problem=f"its line sep= says the delimiter is {says}, the settings say {asked}")
    return found is not None


def header_names(line: str, settings: SourceSettings, name: str) -> tuple[str, ...]:
    """Return the names in a header line, in order; raises HeaderError.

    A line that looks like data is refused without showing any of it.
    """
    fields = _fields(line, settings.delimiter, name)
    if any(_NUMBER.fullmatch(field) or _CARD_OR_MAIL.search(field) for field in fields):
        found = "it looks like a data row; an extract without header needs header_rows = 0 and names"
        raise HeaderError(name=name, problem=found)
    if len(fields) < 2:
        raise HeaderError(
            name=name, problem=f"it is one column only with the delimiter {settings.delimiter!r}{_other(line)}"
        )
    names = [_without_clash(field.strip(_AROUND) or f"column_{at}") for at, field in enumerate(fields, 1)]
    for at, found in enumerate(names, 1):
        if names.index(found) + 1 < at:
            raise HeaderError(name=name, problem=f"columns {names.index(found) + 1} and {at} have the same name")
    return tuple(names)


def _fields(line: str, delimiter: str, name: str) -> list[str]:
    if "\r" in line:
        raise HeaderError(name=name, problem="its lines end in CR alone; expected LF or CRLF")
    if "\x00" in line or "\x1a" in line:
        raise HeaderError(name=name, problem="it holds bytes that are not text in the encoding of the settings")
    try:
        return next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        pass  # ours is raised outside: theirs is about the content
    raise HeaderError(name=name, problem="its quotes do not fit")


def _other(line: str) -> str:
    """Return a hint at the delimiter that the line seems to have."""
    best = max(",;\t|", key=line.count)
    return f", {line.count(best) + 1} with {best!r}" if line.count(best) else ""


def _without_clash(name: str) -> str:
    return f"{name}_" if name in ("row", "line") else name  # frames have these two of ours in front


def trailer_count(line: str, settings: SourceSettings, name: str, number: int) -> int:
    """Return the count in a trailer; raises TrailerError naming the line, not its content."""
    text = ""
    if settings.trailer_field is not None:
        fields = next(csv.reader([line], delimiter=settings.delimiter), [])
        text = fields[settings.trailer_field - 1] if len(fields) >= settings.trailer_field else ""
    elif found := re.search(settings.trailer or "", line):
        text = found[1] or ""
    if not re.fullmatch(r"\s*[0-9]{1,12}\s*", text):
        raise TrailerError(name=name, problem=f"line {number} holds no count where the settings look for it")
    return int(text)
