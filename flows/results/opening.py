"""From the bytes of a foreign file to its text, within limits.

All limits of one file are here, and the codes of its problems; their words are in `problems`. A
file beyond one of the limits is refused whole: none of its rows is used.
"""

import re
import zlib

from flows.extracts.decode import HEAD as SNIFFED
from flows.extracts.decode import other_kind
from flows.runs.openpgp import looks_like_message

LIMIT = 32 * 1024 * 1024  # bytes, stored and opened: 1000 rows are 0.2 MB
MEMBERS = 100  # parts of a gzip file, each of which may be empty
LINES = 400_000
LINE = 1024 * 1024  # characters of a line, or of a quoted cell over several lines
CELL = 8_192  # characters of any cell but an error
COLUMNS = 1_000
CELLS = 3_000_000  # about: delimiters in the file
HEADER = 16_384  # characters of the header
# times that a line may be read, on average: each broken quote begins the reading anew
READINGS = 10
# characters of error texts that are interpreted, the costliest part of reading
ERRORS = 8 * 1024 * 1024

STORE = "file.store."  # and the error of the store
AWAITED = f"{STORE}VerdictAwaitedError"
SEALED = "file.seal."  # and the reason why a sealed file could not be opened
FAILED = "file.reading.failed "  # and type and place of the exception: our bug
LOOKS = "file.looks."  # and what the file looks like, with `_` for spaces

EMPTY = "file.content.empty"
NOT_A_RESULT = "file.header.unknown"
TOO_LARGE = "file.content.too_large"
MISSING = "file.content.missing"
GZIP_DAMAGED = "file.gzip.truncated"
GZIP_MEMBERS = "file.gzip.members"
ENCODING_GUESSED = "file.encoding.guessed"
TRUNCATED = "file.line.truncated"
QUOTING = "file.line.quoting"
RAGGED = "file.line.ragged"
LINES_MANY = "file.lines.many"
LINE_LONG = "file.line.long"
CELL_LONG = "file.cell.long"
COLUMNS_MANY = "file.columns.many"
WORK = "file.work.limit"
BEYOND = frozenset((TOO_LARGE, GZIP_MEMBERS, LINES_MANY, LINE_LONG, CELL_LONG, COLUMNS_MANY, WORK))
DAMAGE = frozenset((EMPTY, NOT_A_RESULT, GZIP_DAMAGED, TRUNCATED)) | BEYOND

_LOGIN = re.compile(rb"type\W{0,4}password|log[ -]?[io]n\b|sign[ -]?in\b|session", re.IGNORECASE)
_WORKBOOK = re.compile(rb"\[Content_Types\]|xl/|docProps/")
_CARD_COLUMNS = re.compile(rb"[._]pan\b|cvv", re.IGNORECASE)
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARKS = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


class RefusedError(Exception):
    """A file is beyond a limit; the only argument is the problem's code."""


def text_of(content: bytes) -> tuple[str, list[str]]:
    """Return a partner's file (plain or gzip bytes, any encoding) as text, and problem codes."""
    raw, packing = _unpack(content)
    text, encoding = _decode(raw)
    return text, [*packing, *encoding]


def looks_like(content: bytes) -> str:
    """Return the problem code that says what a file without a result's header looks like.

    It is '' for plain text.
    """
    kind = _kind_of(_unpack(content)[0][: 16 * SNIFFED])
    return f"{LOOKS}{kind.replace(' ', '_')}" if kind else ""


def _kind_of(head: bytes) -> str:
    if looks_like_message(head):
        return "an OpenPGP message"
    if head.startswith(b"PK"):
        return "an Excel workbook" if _WORKBOOK.search(head) else "a ZIP archive"
    if _CARD_COLUMNS.search(head.partition(b"\n")[0]):
        return "an extract"
    kind = other_kind(head[:SNIFFED], utf16=False)
    if kind.startswith("a web page") and _LOGIN.search(head):
        return "a login page"
    return kind


def _unpack(content: bytes) -> tuple[bytes, list[str]]:
    """Unpack gzip, member by member, up to any damage. A file beyond a limit gives no bytes."""
    if not content.startswith(_GZIP):
        return (content, []) if len(content) <= LIMIT else (b"", [TOO_LARGE])
    unpacked = bytearray()
    remaining = content
    for _ in range(MEMBERS):
        member = zlib.decompressobj(wbits=31)
        try:
            unpacked += member.decompress(remaining, LIMIT + 1 - len(unpacked))
        except zlib.error:
            return bytes(unpacked), [GZIP_DAMAGED]
        if len(unpacked) > LIMIT:
            return b"", [TOO_LARGE]
        if not member.eof:
            return bytes(unpacked), [GZIP_DAMAGED]
        remaining = member.unused_data
        if not remaining.startswith(_GZIP):
            return bytes(unpacked), []
    return b"", [GZIP_MEMBERS]


def _decode(raw: bytes) -> tuple[str, list[str]]:
    for mark, encoding in _BYTE_ORDER_MARKS.items():
        if raw.startswith(mark):
            return raw.decode(encoding, "replace"), []
    # UTF-16 without a byte order mark: plain English in it is valid UTF-8 too
    if b"\0" in raw[:200]:
        encoding = "utf-16-be" if raw.startswith(b"\0") else "utf-16-le"
        return raw.decode(encoding, "replace"), [ENCODING_GUESSED]
    try:
        return raw.decode("utf-8"), []
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace"), [ENCODING_GUESSED]
