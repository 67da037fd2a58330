"""From the bytes of a foreign file to its text, within limits; and in words, what is wrong with a
file.

All limits of one file stand here. A file beyond one of them is refused whole: none of its rows is
used.
"""

import re
import zlib
from collections.abc import Iterable

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

_AGAIN = "Download it again from the portal."
_EXPORT = "Download the result from the portal as CSV, and drop it unchanged."
_SPLIT = "Download the result of each chunk again, and drop the files as they are; ask the partner if it stays so."
_WORDS: dict[str, tuple[str, str]] = {
    "file.content.empty": ("it is empty", _AGAIN),
    "file.header.unknown": ("it has no header of a result", _EXPORT),
    "file.content.too_large": (
        f"it has more than {LIMIT >> 20} MiB, as it is or once opened",
        _SPLIT,
    ),
    "file.content.missing": (
        "it is gone, or its name is not a valid key",
        "Drop it again under a plain name.",
    ),
    "file.gzip.truncated": ("its gzip data is cut off or damaged", _AGAIN),
    "file.gzip.members": (f"its gzip data has more than {MEMBERS} parts", _SPLIT),
    "file.encoding.guessed": (
        "its encoding was guessed",
        "Compare names in errors.csv; ask the partner for UTF-8.",
    ),
    "file.line.truncated": ("it ends in the middle of a row", _AGAIN),
    "file.line.quoting": (
        "the quotes of some lines are not paired",
        "Compare its rows with the report; ask the partner for it.",
    ),
    "file.line.ragged": (
        "some rows have more or fewer cells than the header",
        "Compare its rows with the report.",
    ),
    "file.lines.many": (f"it has more than {LINES:,} lines", _SPLIT),
    "file.line.long": (f"it has a line of more than {LINE:,} characters", _SPLIT),
    "file.cell.long": (f"it has a cell of more than {CELL:,} characters", _SPLIT),
    "file.columns.many": (f"it has more than {COLUMNS:,} columns", _SPLIT),
    "file.work.limit": ("reading its cells, quotes or error texts would take too much", _SPLIT),
    f"{STORE}ObjectChangedError": (
        "it is still being written",
        "Nothing: it is read again once it is complete.",
    ),
    AWAITED: ("the malware scanner has not judged it", "Nothing: it is read once it was judged."),
    f"{STORE}VerdictRefusedError": (
        "the malware scanner did not find it clean, and it was not read",
        "Do not open it: tell security, have it removed, and download the result again.",
    ),
    f"{SEALED}key.secret.missing": (
        "it is encrypted for another key",
        "Use the key that the partner encrypts to; remove it if it is a chunk of ours, which only the portal can open.",
    ),
    f"{SEALED}key.passphrase.wrong": (
        "the passphrase of our key is wrong",
        "Correct CARDLINK_PASSPHRASE_FILE.",
    ),
    f"{SEALED}GpgHungError": ("gpg did not finish opening it", _AGAIN),
    f"{SEALED}message.content.too_large": (f"it opens to more than {LIMIT >> 20} MiB", _SPLIT),
}
(
    EMPTY, NOT_A_RESULT, TOO_LARGE, MISSING, GZIP_DAMAGED, GZIP_MEMBERS, ENCODING_GUESSED, TRUNCATED, QUOTING, RAGGED,
    LINES_MANY, LINE_LONG, CELL_LONG, COLUMNS_MANY, WORK, *_
) = _WORDS  # fmt: skip
BEYOND = frozenset((TOO_LARGE, GZIP_MEMBERS, LINES_MANY, LINE_LONG, CELL_LONG, COLUMNS_MANY, WORK))
DAMAGE = frozenset((EMPTY, NOT_A_RESULT, GZIP_DAMAGED, TRUNCATED)) | BEYOND
_PASSING = (MISSING, STORE, f"{SEALED}key.passphrase.wrong", f"{SEALED}GpgHungError")
_KINDS = {
    "a login page": "Log in to the portal, and download the result again.",
    "a ZIP archive": "Unpack it, and drop the result files that are in it.",
    "an OpenPGP message": "Set CARDLINK_PRIVATE_KEY_FILE to the key that it was encrypted for.",
    "an extract": "It may hold card numbers: remove it from the results folder, and tell security.",
}
_LOGIN = re.compile(rb"type\W{0,4}password|log[ -]?[io]n\b|sign[ -]?in\b|session", re.IGNORECASE)
_WORKBOOK = re.compile(rb"\[Content_Types\]|xl/|docProps/")
_CARD_COLUMNS = re.compile(rb"[._]pan\b|cvv", re.IGNORECASE)


class RefusedError(Exception):
    """A file is beyond a limit; the only argument is the problem's code."""


def text_of(content: bytes) -> tuple[str, list[str]]:
    """Return a partner's file (plain or gzip bytes, any encoding) as text, and problem codes."""
    raw, packing = _unpack(content)
    text, encoding = _decode(raw)
    return text, [*packing, *encoding]


def looks_like(content: bytes) -> str:
    """Return the problem code that says what a file without a result's header looks like, '' for
    plain text.
    """
    head = _unpack(content)[0][: 16 * SNIFFED]
    if looks_like_message(head):
        kind = "an OpenPGP message"
    elif head.startswith(b"PK"):
        kind = "an Excel workbook" if _WORKBOOK.search(head) else "a ZIP archive"
    elif _CARD_COLUMNS.search(head.partition(b"\n")[0]):
        kind = "an extract"
    else:
        kind = other_kind(head[:SNIFFED], utf16=False)
        kind = "a login page" if kind.startswith("a web page") and _LOGIN.search(head) else kind
    return f"{LOOKS}{kind.replace(' ', '_')}" if kind else ""


def describe(problems: Iterable[str]) -> tuple[str, str]:
    """Return what is wrong with a file, with its codes, and what to do about it."""
    shown = list(problems)
    if len(shown) > 1 and NOT_A_RESULT in shown:  # what it looks like instead says more
        shown.remove(NOT_A_RESULT)
    found = [(*_describe(problem), problem) for problem in shown]
    wrong = "; ".join(
        what if what.endswith(problem) else f"{what} ({problem})" for what, _, problem in found
    )
    return wrong, " ".join(dict.fromkeys(then for _, then, _ in found[-1:]))


def may_pass(problems: Iterable[str]) -> bool:
    """Return whether a file's problem may end without a trace in the store, so that it must be
    tried each time.
    """
    return any(problem.startswith(_PASSING) for problem in problems)


def _describe(problem: str) -> tuple[str, str]:
    if problem in _WORDS:
        return _WORDS[problem]
    if problem.startswith(LOOKS):
        kind = problem.removeprefix(LOOKS).replace("_", " ")
        return f"it looks like {kind}", _KINDS.get(kind, _EXPORT)
    if problem.startswith(STORE):
        return (
            "the store does not give it out",
            "Compare its permissions and storage class with those of other files.",
        )
    if problem.startswith(SEALED):
        return "it is not a complete encrypted message", _AGAIN
    return (
        "it could not be read",
        "This is an error of ours: report it with these words. Other files went on.",
    )


def _unpack(content: bytes) -> tuple[bytes, list[str]]:
    """Unpack gzip, member by member, up to any damage. A file beyond a limit gives no bytes."""
    if content[:2] != b"\x1f\x8b":
        return (content, []) if len(content) <= LIMIT else (b"", [TOO_LARGE])
    out, rest = bytearray(), content
    for _ in range(MEMBERS):
        unpacker = zlib.decompressobj(wbits=31)
        try:
            out += unpacker.decompress(rest, LIMIT + 1 - len(out))
        except zlib.error:
            return bytes(out), [GZIP_DAMAGED]
        if len(out) > LIMIT:
            return b"", [TOO_LARGE]
        if not unpacker.eof:
            return bytes(out), [GZIP_DAMAGED]
        rest = unpacker.unused_data
        if rest[:2] != b"\x1f\x8b":
            return bytes(out), []
    return b"", [GZIP_MEMBERS]


def _decode(raw: bytes) -> tuple[str, list[str]]:
    for marker, encoding in (
        (b"\xef\xbb\xbf", "utf-8-sig"),
        (b"\xff\xfe", "utf-16"),
        (b"\xfe\xff", "utf-16"),
    ):
        if raw.startswith(marker):
            return raw.decode(encoding, "replace"), []
    # UTF-16 without a byte order mark: plain English in it is valid UTF-8 too
    if b"\0" in raw[:200]:
        return raw.decode("utf-16-be" if raw[:1] == b"\0" else "utf-16-le", "replace"), [
            ENCODING_GUESSED
        ]
    try:
        return raw.decode("utf-8"), []
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace"), [ENCODING_GUESSED]
