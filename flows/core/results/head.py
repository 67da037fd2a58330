"""The header of a result file: which column stands where, in every spelling and order, under any delimiter."""

from __future__ import annotations

import csv
import re
from typing import NamedTuple

from schemas import result as spec

DELIMITERS = (",", ";", "\t", "|")


class Head(NamedTuple):
    """The header: its delimiter, which column stands where, and how many there are."""

    delimiter: str
    places: dict[str, int]
    width: int


def find_head(line: str) -> Head | None:
    """Find the delimiter under which `line` is a result's header: an error column, and a cuid or a url."""
    for delimiter in DELIMITERS:
        cells = next(csv.reader([line], delimiter=delimiter), [])
        folded = [re.sub(r"[^a-z0-9]", "", cell.lower()) for cell in cells]
        places = {
            name: folded.index(next(spelling for spelling in spellings if spelling in folded))
            for name, spellings in spec.SPELLINGS.items()
            if not set(spellings).isdisjoint(folded)
        }
        if spec.ERROR in places and (spec.CUID in places or spec.URL in places):
            return Head(delimiter, places, len(cells))
    return None
