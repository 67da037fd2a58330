"""Every form in which a known card number or CVV hash could be in bytes: what a leak scanner must
look for.
"""

from __future__ import annotations

import hashlib
import struct
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Iterator
from typing import NamedTuple

SEPARATORS = (
    " ",
    "-",
    ".",
    "/",
    "_",
    ",",
    ":",
    "\t",
    "\u00a0",
    "\u2009",
    "\u2011",
    "\u2013",
    "%20",
    "+",
    "\\t",
)
DIGESTS = ("md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha3_256", "blake2b")
ESCAPES = {
    "JSON escapes": "\\u{:04x}",
    "string escapes": "\\x{:02x}",
    "URL escapes": "%{:02X}",
    "entities": "&#{};",
}
INTEGERS = {"int64, little end first": "<q", "int64, big end first": ">q"}
FLOATS = {"float64, little end first": "<d", "float64, big end first": ">d"}


class Form(NamedTuple):
    """One form of a secret: how it is written there, and the bytes that betray it (at least
    eight).
    """

    name: str
    data: bytes


def of_card(pan: str) -> tuple[Form, ...]:
    """Return every form of a 16-digit card number, each with a name of its own."""
    return tuple(
        dict.fromkeys((*_text("card", pan), *_numbers(pan), *_grouped(pan), *_digests(pan)))
    )


def of_hash(digest: bytes) -> tuple[Form, ...]:
    """Return every form of a CVV's SHA-256: all CVVs invert from a table, so it counts as the CVV
    itself.
    """
    base64, url = b64encode(digest).decode(), urlsafe_b64encode(digest).decode()
    return (
        *_text("CVV hash, base64", base64.rstrip("=")),
        *_text("CVV hash, base64url", url.rstrip("=")),
        *_text("CVV hash, hex", digest.hex()),
        *_text("CVV hash, HEX", digest.hex().upper()),
        Form("CVV hash, bytes", digest),
    )


def of_cvv(cvv: str) -> tuple[Form, ...]:
    """Return the forms of a CVV's hash."""
    return of_hash(hashlib.sha256(cvv.encode()).digest())


def _text(what: str, text: str) -> Iterator[Form]:
    """Yield a text in the encodings it is written in, and those texts in base64 and hex."""
    for encoding in ("ascii", "utf-16", "utf-32"):
        core = _core(text, encoding)
        yield Form(f"{what}, {encoding}", core)
        yield Form(f"{what}, {encoding} in hex", core.hex().encode())
        yield Form(f"{what}, {encoding} in HEX", core.hex().upper().encode())
        for shift in range(3):
            yield Form(f"{what}, {encoding} in base64 at {shift}", _base64(core, shift))
    yield Form(f"{what}, reversed", text[::-1].encode())
    for kind, escape in ESCAPES.items():
        yield Form(
            f"{what}, {kind}", "".join(escape.format(ord(letter)) for letter in text).encode()
        )


def _core(text: str, encoding: str) -> bytes:
    """Return an encoded text without the zeros at its ends: the same bytes whichever end comes
    first.
    """
    width = {"ascii": 1, "utf-16": 2, "utf-32": 4}[encoding]
    return (b"\0" * (width - 1)).join(letter.encode() for letter in text)


def _base64(data: bytes, shift: int) -> bytes:
    """Return the base64 of `data` after `shift` unknown bytes: only the letters that do not depend
    on neighbours.
    """
    encoded = b64encode(b"\0" * shift + data)
    first = -(-shift * 8 // 6)
    last = (shift + len(data)) * 8 // 6
    return encoded[first:last]


def _numbers(pan: str) -> Iterator[Form]:
    number = int(pan)
    yield Form("BCD", bytes.fromhex(pan))
    for name, layout in INTEGERS.items():
        yield Form(name, struct.pack(layout, number))
    for name, layout in FLOATS.items():
        yield Form(name, struct.pack(layout, float(number)))
    for point in ".,":
        yield Form(f"scientific, {point}", f"{pan[0]}{point}{pan[1:15]}".encode())
    yield Form("hex number", f"{number:x}".encode())
    yield Form("HEX number", f"{number:X}".encode())


def _grouped(pan: str) -> Iterator[Form]:
    for separator in SEPARATORS:
        text = separator.join(pan[at : at + 4] for at in range(0, 16, 4))
        yield Form(f"4-4-4-4 with {separator!a}", text.encode())
        if separator == "\u00a0":
            yield Form("4-4-4-4 with latin-1 no-break space", text.encode("latin-1"))
    yield Form("thousands with ,", f"{int(pan):,}".encode())
    yield Form("thousands with _", f"{int(pan):_}".encode())
    yield Form("digits with spaces", " ".join(pan).encode())


def _digests(pan: str) -> Iterator[Form]:
    for name in DIGESTS:
        digest = hashlib.new(name, pan.encode()).digest()
        yield Form(f"{name}, bytes", digest)
        yield Form(f"{name}, hex", digest.hex().encode())
        yield Form(f"{name}, HEX", digest.hex().upper().encode())
        yield Form(f"{name}, base64", b64encode(digest).rstrip(b"="))
        yield Form(f"{name}, base64url", urlsafe_b64encode(digest).rstrip(b"="))
