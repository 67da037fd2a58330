"""A reject in the bank's words: the columns of its own file, what was found there and is expected,
in the file's own formats, and the setting that would take it.

One function for everything that is sent to an issuer: `rejects.csv`, the correction template and
the report. What was found is a shape or a size, never a cell. Where no
layout is known, the portal's columns and words stand in.
"""

import re
from functools import lru_cache
from typing import NamedTuple

import polars as pl

from flows.redaction import redact
from flows.runs.stored_run import StoredRun
from schemas import cell_formats, portal
from schemas.corrections import UNNAMED, WRONG, column_of
from schemas.ledger import EMPTY
from schemas.manifest import Layout, SourceColumn
from schemas.portal import CVV, MONTH, POSTAL_CODE, YEAR
from schemas.reasons import (
    ENDS_BEFORE_LINK,
    NETWORK_NOT_TAKEN,
    NOT_WANTED,
    UNKNOWN_STATUS,
    reason,
)
from schemas.rule import SEVERITY_SETTINGS
from schemas.rules import RULES

_ABOUT_FORM = ("format", "missing", "placeholder", "unknown", "unmapped")
_SETTINGS = {
    NOT_WANTED: "`where` in [eligible]",
    NETWORK_NOT_TAKEN: "`networks` in [eligible]",
    ENDS_BEFORE_LINK: "`ending_cards` in [eligible]",
    "join.row.missing": "`key` and `other_key` in [source.join]",
    "segment.key.missing": "`segment_key` and `segment_optional` in [source]",
    "line.encoding.invalid": "`encoding` in [source]",
    "line.quote.bare": "`quoting` in [source]",
    "line.quote.unterminated": "`quoting` in [source]",
}
_SETTINGS_BY_KIND = {
    "placeholder": "`placeholders` in [rules]",
    "length": "`max_length` in [rules]",
    "unmapped": "`format` or `lookup` in [columns]",
}

# rules of what a challenge at the link may ask for
_AT_THE_LINK = {rule.code for rule in RULES if rule.is_answer}


class _LostZeros(NamedTuple):
    """Short numbers of a column, the length that they are padded to, and the repair that does."""

    shapes: re.Pattern[str]
    length: int
    repair: str


_LOST_ZEROS = {
    POSTAL_CODE: _LostZeros(re.compile("9{3,4}"), 5, "zip_zeros"),
    CVV: _LostZeros(re.compile("[12] characters"), 3, "cvv_zeros"),
}


class Cause(NamedTuple):
    """Why a row was refused, in the words of the issuer's file."""

    source: str | None  # its columns there; None for the whole line
    wrong: str  # `EXP has the wrong form`
    expected: str  # `MMYY, such as 0927`
    setting: str | None  # that would take it; None where none would


CAUSE = dict.fromkeys(Cause._fields, pl.String)


class BankWords:
    """Says of a reason what it means in the file of one run."""

    def __init__(self, layout: Layout | None) -> None:
        self._layout = layout or Layout(columns={}, size=0)
        self.cause = lru_cache(10_000)(self._cause)

    def _cause(self, column: str | None, code: str, shape: str | None) -> Cause:
        """Return the cause of a reject.

        `column`: the portal's; `shape`: that of the cell, or the size of the line.
        """
        if code == UNKNOWN_STATUS:
            return _cause_of_status(shape or "")
        column = column or column_of(code) or ""
        source = self._layout.columns.get(column)
        return Cause(
            source=_name(source),
            wrong=_wrong(code, source),
            expected=self._expected(code, column, source),
            setting="; ".join(self._settings(code, column, shape)) or None,
        )

    def causes(self, listed: pl.DataFrame) -> pl.DataFrame:
        """Add CAUSE to rejects (portal's `column`, `code`, `found`), and name shapes as such."""
        keys = ["column", "code", "found"]
        distinct = listed.select(keys).unique()
        words = [
            (*key, *self.cause(*key), _named_shape(key[1], key[2])) for key in distinct.iter_rows()
        ]
        table = pl.DataFrame(words, {**distinct.schema, **CAUSE, "named": pl.String}, orient="row")
        caused = listed.join(table, on=keys, how="left", nulls_equal=True, maintain_order="left")
        return caused.with_columns(found="named").drop("named")

    def _expected(self, code: str, column: str, source: SourceColumn | None) -> str:
        """Return what is expected, in the format of the source where it has one."""
        hint = str(reason(code).hint)
        if code.startswith("line."):
            return self._expected_of_line(code, hint)
        if column and hint == portal.COLUMNS[column].hint:
            hint = portal.COLUMNS[column].accepts
        written = _written(source) if source else ""
        if code.rpartition(".")[2] in _ABOUT_FORM:
            return written or hint
        return f"{hint}, written {written}" if written and column in (YEAR, MONTH) else hint

    def _expected_of_line(self, code: str, hint: str) -> str:
        size = self._layout.size
        if size and code.startswith("line.fields."):
            return f"{size} fields, as the header has"
        if size and code.startswith("line.length."):
            return f"{size} characters"
        return hint

    def _settings(self, code: str, column: str, shape: str | None) -> list[str]:
        """Return the settings with which such a row would be taken."""
        kind = code.rpartition(".")[2]
        settings = [_SETTINGS.get(code, ""), _SETTINGS_BY_KIND.get(kind, "")]
        if column and shape != EMPTY and kind in ("format", "unknown"):
            settings += [_step(column, shape), self._padding(column, shape)]
        severity = reason(code).severity
        # nobody is advised to send card numbers as text
        if severity in SEVERITY_SETTINGS - {"card_in_text"}:
            unless_asked = ", unless `challenges` asks for it" if code in _AT_THE_LINK else ""
            settings.append(f'`{severity} = "warn"` in [rules]{unless_asked}')
        return list(filter(None, settings))

    def _padding(self, column: str, shape: str | None) -> str:
        """Return what puts lost zeros back, and the line that turned the repair off."""
        lost = _LOST_ZEROS.get(column)
        if lost is None or not lost.shapes.fullmatch(shape or ""):
            return ""
        padding = f"`pad = {lost.length}` in [columns]"
        line = self._layout.turned_off.get(lost.repair)
        if line is None:
            return padding
        return (
            f"{padding}: line {line} kept its leading zero, so `{lost.repair}` puts none back in "
            "this file"
        )


def _named_shape(code: str, look: str | None) -> str | None:
    """Return what was found in a cell; a shape, which looks like a value, is named as one.

    No shape has a small letter; a size and EMPTY have some. Of a status the value itself is shown.
    """
    if not look or code == UNKNOWN_STATUS or re.search("[a-z]", look):
        return look
    return f"shape {look}"


def words_of(run: StoredRun) -> BankWords:
    """Return the words for the file of a run; the portal's before its commit."""
    return BankWords(run.manifest.layout if run.manifest else None)


def _cause_of_status(labels: str) -> Cause:
    """Return the cause of a status that no list names; `labels`: each column with its value."""
    columns = [part.rpartition(": ")[0] for part in labels.split(" | ") if part]
    source = " + ".join(map(redact, columns)) or None
    return Cause(
        source=source,
        wrong=f"{source or 'the line'} has a value that [status] does not name",
        expected=str(reason(UNKNOWN_STATUS).hint),
        setting="`send`, `leave_out` or `delete` in [status]",
    )


def _step(column: str, shape: str | None) -> str:
    """Return the step of [columns] that reads other texts; no format reads a date of letters."""
    step = portal.COLUMNS[column].step
    is_no_date = step == "format" and "9" not in (shape or "9")
    return "" if is_no_date or not step else f"`{step}` in [columns]"


def _name(source: SourceColumn | None) -> str | None:
    """Return the names of source columns."""
    if source is None or not source.names:
        return None
    names = " + ".join(map(redact, source.names))
    return f"{names} ({source.place})" if source.place else names


# what a reason speaks of in a file whose rows are in several records or files
_OF_PARTS = {
    "segment.order": "the record",
    "segment.type": "its record type",
    "segment.key": "its record of another type",
    "join.row": "its row in the second file",
}


def _wrong(code: str, source: SourceColumn | None) -> str:
    entity, _, subject_and_kind = code.partition(".")
    subject, _, kind = subject_and_kind.partition(".")
    name = _name(source)
    if name is None:
        plain = "the line" if entity in ("line", "row") else subject.replace("_", " ")
        name = _OF_PARTS.get(f"{entity}.{subject}", plain)
    return f"{name} {WRONG.get(kind, UNNAMED)}"


def _written(source: SourceColumn) -> str:
    """Return how the source writes the text, "" where it has no format of its own."""
    if source.texts:
        more = f" and {source.more_texts} more" if source.more_texts else ""
        return f"one of {', '.join(map(redact, source.texts))}{more}"
    example = cell_formats.example(source.form)
    return f"{source.form}, such as {example}" if example else ""
