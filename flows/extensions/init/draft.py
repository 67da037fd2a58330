"""A first `[source]`, `[columns]` and `[status]` for an extract.

There is a reason beside each guess, and a question beside each doubt. Header names go into the
text, cells never. A guess without a question is one that header and values support together.
"""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import date
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import polars as pl

from flows.extensions.init.column_guesses import ColumnGuesses
from flows.extensions.init.dialect import take_sample
from flows.extensions.init.guess import Column, Guess, Sample, named_column
from flows.extensions.init.record_sample import Copybook, sample_of_form
from flows.extensions.init.status_guess import status_guesses, status_name
from schemas import portal
from schemas.cell_formats import date_cells_as
from schemas.reference import toml

STATUS = 'which rows count: "undecided" has to be answered before anything is sent'


class Draft(NamedTuple):
    """What is guessed of an extract, its columns, and whether its cards are test cards.

    `last` is its last line, `above` those above header and rows, `today` when it was drafted.
    `alone` is the draft without the second file, or the key, of this one.
    """

    guesses: tuple[Guess, ...]
    columns: tuple[Column, ...]
    test: bool
    today: date
    last: str = ""
    above: tuple[str, ...] = ()
    alone: "Draft | None" = None

    @property
    def source(self) -> dict[str, Any]:
        """The settings of [source], as a TOML has them."""
        source: dict[str, Any] = tomllib.loads(self.toml)["source"]
        return source

    @property
    def doubts(self) -> list[Guess]:
        """The guesses that have a question."""
        return [guess for guess in self.guesses if guess.question]

    def answered(self, doubt: Guess, value: str) -> "Draft":
        """Return the draft with the value that a person chose.

        It is also that of what is made of the same column.
        """
        if doubt.key in ("join", "segment_key") and not value and self.alone is not None:
            return self.alone
        same = [doubt]
        if doubt.value and not doubt.table:
            same += [other for other in self.doubts if other[1:] == doubt[1:]]
        guesses: list[Guess] = []
        for guess in self.guesses:
            if guess in same:
                guesses.append(Guess(guess.key, value, "as answered", table=guess.table))
            elif not (guess.table and _is_made_of(value, guess)):
                guesses.append(guess)
        return self._replace(guesses=tuple(guesses))

    def with_guesses(self, guesses: Iterable[Guess]) -> "Draft":
        """Return the draft with more guesses, also where it is drafted alone."""
        added = tuple(guesses)
        alone = None if self.alone is None else self.alone.with_guesses(added)
        return self._replace(guesses=(*self.guesses, *added), alone=alone)

    def proven_only_by(self, labels: Collection[str]) -> "Draft":
        """Return the draft without the proofs of other labels."""
        guesses = [each for each in self.guesses if not each.proof or each.proof in labels]
        return self._replace(guesses=tuple(guesses))

    @property
    def without_status(self) -> list[Column]:
        """The columns of which nobody asks whether they say which rows count."""
        asked_of = {guess.key for guess in self.guesses if guess.table}
        return [column for column in self.columns if status_name(column) not in asked_of]

    @property
    def toml(self) -> str:
        """The tables `[source]`, `[columns]` and `[status]`, with reasons and questions."""
        status = [guess for guess in self.guesses if guess.table]
        columns = [guess for guess in self.guesses if guess.key in portal.columns()]
        source = [each for each in self.guesses if each not in status and each not in columns]
        lines = ["[source]", *_lines_of(source), "", "[columns]", *_lines_of(columns)]
        unused = self._unused()
        if unused:
            lines.append(f"# not used: {', '.join(unused)}")
        if status:
            lines += ["", f"[status] # {STATUS}", *_lines_of(status)]
        return "\n".join(lines) + "\n"

    @property
    def proofs(self) -> list[str]:
        """What proves the extract whole beside the count of a trailer, in words."""
        return list(dict.fromkeys(guess.proof for guess in self.guesses if guess.proof))

    @property
    def proven_by(self) -> list[str]:
        """What proves the extract whole, in words."""
        counts = [guess for guess in self.guesses if guess.key == "trailer" and not guess.question]
        return [*(["the trailer's row count"] if counts else []), *self.proofs]

    def _unused(self) -> list[str]:
        """Return the headers that nothing names."""
        values = " ".join(guess.value for guess in self.guesses)
        statuses = {guess.key for guess in self.guesses if guess.table}
        return [
            column.name
            for column in self.columns
            if column.name and toml(column.name) not in values and column.name not in statuses
        ]


def _lines_of(guesses: Iterable[Guess]) -> Iterator[str]:
    for guess in guesses:
        yield from guess.lines


def _is_made_of(value: str, doubt: Guess) -> bool:
    """Return whether a value is made of the column of a doubt of `[status]`."""
    return toml(doubt.key) in value or doubt.key.replace("at [", "at = [") in value


def _doubts_of_status(columns: Sequence[Column], guesses: Sequence[Guess]) -> Iterator[Guess]:
    """Yield the doubts of columns that no guess uses, and of those that may be used wrongly."""
    values = " ".join(guess.value for guess in guesses)
    sure = " ".join(guess.value for guess in guesses if not guess.question)
    unused = [column for column in columns if column.mark not in values]
    doubtful = [column for column in columns if column.mark in values and column.mark not in sure]
    yield from status_guesses(unused, doubtful)


def _with_doubt_of_days(guess: Guess, columns: Sequence[Column]) -> Guess:
    """Return a guess of dates in cells with a question where their days may be years."""
    if guess.key not in (portal.MONTH, portal.YEAR) or guess.question:
        return guess
    dated = (column.present for column in columns if column.mark in guess.value)
    texts = pl.Series("date", list(chain.from_iterable(dated)), pl.String)
    readable = pl.select(date_cells_as(pl.lit(texts), "MM/YY")).to_series()
    unclear = int((readable == texts).sum())
    if "DD" not in guess.value or not unclear:
        return guess
    question = (
        f"Are the days right? {unclear:,} are neither the first nor the last of a month, as where "
        "Excel makes December 27 of 12/27"
    )
    return guess._replace(question=question)


def _with_doubt_of_values(guess: Guess, columns: Sequence[Column]) -> Guess:
    """Return a guess with a question where one value stands in too many rows of its column.

    Where the column has a question already, that is asked.
    """
    target = portal.COLUMNS[guess.key]
    sources = [column for column in columns if column.mark in guess.value]
    if guess.question or len(sources) != 1:
        return guess
    values = sources[0].present
    most = portal.most_equal_cells(values, target.most_equal)
    if not most:
        return guess
    question = f"{most:,} of {len(values):,} rows have the same value: is this the right column?"
    if guess.key in (portal.CVV, portal.CVV_HASH):
        question += " A link may not open unless the CVV is the card's own"
    others = guess.others if target.required else (*guess.others, "")
    return guess._replace(question=question, others=others)


def first_draft(
    stream: BinaryIO, name: str, today: date, copybook: Copybook | None = None
) -> Draft:
    """Return what is guessed of an extract from its lines, or its records by a copybook.

    Raises ExtractError where they cannot be told apart, and ConfigurationError.
    """
    return draft_of(sample_of_form(stream, name, copybook) or take_sample(stream, name), today)


def columns_of(rows: pl.DataFrame) -> list[Column]:
    """Return the columns of the first rows, as the reader has them."""
    columns = []
    for name in rows.columns[2:]:  # behind row and line
        values = tuple(text.strip() for text in rows[name].fill_null("").to_list())
        _, _, plain = name.rpartition(".")
        columns.append(named_column(name, values, plain))
    return columns


def draft_of(sample: Sample, today: date) -> Draft:
    """Return what is guessed of the columns of a sample."""
    columns = ColumnGuesses(sample, today)
    guesses = [_with_doubt_of_values(guess, sample.columns) for guess in columns.guesses()]
    if sample.days_may_be_years:
        guesses = [_with_doubt_of_days(guess, sample.columns) for guess in guesses]
    guesses.sort(key=lambda guess: portal.columns().index(guess.key))
    all_guesses = (*sample.guesses, *guesses, *_doubts_of_status(sample.columns, guesses))
    above = tuple(sample.above)
    return Draft(all_guesses, tuple(sample.columns), columns.test, today, sample.last, above)
