"""What a TOML can say, by the JSON Schema of its model: every key explained, and what is wrong on
which line.

`cardlink settings`, `deploy/SETTINGS.md` and the messages about a TOML are made here; examples are in `example.toml`.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, time
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from schemas import portal
from schemas.issuer import Issuer
from schemas.mapping import nearest

# beside the TOML files, whose first line names it to editors
SCHEMA_FILE: Final = "cardlink.schema.json"
_WORDS: Final = {
    "string": "text",
    "boolean": "true, false",
    "integer": "number",
    "object": "table",
    None: "table",
}


class Key(NamedTuple):
    """One key of the TOML: its table ("" for none), what it takes, its default and an example as a
    TOML writes them.
    """

    table: str
    name: str
    takes: str
    default: str
    meaning: str
    example: str

    @property
    def path(self) -> str:
        """The dotted name; the keys of a mapped column have `*` for its name."""
        return f"{self.table}{'.*' if self.table == 'columns' else ''}.{self.name}".lstrip(".")


@cache
def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of an issuer's TOML, for completion and errors in an editor."""
    made: dict[str, Any] = _for_editors(Issuer.model_json_schema())
    columns = made["properties"]["columns"]
    spec = columns.pop("additionalProperties")
    columns["properties"] = {
        name: {"description": column.accepts, **spec} for name, column in portal.COLUMNS.items()
    }
    columns["additionalProperties"] = False
    return made


def _for_editors(node: Any) -> Any:
    """Return a schema without nulls, which no TOML has, and without titles, which only repeat the
    names.
    """
    if isinstance(node, list):
        return [_for_editors(one) for one in node if one != {"type": "null"}]
    if not isinstance(node, dict):
        return node
    kept = {
        name: _for_editors(one) for name, one in node.items() if one is not None and name != "title"
    }
    return kept | kept.pop("anyOf")[0] if len(kept.get("anyOf", ())) == 1 else kept


def tables() -> dict[str, dict[str, Any]]:
    """Return the schema of each table, "" for the top; `[columns]` has that of its cells."""
    made = json_schema()
    named = {name: one.get("$ref", "") for name, one in made["properties"].items()} | {
        "columns": "#/$defs/Cell"
    }
    return {"": made} | {
        name: made["$defs"][ref.rpartition("/")[2]] for name, ref in named.items() if ref
    }


@cache
def every_key() -> tuple[Key, ...]:
    """Return every key there is, in the order of the models."""
    example = tomllib.loads(Path(__file__).with_name("example.toml").read_text("utf-8"))
    cells = {key: value for cell in example["columns"].values() for key, value in cell.items()}
    shown, found = {"": example, **example, "columns": cells}, list[Key]()
    for table, node in tables().items():
        for name, one in node["properties"].items():
            if table or name not in tables():
                default = one.get("default")
                told = "" if default in (None, "", [], {}) else toml(default)
                told = "required" if name in node.get("required", ()) else told
                found.append(
                    Key(
                        table,
                        name,
                        _takes(one),
                        told,
                        one.get("description", ""),
                        toml(shown[table][name]),
                    )
                )
    return tuple(found)


def _takes(node: Mapping[str, Any]) -> str:
    """Return what a key takes, in words."""
    if options := node.get("enum") or ([node["const"]] if "const" in node else []):
        return ", ".join(map(toml, options))
    if several := node.get("anyOf") or node.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_takes, several)))
    if node.get("type") == "array":
        places = node.get("prefixItems", [])
        return (
            f"list of {len(places)} {_takes(places[0])}s"
            if places
            else f"list of {_takes(node['items'])}"
        )
    return str(node.get("format") or _WORDS.get(node.get("type"), "number"))


def toml(value: Any) -> str:
    """Return a value as a TOML writes it on one line."""
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        cells = (
            f"{key if _BARE.fullmatch(str(key)) else toml(key)} = {toml(one)}"
            for key, one in value.items()
        )
        return "{ " + ", ".join(cells) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml, value))}]"
    if (
        isinstance(value, str)
        and re.search(r'["\\]', value)
        and "'" not in value
        and value.isprintable()
    ):
        return f"'{value}'"
    # which a TOML reads, but for this one
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


_BARE: Final = re.compile("[A-Za-z0-9_-]+")
Place = tuple[str | int, ...]  # the keys and positions that lead to a value of the TOML


def problems(error: ValidationError, given: Mapping[str, Any], text: str) -> dict[Place, str]:
    """Return, for each place of a TOML that is wrong, one sentence with its line and the nearest
    that is right.

    Only a validator that knows that a value is no secret repeats it: a password may stand at a
    wrong key.
    """
    found: dict[Place, list[ErrorDetails]] = {}
    for one in error.errors(include_url=False):
        found.setdefault(_place(one, given), []).append(one)
    told = {}
    for line, place in sorted(
        ((_line(text, place), place) for place in found), key=lambda one: one[0]
    ):
        named = ".".join(map(str, place)) or "the file as a whole"
        told[place] = f"{f'line {line}, ' if line else ''}{named}: {_what(place, found[place])}"
    return told


def without(given: Mapping[str, Any], places: Iterable[Place]) -> dict[str, Any]:
    """Return the content of a TOML without what is wrong at these places; a wrong `[store]` stays:
    it protects.
    """
    kept = dict(given)
    for place in (one for one in places if one and one[0] != "store"):
        table = kept.pop(str(place[0]), None)
        if len(place) > 1 and isinstance(table, dict):
            kept[str(place[0])] = {name: value for name, value in table.items() if name != place[1]}
    return kept


def _place(error: ErrorDetails, given: Any) -> Place:
    """Return the place of an error without the names of kinds, which pydantic puts between the
    keys.
    """
    place: Place = ()
    for part in error["loc"]:
        inside = (
            part in given
            if isinstance(given, dict)
            else isinstance(given, list) and isinstance(part, int)
        )
        if inside:
            place, given = (*place, part), given[part]
    return (*place, error["loc"][-1]) if error["type"] == "missing" else place


def _what(place: Place, errors: Sequence[ErrorDetails]) -> str:
    first, names = errors[0], [part for part in place if isinstance(part, str)]
    table, name = names[0] if len(names) > 1 else "", names[-1] if names else ""
    key = next((one for one in every_key() if (one.table, one.name) == (table, name)), None)
    ours = [
        one["msg"].removeprefix("Value error, ") for one in errors if one["type"] == "value_error"
    ]
    if ours:
        return ours[0]
    if first["type"] == "extra_forbidden":
        return f"unknown key; did you mean {_nearest_key(table, name)}?"
    if first["type"] == "literal_error":
        options = re.findall(r"'([^']+)'", first["ctx"]["expected"])
        return f"takes {', '.join(map(toml, options))}; did you mean {toml(nearest(str(first['input']), options))}?"
    what = (
        f"takes {key.takes}"
        if key and (len(errors) > 1 or "a valid " in first["msg"])
        else first["msg"]
    )
    return f"{what}; for example: {name} = {key.example}" if key else what


def _nearest_key(table: str, name: str) -> str:
    """Return the most similar key of the table, or of any other where that one has none that is
    similar.
    """
    here = list(tables()[table]["properties"])
    elsewhere = {one.name: one.path for one in every_key()}
    close = difflib.get_close_matches(name, here, 1) or difflib.get_close_matches(
        name, elsewhere, 1
    )
    return next((one if one in here else elsewhere[one] for one in close), nearest(name, here))


_PART = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_LINE = re.compile(rf"\s*(\[\[?)?\s*({_PART}(?:\s*\.\s*{_PART})*)\s*(?(1)\]|=)")


def _line(text: str, place: Place) -> int:
    """Return the line of a TOML that sets a place, or what holds it; 0 where none does."""
    table: Place = ()
    best = (0, 0)
    for number, line in enumerate(text.splitlines(), 1):
        if match := _LINE.match(line):
            path: Place = tuple(part.strip("\"'") for part in re.findall(_PART, match[2]))
            table, path = (path, path) if match[1] else (table, (*table, *path))
            if len(path) > best[0] and place[: len(path)] == path:
                best = (len(path), number)
    return best[1]


OURS: Final = ("CARDLINK_", "AWS_", "PREFECT_API_", "PREFECT_HOME", "PREFECT_LOGGING_")
# Variables whose values are no secrets; of the others only that they are set is shown.
REPORTED: Final = (
    "_FILE",
    "_CONFIG",
    "_ACTOR",
    "_ACTORS",
    "_POOL",
    "_REGION",
    "_PROFILE",
    "_HOME",
    "_PATH",
    "_LEVEL",
)


def settings_in_effect(
    effective: Mapping[str, Any], given: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, dict[str, Any]]:
    """Return value and origin of an issuer's settings, then of the environment's, without any
    secret.

    `effective` is the issuer's whole model as plain values, `given` the content of its TOML.
    """
    found = dict(_flat(effective, given))
    for name, value in sorted(environment.items()):
        if name.endswith("_URL"):
            url = urlsplit(value)
            value = url._replace(
                netloc=url.netloc.rpartition("@")[2], path="", query="", fragment=""
            ).geturl()
        elif not name.endswith(REPORTED):
            value = "(set)"
        found |= {name: {"value": value, "from": "environment"}} if name.startswith(OURS) else {}
    return found


def _flat(
    effective: Mapping[str, Any], given: Any, prefix: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, value in effective.items():
        in_file = isinstance(given, Mapping) and name in given
        below = given[name] if in_file else {}
        if isinstance(value, Mapping) and value:
            yield from _flat(value, below, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", {"value": value, "from": "file" if in_file else "default"}
