"""From how many links on something is said of them: one fewer says nothing."""

from __future__ import annotations

import random

import pytest

from flows.results.learned_forms import learn
from flows.results.links import LinkRules
from schemas.breaks import LINK_CUT, LINK_FORM, LINK_SHOWS_CARD
from tests.results.link_keys import FORMS, HOST
from tests.results.outcomes import HOSTS
from tests.results.test_links import CARD, another_card, troubles

RULES = LinkRules(HOSTS)
KEYS = FORMS["hex 24"].links(60)
WORDS = ["ab", "bc", "cd", "de", "ef", "fg", "gh", "hi", "ij"]


def learned(*paths: str) -> str:
    """Return the form of links with these paths, without their host."""
    [known] = learn([f"{HOST}/{path}" for path in paths], HOSTS)
    return str(known.form).removeprefix(HOST)


@pytest.mark.parametrize(("others", "told"), [(19, []), (20, [LINK_CUT]), (21, [LINK_CUT])])
def test_the_last_link_is_cut_where_twenty_others_are_longer(others: int, told: list[str]) -> None:
    assert told == troubles([*KEYS[:others], KEYS[others][:-1]], RULES)


@pytest.mark.parametrize(
    ("usual", "odd", "told"),
    [(2, 1, []), (3, 1, [LINK_FORM]), (3, 3, []), (4, 3, [LINK_FORM] * 3)],
)
def test_a_link_departs_from_three_others_that_are_more_than_half(
    usual: int, odd: int, told: list[str]
) -> None:
    others = [f"{HOST}/l/a/b{number}" for number in range(odd)]

    assert told == troubles([*KEYS[:usual], *others], RULES)


@pytest.mark.parametrize(("usual", "told"), [(4, []), (5, [LINK_FORM] * 4)])
def test_half_of_the_links_are_no_majority_however_the_others_differ(
    usual: int, told: list[str]
) -> None:
    others = [f"{HOST}/l/a/{path}{number}" for number in range(2) for path in ("b", "b/c")]

    assert told == troubles([*KEYS[:usual], *others], RULES)


@pytest.mark.parametrize(("cards", "numbers"), [(5, 0), (6, 0), (6, 6), (7, 6)])
def test_numbers_of_other_cards_are_no_chance_where_six_that_are_more_than_half_are_some(
    cards: int, numbers: int
) -> None:
    chance = random.Random(3)
    some = [another_card(chance) for _ in range(cards)]
    none = [
        f"{card[:-1]}{(int(card[-1]) + 1) % 10}" for card in map(another_card, [chance] * numbers)
    ]

    told = troubles([f"{HOST}/l/{key}" for key in [*some, *none]], RULES)

    assert told == ([] if (cards, numbers) in ((5, 0), (6, 6)) else [LINK_SHOWS_CARD] * cards)


@pytest.mark.parametrize(("others", "told"), [(1, []), (2, [LINK_SHOWS_CARD])])
def test_a_number_is_of_an_odd_length_where_more_than_half_of_its_file_have_another(
    others: int, told: list[str]
) -> None:
    assert told == troubles([*KEYS[:others], f"{HOST}/l/{CARD}"], RULES)


@pytest.mark.parametrize(
    ("number", "form"),
    [(19, "/cards/{BASE36:7}/{base36:6}"), (20, "/cards/SECRET9/{base36:6}")],
)
def test_what_twenty_links_have_in_common_is_no_chance(number: int, form: str) -> None:
    assert form == learned(*(f"cards/SECRET9/{at:05d}x" for at in range(number)))


@pytest.mark.parametrize(("number", "form"), [(19, "{base64url:9}"), (20, "{hex:5}-{hex:3}")])
def test_a_sign_that_twenty_keys_have_at_one_place_separates_them(number: int, form: str) -> None:
    keys = (f"l/{at:04d}a-{at * 7 % 100:02d}b" for at in range(number))

    assert f"/l/{form}" == learned(*keys)


@pytest.mark.parametrize(
    ("words", "links", "form"),
    [(8, 99, "{base36:2}"), (8, 100, "{ab|bc|cd|de|ef|fg|gh|hi}"), (9, 100, "{base36:2}")],
)
def test_a_part_is_one_of_eight_words_at_most_by_a_hundred_links(
    words: int, links: int, form: str
) -> None:
    paths = (f"{WORDS[at % words]}/{at:04d}x" for at in range(links))

    assert f"/{form}/{{base36:5}}" == learned(*paths)


@pytest.mark.parametrize(("keys", "lengths"), [(10, "3-5"), (11, "1-5")])
def test_a_length_that_a_tenth_of_the_keys_have_is_the_shortest(keys: int, lengths: str) -> None:
    others = (f"l/abcd{letter}" for letter in "abcdefghij"[: keys - 1])

    assert f"/l/{{base36:{lengths}}}" == learned("l/abc", *others)
