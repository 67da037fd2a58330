"""Links as partners make them: ten forms, and what the form of each is learned to be."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

HOST = "https://links.example"
HEX = "0123456789abcdef"
LETTERS = string.digits + string.ascii_letters
Chance = random.Random


class Made(NamedTuple):
    """A form of links: what follows the host of one of them, and the form as it is learned."""

    make: Callable[[Chance], str]
    learned: str
    is_fixed: bool = True

    def links(self, number: int, seed: int = 0) -> list[str]:
        """Return so many links."""
        chance = random.Random(seed)
        return [HOST + self.make(chance) for _ in range(number)]


def _word(chance: Chance, length: int, letters: str = LETTERS) -> str:
    return "".join(chance.choices(letters, k=length))


def _number(chance: Chance) -> str:
    """Return a random number of 64 bits in base 62, without leading zeros."""
    number = chance.getrandbits(64)
    digits = ""
    while number:
        number, digit = divmod(number, 62)
        digits = LETTERS[digit] + digits
    return digits


def _uuid(chance: Chance) -> str:
    return str(UUID(int=chance.getrandbits(128), version=4))


def _timed(chance: Chance) -> str:
    moment = 1763888400 + chance.randrange(86400)
    return f"{_word(chance, 8, HEX)}-{moment}-{_word(chance, 8, HEX)}"


FORMS = {
    "hex 24": Made(lambda chance: f"/l/{_word(chance, 24, HEX)}", "/l/{hex:24}"),
    "hex 32 below card": Made(lambda chance: f"/card/{_word(chance, 32, HEX)}", "/card/{hex:32}"),
    "UUID": Made(
        lambda chance: f"/l/{_uuid(chance)}",
        "/l/{hex:8}-{hex:4}-{hex:4}-{hex:4}-{hex:12}",
    ),
    "8-epoch-8": Made(lambda chance: f"/l/{_timed(chance)}", "/l/{hex:8}-{digits:10}-{hex:8}"),
    "16 digits": Made(lambda chance: f"/l/{_word(chance, 16, string.digits)}", "/l/{digits:16}"),
    "19 digits": Made(lambda chance: f"/l/{_word(chance, 19, string.digits)}", "/l/{digits:19}"),
    "base62 of 11": Made(lambda chance: f"/l/{_word(chance, 11)}", "/l/{base62:11}"),
    "base62 of several lengths": Made(
        lambda chance: f"/l/{_word(chance, chance.choice([10, 16, 22]))}",
        "/l/{base62:10-22}",
        is_fixed=False,
    ),
    "numbers in base62": Made(
        lambda chance: f"/l/{_number(chance)}", "/l/{base62:", is_fixed=False
    ),
    "query": Made(
        lambda chance: (
            f"/v?k={_word(chance, 16, string.digits)}&lang={chance.choice(['en', 'fr'])}"
        ),
        "/v?k={digits:16}&lang={en|fr}",
    ),
    "path": Made(
        lambda chance: (
            f"/{chance.choice(['b2c', 'shop'])}/{_word(chance, 43, LETTERS + '-_')}/start"
        ),
        "/{b2c|shop}/{base64url:43}/start",
        is_fixed=False,
    ),
}
