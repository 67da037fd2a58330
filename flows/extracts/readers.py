"""Forms of extracts that extensions read as lines of text, by the `format` of [source]."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from flows.extensions import hooks
from flows.extracts.decode import Readable
from schemas.source import SourceSettings


class Reader(NamedTuple):
    """How a form is read: what it is called, whether a file begins so, and its lines of UTF-8.

    `lines` yields about as many bytes at a time as it is told, and raises ExtractError.
    """

    called: str
    recognises: Callable[[bytes], bool]
    lines: Callable[[Readable, SourceSettings, str, int], Iterator[bytes]]


def readers() -> dict[str, Reader]:
    """Return the readers of the extensions, by format."""
    by_format = dict[str, Reader]()
    for brought in hooks("readers"):
        by_format |= brought()
    return by_format


def form_of(head: bytes) -> str | None:
    """Return the format of a file that an extension reads, by how the file begins."""
    forms = (form for form, reader in readers().items() if reader.recognises(head))
    return next(forms, None)


def as_text(source: SourceSettings) -> SourceSettings:
    """Return how the lines of such a form are written; other settings as they are."""
    if source.format in ("csv", "fixed"):
        return source
    written = {"format": "csv", "delimiter": ",", "encoding": "utf-8", "quoting": "doubled"}
    return source.model_copy(update={**written, "final_newline": True})
