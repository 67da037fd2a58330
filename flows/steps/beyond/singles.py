"""The single links of a run, or of an issuer where they came from no run: what was asked for and what came of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic import ValidationError

from flows.core.names import RunKeys, prompted
from flows.core.ports import Store
from flows.steps.edges import ConflictError, read
from schemas.singles import UNKNOWN, SingleAnswered, SingleAsked

ANSWER = "-answer.json"


class Single(NamedTuple):
    """One attempt; without an answer nobody knows what came of it."""

    key: str
    asked: SingleAsked
    answered: SingleAnswered | None

    @property
    def state(self) -> str:
        """How it stands: linked, refused, unsent or unknown."""
        return self.answered.outcome if self.answered else UNKNOWN


def singles(store: Store, keys: RunKeys) -> list[Single]:
    """Return the single links asked for from rows of a run, by row and order; ConflictError for what is none."""
    return list(_read(store, keys.singles))


def prompted_singles(store: Store, issuer: str) -> list[Single]:
    """Return the single links of an issuer whose fields were typed in, oldest first."""
    return list(_read(store, prompted(issuer)))


def _read(store: Store, prefix: str) -> Iterator[Single]:
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
        yield Single(key, asked, answered)


def answer_key(key: str) -> str:
    """Return where the answer of an attempt lies."""
    return f"{key.removesuffix('.json')}{ANSWER}"
