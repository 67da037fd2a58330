"""Who has left, as it is kept: what came later is added to it.

`book/left.parquet` has who left by the extracts that the head names with it. What was decided by
extracts that retention has removed since stays as it was.
"""

from collections.abc import Callable, Mapping, Sequence
from io import BytesIO

import polars as pl

from flows.book.departures import (
    DEPARTED,
    FOLLOWED,
    NOBODY,
    WholeExtract,
    departures,
    later_namings,
    namings,
    order,
)
from flows.book.head import Head
from flows.runs.identity import digest
from flows.runs.keys import book
from flows.runs.store import Store, read_if_stored
from schemas.tables import parquet


class KeptDepartures:
    """Who has left by some extracts: from what the kept head names, and from what came later.

    `extracts`: the committed whole extracts whose ledger can be read, by run.
    """

    def __init__(
        self, store: Store, issuer: str, kept: Head, extracts: Mapping[str, WholeExtract]
    ) -> None:
        self._store = store
        self._issuer = issuer
        self._kept = kept
        self._extracts = extracts

    def read(self, attempts: pl.DataFrame) -> pl.DataFrame:
        """Return the cards among all `attempts` (FOLLOWED) that have left (DEPARTED).

        As it is kept, by the extracts that came later; else by all.
        """
        if not self._can_have_left:
            return NOBODY
        before = self._read_kept()
        later = {run: self._extracts[run] for run in self._unread}
        if before is None or not self._came_last(later):
            return departures(attempts, namings(self._store, self._extracts))
        return departures(attempts, later_namings(self._store, later), before)

    def keep(self, head: Head, attempts: Callable[[Sequence[str]], pl.DataFrame]) -> Head:
        """Write who has left, where an extract came; return the head that names it.

        `attempts` returns these columns of the attempts of all runs whose extracts count.
        """
        if not self._can_have_left:
            return head
        if not head.left or self._unread:
            content = parquet(self.read(attempts(FOLLOWED)))
            self._store.replace(_key(self._issuer), [content])
            head = head.model_copy(update={"left": digest(content)})
        return head.model_copy(update={"left_runs": tuple(sorted(self._extracts))})

    @property
    def _can_have_left(self) -> bool:
        """Whether somebody had left before, or can have left by one of the extracts."""
        return bool(self._kept.left) or any(each.decides for each in self._extracts.values())

    @property
    def _unread(self) -> set[str]:
        """The runs whose extracts are not among those that the kept departures are made of."""
        return self._extracts.keys() - set(self._kept.left_runs)

    def _read_kept(self) -> pl.DataFrame | None:
        """Return who had left when the book was kept; None where that cannot be believed."""
        content = read_if_stored(self._store, _key(self._issuer))
        if content is None or digest(content) != self._kept.left:
            return None
        return pl.read_parquet(BytesIO(content)).cast(DEPARTED)

    def _came_last(self, later: Mapping[str, WholeExtract]) -> bool:
        """Return whether these extracts come after all that the kept departures are made of."""
        extracts = self._extracts
        made_of = [order(extracts[run]) for run in self._kept.left_runs if run in extracts]
        last = max(made_of, default=None)
        return last is not None and all(order(extract) > last for extract in later.values())


def _key(issuer: str) -> str:
    return f"{book(issuer)}left.parquet"
