"""Which rows of an extract count (`[status]`): what values of its columns, and dates, decide.

A column decides of a row by its value, without blanks around it: the row is sent, left out, or
deletes its card. What no list names is unknown, and refuses the extract unless the settings say
otherwise. Where several columns decide, the last of SEND, REJECT, REFUSE, LEAVE_OUT, DELETE counts:
a card is sent where all of them send it. Where an extract has several rows of a card, a later one
that leaves it out or deletes it decides for those before it.
"""

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BeforeValidator, StringConstraints, model_validator

from schemas.cell_formats import date_tokens
from schemas.settings import Settings, setting

# What becomes of a row, in the order in which they prevail.
SEND: Final = 0
REJECT: Final = 1  # its value is unknown: the row is rejected
REFUSE: Final = 2  # its value is unknown: the row is rejected, and the extract refused
LEAVE_OUT: Final = 3
DELETE: Final = 4
DECISIONS: Final = {
    "send": SEND,
    "reject": REJECT,
    "refuse": REFUSE,
    "leave_out": LEAVE_OUT,
    "delete": DELETE,
}

UNDECIDED: Final = "undecided"  # a person has to say; until then nothing is sent
IGNORED: Final = "ignored"  # a person said: every row counts, whatever this column says

# a date that stands for none
NO_DATES: Final = r"^[0/. -]*$"

Values = Annotated[
    tuple[str, ...],
    BeforeValidator(
        lambda texts: (texts,) if isinstance(texts, str) else texts,
        json_schema_input_type=str | tuple[str, ...],
    ),
]


def _with_a_day(form: str) -> str:
    if "DD" in date_tokens(form):
        return form
    raise ValueError(f"{form!r} is no format of a day: it has YYYY or YY, MM or MON, and DD")


Day = Annotated[str, AfterValidator(_with_a_day)]


class StatusColumn(Settings):
    """What the values of one source column decide of a row: it is sent, left out, or deletes its
    card.
    """

    at: tuple[int, int] | None = setting(
        None, "fixed format: first and last character of the field, from 1; the key is any name"
    )
    send: Values = setting((), 'values of rows that are sent; `""` is an empty cell')
    leave_out: Values = setting(
        (),
        "values of rows that are not sent; an issued card stays as is, but in a full portfolio it "
        "has left: its link is withdrawn",
    )
    delete: Values = setting(
        (), "values of rows that close their card: not sent, and a link that it has is withdrawn"
    )
    date: Day | None = setting(
        None,
        "the column holds the day of closing or death, in this format: until that day, and without "
        "one (empty, zeros), the row is sent",
    )
    past: Literal["delete", "leave_out"] = setting(
        "delete", "with `date`: what a day up to the business date means"
    )
    unknown: Literal["refuse", "reject", "send", "leave_out", "delete"] = setting(
        "refuse",
        "what a value that no list names means: the extract is refused, with the count of each; "
        "or its row is rejected, sent, left out, or deletes its card",
    )

    @model_validator(mode="after")
    def _decides(self) -> Self:
        named = (*self.send, *self.leave_out, *self.delete)
        twice = sorted({value for value in named if named.count(value) > 1})
        if twice:
            raise ValueError(f"{twice[0]!r} is in two lists of `send`, `leave_out` and `delete`")
        if not named and self.date is None:
            raise ValueError("name values in `send`, `leave_out` or `delete`, or give a `date`")
        if "past" in self.model_fields_set and self.date is None:
            raise ValueError("`past` needs `date`")
        if self.at is not None and not 1 <= self.at[0] <= self.at[1]:
            raise ValueError("`at` is [first, last], counted from 1")
        return self

    @property
    def decisions(self) -> dict[str, int]:
        """What each named value decides."""
        return {
            **dict.fromkeys(self.send, SEND),
            **dict.fromkeys(self.leave_out, LEAVE_OUT),
            **dict.fromkeys(self.delete, DELETE),
        }


Column = StatusColumn | Literal["undecided", "ignored"]
# source column -> what its values decide
Status = dict[Annotated[str, StringConstraints(min_length=1)], Column]


def undecided(table: Mapping[str, object]) -> tuple[str, ...]:
    """Return the keys of `[status]` or `[columns]` that nobody has decided yet."""
    return tuple(name for name, value in table.items() if value == UNDECIDED)
