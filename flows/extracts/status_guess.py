"""Doubts about which rows count: columns that nothing uses and that may say so.

A column comes with a doubt where its header or values speak of status, block, deletion or death, or
where it has few values. Until a person has answered, its setting is "undecided", and nothing is
sent. Values are shown by `status_words.label` alone, with their shares.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import polars as pl

from flows.extracts.guess import SURE, Column, Guess
from flows.extracts.status_words import (
    is_mark,
    label,
    may_be_shown,
    meaning,
    plain_words,
    speak_of_status,
    speaks_of_status,
)
from schemas.cell_formats import READINGS, day_number
from schemas.reference import toml
from schemas.status import IGNORED, NO_DATES, UNDECIDED

FEW: Final = 12  # values
_YES: Final = {"Y", "1", "T", "S", "O", "J", "X", "YES", "TRUE", "SI", "OUI", "SIM", "JA"}
_NO: Final = {"", "N", "0", "F", "NO", "FALSE", "NON", "NAO", "NEIN"}
_ACTIONS: Final = {
    **dict.fromkeys("ACUINM", "send"),
    **dict.fromkeys(("ADD", "CHG", "UPD", "INS", "NEW", "MOD"), "send"),
    **dict.fromkeys(("D", "R", "X", "DEL", "REM"), "delete"),
}
_STATES: Final = {
    **dict.fromkeys(("A", "N", "O", "V"), "send"),
    **dict.fromkeys(("I", "P", "H"), "leave_out"),
    **dict.fromkeys(("B", "C", "D", "F", "L", "S", "T", "X", "Z"), "delete"),
}
_ACTION_WORDS: Final = {
    *("action", "actn", "act", "op", "opr", "oper", "operation", "maint", "maintenance", "change"),
    *("activity", "mvt", "mouvement", "movimiento", "movimento", "aenderung"),
}


def status_guesses(unused: Sequence[Column], doubtful: Sequence[Column]) -> Iterator[Guess]:
    """Yield a doubt for each column that may say which rows count.

    Of columns whose use is in doubt, only those that have no name of their own, or codes.
    """
    for column in unused:
        if _speaks_of_status(column):
            yield _doubt(column, "speaks of status")
        elif _has_few_values(column):
            yield _doubt(column, "few values, and nothing uses it")
    for column in doubtful:
        if _speaks_of_status(column) or (_has_few_values(column) and _may_be_codes(column)):
            yield _doubt(column, "it may say so, if it is not what it was guessed to be")


def status_doubt(column: Column) -> Guess:
    """Return the doubt of a column that a person names."""
    return _doubt(column, "as named")


def _speaks_of_status(column: Column) -> bool:
    return speaks_of_status(column.name) or speak_of_status(set(column.present))


def _may_be_codes(column: Column) -> bool:
    return not column.name or max(map(len, column.present), default=0) <= 2


def _has_few_values(column: Column) -> bool:
    different = len(set(column.values))
    return 2 <= different <= FEW and 2 * different <= len(column.values)


def _doubt(column: Column, reason: str) -> Guess:
    question = f"Which rows count? {_shares(column)}"
    name = status_name(column)
    proposals = [placed(name, proposal) for proposal in _proposals(column)]
    others = (*map(toml, proposals), toml(IGNORED))
    values = tuple(_values_to_decide(column))
    return Guess(name, toml(UNDECIDED), reason, question, others, "status", values)


def status_name(column: Column) -> str:
    """Return what `[status]` calls a column."""
    return column.name or column.source.replace("at = ", "at ")


def placed(name: str, answer: Mapping[str, object]) -> dict[str, object]:
    """Return an answer that says where a column is, if its name is its place: at [41, 42]."""
    place = re.fullmatch(r"at \[(\d+), (\d+)\]", name)
    if place is None:
        return dict(answer)
    return {"at": [int(place[1]), int(place[2])], **answer}


def _shares(column: Column) -> str:
    """Say which values the column has, each with its share; values are shown as labels."""
    counts = Counter(column.values)
    total = len(column.values)
    if len(counts) > FEW:
        empty = counts[""] / total
        return f"{len(counts) - ('' in counts):,} values, {empty:.0%} empty"
    labels = Counter[str]()
    for value, times in counts.items():
        labels[label(value)] += times
    return ", ".join(f"{text} {_share(times / total)}" for text, times in labels.most_common())


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "<1%"


def _values_to_decide(column: Column) -> list[str]:
    """Return the values that a person can be asked about one by one; none where some is hidden."""
    values = sorted(set(column.values))
    if len(values) > FEW or not all(map(may_be_shown, values)):
        return []
    return values


def _proposals(column: Column) -> Iterator[dict[str, object]]:
    """Yield what the settings may be: of a day, or of values that all have a usual meaning."""
    form = _day_form(column.present)
    if form:
        yield {"date": form}
    elif not column.present:
        yield {"send": [""]}
    else:
        usual = _usual(column)
        if usual:
            yield usual


def _day_form(values: Sequence[str]) -> str:
    """Return the one format of a day that nearly all values have, "" for none or several."""
    texts = pl.Series("text", values, pl.String)
    days = texts.filter(~texts.str.contains(NO_DATES))
    if days.is_empty():
        return ""
    forms = [form for form in READINGS if "DD" in form and _share_of_days(days, form) > SURE]
    return forms[0] if len(forms) == 1 else ""


def _share_of_days(days: pl.Series, form: str) -> float:
    numbers = pl.select(day_number(pl.lit(days), form)).to_series()
    years = numbers.drop_nulls() // 10_000
    may_be = years.is_between(1950, 2100) | (years == 9999)
    return len(may_be.filter(may_be)) / len(days)


def _usual(column: Column) -> dict[str, object]:
    """Return what the values usually mean, by the kind of the header; none where one is unclear."""
    lists: dict[str, list[str]] = {"send": [], "leave_out": [], "delete": []}
    for value in sorted(set(column.values)):
        decision = _meaning(column.name, value)
        if decision not in lists:
            return {}
        lists[decision].append(value)
    return {decision: values for decision, values in lists.items() if values}


def _meaning(header: str, value: str) -> str:
    """Return what a value usually means under a header, "" where that is unclear."""
    if not may_be_shown(value):
        return ""
    by_words = meaning(value) if len(value) > 2 else ""
    if by_words:
        return by_words
    upper = value.upper()
    if is_mark(header):
        return _of_mark(upper)
    if not _ACTION_WORDS.isdisjoint(plain_words(header)):
        return _ACTIONS.get(upper, "")
    if any(word.startswith(("activ", "actif", "aktiv", "ativ")) for word in plain_words(header)):
        return _of_flag(upper, "send", "leave_out")
    if speaks_of_status(header):
        return _STATES.get(upper, "")
    return ""


def _of_mark(value: str) -> str:
    """Return what a mark of the end means: nothing, a no, or else a yes or the kind of the end."""
    usual = _of_flag(value, "delete", "send")
    if usual:
        return usual
    return "delete" if value.isalpha() else ""


def _of_flag(value: str, yes: str, no: str) -> str:
    if value in _YES:
        return yes
    return no if value in _NO else ""
