"""What an issuer's TOML sets, by dotted names, and how one state of something differs from another.

A change of some settings is an act of its own, which `[four_eyes] acts` may name: `settings` for
keys, hosts, limits and what protects, `mapping` for what becomes of a row. Any change of
`[four_eyes]` needs two persons as soon as the table names an act: otherwise nothing that it says
would hold.

A TOML has no secrets. What only identifies somebody at the partner is kept as a digest, and of an
address where reports can be browsed the host alone, since such addresses may hold a token. The hash
of CVVs has no secret to name: the partner's interface fixes it.
"""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel

from flows.extensions import settings_tables
from flows.redaction import redact, redacted
from schemas.issuer import Issuer, KernelSettings
from schemas.settings import Act

MOST: Final = 8  # changes that are named in a sentence
LONGEST: Final = 200  # characters of a value in words
# names, or beginnings of names, by the act that a change of them is; the others are told alone
BY_ACT: Final[Mapping[Act, Sequence[str]]] = {
    "settings": (
        "test",
        "portal.fingerprints",
        "portal.key_curves",
        "portal.sealed",
        "portal.allowed_hosts",
        "service",
        "store",
        "limits",
        "resend",
        "retention",
        "audit",
        *(settings_tables().keys() - KernelSettings.model_fields.keys()),
    ),
    "mapping": (
        "source",
        "columns",
        "status",
        "eligible",
        "repairs",
        "rules",
        "full_portfolio",
        "portfolio",
        "portal.header",
        "links",
    ),
}
_FREE: Final = ("columns", "status")  # tables whose keys are columns
_DIGESTED: Final = ("service.fi_key", "service.safe_key", "source.copybook")
_ADDRESS: Final = "alerts.report_url"

Values = Mapping[str, Any]


class Change(NamedTuple):
    """A value that is not what it was, by its dotted name; None: there was, or is, none."""

    name: str
    before: Any
    after: Any

    @property
    def act(self) -> Act | None:
        """The act that a change of this setting is, None where it is told alone."""
        for act, names in BY_ACT.items():
            if any(f"{self.name}.".startswith(f"{name}.") for name in names):
                return act
        return None

    def __str__(self) -> str:
        return f"{self.name}: {_in_words(self.before)} -> {_in_words(self.after)}"


class TomlSettings(NamedTuple):
    """The settings of a TOML by dotted names, as JSON has them and without any secret.

    `defaults`: the names of those that are as they are without the TOML.
    """

    values: dict[str, Any]
    defaults: frozenset[str]


class _Setting(NamedTuple):
    name: str
    value: Any
    is_default: bool


def settings_of(issuer: Issuer, header: str) -> TomlSettings:
    """Return an issuer's settings; `header`: the header line of chunks, which `[portal] template`
    may change.
    """
    tables = issuer.model_dump(mode="json", by_alias=True)
    settings = list(_settings(issuer, tables))
    values = {each.name: each.value for each in settings}
    as_typed = issuer.model_dump(
        mode="json", by_alias=True, exclude_unset=True, include={"columns"}
    )
    for column, spec in as_typed.get("columns", {}).items():
        values[f"columns.{column}"] = _without_lookup(spec)
    values["portal.header"] = header.rstrip("\r\n")
    shown = {name: _shown(name, value) for name, value in values.items()}
    return TomlSettings(shown, frozenset(each.name for each in settings if each.is_default))


def changes(before: Values, after: Values, defaults: Collection[str] = ()) -> list[Change]:
    """Return what differs, by name.

    A setting of a table that was not used is no change while it has its default.
    """
    names = sorted(before.keys() | after.keys())
    changed = [Change(name, before.get(name), after.get(name)) for name in names]
    return [
        change
        for change in changed
        if change.before != change.after and (change.name in before or change.name not in defaults)
    ]


def in_words(changed: Sequence[Change]) -> str:
    """Return changes as one text, at most MOST of them."""
    more = f"; and {len(changed) - MOST} more" if len(changed) > MOST else ""
    return redact("; ".join(map(str, changed[:MOST])) + more)


def flat(fact: Any, name: str = "") -> Iterator[tuple[str, Any]]:
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
        yield from flat(value, f"{name}.{part}" if name else part)


def _settings(table: BaseModel, values: Values, prefix: str = "") -> Iterator[_Setting]:
    """Yield the settings of a table and of those below it; `values`: the same as JSON has them."""
    for field, declared in type(table).model_fields.items():
        name = f"{prefix}{field}"
        value = getattr(table, field)
        if isinstance(value, BaseModel):
            yield from _settings(value, values[field], f"{name}.")
        elif name in _FREE:
            for key, each in values[field].items():
                yield _Setting(f"{name}.{key}", each, is_default=False)
        elif isinstance(value, dict) and _are_tables(value):
            yield _Setting(f"{name}.names", sorted(value), is_default=False)
            for key, below in sorted(value.items()):
                yield from _settings(below, values[field][key], f"{name}.{key}.")
        else:
            default = declared.get_default(call_default_factory=True)
            yield _Setting(name, values.get(field), is_default=value == default)


def _are_tables(values: Mapping[Any, Any]) -> bool:
    """Return whether these are tables by free names."""
    return bool(values) and all(isinstance(value, BaseModel) for value in values.values())


def _shown(name: str, value: Any) -> Any:
    """Return a setting as it is stored: nothing that opens something, free texts masked.

    What two persons agree to is stored as it is, so that no two values look the same.
    """
    if value and name in _DIGESTED:
        return f"sha256 {_digest(value)}"
    if value and name.endswith(".webhook"):
        return f"{_host(value)}, sha256 {_digest(value)}"
    if name == _ADDRESS:
        return _host(value)
    return value if Change(name, value, None).act == "settings" else redacted(value)


def _host(address: str) -> str:
    return urlsplit(address)._replace(path="", query="", fragment="").geturl()


def _without_lookup(spec: Any) -> Any:
    """Return what a column is made of, with the digest of a lookup file for its content."""
    if isinstance(spec, list):
        return [_without_lookup(each) for each in spec]
    if not isinstance(spec, dict) or not isinstance(spec.get("lookup"), dict):
        return spec
    content = json.dumps(spec["lookup"], sort_keys=True)
    return {**spec, "lookup": f"{len(spec['lookup']):,} texts, sha256 {_digest(content)}"}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _in_words(value: Any) -> str:
    """Return a value as a person reads it."""
    if value is None:
        return "nothing"
    if isinstance(value, list) and not value:
        return "none"
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        text = ", ".join(value)
    else:
        text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
