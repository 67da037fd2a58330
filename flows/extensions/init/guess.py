"""What is guessed of an extract: one setting, and a column of its sample."""

import re
from collections.abc import Sequence
from typing import NamedTuple

import polars as pl

from flows.extracts.grammar import RECORD
from schemas import portal
from schemas.reference import BARE, toml
from schemas.status import UNDECIDED

# share of values that have the shape of their column
SURE = 0.95
LIKELY = 0.5
FRACTION = ".0"
_FRACTION = re.compile(r"[0-9]+\.0")


class Guess(NamedTuple):
    """One setting: its value as TOML, "" for none, and why.

    Where there is a doubt, it has a question and other values. `table`: "status" for a column that
    may say which rows count, and `values` are those that it has, where a person may see them all;
    "" for the settings of `[source]` and `[columns]`, whose keys differ. `shown`: of the value and
    each other one, what it makes of three rows, or of the last line, in shape. `proof`: what
    proves an extract whole by this setting and those of the same words, beside a trailer's count.
    """

    key: str
    value: str
    reason: str
    question: str = ""
    others: tuple[str, ...] = ()
    table: str = ""
    values: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    proof: str = ""

    @property
    def name(self) -> str:
        """What a person calls the setting."""
        return f"[{self.table}] {self.key}" if self.table else self.key

    @property
    def lines(self) -> list[str]:
        """The setting as lines of TOML, with reason and question as comments."""
        name = self.key if BARE.fullmatch(self.key) else toml(self.key)
        lines = [f"# ? {self.question}"] if self.question else []
        value = self.value
        others = self.others
        if self.is_open_column:
            value = toml(UNDECIDED)
            others = (self.value, *self.others)
        if value:
            lines.append(f"{name} = {value} # {self.reason}")
        else:
            lines.append(f"# {name} = ... # {self.reason}")
        lines += [f"#   or: {name} = {other}" for other in others if other]
        if self.is_open_column and self.key not in portal.REQUIRED:
            lines.append("#   or delete its line: no column is its source")
        return lines

    @property
    def is_open_column(self) -> bool:
        """Whether it is a portal column with a question: undecided until a person answers."""
        return bool(self.question) and not self.table and self.key in portal.columns()


class Column(NamedTuple):
    """A source column: its source in TOML, its name if it has one, its values in the sample.

    The values have no blanks around them, and are as the steps of the source leave them. `short`:
    the name without what all names begin with.
    """

    source: str
    name: str
    values: tuple[str, ...]
    short: str = ""

    @property
    def heading(self) -> str:
        """What the name says of this column alone."""
        return self.short or self.name

    @property
    def spec(self) -> str:
        """The column as a portal column is made of it alone."""
        is_plain = self.source == _source_of(self.name)
        return toml(self.name) if is_plain else f"{{ {self.source} }}"

    @property
    def place(self) -> tuple[int, int] | None:
        """Its first and last character, where it has no name."""
        place = re.fullmatch(r"at = \[(\d+), (\d+)\]", self.source)
        return None if place is None else (int(place[1]), int(place[2]))

    @property
    def cell(self) -> pl.Expr:
        """Its cells in rows of the extract."""
        if self.place is None:
            return pl.col(self.name)
        first, last = self.place
        return pl.col(RECORD).str.slice(first - 1, last - first + 1)

    @property
    def mark(self) -> str:
        """What tells that a value in TOML is made of the column."""
        return toml(self.name) if self.name else self.source

    @property
    def present(self) -> list[str]:
        """The values that are not empty."""
        return [value for value in self.values if value]


def named_column(name: str, values: tuple[str, ...], short: str = "") -> Column:
    """Return a column of a name; where all its values are numbers that end in `.0`, without that.

    A library that keeps numbers with holes between them as fractions writes them so.
    """
    present = [value for value in values if value]
    source = _source_of(name)
    if present and all(_FRACTION.fullmatch(value) for value in present):
        source += f", strip_suffix = {toml(FRACTION)}"
        values = tuple(value.removesuffix(FRACTION) for value in values)
    return Column(source, name, values, short)


def _source_of(name: str) -> str:
    return f"from = {toml(name)}"


class Sample(NamedTuple):
    """Guesses for `[source]`, the columns, whether a header names them, and the last line.

    `above`: the lines above header and rows. `days_may_be_years`: a spreadsheet made dates of text.
    """

    guesses: Sequence[Guess]
    columns: Sequence[Column]
    named: bool
    last: str = ""
    above: Sequence[str] = ()
    days_may_be_years: bool = False
