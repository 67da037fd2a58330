"""Which rows of a run have a link: from its results, or from a single link made for a row since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from flows.runs.documents import read_document, read_ledger
from flows.runs.frames import read_rows
from flows.runs.keys import RunKeys, prompted_prefix
from flows.runs.store import Store
from schemas.ledger import LINKED
from schemas.manifest import LedgerPart
from schemas.records import UNKNOWN, SingleAnswered, SingleAsked

ANSWER = "-answer.json"

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
    """Return the last single link of each row of a run (LINK)."""
    return links_of(singles(store, keys))


def links_of(alone: Iterable[SingleLink]) -> pl.DataFrame:
    """Return the last link that single requests brought for each row (LINK)."""
    found = {
        one.asked.row: (one.asked.row, one.asked.cuid, one.asked.last_4, one.answered.url, one.answered.expires_on)
        for one in alone
        if one.answered and one.answered.url
    }
    return pl.DataFrame(list(found.values()), schema=LINK, orient="row")


def linked_rows(store: Store, keys: RunKeys, part: LedgerPart, alone: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of a ledger part that have a link (LINK); `alone` are the run's single links."""
    columns = ["row", "cuid", "last_4", "state", "url", "expires_on"]
    linked = pl.concat(read_rows(store, keys, [part], columns, pl.col("state") == LINKED)).select(*LINK)
    if alone.is_empty():
        return linked
    (records,) = read_ledger(store, keys, [part], ["row"])
    mine = alone.join(records, on="row", how="semi").join(linked, on="row", how="anti")
    return pl.concat([linked, mine.select(*LINK)]).sort("row")


def states_with(states: pl.DataFrame, alone: pl.DataFrame) -> pl.DataFrame:
    """Return row and state of reconciled rows; those with a single link are linked."""
    built = alone.select("row", pl.lit(LINKED).alias("state"))
    return pl.concat([states.join(built, on="row", how="anti"), built])
