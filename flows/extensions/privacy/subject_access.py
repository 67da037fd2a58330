"""The export for a request to know: all that is stored of one cardholder, and why, and how long.

It has what is stored as it is, but no card number and no CVV: of the extract, which has them, every
other cell of the person's own rows.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import polars as pl

from flows.errors import CardlinkError
from flows.extensions.privacy.personal_data import mentions, places
from flows.extracts.mapping import map_rows, plan_mapping, stop
from flows.extracts.opening import open_extract
from flows.extracts.rows import open_rows
from flows.redaction import redacted
from flows.resend.selected_run import reopen_source
from flows.runs.context import IssuerContext
from flows.runs.erased import Mention, NamedPeople
from flows.runs.stored_run import StoredRun
from schemas.portal import CVV, CVV_HASH, PAN, columns

SECRET = (PAN, CVV, CVV_HASH)


def disclosures(context: IssuerContext, cuid: str) -> list[dict[str, Any]]:
    """Return all that an issuer's store has of a cardholder: of each place what it has, why, until
    when, and the data itself.
    """
    people = NamedPeople(frozenset({cuid}))
    by_place = defaultdict[str, list[Mapping[str, Any]]](list)
    named = list(mentions(context, people))
    for mention in named:
        if mention.place not in ("extracts", "unfinished"):
            by_place[mention.place].append(_object(mention))
    by_place["extracts"] += _extracts(context, named)
    return [
        {
            "place": name,
            "holds": place.holds,
            "why": place.why,
            "until": place.until,
            "objects": list(_once(by_place[name])),
        }
        for name, place in places().items()
        if by_place[name]
    ]


def _object(mention: Mention) -> dict[str, Any]:
    run = {"run": mention.run, "rows": list(mention.rows)} if mention.run else {}
    return {"where": mention.key, **run, "data": list(mention.facts)}


def _once(objects: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield each object once, although several rows name it."""
    seen = set[str]()
    for each in objects:
        if each["where"] not in seen or each["data"]:
            seen.add(each["where"])
            yield each


def _extracts(context: IssuerContext, named: Sequence[Mention]) -> Iterator[dict[str, Any]]:
    """Yield the rows of extracts that name the cardholder, with their cells where they exist."""
    for mention in named:
        if mention.place == "extracts":
            run = StoredRun.by_id(context.adapters, mention.run)
            yield {**_object(mention), **_cells(context, run, mention.rows)}


def _cells(context: IssuerContext, run: StoredRun, rows: Sequence[int]) -> dict[str, Any]:
    """Return the cells of rows of a run's extract, but card number and CVV; else why not."""
    try:
        entry, source = reopen_source(context, run.id, run.committed().source)
        with open_extract(context, entry, source) as stream:
            extract = open_rows(stream, context.issuer.source, source.key, proven=True)
            header = extract.header
            mapping = plan_mapping(
                header, context.issuer, source.key, context.header.names, (), stop
            )
            blocks = [map_rows(block.rows, mapping)[0] for block in extract]
    except CardlinkError as error:
        return {"unread": error.what_happened}
    shown = [name for name in columns() if name not in SECRET]
    is_own = pl.col("row").is_in(list(rows))
    own = [block.filter(is_own).select("row", *shown).to_dicts() for block in blocks]
    return {"data": redacted(list(chain.from_iterable(own)))}
