"""Rules nobody wrote down: made up for a test, each with the same question in plain Python beside
its expression.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import polars as pl
import pytest
from pandera.errors import SchemaErrors
from pandera.polars import DataFrameSchema

from schemas import rules
from schemas.portal import (
    ADDRESS1,
    ADDRESS2,
    CITY,
    CUID,
    CUSTOMER_KEY,
    EMAIL,
    FIRST_NAME,
    LAST_NAME,
    NICKNAME,
    PHONE,
    POSTAL_CODE,
    SUBNATIONAL,
    columns,
)
from schemas.rule import Rule

Cells = Mapping[str, str | None]

LIKELY = (CUID, ADDRESS1, CITY, SUBNATIONAL, POSTAL_CODE, EMAIL, PHONE, FIRST_NAME, LAST_NAME)
RARE = (NICKNAME, CUSTOMER_KEY, ADDRESS2)  # empty in most rows
UNUSUAL = ("ß", "€", "Œ", "'", "#", "y")
# the last two are settings: reject and warn unless the issuer says so
SEVERITIES = ("reject", "warn", "luhn", "email")
LONG_NICKNAME = "a nickname of many words"


class MadeUp(NamedTuple):
    """A rule, and whether the cells of a row break it as plain Python says."""

    rule: Rule
    broken: Callable[[Cells], bool]


def made_up(seed: int) -> list[MadeUp]:
    """Return some rules: of one column, of two, of text that is rarely there, and one that narrows
    another.
    """
    chance = random.Random(seed)
    found = [chance.choice(KINDS)(f"made.up{at}", chance) for at in range(chance.randint(1, 4))]
    return [*found, *_narrowing(chance)] if chance.random() < 0.5 else found


def table(made: Sequence[MadeUp], seed: int) -> tuple[Rule, ...]:
    """Return the rules with these among them, anywhere but in their own order."""
    places = random.Random(seed)
    mixed = list(rules.RULES)
    at = 0
    for one in made:
        at = places.randint(at, len(mixed))
        mixed.insert(at, one.rule)
        at += 1
    return tuple(mixed)


@contextmanager
def added(*made: Rule) -> Iterator[None]:
    """Let the table begin with these rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rules, "RULES", (*made, *rules.RULES))
        yield


class Asked:
    """What pandera was given: the cuid of every row, and what it said of those that failed."""

    def __init__(self) -> None:
        self.cuids: list[str] = []
        self.kept = 0  # failure cases
        self.leaked: set[str] = set()

    def take(self, frame: pl.DataFrame, errors: SchemaErrors | None) -> None:
        """Remember one validation."""
        self.cuids += frame[CUID].to_list()
        if errors is not None:
            told = " ".join([str(errors), repr(errors.message), *map(str, errors.schema_errors)])
            cells = {
                cell
                for name in columns()
                for cell in frame[name].to_list()
                if cell and len(cell) > 4
            }
            self.kept += errors.failure_cases.height
            self.leaked |= {cell for cell in cells if cell in told}


@contextmanager
def watched() -> Iterator[Asked]:
    """Watch what pandera is asked about rows of the portal's columns."""
    asked, validate = Asked(), DataFrameSchema.validate

    def spy(schema: DataFrameSchema, frame: Any, *given: Any, **options: Any) -> Any:
        errors = None
        try:
            return validate(schema, frame, *given, **options)
        except SchemaErrors as caught:
            errors = caught
            raise
        finally:
            if isinstance(frame, pl.DataFrame) and tuple(frame.columns) == columns():
                asked.take(frame, errors)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DataFrameSchema, "validate", spy)
        yield asked


def _too_long(name: str, chance: random.Random) -> MadeUp:
    column = chance.choice(LIKELY + RARE)
    most = chance.randint(4, 24)
    rule = _rule(f"{name}.long", column, pl.col(column).str.len_chars() <= most, _severity(chance))
    return MadeUp(rule, lambda cells: len(cells[column] or "") > most)


def _holding(name: str, chance: random.Random) -> MadeUp:
    column = chance.choice(LIKELY + RARE)
    text = chance.choice(UNUSUAL)
    holds = ~pl.col(column).str.contains(text, literal=True)
    rule = _rule(f"{name}.character", column, holds, _severity(chance))
    return MadeUp(rule, lambda cells: text in (cells[column] or ""))


def _there(name: str, chance: random.Random) -> MadeUp:
    column = chance.choice(RARE)
    rule = _rule(f"{name}.unwanted", column, pl.col(column).is_null(), _severity(chance))
    return MadeUp(rule, lambda cells: cells[column] is not None)


def _both(name: str, chance: random.Random) -> MadeUp:
    column, other = chance.sample(LIKELY + RARE, 2)
    holds = pl.col(column).is_null() | pl.col(other).is_null() | ~pl.col(other).str.ends_with("n")
    rule = _rule(f"{name}.both", column, holds, _severity(chance))
    return MadeUp(
        rule, lambda cells: cells[column] is not None and (cells[other] or "").endswith("n")
    )


def _alike(name: str, chance: random.Random) -> MadeUp:
    column, other = chance.sample(LIKELY + RARE, 2)
    first, second = (pl.col(cell).str.slice(0, 1).str.to_lowercase() for cell in (column, other))
    rule = _rule(f"{name}.alike", column, first != second, _severity(chance))
    return MadeUp(
        rule,
        lambda cells: (
            _initial(cells[column]) is not None
            and _initial(cells[column]) == _initial(cells[other])
        ),
    )


def _narrowing(chance: random.Random) -> list[MadeUp]:
    """Return two rules, the first of which only names some of what breaks the second more
    precisely.
    """
    column = chance.choice(LIKELY + RARE)
    most = chance.randint(4, 12)
    severity = _severity(chance)
    length = pl.col(column).str.len_chars()
    broad = _rule("made.broad.long", column, length <= most, severity)
    narrow = _rule("made.narrow.longer", column, length <= most + 4, severity, narrows=broad.code)
    return [
        MadeUp(narrow, lambda cells: len(cells[column] or "") > most + 4),
        MadeUp(broad, lambda cells: len(cells[column] or "") > most),
    ]


def _rule(code: str, column: str, holds: pl.Expr, severity: str, narrows: str = "") -> Rule:
    example = {column: LONG_NICKNAME}
    return Rule(code, column, holds, example=example, severity=severity, narrows=narrows)


def _initial(cell: str | None) -> str | None:
    return cell[:1].lower() if cell else None


def _severity(chance: random.Random) -> str:
    return chance.choice(SEVERITIES)


KINDS: tuple[Callable[[str, random.Random], MadeUp], ...] = (
    _too_long,
    _holding,
    _there,
    _both,
    _alike,
)
