"""The records of a block, parsed: text by column, null where a field is empty."""

from contextlib import suppress
from typing import Any

import polars as pl

from flows.errors import BugError
from flows.extracts.decode import MARKS
from flows.extracts.grammar import RECORD
from schemas.cell_formats import present
from schemas.source import SourceSettings


class Parser:
    """Parses records that the grammar has accepted."""

    def __init__(self, settings: SourceSettings, header: tuple[str, ...]) -> None:
        self._settings = settings
        self._schema = dict.fromkeys(header, pl.String)

    def parse(self, text: bytes, expected: int, quoted: bool) -> pl.DataFrame:
        """Return the columns; BugError if there are not `expected` records.

        `quoted`: there may be quotes in the text.
        """
        if self._settings.format == "fixed":
            return self._cut(pl.read_lines(text, name=RECORD))
        if not expected:
            return pl.DataFrame(schema=self._schema)
        rows = self._read_csv(text, expected)
        if self._settings.quoting == "excel" and b'="' in text:
            rows = rows.with_columns(pl.all().str.replace('^="(.*)"$', "${1}"))
        if self._settings.quoting == "backslash" and MARKS[0].encode()[:2] in text:
            rows = self._with_escaped(rows)
        if quoted and b'""' in text:  # "" is as absent as an empty field
            rows = rows.with_columns(pl.when(pl.all() != "").then(pl.all()))
        return rows

    def _cut(self, lines: pl.DataFrame) -> pl.DataFrame:
        """Return the columns of lines in fixed format, where they have names."""
        places = self._settings.names
        if not isinstance(places, dict):
            return lines
        return lines.select(
            present(pl.col(RECORD).str.slice(first - 1, last - first + 1)).alias(name)
            for name, (first, last) in places.items()
        )

    def _with_escaped(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the rows with what was escaped instead of its marks."""
        characters = ('"', self._settings.delimiter, "N")
        escaped = dict(zip(MARKS, characters, strict=True))
        cells = pl.all().str.replace_many(escaped)
        return rows.with_columns(pl.when(pl.all() != MARKS[2]).then(cells))

    def _read_csv(self, text: bytes, expected: int) -> pl.DataFrame:
        """Return the records.

        Raises BugError without the parser's message, which could quote whole rows.
        """
        options: dict[str, Any] = {
            "has_header": False,
            "infer_schema": False,
            "glob": False,
            "separator": self._settings.delimiter,
            "schema": self._schema,
        }
        with suppress(pl.exceptions.PolarsError):
            frame = pl.read_csv(text, **options)
            if frame.height == expected:
                return frame
        raise BugError(place="reading a block", kind="grammar and parser disagree")
