"""Operators' decisions about the results of a run, read from its records: rows attributed, breaks closed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import polars as pl

from flows.results.match import ByHand
from flows.runs.chains import records
from flows.runs.chunks import ROWS, place_of
from flows.runs.identity import digest
from flows.runs.keys import attributions
from flows.runs.store import Store
from schemas.breaks import DECISIONS, PLACELESS, Break
from schemas.records import Attribution, Closing

SHOWN = 5  # row numbers in the place of a break; with no more rows than that, it has them all


DECIDED = {"kind": pl.String, "row": pl.UInt32, "decision": pl.String, "note": pl.String, "closing": pl.UInt32}


def sort_breaks(
    found: Iterable[Break], closings: Sequence[Closing]
) -> tuple[tuple[Break, ...], tuple[tuple[Break, Closing], ...]]:
    """Return the open breaks and the notices, which are never closed; and the closed breaks, each with its closing."""
    covered = {one: next((by for by in closings if covers(by, one)), None) for one in found}
    still = tuple(one for one, by in covered.items() if by is None or one.notice)
    return still, tuple((one, by) for one, by in covered.items() if by is not None and not one.notice)


def covers(closing: Closing, found: Break) -> bool:
    """Return whether a break is of the closed kind and place, without a row that was not closed then.

    A closing that names its rows covers just these (`decided_rows`), not what is found besides them.
    """
    if (found.name, place_of(found.place)) != (closing.name, place_of(closing.place)) or found.rows > closing.rows:
        return False
    if closing.covers and found.name not in PLACELESS:
        return False
    return closing.rows > SHOWN or _named(found.place) <= _named(closing.place)


def _named(place: str) -> frozenset[str]:
    return frozenset(place.partition(ROWS)[2].split(", ")) - {""}


def decided_rows(closings: Sequence[Closing]) -> pl.DataFrame:
    """Return the rows that closings cover (DECIDED), the later one's where two of a kind have a row in common."""
    rows = [
        (one.name, row, one.decision, f"{DECISIONS[one.decision].meaning} ({one.by}: {one.reason})", at)
        for at, one in enumerate(closings)
        if one.covers
        for row in one.covers
    ]
    return pl.DataFrame(rows, DECIDED, orient="row").unique(["kind", "row"], keep="last", maintain_order=True)


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
