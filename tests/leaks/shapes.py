"""Texts as a partner might echo them: a card number, a CVV or their hashes in a shape chosen at
random.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Callable
from random import Random
from urllib.parse import quote

from schemas.expressions import PUBLISHED

FULL_WIDTH = str.maketrans("0123456789", "０１２３４５６７８９")
ARABIC = str.maketrans("0123456789", "٠١٢٣٤٥٦٧٨٩")
DEVANAGARI = str.maketrans("0123456789", "०१२३४५६७८९")
MATHEMATICAL = {ord("0") + digit: chr(0x1D7CE + digit) for digit in range(10)}
SEPARATORS = (
    *(
        " ",
        "-",
        ".",
        "/",
        "_",
        "\u00a0",
        "\u2009",
        "\u2011",
        "\u2013",
        "\u202f",
        " - ",
        "\u200b",
        "\u00ad",
        "\u2060",
        "\\-",
        "\n",
        "\t",
        "|",
        "  ",
    ),
    *("%2D", "%20", "%252D", "&nbsp;", "&#45;", "&#x2d;", "\\u002d", "\\x2d", "\\u00a0"),
    *("<br>", "<br/>", "</td><td>", "</td>\n  <td>", '</b><b class="n">', "&lt;br&gt;"),
)
DIGITS: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: text.translate(FULL_WIDTH),
    lambda text: text.translate(ARABIC),
    lambda text: text.translate(DEVANAGARI),
    lambda text: text.translate(MATHEMATICAL),
    lambda text: "".join(f"\\u003{digit}" for digit in text),
    lambda text: "".join(f"\\\\x3{digit}" for digit in text),
    lambda text: "".join(f"%3{digit}" for digit in text),
    lambda text: "".join(f"%253{digit}" for digit in text),
    lambda text: "".join(f"&#{ord(digit)};" for digit in text),
    lambda text: "".join(f"&#x{ord(digit):x};" for digit in text),
    lambda text: "".join(f"\\u{{3{digit}}}" for digit in text),
    lambda text: quote(text.translate(FULL_WIDTH)),
    lambda text: json.dumps(text.translate(MATHEMATICAL)).strip(chr(34)),
)
HASHES: tuple[Callable[[str], str], ...] = (
    str,
    lambda text: text.rstrip("="),
    lambda text: text.replace("=", "\\u003d").replace("/", "\\/"),
    lambda text: quote(text, safe=""),
    lambda text: quote(quote(text, safe=""), safe=""),
    lambda text: text.replace("+", "-").replace("/", "_"),
    lambda text: html.escape(text).replace("=", "&#61;").replace("+", "&#43;"),
    lambda text: base64.b64decode(text).hex(),
    lambda text: base64.b64decode(text).hex().upper(),
)
CVVS = (
    "cvv {}", "CVV: '{}'", "cvv2={}", '"cvv":"{}"', '"cvv": {{"value": "{}"}}',
    "security code is {}", "Cvc={}", "value '{}' for property cvv", "{} is not a valid CVV",
    '"value":"{}","property":"cvv"', "'{}' (cvv)", "the cvv you sent, {}",
    '\\"cvv\\": \\"{}\\"', "cardCvv={}", "verification value: {}", "cvv got {}",
    '"input":"{}","path":["service_card","cvv"]', "{} does not match the security code",
    "cvvStatus {}", "verificationCode: {}", "cardCode={}", "card code {}", "code de sécurité {}",
)  # fmt: skip
DIGESTS = ("md5", "sha1", "sha256", "sha512")
DIGESTED = (
    "pan_hash={}",
    "sha256 of card: {}",
    "card number hash {}",
    "digest {} of the card",
    "PAN (hashed): {}",
)
AROUND = (
    "{}",
    "The card {} is invalid",
    '{{"message": "{}"}}',
    "x{}y",
    "code 12, {}; row 7",
    "2026-11-20 {}",
)


def echo(chance: Random) -> tuple[str, tuple[str, ...]]:
    """Return a text, and what must be gone from it: the digits of a card in its spelling, a CVV or
    a hash.
    """
    card, cvv = chance.choice(PUBLISHED), f"{chance.randrange(10_000):0{chance.choice((3, 4))}d}"
    kind = chance.randrange(4)
    if kind == 0:
        return _number(chance, card)
    if kind == 1:
        return chance.choice(CVVS).format(cvv), (cvv,)
    if kind == 2:
        hashed = chance.choice(HASHES)(
            base64.b64encode(hashlib.sha256(cvv.encode()).digest()).decode()
        )
        return chance.choice(AROUND[:3]).format(hashed), (hashed[:12], hashed[12:24])
    digest = hashlib.new(chance.choice(DIGESTS), card.encode()).hexdigest()
    return chance.choice(DIGESTED).format(digest), (digest[:12], digest[12:24])


def _number(chance: Random, card: str) -> tuple[str, tuple[str, ...]]:
    spelled, separator = chance.choice(DIGITS), chance.choice(SEPARATORS)
    size = chance.choice((1, 2, 4, 8, 16))
    groups = [spelled(card[at : at + size]) for at in range(0, 16, size)]
    text = chance.choice(AROUND).format(separator.join(groups))
    text = json.dumps(text) if chance.random() < 0.2 else text
    return text, (
        separator.join(groups[-(8 // size or 1) :]),
        spelled(card[-4:]) if size >= 4 else "\0",
    )


def useful(chance: Random) -> str:
    """Return a text without secrets, as we or the partner write them."""
    number = chance.randrange
    day = f"20{number(20, 40)}-{number(1, 13):02d}-{number(1, 29):02d}"
    run = f"first-bank-{day.replace('-', '')}-{number(16**8):08x}"
    parts = (
        f"cuid C-{number(10**8):08d}",
        f"run {run}",
        f"chunk {run}-{number(1, 99):05d}.csv.pgp",
        f"on {day}",
        f"at {day} {number(24):02d}:{number(60):02d}:{number(60):02d}.{number(1000):03d}",
        f"row {number(10**6):,}",
        f"amount {number(10**9) / 100:,.2f} USD",
        f"phone +1 ({number(200, 999)}) 555-{number(10**4):04d}",
        f"{number(10**3)} of {number(10**6):,} rows",
        f"postal_code {number(10**5):05d}-{number(10**4):04d}",
        f"card.cvv.format {number(1000)} rows",
        f"last_4 {number(10**4):04d}",
        f"HTTP {number(100, 600)}",
    )
    return ", ".join(chance.sample(parts, 4))
