"""What is wrong with a TOML, place by place: its line, what it takes, the nearest that is right."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from schemas.mapping import nearest
from schemas.reference import Key, every_key, tables, toml

Place = tuple[str | int, ...]  # the keys and positions that lead to a value of the TOML


def problems(error: ValidationError, content: Mapping[str, Any], text: str) -> dict[Place, str]:
    """Return, for each place of a TOML that is wrong, one sentence with its line and the nearest
    that is right.

    Only a validator that knows that a value is no secret repeats it: a password may stand at a
    wrong key.
    """
    errors: dict[Place, list[ErrorDetails]] = {}
    for detail in error.errors(include_url=False):
        errors.setdefault(_place(detail, content), []).append(detail)
    lines = {place: _line(text, place) for place in errors}
    return {
        place: _sentence(place, line, errors[place])
        for place, line in sorted(lines.items(), key=lambda placed: placed[1])
    }


def _sentence(place: Place, line: int, errors: Sequence[ErrorDetails]) -> str:
    name = ".".join(map(str, place)) or "the file as a whole"
    where = f"line {line}, {name}" if line else name
    return f"{where}: {_problem(place, errors)}"


def without(content: Mapping[str, Any], places: Iterable[Place]) -> dict[str, Any]:
    """Return the content of a TOML without what is wrong at these places; a wrong `[store]` stays:
    it protects.
    """
    kept = dict(content)
    for place in places:
        if not place or place[0] == "store":
            continue
        table = kept.pop(str(place[0]), None)
        if len(place) > 1 and isinstance(table, dict):
            kept[str(place[0])] = {name: value for name, value in table.items() if name != place[1]}
    return kept


def _place(error: ErrorDetails, content: Any) -> Place:
    """Return the place of an error without the names of kinds, which pydantic puts between the
    keys.
    """
    place: Place = ()
    for part in error["loc"]:
        if _holds(content, part):
            place = (*place, part)
            content = content[part]
    if error["type"] == "missing":
        return (*place, error["loc"][-1])
    return place


def _holds(content: Any, part: str | int) -> bool:
    if isinstance(content, dict):
        return part in content
    return isinstance(content, list) and isinstance(part, int) and part < len(content)


def _problem(place: Place, errors: Sequence[ErrorDetails]) -> str:
    """Say what is wrong with one place."""
    own = [error["msg"] for error in errors if error["type"] == "value_error"]
    if own:  # a sentence of one of our validators
        return own[0].removeprefix("Value error, ")
    table, name = _table_and_name(place)
    first = errors[0]
    match first["type"]:
        case "extra_forbidden":
            return f"unknown key; did you mean {_nearest_key(table, name)}?"
        case "literal_error":
            options = re.findall(r"'([^']+)'", first["ctx"]["expected"])
            meant = toml(nearest(str(first["input"]), options))
            return f"takes {', '.join(map(toml, options))}; did you mean {meant}?"
    key = _key(table, name)
    if key is None:
        return first["msg"]
    several_kinds = len(errors) > 1 or "a valid " in first["msg"]
    problem = f"takes {key.takes}" if several_kinds else first["msg"]
    return f"{problem}; for example: {name} = {key.example}"


def _table_and_name(place: Place) -> tuple[str, str]:
    """Return the key that a place is in, "" for what it does not have."""
    names = [part for part in place if isinstance(part, str)]
    match names:
        case []:
            return "", ""
        case [name]:
            return "", name
    return names[0], names[-1]


def _key(table: str, name: str) -> Key | None:
    for key in every_key():
        if (key.table, key.name) == (table, name):
            return key
    return None


def _nearest_key(table: str, name: str) -> str:
    """Return the most similar key of the table, or of any other where that one has none that is
    similar.
    """
    in_table: list[str] = list(tables()[table]["properties"])
    paths = {key.name: key.path for key in reversed(every_key())}  # of the outer table, if several
    if close := difflib.get_close_matches(name, in_table, 1):
        return close[0]
    if close := difflib.get_close_matches(name, paths, 1):
        return close[0] if close[0] in in_table else paths[close[0]]
    return nearest(name, in_table)


_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_LINE = re.compile(rf"\s*(\[\[?)?\s*({_PART}(?:\s*\.\s*{_PART})*)\s*(?(1)\]|=)")


def _line(text: str, place: Place) -> int:
    """Return the line of a TOML that sets a place, or what holds it; 0 where none does."""
    deepest = 0
    deepest_line = 0
    for number, path in _paths(text):
        if len(path) > deepest and place[: len(path)] == path:
            deepest = len(path)
            deepest_line = number
    return deepest_line


def _paths(text: str) -> Iterator[tuple[int, Place]]:
    """Yield the lines of a TOML that name a table or a key, with the place they name."""
    table: Place = ()
    for number, line in enumerate(text.splitlines(), 1):
        match = _LINE.match(line)
        if match is None:
            continue
        path: Place = tuple(part.strip("\"'") for part in re.findall(_PART, match[2]))
        if match[1]:
            table = path
            yield number, table
        else:
            yield number, (*table, *path)
