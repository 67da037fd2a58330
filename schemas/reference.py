"""What a TOML can say, by the JSON Schema of its model: every key explained.

`cardlink settings`, `deploy/SETTINGS.md` and the schema for editors are made here, and what
`schemas.toml_problems` says of a wrong TOML; examples are in `example.toml`.
"""

import json
import re
import tomllib
from collections.abc import Mapping
from datetime import date, time
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from flows.extensions import settings_examples
from schemas import portal
from schemas.issuer import Issuer

# beside the TOML files, whose first line names it to editors
SCHEMA_FILE: Final = "cardlink.schema.json"
_WORDS: Final = {
    "string": "text",
    "boolean": "true, false",
    "integer": "number",
    "object": "table",
    None: "table",
}


def _named_model(name: str) -> type[BaseModel] | None:
    """Return the model of tables that have free names; None where the key is none of these."""
    annotation = Issuer.model_fields[name].annotation
    if name in ("columns", "status") or get_origin(annotation) is not dict:
        return None
    _, kind = get_args(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


# Tables whose keys are free names, such as columns, with the model of the table of one of them.
_NAMED = {name: _named_model(name) for name in Issuer.model_fields}
BY_NAME: Final = {
    **{"columns": "Cell", "status": "StatusColumn"},
    **{name: model.__name__ for name, model in _NAMED.items() if model is not None},
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
        """The dotted name; the keys of those BY_NAME have `*` for the name."""
        return f"{self.table}{'.*' if self.table in BY_NAME else ''}.{self.name}".lstrip(".")


@cache
def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of an issuer's TOML, for completion and errors in an editor."""
    schema: dict[str, Any] = _for_editors(Issuer.model_json_schema())
    columns = schema["properties"]["columns"]
    spec = columns.pop("additionalProperties")
    columns["properties"] = {
        name: {"description": column.hint, **spec} for name, column in portal.COLUMNS.items()
    }
    columns["additionalProperties"] = False
    return schema


def _for_editors(node: Any) -> Any:
    """Return a schema without nulls, which no TOML has, and without titles, which only repeat the
    names.
    """
    if isinstance(node, list):
        return [_for_editors(branch) for branch in node if branch != {"type": "null"}]
    if not isinstance(node, dict):
        return node
    kept = {name: _for_editors(part) for name, part in node.items() if part is not None}
    kept.pop("title", None)
    branches = kept.get("anyOf", ())
    if len(branches) == 1:
        del kept["anyOf"]
        kept |= branches[0]
    return kept


def tables() -> dict[str, dict[str, Any]]:
    """Return the schema of each table by its dotted name, "" for the top; those BY_NAME have that
    of one name.
    """
    schema = json_schema()
    by_name = {"": schema}
    for name, node in schema["properties"].items():
        model = BY_NAME.get(name) or _model_of(node)
        if model:
            by_name |= _tables_of(name, schema["$defs"], model)
    return by_name


def _tables_of(name: str, definitions: Mapping[str, Any], model: str) -> dict[str, dict[str, Any]]:
    """Return the schema of a table, then those of the tables within it."""
    schema = _with_whole_lines(definitions[model])
    below: dict[str, dict[str, Any]] = {}
    for key, node in schema["properties"].items():
        if name not in BY_NAME and _model_of(node):
            below |= _tables_of(f"{name}.{key}", definitions, _model_of(node))
    return {name: schema, **below}


def _model_of(node: Mapping[str, Any]) -> str:
    """Return the name of a table's model, "" for what is no table."""
    return str(node.get("$ref", "")).rpartition("/")[2]


def _with_whole_lines(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with each paragraph of its description, from a docstring, on one line."""
    paragraphs = schema.get("description", "").split("\n\n")
    lines = [" ".join(paragraph.split()) for paragraph in paragraphs]
    return {**schema, "description": "\n\n".join(lines)}


@cache
def every_key() -> tuple[Key, ...]:
    """Return every key there is, in the order of the models."""
    examples = _examples()
    keys = []
    for table, schema in tables().items():
        for name, node in schema["properties"].items():
            if f"{table}.{name}".lstrip(".") in tables():
                continue
            key = Key(
                table,
                name,
                takes=_takes(node),
                default=_default(schema, name),
                meaning=node.get("description", ""),
                example=toml(examples[table][name]),
            )
            keys.append(key)
    return tuple(keys)


def example() -> str:
    """Return a TOML in which every key has an example, those of extensions too."""
    text = Path(__file__).with_name("example.toml").read_text("utf-8")
    for addition in settings_examples():
        header, _, keys = addition.partition("\n")
        table = text.find(f"\n{header}\n")
        if table < 0:
            text += f"\n{addition}"
        else:  # more keys of a table that is there
            end = text.index("\n\n", table) + 1
            text = text[:end] + keys + text[end:]
    return text


def _examples() -> dict[str, dict[str, Any]]:
    """Return the example of each key, by table and name; of those BY_NAME, of one name."""
    content = tomllib.loads(example())
    examples: dict[str, Any] = {}
    for table in BY_NAME:
        tables_below = [each for each in content[table].values() if isinstance(each, dict)]
        examples[table] = dict(chain.from_iterable(each.items() for each in tables_below))
    return {"": content, **_examples_of_tables("", content), **examples}


def _examples_of_tables(prefix: str, example: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tables of an example by their dotted names."""
    by_name: dict[str, Any] = {}
    for name, value in example.items():
        if isinstance(value, dict):
            below = _examples_of_tables(f"{prefix}{name}.", value)
            by_name |= {f"{prefix}{name}": value, **below}
    return by_name


def _default(schema: Mapping[str, Any], name: str) -> str:
    if name in schema.get("required", ()):
        return "required"
    default = schema["properties"][name].get("default")
    return "" if default in (None, "", [], {}) else toml(default)


def _takes(node: Mapping[str, Any]) -> str:
    """Return what a key takes, in words."""
    options = node.get("enum", [])
    if "const" in node:
        options = [node["const"]]
    if options:
        return ", ".join(map(toml, options))
    branches = node.get("anyOf") or node.get("oneOf")
    if branches:
        return " or ".join(dict.fromkeys(map(_takes, branches)))
    if node.get("type") == "array":
        places = node.get("prefixItems", [])
        if places:
            return f"list of {len(places)} {_takes(places[0])}s"
        return f"list of {_takes(node['items'])}"
    return str(node.get("format") or _WORDS.get(node.get("type"), "number"))


def toml(value: Any) -> str:
    """Return a value as a TOML writes it on one line."""
    match value:
        case date() | time():
            return value.isoformat()
        case Mapping():
            cells = (f"{_key(key)} = {toml(cell)}" for key, cell in value.items())
            return "{ " + ", ".join(cells) + " }"
        case list() | tuple():
            return f"[{', '.join(map(toml, value))}]"
        case str() if _reads_better_literally(value):
            return f"'{value}'"
    # which a TOML reads, but for this one
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: object) -> str:
    return str(key) if BARE.fullmatch(str(key)) else toml(key)


def _reads_better_literally(text: str) -> bool:
    has_escapes = re.search(r'["\\]', text) is not None
    return has_escapes and "'" not in text and text.isprintable()


BARE: Final = re.compile("[A-Za-z0-9_-]+")  # keys that need no quotes
