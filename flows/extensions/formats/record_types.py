"""Record types in one file without a copybook: the columns of each, and of a row with its parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from schemas.mapping import Span
from schemas.source import Names, problem_of_spans


class RecordTypes(NamedTuple):
    """The columns of each type, the type whose records are rows, and the width of all records.

    `width` is None where there is none, or each type has its own.
    """

    columns: Mapping[str, Names]
    row: str
    width: int | None = None

    def names(self, kind: str) -> tuple[str, ...]:
        """Return the names of the columns of a type."""
        return tuple(self.columns[kind])

    def width_of(self, kind: str) -> int:
        """Return the characters of a record in fixed format."""
        return self.width or max(last for _, last in self._spans(kind).values())

    def together(self) -> Names:
        """Return the columns of a row that has its parts behind it.

        They are those of the rows, then those of the others. A name that is taken has its type
        before it, as in 02.CUST.
        """
        others = [kind for kind in self.columns if kind != self.row]
        taken: list[str] = []
        spans: list[Span] = []
        width = 0
        for kind in (self.row, *others):
            own_names = self.names(kind)
            taken += [f"{kind}.{name}" if name in taken else name for name in own_names]
            for first, last in self._spans(kind).values():
                spans.append((width + first, width + last))
            width += self.width_of(kind) if spans else 0
        return dict(zip(taken, spans, strict=True)) if spans else tuple(taken)

    def _spans(self, kind: str) -> dict[str, Span]:
        columns = self.columns[kind]
        return columns if isinstance(columns, dict) else {}


def problem_of_types(types: RecordTypes, field: str, *, fixed: bool) -> str:
    """Return why the types of records cannot be told apart, "" where they can."""
    places = set[Span]()
    for columns in types.columns.values():
        if isinstance(columns, str):
            return "without a copybook, segments needs the column names of each type"
        if fixed and (problem := problem_of_spans(columns, types.width)):
            return problem
        if not fixed and isinstance(columns, dict):
            return "first and last characters of columns are for format = 'fixed'"
        if field not in columns:
            return "segment_field is to be a column of each type"
        places.add(_place(columns, field))
    return "" if len(places) == 1 else "segment_field needs the same place in each type"


def _place(columns: Names, name: str) -> Span:
    """Return where a column is: its characters, or its number among the fields."""
    if isinstance(columns, dict):
        return columns[name]
    number = columns.index(name)
    return number, number


def problem_of_keys(
    keys: Mapping[str, tuple[str, ...]], types: RecordTypes, names: Mapping[str, tuple[str, ...]]
) -> str:
    """Return why parts cannot be joined to rows by these columns, "" where they can."""
    if missing := [kind for kind in types.columns if kind not in keys]:
        return f"segment_key needs the column of type {', '.join(missing)}, too"
    if unknown := [kind for kind in keys if kind not in types.columns]:
        return f"segment_key: {', '.join(unknown)} is no type of segments"
    if len(set(map(len, keys.values()))) > 1:
        return "segment_key needs as many columns of each type, in the same order"
    for kind, columns in names.items():
        if lacking := [column for column in keys[kind] if column not in columns]:
            return f"segment_key: type {kind} has no column {', '.join(lacking)}"
    return ""
