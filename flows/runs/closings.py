"""The breaks of a run that operators closed, and the places that breaks name.

And the partner's answers that will close one, once it may be closed.
"""

import re

from flows.runs.adapters import Adapters
from flows.runs.decisions import ANSWER, BREAK, decide, decisions, lift
from flows.runs.identity import canonical, digest
from flows.runs.journal import Act
from schemas.records import Closing, KeptAnswer

ROWS = ", rows "
_CHUNK = re.compile(r"chunk (\d+)")


def place_of(place: str) -> str:
    """Return the place of a break without its row numbers: `chunk 7` of `chunk 7, rows 1, 2`."""
    return place.partition(ROWS)[0]


def chunk_of(place: str) -> int:
    """Return the number of the chunk that a place names, 0 where it names a file."""
    named = _CHUNK.fullmatch(place_of(place))
    return int(named[1]) if named else 0


def closed_breaks(adapters: Adapters, issuer: str, run: str) -> list[Closing]:
    """Return the closings of a run that are not reopened, by kind and place, oldest first."""
    standing = decisions(adapters, issuer, BREAK, Closing, run, standing=True)
    return sorted(standing, key=_break_of)


def add_closing(act: Act, run: str, closing: Closing, standing: list[Closing]) -> None:
    """Decide about a break; `standing`: the closings of its run.

    One that names its rows adds to the earlier ones at its place; any other replaces them.
    """
    stands = _stands(closing)
    for earlier in standing:
        is_added_to = closing.covers and earlier.covers and _stands(earlier) != stands
        if _break_of(earlier) == _break_of(closing) and not is_added_to:
            lift(act, BREAK, run, _stands(earlier))
    decide(act, BREAK, run, closing, stands=None if closing.what == "reopened" else stands)


def kept_answers(adapters: Adapters, issuer: str) -> dict[tuple[str, int], KeptAnswer]:
    """Return the partner's answers that have not taken effect, by run and chunk."""
    answers = decisions(adapters, issuer, ANSWER, KeptAnswer, standing=True)
    return {(answer.run, answer.chunk): answer for answer in answers}


def _break_of(closing: Closing) -> tuple[str, str]:
    return closing.name, place_of(closing.place)


def _stands(closing: Closing) -> str:
    """Return what is decided once at a time: a break, or these rows of it."""
    rows = digest(canonical({"rows": closing.covers}))[:16] if closing.covers else "all rows"
    return f"{closing.name} at {place_of(closing.place)}: {rows}"
