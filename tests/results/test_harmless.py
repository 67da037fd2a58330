"""Of a foreign text only what is known to be harmless is kept, in whatever shape a secret comes."""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.harmless import (
    CUID,
    MOST_DIGITS,
    about,
    harmless,
    known_text,
    with_cuid,
)
from flows.harmless_names import harmless_name
from flows.harmless_tokens import OWN
from tests.builders import quick
from tests.results.partner_texts import ECHOED, REAL

# What partners say of a row, and an operator needs whole. OWN: the row's cuid.
USEFUL = [
    "postal_code is required",
    "address.postal_code must match the state",
    "service_card.address.address2 is too long: at most 40 characters",
    "must be at most 200 characters",
    "at least 3 rows expected",
    "between 2 and 26 characters",
    "expiration_month must be between 1 and 12",
    "card expired",
    "card network is not supported",
    "pan failed the Luhn check",
    "PAN: unsupported BIN",
    "cvv is required",
    "cvvHash must be Base64",
    "name_on_card contains invalid characters: < >",
    "TypeError: Cannot read properties of undefined (reading 'postal_code')",
    "HTTP 503 Service Unavailable",
    "HTTP/1.1 429 Too Many Requests",
    "500 Internal Server Error",
    "request failed with status 403: Forbidden",
    "status code 401",
    "statusCode=404",
    "error 502 from upstream",
    "verification failed: status 200",
    "decline code 404, country code 404",
    "timeout of 30s exceeded",
    "rate limit: 10 per second, retry in 5 seconds",
    "connect ECONNREFUSED",
    f"cardholder {OWN} already exists",
    f"{OWN}: cvv hash",
    f"duplicate cuid '{OWN}' in row 12",
    f"cuid={OWN} not found",
    "first seen on 2026-11-20",
    "link expired at 2026-11-20T10:11:12Z",
    "maintenance from 02:00 to 04:30",
    "run first-bank-20261120-3f9c21aa",
    "chunk first-bank-20261120-3f9c21aa-00001.csv.pgp was read before",
    "country must be one of US, CA, MX",
    "entityName: card; propertyName: expirationYear",
    "isPrimary must be true or false",
    "N/A",
    "Die Postleitzahl ist ungültig",
    "Straßenname zu lang: höchstens 40 Zeichen",
    "le code postal n’est pas valide",
    "el código postal no es válido",
    "o endereço é obrigatório",
    "il CAP non è valido",
]
LINKS = ["https://links.example.com/l/kQwErTzUiO", "www.example.com/a/b", "go.example.com/l/abcdef"]
SETTLED = re.compile(
    r"\[[0-9]+ [a-zA-Z0-9]+\]|(?:19|20)[0-9]{2}-[01][0-9]-[0-3][0-9](?:T[0-9:]{8}Z)?|address[12]|Base64"
    r"|(?:[a-z-]+-)?20[0-9]{6}-(?=[0-9]*[a-f])[0-9a-f]{8}(?:-r[0-9]{1,2})?(?:-000[0-9]{2})?"
)


def digits_in(kept: str) -> int:
    """Count what stands for a digit outside marks, dates and run ids, whatever its script."""
    loose = SETTLED.sub("", kept)
    return sum(unicodedata.numeric(char, None) is not None for char in loose)


@pytest.mark.parametrize("text", USEFUL)
def test_a_useful_text_is_kept_whole(text: str) -> None:
    assert text == harmless(text)


@pytest.mark.parametrize(("text", "needed"), REAL, ids=[text for text, _ in REAL])
def test_of_what_partners_write_what_an_operator_needs_is_kept(
    text: str, needed: list[str]
) -> None:
    kept = harmless(text)

    assert [] == [part for part in needed if part not in kept]


@pytest.mark.parametrize(("text", "secrets"), ECHOED, ids=[text for text, _ in ECHOED])
def test_no_number_cvv_or_name_is_kept_however_it_is_echoed(text: str, secrets: list[str]) -> None:
    kept = re.sub(r"\[[0-9]+ [A-Za-z0-9]+\]", "[]", harmless(text))

    assert [] == [part for part in secrets if part in kept]


KNOWN = ("Issuer {} is not enrolled with scheme {}", "Tokenisation engine parked: {}")


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (
            "Issuer Acme Bank is not enrolled with scheme Q7",
            "Issuer [8 letters] is not enrolled with scheme Q7",
        ),
        ("Tokenisation engine parked: Jane Long", "Tokenisation engine parked: [8 letters]"),
        (
            "Issuer 4242424242424242 is not enrolled with scheme 592",
            "Issuer [16 digits] is not enrolled with scheme [3 digits]",
        ),
        (
            "Issuer 59 is not enrolled with scheme 2",
            "Issuer [2 digits] is not enrolled with scheme [1 digit]",
        ),
        (
            "Issuer E4242 is not enrolled with scheme E4242",
            "Issuer [5 characters] is not enrolled with scheme [5 characters]",
        ),
        ("Issuer cvv is not enrolled with scheme 592", None),
        ("Issuer not enrolled", None),
    ],
)
def test_a_known_text_is_kept_whole_and_of_what_varies_what_is_harmless(
    text: str, kept: str | None
) -> None:
    assert kept == known_text(text, KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "invalid value 592",
        "959 is not a valid security code; got 959",
        "card verification value 007",
        "CSC: 1 2 3",
        "cvv was one-two-three, got 1, 2, 3",
        "Prüfziffer 123 falsch",
        "código de seguridad 321 inválido",
        "pin 12",
    ],
)
def test_no_digit_of_a_cvv_is_kept(text: str) -> None:
    assert not digits_in(harmless(text, secret=True))


@pytest.mark.parametrize(
    "text",
    [
        "got 12:34:56 7890",
        "card 2040-00-00 83:28:15 7362",
        "value 39:32:39",
        "value 8<!-- -->3<!-- -->2",
        "value 8, 3, 2",
        "7, then 4 then 4",
        "got NTI4",
        "value one, two, three",
        "415",
        "value kvin, tri, du",
        "Čtyři-Nula-Nula-Nula-Nula-Nula-Šest-tři three",
        "четыре|ноль|ноль|ноль|ноль|ноль|семь|один",
        "a 1234567890; b 1; c 48; d 0; e 44",
        "starts with 123456789012 then 34 then 5 then 6",
        "got 59 and 2",
        "value 11:2",
        "at line 3: $4$9$2",
        "error 4*3*7",
    ],
)
def test_no_piece_of_a_number_is_kept(text: str) -> None:
    kept = re.sub(r"\[[0-9]+ [a-z]+\]", "", harmless(text))

    assert 0 == digits_in(kept)
    assert not [word for word in ("three", "tri", "tři", "ноль") if word in kept]


@pytest.mark.parametrize(
    "text",
    [
        "expires 10/26",
        "line 3, column 14",
        "version 2.6",
        "rows 13 and 14 and 15",
        "10:15:00",
    ],
)
def test_numbers_that_stand_alone_or_in_pairs_are_kept(text: str) -> None:
    assert text == harmless(text)


@pytest.mark.parametrize(
    "spelled",
    [
        "eaaaaajjfbijdbeb",
        "tqqqqqyrtwwiwerq",
        "SIB",
        "甲乙丙丁戊己庚辛",
        "しろさんご",
        "영일이삼",
        "mbili nne sita",
        "fünfhundertzweiundneunzig",
        "five hundred ninety-two",
        "uno dos tres",
        "#-S$X",
        "- ||| |||||",
        "pOsTaL",
        "xxxx,xxxxxx,xxx",
        "2D@,",
        "2)I,",
        "a00",
    ],
)
def test_what_is_no_known_word_is_kept_by_its_length_alone(spelled: str) -> None:
    kept = harmless(f"value {spelled} rejected")

    assert not re.search(r"\w{2}", re.sub(r"\[[^]]*\]|value|rejected", "", kept))


@pytest.mark.parametrize(
    "text", ["set to three characters", "one of two", "must not be set to null", "rows 3, 7 and 9"]
)
def test_a_few_words_for_digits_and_numbers_that_are_named_are_kept(text: str) -> None:
    assert text == harmless(text)


@given(st.text())
def test_a_text_about_a_secret_keeps_no_digit(text: str) -> None:
    marks = re.compile(r"\[[0-9]+ [a-zA-Z0-9]+\]|address[12]|last_?4|cv[vc]2", re.IGNORECASE)

    kept = marks.sub("", harmless(f"cvv {text}"))

    assert not [char for char in kept if unicodedata.numeric(char, None) is not None]


def _morse(number: str) -> str:
    signs = (
        "-----",
        ".----",
        "..---",
        "...--",
        "....-",
        ".....",
        "-....",
        "--...",
        "---..",
        "----.",
    )
    return " ".join(signs[int(digit)] for digit in number)


def _in_words(number: str) -> str:
    names = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    return " ".join(names[int(digit)] for digit in number)


def _in_script(zero: int) -> Callable[[str], str]:
    return lambda number: "".join(chr(zero + int(digit)) for digit in number)


def _in_binary(number: str) -> str:
    return " ".join(f"{int(digit):04b}" for digit in number)


def _split_by(separator: str, size: int) -> Callable[[str], str]:
    def split(number: str) -> str:
        return separator.join(number[start : start + size] for start in range(0, 16, size))

    return split


def _digest(name: str) -> Callable[[str], str]:
    return lambda number: hashlib.new(name, number.encode()).hexdigest()


SPELLINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "reversed": lambda number: number[::-1],
    "in pairs": _split_by(" ", 2),
    "in threes": _split_by("-", 3),
    "digit by digit": _split_by(" ", 1),
    "between terminal codes": _split_by("\x1b[0m", 4),
    "between markup": _split_by("</b><b>", 1),
    "between letters": _split_by("x", 1),
    "between words": _split_by(" and ", 1),
    "between zero-width spaces": _split_by("\u200b", 4),
    "between direction marks": _split_by("\u202e", 4),
    "between emoji": _split_by("\U0001f4b3", 2),
    "over lines": _split_by("\r\n", 4),
    "in JSON": lambda number: str(list(number)),
    "with ordinals": lambda number: " ".join(f"{digit}th" for digit in number),
    "as versions": lambda number: " ".join(f"v{digit}" for digit in number),
    "as times": lambda number: " ".join(f"{pair}:{pair}" for pair in re.findall("..", number)),
    "in words": _in_words,
    "in Morse code": _morse,
    "in binary": _in_binary,
    "in hexadecimal": lambda number: f"{int(number):x}",
    "as bytes": lambda number: number.encode().hex(),
    "as bytes apart": lambda number: number.encode().hex(" "),
    "in Base64": lambda number: base64.b64encode(number.encode()).decode(),
    "in Base32": lambda number: base64.b32encode(number.encode()).decode(),
    "in Base85": lambda number: base64.b85encode(number.encode()).decode(),
    "percent encoded": lambda number: "".join(f"%{ord(digit):x}" for digit in number),
    "twice percent encoded": lambda number: quote("".join(f"%{ord(digit):x}" for digit in number)),
    "as entities": lambda number: "".join(f"&#{ord(digit)};" for digit in number),
    "as entities of hexadecimal": lambda number: "".join(f"&#x{ord(digit):x};" for digit in number),
    "escaped": lambda number: "".join(f"\\u{ord(digit):04x}" for digit in number),
    "in Arabic": _in_script(0x660),
    "in Devanagari": _in_script(0x966),
    "in full width": _in_script(0xFF10),
    "in bold": _in_script(0x1D7CE),
    "circled": lambda number: "".join("⓪①②③④⑤⑥⑦⑧⑨"[int(digit)] for digit in number),
    "in superscript": lambda number: "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in number),
    "in Chinese": lambda number: "".join("〇一二三四五六七八九"[int(digit)] for digit in number),
    "in Braille": lambda number: "".join("⠚⠁⠃⠉⠙⠑⠋⠛⠓⠊"[int(digit)] for digit in number),
    "as a float": lambda number: repr(float(number)),
    "as a date": lambda number: f"{number[:4]}-{number[4:6]}-{number[6:8]} {number[8:]}",
    "as a UUID": lambda number: f"{number[:8]}-{number[8:12]}-{number[12:]}-8000-000000000000",
    "as a run": lambda number: f"bank-{number[:8]}-{number[8:]}",
    "as a host": lambda number: f"{number}.example.com",
    "as a link": lambda number: f"https://example.com/{number}",
    "as an address": lambda number: f"{number}@example.com",
    "as addresses": lambda number: ".".join(re.findall("...?", number)),
    "MD5": _digest("md5"),
    "SHA-1": _digest("sha1"),
    "SHA-256": _digest("sha256"),
    "SHA-512": _digest("sha512"),
    "SHA-256 in Base64": lambda number: base64.b64encode(
        hashlib.sha256(number.encode()).digest()
    ).decode(),
    "SHA-256 with colons": lambda number: hashlib.sha256(number.encode()).digest().hex(":"),
}
BRANDS = [*map(str, (*range(40, 50), *range(51, 56), 60, 65, 34, 37))]
NUMBERS = st.builds("{}{:014d}".format, st.sampled_from(BRANDS), st.integers(0, 10**14 - 1))
# what a number is told apart by when it is looked for, however it is spelled
FIFTH = 5
# letters, as of a word or of "line4": of a thousand numbers in Base85 one has such a piece by chance
WORD = re.compile("[A-Za-z]+[0-9]{0,2}")


def test_a_number_as_long_as_a_cvv_is_kept_only_where_it_is_a_usual_limit_or_a_status() -> None:
    said = ("{} characters", "row {}", "after {} seconds", "status {}", "HTTP {}", "at most {}")
    kept = {
        form: {cvv for cvv in range(100, 1000) if str(cvv) in harmless(form.format(cvv))}
        for form in said
    }

    limits, statuses = kept["{} characters"], kept["status {}"]
    assert limits == kept["after {} seconds"]
    assert statuses == kept["HTTP {}"]
    assert set() == kept["row {}"] | kept["at most {}"]
    assert {100, 128, 200, 255, 500} <= limits
    assert (16, 62) == (len(limits), len(statuses))


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(number=NUMBERS, before=st.sampled_from(USEFUL), after=st.sampled_from(USEFUL))
def test_a_card_number_is_not_kept_however_it_is_spelled(
    spelling: str, number: str, before: str, after: str
) -> None:
    spelled = SPELLINGS[spelling](number)

    kept = harmless(f"{before} {spelled} {after}")

    assert digits_in(kept) <= MOST_DIGITS
    parts = re.findall(r"[^\W_]+", kept)
    secret = re.findall(r"[^\W_]+", spelled)
    assert not [
        part for part in secret if len(part) > FIFTH and part in parts and not WORD.fullmatch(part)
    ]


@given(st.text())
def test_whatever_a_text_is_no_more_digits_are_kept_than_nobody_can_use(text: str) -> None:
    kept = harmless(text)

    assert digits_in(kept) <= MOST_DIGITS
    assert kept.isprintable() or OWN in text or kept.replace(OWN, "").isprintable()


@pytest.mark.parametrize("link", LINKS)
def test_a_link_is_not_kept(link: str) -> None:
    assert "see [link] now" == harmless(f"see {link} now")


def test_controls_and_marks_of_direction_are_marks() -> None:
    assert "bad[1 character]value[1 character]" == harmless("bad\x07value\u202e")


def test_the_cuid_of_the_row_stays_where_it_is_the_one_that_we_sent() -> None:
    kept = harmless(about("C-0005: cvv hash of C-0005, not of C-00051", "C-0005"))

    assert "C-0005: cvv hash of C-0005, not of [1 letter]-[5 digits]" == with_cuid(kept, "C-0005")
    assert f"{CUID}: cvv hash of {CUID}, not of [1 letter]-[5 digits]" == with_cuid(kept, None)


def test_marks_of_one_kind_side_by_side_are_one() -> None:
    assert "card [16 digits] is bad" == harmless("card 4242 4242-4242.4242 is bad")


@pytest.mark.parametrize(
    "name",
    [
        "card-links-bank-20261120-3a0f63fb-00001-result.csv",
        "bank-20261120-12345678-r2-00001.csv.pgp",
        "results (1).csv",
        "EXPORT_20261120_143059.csv",
        "export20261120143059.csv",
        "Kopie von Ergebnis (2).csv.gz",
        "résultat-2026-11-20.csv",
        "result-1234.csv",
        "a3f9b2c4-1d2e-4f5a-8b6c-7d8e9f0a1b2c.csv",
    ],
)
def test_a_usual_name_of_a_file_is_kept_whole(name: str) -> None:
    assert name == harmless_name(name)


CARD = "4000001234567899"
NAMES_OF_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


@pytest.mark.parametrize(
    "name",
    [
        CARD + ".csv",
        f"{CARD[:8]} {CARD[8:]}.csv",
        "-".join(CARD) + ".csv",
        CARD.translate(str.maketrans("0123456789", "０１２３４５６７８９")) + ".csv",
        base64.b64encode(CARD.encode()).decode().rstrip("=") + ".csv",
        hashlib.md5(CARD.encode()).hexdigest() + ".csv",
        f"{int(CARD):x}.csv",
        f"{CARD[:8]}-{CARD[8:12]}-{CARD[12:]}-0000-000000000000.csv",
        " ".join(NAMES_OF_DIGITS[int(digit)] for digit in CARD) + ".csv",
    ],
)
def test_a_card_number_in_the_name_of_a_file_is_not_kept(name: str) -> None:
    kept = harmless_name(name)

    assert sum(map(str.isdecimal, kept.replace("[", "").partition("]")[0])) <= MOST_DIGITS
    assert name.removesuffix(".csv") not in kept
    assert not any(CARD[place : place + 5] in kept for place in range(12))


@pytest.mark.parametrize("name", ["cvv 592.csv", "CVV_592.csv", "security-code-592.csv"])
def test_no_digit_of_a_named_cvv_is_kept_of_a_file_s_name(name: str) -> None:
    assert "592" not in harmless_name(name)


@given(st.text(max_size=80))
def test_whatever_a_file_is_named_no_more_digits_are_kept_than_nobody_can_use(name: str) -> None:
    kept = re.sub(r"\[[0-9]+ [A-Za-z0-9]+\]", "", harmless_name(name))
    without_days = re.sub(r"(19|20)[0-9]{2}([-_.]?)[01][0-9]\2[0-3][0-9]", "", kept)

    assert sum(char.isdigit() for char in without_days) <= MOST_DIGITS


@pytest.mark.parametrize("size", quick(4, [1, 2, 4, 8, 3, 5, 6]))
@pytest.mark.parametrize("code", ["hex", "md5", "base64"])
def test_a_digest_in_groups_is_not_kept_though_some_look_like_words(size: int, code: str) -> None:
    kept = 0
    for number in map(str, range(4_000_001_000_000_000, 4_000_001_000_000_100)):
        digest = hashlib.sha256(number.encode())
        codes = {
            "hex": digest.hexdigest(),
            "md5": hashlib.md5(number.encode()).hexdigest(),
            "base64": base64.b64encode(digest.digest()).decode(),
        }
        groups = ":".join(re.findall(f".{{1,{size}}}", codes[code]))
        kept += len(re.sub(r"\[[^]]*\]|\W", "", harmless(f"refused {groups}"))) - len("refused")

    assert kept / 100 < 2.5  # characters of 32 to 64: no number follows from them
