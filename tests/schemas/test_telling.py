"""A cuid that tells its card, or a CVV, is rejected, however it is spelled; a random one never."""

from __future__ import annotations

import base64
import hashlib
import random
import uuid
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime

import polars as pl
import pytest

from flows.submissions.validate import validate
from schemas.conditions import tells_nothing
from schemas.cvv import hash_text
from schemas.issuer import RuleSettings
from schemas.portal import CUID, CVV, CVV_HASH, PAN
from schemas.telling_codes import DIGESTS
from tests.builders import portal_rows

PAN_TOLD = "5200003412347789"
ROWS = 10_000
BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
DIGITS = "0123456789"
AROUND = [("", ""), ("C-", ""), ("77-", "-01"), ("cust_", "/x y")]


def telling(cuids: Iterable[str | None], pans: Iterable[str]) -> list[str]:
    """Return the cuids that are rejected, each with its row's card number."""
    rows = pl.DataFrame({CUID: cuids, PAN: pans}).with_columns(pl.lit(None).alias(CVV_HASH))
    return rows.filter(~tells_nothing(CUID))[CUID].to_list()


def card_number(draw: random.Random) -> str:
    return "".join(("520000", *draw.choices(DIGITS, k=10)))


def in_script(zero: str, number: str = PAN_TOLD) -> str:
    return "".join(chr(ord(zero) + int(digit)) for digit in number)


def digest(name: str, text: str = PAN_TOLD) -> bytes:
    return hashlib.new(name, text.encode()).digest()


def plain64(content: bytes) -> str:
    return base64.b64encode(content).decode()


def spelled() -> dict[str, str]:
    """Return cuids that tell PAN_TOLD or a CVV, each with what it is."""
    number = PAN_TOLD
    cvv_hash = hash_text("592")
    shapes = {
        "the number": number,
        **{f"its first {count}": number[:count] for count in (9, 12, 14, 15)},
        **{f"its last {count}": number[-count:] for count in (9, 12, 15)},
        "its middle": f"C-{number[3:12]}",
        "reversed": number[::-1],
        "a part reversed": f"{number[2:13][::-1]}-01",
        "in fours": "5200 0034 1234 7789",
        "digit by digit": "5-2-0-0-0-0-3-4-1-2-3-4",
        "letters between": "a5b2c0d0e0f0g3h4i1j2",
        "percent signs": "5200%2D0034%2D1234",
        "all in percent": "%35%32%30%30%30%30%33%34%31",
        "HTML": "&#53;&#50;&#48;&#48;&#48;&#48;&#51;&#52;&#49;",
        "Arabic": in_script("٠"),
        "Devanagari": in_script("०", number[:12]),
        "full width": in_script("０"),
        "superscript and plain": "⁵²⁰⁰00341234",
        "hexadecimal": f"{int(number):x}",
        "hexadecimal with 0x": f"0x{int(number):X}",
        "hexadecimal behind a prefix": f"C-{int(number):014x}",
        "characters in hexadecimal": number.encode().hex(),
        "characters with colons": number.encode().hex(":"),
        "Base64": plain64(number.encode()),
        "Base64 of nine": plain64(number[:9].encode()),
        "Base64 of twelve": plain64(number[:12].encode()),
        "Base64 without its end": plain64(number.encode()).rstrip("="),
        "Base32": base64.b32encode(number.encode()).decode(),
        "Base32 in lower case": base64.b32encode(number.encode()).decode().lower().rstrip("="),
        "the hash of a CVV": cvv_hash,
        "the hash of a CVV, cut off": cvv_hash[:36],
        "the hash of a CVV, cut to 20 characters": cvv_hash[:20],
        "MD5 of a CVV, cut to 20 digits": digest("md5", "592").hex()[:20],
        "the hash of a CVV for URLs": cvv_hash.replace("+", "-").replace("/", "_").rstrip("="),
        "MD5 of a CVV": digest("md5", "592").hex(),
        "SHA-256 of a CVV in hexadecimal": digest("sha256", "0592").hex(),
        "SHA-256 of the hash of a CVV": digest("sha256", cvv_hash).hex(),
        "SHA-1 of a CVV behind a prefix": f"cust_{digest('sha1', '592').hex()}",
        "MD5 as a UUID": str(uuid.UUID(bytes=digest("md5"))),
        "MD5 behind a prefix": f"C-{digest('md5').hex()}",
        "MD5 behind 0x": f"0x{digest('md5').hex()}",
        "MD5 behind a g": f"g{digest('md5').hex()}",
        "MD5 behind seven hexadecimal digits": f"abcdef0{digest('md5').hex()}",
        "MD5 with brackets": "[".join((digest("md5").hex()[:8], digest("md5").hex()[8:])),
        "MD5 in 256 characters": digest("md5").hex().ljust(256, "."),
        "SHA-256 with colons": digest("sha256").hex(":"),
    }
    for name in DIGESTS:
        shapes[f"{name} in hexadecimal"] = digest(name).hex()
        shapes[f"{name} in capitals"] = digest(name).hex().upper()
        shapes[f"{name} in Base64"] = plain64(digest(name))
        for_urls = base64.urlsafe_b64encode(digest(name)).decode()
        shapes[f"{name} in Base64 for URLs"] = for_urls.rstrip("=")
    return shapes


def random_ones() -> dict[str, Callable[[random.Random], str]]:
    """Return how identifiers of the usual forms are drawn."""
    moments = datetime(2026, 1, 1, tzinfo=UTC).timestamp()

    def letters(alphabet: str, count: int) -> Callable[[random.Random], str]:
        return lambda draw: "".join(draw.choices(alphabet, k=count))

    def epoch(parts: int) -> Callable[[random.Random], str]:
        return lambda draw: str(int((moments + draw.random() * 2e7) * parts))

    return {
        "UUID": lambda draw: str(uuid.UUID(int=draw.getrandbits(128), version=4)),
        "ULID": lambda draw: f"01{letters(CROCKFORD, 24)(draw)}",
        "hexadecimal, 24": lambda draw: f"{draw.getrandbits(96):024x}",
        "hexadecimal, 32": lambda draw: f"{draw.getrandbits(128):032x}",
        "SHA-256 of something": lambda draw: f"{draw.getrandbits(256):064x}",
        "Base64": lambda draw: base64.urlsafe_b64encode(draw.randbytes(16)).decode().rstrip("="),
        "ten digits": letters(DIGITS, 10),
        "twelve digits": letters(DIGITS, 12),
        "thirteen digits": letters(DIGITS, 13),
        "epoch milliseconds": epoch(1_000),
        "epoch microseconds": epoch(1_000_000),
        "nanoid": letters(f"{BASE62}_-", 21),
        "KSUID": letters(BASE62, 27),
        "prefixed": lambda draw: f"cus_{letters(BASE62, 14)(draw)}",
        "our own": lambda draw: f"cl-{draw.getrandbits(48):012x}-{draw.randrange(10**6)}",
    }


@pytest.mark.parametrize("cuid", spelled().values(), ids=spelled())
def test_a_cuid_that_tells_its_card_or_a_cvv_is_rejected(cuid: str) -> None:
    rejected = telling([cuid], [PAN_TOLD])

    assert [cuid] == rejected


def test_a_number_of_thirteen_hexadecimal_digits_is_found_and_a_code_in_257_characters_is_not() -> (
    None
):
    lower = "4242424242424242"
    cuids = [f"{int(lower):x}", digest("md5", lower).hex().ljust(257, ".")]

    assert cuids[:1] == telling(cuids, [lower, lower])


def test_cuids_of_all_shapes_are_judged_together_as_alone() -> None:
    cuids = ["C-1", None, *spelled().values(), "Å-12", "x" * 300, "C-0001234"]

    rejected = telling(cuids, [PAN_TOLD] * len(cuids))

    assert [*spelled().values()] == rejected


def test_the_same_cuids_tell_nothing_of_another_card() -> None:
    of_a_cvv = {shape: cuid for shape, cuid in spelled().items() if "CVV" in shape}
    cuids = [cuid for shape, cuid in spelled().items() if shape not in of_a_cvv]

    rejected = telling(cuids, ["4918761234098769"] * len(cuids))

    # they are whole card numbers
    assert {PAN_TOLD} >= {cuid.translate(str.maketrans("", "", " ")) for cuid in rejected}


@pytest.mark.parametrize("draw_one", random_ones().values(), ids=random_ones())
def test_random_identifiers_are_never_rejected(draw_one: Callable[[random.Random], str]) -> None:
    draw = random.Random(35)
    cuids = [draw_one(draw) for _ in range(ROWS)]

    rejected = telling(cuids, [card_number(draw) for _ in cuids])

    assert [] == rejected


def test_nine_shared_digits_are_found_wherever_they_are() -> None:
    number = "5312498736541278"
    parts = {number[start:end] for start in range(8) for end in range(start + 9, 17)}
    parts |= {part[::-1] for part in parts}
    cuids = [f"{before}{part}{after}" for part in parts for before, after in AROUND]

    rejected = telling(cuids, [number] * len(cuids))

    assert cuids == rejected


def test_eight_shared_digits_and_runs_of_zeros_tell_nothing() -> None:
    cuids = {
        "C-00341234": PAN_TOLD,
        "00000000123456": "5200000000001234",
        "000000000777": "5200000000012345",
        "S20-00000007": "6200000000000005",
        "S20261120-00004179": "4000002118493111",
    }

    rejected = telling(cuids.keys(), cuids.values())

    assert [] == rejected


def test_all_digits_but_the_last_four_tell_whatever_zeros_are_between() -> None:
    number = "4000000007000740"

    assert [number[:12]] == telling([number[:12], "000007000"], [number, number])


def test_a_number_of_another_length_is_not_shared_either() -> None:
    numbers = {"C-341234567": "371449341234567", "6304000000012345678": "6304000000012345678"}

    rejected = telling(numbers.keys(), numbers.values())

    assert [*numbers] == rejected


def test_a_cuid_that_is_its_rows_cvv_hash_is_rejected_even_where_that_is_salted() -> None:
    salted = hash_text("salt592")

    verdicts = validate(
        portal_rows({CUID: salted, CVV: None, CVV_HASH: salted}), date(2026, 11, 20), RuleSettings()
    )

    assert ["cardholder.cuid.card_number"] == verdicts.filter(column=CUID)["code"].to_list()


def test_a_cuid_that_is_too_long_and_tells_its_card_is_rejected_as_telling() -> None:
    """Of the rules that a cuid breaks, this one is reported: the ledger drops the cuid by it."""
    cuid = "x" * 300 + "424242424242"

    verdicts = validate(portal_rows({CUID: cuid}), date(2026, 11, 20), RuleSettings())

    assert ["cardholder.cuid.card_number"] == verdicts.filter(column=CUID)["code"].to_list()
