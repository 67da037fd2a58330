"""Which rows of a run have a link: from its results, or from a single link made for a row since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from flows.runs.documents import read_document
from flows.runs.frames import read_rows
from flows.runs.keys import RunKeys, prompted_prefix
from flows.runs.store import Store
from schemas.ledger import LINKED
from schemas.manifest import LedgerPart
from schemas.records import UNKNOWN, SingleAnswered, SingleAsked

ANSWER = "-answer.json"

ARRIVED = pl.Datetime("us", "UTC")
LINK = pl.Schema(
    {"row": pl.UInt32(), "cuid": pl.String(), "last_4": pl.String(), "url": pl.String(), "expires_on": pl.Date()}
)


class SingleLink(NamedTuple):
    """One attempt; without an answer its outcome is unknown."""

    key: str
    asked: SingleAsked
    answered: SingleAnswered | None

    @property
    def state(self) -> str:
        """The outcome: linked, refused, unsent or unknown."""
        return self.answered.outcome if self.answered else UNKNOWN


def singles(store: Store, keys: RunKeys) -> list[SingleLink]:
    """Return the single links requested for rows of a run, by row and in order; ConflictError for foreign objects."""
    return list(_read(store, keys.singles))


def prompted_singles(store: Store, issuer: str) -> list[SingleLink]:
    """Return the single links of an issuer whose fields were typed in, oldest first."""
    return list(_read(store, prompted_prefix(issuer)))


def _read(store: Store, prefix: str) -> Iterator[SingleLink]:
    listed = {entry.key for entry in store.keys(prefix)}
    for key in sorted(one for one in listed if one.endswith(".json") and not one.endswith(ANSWER)):
        asked = read_document(store, key, SingleAsked)
        answered = read_document(store, answer_key(key), SingleAnswered) if answer_key(key) in listed else None
        if asked is not None:
            yield SingleLink(key, asked, answered)


def answer_key(key: str) -> str:
    """Return the key of the answer to an attempt."""
    return f"{key.removesuffix('.json')}{ANSWER}"


def single_links(store: Store, keys: RunKeys) -> pl.DataFrame:
    """Return the last single link of each row of a run (LINK, and when it `arrived`)."""
    return links_of(singles(store, keys))


def links_of(alone: Iterable[SingleLink]) -> pl.DataFrame:
    """Return the last link that single requests brought for each row (LINK, and when it `arrived`)."""
    found = {
        one.asked.row: (
            one.asked.row, one.asked.cuid, one.asked.last_4, one.answered.url, one.answered.expires_on, one.answered.at
        )
        for one in alone
        if one.answered and one.answered.url
    }  # fmt: skip
    return pl.DataFrame(list(found.values()), schema={**LINK, "arrived": ARRIVED}, orient="row")


def prompted_links(store: Store, issuer: str) -> pl.DataFrame:
    """Return the links whose fields were typed in: cuid, last_4, expiration, url, expires_on, state."""
    rows = [
        (one.asked.cuid, one.asked.last_4, one.asked.expiration, one.answered.url, one.answered.expires_on, LINKED)
        for one in prompted_singles(store, issuer)
        if one.answered and one.answered.url
    ]
    text = dict.fromkeys(("cuid", "last_4", "expiration", "url"), pl.String())
    return pl.DataFrame(rows, schema={**text, "expires_on": pl.Date(), "state": pl.String()}, orient="row")


def linked_rows(store: Store, keys: RunKeys, part: LedgerPart) -> pl.DataFrame:
    """Return the rows of a ledger part that have a link (LINK), single links included; every report has those."""
    columns = ["row", "cuid", "last_4", "state", "url", "expires_on"]
    return pl.concat(read_rows(store, keys, [part], columns, pl.col("state") == LINKED)).select(*LINK)
