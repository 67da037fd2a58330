"""Masks card numbers, CVVs, hashes and known secrets in what is printed, logged or stored.

Redaction is the second line of defence; the first is that no foreign exception's text passes the
boundary.
"""

import base64
import hashlib
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any, Final

from flows.card_numbers import FEWEST_DIGITS, blank_identifiers, card_spans
from flows.errors import CardlinkError
from flows.readable import readable
from flows.secret_words import CVV_NAMES, CVV_SIGNS, without_accents
from flows.spellings import Span, readings
from schemas.digits import number_shape

MASK: Final = "[masked]"
_PLAIN = logging.Formatter()

# SHA-256 of a CVV in Base64 or hexadecimal, also in a longer run or cut off.
_CODED = re.compile(r"(?<![0-9A-Za-z+/_-])[0-9A-Za-z+/_-]{40,}=?")
_CERTAIN = 20  # characters of a hash that tell whose it is
_BASE64_LENGTH = 44
_HEX_LENGTH = 64
_URLSAFE = str.maketrans("-_", "+/")
_HASH_WORDS = (
    r"(?:number|num|no|hash|hashed|digest|is|was|of|the|a|for|value|hex|md5|hmac"
    r"|sha-?(?:1|2|224|256|384|512))(?![a-z])"
)
_OF_CARD = r"(?<![a-z])(?:card|pan|account|number)(?![a-z])"
_DIGEST_OF_CARD = re.compile(
    rf"{_OF_CARD}(?:[^0-9a-z]{{0,6}}{_HASH_WORDS}){{0,5}}[^0-9a-z]{{0,6}}(?P<after>[0-9a-f]{{32,}})"
    rf"|(?<![0-9a-z])(?P<before>[0-9a-f]{{32,128}})(?:[^0-9a-z]{{1,6}}{_HASH_WORDS}){{0,5}}"
    rf"[^0-9a-z]{{1,6}}{_OF_CARD}",
    re.IGNORECASE,
)
# as cvv, cvvStatus, CVC2_CODE, cardCVV
_CVV = (
    r"(?:(?:(?:(?<![0-9a-z])|(?<=card))cv[vcnd]"
    r"|(?-i:(?<=[a-z])C(?:v[vcnd]|V[VCND])|(?<![0-9A-Za-z])(?:CSC|CID)))"
    r"2?(?:[ _-]?(?:code|value|number))?(?:[_-]?(?!hash)[a-z]{1,16}){0,3}|(?:"
    rf"{CVV_NAMES})[a-z]{{0,16}})"
)
_CVV_SENTENCE_WORDS = (
    r"(?:is|was|of|as|you|for|to|in|the|a|an|your|property|field|input|path|message|service|card"
    r"|status|error|result|response|failed|check|with|ist|est|es|visuel"
    r"|value|code|number|got|received|given|provided|entered|sent|be|must|not|does|match|matches"
    r"|invalid|valid|wrong|bad|incorrect|rejected|equals)(?![a-z])"
)
_NAMED_CVV = re.compile(
    rf"{_CVV}(?:[^0-9a-z]{{0,12}}{_CVV_SENTENCE_WORDS}){{0,6}}[^0-9a-z]{{0,12}}"
    r"(?P<after>[0-9]{3,4}|[0-9](?:[ .-][0-9]){2,3})(?![0-9])"
    rf"|(?<![0-9.,])(?P<before>[0-9]{{3,4}})(?:[^0-9a-z]{{1,12}}{_CVV_SENTENCE_WORDS}){{0,6}}"
    rf"[^0-9a-z]{{1,12}}[a-z]{{0,12}}{_CVV}(?![a-z]|_?hash|\.[a-z])",
    re.IGNORECASE,
)
# a name of a CVV with nothing but words behind it, all in one
_NAME_ALONE = re.compile(
    rf"(?:card)?(?:cv[vcnd]|csc|cid|{CVV_NAMES})(?:{_CVV_SENTENCE_WORDS.removesuffix('(?![a-z])')})*",
    re.IGNORECASE,
)
_HEX_RUN = re.compile(r"(?<![0-9A-Za-z])[0-9A-Fa-f]{32}")
_LONG_NUMBER = re.compile(number_shape(FEWEST_DIGITS))

_SHORTEST_SECRET = 3
_LONGEST_CVV = 4
_SECRETS: list[str] = []
_LINKS: set[str] = set()  # that are printed as they are


def redact(text: str) -> str:
    """Return `text` with card numbers, CVVs, their hashes and known secrets masked.

    A card number is 13 to 19 digits that pass Luhn, bare or in a card's groups, or a longer run:
    lists, dates, times and identifiers are left. What is stored of a text that an issuer or the
    partner wrote is another question (`flows.harmless`).
    """
    clean = ""
    end = 0
    for start, stop in sorted(_sensitive_spans(text)):
        if start >= end:
            clean += text[end:start] + MASK
        end = max(end, stop)
    return clean + text[end:]


def shown(text: str) -> str:
    """Return a text as a terminal may show it: redacted, and readable."""
    return readable(redact(text))


def shows_secret(text: str) -> bool:
    """Return whether a text has a CVV that it names, the hash of any, or a secret, in any spelling.

    In an identifier, a secret as short as a CVV may be by chance, and does not count; nor does a
    name of one that goes on with other letters, three digits and letters (`cvCUGbDf783kB3`).
    """
    return any(_has_secret(reading.text) for reading in readings(text))


def _has_secret(text: str) -> bool:
    long_secrets = (secret for secret in _SECRETS if len(secret) > _LONGEST_CVV)
    if any(_pattern(secret).search(text) for secret in long_secrets):
        return True
    by_chance = {match.span("after") for match in _NAMED_CVV.finditer(text) if _is_chance(match)}
    return not by_chance.issuperset(_cvv_spans(text))


def _is_chance(named: re.Match[str]) -> bool:
    """Return whether name and digits of a CVV are in the middle of an identifier."""
    if named["after"] is None:
        return False
    start, end = named.span("after")
    head = named.string[named.start() : start]
    goes_on = named.string[end : end + 1].isalpha()
    return goes_on and head.isalpha() and not _NAME_ALONE.fullmatch(head)


def spare(link: str) -> None:
    """Print a link as it is from now on, whatever digits its key has.

    It was judged to be a link (`flows.results.links`), which shows no card. Only for a command that
    is asked for links.
    """
    _LINKS.add(link)


def redacted(fact: Any) -> Any:
    """Return a fact with every text in it redacted."""
    if isinstance(fact, dict):
        return {name: redacted(value) for name, value in fact.items()}
    if isinstance(fact, list | tuple):
        return [redacted(value) for value in fact]
    if isinstance(fact, str):
        return redact(fact)
    return fact


@contextmanager
def hiding(*secrets: str | None) -> Iterator[None]:
    """Mask these secrets in whatever is redacted before this ends.

    So are those given to `hide` meanwhile.
    """
    known_before = len(_SECRETS)
    for secret in filter(None, secrets):
        hide(secret)
    try:
        yield
    finally:
        del _SECRETS[known_before:]


def hide(secret: str) -> None:
    """Mask a secret, also encoded or hashed, until the innermost `hiding` ends.

    One of fewer than three characters is not masked: it is in every text.
    """
    if len(secret) < _SHORTEST_SECRET:
        return
    texts = [reading.text for reading in readings(secret)]
    raw = secret.encode("utf-8", "replace")
    digests = [hashlib.new(name, raw).digest() for name in ("md5", "sha1", "sha256", "sha512")]
    for code in (raw, *digests):
        texts += code.hex(), base64.b64encode(code).decode().rstrip("=")
    _SECRETS.extend(dict.fromkeys(texts))


class Redaction(logging.Filter):
    """Redacts every log record of a handler, its exception and stack included.

    In a logging configuration: `filters: {redaction: {(): flows.redaction.Redaction}}`.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Redact a record in place.

        Arguments that do not fit the message and traces of our errors are dropped.
        """
        try:
            message = record.getMessage()
        except Exception:  # noqa: BLE001 - an argument's own __str__ may raise anything
            message = str(record.msg)
        if record.exc_info and isinstance(record.exc_info[1], CardlinkError):
            # what Prefect adds to a flow that ended as failed
            if message.startswith("Engine execution exited"):
                return False
            record.exc_info = None  # its sentence says it all
        record.msg = redact(message)
        record.args = ()
        if record.exc_info:
            record.exc_text = record.exc_text or _PLAIN.formatException(record.exc_info)
            record.exc_info = None  # else a handler would format it again, unredacted
        if record.exc_text:
            record.exc_text = redact(record.exc_text)
        if record.stack_info:
            record.stack_info = redact(record.stack_info)
        return True


def _sensitive_spans(text: str) -> Iterator[Span]:
    """Yield where a text has something to mask, in any of its readings."""
    links = list(_link_spans(text))
    for reading in readings(text):
        for span in _spans_in(reading.text):
            start, stop = reading.original_span(span)
            if not any(first <= start and stop <= last for first, last in links):
                yield start, stop


def _link_spans(text: str) -> Iterator[Span]:
    """Yield where a text has a link that is printed as it is."""
    for link in _LINKS:
        start = text.find(link)
        while start >= 0:
            yield start, start + len(link)
            start = text.find(link, start + 1)


def _spans_in(text: str) -> Iterator[Span]:
    """Yield where one reading of a text has something to mask."""
    yield from _secret_spans(text)
    yield from _cvv_spans(text)
    if _HEX_RUN.search(text):
        yield from _named_spans(_DIGEST_OF_CARD, text)
    if _LONG_NUMBER.search(text):
        yield from card_spans(text)


def _secret_spans(text: str) -> Iterator[Span]:
    for secret in _SECRETS:
        if len(secret) > len(text):
            continue  # saves the compilation of its pattern
        # a CVV may be in an identifier by chance
        searched = blank_identifiers(text) if len(secret) <= _LONGEST_CVV else text
        for echo in _pattern(secret).finditer(searched):
            yield echo.span()


@lru_cache(256)
def _pattern(secret: str) -> re.Pattern[str]:
    """Return the pattern of a secret.

    That of a number allows anything but letters between its digits.
    """
    if secret.isdecimal():
        return re.compile(f"(?<![0-9]){'[^0-9A-Za-z]{0,3}'.join(secret)}(?![0-9])")
    escaped = (char if char.isalnum() else rf"\\*{re.escape(char)}" for char in secret)
    return re.compile("".join(escaped), re.IGNORECASE)


def _cvv_spans(text: str) -> Iterator[Span]:
    """Yield where a text has a CVV that it calls so, and where it has the hash of any CVV."""
    unaccented = without_accents(text)
    lowered = unaccented.lower()
    if any(sign in lowered for sign in CVV_SIGNS):
        yield from _named_spans(_NAMED_CVV, unaccented)
    for run in _CODED.finditer(text):
        yield from _cvv_hash_spans(run)


def _named_spans(pattern: re.Pattern[str], text: str) -> Iterator[Span]:
    """Yield where a secret stands that a text names before or after it."""
    for sentence in pattern.finditer(text):
        yield sentence.span("after" if sentence["after"] else "before")


def _cvv_hash_spans(run: re.Match[str]) -> Iterator[Span]:
    """Yield where a run of Base64 or hexadecimal has the SHA-256 of a CVV, whole or cut off."""
    known = cvv_hashes()
    text = run[0].translate(_URLSAFE)
    for reading, length in ((text, _BASE64_LENGTH), (text.lower(), _HEX_LENGTH)):
        for offset in range(len(text) - _CERTAIN + 1):
            if reading[offset : offset + _CERTAIN] in known:
                start = run.start() + offset
                yield start, min(start + length, run.end())


@cache
def cvv_hashes() -> frozenset[str]:
    """Return how the SHA-256 of every CVV begins, in Base64 and hexadecimal: 11,000, in 30 ms."""
    beginnings = set[str]()
    for width in (3, 4):
        for number in range(10**width):
            digest = hashlib.sha256(f"{number:0{width}d}".encode()).digest()
            beginnings.add(base64.b64encode(digest).decode()[:_CERTAIN])
            beginnings.add(digest.hex()[:_CERTAIN])
    return frozenset(beginnings)
