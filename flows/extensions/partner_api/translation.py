"""A partner's JSON in the interface's own words: values where the interface has them, words that
mean one of its own, seconds; and which fields a document has, by name and type, never a value.

A profile (`profile.py`) says where the partner has them. What it does not name
stays as it is, so the interface's own JSON is not changed by the interface's own profile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from flows.extensions.partner_api.profile import Profile
from flows.extensions.partner_api.service_objects import number
from flows.results.partner_days import read_moment

_DEPTH: Final = 3  # nested wrappers
STATUS_DATA: Final = (  # what a record of a job and messages have in common
    "status",
    "termination_type",
    "percent_complete",
    "auth_percent_complete",
    "job_timeout",
    "status_message",
)
_OF_JOB: Final = ("id", "cardholder_id", "merchant_site", "credential_requests")
_OF_MESSAGE: Final = ("type", "job_id", "message", "envelope_id", "account_link")
_OF_PROMPT: Final = ("key_name", "label", "secret")
_MOMENTS: Final = ("expiration_date", "opened_on")
_ABSENT: Final = object()


def link_in_our_words(document: object, profile: Profile) -> dict[str, Any]:
    """Return the record of a link (interface.md 2.9) that a body holds; {} if there is none."""
    places = profile.fields("link")
    record = _selected(document, places.pop("record"))
    present = _values(record, places)
    if profile.words.opened and isinstance(present.get("opened_on"), str):
        words = {fold(word) for word in profile.words.opened}
        present["opened_on"] = fold(present["opened_on"]) in words
    moments = {name: _moment(present[name]) for name in _MOMENTS if name in present}
    return present | moments


def _moment(value: Any) -> Any:
    """Return a moment as text where it is a number since 1970, in seconds or in milliseconds."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    moment = read_moment(str(int(value))) if is_number else None
    return value if moment is None else f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def job_in_our_words(document: object, profile: Profile) -> dict[str, Any]:
    """Return the record of a job (interface.md 2.2) that a body holds; {} if there is none."""
    record = _selected(document, profile.places("job.record"))
    places = {name: profile.places(f"job.{name}") for name in _OF_JOB}
    renamed = _renamed(_with_status_data(record, profile), places)
    if "credential_requests" in renamed:
        requests = elements(renamed["credential_requests"], profile)
        renamed["credential_requests"] = [
            request for request in requests if isinstance(request, dict)
        ]
    return renamed


def elements(envelope: object, profile: Profile) -> Iterator[Any]:
    """Yield what an envelope of messages holds: messages (2.1, 2.4) in our words, the rest as it
    is.
    """
    for element in _unwrapped(envelope, profile.places("message.list")):
        yield _message(element, profile) if isinstance(element, dict) else element


def _unwrapped(envelope: object, wrappers: Sequence[str], depth: int = 0) -> Iterator[Any]:
    if isinstance(envelope, list):
        yield from envelope
    elif isinstance(envelope, dict):
        inner = _inner(envelope, wrappers) if depth < _DEPTH else []
        for wrapped in inner:
            yield from _unwrapped(wrapped, wrappers, depth + 1)
        if envelope and not inner:
            yield envelope
    elif envelope is not None:
        yield envelope


def _inner(envelope: dict[str, Any], wrappers: Sequence[str]) -> list[Any]:
    """Return what an envelope wraps."""
    wrapped = [value_at(envelope, wrapper) for wrapper in wrappers]
    return [inner for inner in wrapped if isinstance(inner, list | dict)]


def _message(element: dict[str, Any], profile: Profile) -> dict[str, Any]:
    """Return a message or a credential request in our words."""
    places = {name: profile.places(f"message.{name}") for name in _OF_MESSAGE}
    message = _with_status_data(_renamed(element, places), profile)
    if isinstance(message.get("message"), dict):
        inside = _with_status_data(message["message"], profile)
        of_request = {name: places[name] for name in ("envelope_id", "account_link")}
        message["message"] = _with_prompts(_renamed(inside, of_request), profile)
    return _with_prompts(message, profile)


def _with_prompts(message: dict[str, Any], profile: Profile) -> dict[str, Any]:
    """Return a message whose property descriptors (2.4) are in our words."""
    places = {name: profile.places(f"message.{name}") for name in _OF_PROMPT}
    prompts = message.get("account_link")
    if not isinstance(prompts, list):
        return message
    renamed = [
        _renamed(prompt, places) if isinstance(prompt, dict) else prompt for prompt in prompts
    ]
    return {**message, "account_link": renamed}


def _with_status_data(record: Mapping[str, Any], profile: Profile) -> dict[str, Any]:
    """Return a record whose status data is where the interface has it, and means what it means
    there.
    """
    renamed = _renamed(record, {name: profile.places(f"job.{name}") for name in STATUS_DATA})
    words = {"status": profile.words.status, "termination_type": profile.words.termination_type}
    for name, meanings in words.items():
        if isinstance(renamed.get(name), str):
            renamed[name] = meaning_of(renamed[name], meanings)
    milliseconds = number(_value(record, profile.places("job.job_timeout_ms")))
    if milliseconds is not None:
        renamed["job_timeout"] = milliseconds / 1000
    return renamed


def _values(record: object, places: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return what is present of some values, by our name for each."""
    values = {name: _value(record, paths) for name, paths in places.items()}
    return {name: value for name, value in values.items() if value is not _ABSENT}


def _renamed(record: Mapping[str, Any], places: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return a record that has these values under our names, and nothing else under them."""
    renamed = {name: value for name, value in record.items() if name not in places}
    return renamed | _values(record, places)


def _selected(document: object, selectors: Sequence[str]) -> dict[str, Any]:
    """Return the record in a body: where a selector finds it, else the body; of a list its only
    element.
    """
    places = (value_at(document, selector) for selector in selectors)
    record = next((value for value in places if isinstance(value, dict | list)), document)
    if isinstance(record, list) and len(record) == 1:
        record = record[0]
    return record if isinstance(record, dict) else {}


def _value(record: object, paths: Sequence[str]) -> Any:
    """Return the first value that is present and not null; null where all that are present are."""
    values = [value_at(record, path) for path in paths]
    present = [value for value in values if value is not _ABSENT]
    filled = (value for value in present if value is not None)
    return next(filled, present[0] if present else _ABSENT)


def value_at(record: object, path: str) -> Any:
    """Return the value at a path such as `data.items`, a private mark where there is none.

    A name that has points itself is found too.
    """
    if isinstance(record, dict) and path in record:
        return record[path]
    value = record
    for name in path.split("."):
        if not isinstance(value, dict) or name not in value:
            return _ABSENT
        value = value[name]
    return value


def meaning_of(word: str, meanings: Mapping[str, str]) -> str:
    """Return what a word of the partner means; one that no setting names stands for itself."""
    folded = {fold(name): meaning for name, meaning in meanings.items()}
    return folded.get(fold(word), word)


def fold(word: str) -> str:
    """Return a word without what does not matter: case, spaces, punctuation."""
    return re.sub(r"[\W_]+", "", word).casefold()


MOST_FIELDS: Final = 200  # shown of a document
SHOWN_FIELDS: Final = 8  # in a message
# of a property; what has more digits may be a card, a cuid or a token
_NAME: Final = re.compile(r"[A-Za-z_@$][A-Za-z_-]{0,39}[0-9]{0,2}")
ADDRESS: Final = "text (address)"
_KINDS: Final = (
    (ADDRESS, re.compile(r"https?://\S+")),
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
        f"; name its fields in [service.names] ({table}.…), as a probe of the service proposes "
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
