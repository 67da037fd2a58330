"""The settings of an issuer that are governed: as they are stored, compared, and put into words.

All that its TOML sets is, by dotted names (`limits.max_reject_rate`). A change of some is an act of
its own, which `[four_eyes] acts` may name: `settings` for keys, hosts, limits and what protects,
`mapping` for what becomes of a row. Any change of `[four_eyes]` needs two persons as soon as the
table names an act: otherwise nothing that it says would hold.

A TOML has no secrets. What only identifies somebody at the partner is kept as a digest, and of an
address where reports can be browsed the host alone, since such addresses may hold a token. The hash
of CVVs has no secret to name: the partner's interface fixes it.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from flows.extensions import settings_tables
from schemas.issuer import Issuer
from schemas.settings import Act

LONGEST: Final = 200  # characters of a value in words
# Names, or beginnings of names, by the act that a change of them is; the others are told alone.
BY_ACT: Final[Mapping[Act, Sequence[str]]] = {
    "settings": (
        "test",
        "portal.fingerprints",
        "portal.key_curves",
        "portal.sealed",
        "portal.allowed_hosts",
        "service.",
        "store.",
        "limits.",
        "resend.",
        "retention.",
        "four_eyes.",
        "audit.",
        *(f"{name}." for name in settings_tables()),
    ),
    "mapping": (
        "source.",
        "columns.",
        "status.",
        "eligible.",
        "repairs.",
        "rules.",
        "full_portfolio",
        "portfolio.",
        "portal.header",
        "links.",
    ),
}
FOUR_EYES: Final = "four_eyes."
ACTS: Final = "four_eyes.acts"
HOURS: Final = "four_eyes.hours"
PERSONS: Final = "four_eyes.persons"
# Tables whose keys are columns of the extract or of the portal.
FREE: Final = ("columns", "status")
ANY: Final = "*"  # in place of the free name of a table
IDENTIFIERS: Final = ("service.fi_key", "service.safe_key")
COPYBOOKS: Final = ("source.copybook",)
ADDRESS: Final = "alerts.report_url"
HEADER: Final = "portal.header"
_REQUIRED: Final = object()

Values = Mapping[str, Any]


class Change(NamedTuple):
    """A setting that is not what it was; None: it was, or is, not set."""

    name: str
    before: Any
    after: Any

    @property
    def act(self) -> Act | None:
        """The act that this change is, None where it is told alone."""
        for act, names in BY_ACT.items():
            if any(self.name == name or self.name.startswith(_table(name)) for name in names):
                return act
        return None

    def __str__(self) -> str:
        return f"{self.name}: {_in_words(self.before)} -> {_in_words(self.after)}"


def governed_settings(issuer: Issuer, header: str) -> dict[str, Any]:
    """Return an issuer's settings by dotted names, as JSON has them and without any secret.

    `header` is the header line of chunks, which `[portal] template` may change.
    """
    tables = issuer.model_dump(mode="json", by_alias=True)
    as_typed = issuer.model_dump(
        mode="json", by_alias=True, exclude_unset=True, include={"columns"}
    )
    values = dict(_flat(Issuer, tables, ""))
    for column, spec in as_typed.get("columns", {}).items():
        values[f"columns.{column}"] = _without_lookup(spec)
    for name in IDENTIFIERS:
        if values.get(name):
            values[name] = f"sha256 {_short_digest(values[name])}"
    for name in COPYBOOKS:
        if values.get(name):
            values[name] = f"sha256 {_short_digest(values[name])}"
    values[ADDRESS] = _host(values[ADDRESS])
    for name, value in values.items():
        if name.endswith(".webhook") and value:
            values[name] = f"{_host(value)}, sha256 {_short_digest(value)}"
    return {**values, HEADER: header.rstrip("\r\n")}


def changes(before: Values, after: Values) -> list[Change]:
    """Return what differs, by name.

    A setting of a table that was not used is no change while it has its default.
    """
    changed = []
    for name in sorted(before.keys() | after.keys()):
        change = Change(name, before.get(name), after.get(name))
        if change.before != change.after and not _is_new_default(name, before, after):
            changed.append(change)
    return changed


def needing_two(before: Values, changed: Sequence[Change]) -> list[Change]:
    """Return the changes that need a second person, by the settings from which they depart."""
    acts = before.get(ACTS) or ()
    return [
        change
        for change in changed
        if change.act in acts or (acts and change.name.startswith(FOUR_EYES))
    ]


def _table(name: str) -> str:
    """Return the beginning of the names of a table's settings; a name that is no table is whole."""
    return name if name.endswith(".") else f"{name}."


def _flat(model: type[BaseModel], values: Values, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the settings of a table and those below it; a table that is not used has none."""
    for name in model.model_fields:
        value = values.get(name)
        below = _table_of(model, name)
        each = named_model(model, name)
        if each is not None and value is not None:
            yield from _named(name, each, value)
        elif below is not None and value is not None:
            yield from _flat(below, value, f"{prefix}{name}.")
        elif name in FREE and not prefix:
            yield from ((f"{name}.{column}", each) for column, each in values[name].items())
        elif below is None:
            yield f"{prefix}{name}", value


def _named(
    name: str, model: type[BaseModel], tables: Mapping[str, Values]
) -> Iterator[tuple[str, Any]]:
    """Yield the settings of tables that have free names, and these names where there are any."""
    if tables:
        yield f"{name}.names", sorted(tables)
    for each, values in sorted(tables.items()):
        yield from _flat(model, values, f"{name}.{each}.")


def named_model(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """Return the model of tables that have free names; None where the setting is none of these."""
    annotation = model.model_fields[name].annotation
    if name in FREE or get_origin(annotation) is not dict:
        return None
    _, kind = get_args(annotation)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _table_of(model: type[BaseModel], name: str) -> type[BaseModel] | None:
    """Return the model of a table within another, None where the setting is no table."""
    annotation = model.model_fields[name].annotation
    if get_origin(annotation) is dict:  # of tables by free names
        return None
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            return kind
    return None


@cache
def _defaults() -> Values:
    """Return the default of every setting, by name."""
    return dict(_default_of_each(Issuer, ""))


def _default_of_each(model: type[BaseModel], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        below = _table_of(model, name)
        each = named_model(model, name)
        if each is not None:
            yield from _default_of_each(each, f"{prefix}{name}.{ANY}.")
        elif below is not None:
            yield from _default_of_each(below, f"{prefix}{name}.")
        elif field.is_required():
            yield f"{prefix}{name}", _REQUIRED
        else:
            default = field.get_default(call_default_factory=True)
            yield f"{prefix}{name}", to_jsonable_python(default)


def _is_new_default(name: str, before: Values, after: Values) -> bool:
    """Return whether a setting is only in the later ones, and has its default there."""
    general = _of_any_name(name)
    defaults = _defaults()
    return name not in before and general in defaults and defaults[general] == after[name]


def _of_any_name(name: str) -> str:
    """Return the name of a setting without the free name of its table; any other as it is."""
    table, _, below = name.partition(".")
    _, _, setting = below.partition(".")
    general = f"{table}.{ANY}.{setting}"
    return general if general in _defaults() else name


def _host(address: str) -> str:
    return urlsplit(address)._replace(path="", query="", fragment="").geturl()


def _without_lookup(spec: Any) -> Any:
    """Return what a column is made of, with the digest of a lookup file for its content."""
    if isinstance(spec, list):
        return [_without_lookup(each) for each in spec]
    if not isinstance(spec, dict) or not isinstance(spec.get("lookup"), dict):
        return spec
    content = json.dumps(spec["lookup"], sort_keys=True)
    summary = f"{len(spec['lookup']):,} texts, sha256 {_short_digest(content)}"
    return {**spec, "lookup": summary}


def _short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _in_words(value: Any) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "not set"
    if isinstance(value, list) and not value:
        return "none"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        text = ", ".join(value)
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
