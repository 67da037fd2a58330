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

from flows.core.errors import ExtractError
from flows.core.redaction import redact


class EmptyExtractError(ExtractError):
    """There is nothing to read."""

    says = "{0} is empty: {1}."
    then = "Ask the issuer to send it again."

    def __init__(self, name: str, found: str) -> None:
        super().__init__(name, found)


class NotCsvError(ExtractError):
    """The content is of another kind."""

    says = "{0} is not a file of rows: it is {1}."
    then = "Expected text with one cardholder a line; ask the issuer to send it again."

    def __init__(self, name: str, found: str) -> None:
        super().__init__(name, found)


class EncodingError(ExtractError):
    """The bytes contradict `encoding`."""

    says = "{0} is not in the encoding {1} of its settings: {2}."
    then = "Set `encoding` in [source], or ask the issuer to send it again."

    def __init__(self, name: str, encoding: str, found: str) -> None:
        super().__init__(name, encoding, found)


class HeaderError(ExtractError):
    """The header cannot be read."""

    says = "The header of {0} cannot be read: {1}."
    then = "Compare [source] in the issuer's settings with the file."

    def __init__(self, name: str, found: str) -> None:
        super().__init__(name, found)


class TruncatedError(ExtractError):
    """The extract ends before its end."""

    says = "{0} ends too early: {1}."
    then = "Nothing of it was used; ask the issuer to send it again."

    def __init__(self, name: str, found: str) -> None:
        super().__init__(name, found)


class TrailerError(ExtractError):
    """The trailer record is not what the settings say."""

    says = "The trailer of {0} does not fit: {1}."
    then = "Compare `trailer` in [source] with the file, or ask the issuer to send it again."

    def __init__(self, name: str, found: str) -> None:
        super().__init__(name, found)


class MissingColumnsError(ExtractError):
    """Columns of the settings are not in the header."""

    says = "{0} has no column {1}."
    then = "Mend [columns] in the issuer's settings, or ask the issuer to send it again."

    def __init__(self, name: str, missing: str) -> None:
        super().__init__(name, missing)


class UnknownColumnsError(ExtractError):
    """The header holds columns that nothing asks for."""

    says = "{0} has unknown columns: {1}."
    then = "Name them in [columns], or ask the issuer what they are."

    def __init__(self, name: str, unknown: str) -> None:
        super().__init__(name, unknown)


class CardInNameError(ExtractError):
    """An extract's own name holds a card number: it would stand in plans, logs and listings."""

    says = "The name of the extract {0} holds a card number."
    then = "Have the issuer deliver it under another name and take this one away."

    def __init__(self, name: str) -> None:
        super().__init__(name)


def checked_name(name: str) -> str:
    """Return an extract's name; CardInNameError, which shows it masked, where it holds a card number."""
    safe = redact(name)
    if safe != name:
        raise CardInNameError(safe)
    return name
