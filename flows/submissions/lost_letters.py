"""Letters that became question marks, as where an export could not write them: `Garc?a`, `Jos?`.

As with repairs, all rows of the extract decide for a column: a mark beside a letter stands for a
letter where the column has accents elsewhere, or a mark within a word. While no row has such a
mark, nothing is read twice.
"""

from collections.abc import Callable, Collection, Iterator

import polars as pl

from flows.submissions.validate import VERDICT
from schemas.issuer import Severity
from schemas.portal import PROSE, subject

KIND = "lost_letters"
_MARK = "?"
_BESIDE_A_LETTER = r"\p{L}\?|\?\p{L}"
_WITHIN_A_WORD = r"\p{L}\?+\p{L}"
_ACCENT = r"[\p{L}&&[^A-Za-z]]"


class LostLetters:
    """Decides which columns of an extract lost letters."""

    def __init__(self, reread: Callable[[], Iterator[pl.DataFrame]]) -> None:
        """Take what reads all rows of the extract again, normalised, with at least PROSE."""
        self._reread = reread
        self._decided: frozenset[str] | None = None

    def columns(self, rows: pl.DataFrame) -> frozenset[str]:
        """Return the columns that lost letters, as far as a normalised block has to know."""
        if self._decided is None and _are_marked(rows):
            self._decided = self._by_all_rows()
        return self._decided or frozenset()

    def _by_all_rows(self) -> frozenset[str]:
        marked = set[str]()
        confirmed = set[str]()
        for rows in self._reread():
            marked |= _columns_with(rows, _BESIDE_A_LETTER)
            confirmed |= _columns_with(rows, f"{_WITHIN_A_WORD}|{_ACCENT}")
        return frozenset(marked & confirmed)


def verdicts_on_lost_letters(
    rows: pl.DataFrame, lost: Collection[str], severity: Severity
) -> pl.DataFrame:
    """Return the verdicts (VERDICT) on cells of columns that lost letters."""
    verdicts = [pl.DataFrame(schema=VERDICT)]
    if severity != "off":
        verdicts += [_verdicts_on(rows, column, severity) for column in PROSE if column in lost]
    return pl.concat(verdicts)


def _verdicts_on(rows: pl.DataFrame, column: str, severity: Severity) -> pl.DataFrame:
    marked = rows.filter(pl.col(column).str.contains(_BESIDE_A_LETTER))
    return marked.select(
        "row",
        column=pl.lit(column),
        code=pl.lit(f"{subject(column)}.{KIND}"),
        severity=pl.lit(severity),
    )


def _are_marked(rows: pl.DataFrame) -> bool:
    """Return whether any cell has a mark beside a letter; first whether any has a mark at all."""
    return any(
        rows[column].str.contains(_MARK, literal=True).any()
        and rows[column].str.contains(_BESIDE_A_LETTER).any()
        for column in PROSE
    )


def _columns_with(rows: pl.DataFrame, shape: str) -> set[str]:
    return {column for column in PROSE if rows[column].str.contains(shape).any()}
