"""Links requested one by one, for a row of a run or for fields typed in, and the answers."""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

import polars as pl

from flows.runs.adapters import Adapters
from flows.runs.documents import read_document
from flows.runs.events import SINGLE, record_event
from flows.runs.identity import digest
from flows.runs.keys import RunKeys, prompted_prefix
from flows.runs.store import Store
from schemas.ledger import AWAITING, ERROR, LINKED
from schemas.records import UNKNOWN, SingleAnswered, SingleAsked

ANSWER = "-answer.json"
ARRIVED = pl.Datetime("us", "UTC")
_STATES = {"linked": LINKED, "refused": ERROR, UNKNOWN: AWAITING}  # of an attempt, by the outcome
# A single link as an attempt to get a card its link; `expires_on` of the link, where there is one.
ATTEMPT = pl.Schema(
    {
        "row": pl.UInt32(),
        "cuid": pl.String(),
        "last_4": pl.String(),
        "expiration": pl.String(),  # YYMM
        "state": pl.Enum([LINKED, ERROR, AWAITING]),
        "expires_on": pl.Date(),
        "url": pl.String(),
        "arrived": ARRIVED,
    }
)
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
    def name(self) -> str:
        """How a run's history names it."""
        return self.key.rpartition("/")[2].removesuffix(".json")

    @property
    def state(self) -> str:
        """The outcome: linked, refused, unsent or unknown."""
        return self.answered.outcome if self.answered else UNKNOWN

    @property
    def ends_otherwise(self) -> bool:
        """Whether its link expires on another day than was requested."""
        until = self.asked.link_until
        ends = self.answered.expires_on if self.answered else None
        return until is not None and ends is not None and ends != until


def singles(store: Store, listed: Collection[str]) -> list[SingleLink]:
    """Return the single links with these keys, by row and in order.

    Raises ConflictError for foreign objects.
    """
    return list(_read(store, listed))


def prompted_singles(store: Store, issuer: str) -> list[SingleLink]:
    """Return the single links of an issuer whose fields were typed in, oldest first."""
    return list(_read(store, {entry.key for entry in store.keys(prompted_prefix(issuer))}))


def _read(store: Store, listed: Collection[str]) -> Iterator[SingleLink]:
    requests = (key for key in listed if key.endswith(".json") and not key.endswith(ANSWER))
    for key in sorted(requests):
        request = read_document(store, key, SingleAsked)
        answer = None
        if answer_key(key) in listed:
            answer = read_document(store, answer_key(key), SingleAnswered)
        if request is not None:
            yield SingleLink(key, request, answer)


def answer_key(key: str) -> str:
    """Return the key of the answer to an attempt."""
    return f"{key.removesuffix('.json')}{ANSWER}"


def note_answer(adapters: Adapters, keys: RunKeys, single: SingleLink) -> None:
    """Record in a run's history that an attempt was answered: once, whoever does it."""
    if single.answered is None:
        return
    moment = single.answered.at
    once = f"{moment:%Y%m%dT%H%M%S%f}-single-{digest(single.key.encode())[:8]}.json"
    outcome = single.answered.outcome
    record_event(adapters, keys, SINGLE, once, moment, attempt=single.name, outcome=outcome)


def last_links(attempts: Iterable[SingleLink]) -> pl.DataFrame:
    """Return the last single link of each row (LINK, and when it `arrived`)."""
    linked = answers_of(attempts).filter(pl.col("state") == LINKED)
    return linked.unique("row", keep="last", maintain_order=True).select(*LINK, "arrived")


def prompted_links(store: Store, issuer: str) -> pl.DataFrame:
    """Return the links whose fields were typed in, as `answers_of` does."""
    attempts = answers_of(prompted_singles(store, issuer))
    return attempts.cast({"state": pl.String}).filter(state=LINKED)


def answers_of(single_links: Iterable[SingleLink]) -> pl.DataFrame:
    """Return single links as attempts (ATTEMPT).

    One whose outcome is unknown is awaited.
    """
    rows = [_attempt(single) for single in single_links if single.state in _STATES]
    return pl.DataFrame(rows, ATTEMPT)


def _attempt(single: SingleLink) -> dict[str, Any]:
    """Return a single link as an attempt; without an answer it has no link."""
    attempt = single.asked.model_dump(include=ATTEMPT.keys() - {"state"})
    attempt["state"] = _STATES[single.state]
    answer = single.answered
    if answer is not None:
        attempt |= {"url": answer.url, "expires_on": answer.expires_on, "arrived": answer.at}
    return attempt
