"""The runs and extracts that forms offer: put into the schemas of their deployments.

Prefect makes a form from a flow where it is deployed, and a flow knows no runs. So each issuer's
watch puts them in afterwards, and `cardlink install` takes them away until then. They are an offer:
what else fits the field can be typed, and a command checks what it gets in any case.

Nothing of Prefect: `flows.watch` keeps the schemas on its server.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any

from flows.book.stored_book import known_plans
from flows.commands.parameters import Offer
from flows.errors import CardlinkError
from flows.extracts.delivery import is_extract
from flows.form_fields import parameters_of_form
from flows.registry import FORMED
from flows.runs.context import IssuerContext
from flows.runs.dropped_files import dropped_files
from flows.runs.keys import extracts
from flows.runs.store import Entry
from flows.runs.stored_runs import StoredRuns

MOST = 60  # names of an issuer in a field: two months of nights; older ones can be typed
BY_ISSUER = "x-cardlink-by-issuer"  # what each issuer's watch has put into a field
Schema = dict[str, Any]
Names = Mapping[Offer, Sequence[str]]


def offered_fields(form: str) -> dict[str, Offer]:
    """Return the fields of a form whose values it offers, and what it offers in each."""
    entries = [entry for entry, built in FORMED if built.name == form]
    fields = parameters_of_form(entries).items()
    return {name: parameter.field.offers for name, parameter in fields if parameter.field.offers}


def names_of(context: IssuerContext) -> Names:
    """Return an issuer's runs and extracts, the newest first.

    There are none of what cannot be read: alerts say so.
    """
    issuer = context.issuer.issuer
    runs: list[str] = []
    files: list[str] = []
    with suppress(CardlinkError):
        runs = [
            plan.run
            for plan in reversed(
                known_plans(context.adapters, StoredRuns(context.adapters, issuer))
            )
        ]
    with suppress(CardlinkError):
        files = _extracts(context)
    return {"runs": runs[:MOST], "targets": [issuer, *runs[:MOST]], "extracts": files[:MOST]}


def _extracts(context: IssuerContext) -> list[str]:
    """Return the names of stored extracts; one that may have a card number in it is none."""
    prefix = extracts(context.issuer.issuer)
    dropped = dropped_files(context.adapters.store, prefix)
    stored = sorted(dropped.files, key=_age, reverse=True)
    names = [entry.key.removeprefix(prefix) for entry in stored]
    return [name for name in names if is_extract(name, context.issuer.source)]


def _age(entry: Entry) -> tuple[datetime, str]:
    return entry.modified, entry.key


def with_choices(
    form: str, schema: Schema, issuer: str, names: Names, issuers: Iterable[str]
) -> Schema:
    """Return a form's schema in which an issuer's names are those that are known now.

    Those of other `issuers` stay, and those of issuers that are gone go.
    """
    properties = dict(schema["properties"])
    for field, offer in offered_fields(form).items():
        if field not in properties:
            continue
        offered = {**properties[field].get(BY_ISSUER, {}), issuer: list(names[offer])}
        known = {name: offered[name] for name in sorted(issuers) if offered.get(name)}
        properties[field] = _offering(_typed(properties[field]), known)
    return {**schema, "properties": properties}


def _typed(field: Schema) -> Schema:
    """Return a field into which names are typed, as its flow has it."""
    if BY_ISSUER not in field:
        return field
    plain = {name: value for name, value in field.items() if name not in ("anyOf", BY_ISSUER)}
    return {**plain, "type": "string"}


def _offering(field: Schema, names: Mapping[str, Sequence[str]]) -> Schema:
    """Return a field with two ways: a list of names, and a text; both have to match its pattern.

    The list has no type, by which Prefect's UI tells it from the text: a chosen name is then shown
    as a text that can be changed.
    """
    if not names:
        return field
    offered = list(chain.from_iterable(names.values()))
    ways = [{"title": "choose", "enum": offered}, {"title": "type", "type": "string"}]
    untyped = {name: value for name, value in field.items() if name != "type"}
    return {**untyped, "anyOf": ways, BY_ISSUER: dict(names)}
