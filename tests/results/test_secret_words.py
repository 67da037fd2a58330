"""No three or four digits stand beside a word for a card's verification code, however spelled."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.harmless_names import harmless_name
from flows.redaction import redact
from flows.results.error_text import parse_error
from flows.results.links import LinkRules, judge_link
from flows.results.masking import mask, storable
from flows.secret_words import speaks_of_secret
from schemas import breaks

NAMES = (
    *("cvv", "cvv code", "cvv2 code", "cvc2", "cvn", "cvd", "cvv status", "card cvv"),
    "cvv check result",
    *("verification code", "card verification value", "security code", "card security code"),
    *("card code", "validation code", "security number", "verification number", "security digits"),
    *("kartenprüfnummer", "Prüfziffer", "sicherheits code", "prüf code", "kontroll nummer"),
    *("code de sécurité", "cryptogramme", "code de vérification", "code sécurité"),
    *("código de seguridad", "codigo seguridad", "código de verificación", "criptograma"),
    *("codice di sicurezza", "código de segurança", "veiligheids code"),
)  # fmt: skip
ABBREVIATIONS = ("csc", "cid", "cid status", "card csc", "pin")
STYLES: dict[str, Callable[[list[str]], str]] = {
    "spaces": " ".join,
    "snake": "_".join,
    "kebab": "-".join,
    "camel": lambda words: words[0].lower() + "".join(map(str.title, words[1:])),
    "Pascal": lambda words: "".join(map(str.title, words)),
    "abbreviation first": lambda words: words[0].upper() + "".join(map(str.title, words[1:])),
    "capitals": lambda words: " ".join(words).upper(),
    "capitals in snake": lambda words: "_".join(words).upper(),
}
GLUED: dict[str, Callable[[list[str]], str]] = {
    "one word": "".join,
    "one word in capitals": lambda words: "".join(words).upper(),
}
SPELLINGS: tuple[Callable[[str], str], ...] = (
    str,
    lambda name: f"{name[:2]}\u200b{name[2:]}",
    lambda name: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in name),
    lambda name: f"&#{ord(name[0])};{name[1:]}",
    lambda name: f"\\u{ord(name[0]):04x}{name[1:]}",
)
BESIDE = ("{0} {1}", "{0}{1}", "{0}: {1}", "{0}={1}", "{0} is {1}", "{0} status {1}", "{1} {0}")
FAR = (*BESIDE, "error {1}: the {0} was not accepted", "HTTP {1}, {0}")
OBJECTS: tuple[Callable[[str, str], object], ...] = (
    lambda name, number: {name: number, "message": f"error {number}"},
    lambda name, number: {name: int(number), "message": f"status {number}"},
    lambda name, number: {"propertyName": name, "message": f"status {number}"},
    lambda name, number: {"error": {name: f"status {number}"}},
    lambda name, number: [{"field": name}, {"message": f"error {number}"}],
)

# numbers that are kept elsewhere, as those of a response
numbers = st.sampled_from(["404", "200", "502", "1000", "250"]) | st.from_regex(r"\A[0-9]{3,4}\Z")


def named(
    names: tuple[str, ...], styles: dict[str, Callable[[list[str]], str]]
) -> st.SearchStrategy[str]:
    return st.builds(
        lambda name, style: styles[style](name.split()),
        st.sampled_from(names),
        st.sampled_from(list(styles)),
    )


any_name = named(NAMES, STYLES | GLUED) | named(ABBREVIATIONS, STYLES)


def unmarked(kept: str) -> str:
    return re.sub(r"\[[0-9]+ [A-Za-z0-9]+\]", "", kept)


@given(any_name, st.sampled_from(SPELLINGS), st.sampled_from(FAR), numbers)
def test_of_a_text_that_names_it_no_number_is_kept(
    name: str, spell: Callable[[str], str], text: str, number: str
) -> None:
    kept = unmarked(mask(text.format(spell(name), number)))

    assert not re.search("[0-9]{3}", kept)


@given(any_name, st.sampled_from(OBJECTS), numbers)
def test_of_an_object_with_such_a_key_or_property_no_number_is_kept(
    name: str, shape: Callable[[str, str], object], number: str
) -> None:
    error = parse_error(json.dumps(shape(name, number)))

    messages = " ".join(reason.message for reason in error.reasons)
    assert not re.search("[0-9]{3}", unmarked(messages))


@given(named(NAMES, STYLES | GLUED), st.sampled_from(BESIDE[:4]), numbers)
def test_a_log_line_shows_no_number_beside_it(name: str, text: str, number: str) -> None:
    assert number not in redact(text.format(name, number))


@given(any_name, st.sampled_from("-_. "), numbers)
def test_a_files_name_has_no_number_beside_it(name: str, separator: str, number: str) -> None:
    kept = unmarked(harmless_name(f"{name}{separator}{number}.csv"))

    assert not re.search("[0-9]{3}", kept)


@pytest.mark.parametrize("name", ["cvvStatus", "card_verification_value", "cardCode", "CVC2Code"])
def test_a_link_that_names_one_is_none(name: str) -> None:
    rules = LinkRules(["links.example.com"])

    trouble = judge_link(f"https://links.example.com/l/kQwErTzUiO?{name}=404", "4242", rules)

    assert breaks.LINK_SHOWS_CARD == trouble


def test_a_foreign_cell_that_is_a_name_and_a_cvv_is_not_stored() -> None:
    cells = pl.DataFrame({"cuid": ["cvv404", "CVC-4041", "cid_404", "c-404"]})

    stored = cells.select(storable("cuid"))["cuid"].to_list()

    assert ["[6 characters]", "[8 characters]", "[7 characters]", "c-404"] == stored


@pytest.mark.parametrize(
    "text",
    [
        "postalCode 10001",
        "statusCode 404",
        "error code: VALIDATION_ERROR, at most 40 characters",
        "could not create card: code 502",
        "discardCode 404",
        '{"entityName": "card", "code": "E12"}',
        "incident 404, decided, pancake, spinner",
        "verification failed with status 502",
    ],
)
def test_what_only_resembles_it_is_none(text: str) -> None:
    assert not speaks_of_secret(text)
