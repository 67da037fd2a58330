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

from flows.extensions.init.guess import SURE, Column, Guess
from flows.extracts.status_words import (
    is_block,
    is_end,
    is_negated,
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
# yes and no, without T and F: temporary and fraud; a letter that may be a code, too (S: stolen),
# only beside its other half
_FLAGS: Final = (
    *(("Y", "N"), ("1", "0"), ("S", "N"), ("O", "N"), ("J", "N"), ("X", "N")),
    *(("YES", "NO"), ("TRUE", "FALSE"), ("SI", "NO"), ("OUI", "NON"), ("SIM", "NAO")),
    ("JA", "NEIN"),
)
_CODES_TOO: Final = {"S", "O", "J"}
_ACTIONS: Final = {
    **dict.fromkeys("ACUINM", "send"),
    **dict.fromkeys(("ADD", "CHG", "UPD", "INS", "NEW", "MOD"), "send"),
    **dict.fromkeys(("D", "DEL", "REM"), "delete"),
}
# where A is among them: without it, N may be a no, and O an opposition
_STATES: Final = {
    **dict.fromkeys(("A", "N", "O", "V"), "send"),
    **dict.fromkeys(("B", "F", "H", "I", "P", "S", "T", "X", "Z"), "leave_out"),
    **dict.fromkeys(("C", "D", "L"), "delete"),
}
_WORD: Final = re.compile(r"[^\W\d_]{1,20}(?:[ _/.-]{1,3}[^\W\d_]{1,20}){0,3}")
_OF_PERSONS: Final = {"by", "user", "name", "operator", "agent"}
_ACTIVE: Final = ("activ", "actif", "aktiv", "ativ")
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
        is_word = value and _may_be_shown(column, value)
        labels[value if is_word else label(value)] += times
    return ", ".join(f"{text} {_share(times / total)}" for text, times in labels.most_common())


def _share(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "<1%"


def _values_to_decide(column: Column) -> list[str]:
    """Return the values that a person can be asked about one by one; none where some is hidden."""
    values = sorted(set(column.values))
    if len(values) > FEW or not all(_may_be_shown(column, value) for value in values):
        return []
    return values


def _may_be_shown(column: Column, value: str) -> bool:
    """Return whether a value is a code, or a word of a column whose few values are of status."""
    if may_be_shown(value):
        return True
    words = plain_words(column.name)
    different = len(set(column.values))
    are_of_status = speaks_of_status(column.name) and _OF_PERSONS.isdisjoint(words)
    are_few = different <= FEW and 2 * different <= len(column.values)
    return are_of_status and are_few and bool(_WORD.fullmatch(value))


def _proposals(column: Column) -> Iterator[dict[str, object]]:
    """Yield what the settings may be: of a day, in each form that fits, or of values."""
    forms = _day_forms(column.present)
    for form in forms:
        yield {"date": form}
    if not forms:
        yield _usual(column) if column.present else {"send": [""]}


def _day_forms(values: Sequence[str]) -> list[str]:
    """Return the formats of a day that nearly all values have."""
    texts = pl.Series("text", values, pl.String)
    days = texts.filter(~texts.str.contains(NO_DATES))
    if days.is_empty():
        return []
    return [form for form in READINGS if "DD" in form and _share_of_days(days, form) > SURE]


def _share_of_days(days: pl.Series, form: str) -> float:
    numbers = pl.select(day_number(pl.lit(days), form)).to_series()
    years = numbers.drop_nulls() // 10_000
    may_be = years.is_between(1950, 2100) | (years == 9999)
    return len(may_be.filter(may_be)) / len(days)


def _usual(column: Column) -> dict[str, object]:
    """Return what the values usually mean, by the kind of the header.

    What is not known is left out: it is never sent, and no link is withdrawn.
    """
    values = sorted(set(column.values))
    shown = _listed_values(column, values)
    decisions = _usual_decisions(column.name, values)
    lists: dict[str, list[str]] = {"send": [], "leave_out": [], "delete": []}
    for value in shown:
        lists[decisions[value]].append(value)
    if not shown:
        lists["leave_out"].append("")
    decided: dict[str, object] = {
        key: named for key, named in lists.items() if named or key == "send"
    }
    if len(shown) < len(values):
        decided["unknown"] = "leave_out"
    return decided


def _listed_values(column: Column, values: Sequence[str]) -> list[str]:
    """Return the values that a list may name: those that may be shown; of many, the empty one."""
    if len(values) > FEW:
        return [value for value in values if not value]
    return [value for value in values if _may_be_shown(column, value)]


def _usual_decisions(header: str, values: Sequence[str]) -> dict[str, str]:
    """Return the list that each value usually belongs to: by its words, or else as a code."""
    by_words = {value: meaning(value) for value in values if len(value) > 2}
    codes = {_plain(value) for value in values if not by_words.get(value)}
    by_code = _of_codes(header, codes)
    return {
        value: by_words.get(value) or by_code.get(_plain(value), "leave_out") for value in values
    }


def _plain(value: str) -> str:
    """Return a code as the tables have it: in capitals without accents."""
    return "".join(plain_words(value)).upper()


def _of_codes(header: str, codes: set[str]) -> dict[str, str]:
    """Return what codes usually mean under a header, together: none of some is known by itself."""
    present = codes - {""}
    words = plain_words(header)
    is_active = any(word.startswith(_ACTIVE) for word in words)
    by_header: tuple[tuple[bool, dict[str, str]], ...] = (
        (is_negated(header), {}),
        (is_end(header), {"": "send", **_of_flags(present, yes="delete", no="send")}),
        (is_block(header), {"": "send", **_of_flags(present, yes="leave_out", no="send")}),
        (is_active, _of_flags(present, yes="send", no="leave_out")),
        (not _ACTION_WORDS.isdisjoint(words), _if_all_known(_ACTIONS, present)),
        (speaks_of_status(header) and "A" in present, _if_all_known(_STATES, present)),
    )
    return next((meanings for applies, meanings in by_header if applies), {})


def _of_flags(present: set[str], *, yes: str, no: str) -> dict[str, str]:
    """Return what a yes and a no mean, where these are the codes; nothing where they are others."""
    flags = next((pair for pair in _FLAGS if _are_flags(present, pair)), ())
    return dict(zip(flags, (yes, no), strict=False))


def _if_all_known(meanings: dict[str, str], present: set[str]) -> dict[str, str]:
    """Return what codes mean, nothing where one of them is not known."""
    if present <= meanings.keys():
        return meanings
    return {}


def _are_flags(present: set[str], pair: tuple[str, str]) -> bool:
    """Return whether codes are a yes and a no, or one of them that can be nothing else."""
    return present == {*pair} or (
        len(present) == 1 and present <= {*pair} and present.isdisjoint(_CODES_TOO)
    )
