"""What a link is: good keys of every form count, and what is cut, odd or a card never does."""

from __future__ import annotations

import csv
import io
import random
import string
from functools import cache

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.card_numbers import passes_luhn
from flows.results.learned_forms import learn
from flows.results.links import LinkRules, judge_link, judge_links
from flows.results.read import ResultRows
from schemas import breaks
from schemas.ledger import BROKEN, LINKED
from schemas.link_form import LinkForm
from tests.builders import quick
from tests.results.link_keys import FORMS, HEX, HOST, LETTERS, Made
from tests.results.outcomes import COLUMNS, HOSTS, attribute, read_result, sent_rows

KEYS = 10_000
FILE = 1000  # links of a file
LAST_4 = "1111"
CARD = "4111111111111111"


def troubles(links: list[str], rules: LinkRules, last_4: str = "", size: int = FILE) -> list[str]:
    """Return the breaks of links in files of that size, each for a card with these or random
    last digits.
    """
    chance = random.Random(7)
    rows = pl.DataFrame(
        {
            "file": [number // size for number in range(len(links))],
            "url": links,
            "last_4_sent": [last_4 or f"{chance.randrange(10_000):04d}" for _ in links],
        }
    ).with_row_index("result_row")
    rows = rows.with_columns(
        is_last=pl.col("result_row") == pl.col("result_row").max().over("file"),
        open_ended=pl.lit(value=False),
    )
    return judge_links(rows, rules)["link_trouble"].to_list()


@cache
def confirmed(made: Made) -> LinkRules:
    """Return the rules of an issuer where the form is confirmed that these links have."""
    [known] = learn(made.links(FILE, seed=1), HOSTS)
    return LinkRules(HOSTS, (known.form,))


@pytest.mark.parametrize("made", quick(5, list(FORMS.values())), ids=FORMS)
def test_no_good_link_is_refused_whether_its_form_is_confirmed_or_not(made: Made) -> None:
    links = made.links(KEYS)

    assert ([], []) == (troubles(links, LinkRules(HOSTS)), troubles(links, confirmed(made)))


@pytest.mark.parametrize("name", quick(3, [*FORMS]))
def test_no_good_link_of_a_small_file_is_refused(name: str) -> None:
    assert [] == troubles(FORMS[name].links(KEYS), LinkRules(HOSTS), size=7)


@pytest.mark.parametrize("made", FORMS.values(), ids=FORMS)
def test_the_form_of_links_is_learned_from_them(made: Made) -> None:
    [known] = learn(made.links(FILE), HOSTS)

    assert str(known.form).startswith(HOST + made.learned)
    assert (FILE, made.is_fixed) == (known.links, known.form.is_fixed)
    assert LinkForm.parse(str(known.form)) == known.form


def test_a_form_learned_from_few_links_shows_nothing_of_their_keys() -> None:
    links = [f"{HOST}/cards/SECRET9/{tail}" for tail in ("Ab3", "Ab4")]

    assert ["https://links.example/cards/{BASE36:7}/{base62:3}"] == [
        str(known.form) for known in learn(links, HOSTS)
    ]


def test_links_of_two_forms_are_learned_as_two() -> None:
    links = [*FORMS["hex 24"].links(200), *FORMS["query"].links(300)]

    assert [300, 200] == [known.links for known in learn(links, HOSTS)]


# Cards
# --------------------------------------------------------------------------------------------------


SPELLINGS = (
    CARD,
    f"12/{CARD}",
    f"99{CARD}",
    f"{CARD}0",
    f"?q=7&n={CARD}",
    "4111/1111/1111/1111",
    "411/1111/1111/11111",
    "4111-1111-1111-1111",
    "4111%2D1111%2D1111%2D1111",
    f"id{CARD}z",
    "".join(f"%3{digit}" for digit in CARD),
    f"8b{CARD}f3b1518c3d215d",
    f"8b{CARD}0fb1518c3d215d",
)
SECRETS = (
    "pmWkWSBCL51Bfkhn79xPuKBKHz//H6B+mY6G9/eieuM=",
    "pmWkWSBCL51Bfkhn79xPuKBKHz__H6B-mY6G9_eieuM",
    "pmWkWSBCL51Bfkhn79xPuKBKHz%2F%2FH6B%2BmY6G9%2FeieuM%3D",
    "a665a45920422f9d417e4867efdc4fb8a04a1f3fff1fa07e998e86f7f7a27ae3",
    "A665A45920422F9D417E4867EFDC4FB8A04A1F3FFF1FA07E998E86F7F7A27AE3",
    "?cvv=668",
    "cvv668x",
    "cvvCode668x",
    "securitycode668x",
    "cvvUsed=668x",
    "cvCUGbDfXIfqJnBI783",
)


@pytest.mark.parametrize("shown", [*SPELLINGS, *SECRETS])
@pytest.mark.parametrize("others", ["none", *quick(1, [*FORMS])])
def test_a_link_that_has_the_number_of_its_own_card_or_its_cvv_is_none(
    shown: str, others: str
) -> None:
    links = [] if others == "none" else FORMS[others].links(50)

    told = troubles([*links, f"{HOST}/l/{shown}"], LinkRules(HOSTS), LAST_4)

    assert [breaks.LINK_SHOWS_CARD] == told


def test_a_link_of_the_confirmed_form_that_has_the_number_of_its_own_card_is_none() -> None:
    form = LinkForm.parse("https://links.example/l/{digits:16}")
    assert form is not None
    rules = LinkRules(HOSTS, (form,))

    assert breaks.LINK_SHOWS_CARD == judge_link(f"{HOST}/l/{CARD}", LAST_4, rules)
    assert judge_link(f"{HOST}/l/{CARD}", "1112", rules) is None


def another_card(chance: random.Random) -> str:
    digits = "4" + "".join(chance.choices(string.digits, k=14))
    return next(digits + last for last in string.digits if passes_luhn(digits + last))


def test_links_that_are_the_numbers_of_other_cards_are_none() -> None:
    chance = random.Random(3)
    links = [f"{HOST}/l/{another_card(chance)}" for _ in range(40)]

    assert [breaks.LINK_SHOWS_CARD] * 40 == troubles(links, LinkRules(HOSTS))


def test_a_number_of_another_card_among_links_of_another_length_is_none() -> None:
    links = [*FORMS["hex 24"].links(40), f"{HOST}/l/{CARD}"]

    assert [breaks.LINK_SHOWS_CARD] == troubles(links, LinkRules(HOSTS))


@given(st.sampled_from([*FORMS]), st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_a_card_in_place_of_a_key_is_found_among_links_of_any_form(
    name: str, seed: int, others: int, is_confirmed: bool
) -> None:
    made = FORMS[name]
    card = another_card(random.Random(seed))
    links = [*made.links(others, seed), f"{HOST}/l/{card}"]
    rules = confirmed(made) if is_confirmed else LinkRules(HOSTS)

    told = troubles(links, rules, card[-4:])

    assert breaks.LINK_SHOWS_CARD in told


# Links that are cut, and those of another form
# --------------------------------------------------------------------------------------------------

SENT = sent_rows(1, 40)
URL_LAST = ("cuid", "last_4", "expiration_date", "error", "url")


def written(links: list[str], columns: tuple[str, ...], quoting: int = csv.QUOTE_MINIMAL) -> bytes:
    """Return a result file of these links, whose columns are in this order."""
    rows = [
        dict(zip(COLUMNS, (f"c-{at}", f"{at:04d}", link, "2027-01-20", ""), strict=True))
        for at, link in enumerate(links, 1)
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n", quoting=quoting)  # type: ignore[arg-type]
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().encode()


def states(file: ResultRows, rules: LinkRules) -> list[tuple[str, str | None]]:
    """Return state and break of every row."""
    told = attribute(file, SENT, rules).outcomes
    return list(told.select("state", "trouble").iter_rows())


def _cuts(content: bytes, link: str) -> range:
    """Return four places or so where a file can be cut within its last URL, from the last on."""
    start = content.rindex(link.encode())
    return range(start + len(link) - 1, start, -(len(link) // 4))


LAYOUTS = [
    (columns, quoting)
    for columns in (COLUMNS, URL_LAST)
    for quoting in (csv.QUOTE_MINIMAL, csv.QUOTE_ALL)
]
# each form in one layout, each layout with several forms; then the others
FORMS_IN_LAYOUTS = [
    (name, *LAYOUTS[(number + shift) % len(LAYOUTS)])
    for shift in range(len(LAYOUTS))
    for number, name in enumerate(FORMS)
]


@pytest.mark.parametrize(
    ("name", "columns", "quoting"),
    quick(4, FORMS_IN_LAYOUTS),
)
def test_a_file_that_is_cut_within_its_last_url_gives_no_link_for_that_row(
    name: str, columns: tuple[str, ...], quoting: int
) -> None:
    made = FORMS[name]
    links = made.links(30)
    links.sort(key=len)  # the last is the longest
    content = written(links, columns, quoting)

    for length in _cuts(content, links[-1]):
        cut = read_result(content[:length], "cut.csv")
        for rules in (LinkRules(HOSTS), confirmed(made)):
            *others, last = states(cut, rules)

            assert {(LINKED, None)} == set(others)
            assert BROKEN == last[0]


@pytest.mark.parametrize("made", quick(4, list(FORMS.values())), ids=FORMS)
def test_a_whole_file_without_a_last_line_end_keeps_its_last_link(made: Made) -> None:
    links = sorted(made.links(30), key=len)
    content = written(links, URL_LAST).rstrip(b"\n")

    for rules in (LinkRules(HOSTS), confirmed(made)):
        assert {(LINKED, None)} == set(states(read_result(content, "whole.csv"), rules))


def test_a_file_of_one_link_that_may_be_cut_counts_once_the_form_says_how_long_links_are() -> None:
    made = FORMS["hex 24"]
    content = written(made.links(1), URL_LAST).rstrip(b"\n")

    told = [
        states(read_result(content, "one.csv"), rules)
        for rules in (LinkRules(HOSTS), confirmed(made))
    ]

    assert [[(BROKEN, breaks.LINK_CUT)], [(LINKED, None)]] == told


@pytest.mark.parametrize("name", [name for name, made in FORMS.items() if made.is_fixed])
def test_a_link_shorter_than_all_others_at_the_end_of_its_file_is_cut(name: str) -> None:
    links = FORMS[name].links(30)
    content = written([*links[:-1], links[-1][:-3]], URL_LAST)

    told = [
        states(read_result(content, "cut.csv"), rules)[-1]
        for rules in (LinkRules(HOSTS), confirmed(FORMS[name]))
    ]

    assert [BROKEN, BROKEN] == [state for state, _ in told]
    assert {breaks.LINK_CUT} == {trouble for _, trouble in told}


def test_a_short_link_anywhere_is_cut_where_the_form_is_confirmed() -> None:
    links = FORMS["hex 24"].links(5)
    links[2] = links[2][:-1]

    told = troubles(links, confirmed(FORMS["hex 24"]))

    assert [breaks.LINK_CUT] == told


@given(
    st.sampled_from([*FORMS]),
    st.sampled_from(["/x/", "/l/ff/", "/l?k=", "/", "/l/#"]),
    st.text(HEX + LETTERS, min_size=1, max_size=50),
)
def test_a_link_that_departs_from_the_confirmed_form_is_a_break_of_its_own(
    name: str, path: str, key: str
) -> None:
    rules = confirmed(FORMS[name])
    link = f"{HOST}{path}{key}-odd+"

    assert breaks.LINK_FORM == judge_link(link, LAST_4, rules)


@pytest.mark.parametrize("key", ["<script>1</script>", 'a"onclick="b', "a'b", "a\\b", "{a}", "a|b"])
def test_a_link_with_markup_or_quotes_is_a_break_before_any_form_is_known(key: str) -> None:
    assert breaks.LINK_FORM == judge_link(f"{HOST}/l/{key}", LAST_4, LinkRules(HOSTS))


@pytest.mark.parametrize("key", ["a b", "a\tb", "a\x1bb", "a\u202eb", "ä"])
def test_a_link_with_what_no_url_has_is_not_allowed(key: str) -> None:
    assert breaks.URL_NOT_ALLOWED == judge_link(f"{HOST}/l/{key}", LAST_4, LinkRules(HOSTS))


def test_before_a_form_is_confirmed_a_link_departs_from_the_outline_of_most_of_its_file() -> None:
    links = FORMS["hex 24"].links(20)
    odd = [f"{HOST}/l/away?to=evil", f"{HOST}/l/a/b"]

    told = [troubles([link, *links], LinkRules(HOSTS)) for link in odd]

    assert [[breaks.LINK_FORM]] * 2 == told


@pytest.mark.parametrize(
    "tail",
    [
        "Zk3JpQx0b1vYtR7mN8sWq2LhCdEfGaUo-_12345abcd",
        "0ABCDEF0-5D1F-4C3B-9A7E-123456789012",
        "2026/11/20/8412",
        "12?cid=1234",
        "f" + "1234567890" * 3 + "a",
        "5555555555554444",
        "8b5555555555554444f3b1518c3d215d",
        "cvCUGbDfXIfqJnBI783kB3",
        "cvcugbdfxifqjnbi783kb3",
    ],
)
def test_an_identifier_is_no_card_whatever_digits_it_has(tail: str) -> None:
    assert judge_link(f"{HOST}/l/{tail}", LAST_4, LinkRules(HOSTS)) is None
