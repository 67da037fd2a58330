"""Operators' decisions about the results of a run, read from its records: rows attributed, breaks closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from flows.results.attribution import ByHand
from flows.runs.chains import records
from flows.runs.identity import digest
from flows.runs.keys import RunKeys, attributions
from flows.runs.store import Store
from schemas.breaks import Break
from schemas.records import Attribution, Closing

SHOWN = 5  # row numbers in the place of a break; with no more rows than that, it has them all
_ROWS = ", rows "


class SortedBreaks(NamedTuple):
    """The breaks of a run: open ones and notices, and the closed ones with their closing."""

    open: tuple[Break, ...]
    closed: tuple[tuple[Break, Closing], ...]


def place_of(place: str) -> str:
    """Return the place of a break without its row numbers: `chunk 7` of `chunk 7, rows 1, 2`."""
    return place.partition(_ROWS)[0]


def sort_breaks(found: Iterable[Break], closings: Iterable[Closing]) -> SortedBreaks:
    """Separate the closed breaks from the open ones; a notice is never closed."""
    known = list(closings)
    covered = {one: next((by for by in known if _covers(by, one)), None) for one in found}
    still = tuple(one for one, by in covered.items() if by is None or one.notice)
    return SortedBreaks(still, tuple((one, by) for one, by in covered.items() if by is not None and not one.notice))


def _covers(closing: Closing, found: Break) -> bool:
    """Return whether a break is of the closed kind and place, without a row that was not closed then."""
    if (found.name, place_of(found.place)) != (closing.name, place_of(closing.place)) or found.rows > closing.rows:
        return False
    return closing.rows > SHOWN or _named(found.place) <= _named(closing.place)


def _named(place: str) -> frozenset[str]:
    return frozenset(place.partition(_ROWS)[2].split(", ")) - {""}


def closed_breaks(store: Store, keys: RunKeys) -> list[Closing]:
    """Return the closings of a run that are not reopened, by kind and place."""
    last = {(one.name, place_of(one.place)): one for one in records(store, keys.closed, Closing)}
    return [one for _, one in sorted(last.items()) if one.what == "closed"]


def open_breaks(store: Store, keys: RunKeys, found: Iterable[Break]) -> tuple[Break, ...]:
    """Return those of a run's breaks that are out of balance and not closed."""
    return tuple(one for one in sort_breaks(found, closed_breaks(store, keys)).open if not one.notice)


def chain_of(issuer: str, result: str) -> str:
    """Return the prefix of a result file's chain of decisions; a hash, since the key may hold a card number."""
    return f"{attributions(issuer)}{digest(result.encode())[:32]}/"


def decisions(store: Store, issuer: str) -> dict[str, tuple[Attribution, ...]]:
    """Return every chain of decisions of an issuer by its prefix, oldest record first."""
    chains = [folder.key for folder in store.keys(attributions(issuer), shallow=True)]
    return {chain: tuple(records(store, chain, Attribution)) for chain in chains}


def by_hand(file: int, sha256: str, decided: Sequence[Attribution]) -> Iterator[ByHand]:
    """Yield the last attribution of each row of the result file numbered `file`, with these bytes."""
    last = {one.position: one for one in decided if one.digest == sha256 and one.what != "again"}
    for one in last.values():
        if one.what == "attributed":
            yield ByHand(file, one.position, one.run, one.row)


def affected_runs(decided: Sequence[Attribution]) -> frozenset[str]:
    """Return the runs that had a file's rows, or were given them, when it was decided about."""
    return frozenset(run for one in decided for run in (*one.runs, one.run) if run)
