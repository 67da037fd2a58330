"""What was decided by hand about result files: a chain of records for each file, told by its key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flows.core.names import attributions
from flows.core.ports import Store
from flows.core.results.attribution import ByHand
from flows.core.run.planning import digest
from flows.steps.records import records
from schemas.mended import Attribution


def chain_of(issuer: str, result: str) -> str:
    """Return the prefix of the chain of the result file of that key; a hash, since a key may hold a card number."""
    return f"{attributions(issuer)}{digest(result.encode())[:32]}/"


def decisions(store: Store, issuer: str) -> dict[str, tuple[Attribution, ...]]:
    """Return every chain of an issuer by its prefix, oldest record first."""
    chains = [folder.key for folder in store.keys(attributions(issuer), shallow=True)]
    return {chain: tuple(records(store, chain, Attribution)) for chain in chains}


def by_hand(file: int, sha256: str, decided: Sequence[Attribution]) -> Iterator[ByHand]:
    """Yield where rows of the result file numbered `file`, with these bytes, belong: the last word on each row."""
    last = {one.position: one for one in decided if one.digest == sha256 and one.what != "again"}
    for one in last.values():
        if one.what == "attributed":
            yield ByHand(file, one.position, one.run, one.row)


def spoken_for(decided: Sequence[Attribution]) -> frozenset[str]:
    """Return the runs a file's rows were with, or were given to, when something was decided about it."""
    return frozenset(run for one in decided for run in (*one.runs, one.run) if run)
