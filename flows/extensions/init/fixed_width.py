"""The fields of lines that no delimiter divides, and which are equally long."""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import polars as pl

from schemas.expressions import luhn_holds

CARD = 16  # digits of a card number


class Span(NamedTuple):
    """A field: its first and its last character, from 1."""

    first: int
    last: int


class _Position(NamedTuple):
    """One position over all lines."""

    filled: float  # share of the lines that have no blank there
    digits: bool  # nothing but digits and blanks, and not blanks alone
    dash: bool  # a dash in some line


def field_spans(lines: Sequence[str]) -> list[Span]:
    """Return the fields of lines that are equally long; none where no place has card numbers.

    A field begins where all lines have a blank before it, between digits and other text, and around
    the card number.
    """
    positions = _positions(lines)
    card = _card_start(lines, positions)
    return [] if card is None else _spans(positions, card)


def type_spans(lines: Sequence[str]) -> list[Span]:
    """Return the fields of lines that are equally long, of which not all have card numbers."""
    positions = _positions(lines)
    return _spans(positions, _card_start(lines, positions))


def have_cards(lines: Sequence[str]) -> bool:
    """Return whether lines that are equally long have card numbers at one place."""
    return _card_start(lines, _positions(lines)) is not None


def _spans(positions: Sequence[_Position], card: int | None) -> list[Span]:
    spans = []
    for start, end in pairwise(sorted(_field_starts(positions, card))):
        if any(position.filled for position in positions[start:end]):
            spans.append(Span(start + 1, end))
    return spans


def _positions(lines: Sequence[str]) -> list[_Position]:
    columns = ["".join(characters) for characters in zip(*lines, strict=True)]
    return [
        _Position(
            filled=1 - column.count(" ") / len(column),
            digits=column.replace(" ", "").isdigit(),
            dash="-" in column,
        )
        for column in columns
    ]


def _card_start(lines: Sequence[str], positions: Sequence[_Position]) -> int | None:
    """Return the first position of the card numbers, which nearly all have right check digits."""
    for start in range(len(positions) - CARD + 1):
        if not _all_digits(positions[start : start + CARD]):
            continue
        numbers = pl.Series([line[start : start + CARD] for line in lines])
        if pl.select(luhn_holds(pl.lit(numbers)).mean()).item() > 0.9:
            return start
    return None


def _field_starts(positions: Sequence[_Position], card: int | None) -> set[int]:
    """Return where fields begin, and the end of the last."""
    width = len(positions)
    starts = {0, width}
    for place in range(1, width):
        if _begins_number_or_text(positions, place) or _follows_gap(positions, place):
            starts.add(place)
    return starts if card is None else _with_card(starts, positions, card)


def _with_card(starts: set[int], positions: Sequence[_Position], card: int) -> set[int]:
    """Return where fields begin, one of them the card number."""
    width = len(positions)
    after_card = card + CARD
    starts |= {card, after_card}
    digits_end = after_card
    while digits_end < width and positions[digits_end].digits:
        digits_end += 1
    if digits_end - after_card in (7, 9, 11):  # a date and the CVV
        starts.add(digits_end - 3)
    return starts.difference(range(card + 1, after_card))


def _begins_number_or_text(positions: Sequence[_Position], place: int) -> bool:
    """Return whether a number of four digits or more begins here, or ends before it."""
    before = positions[place - 1]
    current = positions[place]
    if current.digits == before.digits or before.dash or not (current.filled and before.filled):
        return False
    following = positions[place : place + 4]
    preceding = positions[max(place - 4, 0) : place]
    return _all_digits(following) or _all_digits(preceding)


def _follows_gap(positions: Sequence[_Position], place: int) -> bool:
    return positions[place - 1].filled < 0.005 and positions[place].filled > 0.03


def _all_digits(positions: Sequence[_Position]) -> bool:
    return all(position.digits for position in positions)
