"""A first `[source]` and `[columns]` for an extract.

There is a reason beside each guess, and a question beside each doubt. Header names go into the
text, cells never. A guess without a question is one that header and values support together.
"""

from collections.abc import Iterator
from datetime import date
from typing import BinaryIO, NamedTuple, Self

from flows.extracts.column_guesses import ColumnGuesses
from flows.extracts.dialect import take_sample
from flows.extracts.guess import Guess
from flows.extracts.header_words import words_of
from schemas import portal
from schemas.reference import toml

# words of a header whose column may mark a closed card
MARKS = frozenset(
    {
        *("status", "action", "operation", "op", "activity", "change", "maintenance", "maint"),
        *("deleted", "delete", "del", "closed"),
    }
)


class Draft(NamedTuple):
    """What is guessed of an extract, its headers, and whether its cards are test cards."""

    guesses: tuple[Guess, ...]
    headers: tuple[str, ...]
    test: bool

    @property
    def doubts(self) -> list[Guess]:
        """The guesses that have a question."""
        return [guess for guess in self.guesses if guess.question]

    def answered(self, doubt: Guess, value: str) -> Self:
        """Return the draft with the value that a person chose.

        It is also that of what is made of the same column.
        """
        keys = {doubt.key}
        if doubt.value:
            keys |= {other.key for other in self.doubts if other[1:] == doubt[1:]}
        guesses = [
            Guess(guess.key, value, "as answered") if guess.key in keys else guess
            for guess in self.guesses
        ]
        return self._replace(guesses=tuple(guesses))

    @property
    def toml(self) -> str:
        """The tables `[source]` and `[columns]`, with reasons and questions."""
        lines = ["[source]"]
        for guess in self.guesses:
            if guess.key == portal.CUID:
                lines += ["", "[columns]"]
            lines += guess.lines
        lines += self._unused()
        return "\n".join(lines) + "\n"

    def _unused(self) -> Iterator[str]:
        """Yield comments on the headers that no value names."""
        values = " ".join(guess.value for guess in self.guesses)
        unused = [header for header in self.headers if toml(header) not in values]
        if unused:
            yield f"# not used: {', '.join(unused)}"
        for header in unused:
            words = words_of(header)
            if "status" in words:
                yield (
                    f"# ? Do rows count whatever {header} says? "
                    "Otherwise, name what counts in [filter]"
                )
            if words & MARKS:
                yield (
                    f"# ? Does {header} mark cards that were closed? "
                    "Then name its values for that in [deleted], so that their links are withdrawn:"
                )
                yield f'# [deleted]\n# {toml(header)} = ["D"]'


def first_draft(stream: BinaryIO, name: str, today: date) -> Draft:
    """Return what is guessed of an extract from its lines.

    Raises ExtractError where they cannot be told apart.
    """
    sample = take_sample(stream, name)
    columns = ColumnGuesses(sample, today)
    guesses = sorted(columns.guesses(), key=lambda guess: portal.columns().index(guess.key))
    headers = tuple(column.name for column in sample.columns if column.name)
    return Draft((*sample.guesses, *guesses), headers, columns.test)
