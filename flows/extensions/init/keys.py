"""What joins records to rows: columns of both with the same values, proven by reading all rows.

It stays a doubt, since running numbers are equal in any two files.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, Final, NamedTuple

import polars as pl

from flows.errors import CardlinkError
from flows.extensions.init.sample import FIRST
from flows.extracts.opening import Pair
from flows.extracts.rows import open_rows
from schemas.issuer import source_settings

MOST_KEYS: Final = 3  # that are proposed
OVERLAP: Final = 0.5  # share of the rows whose key is among the others
DIFFERENT: Final = 0.95  # share of the others that have a key of their own

Cells = Mapping[str, Sequence[str]]  # by column


class Key(NamedTuple):
    """A column of rows and one of others, and how well they fit; the larger is the better."""

    share: float  # of the different values of the rows
    is_namesake: bool
    own: str
    other: str


def keys_of(own: Cells, other: Cells) -> list[Key]:
    """Return the columns that may join others to rows, the best first."""
    keys: list[Key] = []
    for name, values in other.items():
        different = set(values)
        if len(different) < DIFFERENT * len(values):
            continue
        for own_name, own_values in own.items():
            own_different = set(filter(None, own_values))
            if len(own_different) > 1:
                share = len(own_different & different) / len(own_different)
                keys.append(Key(share, _plain(name) == _plain(own_name), own_name, name))
    return sorted(keys, key=lambda key: key[:2], reverse=True)


def _plain(name: str) -> str:
    return re.sub("[^a-z0-9]", "", name.casefold())


class Reading(NamedTuple):
    """What a reading by some settings showed: all rows, those that have what they need, what was
    joined to them, what belongs to none of them, and the first ones.
    """

    source: dict[str, Any]
    rows: int
    whole: int
    joined: int
    unused: int
    first: pl.DataFrame


def read_all(
    stream: BinaryIO | Pair, source: dict[str, Any], name: str, parts: Sequence[str] = ()
) -> Reading | None:
    """Read all rows by some settings; None where they cannot be read so.

    `parts`: columns that a row has where something is joined to it.
    """
    first: list[pl.DataFrame] = []
    whole = 0
    joined = 0
    with suppress(CardlinkError):
        rows = open_rows(stream, source_settings().model_validate(source), name)
        for block in rows:
            whole += block.rows.height
            joined += sum(len(block.rows[part].drop_nulls()) for part in parts)
            if sum(frame.height for frame in first) < FIRST:
                first.append(block.rows)
        unused = rows.tally.unused if rows.tally else 0
        return Reading(source, rows.height, whole, joined, unused, pl.concat(first).head(FIRST))
    return None
