"""Which rows of a run have a link: by its results, or by a single link that was made for a row since."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl
from pydantic import ValidationError

from flows.runs.documents import read_ledger
from flows.runs.frames import read_rows
from flows.runs.keys import RunKeys, prompted_prefix
from flows.runs.store import ConflictError, Store, read
from schemas.ledger import LINKED
from schemas.manifest import LedgerPart
from schemas.records import UNKNOWN, SingleAnswered, SingleAsked

ANSWER = "-answer.json"

LINK = pl.Schema(
    {"row": pl.UInt32(), "cuid": pl.String(), "last_4": pl.String(), "url": pl.String(), "expires_on": pl.Date()}
)


class SingleLink(NamedTuple):
    """One attempt; without an answer nobody knows what came of it."""

    key: str
    asked: SingleAsked
    answered: SingleAnswered | None

    @property
    def state(self) -> str:
        """How it stands: linked, refused, unsent or unknown."""
        return self.answered.outcome if self.answered else UNKNOWN


def singles(store: Store, keys: RunKeys) -> list[SingleLink]:
    """Return the single links asked for from rows of a run, by row and order; ConflictError for what is none."""
    return list(_read(store, keys.singles))


def prompted_singles(store: Store, issuer: str) -> list[SingleLink]:
    """Return the single links of an issuer whose fields were typed in, oldest first."""
    return list(_read(store, prompted_prefix(issuer)))


def _read(store: Store, prefix: str) -> Iterator[SingleLink]:
    there = {entry.key for entry in store.keys(prefix)}
    for key in sorted(one for one in there if one.endswith(".json") and not one.endswith(ANSWER)):
        answer = answer_key(key)
        try:
            asked = SingleAsked.model_validate_json(read(store, key))
            answered = SingleAnswered.model_validate_json(read(store, answer)) if answer in there else None
        except ValidationError:
            broken = True
        else:
            broken = False
        if broken:
            raise ConflictError(key=key)
        yield SingleLink(key, asked, answered)


def answer_key(key: str) -> str:
    """Return where the answer of an attempt lies."""
    return f"{key.removesuffix('.json')}{ANSWER}"


def single_links(store: Store, keys: RunKeys) -> pl.DataFrame:
    """Return the single links made for rows of a run (LINK), the last one of each row."""
    return links_of(singles(store, keys))


def links_of(alone: Iterable[SingleLink]) -> pl.DataFrame:
    """Return the links that single requests brought (LINK), the last one of each row."""
    built = {one.asked.row: _link(one) for one in alone if one.answered and one.answered.url}
    return pl.DataFrame(list(built.values()), schema=LINK, orient="row")


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
    """Return row and state of reconciled rows, those with a single link as linked ones."""
    built = alone.select("row", pl.lit(LINKED).alias("state"))
    return pl.concat([states.join(built, on="row", how="anti"), built])


def _link(one: SingleLink) -> tuple[object, ...]:
    reported = one.answered
    return one.asked.row, one.asked.cuid, one.asked.last_4, reported and reported.url, reported and reported.expires_on
