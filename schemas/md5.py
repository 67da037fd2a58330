"""MD5 of many texts of 16 characters at once, in a fifth of the time that hashlib takes.

Many issuers have identifiers of 32 hexadecimal digits, each of which could be the MD5 of its row's
card number.
"""

from math import floor, sin

import numpy as np
from numpy.typing import NDArray

LENGTH = 16  # of the texts, and of their digests

_Words = NDArray[np.uint32]

_BEGIN = (0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476)
_CONSTANTS = [floor(abs(sin(step + 1)) * 2**32) for step in range(64)]
_TURNS = ((7, 12, 17, 22), (5, 9, 14, 20), (4, 11, 16, 23), (6, 10, 15, 21))
# which word of its text a step takes: its number times the first, plus the second
_ORDER = ((1, 0), (5, 1), (3, 5), (7, 0))
_TEXTS_AT_ONCE = 1 << 15


def md5_of_each(texts: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the digests of texts of 16 bytes: a row of 16 bytes for each row (RFC 1321)."""
    digests = np.empty_like(texts)
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        some = np.ascontiguousarray(texts[start : start + _TEXTS_AT_ONCE])
        words = np.ascontiguousarray(some.view("<u4").T)
        digest = np.stack(_digest(words), axis=1).astype("<u4")
        digests[start : start + _TEXTS_AT_ONCE] = digest.view(np.uint8)
    return digests


def _digest(words: _Words) -> list[_Words]:
    """Return the four words of the digest of each text, given as its four words."""
    state = [np.full(words.shape[1], word, np.uint32) for word in _BEGIN]
    mixed = np.empty_like(state[0])
    # a bit that ends the text, and its length in bits
    padding = [0x80, *[0] * 9, 8 * LENGTH, 0]
    for step, constant in enumerate(_CONSTANTS):
        a, b, c, d = state
        quarter = step // 16
        factor, offset = _ORDER[quarter]
        place = (factor * step + offset) % 16
        _mix(quarter, b, c, d, mixed)
        a += mixed
        if place < len(words):
            a += words[place]
        else:
            constant += padding[place - len(words)]
        a += np.uint32(constant % 2**32)
        turn = _TURNS[quarter][step % 4]
        np.left_shift(a, turn, out=mixed)
        a >>= 32 - turn
        a |= mixed
        a += b
        state = [d, a, b, c]
    return [word + np.uint32(begun) for word, begun in zip(state, _BEGIN, strict=True)]


def _mix(quarter: int, b: _Words, c: _Words, d: _Words, mixed: _Words) -> None:
    """Write what a step of a quarter adds; in place, which takes half the time."""
    match quarter:
        case 0:
            np.bitwise_xor(c, d, out=mixed)
            mixed &= b
            mixed ^= d
        case 1:
            np.bitwise_xor(b, c, out=mixed)
            mixed &= d
            mixed ^= c
        case 2:
            np.bitwise_xor(b, c, out=mixed)
            mixed ^= d
        case _:
            np.invert(d, out=mixed)
            mixed |= b
            mixed ^= c
