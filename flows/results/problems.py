"""The problems of foreign files in words: what is wrong, and what to do about it."""

from collections.abc import Iterable
from typing import NamedTuple

from flows.results import opening
from flows.results.opening import LOOKS, SEALED, STORE


class Words(NamedTuple):
    """What is wrong with a file, and what to do about it."""

    wrong: str
    then: str


_AGAIN = "Download it again from the portal."
_EXPORT = "Download the result from the portal as CSV, and drop it unchanged."
_SPLIT = (
    "Download the result of each chunk again, and drop the files as they are; ask the partner if "
    "it happens again."
)
_FOREIGN_KEY = (
    "Use the key that the partner encrypts to; remove it if it is a chunk of ours, which only the "
    "portal can open."
)
_MIB = opening.LIMIT >> 20
_WORDS = {
    opening.EMPTY: Words("it has no rows", _AGAIN),
    opening.NOT_A_RESULT: Words("it does not have the header of a result", _EXPORT),
    opening.TOO_LARGE: Words(f"it has more than {_MIB} MiB, as it is or once opened", _SPLIT),
    opening.MISSING: Words(
        "it is gone, or its name is not a valid key", "Drop it again under a plain name."
    ),
    opening.GZIP_DAMAGED: Words("its gzip data is cut off or damaged", _AGAIN),
    opening.GZIP_MEMBERS: Words(f"its gzip data has more than {opening.MEMBERS} parts", _SPLIT),
    opening.ENCODING_GUESSED: Words(
        "its encoding was guessed", "Compare names in errors.csv; ask the partner for UTF-8."
    ),
    opening.TRUNCATED: Words("it ends in the middle of a row", _AGAIN),
    opening.QUOTING: Words(
        "the quotes of some lines are not paired",
        "Compare its rows with the report; ask the partner for it.",
    ),
    opening.RAGGED: Words(
        "some rows have more or fewer cells than the header", "Compare its rows with the report."
    ),
    opening.LINES_MANY: Words(f"it has more than {opening.LINES:,} lines", _SPLIT),
    opening.LINE_LONG: Words(f"it has a line of more than {opening.LINE:,} characters", _SPLIT),
    opening.CELL_LONG: Words(f"it has a cell of more than {opening.CELL:,} characters", _SPLIT),
    opening.COLUMNS_MANY: Words(f"it has more than {opening.COLUMNS:,} columns", _SPLIT),
    opening.WORK: Words("reading its cells, quotes or error texts would take too long", _SPLIT),
    f"{STORE}ObjectChangedError": Words(
        "it is still being written", "Nothing: it is read again once it is complete."
    ),
    opening.AWAITED: Words(
        "the malware scanner has not judged it", "Nothing: it is read once it has been judged."
    ),
    f"{STORE}VerdictRefusedError": Words(
        "the malware scanner did not find it clean, and it was not read",
        "Do not open it: tell security, have it removed, and download the result again.",
    ),
    f"{SEALED}key.secret.missing": Words("it is encrypted for another key", _FOREIGN_KEY),
    f"{SEALED}key.passphrase.wrong": Words(
        "the passphrase of our key is wrong", "Correct CARDLINK_PASSPHRASE_FILE."
    ),
    f"{SEALED}GpgHungError": Words("gpg did not finish opening it", _AGAIN),
    f"{SEALED}message.content.too_large": Words(f"it opens to more than {_MIB} MiB", _SPLIT),
}
_THEN_OF_KIND = {
    "a login page": "Log in to the portal, and download the result again.",
    "a ZIP archive": "Unpack it, and drop the result files that are in it.",
    "an OpenPGP message": "Set CARDLINK_PRIVATE_KEY_FILE to the key that it was encrypted for.",
    "an extract": "It may hold card numbers: remove it from the results folder, and tell security.",
}
_TEMPORARY = (
    opening.MISSING,
    STORE,
    f"{SEALED}key.passphrase.wrong",
    f"{SEALED}GpgHungError",
)


def describe(problems: Iterable[str]) -> tuple[str, str]:
    """Return what is wrong with a file, with its codes, and what to do about it."""
    codes = list(problems)
    if len(codes) > 1 and opening.NOT_A_RESULT in codes:  # what it looks like instead says more
        codes.remove(opening.NOT_A_RESULT)
    then = _words_of(codes[-1]).then if codes else ""
    return "; ".join(map(_with_code, codes)), then


def _with_code(problem: str) -> str:
    wrong = _words_of(problem).wrong
    return wrong if wrong.endswith(problem) else f"{wrong} ({problem})"


def _words_of(problem: str) -> Words:
    if problem in _WORDS:
        return _WORDS[problem]
    if problem.startswith(LOOKS):
        kind = problem.removeprefix(LOOKS).replace("_", " ")
        return Words(f"it looks like {kind}", _THEN_OF_KIND.get(kind, _EXPORT))
    if problem.startswith(STORE):
        return Words(
            "the store refuses to return it",
            "Compare its permissions and storage class with those of other files.",
        )
    if problem.startswith(SEALED):
        return Words("it is not a complete encrypted message", _AGAIN)
    return Words(
        "it could not be read",
        "This is our error: report it with this text. The other files were ingested.",
    )


def is_temporary(problems: Iterable[str]) -> bool:
    """Return whether a file's problem may end without a trace in the store.

    Then the file must be read each time.
    """
    return any(problem.startswith(_TEMPORARY) for problem in problems)
