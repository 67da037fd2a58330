"""Rows an extract holds more than once: found across blocks, in memory only, in a few bytes a row."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.portal import CUID, PAN, columns
from schemas.rules import Rules

Keys = NDArray[np.uint64]


class SeenRows:
    """Remembers 64-bit keys of the rows of earlier blocks; the same extract gives the same answer every time."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._contents: set[int] = set()
        self._pairs: set[int] = set()
        self._cards: set[int] = set()

    def mark(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return verdicts (row, column, code, severity) of repeats, which are not sent, and of cards under another cuid."""
        found = []
        contents, pairs, cards = (_keys(rows, by) for by in (columns(), (CUID, PAN), (PAN,)))
        severity = self._rules.severity("card.pan.other_cuid")
        for row, content, pair, card in zip(rows["row"].to_list(), contents, pairs, cards, strict=True):
            if content in self._contents:
                found.append((row, "", "row.content.repeated", "reject"))
            elif pair in self._pairs:
                found.append((row, PAN, "card.pan.repeated", "reject"))
            elif card in self._cards and severity != "off":
                found.append((row, PAN, "card.pan.other_cuid", severity))
            self._contents.add(content)
            self._pairs.add(pair)
            self._cards.add(card)
        schema = {"row": pl.UInt32, "column": pl.String, "code": pl.String, "severity": pl.String}
        return pl.DataFrame(found, schema=schema, orient="row")


def _keys(rows: pl.DataFrame, by: tuple[str, ...]) -> list[int]:
    return rows.select(by).hash_rows().to_list()
