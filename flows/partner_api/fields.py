"""Which fields a document of the service has: their names and types, never a value."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

MOST_FIELDS: Final = 200  # shown of a document
SHOWN_FIELDS: Final = 8  # in a message
# of a property; what has more digits may be a card, a cuid or a token
_NAME: Final = re.compile(r"[A-Za-z_@$][A-Za-z_-]{0,39}[0-9]{0,2}")
_KINDS: Final = (
    ("text (address)", re.compile(r"https?://\S+")),
    ("text (moment)", re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}\S*")),
    ("text (date)", re.compile(r"\d{4}-\d{2}-\d{2}|\d{1,2}/\d{1,2}/\d{4}")),
    ("text (number)", re.compile(r"-?\d+(\.\d+)?")),
)


def fields_of(document: object) -> dict[str, str]:
    """Return the type of each field by its path, such as `data.link.id`, at most MOST_FIELDS.

    A name that may be a value itself, as in a map by card, is left out. Of a list the elements have
    `[]` in their path.
    """
    fields: dict[str, str] = {}
    for path, kind in _walk("", document):
        known = fields.get(path)
        fields[path] = kind if known in (None, kind) else f"{known} or {kind}"
        if len(fields) == MOST_FIELDS:
            break
    return fields


def no_link_in(document: object) -> str:
    """Return that a document is no record of a link, what it has, and which settings name it."""
    return f"no link record{_settings_for('link', document)}"


def no_job_in(document: object) -> str:
    """Return that a document is no record of a job, what it has, and which settings name it."""
    return f"no job record{_settings_for('job', document)}"


def _settings_for(table: str, document: object) -> str:
    names = list(fields_of(document))
    if not names or not isinstance(document, dict):
        return ""
    shown = ", ".join(names[:SHOWN_FIELDS])
    more = ", …" if names[SHOWN_FIELDS:] else ""
    return (
        f"; name its fields in [service.{table}], as a probe of the service proposes "
        f"(it has {shown}{more})"
    )


def _walk(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, below in value.items():
            if _NAME.fullmatch(name):
                yield from _walk(f"{path}.{name}".lstrip("."), below)
    elif isinstance(value, list):
        yield path or "[]", f"list of {len(value)}"
        for element in value:
            if isinstance(element, dict):
                yield from _walk(f"{path}[]", element)
    else:
        yield path or "(the body)", _type_of(value)


def _type_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "number"
    text = str(value)
    return next((kind for kind, form in _KINDS if form.fullmatch(text)), "text")
