"""What `init` asks a person about a draft: its doubts, and what proves the extract whole.

What a choice would make of the first rows is shown in shape, a cell never.
"""

import tomllib
from collections.abc import Iterator, Sequence
from datetime import date
from itertools import chain, combinations
from typing import Final

import polars as pl
from pydantic import TypeAdapter, ValidationError

from flows.commands.context import Terminal
from flows.errors import CardlinkError
from flows.extensions.init import status_guess
from flows.extensions.init.column_signs import EXPIRY, NAME, written_as
from flows.extensions.init.draft import Draft
from flows.extensions.init.guess import Column, Guess
from flows.extracts import status_words
from flows.extracts.grammar import RECORD
from flows.extracts.mapping import column_of
from flows.submissions.shapes import found_in
from schemas import portal, reference
from schemas.mapping import Spec

ROWS: Final = 3
_SPEC: Final = TypeAdapter[Spec](Spec)
STATUS_ANSWERS = {
    '"ignored"': "  (every row counts, whatever it says)",
    '"undecided"': "  (nothing is sent until somebody knows)",
}
DECISIONS = {
    **dict.fromkeys(("s", "send"), "send"),
    **dict.fromkeys(("l", "leave out", "leave_out"), "leave_out"),
    **dict.fromkeys(("d", "delete"), "delete"),
}
OTHER = "another column"
BY_VALUE = "value by value"


def answered(draft: Draft, terminal: Terminal) -> Draft:
    """Ask each doubt, then what proves the extract whole; the number of a value is the answer."""
    while draft.doubts:
        doubt = draft.doubts[0]
        terminal.say(f"{doubt.name}: {doubt.question}")
        draft = _answer(doubt, draft, terminal)
    return _proven(draft, terminal)


def _proven(draft: Draft, terminal: Terminal) -> Draft:
    """Ask what proves the extract whole, of what was compared with all its rows."""
    proofs = draft.proofs
    if not proofs:
        return draft
    subsets = (combinations(proofs, size) for size in range(len(proofs), -1, -1))
    drafts = [draft.proven_only_by(labels) for labels in chain.from_iterable(subsets)]
    nothing = "nothing: a file that was cut off behind a record would pass"
    labels = [" and ".join(choice.proven_by) or nothing for choice in drafts]
    terminal.say("What proves the file whole? This was compared with all its rows:")
    number = None
    while number is None:
        number = _number(labels, terminal, default="1")
    return drafts[number]


def _answer(doubt: Guess, draft: Draft, terminal: Terminal) -> Draft:
    """Return the draft with what a person says of a doubt; as it is where that says nothing.

    The guess is preselected, but for which rows count. Another column that they name is a doubt,
    too, where it is to say that.
    """
    values = [doubt.value, *doubt.others]
    if doubt.table:
        values = [*doubt.others, doubt.value]
    labels = [_label(value, doubt, draft) for value in values]
    labels += _further(doubt, draft)
    number = _number(labels, terminal, default="" if doubt.table else "1")
    if number is None:
        return draft
    if number < len(values):
        return draft.answered(doubt, values[number])
    if labels[number] == BY_VALUE:
        return draft.answered(doubt, _value_by_value(doubt, terminal))
    if doubt.table:
        return _other_status(draft, terminal)
    return _other_column(doubt, draft, terminal)


def _further(doubt: Guess, draft: Draft) -> Iterator[str]:
    """Yield what a person can say beside the values of a doubt."""
    if doubt.values:
        yield BY_VALUE
    if draft.without_status if doubt.table else doubt.key in portal.columns():
        yield OTHER


def _other_status(draft: Draft, terminal: Terminal) -> Draft:
    """Return the draft with a doubt of the column that a person chose."""
    others = draft.without_status
    number = _number([_with_cells(column) for column in others], terminal)
    if number is None:
        return draft
    return draft.with_guesses([status_guess.status_doubt(others[number])])


def _other_column(doubt: Guess, draft: Draft, terminal: Terminal) -> Draft:
    """Return the draft with the column that a person chose of all, and how it is written."""
    forms = (spellings(column, doubt.key, draft.today) for column in draft.columns)
    values = list(chain.from_iterable(forms))
    number = _number([_label(value, doubt, draft) for value in values], terminal)
    return draft if number is None else draft.answered(doubt, values[number])


def _label(value: str, doubt: Guess, draft: Draft) -> str:
    """Return a value with what it means, or would make of three rows, in shape."""
    if doubt.table:
        return f"{value}{STATUS_ANSWERS.get(value, '')}"
    if not value:
        return "(none)"
    if doubt.shown:
        return f"{value}    {doubt.shown[(doubt.value, *doubt.others).index(value)]}"
    cells = shapes(value, doubt.key, draft.columns)
    return f"{value}    {' | '.join(cells)}" if cells else value


def _with_cells(column: Column) -> str:
    """Return a column with what three rows have there: codes and known words, else shapes."""
    labels = map(status_words.label, column.values[:ROWS])
    return f"{column.name or column.source}    {' | '.join(labels)}"


def _number(values: Sequence[str], terminal: Terminal, default: str = "") -> int | None:
    """Return the index of what a person chose, None where it is no number of these."""
    for number, value in enumerate(values, 1):
        terminal.say(f"  {number}  {value}")
    typed = terminal.ask("Number", default=default, show_default=bool(default))
    return int(typed) - 1 if typed.isdecimal() and 1 <= int(typed) <= len(values) else None


def _value_by_value(doubt: Guess, terminal: Terminal) -> str:
    """Ask what each value means; return the table that says so."""
    lists: dict[str, list[str]] = {}
    for value in doubt.values:
        decision = None
        while decision is None:
            typed = terminal.ask(
                f"{value or '(empty)'}: send, leave out or delete", default="", show_default=False
            )
            decision = DECISIONS.get(typed.strip().lower())
        lists.setdefault(decision, []).append(value)
    return reference.toml(status_guess.placed(doubt.key, lists))


def spellings(column: Column, target: str, today: date) -> list[str]:
    """Return what a portal column may be made of a source column: itself, and forms that fit."""
    if not column.present:
        return [column.spec]
    if target in (portal.YEAR, portal.MONTH):
        return [column.spec, *written_as(column, EXPIRY, today)]
    if target in (portal.FIRST_NAME, portal.LAST_NAME) and any(map(_has_words, column.present)):
        return [column.spec, *written_as(column, NAME, today)]
    return [column.spec]


def _has_words(value: str) -> bool:
    return " " in value


def shapes(value: str, target: str, columns: Sequence[Column]) -> list[str]:
    """Return what a setting would make of the first rows, in shape; nothing where it cannot."""
    if target not in portal.columns() or not columns:
        return []
    rows = _first_rows(columns)
    try:
        spec = _SPEC.validate_python(tomllib.loads(f"value = {value}")["value"])
        cells = rows.select(cell=column_of(target, spec, rows.columns))
    except (ValidationError, CardlinkError, pl.exceptions.PolarsError):
        return []
    shown = cells.select(found_in(pl.lit(target), pl.col("cell"))).to_series()
    return [shape or "(unreadable)" for shape in shown.to_list()]


def _first_rows(columns: Sequence[Column]) -> pl.DataFrame:
    """Return the first rows of a sample as the reader would have them."""
    if columns[0].name:
        return pl.DataFrame({column.name: list(column.values[:ROWS]) for column in columns})
    records = []
    for row in range(min(ROWS, len(columns[0].values))):
        record = ""
        for column in columns:
            first, _ = column.place or (1, 0)
            record = record.ljust(first - 1) + column.values[row]
        records.append(record)
    return pl.DataFrame({RECORD: records})
