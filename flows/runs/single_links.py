"""Links requested one by one, for a row of a run or for fields typed in, and the answers."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import polars as pl

from flows.runs.keys import RunKeys, prompted_prefix
from flows.runs.prior_state import SENT
from flows.runs.store import Store
from flows.runs.versions import read_document
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.records import UNKNOWN, SingleAnswered, SingleAsked

ANSWER = "-answer.json"
ARRIVED = pl.Datetime("us", "UTC")
LINK = pl.Schema(
    {
        "row": pl.UInt32(),
        "cuid": pl.String(),
        "last_4": pl.String(),
        "url": pl.String(),
        "expires_on": pl.Date(),
    }
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
    """Return the single links requested for rows of a run, by row and in order; ConflictError for
    foreign objects.
    """
    return list(_read(store, keys.singles))


def prompted_singles(store: Store, issuer: str) -> list[SingleLink]:
    """Return the single links of an issuer whose fields were typed in, oldest first."""
    return list(_read(store, prompted_prefix(issuer)))


def _read(store: Store, prefix: str) -> Iterator[SingleLink]:
    listed = {entry.key for entry in store.keys(prefix)}
    for key in sorted(one for one in listed if one.endswith(".json") and not one.endswith(ANSWER)):
        asked = read_document(store, key, SingleAsked)
        answered = (
            read_document(store, answer_key(key), SingleAnswered)
            if answer_key(key) in listed
            else None
        )
        if asked is not None:
            yield SingleLink(key, asked, answered)


def answer_key(key: str) -> str:
    """Return the key of the answer to an attempt."""
    return f"{key.removesuffix('.json')}{ANSWER}"


def single_links(store: Store, keys: RunKeys) -> pl.DataFrame:
    """Return the last single link of each row of a run (LINK, and when it `arrived`)."""
    linked = answers_of(singles(store, keys)).filter(pl.col("state") == LINKED)
    return linked.unique("row", keep="last", maintain_order=True).select(*LINK, "arrived")


def prompted_links(store: Store, issuer: str) -> pl.DataFrame:
    """Return the links whose fields were typed in, as `answers_of` does."""
    return (
        answers_of(prompted_singles(store, issuer)).cast({"state": pl.String}).filter(state=LINKED)
    )


def answers_of(alone: Iterable[SingleLink]) -> pl.DataFrame:
    """Return single links as attempts (SENT, url, arrived); one whose outcome is unknown is
    awaited.
    """
    states = {"linked": LINKED, "refused": ERROR, UNKNOWN: AWAITING}
    rows = [
        {
            **one.asked.model_dump(include=SENT.keys() - {"state"}),
            "state": states[one.state],
            **_answer(one.answered),
        }
        for one in alone
        if one.state in states
    ]
    return pl.DataFrame(rows, {**SENT, "url": pl.String, "arrived": ARRIVED})


def _answer(answered: SingleAnswered | None) -> dict[str, Any]:
    return (
        {"url": answered.url, "expires_on": answered.expires_on, "arrived": answered.at}
        if answered
        else {}
    )
