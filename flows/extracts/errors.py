"""What refuses a whole extract: every message names the file and what was found, never a cell.

ExtractError
├── EmptyExtractError      nothing, or no data row, in it
├── NotCsvError            a web page, a workbook, an archive, binary data
├── EncodingError          not in the encoding of the settings
├── HeaderError            the header cannot be read
├── TruncatedError         it ends too early
├── TrailerError           the trailer contradicts itself
├── MissingColumnsError    a column of the settings is not in the header
├── UnknownColumnsError    a header that nothing asks for
└── CardInNameError        its own name holds a card number
"""

from __future__ import annotations

from flows.errors import ExtractError
from flows.redaction import redact


class EmptyExtractError(ExtractError):
    """There is nothing to read."""

    message = "{name} is empty: {problem}."
    next_step = "Ask the issuer to send it again."


class NotCsvError(ExtractError):
    """The content is of another kind."""

    message = "{name} is not a file of rows: it is {kind}."
    next_step = "Expected text with one cardholder per line; ask the issuer to send it again."


class EncodingError(ExtractError):
    """The bytes contradict `encoding`."""

    message = "{name} is not in the encoding {encoding} of its settings: {problem}."
    next_step = "Set `encoding` in [source], or ask the issuer to send it again."


class HeaderError(ExtractError):
    """The header cannot be read."""

    message = "The header of {name} cannot be read: {problem}."
    next_step = "Compare [source] in the issuer's settings with the file."


class TruncatedError(ExtractError):
    """The extract ends before its end."""

    message = "{name} ends too early: {problem}."
    next_step = "Nothing of it was used; ask the issuer to send it again."


class TrailerError(ExtractError):
    """The trailer record is not what the settings say."""

    message = "The trailer of {name} is wrong: {problem}."
    next_step = "Compare `trailer` in [source] with the file, or ask the issuer to send it again."


class MissingColumnsError(ExtractError):
    """Columns of the settings are not in the header."""

    message = "{name} has no column {columns}."
    next_step = "Correct [columns] in the issuer's settings, or ask the issuer to send it again."


class UnknownColumnsError(ExtractError):
    """The header holds columns that nothing asks for."""

    message = "{name} has unknown columns: {columns}."
    next_step = "Name them in [columns], or ask the issuer what they are."


class CardInNameError(ExtractError):
    """An extract's own name holds a card number: it would stand in plans, logs and listings."""

    message = "The name of the extract {name} contains a card number."
    next_step = "Have the issuer deliver it under another name, and remove this one."


def checked_name(name: str) -> str:
    """Return an extract's name; CardInNameError, which shows it masked, where it holds a card number."""
    safe = redact(name)
    if safe != name:
        raise CardInNameError(name=safe)
    return name
