"""Where each portal column comes from in the issuer's file: source columns, and their text as it is
written there.

What was rejected is reported in these words (`flows.reports.bank_words`); rows are mapped by
`mapping.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Self

import polars as pl

from flows.extracts.grammar import RECORD
from schemas import cell_formats
from schemas import mapping as cells
from schemas.manifest import SourceColumn

MOST_TEXTS = 12  # of a lookup that are listed

# returns the header that one of these names stands for, None where none does
Match = Callable[[Sequence[str]], str | None]
_NOTHING = pl.lit(None, pl.String)


class Origin(NamedTuple):
    """The source columns of a portal column, their text, and how that text is read."""

    column: SourceColumn
    text: pl.Expr  # before any step

    def with_format(self, form: str) -> Self:
        """Return the origin with the format that `auto` was resolved to."""
        return self._replace(column=self.column.model_copy(update={"form": form}))


def origins_of(specs: Mapping[str, cells.Spec], match: Match) -> dict[str, Origin]:
    """Return the origin of every portal column that is mapped."""
    return {target: _origin(spec, match) for target, spec in specs.items()}


def _origin(spec: cells.Spec, match: Match) -> Origin:
    if isinstance(spec, cells.Cell):
        return _with_steps(_source(spec, match), spec)
    header = match((spec,) if isinstance(spec, str) else spec)
    if header is None:
        return Origin(SourceColumn(names=()), _NOTHING)
    return Origin(SourceColumn(names=(header,)), pl.col(header))


def _source(cell: cells.Cell, match: Match) -> Origin:
    """Return the origin of a cell before its steps."""
    if cell.at is not None:
        first, last = cell.at
        line = _NOTHING if match((RECORD,)) is None else pl.col(RECORD)
        field = line.str.slice(first - 1, last - first + 1)
        return Origin(SourceColumn(names=(f"characters {first} to {last}",)), field)
    if cell.source is not None:
        return _origin(cell.source, match)
    parts = [_origin(part, match) for part in cell.join or cell.first or ()]
    texts = [cell_formats.present(part.text) for part in parts]
    names = dict.fromkeys(chain.from_iterable(part.column.names for part in parts))
    column = SourceColumn(names=tuple(names))
    if cell.join:
        return Origin(column, pl.concat_str(texts, separator=" ", ignore_nulls=True))
    return Origin(column, pl.coalesce(texts) if texts else _NOTHING)


def _with_steps(origin: Origin, cell: cells.Cell) -> Origin:
    """Return the origin with what the steps of a cell ask of its text."""
    column = origin.column
    places = [column.place, _place(cell)]
    lookup = cell.lookup if isinstance(cell.lookup, dict) else {}
    read = {
        "place": ", ".join(filter(None, places)),
        "form": cell.format or column.form,
        "texts": tuple(lookup)[:MOST_TEXTS] or column.texts,
        "more_texts": max(0, len(lookup) - MOST_TEXTS) or column.more_texts,
    }
    return origin._replace(column=column.model_copy(update=read))


def _place(cell: cells.Cell) -> str:
    """Return which part of the text is taken."""
    if cell.split is not None:
        return f"part {_span(cell.part)}, split at {cell.split!r}"
    if cell.slice is not None:
        return f"characters {_span(cell.slice)}"
    return ""


def _span(places: int | cells.Span | None) -> str:
    return f"{places[0]} to {places[1]}" if isinstance(places, tuple) else str(places)
