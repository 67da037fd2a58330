"""A sealer for trials with a test issuer: it leaves chunks as they are (interface.md 2.6).

It refuses real cards by itself, since chunks are published before the gates judge the run.
"""

import re
from collections.abc import Sequence
from typing import Final

from flows.errors import OperatorError
from flows.runs.sealing import Plain, Sealed, Warned
from flows.steps import FILE, Sentence, Step
from schemas.expressions import PUBLISHED

_LONG_NUMBER: Final = re.compile(rb"[0-9]{13,}")
_PUBLISHED: Final = frozenset(card.encode() for card in PUBLISHED)


class UnsealedCardError(OperatorError):
    """An unsealed chunk would contain a number that is not a published test card."""

    message = (
        "{chunk} contains {count} numbers that are not published test cards, "
        "and [portal] sealed = false. It was not written."
    )
    next_step = Sentence(
        "Remove `sealed = false` from the TOML, or use test cards: {sample}.",
        sample=Step("sample", FILE, published=True),
    )


class PlainSealer:
    """Returns chunks unchanged, for `[portal] sealed = false`.

    Raises UnsealedCardError where a number is no test card.
    """

    fingerprints: tuple[str, ...] = ()
    warnings = (
        Warned("Chunks are not sealed ([portal] sealed = false): published test cards only."),
    )

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Return the chunks unsealed, under their upload names.

        Raises UnsealedCardError for any other card.
        """
        for chunk in chunks:
            others = [
                number for number in _LONG_NUMBER.findall(chunk.data) if number not in _PUBLISHED
            ]
            if others:
                raise UnsealedCardError(chunk=chunk.name, count=len(others))
        return [Sealed(chunk.name, chunk.data) for chunk in chunks]
