"""Header and trailer records among the records that a copybook describes, by how they begin."""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

_HEADER: Final = re.compile("(?:HEADER|HEAD|HDR|BOF|FHDR|FH|H|0+)(?=[^A-Za-z]|$)")
_TRAILER: Final = re.compile(
    "(?:TRAILER|TRAIL|TRLR|TRL|TLR|FTR|FOOTER|EOF|END|TOTALS?|FT|T|9+)(?=[^A-Za-z]|$)"
)


class Around(NamedTuple):
    """What the records around the rows begin with; "" where there is none."""

    header: str
    trailer: str


def around(records: Sequence[str]) -> Around:
    """Return how the first and the last record begin, where no other record begins like it.

    `records`: the text of the first ones, and of the last.
    """
    if len(records) < 3:
        return Around("", "")
    return Around(
        _beginning(records[0], records[1:-1], _HEADER),
        _beginning(records[-1], records[1:-1], _TRAILER),
    )


def _beginning(record: str, rows: Sequence[str], kind: re.Pattern[str]) -> str:
    """Return the first characters of a record that is emptier than the rows, and unlike them."""
    tag = kind.match(record)
    if tag is None or any(row.startswith(tag[0]) for row in rows):
        return ""
    filled = [sum(character.isalnum() for character in row) for row in rows]
    is_emptier = sum(map(str.isalnum, record)) < 0.7 * min(filled)
    return tag[0] if is_emptier else ""
