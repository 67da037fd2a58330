"""Limits and precedence of which column is guessed to be what: the limit and its neighbours, and which
of two rivals wins, in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import pytest

from flows.extensions.init import column_guesses, column_signs, keys
from flows.extensions.init.column_guesses import ColumnGuesses
from flows.extensions.init.column_signs import Candidate
from flows.extensions.init.guess import Column, Sample
from schemas import portal

TODAY = date(2026, 11, 20)
FIRST, SECOND = "4242424242424242", "5555555555554444"


def column(*values: str, name: str = "X") -> Column:
    return Column(f'from = "{name}"', name, values)


def guesses_of(*columns: Column) -> ColumnGuesses:
    return ColumnGuesses(Sample([], list(columns), True), TODAY)


@pytest.mark.parametrize(
    ("target", "fit", "share", "different", "is_likely"),
    [
        (portal.CITY, 0.5, 0.49, 9, False),
        (portal.CITY, 0.5, 0.5, 9, True),
        (portal.EMAIL, 0.9, 0.0, 9, False),
        (portal.EMAIL, 1.0, 0.0, 9, True),
        (portal.PAN, 0.0, 0.95, 9, False),
        (portal.PAN, 0.0, 0.96, 9, True),
        (portal.PAN, 0.0, 0.96, 3, True),
        (portal.PAN, 0.0, 0.96, 2, False),
    ],
)
def test_a_column_is_likely_by_its_header_and_half_of_its_values_or_by_nearly_all_of_them(
    target: str, fit: float, share: float, different: int, is_likely: bool
) -> None:
    values = [f"{number % different}" for number in range(9)]
    guesses = guesses_of()

    assert is_likely == guesses._is_likely(target, Candidate(fit, share, column(*values)))


@pytest.mark.parametrize(("known", "are_names"), [(2, False), (3, True)])
def test_headers_are_names_where_more_than_two_are_known(known: int, are_names: bool) -> None:
    names = ["CITY", "STATE", "EMAIL"][:known]

    guesses = guesses_of(*(column("x", name=name) for name in names), column("x", name="QQ"))

    assert are_names == guesses._named


@pytest.mark.parametrize(("share", "is_asked"), [(0.94, True), (0.95, False), (0.96, False)])
def test_a_column_is_asked_about_where_its_values_look_different(
    share: float, is_asked: bool
) -> None:
    city = column("Boston", name="CITY")
    guesses = guesses_of(city, *(column("x", name=name) for name in ("STATE", "EMAIL")))

    guess = guesses._best(portal.CITY, [Candidate(1.0, share, city)])
    pan = guesses_of()._is_doubtful(Candidate(1.0, share, column(FIRST)))

    assert [is_asked] * 2 == [bool(guess.question), pan]


@pytest.mark.parametrize(("different", "is_asked"), [(8, True), (9, False), (10, False)])
def test_a_reference_or_card_that_repeats_in_more_than_one_of_ten_rows_is_asked_about(
    different: int, is_asked: bool
) -> None:
    values = [f"{number % different}" for number in range(10)]
    own = column(*values, name="CUID")
    guesses = guesses_of(own, *(column("x", name=name) for name in ("STATE", "EMAIL")))

    guess = guesses._best(portal.CUID, [Candidate(1.0, 1.0, own)])
    pan = guesses_of()._is_doubtful(Candidate(1.0, 1.0, own))

    assert [is_asked] * 2 == ["repeats" in guess.question, pan]


def test_of_two_columns_of_cards_the_one_with_more_of_them_is_the_card(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    same, different = column(*[FIRST] * 3, name="A"), column(FIRST, SECOND, FIRST, name="B")
    ranked = [Candidate(1.0, 1.0, same), Candidate(1.0, 1.0, different)]
    monkeypatch.setattr(ColumnGuesses, "_ranked", lambda *_: ranked)
    monkeypatch.setattr(column_guesses, "_is_test_card", lambda card: card == FIRST)
    guesses = guesses_of(same, different)

    guess = guesses._pan()

    assert (different.spec, (same.spec,)) == (guess.value, guess.others)
    assert not guesses.test  # half of them are


@pytest.mark.parametrize(
    ("share", "forms", "question"),
    [
        (0.95, ["MM/YY"], "look different"),
        (0.96, ["MM/YY"], ""),
        (0.96, ["MM/YY", "YY/MM"], "How is it written"),
    ],
)
def test_a_column_of_two_halves_is_asked_about_where_its_form_is_not_sure(
    monkeypatch: pytest.MonkeyPatch, share: float, forms: Sequence[str], question: str
) -> None:
    monkeypatch.setattr(column_guesses, "written_as", lambda *_: forms)
    both = column("11/27", name="EXPIRY")
    guesses = guesses_of(both, *(column("x", name=name) for name in ("CITY", "STATE", "EMAIL")))

    halves = [*guesses._halves("year", "month", "both", [Candidate(1.0, share, both)])]

    assert [question in guess.question for guess in halves] == [True, True]
    assert bool(question) == bool(halves[0].question)


@pytest.mark.parametrize(("numbered", "is_asked"), [(0, False), (1, False), (2, True)])
def test_a_street_that_may_have_the_house_number_too_is_asked_about(
    numbered: int, is_asked: bool
) -> None:
    streets = ["1 Elm St"] * numbered + ["Elm St"] * (20 - numbered)
    street = column(*streets, name="STREET")
    house = column(*[f"{number}" for number in range(1, 21)], name="HOUSE_NUMBER")
    guesses = guesses_of(street, house, *(column("x", name=name) for name in ("CITY", "STATE")))

    guess = guesses._street([Candidate(1.0, 1.0, street)])

    assert guess.value.startswith("{ join")
    assert is_asked == bool(guess.question)


@pytest.mark.parametrize(
    ("codes", "value"),
    [
        (["02108", "10001"], '{ constant = "US" }'),
        (["K1A0B1", "10001"], "lookup"),
        (["K1A0B1", "M5V3L9"], '{ constant = "CA" }'),
    ],
)
def test_postal_codes_show_one_country_or_two(codes: Sequence[str], value: str) -> None:
    guesses = guesses_of()
    guesses._zip = column(*codes, name="ZIP")

    assert value in guesses._country().value


@pytest.mark.parametrize(("name", "share"), [("EMAIL", 1.0), ("THE EMAIL", 0.0)])
def test_an_optional_column_that_nobody_has_yet_is_known_by_its_name_alone(
    name: str, share: float
) -> None:
    assert share == column_signs.share(column("", name=name), portal.EMAIL, TODAY)


# Second files
# --------------------------------------------------------------------------------------------------


def keys_of(own: Sequence[str], *others: Sequence[str]) -> list[tuple[str, float]]:
    """Return the columns of a second file that join it, with their overlap."""
    found = keys.keys_of({"ID": own}, {f"C{number}": cells for number, cells in enumerate(others)})
    return [(key.other, key.share) for key in found if key.share >= keys.OVERLAP]


def test_a_key_of_a_second_file_is_different_in_its_rows_and_that_of_half_of_the_own() -> None:
    own = [f"{number}" for number in range(20)]

    found = [
        keys_of(own[:2], own[:2]),
        keys_of(own[:1], own[:1]),
        keys_of(own, [*own[:19], "0"]),
        keys_of(own, [*own[:18], "0", "1"]),
        keys_of(own, own[:10]),
        keys_of(own, own[:9]),
    ]

    assert [[1.0], [], [0.95], [], [0.5], []] == [
        [share for _, share in joining] for joining in found
    ]


def test_the_column_of_a_second_file_that_joins_most_rows_comes_first() -> None:
    own = [f"{number}" for number in range(10)]

    joining = keys_of(own, [*own[:6], *"abcd"], own, [*own[:8], *"ab"])

    assert [("C1", 1.0), ("C2", 0.8), ("C0", 0.6)] == joining
