"""Files that nobody wants among the results, by seed: broken copies of good results, noise, bombs,
other kinds.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import zipfile
from collections.abc import Callable

from flows.results import opening

HEAD = b"cuid,last_4,url,expiration_date,error\n"
NAMES = (
    "result {at}.csv",
    "=cmd|{at}.csv",
    "-rf {at}",
    "..%2f{at}.csv",
    "a'b\"c`d$({at}).csv",
    "ünïcode\u202e{at}.csv",
    "{at}.csv.gz",
    "{at}.html",
    "two\nlines {at}",
    "a\tb{at}",
    "{at}" + "x" * 220,
    "con.{at}",
    "4111111111111111-{at}.csv",
    "{at};,|.csv",
    "\udcff{at}.csv",
    " {at} ",
)
PIECES = (
    b'"',
    b'""',
    b'\\"',
    b",",
    b"\n",
    b"\r",
    b"\0",
    b"\x1f\x8b",
    b"\xff",
    b"{",
    b"[",
    b"'",
    b"\\",
    b"c-1",
    b"\xe2\x80\xae",
)
Maker = Callable[[random.Random, bytes], bytes]


def hostile(seed: int, good: bytes) -> tuple[str, bytes]:
    """Return name and content of one hostile file; `good` is the result that some of them are made
    from.
    """
    chance = random.Random(seed)
    makers = (mutated, mutated, mutated, noise, grammar, packed, nested, long, encoded, other_kind)
    maker = bomb if seed % 100 == 99 else makers[seed % len(makers)]
    return chance.choice(NAMES).format(at=seed), maker(chance, good)


def mutated(chance: random.Random, good: bytes) -> bytes:
    """Change, remove, repeat and insert some pieces of a good result, or cut it."""
    data = bytearray(good)
    for _ in range(chance.choice((1, 3, 30, 300))):
        at, size = chance.randrange(len(data) + 1), chance.choice((0, 1, 1, 8, 200))
        piece = chance.choice(
            (
                b"",
                bytes([chance.randrange(256)]),
                chance.choice(PIECES),
                bytes(data[at : at + size]) * 2,
            )
        )
        data[at : at + size] = piece
    return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.3 else data)


def noise(chance: random.Random, good: bytes) -> bytes:
    """Random bytes, alone or below a header."""
    return chance.choice((b"", HEAD)) + chance.randbytes(
        chance.choice((0, 1, 5, 64, 3_000, 200_000))
    )


def grammar(chance: random.Random, good: bytes) -> bytes:
    """Quotes, delimiters and line ends in any order."""
    pieces = [chance.choice(PIECES[:7]) for _ in range(chance.choice((20, 400, 8_000)))]
    return HEAD + (b"" if chance.random() < 0.5 else good[len(HEAD) :]) + b"".join(pieces)


def packed(chance: random.Random, good: bytes) -> bytes:
    """Gzip: cut, damaged, in many members, twice, with something behind it."""
    data = gzip.compress(mutated(chance, good), mtime=0)
    ways = (
        data[: chance.randrange(len(data))],
        mutated(chance, data),
        gzip.compress(b"", mtime=0) * chance.choice((3, 5_000)),
        gzip.compress(data, mtime=0),
        data + good,
        data * 3,
    )
    return chance.choice(ways)


def nested(chance: random.Random, good: bytes) -> bytes:
    """Error objects of any depth, cut or not, with what makes patterns slow."""
    size = chance.choice((50, 900, 20_000))
    texts = (
        "[" * size,
        '{"a":' * size,
        "[" * size + "]" * size,
        "\\" * size,
        "\\" * size + '"',
        "{'" + "\\'" * size,
        "(" * size,
        "%22" * size,
        "&quot;" * size,
        "cuid" * size,
        '{"cuid":"' + "9" * size + '"}',
        "-" * size + "1",
        "{1" + "+1" * size + "}",
        "4111 1111 1111 1111 " * size,
        "message: " * size,
        "`" * size,
        "{" + "0" * size + ":1}",
        json.dumps({"errors": [str(seed) for seed in range(size)]}),
    )
    return (
        HEAD
        + "".join(
            f',,,,"{text.replace(chr(34), chr(34) * 2)}"\n' for text in chance.sample(texts, 3)
        ).encode()
    )


def long(chance: random.Random, good: bytes) -> bytes:
    """Lines, cells, headers and rows of any length."""
    size = chance.choice((5_000, 140_000, opening.LINE + 1))
    wide = b",".join([b"cuid,url,error"] + [b"x"] * (size // 20))
    ways = (
        b"x" * size,
        HEAD + b"," * size,
        HEAD + b"c-1,1111," + b"y" * size + b",,\n",
        HEAD + b',,,,"' + b"z" * size,
        wide + b"\n" + wide,
        HEAD + b"\n" * size,
        HEAD + b'"\n' * (size // 8),
        HEAD + b"\r" * size,
        HEAD + b"a,b\n" * (size // 40),
        b"\xff\xfe" + b"a\0" * size,
    )
    return chance.choice(ways)


def encoded(chance: random.Random, good: bytes) -> bytes:
    """A good result in an odd encoding, with or without a mark, or with half a character."""
    names = (
        "utf-16",
        "utf-16-le",
        "utf-16-be",
        "utf-32",
        "utf-7",
        "cp1252",
        "cp037",
        "utf-8-sig",
        "shift_jis",
        "utf-32-be",
    )
    data = good.decode().encode(chance.choice(names), "replace")
    return (
        chance.choice((b"", b"", b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\0"))
        + data[: len(data) - chance.randrange(3)]
    )


def other_kind(chance: random.Random, good: bytes) -> bytes:
    """A file of another kind: a page, an archive, a workbook, a message."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as members:
        members.writestr(chance.choice(("xl/workbook.xml", "result.csv")), good)
    page = (
        b"<!DOCTYPE html><title>Session expired</title>"
        + b"<input type='password'>" * chance.choice((1, 9_000))
    )
    kinds = (
        page,
        archive.getvalue(),
        b"%PDF-1.7\n" + chance.randbytes(900),
        b"\x89PNG\r\n" + chance.randbytes(900),
        b"{}",
        json.dumps([{"cuid": "c-1", "url": "x", "error": None}] * 50).encode(),
        b"<?xml version='1.0'?><a/>",
        b"\xd0\xcf\x11\xe0" + bytes(600),
        b"-----BEGIN PGP MESSAGE-----\n\n"
        + chance.randbytes(60).hex().encode()
        + b"\n-----END PGP MESSAGE-----\n",
        b"\x84\x8c\x03" + chance.randbytes(400),
        b"\x85\x01\x0c\x03" + chance.randbytes(5_000),
        b"cardholder.cuid,service_card.pan\nc-1,4242424242424242\n",
        b"SQLite format 3\0" + bytes(500),
        b"PAR1" + chance.randbytes(200),
    )
    return chance.choice(kinds)


def bomb(chance: random.Random, good: bytes) -> bytes:
    """Little that opens to much."""
    ways = (
        gzip.compress(bytes(opening.LIMIT + 1), 1, mtime=0),
        gzip.compress(b"", mtime=0) * 200_000,
        gzip.compress(HEAD + b"\n" * (3 * opening.LINES), 1, mtime=0),
        gzip.compress(HEAD + b",,,,\n" * (opening.LINES + 9), 1, mtime=0),
        gzip.compress(HEAD + b",,,," + b"[" * 20_000_000, 1, mtime=0),
        gzip.compress(HEAD + b"c-1,,,,\n" * (opening.LINES // 8), 1, mtime=0),
    )
    return chance.choice(ways)
