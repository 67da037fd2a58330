"""The errors that refuse a whole extract.

Every message names the file and the problem, never a cell.
"""

from flows.errors import ExtractError
from flows.redaction import redact


class EmptyExtractError(ExtractError):
    """The extract has no bytes, or no data row."""

    message = "{name} is empty: {problem}."
    next_step = "Ask the issuer to send it again."


class NotCsvError(ExtractError):
    """The extract is a web page, a workbook, an archive or binary data."""

    message = "{name} is not a CSV or fixed-width file: it is {kind}."
    next_step = "Ask the issuer to send it again, as text with one cardholder per line."


class ArchiveError(ExtractError):
    """The extract is a ZIP archive that is not read: encrypted, or of more than one file."""

    message = "{name} is a ZIP archive that cannot be read: {problem}."
    next_step = (
        "Ask the issuer for a ZIP of one file, compressed by Deflate and without a password (to "
        "encrypt it, with PGP to your key), or for the file itself."
    )


class EncodingError(ExtractError):
    """The bytes are not in the encoding of the settings."""

    message = "{name} is not encoded in {encoding}, as its settings say: {problem}."
    next_step = "Set `encoding` in [source], or ask the issuer to send it again."


class HeaderError(ExtractError):
    """The header cannot be read."""

    message = "The header of {name} cannot be read: {problem}."
    next_step = "Compare [source] in the issuer's settings with the file."


class TruncatedError(ExtractError):
    """The extract is incomplete."""

    message = "{name} is truncated: {problem}."
    next_step = "None of it was used; ask the issuer to send it again."


class TrailerError(ExtractError):
    """The trailer does not match the settings or the rows."""

    message = "The trailer of {name} is wrong: {problem}."
    next_step = (
        "Ask the issuer to send the whole file again; where the file is right, correct `trailer` "
        "in [source]."
    )


class HeaderRecordError(TrailerError):
    """The header record does not match the settings or the rows."""

    message = "The header record of {name} is wrong: {problem}."
    next_step = (
        "Ask the issuer to send the whole file again; where the file is right, correct "
        "`header_record` in [source]."
    )


class MappingError(ExtractError):
    """Columns are missing or unknown, or dates cannot be read.

    They are not written as the settings say, or not in one way.
    """

    message = "{name} does not fit [columns]: {problem}."
    next_step = (
        "Correct [columns] in the issuer's settings, or ask the issuer what changed, "
        "or how dates are written."
    )


class CardInNameError(ExtractError):
    """The name of the extract contains a card number.

    Plans, logs and listings would show it.
    """

    message = "The name of the extract {name} contains a card number."
    next_step = "Ask the issuer to deliver it under another name, and delete this one."


def checked_name(name: str) -> str:
    """Return an extract's name; CardInNameError if it contains a card number, which is masked."""
    safe = redact(name)
    if safe != name:
        raise CardInNameError(name=safe)
    return name
