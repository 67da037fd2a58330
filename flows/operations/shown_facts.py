"""What a command was shown to do: its facts as a request keeps them, and how others differ.

Facts are those of a dry run: names, counts and states. A long list is kept as its length and
digest. A moment at or after the beginning of the dry run is "now", because it is another one each
time, and who ran it is left out.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from flows.redaction import redact
from flows.runs.identity import digest

LONGEST: Final = 50  # items of a list that are kept one by one
MOST: Final = 8  # differences that are named
WHO: Final = ("by", "holder")  # differ with whoever runs it
ABSENT: Final = "nothing"


def as_shown(fact: Any, since: datetime) -> Any:
    """Return a fact as it is stored, without card numbers; `since`: when the dry run began."""
    match fact:
        case Mapping():
            shown = {str(name): value for name, value in fact.items() if name not in WHO}
            return {name: as_shown(value, since) for name, value in shown.items()}
        case bool() | int() | float() | None:
            return fact
        case list() | tuple():
            return _list_as_shown([as_shown(value, since) for value in fact])
        case set() | frozenset():
            return _list_as_shown(sorted(as_shown(value, since) for value in fact))
        case datetime() | date():
            return _moment(fact.isoformat(), since)
    return _moment(redact(str(fact)), since)


def departures(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return in words how facts differ from others, "" where they do not."""
    stored = dict(_flat(before, ""))
    current = dict(_flat(after, ""))
    names = [name for name in stored | current if stored.get(name) != current.get(name)]
    differences = [
        f"{name}: {_in_words(stored, name)} -> {_in_words(current, name)}" for name in names[:MOST]
    ]
    if len(names) > MOST:
        differences.append(f"and {len(names) - MOST} more")
    return "; ".join(differences)


def _list_as_shown(values: Sequence[Any]) -> Any:
    if len(values) <= LONGEST:
        return values
    content = json.dumps(values, sort_keys=True).encode()
    return {"number": len(values), "sha256": digest(content)}


def _moment(text: str, since: datetime) -> str:
    """Return a text, or "now" where it is a moment at or after `since`."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    # written in whole seconds, it is the beginning of its second
    begin = since if moment.microsecond else since.replace(microsecond=0)
    return "now" if moment.tzinfo is not None and moment >= begin else text


def _flat(fact: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the single facts within one, by dotted names; items of a list by number, from 1."""
    parts: list[tuple[str, Any]] = []
    match fact:
        case Mapping():
            parts = list(fact.items())
        case list():
            parts = [(str(number), value) for number, value in enumerate(fact, 1)]
    if not parts and name:
        yield name, fact
    for part, value in parts:
        yield from _flat(value, f"{name}.{part}" if name else part)


def _in_words(facts: Mapping[str, Any], name: str) -> str:
    return json.dumps(facts[name], ensure_ascii=False) if name in facts else ABSENT
