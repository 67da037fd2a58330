"""Leaves chunks unsealed, for trials at a test issuer: only published test cards may pass (interface.md 2.6)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from flows.errors import OperatorError
from flows.runs.sealing import Plain, Sealed
from schemas.expressions import PUBLISHED

_LONG_NUMBER: Final = re.compile(rb"[0-9]{13,}")
_PUBLISHED: Final = frozenset(card.encode() for card in PUBLISHED)


class UnsealedCardError(OperatorError):
    """An unsealed chunk would hold a number that is no published test card."""

    message = (
        "{chunk} would hold {count} numbers that are not published test cards, and [portal] sealed = false. It was "
        "not written."
    )
    next_step = "Remove `sealed = false` from the TOML, or use an extract of published test cards only."


class PlainSealer:
    """Give every chunk back as it came; implements `ports.Sealer` for `[portal] sealed = false`.

    Nothing has been written when a chunk gets here, so it is the place to refuse: UnsealedCardError for any number of
    13 or more digits that is no published test card, in whatever column.
    """

    @property
    def fingerprints(self) -> tuple[str, ...]:
        """No key."""
        return ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Say aloud each time that nothing is sealed."""
        return ("Chunks are not sealed ([portal] sealed = false): published test cards only.",)

    def seal(self, chunks: Sequence[Plain]) -> list[Sealed]:
        """Return the chunks unsealed, under their upload names, none of them where one holds another card."""
        for chunk in chunks:
            others = [number for number in _LONG_NUMBER.findall(chunk.data) if number not in _PUBLISHED]
            if others:
                raise UnsealedCardError(chunk=chunk.name, count=len(others))
        return [Sealed(chunk.name, chunk.data) for chunk in chunks]
