"""The count in a trailer record, which the data rows must come up to."""

from __future__ import annotations

import csv
import re

from flows.core.extract.extract_errors import TrailerError
from schemas.source import SourceSettings


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
